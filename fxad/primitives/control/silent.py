"""Programs without what they do besides their results."""

from __future__ import annotations

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr
from fxad.primitives.checking import Check, checking, checks
from fxad.primitives.control.call import Applied


@by_value
def silent(jaxpr: Jaxpr) -> Jaxpr:
    """The same results without effects: for a program that is applied once more, to find out something about it.

    What an effect gave and a result needs is still asked for: there is no result without it.
    """
    if not jaxpr.effects:
        return jaxpr
    live: set[Atom] = set(jaxpr.outs)
    kept: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        if not live.isdisjoint(eqn.outs):
            kept.append(silenced(eqn))
            live.update(eqn.ins)
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for eqn in reversed(kept):
        env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


@by_value
def unchecked(jaxpr: Jaxpr) -> Jaxpr:
    """The same results without checks: for a program applied to what its user did not give, such as unit vectors."""
    if not checks(jaxpr):
        return jaxpr
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        b.source, prim = eqn.source, eqn.prim
        outs: tuple[Atom, ...]
        if isinstance(prim, Check):
            outs = ins[1 + prim.n_fields :]
        elif isinstance(prim, HigherOrder) and checking(prim):
            outs = b(prim.with_bodies(tuple([unchecked(body) for body in prim.bodies])), *ins)
        else:
            outs = b.copy(eqn, ins)
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


def quiet(eqn: Eqn) -> Eqn:
    """The equation with bodies that are silent and check nothing. What its rules do is theirs."""
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not (prim.effects or checking(prim)):
        return eqn
    n = 1 if isinstance(prim, Applied) else len(prim.bodies)
    bodies = [unchecked(silent(j)) for j in prim.bodies[:n]]
    return Eqn(prim.with_bodies((*bodies, *prim.bodies[n:])), eqn.ins, eqn.outs, eqn.source)


def silenced(eqn: Eqn) -> Eqn:
    """The equation with bodies that are silent. What the rules of one do is not done where it stands."""
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not prim.effects:
        return eqn
    n = 1 if isinstance(prim, Applied) else len(prim.bodies)
    return Eqn(
        prim.with_bodies((*[silent(j) for j in prim.bodies[:n]], *prim.bodies[n:])), eqn.ins, eqn.outs, eqn.source
    )
