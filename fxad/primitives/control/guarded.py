"""Bodies whose checks are for examples that are there.

Under vmap a branch runs for examples that did not choose it, and a step for examples that have stopped. What it
computes for them is dropped; what it checks must not be reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.dtypes import bool_
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr
from fxad.primitives.checking import Check, checking
from fxad.primitives.elementwise import AND
from fxad.primitives.shape import spread

LIVE = Aval((), bool_)


@by_value
def guarded(jaxpr: Jaxpr) -> Jaxpr | None:
    """(whether the example is there, operands) -> results, where checks fail for an example that is there only; None
    where a check stands in a body that takes no further operand."""
    b = Builder()
    live = b.input(LIVE)
    possible = True

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        nonlocal possible
        prim = eqn.prim
        if isinstance(prim, Check):
            return b(prim, b.one(AND, ins[0], spread(b, live, prim.sizes, ())), *ins[1:])
        if isinstance(prim, HigherOrder) and checking(prim):
            inner = prim.guarded(guarded)
            if inner is not None:
                wider, at = inner
                return b(wider, *ins[:at], live, *ins[at:])
            possible = False
        return None

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build(outs, jaxpr.name) if possible else None
