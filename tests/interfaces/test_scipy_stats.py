"""`fxad.scipy.stats` against SciPy: every function of every distribution, inside and outside of the support."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.scipy import stats
from fxad.scipy.stats.distribution import Distribution

POINTS = np.array([-3.0, -1.0, -0.2, 0.0, 0.1, 0.5, 1.0, 1.7, 2.5, 6.0, np.nan])
QUANTILES = np.array([0.0, 1e-5, 0.1, 0.5, 0.8, 1.0, -0.1, 1.2])
COUNTS = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 9.0, np.nan])
SHAPES: dict[str, tuple[float, ...]] = {
    "beta": (1.3, 2.2),
    "cauchy": (),
    "chi2": (3.0,),
    "expon": (),
    "gamma": (2.5,),
    "gennorm": (1.7,),
    "gumbel_l": (),
    "gumbel_r": (),
    "laplace": (),
    "logistic": (),
    "norm": (),
    "pareto": (1.6,),
    "t": (4.5,),
    "truncnorm": (-1.0, 2.0),
    "uniform": (),
    "vonmises": (1.5,),
    "wrapcauchy": (0.4,),
}
MASSES: dict[str, tuple[float, ...]] = {
    "bernoulli": (0.3,),
    "betabinom": (6.0, 1.5, 2.5),
    "binom": (5.0, 0.4),
    "geom": (0.35,),
    "nbinom": (3.0, 0.6),
    "poisson": (2.3,),
}


def functions(name: str) -> list[str]:
    given = getattr(stats, name).functions
    derived = [m for kind in ("cdf", "sf") if given.keys() & {"cdf", "sf"} for m in (kind, f"log{kind}")]
    return ["pdf", "logpdf", *derived, *(["ppf", "isf"] if "ppf" in given else [])]


def compared(found: Any, name: str, method: str, x: Any, args: tuple[float, ...]) -> None:
    """Compare the result of a function of a distribution with SciPy."""
    with np.errstate(all="ignore"):
        want = getattr(getattr(scipy.stats, name), method)(x, *args)
    inside = np.full(x.shape, True)
    if name == "vonmises":  # SciPy's support is one period
        loc, scale = (*args[1:], *(0.0, 1.0)[len(args) - 1 :])
        inside = np.abs((x - loc) / scale) <= np.pi
    np.testing.assert_allclose(np.asarray(found)[inside], want[inside], rtol=1e-8, atol=1e-12, err_msg=method)


@pytest.mark.parametrize("name", SHAPES)
def test_densities(name: str) -> None:
    """All functions in one program, with location and scale as operands; and interpreted, without them."""
    args, methods = SHAPES[name], functions(name)
    points = {m: QUANTILES if m in ("ppf", "isf") else POINTS for m in methods}

    def all_of_them(*place: Any) -> list[Any]:
        return [getattr(getattr(stats, name), m)(points[m], *args, *place) for m in methods]

    run = fx.jit(all_of_them)
    for both in [(0.0, 1.0), (0.25, 1.5)]:
        for m, found in zip(methods, run(*map(np.float64, both)), strict=True):
            compared(found, name, m, points[m], (*args, *both))
    fewer: tuple[tuple[float, ...], ...] = ((), (0.5,))
    for place in fewer:
        with np.errstate(all="ignore"):
            interpreted = fx.interpret(fx.trace(partial(all_of_them, *place)))
        for m, found in zip(methods, interpreted, strict=True):
            compared(found, name, m, points[m], (*args, *place))


@pytest.mark.parametrize("name", MASSES)
def test_masses(name: str) -> None:
    given = getattr(stats, name).functions
    tails = ["cdf", "sf", "logcdf", "logsf"] if "cdf" in given else []
    args, methods = MASSES[name], ["pmf", "logpmf", *tails, *(["ppf"] if "ppf" in given else [])]
    points = {m: np.array([0.1, 0.5, 0.9]) if m == "ppf" else COUNTS for m in methods}

    def all_of(methods: list[str], *loc: Any) -> list[Any]:
        return [getattr(getattr(stats, name), m)(points[m], *args, *loc) for m in methods]

    compiled = [m for m in methods if m not in tails[1:]]  # the tails are other calls of the functions of the cdf
    for m, found in zip(compiled, fx.jit(partial(all_of, compiled))(np.float64(1.0)), strict=True):
        compared(found, name, m, points[m], (*args, 1.0))
    with np.errstate(all="ignore"):
        interpreted = fx.interpret(fx.trace(partial(all_of, methods)))
    for m, found in zip(methods, interpreted, strict=True):
        compared(found, name, m, points[m], args)


@pytest.mark.parametrize("name", SHAPES)
def test_slopes_are_finite_everywhere(name: str) -> None:
    """Outside of the support the log density is -inf, and its derivatives are 0, not nan."""
    density = getattr(stats, name)
    args = SHAPES[name]

    def total(x: Any, loc: Any, scale: Any) -> Any:
        value = density.logpdf(x, *args, loc, scale)
        return fnp.where(fnp.isfinite(value), value, 0.0).sum()

    x = np.array([-7.0, -0.4, 0.3, 0.6, 1.4, 9.0])
    for found in fx.grad(total, (0, 1, 2))(x, np.float64(0.1), np.float64(1.2)):
        assert np.isfinite(np.asarray(found)).all()


def test_the_slope_of_a_density_is_that_of_scipy() -> None:
    x, step = np.array([0.3, 0.7]), 1e-6
    for name, args in SHAPES.items():
        x = np.array([1.3, 1.7]) if name == "pareto" else np.array([0.3, 0.7])
        theirs = getattr(scipy.stats, name).logpdf
        want = (theirs(x + step, *args) - theirs(x - step, *args)) / (2 * step)
        density = getattr(stats, name)
        found = fx.grad(lambda v, d=density, a=args: d.logpdf(v, *a).sum())(x)
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-6)


def test_curvatures_at_points_where_two_cases_meet() -> None:
    def curvature(f: Any, x: float) -> float:
        return float(fx.grad(fx.grad(f))(np.float64(x)))

    for power, want in ((2.0, -2.0), (1.0, 0.0), (3.0, 0.0), (0.5, 0.0)):
        assert curvature(lambda x, p=power: stats.gennorm.logpdf(x, p), 0.0) == want
        assert float(fx.grad(lambda x, p=power: stats.gennorm.logpdf(x, p))(np.float64(0))) == 0
    for f in (stats.cauchy.ppf, stats.cauchy.isf):
        assert float(f(0.5)) == curvature(f, 0.5) == 0
        for q in (0.1, 0.25, 0.4, 0.75, 0.9):
            # with x = ppf(q), the slope is pi (1 + x^2), and its derivative in q is 2 x pi^2 (1 + x^2)
            x = float(f(np.float64(q)))
            assert curvature(f, q) == pytest.approx(2 * x * math.pi**2 * (1 + x * x), rel=1e-9)
    assert [float(f(-0.0)) for f in (stats.cauchy.ppf, stats.cauchy.isf)] == [-np.inf, np.inf]


def test_derivatives_of_the_logistic_distribution_keep_their_digits() -> None:
    def derivative(f: Any, order: int, x: float) -> float:
        for _ in range(order):
            f = fx.grad(f)
        return float(f(np.float64(x)))

    logistic = stats.logistic
    assert derivative(logistic.logpdf, 1, 1e-8) == pytest.approx(-5e-9, rel=1e-12)
    assert derivative(logistic.logpdf, 2, 1e-8) == pytest.approx(-0.5, rel=1e-12)
    assert derivative(logistic.logcdf, 2, -40) == pytest.approx(-math.exp(-40), rel=1e-12)
    assert derivative(logistic.logsf, 2, 40) == pytest.approx(-math.exp(-40), rel=1e-12)
    assert derivative(logistic.logsf, 1, 40) == pytest.approx(-1, rel=1e-12)


def test_densities_at_the_ends_of_their_support() -> None:
    """The density is 0 there, and the slope of its logarithm infinite: the slope of the density was nan."""
    for name, x, args in [
        ("beta", 0.0, (2.5, 3.0)), ("beta", 1.0, (2.5, 3.0)), ("gamma", 0.0, (2.5,)), ("chi2", 0.0, (5.0,)),
        ("norm", np.inf, ()), ("norm", -np.inf, ()), ("gumbel_r", -1e20, ()), ("gumbel_l", 1e20, ()),
    ]:  # fmt: skip
        density = getattr(stats, name)
        assert float(fx.grad(lambda v, d=density, a=args: d.pdf(v, *a))(np.float64(x))) == 0
        if math.isfinite(x):
            curvature = fx.grad(fx.grad(lambda v, d=density, a=args: d.cdf(v, *a)))
            assert float(curvature(np.float64(x))) == 0


def test_densities_far_away() -> None:
    """The square of 1e20 overflows in float32."""
    for name, args in (("cauchy", ()), ("t", (3.0,))):
        want = getattr(scipy.stats, name).logpdf(1e20, *args)
        assert float(getattr(stats, name).logpdf(np.float32(1e20), *args)) == pytest.approx(want, rel=1e-6)
        slope = fx.grad(lambda x, name=name, args=args: getattr(stats, name).logpdf(x, *args))(np.float32(1e20))
        assert float(slope) == pytest.approx(-2e-20 if name == "cauchy" else -4e-20)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_t_with_many_degrees_of_freedom(dtype: Any) -> None:
    """df / (df + y^2) rounds to 1: `t.cdf(2, 1e8)` was 0.5 in float32."""
    y = np.array([-20, -9, -5, -3, -1, -0.3, -1e-3, 0, 0.3, 1, 2, 5, 9, np.inf, -np.inf, 1e20])
    for df in (49.0, 51.0, 300.0, 999.0, 1001.0, 1e4, 1e8, 1e20, np.inf):
        want: Any = scipy.stats.t.cdf(y, df)
        have = np.asarray(stats.t.cdf(y.astype(dtype), dtype(df)))
        np.testing.assert_allclose(
            have.astype(np.float64), want, rtol=3e-5 if dtype is np.float32 else 1e-12, atol=1e-37
        )
        density = np.asarray(stats.t.logpdf(y.astype(dtype), dtype(df)))[:-1]  # nan at infinitely many degrees before
        np.testing.assert_allclose(
            density, scipy.stats.t.logpdf(y, df)[:-1], rtol=2e-5 if dtype is np.float32 else 1e-11
        )


@pytest.mark.parametrize("p", [0.05, 0.1, 0.3, 1.0])
def test_the_quantile_of_geom_is_the_least_number_with_the_probability(p: float) -> None:
    """Regression: the quotient of logarithms is rounded, and its ceiling was a number too great for a third of k."""
    k = np.arange(1, 30 if p < 1 else 2, dtype=np.float32)
    np.testing.assert_array_equal(stats.geom.ppf(stats.geom.cdf(k, np.float32(p)), np.float32(p)), k)
    q = np.array([0.0, 0.5, -1.0], np.float32)
    np.testing.assert_array_equal(stats.geom.ppf(q, 0.5), [0.0, 1.0, np.nan])


def test_small_parameters_and_small_distances_keep_their_digits() -> None:
    """Regression: 1 - p, cos(y) - 1 and 1 + c^2 - 2 c cos(y) lost them in float32."""
    small = np.float32(1e-8)
    found: Any = np.asarray(stats.binom.cdf(0, 1e6, small))
    np.testing.assert_allclose(found, scipy.stats.binom.cdf(0, 1e6, 1e-8), rtol=1e-6)
    slope = fx.grad(lambda p: stats.binom.cdf(3.0, 20.0, p))(np.float64(0.3))
    step = 1e-6
    around = [scipy.stats.binom.cdf(3, 20, 0.3 + h) for h in (step, -step)]
    np.testing.assert_allclose(slope, (around[0] - around[1]) / (2 * step), rtol=1e-6)
    y, kappa = np.float32(1e-4), np.float32(1e8)
    found = np.asarray(stats.vonmises.logpdf(y, kappa))
    np.testing.assert_allclose(found, scipy.stats.vonmises.logpdf(1e-4, 1e8), rtol=1e-5)
    c = np.float32(0.9999)
    found = np.asarray(stats.wrapcauchy.logpdf(np.float32(0.0), c))
    np.testing.assert_allclose(found, math.log((1 + float(c)) / (2 * math.pi * (1 - float(c)))), rtol=1e-6)


def test_a_probability_of_truncnorm_is_at_most_1() -> None:
    """Regression: two roundings of one logarithm differed, and `cdf` was 1 + 2e-15."""
    x = np.array([-1e10, -50.0, -5.0, -1.0, 6.0, 50.0, 1e10])
    for method in (stats.truncnorm.cdf, stats.truncnorm.sf):
        assert (method(x, 5.0, 6.0) <= 1).all()
    assert (stats.truncnorm.logcdf(x, 5.0, 6.0) <= 0).all()
    assert np.isnan(np.asarray(stats.truncnorm.cdf(np.nan, 5.0, 6.0)))


def test_a_probability_of_truncnorm_keeps_its_digits_near_1_and_of_a_narrow_interval() -> None:
    """The true values are those of mpmath, with 400 digits."""
    for y, a, b, below, above, slope in (
        (1.9999, -2, 2, -5.657049087347245e-06, -12.08261099288866, 0.05657630794987663),
        (9, -3, 10, -1.1300376430135709e-19, -43.62686582231608, 1.029366897515673e-18),
        (2.99999, -3, 3, -4.44391264662819e-08, -16.929145551062042, 0.0044439794042172185),
        (5.999, 5, 6, -2.13334196778155e-05, -10.755246382574176, 0.021397705052218673),
        (10, 9, np.inf, -6.751894870697195e-05, -9.603136037180356, 0.0006818356572564899),
        (-0.9999999, -1, 2, -17.33686784036489, -2.9559288064284718e-08, 10000000.505263533),
        (20, -np.inf, np.inf, -2.7536241186062337e-89, -203.91715537109727, 5.520948362159764e-88),
    ):
        found = stats.truncnorm.logcdf(np.float64(y), a, b), stats.truncnorm.logsf(np.float64(y), a, b)
        rate = fx.grad(lambda y, a=a, b=b: stats.truncnorm.logcdf(y, a, b))(np.float64(y))
        np.testing.assert_allclose((*found, rate), (below, above, slope), rtol=1e-13)


def test_statistics_of_all_elements_keep_every_axis() -> None:
    """Regression: with `keepdims` and axis None the result had one axis."""
    x = np.array([[1, 2, 2], [2, 3, 4]])
    ours, theirs = stats.mode(x, None, keepdims=True), scipy.stats.mode(x, axis=None, keepdims=True)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b, strict=False)
        assert a.shape == b.shape == (1, 1)
    assert stats.sem(x, None, keepdims=True).shape == (1, 1)
    assert stats.mode(x, 1, keepdims=True).mode.shape == (2, 1)
    with pytest.raises(ArgumentError, match="mode: keepdims must be True or False"):
        stats.mode(x, keepdims="no")  # type: ignore[arg-type]


def test_dtypes_names_and_shapes() -> None:
    assert stats.norm.logpdf(1).dtype == fnp.float32
    assert stats.norm.logpdf(np.float64(1)).dtype == fnp.float64
    assert stats.gamma.logpdf(fnp.ones(3), a=np.ones((2, 1)), scale=2).shape == (2, 3)
    close: Any = np.testing.assert_allclose
    close(np.asarray(stats.norm.logpdf(0.3, scale=2.0)), scipy.stats.norm.logpdf(0.3, scale=2.0), rtol=1e-6)
    assert stats.norm.cdf(np.zeros((0, 2))).shape == (0, 2)
    program = fx.trace(stats.norm.logpdf, np.ones(3))
    assert "@norm_logpdf" in str(program) or "log" in str(program)
    close(np.asarray(fx.vmap(stats.expon.logpdf)(np.ones(4))), -np.ones(4))


def test_vectors() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 3))
    cov, mean, x = a @ a.T + np.eye(3), rng.standard_normal(3), rng.standard_normal((4, 3))
    ours, theirs = stats.multivariate_normal, scipy.stats.multivariate_normal
    close: Any = np.testing.assert_allclose
    close(np.asarray(ours.logpdf(x, mean, cov)), theirs.logpdf(x, mean, cov))
    close(np.asarray(ours.pdf(x[0], mean, cov)), theirs.pdf(x[0], mean, cov))
    close(np.asarray(ours.logpdf(x, mean, 2.0)), theirs.logpdf(x, mean, 2.0))
    close(np.asarray(ours.logpdf(x, mean, np.array([1.0, 2.0, 3.0]))), theirs.logpdf(x, mean, np.diag([1.0, 2.0, 3.0])))
    close(np.asarray(ours.logpdf(0.5, 0.1, 2.0)), theirs.logpdf(0.5, 0.1, 2.0), rtol=1e-6)
    weights, alpha = np.array([[0.2, 0.5], [0.3, 0.1], [0.5, 0.4]]), np.array([1.5, 2.0, 0.7])
    close(np.asarray(stats.dirichlet.logpdf(weights, alpha)), scipy.stats.dirichlet.logpdf(weights, alpha))
    close(np.asarray(stats.dirichlet.pdf(weights[:2], alpha)), scipy.stats.dirichlet.pdf(weights, alpha))
    assert np.asarray(stats.dirichlet.logpdf(np.array([0.5, 0.6, 0.5]), alpha)) == -np.inf
    for powers, want in (([1, 1, 1], math.log(2)), ([1, 2, 3], math.log(7.5)), ([2, 1, 1], -np.inf)):
        edge = stats.dirichlet.logpdf(np.array([0, 0.5, 0.5]), np.array(powers, np.float64))
        np.testing.assert_allclose(edge, want, rtol=1e-14)
    assert stats.dirichlet.logpdf(np.array([0, 0.5, 0.5]), np.array([0.5, 1, 1])) == np.inf
    counts, p = np.array([[1.0, 2.0, 2.0], [5.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), np.array([0.2, 0.3, 0.5])
    close(np.asarray(stats.multinomial.logpmf(counts, 5, p)), scipy.stats.multinomial.logpmf(counts, 5, p))
    close(np.asarray(stats.multinomial.pmf(counts, 5, p)), scipy.stats.multinomial.pmf(counts, 5, p))


def test_samples() -> None:
    x = np.array([[3.0, 1.0, 3.0, 2.0], [1.0, 1.0, 2.0, 2.0], [3.0, 0.0, 2.0, 2.0]])
    close: Any = np.testing.assert_allclose
    for axis in (0, 1, -1, None):
        close(np.asarray(stats.sem(x, axis)), scipy.stats.sem(x, axis))
        found, want = stats.mode(x, axis), scipy.stats.mode(x, axis)
        close(np.asarray(found.mode), want.mode)
        close(np.asarray(found.count), want.count)
        for method in ("average", "min", "max", "dense", "ordinal"):
            close(np.asarray(stats.rankdata(x, method, axis=axis)), scipy.stats.rankdata(x, method, axis=axis))
    nans = np.array([[2.0, np.nan, 1.0, np.nan], [3.0, 1.0, 1.0, 2.0]])
    none = np.zeros((0, 2, 3))
    for axis in (0, 1, None):
        assert stats.rankdata(none, axis=axis).shape == scipy.stats.rankdata(none, axis=axis).shape
    assert stats.mode(none, axis=2).mode.shape == (0, 2)
    close(np.asarray(stats.rankdata(nans, axis=1)), scipy.stats.rankdata(nans, axis=1))
    for method, ranks in {"min": [2, 3, 1, 3], "max": [2, 4, 1, 4], "dense": [2, 3, 1, 3]}.items():
        np.testing.assert_array_equal(np.asarray(stats.rankdata(nans[0], method)), ranks)
    assert stats.mode(x, 1, keepdims=True).mode.shape == (3, 1)


MESSAGES = [
    (
        lambda: stats.norm.logpdf(1.0, 0.0, 1.0, 2.0),
        ArgumentError,
        "norm.logpdf: got 3 parameters",
    ),
    (lambda: stats.norm.logpdf(1.0, mean=0.0), ArgumentError, "norm.logpdf: no parameter mean"),
    (lambda: stats.norm.logpdf(1.0, 0.0, loc=0.0), ArgumentError, "norm.logpdf: parameter loc is given twice"),
    (lambda: stats.gamma.logpdf(1.0), ArgumentError, "gamma.logpdf: parameter a is missing"),
    (lambda: stats.norm.logpdf(1j), DTypeError, "norm.logpdf: takes real numbers, got complex64"),
    (lambda: stats.vonmises.cdf(1.0, 2.0), FxadError, "vonmises.cdf has no formula here"),
    (lambda: stats.betabinom.cdf(1.0, 2, 1, 1), FxadError, "betabinom.cdf has no formula here"),
    (
        lambda: stats.multivariate_normal.logpdf(np.ones(3), np.ones(2), 1.0),
        ShapeError,
        "multivariate_normal: vectors of 3 elements, but mean is f64[2]",
    ),
    (
        lambda: stats.dirichlet.logpdf(np.ones(4), np.ones(2)),
        ShapeError,
        "dirichlet: x is f64[4] and alpha f64[2]",
    ),
    (lambda: stats.mode(np.ones((0, 2))), ParameterError, "mode: an axis without elements has no most frequent value"),
    (
        lambda: stats.rankdata(np.ones(2), "middle"),
        ParameterError,
        "rankdata: method 'middle' is unknown",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages(call: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        call()
    assert e.value.message.startswith(message)


def test_remedies() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: stats.norm.logpdf(1.0, mean=0.0), "the parameters are loc scale"),
        (lambda: stats.vonmises.cdf(1.0, 2.0), "vonmises has pdf logpdf"),
        (lambda: stats.betabinom.cdf(1.0, 2, 1, 1), "betabinom has pmf logpmf"),
        (lambda: stats.norm.logpdf(1.0, 0.0, 1.0, 2.0), "the parameters are loc scale"),
        (lambda: stats.norm.logpdf(1.0, 0.0, loc=0.0), "give it by place or by name"),
        (lambda: stats.gamma.logpdf(1.0), "the parameters are a loc scale"),
        (lambda: stats.mode(np.ones((0, 2))), "give at least one element"),
        (lambda: stats.rankdata(np.ones(2), "middle"), "the methods are average min max dense ordinal"),
        (
            lambda: stats.dirichlet.logpdf(np.ones(4), np.ones(2)),
            "alpha is a vector, and x has a row for each element of it, or one less",
        ),
        (lambda: stats.norm.logpdf(1j), "pass the real part"),
        (
            lambda: stats.multivariate_normal.logpdf(np.ones(3), np.ones(2), 1.0),
            "the last axes of x, mean and cov have one size",
        ),
    ]
    for call, remedy in cases:
        with pytest.raises(FxadError) as e:
            call()
        assert e.value.remedy == remedy


@pytest.mark.parametrize("name", [*SHAPES, *MASSES])
def test_a_distribution_is_pickled_by_name(name: str) -> None:
    distribution = getattr(stats, name)
    assert pickle.loads(pickle.dumps(distribution)) is distribution
    assert copy.copy(distribution) is copy.deepcopy([distribution])[0] is distribution


VALUES = (-1.0, 0.0, 0.4, 1.0, 2.0, np.nan)
METHODS = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf")


@pytest.mark.parametrize("name", sorted([n for n in dir(stats) if isinstance(getattr(stats, n), Distribution)]))
def test_impossible_parameters(name: str) -> None:
    """All functions are nan where SciPy's are, for any combination of parameters in and outside of their domains."""
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    parameters = [*ours.shapes, *([] if "scale" not in ours.defaults else ["scale"])]
    shapes = np.array(list(product(VALUES, repeat=len(parameters)))).reshape(-1, len(parameters)).T
    named: dict[str, Any] = dict(zip(parameters, shapes, strict=True))
    for method in METHODS:
        if method in ("pdf", "logpdf", "pmf", "logpmf") and not hasattr(ours, method):
            continue
        x = np.array([[-0.5], [0.5], [1.0]])
        try:
            program = fx.trace(lambda x, named, m=method: getattr(ours, m)(x, **named), x, named)
        except (FxadError, AttributeError):
            continue  # there is no formula
        with np.errstate(all="ignore"):
            found = np.asarray(fx.interpret(program, x, named))
            # SciPy's log tails of whole numbers are -inf for some parameters for which its others are nan
            want = getattr(theirs, method.removeprefix("log") if name in MASSES else method)(x, **named)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want), err_msg=f"{name}.{method}")


