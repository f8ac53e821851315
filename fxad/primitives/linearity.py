"""Linearity of programs, which decides if an equation with a body can be transposed."""

from __future__ import annotations

from collections.abc import Container
from itertools import chain, combinations
from typing import Final

from fxad.core.builder import Builder
from fxad.core.dce import remove_dead_eqns
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, Jaxpr, Linear, Lit, Zero

_FEW: Final = 6


@by_value
def is_linear(jaxpr: Jaxpr, mask: tuple[bool, ...]) -> bool:
    """Return True if every result is linear in the marked operands taken together, with the others fixed.

    A zero literal is linear in every operand; no other constant is.
    """
    linear: set[Atom] = {v for v, marked in zip(jaxpr.ins, mask, strict=True) if marked}
    for eqn in jaxpr.eqns:
        if any([a in linear for a in eqn.ins]):
            if not _is_linear(eqn, linear):
                return False
            linear.update(eqn.outs)
    return all([a in linear or is_zero(a) for a in jaxpr.outs])


def _is_linear(eqn: Eqn, linear: Container[Atom]) -> bool:
    prim = eqn.prim
    if not isinstance(prim, Linear):
        return False
    mask = tuple([a in linear for a in eqn.ins])
    return prim.linear_in(mask) or linear_with_zeros(prim, eqn, mask) is not None


@by_value
def linear_operands(jaxpr: Jaxpr) -> tuple[bool, ...]:
    """Return a mask of the operands in which, taken alone, all results that depend on them are linear."""
    reach: dict[Atom, frozenset[int]] = {v: frozenset([k]) for k, v in enumerate(jaxpr.ins)}
    none, nonlinear = frozenset[int](), set[int]()
    for eqn in jaxpr.eqns:
        of = [reach.get(a, none) for a in eqn.ins]
        every = none.union(*of)
        masks: dict[tuple[bool, ...], list[int]] = {}
        for k in every - nonlinear:
            masks.setdefault(tuple([k in found for found in of]), []).append(k)
        for mask, operands in masks.items():
            prim = eqn.prim
            if not isinstance(prim, Linear) or not (
                prim.linear_in(mask) or linear_with_zeros(prim, eqn, mask) is not None
            ):
                nonlinear.update(operands)
        reach.update(dict.fromkeys(eqn.outs, every))
    return tuple([k not in nonlinear for k in range(len(jaxpr.ins))])


def linear_with_zeros(prim: Linear, eqn: Eqn, mask: tuple[bool, ...]) -> tuple[bool, ...] | None:
    """Return the operands in which an equation is jointly linear: the marked ones, and literal zeros.

    A zero is linear in every operand, and also known. `concatenate(x_dot, 0)` is linear in both operands. A map of
    `x_dot` and 0 with a residual that is 0 is linear in the first two. So either all zeros count as linear, or, if
    there are few, some of them.
    """
    zeros = [k for k, a in enumerate(eqn.ins) if not mask[k] and is_zero(a)]
    sizes = range(1, len(zeros)) if len(zeros) <= _FEW else ()
    for chosen in chain([tuple(zeros)], *[combinations(zeros, n) for n in sizes]):
        places = tuple([m or k in chosen for k, m in enumerate(mask)])
        if prim.linear_in(places):
            return places
    return None


def is_zero(a: Atom) -> bool:
    """Return True if an atom is the literal zero of an inexact type (0.0, not -0.0)."""
    return isinstance(a, Lit) and a.aval.inexact and not any(a.bits)


@by_value
def with_zero_operands(jaxpr: Jaxpr, live: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Return a program that is linear in its first operands, specialized to zeros for those not in `live`. These are
    removed from its operands.

    Also returns a mask of its results that are not zero; the zero ones are literals. An equation that is linear in its
    zero operands, with the others known, is removed. Any other equation, such as `concatenate` of a zero operand and a
    known one, is computed with zeros: `reroll` stacks operands at the same place of the calls in a chain.
    """
    b = Builder()
    first, known = jaxpr.ins[: len(live)], jaxpr.ins[len(live) :]
    env: dict[Atom, Atom] = {}
    zeros: set[Atom] = set()
    reached: set[Atom] = set()
    for v, moves in zip(first, live, strict=True):
        env[v] = b.input(v.aval) if moves else Zero(v.aval).instantiate()
        (reached if moves else zeros).add(v)
    env.update(zip(known, b.inputs([v.aval for v in known]), strict=True))
    for eqn in jaxpr.eqns:
        if reached.isdisjoint(eqn.ins) and not zeros.isdisjoint(eqn.ins) and _is_linear(eqn, zeros):
            zeros.update(eqn.outs)
            env.update({v: Zero(v.aval).instantiate() for v in eqn.outs})
            continue
        if not reached.isdisjoint(eqn.ins):
            reached.update(eqn.outs)
        env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    slim = remove_dead_eqns(b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name))
    return slim, tuple([not is_zero(a) for a in slim.outs])
