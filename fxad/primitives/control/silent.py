"""Programs without what they do besides their results."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, renamed, rewrite
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
    b.extend(reversed(kept), env)
    return b.build(renamed(jaxpr.outs, env), jaxpr.name)


@by_value
def unchecked(jaxpr: Jaxpr) -> Jaxpr:
    """The same results without checks: for a program applied to what its user did not give, such as unit vectors."""
    if not checks(jaxpr):
        return jaxpr
    return rewrite(jaxpr, _unchecked)


def _unchecked(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
    prim = eqn.prim
    if isinstance(prim, Check):
        return ins[1 + prim.n_fields :]
    if isinstance(prim, HigherOrder) and checking(prim):
        return b(prim.with_bodies(tuple([unchecked(body) for body in prim.bodies])), *ins)
    return None


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
