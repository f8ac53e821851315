"""Functions that find indices, and that read, choose and write elements by them, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError, TracerError
from tests.interfaces.oracle import Value, check, close, traced

X = np.arange(12, dtype=np.float32).reshape(3, 4)
HALF = (X % 2).astype(bool)


def done(fn: Any, *args: Any) -> Value:
    """Returns the first argument after a NumPy function has changed it in place."""
    x: Value = args[0].copy()
    fn(x, *args[1:])
    return x


# ------------------------------------------------------------------------------------------------- places that hold


SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


@given(hnp.arrays(np.int32, SHAPES, elements=st.integers(0, 1)))
def test_nonzero_of_a_size(x: Value) -> None:
    """In a traced function: the first indices that fit into the size, then the fill value."""
    want = np.argwhere(x)
    for size in (0, 3, x.size + 1):
        filled = np.full((size, x.ndim), 9)
        filled[: len(want)] = want[:size]
        columns = traced(lambda a, size=size: fnp.nonzero(a, size=size, fill_value=9), x)[1]
        close(np.stack(columns, 1), filled, dtype=False)
        rows = traced(lambda a, size=size: fnp.argwhere(a, size=size, fill_value=9), x)[1][0]
        close(rows, filled, dtype=False)


def test_nonzero() -> None:
    x = fnp.asarray(X)
    for ours, theirs in zip(fnp.nonzero(x > 5), np.nonzero(X > 5), strict=True):
        close(ours, theirs, dtype=False)
    for ours, theirs in zip(fnp.where(x > 5), np.where(X > 5), strict=True):
        close(ours, theirs, dtype=False)
    close(fnp.argwhere(x > 5), np.argwhere(X > 5), dtype=False)
    close(fnp.flatnonzero(x > 5), np.flatnonzero(X > 5), dtype=False)
    close(fnp.where(x > 5, size=2)[1], np.array([2, 3]), dtype=False)
    close(fnp.flatnonzero(x > 9, size=4, fill_value=-1), np.array([10, 11, -1, -1]), dtype=False)
    close(fnp.nonzero(x > 10, size=2, fill_value=(7, 8))[1], np.array([3, 8]), dtype=False)
    close(fx.jit(lambda a: fnp.nonzero(a > 5, size=8))(x)[0], np.array([1, 1, 2, 2, 2, 2, 0, 0]), dtype=False)
    assert fnp.argwhere(fnp.asarray(3)).shape == (1, 0)
    stacked = fx.vmap(lambda row: fnp.flatnonzero(row % 2 == 1, size=3, fill_value=4))(x)
    close(stacked, np.array([[1, 3, 4]] * 3), dtype=False)


def test_compress_and_extract() -> None:
    keep = np.array([True, False, True])
    check(lambda x: fnp.compress(keep, x, 0), lambda x: np.compress(keep, x, 0), X)
    check(lambda x: fnp.compress(keep[:2], x, axis=1), lambda x: np.compress(keep[:2], x, 1), X)
    check(lambda x: fnp.compress(keep, x), lambda x: np.compress(keep, x), X)
    check(lambda x: fnp.extract(HALF, x), lambda x: np.extract(HALF, x), X)
    sized = np.concatenate([X[X > 8], [-1, -1]]).astype(np.float32)
    check(lambda x: fnp.extract(x > 8, x, size=5, fill_value=-1), lambda _: sized, X)
    first = np.stack([X[:, 1], X[:, 3], 0 * X[:, 0]], 1)
    check(lambda x: fnp.compress(x[0] % 2 == 1, x, axis=1, size=3), lambda _: first, X)


# ----------------------------------------------------------------------------------------------------- flat and not


def test_flat_and_not() -> None:
    i = np.array([[0, 11], [5, 7]])
    check(lambda i: fnp.unravel_index(i, (3, 4)), lambda i: np.unravel_index(i, (3, 4)), i, dtype=False)
    check(lambda i: fnp.unravel_index(i, (3, 4), "F"), lambda i: np.unravel_index(i, (3, 4), "F"), i, dtype=False)
    check(lambda i: fnp.unravel_index(i, 12), lambda i: np.unravel_index(i, 12), i, dtype=False)
    check(
        lambda i: fnp.unravel_index(i, (3, 4)), lambda _: (np.array([2, 2, 0]), np.array([3, 3, 0])),
        np.array([-1, 99, -99]), dtype=False,
    )  # fmt: skip
    many = (np.array([2, 0, 5]), np.array([1, -3, 3]))
    for mode in ("clip", "wrap"):
        check(
            lambda a, b, mode=mode: fnp.ravel_multi_index((a, b), (3, 4), mode),
            lambda a, b, mode=mode: np.ravel_multi_index((a, b), (3, 4), mode=mode),
            *many,
            dtype=False,
        )
    assert int(fnp.ravel_multi_index((), ())) == 0
    check(
        lambda a: fnp.ravel_multi_index((a, 2), (3, 4)),
        lambda _: np.array([10, 2, 10]),
        many[0],
        eager=False,
        dtype=False,
    )
    assert fnp.ravel_multi_index((1, 2), (3, 4), "raise") == 6


def test_indices() -> None:
    close(fnp.indices((2, 3)), np.indices((2, 3)), dtype=False)
    close(fnp.indices(()), np.indices(()), dtype=False)
    for ours, theirs in zip(fnp.indices((2, 3), sparse=True), np.indices((2, 3), sparse=True), strict=True):
        close(ours, theirs, dtype=False)
    check(lambda x: x[fnp.ix_([0, 2], [True, False, True, False])], lambda x: x[np.ix_([0, 2], [0, 2])], X, eager=False)
    check(lambda x: x[fnp.diag_indices(3)], lambda x: x[np.diag_indices(3)], X)
    check(lambda x: x[:, :3][fnp.diag_indices_from(x[:, :3])], lambda x: np.diag(x), X)
    for name in ("tril_indices", "triu_indices"):
        check(lambda x, n=name: x[getattr(fnp, n)(3, 1, 4)], lambda x, n=name: x[getattr(np, n)(3, 1, 4)], X)
        check(lambda x, n=name: x[getattr(fnp, n + "_from")(x)], lambda x, n=name: x[getattr(np, n + "_from")(x)], X)


# --------------------------------------------------------------------------------------------------------- choosing


def test_choosing() -> None:
    which = np.array([0, 2, 1, 5])
    rows = [X[k] for k in range(3)]
    for mode in ("clip", "wrap"):
        check(
            lambda a, *c, mode=mode: fnp.choose(a, c, mode=mode),
            lambda a, *c, mode=mode: np.choose(a, c, mode=mode),
            which,
            *rows,
        )
    check(lambda x: fnp.choose(x > 5, [x, 0]), lambda x: np.where(x > 5, 0, x), X)
    check(lambda x: fnp.select([x > 8, x > 4], [x, -x], 1.0), lambda x: np.select([x > 8, x > 4], [x, -x], 1.0), X)
    pieces: list[Any] = [lambda x: x**2, 3.0, lambda x: -x]
    check(lambda x: fnp.piecewise(x, [x < 4, x > 9], pieces), lambda x: np.piecewise(x, [x < 4, x > 9], pieces), X)
    check(lambda x: fnp.piecewise(x, x < 2, [7]), lambda x: np.piecewise(x, x < 2, [7]), X[0])
    check(
        lambda x: fnp.piecewise(x, [x < 4], [lambda x, a, b: a * x + b], 2, b=1),
        lambda x: np.piecewise(x, [x < 4], [lambda x, a, b: a * x + b], 2, b=1),
        X,
    )


# ---------------------------------------------------------------------------------------------------------- writing


def test_writing() -> None:
    i = np.array([0, 5, -1])
    check(lambda x, i: fnp.put(x, i, 7.0), lambda x, i: done(np.put, x, i, 7.0), X, i)
    check(lambda x, i: fnp.put(x, i, X[0, :2]), lambda x, i: done(np.put, x, i, X[0, :2]), X, i)
    k = np.array([[0], [3], [-2]])
    v = np.array([[5.0], [6], [7]], np.float32)
    check(lambda x, k, v: fnp.put_along_axis(x, k, v, 1), lambda x, k, v: done(np.put_along_axis, x, k, v, 1), X, k, v)
    check(lambda x, k: fnp.put_along_axis(x, k, 1.0, 0), lambda x, k: done(np.put_along_axis, x, k, 1.0, 0), X, k[:1])
    check(lambda x: fnp.put_along_axis(x, i, 1.0, None), lambda x: done(np.put_along_axis, x, i, 1.0, None), X)


@pytest.mark.parametrize("shape", [(3, 4), (7, 3), (2, 2, 2), (3, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal(shape: tuple[int, ...], wrap: bool) -> None:
    x = np.zeros(shape, np.float32)
    for v in (np.float32(2), np.array([1, 2], np.float32)):
        check(
            lambda x, v: fnp.fill_diagonal(x, v, wrap),
            lambda x, v: done(np.fill_diagonal, x, v, wrap),
            x,
            np.asarray(v),
        )


PLACES: list[Any] = [0, -1, [0, 2], [1, 1], slice(0, 3, 2), np.array([True, False, True]), [], [-1]]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_delete_and_insert(place: Any) -> None:
    check(lambda x: fnp.delete(x, place, 0), lambda x: np.delete(x, place, 0), X)
    flat = place if not isinstance(place, np.ndarray) else HALF.ravel()
    check(lambda x: fnp.delete(x, flat), lambda x: np.delete(x, flat), X)
    check(lambda x: fnp.insert(x, place, 9.0, 0), lambda x: np.insert(x, place, 9.0, 0), X)
    check(lambda x: fnp.insert(x, flat, 9.0), lambda x: np.insert(x, flat, 9.0), X)
    if isinstance(place, int):
        check(lambda x, v: fnp.insert(x, place, v, 1), lambda x, v: np.insert(x, place, v, 1), X, X[:, 0].copy())
        check(lambda x, v: fnp.insert(x, place, v, 0), lambda x, v: np.insert(x, place, v, 0), X, X[:2].copy())


def test_append() -> None:
    check(lambda x: fnp.append(x, x[0]), lambda x: np.append(x, x[0]), X)
    check(lambda x: fnp.append(x, x[:1], 0), lambda x: np.append(x, x[:1], 0), X)


# ----------------------------------------------------------------------------------------------------------- errors


WHERE: Any = fnp.where


@pytest.mark.parametrize(
    ("error", "fn", "message"),
    [
        (ShapeError, lambda x: fnp.nonzero(x[0, 0], size=1), "nonzero: takes an array with at least one axis"),
        (ArgumentError, lambda x: WHERE(x > 1, x), "where: takes the condition alone, or both x1 and x2"),
        (
            ArgumentError,
            lambda x: WHERE(x > 1, x, x, size=1),
            "where: size and fill_value are for the condition alone",
        ),
        (ShapeError, lambda x: fnp.compress(x, x), "compress: the condition must have one axis, got shape (3, 4)"),
        (
            ShapeError,
            lambda x: fnp.compress(x[0], x, 0),
            "compress: a condition of size 4 is longer than axis 0 of f32[3,4]",
        ),
        (DTypeError, lambda x: fnp.unravel_index(x, (2,)), "unravel_index: takes integers, got f32[3,4]"),
        (
            ParameterError,
            lambda x: fnp.ravel_multi_index((0,), (2, 3)),
            "ravel_multi_index: 1 index arrays for the shape (2, 3)",
        ),
        (
            ParameterError,
            lambda x: fnp.choose(0, [x], mode="fill"),
            "choose: mode 'fill' is not one of raise, clip, wrap",
        ),
        (AxisError, lambda x: fnp.choose(1, [x]), "choose: index 1 of index array 0 is out of range for size 1"),
        (
            AxisError,
            lambda x: fnp.ravel_multi_index((0, np.array([2, -1])), (2, 3)),
            "ravel_multi_index: index -1 of index array 1 is out of range for size 3",
        ),
        (
            ParameterError,
            lambda x: fx.jit(lambda i: fnp.ravel_multi_index((0, i), (2, 3), "raise"))(1),
            "ravel_multi_index: mode 'raise' checks indices, and index array 1 is traced",
        ),
        (ParameterError, lambda x: fnp.choose(0, []), "choose: there is no choice"),
        (DTypeError, lambda x: fnp.choose(x, [x]), "choose: the selector must be integers, got f32[3,4]"),
        (ParameterError, lambda x: fnp.select([x > 0], []), "select: 1 conditions for 0 choices"),
        (ParameterError, lambda x: fnp.piecewise(x, [x > 0], []), "piecewise: 0 functions for 1 conditions"),
        (
            ShapeError,
            lambda x: fnp.fill_diagonal(x[0], 0),
            "fill_diagonal: takes two axes or more, of one size, got shape (4,)",
        ),
        (AxisError, lambda x: fnp.delete(x, 3, 0), "delete: index 3 is out of range for an axis of size 3"),
        (AxisError, lambda x: fnp.insert(x, 4, 0, 0), "insert: index 4 is out of range for an axis of size 3"),
        (
            DTypeError,
            lambda x: fnp.delete(x, np.array([0.5]), 0),
            "delete: takes an int, a slice, an array of ints or 3 bools, got array([0.5])",
        ),
        (
            ShapeError,
            lambda x: fnp.put_along_axis(x, np.zeros((2, 1), int), 0, 1),
            "put_along_axis: shapes (2, 1) and (3, 1) do not broadcast: axis -2 has sizes 2 and 3",
        ),
        (
            DTypeError,
            lambda x: fnp.put_along_axis(x, x, 0, 1),
            "put_along_axis: indices must be integers with 2 axes, got f32[3,4]",
        ),
    ],
)
def test_refusals(error: type[FxadError], fn: Any, message: str) -> None:
    with pytest.raises(error) as e:
        traced(fn, X)
    assert e.value.message == message


@pytest.mark.parametrize(
    ("name", "arguments"), [("put", (0, 7)), ("put_along_axis", (np.zeros((3, 1), int), 7)), ("fill_diagonal", (7,))]
)
def test_a_program_of_jax_says_that_it_does_not_write_in_place(name: str, arguments: tuple[Any, ...]) -> None:
    f: Any = getattr(fnp, name)
    np.testing.assert_array_equal(f(X, *arguments, inplace=False), f(X, *arguments))
    with pytest.raises(ParameterError) as e:
        f(X, *arguments, inplace=True)
    assert (e.value.message, e.value.remedy) == (
        f"{name}: inplace is True, and arrays are immutable",
        "use the result",
    )


def test_refusals_while_tracing() -> None:
    for fn in (fnp.nonzero, fnp.argwhere, fnp.flatnonzero, fnp.where, lambda x: fnp.extract(x, x)):
        with pytest.raises(TracerError, match="size"):
            traced(fn, X)
    with pytest.raises(TracerError, match="delete: the shape of the result depends on"):
        traced(lambda i: fnp.delete(X, i), np.array([0, 1]))
