"""Common subexpression elimination: equal equations are computed once."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Primitive, Var


@by_value
def cse(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program in which each distinct pair (primitive, operands) is computed once, also in bodies.

    Law:  same value; idempotent; never more equations; equations with effects are not merged. Recomputations of `remat`
          stay, because its equations are in a separate body.
    Cost: one pass.
    """
    seen: dict[tuple[Primitive, tuple[Atom, ...]], tuple[Var, ...]] = {}

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        prim = eqn.prim
        if isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple([cse(body) for body in prim.bodies]))
        outs = None if prim.effects else seen.get((prim, ins))
        if outs is None:
            outs = seen[prim, ins] = b.copy(eqn, ins) if prim is eqn.prim else b(prim, *ins)
        return outs

    return rewrite(jaxpr, rule)
