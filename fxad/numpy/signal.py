"""Sequences: convolution, interpolation, differences, integrals and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from fxad import dtypes, lax
from fxad.core.sizes.size import Size
from fxad.errors import DTypeError, ParameterError, ShapeError, described, shown
from fxad.numpy.apply import as_array, number_or_array
from fxad.numpy.binary import clip, divide, remainder, where
from fxad.numpy.composites import jit_composite, promote_arguments
from fxad.numpy.creation import full, ones
from fxad.numpy.cumulative import cumsum
from fxad.numpy.shapes import concat, diff, flip, moveaxis
from fxad.numpy.sorting import argsort, searchsorted
from fxad.numpy.special import i0
from fxad.numpy.types import finfo, result_type
from fxad.numpy.unary import abs, cos, isfinite, isnan, sqrt
from fxad.operations import promotion
from fxad.operations.arguments import one_or_more, plain_ints, to_int, word
from fxad.operations.axes import normalize_axes, normalize_axis_index
from fxad.operations.precision import PrecisionLike, to_precision
from fxad.operations.promotion import optional_dtype
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.tracer import Tracer

_OVERLAPS: Final = ("full", "same", "valid")


def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the convolution of two vectors: for every overlap ("full"), for as many as the longer one has elements, in
    the middle ("same"), or for complete overlaps ("valid")."""
    return _convolve_checked("convolve", a, v, mode, precision, preferred_element_type)


