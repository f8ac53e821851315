"""Which equations a program's results need: what dce, and the rules of equations with bodies, are made of."""

from __future__ import annotations

from collections.abc import Callable

from fxad.core.builder import Builder, renamed
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr


def whole(eqn: Eqn, _used: tuple[bool, ...]) -> Eqn:
    """Keep an equation as it is, whichever of its results are used."""
    return eqn


def sweep(jaxpr: Jaxpr, slim: Callable[[Eqn, tuple[bool, ...]], Eqn] = whole) -> Jaxpr:
    """The program without equations that no result and no effect needs; the program itself when there are none.

    `slim(eqn, used)` may replace a live equation by one that has only the results marked in `used`.
    """
    live: set[Atom] = set(jaxpr.outs)
    kept: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        used = tuple([v in live for v in eqn.outs])
        if any(used) or eqn.prim.effects:
            kept.append(slim(eqn, used))
            live.update(kept[-1].ins)
    kept.reverse()
    if len(kept) == len(jaxpr.eqns) and all([a is b for a, b in zip(kept, jaxpr.eqns, strict=True)]):
        return jaxpr
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    b.extend(kept, env)
    return b.build(renamed(jaxpr.outs, env), jaxpr.name)


def narrow(jaxpr: Jaxpr) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The program without operands that nothing reads, and which operands are left."""
    read: set[Atom] = set(jaxpr.outs)
    for eqn in jaxpr.eqns:
        read.update(eqn.ins)
    needed = tuple([v in read for v in jaxpr.ins])
    if all(needed):
        return jaxpr, needed
    b = Builder()
    args: list[Atom] = [b.input(v.aval) if n else v for v, n in zip(jaxpr.ins, needed, strict=True)]
    return b.build(b.inline(jaxpr, args), jaxpr.name), needed


@by_value
def dce(jaxpr: Jaxpr) -> Jaxpr:
    """The program without dead equations; operands and results stay as they are.

    Results of a body that nobody uses disappear from it, and then operands that only they needed.

    Law:  same value; idempotent; never more equations; effects stay, in order.
    Cost: one pass back, one forward; the program itself when nothing is dead.
    """
    return sweep(jaxpr, _slim)


@by_value
def prune(jaxpr: Jaxpr, used: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The program with only the results marked in `used`, and without operands that they do not need.

    Returns the program and which operands are left.
    """
    outs = tuple([a for a, u in zip(jaxpr.outs, used, strict=True) if u])
    return narrow(dce(Jaxpr(jaxpr.ins, jaxpr.eqns, outs, jaxpr.name)))


def _slim(eqn: Eqn, used: tuple[bool, ...]) -> Eqn:
    """An equation without the results of its bodies that nobody uses, where its primitive knows how."""
    if not isinstance(eqn.prim, HigherOrder):
        return eqn
    live = {v for v, u in zip(eqn.outs, used, strict=True) if u}
    while True:
        # again and again: a literal that moved into a body may be able to move on, into a body in there
        slim = eqn.prim.slim(eqn, tuple([v in live for v in eqn.outs]), prune)
        if slim is eqn or not isinstance(slim.prim, HigherOrder):
            return slim
        eqn = slim
