"""Convolutions and reductions of windows: the padding holds what lies beside the array.

Parameters that are sizes become operations:

    elements before the array    an explicit `pad`, first
    stride                       a slice of the results of stride 1
    window size, dilation        a gather, with an axis for the places and one for the elements of a window
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

from fxad.core.sizes.lower_bounds import lower_bound
from fxad.core.sizes.size import maximum
from fxad.ir import Atom, Atoms, Aval, Avals, Lit, Shape
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, REM, SUB
from fxad.primitives.elementwise.logic import AND, EQ, GE, LT, NE, OR
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.fold import Reduce, ReduceWindow
from fxad.primitives.gather_scatter import ScatterAdd, gather_along_axis, scatter_along_axis
from fxad.primitives.reduce import ReduceMax, ReduceMin, extreme_value
from fxad.primitives.reduce_window import (
    ReduceWindowMax,
    WindowExtremum,
    WindowReduction,
)
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, Selection
from fxad.primitives.shape import ExpandDims, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Pad, Slice
from fxad.primitives.sliding import SlidingWindow, dilated_size, window_count
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, not_masked, row
from fxad.transforms.mask.padded_builder import int_literal
from fxad.transforms.mask.rules.structure import (
    groups_apart,
    groups_together,
    pad_rule,
    padded_to,
    slice_rule,
    taken_at,
)

_Reduce = Callable[[tuple[int, ...], Sequence[Atom]], Sequence[Atom]]


def _with_size(aval: Aval, axis: int, size: int) -> Aval:
    return aval.with_shape((*aval.shape[:axis], size, *aval.shape[axis + 1 :]))


class _AxisWindows(NamedTuple):
    """The windows along one axis: the entries of a `SlidingWindow`, which has those of all axes."""

    size: int = 1
    stride: int = 1
    pads: tuple[int, int] = (0, 0)
    base: int = 1
    dilation: int = 1


def _along_axes(sliding: SlidingWindow) -> list[_AxisWindows]:
    return [_AxisWindows(*of_axis) for of_axis in zip(*sliding.values, strict=True)]


def _sliding(along: Sequence[_AxisWindows]) -> SlidingWindow:
    return SlidingWindow(
        tuple([w.size for w in along]),
        tuple([w.stride for w in along]),
        tuple([w.pads for w in along]),
        tuple([w.base for w in along]),
        tuple([w.dilation for w in along]),
    )


def _by_sizes(ctx: MaskCtx, w: _AxisWindows) -> bool:
    """Return True if the elements of windows, relative to those of the first one, depend on a size."""
    return any([ctx.masked(n) for n in (w.size, w.stride, w.base, w.dilation)])


def _with_fitting_padding(ctx: MaskCtx, n: int, m: int, w: _AxisWindows) -> _AxisWindows:
    """Return the windows with the padding for which those over the padded size of `n` elements have the padded size of
    `m` places.

    Example: n elements padded to 8, windows of 3, stride 1, no padding: m = n - 2 is padded to 6, and reaches 8
    elements. The padding is (0, 0). If there is one element before the array, and m = n is padded to 8, it is (1, 1).
    """
    if not (ctx.ragged((n, w.size, m)) or ctx.masked(w.pads[1])):
        return w
    low, window = w.pads[0], dilated_size(ctx.padded_size(w.size), w.dilation)
    reach = (ctx.padded_size(m) - 1) * w.stride + window
    return w._replace(pads=(low, reach - low - dilated_size(ctx.padded_size(n), w.base)))


def _padded_axis(
    ctx: MaskCtx, x: Atom, aval: Aval, fill: Atom, axis: int, pads: tuple[int, int], base: int
) -> tuple[Atom, Aval]:
    """Return an array with what lies beside it and between its elements, along one axis."""
    zeros = (0,) * aval.ndim
    low, high, interior = list(zeros), list(zeros), list(zeros)
    low[axis], high[axis], interior[axis] = *pads, base - 1
    pad = Pad(tuple(low), tuple(high), tuple(interior))
    n = aval.shape[axis]
    out = _with_size(aval, axis, pads[0] + n + maximum(n - 1, 0) * (base - 1) + pads[1])
    (x,) = pad_rule(ctx, pad, (x, fill), (aval, fill.aval), (out,))
    return x, out


def _strided(ctx: MaskCtx, x: Atom, aval: Aval, axis: int, stride: int, out: Aval) -> Atom:
    """Return the results of a stride that is a size, selected from those of stride 1."""
    strides = [stride if a == axis else 1 for a in range(aval.ndim)]
    limits = [(m - 1) * s + 1 if a == axis else m for a, (m, s) in enumerate(zip(out.shape, strides, strict=True))]
    selection = Slice((0,) * aval.ndim, tuple(limits), tuple(strides))
    (x,) = slice_rule(ctx, selection, (x,), (aval,), (out,))
    return x


# -------------------------------------------------------------------------------------------------------- convolution


def _conv(ctx: MaskCtx, prim: ConvGeneralDilated, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a convolution: the padding of both operands is zero, so it adds nothing to a window.

    XLA takes strides, dilations and paddings as numbers. A parameter that is a masked size is applied in another way:
    a dilation, or a padding before the operand, by writing the padded operand first (`_padded_axis`); a stride by
    selecting from the results of stride 1 (`_strided`). The padding at the end is chosen such that the result has its
    padded size. Example: a true size 2 n = 6 in a padded size 8, a window of 2 and stride n = 3:

        lhs           x0 x1 x2 x3 x4 x5 0  0
        stride 1      y0 y1 y2 y3 y4 y5 y6       of which 2 n - 1 = 5 are valid
        stride n      y0 y3                      the valid ones at 0, n, ...
    """
    (lhs, rhs), (lhs_valid, rhs_valid), (out,) = args, ins, outs
    if 0 in ctx.padded(out.shape):
        return (Lit.zero(ctx.type(out)),)
    lhs, rhs = ctx.zero_filled(lhs, lhs_valid.shape), ctx.zero_filled(rhs, rhs_valid.shape)
    along: list[_AxisWindows] = []
    dense = out  # the result before places are selected
    for k, pads in enumerate(prim.padding):
        a, b, c = prim.lhs_spec[2 + k], prim.rhs_spec[2 + k], prim.out_spec[2 + k]
        stride, base, dilation = prim.strides[k], prim.lhs_dilation[k], prim.rhs_dilation[k]
        if ctx.masked(dilation):
            rhs, rhs_valid = _padded_axis(ctx, rhs, rhs_valid, Lit.zero(rhs_valid.with_shape(())), b, (0, 0), dilation)
            dilation = 1
        if ctx.masked(pads[0]) or ctx.masked(base):
            lhs, lhs_valid = _padded_axis(ctx, lhs, lhs_valid, Lit.zero(lhs_valid.with_shape(())), a, pads, base)
            pads, base = (0, 0), 1
        n, size = lhs_valid.shape[a], rhs_valid.shape[b]
        if ctx.masked(stride):
            stride = 1
            dense = _with_size(dense, c, window_count(n, size, stride, pads, base, dilation))
        along.append(_with_fitting_padding(ctx, n, dense.shape[c], _AxisWindows(size, stride, pads, base, dilation)))
    conv = replace(
        prim,
        strides=tuple([w.stride for w in along]),
        padding=tuple([w.pads for w in along]),
        lhs_dilation=tuple([w.base for w in along]),
        rhs_dilation=tuple([w.dilation for w in along]),
        feature_groups=ctx.padded_size(prim.feature_groups),
        batch_groups=ctx.padded_size(prim.batch_groups),
    )
    lhs = groups_apart(ctx, lhs, lhs_valid, prim.lhs_spec[1], prim.feature_groups)
    lhs = groups_apart(ctx, lhs, lhs_valid, prim.lhs_spec[0], prim.batch_groups)
    groups = prim.feature_groups if prim.feature_groups != 1 else prim.batch_groups
    y: Atom = ctx.one(conv, lhs, groups_apart(ctx, rhs, rhs_valid, prim.rhs_spec[0], groups))
    y = groups_together(ctx, y, dense, prim.out_spec[1], groups)
    for k, stride in enumerate(prim.strides):
        if along[k].stride != stride:
            c = prim.out_spec[2 + k]
            sparse = _with_size(dense, c, out.shape[c])
            y, dense = _strided(ctx, y, dense, c, stride, sparse), sparse
    return (ctx.cleared(y, out.shape),)


