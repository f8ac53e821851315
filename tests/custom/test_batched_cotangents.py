"""Batched rules for cotangents: a contribution that is the same for all examples counts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

Fun = Callable[[Any, Any], Any]

X = np.array([1.0, 2.0, 3.0])
Y = np.float64(0.7)


def plain(x: Any, y: Any) -> Any:
    """Two results: one of x and y, one of y alone."""
    return x * y * y, fnp.sin(y)


def backward(residuals: Any, cts: Any) -> Any:
    (x, y), (a, b) = residuals, cts
    return a * y * y, 2 * a * x * y + b * fnp.cos(y)


def by_cotangents(x: Any, y: Any) -> Any:
    f = fx.custom_vjp(plain)
    f.defvjp(lambda x, y: (plain(x, y), (x, y)), backward)
    return f(x, y)


def by_an_inverse(x: Any, y: Any) -> Any:
    def ivjp(out: Any, cts: Any, y: Any) -> Any:
        x = out[0] / (y * y)
        return x, backward((x, y), cts)

    f = fx.custom_jvp(plain)
    f.defivjp(ivjp, keep="y")
    return f(x, y)


def by_tangents_of_its_own(x: Any, y: Any) -> Any:
    """The rule calls the function. It reads x for the result of y, without an effect."""
    f = fx.custom_jvp(plain)

    @f.defjvp
    def tangents(primals: Any, dots: Any) -> Any:
        (x, y), (dx, dy) = primals, dots
        out, slope = f(x, y), f(x, y + np.pi / 2)[1]
        return out, (y * y * dx + 2 * x * y * dy, slope * dy + 0 * x * dy)

    return f(x, y)


def linear(x: Any, y: Any) -> Any:
    return x * y, 3 * y


def by_linear_call(x: Any, y: Any) -> Any:
    return lax.linear_call(lambda r, v: (r * v, 3 * v), lambda r, c: r * c[0] + 3 * c[1] + 0 * r * c[1], x, y)


def by_linear_loops(x: Any, y: Any) -> Any:
    """Linear as a whole: the zero of one cotangent is not visible in single equations."""

    def back(r: Any, c: Any) -> Any:
        return lax.fori_loop(0, 1, lambda _, v: v * r, c[0]) + (3 * c[1] + 1) - 1

    return lax.linear_call(lambda r, v: (r * v, 3 * v), back, x, y, as_whole=True)


WAYS = {
    "vjp": (by_cotangents, plain),
    "ivjp": (by_an_inverse, plain),
    "again": (by_tangents_of_its_own, plain),
    "linear": (by_linear_call, linear),
    "whole": (by_linear_loops, linear),
}


def loss(f: Fun) -> Fun:
    """Returns a function with x mapped and y shared."""

    def g(x: Any, y: Any) -> Any:
        return sum([fnp.sum(fnp.sin(a)) for a in fx.vmap(f, in_axes=(0, None))(x, y)])

    return g


def both(f: Fun) -> Fun:
    return fx.grad(f, argnums=(0, 1))


def along_y(f: Fun) -> Fun:
    """Returns the tangent along y. vmap then batches the transpose of the rule."""
    return lambda x, y: fx.jvp(lambda x: f(x, y), (x,), (y,))[1]


USES: dict[str, Callable[[Fun], Fun]] = {
    "gradient": lambda f: both(loss(f)),
    "second order": lambda f: fx.grad(lambda x, y: fnp.sum(both(loss(f))(x, y)[0] ** 2), argnums=1),
    "mapped tangents": lambda f: both(loss(along_y(f))),
    "per example": lambda f: fx.vmap(both(lambda x, y: sum([fnp.sin(a) for a in f(x, y)])), in_axes=(0, None)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("way", WAYS)
def test_a_result_that_is_the_same_for_all_examples(way: str, use: str) -> None:
    have, want = [fx.interpret(fx.trace(USES[use](f), X, Y), X, Y) for f in WAYS[way]]
    for a, b in zip(fx.tree.leaves(have), fx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12)


def test_a_result_that_does_not_depend_on_zero_examples() -> None:
    def of_y(f: Fun) -> Any:
        def second(y: Any) -> Any:
            return fx.vmap(f, in_axes=(0, None), out_axes=(0, None))(np.zeros(0), y)[1]

        return fx.interpret(fx.trace(fx.grad(second), Y), Y)

    np.testing.assert_allclose(of_y(by_cotangents), of_y(plain))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_cotangent_of_a_result_of_many_examples(dtype: str) -> None:
    """The cotangent is not divided by the number of examples: float16 cannot represent 100,000, and bfloat16 cannot
    represent 257."""

    def gradient_of_sum(n: int) -> Any:
        total = fx.custom_vjp(lambda x: lax.psum(x, "i"))
        total.defvjp(lambda x: (lax.psum(x, "i"), ()), lambda _, ct: (lax.psum(ct, "i"),))
        ones = fnp.ones(n, dtype)
        return fx.grad(lambda x: fx.vmap(total, axis_name="i", out_axes=None)(x))(ones)

    for n in (3, 257, 100_000):
        np.testing.assert_allclose(np.asarray(gradient_of_sum(n), "float32"), 1, rtol=4e-3)
