"""Sorts and top_k: laws, the order of every dtype, ties, derivatives, messages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray, Primitive
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK
from fxad.transforms.ad.jvp import jvp
from tests.primitives.harness import avals_of, check, eqns, floats, program, wide, xla

NAN, INF = np.nan, np.inf


def places(shape: tuple[int, ...], axis: int) -> npt.NDArray[np.int32]:
    return np.asarray(np.indices(shape)[axis], np.int32)


@pytest.mark.parametrize(
    ("prim", "args"),
    [
        (Sort(0, 1), (floats(5),)),
        (Sort(1, 2), (floats(2, 4), floats(2, 4)[::-1].copy(), floats(2, 4) > 0)),
        (Sort(0, 1), (floats(0, 3), floats(0, 3))),
        (Sort(0, 1), (floats(1, 3),)),
        (Sort(1, 1), (floats(2, 3) + 1j * floats(2, 3), floats(2, 3))),
        (Sort(0, 1), (np.array([True, False, True]), np.arange(3))),
        (TopK(2), (floats(3, 5),)),
        (TopK(0), (floats(3),)),
        (TopK(3), (floats(0, 3),)),
        (TopK(2), (floats(2, 40).astype(np.float32),)),
        (TopK(2), (np.array([3, 200, 7], np.uint8),)),
    ],
    ids=str,
)
def test_laws(prim: Primitive, args: tuple[NDArray, ...]) -> None:
    check(prim, *args, batching=False)


@pytest.mark.parametrize("size", [7, 5000])
@pytest.mark.parametrize("dtype", ["bool", "i8", "u32", "i64", "bf16", "f32", "f64", "c64", "c128"])
def test_order(dtype: str, size: int) -> None:
    """With and without indices, by comparisons and by packed integers. XLA gives the results of NumPy, for ties too."""
    rng = np.random.default_rng(size)
    x = rng.integers(0, 40, size).astype(dtypes.as_dtype(dtype))
    if x.dtype in dtypes.FLOATING:
        odd = rng.choice([NAN, -INF, INF, -0.0, 0.0, -NAN, -1.0], size)
        x = np.where(rng.random(size) < 0.3, odd, x).astype(x.dtype)
    if x.dtype in dtypes.COMPLEX:
        x = (wide(x) + 1j * rng.integers(-2, 3, size)).astype(x.dtype)
    alone, both = program(Sort(0, 1), *avals_of(x)), program(Sort(0, 1), *avals_of(x, places(x.shape, 0)))
    np.testing.assert_array_equal(wide(xla(alone, x)[0]), wide(run(alone, (x,))[0]))
    for have, want in zip(xla(both, x, places(x.shape, 0)), run(both, (x, places(x.shape, 0))), strict=True):
        np.testing.assert_array_equal(wide(have), wide(want))


def test_ties_of_signed_zeros_and_nans() -> None:
    x = np.array([NAN, 0.0, -0.0, -NAN, INF, 0.0, -INF])
    order = run(program(Sort(0, 1), *avals_of(x, places((7,), 0))), (x, places((7,), 0)))[1]
    np.testing.assert_array_equal(order, [6, 1, 2, 5, 4, 0, 3])
    np.testing.assert_array_equal(xla(program(Sort(0, 1), *avals_of(x, places((7,), 0))), x, places((7,), 0))[1], order)


@pytest.mark.parametrize("axis", [0, 1])
def test_large_arrays_along_any_axis(axis: int) -> None:
    x = np.random.default_rng(1).integers(0, 9, (70, 80)).astype(np.float32)
    at = places(x.shape, axis)
    values, order = xla(program(Sort(axis, 1), *avals_of(x, at)), x, at)
    np.testing.assert_array_equal(values, np.sort(x, axis))
    np.testing.assert_array_equal(order, np.argsort(x, axis, stable=True))


def test_complex_numbers_are_ordered_by_real_then_imaginary_parts() -> None:
    x = np.array([2 + 1j, 1 + 5j, complex(1, NAN), 1 - 5j, complex(NAN, 0)], np.complex64)
    want = x[[3, 1, 0, 2, 4]]  # as in NumPy: numbers with a nan are last
    np.testing.assert_array_equal(xla(program(Sort(0, 1), *avals_of(x)), x)[0], want)


def test_tangents_follow_their_elements() -> None:
    p = program(Sort(0, 1), Aval((3,), "f64"), Aval((3,), "f64"))
    forward, nonzero = jvp(p, (True, True))
    assert nonzero == (True, True)
    assert eqns(forward) == ["iota", "sort", "expand_dims", "gather", "gather"]
    x, y, dx = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])
    *_, tx, ty = run(forward, (x, y, dx, -dx))
    np.testing.assert_array_equal(tx, [20, 30, 10])
    np.testing.assert_array_equal(ty, [-20, -30, -10])


def test_top_k_takes_the_first_of_equal_ones_and_nan_first() -> None:
    x = np.array([1, NAN, 3, -0.0, 0.0, 3, -INF, INF] * 8, np.float32)
    order: NDArray = np.array([])
    for k in (4, 40):  # by selection, by sorting
        values, order = xla(program(TopK(k), *avals_of(x)), x)
        wants = run(program(TopK(k), *avals_of(x)), (x,))
        np.testing.assert_array_equal(values, wants[0])
        np.testing.assert_array_equal(order, wants[1])
    np.testing.assert_array_equal(order[:10], [1, 9, 17, 25, 33, 41, 49, 57, 7, 15])


F, I, S = Aval((2, 3), "f32"), Aval((2, 3), "i32"), Aval((3,), "f32")


@pytest.mark.parametrize(
    ("prim", "avals", "error", "message"),
    [
        (Sort(0, 1), (), ArgumentError, "sort: takes at least one operand"),
        (Sort(2, 1), (F,), AxisError, "sort: axis 2 is out of range for an operand with 2 axes"),
        (Sort(0, 1), (Aval((), "f32"),), AxisError, "sort: axis 0 is out of range for an operand with 0 axes"),
        (Sort(0, 1), (F, S), ShapeError, "sort: shapes differ: operand 0 f32[2,3], operand 1 f32[3]"),
        (Sort(0, 2), (F,), ParameterError, "sort: 2 keys of 1 operand"),
        (Sort(0, 0), (F, I), ParameterError, "sort: 0 keys of 2 operands"),
        (TopK(1), (F, F), ArgumentError, "top_k: takes 1 operand, got 2"),
        (TopK(1), (Aval((), "f32"),), ShapeError, "top_k: takes an operand with an axis, got f32[]"),
        (TopK(1), (Aval((3,), "c64"),), DTypeError, "top_k: c64[3] has no order"),
        (TopK(4), (F,), ParameterError, "top_k: k = 4 is not between 0 and 3, the size of the last axis"),
        (TopK(-1), (F,), ParameterError, "top_k: k = -1 is not between 0 and 3, the size of the last axis"),
    ],
)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
