"""Functions of the gamma family against mpmath: 1F1, 2F1, complex gamma, the derivative of zeta in its exponent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fxad as fx
from fxad.errors import DTypeError, NotDifferentiableError
from fxad.scipy import special

mpmath.mp.dps = 50
HALF_THE_DIGITS = 1.5e-8
HYP1F1, HYP2F1 = fx.jit(special.hyp1f1), fx.jit(special.hyp2f1)  # their loops are long
Fun = Callable[..., Any]


def interpreted(f: Fun, *args: Any) -> np.ndarray[Any, Any]:
    return np.asarray(fx.interpret(fx.trace(f, *args), *args))


def parameters(rng: np.random.Generator, scale: float, n: int) -> Any:
    """Real numbers, some of them integers and halves of integers."""
    x = rng.uniform(-scale, scale, n)
    x = np.where(rng.random(n) < 0.3, np.round(x), x)
    return np.where(rng.random(n) < 0.1, np.round(2 * x) / 2, x)


def off_poles(x: Any) -> Any:
    return np.where((x <= 0) & (x == np.floor(x)), x + 0.25, x)


def check_digits(f: Fun, mp_f: Fun, args: Any, tol: float, most_nan: float) -> None:
    """Check that each value is right, or nan for few of them."""
    found = np.asarray(f(*args)).astype(np.float64)
    missing = np.isnan(found)
    assert missing.mean() <= most_nan
    for y, *xs in zip(found[~missing], *[a[~missing] for a in args], strict=True):
        want = mpmath.re(mp_f(*map(float, xs)))
        assert abs(mpmath.mpf(float(y)) - want) <= tol * abs(want), (xs, y, want)


# where x lies: in the circle of convergence, next to 1, and far below 0
X_OF_2F1: list[Fun] = [
    lambda rng, n: rng.uniform(-1, 1, n),
    lambda rng, n: 1 - 10 ** rng.uniform(-12, 0, n),
    lambda rng, n: -(10 ** rng.uniform(-3, 5, n)),
]


@settings(max_examples=3)
@given(st.integers(0, 1 << 30), st.sampled_from([2, 10, 40]), st.sampled_from(X_OF_2F1))
def test_hyp2f1(seed: int, scale: float, draw: Fun) -> None:
    rng, n = np.random.default_rng(seed), 30
    a, b, c, x = *[parameters(rng, scale, n) for _ in range(3)], draw(rng, n)
    args = [a, b, off_poles(c), x]
    check_digits(HYP2F1, mpmath.hyp2f1, args, HALF_THE_DIGITS, 0.2 if scale <= 10 else 0.7)


@settings(max_examples=3)
@given(st.integers(0, 1 << 30), st.sampled_from([2, 10, 40]), st.sampled_from([2, 30, 500]))
def test_hyp1f1(seed: int, scale: float, most: float) -> None:
    rng, n = np.random.default_rng(seed), 60
    args = [parameters(rng, scale, n), off_poles(parameters(rng, scale, n)), rng.uniform(-most, most, n)]
    check_digits(HYP1F1, mpmath.hyp1f1, args, HALF_THE_DIGITS, 0.2 if scale <= 10 else 0.7)


@pytest.mark.deep
def test_single_precision_of_positive_parameters() -> None:
    rng, n = np.random.default_rng(0), 50
    a, b, c = [rng.uniform(0.5, 6, n).astype(np.float32) for _ in range(3)]
    x = rng.uniform(-20, 20, n).astype(np.float32)
    check_digits(HYP1F1, mpmath.hyp1f1, [a, b, x], 1e-5, 0)
    check_digits(HYP2F1, mpmath.hyp2f1, [a, b, c, np.minimum(x / 25, 0.9)], 1e-5, 0.1)
    half = fx.Spec((), "float16")
    assert fx.eval_shape(special.hyp1f1, half, half, half).dtype == "float16"


def test_poles_polynomials_and_the_point_1() -> None:
    """A series that ends before a pole is a polynomial; beyond 1, others are complex."""
    inf, nan = np.inf, np.nan
    a, b, x, want = np.array(
        [[1, 0, 1, inf], [-1, -2, 1, 1.5], [-2, -2, 1, 2.5], [-3, -2, 1, inf], [1, 2, inf, nan], [nan, 1, 1, nan]]
    ).T
    np.testing.assert_allclose(interpreted(special.hyp1f1, a, b, x), want)
    rows: list[list[float]] = [
        [1, 1, 0, 1, inf], [-1, 1, -2, 0.5, 1.25], [-3, 1, -2, 0.5, inf], [-2, 1, 3, 5, 11 / 6], [0.5, 0.5, 1, 2, nan],
        [0.5, 0.5, 1, 1, inf], [2, 1, 5, 1, 2], [-1.5, 1.5, -0.5, 1, -inf], [0, 1, 1, 3, 1], [1, 1, 2, -inf, nan],
    ]  # fmt: skip
    a, b, c, x, want = np.array(rows).T
    np.testing.assert_allclose(interpreted(special.hyp2f1, a, b, c, x), want)


def test_derivatives_in_the_last_argument() -> None:
    cases: list[tuple[Any, Any, tuple[float, ...]]] = [
        (special.hyp1f1, mpmath.hyp1f1, (0.5, 1.5)),
        (special.hyp2f1, mpmath.hyp2f1, (0.5, 1.5, 2.5)),
    ]
    for f, mp_f, params in cases:
        of_x, x = partial(f, *params), np.float64(0.3)
        for order, g in ((1, fx.grad(of_x)), (2, fx.hessian(of_x)), (1, fx.jacfwd(of_x))):
            want = mpmath.diff(lambda t, mp_f=mp_f, params=params: mp_f(*params, t), 0.3, order)
            np.testing.assert_allclose(interpreted(g, x), float(want), rtol=1e-12)
        message = f"{f.__name__}: the derivative in its parameters is not known"
        with pytest.raises(NotDifferentiableError, match=message) as e:
            fx.grad(lambda b, f=f, params=params: f(*params[:-1], b, 0.3))(1.5)
        assert e.value.remedy == "apply stop_gradient to all arguments but the last"
        with pytest.raises(DTypeError, match=f"{f.__name__}: takes real numbers, got complex64"):
            f(*params, 1j)


@pytest.mark.parametrize(("dtype", "tol"), [(np.complex128, 1e-13), (np.complex64, 3e-5)])
def test_gamma_of_complex_numbers(dtype: Any, tol: float) -> None:
    rng = np.random.default_rng(0)
    z = np.concatenate([
        rng.uniform(-15, 15, 40) + 1j * rng.uniform(-15, 15, 40), rng.uniform(-3, 3, 20) + 1e-3j, rng.uniform(-5, 5, 9)
    ]).astype(dtype)  # fmt: skip
    log = np.array([complex(mpmath.loggamma(complex(x))) for x in z])
    found = interpreted(special.loggamma, z)
    assert found.dtype == dtype
    assert np.all(abs(found - log) <= tol * np.maximum(1, abs(log)))
    np.testing.assert_allclose(interpreted(special.gamma, z), np.exp(log), rtol=tol)
    w = (z / 4).astype(dtype)
    scaled = [complex(mpmath.exp(mpmath.mpc(x) ** 2) * mpmath.erfc(mpmath.mpc(x))) for x in map(complex, w)]
    np.testing.assert_allclose(interpreted(special.erfcx, w), scaled, rtol=10 * tol)


def test_branches_and_poles_of_complex_gamma() -> None:
    sides = interpreted(special.loggamma, np.array([complex(-0.5, 0.0), complex(-0.5, -0.0), complex(-1.5, 0.0)]))
    np.testing.assert_allclose(sides.imag / np.pi, [-1, 1, -2])
    assert np.all(np.isnan(interpreted(special.gamma, np.array([0j, -1, -5]))))
    slope: Any = fx.grad(special.loggamma, holomorphic=True)
    for z in (-2.3 + 0.7j, 1.5 + 0j, -0.5 - 2j):
        want = complex(mpmath.digamma(z))
        np.testing.assert_allclose(interpreted(slope, np.complex128(z)), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeta_on_the_real_line(dtype: Any) -> None:
    """The pole, the zeros at even numbers, both sides of the places where the formula changes; and derivatives."""
    x = np.array(
        [-250.5, -60, -41.7, -20, -7.5, -2, -1.5, -1 - 1e-6, -1, -0.3, 0, 1e-9, 0.5, 0.999, 1.001, 3, 20], dtype
    )
    x, zeta = x[x > -40] if dtype is np.float32 else x, special.zeta
    for k, f in enumerate((zeta, fx.vmap(fx.grad(zeta)))):
        want = [float(mpmath.zeta(mpmath.mpf(float(v)), 1, k)) for v in x]
        np.testing.assert_allclose(interpreted(f, x), want, rtol=1e-4 if dtype is np.float32 else 1e-12)
    ends = np.array([1, -np.inf, np.nan, np.inf, -1e30, -403.5, -401], dtype)
    np.testing.assert_array_equal(interpreted(zeta, ends), [np.inf, np.nan, np.nan, 1, 0, np.inf, -np.inf])


def test_derivatives_of_zeta_in_the_exponent() -> None:
    x, q = np.meshgrid(np.array([1.001, 1.5, 10.0]), np.array([0.01, 1.0, 100.0]))
    zeta: Any = special.zeta
    first: Any = fx.grad(zeta)
    second: Any = fx.grad(first)
    for k, f in ((1, first), (2, second)):
        want = [float(mpmath.diff(lambda t, b=b: mpmath.zeta(t, b), a, k)) for a, b in zip(x.flat, q.flat, strict=True)]
        np.testing.assert_allclose(interpreted(fx.vmap(f), x.ravel(), q.ravel()), want, rtol=1e-11)
    assert np.isnan(np.asarray(first(0.5, 2.0)))
