"""Divides the operands and results of a program among devices."""

from __future__ import annotations

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Jaxpr
from fxad.primitives.sharding_constraint import ShardingConstraint


@by_value
def with_shardings(
    jaxpr: Jaxpr, ins: tuple[ShardingConstraint | None, ...], outs: tuple[ShardingConstraint | None, ...]
) -> Jaxpr:
    """Return the program with these sharding constraints on its operands and results; None: XLA decides.

    Law: the same values. Nothing is added for None.
    """
    b = Builder()

    def constrained(a: Atom, sharding: ShardingConstraint | None) -> Atom:
        return a if sharding is None else b.one(sharding, a)

    args = [constrained(b.input(a), sharding) for a, sharding in zip(jaxpr.in_avals, ins, strict=True)]
    results = b.inline(jaxpr, args)
    return b.build([constrained(a, sharding) for a, sharding in zip(results, outs, strict=True)], jaxpr.name)
