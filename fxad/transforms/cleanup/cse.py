"""Common subexpression elimination: compute equal equations once."""

from __future__ import annotations

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, HigherOrder, Jaxpr, Primitive, Var


@by_value
def cse(jaxpr: Jaxpr) -> Jaxpr:
    """The program with each distinct (primitive, operands) computed once, bodies included.

    Law:  same value; idempotent; never more equations; effects are not merged. What `remat` recomputes stays
          recomputed: its equations are in a body of their own.
    Cost: one pass.
    """
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    seen: dict[tuple[Primitive, tuple[Atom, ...]], tuple[Var, ...]] = {}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        prim = eqn.prim
        if isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple([cse(body) for body in prim.bodies]))
        outs = None if prim.effects else seen.get((prim, ins))
        if outs is None:
            b.source = eqn.source
            outs = b.copy(eqn, ins) if prim is eqn.prim else b(prim, *ins)
            seen[prim, ins] = outs
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)
