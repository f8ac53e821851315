"""The primitives as functions: names, argument orders, scalars, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, DTypeError, ShapeError
from fxad.tracing.array import Array
from tests.interfaces.oracle import check, close, names, traced

F = np.random.default_rng(3).uniform(0.1, 0.9, (3, 4)).astype(np.float32)
I = np.arange(12, dtype=np.int32).reshape(3, 4)


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        (lax.add, np.add),
        (lax.sub, np.subtract),
        (lax.mul, np.multiply),
        (lax.div, np.divide),
        (lax.max, np.maximum),
        (lax.pow, np.power),
        (lax.atan2, np.arctan2),
        (lax.lt, np.less),
        (lax.complex, lambda x, y: x + 1j * y),
    ],
)
def test_binary(fn: Callable[..., Array], reference: Callable[..., object]) -> None:
    check(fn, reference, F, F[::-1].copy())
    assert len(names(fn, F, F)) == 1


@pytest.mark.parametrize("fn", [lax.add, lax.mul, lax.div, lax.max, lax.ge])
def test_scalars_take_the_type_of_the_array(fn: Callable[..., Array]) -> None:
    half = F.astype(np.float16)
    check(lambda x: fn(x, 2), lambda x: np.asarray(fn(fnp.asarray(x), fnp.full_like(x, 2))), half)
    check(lambda x: fn(0.5, x), lambda x: np.asarray(fn(fnp.full_like(x, 0.5), fnp.asarray(x))), half)
    assert len(names(lambda x: fn(x, 2), half)) == 1


def test_choosing() -> None:
    check(lambda x: lax.clamp(0.3, x, 0.6), lambda x: np.clip(x, np.float32(0.3), np.float32(0.6)), F)
    check(lax.select, np.where, F > 0.5, F, -F)
    check(lax.select_n, lambda k, x, y, z: np.choose(k, [x, y, z]), I % 3, F, -F, F * 2)


def test_conversions() -> None:
    check(lambda x: lax.convert_element_type(x, "i8"), lambda x: x.astype(np.int8), I)
    check(lambda x: lax.bitcast_convert_type(x, np.int32), lambda x: x.view(np.int32), F)
    check(lambda x: lax.integer_pow(x, 3), lambda x: x**3, F)
    check(lax.round, np.round, F * 10)
    check(lax.reciprocal, lambda x: 1 / x, F)
    check(lax.stop_gradient, lambda x: x, F)
    check(lax.conj, lambda x: x.astype(np.complex64), F)
    check(lax.conj, np.conj, F + 1j * F)


def test_stop_gradient_of_a_tree() -> None:
    def loss(p: dict[str, Array]) -> Array:
        fixed = lax.stop_gradient(p)
        return (p["a"] * fixed["a"] + fixed["b"]).sum()

    slopes = fx.grad(loss)({"a": fx.asarray(F), "b": fx.asarray(F)})
    np.testing.assert_array_equal(np.asarray(slopes["a"]), F)
    np.testing.assert_array_equal(np.asarray(slopes["b"]), 0 * F)


def test_shapes() -> None:
    check(lambda x: lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)), lambda x: np.repeat(x[:, None], 2, 1), F)
    check(lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (2, 0)), lambda x: np.repeat(x.T[:, None], 2, 1), F)
    check(lambda x: lax.broadcast(x, (2,)), lambda x: np.stack([x, x]), F)
    check(lambda x: lax.reshape(x, (4, 3)), lambda x: x.reshape(4, 3), F)
    check(lambda x: lax.transpose(x, (1, 0)), np.transpose, F)
    check(lambda x: lax.expand_dims(x, (-1, 0)), lambda x: x[None, ..., None], F)
    check(lambda x: lax.squeeze(lax.expand_dims(x, (1,)), (1,)), lambda x: x, F)
    check(lambda x: lax.rev(x, (1,)), np.fliplr, F)
    check(lambda x: lax.concatenate([x, x], 1), lambda x: np.concatenate([x, x], 1), F)
    check(
        lambda x: lax.pad(x, 7.0, [(1, 0, 0), (0, 2, 0)]), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=7), F
    )
    check(lambda x: lax.slice(x, (1, 0), (3, 4), (1, 2)), lambda x: x[1:3, 0:4:2], F)
    check(lambda: lax.iota("f32", 4), lambda: np.arange(4, dtype=np.float32))
    check(lambda: lax.broadcasted_iota("i32", (2, 3), 1), lambda: np.array([[0, 1, 2]] * 2, np.int32))


def test_full_is_a_literal() -> None:
    assert names(lambda: lax.full((10**5, 10**5), 1.0)) == []
    close(lax.full_like(F, 2), np.full_like(F, 2))


def test_reductions() -> None:
    check(lambda x: lax.reduce_sum(x, (0,)), lambda x: x.sum(0), F)
    check(lambda x: lax.reduce_max(x, (1, 0)), lambda x: x.max(), F)
    check(lambda x: lax.reduce_min(x, (1,)), lambda x: x.min(1), F)
    check(lambda x: lax.reduce_prod(x, (1,)), lambda x: x.prod(1), F)
    check(lambda x: lax.reduce_and(x, (1,)), lambda x: np.bitwise_and.reduce(x, 1), I)
    check(lambda x: lax.reduce_or(x, (1,)), lambda x: np.bitwise_or.reduce(x, 1), I)
    check(lambda x: lax.reduce_xor(x, (1,)), lambda x: np.bitwise_xor.reduce(x, 1), I)
    check(lambda x: lax.argmax(x, 1, "int32"), lambda x: x.argmax(1).astype(np.int32), F)
    check(lambda x: lax.argmin(x, 0, "int8"), lambda x: x.argmin(0).astype(np.int8), F)


def test_dots() -> None:
    dims = (((1,), (1,)), ((), ()))
    check(lambda x: lax.dot_general(x, x, dims), lambda x: x @ x.T, F)
    check(lambda x: lax.dot(x, x.T), lambda x: x @ x.T, F)
    check(lambda x: lax.batch_matmul(x[None], x.T[None]), lambda x: (x @ x.T)[None], F)
    out = traced(lambda x: lax.dot_general(x, x, dims, preferred_element_type="f64"), F)[1][0]
    assert out.dtype == np.float64


def test_gather_and_scatter() -> None:
    at = np.array([[2], [0]], np.int32)
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    check(lambda x, i: lax.gather(x, i, numbers, (1, 4)), lambda x, i: x[i[:, 0]], F, at)
    places = lax.ScatterDimensionNumbers((1,), (0,), (0,))

    def added(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = x.copy()
        np.add.at(out, i[:, 0], u)
        return out

    check(lambda x, i, u: lax.scatter_add(x, i, u, places), added, F, at, F[:2])
    check(lambda x, i, u: lax.scatter(x, i, u, places), lambda x, i, u: np.stack([u[1], x[1], u[0]]), F, at, F[:2])
    for fn, ufunc in [
        (lax.scatter_sub, np.subtract),
        (lax.scatter_mul, np.multiply),
        (lax.scatter_min, np.minimum),
        (lax.scatter_max, np.maximum),
    ]:

        def combined(x: np.ndarray, i: np.ndarray, u: np.ndarray, ufunc: np.ufunc = ufunc) -> np.ndarray:
            out = x.copy()
            ufunc.at(out, i[:, 0], u)
            return out

        check(lambda x, i, u, fn=fn: fn(x, i, u, places), combined, F, at, F[1:])
        check(lambda x, i, u, fn=fn: fn(x, i, u, places, mode="fill"), lambda x, i, u: x, F, at + 9, F[1:])
    twice = np.array([[2], [2]], np.int32)
    check(
        lambda x, i: lax.scatter_apply(x, i, lambda w: w * w, places, update_shape=(2, 4)),
        lambda x, i: np.stack([x[0], x[1], x[2] ** 2]),
        F,
        twice,
    )
    check(
        lambda x, i: lax.gather(x, i, numbers, (1, 4), mode="fill", fill_value=7),
        lambda x, i: np.stack([np.full(4, 7.0), x[0]]).astype(x.dtype),
        F,
        np.array([[3], [0]]),
    )
    with pytest.raises(DTypeError, match=r"gather: fill_value 0.5 does not go into i32\[3,4\] without loss"):
        lax.gather(I, at, numbers, (1, 4), mode="fill", fill_value=0.5)


# ----------------------------------------------------------------------------------------------------------- errors


def test_nothing_is_promoted_or_broadcast() -> None:
    with pytest.raises(DTypeError, match=r"^add: dtypes differ: lhs f32\[3,4\], rhs i32\[3,4\]"):
        traced(lax.add, F, I)
    with pytest.raises(ShapeError, match=r"^mul: shapes differ: lhs f32\[3,4\], rhs f32\[4\]"):
        traced(lax.mul, F, F[0])
    with pytest.raises(DTypeError, match=r"^add: dtypes differ: lhs i32\[3,4\], rhs f32\[3,4\]"):
        traced(lambda x: lax.add(x, 0.5), I)


@pytest.mark.parametrize("wrong", ["a", [1.0, 2.0], None, {}], ids=str)
def test_what_is_not_an_array(wrong: object) -> None:
    kind = type(wrong).__qualname__
    with pytest.raises(ArgumentError, match=rf"^add: argument 1: a {kind} is not an array: "):
        traced(lambda x: lax.add(x, wrong), F)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=rf"^sin: argument 0: a {kind} is not an array: "):
        lax.sin(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=rf"^sub: argument 0: a {kind} is not an array: "):
        lax.sub(wrong, fnp.asarray(F))  # type: ignore[arg-type]


def test_start_indices() -> None:
    with pytest.raises(ArgumentError, match=r"^dynamic_slice: start index 0 must be an integer, got float"):
        lax.dynamic_slice(F, (0.5, 0), (1, 1))
    with pytest.raises(ShapeError, match=r"^dynamic_slice: 1 start indices for the 2 axes of shape \(3, 4\)"):
        lax.dynamic_slice(F, (0,), (1, 1))
