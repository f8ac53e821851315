"""Functions with rules inside of `invertible` that close over values. Their rules give no derivative with respect to
these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import NotDifferentiableError

K = np.array([0.5, -1.0, 2.0])
X = np.array([0.3, 0.7, -0.2])


def closing_over(k: Any, kind: str) -> Any:
    """Returns a bijection of x that closes over k, with a rule."""

    def plain(x: Any) -> Any:
        return fnp.sinh(x) * 2 + k

    if kind == "jvp":
        ruled = fx.custom_jvp(lambda x: plain(x))
        ruled.defjvp(lambda primals, tangents: fx.jvp(plain, primals, tangents))
        return ruled
    other = fx.custom_vjp(lambda x: plain(x))
    other.defvjp(lambda x: (plain(x), x), lambda x, ct: fx.vjp(plain, x)[1](ct))
    return other


def loss(f: Any) -> Any:
    return lambda x: fnp.sum(fnp.sin(f(x)))


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_a_rule_that_closes_over_a_constant(kind: str) -> None:
    # Regression: such functions were refused, because invertible differentiated with respect to all closed-over values
    f = closing_over(fnp.asarray(K), kind)
    lean = fx.invertible(f)
    for derivative in (fx.grad, fx.hessian):
        np.testing.assert_allclose(derivative(loss(lean))(X), derivative(loss(f))(X), rtol=1e-9)
    np.testing.assert_allclose(fx.jvp(lean, (X,), (K,))[1], fx.jvp(f, (X,), (K,))[1], rtol=1e-12)
    xs = np.stack([X, K])
    np.testing.assert_allclose(fx.vmap(fx.grad(loss(lean)))(xs), fx.vmap(fx.grad(loss(f)))(xs), rtol=1e-9)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_other_closed_over_values_have_derivatives(kind: str) -> None:
    def chain(wrap: Any) -> Any:
        def f(w: Any, k: Any, x: Any) -> Any:
            step = wrap(lambda x: closing_over(k, kind)(x * fnp.exp(w)))
            return fnp.sum(fnp.sin(step(step(x) / 4)))

        return f

    w = 0.1 * K
    plain, lean = [fx.grad(chain(wrap), argnums=(0, 2))(w, K, X) for wrap in (lambda f: f, fx.invertible)]
    for a, b in zip(plain, lean, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_a_rule_that_closes_over_a_kept_argument() -> None:
    def f(k: Any, x: Any) -> Any:
        return closing_over(k, "vjp")(x)

    lean = fx.invertible(f, keep="k")
    want = fx.grad(loss(closing_over(fnp.asarray(K), "vjp")))(X)
    np.testing.assert_allclose(fx.grad(lambda x: loss(lambda x: lean(K, x))(x))(X), want, rtol=1e-9)
    message = "closes over a value of type f64\\[3\\] \\(operand 0\\) that depends on what is differentiated"
    with pytest.raises(NotDifferentiableError, match=message):
        fx.grad(lambda k: loss(lambda x: lean(k, x))(X))(K)
    with pytest.raises(NotDifferentiableError, match=message):
        fx.jvp(lean, (K, X), (K, X))


def test_a_loop_over_such_a_step() -> None:
    def run(f: Any) -> Any:
        return lambda x: fx.lax.scan(lambda c, _: (f(c / 3), None), x, None, length=5)[0]

    f = closing_over(fnp.asarray(K), "jvp")
    want = fx.grad(loss(run(f)))(X)
    for lean in (run(fx.invertible(f)), fx.invertible(run(f))):
        np.testing.assert_allclose(fx.grad(loss(lean))(X), want, rtol=1e-7)


def test_a_kept_argument_without_a_derivative() -> None:
    def f(w: Any, x: Any) -> Any:
        measured: Any = fx.pure_callback(np.cos, fx.Spec(w.shape, w.dtype), w)
        return fnp.sinh(x) * fnp.exp(w) + measured

    lean = fx.invertible(f, keep="w")
    got, want = [fx.grad(lambda x: loss(lambda x: g(K, x))(x))(X) for g in (lean, f)]
    np.testing.assert_allclose(got, want, rtol=1e-9)
    with pytest.raises(NotDifferentiableError, match="host_call: cos has no derivative") as e:
        fx.grad(lambda w: loss(lambda x: lean(w, x))(X))(K)
    assert e.value.where.endswith(".f")
