"""Collectives: all indices have the same sizes, so each lane is exchanged with the same lane of the others.

An axis that is divided among indices, or put together of their parts, has the padding behind each part during the
exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from fxad.ir import Atom, Atoms, Avals
from fxad.primitives.collectives import AllGather, AllToAll, AxisIndex, Pmax, Pmin, Ppermute, Psum, PsumScatter
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import DimensionAxes
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.rules.control import through_bodies
from fxad.transforms.mask.rules.lanes import lanewise
from fxad.transforms.mask.rules.structure import groups_apart, groups_together


def _all_gather(ctx: MaskCtx, prim: AllGather, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return (groups_together(ctx, ctx.one(prim, args[0]), outs[0], prim.dim, prim.width),)


def _psum_scatter(ctx: MaskCtx, prim: PsumScatter, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return ctx(prim, groups_apart(ctx, args[0], ins[0], prim.dim, prim.width))


def _all_to_all(ctx: MaskCtx, prim: AllToAll, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    parts = ctx.one(prim, groups_apart(ctx, args[0], ins[0], prim.split, prim.width))
    return (groups_together(ctx, parts, outs[0], prim.concat, prim.width),)


def _shard_map(ctx: MaskCtx, prim: ShardMap, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    sizes = dict(prim.mesh)

    def counts(spec: DimensionAxes | None) -> list[tuple[int, int]]:
        """The divided axes of an array, with the numbers of their parts."""
        return [(a, prod([sizes[name] for name in names])) for a, names in enumerate(spec or ()) if names]

    given: list[Atom] = []
    for x, aval, spec in zip(args, ins, prim.in_specs, strict=True):
        for axis, count in counts(spec):
            x = groups_apart(ctx, x, aval, axis, count)
        given.append(x)
    joined: list[Atom] = []
    for x, aval, spec in zip(through_bodies(ctx, prim, tuple(given), ins, outs), outs, prim.out_specs, strict=True):
        for axis, count in counts(spec):
            x = groups_together(ctx, x, aval, axis, count)
        joined.append(x)
    return joined


COLLECTIVE: Final[tuple[MaskRow, ...]] = (
    *[row(kind, lanewise, "lane by lane") for kind in (Psum, Pmax, Pmin, Ppermute, AxisIndex)],
    row(AllGather, _all_gather, "lane by lane; parts of masked size are put together"),
    row(PsumScatter, _psum_scatter, "lane by lane; parts of masked size are taken apart"),
    row(AllToAll, _all_to_all, "lane by lane; parts of masked size are taken apart and put together"),
    row(ShardMap, _shard_map, "through its body; parts of masked size are taken apart and put together"),
)

__all__ = ["COLLECTIVE"]
