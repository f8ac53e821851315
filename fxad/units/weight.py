"""Estimates of the size of a program for the compiler and of its run time, for the choice of units.

The estimates are rough and monotone. Compilation: the number of equations that XLA gets, with calls inlined;
`fxad.units.kernels` estimates the time. Run time: see `fxad.transforms.outlining.effort`. XLA fuses elementwise
operations with their producers and consumers. At the border of a unit, values are written to memory and read again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import HigherOrder, Jaxpr, Primitive, distinct_jaxprs
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.select import Clamp, SelectN
from fxad.primitives.marks import Mark
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Iota, Reshape, Rev, Squeeze, Transpose
from fxad.transforms.outlining.effort import BYTES, time_of

FIXED: Final = 10  # the fixed cost of a compilation, in equations

# operations that XLA fuses with their producers and consumers
_FUSED: Final[tuple[type[Primitive], ...]] = (
    Unary, Binary, Compare, SelectN, Clamp,
    BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose, Iota, Mark,
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Weight:
    """`equations`: the number that XLA gets, with calls inlined and the body of a loop counted once. `microseconds`:
    the time of a run. `border`: the part of it that reads and writes values which would be fused without a border."""

    equations: int
    microseconds: float
    border: float


def weigh(jaxpr: Jaxpr) -> Weight:
    """`weight` without deep recursion: it computes the weights of nested bodies first, innermost first."""
    for body in distinct_jaxprs(jaxpr):
        weight(body)
    return weight(jaxpr)


@by_value
def weight(jaxpr: Jaxpr) -> Weight:
    """The weight of a program. Cost: linear in its distinct equations, once; recursive, see `weigh`."""
    equations, fused = 0, True
    for kind, n in Counter([type(eqn.prim) for eqn in jaxpr.eqns]).items():
        carriers = [e.prim for e in jaxpr.eqns if type(e.prim) is kind] if issubclass(kind, HigherOrder) else []
        inside = [[weight(body) for body in p.bodies] for p in carriers if isinstance(p, HigherOrder)]
        inside = [bodies for bodies in inside if bodies]
        alone = n - len(inside)
        equations += alone + sum([w.equations for bodies in inside for w in bodies])
        fused = fused and all([w.border for bodies in inside for w in bodies])
        fused = fused and (not alone or issubclass(kind, _FUSED))
    handed = sum([a.aval.nbytes for a in (*jaxpr.ins, *jaxpr.outs)]) / BYTES if fused else 0.0
    return Weight(equations, time_of(jaxpr), handed)
