"""Histograms and bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import lower_bound
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError, described, shown
from fxad.lax.placement import place_like_operands
from fxad.numpy.apply import as_array
from fxad.numpy.binary import where
from fxad.numpy.composites import jit_composite, promote_arguments
from fxad.numpy.creation import Nested, asarray, full, linspace, ones
from fxad.numpy.reductions import amax, amin
from fxad.numpy.shapes import broadcast_to, diff, flip, stack
from fxad.numpy.sorting import searchsorted
from fxad.numpy.types import result_type
from fxad.numpy.unary import isnan
from fxad.numpy.value_dependent import concrete_value
from fxad.operations import promotion
from fxad.operations.arguments import by_numpy, check_real, flag, is_one_integer, text, to_int, to_tuple
from fxad.primitives.index import index_dtype
from fxad.tracing.array import Array, ArrayLike

Bins: TypeAlias = "int | str | ArrayLike | Sequence[float]"
Range: TypeAlias = "Sequence[ArrayLike] | None"


def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *, length: int | None = None) -> Array:
    """Return the number of occurrences of 0, 1, 2, ... in a vector of integers, or the sum of their `weights`.

    Type:   int32 (int64 if a count may not fit), or the dtype of the weights (float32 for integer weights).
    Rule:   `length` is the size of the result; numbers outside [0, length) are ignored. Without it the size is the
            largest number plus 1, at least `minlength`; it depends on the values, so the function cannot be traced.
    """
    minlength = to_int("bincount", "minlength", minlength)
    length = None if length is None else to_int("bincount", "length", length)
    array = as_array("bincount", x)
    if array.ndim != 1 or array.dtype in dtypes.INEXACT:
        raise DTypeError(f"bincount: takes a vector of integers, got {array.aval}")
    w = None if weights is None else as_array("bincount", weights, 1)
    if w is not None and w.shape != array.shape:
        raise ShapeError(f"bincount: weights {w.aval} for {array.aval}")
    if length is None:
        values = concrete_value("bincount", x, "say length=: how many numbers to count")
        if values.size and values.min() < 0:
            raise ParameterError(f"bincount: {values.min()} is below 0")
        length = max(minlength, int(values.max()) + 1 if values.size else 0)
    elif length < 0:
        raise ParameterError(f"bincount: length {length} is below 0", remedy="give the size of the result")
    return jit_composite(_count_bins, array, w, length)


def _count_bins(x: Array, w: Array | None, n: int) -> Array:
    """Return the number of occurrences of each of n numbers in x; others are ignored."""
    if w is None:
        w = full((), 1, index_dtype((x.size,)))
    elif w.dtype not in dtypes.INEXACT:
        w = w.astype(dtypes.float32)
    if x.dtype is dtypes.bool_ or x.dtype.itemsize < 4:
        x = x.astype(dtypes.int32)
    if n == 0:
        return full((n,), 0, w.dtype)
    wide = dtypes.accumulated(w.dtype)  # bfloat16 counts to 256
    # numbers below 0 would count from the end
    kept = where((x >= 0) & (x < n), x, n)
    return full((n,), 0, wide).at[kept].add(w.astype(wide), mode="drop").astype(w.dtype)


def digitize(
    x: ArrayLike, bins: ArrayLike | Sequence[float], right: bool = False, *, method: str | None = None
) -> Array:
    """Return the index of the bin of each element: 0 before the first edge. The edges ascend or descend.

    Rule:   an element on an edge belongs to the bin above it, or to the bin below it if `right`.
    Cost:   `method` is that of `searchsorted`.
    """
    method = "scan" if method is None else text("digitize", "method", method)
    right = flag("digitize", "right", right)
    array = as_array("digitize", x)
    _check_order("digitize", bins, False)
    edges = _edges_array(bins, array)
    array, edges = promote_arguments("digitize", x, edges)
    if edges.ndim != 1:
        raise ShapeError(f"digitize: bins must have one axis, got {edges.aval}")
    check_real("digitize", array.aval, edges.aval)
    return jit_composite(_digitize, array, edges, right, method)


def _digitize(x: Array, edges: Array, right: bool, method: str) -> Array:
    if not edges.size:
        return full(x.shape, 0)
    side = "left" if right else "right"
    up = searchsorted(edges, x, side, method=method)
    down = edges.size - searchsorted(flip(edges), x, side, method=method)
    return where((edges[0] <= edges[-1]) | isnan(edges[-1]), up, down)


def _edges_array(edges: object, x: Array) -> Array:
    """Return edges as an array. Python numbers take the dtype of x."""
    listed = isinstance(edges, list | tuple) and x.dtype in dtypes.FLOATING
    return asarray(cast("Nested", edges), x.dtype if listed else None)


def _check_order(name: str, bins: object, ascending: bool) -> None:
    """Raise ParameterError for edges whose values are at hand and neither ascend nor, unless they must, descend."""
    if not isinstance(bins, list | tuple | np.ndarray):
        return
    plain = isinstance(bins, np.ndarray) or all([isinstance(b, int | float | np.generic) for b in bins])
    values = np.asarray(bins) if plain else np.zeros(0)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        return
    if np.any(values[:-1] > values[1:]) and (ascending or np.any(values[:-1] < values[1:])):
        rule = "ascend" if ascending else "ascend or descend"
        raise ParameterError(f"{name}: bins {shown(bins, 60)} must {rule}")


# ------------------------------------------------------------------------------------------------------- histograms


def histogram_bin_edges(a: ArrayLike, bins: Bins = 10, range: Range = None, weights: ArrayLike | None = None) -> Array:
    """Return the bin edges that `histogram` uses: the given edges, or `bins` bins of equal width over a range.

    Rule:   the default range is from the least to the greatest element, or of width 1 around them if they are equal.
            With the name of one of NumPy's estimators the number of bins depends on the values, so the function cannot
            be traced.
    """
    array = as_array("histogram_bin_edges", a)
    check_real("histogram_bin_edges", array.aval)
    _check_weights("histogram_bin_edges", bins, weights)  # the edges do not depend on them
    return _edges("histogram_bin_edges", array, bins, range, a)


def _check_weights(name: str, bins: object, weights: object) -> None:
    if isinstance(bins, str) and weights is not None:
        raise ArgumentError(
            f"{name}: bins {shown(bins)} with weights: the estimators of NumPy do not read them",
            remedy="give the number of bins, or the edges",
        )


def _edges(name: str, x: Array, bins: object, range: Range, value: ArrayLike | None = None) -> Array:
    if range is not None and len(to_tuple(name, "range", range)) != 2:
        raise ParameterError(f"{name}: range must be (least, greatest), got {shown(range)}")
    if isinstance(bins, str):
        values = concrete_value(name, x if value is None else value, "say how many bins there are")
        limits = None if range is None else (float(np.asarray(range[0])), float(np.asarray(range[1])))
        return place_like_operands(
            name, (x,), asarray(by_numpy(name, np.histogram_bin_edges, values, bins, limits)).astype(_edge_dtype(x))
        )
    if is_one_integer(bins):
        bins = to_int(name, "bins", cast("int", bins))
        if bins < 1:
            raise ParameterError(f"{name}: {bins} bins; there must be at least 1")
        if range is None:
            return jit_composite(_even_edges, x, None, None, int(bins))
        low, high = range
        if isinstance(low, int | float) and isinstance(high, int | float) and not low <= high:
            raise ParameterError(f"{name}: range from {low} to {high}: the first must not be the greater one")
        if any([isinstance(v, float) and math.isinf(v) for v in (low, high)]):
            raise ParameterError(f"{name}: range from {low} to {high}: both must be finite")
        if type(low) in (int, float) and type(high) in (int, float):
            # rounded once, as in NumPy: a number that is an edge, such as 0.7, is in the bin that it opens
            known = cast("tuple[float, float]", (low, high))
            return asarray(np.histogram_bin_edges([], bins, known).astype(_edge_dtype(x)))
        ends = [asarray(v, _edge_dtype(x)) for v in (low, high)]
        return jit_composite(_even_edges, x, *ends, int(bins))
    _check_order(name, bins, True)
    edges = _edges_array(bins, x)
    if edges.ndim != 1 or edges.dtype in dtypes.COMPLEX:
        raise ArgumentError(f"{name}: bins must be an int or a vector of edges, got {described(bins)}")
    return edges


def _edge_dtype(x: Array) -> dtypes.DType:
    return x.dtype if x.dtype in dtypes.FLOATING else dtypes.float32


def _even_edges(x: Array, low: Array | None, high: Array | None, bins: int) -> Array:
    dtype = _edge_dtype(x)
    if low is None or high is None:
        low, high = (amin(x), amax(x)) if x.size != 0 else (full((), 0.0, dtype), full((), 1.0, dtype))
        if not lower_bound(x.size) and x.size != 0:  # a size that may be 0
            some = asarray(x.size) > 0
            low, high = where(some, low, 0), where(some, high, 1)
    low, high = low.astype(dtype), high.astype(dtype)
    one = low == high
    return linspace(where(one, low - 0.5, low), where(one, high + 0.5, high), bins + 1)


def histogram(
    a: ArrayLike,
    bins: Bins = 10,
    range: Range = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Return the number of elements in each bin, or the sum of their weights, and the bin edges.

    Type:   int32, or the dtype of the weights (int32 for bools); floating for `density`.
    Rule:   a bin includes its left edge; the last bin also includes its right edge. Elements outside are ignored.
            `density` divides by the total and by the width of each bin, so the integral is 1.
    """
    density = flag("histogram", "density", density)
    array = as_array("histogram", a)
    check_real("histogram", array.aval)
    _check_weights("histogram", bins, weights)
    edges = _edges("histogram", array, bins, range, a)
    w = None if weights is None else as_array("histogram", weights, 4)
    if w is not None and w.shape != array.shape:
        raise ShapeError(f"histogram: weights {w.aval} for {array.aval}")
    return jit_composite(_histogram, array.reshape(-1, 1), w if w is None else w.reshape(-1), density, edges), edges


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Bins | Sequence[Bins] = 10,
    range: Sequence[Range] | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """Return `histogram` of points (x, y): the counts, and the edges along both axes. `bins` is for both axes, or a
    pair: a sequence or an array of two."""
    density = flag("histogram2d", "density", density)
    a, b = as_array("histogram2d", x), as_array("histogram2d", y, 1)
    if a.ndim != 1 or a.shape != b.shape:
        raise ShapeError(f"histogram2d: takes two vectors of one size, got {a.aval} and {b.aval}")
    each = list(cast("Sequence[Bins]", bins)) if _is_pair(bins) else [bins, bins]
    counts, edges = histogramdd(stack([a, b], 1), cast("int | Sequence[Bins]", each), range, density, weights)
    return counts, edges[0], edges[1]


