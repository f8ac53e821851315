"""Reductions. `axis` is None for all axes, an int or a tuple; negative axes count from the end.

`where` is a mask that broadcasts to the array: only its True elements are reduced, and the derivative in the others is
0. `initial` is the initial value; a maximum or minimum over a mask or over no elements requires one.
"""

from __future__ import annotations

from fxad.numpy.apply import apply_op
from fxad.operations import masked_reductions, reductions
from fxad.operations.arguments import no_out
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
    a: ArrayLike,
    axis: Axes = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the sum over axes. Narrow integers and bools are summed in 32 bits."""
    # the sum of all is common: be quick
    if axis is None and dtype is None and out is None and keepdims is False and initial is None and where is None:
        return apply_op("sum", reductions.sum, (a,))
    no_out("sum", out)
    if not is_unmasked(initial, where):
        return reduce_masked("sum", a, axis, keepdims, initial=initial, where=where, dtype=dtype)
    return apply_op("sum", reductions.sum, (a,), hashable_axis(axis), keepdims, optional_dtype(dtype))


def prod(
    a: ArrayLike,
    axis: Axes = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the product over axes. Narrow integers and bools are multiplied in 32 bits."""
    no_out("prod", out)
    if not is_unmasked(initial, where):
        return reduce_masked("prod", a, axis, keepdims, initial=initial, where=where, dtype=dtype)
    return apply_op("prod", reductions.prod, (a,), hashable_axis(axis), keepdims, optional_dtype(dtype))


def max(
    a: ArrayLike,
    axis: Axes = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the greatest element over axes; nan if any is nan."""
    no_out("max", out)
    if not is_unmasked(initial, where):
        return reduce_masked("max", a, axis, keepdims, initial=initial, where=where)
    return apply_op("max", reductions.max, (a,), hashable_axis(axis), keepdims)


def min(
    a: ArrayLike,
    axis: Axes = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the least element over axes; nan if any is nan."""
    no_out("min", out)
    if not is_unmasked(initial, where):
        return reduce_masked("min", a, axis, keepdims, initial=initial, where=where)
    return apply_op("min", reductions.min, (a,), hashable_axis(axis), keepdims)


def ptp(a: ArrayLike, axis: Axes = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the difference of the greatest and the least element over axes."""
    no_out("ptp", out)
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


def mean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Return the mean over axes; float32 for integers."""
    no_out("mean", out)
    if not is_unmasked(None, where):
        return reduce_masked("mean", a, axis, keepdims, where=where, dtype=dtype)
    return apply_op("mean", reductions.mean, (a,), hashable_axis(axis), keepdims, optional_dtype(dtype))


def var(
    a: ArrayLike,
    axis: Axes = None,
    dtype: object = None,
    out: None = None,
    ddof: float | None = None,
    keepdims: bool = False,
    *,
    correction: float = 0.0,
    where: ArrayLike | None = None,
) -> Array:
    """Return the variance over axes: the mean squared distance from the mean, with the count less `correction` (or
    `ddof`)."""
    no_out("var", out)
    subtracted = masked_reductions.degrees_of_freedom("var", correction, ddof)
    if not is_unmasked(None, where):
        return reduce_masked("var", a, axis, keepdims, where=where, dtype=dtype, correction=subtracted)
    return apply_op("var", reductions.var, (a,), hashable_axis(axis), keepdims, optional_dtype(dtype), subtracted)


def std(
    a: ArrayLike,
    axis: Axes = None,
    dtype: object = None,
    out: None = None,
    ddof: float | None = None,
    keepdims: bool = False,
    *,
    correction: float = 0.0,
    where: ArrayLike | None = None,
) -> Array:
    """Return the standard deviation over axes: the square root of `var`."""
    no_out("std", out)
    subtracted = masked_reductions.degrees_of_freedom("std", correction, ddof)
    if not is_unmasked(None, where):
        return reduce_masked("std", a, axis, keepdims, where=where, dtype=dtype, correction=subtracted)
    return apply_op("std", reductions.std, (a,), hashable_axis(axis), keepdims, optional_dtype(dtype), subtracted)


def any(
    a: ArrayLike, axis: Axes = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Return True if an element is not zero."""
    no_out("any", out)
    if not is_unmasked(None, where):
        return reduce_masked("any", a, axis, keepdims, where=where)
    return apply_op("any", reductions.any, (a,), hashable_axis(axis), keepdims)


def all(
    a: ArrayLike, axis: Axes = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Return True if no element is zero."""
    no_out("all", out)
    if not is_unmasked(None, where):
        return reduce_masked("all", a, axis, keepdims, where=where)
    return apply_op("all", reductions.all, (a,), hashable_axis(axis), keepdims)


def count_nonzero(a: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Array:
    """Return the number of nonzero elements, as int32."""
    return apply_op("count_nonzero", reductions.count_nonzero, (a,), hashable_axis(axis), keepdims)


def argmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the index of the greatest element, as int32: of the first one. None flattens the array."""
    no_out("argmax", out)
    return apply_op("argmax", reductions.argmax, (a,), axis, keepdims)


def argmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the index of the least element, as int32: of the first one. None flattens the array."""
    no_out("argmin", out)
    return apply_op("argmin", reductions.argmin, (a,), axis, keepdims)


# NumPy's other names.
amax = max
amin = min
