"""Which equations a program's results need: the sweep that dce and remat share."""

from __future__ import annotations

from collections.abc import Callable

from fxad.builder import Builder
from fxad.ir import Atom, Eqn, Jaxpr


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
    for eqn in kept:
        env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


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
