"""`gaussian_kde` against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ParameterError, ShapeError
from fxad.scipy.stats import gaussian_kde
from tests.api.refusals import check_refused

RNG = np.random.default_rng(8)
DATA, POINTS = RNG.standard_normal((2, 12)), RNG.standard_normal((2, 5))
WEIGHTS, MEAN, COV = RNG.uniform(0.1, 1, 12), np.array([0.2, -0.3]), np.array([[1.5, 0.3], [0.3, 0.8]])
them: Any = scipy.stats.gaussian_kde


@pytest.mark.parametrize("bw_method", [None, "silverman", 0.3, lambda kde: kde.neff ** (-1.0) / (kde.d + 4)])
def test_values(bw_method: Any) -> None:
    for data, points in ((DATA, POINTS), (DATA[0], POINTS[0])):
        mean, cov = (MEAN, COV) if data.ndim == 2 else (MEAN[:1], COV[:1, :1])

        def all_of(make: Any, data: Any, points: Any, weights: Any, mean: Any = mean, cov: Any = cov) -> list[Any]:
            kde = make(data, bw_method, weights)
            other = make(data[..., :-3] + 0.1, bw_method, None)
            out = [kde(points), kde.pdf(points), kde.logpdf(points), kde.covariance, kde.neff]
            out += [kde.integrate_gaussian(mean, cov), kde.integrate_kde(other)]
            return [*out, kde.integrate_box_1d(-0.5, 1.5)] if data.ndim == 1 else out

        for weights in (None, WEIGHTS):
            ours = fx.jit(lambda *args, f=all_of: f(gaussian_kde, *args))(data, points, weights)
            for found, wanted in zip(ours, all_of(them, data, points, weights), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_one_point_in_several_dimensions() -> None:
    np.testing.assert_allclose(gaussian_kde(DATA)(POINTS[:, 0]), them(DATA)(POINTS[:, 0]), rtol=1e-12)


def test_draws_have_the_moments_of_the_density() -> None:
    kde = gaussian_kde(DATA, weights=WEIGHTS)
    assert kde.resample(fx.random.key(1)).shape == (2,)
    assert kde.resample(fx.random.key(1), 5).shape == (2, 5)
    draws = np.asarray(kde.resample(fx.random.key(0), (200, 200))).reshape(2, -1)
    share = WEIGHTS / WEIGHTS.sum()
    mean = DATA @ share
    spread = (DATA - mean[:, None]) * share @ (DATA - mean[:, None]).T + np.asarray(kde.covariance)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * np.sqrt(spread.max() / 40000))
    np.testing.assert_allclose(np.cov(draws), spread, atol=0.05)


def test_it_is_a_tree_with_derivatives() -> None:
    kde = gaussian_kde(DATA)
    np.testing.assert_allclose(fx.jit(lambda k, x: k.evaluate(x))(kde, POINTS), kde.evaluate(POINTS), rtol=1e-12)

    def likelihood(width: Any) -> fx.Array:
        return fnp.sum(gaussian_kde(DATA, lambda _: width).logpdf(POINTS))

    step = 1e-6
    half = np.float64(0.5)
    difference = (likelihood(half + step) - likelihood(half - step)) / (2 * step)
    np.testing.assert_allclose(fx.grad(likelihood)(half), difference, rtol=1e-6)
    slope = fx.grad(lambda x: kde(x)[0])(POINTS[:, :1])
    moved = [them(DATA)(POINTS[:, :1] + s * np.eye(2)[:, :1])[0] for s in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope[0, 0], (moved[0] - moved[1]) / 2e-6, rtol=1e-6)


def test_refusals() -> None:
    check_refused(
        lambda: gaussian_kde(DATA, "wide"),
        ParameterError,
        "gaussian_kde: bw_method 'wide'",
        'use "scott", "silverman", a number or a function',
    )
    check_refused(
        lambda: gaussian_kde(DATA[:, :1]),
        ShapeError,
        "gaussian_kde: dataset is f64[2,1]",
        "give two points or more: (dimensions, n)",
    )
    check_refused(
        lambda: gaussian_kde(DATA, weights=WEIGHTS[1:]),
        ShapeError,
        "gaussian_kde: weights of shape (11,) for 12 points",
        "give one for each",
    )
    check_refused(
        lambda: gaussian_kde(DATA)(np.ones((3, 2))),
        ShapeError,
        "gaussian_kde: points of shape (3, 2) in 2 dimensions",
        "give an array of (dimensions, points)",
    )
    check_refused(
        lambda: gaussian_kde(DATA).integrate_box_1d(0, 1),
        ShapeError,
        "integrate_box_1d: the data have 2 dimensions",
        "use one dimension",
    )
    check_refused(
        lambda: gaussian_kde(DATA).integrate_kde(gaussian_kde(DATA[0])),
        ShapeError,
        "integrate_kde: 2 and 1 dimensions",
        "give data of one space",
    )
    check_refused(
        lambda: gaussian_kde(DATA).integrate_gaussian(MEAN, COV[0]),
        ShapeError,
        "integrate_gaussian: mean (2,) and covariance (1, 2) in 2 dimensions",
        "give a vector and a matrix",
    )
