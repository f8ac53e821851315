"""Collectives: all indices have the same sizes, so each lane is exchanged with the same lane of the others.

An axis that is divided among indices, or joined from their parts, has padding behind each part during the exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from fxad.ir import Atom, Atoms, Avals
from fxad.primitives.collectives import AllGather, AllToAll, AxisIndex, Collective, PsumScatter
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import STACK, MapSpec
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.rules.control import through_bodies
from fxad.transforms.mask.rules.lanes import lanewise
from fxad.transforms.mask.rules.structure import groups_apart, groups_together


def _grouped(
    ctx: MaskCtx, prim: AllGather | PsumScatter | AllToAll, args: Atoms, ins: Avals, outs: Avals
) -> Sequence[Atom]:
    x = args[0]
    if not isinstance(prim, AllGather):
        x = groups_apart(ctx, x, ins[0], prim.split if isinstance(prim, AllToAll) else prim.dim, prim.width)
    y: Atom = ctx.one(prim, x)
    if not isinstance(prim, PsumScatter):
        y = groups_together(ctx, y, outs[0], prim.concat if isinstance(prim, AllToAll) else prim.dim, prim.width)
    return (y,)


def _shard_map(ctx: MaskCtx, prim: ShardMap, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a map over devices: each device gets the padding of its own part. Example: a true size 2 n = 4 over two
    devices in a padded size 6: x0 x1 x2 x3 _ _ becomes x0 x1 _ | x2 x3 _, and the results are put together likewise."""
    sizes = dict(prim.mesh)

    def counts(spec: MapSpec) -> list[tuple[int, int]]:
        """Return the divided axes of an array, with the numbers of their parts."""
        groups = () if spec is STACK else spec
        return [(a, prod([sizes[name] for name in names])) for a, names in enumerate(groups) if names]

    divided: list[Atom] = []
    for x, aval, spec in zip(args, ins, prim.in_specs, strict=True):
        for axis, count in counts(spec):
            x = groups_apart(ctx, x, aval, axis, count)
        divided.append(x)
    joined: list[Atom] = []
    for x, aval, spec in zip(through_bodies(ctx, prim, tuple(divided), ins, outs), outs, prim.out_specs, strict=True):
        for axis, count in counts(spec):
            x = groups_together(ctx, x, aval, axis, count)
        joined.append(x)
    return joined


COLLECTIVE: Final[tuple[MaskRow, ...]] = (
    *[row(kind, lanewise, "lane by lane") for kind in (Collective, AxisIndex)],
    row(AllGather, _grouped, "lane by lane; parts of masked size are put together"),
    row(PsumScatter, _grouped, "lane by lane; parts of masked size are taken apart"),
    row(AllToAll, _grouped, "lane by lane; parts of masked size are taken apart and put together"),
    row(ShardMap, _shard_map, "through its body; parts of masked size are taken apart and put together"),
)

__all__ = ["COLLECTIVE"]
