"""Densities estimated from samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import fxad.numpy as fnp
from fxad import nn, random
from fxad.core.trees import classes as tree_classes
from fxad.errors import ParameterError, ShapeError, shown
from fxad.numpy import linalg
from fxad.operations.arguments import is_word, number, shape as as_sizes
from fxad.scipy import special
from fxad.scipy.arguments import reals
from fxad.tracing.array import Array, ArrayLike

Bandwidth: TypeAlias = "str | float | Callable[[GaussianKde], ArrayLike] | None"


@final
@tree_classes.dataclass
class GaussianKde:
    """A density: the weighted mean of normal densities of one covariance around each point. Made by `gaussian_kde`.

    Type:   `dataset` (d, n), `weights` (n,), whose sum is 1, `covariance` (d, d). A pytree.
    Rule:   differentiable in all of them, and in the points.
    """

    dataset: Array
    weights: Array
    covariance: Array

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of points."""
        return self.dataset.shape[1]

    @property
    def neff(self) -> Array:
        """The effective number of points: 1 / the sum of squared weights."""
        return 1 / fnp.sum(self.weights**2)

    def evaluate(self, points: ArrayLike) -> Array:
        """Return the density at points (d, m), or (m,) in one dimension: (m,)."""
        return fnp.exp(self.logpdf(points))

    def __call__(self, points: ArrayLike) -> Array:
        """Return what `evaluate` does."""
        return self.evaluate(points)

    def pdf(self, x: ArrayLike) -> Array:
        """Return what `evaluate` does."""
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Array:
        """Return the logarithm of the density at points (d, m), or (m,) in one dimension: (m,). Raises: ShapeError."""
        (points,) = reals("gaussian_kde", x)
        points = fnp.atleast_2d(points)
        if points.shape[0] != self.d and points.shape == (1, self.d):
            points = points.T
        if points.ndim != 2 or points.shape[0] != self.d:
            raise ShapeError(
                f"gaussian_kde: points of shape {points.shape} in {self.d} dimensions",
                remedy="give an array of (dimensions, points)",
            )
        logs = _log_normal(points[:, :, None] - self.dataset[:, None, :], self.covariance)
        return nn.logsumexp(logs, axis=-1, b=self.weights)

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """Return the integral of the density times a normal density of mean (d,) and covariance (d, d). Raises:
        ShapeError."""
        center, spread = reals("integrate_gaussian", mean, cov)
        center, spread = fnp.atleast_1d(center), fnp.atleast_2d(spread)
        if center.shape != (self.d,) or spread.shape != (self.d, self.d):
            raise ShapeError(
                f"integrate_gaussian: mean {center.shape} and covariance {spread.shape} in {self.d} dimensions",
                remedy="give a vector and a matrix",
            )
        logs = _log_normal(self.dataset - center[:, None], self.covariance + spread)
        return fnp.sum(self.weights * fnp.exp(logs))

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """Return the probability of an interval, in one dimension. Raises: ShapeError in others."""
        if self.d != 1:
            raise ShapeError(f"integrate_box_1d: the data have {self.d} dimensions", remedy="use one dimension")
        deviation = fnp.sqrt(self.covariance[0, 0])
        ends = [fnp.asarray(x)[..., None] for x in reals("integrate_box_1d", low, high)]
        below, above = [special.ndtr((x - self.dataset[0]) / deviation) for x in ends]
        return fnp.sum(self.weights * (above - below), -1)

    def integrate_kde(self, other: GaussianKde) -> Array:
        """Return the integral of the product of two densities. Raises: ShapeError for other dimensions."""
        if other.d != self.d:
            raise ShapeError(f"integrate_kde: {self.d} and {other.d} dimensions", remedy="give data of one space")
        apart = self.dataset[:, :, None] - other.dataset[:, None, :]
        logs = _log_normal(apart, self.covariance + other.covariance)
        return fnp.sum(self.weights[:, None] * other.weights * fnp.exp(logs))

    def resample(self, key: Array, shape: int | Sequence[int] = ()) -> Array:
        """Return points of the density, drawn with a key of `fxad.random`: (d, *shape)."""
        of_point, of_noise = random.split(key)
        sizes = as_sizes("resample", "shape", shape)
        chosen = random.choice(of_point, self.n, sizes, p=self.weights)
        noise = random.normal(of_noise, (self.d, *sizes), self.dataset.dtype)
        spread = fnp.tensordot(linalg.cholesky(self.covariance), noise, 1, precision="highest")
        return self.dataset[:, chosen] + spread


def _log_normal(x: Array, covariance: Array) -> Array:
    """Return the logarithm of the normal density of mean 0, at vectors along the first axis."""
    root = linalg.cholesky(covariance)
    white = linalg.solve_triangular(root, x.reshape(x.shape[0], -1), lower=True).reshape(x.shape)
    scale = x.shape[0] / 2 * math.log(2 * math.pi) + fnp.sum(fnp.log(fnp.diagonal(root)))
    return -fnp.sum(white**2, 0) / 2 - scale


def gaussian_kde(dataset: ArrayLike, bw_method: Bandwidth = None, weights: ArrayLike | None = None) -> GaussianKde:
    """Return the density estimated from samples by normal kernels, as a `GaussianKde`.

    The covariance of the kernels is that of the data times the square of a factor: "scott" (None), "silverman", a
    number, or a function of the `GaussianKde` whose covariance is that of the data.

    Type:   dataset (n,) or (d, n), n at least 2; weights (n,), not negative.
    Raises: ParameterError for another `bw_method`; ShapeError.
    Source: D. W. Scott, Multivariate Density Estimation (1992); B. W. Silverman, Density Estimation (1986)
    """
    named = () if weights is None else (weights,)
    points, *given = reals("gaussian_kde", dataset, *named)
    points = fnp.atleast_2d(points)
    if points.ndim != 2 or points.shape[1] < 2:
        raise ShapeError(f"gaussian_kde: dataset is {points.aval}", remedy="give two points or more: (dimensions, n)")
    n = points.shape[1]
    share = given[0] if given else fnp.ones(n, points.dtype)
    if share.shape != (n,):
        raise ShapeError(f"gaussian_kde: weights of shape {share.shape} for {n} points", remedy="give one for each")
    share = share / fnp.sum(share)
    covariance = fnp.atleast_2d(fnp.cov(points, rowvar=True, bias=False, aweights=share))
    of_data = GaussianKde(points, share, covariance)
    factor = _factor(bw_method, of_data)
    return GaussianKde(points, share, (covariance * factor * factor).astype(points.dtype))


def _factor(bw_method: Bandwidth, of_data: GaussianKde) -> ArrayLike:
    if callable(bw_method):
        return bw_method(of_data)
    if bw_method is None or is_word(bw_method, ("scott",)):
        return of_data.neff ** (-1 / (of_data.d + 4))
    if is_word(bw_method, ("silverman",)):
        return (of_data.neff * (of_data.d + 2) / 4) ** (-1 / (of_data.d + 4))
    if isinstance(bw_method, str):
        raise ParameterError(
            f"gaussian_kde: bw_method {shown(bw_method, 40)}", remedy='use "scott", "silverman", a number or a function'
        )
    return number("gaussian_kde", "bw_method", bw_method)


__all__ = ["GaussianKde", "gaussian_kde"]