def _is_pair(bins: object) -> bool:
    """Return True for a sequence or an array of two, which has one for each axis, as in NumPy."""
    if isinstance(bins, Sequence):
        return not isinstance(bins, str) and len(bins) == 2
    return getattr(bins, "shape", ()) == (2,)


def histogramdd(
    sample: ArrayLike | Sequence[ArrayLike],
    bins: int | Sequence[Bins] = 10,
    range: Sequence[Range] | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, tuple[Array, ...]]:
    """Return `histogram` of points, given as the rows of a matrix or as a sequence of coordinate vectors: the counts,
    and the edges along each axis. `bins` and `range` are for all axes, or one for each."""
    density = flag("histogramdd", "density", density)
    if isinstance(sample, Sequence):
        points = stack([as_array("histogramdd", s, k) for k, s in enumerate(sample)], 1)
    else:
        points = as_array("histogramdd", sample)
    points = points.reshape(-1, 1) if points.ndim == 1 else points
    check_real("histogramdd", points.aval)
    if points.ndim != 2:
        raise ShapeError(f"histogramdd: points must be the rows of a matrix, got {points.aval}")
    d = points.shape[1]
    each = [bins] * d if is_one_integer(bins) else list(to_tuple("histogramdd", "bins", cast("Sequence[Bins]", bins)))
    limits = [None] * d if range is None else list(to_tuple("histogramdd", "range", range))
    if len(each) != d or len(limits) != d:
        raise ShapeError(f"histogramdd: {len(each)} bins and {len(limits)} ranges for points of {d} coordinates")
    columns = zip(each, limits, strict=True)
    edges = tuple([_edges("histogramdd", points[:, k], b, r) for k, (b, r) in enumerate(columns)])
    w = None if weights is None else as_array("histogramdd", weights, 4)
    if w is not None and w.shape != points.shape[:1]:
        raise ShapeError(f"histogramdd: weights {w.aval} for {points.shape[0]} points")
    return jit_composite(_histogram, points, w, density, *edges), edges


