"""Norms, diagonals, and the product of vectors."""

from __future__ import annotations

import math

from fxad import dtypes
from fxad.errors import ParameterError, ShapeError, shown
from fxad.lax import stop_gradient
from fxad.numpy.apply import apply_op, as_array, to_inexact
from fxad.numpy.binary import clip, maximum, where
from fxad.numpy.shapes import diagonal as _diagonal, expand_dims, squeeze
from fxad.numpy.unary import abs, exp2, floor, log2, square
from fxad.operations import linalg, reductions
from fxad.operations.arguments import flag, number, to_int
from fxad.operations.axes import AxisLike, normalize_axis_tuple
from fxad.tracing.array import Array, ArrayLike


def vector_norm(x: ArrayLike, /, *, axis: AxisLike = None, keepdims: bool = False, ord: float = 2) -> Array:
    """Return the norm of vectors: (sum of abs(x)**ord) ** (1/ord); the maximum for inf, the minimum for -inf, the
    number of nonzero elements for 0.

    Rule:   the norm of an empty vector is 0; it is inf for other negative `ord`, and an error for -inf. The derivative
            at the zero vector is 0 for an `ord` above 0: of all subgradients the least.
    """
    ord, keepdims = number("vector_norm", "ord", ord), flag("vector_norm", "keepdims", keepdims)
    array = to_inexact(as_array("vector_norm", x))
    if ord == 2:
        return _root_of_squares(array, axis, keepdims)
    size = abs(array)
    if ord == math.inf:
        return _max_or_zero(size, axis, keepdims)
    if ord == -math.inf:
        return size.min(axis, keepdims=keepdims)
    if ord == 1:
        return size.sum(axis, keepdims=keepdims)
    if ord == 0:
        return (size != 0).astype(size.dtype).sum(axis, keepdims=keepdims)
    wide = size.astype(dtypes.accumulated(size.dtype))
    if ord < 0:  # the smallest elements are most of the sum
        return ((wide**ord).sum(axis, keepdims=keepdims) ** (1 / ord)).astype(size.dtype)
    down, up = _powers_of_two(wide, axis, keepdims)
    total = ((wide * down) ** ord).sum(axis, keepdims=keepdims)
    at_zero = total == 0  # the derivative there is 0, as in `root_of_squares`
    return (where(at_zero, 0, where(at_zero, 1, total) ** (1 / ord)) * up).astype(size.dtype)


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: str | float | None = "fro") -> Array:
    """Return the norm of matrices on the last two axes. "fro": square root of the sum of squares; 1 and inf (-1 and
    -inf): the largest (smallest) sum of absolute values of a column and a row; 2 (-2): the largest (smallest) singular
    value; "nuc": the sum of the singular values."""
    ord = ord if ord is None or isinstance(ord, str) else number("matrix_norm", "ord", ord)
    keepdims, array = flag("matrix_norm", "keepdims", keepdims), to_inexact(as_array("matrix_norm", x))
    if array.ndim < 2:
        raise ShapeError(f"matrix_norm: takes an array with at least two axes, got {array.aval}")
    if ord is None or ord == "fro":
        return _root_of_squares(array, (-2, -1), keepdims)
    if ord in (2, -2, "nuc"):
        s = apply_op("matrix_norm", linalg.svdvals, (array,))
        out = s.sum(-1) if ord == "nuc" else _max_or_zero(s, -1, False) if ord == 2 else s.min(-1)
        return out[..., None, None] if keepdims else out
    if isinstance(ord, str) or ord not in (1, -1, math.inf, -math.inf):
        raise ParameterError(f"matrix_norm: ord {shown(ord)} is not one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf")
    rows = abs(array).sum(-2 if math.fabs(ord) == 1 else -1, keepdims=True)
    return _max_or_zero(rows, (-2, -1), keepdims) if ord > 0 else rows.min((-2, -1), keepdims=keepdims)


def _max_or_zero(sizes: Array, axis: AxisLike, keepdims: bool) -> Array:
    """Return the maximum of sizes, which are not negative; 0 over no elements."""
    return sizes.max(axis, keepdims=keepdims, initial=None if sizes.size else 0)


def norm(x: ArrayLike, ord: str | float | None = None, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Return the norm of a vector, or of a matrix for an `ord` over two axes; by default the 2-norm of all elements."""
    array = as_array("norm", x)
    if ord is None:
        return vector_norm(array, axis=axis, keepdims=keepdims)
    axes = tuple(range(array.ndim)) if axis is None else normalize_axis_tuple("norm", axis, array.ndim)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ParameterError(f"norm: ord {shown(ord)} is one of matrices, and axis {axes[0]} makes vectors")
        return vector_norm(array, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ParameterError(f"norm: ord {shown(ord)} takes one axis or two, got axes {axes} of {array.aval}")
    rest = [k for k in range(array.ndim) if k not in axes]
    out = matrix_norm(array.transpose([*rest, *axes]), ord=ord)
    return expand_dims(out, tuple(sorted(axes))) if keepdims else out


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Return the cross product along an axis of size 3; the other axes broadcast."""
    return apply_op("cross", linalg.cross, (as_array("cross", x1), as_array("cross", x2, 1)), axis)


def _root_of_squares(x: Array, axis: AxisLike, keepdims: bool) -> Array:
    """Return the root of the sum of squares. The squares of 16-bit floats are added in float32."""
    if x.dtype in dtypes.COMPLEX:
        re, im = x.real, x.imag
        down, up = _powers_of_two(maximum(abs(re), abs(im)), axis, keepdims)
        return _root((square(re * down) + square(im * down)).sum(axis, keepdims=keepdims)) * up
    wide = x.astype(dtypes.accumulated(x.dtype))
    down, up = _powers_of_two(abs(wide), axis, keepdims)
    return (_root(square(wide * down).sum(axis, keepdims=keepdims)) * up).astype(x.dtype)


def _root(total: Array) -> Array:
    return apply_op("norm", reductions.root_of_squares, (total,))


def _powers_of_two(sizes: Array, axis: AxisLike, keepdims: bool) -> tuple[Array, Array]:
    """Return a power of two that brings the largest size close to 1, so that no power of it over- or underflows; and
    its inverse. They are constants of the derivative, and products with them are exact."""
    limit = 1000 if sizes.dtype == dtypes.float64 else 120
    largest = stop_gradient(sizes).max(axis, keepdims=True, initial=0)
    exponent = clip(floor(log2(largest)), -limit, limit)
    up = exp2(exponent)
    return exp2(-exponent), up if keepdims else squeeze(up, axis)


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Return the diagonal of matrices on the last two axes."""
    offset = to_int("diagonal", "offset", offset)
    return _diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int | Array = 0, dtype: object = None) -> Array:
    """Return the sum of the diagonal of matrices on the last two axes. `offset` may be traced."""
    return as_array("trace", x).trace(offset, -2, -1, dtype)
