"""Running sums and products along an axis; narrow integers and bools in 32 bits."""

from __future__ import annotations

from fxad import dtypes
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.shapes import concat, diff
from fxad.operations import cumulative
from fxad.tracing.array import Array, ArrayLike


def _dtype(dtype: object) -> dtypes.DType | None:
    return None if dtype is None else dtypes.as_dtype(dtype)


def cumsum(x: ArrayLike, /, axis: int | None = None, dtype: object = None) -> Array:
    """The sum of the elements up to each along an axis; of all elements in a row for None."""
    return apply_op("cumsum", cumulative.cumulate_flat, (x,), False, axis, _dtype(dtype))


def cumprod(x: ArrayLike, /, axis: int | None = None, dtype: object = None) -> Array:
    """The product of the elements up to each along an axis; of all elements in a row for None."""
    return apply_op("cumprod", cumulative.cumulate_flat, (x,), True, axis, _dtype(dtype))


def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Array:
    """The sum of the elements up to each along an axis, which only one-dimensional arrays may leave out.

    Rule: `include_initial` puts a 0 first, so that the result is one longer.
    """
    return apply_op(
        "cumulative_sum", cumulative.cumulate_array_api, (x,), False, axis, _dtype(dtype), bool(include_initial)
    )


def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Array:
    """The product of the elements up to each along an axis, which only one-dimensional arrays may leave out.

    Rule: `include_initial` puts a 1 first, so that the result is one longer.
    """
    return apply_op(
        "cumulative_prod", cumulative.cumulate_array_api, (x,), True, axis, _dtype(dtype), bool(include_initial)
    )


def ediff1d(x: ArrayLike, /, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """Differences of neighbours, all elements in a row, between `to_begin` and `to_end` where they are given.

    Type: the dtype of x.
    """
    array = as_array("ediff1d", x).reshape(-1)
    ends = [None if e is None else as_array("ediff1d", e).reshape(-1).astype(array.dtype) for e in (to_begin, to_end)]
    parts = [p for p in (ends[0], diff(array), ends[1]) if p is not None]
    return concat(parts) if len(parts) > 1 else parts[0]
