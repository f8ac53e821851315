"""Indexing: places are counted, clamped and dropped at the true sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad import dtypes
from fxad.core.sizes.size import maximum
from fxad.ir import INT32_SCALAR, Atom, Atoms, Aval, Avals, Lit
from fxad.primitives.dimension_numbers import DimensionNumbers
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise.arithmetic import ADD, MAX, MIN, SUB
from fxad.primitives.elementwise.convert import ConvertElementType, emit_convert
from fxad.primitives.elementwise.logic import AND, GE, LE, LT
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.gather_scatter import (
    Gather,
    ScatterFamily,
)
from fxad.primitives.index import Index, IndexVectors
from fxad.primitives.shape import ExpandDims, Squeeze, Transpose, emit_broadcast
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.padded_builder import int_literal
from fxad.transforms.mask.padding_facts import NO_AXES
from fxad.transforms.mask.rules.structure import padded_to, slice_rule


def _wide(ctx: MaskCtx, i: Atom) -> Atom:
    """Return indices in a dtype that holds every size."""
    return i if i.aval.dtype.itemsize >= 4 else ctx.one(ConvertElementType(dtypes.int32), i)


def _number(ctx: MaskCtx, value: Atom, like: Aval) -> Atom:
    """Return an i32[] as an array of the type `like`."""
    if isinstance(value, Lit) and value.size is None:
        return Lit.of(int(value.value), like)
    return emit_broadcast(ctx, emit_convert(ctx, value, like.dtype), like.shape, ())


def _last(ctx: MaskCtx, size: int, window: int) -> Atom:
    """Return the last place of a window along an axis: i32[], at least 0."""
    return ctx.one(MAX, ctx.count(size - window), int_literal(0))


def _clamped(ctx: MaskCtx, i: Atom, last: Atom) -> Atom:
    """Return indices between 0 and `last`."""
    i = ctx.one(MIN, i, _number(ctx, last, i.aval))
    return i if i.aval.dtype in dtypes.UNSIGNED else ctx.one(MAX, i, Lit.of(0, i.aval))


def _from_front(ctx: MaskCtx, i: Atom, size: int) -> Atom:
    """Return indices into an axis, negative ones counted from its true end: i32. Those out of range stay so."""
    i, count = _wide(ctx, i), ctx.count(size)
    if i.aval.dtype is not dtypes.int32:
        i = ctx.one(MIN, i, _number(ctx, count, i.aval))
        if i.aval.dtype not in dtypes.UNSIGNED:
            below = ctx.one(SUB, int_literal(-1), count)
            i = ctx.one(MAX, i, _number(ctx, below, i.aval))
        i = ctx.one(ConvertElementType(dtypes.int32), i)
    from_end = ctx.one(ADD, i, _number(ctx, count, i.aval))
    return ctx.one(SELECT_N, ctx.one(LT, i, Lit.of(0, i.aval)), i, from_end)


# ------------------------------------------------------------------------------------------------------------ windows


def _in_one_dtype(ctx: MaskCtx, starts: Sequence[Atom]) -> list[Atom]:
    """Return start indices in the widest of their dtypes."""
    widest = max([i.aval.dtype for i in starts], key=lambda d: d.itemsize)
    return [emit_convert(ctx, i, widest) for i in starts]


def _dynamic_slice(ctx: MaskCtx, prim: DynamicSlice, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    x, *starts = args
    clamped_starts: list[Atom] = []
    for a, (n, m, start) in enumerate(zip(ins[0].shape, prim.sizes, starts, strict=True)):
        if ctx.masked(n) or ctx.masked(m):
            start = _clamped(ctx, _wide(ctx, start), _last(ctx, n, m))
            if ctx.masked(m):
                x = padded_to(ctx, x, a, ctx.padded_size(n) + ctx.padded_size(m))
        clamped_starts.append(start)
    out = ctx.one(DynamicSlice(ctx.padded(prim.sizes)), x, *_in_one_dtype(ctx, clamped_starts))
    return (ctx.cleared(out, outs[0].shape),)


def _dynamic_update_slice(
    ctx: MaskCtx, prim: DynamicUpdateSlice, args: Atoms, ins: Avals, outs: Avals
) -> Sequence[Atom]:
    """Mask the update of a window: it starts where it does in the unpadded program, and only its valid elements are
    written.

    Along an axis with a masked size, the start is clamped to the true sizes. If the window has a masked size m, the
    operand grows, so that XLA does not clamp again; then the elements from start to start + m are selected. Example: an
    operand of true size n = 3, an update of true size m = 2 with one element of padding, start 1:

        operand       x0 x1 x2  _  _        grown by the padded size of the update
        updated       x0 u0 u1 pad _
        result        x0 u0 u1  _           the padding of the update is not written
    """
    x, update, *starts = args
    shape, sizes = ins[0].shape, ins[1].shape
    clamped_starts: list[Atom] = []
    out = x
    written: Atom | None = None
    for a, (n, m, start) in enumerate(zip(shape, sizes, starts, strict=True)):
        if ctx.masked(n) or ctx.masked(m):
            start = _clamped(ctx, _wide(ctx, start), _last(ctx, n, m))
            if ctx.masked(m):  # the padding of the update must not be written
                out = padded_to(ctx, out, a, ctx.padded_size(n) + ctx.padded_size(m))
                first = emit_convert(ctx, start, dtypes.int32)
                line = ctx.iota(x.aval.shape, a)
                low = ctx.one(GE, line, _number(ctx, first, line.aval))
                end = ctx.one(ADD, first, ctx.count(m))
                inside = ctx.one(AND, low, ctx.one(LT, line, _number(ctx, end, line.aval)))
                written = inside if written is None else ctx.one(AND, written, inside)
        clamped_starts.append(start)
    out = ctx.one(DYNAMIC_UPDATE_SLICE, out, update, *_in_one_dtype(ctx, clamped_starts))
    if written is None:
        return (out,)
    zeros = (0,) * x.aval.ndim
    if out.aval is not x.aval:
        out = ctx.one(Slice(zeros, x.aval.shape, (1,) * x.aval.ndim), out)
    return (ctx.one(SELECT_N, written, x, out),)


def _index(ctx: MaskCtx, prim: Index, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask `Index` as its three steps: a slice along the static axes, a dynamic slice at `places` along the others, a
    squeeze. Example: x[1:, i, :] of shape (n, m, 4) is a slice to (n - 1, m, 4), a dynamic slice to (n - 1, 1, 4) at
    (0, i, 0), and the axis 1 is dropped.

    A pending axis stays pending if it is read at its whole size, and no place depends on data.
    """
    x, *places = args
    full = ins[0]
    pending = ctx.pending(x)
    keeps_pending_axes = all([prim.sizes[axis] == size for axis, size in pending])
    if prim.dynamic or not keeps_pending_axes:
        x, pending = ctx.clear_pending(x), NO_AXES
    windows = zip(prim.starts, prim.sizes, prim.strides, strict=True)
    limits = [start + maximum((m - 1) * stride + 1, 0) for start, m, stride in windows]
    static_sizes = [n if a in prim.dynamic else m for a, (n, m) in enumerate(zip(full.shape, prim.sizes, strict=True))]
    static_slice = Slice(
        prim.starts,
        tuple([n if a in prim.dynamic else limits[a] for a, n in enumerate(full.shape)]),
        prim.strides,
    )
    after_static = full.with_shape(static_sizes)
    if after_static is not full:
        (x,) = slice_rule(ctx, static_slice, (x,), (full,), (after_static,))
    after_dynamic = full.with_shape(prim.sizes)
    if prim.dynamic:
        starts: list[Atom] = [int_literal(0)] * full.ndim
        for a, i in zip(prim.dynamic, places, strict=True):
            starts[a] = _from_front(ctx, i, full.shape[a])
        dynamic = DynamicSlice(prim.sizes)
        (x,) = _dynamic_slice(ctx, dynamic, (x, *starts), (after_static, *[INT32_SCALAR] * full.ndim), (after_dynamic,))
    ctx.add_pending(x, pending)
    return (ctx.with_pending(Squeeze(prim.dropped), x) if prim.dropped else x,)


