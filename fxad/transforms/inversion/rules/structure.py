"""Inverses of operations that move, copy and split elements.

A copied element is read from one copy; the inverse does not check that the others agree. A slice determines a part of
its operand; several parts may complete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from fxad.core.sizes.size import is_symbolic
from fxad.ir import Atom, Aval, Emit, Hole, Lit, NDArray, Primitive, Shape, Zero, literal_number
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice, DynamicUpdateSlice
from fxad.primitives.index import Index
from fxad.primitives.reduce import Reduction
from fxad.primitives.shape import (
    BroadcastInDim,
    Permutation,
    ReduceSum,
    emit_reshape,
)
from fxad.primitives.slicing import Concatenate, Pad, Slice, emit_slice
from fxad.transforms.inversion.rules.contract import (
    VOLUME,
    Args,
    InverseCtx,
    InverseRow,
    MaskPart,
    Outs,
    PartialValue,
    Refused,
    ScatteredPart,
    Solved,
    Window,
    WindowPart,
    all_known,
    row,
)

NO_ELEMENT: Final = "the result has no element to read it from"

# -------------------------------------------------------------------------------------------- permutations and reshapes


def _permutation(ctx: InverseCtx, prim: Permutation, args: Args, outs: Outs) -> Solved:
    operand = prim.cotangent(ctx, outs[0], args[0].aval, ())
    assert not isinstance(operand, Zero)
    return (operand,)


# ----------------------------------------------------------------------------------------------------------- copying


def _broadcast(ctx: InverseCtx, prim: BroadcastInDim, args: Args, outs: Outs) -> Solved | Refused:
    """Return the first of the copies."""
    (y,), x = outs, args[0].aval
    if x.size == 0:
        return (Zero(x).instantiate(),)
    if y.aval.size == 0:
        return Refused(NO_ELEMENT)
    size_of_axis = dict(zip(prim.dims, x.shape, strict=True))
    limits = tuple([size_of_axis.get(a, min(1, n)) for a, n in enumerate(y.aval.shape)])
    return (emit_reshape(ctx, _slice_unless_whole(ctx, y, (0,) * len(limits), limits), x.shape),)


def _slice_unless_whole(emit: Emit, y: Atom, starts: Shape, limits: Shape) -> Atom:
    sizes = tuple([b - a for a, b in zip(starts, limits, strict=True)])
    if isinstance(y, Lit):
        return y.with_shape(sizes)
    return y if sizes == y.aval.shape else emit.one(Slice(starts, limits, (1,) * len(sizes)), y)


def _sum(ctx: InverseCtx, prim: Primitive, args: Args, outs: Outs) -> Solved | Refused:
    """Invert a reduction over axes of size 1, which is a reshape."""
    if outs[0].aval.size != args[0].aval.size:
        return Refused("it makes one element of several")
    return (emit_reshape(ctx, outs[0], args[0].aval.shape),)


# ----------------------------------------------------------------------------------------------- joining and splitting


def _concatenate(ctx: InverseCtx, prim: Concatenate, args: Args, outs: Outs) -> Solved:
    solved: list[Atom | None] = []
    start = 0
    for x in args:
        limit = start + x.aval.shape[prim.axis]
        solved.append(emit_slice(ctx, outs[0], prim.axis, start, limit) if isinstance(x, Hole) else None)
        start = limit
    return tuple(solved)


def _pad(ctx: InverseCtx, prim: Pad, args: Args, outs: Outs) -> Solved | Refused:
    (y,), (x, value) = outs, args
    elements = pad_elements(prim, x.aval.shape, y.aval.shape)
    padding: PartialValue | Atom | None = None
    if isinstance(value, Hole):
        index = _index_of_padding([places for places, _ in elements], y.aval.shape)
        if index is None:
            return Refused(f"operand 1: {NO_ELEMENT}")
        padding = emit_reshape(ctx, _slice_unless_whole(ctx, y, index, tuple([i + 1 for i in index])), ())
    return (_taken(ctx, y, elements, x.aval.shape) if isinstance(x, Hole) else None), padding


def pad_elements(prim: Pad, x: Shape, y: Shape) -> list[tuple[range, range]]:
    """Return for each axis the positions of elements of the operand in the result, and the indices of these
    elements."""
    elements: list[tuple[range, range]] = []
    for low, gap, kept in zip(prim.low, prim.interior, prim.kept_elements(x, y), strict=True):
        step = gap + 1
        places = range(low + kept.start * step, low + kept[-1] * step + 1, step) if kept else range(0)
        elements.append((places, kept))
    return elements


def _taken(emit: Emit, y: Atom, elements: list[tuple[range, range]], shape: Shape) -> Atom | PartialValue:
    places = [p for p, _ in elements]
    value = (
        y.with_shape([len(p) for p in places]) if isinstance(y, Lit) else emit.one(slice_of_window(tuple(places)), y)
    )
    return value if value.aval.shape == shape else WindowPart(value, tuple([indices for _, indices in elements]))


def _index_of_padding(places: list[range], shape: Shape) -> Shape | None:
    """Return the index of an element of the result that is padding; None if there is none."""
    if 0 in shape:
        return None
    for a, (p, m) in enumerate(zip(places, shape, strict=True)):
        padding = [i for i in (0, m - 1, p.start + 1) if i < m and i not in p]
        if padding:
            return (*(0,) * a, padding[0], *(0,) * (len(shape) - a - 1))
    return None


def _slice(ctx: InverseCtx, prim: Slice, args: Args, outs: Outs) -> Solved:
    return (WindowPart(outs[0], _window(prim.starts, outs[0].aval.shape, prim.strides)),)


def _window(starts: Shape, sizes: Shape, strides: Shape) -> Window:
    return tuple([range(s, s + n * t, t) for s, n, t in zip(starts, sizes, strides, strict=True)])


def window_of(prim: Primitive, x: Aval) -> Window | None:
    """Return the elements of an operand that a slice with constant start reads; None if they are not numbers."""
    if not isinstance(prim, Slice) and not (isinstance(prim, Index) and not prim.dynamic):
        return None
    sizes = prim.abstract_eval(x)[0].shape if isinstance(prim, Slice) else prim.sizes
    return None if is_symbolic((*prim.starts, *sizes)) else _window(prim.starts, sizes, prim.strides)


def _index(ctx: InverseCtx, prim: Index, args: Args, outs: Outs) -> Solved | Refused:
    x, *places = args
    indices = all_known(places)
    if not isinstance(x, Hole) or indices is None:
        return Refused(READS_UNKNOWN_PLACE)
    value = emit_reshape(ctx, outs[0], prim.sizes)
    if not prim.dynamic:
        return (WindowPart(value, _window(prim.starts, prim.sizes, prim.strides)),)
    shape = x.aval.shape
    if prim.reachable_shape(shape) != shape:
        return Refused("its window is a part of a part of the operand")
    return (_in_window(value, prim.window_starts(ctx, shape, indices)), *[None for _ in places])


READS_UNKNOWN_PLACE: Final = "where it reads is not known"


def _in_window(value: Atom, starts: Sequence[Atom]) -> ScatteredPart:
    return ScatteredPart(
        value, lambda emit, base: emit.one(DYNAMIC_UPDATE_SLICE, base, value, *starts), value.aval.size
    )


def _dynamic_slice(ctx: InverseCtx, prim: DynamicSlice, args: Args, outs: Outs) -> Solved | Refused:
    x, *places = args
    starts = all_known(places)
    if not isinstance(x, Hole) or starts is None:
        return Refused(READS_UNKNOWN_PLACE)
    return (_in_window(outs[0], starts), *[None for _ in places])


def _dynamic_update_slice(ctx: InverseCtx, prim: DynamicUpdateSlice, args: Args, outs: Outs) -> Solved | Refused:
    """Read the update from the window of the result. The operand keeps its elements outside of the window."""
    (y,), (x, update, *places) = outs, args
    starts = all_known(places)
    if starts is None:
        return Refused("where it writes is not known")
    window = DynamicSlice(update.aval.shape)
    return (
        _outside_window(ctx, y, window, starts) if isinstance(x, Hole) else None,
        ctx.one(window, y, *starts) if isinstance(update, Hole) else None,
        *[None for _ in starts],
    )


def slice_of_window(window: Window) -> Slice:
    """Return the slice that reads these indices, one range for each axis."""
    return Slice(tuple([r.start for r in window]), tuple([r.stop for r in window]), tuple([r.step for r in window]))


def constant_window(starts: Sequence[Atom], sizes: Shape, shape: Shape) -> Window | None:
    """Return the window of a dynamic slice or update with literal starts, which are clamped; None for other starts."""
    numbers = [int(s) for s in map(literal_number, starts) if s is not None]
    if len(numbers) < len(starts):
        return None
    clamped = [min(max(a, 0), n - m) for a, n, m in zip(numbers, shape, sizes, strict=True)]
    return _window(tuple(clamped), sizes, (1,) * len(numbers))


def window_mask(window: Window, shape: Shape) -> NDArray:
    """Return a mask of the elements in a window. If the window covers an axis, the mask has size 1 there."""
    full = [len(r) == n for r, n in zip(window, shape, strict=True)]
    mask = np.zeros([1 if f else n for f, n in zip(full, shape, strict=True)], np.bool_)
    mask[np.ix_(*[np.arange(1) if f else np.asarray(r, int) for f, r in zip(full, window, strict=True)])] = True
    return mask


def _outside_window(emit: Emit, y: Atom, window: DynamicSlice, starts: Sequence[Atom]) -> PartialValue:
    """Return the elements of `y` outside of a window that an update has overwritten: a window too, if the rest is one
    range; else by a mask if the starts are literals, or as a count. Example: of 5 elements, a window of 2 at 3 leaves
    the range from 0 to 3, a window of 2 at 1 leaves the elements 0, 3 and 4."""
    shape, sizes = y.aval.shape, window.sizes
    cut = [a for a, (n, m) in enumerate(zip(shape, sizes, strict=True)) if n != m]
    if len(cut) == 1 and (start := literal_number(starts[cut[0]])) is not None:
        a = cut[0]
        n, m = shape[a], sizes[a]
        begin = min(max(int(start), 0), n - m)
        if begin in (0, n - m):  # the rest is one range
            outside_range = range(m, n) if begin == 0 else range(begin)
            window_outside = tuple([outside_range if b == a else range(k) for b, k in enumerate(shape)])
            return WindowPart(emit_slice(emit, y, a, outside_range.start, outside_range.stop), window_outside)

    def write(emit: Emit, base: Atom) -> Atom:
        return emit.one(DYNAMIC_UPDATE_SLICE, y, emit.one(window, base, *starts), *starts)

    written = constant_window(starts, sizes, shape)
    if written is None:
        return ScatteredPart(y, write, y.aval.size - prod(sizes))
    return MaskPart(y, np.logical_not(window_mask(written, shape)), write)


STRUCTURE: Final[tuple[InverseRow, ...]] = (
    row(Permutation, _permutation, VOLUME),
    row(BroadcastInDim, _broadcast, VOLUME),
    *[row(kind, _sum, VOLUME) for kind in (ReduceSum, Reduction)],
    row(Concatenate, _concatenate, VOLUME),
    row(Pad, _pad, VOLUME),
    row(Slice, _slice, VOLUME),
    row(Index, _index, VOLUME),
    row(DynamicSlice, _dynamic_slice, VOLUME),
    row(DynamicUpdateSlice, _dynamic_update_slice, VOLUME),
)
