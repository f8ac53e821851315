"""Convolutions and reductions of windows: the padding holds what lies beside the array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fxad.ir import Atom, Aval, Primitive, Shape
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.reduce import extreme_value
from fxad.primitives.reduce_window import (
    ReduceWindowMax,
    ReduceWindowMin,
    ReduceWindowProd,
    ReduceWindowSum,
    WindowReduction,
)
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd, Selection
from fxad.primitives.sliding import Padding, dilated_size
from fxad.transforms.mask.contract import Atoms, Avals, MaskCtx, MaskRule, not_masked, row


def _pads(
    ctx: MaskCtx, prim: Primitive, low: int, n: int, m: int, window: int, stride: int, base: int, dilation: int
) -> tuple[int, int]:
    """The padding with which windows over the room of `n` elements have the room of `m` places."""
    if ctx.masked(low):
        raise not_masked(prim, f"its padding {low} depends on a size")
    reach = (ctx.room(m) - 1) * stride + dilated_size(ctx.room(window), dilation)
    return low, reach - low - dilated_size(ctx.room(n), base)


def _conv(ctx: MaskCtx, prim: ConvGeneralDilated, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (lhs, rhs), (left, right), (out,) = args, ins, outs
    # the padding of an axis that has groups consists of whole groups, if only their number is masked
    parts = (
        (prim.feature_groups, (left.shape[prim.lhs_spec[1]], right.shape[prim.rhs_spec[0]])),
        (prim.batch_groups, (left.shape[prim.lhs_spec[0]], right.shape[prim.rhs_spec[0]])),
    )
    for groups, split in parts:
        if groups != 1 and any([ctx.masked(n // groups) for n in split]):
            raise not_masked(prim, "its groups have a size that is masked")
    padding = []
    for k, (low, high) in enumerate(prim.padding):
        n, w, m = left.shape[prim.lhs_spec[2 + k]], right.shape[prim.rhs_spec[2 + k]], out.shape[prim.out_spec[2 + k]]
        if ctx.ragged((n, w, m)) or ctx.masked(low) or ctx.masked(high):
            padding.append(_pads(ctx, prim, low, n, m, w, prim.strides[k], prim.lhs_dilation[k], prim.rhs_dilation[k]))
        else:
            padding.append((low, high))
    lhs, rhs = ctx.neutral(lhs, left.shape), ctx.neutral(rhs, right.shape)
    of_features, of_batch = ctx.room(prim.feature_groups), ctx.room(prim.batch_groups)
    made = replace(prim, padding=tuple(padding), feature_groups=of_features, batch_groups=of_batch)
    return (ctx.cleared(ctx.one(made, lhs, rhs), out.shape),)


def _padding(ctx: MaskCtx, prim: WindowReduction | Selection, x: Aval, places: Shape) -> Padding:
    """The padding of the windows over the room of `x`, at the room of their places."""
    padding = []
    for a, (low, high) in enumerate(prim.padding):
        n, m, window = x.shape[a], places[a], prim.window[a]
        if ctx.masked(window):
            raise not_masked(prim, f"its window {window} depends on a size")
        if ctx.ragged((n, m)) or ctx.masked(low) or ctx.masked(high):
            padding.append(
                _pads(ctx, prim, low, n, m, window, prim.strides[a], prim.base_dilation[a], prim.window_dilation[a])
            )
        else:
            padding.append((low, high))
    return tuple(padding)


def _reduce_window(ctx: MaskCtx, prim: WindowReduction, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,), (y,) = ins, outs
    made = replace(prim, padding=_padding(ctx, prim, x, y.shape))
    value = ctx.filled(args[0], x.shape, prim.monoid.identity(x.dtype))
    return (ctx.cleared(ctx.one(made, value), y.shape),)


def _selection(ctx: MaskCtx, prim: Selection, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    # the first element of a window is valid if any is, so padding with the worst value is never chosen before it
    (values, x), (of_values, of_x), (out,) = args, ins, outs
    places = out.shape if isinstance(prim, SelectAndGatherAdd) else of_values.shape
    made = replace(prim, padding=_padding(ctx, prim, of_x, places))
    x = ctx.filled(x, of_x.shape, extreme_value(of_x.dtype, -prim.sign))
    return (ctx.cleared(ctx.one(made, ctx.neutral(values, of_values.shape), x), out.shape),)


_REDUCTIONS: Final[tuple[type[WindowReduction], ...]] = (
    ReduceWindowSum,
    ReduceWindowMax,
    ReduceWindowMin,
    ReduceWindowProd,
)

WINDOWS: Final[tuple[MaskRule, ...]] = (
    row(ConvGeneralDilated, _conv, "padding is 0; the number of groups may be masked, their size not"),
    *[row(kind, _reduce_window, "padding is the neutral element") for kind in _REDUCTIONS],
    *[row(kind, _selection, "padding is the worst value") for kind in (SelectAndGatherAdd, SelectAndScatterAdd)],
)
