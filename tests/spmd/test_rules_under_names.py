"""Custom rules that call their own function under a named axis. The function or only its rule has collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.sharding import PartitionSpec as P
from fxad.text import parse

X: Any = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


def plain(x: fx.Array) -> fx.Array:
    return fnp.sin(lax.psum(x * x, "i")) * x


@fx.custom_jvp
def forward(x: fx.Array) -> fx.Array:
    return plain(x)


@forward.defjvp
def _forward(primals: tuple[fx.Array], tangents: tuple[fx.Array]) -> tuple[fx.Array, fx.Array]:
    (x,), (t,) = primals, tangents
    total = lax.psum(x * x, "i")
    return forward(x), fnp.sin(total) * t + fnp.cos(total) * x * lax.psum(2 * x * t, "i")


def _back(x: fx.Array, ct: fx.Array) -> tuple[fx.Array]:
    total = lax.psum(x * x, "i")
    return (fnp.sin(total) * ct + 2 * x * lax.psum(fnp.cos(total) * x * ct, "i"),)


@fx.custom_vjp
def backward(x: fx.Array) -> fx.Array:
    return plain(x)


backward.defvjp(lambda x: (backward(x), x), _back)


@fx.custom_vjp
def in_a_loop(x: fx.Array) -> fx.Array:
    return plain(x)


in_a_loop.defvjp(
    lambda x: (lax.fori_loop(0, 1, lambda _, c: in_a_loop(c), x), x),
    lambda x, ct: lax.cond(lax.psum(x, "i") != 7, lambda: _back(x, ct), lambda: _back(x, ct)),
)


@fx.custom_jvp
def in_a_map(x: fx.Array) -> fx.Array:
    return plain(x)


@in_a_map.defjvp
def _in_a_map(primals: tuple[fx.Array], tangents: tuple[fx.Array]) -> tuple[fx.Array, fx.Array]:
    (x,), (t,) = primals, tangents
    return fx.vmap(in_a_map)(x[None])[0], fx.jvp(plain, (x,), (t,))[1]


RULED = [forward, backward, in_a_loop, in_a_map]


def _second(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return fx.grad(lambda x: fx.grad(f)(x))


AROUND: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "value": lambda f: f,
    "grad": fx.grad,
    "second": _second,
    "remat": lambda f: fx.grad(fx.remat(f)),
    "jit": lambda f: fx.grad(fx.jit(f)),
    "scan": lambda f: fx.grad(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]),
    "vmap": lambda f: lambda x: fnp.sum(fx.vmap(fx.grad(f))(fnp.stack([x, 2 * x]))),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("f", RULED, ids=lambda f: f.__name__)
def test_recursive_rules(f: Any, around: str) -> None:
    have, want = [fx.vmap(AROUND[around](g), axis_name="i")(X) for g in (f, plain)]
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=2e-5)
    outside = fx.grad(lambda x: fnp.sum(fx.vmap(AROUND[around](f), axis_name="i")(x)))
    if around == "value":
        want = fx.grad(lambda x: fnp.sum(fx.vmap(plain, axis_name="i")(x)))(X)
        np.testing.assert_allclose(np.asarray(outside(X)), np.asarray(want), rtol=2e-5)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("f", RULED, ids=lambda f: f.__name__)
def test_an_axis_that_is_split(f: Any, around: str) -> None:
    """Regression: a call in a rule kept the size of the whole axis, which `soft_pmap` splits."""
    program = fx.trace(fx.soft_pmap(AROUND[around](f), "i", devices=2), X)
    assert parse(program.text()) is program.jaxpr
    want = fx.vmap(AROUND[around](plain), axis_name="i")(X)
    np.testing.assert_allclose(np.asarray(fx.interpret(program, X)), np.asarray(want), rtol=2e-5)


@pytest.mark.parametrize("f", [forward, in_a_map], ids=lambda f: f.__name__)
def test_tangents(f: Any) -> None:
    have, want = [
        fx.vmap(lambda x, g=g: fx.jvp(g, (x,), (2 * x,))[1], axis_name="i")(X) for g in (f, plain)
    ]  # fmt: skip
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=2e-5)


@pytest.mark.parametrize("f", RULED, ids=lambda f: f.__name__)
def test_on_devices(f: Any) -> None:
    def total(g: Any) -> Any:
        return lambda x: fx.shard_map(lambda v: g(v[0])[None], {"i": 1}, P("i"), P("i"))(x)[0]

    for around in (total, lambda g: fx.grad(total(g))):
        have, want = [around(g)(X[:1]) for g in (f, plain)]
        np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=2e-5)


@pytest.mark.parametrize("f", RULED, ids=lambda f: f.__name__)
def test_programs_are_values_and_nothing_is_left(f: Any) -> None:
    program = fx.trace(f, X[0], axis_env={"i": 4})
    assert program.jaxpr.free_axes == {("i", 4)}
    assert parse(str(program.jaxpr)) is program.jaxpr
    batched = fx.vmap(program, axis_name="i", axis_size=4)
    assert not batched.jaxpr.free_axes
    assert parse(str(batched.jaxpr)) is batched.jaxpr


@fx.custom_vjp
def synchronised(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


synchronised.defvjp(lambda x: (synchronised(x), x), lambda x, ct: (lax.psum(ct * fnp.cos(x), "i"),))


def test_a_collective_in_the_rule_only() -> None:
    """Only the rule has a collective. vmap still batches named calls of the function over the axis."""
    program = fx.trace(synchronised, X[0], axis_env={"i": 4})
    assert program.jaxpr.free_axes == {("i", 4)}
    want = np.broadcast_to(np.cos(X).sum(), 4)
    np.testing.assert_allclose(np.asarray(fx.vmap(fx.grad(synchronised), axis_name="i")(X)), want, rtol=1e-6)
    outer = fx.grad(lambda x: fnp.sum(fx.vmap(synchronised, axis_name="i")(x)))(X)
    np.testing.assert_allclose(np.asarray(outer), want, rtol=1e-6)
    second = fx.vmap(_second(synchronised), axis_name="i")(X)
    np.testing.assert_allclose(np.asarray(second), -4 * np.sin(X), rtol=1e-5)


@fx.custom_vjp
def total(x: fx.Array) -> fx.Array:
    return lax.psum(x * x, "i")


total.defvjp(lambda x: (lax.psum(x * x, "i"), x), lambda x, ct: (2 * x * lax.psum(ct, "i"),))


def test_the_cotangent_of_a_sum_counts_once() -> None:
    """Regression: all examples have the same sum. A rule that sums the cotangents of the examples counted it once for
    each."""
    have = fx.grad(lambda x: fnp.sum(fx.vmap(total, axis_name="i")(x)))(X)
    np.testing.assert_allclose(np.asarray(have), 8 * X, rtol=1e-6)
    once = fx.grad(lambda x: fx.vmap(total, axis_name="i", out_axes=None)(x))(X)
    np.testing.assert_allclose(np.asarray(once), 2 * X, rtol=1e-6)


def summed(w: fx.Array, x: fx.Array) -> fx.Array:
    out: fx.Array = lax.linear_call(lambda w, v: w * lax.psum(v, "i"), lambda w, ct: lax.psum(w * ct, "i"), w, x)
    return out


@pytest.mark.parametrize("of_w", [0, None])
def test_an_operand_of_all_examples_gets_the_cotangents_of_all(of_w: int | None) -> None:
    """A rule that sums over the axis gives all examples one cotangent, which counts for each example."""
    w = X if of_w == 0 else X[0]

    def loss(f: Callable[[fx.Array, fx.Array], fx.Array]) -> Callable[[fx.Array], fx.Array]:
        mapped = fx.vmap(f, in_axes=(of_w, None), axis_name="i", axis_size=len(X))
        return lambda x: fnp.sum(mapped(fnp.asarray(w), x) ** 2)

    x = fnp.asarray(X[1])
    want = fx.grad(loss(lambda w, x: w * lax.psum(x, "i")))(x)
    np.testing.assert_allclose(np.asarray(fx.grad(loss(summed))(x)), np.asarray(want), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "value", "n"), [("float16", 1e-3, 100_000), ("float8_e5m2", 0.25, 100)])
def test_a_sum_of_equal_values_whose_number_the_dtype_does_not_have(dtype: str, value: float, n: int) -> None:
    x = fnp.asarray(value).astype(dtype)

    def total(x: Any) -> Any:
        return lax.psum(x, "i")

    want = fx.vmap(total, axis_name="i")(fnp.broadcast_to(x, (n,)))[0]
    have = fx.vmap(total, in_axes=None, axis_name="i", axis_size=n)(x)[0]
    assert float(have) == float(want) < float("inf")


@fx.custom_vjp
def scaled_total(x: fx.Array) -> fx.Array:
    return lax.psum(2 * x, "i")


scaled_total.defvjp(lambda x: (lax.psum(2 * x, "i"), None), lambda _, ct: (2 * lax.psum(ct, "i"),))


@pytest.mark.parametrize(
    ("dtype", "ct", "n"), [("float16", 1.0, 100_000), ("float16", 1e-3, 30_000), ("float8_e4m3fn", 0.25, 300)]
)
def test_the_cotangent_of_a_sum_over_many_examples_in_few_bits(dtype: str, ct: float, n: int) -> None:
    """One n-th of the cotangent is zero in float16, or has lost its last bits."""
    _, pull = fx.vjp(fx.vmap(scaled_total, axis_name="i", out_axes=None), fnp.zeros((n,)).astype(dtype))
    total_bar = fnp.asarray(ct).astype(dtype)
    (x_bar,) = pull(total_bar)
    np.testing.assert_array_equal(np.asarray(x_bar, np.float32), np.full(n, 2 * float(total_bar), np.float32))


@pytest.mark.parametrize(("dtype", "ct"), [("float16", 1e-6), ("float8_e4m3fn", 2.0**-6)])
def test_the_cotangent_of_a_sum_over_devices_in_few_bits(dtype: str, ct: float) -> None:
    """A 16th of the cotangent for each device is zero in float8, and has few bits in float16."""
    n = 16
    mapped = fx.shard_map(lambda x, y: lax.psum(x + y, "i"), {"i": n}, (P(), P("i")), P())
    given = fx.Spec((1,), dtype), fx.Spec((n,), dtype), fx.Spec((1,), dtype)
    pulled = fx.trace(lambda x, y, ct: fx.vjp(mapped, x, y)[1](ct), *given)
    bars = fx.interpret(pulled, *[fnp.ones(1, dtype), fnp.ones(n, dtype), fnp.full(1, ct, dtype)])
    want = np.asarray(fnp.full(1, ct, dtype), "float64")
    for bar, times in zip(bars, (n, 1), strict=True):
        assert (np.asarray(bar, "float64") == want * times).all()
