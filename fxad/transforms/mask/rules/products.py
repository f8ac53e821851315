"""Products of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.ir import Atom
from fxad.primitives.dot import DotGeneral, free_axes
from fxad.transforms.mask.contract import Atoms, Avals, MaskCtx, MaskRule, row


def _dot(ctx: MaskCtx, prim: DotGeneral, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    # a derivative contracts the free axes too, so their padding is cleared in operands and result
    (lhs, rhs), (left, right) = args, ins
    lhs_free = free_axes(left.ndim, prim.lhs_batch, prim.lhs_contract)
    rhs_free = free_axes(right.ndim, prim.rhs_batch, prim.rhs_contract)
    lhs = ctx.neutral(lhs, left.shape, (*(lhs_free if left.inexact else ()), *prim.lhs_contract))
    rhs = ctx.neutral(rhs, right.shape, (*(rhs_free if right.inexact else ()), *prim.rhs_contract))
    n = len(prim.lhs_batch)
    return (ctx.cleared(ctx.one(prim, lhs, rhs), outs[0].shape, range(n, outs[0].ndim)),)


PRODUCTS: Final[tuple[MaskRule, ...]] = (row(DotGeneral, _dot, "padding is 0"),)
