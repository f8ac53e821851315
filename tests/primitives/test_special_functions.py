"""Special functions that XLA lacks, against scipy: accuracy, edges, derivatives, messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import special as sp

import fxad as fx
from fxad import lax
from fxad.errors import ArgumentError, DTypeError, FxadError, NotDifferentiableError, ShapeError
from fxad.ir import Aval, Primitive
from fxad.primitives.elementwise.bessel import BESSEL_I0E, BESSEL_I1E, ZETA
from fxad.primitives.elementwise.beta import REGULARIZED_INCOMPLETE_BETA as BETAINC
from fxad.primitives.elementwise.gamma import IGAMMA, IGAMMA_GRAD_A, IGAMMAC, RANDOM_GAMMA_GRAD
from fxad.primitives.elementwise.references import gamma_slopes
from fxad.primitives.elementwise.special import DIGAMMA, LGAMMA, POLYGAMMA
from fxad.transforms.ad.jvp import jvp
from tests.primitives.harness import avals_of, program, same, wide, xla

Doubles = npt.NDArray[np.float64]
NAN, INF = np.nan, np.inf
RNG = np.random.default_rng(0)


def plane(low: float, high: float, spread: bool, count: int = 400) -> tuple[Doubles, Doubles]:
    """Returns shape parameters over orders of magnitude, and values of x near the mode or far from it."""
    a = 10 ** RNG.uniform(low, high, count)
    near = np.clip(a + np.sqrt(a) * RNG.standard_normal(count), 1e-3, None)
    return a, a * 10 ** RNG.uniform(-1, 1, count) if spread else near


def units(have: npt.NDArray[np.generic], want: Doubles, dtype: type[np.floating]) -> float:
    """Returns the greatest relative error in units of the dtype's precision. Tiny values do not count."""
    seen = np.abs(want) > 1e-30
    return float(np.max(np.abs(have.astype(np.float64) - want)[seen] / np.abs(want)[seen]) / np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(("low", "high"), [(-3, 1.5), (1, 4)])
def test_incomplete_gamma(low: float, high: float, spread: bool, dtype: type[np.floating]) -> None:
    a, x = [v.astype(dtype) for v in plane(low, high, spread)]
    # far from the mode, rounding the operands changes the value by this much
    allowed = 400 if not spread or high < 2 else 4000
    for prim, reference in ((IGAMMA, sp.gammainc), (IGAMMAC, sp.gammaincc)):
        want = reference(a.astype(np.float64), x.astype(np.float64))
        assert units(xla(program(prim, *avals_of(a, x)), a, x)[0], want, dtype) < allowed


@pytest.mark.parametrize(("low", "high"), [(-3, 0), (0, 3)])
def test_slopes_in_a(low: float, high: float) -> None:
    a, x = plane(low, high, False, 60)
    h = a * 1e-3
    steps = [sp.gammainc(a + k * h, x) - sp.gammainc(a - k * h, x) for k in (1, 2, 3)]
    differences = (45 * steps[0] - 9 * steps[1] + steps[2]) / (60 * h)
    seen = np.abs(differences) > 1e-6 * np.abs(differences).max()
    for slope in (gamma_slopes(a, x)[0], xla(program(IGAMMA_GRAD_A, *avals_of(a, x)), a, x)[0]):
        np.testing.assert_allclose(slope.astype(np.float64)[seen], differences[seen], rtol=1e-6)
    density = np.exp((a - 1) * np.log(x) - x - sp.gammaln(a))
    found = xla(program(RANDOM_GAMMA_GRAD, *avals_of(a, x)), a, x)[0]
    np.testing.assert_allclose(found.astype(np.float64)[seen], -(differences / density)[seen], rtol=1e-5)
    narrow = xla(program(RANDOM_GAMMA_GRAD, *avals_of(*[v.astype(np.float32) for v in (a, x)])), *[
        v.astype(np.float32) for v in (a, x)
    ])[0]  # fmt: skip
    np.testing.assert_allclose(wide(narrow), wide(found), rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-2, 2), (1, 5)])
