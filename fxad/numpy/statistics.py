"""Averages, quantiles and covariances. For integers and bools the results are float32, as for `mean`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, overload

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError, shown
from fxad.numpy.apply import as_array
from fxad.numpy.binary import clip, logical_or, where
from fxad.numpy.composites import jit_composite, jit_composite_all
from fxad.numpy.creation import asarray, full
from fxad.numpy.cumulative import cumsum
from fxad.numpy.products import matmul
from fxad.numpy.shapes import (
    broadcast_arrays,
    broadcast_to,
    concat,
    diagonal,
    matrix_transpose,
    moveaxis,
    take_along_axis,
)
from fxad.numpy.sorting import argsort, sort
from fxad.numpy.types import result_type
from fxad.numpy.unary import ceil, floor, isinf, isnan, real, rint, sqrt
from fxad.operations.arguments import by_numpy, check_real, flag, no_out, text, to_int
from fxad.operations.axes import AxisLike, hashable_axis, normalize_axes
from fxad.operations.promotion import NumberKind, optional_dtype
from fxad.operations.reductions import moment_dtypes
from fxad.primitives.index import index_dtype
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.traced_numbers import TracedNumber

Probabilities: TypeAlias = "ArrayLike | Sequence[float]"


def to_statistics_dtype(x: Array) -> Array:
    """Return x in the dtype in which its statistics are computed: float64 for integers and bools, at least float32."""
    return x.astype(moment_dtypes(x.dtype)[0])


def statistics_dtype(x: Array) -> DType:
    """Return the dtype of the statistics of x: float32 for integers and bools."""
    return moment_dtypes(x.dtype)[1]


# --------------------------------------------------------------------------------------------------------- averages


@overload
def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    returned: Literal[False] = False,
    keepdims: bool = False,
) -> Array: ...
@overload
def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: bool = False,
) -> tuple[Array, Array]: ...
def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Array | tuple[Array, Array]:
    """Return the mean over axes, weighted by `weights`; with `returned` also the sum of the weights.

    Type:   weights have the shape of `a`, or its sizes along `axis`.
    Rule:   weights that sum to 0 give nan or infinities.
    """
    returned, keepdims = flag("average", "returned", returned), flag("average", "keepdims", keepdims)
    array = as_array("average", a)
    axes = normalize_axes("average", axis, array.ndim)
    if weights is None:
        mean = array.mean(axes, keepdims=keepdims)
        count = array.size // mean.size if mean.size != 0 else 0
        return (mean, full(mean.shape, count, mean.dtype)) if returned else mean
    w = as_array("average", weights, 2)
    reduced_axes = axes if axis is None else tuple(np.atleast_1d(np.asarray(hashable_axis(axis))).tolist())
    order = [k % array.ndim for k in reduced_axes] if array.ndim else []
    if w.shape not in (array.shape, tuple([array.shape[k] for k in order])):
        raise ShapeError(
            f"average: weights of shape {w.shape} for axis {axis} of {array.aval}",
            remedy="give weights of the shape of the array, or one for each place along the axes",
        )
    mean, total = jit_composite_all(_weighted_mean, array, w, axes, tuple(order), keepdims)
    return (mean, total) if returned else mean


def _weighted_mean(
    x: Array, w: Array, axes: tuple[int, ...], order: tuple[int, ...], keepdims: bool
) -> tuple[Array, Array]:
    """Return the mean over axes, and the sum of the weights. Weights of another shape than x have the axes `order`."""
    if w.shape != x.shape:
        back = sorted(range(len(order)), key=order.__getitem__)
        w = w.transpose(back).reshape([n if a in axes else 1 for a, n in enumerate(x.shape)])
    dtype = result_type(statistics_dtype(x), w) if w.dtype in dtypes.INEXACT else statistics_dtype(x)
    inner = dtypes.accumulated(dtype) if x.dtype in dtypes.INEXACT else result_type(dtype, dtypes.float64)
    x, w = x.astype(inner), broadcast_to(w.astype(inner), x.shape)
    total = w.sum(axes, keepdims=keepdims)
    return ((x * w).sum(axes, keepdims=keepdims) / total).astype(dtype), total.astype(dtype)


def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: object = None,
) -> Array:
    """Return the covariances of the rows of m (and of y). A row is a variable, a column an observation.

    Rule:   without `rowvar` columns are variables. Sums of products are divided by the number of observations less
            `ddof`, by default 1, or 0 with `bias`. `fweights` are counts of observations, `aweights` their weights.
    """
    ddof = None if ddof is None else to_int("cov", "ddof", ddof)
    bias = flag("cov", "bias", bias)
    rowvar = flag("cov", "rowvar", rowvar)
    rows = [_rows_of_variables("cov", k, v, rowvar) for k, v in ((0, m), (1, y)) if v is not None]
    n = rows[0].shape[1]
    if rows[-1].shape[1] != n:
        raise ShapeError(f"cov: {n} observations in m and {rows[-1].shape[1]} in y")
    subtracted = ddof if ddof is not None else 0 if bias else 1
    weights = [
        _observation_weights(parameter, w, n) for parameter, w in (("fweights", fweights), ("aweights", aweights))
    ]
    if weights[0] is not None and weights[0].dtype not in dtypes.INTEGER:
        raise DTypeError(f"cov: fweights must be integers, got {weights[0].aval}", remedy="use aweights")
    return jit_composite(
        _cov, rows[0], rows[1] if len(rows) > 1 else None, *weights, subtracted, _requested_dtype("cov", dtype)
    )


def _requested_dtype(name: str, dtype: object) -> DType | None:
    """Return the requested dtype. Raises: DTypeError for a dtype that cannot hold fractions."""
    want = optional_dtype(dtype)
    if want is not None and want not in dtypes.INEXACT:
        raise DTypeError(
            f"{name}: dtype must be floating or complex, got {want.name}",
            remedy="leave it out: of integers the result is float32",
        )
    return want


def _rows_of_variables(name: str, k: int, x: ArrayLike, rowvar: bool) -> Array:
    """Return argument `k` as a matrix with a row for each variable; a vector is one variable."""
    array = as_array(name, x, k)
    if array.ndim > 2:
        raise ShapeError(f"{name}: argument {k} must have at most two axes, got {array.aval}")
    if array.ndim < 2:
        return array.reshape(1, -1)
    return array if rowvar else matrix_transpose(array)


def _observation_weights(parameter: str, weights: ArrayLike | None, n: int) -> Array | None:
    """Return a parameter of `cov` as a vector of `n` weights. Raises: ShapeError for another shape."""
    if weights is None:
        return None
    array = as_array("cov", weights)
    if array.shape != (n,):
        raise ShapeError(f"cov: {parameter} {array.aval} for {n} observations")
    return array


def _cov(
    m: Array, y: Array | None, fweights: Array | None, aweights: Array | None, ddof: int, requested: DType | None
) -> Array:
    both = [m] if y is None else [m, y]
    dtype = requested or result_type(*[statistics_dtype(x) for x in both])
    x = concat([to_statistics_dtype(x) for x in both])
    x = x.astype(dtypes.accumulated(dtype)) if requested is not None else x
    w = None
    for weights in (fweights, aweights):
        if weights is not None:
            w = weights.astype(dtypes.real_part(x.dtype)) * (1 if w is None else w)
    if w is None:
        count: Array | int = x.shape[1]
        center, norm = (
            x.sum(1, keepdims=True) / (np.nan if x.shape[1] == 0 else x.shape[1]),
            full((), count - ddof, x.dtype),
        )
    else:
        count = w.sum()
        center = (x * w).sum(1, keepdims=True) / count
        norm = count - ddof * (count if aweights is None else (w * aweights).sum()) / count
    off = x - center
    weighted = off if w is None else off * w
    product = matmul(weighted, matrix_transpose(off.conj()))
    # nan if there are no more than `ddof` observations
    return (product / where(norm.real > 0, norm, np.nan)).astype(dtype).squeeze()


def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: object = None) -> Array:
    """Return the correlations of the rows of x (and of y): covariances divided by standard deviations, from -1 to 1."""
    rowvar = flag("corrcoef", "rowvar", rowvar)
    requested = _requested_dtype("corrcoef", dtype)
    result_dtype = requested or result_type(
        *[statistics_dtype(as_array("corrcoef", v, k)) for k, v in ((0, x), (1, y)) if v is not None]
    )
    # a covariance may be out of the range of a narrow dtype, a correlation is not
    inner = dtypes.accumulated(result_dtype)
    return jit_composite(
        _correlations, cov(x, y, rowvar, dtype=inner if inner is not result_dtype else requested)
    ).astype(result_dtype)


def _correlations(c: Array) -> Array:
    if not c.ndim:
        return c / c
    spread = sqrt(real(diagonal(c)))
    r = c / spread[:, None] / spread[None, :]
    if r.dtype in dtypes.COMPLEX:
        clipped = clip(r.real, -1, 1).astype(r.dtype), clip(r.imag, -1, 1).astype(r.dtype)
        return clipped[0] + 1j * clipped[1]
    return clip(r, -1, 1)


# ----------------------------------------------------------------------------------------------------------- orders

# Continuous methods: the place of q among n elements is n*q + a + q*(1 - a - b) - 1 (Hyndman and Fan, 1996).
_CONTINUOUS: Final = MappingProxyType(
    {
        "linear": (1.0, 1.0),
        "interpolated_inverted_cdf": (0.0, 1.0),
        "hazen": (0.5, 0.5),
        "weibull": (0.0, 0.0),
        "median_unbiased": (1 / 3, 1 / 3),
        "normal_unbiased": (3 / 8, 3 / 8),
    }
)
# Methods whose result is an element.
_DISCRETE: Final = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
METHODS: Final = (*_CONTINUOUS, *_DISCRETE, "midpoint", "averaged_inverted_cdf")


def quantile(
    a: ArrayLike,
    q: Probabilities,
    axis: AxisLike = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Return the quantiles of the elements over axes, for probabilities q; nan if an element is nan.

    Type:   the result has the axes of q first. `method` "lower", "higher", "nearest", "inverted_cdf" and
            "closest_observation" return elements, in the dtype of `a`; the others interpolate between two elements.
    Rule:   a Python number q outside [0, 1] is an error. An element of an array q outside [0, 1] gives nan; integers
            have no nan, so a method that returns elements gives the first or the last one. `weights` (only for
            "inverted_cdf") have the shape of `a`, or its size along `axis`.
    Cost:   a sort; the derivative is a gather.
    Raises: ParameterError, DTypeError for complex numbers.
    """
    no_out("quantile", out, overwrite_input)
    return _quantile("quantile", a, q, 1, axis, method, keepdims, False, weights)


