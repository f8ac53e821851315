"""Reversible equations: reverse mode reconstructs their operands from their results."""

from __future__ import annotations

from fxad.core.memo import by_value
from fxad.ir import HigherOrder, Jaxpr, Primitive
from fxad.primitives.custom import CallWithRules, rules_of


def reversible(prim: Primitive) -> bool:
    """Returns True if reverse mode stores results of an equation and reconstructs its operands from them."""
    return rules_of(prim).ivjp is not None


@by_value
def has_reversible(jaxpr: Jaxpr) -> bool:
    """Returns True if the program, or one of its bodies, contains reversible equations."""
    return any([reversible(p) or (isinstance(p, HigherOrder) and has_reversible_in_bodies(p)) for p in jaxpr.prims])


def has_reversible_in_bodies(prim: HigherOrder) -> bool:
    """Returns True if bodies of an equation contain reversible equations. Bodies of functions with custom rules are not
    searched: their programs have the operands of the function."""
    return not isinstance(prim, CallWithRules) and any(map(has_reversible, prim.bodies))