def test_incomplete_beta(low: float, high: float, dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(0)
    a, b = [(10 ** rng.uniform(low, high, 400)).astype(dtype) for _ in range(2)]
    mean = a / (a + b)
    noise = np.sqrt(mean * (1 - mean) / (a + b + 1)) * rng.standard_normal(400)
    for x in (rng.uniform(0, 1, 400).astype(dtype), np.clip(mean + noise, 1e-4, 1 - 1e-4).astype(dtype)):
        want = sp.betainc(*[v.astype(np.float64) for v in (a, b, x)])
        assert units(xla(program(BETAINC, *avals_of(a, b, x)), a, b, x)[0], want, dtype) < 2000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_incomplete_gamma_of_large_operands(dtype: type[np.floating]) -> None:
    """Near x = a the series and the continued fraction converge too slowly. Beyond four deviations scipy is less
    accurate."""
    a = np.geomspace(2e5, 1e12, 57).astype(dtype)
    for z in (-4, -1, -0.1, 0, 0.1, 1, 4):
        x = (a + z * np.sqrt(a)).astype(dtype)
        for prim, reference in ((IGAMMA, sp.gammainc), (IGAMMAC, sp.gammaincc)):
            want = reference(a.astype(np.float64), x.astype(np.float64))
            assert units(xla(program(prim, *avals_of(a, x)), a, x)[0], want, dtype) < 1000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_of_large_operands(dtype: type[np.floating]) -> None:
    rtol = 1e-3 if dtype == np.float32 else 1e-6
    a = np.geomspace(1e5, 1e12, 15).astype(dtype)
    for z in (-3, -0.5, 0, 0.5, 3):
        x = (a + z * np.sqrt(a)).astype(dtype)
        shape, sample = a.astype(np.float64), x.astype(np.float64)
        mu = (sample - shape) / shape
        density = np.exp(-shape * (mu - np.log1p(mu)) - 1 / (12 * shape)) * np.sqrt(shape / (2 * np.pi)) / sample
        assert_slope(IGAMMA, (a, x), 1, density, rtol)
        # x = a + z sqrt(a) + (z^2 - 1) / 3 + ..., at a fixed quantile
        kept = 1 + mu / 2
        np.testing.assert_allclose(wide(xla(program(RANDOM_GAMMA_GRAD, *avals_of(a, x)), a, x)[0]), kept, rtol=1e-4)
        np.testing.assert_allclose(
            wide(xla(program(IGAMMA_GRAD_A, *avals_of(a, x)), a, x)[0]), -density * kept, rtol=1e-3
        )
    a = np.geomspace(1e6, 8e6, 4)
    x = a + np.array([-300, 0, 700, 2000.0])
    for prim, want in zip((IGAMMA_GRAD_A, RANDOM_GAMMA_GRAD), gamma_slopes(a, x), strict=True):
        np.testing.assert_allclose(wide(xla(program(prim, *avals_of(a, x)), a, x)[0]), want, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slope_of_the_incomplete_beta_function_of_large_operands(dtype: type[np.floating]) -> None:
    a = np.geomspace(1e4, 1e10, 13).astype(dtype)
    x = (0.5 + 0.25 / np.sqrt(a)).astype(dtype)
    shape, y = a.astype(np.float64), x.astype(np.float64) - 0.5
    # (x (1 - x))^(a - 1) / B(a, a), by Stirling's formula
    fall = (shape - 1) * np.log1p(-4 * y * y) - 1 / (8 * shape)
    # in float32 the distance to the mode loses digits
    rtol = 4e-3 if dtype == np.float32 else 1e-7
    assert_slope(BETAINC, (a, a, x), 2, np.exp(fall) * 2 * np.sqrt(shape / np.pi), rtol)


def assert_slope(
    prim: Primitive, args: tuple[npt.NDArray[np.floating], ...], k: int, want: Doubles, rtol: float
) -> None:
    """Checks the derivative with respect to operand `k`, for a tangent of ones."""
    tangent, _ = jvp(program(prim, *avals_of(*args)), tuple([j == k for j in range(len(args))]))
    slope = xla(tangent, *args, np.ones_like(args[k]))[-1]
    np.testing.assert_allclose(wide(slope), want, rtol=rtol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bessel_and_zeta(dtype: type[np.floating]) -> None:
    x = np.concatenate([np.linspace(-30, 30, 601), np.geomspace(30, 1e20, 50)]).astype(dtype)
    for prim, reference in ((BESSEL_I0E, sp.i0e), (BESSEL_I1E, sp.i1e)):
        assert units(xla(program(prim, *avals_of(x)), x)[0], reference(x.astype(np.float64)), dtype) < 20
    s, q = RNG.uniform(1.01, 20, 300).astype(dtype), RNG.uniform(0.1, 50, 300).astype(dtype)
    want = sp.zeta(s.astype(np.float64), q.astype(np.float64))
    assert units(xla(program(ZETA, *avals_of(s, q)), s, q)[0], want, dtype) < 20


def hurwitz(s: int, q: float) -> tuple[float, float]:
    """Returns zeta(s, q) of a q < 0, and the sum of the absolute values of its terms, to which a result is accurate."""
    with mpmath.workprec(120):
        exact, n = mpmath.mpf(q), int(-np.floor(q))
        far, near = mpmath.zeta(s, exact + n), [(exact + k) ** -s for k in range(n)]
        return float(far + mpmath.fsum(near)), float(far + mpmath.fsum(map(abs, near)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeta_below_0(dtype: type[np.floating]) -> None:
    """XLA's sum of ten terms ends before 0: -6e8 and not 14.98 for zeta(2, -9.3)."""
    numbers = [-9.3, -20.5, -3.5, -0.5, -8.133487436897905, -1e-3, -7 + 1e-3, -7 - 1e-3, -300.7, -3000.3]
    q = np.array([*numbers, *np.random.default_rng(0).uniform(-30, 0, 20)], dtype)
    for order in (2, 3, 4, 9):
        s = np.full(q.shape, order, dtype)
        slope, _ = jvp(program(ZETA, *avals_of(s, q)), (False, True))
        found = xla(program(ZETA, *avals_of(s, q)), s, q)[0], ZETA.impl(s, q)[0], xla(slope, s, q, np.ones_like(q))[1]
        for have, k in zip(found, (order, order, order + 1), strict=True):
            true = np.array([hurwitz(k, float(v)) for v in q]) * (1 if k == order else -order)
            error = np.abs(have.astype(np.float64) - true[:, 0]) / np.abs(true[:, 1])
            assert error.max() < 20 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeta_at_the_ends_of_its_range(dtype: type[np.floating]) -> None:
    values = [0.0, INF, -INF, NAN, 1, -1, 0.5, -0.5, -2.5, -3, 2, 20, 21, 1001, 10001, 1e17, -20.3, -20.7, 1e20, -1e20]
    x, q = [v.ravel().astype(dtype) for v in np.meshgrid(values, values)]
    compiled, interpreted = [wide(v) for v in (xla(program(ZETA, *avals_of(x, q)), x, q)[0], ZETA.impl(x, q)[0])]
    np.testing.assert_allclose(compiled, interpreted, rtol=200 * float(np.finfo(dtype).eps), atol=1e-37)
    large = np.array([10001, 10001, 10001, 10001], dtype), np.array([3, -0.3, -0.7, -0.5], dtype)
    np.testing.assert_array_equal(ZETA.impl(*large)[0], [0, -INF, INF, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gamma_family_below_0(dtype: type[np.floating]) -> None:
    """Negative arguments, near poles and far from 0, compiled and interpreted; and the other sign of Bessel's."""
    rng = np.random.default_rng(0)
    near = [p + s * h for p in (-1, -3, -20) for s in (-1, 1) for h in (1e-3, 1e-5)]
    x = np.concatenate([-rng.uniform(0, 30, 40), -(10.0 ** rng.uniform(-6, 3, 40)), near, [-0.5, -1.5, -20.5]])
    x = x.astype(dtype)
    x, eps = x[x != np.floor(x)], float(np.finfo(dtype).eps)
    cases: list[tuple[Primitive, tuple[Any, ...], Callable[[Any], Any]]]
    cases = [(DIGAMMA, (), lambda v: mpmath.digamma(v)), (LGAMMA, (), lambda v: mpmath.loggamma(v).real)]
    for n in (1, 2, 3, 8):
        cases.append((POLYGAMMA, (np.full(x.shape, n, dtype),), partial(mpmath.psi, n)))
    for prim, orders, true in cases:
        exact = [mpmath.mpf(float(v)) for v in x]
        want = np.array([float(true(v)) for v in exact])
        # near a pole or a zero the result moves with the operand
        moved = np.array([float(true(v * (1 + eps))) for v in exact]) - want
        for have in (xla(program(prim, *avals_of(*orders, x)), *orders, x)[0], prim.impl(*orders, x)[0]):
            with np.errstate(invalid="ignore"):
                error = np.abs(have.astype(np.float64) - want) / (eps * (1 + np.abs(want)) + np.abs(moved))
            assert np.max(np.where(np.abs(want) < np.finfo(dtype).max, error, 0)) < 20


@pytest.mark.parametrize(
    ("prim", "args", "want"),
    [
        (IGAMMA, ([0, 0, 1, 1, INF, INF, 2, -1, 1, NAN], [0, 1, 0, INF, 1, INF, -1, 1, NAN, 1]),
         [NAN, 1, 0, 1, 0, NAN, NAN, NAN, NAN, NAN]),
        (IGAMMAC, ([0, 0, 1, 1, INF, INF, 2, -1, 1, NAN], [0, 1, 0, INF, 1, INF, -1, 1, NAN, 1]),
         [NAN, 0, 1, 0, 1, NAN, NAN, NAN, NAN, NAN]),
        (IGAMMA_GRAD_A, ([0, 1, 1, 2, NAN], [1, 0, INF, -1, 1]), [NAN, 0, 0, NAN, NAN]),
        (RANDOM_GAMMA_GRAD, ([0, 1, 2, NAN], [1, 0, -1, 1]), [NAN, 0, NAN, NAN]),
        (BETAINC, ([1, 1, 1, 1, 0, -1, NAN], [2, 2, 2, 2, 1, 1, 1], [0, 1, -0.1, 1.1, 0.5, 0.5, 0.5]),
         [0, 1, NAN, NAN, 1, NAN, NAN]),
        (BESSEL_I0E, ([0, INF, -INF, NAN],), [1, 0, 0, NAN]),
        (BESSEL_I1E, ([0, NAN],), [0, NAN]),
    ],
)  # fmt: skip
def test_edges(prim: Primitive, args: tuple[list[float], ...], want: list[float]) -> None:
    given = [np.array(a, np.float64) for a in args]
    np.testing.assert_allclose(
        xla(program(prim, *avals_of(*given)), *given)[0].astype(np.float64), np.array(want), atol=1e-14
    )
    np.testing.assert_allclose(prim.impl(*given)[0].astype(np.float64), np.array(want), atol=1e-14)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("prim", [IGAMMA, IGAMMAC, RANDOM_GAMMA_GRAD, ZETA], ids=lambda p: p.name)
def test_narrow_floats(prim: Primitive, dtype: str) -> None:
    aval = Aval((3,), dtype)
    args = np.array([1.5, 2, 3]).astype(aval.dtype), np.array([0.5, 2, 4]).astype(aval.dtype)
    same(xla(program(prim, aval, aval), *args), prim.impl(*args))


def test_a_value_does_not_depend_on_its_neighbours() -> None:
    """Elements that need more iterations do not change a result."""
    a, x = np.array([0.7, 900.0, 3.0]), np.array([0.4, 905.0, 9.0])
    for prim in (IGAMMAC, RANDOM_GAMMA_GRAD):
        (all_three,) = xla(program(prim, *avals_of(a, x)), a, x)
        (first,) = xla(program(prim, *avals_of(a[:1], x[:1])), a[:1], x[:1])
        np.testing.assert_array_equal(all_three[:1], first)


def refusal(prim: Primitive, flags: tuple[bool, ...]) -> NotDifferentiableError:
    with pytest.raises(NotDifferentiableError) as e:
        jvp(program(prim, *[Aval((), "f32")] * len(flags)), flags)
    return e.value


def test_derivatives_that_are_not_known() -> None:
    for prim in (IGAMMA_GRAD_A, RANDOM_GAMMA_GRAD):
        e = refusal(prim, (True, False))
        assert e.message == f"{prim.name}: the second derivative in the shape parameter a is not known"
        assert e.remedy == "apply stop_gradient to the first operand"
    assert refusal(ZETA, (True, False)).message == "zeta: the derivative in the exponent x is not known"
    e = refusal(BETAINC, (False, True, True))
    assert e.message == "regularized_incomplete_beta: the derivative in b is not known"
    assert e.remedy == "apply stop_gradient to the first two operands"


F = Aval((2,), "f32")


@pytest.mark.parametrize(
    ("prim", "avals", "error", "message"),
    [
        (IGAMMA, (F,), ArgumentError, "igamma: takes 2 operands, got 1"),
        (IGAMMA, (F, Aval((3,), "f32")), ShapeError, "igamma: shapes differ: lhs f32[2], rhs f32[3]"),
        (ZETA, (Aval((), "i32"), Aval((), "i32")), DTypeError, "zeta: takes float (not float8) operands, got i32[]"),
        (BETAINC, (F, F), ArgumentError, "regularized_incomplete_beta: takes 3 operands, got 2"),
        (BETAINC, (F, F, Aval((2,), "f64")), DTypeError,
         "regularized_incomplete_beta: dtypes differ: operand 0 f32[2], operand 1 f32[2], operand 2 f64[2]"),
    ],
)  # fmt: skip
def test_messages(prim: Primitive, avals: tuple[Aval, ...], error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lgamma_around_its_zeros(dtype: str) -> None:
    eps = float(np.finfo(dtype).eps)
    x = np.array([1, 2, 1 + eps, 1 - eps / 2, 2 + 2 * eps, 2 - eps, 1.001, 0.97, 2.01, 1.6, 0.51, 2.49], dtype)
    want = np.array([float(mpmath.loggamma(mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(np.asarray(fx.jit(lax.lgamma)(x)).astype(float), want, rtol=8 * eps, atol=0)
