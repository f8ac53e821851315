"""Inlining: calls are replaced by their bodies."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, distinct
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
    for body in distinct(jaxpr):  # innermost first: they may be nested as deep as Python has stack
        _inlined(body)
    return _inlined(jaxpr)


@by_value
def _inlined(jaxpr: Jaxpr) -> Jaxpr:
    return rewrite(jaxpr, _opened)


def _opened(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
    prim = eqn.prim
    if isinstance(prim, Call):
        return _apply(b, _inlined(prim.body), ins)
    return (
        b(prim.with_bodies(tuple([_inlined(j) for j in prim.bodies])), *ins) if isinstance(prim, HigherOrder) else None
    )


def _apply(b: Builder, body: Jaxpr, args: Sequence[Atom]) -> tuple[Atom, ...]:
    """`b.inline(body, args)`, with the places that are literals now among the parameters."""
    return b.inline(body, args, _settled if any([isinstance(a, Lit) for a in args]) else None)


def _settled(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
    if not any([isinstance(a, Lit) and a is not was for a, was in zip(ins, eqn.ins, strict=True)]):
        return None
    prim, ins = settled(eqn.prim, ins)
    return b.copy(eqn, ins, prim)