# ------------------------------------------------------------------------------------------------- window reductions


def _windows(
    ctx: MaskCtx,
    sliding: SlidingWindow,
    args: Sequence[Atom],
    fills: Sequence[Atom],
    x: Aval,
    places: Shape,
    reduce: _Reduce,
    slide: Callable[[SlidingWindow, Sequence[Atom]], Sequence[Atom]],
) -> Sequence[Atom]:
    """Return the windows over several arrays of one shape; `fills` are what lies beside them."""
    values = [ctx.filled(v, x.shape, fill) for v, fill in zip(args, fills, strict=True)]
    along = _along_axes(sliding)
    for a, w in enumerate(along):
        n, m = x.shape[a], places[a]
        if _by_sizes(ctx, w):
            index, inside = _elements(ctx, n, m, w)
            values = [_gathered(ctx, v, fill, a, index, inside) for v, fill in zip(values, fills, strict=True)]
            values = [*reduce((a + 1,), values)]
            x = _with_size(x, a, m)
            along[a] = _AxisWindows()
        elif ctx.masked(w.pads[0]):
            padded = [_padded_axis(ctx, v, x, f, a, w.pads, w.base) for v, f in zip(values, fills, strict=True)]
            values, x = [v for v, _ in padded], padded[0][1]
            along[a] = _with_fitting_padding(ctx, x.shape[a], m, w._replace(pads=(0, 0), base=1))
        else:
            along[a] = _with_fitting_padding(ctx, n, m, w)
    return slide(_sliding(along), values)


