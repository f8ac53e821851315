"""Products of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.ir import Atom
from fxad.primitives.dot import DotGeneral, free_axes
from fxad.transforms.mask.contract import Atoms, Avals, MaskCtx, MaskRule, row


def _dot(ctx: MaskCtx, prim: DotGeneral, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    if ctx.finite(args[0]) and ctx.finite(args[1]):
        return (_finite_dot(ctx, prim, args, ins, outs),)
    # a derivative contracts the free axes too, so their padding is cleared in operands and result
    (lhs, rhs), (left, right) = [ctx.clear_pending(a) for a in args], ins
    lhs_free = free_axes(left.ndim, prim.lhs_batch, prim.lhs_contract)
    rhs_free = free_axes(right.ndim, prim.rhs_batch, prim.rhs_contract)
    lhs = ctx.zero_filled(lhs, left.shape, (*(lhs_free if left.inexact else ()), *prim.lhs_contract))
    rhs = ctx.zero_filled(rhs, right.shape, (*(rhs_free if right.inexact else ()), *prim.rhs_contract))
    n = len(prim.lhs_batch)
    return (ctx.cleared(ctx.one(prim, lhs, rhs), outs[0].shape, range(n, outs[0].ndim)),)


def _finite_dot(ctx: MaskCtx, prim: DotGeneral, args: Atoms, ins: Avals, outs: Avals) -> Atom:
    """The padding is 0 in both operands along a contracted axis: 0 times an infinity of the other operand is nan."""
    left, right = ins
    lhs = ctx.zero_for_products(args[0], left.shape, prim.lhs_contract)
    rhs = ctx.zero_for_products(args[1], right.shape, prim.rhs_contract)
    out = ctx.one(prim, lhs, rhs)
    n = len(prim.lhs_batch)
    lhs_free = free_axes(left.ndim, prim.lhs_batch, prim.lhs_contract)
    rhs_free = free_axes(right.ndim, prim.rhs_batch, prim.rhs_contract)
    # an element of the other operand that is infinite makes all products with it infinite or nan
    ctx.learn_row_zeros(out, [(n + lhs_free.index(a), size) for a, size in ctx.zeros(lhs) if a in lhs_free])
    ctx.learn_row_zeros(
        out, [(n + len(lhs_free) + rhs_free.index(a), size) for a, size in ctx.zeros(rhs) if a in rhs_free]
    )
    for x, batch in ((lhs, prim.lhs_batch), (rhs, prim.rhs_batch)):
        ctx.mark_pending(out, frozenset([(batch.index(a), size) for a, size in ctx.pending(x) if a in batch]))
    return ctx.cleared_later(out, outs[0].shape, range(n, outs[0].ndim))


PRODUCTS: Final[tuple[MaskRule, ...]] = (row(DotGeneral, _dot, "padding is 0", clears_operands=False),)
