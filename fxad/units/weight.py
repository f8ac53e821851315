"""What there is to compile in a program, and how long it runs, estimated: what the choice of units goes by.

Rough numbers, and monotone. Compiling: the equations that XLA gets, which are those with calls inlined; how long they
take is in `fxad.units.kernels`. Running: see `fxad.transforms.outlining.effort`. What is done element by element, and nothing
else, XLA fuses with what is before and after it; at the border of a unit it is written, and read again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import HigherOrder, Jaxpr, Primitive, distinct
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.select import Clamp, SelectN
from fxad.primitives.naming import Mark
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Iota, Reshape, Rev, Squeeze, Transpose
from fxad.transforms.outlining.effort import BYTES, time_of

FIXED: Final = 10  # equations: what a compilation costs beside those it is given

# what XLA fuses with what is before and after it
_FUSED: Final[tuple[type[Primitive], ...]] = (
    Unary, Binary, Compare, SelectN, Clamp,
    BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose, Iota, Mark,
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Weight:
    """`equations` as XLA gets them, calls inlined and the body of a loop counted once; `microseconds` of a run, and
    `border` of them to hand over operands and results that would be fused otherwise."""

    equations: int
    microseconds: float
    border: float


def weigh(jaxpr: Jaxpr) -> Weight:
    """`weight`, however deep bodies are nested: of every program in there, innermost first."""
    for body in distinct(jaxpr):
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
