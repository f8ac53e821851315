"""Ordered calls of the host run in program order: each takes a token, a result of the one before.

XLA does not preserve the order of independent operations. So a token, a u32[], is threaded as an operand and a result
through the ordered calls of a program, and through the bodies that contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dce import rebind_operands
from fxad.core.layout import PREDICATE, Carry, Constant, InParallel, Layout, Once, OneOf, Role, Value
from fxad.core.memo import by_value
from fxad.errors import CompileError
from fxad.ir import (
    Atom,
    Aval,
    Eqn,
    HigherOrder,
    Jaxpr,
    Lit,
    Primitive,
    Var,
    all_prims,
    source_location,
)
from fxad.primitives.check import CallsHost
from fxad.primitives.control.call import Call
from fxad.primitives.control.while_ import While
from fxad.primitives.host_call import ORDERED, TOKEN, HostCall

# An equation with a threaded value, and the places of that value among its operands and among its results.
Threaded: TypeAlias = tuple[Primitive, int, int]
_THREADED: Final = -1  # the threaded value, among the places of operands

PREDICATE_AVAL: Final = Aval((), dtypes.bool_)
# The additional last result of every program with calls of the host: it is available when the program has run.
DONE: Final = Aval((), dtypes.uint8)


def calls_host(jaxpr: Jaxpr) -> bool:
    """Returns True if the program may call the host: for values, for effects, or for a failed check."""
    return any([isinstance(prim, CallsHost) for prim in all_prims(jaxpr)])


def with_host_calls_ordered(jaxpr: Jaxpr) -> Jaxpr:
    """The program as it is lowered: ordered calls in a chain, `DONE` as the last result where the host is called."""
    if not calls_host(jaxpr):
        return jaxpr
    ordered = thread_tokens(jaxpr)
    return Jaxpr(ordered.ins, ordered.eqns, (*ordered.outs, Lit.of(0, DONE)), jaxpr.name)


def thread_tokens(jaxpr: Jaxpr) -> Jaxpr:
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
        token, outs = _thread_equation(b, eqn, ins, token)
        return outs

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build((token, *outs), jaxpr.name)


def _thread_equation(b: Builder, eqn: Eqn, ins: tuple[Atom, ...], token: Atom) -> tuple[Atom, tuple[Var, ...]]:
    """An equation with ordered calls: the token after it, and its results."""
    prim = eqn.prim
    ordered: Threaded | None = None
    if isinstance(prim, HostCall):
        ordered = replace(prim, token=True), 1, 0
    elif isinstance(prim, HigherOrder):
        ordered = with_threaded(prim, TOKEN, _threaded, _is_ordered)
    if ordered is None:
        raise CompileError(
            f"compile: an ordered call of the host inside {prim.name} has no place in an order",
            remedy="leave out `ordered`, or call the host outside of it",
            where=str(source_location(eqn.source) or ""),
        )
    new, at, after = ordered
    outs = b(new, *ins[:at], token, *ins[at:])
    return outs[after], (*outs[:after], *outs[after + 1 :])


def _is_ordered(jaxpr: Jaxpr) -> bool:
    return ORDERED in jaxpr.effects


def with_threaded(
    prim: HigherOrder, aval: Aval, thread: Callable[[Jaxpr], Jaxpr], changes: Callable[[Jaxpr], bool]
) -> Threaded | None:
    """Thread a value through an equation with bodies that change it: as a carry of a loop, or as an operand and a
    result of a body that runs once. `thread` turns a body into (value, operands) -> (value, results). `changes` is True
    for bodies that change the value. None if there is no order: parallel runs, or a predicate that changes the value.
    """
    layout = prim.layout
    changing = [k for k in layout.running if changes(layout.bodies[k].jaxpr)]
    once = layout.once
    if layout.has_rules and once is not None:  # rules are not needed any more
        return Call(thread(layout.bodies[once].jaxpr)), 0, 0
    if isinstance(prim, While) and changes(prim.cond) and prim.max_steps is None:
        return Call(thread(with_predicate_in_body(prim))), 0, 0
    branches = all([isinstance(layout.bodies[k].runs, Once | OneOf) for k in layout.running])
    kind: type[Role] = Constant if branches else Carry
    threaded = layout.running if branches else changing
    groups = {layout.group_of(k, kind) for k in threaded}
    outs = {next((g for g in layout.bodies[k].results if _holds_value(layout, g, branches)), None) for k in threaded}
    if len(groups) != 1 or len(outs) != 1 or any([isinstance(layout.bodies[k].runs, InParallel) for k in changing]):
        return None
    (group,), (result,) = groups, outs
    if group is None or result is None or (not branches and len(changing) > 1):
        return None
    operands = [list(layout.operands_of(g)) for g in range(len(layout.operands))]
    operands[group].insert(0, _THREADED)
    bodies = []
    for k, body in enumerate(layout.bodies):
        takes, jaxpr = layout.operand_indices(k), body.jaxpr
        if k in threaded:
            before = body.results[: body.results.index(result)]
            place = sum([1 if g == PREDICATE else layout.results[g].size for g in before])
            jaxpr = _move_first_result(thread(jaxpr), place)
            takes = (_THREADED, *takes)
        bodies.append(rebind_operands(jaxpr, takes, body.operands, operands, types={_THREADED: aval}))
    sizes = tuple([g.size + (k == result) for k, g in enumerate(layout.results)])
    new = prim.rebuild(tuple(bodies), tuple(map(len, operands)), sizes)
    return new, layout.operands_of(group).start, layout.results_of(result).start


def _holds_value(layout: Layout, group: int, branches: bool) -> bool:
    return group != PREDICATE and isinstance(layout.results[group].role, Value if branches else Carry)


def _move_first_result(body: Jaxpr, to: int) -> Jaxpr:
    """A body with its first result at another place."""
    first, *outs = body.outs
    return Jaxpr(body.ins, body.eqns, (*outs[:to], first, *outs[to:]), body.name)


def with_predicate_in_body(loop: While) -> Jaxpr:
    """Rewrite a loop whose predicate calls the host: the predicate moves to the end of the body, and its value becomes
    a carry."""
    n, m = loop.n_cond, loop.n_cond + loop.n_body
    avals = (*loop.cond.in_avals[:n], *loop.body.in_avals)
    b = Builder()
    consts = b.inputs(avals[:m])
    b.input(PREDICATE_AVAL)
    after = b.inline(loop.body, (*consts[n:], *b.inputs(avals[m:])))
    step = b.build((*b.inline(loop.cond, (*consts[:n], *after)), *after), loop.body.name)
    b = Builder()
    goes, *_ = b.inputs((PREDICATE_AVAL, *avals[m:]))
    more = b.build((goes,), loop.cond.name)
    b = Builder()
    ins = b.inputs(avals)
    first = b.inline(loop.cond, (*ins[:n], *ins[m:]))
    return b.build(b(While(more, step, 0, m), *ins[:m], *first, *ins[m:])[1:], loop.body.name)
