"""Bodies whose checks are for examples that are there.

Under vmap a branch runs for examples that did not choose it, and a step for examples that have stopped. What it
computes for them is dropped; what it checks must not be reported.
"""

from __future__ import annotations

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.dtypes import bool_
from fxad.ir import Atom, Aval, HigherOrder, Jaxpr
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
    env: dict[Atom, Atom] = {v: b.input(v.aval) for v in jaxpr.ins}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        b.source = eqn.source
        prim = eqn.prim
        outs: tuple[Atom, ...]
        if isinstance(prim, Check):
            outs = b(prim, b.one(AND, ins[0], spread(b, live, prim.sizes, ())), *ins[1:])
        elif isinstance(prim, HigherOrder) and checking(prim):
            inner = prim.guarded(guarded)
            if inner is None:
                return None
            wider, at = inner
            outs = b(wider, *ins[:at], live, *ins[at:])
        else:
            outs = b.copy(eqn, ins)
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)
