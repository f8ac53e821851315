"""Linearity of a program: what lets an equation that carries a body be transposed."""

from __future__ import annotations

from fxad.ir import Atom, Eqn, Jaxpr, Linear, Lit
from fxad.memo import by_value


@by_value
def is_linear(jaxpr: Jaxpr, mask: tuple[bool, ...]) -> bool:
    """Whether every result is linear in the marked operands taken together, the others held fixed.

    A zero literal is linear in anything, any other constant is not.
    """
    linear: set[Atom] = {v for v, marked in zip(jaxpr.ins, mask, strict=True) if marked}
    for eqn in jaxpr.eqns:
        if any([a in linear for a in eqn.ins]):
            if not _is_linear(eqn, linear):
                return False
            linear.update(eqn.outs)
    return all([a in linear or is_zero(a) for a in jaxpr.outs])


def _is_linear(eqn: Eqn, linear: set[Atom]) -> bool:
    prim = eqn.prim
    if not isinstance(prim, Linear):
        return False
    mask = tuple([a in linear for a in eqn.ins])
    return prim.linear_in(mask) or prim.linear_in(tuple([m or is_zero(a) for m, a in zip(mask, eqn.ins, strict=True)]))


def is_zero(a: Atom) -> bool:
    """Whether an atom is the literal zero of an inexact type (0.0, not -0.0)."""
    return isinstance(a, Lit) and a.aval.inexact and not any(a.bits)
