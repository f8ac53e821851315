"""Sorting: the padding comes last, after nan too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad import dtypes
from fxad.ir import Atom, Atoms, Avals
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import NOT
from fxad.primitives.reduce import extreme_value
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row


def _sort(ctx: MaskCtx, prim: Sort, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    inside = ctx.inside(ins[0].shape, (prim.axis,))
    if inside is None:
        return ctx(prim, *args)
    last = ctx.one(ConvertElementType(dtypes.int32), ctx.one(NOT, inside))
    return ctx(Sort(prim.axis, prim.num_keys + 1), last, *args)[1:]


def _top_k(ctx: MaskCtx, prim: TopK, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    x = ctx.filled(args[0], ins[0].shape, extreme_value(ins[0].dtype, -1), (ins[0].ndim - 1,))
    values, places = ctx(TopK(ctx.padded_size(prim.k)), x)
    return ctx.cleared(values, outs[0].shape, (outs[0].ndim - 1,)), places


SORTING: Final[tuple[MaskRow, ...]] = (
    row(Sort, _sort, "padding comes last, by a key of its own"),
    row(TopK, _top_k, "padding is the least value"),
)
