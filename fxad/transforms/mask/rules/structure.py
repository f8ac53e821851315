"""Primitives that move and copy elements: valid elements come first along each axis, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from fxad.core.sizes.lower_bounds import at_least, lower_bound
from fxad.core.sizes.size import Size, maximum
from fxad.ir import Atom, Atoms, Aval, Avals, Lit, Shape
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, REM, SUB
from fxad.primitives.elementwise.logic import AND, EQ, GE, LT
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.gather_scatter import Gather
from fxad.primitives.index import Index
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Iota, Reshape, Rev, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Concatenate, Pad, Slice, emit_slice, pad_along_axis
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.padded_builder import int_literal
from fxad.transforms.mask.padding_facts import PaddedAxes, PaddingFacts, moved_axes
from fxad.transforms.mask.rules.lanes import lanewise


def padded_to(ctx: MaskCtx, x: Atom, axis: int, size: int) -> Atom:
    """Return `x` with an axis extended by zeros to at least `size`."""
    missing = maximum(size - x.aval.shape[axis], 0)
    if missing == 0:
        return x
    return ctx.one(pad_along_axis(x.aval.ndim, axis, high=missing), x, Lit.zero(x.aval.with_shape(())))


def taken_from(ctx: MaskCtx, x: Atom, axis: int, start: Atom, size: int) -> Atom:
    """Return the `size` elements of `x` along an axis that begin at `start`, an i32[]. The axis must hold them."""
    shape = x.aval.shape
    starts = [start if a == axis else int_literal(0) for a in range(len(shape))]
    return ctx.one(DynamicSlice(tuple([size if a == axis else n for a, n in enumerate(shape)])), x, *starts)


def taken_at(ctx: MaskCtx, x: Atom, axis: int, places: Atom) -> Atom:
    """Return the elements of `x` at `places` (i32) along an axis. The axes of `places` replace this axis. Places out of
    range are clamped."""
    x = padded_to(ctx, x, axis, 1)
    shape, rank = x.aval.shape, places.aval.ndim
    gather = Gather(
        offset_dims=tuple([a if a < axis else a + rank - 1 for a in range(len(shape)) if a != axis]),
        collapsed_slice_dims=(axis,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(axis,),
        slice_sizes=tuple([1 if a == axis else n for a, n in enumerate(shape)]),
        mode="clip",
        indices_sorted=False,
        unique_indices=False,
    )
    return ctx.one(gather, x, ctx.one(ExpandDims((rank,)), places))


# ------------------------------------------------------------------------------------------------------------ copies


def _broadcast(ctx: MaskCtx, prim: BroadcastInDim, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,), shape = args, outs[0].shape
    x = ctx.clear_unless_finite(x)
    out = emit_broadcast(ctx, x, ctx.padded(shape), prim.dims)
    ctx.add_pending(out, moved_axes(prim, x.aval, ctx.pending(x)))
    copied_axes = [d for d, n in zip(prim.dims, ins[0].shape, strict=True) if n == shape[d]]
    return (ctx.cleared_later(out, shape, [a for a in range(len(shape)) if a not in copied_axes]),)


def _iota(ctx: MaskCtx, prim: Iota, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return ctx(Iota(ctx.padded(prim.shape), prim.dtype, prim.axis))


# ------------------------------------------------------------------------------------------------------------ moves


def slice_rule(ctx: MaskCtx, prim: Slice, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a `slice`."""
    (x,), (y,) = args, outs
    starts, limits, strides = [0] * y.ndim, list(x.aval.shape), [1] * y.ndim
    for a, (start, stride) in enumerate(zip(prim.starts, prim.strides, strict=True)):
        m = ctx.padded_size(y.shape[a])
        if ctx.masked(stride):
            steps = ctx.one(MUL, ctx.iota((m,), 0), ctx.counts(stride, (m,)))
            first = ctx.counts(start, (m,))
            x = taken_at(ctx, x, a, ctx.one(ADD, steps, first))
            limits[a] = m
            continue
        if not ctx.masked(start) and not ctx.ragged((ins[0].shape[a], y.shape[a])):
            starts[a], limits[a], strides[a] = start, prim.limits[a], stride
            continue
        window = maximum((m - 1) * stride + 1, 0) if type(m) is Size or m else 0
        x = padded_to(ctx, x, a, ctx.padded_size(start) + window)
        if ctx.masked(start):
            x, start = taken_from(ctx, x, a, ctx.count(start), window), 0
        starts[a], limits[a], strides[a] = start, start + window, stride
    shape = x.aval.shape
    is_identity = (starts, limits, strides) == ([0] * y.ndim, list(shape), [1] * y.ndim)
    # the window of an `index` may be known to fit only by the padding; `slice` would refuse it
    fits = all([at_least(n - limit, 0) for n, limit in zip(shape, limits, strict=True)])
    taken = [
        (limit - start + stride - 1) // stride for start, limit, stride in zip(starts, limits, strides, strict=True)
    ]
    cut_out = Slice(tuple(starts), tuple(limits), tuple(strides))
    out = (
        x
        if is_identity
        else ctx.one(cut_out if fits else Index(tuple(starts), tuple(taken), tuple(strides), (), ()), x)
    )
    # an axis that is taken as a whole keeps its lanes
    cut = [a for a, (n, m) in enumerate(zip(ins[0].shape, y.shape, strict=True)) if n != m or prim.starts[a]]
    return (ctx.cleared(out, y.shape, cut),)