def _histogram(points: Array, w: Array | None, density: bool, *edges: Array) -> Array:
    shape = tuple([e.size - 1 for e in edges])
    place, inside = full((points.shape[0],), 0), full((points.shape[0],), True)
    for k, e in enumerate(edges):
        x = points[:, k]
        at = searchsorted(e, x, "right")
        at = where(x == e[-1], shape[k], at)
        inside = inside & (at >= 1) & (at <= shape[k])
        place = place * shape[k] + at - 1
    n = int(np.prod(shape))
    weights = ones(place.shape, index_dtype((points.shape[0],))) if w is None else w
    weights = weights.astype(dtypes.int32) if weights.dtype is dtypes.bool_ else weights  # + of bools is "or"
    counts = full((n,), 0, weights.dtype).at[where(inside, place, n)].add(weights, mode="drop").reshape(shape)
    if not density:
        return counts
    out = counts.astype(
        result_type(*[_edge_dtype(e) for e in edges], *([] if w is None else [promotion.to_inexact_dtype(w.dtype)]))
    )
    for k, e in enumerate(edges):
        size = diff(e).astype(out.dtype)
        out = out / broadcast_to(size.reshape([-1 if a == k else 1 for a in range(len(shape))]), shape)
    return out / counts.sum().astype(out.dtype)


__all__ = ["bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]
