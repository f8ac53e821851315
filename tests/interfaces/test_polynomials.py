"""Polynomials against NumPy, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import FxadError, ParameterError, ShapeError, TracerError
from tests.interfaces.oracle import Value, check, close, names, same

RNG = np.random.default_rng(0)
P, Q, N = RNG.normal(size=4), RNG.normal(size=3), np.array([1, 2, 3], np.int32)
X, Y, W = RNG.normal(size=9), RNG.normal(size=9), RNG.random(9) + 0.1


def ordered(x: object) -> Value:
    a = np.asarray(x)
    return a[np.lexsort((a.imag.round(6), a.real.round(6)))]


def test_values() -> None:
    same("polyval", P, RNG.normal(size=(2, 3)), eager=True)
    same("polyval", N, np.arange(4, dtype=np.int32))
    same("polyval", P, P + 1j)
    for more in (RNG.normal(size=(3, 1, 2)), RNG.normal(size=(20, 2)), RNG.normal(size=(0, 2))):
        same("polyval", more, RNG.normal(size=(3, 2)))
    same("polyval", P[:0], X)
    long = RNG.normal(size=40) / 9
    same("polyval", long, X, eager=True)
    assert len(names(fnp.polyval, long, X)) < 12
    slope = fx.grad(lambda p: fnp.polyval(p, 0.5))
    close(slope(fnp.asarray(P)), 0.5 ** np.arange(3.0, -1, -1))
    close(slope(fnp.asarray(long)), 0.5 ** np.arange(39.0, -1, -1))


def test_arithmetic() -> None:
    for name in ("polyadd", "polysub", "polymul"):
        for a, b in ((P, Q), (Q, P), (N, P), (N, N)):
            same(name, a, b)
    for u, v in ((P, Q), (Q, P), (N, N[:2]), (P + 1j, Q)):
        same("polydiv", u, v)
    quotient, rest = fnp.polydiv(P, P)
    close(quotient, np.ones(1))
    close(rest, np.zeros(3))
    for m in (0, 1, 2, 9):
        same("polyder", P, m=m)
        same("polyint", P, m=m)
    same("polyder", N, dtype=False)
    check(lambda p, k: fnp.polyint(p, 2, k), lambda p, k: np.polyint(p, 2, k), P, Q[:2])


def test_roots() -> None:
    for c in (P, np.array([0, 0, 1, 2, 0, 0.0]), np.array([3.0]), np.zeros(2), np.array([1, -3, 2])):
        close(ordered(fnp.roots(c)), ordered(np.roots(c)), dtype=False)
    close(ordered(fx.jit(lambda p: fnp.roots(p, strip_zeros=False))(P)), ordered(np.roots(P)), dtype=False)
    same("poly", Q)
    same("poly", N)
    close(fnp.poly(np.array([[2.0, 1], [0, 3]])), np.array([1, -5, 6 + 0j]))
    slope = fx.grad(lambda p: fnp.roots(p, strip_zeros=False).real.sum())(fnp.asarray([2.0, 3, 1], "float64"))
    close(slope, [0.75, -0.5, 0], dtype=False)  # the sum of the roots is -p[1] / p[0]


def test_fitting() -> None:
    same("polyfit", X, Y, deg=2, eager=True)
    both = np.stack([Y, 2 * X + Y], 1)
    for given in ({"w": W}, {"w": W, "cov": True}, {"cov": True}, {"w": W, "cov": "unscaled"}):
        same("polyfit", X, Y, deg=2, **given)
        same("polyfit", X, both, deg=1, **given)
    complex_fit = fnp.polyfit(X, Y + 1j * X**2, 1, cov=True)[1]
    close(complex_fit, np.polyfit(X, Y + 1j * X**2, 1, cov=True)[1])
    exact = np.polyval(P, X)
    close(fx.jit(lambda x, y: fnp.polyfit(x, y, 3))(X, exact), P)
    line = fx.jacrev(lambda y: fnp.polyfit(X, y, 1))(fnp.asarray(Y))
    close(line, np.linalg.pinv(np.vander(X, 2)))
    assert np.asarray(fnp.polyfit(X.astype("f4"), Y.astype("f4"), 2)).dtype == np.float32


def test_powers() -> None:
    same("vander", P)
    same("vander", P, N=3, increasing=True)
    same("vander", N, N=0, dtype=False)


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fx.jit(fnp.roots)(P), TracerError, "roots(p, strip_zeros=False)"),
        (lambda: fnp.polyadd(P[None], X), ShapeError, "polyadd: argument 0 must be a vector of coefficients"),
        (lambda: fnp.polyder(P, -1), ParameterError, "polyder: order -1 is below 0"),
        (lambda: fnp.polyint(P, 3, Q[:2]), ShapeError, "polyint: 2 constants for 3 integrations"),
        (lambda: fnp.poly(RNG.normal(size=(2, 3))), ShapeError, "poly: takes a vector of roots or a square matrix"),
        (lambda: fnp.vander(P[None]), ShapeError, "vander: takes a vector, got f64[1,4]"),
        (lambda: fnp.polyfit(X, Y, -1), ParameterError, "polyfit: degree -1 is below 0"),
        (lambda: fnp.polyfit(X, P, 1), ShapeError, "polyfit: takes vectors of one size, at least 1"),
        (lambda: fnp.polyfit(X, Y, 1, w=W[:2]), ShapeError, "polyfit: weights f64[2] for 9 points"),
        (lambda: fnp.polyfit(X[:2], Y[:2], 1, cov=True), ParameterError, "polyfit: 2 points leave nothing"),
    ],
)  # fmt: skip
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)
