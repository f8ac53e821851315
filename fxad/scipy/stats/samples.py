"""Statistics of samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ParameterError, shown
from fxad.numpy.apply import as_array
from fxad.numpy.composites import jit_composite, jit_composite_all
from fxad.operations.arguments import flag, text, to_int
from fxad.operations.axes import normalize_axis_index
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike


class ModeResult(NamedTuple):
    """The most frequent values, and how often each occurs."""

    mode: Array
    count: Array  # type: ignore[assignment]  # SciPy's name, which hides the method of tuples


def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Array:
    """Return the standard error of the mean along an axis; None: of all elements. `nan_policy` "propagate" returns nan
    where an element is nan; "omit" leaves these elements out.

    Raises: ParameterError for another policy; AxisError.
    """
    (x,) = floats("sem", a)
    if text("sem", "nan_policy", nan_policy) not in ("propagate", "omit"):
        raise ParameterError(f"sem: nan_policy is {shown(nan_policy)}", remedy='use "propagate" or "omit"')
    keepdims = flag("sem", "keepdims", keepdims)
    values, k = _values_and_axis("sem", x, axis)
    out = jit_composite(_sem, values, k, to_int("sem", "ddof", ddof), keepdims, nan_policy == "omit")
    return out.reshape((1,) * x.ndim) if keepdims and axis is None else out


def _values_and_axis(name: str, x: Array, axis: int | None) -> tuple[Array, int]:
    """Return x and the axis, counted from the front; for None a vector of all elements, and 0."""
    return (x.reshape(-1), 0) if axis is None else (x, normalize_axis_index(name, axis, x.ndim))


def _sem(x: Array, axis: int, ddof: int, keepdims: bool, omit: bool) -> Array:
    if omit:
        count = fnp.sum(~fnp.isnan(x), axis=axis, keepdims=keepdims).astype(x.dtype)
        return fnp.nanstd(x, axis=axis, ddof=ddof, keepdims=keepdims) / fnp.sqrt(count)
    return fnp.std(x, axis=axis, ddof=ddof, keepdims=keepdims) / math.sqrt(x.shape[axis])


def mode(a: ArrayLike, axis: int | None = 0, *, keepdims: bool = False) -> ModeResult:
    """Return the most frequent value along an axis, the least of several; None: of all elements."""
    x = as_array("mode", a)
    keepdims = flag("mode", "keepdims", keepdims)
    values, k = _values_and_axis("mode", x, axis)
    if values.shape[k] == 0:
        raise ParameterError(
            "mode: an axis without elements has no most frequent value", remedy="give at least one element"
        )
    value, count = jit_composite_all(_mode, values, k)
    if not keepdims:
        return ModeResult(value, count)
    shape = (1,) * x.ndim if axis is None else (*x.shape[:k], 1, *x.shape[k + 1 :])
    return ModeResult(value.reshape(shape), count.reshape(shape))


def _mode(x: Array, axis: int) -> tuple[Array, Array]:
    # equal elements of a sorted row are neighbours: the first and last place of each value count it
    ordered = fnp.moveaxis(fnp.sort(x, axis=axis), axis, -1)
    n = ordered.shape[-1]
    rows = ordered.reshape(math.prod(ordered.shape[:-1]), n)
    first = _first_of_equals(rows)
    last = n - 1 - fnp.flip(_first_of_equals(fnp.flip(rows, axis=1)), axis=1)
    counts = last - first + 1
    best = fnp.argmax(counts, axis=1, keepdims=True)
    shape = ordered.shape[:-1]
    value, count = [fnp.take_along_axis(y, best, 1, mode="promise_in_bounds").reshape(shape) for y in (rows, counts)]
    return value, count


def _first_of_equals(rows: Array) -> Array:
    """Return for each element of sorted rows, the place of the first element equal to it."""
    places = fnp.broadcast_to(fnp.arange(rows.shape[1]), rows.shape)
    before = rows[:, :-1]
    equal = (rows[:, 1:] == before) | (fnp.isnan(rows[:, 1:]) & fnp.isnan(before))
    starts = fnp.where(fnp.pad(equal, ((0, 0), (1, 0))), 0, places)
    return lax.cummax(starts, axis=1)


_METHODS = ("average", "min", "max", "dense", "ordinal")


def rankdata(a: ArrayLike, method: str = "average", *, axis: int | None = None) -> Array:
    """Return the ranks of elements along an axis, from 1; None: of all elements. Equal elements have the average, least
    or greatest of their ranks, consecutive ranks of distinct values ("dense"), or ranks in order ("ordinal").

    Averages are nan where an element is nan. The other methods give integers: nans come after the
    numbers, as if they were equal.
    """
    x = as_array("rankdata", a)
    if text("rankdata", "method", method) not in _METHODS:
        raise ParameterError(
            f"rankdata: method {shown(method)} is unknown", remedy=f"the methods are {' '.join(_METHODS)}"
        )
    values, k = _values_and_axis("rankdata", x, axis)
    return jit_composite(_rankdata, values, method, k)


def _rankdata(x: Array, method: str, axis: int) -> Array:
    moved = fnp.moveaxis(x, axis, -1)
    n = moved.shape[-1]
    rows = moved.reshape(math.prod(moved.shape[:-1]), n)
    order = fnp.argsort(rows, axis=1, stable=True)
    inverse = fnp.argsort(order, axis=1)
    ordered = fnp.take_along_axis(rows, order, 1, mode="promise_in_bounds")
    if method == "ordinal":
        ranks = inverse + 1
    elif method == "dense":
        new = _first_of_equals(ordered) == fnp.arange(n)
        ranks = fnp.take_along_axis(fnp.cumsum(new, axis=1), inverse, 1, mode="promise_in_bounds")
    else:
        first = _first_of_equals(ordered) + 1
        last = n - fnp.flip(_first_of_equals(fnp.flip(ordered, axis=1)), axis=1)
        ties = {"min": first, "max": last}.get(method)
        if ties is None:
            ties = fnp.where(fnp.isnan(ordered[:, -1:]), fnp.nan, (first + last) / 2)  # nans come last
        ranks = fnp.take_along_axis(ties, inverse, 1, mode="promise_in_bounds")
    return fnp.moveaxis(ranks.reshape(moved.shape), -1, axis)
