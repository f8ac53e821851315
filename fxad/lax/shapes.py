"""Shape functions, slices, and windows at static and dynamic positions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Hashable, Sequence
from typing import Final, TypeVar, cast

import numpy as np

from fxad.core.builder import Builder
from fxad.core.lru import LRUCache
from fxad.core.sizes.size import dimension, maximum
from fxad.errors import ArgumentError, ParameterError, ShapeError
from fxad.ir import Aval, Jaxpr, as_shape
from fxad.operations import indexing, promotion, shapes
from fxad.operations.arguments import flag, to_int, to_ints, to_tuple
from fxad.operations.axes import normalize_axis_index
from fxad.operations.methods import static_ints
from fxad.primitives.axes import replace_entry
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.slicing import Concatenate, Pad, Slice, tight_slice
from fxad.tracing.array import Array, ArrayLike, aval_of, binder


def _normalized_dimensions(op: str, values: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return axes in increasing order, counted from the front; they may repeat, which the primitive refuses."""
    return tuple(sorted([normalize_axis_index(op, a, ndim) for a in to_tuple(op, "dimensions", values)]))


def broadcast_shapes(*given: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast."""
    out: tuple[int, ...] = ()
    for shape in given:
        out = promotion.common_shape("broadcast_shapes", out, as_shape(shape))
    return out


def broadcast_in_dim(operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Array:
    """Repeat elements: operand axis k becomes axis `broadcast_dimensions[k]` of the result."""
    to, dims = as_shape(shape), static_ints("broadcast_in_dim", "broadcast_dimensions", (broadcast_dimensions,))
    order = sorted(range(len(dims)), key=dims.__getitem__)
    if order != [*range(len(dims))] and len(dims) == aval_of(operand, "broadcast_in_dim: operand").ndim:
        operand, dims = transpose(operand, order), tuple(sorted(dims))
    if isinstance(operand, Array) and to == operand.shape and dims == (*range(len(to)),):
        return operand
    return binder().bind(BroadcastInDim(to, dims), (operand,))[0]


def broadcast(operand: ArrayLike, sizes: Sequence[int]) -> Array:
    """Repeat the operand along new leading axes."""
    own = aval_of(operand, "broadcast: operand").shape
    lead = as_shape(sizes)
    return broadcast_in_dim(operand, (*lead, *own), range(len(lead), len(lead) + len(own)))


def reshape(operand: ArrayLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Array:
    """Return the elements in row-major order in another shape; those of the axes in the order of `dimensions`."""
    to = as_shape(new_sizes)
    if dimensions is not None:
        operand = transpose(operand, dimensions)
    return operand if isinstance(operand, Array) and to == operand.shape else binder().bind(Reshape(to), (operand,))[0]


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Permute axes: axis k of the result is axis `permutation[k]` of the operand."""
    return binder().bind(Transpose(static_ints("transpose", "permutation", (permutation,))), (operand,))[0]


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Return the elements with the axes from `start_dimension` to `stop_dimension` (None: to the last) as one axis.

    Raises: ShapeError if there is no axis between them.
    """
    shape = aval_of(operand, "collapse: operand").shape
    start = to_int("collapse", "start_dimension", start_dimension)
    stop = None if stop_dimension is None else to_int("collapse", "stop_dimension", stop_dimension)
    first, end, _ = builtins.slice(start, stop).indices(len(shape))
    if first >= end:
        raise ShapeError(
            f"collapse: no axis from {start_dimension} to {stop_dimension}", remedy="give the axis after the last"
        )
    return reshape(operand, (*shape[:first], math.prod(shape[first:end]), *shape[end:]))


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Return the parts of the operand along an axis, of these sizes.

    Raises: ShapeError if the sizes are negative or their sum is not that of the axis.
    """
    shape = aval_of(operand, "split: operand").shape
    k, parts = normalize_axis_index("split", axis, len(shape)), static_ints("split", "sizes", (sizes,))
    if any([n < 0 for n in parts]) or sum(parts) != shape[k]:
        raise ShapeError(f"split: sizes {parts} of axis {k} with size {shape[k]}", remedy="their sum is the size")
    ends = tuple([sum(parts[: i + 1]) for i in range(len(parts) - 1)])
    return list(binder().apply(shapes.split, (operand,), (ends, k)))


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """Return the whole operand, repeated along each axis.

    Raises: ShapeError if there is not one number for each axis, or one is negative.
    """
    ndim, counts = aval_of(operand, "tile: operand").ndim, static_ints("tile", "reps", (reps,))
    if len(counts) != ndim or any([n < 0 for n in counts]):
        raise ShapeError(f"tile: reps {counts} of {ndim} axes", remedy="give a number, 0 or more, for each axis")
    return binder().apply(shapes.tile, (operand,), (counts,))[0]


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Drop axes of size 1."""
    ndim = aval_of(array, "squeeze: array").ndim
    return binder().bind(Squeeze(_normalized_dimensions("squeeze", dimensions, ndim)), (array,))[0]


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Insert axes of size 1, which are `dimensions` of the result."""
    ndim = aval_of(array, "expand_dims: array").ndim + len(to_tuple("expand_dims", "dimensions", dimensions))
    return binder().bind(ExpandDims(_normalized_dimensions("expand_dims", dimensions, ndim)), (array,))[0]


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Reverse the order of elements along axes."""
    return binder().bind(Rev(tuple(sorted(static_ints("rev", "dimensions", (dimensions,))))), (operand,))[0]


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """Join arrays of one dtype along an axis."""
    return binder().bind(Concatenate(dimension), to_tuple("concatenate", "operands", operands))[0]


def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Join arrays of one shape and dtype along a new axis.

    Raises: ArgumentError without arrays; ShapeError, DTypeError for different arrays; AxisError.
    """
    arrays = to_tuple("stack", "operands", operands)
    if not arrays:
        raise ArgumentError("stack: there is no array", remedy="give at least one")
    avals = [aval_of(a, f"stack: operands[{k}]") for k, a in enumerate(arrays)]
    for k, aval in enumerate(avals):
        if aval.shape != avals[0].shape:
            raise ShapeError(f"stack: shapes differ: operands[0] is {avals[0]}, operands[{k}] is {aval}")
    at = normalize_axis_index("stack", axis, avals[0].ndim + 1)
    return concatenate([expand_dims(a, (at,)) for a in arrays], at)


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """Return the slices of an array along an axis. Raises: AxisError."""
    shape = aval_of(x, "unstack: x").shape
    k = normalize_axis_index("unstack", axis, len(shape))
    return tuple([index_in_dim(x, j, k, keepdims=False) for j in range(shape[k])])


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """Insert a value before, after and between elements: (low, high, interior) for each axis."""
    triples = [to_ints("pad", "padding_config", w) for w in to_tuple("pad", "padding_config", padding_config)]
    if any([len(w) != 3 for w in triples]):
        raise ParameterError(f"pad: padding_config {triples} is not made of (low, high, interior)")
    low, high, interior = [tuple([w[k] for w in triples]) for k in range(3)]
    return binder().apply(shapes.emit_pad, (operand, padding_value), (Pad(low, high, interior),))[0]


# ---------------------------------------------------------------------------------------------------------- windows


def slice(
    operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """Return a static slice."""
    starts = static_ints("slice", "start_indices", (start_indices,))
    steps = (1,) * len(starts) if strides is None else static_ints("slice", "strides", (strides,))
    limits = static_ints("slice", "limit_indices", (limit_indices,))
    return _apply_slice(operand, *_tight_slice(Slice(starts, limits, steps), aval_of(operand, "slice: operand")))


def _tight_slice(prim: Slice, x: Aval) -> tuple[Slice, bool]:
    """Return the slice to bind, and True if it is the whole operand."""
    (aval,) = prim.abstract_eval(x)
    return tight_slice(prim, [k for k, n in enumerate(aval.shape) if n == 1]), aval is x


def _apply_slice(operand: ArrayLike, prim: Slice, is_whole: bool) -> Array:
    return operand if is_whole and isinstance(operand, Array) else binder().bind(prim, (operand,))[0]


def slice_in_dim(
    operand: ArrayLike, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """Return `slice` along one axis, with Python's rules for None and negative positions."""
    x = aval_of(operand, "slice_in_dim: operand")
    shape = x.shape
    key = shape, start_index, limit_index, stride, axis
    plain = type(stride) is int is type(axis) and {type(start_index), type(limit_index)} <= _PLAIN_BOUNDS
    cached = _slices_in_dim.get(key) if plain else None
    if cached is not None:
        return _apply_slice(operand, *cached)
    k = normalize_axis_index("slice_in_dim", axis, len(shape))
    named_limits = (("start_index", start_index, 0), ("limit_index", limit_index, shape[k]))
    start, limit = [
        d if i is None else _slice_bound(to_int("slice_in_dim", name, i), shape[k]) for name, i, d in named_limits
    ]
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[k], limits[k] = start, maximum(start, limit)
    strides[k] = to_int("slice_in_dim", "stride", stride)
    tight = _tight_slice(Slice(tuple(starts), tuple(limits), tuple(strides)), x)
    if plain:
        _slices_in_dim.put(key, tight)
    return _apply_slice(operand, *tight)


_PLAIN_BOUNDS: Final = frozenset({int, type(None)})
_slices_in_dim: Final[LRUCache[Hashable, tuple[Slice, bool]]] = LRUCache(1024)


def _slice_bound(i: int, n: int) -> int:
    """Return a bound as Python's slices take it: counted from the front, from 0 to n."""
    return min(max(i + n if i < 0 else i, 0), n)


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """Return the elements at a static position along an axis."""
    keepdims = flag("index_in_dim", "keepdims", keepdims)
    shape = aval_of(operand, "index_in_dim: operand").shape
    k = normalize_axis_index("index_in_dim", axis, len(shape))
    at = normalize_axis_index("index_in_dim: index", index, shape[k])
    out = slice_in_dim(operand, at, at + 1, axis=k)
    return out if keepdims else squeeze(out, (k,))


def _split_starts(op: str, start_indices: object) -> tuple[tuple[object, ...], tuple[int | None, ...]]:
    """Return the start indices that are arrays, and for each axis the int that is its start; None for an array."""
    indices: Sequence[object]
    if type(start_indices) is tuple or type(start_indices) is list:
        indices = start_indices
    elif isinstance(start_indices, Array | np.ndarray) and start_indices.ndim:
        indices = [start_indices[k] for k in range(start_indices.shape[0])]
    elif isinstance(start_indices, Sequence):
        indices = list(start_indices)
    else:
        raise ArgumentError(f"{op}: start_indices must be a sequence, got {type(start_indices).__qualname__}")
    fixed = tuple([None if isinstance(i, Array) else _position(op, k, i) for k, i in enumerate(indices)])
    return tuple([i.settled() for i in indices if isinstance(i, Array)]), fixed


def _position(op: str, k: int, i: object) -> int:
    if type(i) is int:
        return i
    try:
        return dimension(i)
    except (AttributeError, TypeError):
        raise ArgumentError(f"{op}: start index {k} must be an integer, got {type(i).__qualname__}") from None


StartIndices = Sequence[ArrayLike] | Array


def dynamic_slice(operand: ArrayLike, start_indices: StartIndices, slice_sizes: Sequence[int]) -> Array:
    """Return the window at start indices known at run time.

    Rule:   negative indices count from the end; start indices are clamped so that the window is in range.
    """
    arrays, fixed = _split_starts("dynamic_slice", start_indices)
    return binder().apply(indexing.dynamic_slice, (operand, *arrays), (fixed, as_shape(slice_sizes), ()))[0]


def dynamic_slice_in_dim(operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0) -> Array:
    """Return `dynamic_slice` along one axis."""
    return _cached_window_along("dynamic_slice_in_dim", operand, start_index, slice_size, axis, False)


def _cached_window_along(op: str, operand: ArrayLike, start: ArrayLike, size: int, axis: int, drop: bool) -> Array:
    """Return a window along one axis, without the axis if `drop`. Loops read many windows, so the program is cached by
    the type of an array of a start, or by the value of an int."""
    start = cast("Array", start.settled()) if isinstance(start, Array) else start
    place = start.aval if isinstance(start, Array) else start
    if not (isinstance(operand, Array) and type(place) in _HASHABLE_STARTS and type(size) is int and type(axis) is int):
        return _window_along(op, operand, start, size, axis, drop)
    key = operand.aval, place, size, axis, drop
    operands = (operand, start) if isinstance(start, Array) else (operand,)
    # `peek` finds a program that was used lately, without a frame; `get` finds the others
    program = _window_programs.peek(key) or _window_programs.get(key)
    if program is not None:
        return binder().paste(op, program, operands)[0]
    out = _window_along(op, operand, start, size, axis, drop)
    b, shape = Builder(), operand.shape
    k = axis % len(shape)
    fixed = tuple(_starts_along(place if isinstance(place, int) else None, k, len(shape)))
    sizes = replace_entry(shape, k, size)
    window = indexing.dynamic_slice(b, *b.inputs([a.aval for a in operands]), fixed, sizes, (k,) if drop else ())
    _window_programs.put(key, b.build(window, op))
    return out


_HASHABLE_STARTS: Final = frozenset({Aval, int})
_window_programs: Final[LRUCache[Hashable, Jaxpr]] = LRUCache(1024)


def _window_along(op: str, operand: ArrayLike, start: ArrayLike, size: int, axis: int, drop: bool) -> Array:
    """Return a window along one axis. All arguments are checked, and errors name `op`."""
    shape = aval_of(operand, f"{op}: operand").shape
    k = normalize_axis_index(op, axis, len(shape))
    arrays, fixed = _split_starts("dynamic_slice", _starts_along(start, k, len(shape)))
    sizes = as_shape(replace_entry(shape, k, size))
    return binder().apply(indexing.dynamic_slice, (operand, *arrays), (fixed, sizes, (k,) if drop else ()))[0]


IndexT = TypeVar("IndexT")


def _starts_along(index: IndexT, axis: int, ndim: int) -> list[IndexT | int]:
    """Return the start indices of a window that moves along one axis: 0 for the other axes."""
    starts: list[IndexT | int] = [0] * ndim
    starts[axis] = index
    return starts


def dynamic_index_in_dim(operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True) -> Array:
    """Return the elements at a run-time position along an axis."""
    keepdims = flag("dynamic_index_in_dim", "keepdims", keepdims)
    return _cached_window_along("dynamic_index_in_dim", operand, index, 1, axis, not keepdims)


def dynamic_update_slice(operand: ArrayLike, update: ArrayLike, start_indices: StartIndices) -> Array:
    """Return the operand with the window at run-time start indices replaced by `update`."""
    arrays, fixed = _split_starts("dynamic_update_slice", start_indices)
    return binder().apply(indexing.dynamic_update_slice, (operand, update, *arrays), (fixed,))[0]


def dynamic_update_slice_in_dim(operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int) -> Array:
    """Return `dynamic_update_slice` along one axis."""
    ndim = aval_of(operand, "dynamic_update_slice_in_dim: operand").ndim
    k = normalize_axis_index("dynamic_update_slice_in_dim", axis, ndim)
    return dynamic_update_slice(operand, update, _starts_along(start_index, k, ndim))


def dynamic_update_index_in_dim(operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int) -> Array:
    """Return the operand with the elements at one position along an axis replaced; `update` may lack that axis."""
    ndim = aval_of(operand, "dynamic_update_index_in_dim: operand").ndim
    k = normalize_axis_index("dynamic_update_index_in_dim", axis, ndim)
    if aval_of(update, "dynamic_update_index_in_dim: update").ndim == ndim - 1:
        update = expand_dims(update, (k,))
    return dynamic_update_slice_in_dim(operand, update, index, k)
