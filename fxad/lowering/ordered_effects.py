"""Ordered calls of the host run in program order: each takes a token, a result of the one before.

XLA does not preserve the order of independent operations. So a token, a u32[], is threaded through the ordered calls of
a program (`fxad.lowering.threaded_values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.errors import CompileError
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Lit, source_location
from fxad.lowering.threaded_values import Threaded, with_threaded
from fxad.primitives.check import calls_host
from fxad.primitives.host_call import ORDERED, TOKEN, HostCall

# The additional last result of every program with calls of the host: it is available when the program has run.
DONE: Final = Aval((), dtypes.uint8)


def with_host_calls_ordered(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program as it is lowered: ordered calls in a chain, `DONE` as the last result where the host is
    called."""
    if not calls_host(jaxpr):
        return jaxpr
    ordered = thread_tokens(jaxpr)
    return Jaxpr(ordered.ins, ordered.eqns, (*ordered.outs, Lit.of(0, DONE)), jaxpr.name)


def thread_tokens(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with its ordered calls in a chain; the same operands and results."""
    if ORDERED not in jaxpr.effects:
        return jaxpr
    b = Builder.like(jaxpr)
    _, *outs = b.inline(_threaded(jaxpr), [Lit.of(0, TOKEN), *jaxpr.ins])
    return b.build(outs, jaxpr.name)


@by_value
def _threaded(jaxpr: Jaxpr) -> Jaxpr:
    """Return (token, operands) -> (token, results)."""
    b = Builder()
    token: Atom = b.input(TOKEN)

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        nonlocal token
        if ORDERED not in eqn.prim.effects:
            return None
        token, outs = _with_token(eqn).bind(b, token, ins)
        return outs

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build((token, *outs), jaxpr.name)


def _with_token(eqn: Eqn) -> Threaded:
    """Return the primitive of an equation with ordered calls, with the token. Raises: CompileError if its bodies run in
    no order."""
    prim = eqn.prim
    threaded: Threaded | None = None
    if isinstance(prim, HostCall):
        threaded = Threaded(replace(prim, token=True), 1, 0)
    elif isinstance(prim, HigherOrder):
        threaded = with_threaded(prim, TOKEN, _threaded, _is_ordered)
    if threaded is None:
        raise CompileError(
            f"compile: an ordered call of the host inside {prim.name} has no place in an order",
            remedy="leave out `ordered`, or call the host outside of it",
            where=str(source_location(eqn.source) or ""),
        )
    return threaded


def _is_ordered(jaxpr: Jaxpr) -> bool:
    return ORDERED in jaxpr.effects
