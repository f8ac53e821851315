"""Distributions of vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ShapeError
from fxad.numpy.composites import jit_composite
from fxad.scipy.arguments import reals
from fxad.tracing.array import Array, ArrayLike


@final
@dataclass(frozen=True)
class MultivariateNormal:
    """The normal distribution of vectors, the last axis of x."""

    def logpdf(self, x: ArrayLike, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0) -> Array:
        """Return the logarithm of the density: `mean` broadcasts to x, `cov` is a matrix (a vector is its diagonal, a
        number a multiple of the identity) or a batch of matrices. nan where `cov` is not positive definite."""
        arrays = reals("multivariate_normal.logpdf", x, mean, cov)
        dim = max([a.shape[-1] for a in arrays if a.ndim], default=1)
        for name, a in zip(("x", "mean", "cov"), arrays, strict=True):
            if a.ndim and a.shape[-1] not in (1, dim):
                raise ShapeError(
                    f"multivariate_normal: vectors of {dim} elements, but {name} is {a.aval}",
                    remedy="the last axes of x, mean and cov have one size",
                )
        return jit_composite(_multivariate_normal_logpdf, *arrays, dim)

    def pdf(self, x: ArrayLike, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0) -> Array:
        """Return the density: exp of `logpdf`."""
        return fnp.exp(self.logpdf(x, mean, cov))


def _multivariate_normal_logpdf(x: Array, mean: Array, cov: Array, dim: int) -> Array:
    difference = x - mean
    if not difference.ndim:
        difference = difference.reshape(1)
    if difference.shape[-1] != dim:
        difference = fnp.broadcast_to(difference, (*difference.shape[:-1], dim))
    if cov.ndim < 2:
        # independent elements
        variances = fnp.broadcast_to(cov, (dim,))
        squares = (difference * difference / variances).sum(-1)
        return -0.5 * (squares + fnp.log(variances).sum() + dim * math.log(2 * math.pi))
    factor = fnp.linalg.cholesky(cov)
    batch = fnp.broadcast_shapes(difference.shape[:-1], factor.shape[:-2])
    factor = fnp.broadcast_to(factor, (*batch, dim, dim))
    columns = fnp.broadcast_to(difference, (*batch, dim))[..., None]
    solved = lax.linalg.triangular_solve(factor, columns, left_side=True, lower=True)[..., 0]
    log_det = fnp.log(fnp.linalg.diagonal(factor)).sum(-1)
    return -0.5 * ((solved * solved).sum(-1) + dim * math.log(2 * math.pi)) - log_det


@final
@dataclass(frozen=True)
class Dirichlet:
    """The Dirichlet distribution of weights that sum to one, along the first axis of x."""

    def logpdf(self, x: ArrayLike, alpha: ArrayLike) -> Array:
        """Return the logarithm of the density at weights x, (k, ...) or (k - 1, ...) without the last; alpha is (k,).
        -inf for weights that are negative or do not sum to one. A weight of 0 has its limit: inf where its alpha is
        below 1, -inf where it is above."""
        xs, alphas = reals("dirichlet.logpdf", x, alpha)
        if alphas.ndim != 1 or not xs.ndim or xs.shape[0] not in (alphas.shape[0], alphas.shape[0] - 1):
            raise ShapeError(
                f"dirichlet: x is {xs.aval} and alpha {alphas.aval}",
                remedy="alpha is a vector, and x has a row for each element of it, or one less",
            )
        return jit_composite(_dirichlet_logpdf, xs, alphas)

    def pdf(self, x: ArrayLike, alpha: ArrayLike) -> Array:
        """Return the density: exp of `logpdf`."""
        return fnp.exp(self.logpdf(x, alpha))


def _dirichlet_logpdf(x: Array, alpha: Array) -> Array:
    if x.shape[0] != alpha.shape[0]:
        x = fnp.concatenate([x, 1 - x.sum(0, keepdims=True)], axis=0)
    inside = fnp.all(x >= 0, axis=0) & (fnp.abs(x.sum(0) - 1) < 1e-6)
    x = fnp.where(inside, x, 1.0)
    powers = alpha.reshape((-1, *[1] * (x.ndim - 1))) - 1
    constant = lax.lgamma(alpha).sum() - lax.lgamma(alpha.sum())
    value = fnp.where(inside, lax.xlogy(powers, x).sum(0) - constant, -fnp.inf)
    return fnp.where(fnp.all(alpha > 0), value, fnp.nan)


@final
@dataclass(frozen=True)
class Multinomial:
    """The multinomial distribution of counts, the last axis of x."""

    def logpmf(self, x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """Return the logarithm of the probability of the counts x, (..., k), of n draws with probabilities p, (...,
        k)."""
        return jit_composite(_multinomial_logpmf, *reals("multinomial.logpmf", x, n, p))

    def pmf(self, x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """Return the probability: exp of `logpmf`."""
        return fnp.exp(self.logpmf(x, n, p))


def _multinomial_logpmf(x: Array, n: Array, p: Array) -> Array:
    inside = fnp.all((x >= 0) & (x == fnp.floor(x)), axis=-1) & (x.sum(-1) == n)
    x = fnp.where(inside[..., None], x, 0.0)
    value = lax.lgamma(n + 1) + (lax.xlogy(x, p) - lax.lgamma(x + 1)).sum(-1)
    possible = (n >= 0) & fnp.all((p >= 0) & (p <= 1), axis=-1)
    return fnp.where(possible, fnp.where(inside, value, -fnp.inf), fnp.nan)


multivariate_normal: Final = MultivariateNormal()
dirichlet: Final = Dirichlet()
multinomial: Final = Multinomial()
