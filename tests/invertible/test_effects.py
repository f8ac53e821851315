"""Effects and checks under `invertible` run once, in the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import CheckError

X = np.array([0.5, -1.25, 0.7])
B = np.full(200, 0.1)
A = 0.1 * np.abs(np.random.default_rng(0).standard_normal(200))

Fun = Callable[..., Any]


def told(x: Any, say: Fun) -> Any:
    fx.debug_callback(lambda *_: say("in"), x, 2.0 * x)
    y = fnp.sinh(x)
    fx.debug_callback(lambda *_: say("out"), y)
    fx.debug_callback(lambda *_: say("both"), x, y, ordered=True)
    return 0.5 * y


def bodies(say: Fun) -> dict[str, Fun]:
    def f(x: Any) -> Any:
        return told(x, say)

    return {
        "plain": f,
        "scan": lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
        "inner": lambda x: lax.scan(lambda c, _: (fx.invertible(f)(c), None), x, None, length=2)[0],
        "cond": lambda x: lax.cond(fnp.asarray(True), f, lambda x: x + 1.0, x),
        "remat": fx.remat(f),
    }


def orders(f: Fun) -> list[Fun]:
    """Returns functions for the value, the gradient, and its derivative in both modes."""

    def g(x: Any) -> Any:
        return fnp.sum(f(x) ** 3)

    def slope(x: Any) -> Any:
        return fnp.sum(fx.grad(g)(x) ** 2)

    return [g, slope, fx.grad(slope), lambda x: fx.jvp(slope, (x,), (x,))[1]]


@pytest.mark.parametrize("kind", ["plain", "scan", "inner", "cond", "remat"])
def test_effects_happen_as_often_as_without_invertible(kind: str) -> None:
    seen: list[str] = []
    f = bodies(seen.append)[kind]
    for plain, lean in zip(orders(f), orders(fx.invertible(f)), strict=True):
        found = []
        for h in (plain, lean):
            seen.clear()
            found.append((np.asarray(fx.interpret(fx.trace(h, X), X)), tuple(seen)))
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6)
        assert found[1][1] == found[0][1]
        assert "both" in found[0][1]


def not_small(b: Any) -> Any:
    return fx.error_if(b, fnp.any(b < 0.1), "b is small")


def checked(x: Any, w: Any) -> Any:
    a, b = x
    a = a + fnp.sqrt(not_small(b)) * w
    return a, b + fnp.tanh(a)


def checked_in_a_loop(x: Any, w: Any) -> Any:
    a, b = x
    a = a + w * lax.scan(lambda c, _: (0.5 * c + fnp.sqrt(not_small(b)), None), b, None, length=2)[0]
    return a, b + fnp.tanh(a)


@pytest.mark.parametrize("layer", [checked, checked_in_a_loop])
def test_a_check_does_not_run_on_reconstructed_values(layer: Fun) -> None:
    def loss(f: Fun) -> Fun:
        return lambda x: sum([fnp.sum(r**3) for r in f(x, A)])

    plain, lean = [loss(f) for f in (layer, fx.invertible(layer, keep="w"))]
    assert np.any(np.asarray(B + np.tanh(A)) - np.tanh(A) < B), "a reconstruction of b is less than b"
    for mode in (fx.grad, lambda f: lambda x: fx.jvp(f, (x,), (x,))[1]):
        want, got = [fx.interpret(fx.trace(mode(f), (A, B)), (A, B)) for f in (plain, lean)]
        for a, b in zip(fx.tree.leaves(got), fx.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("looped", [False, True])
def test_checks_run_in_derivatives_that_need_no_value(looped: bool) -> None:
    def once(x: Any) -> Any:
        return 2.0 * not_small(x)

    f = (lambda x: lax.scan(lambda c, _: (once(c), None), x, None, length=2)[0]) if looped else once
    for g in (f, fx.invertible(f)):
        for h in (
            fx.grad(lambda x, g=g: fnp.sum(g(x))),
            lambda x, g=g: fx.jvp(g, (x,), (x,))[1],
            lambda x, g=g: fx.linearize(g, x)[1](x),
        ):
            program = fx.trace(h, B)
            fx.interpret(program, B)
            with pytest.raises(CheckError) as caught:
                fx.interpret(program, B - 0.5)
            assert caught.value.message == "error_if: b is small"
