"""Removal of the rules that only derivatives need, from a program that is not differentiated any more."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.dce import dce, prune
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, distinct_jaxprs
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Function
from fxad.primitives.linear_call import LinearCall, drop_unused_residuals


@by_value
def drop_derivative_rules(jaxpr: Jaxpr, transposed: bool = False) -> Jaxpr:
    """Return the program without the operands and rules that only derivatives need.
    `transposed`: the program is linear and may still be transposed.

    Rule: an equation whose value needs fewer operands than its rules loses its rules.
    """
    if not any([_reads_fewer_operands(e) for body in distinct_jaxprs(jaxpr) for e in body.eqns]):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        prim = eqn.prim
        # a linear function keeps its maps, which a transpose reads; without their derivative rules
        if transposed and isinstance(prim, LinearCall):
            maps, needed = drop_unused_residuals(
                [drop_derivative_rules(body) for body in prim.bodies], prim.linear_bodies
            )
            ins = (*ins[: prim.n_linear], *select_by_flags(ins[prim.n_linear :], needed))
            prim = prim.with_bodies(tuple(maps))
        # functions with rules: only these have a value that needs fewer operands than the rules
        elif isinstance(prim, CallWithRules | LinearCall):
            value, needed = prune(drop_derivative_rules(prim.applied), (True,) * len(eqn.outs))
            if not all(needed) or value != prim.applied:
                prim, ins = CallWithRules(Function(value)), select_by_flags(ins, needed)
        elif isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple([drop_derivative_rules(body, transposed) for body in prim.bodies]))
        return b.copy(eqn, ins, prim)

    return dce(rewrite(jaxpr, rule))


def _reads_fewer_operands(eqn: Eqn) -> bool:
    prim = eqn.prim
    # not isinstance: this runs for every equation
    if type(prim) is not CallWithRules and type(prim) is not LinearCall:
        return False
    return not all(prune(prim.applied, (True,) * len(eqn.outs))[1])
