"""Inlining: calls are replaced by their bodies."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.builder import Builder
from fxad.ir import Atom, HigherOrder, Jaxpr
from fxad.memo import by_value
from fxad.primitives.control.call import Call


@by_value
def inline(jaxpr: Jaxpr) -> Jaxpr:
    """The program without `call` equations, at any depth; bodies of other higher-order primitives are inlined too.

    `remat` stays: what it says about memory would be lost.

    Law:  same value; idempotent; no `call` is left.
    Cost: the number of equations counted with multiplicity.
    """
    if not any([isinstance(e.prim, HigherOrder) for e in jaxpr.eqns]):
        return jaxpr
    b = Builder.like(jaxpr)
    return b.build(_emit(b, jaxpr, jaxpr.ins), jaxpr.name)


def _emit(b: Builder, jaxpr: Jaxpr, args: Sequence[Atom]) -> tuple[Atom, ...]:
    env: dict[Atom, Atom] = dict(zip(jaxpr.ins, args, strict=True))
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        prim = eqn.prim
        outs: tuple[Atom, ...]
        if isinstance(prim, Call):
            outs = b.inline(inline(prim.body), ins)
        elif isinstance(prim, HigherOrder):
            b.source = eqn.source
            outs = b(prim.with_bodies(tuple([inline(body) for body in prim.bodies])), *ins)
        else:
            outs = b.copy(eqn, ins)
        env.update(zip(eqn.outs, outs, strict=True))
    return tuple([env.get(a, a) for a in jaxpr.outs])
