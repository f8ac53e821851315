"""`outline_before_ad`: repeated layers of a function are differentiated once; programs are not changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, transforms
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.primitives.control.call import Call
from fxad.transforms.outlining.merge_bodies import merge_bodies

X = fx.Spec((128, 512), "float32")
W = fx.Spec((512, 512), "float32")


def loss(ws: list[fx.Array], x: fx.Array) -> fx.Array:
    for w in ws:
        x = x + fnp.tanh(x @ w) * 0.5
    return fnp.mean(x * x)


def called(jaxpr: Jaxpr) -> list[Jaxpr]:
    return [e.prim.body for e in jaxpr.eqns if isinstance(e.prim, Call)]


def code(jaxpr: Jaxpr) -> int:
    """Returns the number of equations that are no calls, over all distinct bodies."""
    return sum([not isinstance(e.prim, Call) for body in distinct_jaxprs(jaxpr) for e in body.eqns])


def derivatives() -> dict[str, Callable[[Any], Callable[..., Any]]]:
    def vjp(f: Any) -> Any:
        return lambda ws, x: fx.vjp(f, ws, x)[1](fnp.ones((), "float32"))

    def linear(f: Any) -> Any:
        return lambda ws, x: fx.linearize(f, ws, x)[1](ws, x)

    def jvp(f: Any) -> Any:
        return lambda ws, x: fx.jvp(f, (ws, x), (ws, x))

    return {"grad": fx.grad, "value_and_grad": fx.value_and_grad, "vjp": vjp, "linearize": linear, "jvp": jvp}


@pytest.mark.parametrize("name", derivatives())
def test_a_layer_is_differentiated_once_however_many_there_are(name: str) -> None:
    derivative = derivatives()[name](loss)
    few, many = (fx.trace(derivative, [W] * n, X).jaxpr for n in (50, 75))
    assert code(few) == code(many)


def test_short_functions_and_programs_stay_as_they_are() -> None:
    for n in (3, 30):
        flat = fx.grad(fx.trace(loss, [W] * n, X)).jaxpr
        assert not called(flat)
        assert fx.inline(fx.trace(fx.grad(loss), [W] * n, X)).jaxpr is flat
    # a program goes through the passes before differentiation as a function does (docs/adr/0093)
    assert called(fx.grad(fx.trace(loss, [W] * 75, X)).jaxpr)


def test_cheap_layers_stay_as_they_are() -> None:
    """Cheap layers are not outlined before differentiation. Later, several of them and their gradients form a unit."""
    w, x = fx.Spec((16, 16), "float32"), fx.Spec((4, 16), "float32")
    program = fx.trace(loss, [w] * 100, x)
    assert len(program.jaxpr.eqns) > 300
    assert transforms.outline_before_ad(program.jaxpr) is program.jaxpr


def test_the_gradient_is_that_of_the_program() -> None:
    rng = np.random.default_rng(0)
    ws = [fx.asarray(rng.normal(size=(48, 48)) / 7) for _ in range(50)]
    x = fx.asarray(rng.normal(size=(2000, 48)))
    traced = fx.trace(fx.value_and_grad(loss), ws, x)
    assert called(fx.inline(traced).jaxpr) == []
    assert code(traced.jaxpr) < len(fx.inline(traced).jaxpr.eqns) / 10
    value, grads = fx.value_and_grad(loss)(ws, x)
    expected, plain = fx.value_and_grad(fx.trace(loss, ws, x))(ws, x)
    np.testing.assert_allclose(np.asarray(value), np.asarray(expected), rtol=1e-12)
    for a, b in zip(grads, plain, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-15)


def test_an_error_names_the_line_of_the_user() -> None:
    def looping(ws: list[fx.Array], x: fx.Array) -> fx.Array:
        for w in ws:
            x = lax.while_loop(lambda v: fnp.sum(v) < 1.0, lambda v: v * 2.0, x + fnp.tanh(x @ w) * 0.5)
        return fnp.mean(x * x)

    with pytest.raises(fx.errors.FxadError, match=r"traced at     .*test_outline_before_ad\.py:\d+ in \S*looping"):
        fx.trace(fx.grad(looping), [W] * 50, X)


def test_the_first_layer_shares_the_body_of_the_others_inside_a_call() -> None:
    """Its input has no derivative, so its body differs until `merge_bodies`."""
    program = fx.trace(fx.jit(fx.grad(lambda ws, x: loss(ws, x * 2.0))), [W] * 50, X).jaxpr
    assert _calls_of_each_body(program) == [1, 49, 50]
    assert _calls_of_each_body(merge_bodies(program, 0.02)) == [50, 50]


def test_a_merged_body_returns_the_operand_that_its_inner_call_returns() -> None:
    inner = fx.jit(lambda x: (x, fnp.sin(x)))

    @fx.jit
    def part(x: fx.Array) -> tuple[fx.Array, fx.Array]:
        same, y = inner(x)
        return same, fnp.exp(fnp.cos(y))

    @fx.jit
    def whole(x: fx.Array, w: fx.Array) -> tuple[fx.Array, fx.Array]:
        return fnp.exp(fnp.cos(fnp.sin(x))), fnp.tan(w)

    program = fx.trace(lambda x: (*part(x), *whole(x + 1.0, x)), fx.Spec((3,), "float32"))
    merged = program.replace(merge_bodies(program.jaxpr, 1.0))
    assert len(set(called(merged.jaxpr))) == 1
    x = np.array([0.1, 0.2, 0.3], np.float32)
    for a, b in zip(fx.interpret(merged, x), fx.interpret(program, x), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def _calls_of_each_body(jaxpr: Jaxpr) -> list[int]:
    """Returns how often each body is called. A program that is only one call is replaced by its body."""
    while len(jaxpr.eqns) == 1:
        (jaxpr,) = called(jaxpr)
    return sorted(Counter(called(jaxpr)).values())
