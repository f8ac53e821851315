"""Divides the operands and results of a program among devices."""

from __future__ import annotations

from typing import TypeAlias

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Jaxpr
from fxad.primitives.meshes import DimensionAxes, Ids, MeshAxes
from fxad.primitives.sharding_constraint import ShardingConstraint

# The parameters of a sharding constraint. With None, the partitioner decides.
Constraint: TypeAlias = tuple[MeshAxes, DimensionAxes, Ids] | None


@by_value
def with_shardings(jaxpr: Jaxpr, ins: tuple[Constraint, ...], outs: tuple[Constraint, ...]) -> Jaxpr:
    """Returns the program with a sharding constraint on each operand and result that has a sharding.

    Law: the same values. Nothing is added for None.
    """
    b = Builder()

    def constrained(a: Atom, sharding: Constraint) -> Atom:
        return a if sharding is None else b.one(ShardingConstraint(*sharding), a)

    args = [constrained(b.input(a), sharding) for a, sharding in zip(jaxpr.in_avals, ins, strict=True)]
    results = b.inline(jaxpr, args)
    return b.build([constrained(a, sharding) for a, sharding in zip(results, outs, strict=True)], jaxpr.name)
