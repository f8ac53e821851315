"""The form in which programs are run backwards: without what nobody reads, with what is written twice once."""

from __future__ import annotations

from typing import Final

from fxad.builder import Builder
from fxad.ir import Atom, Eqn, Jaxpr, Primitive
from fxad.liveness import dce
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import SelectN
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.transforms.cse import cse

POINTWISE: Final[tuple[type[Primitive], ...]] = (Unary, Binary, Compare, SelectN)


def slim_of(jaxpr: Jaxpr) -> Jaxpr:
    """The program without dead equations and with equal ones as one; a choice can be followed into what it chooses.

    Rule: a call of an elementwise function, whose result a choice reads, is written out: of its results only those are
          known that were chosen, and it is run backwards for them, element by element.
    """
    return cse(dce(_opened(jaxpr)))


def _opened(jaxpr: Jaxpr) -> Jaxpr:
    chosen = {a for e in jaxpr.eqns if isinstance(e.prim, SelectN) for a in e.ins[1:]}
    if not chosen or not any([_opens(e, chosen) for e in jaxpr.eqns]):
        return jaxpr
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        if isinstance(eqn.prim, Call) and _opens(eqn, chosen):
            outs = b.inline(eqn.prim.body, ins)
        else:
            outs = b.copy(eqn, ins)
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


def _opens(eqn: Eqn, chosen: set[Atom]) -> bool:
    if not isinstance(eqn.prim, Call) or chosen.isdisjoint(eqn.outs):
        return False
    return all([isinstance(e.prim, POINTWISE) for e in eqn.prim.body.eqns])
