"""Divides the operands and results of a program among devices."""

from __future__ import annotations

from typing import TypeAlias

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Jaxpr
from fxad.primitives.meshes import DimensionAxes, Ids, MeshAxes
from fxad.primitives.sharding_constraint import ShardingConstraint

# The division of a value; with None, the partitioner decides.
Where: TypeAlias = tuple[MeshAxes, DimensionAxes, Ids] | None


@by_value
def with_shardings(jaxpr: Jaxpr, ins: tuple[Where, ...], outs: tuple[Where, ...]) -> Jaxpr:
    """Returns the program with a sharding constraint on each operand and result that has a sharding.

    Law: the same values. Nothing is added for None.
    """
    b = Builder()

    def divided(a: Atom, where: Where) -> Atom:
        return a if where is None else b.one(ShardingConstraint(*where), a)

    args = [divided(b.input(a), where) for a, where in zip(jaxpr.in_avals, ins, strict=True)]
    results = b.inline(jaxpr, args)
    return b.build([divided(a, where) for a, where in zip(results, outs, strict=True)], jaxpr.name)
