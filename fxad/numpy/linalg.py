"""Linear algebra that needs no factorization: products, norms, diagonals."""

from __future__ import annotations

import math

from fxad import dtypes
from fxad.array import Array, ArrayLike
from fxad.errors import ParameterError, ShapeError
from fxad.numpy.calls import as_array
from fxad.numpy.products import matmul, outer, tensordot, vecdot
from fxad.numpy.shapes import diagonal as _diagonal
from fxad.numpy.shapes import matrix_transpose
from fxad.numpy.unary import abs, sqrt, square
from fxad.operations import promotion
from fxad.operations.axes import Axes, axes_of


def vector_norm(x: ArrayLike, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of vectors: (sum of abs(x)**ord) ** (1/ord), the extremum for infinite ord, a count for 0."""
    array = _floating(as_array("vector_norm", x))
    if ord == 2:
        return sqrt(_squares(array).sum(axis, keepdims=keepdims))
    size = abs(array)
    if ord == math.inf:
        return size.max(axis, keepdims=keepdims)
    if ord == -math.inf:
        return size.min(axis, keepdims=keepdims)
    if ord == 1:
        return size.sum(axis, keepdims=keepdims)
    if ord == 0:
        return (size != 0).astype(size.dtype).sum(axis, keepdims=keepdims)
    return (size**ord).sum(axis, keepdims=keepdims) ** (1 / ord)


def matrix_norm(x: ArrayLike, *, keepdims: bool = False, ord: str | float = "fro") -> Array:
    """The norm of matrices on the last two axes: "fro", 1, -1, inf or -inf."""
    array = _floating(as_array("matrix_norm", x))
    if array.ndim < 2:
        raise ShapeError(f"matrix_norm: takes an array with at least two axes, got {array.aval}")
    if ord == "fro":
        return sqrt(_squares(array).sum((-2, -1), keepdims=keepdims))
    if isinstance(ord, str) or ord not in (1, -1, math.inf, -math.inf):
        raise ParameterError(f"matrix_norm: ord {ord!r} is not one of 'fro', 1, -1, inf, -inf")
    rows = abs(array).sum(-2 if math.fabs(ord) == 1 else -1, keepdims=True)
    return rows.max((-2, -1), keepdims=keepdims) if ord > 0 else rows.min((-2, -1), keepdims=keepdims)


def norm(x: ArrayLike, ord: str | float | None = None, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """The norm of a vector, or of a matrix for an `ord` over two axes; by default the 2-norm of all."""
    array = as_array("norm", x)
    if ord is None:
        return vector_norm(array, axis=axis, keepdims=keepdims)
    axes = axes_of("norm", axis, array.ndim)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ParameterError(f"norm: ord {ord!r} is one of matrices, and axis {axes[0]} makes vectors")
        return vector_norm(array, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2 or axes != (array.ndim - 2, array.ndim - 1):
        raise ParameterError(f"norm: ord {ord!r} takes one axis or the last two, got axes {axes} of {array.aval}")
    return matrix_norm(array, keepdims=keepdims, ord=ord)


def _floating(x: Array) -> Array:
    return x.astype(promotion.inexact(x.dtype))


def _squares(x: Array) -> Array:
    return square(x.real) + square(x.imag) if x.dtype in dtypes.COMPLEX else square(x)


def diagonal(x: ArrayLike, *, offset: int = 0) -> Array:
    """The diagonal of matrices on the last two axes."""
    return _diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, *, offset: int = 0, dtype: object = None) -> Array:
    """The sum of the diagonal of matrices on the last two axes."""
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


__all__ = [
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_transpose",
    "norm",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
