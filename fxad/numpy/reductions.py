"""Functions that reduce axes: `axis` is None for all, an int or a tuple, negative counting from the end."""

from __future__ import annotations

from fxad import dtypes
from fxad.array import Array, ArrayLike
from fxad.numpy.calls import call
from fxad.operations import reductions
from fxad.operations.axes import Axes, frozen


def _dtype(dtype: object) -> dtypes.DType | None:
    return None if dtype is None else dtypes.as_dtype(dtype)


def sum(x: ArrayLike, /, axis: Axes = None, *, dtype: object = None, keepdims: bool = False) -> Array:
    """Sum over axes; narrow integers and bools in 32 bits."""
    if axis is None and dtype is None and keepdims is False:  # the sum of all is common: be quick
        return call("sum", reductions.sum, (x,))
    return call("sum", reductions.sum, (x,), frozen(axis), keepdims, _dtype(dtype))


def prod(x: ArrayLike, /, axis: Axes = None, *, dtype: object = None, keepdims: bool = False) -> Array:
    """Product over axes; narrow integers and bools in 32 bits."""
    return call("prod", reductions.prod, (x,), frozen(axis), keepdims, _dtype(dtype))


def max(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Greatest element over axes; nan where there is one."""
    return call("max", reductions.max, (x,), frozen(axis), keepdims)


def min(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Least element over axes; nan where there is one."""
    return call("min", reductions.min, (x,), frozen(axis), keepdims)


def ptp(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Distance between the greatest and the least element over axes."""
    return max(x, axis, keepdims=keepdims) - min(x, axis, keepdims=keepdims)


def mean(x: ArrayLike, /, axis: Axes = None, *, dtype: object = None, keepdims: bool = False) -> Array:
    """Mean over axes; of integers as float32."""
    return call("mean", reductions.mean, (x,), frozen(axis), keepdims, _dtype(dtype))


def var(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    dtype: object = None,
    keepdims: bool = False,
) -> Array:
    """Variance over axes: mean squared distance from the mean, divided by the count less `correction` (or `ddof`)."""
    less = correction if ddof is None else ddof
    return call("var", reductions.var, (x,), frozen(axis), keepdims, _dtype(dtype), less)


def std(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    dtype: object = None,
    keepdims: bool = False,
) -> Array:
    """Standard deviation over axes: the root of `var`."""
    less = correction if ddof is None else ddof
    return call("std", reductions.std, (x,), frozen(axis), keepdims, _dtype(dtype), less)


def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Whether an element is not zero."""
    return call("any", reductions.any, (x,), frozen(axis), keepdims)


def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Whether no element is zero."""
    return call("all", reductions.all, (x,), frozen(axis), keepdims)


def count_nonzero(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """How many elements are not zero, as int32."""
    return call("count_nonzero", reductions.count_nonzero, (x,), frozen(axis), keepdims)


def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Where the greatest element is, as int32: the first one; in the flattened array for axis None."""
    return call("argmax", reductions.argmax, (x,), axis, keepdims)


def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Where the least element is, as int32: the first one; in the flattened array for axis None."""
    return call("argmin", reductions.argmin, (x,), axis, keepdims)


# NumPy's other names.
amax = max
amin = min
