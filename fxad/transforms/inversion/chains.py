"""Whether a program has chains of `invertible` to bring together before it is split for reverse mode.

What brings them together knows the rules of all inverses; a program without `invertible` does not import them.
"""

from __future__ import annotations

from fxad import transforms
from fxad.core.memo import by_value
from fxad.ir import Eqn, HigherOrder, Jaxpr
from fxad.primitives.custom import CustomCall


def reversible(eqn: Eqn) -> bool:
    """Whether reverse mode stores results of an equation and reconstructs from them what it does not hold."""
    return isinstance(eqn.prim, CustomCall) and len(eqn.prim.inverse_rule) == 2


@by_value
def has_chains(jaxpr: Jaxpr) -> bool:
    """Whether there is anything to bring together, in bodies too."""
    return any([reversible(e) or (isinstance(e.prim, HigherOrder) and opens(e.prim)) for e in jaxpr.eqns])


def opens(prim: HigherOrder) -> bool:
    """Whether bodies of an equation have anything to bring together; those of rules are left as they are."""
    return not isinstance(prim, CustomCall) and any(map(has_chains, prim.bodies))


def merge_invertible(jaxpr: Jaxpr) -> Jaxpr:
    """The program with chains of `invertible` as one each, in bodies too; the program itself where there are none.

    Law:  same value; the same derivatives, within the error of the reconstruction; no more is stored.
    Cost: one pass.
    """
    return transforms.merge_chains(jaxpr) if has_chains(jaxpr) else jaxpr
