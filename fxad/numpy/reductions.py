"""Reductions. `axis` is None for all axes, an int or a tuple; negative axes count from the end.

`where` is a mask that broadcasts to the array: only its True elements are reduced, and the derivative in the others is
0. `initial` is the initial value; a maximum or minimum over a mask or over no elements requires one.

Here `sum`, `max`, `min`, `any` and `all` are NumPy's, not Python's.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad import dtypes, lax
from fxad.ir import Atoms
from fxad.numpy import binary
from fxad.numpy.apply import apply_op, as_array, number_or_array
from fxad.numpy.unary import sqrt
from fxad.operations import masked_reductions, reductions
from fxad.operations.arguments import flag, no_out
from fxad.operations.axes import AxisLike, hashable_axis
from fxad.operations.masked_reductions import is_unmasked
from fxad.operations.promotion import optional_dtype, to_inexact_dtype
from fxad.tracing.array import Array, ArrayLike, aval_of
from fxad.tracing.tracer import Tracer


def reduce_masked(
    name: str,
    x: ArrayLike,
    axis: AxisLike,
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


def _reduce(
    name: str,
    op: Callable[..., Atoms],
    a: ArrayLike,
    axis: AxisLike,
    out: object,
    keepdims: bool,
    *,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    options: masked_reductions.Options = (),
) -> Array:
    """Return `op` of an array; with `initial` or `where`, the masked reduction `name`. `op` takes the `options`
    arguments after `keepdims`."""
    if out is not None:
        no_out(name, out)
    # without a mask this saves two calls: 0.3 us of 6.5
    if (where is None and initial is None) or is_unmasked(initial, where):
        return apply_op(name, op, (a,), hashable_axis(axis), keepdims, *options)
    dtype, correction = masked_reductions.split_options(options)
    return reduce_masked(name, a, axis, keepdims, initial=initial, where=where, dtype=dtype, correction=correction)


def _own_dtype(name: str, a: ArrayLike, dtype: object, promotes: object) -> object:
    """Return the dtype of a sum or product that does not promote integers."""
    own = as_array(name, a).dtype
    keeps = not flag(name, "promote_integers", promotes) and dtype is None and own in dtypes.INTEGER
    return own if keeps else dtype


def sum(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Return the sum over axes. Narrow integers and bools are summed in 32 bits; with False for
    `promote_integers`, integers keep their dtype."""
    dtype = dtype if promote_integers is True else _own_dtype("sum", a, dtype, promote_integers)
    # the sum of all is common: be quick
    if axis is None and dtype is None and out is None and keepdims is False and initial is None and where is None:
        return apply_op("sum", reductions.sum, (a,))
    return _reduce(
        "sum", reductions.sum, a, axis, out, keepdims, initial=initial, where=where, options=(optional_dtype(dtype),)
    )


