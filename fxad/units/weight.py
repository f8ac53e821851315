"""What a program costs to compile and to run, estimated: what the choice of units goes by.

Two numbers, both rough and both monotone. Compiling: the equations that XLA gets, which are those with calls inlined;
in whole programs one of them takes 0.7 to 2 ms, so a fixed cost of 10 equations stands for what a compilation costs
however small it is. Running: see `fxad.transforms.effort`.
"""

from __future__ import annotations

from typing import Final, final

from fxad.ir import HigherOrder, Jaxpr, distinct
from fxad.memo import by_value
from fxad.records import dataclass
from fxad.transforms.effort import microseconds

FIXED: Final = 10  # equations: what a compilation costs beside those it is given


@final
@dataclass(frozen=True, slots=True)
class Weight:
    """`equations` as XLA gets them, calls inlined and the body of a loop counted once; `microseconds` of a run."""

    equations: int
    microseconds: float


def weigh(jaxpr: Jaxpr) -> Weight:
    """`weight`, however deep bodies are nested: of every program in there, innermost first."""
    for body in distinct(jaxpr):
        weight(body)
    return weight(jaxpr)


@by_value
def weight(jaxpr: Jaxpr) -> Weight:
    """The weight of a program. Cost: linear in its distinct equations, once; recursive, see `weigh`."""
    equations = 0
    for eqn in jaxpr.eqns:
        inside = eqn.prim.bodies if isinstance(eqn.prim, HigherOrder) else ()
        equations += sum([weight(body).equations for body in inside]) if inside else 1
    return Weight(equations, sum([microseconds(e) for e in jaxpr.eqns]))
