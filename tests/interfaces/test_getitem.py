"""Indexing, against NumPy: values, numbers of equations, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, runtime
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ShapeError, TracerError
from fxad.operations import index_plan
from tests.interfaces.indices import cases
from tests.interfaces.oracle import Value, check, close, names, traced

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@given(cases())
def test_static_indices(case: tuple[Value, tuple[Any, ...]]) -> None:
    x, index = case
    try:
        want = x[index]
    except IndexError:
        with pytest.raises((AxisError, ShapeError)):
            traced(lambda a: a[index], x)
        return
    jaxpr, (got,) = traced(lambda a: a[index], x)
    close(got, want)
    assert [e.prim.name for e in jaxpr.eqns].count("slice") <= 1
    assert [e.prim.name for e in jaxpr.eqns].count("gather") <= 1


@given(cases())
def test_indices_that_are_operands(case: tuple[Value, tuple[Any, ...]]) -> None:
    """Integer arrays that are operands, with and without axes."""
    x, index = case
    try:
        want = x[index]
    except IndexError:
        return
    at = [k for k, e in enumerate(index) if isinstance(e, np.ndarray) and e.dtype != np.bool_]

    def pick(a: Any, *arrays: Any) -> Any:
        full = list(index)
        for k, e in zip(at, arrays, strict=True):
            full[k] = e
        return a[tuple(full)]

    close(traced(pick, x, *[index[k] for k in at])[1][0], want)


@pytest.mark.parametrize(
    ("index", "equations"),
    [
        (slice(None), []),
        ((), []),
        (..., []),
        ((slice(None), slice(0, 4)), []),
        (1, ["index"]),
        ((0, -1), ["index"]),
        ((..., slice(None, 2), 3), ["index"]),
        ((slice(1, 3), ..., slice(None, None, 2)), ["slice"]),
        (slice(None, None, -1), ["rev"]),
        ((slice(2, 0, -1), 0), ["index", "rev"]),
        (None, ["expand_dims"]),
        ((0, None), ["slice"]),
        ((None, 0), ["slice"]),
        ((0, ..., None), ["index", "expand_dims"]),
        ([0, 2], ["gather"]),
        (([0, 2], slice(None), [1, 1]), ["gather"]),
        (X > 30, ["gather"]),
        (slice(5, None), []),
    ],
    ids=str,
)
def test_equations(index: Any, equations: list[str]) -> None:
    assert names(lambda a: a[index], X) == equations


def test_equations_of_dynamic_indices() -> None:
    i = np.array(1, np.int32)
    u = np.array(1, np.uint32)
    for k in (i, u):
        assert names(lambda a, i: a[i], X, k) == ["index"]
        assert names(lambda a, i: a[i, i], X, k) == ["index"]
        assert names(lambda a, i: a[0, i, 1:3], X, k) == ["index"]
        assert names(lambda a, i: a[i, ::-2], X, k) == ["index", "rev"]
        assert names(lambda a, i: a[..., i, None], X, k) == ["index", "expand_dims"]
    for rows in (np.array([0, 2]), np.array([0, 2], np.uint8)):
        assert names(lambda a, i: a[i], X, rows) == ["index_vectors", "gather"]
        assert names(lambda a, i: a[:, i], X, rows) == ["index_vectors", "gather"]
        assert names(lambda a, i: a[i, :, i[:, None]], X, rows) == ["expand_dims", "index_vectors", "gather"]
        assert names(lambda a, i: a[1:, i], X, rows) == ["slice", "index_vectors", "gather"]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_any_integer_dtype(dtype: str) -> None:
    wide = np.arange(300, dtype=np.float32)
    for i in [7, 100] if dtype.startswith("u") else [7, -3]:
        check(lambda a, i: a[i], lambda a, i: a[i], wide, np.array(i, dtype))
        check(lambda a, i: a[i], lambda a, i: a[i], wide, np.array([i, 0], dtype))


def test_out_of_range_when_the_program_runs() -> None:
    x = np.arange(5, dtype=np.float32)
    for i, want in [(9, 4), (-9, 0), (-1, 4)]:
        close(traced(lambda a, i: a[i], x, np.array(i))[1][0], np.float32(want))
        close(traced(lambda a, i: a[i], x, np.array([i]))[1][0], np.array([want], np.float32))


def test_eager_reads() -> None:
    x = fnp.asarray(X)
    indices: list[Any] = [0, (0, 1), slice(None, None, -2), [0, 2], (..., None), X > 30, np.array([[0, 1], [2, 0]])]
    for index in [*indices, np.int64(2)]:
        close(x[index], X[index])
    close(x[fnp.asarray(X) > 30], X[X > 30])
    close(x[fnp.asarray(2)], X[2])
    close(x[0, fnp.asarray([1, 3])], X[0, [1, 3]])
    assert [float(v) for v in fnp.arange(3.0)] == [0.0, 1.0, 2.0]


def test_indices_of_eager_reads_are_operands() -> None:
    """Reads of elements or windows in a row compile one program, and not one for each index."""
    x = fnp.asarray(X)
    read: list[Callable[[int], Any]] = [
        lambda k: x[k],
        lambda k: x[k, -1],
        lambda k: x[:, k : k + 2],
        lambda k: x[0, k],
    ]
    for pick in read:
        pick(0)
        before = runtime.cache.stats().misses
        for k in (1, 2, -1, -3):
            pick(k)
        assert runtime.cache.stats().misses <= before + 1  # a window at the end has another size


def test_take() -> None:
    check(lambda x: x.take(fnp.asarray([0, 2]), 1), lambda x: x.take([0, 2], 1), X, eager=False)
    check(lambda x: x.take(fnp.asarray([0, 2]), -1), lambda x: x.take([0, 2], -1), X, eager=False)
    check(lambda x: x.take(fnp.asarray([0, 59])), lambda x: x.take([0, 59]), X, eager=False)
    i = np.array([[1, -1]], np.int32)
    check(lambda x, i: fnp.take_along_axis(x, i, 1), lambda x, i: np.take_along_axis(x, i, 1), X[0].T.copy()[:1], i)


def test_gradient() -> None:
    """An element that is read several times gets the sum of its cotangents."""
    x = X.astype(np.float64)

    def gradient(index: Any) -> npt.NDArray[np.float64]:
        return np.asarray(fx.grad(lambda a: (a[index] * 2.0).sum())(fnp.asarray(x)))

    indices: list[Any] = [1, (slice(None, None, -2), 0), ([0, 0, 2], [1, 1, 3]), x > 30, (..., [1, 1]), slice(0, 0)]
    for index in indices:
        want = np.zeros_like(x)
        np.add.at(want, index, 2.0)
        close(gradient(index), want)


# ----------------------------------------------------------------------------------------------------------- errors


def refused(error: type[FxadError], index: Any, message: str, shape: tuple[int, ...] = (3, 4)) -> None:
    with pytest.raises(error) as e:
        index_plan.plan(shape, index)
    said, _, hint = message.partition("\n  remedy        ")
    assert e.value.message == said
    assert e.value.remedy
    assert hint in {"", e.value.remedy}
    assert e.value.caller


def test_refusals() -> None:
    hint = "\n  remedy        an index is made of ints, slices, None, ..., integer arrays and boolean masks"
    refused(AxisError, 3, "getitem: index 3 is out of range for axis 0 with size 3")
    refused(AxisError, (0, -5), "getitem: index -5 is out of range for axis 1 with size 4")
    refused(AxisError, (slice(None), [0, 4]), "getitem: index 4 is out of range for axis 1 with size 4")
    refused(AxisError, (0, 0, 0), "getitem: too many indices: 3 for the 2 axes of shape (3, 4)")
    refused(AxisError, (..., ...), "getitem: an index has at most one ellipsis, got 2")
    refused(AxisError, np.ones(4, bool), "getitem: a mask of size 4 does not fit axis 0 with size 3")
    refused(ArgumentError, 1.5, "getitem: 1.5 (float) is not an index" + hint)
    refused(ArgumentError, "a", "getitem: 'a' (str) is not an index" + hint)
    refused(ArgumentError, [[0], [1, 2]], "getitem: [[0], [1, 2]] is not an index: its rows differ in length" + hint)
    refused(
        ArgumentError,
        slice(0.5, 1),
        "getitem: slice(0.5, 1, None) of axis 0: slice indices must be integers or None or have an __index__ method",
    )
    refused(
        DTypeError,
        np.array([1.0]),
        "getitem: an index array must be integer or bool, got float64\n  remedy        use astype",
    )
    refused(
        ShapeError,
        ([0, 1], [0, 1, 2]),
        "getitem: index arrays: shapes (2,) and (3,) do not broadcast: axis -1 has sizes 2 and 3\n"
        "  remedy        sizes must be equal or 1, counted from the last axis",
    )


def test_refusals_while_tracing() -> None:
    with pytest.raises(TracerError, match=r"is a mask, and how many elements it picks .*(.|\n)*fxad.numpy.where"):
        traced(lambda a: a[a > 0], X)
    with pytest.raises(TracerError, match=r"a bound of slice(.|\n)*dynamic_slice_in_dim"):
        traced(lambda a, i: a[i : i + 1], X, np.array(0))
    with pytest.raises(TracerError, match=r"a list of tracers is not an index(.|\n)*stack"):
        traced(lambda a, i: a[[i, i]], X, np.array(0))


def test_dynamic_slices() -> None:
    i = np.array(2, np.int32)
    check(lambda x, i: lax.dynamic_slice(x, (i, 0, 1), (1, 4, 2)), lambda x, i: x[2:3, :, 1:3], X, i)
    check(lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, -1), lambda x, i: x[..., 2:4], X, i)
    check(lambda x, i: lax.dynamic_index_in_dim(x, i, 1, keepdims=False), lambda x, i: x[:, 2], X, i)
    check(lambda x, i: lax.dynamic_slice_in_dim(x, -1, 1, 1), lambda x, i: x[:, -1:], X, i)
    check(lambda x: lax.slice_in_dim(x, 1, -1, axis=2), lambda x: x[..., 1:-1], X)
    check(lambda x: lax.index_in_dim(x, -1, 1, keepdims=False), lambda x: x[:, -1], X)

    def updated(x: Value, i: Value) -> Value:
        out = x.copy()
        out[:, 2] = 0
        return out

    zeros = np.zeros((3, 5), np.float32)
    check(lambda x, i: lax.dynamic_update_index_in_dim(x, zeros, i, 1), updated, X, i)
