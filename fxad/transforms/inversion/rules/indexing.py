"""Inverses of operations that read and write at the positions of a known index array.

A gather is inverted by a scatter of its result. After a permutation this gives all elements; otherwise the elements
that were not read are nan.
"""

from __future__ import annotations

from typing import Final

from fxad.ir import Atom, Emit, Hole
from fxad.primitives.gather_scatter import Gather, Scatter
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

PLACES_UNKNOWN: Final = "the places are not known"
SLICES: Final = "write to a slice, such as x.at[..., 1::2], or choose by where(m, x, ...)"
UPDATES_LOST: Final = Refused("updates that meet or are left out are lost", SLICES)


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


INDEXING: Final[tuple[InverseRow, ...]] = (row(Gather, _gather, VOLUME), row(Scatter, _scatter, VOLUME))
