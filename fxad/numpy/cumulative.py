"""Cumulative sums and products. Narrow integers and bools are accumulated in 32 bits."""

from __future__ import annotations

import numpy as np

from fxad.errors import DTypeError
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.shapes import concat, diff
from fxad.operations import reductions
from fxad.operations.arguments import flag, no_out
from fxad.operations.promotion import optional_dtype
from fxad.tracing.array import Array, ArrayLike


def cumsum(a: ArrayLike, axis: int | None = None, dtype: object = None, out: None = None) -> Array:
    """Return cumulative sums along an axis; of the flattened array for None."""
    no_out("cumsum", out)
    return apply_op("cumsum", reductions.cumulate_flat, (a,), False, axis, optional_dtype(dtype))


def cumprod(a: ArrayLike, axis: int | None = None, dtype: object = None, out: None = None) -> Array:
    """Return cumulative products along an axis; of the flattened array for None."""
    no_out("cumprod", out)
    return apply_op("cumprod", reductions.cumulate_flat, (a,), True, axis, optional_dtype(dtype))


def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Array:
    """Return cumulative sums along an axis. The axis is optional for a vector only.

    Rule:   `include_initial` prepends a 0, so the result has one more element.
    """
    include_initial = flag("cumulative_sum", "include_initial", include_initial)
    return apply_op(
        "cumulative_sum", reductions.cumulate_array_api, (x,), False, axis, optional_dtype(dtype), include_initial
    )


def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Array:
    """Return cumulative products along an axis. The axis is optional for a vector only.

    Rule:   `include_initial` prepends a 1, so the result has one more element.
    """
    include_initial = flag("cumulative_prod", "include_initial", include_initial)
    return apply_op(
        "cumulative_prod", reductions.cumulate_array_api, (x,), True, axis, optional_dtype(dtype), include_initial
    )


def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """Return the differences of adjacent elements of the flattened array, after `to_begin` and before `to_end`.

    Type:   the dtype of `ary`. Floats do not become integers, nor complex numbers real ones.
    Raises: DTypeError for an end of a higher kind, as NumPy.
    """
    array = as_array("ediff1d", ary).reshape(-1)
    given = [None if e is None else as_array("ediff1d", e).reshape(-1) for e in (to_begin, to_end)]
    for name, end in zip(("to_begin", "to_end"), given, strict=True):
        if end is not None and not np.can_cast(np.dtype(end.dtype), np.dtype(array.dtype), "same_kind"):
            raise DTypeError(
                f"ediff1d: {name} is {end.aval}, and the differences are {array.dtype}",
                remedy="convert the array first: ediff1d(x.astype(...), ...)",
            )
    ends = [None if end is None else end.astype(array.dtype) for end in given]
    parts = [p for p in (ends[0], diff(array), ends[1]) if p is not None]
    return concat(parts) if len(parts) > 1 else parts[0]
