"""Convolutions and reductions of windows: the padding holds what lies beside the array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fxad.ir import Atom, Primitive
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.reduce_window import (
    ReduceWindowMax,
    ReduceWindowMin,
    ReduceWindowProd,
    ReduceWindowSum,
    WindowReduction,
)
from fxad.primitives.sliding import dilated_size
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
    features = (left.shape[prim.lhs_spec[1]], right.shape[prim.rhs_spec[0]], right.shape[prim.rhs_spec[1]])
    if prim.feature_groups > 1 and any([ctx.masked(n) for n in features]):
        raise not_masked(prim, "its features have groups, whose sizes depend on a size")
    if prim.batch_groups > 1 and ctx.masked(left.shape[prim.lhs_spec[0]]):
        raise not_masked(prim, "its examples have groups, whose sizes depend on a size")
    padding = []
    for k, (low, high) in enumerate(prim.padding):
        n, w, m = left.shape[prim.lhs_spec[2 + k]], right.shape[prim.rhs_spec[2 + k]], out.shape[prim.out_spec[2 + k]]
        if ctx.ragged((n, w, m)) or ctx.masked(low) or ctx.masked(high):
            padding.append(_pads(ctx, prim, low, n, m, w, prim.strides[k], prim.lhs_dilation[k], prim.rhs_dilation[k]))
        else:
            padding.append((low, high))
    lhs, rhs = ctx.neutral(lhs, left.shape), ctx.neutral(rhs, right.shape)
    made = replace(prim, padding=tuple(padding))
    return (ctx.cleared(ctx.one(made, lhs, rhs), out.shape),)


def _reduce_window(ctx: MaskCtx, prim: WindowReduction, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,), (y,) = ins, outs
    padding = []
    for a, (low, high) in enumerate(prim.padding):
        n, m = x.shape[a], y.shape[a]
        if ctx.ragged((n, m)) or ctx.masked(low) or ctx.masked(high) or ctx.masked(prim.window[a]):
            if ctx.masked(prim.window[a]):
                raise not_masked(prim, f"its window {prim.window[a]} depends on a size")
            padding.append(
                _pads(
                    ctx,
                    prim,
                    low,
                    n,
                    m,
                    prim.window[a],
                    prim.strides[a],
                    prim.base_dilation[a],
                    prim.window_dilation[a],
                )
            )
        else:
            padding.append((low, high))
    made = replace(prim, padding=tuple(padding))
    value = ctx.filled(args[0], x.shape, prim.monoid.identity(x.dtype))
    return (ctx.cleared(ctx.one(made, value), y.shape),)


_REDUCTIONS: Final[tuple[type[WindowReduction], ...]] = (
    ReduceWindowSum,
    ReduceWindowMax,
    ReduceWindowMin,
    ReduceWindowProd,
)

WINDOWS: Final[tuple[MaskRule, ...]] = (
    row(ConvGeneralDilated, _conv, "padding is 0; not with groups of a masked size"),
    *[row(kind, _reduce_window, "padding is the neutral element") for kind in _REDUCTIONS],
)