def percentile(
    a: ArrayLike,
    q: Probabilities,
    axis: AxisLike = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Return `quantile` of q / 100."""
    no_out("percentile", out, overwrite_input)
    return _quantile("percentile", a, q, 100, axis, method, keepdims, False, weights)


def nanquantile(
    a: ArrayLike,
    q: Probabilities,
    axis: AxisLike = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Return `quantile` without nans; nan if all are nan."""
    no_out("nanquantile", out, overwrite_input)
    return _quantile("nanquantile", a, q, 1, axis, method, keepdims, True, weights)


def nanpercentile(
    a: ArrayLike,
    q: Probabilities,
    axis: AxisLike = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Return `nanquantile` of q / 100."""
    no_out("nanpercentile", out, overwrite_input)
    return _quantile("nanpercentile", a, q, 100, axis, method, keepdims, True, weights)


def median(
    a: ArrayLike, axis: AxisLike = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """Return the middle element over axes, or the mean of the two middle ones; nan if any is nan."""
    no_out("median", out, overwrite_input)
    return _quantile("median", a, 0.5, 1, axis, "midpoint", keepdims, False, None)


def nanmedian(
    a: ArrayLike, axis: AxisLike = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """Return `median` without nans; nan if all are nan."""
    no_out("nanmedian", out, overwrite_input)
    return _quantile("nanmedian", a, 0.5, 1, axis, "midpoint", keepdims, True, None)


def _quantile(
    name: str,
    x: ArrayLike,
    q: Probabilities,
    scale: int,
    axis: AxisLike,
    method: str,
    keepdims: bool,
    skip_nans: bool,
    weights: ArrayLike | None,
) -> Array:
    """Return the quantiles of x for q / scale: 1 for probabilities, 100 for percentages. Raises: as `quantile`."""
    method, keepdims = text(name, "method", method), flag(name, "keepdims", keepdims)
    array = as_array(name, x)
    axes = normalize_axes(name, axis, array.ndim)
    if method not in METHODS:
        raise ParameterError(f"{name}: method {shown(method)} is not known", remedy=f"use one of {' '.join(METHODS)}")
    check_real(name, array.aval)
    if not all([array.shape[a] != 0 for a in axes]):
        raise ShapeError(f"{name}: {array.aval} has no elements along axis {axis}")
    if weights is None:
        return jit_composite(
            _unweighted_quantiles, array, _probabilities(name, q, scale), scale, axes, method, keepdims, skip_nans
        )
    if method != "inverted_cdf":
        raise ParameterError(f"{name}: weights are for method 'inverted_cdf', not {shown(method)}")
    w = as_array(name, weights, 2)
    if w.shape != array.shape:
        if len(axes) != 1 or w.shape != (array.shape[axes[0]],):
            raise ShapeError(f"{name}: weights of shape {w.shape} for axis {axis} of {array.aval}")
        w = w.reshape([-1 if a == axes[0] else 1 for a in range(array.ndim)])
    return jit_composite(
        _weighted_quantiles, array, w, _probabilities(name, q, scale), scale, axes, keepdims, skip_nans
    )


def _probabilities(name: str, q: Probabilities, scale: int) -> Array | float | tuple[float, ...]:
    """Return q: static for a Python number, so that the indices are static; else an array."""
    if type(q) is TracedNumber:  # in float64, as a number whose value is known
        q = q.astype(dtypes.float64) if q.number_type.kind in (NumberKind.INTEGER, NumberKind.FLOATING) else q
    probabilities = q if isinstance(q, Array) else by_numpy(name, np.asarray, q)
    if isinstance(probabilities, Array) or isinstance(q, np.ndarray | np.generic):
        if probabilities.dtype not in dtypes.FLOATING and probabilities.dtype not in dtypes.INTEGER:
            raise DTypeError(f"{name}: q must be real, got {probabilities.dtype.name}")
        return asarray(probabilities)
    if probabilities.dtype.kind not in "iuf":
        raise DTypeError(f"{name}: q must be real, got {shown(q)}")
    if not ((probabilities >= 0) & (probabilities <= scale)).all():
        raise ParameterError(f"{name}: q must lie between 0 and {scale}, got {shown(q)}")
    return asarray(probabilities.astype(np.float64)) if probabilities.ndim else float(probabilities)


def _merge_axes_last(x: Array, axes: tuple[int, ...]) -> Array:
    """Return x with the axes merged into a last one."""
    if len(axes) == 1:
        return moveaxis(x, axes[0], -1)
    stay = [a for a in range(x.ndim) if a not in axes]
    merged = math.prod([x.shape[a] for a in axes])  # -1 is not decided for an array without elements
    return x.transpose([*stay, *axes]).reshape([*[x.shape[a] for a in stay], merged])


def _quantile_axes_first(y: Array, x: Array, q: Array | float, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Return the quantiles `y`, whose last axis is that of q, with the axes of q first."""
    rest = [1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes]
    shape = q.shape if isinstance(q, Array) else ()
    return moveaxis(y, -1, 0).reshape([*shape, *rest])


def _as_vector(q: Array | float, scale: int) -> Array:
    """Return q as a vector, at least float32."""
    if not isinstance(q, Array):
        return full((1,), q / scale, dtypes.float64)
    q = q.reshape(-1)
    return q.astype(result_type(q, dtypes.float32) if q.dtype in dtypes.FLOATING else dtypes.float64) / scale


def _unweighted_quantiles(
    x: Array, q: Array | float, scale: int, axes: tuple[int, ...], method: str, keepdims: bool, skip_nans: bool
) -> Array:
    dtype = x.dtype if method in _DISCRETE else statistics_dtype(x)
    y = sort(_merge_axes_last(x if method in _DISCRETE else to_statistics_dtype(x), axes))
    probabilities = _as_vector(q, scale)
    missing = isnan(y)
    n = (
        (~missing).sum(-1, keepdims=True).astype(probabilities.dtype)
        if skip_nans
        else full((1,), y.shape[-1], probabilities.dtype)
    )
    position = _quantile_positions(n, probabilities, method)
    last = n - 1
    low = clip(floor(position), 0, last)
    high = clip(floor(position) + 1, 0, last)
    share = _upper_weight(position, method).astype(y.dtype if y.dtype in dtypes.FLOATING else dtypes.float32)
    a, b = _take_last_axis(y, low), _take_last_axis(y, high)
    if method not in _DISCRETE:
        gap = where(logical_or(a == b, share == 0), 0, b - a)  # of equal infinities it would be nan
        # an infinite gap: of an infinite element, or between the largest finite ones, where the sum of shares is finite
        far = a * (1 - share) + b * share
        near = where(share < 0.5, a + gap * share, b - gap * (1 - share))
        a = where(share == 1, b, where(isinf(gap), far, near))
    wrong = _is_no_probability(probabilities)
    if y.dtype in dtypes.FLOATING:
        wrong = wrong | ((n == 0) if skip_nans else missing[..., -1:])
        a = where(wrong, np.nan, a)
    return _quantile_axes_first(a.astype(dtype), x, q, axes, keepdims)


def _is_no_probability(q: Array) -> Array:
    return (q < 0) | (q > 1) | isnan(q)


def _take_last_axis(y: Array, indices: Array) -> Array:
    """Return the elements at integral indices along the last axis."""
    places = indices.astype(index_dtype((y.shape[-1],)))
    if places.ndim == 1:
        return y[..., places]
    return take_along_axis(y, places, -1, mode="promise_in_bounds")


def _quantile_positions(n: Array, q: Array, method: str) -> Array:
    """Return the position of quantile q among n sorted elements; integral for methods that select an element."""
    if method in _CONTINUOUS:
        a, b = _CONTINUOUS[method]
        return n * q + (a + q * (1 - a - b)) - 1
    if method in ("inverted_cdf", "averaged_inverted_cdf"):
        position = n * q - 1
        return ceil(position) if method == "inverted_cdf" else position
    if method == "closest_observation":
        position = n * q - 1.5
        # position 1 is the second element: halfway between two elements, the one with the even number counts
        has_even_number = (position == floor(position)) & (floor(position) % 2 == 1)
        return where(has_even_number, floor(position), floor(position) + 1)
    position = (n - 1) * q
    if method == "midpoint":
        return (floor(position) + ceil(position)) / 2
    return {"lower": floor, "higher": ceil, "nearest": rint}[method](position)


def _upper_weight(position: Array, method: str) -> Array:
    """Return the weight of the next element in the result."""
    share = position - floor(position)
    return where(share == 0, 0.5, 1.0).astype(position.dtype) if method == "averaged_inverted_cdf" else share


def _weighted_quantiles(
    x: Array, w: Array, q: Array | float, scale: int, axes: tuple[int, ...], keepdims: bool, skip_nans: bool
) -> Array:
    y, w = [_merge_axes_last(v, axes) for v in broadcast_arrays(x, w)]
    probabilities = _as_vector(q, scale)
    missing = isnan(y)
    w = w.astype(result_type(w, dtypes.float64 if w.dtype in dtypes.INTEGER else dtypes.float32))
    w = where(missing, 0, w) if skip_nans else w
    order = argsort(y)
    y, w = [take_along_axis(v, order, mode="promise_in_bounds") for v in (y, w)]
    reached = cumsum(w, -1)
    total = reached[..., -1:]
    # the first element up to which the weights sum to the part q of their total, and to more than 0
    here = (reached[..., None, :] >= (probabilities * total)[..., None]) & (reached[..., None, :] > 0)
    index = here.argmax(-1)
    out = take_along_axis(y, index, mode="promise_in_bounds")
    if y.dtype in dtypes.FLOATING:
        wrong = _is_no_probability(probabilities)
        # a negative, infinite or nan weight, or none above 0, selects nothing
        no_weights = ~((total > 0) & (total < np.inf)) | (w < 0).any(-1, keepdims=True)
        wrong = wrong | no_weights | (False if skip_nans else missing.any(-1, keepdims=True))
        out = where(wrong, np.nan, out)
    return _quantile_axes_first(out, x, q, axes, keepdims)


__all__ = [
    "METHODS", "average", "corrcoef", "cov", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile",
    "quantile",
]  # fmt: skip