def _elements(ctx: MaskCtx, n: int, m: int, w: _AxisWindows) -> tuple[Atom, Atom]:
    """Return for each place and each element of its window, the index of the element, and True if there is one.

    Example: n = 3 elements, windows of 2, stride 1, one element before the array, m = 3 places. The indices are
    [[-1, 0], [0, 1], [1, 2]], and the first one is False. With a base dilation of 2, only every second position holds
    an element: the positions are divided by 2, and those with a remainder are False.
    """
    shape = ctx.padded_size(m), ctx.padded_size(w.size)
    offset = ctx.iota(shape, 1)
    start = ctx.one(MUL, ctx.iota(shape, 0), ctx.counts(w.stride, shape))
    position = ctx.one(ADD, start, ctx.one(MUL, offset, ctx.counts(w.dilation, shape)))
    position = ctx.one(SUB, position, ctx.counts(w.pads[0], shape))
    index = ctx.one(DIV, position, ctx.counts(w.base, shape))
    zero = int_literal(0).with_shape(shape)
    inside = ctx.one(AND, ctx.one(GE, position, zero), ctx.one(LT, index, ctx.counts(n, shape)))
    inside = ctx.one(AND, inside, ctx.one(LT, offset, ctx.counts(w.size, shape)))
    return index, ctx.one(AND, inside, ctx.one(EQ, ctx.one(REM, position, ctx.counts(w.base, shape)), zero))


def _gathered(ctx: MaskCtx, x: Atom, fill: Atom, axis: int, index: Atom, inside: Atom) -> Atom:
    """Return the elements of windows, as `_elements` gives them: an axis of places, then one of elements, in place of
    `axis`."""
    elements = taken_at(ctx, x, axis, index)
    wide = emit_broadcast(ctx, inside, elements.aval.shape, (axis, axis + 1))
    return ctx.one(SELECT_N, wide, emit_broadcast(ctx, fill, elements.aval.shape, ()), elements)


def _reduce_window(ctx: MaskCtx, prim: WindowReduction, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,), (y,) = ins, outs
    if 0 in ctx.padded(y.shape):
        return (Lit.zero(ctx.type(y)),)
    if isinstance(prim, WindowExtremum) and x.inexact:
        if any([_by_sizes(ctx, w) for w in _along_axes(prim.sliding)]):
            return (ctx.cleared(_extremes(ctx, prim, args[0], x, y.shape), y.shape),)
        if any([ctx.masked(low) for low, _ in prim.padding]):
            return (ctx.cleared(_axis_by_axis(ctx, prim, args[0], x, y.shape), y.shape),)
    return (ctx.cleared(_reduced_windows(ctx, prim, args[0], x, y.shape), y.shape),)


def _reduced_windows(ctx: MaskCtx, prim: WindowReduction, x: Atom, of_x: Aval, places: Shape) -> Atom:
    """Return the windows of one array."""

    def reduce(axes: tuple[int, ...], values: Sequence[Atom]) -> Sequence[Atom]:
        return ctx(prim.reduction(axes), *values)

    def slide(sliding: SlidingWindow, values: Sequence[Atom]) -> Sequence[Atom]:
        return ctx(prim.with_sliding(sliding), *values)

    (y,) = _windows(ctx, prim.sliding, (x,), (prim.monoid.identity(of_x.dtype),), of_x, places, reduce, slide)
    return y


