"""Keyword arguments that JAX has beside NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.errors import AxisError, ParameterError, ShapeError
from tests.api.refusals import check_refused

RNG = np.random.default_rng(5)
X, INDICES = np.arange(10.0), np.array([-12, -10, -1, 0, 3, 9, 10])
WHOLE = X.astype(np.int8)


def expected(mode: str, wraps: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The place of each index, and whether there is one."""
    places = np.where(INDICES < 0, INDICES + 10, INDICES) if wraps else INDICES
    inside = (places >= 0) & (places < 10)
    return np.clip(places, 0, 9), inside | (mode == "clip")


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("mode", ["fill", "clip", "drop"])
def test_negative_indices_may_be_out_of_range(mode: str, wraps: bool) -> None:
    """Indices that are known, and indices that are operands."""
    places, exists = expected(mode, wraps)

    def read(i: Any) -> Any:
        return fnp.asarray(X).at[i].get(mode=mode, fill_value=99, wrap_negative_indices=wraps)

    def write(i: Any) -> Any:
        return fnp.asarray(X).at[i].add(100, mode=mode, wrap_negative_indices=wraps)

    wanted = X.copy()
    np.add.at(wanted, places[exists], 100)
    for i in (INDICES, INDICES.astype(np.int8)):
        for found in (read(i), fx.jit(read)(i), fx.jit(fx.vmap(read))(i)):
            np.testing.assert_array_equal(found, np.where(exists, X[places], 99))
        for found in (write(i), fx.jit(write)(i)):
            np.testing.assert_array_equal(found, wanted)
    for k, place, there in zip(INDICES.tolist(), places, exists, strict=True):
        assert float(read(k)) == (X[place] if there else 99)
    if mode != "drop":
        taken = fnp.take_along_axis(X, INDICES, 0, mode, wrap_negative_indices=wraps)
        np.testing.assert_array_equal(taken, np.where(exists, X[places], np.nan))


def test_elements_taken_beyond_the_end_are_nan() -> None:
    """As in JAX: a wrong index is seen, where that of the nearest element is not."""
    x, at = np.arange(6, dtype=np.float32), np.array([6, -7, -1, 2])
    np.testing.assert_array_equal(fnp.take_along_axis(x, at, 0, mode="one_hot"), [0, 0, 5, 2])
    for function in (fnp.take, lambda x, i: fnp.take_along_axis(x, i, 0), nn.embedding):
        want = [np.nan, np.nan, 5, 2]
        np.testing.assert_array_equal(fx.jit(function)(x, at), want)
        np.testing.assert_array_equal(function(fnp.asarray(x), fnp.asarray(at)), want)
        least = np.iinfo(np.int32).min
        np.testing.assert_array_equal(fx.jit(function)(x.astype(np.int32), at), [least, least, 5, 2])
        slope = fx.grad(lambda x, f=function: fnp.nansum(f(x, fnp.asarray(at))))(x)
        np.testing.assert_array_equal(slope, [0, 0, 1, 0, 0, 1])


def test_take_along_axis_promises() -> None:
    at = np.array([[2, 0], [-1, 1]])
    rows = RNG.standard_normal((2, 3))
    choices: tuple[dict[str, Any], ...] = ({}, {"mode": "promise_in_bounds"}, {"mode": "clip"})
    for options in choices:
        np.testing.assert_array_equal(fnp.take_along_axis(rows, at, 1, **options), np.take_along_axis(rows, at, 1))
    unsigned = fnp.take_along_axis(rows, np.array([[2], [9]], np.uint8), 1, "clip", wrap_negative_indices=False)
    np.testing.assert_array_equal(unsigned, rows[:, 2:])


def test_a_known_negative_index_that_does_not_wrap() -> None:
    for index in (-1, np.array([3, -1])):
        check_refused(
            lambda index=index: fnp.asarray(X).at[index].set(5, wrap_negative_indices=False),  # type: ignore[misc]
            AxisError,
            "at.set: index -1 is out of range for axis 0 with size 10",
            "with wrap_negative_indices=False static indices run from 0",
        )


CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "argsort": (lambda: fnp.argsort(-X, dtype="int16"), np.argsort(-X).astype(np.int16)),
    "convolve": (lambda: fnp.convolve(X, X[:3], precision="highest"), np.convolve(X, X[:3])),
    "correlate": (lambda: fnp.correlate(X, X[:3], precision="highest"), np.correlate(X, X[:3])),
    "digitize": (lambda: fnp.digitize(X, X[2:5], method="sort"), np.digitize(X, X[2:5]).astype(np.int32)),
    "sum": (
        lambda: fnp.sum(np.full(3, 100, np.int8), promote_integers=False),
        np.sum(np.full(3, 100, np.int8), dtype=np.int8),
    ),
    "sum of floats": (lambda: fnp.sum(X, promote_integers=False), np.sum(X)),
    "prod": (
        lambda: fnp.prod(np.full((3, 2), 7, np.uint8), 0, promote_integers=False),
        np.prod(np.full((3, 2), 7, np.uint8), 0, dtype=np.uint8),
    ),
    "sum of a dtype": (
        lambda: fnp.sum(np.full(3, 100, np.int8), dtype="int64", promote_integers=False),
        np.int64(300),
    ),
    "var": (lambda: fnp.var(X.reshape(2, 5), 1, ddof=1, mean=np.array([[1.0], [2.0]])),
            np.sum((X.reshape(2, 5) - [[1.0], [2.0]]) ** 2, 1) / 4),
    "std": (lambda: fnp.std(X, where=X > 3, mean=5.0, keepdims=True), np.sqrt(np.mean((X[4:] - 5) ** 2))[None]),
    "var of complex": (lambda: fnp.var(X * (1 + 1j), mean=1j), np.mean(np.abs(X * (1 + 1j) - 1j) ** 2)),
    "isin": (lambda: fnp.isin(X, X[::3], method="compare_all"), np.isin(X, X[::3])),
    "isin by a sort": (lambda: fnp.isin(X, X[::3], method="binary_search", invert=True), ~np.isin(X, X[::3])),
    "multi_dot": (
        lambda: fnp.linalg.multi_dot([X.reshape(2, 5), X.reshape(5, 2), X[:2]], precision="highest"),
        np.linalg.multi_dot([X.reshape(2, 5), X.reshape(5, 2), X[:2]]),
    ),
    "vecdot": (
        lambda: fnp.vecdot(WHOLE.reshape(2, 5), WHOLE[:2, None], axis=0, preferred_element_type="int32"),
        (X.reshape(2, 5) * X[:2, None]).sum(0).astype(np.int32),
    ),
    "put_along_axis": (lambda: fnp.put_along_axis(X, np.array([20]), 5.0, 0, mode="clip"), np.r_[X[:9], 5.0]),
    "polymul": (lambda: fnp.polymul(np.array([0.0, 1, 2]), np.array([0, 0, 3.0]), trim_leading_zeros=True),
                np.polymul([0, 1, 2], [0, 0, 3.0])),
    "polydiv": (lambda: fnp.polydiv(np.array([1.0, 3, 2]), np.array([1.0, 1]), trim_leading_zeros=True)[1],
                np.zeros(1)),
    "interp": (
        lambda: fnp.interp(np.array([-1.0, 0.5, 5]), X[:3], X[:3] ** 2, left="extrapolate", right="extrapolate"),
        np.array([-1.0, 0.5, 13]),
    ),
    "interp to the right": (
        lambda: fnp.interp(np.array([-1.0, 5]), X[:3], X[:3] ** 2, left=7.0, right="extrapolate"), np.array([7.0, 13])
    ),
}  # fmt: skip


def test_values() -> None:
    for name, (call, wanted) in CALLS.items():
        found = call()
        assert found.dtype == np.asarray(wanted).dtype, name
        np.testing.assert_allclose(found, wanted, rtol=1e-12, err_msg=name)


