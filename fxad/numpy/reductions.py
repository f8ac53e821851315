"""Reductions. `axis` is None for all axes, an int or a tuple; negative axes count from the end.

`where` is a mask that broadcasts to the array: only its True elements are reduced, and the derivative in the others is
0. `initial` is the initial value; a maximum or minimum over a mask or over no elements requires one.
"""

from __future__ import annotations

from fxad.numpy.apply import apply_op
from fxad.operations import masked_reductions, reductions
from fxad.operations.axes import Axes, hashable_axis
from fxad.operations.masked_reductions import is_unmasked
from fxad.operations.promotion import optional_dtype
from fxad.tracing.array import Array, ArrayLike, aval_of


def reduce_masked(
    name: str,
    x: ArrayLike,
    axis: Axes,
    keepdims: bool,
    *,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    dtype: object = None,
    correction: float = 0.0,
) -> Array:
    """Reduce with an initial value or over a mask, or without nans."""
    own = aval_of(x, f"{name}: argument 0").dtype
    for role, value in (("initial", initial), ("where", where)):
        if value is not None:
            aval_of(value, f"{name}: {role}")
    operands, spec = masked_reductions.plan_masked_reduction(
        name,
        own,
        keepdims,
        initial=initial,
        where=where,
        dtype=optional_dtype(dtype),
        correction=correction,
    )
    return apply_op(name, masked_reductions.masked_reduction, (x, *operands), hashable_axis(axis), spec)


def sum(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    dtype: object = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the sum over axes. Narrow integers and bools are summed in 32 bits."""
    # the sum of all is common: be quick
    if axis is None and dtype is None and keepdims is False and initial is None and where is None:
        return apply_op("sum", reductions.sum, (x,))
    if not is_unmasked(initial, where):
        return reduce_masked("sum", x, axis, keepdims, initial=initial, where=where, dtype=dtype)
    return apply_op("sum", reductions.sum, (x,), hashable_axis(axis), keepdims, optional_dtype(dtype))


def prod(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    dtype: object = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the product over axes. Narrow integers and bools are multiplied in 32 bits."""
    if not is_unmasked(initial, where):
        return reduce_masked("prod", x, axis, keepdims, initial=initial, where=where, dtype=dtype)
    return apply_op("prod", reductions.prod, (x,), hashable_axis(axis), keepdims, optional_dtype(dtype))


def max(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the greatest element over axes; nan if any is nan."""
    if not is_unmasked(initial, where):
        return reduce_masked("max", x, axis, keepdims, initial=initial, where=where)
    return apply_op("max", reductions.max, (x,), hashable_axis(axis), keepdims)


def min(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the least element over axes; nan if any is nan."""
    if not is_unmasked(initial, where):
        return reduce_masked("min", x, axis, keepdims, initial=initial, where=where)
    return apply_op("min", reductions.min, (x,), hashable_axis(axis), keepdims)


def ptp(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the difference of the greatest and the least element over axes."""
    return max(x, axis, keepdims=keepdims) - min(x, axis, keepdims=keepdims)


def mean(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    dtype: object = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Return the mean over axes; float32 for integers."""
    if not is_unmasked(None, where):
        return reduce_masked("mean", x, axis, keepdims, where=where, dtype=dtype)
    return apply_op("mean", reductions.mean, (x,), hashable_axis(axis), keepdims, optional_dtype(dtype))


def var(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    dtype: object = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Return the variance over axes: the mean squared distance from the mean, with the count less `correction` (or
    `ddof`)."""
    less = masked_reductions.degrees_of_freedom("var", correction, ddof)
    if not is_unmasked(None, where):
        return reduce_masked("var", x, axis, keepdims, where=where, dtype=dtype, correction=less)
    return apply_op("var", reductions.var, (x,), hashable_axis(axis), keepdims, optional_dtype(dtype), less)


def std(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    dtype: object = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Return the standard deviation over axes: the square root of `var`."""
    less = masked_reductions.degrees_of_freedom("std", correction, ddof)
    if not is_unmasked(None, where):
        return reduce_masked("std", x, axis, keepdims, where=where, dtype=dtype, correction=less)
    return apply_op("std", reductions.std, (x,), hashable_axis(axis), keepdims, optional_dtype(dtype), less)


def any(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Return True if an element is not zero."""
    if not is_unmasked(None, where):
        return reduce_masked("any", x, axis, keepdims, where=where)
    return apply_op("any", reductions.any, (x,), hashable_axis(axis), keepdims)


def all(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Return True if no element is zero."""
    if not is_unmasked(None, where):
        return reduce_masked("all", x, axis, keepdims, where=where)
    return apply_op("all", reductions.all, (x,), hashable_axis(axis), keepdims)


def count_nonzero(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the number of nonzero elements, as int32."""
    return apply_op("count_nonzero", reductions.count_nonzero, (x,), hashable_axis(axis), keepdims)


def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the index of the greatest element, as int32: of the first one. None flattens the array."""
    return apply_op("argmax", reductions.argmax, (x,), axis, keepdims)


def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the index of the least element, as int32: of the first one. None flattens the array."""
    return apply_op("argmin", reductions.argmin, (x,), axis, keepdims)


# NumPy's other names.
amax = max
amin = min
