"""Inverses of operations that read and write at the positions of a known index array.

A gather is inverted by a scatter of its result. After a permutation this gives all elements; otherwise the elements
that were not read are nan. A scatter that adds or multiplies is inverted by subtraction or division, also where updates
overlap.
"""

from __future__ import annotations

from typing import Final

from fxad.ir import Atom, Emit, Hole, Lit, Mask
from fxad.primitives.elementwise.arithmetic import NEG
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterAdd, ScatterMul
from fxad.transforms.inversion.rules.arithmetic import finite_quotient, why_not_divided
from fxad.transforms.inversion.rules.contract import (
    VOLUME,
    Args,
    InverseCtx,
    InverseRow,
    Outs,
    Refused,
    ScatteredPart,
    Solved,
    row,
)
from fxad.transforms.inversion.rules.elementwise import why_too_coarse
from fxad.transforms.inversion.rules.totals import log_sizes, total

PLACES_UNKNOWN: Final = "the places are not known"
SLICES: Final = "write to a slice, such as x.at[..., 1::2], or choose by where(m, x, ...)"
UPDATES_LOST: Final = Refused("updates that meet or are left out are lost", SLICES)
UPDATES_ADDED: Final = Refused("updates that meet are added up", SLICES)
UPDATES_MULTIPLIED: Final = Refused("updates that meet are multiplied", SLICES)


def _gather(ctx: InverseCtx, prim: Gather, args: Args, outs: Outs) -> Solved | Refused:
    _, places = args
    if isinstance(places, Hole):
        return Refused(PLACES_UNKNOWN)
    scatter = Scatter(*prim.windows.numbers, prim.mode, prim.indices_sorted, prim.unique_indices)
    return ScatteredPart(outs[0], lambda emit, base: emit.one(scatter, base, places, outs[0]), outs[0].aval.size), None


def _scatter(ctx: InverseCtx, prim: Scatter, args: Args, outs: Outs) -> Solved | Refused:
    """Read the updates from the result. The operand keeps its elements that were not overwritten."""
    (y,), (x, places, updates) = outs, args
    if isinstance(places, Hole):
        return Refused(PLACES_UNKNOWN)
    if isinstance(updates, Hole) and (not prim.unique_indices or prim.mode == "drop"):
        return UPDATES_LOST

    def write(emit: Emit, base: Atom) -> Atom:
        return emit.one(prim, y, places, prim.read(emit, base, places, updates.aval))

    return (
        ScatteredPart(y, write, max(y.aval.size - updates.aval.size, 0)) if isinstance(x, Hole) else None,
        None,
        prim.read(ctx, y, places, updates.aval) if isinstance(updates, Hole) else None,
    )


def _scatter_add(ctx: InverseCtx, prim: ScatterAdd, args: Args, outs: Outs) -> Solved | Refused:
    _, indices, updates = args
    if isinstance(indices, Hole):
        return Refused(PLACES_UNKNOWN)
    if isinstance(updates, Hole):
        return UPDATES_ADDED
    if why := why_too_coarse(outs[0].aval):
        return Refused(why)
    return ctx.one(prim, outs[0], indices, ctx.one(NEG, updates)), None, None


def _factor(emit: Emit, prim: ScatterMul, x: Atom, indices: Atom, updates: Atom) -> Atom:
    """Return the product of the updates for each element of x."""
    return emit.one(prim, Lit.of(1, x.aval), indices, updates)


def _scatter_mul(ctx: InverseCtx, prim: ScatterMul, args: Args, outs: Outs) -> Solved | Refused:
    (y,), (_, indices, updates) = outs, args
    if isinstance(indices, Hole):
        return Refused(PLACES_UNKNOWN)
    if isinstance(updates, Hole):
        return UPDATES_MULTIPLIED
    if why := why_not_divided(y):
        return Refused(why)
    return finite_quotient(ctx, y, _factor(ctx, prim, y, indices, updates)), None, None


def _scatter_mul_log_det(ctx: InverseCtx, prim: ScatterMul, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    return total(ctx, log_sizes(ctx, _factor(ctx, prim, *args)))


INDEXING: Final[tuple[InverseRow, ...]] = (
    row(Gather, _gather, VOLUME),
    row(Scatter, _scatter, VOLUME),
    row(ScatterAdd, _scatter_add, VOLUME),
    row(ScatterMul, _scatter_mul, _scatter_mul_log_det),
)