def test_impossible_parameters_of_vectors() -> None:
    assert np.isnan(stats.multinomial.logpmf(np.array([1.0, 1.0]), 2.0, np.array([1.5, -0.5])))
    assert np.isnan(stats.dirichlet.logpdf(np.array([0.5, 0.5]), np.array([1.0, -1.0])))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_probabilities_that_underflow(dtype: str) -> None:
    """In float32 the probability itself is 0 from the logarithm -103 on."""
    x, a = [np.array(v, dtype) for v in ([93.6, 300, 2000, 1e-3, 0.08, 400], [0.356, 19, 1000, 19.4, 24, 1000])]
    y, b, c = [np.array(v, dtype) for v in ([1e-5, 0.3, 0.02], [10, 200, 30], [2, 7, 300])]
    cases: list[tuple[Any, Any, tuple[np.ndarray, ...]]] = [
        (stats.gamma.logsf, scipy.stats.gamma.logsf, (x[:3], a[:3])),
        (stats.gamma.logcdf, _log_gammainc, (x[3:], a[3:])),
        (stats.chi2.logsf, scipy.stats.chi2.logsf, (x[:3], a[:3])),
        (stats.beta.logcdf, _log_betainc, (y, b, c)),
        (stats.beta.logsf, lambda y, b, c: _log_betainc(1 - y, c, b), (1 - y.astype(np.float32).astype(dtype), c, b)),
    ]
    for found, true, operands in cases if dtype == "float32" else cases[:2]:
        wide = [v.astype(np.float64) for v in operands]
        np.testing.assert_allclose(found(*operands), true(*wide), rtol=2e-6 if dtype == "float32" else 1e-12)
    slopes = fx.grad(lambda v: stats.gamma.logsf(v, a[:3]).sum())(x[:3])
    np.testing.assert_allclose(
        slopes, -np.exp(scipy.stats.gamma.logpdf(x, a) - scipy.stats.gamma.logsf(x, a))[:3], 1e-3
    )


