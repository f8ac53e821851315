"""Padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import Size
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.binary import subtract
from fxad.numpy.composites import jit_composite
from fxad.numpy.creation import Nested, asarray, linspace
from fxad.numpy.functional import apply_along_axis
from fxad.numpy.reductions import amax, amin, mean
from fxad.numpy.shapes import broadcast_to, concat, flip
from fxad.numpy.statistics import median
from fxad.numpy.unary import round
from fxad.operations import shapes
from fxad.operations.arguments import by_numpy, text
from fxad.operations.axes import normalize_axis_index
from fxad.primitives.axes import replace_entry
from fxad.tracing.array import Array, ArrayLike

Widths: TypeAlias = "int | Sequence[int] | Sequence[Sequence[int]] | Mapping[int, int | Sequence[int]]"
PadWidths: TypeAlias = "tuple[tuple[int, int], ...]"

MODES: Final = (
    "constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap", "empty",
)  # fmt: skip
# The modes that take each of the arguments that not all take.
_TAKEN_BY: Final = MappingProxyType(
    {
        "constant_values": ("constant",),
        "end_values": ("linear_ramp",),
        "stat_length": ("maximum", "mean", "median", "minimum"),
        "reflect_type": ("reflect", "symmetric"),
    }
)


def pad(
    array: ArrayLike,
    pad_width: Widths,
    mode: str | Callable[..., ArrayLike] = "constant",
    *,
    constant_values: ArrayLike | Sequence[ArrayLike] | Sequence[Sequence[ArrayLike]] | None = None,
    end_values: ArrayLike | Sequence[ArrayLike] | Sequence[Sequence[ArrayLike]] | None = None,
    stat_length: int | Sequence[int] | Sequence[Sequence[int]] | None = None,
    reflect_type: str | None = None,
    **kwargs: object,
) -> Array:
    """Pad an array. `pad_width` is one width, (before, after), one pair for each axis, or {axis: widths}.

    Rule:   "constant" pads with `constant_values`, "edge" with the outermost element, "wrap" with elements of the other
            end; "reflect" and "symmetric" with the mirrored array, without and with its outermost element
            (`reflect_type` "odd": rotated around that element); "linear_ramp" with steps to `end_values`; "maximum",
            "mean", "median" and "minimum" with that statistic of the `stat_length` outermost elements, or of all;
            "empty" with zeros. Values and lengths have the forms of `pad_width`. A function gives the rows along each
            axis in turn: `mode(row, (before, after), axis, kwargs)`, where the row is padded with zeros.
    Raises: ParameterError for an argument that the mode does not take; ShapeError for widths that do not fit, and for
            an empty axis that is mirrored.
    """
    x = as_array("pad", array)
    widths = _widths(pad_width, x)
    if callable(mode):
        x = _pad_constant(x, widths, 0)
        for axis, width in enumerate(widths):
            x = cast("Array", apply_along_axis(mode, axis, x, width, axis, kwargs))
        return x
    mode = text("pad", "mode", mode)
    if kwargs:
        raise ParameterError(
            f"pad: takes no {next(iter(kwargs))}", remedy="further arguments are for a function as the mode"
        )
    if mode not in MODES:
        raise ParameterError(f"pad: mode {shown(mode)} is not one of fxad's", remedy=f"use one of {' '.join(MODES)}")
    options = {
        "constant_values": constant_values, "end_values": end_values, "stat_length": stat_length,
        "reflect_type": reflect_type,
    }  # fmt: skip
    for name, modes in _TAKEN_BY.items():
        if options[name] is not None and mode not in modes:
            raise ParameterError(
                f"pad: mode {mode!r} takes no {name}", remedy=f"leave it out: it is for {' '.join(modes)}"
            )
    if reflect_type not in (None, "even", "odd"):
        raise ParameterError(f"pad: reflect_type {shown(reflect_type)} is not 'even' or 'odd'")
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, 0 if constant_values is None else constant_values)
    for axis, (n, width) in enumerate(zip(x.shape, widths, strict=True)):
        if n == 0 and any([w != 0 for w in width]):
            raise ShapeError(
                f"pad: axis {axis} of {x.aval} is empty: there is nothing to pad with in mode {mode!r}",
                remedy="use mode='constant'",
            )
    if mode == "linear_ramp":
        return jit_composite(
            _pad_linear_ramp, x, _per_side("end_values", 0 if end_values is None else end_values, x), widths
        )
    if mode in ("maximum", "mean", "median", "minimum"):
        return jit_composite(_pad_statistic, x, widths, mode, _lengths(stat_length, x))
    if mode == "edge":
        return jit_composite(_pad_edges, x, widths)
    return jit_composite(_pad_mirrored, x, widths, mode, reflect_type == "odd")


# -------------------------------------------------------------------------------------------------------- arguments


def _widths(given: Widths, x: Array) -> PadWidths:
    if isinstance(given, Mapping):
        by_axis = [(0, 0)] * x.ndim
        for axis, width in given.items():
            k = normalize_axis_index("pad", axis, x.ndim)
            by_axis[k] = _pairs(f"widths of axis {axis}", width, 1, "int, or one pair")[0]
        pairs = tuple(by_axis)
    else:
        pairs = _pairs("widths", given, x.ndim, f"pair, or one for each of the axes of {x.aval}")
    if any([at_least(-1 - n, 0) for pair in pairs for n in pair]):
        raise ShapeError(f"pad: widths {shown(given)} must not be below 0", remedy="slice the array to make it smaller")
    return pairs


def _pairs(what: str, given: object, count: int, forms: str) -> PadWidths:
    """Return pairs of ints, from one int, one pair, or `count` pairs."""
    if isinstance(given, Array):
        raise ArgumentError(
            f"pad: {what} must be ints, got {described(given)}",
            remedy="sizes are static: they cannot depend on the values of arrays",
        )
    array = by_numpy("pad", np.asarray, given)
    try:
        pairs = np.broadcast_to(array if array.size else array.reshape(-1, 2), (count, 2)).tolist()
    except ValueError:
        raise ShapeError(f"pad: {what} {shown(given)} are not one {forms}") from None
    if not all([type(n) in (int, Size) for pair in pairs for n in pair]):
        raise ParameterError(f"pad: {what} {shown(given)} must be ints")
    return tuple([(a, b) for a, b in pairs])


def _lengths(given: int | Sequence[int] | Sequence[Sequence[int]] | None, x: Array) -> PadWidths:
    """Return the number of elements at each end that a statistic uses; all for None."""
    if given is None:
        return tuple([(n, n) for n in x.shape])
    pairs = _pairs("stat_length", given, x.ndim, f"pair, or one for each of the axes of {x.aval}")
    if any([k < 1 for pair in pairs for k in pair]):
        raise ParameterError(f"pad: stat_length {given} must be at least 1")
    return tuple([(min(a, n), min(b, n)) for (a, b), n in zip(pairs, x.shape, strict=True)])


def _per_side(name: str, values: object, x: Array) -> Array:
    """Return values for both ends of each axis of x, as an array of shape (ndim, 2) in the dtype of x."""
    array, ndim = asarray(cast("Nested", values), x.dtype), x.ndim
    if array.shape not in ((), (1,), (2,), (ndim, 1), (1, 2), (ndim, 2), (1, 1)):
        raise ShapeError(f"pad: {name} of shape {array.shape} are not one pair, or one for each of {ndim} axes")
    return broadcast_to(array, (ndim, 2))


# ------------------------------------------------------------------------------------------------------------ modes


def _pad_constant(x: Array, widths: PadWidths, values: object) -> Array:
    if isinstance(values, bool | int | float | complex) or (isinstance(values, Array | np.ndarray) and not values.ndim):
        return apply_op("pad", shapes.pad, (x, values), widths)
    return jit_composite(_pad_constants, x, _per_side("constant_values", values, x), widths)


def _pad_constants(x: Array, values: Array, widths: PadWidths) -> Array:
    none = [(0, 0)] * x.ndim
    for axis, (before, after) in enumerate(widths):
        for side, width in enumerate(((before, 0), (0, after))):
            if width != (0, 0):
                each = replace_entry(none, axis, width)
                x = apply_op("pad", shapes.pad, (x, values[axis, side]), each)
    return x


def _slice_axis(x: Array, axis: int, start: int, stop: int) -> Array:
    return x[(*[slice(None)] * axis, slice(start, stop))]


def _repeat_axis(x: Array, axis: int, n: int) -> Array:
    """Repeat an array of size 1 along an axis n times."""
    return broadcast_to(x, replace_entry(x.shape, axis, n))


def _pad_edges(x: Array, widths: PadWidths) -> Array:
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        first, last = _slice_axis(x, axis, 0, 1), _slice_axis(x, axis, n - 1, n)
        x = _concat_nonempty([_repeat_axis(first, axis, before), x, _repeat_axis(last, axis, after)], axis)
    return x


def _concat_nonempty(parts: list[Array], axis: int) -> Array:
    kept = [p for p in parts if p.shape[axis] != 0]
    return concat(kept, axis) if kept else parts[0]


def _pad_linear_ramp(x: Array, ends: Array, widths: PadWidths) -> Array:
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        first, last = _slice_axis(x, axis, 0, 1).squeeze(axis), _slice_axis(x, axis, n - 1, n).squeeze(axis)
        up = linspace(ends[axis, 0], first, before, endpoint=False, dtype=x.dtype, axis=axis)
        down = linspace(ends[axis, 1], last, after, endpoint=False, dtype=x.dtype, axis=axis)
        x = _concat_nonempty([up, x, flip(down, axis)], axis)
    return x


def _pad_statistic(x: Array, widths: PadWidths, mode: str, lengths: PadWidths) -> Array:
    statistics: dict[str, Callable[..., Array]] = {"maximum": amax, "minimum": amin, "mean": mean, "median": median}
    of = statistics[mode]
    for axis, ((before, after), (few, many)) in enumerate(zip(widths, lengths, strict=True)):
        n = x.shape[axis]
        ends = [of(w, axis, keepdims=True) for w in (_slice_axis(x, axis, 0, few), _slice_axis(x, axis, n - many, n))]
        if x.dtype in dtypes.INTEGER and mode in ("mean", "median"):
            ends = [round(e) for e in ends]
        first, last = [e.astype(x.dtype) for e in ends]
        x = _concat_nonempty([_repeat_axis(first, axis, before), x, _repeat_axis(last, axis, after)], axis)
    return x


def _pad_mirrored(x: Array, widths: PadWidths, mode: str, odd: bool) -> Array:
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        if mode == "reflect" and n == 1:  # a single element is its own mirror image
            x = _pad_edges(x, tuple([(before, after) if a == axis else (0, 0) for a in range(x.ndim)]))
            continue
        left, right = (
            _mirrored_blocks(x, axis, mode, odd, -before, 0),
            _mirrored_blocks(x, axis, mode, odd, n, n + after),
        )
        x = _concat_nonempty([*left, x, *right], axis)
    return x


def _mirrored_blocks(x: Array, axis: int, mode: str, odd: bool, start: int, stop: int) -> list[Array]:
    """Return the slice from `start` to `stop` of the infinite repetition of x, as a list of blocks. Block k is mirrored
    for odd k, except for "wrap"."""
    n = x.shape[axis]
    period = n - 1 if mode == "reflect" else n
    out = []
    while start < stop:
        k, first = _quotient_and_rest(start, period)
        last = min(period, first + stop - start)
        if mode == "wrap" or k % 2 == 0:
            part = _slice_axis(x, axis, first, last)
        else:
            part = flip(_slice_axis(x, axis, n - last, n - first), axis)
        if odd and mode != "wrap":
            part = _odd_reflection(x, part, axis, k)
        out.append(part)
        start += last - first
    return out


def _quotient_and_rest(start: int, period: int) -> tuple[int, int]:
    """Return the quotient and the rest. Whole periods of a named size are subtracted first: n // (n - 1) is not
    decided, and 1 // (n - 1) is 0 for n >= 3."""
    k = 0
    while type(period) is Size and at_least(start - period, 0):
        start, k = start - period, k + 1
    quotient, rest = divmod(start, period)
    return k + quotient, rest


def _odd_reflection(x: Array, part: Array, axis: int, k: int) -> Array:
    """Return block k of the odd reflection: each block continues at the distance between the two ends."""
    n = x.shape[axis]
    low, high = _slice_axis(x, axis, 0, 1), _slice_axis(x, axis, n - 1, n)
    far, near, m = (high, low, k) if k > 0 else (low, high, -k)
    if k % 2 == 0:
        return part + m * (far - near) if m else part
    # the mirror image at the first end has no term of the other end, which may be nan
    ends = far + far if m == 1 else (m + 1) * far - (m - 1) * near
    return subtract(ends, part)
