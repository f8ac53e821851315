"""Reductions that ignore nans; the derivative in a nan is 0. `where` and `initial` are as in `fxad.numpy.sum`.

With `where` or `initial`, `fxad.operations.masked_reductions` computes a reduction. The functions here compute the
others: they replace nans first.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Lit
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.binary import where
from fxad.numpy.composites import jit_composite
from fxad.numpy.cumulative import cumprod, cumsum
from fxad.numpy.reductions import count_share, reduce_masked, std, times_share, var
from fxad.numpy.statistics import statistics_dtype, to_statistics_dtype
from fxad.numpy.unary import conj, isnan, real, sqrt
from fxad.operations import promotion, reductions
from fxad.operations.arguments import flag, no_out
from fxad.operations.axes import AxisLike, normalize_axes
from fxad.operations.masked_reductions import degrees_of_freedom, is_unmasked
from fxad.operations.promotion import optional_dtype
from fxad.primitives.reduce import extreme_value
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.tracer import Tracer


def _replace_nan(x: Array, value: complex) -> Array:
    """Return x with `value` in place of nans."""
    return where(isnan(x), value, x) if x.dtype in dtypes.INEXACT else x


def _worst_value(x: Array, greatest: bool) -> Lit:
    """Return the least value of the dtype of x, for a search of the greatest one, or the greatest value: an infinity if
    the dtype has one."""
    return extreme_value(x.dtype, -1 if greatest else 1)


def _replace_nan_by_worst(x: Array, greatest: bool) -> Array:
    """Return x with `_worst_value` in place of nans."""
    return _replace_nan(x, _worst_value(x, greatest).value.item()) if x.dtype in dtypes.INEXACT else x


def nansum(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the sum over axes, without nans."""
    return _reduced("nansum", _sum, a, axis, dtype, out, keepdims, initial, where)


def _reduced(
    name: str,
    function: Callable[..., Array],
    a: ArrayLike,
    axis: AxisLike,
    dtype: object,
    out: None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
    correction: float | None = None,
) -> Array:
    """Return `function(array, axes, dtype, keepdims)`, with `correction` as last argument if it is given. With `where`
    or `initial`, return the masked reduction `name` instead."""
    no_out(name, out)
    keepdims = flag(name, "keepdims", keepdims)
    if not is_unmasked(initial, where):
        return reduce_masked(
            name, a, axis, keepdims, initial=initial, where=where, dtype=dtype, correction=correction or 0.0
        )
    array = as_array(name, a)
    static = (normalize_axes(name, axis, array.ndim), optional_dtype(dtype), keepdims)
    return jit_composite(function, array, *static, *(() if correction is None else (correction,)))


def _sum(x: Array, axis: AxisLike, dtype: DType | None, keepdims: bool) -> Array:
    return apply_op("nansum", reductions.sum, (_replace_nan(x, 0),), axis, keepdims, dtype)