def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the cross-correlation of two vectors: `convolve` of a and the reversed conjugate of v."""
    return _convolve_checked("correlate", a, v, mode, precision, preferred_element_type)


def _convolve_checked(
    name: str, a: ArrayLike, v: ArrayLike, mode: str, precision: PrecisionLike, preferred: object
) -> Array:
    x, y = as_array(name, a), as_array(name, v, 1)
    word(name, "mode", mode, _OVERLAPS)
    for k, array in enumerate((x, y)):
        if array.ndim > 1 or array.size == 0:
            raise ShapeError(f"{name}: argument {k} must be a vector that is not empty, got {array.aval}")
    want = optional_dtype(preferred)
    how = to_precision(name, precision)
    return jit_composite(_sliding_products, x.reshape(-1), y.reshape(-1), mode, name == "correlate", want, how)


def _sliding_products(
    x: Array, y: Array, mode: str, correlated: bool, want: dtypes.DType | None, precision: str
) -> Array:
    dtype = result_type(x, y)
    inner = dtypes.int32 if dtype is dtypes.bool_ else dtype
    x, y = x.astype(inner), y.astype(inner)
    # the longer one stays; for a correlation, which is not symmetric, the overlaps then come in reverse order
    swapped, y = x.size < y.size, y.conj() if correlated else y
    x, y = (y, x) if swapped else (x, y)
    n = y.size
    before = {"full": n - 1, "same": n // 2, "valid": 0}[mode]
    after = {"full": n - 1, "same": n - 1 - before, "valid": 0}[mode]
    kernel = y if correlated else flip(y)
    padding = ((before, after),)
    out = lax.conv_general_dilated(
        x[None, None], kernel[None, None], (1,), padding, precision=precision or None, preferred_element_type=want
    )[0, 0]
    out = flip(out) if correlated and swapped else out
    return out != 0 if dtype is dtypes.bool_ else out


# ---------------------------------------------------------------------------------------------------- interpolation


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """Return the value at each x of the piecewise linear function through the points (xp, fp) with ascending xp.
    Outside the points it is `left` and `right`, by default the values of the outermost points; "extrapolate" goes on
    along the outermost segment. With a `period` the points are sorted and repeated.

    Rule:   the derivative in x is the slope of the segment; at a point, of the segment to its right.
    """
    at, places, values = promote_arguments("interp", x, xp, fp)
    if places.ndim != 1 or places.shape != values.shape or not places.size:
        raise ShapeError(f"interp: xp and fp must be vectors of one size, at least 1, got {places.aval}, {values.aval}")
    if dtypes.COMPLEX & {at.dtype, places.dtype}:
        raise DTypeError(f"interp: x and xp must be real, got {at.aval} and {places.aval}")
    length = None if period is None else _period(period)
    ends = ((3, left), (4, right))
    for k, v in ends:
        if isinstance(v, str) and v != "extrapolate":
            raise ParameterError(f"interp: argument {k} is {shown(v, 40)}", remedy='give a number or "extrapolate"')
    beyond = [
        v if v is None or isinstance(v, str) else promote_arguments("interp", v, first=k, dtype=values.dtype)[0]
        for k, v in ends
    ]
    return jit_composite(_interpolate, at, places, values, *beyond, length)


def _period(period: ArrayLike) -> float | Array:
    """Return the size of a period. Raises: ParameterError for a value that is not one real number, and for 0."""
    if isinstance(period, Tracer) and not period.ndim and period.dtype not in dtypes.COMPLEX:
        return abs(period)
    if isinstance(period, Array | np.ndarray | np.generic) and period.ndim == 0:
        period = period.item()
    if not isinstance(period, int | float):
        raise ParameterError(f"interp: period must be one real number, got {described(period)}: {shown(period)}")
    if period == 0:
        raise ParameterError("interp: period is 0")
    return math.fabs(period)


def _interpolate(
    x: Array, xp: Array, fp: Array, left: Array | str | None, right: Array | str | None, period: float | Array | None
) -> Array:
    real = promotion.to_inexact_dtype(result_type(x, xp))
    dtype = result_type(real, promotion.to_inexact_dtype(fp.dtype))
    x, xp, fp = x.astype(real), xp.astype(real), fp.astype(dtype)
    if period is not None:
        period = period.astype(real) if isinstance(period, Array) else period
        x, xp = remainder(x, period), remainder(xp, period)
        order = argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = concat([xp[-1:] - period, xp, xp[:1] + period])
        fp = concat([fp[-1:], fp, fp[:1]])
    n = xp.size
    if n == 1:
        out = full(x.shape, fp[0])
    else:
        k = clip(searchsorted(xp, x, "right"), 1, n - 1)
        a, b = xp[k - 1], xp[k]
        # points above each other; XLA takes subnormal distances for 0, and 1 / them may be infinite
        still = (abs(b - a) < finfo(real).smallest_normal) & ~isnan(x)
        # of points above each other the last one counts, as in NumPy
        share = where(still, (x >= b).astype(real), divide(x - a, where(still, 1, b - a)))
        low, high = fp[k - 1], fp[k]
        if period is None:  # beyond the points no segment is read, so it has no slope there
            first, last = -math.inf if isinstance(left, str) else xp[0], math.inf if isinstance(right, str) else xp[-1]
            within = (x >= first) & (x <= last)
            low, high = where(within, low, 0), where(within, high, 0)
        step = high - low
        # beside an infinity or nan, and where the difference overflows: the weighted mean, without 0 times infinity
        is_flat = (x == a) | (low == high)
        mean = where(x == b, high, where(is_flat, low, (1 - share) * low + share * high))
        finite = isfinite(step)
        out = where(finite, low + share * where(finite, step, 0), lax.stop_gradient(mean))
    if period is None and not isinstance(left, str):
        out = where(x < xp[0], fp[0] if left is None else left.astype(dtype), out)
    if period is None and not isinstance(right, str):
        out = where(x > xp[-1], fp[-1] if right is None else right.astype(dtype), out)
    return out


# -------------------------------------------------------------------------------------- differences and integrals


def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: int | Sequence[int] | None = None, edge_order: int = 1
) -> Array | list[Array]:
    """Return the slopes of f along axes by central differences, with differences of order `edge_order` (1 or 2) at the
    ends. For several axes: a list.

    Rule:   `varargs` is the spacing: one for all axes, one for each axis, or the coordinates along each axis.
    """
    edge_order = to_int("gradient", "edge_order", edge_order)
    array = as_array("gradient", f)
    axis_or_axes = None if axis is None else one_or_more("gradient", "axis", axis)
    axis_tuple = (axis_or_axes,) if isinstance(axis_or_axes, int) else axis_or_axes
    axes = (
        tuple(range(array.ndim))
        if axis_tuple is None
        else tuple([normalize_axis_index("gradient", a, array.ndim) for a in axis_tuple])
    )
    normalize_axes("gradient", axes, array.ndim)  # Raises: for an axis that is named twice
    if edge_order not in (1, 2):
        raise ParameterError(f"gradient: edge_order must be 1 or 2, got {edge_order}")
    if len(varargs) not in (0, 1, len(axes)):
        raise ParameterError(f"gradient: {len(varargs)} distances for {len(axes)} axes")
    steps = list(
        promote_arguments("gradient", *(varargs or (1,)), first=1, dtype=promotion.to_inexact_dtype(array.dtype))
    )
    steps = steps * len(axes) if len(steps) == 1 else steps
    for a, h in zip(axes, steps, strict=True):
        if array.shape[a] < edge_order + 1:
            raise ShapeError(f"gradient: axis {a} of {array.aval} has fewer than {edge_order + 1} elements")
        if h.ndim > 1 or (h.ndim and h.shape != (array.shape[a],)):
            raise ShapeError(f"gradient: coordinates {h.aval} for axis {a} of {array.aval}")
    slopes = [jit_composite(_gradient, array, h, a, edge_order) for a, h in zip(axes, steps, strict=True)]
    return slopes[0] if len(slopes) == 1 else slopes


def _gradient(f: Array, h: Array, axis: int, order: int) -> Array:
    f = f.astype(promotion.to_inexact_dtype(f.dtype))
    h = h.astype(f.dtype)
    f = moveaxis(f, axis, -1)
    n = f.shape[-1]
    gaps = diff(h) if h.ndim else None
    if gaps is None:
        inner = (f[..., 2:] - f[..., :-2]) / (2 * h)
        d0 = d1 = e0 = e1 = h
    else:
        p, q = gaps[:-1], gaps[1:]
        low, high = -q / (p * (p + q)), p / (q * (p + q))
        inner = low * f[..., :-2] + (q - p) / (p * q) * f[..., 1:-1] + high * f[..., 2:]
        d0, d1, e1, e0 = gaps[0], gaps[min(1, n - 2)], gaps[-1], gaps[max(n - 3, 0)]
    if order == 1:
        first, last = (f[..., 1:2] - f[..., :1]) / d0, (f[..., -1:] - f[..., -2:-1]) / e1
    else:
        first = _end_slope(f[..., :1], f[..., 1:2], f[..., 2:3], d0, d1)
        last = -_end_slope(f[..., -1:], f[..., -2:-1], f[..., -3:-2], e1, e0)
    return moveaxis(concat([first, inner, last], -1), -1, axis)


def _end_slope(a: Array, b: Array, c: Array, p: Array, q: Array) -> Array:
    """Return the slope at the first of three points with gaps p and q."""
    return -(2 * p + q) / (p * (p + q)) * a + (p + q) / (p * q) * b - p / (q * (p + q)) * c


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """Return the integral along an axis by the trapezoidal rule, for coordinates x or spacing `dx`.

    Type:   x has the size of the axis, or a shape that broadcasts to that of y. `dx` broadcasts to the shape of y with
            one element less along the axis.
    """
    array = as_array("trapezoid", y)
    k = normalize_axis_index("trapezoid", axis, array.ndim)
    if x is None:
        return jit_composite(
            _trapezoid, array, None, *promote_arguments("trapezoid", dx, first=2, dtype=_inexact_dtype_of(array)), k
        )
    at = as_array("trapezoid", x, 1)
    if at.ndim == 1 and at.shape != (array.shape[k],):
        raise ShapeError(f"trapezoid: coordinates {at.aval} for axis {axis} of {array.aval}")
    # the axis counts in the axes of x, as in NumPy, and x may have fewer than y: a negative number is right for both
    return jit_composite(_trapezoid, array, at, None, axis if at.ndim > 1 else k)


def _inexact_dtype_of(x: Array) -> dtypes.DType:
    return promotion.to_inexact_dtype(x.dtype)


def _trapezoid(y: Array, x: Array | None, dx: Array | None, axis: int) -> Array:
    dtype = result_type(_inexact_dtype_of(y), *[v for v in (x, dx) if v is not None])
    y = y.astype(dtypes.accumulated(_inexact_dtype_of(y)))
    n = y.shape[axis]
    both = lax.slice_in_dim(y, 1, n, axis=axis) + lax.slice_in_dim(y, 0, max(n - 1, 0), axis=axis)
    if x is not None:
        if x.dtype in dtypes.INTEGER:  # differences of narrow or unsigned integers need not fit
            x = x.astype(dtypes.int64)
        gaps = diff(x).reshape([-1] + [1] * (y.ndim - axis - 1)) if x.ndim == 1 else diff(x, axis=axis)
        both = both * gaps.astype(dtypes.accumulated(promotion.to_inexact_dtype(result_type(y, gaps))))
    return ((both if dx is None else both * dx).sum(axis) / 2).astype(dtype)


def unwrap(
    p: ArrayLike, discont: float | Array | None = None, axis: int = -1, period: float | Array = 2 * math.pi
) -> Array:
    """Return p with multiples of the period added, so that adjacent elements along an axis differ by at most half a
    period wherever they differ by at least `discont` (by default half a period)."""
    period = period if isinstance(period, Array) else plain_ints(period)
    if not isinstance(period, int):  # an integer period of integers gives integers
        period = number_or_array("unwrap", "period", period)
    discont = None if discont is None else number_or_array("unwrap", "discont", discont)
    array = as_array("unwrap", p)
    if array.dtype in dtypes.COMPLEX:
        raise DTypeError(f"unwrap: takes real values, got {array.aval}")
    return jit_composite(_unwrap, array, discont, normalize_axis_index("unwrap", axis, array.ndim), period)


def _unwrap(p: Array, discont: float | Array | None, axis: int, period: float | Array) -> Array:
    whole = p.dtype in dtypes.INTEGER and (
        period.dtype in dtypes.INTEGER if isinstance(period, Array) else isinstance(period, int)
    )
    p = moveaxis(p if whole else p.astype(_inexact_dtype_of(p)), axis, -1)
    step = diff(p)
    half = period // 2 if whole else period / 2
    moved = remainder(step + half, period) - half
    ambiguous = not whole or period % 2 == 0
    if isinstance(ambiguous, Array) or ambiguous:  # half a period up stays half a period up
        moved = where((moved == -half) & (step > 0) & ambiguous, half, moved)
    change = where(abs(step) < (period / 2 if discont is None else discont), 0, moved - step)
    out = concat([p[..., :1], p[..., 1:] + cumsum(change, -1).astype(p.dtype)], -1)
    return moveaxis(out, -1, axis)


# ---------------------------------------------------------------------------------------------------------- windows


def bartlett(M: int) -> Array:
    """Return the triangular (Bartlett) window of M points, as float32."""
    return _window_function("bartlett", M)


def blackman(M: int) -> Array:
    """Return the Blackman window of M points, as float32: three terms of a cosine series."""
    return _window_function("blackman", M)


def hamming(M: int) -> Array:
    """Return the Hamming window of M points, as float32: a raised cosine with offset."""
    return _window_function("hamming", M)


def hanning(M: int) -> Array:
    """Return the Hann window of M points, as float32: a raised cosine."""
    return _window_function("hanning", M)


def kaiser(M: int, beta: ArrayLike) -> Array:
    """Return the Kaiser window of M points, as float32 or in the dtype of `beta`: a Bessel function."""
    n = _point_count("kaiser", M)
    b = as_array("kaiser", beta, 1)
    if b.ndim:
        raise ShapeError(f"kaiser: beta must be one number, got {b.aval}")
    b = b if b.dtype in dtypes.FLOATING else b.astype(dtypes.float32)
    return _kaiser(n, b) if type(n) is Size else jit_composite(_kaiser, n, b)


def _point_count(name: str, M: int) -> int:
    if type(M) is Size:
        return M
    M = to_int(name, "the number of points", M)
    return max(int(M), 0)


def _window_function(name: str, M: int) -> Array:
    n = _point_count(name, M)
    if type(n) is Size:
        return where(as_array(name, n) == 1, 1, _window_values(n, name))
    return ones((n,)) if n <= 1 else jit_composite(_window_values, n, name)


def _window_values(n: int, name: str) -> Array:
    k = lax.iota(dtypes.float64, n)
    steps = _step_count(n)
    turn = 2 * math.pi / steps * k
    if name == "bartlett":
        out = 1 - abs(k * (2 / steps) - 1)
    elif name == "blackman":
        out = 0.42 - 0.5 * cos(turn) + 0.08 * cos(2 * turn)
    else:
        base = 0.54 if name == "hamming" else 0.5
        out = base - (1 - base) * cos(turn)
    return out.astype(dtypes.float32)


def _step_count(n: int) -> float | Array:
    """Return the number of steps between n points; 1 for a size of 1 that is not known while a program is traced."""
    if type(n) is not Size:
        return n - 1
    count = as_array("window", n).astype(dtypes.float64)
    return where(count > 1, count - 1, 1)


def _kaiser(n: int, beta: Array) -> Array:
    if type(n) is not Size and n <= 1:
        return full((n,), 1, beta.dtype)
    b, steps = beta.astype(dtypes.float64), _step_count(n)
    middle = steps / 2
    off = (lax.iota(dtypes.float64, n) - middle) / middle
    if type(n) is Size:
        off = where(as_array("kaiser", n) == 1, 0, off)
    return (i0(b * sqrt(clip(1 - off * off, 0))) / i0(b)).astype(beta.dtype)


__all__ = [
    "bartlett", "blackman", "convolve", "correlate", "gradient", "hamming", "hanning", "interp", "kaiser", "trapezoid",
    "unwrap",
]  # fmt: skip
