"""Ordered calls of the host in the order of the program: each waits for a token that the one before gives.

XLA keeps no order between operations that do not depend on each other. So a token, a u32[], goes through the ordered
calls of a program as an operand and a result, and through the bodies that hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.errors import CompileError
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, Primitive, Var, distinct, place
from fxad.primitives.checking import Called
from fxad.primitives.control.call import Applied, Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.host import ORDERED, TOKEN, HostCall

GOES: Final = Aval((), dtypes.bool_)
# A result that every program with calls of the host has, last: it is there when the program has run.
DONE: Final = Aval((), dtypes.uint8)


def calls_host(jaxpr: Jaxpr) -> bool:
    """Whether the program calls the host: for its values, for its effects, or where a check fails."""
    return any([isinstance(eqn.prim, Called) for body in distinct(jaxpr) for eqn in body.eqns])


def prepared(jaxpr: Jaxpr) -> Jaxpr:
    """The program as it is lowered: ordered calls in a chain, `DONE` as the last result where the host is called."""
    if not calls_host(jaxpr):
        return jaxpr
    ordered = in_order(jaxpr)
    return Jaxpr(ordered.ins, ordered.eqns, (*ordered.outs, Lit.of(0, DONE)), jaxpr.name)


def in_order(jaxpr: Jaxpr) -> Jaxpr:
    """The program with its ordered calls in a chain; the same operands and results."""
    if ORDERED not in jaxpr.effects:
        return jaxpr
    b = Builder.like(jaxpr)
    _, *outs = b.inline(_threaded(jaxpr), [Lit.of(0, TOKEN), *jaxpr.ins])
    return b.build(outs, jaxpr.name)


@by_value
def _threaded(jaxpr: Jaxpr) -> Jaxpr:
    """(token, operands) -> (token, results)."""
    b = Builder()
    token: Atom = b.input(TOKEN)

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        nonlocal token
        if ORDERED not in eqn.prim.effects:
            return None
        token, outs = _through(b, eqn, ins, token)
        return outs

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build((token, *outs), jaxpr.name)


def _through(b: Builder, eqn: Eqn, ins: tuple[Atom, ...], token: Atom) -> tuple[Atom, tuple[Var, ...]]:
    """An equation with ordered calls: the token after it, and its results."""
    prim = eqn.prim
    at = 0  # where the token stands among operands and results
    new: Primitive
    match prim:
        case HostCall():
            new, at = replace(prim, token=True), 1
        case Applied():  # rules have done what they are for
            new = Call(_threaded(prim.value))
        case Remat():
            new = prim.with_bodies((_threaded(prim.body),))
        case Cond():
            new, at = prim.with_bodies(tuple([_threaded(body) for body in prim.branches])), 1
        case Scan():
            body = _after(_threaded(prim.body), prim.n_consts)
            new, at = replace(prim, body=body, n_carry=prim.n_carry + 1), prim.upto + prim.n_consts
        case While() if ORDERED in prim.cond.effects and prim.max_steps is None:
            new = Call(_threaded(_deciding(prim)))
        case While() if ORDERED not in prim.cond.effects:
            body, cond = _after(_threaded(prim.body), prim.n_body), _ignoring(prim.cond, prim.n_cond)
            new, at = replace(prim, cond=cond, body=body), prim.n_cond + prim.n_body
        case _:
            raise CompileError(
                f"compile: an ordered call of the host inside {prim.name} has no place in an order",
                remedy="leave out `ordered`, or call the host outside of it",
                where=str(place(eqn.source) or ""),
            )
    outs = b(new, *ins[:at], token, *ins[at:])
    return outs[0], outs[1:]


def _deciding(loop: While) -> Jaxpr:
    """A loop whose predicate calls the host, as one that carries what the predicate gave: its steps end with it."""
    n, m = loop.n_cond, loop.n_cond + loop.n_body
    avals = (*loop.cond.in_avals[:n], *loop.body.in_avals)
    b = Builder()
    consts = b.inputs(avals[:m])
    b.input(GOES)
    after = b.inline(loop.body, (*consts[n:], *b.inputs(avals[m:])))
    step = b.build((*b.inline(loop.cond, (*consts[:n], *after)), *after), loop.body.name)
    b = Builder()
    goes, *_ = b.inputs((GOES, *avals[m:]))
    more = b.build((goes,), loop.cond.name)
    b = Builder()
    ins = b.inputs(avals)
    first = b.inline(loop.cond, (*ins[:n], *ins[m:]))
    return b.build(b(While(more, step, 0, m), *ins[:m], *first, *ins[m:])[1:], loop.body.name)


def _after(body: Jaxpr, n: int) -> Jaxpr:
    """A body that takes its token after `n` constants."""
    b = Builder()
    consts = b.inputs([v.aval for v in body.ins[1 : 1 + n]])
    token, *rest = b.inputs([body.ins[0].aval, *[v.aval for v in body.ins[1 + n :]]])
    return b.build(b.inline(body, [token, *consts, *rest]), body.name)


def _ignoring(cond: Jaxpr, n: int) -> Jaxpr:
    """A predicate that takes a token after `n` constants, and does not look at it."""
    b = Builder()
    consts = b.inputs([v.aval for v in cond.ins[:n]])
    b.input(TOKEN)
    return b.build(b.inline(cond, [*consts, *b.inputs([v.aval for v in cond.ins[n:]])]), cond.name)