def nanprod(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the product over axes, without nans."""
    return _reduced("nanprod", _prod, a, axis, dtype, out, keepdims, initial, where)


def _prod(x: Array, axis: AxisLike, dtype: DType | None, keepdims: bool) -> Array:
    return apply_op("nanprod", reductions.prod, (_replace_nan(x, 1),), axis, keepdims, dtype)


def nancumsum(a: ArrayLike, axis: int | None = None, dtype: object = None, out: None = None) -> Array:
    """Return cumulative sums along an axis, with nan as 0; of the flattened array for None."""
    no_out("nancumsum", out)
    return jit_composite(_cumsum, as_array("nancumsum", a), axis, optional_dtype(dtype))


def _cumsum(x: Array, axis: int | None, dtype: DType | None) -> Array:
    return cumsum(_replace_nan(x, 0), axis, dtype)


def nancumprod(a: ArrayLike, axis: int | None = None, dtype: object = None, out: None = None) -> Array:
    """Return cumulative products along an axis, with nan as 1; of the flattened array for None."""
    no_out("nancumprod", out)
    return jit_composite(_cumprod, as_array("nancumprod", a), axis, optional_dtype(dtype))


def _cumprod(x: Array, axis: int | None, dtype: DType | None) -> Array:
    return cumprod(_replace_nan(x, 1), axis, dtype)


def nanmax(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the greatest element over axes, without nans; nan if all are nan."""
    return _reduced("nanmax", _greatest, a, axis, None, out, keepdims, initial, where)


def nanmin(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the least element over axes, without nans; nan if all are nan."""
    return _reduced("nanmin", _least, a, axis, None, out, keepdims, initial, where)


def _greatest(x: Array, axis: AxisLike, _: DType | None, keepdims: bool) -> Array:
    return _nan_extremum(x, axis, keepdims, True)


def _least(x: Array, axis: AxisLike, _: DType | None, keepdims: bool) -> Array:
    return _nan_extremum(x, axis, keepdims, False)


def _nan_extremum(x: Array, axis: AxisLike, keepdims: bool, greatest: bool) -> Array:
    name, op = ("nanmax", reductions.max) if greatest else ("nanmin", reductions.min)
    if x.dtype not in dtypes.INEXACT:
        return apply_op(name, op, (x,), axis, keepdims)
    extremum = apply_op(name, op, (_replace_nan_by_worst(x, greatest),), axis, keepdims)
    return where(isnan(x).all(axis, keepdims=keepdims), float("nan"), extremum)


def nanargmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the index of the greatest element, without nans; -1 if all are nan (NumPy raises an error)."""
    return _nan_arg_extremum("nanargmax", a, axis, out, keepdims, True)


def nanargmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Return the index of the least element, without nans; -1 if all are nan (NumPy raises an error)."""
    return _nan_arg_extremum("nanargmin", a, axis, out, keepdims, False)


def _nan_arg_extremum(name: str, a: ArrayLike, axis: int | None, out: None, keepdims: bool, greatest: bool) -> Array:
    no_out(name, out)
    return jit_composite(_arg_extremum, as_array(name, a), axis, flag(name, "keepdims", keepdims), greatest)


def _arg_extremum(x: Array, axis: int | None, keepdims: bool, greatest: bool) -> Array:
    name, op = ("nanargmax", reductions.argmax) if greatest else ("nanargmin", reductions.argmin)
    filled = _replace_nan_by_worst(x, greatest)
    index = apply_op(name, op, (filled,), axis, keepdims)
    if x.dtype not in dtypes.INEXACT:
        return index
    missing = isnan(x)
    # [nan, -inf] is filled to [-inf, -inf]. Where the extremum is the filling, take the first element that is not nan
    first = apply_op(name, reductions.argmin, (missing.astype(dtypes.int32),), axis, keepdims)
    best = apply_op(name, reductions.max if greatest else reductions.min, (filled,), axis, keepdims)
    only_worst = best == _worst_value(x, greatest).value.item()
    return where(missing.all(axis, keepdims=keepdims), -1, where(only_worst, first, index))


def nanmean(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Return the mean over axes, without nans; nan if all are nan."""
    return _reduced("nanmean", _mean, a, axis, dtype, out, keepdims, None, where)


def _to_moment_dtype(name: str, x: Array, requested: DType | None) -> tuple[Array, DType]:
    """Return x in the dtype in which its moments are computed, and the dtype of the moments. An x is first rounded to a
    requested dtype."""
    if requested is None:
        return to_statistics_dtype(x), statistics_dtype(x)
    if requested not in dtypes.INEXACT:
        reductions.check_moment_dtype(name, requested)
        return x.astype(requested).astype(dtypes.float64), requested
    dtype = promotion.to_inexact_dtype(requested)
    return to_statistics_dtype(x.astype(dtype)), dtype


def _mean(x: Array, axes: tuple[int, ...], dtype: DType | None, keepdims: bool) -> Array:
    y, moment_dtype = _to_moment_dtype("nanmean", x, dtype)
    count = (~isnan(y)).sum(axes, keepdims=keepdims).astype(dtypes.real_part(y.dtype))
    return (_replace_nan(y, 0).sum(axes, keepdims=keepdims) / count).astype(moment_dtype)


def nanvar(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    ddof: float | Array | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    *,
    correction: float | Array | None = None,
) -> Array:
    """Return the variance over axes, without nans: the mean squared distance from the mean, with the count less
    `correction` (or `ddof`); nan if that is not positive. A `mean` that is given broadcasts to the array."""
    if mean is not None:
        array, kept = _without_nans("nanvar", a, where)
        return var(array, axis, dtype, out, ddof, keepdims, correction=correction, where=kept, mean=mean)
    if isinstance(ddof, Tracer) or isinstance(correction, Tracer):
        part = count_share("nanvar", a, axis, keepdims, where, correction, ddof, isnan(a))
        return times_share(nanvar(a, axis, dtype, out, None, keepdims, where), part)
    subtracted = degrees_of_freedom("nanvar", correction, ddof)
    return _reduced("nanvar", _var, a, axis, dtype, out, keepdims, None, where, subtracted)


def nanstd(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: object = None,
    out: None = None,
    ddof: float | Array | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    *,
    correction: float | Array | None = None,
) -> Array:
    """Return the standard deviation over axes, without nans: the square root of `nanvar`."""
    if mean is not None:
        array, kept = _without_nans("nanstd", a, where)
        return std(array, axis, dtype, out, ddof, keepdims, correction=correction, where=kept, mean=mean)
    if isinstance(ddof, Tracer) or isinstance(correction, Tracer):
        part = count_share("nanstd", a, axis, keepdims, where, correction, ddof, isnan(a))
        return times_share(nanstd(a, axis, dtype, out, None, keepdims, where), sqrt(part))
    subtracted = degrees_of_freedom("nanstd", correction, ddof)
    return _reduced("nanstd", _std, a, axis, dtype, out, keepdims, None, where, subtracted)


def _without_nans(name: str, a: ArrayLike, mask: ArrayLike | None) -> tuple[Array, Array]:
    """Return an array with 0 in place of nans, and a mask of its other elements."""
    array = as_array(name, a)
    kept = ~isnan(array)
    return _replace_nan(array, 0), kept if mask is None else kept & as_array(name, mask, 6)


def _var(x: Array, axes: tuple[int, ...], dtype: DType | None, keepdims: bool, correction: float) -> Array:
    y, moment_dtype = _to_moment_dtype("nanvar", x, dtype)
    missing = isnan(y)
    count = (~missing).sum(axes, keepdims=True).astype(dtypes.real_part(y.dtype))
    y = where(missing, 0, y)
    # at least 1, to avoid a division by 0: the result of an empty count is nan anyway
    deviation = where(missing, 0, y - y.sum(axes, keepdims=True) / where(count == 0, 1, count))
    square = real(deviation * conj(deviation)).sum(axes, keepdims=True)
    left = count - correction
    out = square / where(left > 0, left, float("nan"))
    out = out if keepdims else out.squeeze(axes)
    return out.astype(dtypes.real_part(moment_dtype))


def _std(x: Array, axes: tuple[int, ...], dtype: DType | None, keepdims: bool, correction: float) -> Array:
    return apply_op("nanstd", reductions.root_of_squares, (_var(x, axes, dtype, keepdims, correction),))
