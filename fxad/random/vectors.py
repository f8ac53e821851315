"""Random vectors and matrices: the multivariate normal distribution and orthogonal matrices."""

from __future__ import annotations

from typing import Final

from fxad import numpy as fnp
from fxad.dtypes import DType
from fxad.errors import ParameterError, ShapeError, shown
from fxad.ir import Shape
from fxad.lax import linalg
from fxad.numpy.composites import call_composite
from fxad.numpy.creation import ShapeLike
from fxad.operations import promotion
from fxad.operations.arguments import text, to_int
from fxad.random.arguments import (
    argument_error,
    check_fits,
    check_key,
    float_dtype,
    inexact_dtype,
    result_shape,
)
from fxad.random.gaussian import sample_normal
from fxad.tracing.array import Array, ArrayLike, aval_of

_METHODS: Final = ("cholesky", "eigh", "svd")


def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: object = None,
    method: str = "cholesky",
) -> Array:
    """Draw normal vectors with a given mean and covariance matrix.

    Type:   u32[2]; mean (*P, n) and cov (*Q, n, n), where P and Q broadcast to `shape` -> floats (*shape, n).
    Rule:   differentiable with respect to mean and cov. `method` says how the root of cov is found: "cholesky" wants it
            positive definite (else nan), "eigh" and "svd" semidefinite.
    Source: mean + root z for normal z; up to rounding `jax.random.multivariate_normal`.
    Raises: ShapeError, DTypeError for mean and cov; ArgumentError for another method; all for a key or a shape.
    """
    method = text("random.multivariate_normal", "method", method)
    name = "random.multivariate_normal"
    if method not in _METHODS:
        raise argument_error(name, "method", method, "'cholesky', 'eigh' or 'svd'")
    chosen = float_dtype(name, dtype, mean=mean, cov=cov)
    middle, spread = aval_of(mean, f"{name}: mean").shape, aval_of(cov, f"{name}: cov").shape
    if not middle:
        raise ShapeError(f"{name}: mean must be a vector or a stack of them, got shape {middle}")
    if spread[-2:] != 2 * middle[-1:]:
        raise ShapeError(f"{name}: cov must be {middle[-1]} by {middle[-1]}, as mean is, got shape {spread}")
    sizes = promotion.common_shape(name, middle[:-1], spread[:-2]) if shape is None else result_shape(name, shape)
    check_fits(name, sizes, "mean, but for its last axis,", middle[:-1])
    check_fits(name, sizes, "cov, but for its last axes,", spread[:-2])
    return call_composite(_multivariate_normal, (check_key(name, key), mean, cov), (*sizes, middle[-1]), chosen, method)


def _multivariate_normal(key: Array, mean: Array, cov: Array, shape: Shape, dtype: DType, method: str) -> Array:
    root = _matrix_square_root(cov.astype(dtype), method)
    z = sample_normal(key, shape, dtype)
    turned = fnp.matmul(z[..., None, :], root.mT)[..., 0, :] if root.ndim > 2 else z @ root.mT
    return mean.astype(dtype) + turned


def _matrix_square_root(cov: Array, method: str) -> Array:
    if method == "cholesky":
        return linalg.cholesky(cov)
    if method == "eigh":
        vectors, values = linalg.eigh(cov)
    else:
        vectors, values, _ = linalg.svd(cov)
    return vectors * fnp.sqrt(values)[..., None, :]


def orthogonal(key: ArrayLike, n: int, shape: ShapeLike = (), dtype: object = None, m: int | None = None) -> Array:
    """Draw uniformly random orthogonal (or unitary) matrices, n by m, with orthonormal rows or columns.

    Type:   u32[2]; ints n and m (n) -> floats (float32) or complex, of shape (*shape, n, m).
    Source: Mezzadri, How to generate random matrices from the classical compact groups, 2007; up to rounding
            `jax.random.orthogonal`.
    Raises: ParameterError for negative n or m; DTypeError for another dtype; all for a key or a shape.
    """
    name = "random.orthogonal"
    n, m = to_int(name, "n", n), None if m is None else to_int(name, "m", m)
    for which, size in (("n", n), ("m", n if m is None else m)):
        if size < 0:
            raise ParameterError(f"{name}: {which} must be an int that is not negative, got {shown(size)}")
    sizes = (*result_shape(name, shape), n, n if m is None else m)
    return call_composite(_orthogonal, (check_key(name, key),), sizes, inexact_dtype(name, dtype))


def _orthogonal(key: Array, shape: Shape, dtype: DType) -> Array:
    *lead, n, m = shape
    q, r = linalg.qr(sample_normal(key, (*lead, max(n, m), min(n, m)), dtype), full_matrices=False)
    turned = q * fnp.expand_dims(fnp.sign(fnp.diagonal(r, 0, -2, -1)), -2)
    return turned.mT if n < m else turned


__all__ = ["multivariate_normal", "orthogonal"]
