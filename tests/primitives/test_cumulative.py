"""Cumulative reductions and linear recurrences: laws, long axes, edges, derivatives, messages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ShapeError
from fxad.ir import Aval, NDArray, Primitive
from fxad.primitives.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum, LinearRecurrence
from fxad.transforms.ad.jvp import jvp
from tests.primitives.harness import avals_of, check, floats, program, same, second_order, wide, xla

NAN, INF = np.nan, np.inf
KINDS = (CumSum, CumProd, CumMax, CumMin, CumLogSumExp)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_laws(kind: type[CumSum]) -> None:
    check(kind(1, kind.name in ("cumprod", "cummin")), floats(2, 4), batching=False)
    for empty in (floats(3, 0), floats(0, 3)):
        p = program(kind(0, False), *avals_of(empty))
        same(xla(p, empty), run(p, (empty,)))


def test_laws_of_recurrences() -> None:
    check(LinearRecurrence(1, True), floats(2, 6), floats(2, 6)[::-1].copy(), batching=False)
    check(LinearRecurrence(0, False), floats(0, 2), floats(0, 2), batching=False)


@pytest.mark.parametrize(
    ("prim", "shape"),
    [
        (CumSum(0, True), (1000,)),
        (CumLogSumExp(1, False), (3, 500)),
        (CumMax(0, True), (300, 300)),
        (CumProd(0, False), (65,)),
        (LinearRecurrence(0, True), (500, 3)),
        (LinearRecurrence(0, False), (100,)),
    ],
    ids=str,
)
def test_long_axes(prim: Primitive, shape: tuple[int, ...]) -> None:
    """A long axis is computed in blocks side by side, or row by row."""
    args = (np.random.default_rng(0).uniform(-1, 1, shape),) * (2 if isinstance(prim, LinearRecurrence) else 1)
    p = program(prim, *avals_of(*args))
    same(xla(p, *args), run(p, args))


@pytest.mark.parametrize("first", [INF, NAN, -INF])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_the_first_factor_is_not_used(n: int, reverse: bool, first: float) -> None:
    b = np.arange(1.0, n + 1)
    a = np.full(n, 0.5)
    zero, place = a.copy(), -1 if reverse else 0
    a[place], zero[place] = first, 0.0
    p = program(LinearRecurrence(0, reverse), *avals_of(a, b))
    (want,) = run(p, (zero, b))
    assert np.isfinite(want).all()
    for got in (run(p, (a, b)), xla(p, a, b)):
        same(got, (want,))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(3000,), (300, 2), (70_000,)])
@pytest.mark.parametrize(
    ("factors", "place"),
    [((1.0, INF, 1.0), 0), ((2.0, 2.0, 2.0), None), ((1e200, 1e200, 1e-200), None), ((-1.0, -INF, 0.5), 0)],
)
def test_long_recurrences_whose_factors_multiply_to_infinity(
    factors: tuple[float, ...], place: int | None, shape: tuple[int, ...], reverse: bool
) -> None:
    """The product of a block is infinite, and infinity times the 0 before an element is nan. The recurrence is not."""
    before, at, after = factors
    a, b = np.full(shape, after), np.zeros(shape)
    n = len(a)
    a[: n // 2], a[n // 2] = before, at
    b[0 if place == 0 else -1] = 1.0
    _compiled_as_interpreted(a, b, reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("first", "grows"), [(INF, 1e-200), (1e300, 1e10)])
def test_long_recurrences_whose_values_are_infinite_and_whose_factors_underflow(
    first: float, grows: float, reverse: bool
) -> None:
    """The product of a block is 0, and 0 times an infinite value before it is nan. The recurrence is not."""
    a, b = np.full(3000, 1e-200), np.zeros(3000)
    a[:200] = grows
    b[0] = first
    _compiled_as_interpreted(a, b, reverse)


def _compiled_as_interpreted(a: NDArray, b: NDArray, reverse: bool) -> None:
    if reverse:
        a, b = a[::-1].copy(), b[::-1].copy()
    p = program(LinearRecurrence(0, reverse), *avals_of(a, b))
    with np.errstate(all="ignore"):
        (want,) = run(p, (a, b))
    assert not np.isnan(want).any()
    same(xla(p, a, b), (want,))


def test_the_first_element_of_a_product_may_be_infinite() -> None:
    np.testing.assert_array_equal(tangent(CumProd(0, False), [INF, 2.0])[0], 1.0)
    np.testing.assert_array_equal(tangent(CumProd(0, True), [2.0, NAN])[1], 10.0)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(CumMax, "bool"), (CumMin, "u16"), (CumProd, "i8"), (CumSum, "i64"), (CumLogSumExp, "bf16"), (CumSum, "c64")],
)
def test_dtypes(kind: type[CumSum], dtype: str) -> None:
    for size in (9, 80):
        x = (np.arange(size) % 3).astype(dtypes.as_dtype(dtype))
        p = program(kind(0, False), *avals_of(x))
        same(xla(p, x), run(p, (x,)))


def test_narrow_floats_are_added_in_float32() -> None:
    x = np.ones(4096, dtypes.bfloat16)
    for done in (run(program(CumSum(0, False), *avals_of(x)), (x,)), xla(program(CumSum(0, False), *avals_of(x)), x)):
        assert float(done[0][-1]) == 4096  # a sum in bfloat16 would stop at 256


@pytest.mark.parametrize("x", [[-INF, -INF, 3], [1, INF, -INF, 2], [1e300, 1e300, NAN, 1]])
@pytest.mark.parametrize("kind", [CumMax, CumMin, CumLogSumExp], ids=lambda k: k.name)
def test_edges(kind: type[CumMax], x: list[float]) -> None:
    given = np.array(x * 20)
    p = program(kind(0, False), *avals_of(given))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(xla(p, given)[0], run(p, (given,))[0])


def tangent(prim: Primitive, x: list[float]) -> NDArray:
    p = program(prim, Aval((len(x),), "f64"))
    return run(jvp(p, (True,))[0], (np.array(x, np.float64), 10.0 ** np.arange(len(x))))[-1]


def test_products_with_zeros() -> None:
    np.testing.assert_array_equal(tangent(CumProd(0, False), [2, 0, 3, 0, 5]), [1, 20, 60, 0, 0])


def test_a_cumulative_extremum_has_the_tangent_of_its_first_element() -> None:
    np.testing.assert_array_equal(tangent(CumMax(0, False), [1, 1, 0, 2, 2]), [1, 1, 1, 1000, 1000])
    np.testing.assert_array_equal(tangent(CumMin(0, True), [1, 2, 0, 3, 3]), [100, 100, 100, 1e4, 1e4])
    np.testing.assert_array_equal(tangent(CumMax(0, False), [1, NAN, 2]), [1, 10, 10])


def test_cumlogsumexp_of_minus_infinities_has_the_tangent_zero() -> None:
    np.testing.assert_allclose(wide(tangent(CumLogSumExp(0, False), [-INF, -INF, 1.0, -INF])), [0, 0, 100, 100])


@pytest.mark.parametrize("kind", [CumProd, CumLogSumExp], ids=lambda k: k.name)
def test_second_derivatives(kind: type[CumSum]) -> None:
    x, h = np.array([0.5, -1.5, 2.0]), 1e-4
    hessian = second_order(program(kind(0, False), Aval((3,), "f64")), x)
    grid = np.eye(3) * h

    def f(z: npt.NDArray[np.float64]) -> npt.NDArray[np.complex128]:
        return wide(run(program(kind(0, False), Aval((3,), "f64")), (z,))[0])

    want = [[(f(x + u + v) - f(x + u - v) - f(x - u + v) + f(x - u - v)) / (4 * h * h) for v in grid] for u in grid]
    np.testing.assert_allclose(hessian, want, atol=1e-6)


F, S = Aval((2, 3), "f32"), Aval((), "f32")


@pytest.mark.parametrize(
    ("prim", "avals", "error", "message"),
    [
        (CumSum(0, False), (), ArgumentError, "cumsum: takes 1 operand, got 0"),
        (CumSum(2, False), (F,), AxisError, "cumsum: axis 2 is out of range for an operand with 2 axes"),
        (
            CumProd(0, False),
            (Aval((), "f32"),),
            AxisError,
            "cumprod: axis 0 is out of range for an operand with 0 axes",
        ),
        (CumSum(0, False), (Aval((2,), "bool"),), DTypeError, "cumsum: is not defined for bool[2]"),
        (CumMax(0, False), (Aval((2,), "c64"),), DTypeError, "cummax: is not defined for c64[2]"),
        (CumLogSumExp(0, False), (Aval((2,), "i32"),), DTypeError, "cumlogsumexp: is not defined for i32[2]"),
        (
            LinearRecurrence(0, False),
            (F, Aval((3,), "f32")),
            ShapeError,
            "linear_recurrence: operands differ: operand 0 f32[2,3], operand 1 f32[3]",
        ),
        (
            LinearRecurrence(0, False),
            (F, Aval((2, 3), "f64")),
            DTypeError,
            "linear_recurrence: operands differ: operand 0 f32[2,3], operand 1 f64[2,3]",
        ),
    ],
)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
