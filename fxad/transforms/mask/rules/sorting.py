"""Primitives that order elements: the padding comes last, after nan too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad import dtypes
from fxad.core.sizes.size import Size
from fxad.ir import Atom, Atoms, Avals, Primitive, map_parameter, params
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import NOT
from fxad.primitives.sort import Sort, SortLike
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row


def _sort(ctx: MaskCtx, prim: Sort, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    inside = ctx.inside(ins[0].shape, (prim.axis,))
    if inside is None:
        return ctx(prim, *args)
    last = ctx.one(ConvertElementType(dtypes.int32), ctx.one(NOT, inside))
    return ctx(Sort(prim.axis, prim.num_keys + 1), last, *args)[1:]


def _ordered(ctx: MaskCtx, prim: SortLike, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a sort. The padding gets the value that comes last, and is cleared in the results that have it."""
    axis = prim.ordered_axis(ins[0].ndim)
    filled = [ctx.filled(x, a.shape, prim.last_value(a.dtype), (axis,)) for x, a in zip(args, ins, strict=True)]
    results = zip(ctx(with_padded_sizes(ctx, prim), *filled), outs, strict=True)
    return [ctx.cleared(y, a.shape, (axis,)) if a.dtype in [x.dtype for x in ins] else y for y, a in results]


def with_padded_sizes(ctx: MaskCtx, prim: Primitive) -> Primitive:
    """Return the primitive with padded sizes in its parameters."""

    def padded(value: object) -> object:
        return ctx.padded_size(value) if isinstance(value, int | Size) and not isinstance(value, bool) else value

    return type(prim)(*[map_parameter(value, padded) for _, value in params(prim)])


SORTING: Final[tuple[MaskRow, ...]] = (
    row(Sort, _sort, "padding comes last, by a key of its own"),
    row(SortLike, _ordered, "padding has the value that comes last"),
)
