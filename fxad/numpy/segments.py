"""Reductions of segments: the rows of an array that have one number are reduced to one row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad import dtypes
from fxad.errors import DTypeError, ParameterError, ShapeError, shown
from fxad.numpy.apply import as_array
from fxad.numpy.binary import where
from fxad.numpy.creation import full
from fxad.numpy.value_dependent import concrete_value
from fxad.operations.arguments import flag, to_int
from fxad.primitives.reduce import extreme_value
from fxad.tracing.array import Array, ArrayLike


def segment_sum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """Return for each segment the sum of the rows of `data` whose number is in `segment_ids`; 0 without rows.

    Rule:   numbers out of range are dropped. `num_segments` is the size of the result, by default the greatest number
            and 1 more, which must be known: give it in a traced function. The order of additions is not determined, so
            `indices_are_sorted`, `unique_indices` and `bucket_size` change nothing. Floats below 32 bits are added in
            float32 and rounded once.
    Raises: DTypeError, ShapeError; ParameterError for another mode than None, "drop" or "fill".
    """
    return _segments("segment_sum", "add", data, segment_ids, num_segments, indices_are_sorted, unique_indices, mode)


def segment_prod(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """Return the product of each segment; 1 without rows. See `segment_sum`."""
    return _segments(
        "segment_prod", "multiply", data, segment_ids, num_segments, indices_are_sorted, unique_indices, mode
    )


def segment_max(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """Return the greatest row of each segment; the least number of the dtype without rows. See `segment_sum`."""
    return _segments("segment_max", "max", data, segment_ids, num_segments, indices_are_sorted, unique_indices, mode)


def segment_min(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """Return the least row of each segment; the greatest number of the dtype without rows. See `segment_sum`."""
    return _segments("segment_min", "min", data, segment_ids, num_segments, indices_are_sorted, unique_indices, mode)


def _segments(
    name: str,
    how: str,
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None,
    is_sorted: bool,
    unique: bool,
    mode: str | None,
) -> Array:
    flag(name, "indices_are_sorted", is_sorted)
    flag(name, "unique_indices", unique)
    if mode is not None and not (isinstance(mode, str) and mode in ("drop", "fill")):
        raise ParameterError(
            f"{name}: mode {shown(mode)}", remedy='numbers out of range are dropped: leave it out, or "drop"'
        )
    rows, ids = as_array(name, data), as_array(name, segment_ids, 1)
    if ids.dtype not in dtypes.INTEGER:
        raise DTypeError(f"{name}: segment_ids are {ids.aval}, not integers", remedy="convert them with astype")
    if ids.ndim == 0 or rows.shape[: ids.ndim] != ids.shape:
        raise ShapeError(
            f"{name}: segment_ids are {ids.aval}, data is {rows.aval}", remedy="give a number for each row of data"
        )
    if num_segments is None:
        static_ids = np.asarray(concrete_value(name, ids, "give num_segments: the number of rows of the result"))
        num_segments = max(int(static_ids.max()) + 1, 0) if static_ids.size else 0
    n = to_int(name, "num_segments", num_segments)
    if n < 0:
        raise ParameterError(f"{name}: num_segments is {n}", remedy="give an int from 0 on")
    ids = ids.astype(dtypes.int32) if ids.dtype.itemsize < 4 else ids  # int8 has no 200
    inside = (ids >= 0) & (ids < n)
    # a scatter may round each partial result, and float16 counts to 2,048
    wide = dtypes.accumulated(rows.dtype) if how in ("add", "multiply") else rows.dtype
    # an extra row receives the dropped rows
    start = full((n + 1, *rows.shape[ids.ndim :]), _identity_element(name, how, rows.dtype), wide)
    update: Callable[[Array], Array] = getattr(start.at[where(inside, ids, n)], how)
    return update(rows.astype(wide))[:n].astype(rows.dtype)


def _identity_element(name: str, how: str, dtype: dtypes.DType) -> bool | int | float:
    """Return the value of a segment without rows. Raises: DTypeError for an extremum of complex numbers."""
    if how in ("add", "multiply"):
        return 0 if how == "add" else 1
    if dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: takes real numbers, got {dtype.name}", remedy="pass the real part")
    extreme: bool | int | float = extreme_value(dtype, -1 if how == "max" else 1).value.item()
    return extreme


__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]
