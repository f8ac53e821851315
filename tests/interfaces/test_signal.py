"""Filters, interpolation, gradients, integrals and windows against NumPy, and their derivatives."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError
from tests.interfaces.oracle import Value, close, same

RNG = np.random.default_rng(0)
F = RNG.normal(size=(4, 5))
PLACES = np.array([0, 1, 3, 4, 7.0])


@given(st.sampled_from(["full", "same", "valid"]), st.integers(1, 6), st.integers(1, 6), st.sampled_from("bifc"))
def test_filters(mode: str, n: int, m: int, kind: str) -> None:
    dtype = {"b": np.bool_, "i": np.int32, "f": np.float32, "c": np.complex64}[kind]
    x: Any
    y: Any
    x, y = [(RNG.normal(size=k) * 5 + (2j if kind == "c" else 0)).astype(dtype) for k in (n, m)]
    y = y * dtype(1 + 1j) if kind == "c" else y
    same("convolve", x, y, mode=mode)
    same("correlate", x, y, mode=mode)


def test_derivatives_of_filters() -> None:
    x, y = fnp.asarray(F[0]), fnp.asarray(F[1, :3])
    for name in ("convolve", "correlate"):
        jacobian = fx.jacrev(lambda a, name=name: getattr(fnp, name)(a, y, "same"))(x)
        close(jacobian @ x, getattr(np, name)(F[0], F[1, :3], "same"))
    close(fx.vmap(lambda r: fnp.convolve(r, y))(fnp.asarray(F)), [np.convolve(r, F[1, :3]) for r in F])


# ---------------------------------------------------------------------------------------------------- interpolation

POINTS = hnp.arrays(np.float64, st.integers(2, 6), elements=st.integers(-8, 8), unique=True)


@given(POINTS, hnp.arrays(np.float64, 5, elements=st.floats(-10, 10)))
def test_interpolation(xp: Value, x: Value) -> None:
    xp = np.sort(xp)
    fp = np.cos(xp)
    same("interp", x, xp, fp)
    same("interp", x, xp, fp, left=9.0, right=-9.0)
    same("interp", x, xp[::-1], fp, period=17)


def test_interpolation_of_edge_cases() -> None:
    x, xp, fp = np.array([-1, 0, 0.5, 1, 2, 3, 4, np.nan]), np.array([0.0, 1, 1, 3]), np.array([1.0, 2, 5, -1])
    same("interp", x, xp, fp, eager=True)
    same("interp", x, xp[:1], fp[:1])
    same("interp", x, xp, fp + 2j)
    assert fnp.interp(np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32), fp[:3]).dtype == np.float64
    pair = np.array([0, 1], np.float32)
    assert fnp.interp(0.5, pair, pair).dtype == np.float32


def test_derivatives_of_interpolation() -> None:
    args = fnp.asarray([0.5, 1.5, 9.0]), fnp.asarray([0.0, 1, 2]), fnp.asarray([1.0, 3, 2])
    slopes = fx.grad(lambda *a: fnp.interp(*a).sum(), argnums=(0, 1, 2))(*args)
    for got, want in zip(slopes, ([2, -1, 0], [-1, -0.5, 0.5], [0.5, 1, 1.5]), strict=True):
        close(got, np.array(want, np.float32))


# -------------------------------------------------------------------------------------- differences and integrals


@pytest.mark.parametrize("edge_order", [1, 2])
def test_slopes(edge_order: int) -> None:
    same("gradient", F, edge_order=edge_order)
    same("gradient", F, axis=(1, 0), edge_order=edge_order)
    same("gradient", F, np.float64(2), axis=1, edge_order=edge_order)
    same("gradient", F, np.float64(2), PLACES, edge_order=edge_order, eager=True)
    same("gradient", F[:3], np.array([0.0, 1, 3]), axis=0, edge_order=edge_order)
    same("gradient", np.array([1, 4, 9, 16], np.int32), edge_order=edge_order)


def test_short_slopes() -> None:
    same("gradient", F[:2], np.array([0.0, 3]), axis=0)
    same("gradient", F[:2], axis=0)


def test_integrals() -> None:
    same("trapezoid", F)
    same("trapezoid", F, dx=0.25, axis=0)
    same("trapezoid", F, PLACES, eager=True)
    same("trapezoid", F, F**2, axis=0)
    same("trapezoid", np.arange(4, dtype=np.int32))
    assert fnp.trapezoid(F.astype(np.float32)).dtype == np.float32


def test_unwrapping() -> None:
    u = RNG.normal(size=(3, 20)).cumsum(1) * 3
    same("unwrap", u, eager=True)
    same("unwrap", u, axis=0, discont=4.0)
    same("unwrap", u.astype(np.float32), period=5.0)
    for period in (4, 5, 360):
        same("unwrap", (u * 30).astype(np.int32), period=period)
    close(fx.grad(lambda v: fnp.unwrap(v).sum())(fnp.asarray(u)), np.ones_like(u))


def test_windows() -> None:
    for n in (0, 1, 2, 7, 8):
        for name in ("bartlett", "blackman", "hamming", "hanning"):
            close(getattr(fnp, name)(n), getattr(np, name)(n).astype(np.float32))
        close(fnp.kaiser(n, 3.5), np.kaiser(n, 3.5).astype(np.float32))
        close(fnp.kaiser(n, np.float64(3.5)), np.kaiser(n, 3.5))
    functions = fnp.bartlett, fnp.blackman, fnp.hamming, fnp.hanning, lambda n: fnp.kaiser(n, 3.5)
    named = fx.trace(lambda x: fnp.stack([f(x.shape[0]) for f in functions]), fx.Spec("n"))
    for n in (0, 1, 2, 7):
        close(fx.specialize(named, n=n)(np.zeros(n, np.float32)), np.stack([np.asarray(f(n)) for f in functions]))
    slope = fx.grad(lambda b: fnp.kaiser(6, b).sum())(fnp.asarray(2.0, "float64"))
    h = 1e-6
    assert abs(float(slope) - (np.kaiser(6, 2 + h).sum() - np.kaiser(6, 2 - h).sum()) / (2 * h)) < 1e-6


X = F[0]


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fnp.convolve(X, X, "half"), ParameterError, "convolve: mode 'half'"),
        (lambda: fnp.correlate(X, X[:0]), ShapeError, "correlate: argument 1 must be a vector that is not empty"),
        (lambda: fnp.interp(X, X, X[1:]), ShapeError, "interp: xp and fp must be vectors of one size, at least 1, got"),
        (lambda: fnp.interp(X, X, X, period=0), ParameterError, "interp: period is 0"),
        (lambda: fnp.interp(X + 1j, X, X), DTypeError, "interp: x and xp must be real, got c128[5] and f64[5]"),
        (lambda: fnp.gradient(F, edge_order=3), ParameterError, "gradient: edge_order must be 1 or 2, got 3"),
        (lambda: fnp.gradient(F[:1]), ShapeError, "gradient: axis 0 of f64[1,5] has fewer than 2 elements"),
        (lambda: fnp.gradient(F, X[:3], axis=1), ShapeError, "gradient: coordinates f64[3] for axis 1 of f64[4,5]"),
        (lambda: fnp.gradient(F, 1, 2, 3), ParameterError, "gradient: 3 distances for 2 axes"),
        (lambda: fnp.gradient(F, axis=(0, 0)), AxisError, "name one axis twice"),
        (lambda: fnp.trapezoid(F, X[:3]), ShapeError, "trapezoid: coordinates f64[3] for axis -1 of f64[4,5]"),
        (lambda: fnp.unwrap(X + 1j), DTypeError, "unwrap: takes real values, got c128[5]"),
        (lambda: fnp.hanning(cast("int", 2.5)), ArgumentError, "hanning: the number of points must be an integer"),
        (lambda: fnp.kaiser(3, X), ShapeError, "kaiser: beta must be one number, got f64[5]"),
    ],
)  # fmt: skip
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)
