"""Pooling: reductions of windows over the spatial axes of (batch, ..., *spatial, feature)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.errors import ShapeError
from fxad.lax.convolution import ConvPadding, padding_pairs
from fxad.numpy.apply import as_array, as_inexact_array
from fxad.operations.arguments import flag, to_ints
from fxad.primitives.reduce import extreme_value
from fxad.tracing.array import Array, ArrayLike


def pool(
    inputs: ArrayLike,
    init: ArrayLike,
    reduce_fn: Callable[[Array, Array], Array],
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: ConvPadding = "VALID",
) -> Array:
    """Combine the elements of each window of the spatial axes by `reduce_fn`; see `fxad.lax.reduce_window`.

    Type:   inputs (..., *spatial, feature); a window size and a stride (default 1) for each spatial axis; padding as in
            `fxad.lax.conv_general_dilated`.
    """
    return _pool("pool", as_array("pool", inputs), init, reduce_fn, window_shape, strides, padding)


def _pool(
    name: str,
    x: Array,
    init: ArrayLike,
    reduce_fn: Callable[[Array, Array], Array],
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: ConvPadding,
) -> Array:
    window = to_ints(name, "window_shape", window_shape)
    n = len(window)
    lead = x.ndim - n - 1
    steps = (1,) * n if strides is None else to_ints(name, "strides", strides)
    if lead < 0 or len(steps) != n:
        raise ShapeError(
            f"{name}: window {window} and strides {steps} do not fit {x.aval}",
            remedy="inputs are (..., *spatial, feature), with a size and a stride per spatial axis",
        )
    pairs = padding_pairs(name, padding, n)
    pads = padding if pairs is None else [(0, 0)] * lead + list(pairs) + [(0, 0)]
    ones = (1,) * lead
    return lax.reduce_window(x, init, reduce_fn, (*ones, *window, 1), (*ones, *steps, 1), pads)


def max_pool(
    inputs: ArrayLike, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: ConvPadding = "VALID"
) -> Array:
    """Return the greatest element of each window; padding is ignored. The derivative goes to the first of equal
    elements."""
    x = as_array("max_pool", inputs)
    return _pool("max_pool", x, extreme_value(x.dtype, -1).value, lax.max, window_shape, strides, padding)


def min_pool(
    inputs: ArrayLike, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: ConvPadding = "VALID"
) -> Array:
    """Return the least element of each window; padding is ignored. The derivative goes to the first of equal
    elements."""
    x = as_array("min_pool", inputs)
    return _pool("min_pool", x, extreme_value(x.dtype, 1).value, lax.min, window_shape, strides, padding)


def avg_pool(
    inputs: ArrayLike,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: ConvPadding = "VALID",
    count_include_pad: bool = True,
) -> Array:
    """Return the mean of each window. Padding counts as zeros; with `count_include_pad=False` it is ignored."""
    count_include_pad = flag("avg_pool", "count_include_pad", count_include_pad)
    x = as_inexact_array("avg_pool", inputs)
    window_shape = to_ints("avg_pool", "window_shape", window_shape)
    # the sum of a window in float16 may be inf, and float8 cannot count it
    wide = x.astype(dtypes.accumulated(x.dtype))
    total = _pool("avg_pool", wide, 0.0, lax.add, window_shape, strides, padding)
    if count_include_pad:
        return (total / math.prod(window_shape)).astype(x.dtype)
    n = len(window_shape)
    ones = fnp.ones((*x.shape[x.ndim - n - 1 : -1], 1), dtype=wide.dtype)
    return (total / _pool("avg_pool", ones, 0.0, lax.add, window_shape, strides, padding)).astype(x.dtype)
