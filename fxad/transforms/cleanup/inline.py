"""Inlining: calls are replaced by their bodies."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit
from fxad.primitives.control.call import Call
from fxad.transforms.outlining.parametrise import settled


@by_value
def inline(jaxpr: Jaxpr) -> Jaxpr:
    """The program without `call` equations, at any depth; bodies of other higher-order primitives are inlined too.

    `remat` stays: what it says about memory would be lost. Where a call hands in a literal as the place of a window, it
    becomes a parameter: `x[i]` of the body at i = 3 is `x[3]`.

    Law:  same value; idempotent; no `call` is left; undoes `outline`, but for the order.
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
            outs = _apply(b, inline(prim.body), ins)
        elif isinstance(prim, HigherOrder):
            b.source = eqn.source
            outs = b(prim.with_bodies(tuple([inline(body) for body in prim.bodies])), *ins)
        else:
            outs = b.copy(eqn, ins)
        env.update(zip(eqn.outs, outs, strict=True))
    return tuple([env.get(a, a) for a in jaxpr.outs])


def _apply(b: Builder, body: Jaxpr, args: Sequence[Atom]) -> tuple[Atom, ...]:
    """`b.inline(body, args)`, with the places that are literals now among the parameters."""
    if not any([isinstance(a, Lit) for a in args]):
        return b.inline(body, args)
    env: dict[Atom, Atom] = dict(zip(body.ins, args, strict=True))
    for eqn in body.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        if any([isinstance(a, Lit) and a is not was for a, was in zip(ins, eqn.ins, strict=True)]):
            prim, ins = settled(eqn.prim, ins)
            eqn = Eqn(prim, ins, eqn.outs, eqn.source)
        env.update(zip(eqn.outs, b.copy(eqn, ins), strict=True))
    return tuple([env.get(a, a) for a in body.outs])