def _log_t_tail(y: float, df: float) -> Any:
    """The logarithm of the probability of Student's t beyond |y|, as a hypergeometric function."""
    mp, a = mpmath.mp, mpmath.mpf(df) / 2
    x = df / (df + mpmath.mpf(y) ** 2)
    return a * mp.log(x) + mp.log(mp.hyp2f1(a, 0.5, a + 1, x) / (2 * a * mp.beta(a, 0.5)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log_tails_of_t(dtype: str) -> None:
    """Regression: `logcdf` was -inf where the probability underflows, `cdf` 0 where the square of y overflows."""
    y = np.array([-0.3, -3, -15, -100, -1e4, -1e10, -1e25, -1e37 if dtype == "float32" else -1e180], dtype)
    df = np.array([[0.1], [4.5], [60], [999], [1001], [5000]], dtype)
    program = fx.trace(lambda y, df: [stats.t.logcdf(y, df), stats.t.logsf(y, df), stats.t.cdf(y, df)], y, df)
    low, high, cdf = [np.asarray(v).astype(float) for v in fx.interpret(program, y, df)]
    with mpmath.workprec(120):
        true = np.array([[_log_t_tail(float(v), float(n)) for v in y] for n in df[:, 0]])
        above, probabilities = (
            np.vectorize(lambda v: mpmath.log1p(-mpmath.exp(v)))(true),
            np.vectorize(mpmath.exp)(true),
        )
    rtol, least = (1e-5, 1e-37) if dtype == "float32" else (1e-11, 1e-300)
    np.testing.assert_allclose(low, true.astype(float), rtol)
    np.testing.assert_allclose(high, above.astype(float), rtol, least)
    np.testing.assert_allclose(cdf, probabilities.astype(float), 3e-5 if dtype == "float32" else 1e-11, least)
    if dtype == "float64":
        slope = fx.interpret(fx.trace(fx.grad(lambda y: stats.t.logcdf(y, 1001.0)), np.float64(-100)), np.float64(-100))
        assert float(slope) == pytest.approx(float(mpmath.diff(lambda v: _log_t_tail(-v, 1001.0), -100)), rel=1e-8)


# a distribution, its parameters, and numbers: the probabilities on one side of them are below the smallest float
FAR_COUNTS: list[tuple[str, tuple[float, ...], tuple[float, ...]]] = [
    ("bernoulli", (1e-30,), (0.0,)),
    ("binom", (3000.0, 0.25), (0.0, 5.0, 100.0, 750.0, 2000.0, 2999.0)),
    ("binom", (1e6, 1e-9), (0.0, 3.0, 60.0)),
    ("geom", (0.5,), (1.0, 3.0, 2000.0)),
    ("nbinom", (400.0, 0.3), (0.0, 20.0, 900.0, 9000.0)),
    ("poisson", (900.0,), (0.0, 30.0, 900.0, 4000.0)),
    ("poisson", (1e-9,), (0.0, 2.0, 50.0)),
]


@pytest.mark.parametrize(("name", "args", "points"), FAR_COUNTS)
def test_log_tails_of_whole_numbers(name: str, args: tuple[float, ...], points: tuple[float, ...]) -> None:
    """Against the sum of the masses, from which both tails are found without cancellation."""
    distribution, k = getattr(stats, name), np.array(points)
    methods = ("cdf", "sf", "logcdf", "logsf")
    program = fx.trace(lambda k: [getattr(distribution, m)(k, *args) for m in methods], k)
    found = {m: np.asarray(v) for m, v in zip(methods, fx.interpret(program, k), strict=True)}
    count = np.arange(int(args[0]) + 1 if name == "binom" and args[0] < 1e5 else 20_000)
    log_mass = getattr(scipy.stats, name).logpmf(count, *args)
    for i, point in enumerate(k):
        for below, sides in ((True, ("cdf", "logcdf")), (False, ("sf", "logsf"))):
            side = (count <= point) == below
            want = scipy.special.logsumexp(log_mass[side]) if side.any() else -np.inf
            other = scipy.special.logsumexp(log_mass[~side]) if (~side).any() else -np.inf
            want = np.log1p(-np.exp(other)) if other < -1 else want
            np.testing.assert_allclose(found[sides[1]][i], want, 1e-8, 1e-300, err_msg=f"{name} {point} {sides[1]}")
            np.testing.assert_allclose(found[sides[0]][i], np.exp(want), 1e-8, 1e-300, err_msg=f"{name} {point}")


def _log_gammainc(x: np.ndarray, a: np.ndarray) -> list[float]:
    return [float(mpmath.log(mpmath.gammainc(p, 0, q, regularized=True))) for q, p in zip(x, a, strict=True)]


def _log_betainc(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> list[float]:
    rows = zip(x, a, b, strict=True)
    return [float(mpmath.log(mpmath.betainc(p, q, 0, r, regularized=True))) for r, p, q in rows]


def test_probabilities_of_half_types() -> None:
    for dtype in (fnp.float16, fnp.bfloat16):
        x, a = fnp.asarray([1.0, 93.5], dtype=dtype), fnp.asarray(3.0, dtype=dtype)
        for method in ("cdf", "logsf"):
            found = getattr(stats.gamma, method)(x, a)
            assert found.dtype == x.dtype
            np.testing.assert_allclose(
                found.astype(float), getattr(scipy.stats.gamma, method)([1, 93.5], 3), rtol=1e-2, atol=1e-7
            )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masses_at_the_ends_are_exact(dtype: Any) -> None:
    k, n = np.array([0, 1, 0, 5, 0, 1000, 0], dtype), np.array([1, 1, 5, 5, 1000, 1000, 0], dtype)
    p = (k > 0).astype(dtype)
    q = np.array([0.5, 1, 7], dtype)
    masses: Any = fx.jit(
        lambda *args: (stats.binom.logpmf(*args), stats.binom.pmf(*args), stats.nbinom.logpmf(dtype(0), q, dtype(1)))
    )
    for found, wanted in zip(masses(k, n, p), (np.zeros(7), np.ones(7), np.zeros(3)), strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)
    small = dtype(1e-10)  # all digits, and the slope
    mass: Any = stats.binom.logpmf(dtype(0), dtype(5), small)
    np.testing.assert_allclose(np.asarray(mass), 5 * math.log1p(-float(small)), rtol=4 * np.finfo(dtype).eps)
    slope: Any = fx.grad(lambda p: stats.binom.logpmf(dtype(0), dtype(5), p))(small)
    np.testing.assert_allclose(np.asarray(slope), -5, rtol=1e-6)
