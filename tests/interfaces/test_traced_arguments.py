"""An argument that decides no shape may come from a traced value: a shift, a diagonal, a place, a tolerance, a fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import FxadError, ParameterError, TracerError

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
V = np.array([0.5, -1, np.nan, 3, np.inf, -np.inf], np.float32)
PHASES = np.array([0, 3, 7, 9, 2], np.float32)

SHIFTS: list[tuple[Any, Any]] = [
    (2, None), (-3, 1), ((1,), None), ((1, 2), None), ((1, 2), 0), ((1, 2), (0, 0)), (1, (0, 1)), ((1, -2), (0, 1)),
    ((1,), (0, 1)), (np.array([1, 2]), (1, 0)), (np.int8(-5), 1), (np.uint8(250), 1), (np.int64(-(2**62) - 1), 0),
    (True, 0), (0, 1),
]  # fmt: skip


def same(got: Any, want: Any) -> None:
    got = np.asarray(got)
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("shift", "axis"), SHIFTS)
def test_roll_takes_the_shifts_of_numpy(shift: Any, axis: Any) -> None:
    want = np.roll(X, shift, axis)
    same(fnp.roll(X, shift, axis), want)
    same(fnp.roll(X, fnp.asarray(shift), axis), want)
    same(fx.jit(lambda s: fnp.roll(X, s, axis))(np.asarray(shift)), want)
    if isinstance(shift, tuple):
        same(fx.jit(lambda *s: fnp.roll(X, s, axis))(*shift), want)
        same(fx.jit(lambda s: fnp.roll(X, (s, *shift[1:]), axis))(shift[0]), want)


def test_roll_by_a_traced_shift_composes() -> None:
    wide = np.arange(300, dtype=np.int32)  # int8 has no 300
    same(fx.jit(fnp.roll)(wide, np.int8(-100)), np.roll(wide, -100))
    same(fx.jit(fnp.roll)(wide, np.uint64(2**63 + 7)), np.roll(wide, (2**63 + 7) % 300))
    empty = np.zeros((0, 3), np.float32)
    same(fx.jit(lambda s: fnp.roll(empty, s, 0))(2), empty)
    same(fx.jit(lambda s: fnp.roll(np.float32(3), s))(2), np.float32(3))
    same(fx.vmap(fnp.roll)(X, np.arange(3)), np.stack([np.roll(X[k], k) for k in range(3)]))
    gradient = fx.grad(lambda x, s: fnp.sum(fnp.roll(x, s, 1) * x**2))(X, 2)
    np.testing.assert_allclose(gradient, 2 * X * np.roll(X, 2, 1) + np.roll(X**2, -2, 1))
    program = fx.trace(lambda x: fnp.roll(x, (0, 1), (0, 1)), X)
    assert [e.prim.name for e in program.jaxpr.eqns] == ["slice", "slice", "concatenate"]  # a static shift stays static


DIAGONALS: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    "eye": (lambda k: fnp.eye(3, 4, k=k), lambda k: np.eye(3, 4, k)),
    "tri": (lambda k: fnp.tri(3, 4, k=k), lambda k: np.tri(3, 4, k)),
    "tril": (lambda k: fnp.tril(X, k), lambda k: np.tril(X, k)),
    "triu": (lambda k: fnp.triu(X, k), lambda k: np.triu(X, k)),
    "trace": (lambda k: fnp.trace(X, k), lambda k: np.trace(X, k)),
    "x.trace": (lambda k: fnp.asarray(X).trace(k), lambda k: np.trace(X, k)),
    "trace of axes": (lambda k: fnp.trace(X[:, None], k, 2, 0), lambda k: np.trace(X[:, None], k, 2, 0)),
    "linalg.trace": (lambda k: fnp.linalg.trace(X[None], offset=k), lambda k: np.linalg.trace(X[None], offset=k)),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_the_number_of_a_diagonal_may_be_traced(name: str) -> None:
    ours, theirs = DIAGONALS[name]
    traced = fx.jit(ours)
    for k in (-4, -2, 0, 1, 3, 5):
        want = theirs(k)
        same(ours(k), want)
        same(ours(fnp.asarray(k)), want)
        same(traced(np.int8(k)), want)
    for k in (2**40, 2**31 - 1, -(2**31), -(2**40)):  # int32 has no 2**40, and 2 + 2**31 - 1 would wrap
        same(ours(k), theirs(9 if k > 0 else -9))
        same(traced(np.int64(k)), theirs(9 if k > 0 else -9))
    same(traced(np.uint32(2**32 - 1)), theirs(9))
    many = fx.vmap(ours)(np.arange(-1, 2))
    same(many, np.stack([theirs(k) for k in range(-1, 2)]))


PLACES: list[Any] = [0, 2, -1, 4, [1], [0, 2], [2, 0], [1, 1, 4], [-1, -4], [0, 0, 0], np.int8(3)]


@pytest.mark.parametrize("at", PLACES)
def test_insert_takes_traced_places(at: Any) -> None:
    count = np.size(at)
    for axis, values in ((1, 9.0), (1, X[:, :count] if np.ndim(at) else X[:, 0]), (None, 5.0)):
        want = np.insert(X, at, values, axis)
        same(fnp.insert(X, at, values, axis), want)
        same(fx.jit(lambda a, v=values, k=axis: fnp.insert(X, a, v, k))(np.asarray(at)), want)


def test_insert_of_many_at_one_traced_place() -> None:
    values = np.array([7, 8, 9], np.float32)
    same(fx.jit(lambda a: fnp.insert(X[0], a, values))(np.int32(1)), np.insert(X[0], 1, values))
    same(fx.jit(lambda a: fnp.insert(X[0], a, values))(np.array([1])), np.insert(X[0], [1], values))
    same(fx.jit(lambda a: fnp.insert(X[0], a, 9.0))(99), np.insert(X[0], 4, 9))  # moved to the end
    squares: Any = lambda x, v, a: fnp.sum(fnp.insert(x, a, v) ** 2)  # noqa: E731
    gradient = fx.grad(squares, (0, 1))(X[0], np.float32(3), 1)
    np.testing.assert_allclose(gradient[0], 2 * X[0])
    np.testing.assert_allclose(gradient[1], 6)
    same(fx.vmap(lambda a: fnp.insert(X[0], a, 0.0))(np.arange(5)), np.stack([np.insert(X[0], k, 0) for k in range(5)]))


def test_delete_takes_traced_places() -> None:
    for at in (0, 2, -1, [3], [-4]):
        for axis in (1, None):
            same(fx.jit(lambda a, k=axis: fnp.delete(X, a, k))(np.asarray(at)), np.delete(X, at, axis))
    unique = fx.jit(lambda a: fnp.delete(X, a, 1, assume_unique_indices=True))
    for places in ([0, 2], [3, 0], [-1, 0], [0, 1, 2, 3], [1], [[0, 2], [1, 3]]):
        same(unique(np.asarray(places)), np.delete(X, places, 1))
    same(fnp.delete(X, [0, 0], 1, assume_unique_indices=True), np.delete(X, [0, 0], 1))
    np.testing.assert_allclose(fx.grad(lambda x, a: fnp.sum(fnp.delete(x, a) ** 2))(X[0], 1), [2, 0, 6, 8])
    with pytest.raises(TracerError, match=r"delete takes assume_unique_indices=True with an array of ints"):
        fx.jit(lambda a: fnp.delete(X, a, 1))(np.array([0, 2]))


NUMBERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], list[Any]]] = {
    "fftfreq": (lambda d: fnp.fft.fftfreq(5, d), lambda d: np.fft.fftfreq(5, d), [0.5, 2.0]),
    "rfftfreq": (lambda d: fnp.fft.rfftfreq(5, d), lambda d: np.fft.rfftfreq(5, d), [0.5]),
    "interp": (
        lambda p: fnp.interp(X[0], X[1], X[2], period=p), lambda p: np.interp(X[0], X[1], X[2], period=p), [2.5, -3.0]
    ),
    "unwrap": (lambda p: fnp.unwrap(PHASES, period=p), lambda p: np.unwrap(PHASES, period=p), [4.0, 5.0]),
    "unwrap of integers": (
        lambda p: fnp.unwrap(PHASES.astype(np.int32), period=p),
        lambda p: np.unwrap(PHASES.astype(np.int32), period=p),
        [4, 5],
    ),
    "unwrap, discont": (lambda p: fnp.unwrap(PHASES, discont=p), lambda p: np.unwrap(PHASES, discont=p), [4.0]),
    "nan_to_num": (lambda v: fnp.nan_to_num(V, nan=v), lambda v: np.nan_to_num(V, nan=v), [2.0]),
    "nan_to_num, both": (
        lambda v: fnp.nan_to_num(V, nan=1, posinf=v, neginf=-v), lambda v: np.nan_to_num(V, nan=1, posinf=v, neginf=-v),
        [2.0],
    ),
    "nan_to_num, complex": (
        lambda v: fnp.nan_to_num(V.astype(np.complex64), neginf=v), lambda v: np.nan_to_num(V + 0j, neginf=v), [2.0]
    ),
    "isclose": (lambda t: fnp.isclose(X, X + 0.5, t, 0), lambda t: np.isclose(X, X + 0.5, t, 0), [0.1]),
    "isclose, atol": (lambda t: fnp.isclose(V, V, atol=t), lambda t: np.isclose(V, V, atol=t), [0.1]),
    "allclose": (lambda t: fnp.allclose(X, X + 0.5, 0, t), lambda t: np.allclose(X, X + 0.5, 0, t), [0.4, 0.6]),
    "var": (lambda d: fnp.var(X, 1, ddof=d), lambda d: np.var(X, 1, ddof=d), [1, 0.5, 0]),
    "var, where": (
        lambda d: fnp.var(X, 1, correction=d, where=X > 2, keepdims=True),
        lambda d: np.var(X, 1, ddof=d, where=X > 2, keepdims=True),
        [1],
    ),
    "std": (lambda d: fnp.std(X, ddof=d), lambda d: np.std(X, ddof=d), [1, 0]),
    "nanvar": (lambda d: fnp.nanvar(V[:4], ddof=d), lambda d: np.nanvar(V[:4], ddof=d), [1, 0]),
    "nanstd": (lambda d: fnp.nanstd(V[:4], ddof=d), lambda d: np.nanstd(V[:4], ddof=d), [1]),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_decides_no_shape_may_be_traced(name: str) -> None:
    ours, theirs, values = NUMBERS[name]
    for value in values:
        got = fx.jit(ours)(value)
        assert got.dtype == ours(value).dtype
        np.testing.assert_allclose(got, theirs(value), rtol=2e-6)
        np.testing.assert_allclose(ours(fnp.asarray(value)), theirs(value), rtol=2e-6)


def test_the_count_less_a_traced_correction_is_nan_when_it_is_not_positive() -> None:
    assert np.isnan(fx.jit(lambda d: fnp.var(X[0], ddof=d))(4))
    slope = fx.grad(lambda d: fnp.var(X[0], ddof=d))(1.0)  # 5 / (4 - d)
    np.testing.assert_allclose(slope, 5 / 9, rtol=1e-6)


def test_fills_may_be_traced() -> None:
    x = np.array([[0, 3], [5, 0]], np.float32)

    def fills(v: Any) -> Any:
        return (
            fnp.nonzero(x, size=3, fill_value=v),
            fnp.where(x, size=3, fill_value=(v, 7)),
            fnp.argwhere(x, size=3, fill_value=v),
            fnp.flatnonzero(x, size=3, fill_value=v),
            fnp.compress(x[0] > 0, x, 1, size=2, fill_value=v),
            fnp.extract(x > 0, x, size=3, fill_value=v),
        )

    pairs = zip(fx.tree.leaves(fx.jit(fills)(np.int32(9))), fx.tree.leaves(fills(9)), strict=True)
    for got, want in pairs:
        assert got.dtype == want.dtype
        same(got, want)
    same(fx.jit(lambda v: fnp.nonzero(x, size=3, fill_value=v)[1])(np.array([8, 9])), [1, 0, 9])


def test_what_is_refused() -> None:
    def message(call: Callable[..., object], *args: object) -> str:
        with pytest.raises(FxadError) as caught:
            fx.jit(call)(*args)
        return f"{type(caught.value).__name__}: {str(caught.value).splitlines()[0]}"

    assert message(lambda k: fnp.eye(3, k=k), 1.5) == "DTypeError: eye: k must be an integer, got f32[]"
    assert message(lambda k: fnp.tril(X, k), X[0] > 0) == "DTypeError: tril: k must be an integer, got bool[4]"
    assert message(lambda k: fnp.tri(3, k=k), np.arange(2)) == ("ShapeError: tri: k must be one integer, got i64[2]")
    assert message(lambda k: fnp.trace(X, k), 1.5) == "DTypeError: trace: offset must be one integer, got f32[]"
    assert message(lambda s: fnp.roll(X, s), 1.5) == "DTypeError: roll: a shift must be one integer, got f32[]"
    assert message(lambda s: fnp.roll(X, s, (0, 1)), np.arange(3)).startswith("ParameterError: roll: 3 shifts")
    assert message(lambda d: fnp.isclose(X, X, d), X) == "ShapeError: isclose: rtol must be one number, got f32[3,4]"
    assert message(lambda d: fnp.fft.fftfreq(3, d), 1j) == "DTypeError: fftfreq: d must be real, got c64[]"
    assert message(lambda v: fnp.nonzero(X, size=3, fill_value=v), 1.5).startswith(
        "ParameterError: nonzero: fill_value"
    )
    with pytest.raises(ParameterError, match=r"roll: 2 shifts \(1, 2\) for 3 axes \(0, 1, 0\)"):
        fnp.roll(X, (1, 2), (0, 1, 0))
    with pytest.raises(ParameterError, match="are two names of one argument"):
        fx.jit(lambda d: fnp.var(X, ddof=d, correction=1))(1)
