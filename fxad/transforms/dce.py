"""Dead code elimination: drop what no result and no effect needs."""

from __future__ import annotations

from fxad.ir import Eqn, HigherOrder, Jaxpr
from fxad.liveness import narrow, sweep
from fxad.memo import by_value


@by_value
def dce(jaxpr: Jaxpr) -> Jaxpr:
    """The program without dead equations; operands and results stay as they are.

    Results of a body that nobody uses disappear from it, and then operands that only they needed.

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
    """An equation without the results of its bodies that nobody uses, where its primitive knows how."""
    if not isinstance(eqn.prim, HigherOrder):
        return eqn
    live = {v for v, u in zip(eqn.outs, used, strict=True) if u}
    while True:
        # again and again: a literal that moved into a body may be able to move on, into a body in there
        slim = eqn.prim.slim(eqn, tuple([v in live for v in eqn.outs]), prune)
        if slim is eqn or not isinstance(slim.prim, HigherOrder):
            return slim
        eqn = slim