def test_further_arguments_of_lax() -> None:
    rows = RNG.standard_normal((2, 3))
    np.testing.assert_array_equal(lax.reshape(rows, (6,), (1, 0)), rows.T.reshape(6))
    np.testing.assert_array_equal(lax.top_k(rows, 2, is_stable=False)[0], np.sort(rows)[:, :0:-1])
    square = RNG.standard_normal((3, 3))
    np.testing.assert_array_equal(lax.linalg.eig(square, enable_eigvec_derivs=False)[0], lax.linalg.eig(square)[0])
    d, b = np.full(3, 3.0), np.ones((3, 1))
    solve = lax.linalg.tridiagonal_solve
    np.testing.assert_array_equal(solve(d / 3, d, d / 3, b, perturb_singular=False), solve(d / 3, d, d / 3, b))
    check_refused(
        lambda: solve(d, d, d, b, perturb_singular=True),
        ParameterError,
        "tridiagonal_solve: pivots are not perturbed",
        "add a small number to d",
    )
    (t,), (full, z) = lax.linalg.schur(square, compute_schur_vectors=False), lax.linalg.schur(square)
    np.testing.assert_allclose(t, full, atol=1e-12)
    np.testing.assert_allclose(np.asarray(z) @ np.asarray(full) @ np.asarray(z).T, square, atol=1e-12)
    check_refused(
        lambda: lax.linalg.schur(square, sort_eig_vals=True),
        ParameterError,
        "schur: eigenvalues are not ordered",
        "leave out sort_eig_vals",
    )


def test_shapes_under_the_names_of_lax() -> None:
    x = RNG.standard_normal((2, 3, 4))
    for found, wanted in zip(lax.split(x, (1, 0, 3), axis=2), np.split(x, (1, 1), axis=2), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(lax.tile(x, (1, 2, 0)), np.tile(x, (1, 2, 0)))
    assert [lax.collapse(x, *k).shape for k in ((0,), (1,), (0, 2), (-2,), (1, 2))] == [
        (24,), (2, 12), (6, 4), (2, 12), (2, 3, 4)
    ]  # fmt: skip
    np.testing.assert_array_equal(lax.log2(np.exp2(X)), X)
    for call, message, remedy in (
        (lambda: lax.split(x, (3, -1)), "split: sizes (3, -1) of axis 0 with size 2", "their sum is the size"),
        (lambda: lax.split(x, (3,)), "split: sizes (3,) of axis 0 with size 2", "their sum is the size"),
        (lambda: lax.tile(x, (2,)), "tile: reps (2,) of 3 axes", "give a number, 0 or more, for each axis"),
        (lambda: lax.collapse(x, 2, 1), "collapse: no axis from 2 to 1", "give the axis after the last"),
    ):
        check_refused(call, ShapeError, message, remedy)


def test_slopes_of_extrapolation() -> None:
    """The slope beyond the points is that of the outermost segment, and a given mean has one."""
    points, values = X[:3], X[:3] ** 2
    slopes = fx.vmap(fx.grad(lambda x: fnp.interp(x, points, values, "extrapolate", "extrapolate")))
    np.testing.assert_allclose(slopes(np.array([-2.0, 0.5, 1.5, 9])), [1, 1, 3, 3])
    flat = fx.vmap(fx.grad(lambda x: fnp.interp(x, points, values)))
    np.testing.assert_allclose(flat(np.array([-2.0, 0.5, 9])), [0, 1, 0])
    slope = fx.grad(lambda m: fnp.var(X, mean=m))(4.0)
    np.testing.assert_allclose(slope, 2 * (4 - X.mean()))


def test_refusals() -> None:
    check_refused(
        lambda: fnp.isin(X, X, method="hash"),
        ParameterError,
        "isin: method 'hash'",
        'use "auto", "compare_all", "binary_search" or "sort"',
    )
    check_refused(
        lambda: fnp.interp(X, X, X, left="mirror"),
        ParameterError,
        "interp: argument 3 is 'mirror'",
        'give a number or "extrapolate"',
    )