def prod(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Return the product over axes. Narrow integers and bools are multiplied in 32 bits; with False for
    `promote_integers`, integers keep their dtype."""
    dtype = dtype if promote_integers is True else _own_dtype("prod", a, dtype, promote_integers)
    return _reduce(
        "prod", reductions.prod, a, axis, out, keepdims, initial=initial, where=where, options=(optional_dtype(dtype),)
    )


def max(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the greatest element over axes; nan if any is nan."""
    return _reduce("max", reductions.max, a, axis, out, keepdims, initial=initial, where=where)


def min(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the least element over axes; nan if any is nan."""
    return _reduce("min", reductions.min, a, axis, out, keepdims, initial=initial, where=where)


def ptp(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the difference of the greatest and the least element over axes."""
    no_out("ptp", out)
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


def mean(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Return the mean over axes; float32 for integers."""
    return _reduce("mean", reductions.mean, a, axis, out, keepdims, where=where, options=(optional_dtype(dtype),))


def var(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    ddof: float | Array | None = None,
    keepdims: bool = False,
    *,
    correction: float | Array | None = None,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Return the variance over axes: the mean squared distance from the mean, with the count less `correction` (or
    `ddof`), which may be traced. A `mean` that is given broadcasts to the array."""
    if mean is not None:
        return _about("var", a, mean, axis, dtype, out, ddof, keepdims, correction, where)
    if isinstance(ddof, Tracer) or isinstance(correction, Tracer):
        part = count_share("var", a, axis, keepdims, where, correction, ddof)
        return times_share(var(a, axis, dtype, out, None, keepdims, where=where), part)
    subtracted = masked_reductions.degrees_of_freedom("var", correction, ddof)
    return _reduce(
        "var", reductions.var, a, axis, out, keepdims, where=where, options=(optional_dtype(dtype), subtracted)
    )


def std(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    ddof: float | Array | None = None,
    keepdims: bool = False,
    *,
    correction: float | Array | None = None,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Return the standard deviation over axes: the square root of `var`."""
    if mean is not None:
        squares = _about("std", a, mean, axis, dtype, out, ddof, keepdims, correction, where)
        return apply_op("std", reductions.root_of_squares, (squares,))
    if isinstance(ddof, Tracer) or isinstance(correction, Tracer):
        part = count_share("std", a, axis, keepdims, where, correction, ddof)
        return times_share(std(a, axis, dtype, out, None, keepdims, where=where), sqrt(part))
    subtracted = masked_reductions.degrees_of_freedom("std", correction, ddof)
    return _reduce(
        "std", reductions.std, a, axis, out, keepdims, where=where, options=(optional_dtype(dtype), subtracted)
    )


def _about(
    name: str,
    a: ArrayLike,
    center: ArrayLike,
    axis: AxisLike,
    dtype: object,
    out: object,
    ddof: float | Array | None,
    keepdims: bool,
    correction: float | Array | None,
    where: ArrayLike | None,
) -> Array:
    """Return the mean squared distance from a given center, with the count less a correction."""
    no_out(name, out)
    array = as_array(name, a)
    wide = optional_dtype(dtype) or to_inexact_dtype(array.dtype)
    reductions.check_moment_dtype(name, wide)
    off = array.astype(wide) - as_array(name, center).astype(wide)
    squares = lax.real(off * off.conj()) if off.dtype in dtypes.COMPLEX else off * off
    part = count_share(name, array, axis, keepdims, where, correction, ddof)
    return times_share(mean(squares, axis, keepdims=keepdims, where=where), part)


def count_share(
    name: str,
    a: ArrayLike,
    axis: AxisLike,
    keepdims: bool,
    where: ArrayLike | None,
    correction: float | Array | None,
    ddof: float | Array | None,
    missing: Array | None = None,
) -> Array:
    """Return the count of a variance over the count less a correction that is traced; nan if that is not positive. It
    counts the elements of a mask that are not `missing`."""
    masked_reductions.refuse_both_names(name, correction, ddof)
    given = ("correction", correction) if correction is not None else ("ddof", 0.0 if ddof is None else ddof)
    subtracted = number_or_array(name, *given)
    array = as_array(name, a)
    wide = dtypes.accumulated(dtypes.real_part(to_inexact_dtype(array.dtype)))
    counted = lax.full(array.shape, 1, wide) if missing is None else (~missing).astype(wide)
    count = sum(counted, axis, where=where, keepdims=keepdims)
    left = count - as_array(name, subtracted).astype(wide)
    return count / binary.where(left > 0, left, float("nan"))


def times_share(spread: Array, share: Array) -> Array:
    """Return a variance, or a deviation, times a factor, in its own dtype."""
    return (spread * share).astype(spread.dtype)


def any(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Return True if an element is not zero."""
    return _reduce("any", reductions.any, a, axis, out, keepdims, where=where)


def all(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Return True if no element is zero."""
    return _reduce("all", reductions.all, a, axis, out, keepdims, where=where)


def count_nonzero(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Return the number of nonzero elements, as int32, or as int64 if it may not fit."""
    return apply_op("count_nonzero", reductions.count_nonzero, (a,), hashable_axis(axis), keepdims)


def argmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the index of the greatest element, of the first one, as int32 (int64 if it may not fit). None flattens the
    array."""
    no_out("argmax", out)
    return apply_op("argmax", reductions.argmax, (a,), axis, keepdims)


def argmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the index of the least element, of the first one, as int32 (int64 if it may not fit). None flattens the
    array."""
    no_out("argmin", out)
    return apply_op("argmin", reductions.argmin, (a,), axis, keepdims)


# NumPy's other names.
amax = max
amin = min
