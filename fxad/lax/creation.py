"""Functions that create arrays. Constant arrays are literals: in a traced function they add no equation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from fxad import dtypes
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.ir import Aval, Lit, as_shape
from fxad.lax.placement import place_like_operands
from fxad.operations import elementwise, promotion, shapes
from fxad.primitives.shape import Iota
from fxad.tracing.array import Array, ArrayLike, asarray, aval_of, binder, is_scalar
from fxad.tracing.traced_numbers import number_array
from fxad.tracing.tracer import Tracer, active_trace


def splat(lit: Lit) -> Array:
    """Return the array of a literal: in a traced function the literal itself, otherwise a value."""
    trace = active_trace()
    return Tracer(trace, lit) if trace is not None else asarray(np.array(lit.array))


def empty(shape: int | Sequence[int], dtype: object) -> Array:
    """Return zeros, as JAX does: an array of `shape` whose elements are not meant to be read."""
    return full(shape, 0, dtype)


def full(shape: int | Sequence[int], fill_value: ArrayLike, dtype: object = None) -> Array:
    """Return an array of `shape` filled with one value.

    Rule: without `dtype`, a Python scalar gives bool, int32, float32 or complex64; an array as fill value keeps its
          dtype.
    """
    sizes = as_shape((shape,) if isinstance(shape, int) else shape)
    if isinstance(fill_value, Array):
        filled = fill_value if dtype is None else convert(fill_value, dtypes.as_dtype(dtype))
        return binder().apply(shapes.broadcast_to, (filled,), (sizes,))[0]
    if type(fill_value) in NUMBER_ARGUMENTS and active_trace() is not None:
        want = None if dtype is None else dtypes.as_dtype(dtype)
        own_dtype = promotion.scalar_dtype(fill_value, want, "full: fill_value")  # type: ignore[arg-type]  # a number
        filled = convert(cast("Array", number_array(fill_value, own_dtype)), want or own_dtype)
        return binder().apply(shapes.broadcast_to, (filled,), (sizes,))[0]
    if dtype is not None and is_scalar(fill_value):  # an int may fit `dtype` but not int32
        aval = Aval(sizes, dtypes.as_dtype(dtype))
        promotion.scalar_dtype(fill_value, aval.dtype, "full: fill_value")
        return splat(Lit.of(cast("np.generic", fill_value), aval))
    own = aval_of(fill_value, "full: fill_value")
    if own.shape:
        filled = asarray(fill_value) if dtype is None else asarray(fill_value, dtype)
        return binder().apply(shapes.broadcast_to, (filled,), (sizes,))[0]
    aval = Aval(sizes, own.dtype if dtype is None else dtypes.as_dtype(dtype))
    return splat(Lit.of(cast("np.generic", fill_value), aval))


def convert(x: Array, dtype: dtypes.DType) -> Array:
    """Return an array in a dtype; x itself if it has that dtype. `operations.promotion.convert` converts an atom."""
    return x if x.dtype is dtype else binder().apply(elementwise.astype, (x,), (dtype,))[0]


def full_like(x: ArrayLike, fill_value: ArrayLike, dtype: object = None, shape: Sequence[int] | None = None) -> Array:
    """Return an array filled with one value, by default of the shape and dtype of x."""
    like = aval_of(x, "full_like: x")
    out = full(like.shape if shape is None else shape, fill_value, like.dtype if dtype is None else dtype)
    return place_like_operands("full_like", (x, fill_value), out)


def iota(dtype: object, size: int) -> Array:
    """Return 0, 1, 2, ...: `size` elements."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: object, shape: Sequence[int], dimension: int) -> Array:
    """Return 0, 1, 2, ... along one axis, repeated along the others."""
    return binder().bind(Iota(as_shape(shape), dtypes.as_dtype(dtype), dimension), ())[0]
