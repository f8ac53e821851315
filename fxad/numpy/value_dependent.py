"""Functions whose result sizes depend on values.

A traced program has fixed sizes. In a traced function these functions need a `size` (missing elements are filled,
further ones are dropped), or an array whose values are known during tracing.
"""

from __future__ import annotations

import numpy as np

from fxad import dtypes
from fxad.core.sizes.size import dimension
from fxad.errors import ParameterError, ShapeError, TracerError, shown
from fxad.ir import NDArray, as_shape
from fxad.lax.placement import place_like_operands
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.binary import minimum
from fxad.numpy.creation import arange
from fxad.numpy.cumulative import cumulative_sum
from fxad.numpy.shapes import broadcast_to, take
from fxad.numpy.sorting import searchsorted
from fxad.operations import shapes
from fxad.operations.axes import normalize_axis_index
from fxad.primitives.index import index_dtype
from fxad.tracing.array import Array, ArrayLike, asarray, aval_of
from fxad.tracing.tracer import Tracer


def concrete_value(name: str, x: ArrayLike, remedy: str, k: int = 0) -> NDArray:
    """Return the value of an argument that determines a size. Raises: TracerError, which names the alternative."""
    if isinstance(x, Tracer):
        raise TracerError(
            f"{name}: the size of the result depends on the values of {x!r}, which a traced function does not have",
            remedy=remedy,
        )
    aval = aval_of(x, f"{name}: argument {k}")
    return np.asarray(x if isinstance(x, Array | np.ndarray | np.generic) else asarray(x)).astype(aval.dtype)


def as_indices(values: NDArray, size: int) -> Array:
    """Return indices or counts that are at most `size` as int32, or as int64 if they may not fit."""
    return asarray(values.astype(index_dtype((size,))))


def nonzero(x: ArrayLike, /) -> tuple[Array, ...]:
    """Return the indices of the nonzero elements in row-major order: one array for each axis, of int32, or of int64 if
    x has more than 2**31 - 2 elements."""
    value = concrete_value("nonzero", x, "use nonzero(x, size=...), or where(condition, x, y) to choose")
    if not value.ndim:
        raise ShapeError("nonzero: takes an array with at least one axis", remedy="use x != 0")
    return place_like_operands("nonzero", (x,), tuple([as_indices(i, value.size + 1) for i in np.nonzero(value)]))


def repeat(
    a: ArrayLike, repeats: ArrayLike, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Array:
    """Repeat each element along an axis: `repeats` times, or by a count for each element. None flattens the array
    first.

    Rule:   `total_repeat_length` is the size of the result: further elements are dropped, and the last one is repeated
            to fill it.
    Cost:   without it, an array of counts is read on the host, because the size of the result depends on it.
    """
    if isinstance(repeats, int | np.integer) and total_repeat_length is None:
        return apply_op("repeat", shapes.repeat, (a,), dimension(repeats), axis)
    array = as_array("repeat", a)
    if axis is None:
        array, axis = array.ravel(), 0
    k = normalize_axis_index("repeat", axis, array.ndim)
    n = array.shape[k]
    aval = aval_of(repeats, "repeat: argument 1")
    if aval.dtype not in dtypes.INTEGER or aval.shape not in {(), (1,), (n,)}:
        raise ParameterError(f"repeat: counts {aval} must be integers, one or {n} of them")
    if total_repeat_length is not None:
        (total_repeat_length,) = as_shape((total_repeat_length,))
        wanted = asarray(repeats)
        if wanted.dtype.itemsize < 4:  # int8 has no size to compare with
            wanted = wanted.astype(dtypes.int32)
        if total_repeat_length <= dtypes.RANGES[wanted.dtype][1]:  # a larger one fills the result too, and sums fit
            wanted = minimum(wanted, total_repeat_length)
        ends = cumulative_sum(broadcast_to(wanted, (n,)), dtype=index_dtype((n * total_repeat_length,)))
        at = searchsorted(ends, arange(total_repeat_length), side="right")
        return take(array, minimum(at, n - 1), axis=k, mode="promise_in_bounds")
    counts = concrete_value("repeat", repeats, "use a Python int, or say total_repeat_length", 1)
    if np.any(np.less(counts, 0) | np.greater(counts, np.iinfo(np.int64).max)):
        raise ParameterError(f"repeat: counts {shown(counts)} are below 0, or beyond int64")
    places = np.repeat(np.arange(n), np.broadcast_to(counts.astype(np.int64), (n,)))
    return take(array, as_indices(places, n), axis=k)
