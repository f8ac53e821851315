"""Functions whose results have sizes that depend on values: eager, and traced with a size that the caller states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from tests.interfaces.oracle import close

X = np.array([[3, 1, 3], [0, 1, 5]], np.int32)
NANS = np.array([2.0, np.nan, 2.0, np.nan, -1.0], np.float32)
Z = np.array([1 + 1j, 1 - 1j, 1 + 1j], np.complex64)


@pytest.mark.parametrize(
    ("fn", "remedy"),
    [
        (fnp.nonzero, r"use nonzero\(x, size=...\)"),
        (fnp.unique_all, r"use unique\(x, size=...\)"),
        (fnp.unique_counts, r"use unique\(x, size=...\)"),
        (fnp.unique_inverse, r"use unique\(x, size=...\)"),
        (fnp.unique_values, r"use unique\(x, size=...\)"),
        (fnp.unique, r"use unique\(x, size=...\)"),
        (lambda x: fnp.repeat(x, x), "use a Python int, or say total_repeat_length"),
    ],
)
def test_refused_in_a_trace(fn: Callable[..., Any], remedy: str) -> None:
    with pytest.raises(TypeError, match="the size of the result depends on the values of Tracer") as e:
        fx.trace(fn, fx.Spec((3,), "int32"))
    assert e.match(remedy)


def test_closed_over_values_are_accepted_in_a_trace() -> None:
    """A closed-over array has its value while the function is traced."""
    counts = fnp.asarray([2, 0, 1])
    close(fx.jit(lambda x: fnp.repeat(x, counts))(np.arange(3)), [0, 0, 2], dtype=False)
    close(fx.jit(lambda x: x + fnp.unique_values(X).sum())(1), 10, dtype=False)


def unique_in_numpy(x: np.ndarray[Any, Any], size: int, **how: Any) -> list[np.ndarray[Any, Any]]:
    """Returns the result of `unique` with a size, computed with NumPy."""
    values, first, inverse, counts = np.unique(x, True, True, True, **how)
    more = max(size - len(values), 0)
    return [
        np.concatenate([values, np.repeat(values[:1], more)])[:size],
        np.concatenate([first, np.repeat(first[:1], more)])[:size],
        inverse.reshape(x.shape),
        np.concatenate([counts, np.zeros(more, int)])[:size],
    ]


@pytest.mark.parametrize("x", [X, NANS, Z, X.astype(bool), X[:0] + 0], ids=["i32", "nan", "c64", "bool", "empty"])
@pytest.mark.parametrize("size", [0, 2, 4, 9])
@pytest.mark.parametrize("equal_nan", [True, False])
def test_unique(x: np.ndarray[Any, Any], size: int, equal_nan: bool) -> None:
    def f(x: Any) -> Any:
        return fnp.unique(x, True, True, True, size=size, equal_nan=equal_nan)

    if not x.size:
        values, *_ = fx.jit(f)(x)
        close(values, np.zeros(size, x.dtype))
        return
    for got, want in zip(fx.jit(f)(x), unique_in_numpy(x, size, equal_nan=equal_nan), strict=True):
        close(got, want, dtype=False)
    for got, want in zip(
        fnp.unique(x, True, True, True, equal_nan=equal_nan), unique_in_numpy(x, 0, equal_nan=equal_nan), strict=True
    ):
        assert np.asarray(got).size >= want.size


def test_unique_of_a_batch() -> None:
    rows = np.array([[1, 1, 2, 3], [4, 4, 4, 4]], np.int32)
    got = fx.vmap(lambda x: fnp.unique(x, size=3, fill_value=-1))(rows)
    close(got, np.array([[1, 2, 3], [4, -1, -1]], np.int32))


def test_unique_has_numpy_results() -> None:
    close(fnp.unique(X), np.unique(X))
    for got, want in zip(fnp.unique(X, return_counts=True), np.unique(X, return_counts=True), strict=True):
        close(got, want, dtype=False)


def test_gradient_of_unique() -> None:
    """Each distinct value is an element of the operand, which gets its cotangent."""

    def f(x: Any) -> Any:
        return fnp.vecdot(fnp.unique(x, size=3), np.array([1.0, 10.0, 100.0]))  # type: ignore[arg-type]

    close(fx.grad(f)(np.array([5.0, 2.0, 7.0])), np.array([10.0, 1.0, 100.0]))


@pytest.mark.parametrize("total", [0, 2, 3, 6])
def test_repeat_with_a_total(total: int) -> None:
    counts = np.array([1, 0, 2], np.int32)
    got = fx.jit(lambda x, c: fnp.repeat(x, c, axis=1, total_repeat_length=total))(X, counts)
    want = np.repeat(X, counts, axis=1)
    want = np.concatenate([want, np.repeat(X[:, -1:], 9, axis=1)], axis=1)[:, :total]
    close(got, want)


def test_repeat_refusals() -> None:
    with pytest.raises(ValueError, match=r"repeat: counts i32\[2\] must be integers, one or 3 of them"):
        fnp.repeat(fnp.ones(3), fnp.asarray([1, 2]))
    with pytest.raises(ValueError, match=r"repeat: counts .* are below 0"):
        fnp.repeat(fnp.ones(2), fnp.asarray([1, -2]))
    with pytest.raises(ValueError, match="must be integers"):
        fnp.repeat(fnp.ones(2), fnp.asarray([1.0, 2.0]))


def test_nonzero_refusals() -> None:
    with pytest.raises(ValueError, match="nonzero: takes an array with at least one axis"):
        fnp.nonzero(fnp.asarray(1))


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8"])
def test_isin_beside_many(dtype: str) -> None:
    """A long second operand is sorted and searched, instead of compared element by element."""
    rng = np.random.default_rng(0)
    x, among = rng.integers(0, 200, (5, 7)).astype(dtype), rng.integers(0, 200, 99).astype(dtype)
    if dtype == "float32":
        x[0, 0], among[:2] = np.nan, np.nan
    close(fnp.isin(x, among), np.isin(x, among))
    close(fx.jit(lambda x, y: fnp.isin(x, y, invert=True))(x, among), np.isin(x, among, invert=True))


def test_searchsorted_of_scalars() -> None:
    x = fnp.asarray([1.0, 2.0, 3.0])
    assert int(fnp.searchsorted(x, 2.5)) == 2
    assert fnp.searchsorted(x, 2.5).shape == ()
    assert fnp.searchsorted(x, 2, side="right").dtype == fnp.int32
