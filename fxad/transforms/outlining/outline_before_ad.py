"""Outlines long repetitive programs before they are differentiated.

A Python loop over layers is traced to a flat program. `linearize` and `transpose` would process every layer, but they
process a called body once. So a function is outlined before it is differentiated, if its repetitions are long enough to
be compiled as units.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, distinct_jaxprs
from fxad.primitives.control.call import callee
from fxad.support.constants import LONG_PROGRAM, UNIT_MICROSECONDS
from fxad.transforms.costs import time_of
from fxad.transforms.outlining.outline import outline


@by_value
def outline_before_ad(jaxpr: Jaxpr, min_equations: int = LONG_PROGRAM, min_cost: float = UNIT_MICROSECONDS) -> Jaxpr:
    """Return the program with repeated sequences as calls, if one of the calls takes at least `min_cost` microseconds.

    Return the same program if no call does, or if it has fewer than `min_equations` equations.

    Law:  same value; existing calls are kept.
    Cost: that of `outline`; nothing for a short program.
    """
    if len(jaxpr.eqns) < min_equations or time_of(jaxpr) < 2 * min_cost:
        return jaxpr
    outlined, before = outline(jaxpr), set(distinct_jaxprs(jaxpr))
    new = [body for body in distinct_jaxprs(outlined) if body not in before and body is not outlined]
    called = [body for body in map(callee, outlined.eqns) if body in new]
    if not any([time_of(body) >= min_cost for body in called if body is not None]):
        return jaxpr
    return _inlined(outlined, {body for body in new if time_of(body) < min_cost}, before)


def _inlined(jaxpr: Jaxpr, short: set[Jaxpr], before: set[Jaxpr]) -> Jaxpr:
    """Inline the calls of the bodies in `short`, at any depth. Calls of bodies in `before` are kept."""
    done: dict[Jaxpr, Jaxpr] = {}

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        called = callee(eqn)
        if called is not None and called in short and done[called] not in before:
            return b.inline(done[called], ins)
        if not isinstance(eqn.prim, HigherOrder):
            return None
        return b(eqn.prim.with_bodies(tuple([done[inner] for inner in eqn.prim.bodies])), *ins)

    for body in distinct_jaxprs(jaxpr) if short else ():  # innermost first
        done[body] = rewrite(body, rule)
    return done.get(jaxpr, jaxpr)