_FEW: Final = 4  # the reduction is computed for up to so many numbers of elements before an axis


def _axis_by_axis(ctx: MaskCtx, prim: WindowReduction, x: Atom, of_x: Aval, places: Shape) -> Atom:
    """Extreme elements of windows over an array with `low` elements before it, a size. An element put there would be
    selected before an equal one of the array. So if `low` has few values, the reduction is computed for each of them.
    The last axis comes first: then the first of equal elements is that of the whole window."""
    for a in reversed(range(of_x.ndim)):
        low, high = prim.padding[a]
        out = _with_size(of_x, a, places[a])
        least, most = lower_bound(low), ctx.padded_size(low)
        if not ctx.masked(low):
            x = _reduced_windows(ctx, _along(prim, a, (low, high)), x, of_x, out.shape)
        elif type(most) is int and least is not None and most - least < _FEW:
            tried = [
                (k, _reduced_windows(ctx, _along(prim, a, (k, high)), x, of_x, out.shape))
                for k in range(least, most + 1)
            ]
            x = tried[0][1]
            for k, y in tried[1:]:
                is_k = emit_broadcast(ctx, ctx.one(EQ, ctx.count(low), int_literal(k)), y.aval.shape, ())
                x = ctx.one(SELECT_N, is_k, x, y)
        else:
            x = _extremes(ctx, _along(prim, a, (low, high)), x, of_x, out.shape)
        of_x = out
    return x


def _along(prim: WindowReduction, axis: int, pads: tuple[int, int]) -> WindowReduction:
    """Return the reduction of the windows along one axis alone."""
    along = _along_axes(prim.sliding)
    other_axes_trivial = [w._replace(pads=pads) if a == axis else _AxisWindows() for a, w in enumerate(along)]
    return prim.with_sliding(_sliding(other_axes_trivial))


def _extremes(ctx: MaskCtx, prim: WindowReduction, x: Atom, valid: Aval, places: Shape) -> Atom:
    """Return the first extreme element of each window.

    Where a size decides which elements a window has, `_reduced_windows` reduces along an axis, and `ReduceMax` shares
    its tangent among equal elements: of the window [2, 2, 1] each 2 would get a half. A window maximum gives it to the
    first 2.
    """
    select = SelectAndGatherAdd("ge" if isinstance(prim, ReduceWindowMax) else "le", *prim.sliding.values)
    numbers = _selected_elements(ctx, select, x, valid, places)
    y = _at_elements(ctx, True, ctx.zero_filled(x, valid.shape), x.aval, numbers)
    empty = ctx.one(EQ, numbers, Lit.of(prod(x.aval.shape), numbers.aval))
    return ctx.one(SELECT_N, empty, y, prim.monoid.identity(valid.dtype).with_shape(y.aval.shape))


