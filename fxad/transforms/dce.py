"""Dead code elimination: drop what no result and no effect needs."""

from __future__ import annotations

from fxad.ir import Eqn, Jaxpr
from fxad.liveness import narrow, sweep
from fxad.memo import by_value
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat


@by_value
def dce(jaxpr: Jaxpr) -> Jaxpr:
    """The program without dead equations; operands and results stay as they are.

    Results of a call that nobody uses disappear from its body, and then operands that only they needed.

    Law:  same value; idempotent; never more equations; effects stay, in order.
    Cost: one pass back, one forward; the program itself when nothing is dead.
    """
    return sweep(jaxpr, _slim)


@by_value
def prune(jaxpr: Jaxpr, used: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The program with only the results marked in `used`, and without operands that they do not need.

    Returns the program and which operands are left.
    """
    outs = tuple([a for a, u in zip(jaxpr.outs, used, strict=True) if u])
    return narrow(dce(Jaxpr(jaxpr.ins, jaxpr.eqns, outs, jaxpr.name)))


def _slim(eqn: Eqn, used: tuple[bool, ...]) -> Eqn:
    """A call without the results nobody uses and the operands nobody reads; other equations as they are."""
    prim = eqn.prim
    if not isinstance(prim, Call | Remat):
        return eqn
    body, needed = prune(prim.body, used)
    if body is prim.body:
        return eqn
    return Eqn(
        prim.with_bodies((body,)),
        tuple([a for a, n in zip(eqn.ins, needed, strict=True) if n]),
        tuple([v for v, u in zip(eqn.outs, used, strict=True) if u]),
        eqn.source,
    )
