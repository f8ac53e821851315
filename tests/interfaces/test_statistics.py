"""Averages, quantiles and covariances against NumPy, their derivatives, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.numpy.statistics import METHODS
from tests.interfaces.oracle import check, close, same

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
N = RNG.integers(-9, 9, (3, 4)).astype(np.int32)
V, W = RNG.normal(size=7), RNG.random(7) + 0.1


@pytest.mark.parametrize("method", METHODS)
def test_quantiles(method: str) -> None:
    holes = X.copy()
    holes[1, 2] = np.nan
    for q in (0.0, 0.3, 0.5, 1.0, (0.1, 0.5), ((0.2, 0.25), (0.75, 1))):
        for axis in (None, 0, (0, 1)):
            for keepdims in (False, True):
                kw: dict[str, Any] = {"q": q, "axis": axis, "method": method, "keepdims": keepdims}
                same("quantile", X, **kw)
                same("quantile", holes, **kw)
                same("nanquantile", holes, **kw)
    same("percentile", X, q=30, axis=1, method=method)
    same("nanpercentile", X, q=(30, 50.5), axis=1, method=method)


def test_quantiles_between_infinite_elements() -> None:
    inf, top = np.inf, float(np.finfo(np.float32).max)
    for values, want in (
        ([1, 2, inf, inf], inf),
        ([-inf, -inf, 3, 4], -inf),
        ([-inf, -inf, inf, inf], np.nan),
        ([-top, -top, top, top], 0),
        ([inf, inf], inf),
    ):
        x = np.array(values, np.float32)
        np.testing.assert_array_equal(fnp.median(x), np.float32(want))
        np.testing.assert_array_equal(fnp.quantile(x, 0.5), np.float32(want))


def test_quantiles_that_select_elements_keep_the_dtype() -> None:
    for method in ("lower", "higher", "nearest", "inverted_cdf", "closest_observation"):
        same("quantile", N, q=0.4, axis=0, method=method)
    close(fnp.quantile(N, 0.4), np.float32(np.quantile(N, 0.4)))
    same("quantile", X.astype(np.float16), q=0.5, axis=1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
def test_medians(dtype: str) -> None:
    x = N.astype(dtype)
    out = dtype if "float" in dtype else "float32"
    for axis in (None, 0, -1, (0, 1)):
        check(lambda a, k=axis: fnp.median(a, k), lambda a, k=axis: np.median(a.astype("f8"), k).astype(out), x)
    same("median", X, axis=1, keepdims=True, eager=True)
    ends = np.array([np.inf, np.inf, -np.inf, -np.inf, np.inf])
    same("median", ends)
    same("nanmedian", np.where(X > 1, np.nan, X), axis=0)
    close(fnp.nanmedian(np.full((2, 3), np.nan), 1), np.full(2, np.nan))


def test_weights_count() -> None:
    for q in (0.2, (0.0, 0.5, 1.0)):
        for axis, w in ((1, W[:4]), (0, W[:3]), (None, RNG.integers(0, 3, (3, 4)))):
            ours = fnp.quantile(X, q, axis, weights=w, method="inverted_cdf")
            close(ours, np.quantile(X, q, axis, weights=w, method="inverted_cdf"))
    x = np.array([np.nan, 3.0, 1.0])
    wrong = fnp.quantile(X, fnp.asarray([np.nan, 0.5]), weights=np.ones(X.shape), method="inverted_cdf")
    np.testing.assert_array_equal(np.isnan(np.asarray(wrong)), [True, False])
    close(fnp.nanquantile(x, 0.5, weights=W[:3], method="inverted_cdf"), fnp.quantile(x[1:], 0.5, method="nearest") * 3)


def test_probabilities_that_are_arrays() -> None:
    q = np.array([0.25, -1, np.nan, 2])
    close(fnp.quantile(V, fnp.asarray(q)), [np.quantile(V, 0.25), np.nan, np.nan, np.nan], dtype=False)
    check(lambda a, q: fnp.quantile(a, q), np.quantile, V, q[:1])
    slope = fx.grad(lambda q: fnp.quantile(fnp.asarray([1.0, 2.0, 5.0]), q))(fnp.asarray(0.75))
    close(slope, np.float32(6))
    close(fx.vmap(fnp.median)(fnp.asarray(X)), np.median(X, 1))


def test_derivative_goes_to_the_elements_between_which_the_result_lies() -> None:
    x = fnp.asarray([3.0, 1.0, 2.0, 10.0])
    close(fx.grad(fnp.median)(x), np.array([0.5, 0, 0.5, 0], np.float32))
    close(fx.grad(lambda a: fnp.quantile(a, 0.25))(x), np.array([0, 0.25, 0.75, 0], np.float32))
    holes = fnp.asarray([[1.0, np.nan, 3.0], [np.nan] * 3])
    close(fx.grad(lambda a: fnp.nansum(fnp.nanmedian(a, 1)))(holes), np.array([[0.5, 0, 0.5], [0, 0, 0]], np.float32))


def test_averages() -> None:
    for returned in (False, True):
        same("average", X, axis=0, returned=returned)
        check(
            lambda x, w, r=returned: fnp.average(x, 1, w, r),
            lambda x, w, r=returned: np.average(x, 1, w, r),
            X, W[:4],
        )  # fmt: skip
    cube, w = RNG.normal(size=(2, 3, 4)), RNG.random((4, 2))
    check(lambda x, w: fnp.average(x, (2, 0), w), lambda x, w: np.average(x, (2, 0), w), cube, w)
    check(
        lambda x, w: fnp.average(x, (2, 0), w, keepdims=True),
        lambda x, w: np.average(x, (2, 0), w, keepdims=True),
        cube, w,
    )  # fmt: skip
    check(lambda x, w: fnp.average(x, weights=w), lambda x, w: np.average(x, weights=w), X, X**2, eager=False)
    close(fnp.average(N, 1, W[:4].astype(np.float32)), np.average(N, 1, W[:4]).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_covariances() -> None:
    f, a = np.array([1, 2, 3, 1]), W[:4]
    for x in (X, X[0], X[:, :1], X + 1j * X**2):
        kinds: tuple[dict[str, Any], ...] = ({}, {"rowvar": False, "bias": True}, {"ddof": 0})
        for given in kinds:
            same("cov", x, **given)
    check(lambda x, y: fnp.cov(x, y), lambda x, y: np.cov(x, y), X, X[::-1] ** 2)
    for kw in ({"fweights": f}, {"aweights": a}, {"fweights": f, "aweights": a, "ddof": 0}):
        check(lambda x, kw=kw: fnp.cov(x, **kw), lambda x, kw=kw: np.cov(x, **kw), X)
    for x in (X, X[0], X + 1j * X**2):
        same("corrcoef", x)
    check(lambda x, y: fnp.corrcoef(x, y), lambda x, y: np.corrcoef(x, y), V, V**2)
    assert fnp.cov(N).dtype == np.float32


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fnp.quantile(X, 1.5), ParameterError, "quantile: q must lie between 0 and 1, got 1.5"),
        (lambda: fnp.percentile(X, 101), ParameterError, "percentile: q must lie between 0 and 100, got 101"),
        (lambda: fnp.quantile(X, 0.5, method="x"), ParameterError, "quantile: method 'x' is not known"),
        (lambda: fnp.quantile(X, 1j), DTypeError, "quantile: q must be real"),
        (lambda: fnp.median(X + 1j), DTypeError, "median: takes real numbers, got c128[3,4]"),
        (lambda: fnp.median(X[:0], 0), ShapeError, "median: f64[0,4] has no elements along axis 0"),
        (lambda: fnp.quantile(X, 0.5, weights=X), ParameterError, "quantile: weights are for method 'inverted_cdf'"),
        (
            lambda: fnp.quantile(X, 0.5, weights=V, method="inverted_cdf"),
            ShapeError, "quantile: weights of shape (7,) for axis None of f64[3,4]",
        ),
        (lambda: fnp.average(X, 0, V), ShapeError, "average: weights of shape (7,) for axis 0 of f64[3,4]"),
        (lambda: fnp.cov(X, V), ShapeError, "cov: 4 observations in m and 7 in y"),
        (lambda: fnp.cov(X, fweights=W[:4]), DTypeError, "cov: fweights must be integers, got f64[4]"),
        (lambda: fnp.cov(X, aweights=W), ShapeError, "cov: aweights f64[7] for 4 observations"),
        (lambda: fnp.cov(X[None]), ShapeError, "cov: argument 0 must have at most two axes, got f64[1,3,4]"),
    ],
)  # fmt: skip
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)


@pytest.mark.parametrize("weights", [None, W[:3]])
def test_average_refuses_keepdims_that_are_no_flag(weights: Any) -> None:
    keepdims: Any = "no"
    with pytest.raises(ArgumentError, match="average: keepdims must be True or False, got a str: 'no'"):
        fnp.average(X, 0, weights, keepdims=keepdims)
