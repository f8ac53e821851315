"""Images of any number of axes, as in `scipy.ndimage`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from fxad import dtypes, numpy as fnp
from fxad.errors import ParameterError, ShapeError
from fxad.ir import NDArray
from fxad.numpy.apply import as_array
from fxad.numpy.composites import jit_composite, promote_arguments
from fxad.operations.arguments import to_int, to_tuple, word
from fxad.operations.promotion import to_inexact_dtype
from fxad.tracing.array import Array, ArrayLike

_MODES: Final = ("constant", "nearest", "mirror", "wrap", "reflect")
_SYNONYMS: Final = MappingProxyType({"grid-constant": "constant", "grid-wrap": "wrap", "grid-mirror": "reflect"})


def map_coordinates(
    input: ArrayLike,  # noqa: A002 -- SciPy's name
    coordinates: Array | NDArray | Sequence[ArrayLike],
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Array:
    """Return the values of an array at places between its elements.

    Type:   one array of coordinates for each axis; the result has their shape, and the dtype of the input. `order` is 0
            (the nearest element) or 1 (linear interpolation).
    Rule:   beyond the edges the array is continued: with `cval` ("constant", SciPy's "grid-constant"), with the last
            element ("nearest"), periodically ("wrap", SciPy's "grid-wrap"), mirrored about the last element ("mirror")
            or about its outer edge ("reflect"). These are the modes of `jax.scipy.ndimage`.
    Raises: ParameterError for another order or mode; ShapeError.
    """
    array = as_array("map_coordinates", input)
    mode = _SYNONYMS.get(mode, mode) if isinstance(mode, str) else mode
    word("map_coordinates", "mode", mode, _MODES)
    order = to_int("map_coordinates", "order", order)
    if order not in (0, 1):
        raise ParameterError(f"map_coordinates: order {order}", remedy="orders 0 and 1 are there")
    per_axis = to_tuple("map_coordinates", "coordinates", coordinates)
    if len(per_axis) != array.ndim:
        raise ShapeError(
            f"map_coordinates: coordinates of {len(per_axis)} axes for {array.aval}",
            remedy="give one array of coordinates for each axis",
        )
    given = promote_arguments("map_coordinates", *per_axis)
    places = [place.astype(fnp.result_type(*given)) for place in given]
    if array.size == 0:
        raise ShapeError(f"map_coordinates: the array is empty: {array.aval}", remedy="give at least one element")
    fill = as_array("map_coordinates", cval, 4)
    return jit_composite(_interpolated, array, fill, order, mode, *fnp.broadcast_arrays(*places))


def _interpolated(array: Array, cval: Array, order: int, mode: str, *places: Array) -> Array:
    wide = to_inexact_dtype(fnp.promote_types(array.dtype, places[0].dtype if places else dtypes.float32))
    dtype = dtypes.float32 if wide in dtypes.FLOATING and wide.itemsize < 4 else wide
    whole = order == 0 or not places or places[0].dtype in dtypes.INTEGER
    if whole:  # the elements themselves
        dtype = array.dtype
    values, fill = array.astype(dtype), _to_dtype(cval, dtype) if whole else cval.astype(dtype)
    if whole and not places:
        return values
    total = fnp.zeros(places[0].shape if places else (), dtype)
    for corner in itertools.product(*[_neighbors(x, order) for x in places]):
        inside: Array | None = None
        index = []
        for (at, _), size in zip(corner, array.shape, strict=True):
            if mode == "constant":
                fits = (at >= 0) & (at < size)
                inside = fits if inside is None else inside & fits
            index.append(_continued(at, size, mode))
        corner_values = values[tuple(index)]
        corner_values = corner_values if inside is None else fnp.where(inside, corner_values, fill)
        if whole:
            return corner_values
        weight = math.prod(
            [w for _, w in corner if w is not None], start=fnp.ones((), places[0].real.dtype) if places else 1
        )
        total = total + corner_values * weight
    return _to_dtype(total, array.dtype)


def _neighbors(x: Array, order: int) -> list[tuple[Array, Array | None]]:
    """Return the elements next to a place along one axis, and their weights."""
    wide = dtypes.int64 if x.dtype.itemsize == 8 else dtypes.int32
    if x.dtype in dtypes.INTEGER:  # widened: an index of 8 bits cannot be reflected in an axis of 200
        return [(x.astype(wide), None)]
    if order == 0:  # half away from 0
        return [((fnp.sign(x) * fnp.floor(fnp.abs(x) + 0.5)).astype(wide), None)]
    low = fnp.floor(x)
    share = x - low
    return [(low.astype(wide), 1 - share), (low.astype(wide) + 1, share)]


def _continued(at: Array, size: int, mode: str) -> Array:
    """Return the element that stands at an index beyond the edges."""
    if mode == "wrap":
        return at % size
    if mode == "mirror":
        last = max(size - 1, 1)
        return fnp.minimum(fnp.abs((at + last) % (2 * last) - last), size - 1)
    if mode == "reflect":  # about the outer edges, -1/2 and n - 1/2
        folded = at % (2 * size)
        return fnp.minimum(folded, 2 * size - 1 - folded)
    return fnp.clip(at, 0, size - 1)


def _to_dtype(x: Array, dtype: dtypes.DType) -> Array:
    """Convert values. Integers are rounded as in SciPy: half away from 0, and cut to the range of the dtype."""
    if dtype not in dtypes.INTEGER or x.dtype not in dtypes.FLOATING:
        return x.astype(dtype)
    low, high = dtypes.RANGES[dtype]
    nearest = fnp.trunc(x + fnp.where(x > 0, 0.5, -0.5).astype(x.dtype))
    return fnp.where(nearest >= high, high, fnp.where(nearest <= low, low, nearest.astype(dtype))).astype(dtype)