def _index_vectors(ctx: MaskCtx, prim: IndexVectors, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    shape, dtype = ctx.padded(outs[0].shape[:-1]), outs[0].dtype
    columns: list[Atom] = []
    for i, n in zip(args, prim.sizes, strict=True):
        column = emit_convert(ctx, _from_front(ctx, i, n), dtype)
        lead = len(shape) - column.aval.ndim
        column = emit_broadcast(ctx, column, shape, tuple(range(lead, len(shape))))
        columns.append(ctx.one(ExpandDims((len(shape),)), column))
    return (columns[0] if len(columns) == 1 else ctx.one(Concatenate(len(shape)), *columns),)


# ------------------------------------------------------------------------------------------------- gather and scatter


def _columns(ctx: MaskCtx, indices: Atom) -> list[Atom]:
    """Return the entries of index vectors, one by one, with a last axis of size 1."""
    shape = indices.aval.shape
    if shape[-1] == 1:
        return [indices]
    first = (0,) * (len(shape) - 1)
    return [
        ctx.one(Slice((*first, k), (*shape[:-1], k + 1), (1,) * len(shape)), indices) for k in range(int(shape[-1]))
    ]


def _concatenated(ctx: MaskCtx, columns: Sequence[Atom]) -> Atom:
    return columns[0] if len(columns) == 1 else ctx.one(Concatenate(columns[0].aval.ndim - 1), *columns)


def _all_clamped(ctx: MaskCtx, columns: Sequence[Atom], ends: Sequence[int]) -> list[Atom]:
    """Return index vectors between 0 and the last places `ends`."""
    return [_clamped(ctx, i, _last(ctx, end, 0)) for i, end in zip(columns, ends, strict=True)]


def _within(ctx: MaskCtx, columns: Sequence[Atom], ends: Sequence[int]) -> Atom:
    """Return True for index vectors that lie inside, with a last axis of size 1. A last place of -1 means that no place
    is: the axis is empty."""
    conditions: list[Atom] = []
    for i, end in zip(columns, ends, strict=True):
        signed = i.aval.dtype not in dtypes.UNSIGNED
        past = ctx.count(end if signed else end + 1)
        inside: Atom = ctx.one(LE if signed else LT, i, _number(ctx, past, i.aval))
        if signed:
            inside = ctx.one(AND, inside, ctx.one(GE, i, Lit.of(0, i.aval)))
        conditions.append(inside)
    return ctx.every(conditions)


def _left_out(ctx: MaskCtx, columns: Sequence[Atom], keep: Atom) -> list[Atom]:
    """Return index vectors, with a place out of range for those that are not kept."""
    signed = [ctx.one(ConvertElementType(dtypes.int64), i) if i.aval.dtype in dtypes.UNSIGNED else i for i in columns]
    return [ctx.one(SELECT_N, keep, Lit.of(-1, i.aval), i) for i in signed]


def _gather(ctx: MaskCtx, prim: Gather, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a gather: its windows start where they do in the unpadded program.

    Starts are clamped to the true sizes ("clip"), or a start out of them becomes -1, which XLA drops ("drop"). If the
    windows have a masked size along an axis, the operand grows along it, so that XLA does not clamp again. Example: a
    true size n = 3 in a padded size 5, windows of one element at 1, 3 and 7: "clip" reads x[1], x[2] and
    x[2], "drop" reads x[1] and two zeros.
    """
    x, indices = args
    full = ins[0].shape
    # a collapsed axis has windows of one element, or no element and no windows
    sizes = [1 if a in prim.collapsed_slice_dims else m for a, m in enumerate(prim.slice_sizes)]
    if prim.start_index_map:
        columns = _columns(ctx, _wide(ctx, indices))
        ends = [full[a] - sizes[a] for a in prim.start_index_map]
        if prim.mode == "drop":
            columns = _left_out(ctx, columns, _within(ctx, columns, ends))
        else:
            columns = _all_clamped(ctx, columns, ends)
        indices = _concatenated(ctx, columns)
        for a in prim.start_index_map:
            if ctx.masked(sizes[a]):
                x = padded_to(ctx, x, a, ctx.padded_size(full[a]) + ctx.padded_size(sizes[a]))
    for a, n in enumerate(x.aval.shape):
        # a batched axis has the size of that of the indices: the result is empty
        x = padded_to(ctx, x, a, 1) if n == 0 and a not in prim.operand_batching_dims else x
    padded = Gather(
        prim.offset_dims,
        prim.collapsed_slice_dims,
        prim.operand_batching_dims,
        prim.start_indices_batching_dims,
        prim.start_index_map,
        ctx.padded(prim.slice_sizes),
        "drop" if prim.mode == "drop" else "clip",
        False,
        False,
    )
    out: Atom = ctx.one(padded, x, indices)
    for a in prim.collapsed_slice_dims:
        if ctx.masked(prim.slice_sizes[a]):  # the axis may be empty: then there is nothing to read
            some = ctx.one(LT, int_literal(0), ctx.count(prim.slice_sizes[a]))
            has_elements = emit_broadcast(ctx, some, out.aval.shape, ())
            out = ctx.one(SELECT_N, has_elements, Lit.zero(out.aval), out)
    return (ctx.cleared_later(out, outs[0].shape),)


def _scatter(ctx: MaskCtx, prim: ScatterFamily, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a scatter. Places out of the true range are left out, and so is the padding of indices and of windows.

    The windows have the padded size. Along an axis where they have a masked size and are not the whole axis, their
    padding lies on valid elements of the operand. So there they are split into single places (`_each_place`).
    """
    x, indices, updates = args
    full, windows = ins[0].shape, prim.windows
    sizes = prim.sizes(full, ins[2].shape)
    split_axes = [a for a in windows.axes(len(full)) if ctx.masked(sizes[a]) and sizes[a] is not full[a]]
    columns = _columns(ctx, _wide(ctx, indices)) if windows.index_map else []
    ends = [full[a] - sizes[a] for a in windows.index_map]
    keep: Atom | None = None
    if columns and prim.mode == "clip":
        columns = _all_clamped(ctx, columns, ends)
    elif columns:
        keep = _within(ctx, columns, ends)
    ragged = ctx.inside(ins[1].shape[:-1])
    if ragged is not None:
        valid = ctx.one(ExpandDims((ragged.aval.ndim,)), ragged)
        keep = valid if keep is None else ctx.one(AND, keep, valid)
    if keep is None and not split_axes and not columns:
        return ctx(prim, *args)
    adds_axis = not columns and not split_axes
    if adds_axis:  # without indices nothing could be left out: one place of an axis of size 1
        x = ctx.one(ExpandDims((0,)), x)
        columns = [int_literal(0).with_shape((*indices.aval.shape[:-1], 1))]
        windows = DimensionNumbers(
            windows.offset,
            (0, *[a + 1 for a in windows.collapsed]),
            tuple([a + 1 for a in windows.batched]),
            windows.index_batched,
            (0,),
        )
    for a in split_axes:
        updates, windows, columns, keep = _each_place(ctx, updates, windows, columns, keep, a, x.aval.ndim, sizes[a])
    if keep is not None:
        columns = _left_out(ctx, columns, keep)
    out: Atom = ctx.one(prim.with_windows(windows, "drop"), x, _concatenated(ctx, columns), updates)
    return (ctx.one(Squeeze((0,)), out) if adds_axis else out,)


def _each_place(
    ctx: MaskCtx,
    updates: Atom,
    windows: DimensionNumbers,
    columns: Sequence[Atom],
    keep: Atom | None,
    axis: int,
    ndim: int,
    size: int,
) -> tuple[Atom, DimensionNumbers, list[Atom], Atom]:
    """Split the windows along an operand axis into single places, so that those beyond `size` can be left out. The
    axis of the updates becomes the last batch axis. Return the updates, the dimension numbers, the index vectors by
    column, and a mask of those that are kept."""
    window_axes = dict(zip(windows.axes(ndim), windows.offset, strict=True))  # of the updates, by operand axis
    window_axis = window_axes.pop(axis)
    rank = updates.aval.ndim
    batch = [k for k in range(rank) if k not in windows.offset]
    order = [k for k in range(rank) if k != window_axis]
    order.insert(order.index(batch[-1]) + 1 if batch else 0, window_axis)
    padded = updates.aval.shape[window_axis]
    shape = (*[updates.aval.shape[k] for k in batch], padded, 1)
    dims = (*range(len(batch)), len(batch) + 1)
    line = ctx.iota(shape, len(batch))
    wide = [emit_broadcast(ctx, i, shape, dims) for i in columns]
    places = list(windows.index_map)
    if axis in places:
        k = places.index(axis)
        wide[k] = ctx.one(ADD, wide[k], emit_convert(ctx, line, wide[k].aval.dtype))
    else:
        wide.append(emit_convert(ctx, line, wide[0].aval.dtype) if wide else line)
        places.append(axis)
    inside: Atom = ctx.one(LT, line, _number(ctx, ctx.count(size), line.aval))
    if keep is not None:
        inside = ctx.one(AND, inside, emit_broadcast(ctx, keep, shape, dims))
    by_place = DimensionNumbers(
        tuple([order.index(k) for k in window_axes.values()]),
        tuple(sorted((*windows.collapsed, axis))),
        windows.batched,
        windows.index_batched,
        tuple(places),
    )
    moved = updates if order == list(range(rank)) else ctx.one(Transpose(tuple(order)), updates)
    return moved, by_place, wide, inside


INDEXING: Final[tuple[MaskRow, ...]] = (
    row(DynamicSlice, _dynamic_slice, "starts are clamped at the true size"),
    row(DynamicUpdateSlice, _dynamic_update_slice, "starts are clamped at the true size; padding is not written"),
    row(Index, _index, "places count from the true end", clears_operands=False),
    row(IndexVectors, _index_vectors, "places count from the true end"),
    row(Gather, _gather, "places are clamped or dropped at the true size"),
    row(ScatterFamily, _scatter, "places are clamped or dropped at the true size; padding is dropped"),
)

__all__ = ["INDEXING"]
