"""What a program costs to compile and to run, estimated: what the choice of units goes by.

Two numbers, both rough and both monotone. Compiling: the equations that XLA gets, which are those with calls inlined;
in whole programs one of them takes 0.7 to 2 ms, so a fixed cost of 10 equations stands for what a compilation costs
however small it is. Running: the arithmetic of products and convolutions, and the bytes that everything else writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, final

from fxad.ir import Eqn, HigherOrder, Jaxpr, distinct
from fxad.memo import by_value
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.scan import Scan
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.dot import DotGeneral

FIXED: Final = 10  # equations: what a compilation costs beside those it is given
FLOPS: Final = 5e4  # in a microsecond, on a few cores
BYTES: Final = 4e3  # written in a microsecond


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
    equations, microseconds = 0, 0.0
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, HigherOrder):
            inner = [weight(body) for body in eqn.prim.bodies]
            equations += sum([w.equations for w in inner])
            times = [w.microseconds for w in inner]
            if isinstance(eqn.prim, Cond):
                microseconds += max(times)
            else:  # how often a `while` runs is not known: once
                microseconds += sum(times) * (eqn.prim.length if isinstance(eqn.prim, Scan) else 1)
        else:
            equations += 1
            microseconds += (
                _arithmetic(eqn) / FLOPS + sum([v.aval.size * v.aval.dtype.itemsize for v in eqn.outs]) / BYTES
            )
    return Weight(equations, microseconds)


def _arithmetic(eqn: Eqn) -> float:
    """Flops of a product or a convolution; of anything else none."""
    prim = eqn.prim
    if isinstance(prim, DotGeneral):
        shape = eqn.ins[0].aval.shape
        return 2.0 * eqn.outs[0].aval.size * prod([shape[d] for d in prim.lhs_contract])
    if isinstance(prim, ConvGeneralDilated):
        kernel = eqn.ins[1].aval
        return 2.0 * eqn.outs[0].aval.size * kernel.size / max(1, kernel.shape[prim.rhs_spec[0]])
    return 0.0