def _fold(ctx: MaskCtx, prim: Reduce, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a reduction by a body. The initial values are the identity of the body, so they fill the padding."""
    _check_body(ctx, prim)
    n = len(args) // 2
    values = [ctx.filled(x, a.shape, i, prim.axes) for x, a, i in zip(args[:n], ins[:n], args[n:], strict=True)]
    return ctx(prim, *values, *args[n:])


def _fold_windows(ctx: MaskCtx, prim: ReduceWindow, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    _check_body(ctx, prim)
    n, shape = len(args) // 2, outs[0].shape
    inits = args[n:]
    if 0 in ctx.padded(shape):
        return [Lit.zero(ctx.type(y)) for y in outs]

    def reduce(axes: tuple[int, ...], values: Sequence[Atom]) -> Sequence[Atom]:
        return ctx(Reduce(prim.body, axes), *values, *inits)

    def slide(sliding: SlidingWindow, values: Sequence[Atom]) -> Sequence[Atom]:
        return ctx(ReduceWindow(prim.body, *sliding.values), *values, *inits)

    return _windows(ctx, prim.sliding, args[:n], inits, ins[0], shape, reduce, slide)


def _check_body(ctx: MaskCtx, prim: Reduce | ReduceWindow) -> None:
    if ctx.uses_sizes(prim.body):
        raise not_masked(prim, f"its body {prim.body.name} reads a size, and takes nothing but elements")


# ----------------------------------------------------------------------------------------------------------- selection


def _selection(ctx: MaskCtx, prim: Selection, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask the choice of an element of a window: the first one is valid if any is, so the worst values behind the array
    are never chosen before it. Nothing may be put before the array: windows that begin at a size are gathered."""
    (values, x), (valid_values, valid), (out,) = args, ins, outs
    gathers = isinstance(prim, SelectAndGatherAdd)
    places = out.shape if gathers else valid_values.shape
    if 0 in ctx.padded(places) or 0 in ctx.padded(out.shape):
        return (Lit.zero(ctx.type(out)),)
    values = ctx.zero_filled(values, valid_values.shape)
    along = _along_axes(prim.sliding)
    if any([_by_sizes(ctx, w) or ctx.masked(w.pads[0]) for w in along]):
        numbers = _selected_elements(ctx, prim, x, valid, places)
        return (ctx.cleared(_at_elements(ctx, gathers, values, x.aval, numbers), out.shape),)
    fitting = [_with_fitting_padding(ctx, valid.shape[a], places[a], w) for a, w in enumerate(along)]
    x = ctx.filled(x, valid.shape, extreme_value(valid.dtype, -prim.sign))
    padded = replace(prim, padding=tuple([w.pads for w in fitting]))
    return (ctx.cleared(ctx.one(padded, values, x), out.shape),)


def _selected_elements(ctx: MaskCtx, prim: Selection, x: Atom, valid: Aval, places: Shape) -> Atom:
    """Return for each place, the number of the selected element in the flat padded `x`, or the number of all elements.

    One axis after the other: of equal elements, the first one of the window has the least number.
    """
    total, worst = int_literal(prod(x.aval.shape)), extreme_value(valid.dtype, -prim.sign)
    number = emit_reshape(ctx, ctx.iota((prod(x.aval.shape),), 0), x.aval.shape)
    extreme = ReduceMax if prim.sign > 0 else ReduceMin
    for a, w in enumerate(_along_axes(prim.sliding)):
        n, m = valid.shape[a], places[a]
        if (m, w.size, w.stride, w.pads[0], w.base) == (n, 1, 1, 0, 1):
            continue
        index, inside = _elements(ctx, n, m, w)
        numbers = _gathered(ctx, number, total, a, index, inside)
        elements = _gathered(ctx, x, worst, a, index, inside)
        x = ctx.one(extreme((a + 1,)), elements)
        outer_axes = tuple([d for d in range(elements.aval.ndim) if d != a + 1])
        best = ctx.one(EQ, elements, emit_broadcast(ctx, x, elements.aval.shape, outer_axes))
        if valid.inexact:
            best = ctx.one(OR, best, ctx.one(NE, elements, elements))
        best = ctx.one(AND, best, ctx.one(LT, numbers, total.with_shape(numbers.aval.shape)))
        number = ctx.one(ReduceMin((a + 1,)), ctx.one(SELECT_N, best, total.with_shape(numbers.aval.shape), numbers))
    return number


def _at_elements(ctx: MaskCtx, gathers: bool, values: Atom, x: Aval, numbers: Atom) -> Atom:
    """Return the values at the elements of these numbers, or arrays of the type of `x` to which they are added there.
    Numbers of no element are dropped."""
    total, numbers = prod(x.shape), ctx.one(ExpandDims((numbers.aval.ndim,)), numbers)
    if gathers:
        flat = padded_to(ctx, emit_reshape(ctx, values, (total,)), 0, 1)
        return ctx.one(gather_along_axis(flat.aval.shape, 0, mode="drop"), flat, numbers)
    zeros = Lit.zero(x.with_shape((total,)))
    scatter = scatter_along_axis(ScatterAdd, 1, 0, "drop")
    return emit_reshape(ctx, ctx.one(scatter, zeros, numbers, values), x.shape)


WINDOWS: Final[tuple[MaskRow, ...]] = (
    row(ConvGeneralDilated, _conv, "padding is 0"),
    row(WindowReduction, _reduce_window, "padding is the neutral element"),
    row(Reduce, _fold, "padding is the initial value, which is the identity of the body"),
    row(ReduceWindow, _fold_windows, "padding is the initial value, which is the identity of the body"),
    row(Selection, _selection, "padding is the worst value"),
)
