"""Reversible equations: reverse mode reconstructs their operands from their results.

`merge_invertible` is the pass that merges chains of them, by `fxad.transforms.inversion.merge_chains`. That module
needs the inverse rules of all primitives. A program without reversible equations does not import them.
"""

from __future__ import annotations

from fxad import transforms
from fxad.core.memo import by_value
from fxad.ir import HigherOrder, Jaxpr, Primitive
from fxad.primitives.custom import CustomCall, rules_of


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
    return not isinstance(prim, CustomCall) and any(map(has_reversible, prim.bodies))


def merge_invertible(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program with each chain of `invertible` calls as one, also in bodies; the same program if it has
    none.

    Law:  same value; the same derivatives, within the error of the reconstruction; no more is stored.
    Cost: one pass.
    """
    return transforms.merge_chains(jaxpr) if has_reversible(jaxpr) else jaxpr
