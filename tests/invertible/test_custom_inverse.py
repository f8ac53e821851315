"""`custom_inverse`: inverses and ivjp rules that users define."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, NotInvertibleError, NotLinearError, ShapeError, TreeError

X = np.array([0.5, -1.25, 2.0])
W = np.array([0.25, -0.5, 1.5])


def cubed(x: Any) -> Any:
    return x * fnp.square(x) + x * 0.0


def root(y: Any) -> Any:
    return fnp.sign(y) * fnp.abs(y) ** (1 / 3)


def test_a_custom_inverse_is_used() -> None:
    f = fx.custom_inverse(cubed, root)
    assert f.rules == ("inverse",)
    np.testing.assert_allclose(fx.inverse(f)(X**3), X)
    lean = fx.invertible(lambda x: fnp.tanh(f(x)))
    want = fx.grad(lambda x: fnp.sum(fnp.tanh(cubed(x))))(X)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(lean(x)))(X), want, rtol=1e-7)
    np.testing.assert_allclose(fx.vmap(fx.grad(lambda x: lean(x)))(X), want, rtol=1e-7)


def test_arguments_that_are_kept_and_values_closed_over() -> None:
    shift = fnp.asarray(W)

    @fx.custom_inverse
    def f(x: Any, w: Any) -> Any:
        return cubed(x) * w + shift

    @f.definverse
    def back(y: Any, w: Any) -> Any:
        return root((y - shift) / w)

    f.definverse(back, keep="w")
    np.testing.assert_allclose(fx.inverse(f)(X**3 * W + W, W), X)
    lean = fx.invertible(f, keep=1)

    def loss(g: Any) -> Any:
        return lambda x, w: fnp.sum(fnp.sin(g(x, w)))

    want = fx.grad(loss(lambda x, w: x**3 * w + W), (0, 1))(X, W)
    for a, b in zip(fx.grad(loss(lean), (0, 1))(X, W), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)


def fused(y: Any, ct: Any) -> Any:
    x = root(y)
    return x, (ct * 3 * fnp.square(x),)


def test_reconstruction_and_gradient_at_once() -> None:
    f = fx.custom_ivjp(cubed, fused)
    assert f.rules == ("ivjp",)
    want = fx.grad(lambda x: fnp.sum(fnp.tanh(cubed(x))))(X)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(fnp.tanh(f(x))))(X), want, rtol=1e-7)
    np.testing.assert_allclose(fx.inverse(f)(X**3), X)
    lean = fx.invertible(lambda x: fnp.tanh(f(x)))
    program = fx.trace(fx.grad(lambda x: fnp.sum(lean(x))), X)
    np.testing.assert_allclose(program(X), want, rtol=1e-7)
    np.testing.assert_allclose(fx.jvp(f, (X,), (W,))[1], 3 * X**2 * W)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (lambda y: (y, y), TreeError, "definverse of cubed: <lambda> returns (*, *), cubed takes *"),
        (lambda y: y[:2], ShapeError, "definverse of cubed: <lambda> returns f64[2] for x, which is f64[3]"),
    ],
)
def test_an_inverse_that_does_not_fit(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as e:
        fx.inverse(fx.custom_inverse(cubed, given))(X)
    assert str(e.value).startswith(message)


def test_an_ivjp_that_does_not_fit() -> None:
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.custom_ivjp(cubed, lambda y, ct: (root(y) + ct, (ct,))))(X)
    assert e.value.message == "defivjp of cubed: <lambda>: what it reconstructs depends on the cotangents"
    with pytest.raises(NotLinearError, match=r"defivjp of cubed: <lambda> is not linear in the cotangents"):
        fx.inverse(fx.custom_ivjp(cubed, lambda y, ct: (root(y), (ct * ct,))))(X)
    with pytest.raises(TreeError, match=r"defivjp of cubed: <lambda> returns .*, not a pair"):
        fx.inverse(fx.custom_ivjp(cubed, lambda y, ct: root(y)))(X)


def test_keep_names_an_argument() -> None:
    with pytest.raises(ArgumentError) as e:
        fx.custom_inverse(cubed, root, keep="z")
    assert e.value.message == "definverse of cubed: keep has 'z', which is no argument of it"
    assert e.value.remedy == "name arguments, or number them from 0"