def _slice(ctx: MaskCtx, prim: Slice, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,), (old,), (new,) = args, ins, outs
    if any([old.shape[a] != new.shape[a] for a in {*ctx.ragged(old.shape), *ctx.ragged(new.shape)}]):
        return slice_rule(ctx, prim, (ctx.clear_pending(x),), ins, outs)
    (out,) = slice_rule(ctx, prim, args, ins, outs)
    ctx.add_pending(out, ctx.pending(x))
    return (out,)


def pad_rule(ctx: MaskCtx, prim: Pad, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a `pad`."""
    (x, value), (y,) = args, outs
    x = ctx.filled(x, ins[0].shape, value)
    pads: list[tuple[int, int, int]] = []  # low, high and interior
    places: list[Atom | None] = [None] * y.ndim  # at which the result begins, if it depends on sizes
    for a, (lo, hi, interior) in enumerate(zip(prim.low, prim.high, prim.interior, strict=True)):
        m = ctx.padded_size(y.shape[a])
        if ctx.masked(interior):
            x = _with_interior_padding(ctx, x, value, a, ins[0].shape[a], m, lo, interior)
            pads.append((0, 0, 0))
            continue
        n = x.aval.shape[a]
        spread = n + maximum(n - 1, 0) * interior
        if ctx.masked(lo):
            most, below = maximum(ctx.padded_size(lo), 0), lower_bound(lo)
            least = below if below is not None else -spread
            # A result of m elements begins at most - lo of the padded operand, which has most + spread + high elements.
            # It must fit also for the least lo, which gives `high`. Without a bound, a lo below -spread drops all
            # elements of x, and the result is the same as for -spread.
            places[a] = ctx.one(SUB, int_literal(most), ctx.count(lo))
            pads.append((most, maximum(m - least - spread, 0), interior))
        elif ctx.ragged((ins[0].shape[a], y.shape[a])):
            pads.append((lo, m - lo - spread, interior))
        else:
            pads.append((lo, hi, interior))
    low, high, between = [tuple([of_axis[k] for of_axis in pads]) for k in range(3)]
    out: Atom = ctx.one(Pad(low, high, between), x, value)
    for a, place in enumerate(places):
        if place is not None:
            out = taken_from(ctx, out, a, place, ctx.padded_size(y.shape[a]))
    return (ctx.cleared(out, y.shape),)


def _with_interior_padding(
    ctx: MaskCtx, x: Atom, value: Atom, axis: int, n: int, padded: int, low: int, interior: int
) -> Atom:
    """Return `x` with `interior` copies of `value`, a size, between its elements. Each of the `padded` places of the
    result reads its element."""
    line = ctx.iota((padded,), 0)
    offset = ctx.one(SUB, line, ctx.counts(low, line.aval.shape))
    step = ctx.counts(interior + 1, line.aval.shape)
    place = ctx.one(DIV, offset, step)
    zero = Lit.zero(offset.aval)
    at_element = ctx.one(EQ, ctx.one(REM, offset, step), zero)
    before_end = ctx.one(LT, place, ctx.counts(n, line.aval.shape))
    inside = ctx.one(AND, ctx.one(GE, offset, zero), before_end)
    elements = taken_at(ctx, x, axis, place)
    is_element = emit_broadcast(ctx, ctx.one(AND, at_element, inside), elements.aval.shape, (axis,))
    return ctx.one(SELECT_N, is_element, emit_broadcast(ctx, value, elements.aval.shape, ()), elements)


def _concatenate(ctx: MaskCtx, prim: Concatenate, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a concatenation.

    Each operand is written at the sum of the true sizes before it, in order, so it overwrites the padding of the one
    before. Example: true sizes 2 and n = 1, padded sizes 2 and 3, then 2 more:

        first         a0 a1 .  .  .  .  .
        second        a0 a1 b0 _  _  .  .       starts at 2
        third         a0 a1 b0 c0 c1 .  .       starts at 2 + n
    """
    axis, y = prim.axis, outs[0]
    if not any([ctx.masked(x.shape[axis]) for x in ins]):
        return lanewise(ctx, prim, args, ins, outs)
    args = tuple([ctx.clear_pending(x) for x in args])
    shape, start = ctx.padded(y.shape), 0
    starts: list[int] = []
    padded = shape[axis]
    for x, aval in zip(args, ins, strict=True):
        starts.append(start)
        # the padded size of an operand may be larger than its part of the result: a bound need not be attained
        padded = maximum(padded, ctx.padded_size(start) + x.aval.shape[axis])
        start = start + aval.shape[axis]
    out: Atom = Lit.zero(y.with_shape((*shape[:axis], padded, *shape[axis + 1 :])))
    for x, start in zip(args, starts, strict=True):  # each operand overwrites the padding of the one before
        first = ctx.count(start)
        out = ctx.one(DYNAMIC_UPDATE_SLICE, out, x, *[first if a == axis else int_literal(0) for a in range(y.ndim)])
    if padded != shape[axis]:
        out = emit_slice(ctx, out, axis, 0, shape[axis])
    return (out,)


def _rev(ctx: MaskCtx, prim: Rev, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    x: Atom = ctx.one(prim, args[0])
    shape = ins[0].shape
    for a in ctx.ragged(shape):
        if a in prim.axes:  # the valid elements are the last ones
            padded = x.aval.shape[a]
            away = ctx.one(SUB, int_literal(padded), ctx.count(shape[a]))
            x = taken_from(ctx, padded_to(ctx, x, a, 2 * padded), a, away, padded)
    return (x,)


def _reshape(ctx: MaskCtx, prim: Reshape, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,), old, new = args, ins[0].shape, outs[0].shape
    if isinstance(x, Lit):
        return (emit_reshape(ctx, x, ctx.padded(new)),)
    if _in_place(ctx, old, new):

        def moved(axes: PaddedAxes) -> PaddedAxes:
            return frozenset([
                (b, n) for a, n in axes for b, m in enumerate(new) if (n, prod(old[:a])) == (m, prod(new[:b]))
            ])  # fmt: skip

        if len(moved(ctx.pending(x))) < len(ctx.pending(x)):
            x = ctx.clear_pending(x)
        out = emit_reshape(ctx, x, ctx.padded(new))
        ctx.learn(out, PaddingFacts(finite_axes=moved(ctx.facts(x).finite_axes)))
        ctx.add_pending(out, moved(ctx.pending(x)))
        return (out,)
    x = ctx.clear_pending(x)
    return (_gathering_reshape(ctx, x, old, new),)


def _in_place(ctx: MaskCtx, old: Shape, new: Shape) -> bool:
    """Return True if the valid elements of a padded array stay in front along each axis when it is reshaped."""
    if 0 in old and 0 in new:
        return True  # there are none
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = _smallest_groups(old, new, i, j)
        # in a group, only the outermost axis that is not 1 may have padding
        for sizes in (old[i:a], new[j:b]):
            if any([ctx.masked(n) for n in [m for m in sizes if m != 1][1:]]):
                return False
        if prod(ctx.padded(old[i:a])) != prod(ctx.padded(new[j:b])):
            return False
        i, j = a, b
    return True


def _smallest_groups(old: Shape, new: Shape, i: int, j: int) -> tuple[int, int]:
    """Return the ends of the smallest groups of axes, from `i` and `j` on, that hold equally many elements."""
    ends = [(a, b) for a in range(i, len(old) + 1) for b in range(j, len(new) + 1) if a + b > i + j]
    return next((a, b) for a, b in sorted(ends, key=sum) if prod(old[i:a]) == prod(new[j:b]))


def _gathering_reshape(ctx: MaskCtx, x: Atom, old: Shape, new: Shape) -> Atom:
    """Return a reshape in which the places of elements depend on the sizes: each result element reads its place."""
    shape = ctx.padded(new)
    flat: Atom = int_literal(0).with_shape(shape)
    for a in range(len(new)):  # the number of each element in row-major order, at the true sizes
        stride = ctx.counts(prod(new[a + 1 :]), shape)
        flat = ctx.one(ADD, flat, ctx.one(MUL, ctx.iota(shape, a), stride))
    one = int_literal(1).with_shape(shape)
    place: Atom = int_literal(0).with_shape(shape)
    padded = x.aval.shape
    for a in range(len(old)):
        size = ctx.one(MAX, ctx.counts(old[a], shape), one)
        stride = ctx.one(MAX, ctx.counts(prod(old[a + 1 :]), shape), one)
        index = ctx.one(REM, ctx.one(DIV, flat, stride), size)
        place = ctx.one(ADD, place, ctx.one(MUL, index, int_literal(prod(padded[a + 1 :])).with_shape(shape)))
    total = prod(padded)
    flat_x = emit_reshape(ctx, x, (total,))
    place = ctx.one(
        MAX, ctx.one(MIN, place, int_literal(maximum(total - 1, 0)).with_shape(shape)), int_literal(0).with_shape(shape)
    )
    return ctx.cleared(taken_at(ctx, flat_x, 0, place), new)


def groups_apart(ctx: MaskCtx, x: Atom, aval: Aval, axis: int, groups: int) -> Atom:
    """Return an axis of groups whose size is masked, with padding behind each group, and not only behind the last
    one."""
    split = _split_groups(ctx, aval.shape, axis, groups)
    if split is None:
        return x
    padded = ctx.padded(split)
    x = _gathering_reshape(ctx, x, aval.shape, split)
    return emit_reshape(ctx, x, (*padded[:axis], padded[axis] * padded[axis + 1], *padded[axis + 2 :]))


def groups_together(ctx: MaskCtx, x: Atom, aval: Aval, axis: int, groups: int) -> Atom:
    """Return the inverse of `groups_apart`."""
    split = _split_groups(ctx, aval.shape, axis, groups)
    return x if split is None else _gathering_reshape(ctx, emit_reshape(ctx, x, ctx.padded(split)), split, aval.shape)


def _split_groups(ctx: MaskCtx, shape: Shape, axis: int, groups: int) -> Shape | None:
    """Return the shape with an axis of groups, then one of their elements, in place of `axis`. None if the size of a
    group is not masked, or there is one group."""
    if groups == 1 or not ctx.masked(shape[axis] // groups):
        return None
    return (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


STRUCTURE: Final[tuple[MaskRow, ...]] = (
    row(BroadcastInDim, _broadcast, "lane by lane; padding is cleared in the result", clears_operands=False),
    row(Iota, _iota, "of the padded shape"),
    row(Slice, _slice, "the bounds are those of the true size", clears_operands=False),
    row(Pad, pad_rule, "padding is the value"),
    row(Concatenate, _concatenate, "each operand overwrites the padding before it", clears_operands=False),
    row(Rev, _rev, "shifted by the padding"),
    row(
        Reshape,
        _reshape,
        "in place where only outermost axes have padding, else by the places of elements",
        clears_operands=False,
    ),
)

__all__ = [
    "STRUCTURE",
    "groups_apart",
    "groups_together",
    "pad_rule",
    "padded_to",
    "slice_rule",
    "taken_at",
    "taken_from",
]
