"""What a program costs to compile and to run, estimated: what the choice of units goes by.

Three numbers, all rough and all monotone. Compiling: the equations that XLA gets, which are those with calls inlined;
and milliseconds. What XLA makes kernels of costs most of them: a reduction has one of its own, and what is done element
by element is compiled into each of its readers, while products call a library and reshapes nothing. On a quiet core of
2026 programs of many equal layers take up to 3 times the estimate, with softmax and special functions up to 10 times.
Running: see `fxad.transforms.effort`. What is done element by element, and nothing else, XLA fuses with what is before
and after it; at the border of a unit it is written, and read again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, final

from fxad.ir import HigherOrder, Jaxpr, Primitive, distinct
from fxad.memo import by_value
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.select import Clamp, SelectN
from fxad.primitives.naming import Mark
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Iota, Reshape, Rev, Squeeze, Transpose
from fxad.records import dataclass
from fxad.transforms.effort import BYTES, time_of

FIXED: Final = 10  # equations: what a compilation costs beside those it is given
FIXED_MS: Final = 40.0  # and in milliseconds

_CALLED: Final = 0.3  # a product: a call of a library
_FUSED: Final = 1.0
_KERNEL: Final = 8.0
_LIBRARY: Final[tuple[type[Primitive], ...]] = (DotGeneral, ConvGeneralDilated)
_ELEMENTWISE: Final[tuple[type[Primitive], ...]] = (Unary, Binary, Compare, SelectN, Clamp)
_MOVES: Final[tuple[type[Primitive], ...]] = (
    BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose, Iota, Mark,
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Weight:
    """`equations` as XLA gets them, calls inlined and the body of a loop counted once, and `milliseconds` to compile
    them; `microseconds` of a run, and `border` of them to hand over operands and results that would be fused otherwise.
    """

    equations: int
    milliseconds: float
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
    equations, milliseconds, fused = 0, 0.0, True
    for kind, n in Counter([type(eqn.prim) for eqn in jaxpr.eqns]).items():
        carriers = [e.prim for e in jaxpr.eqns if type(e.prim) is kind] if issubclass(kind, HigherOrder) else []
        inside = [[weight(body) for body in p.bodies] for p in carriers if isinstance(p, HigherOrder)]
        inside = [bodies for bodies in inside if bodies]
        each, alone = _milliseconds(kind), n - len(inside)
        equations += alone + sum([w.equations for bodies in inside for w in bodies])
        milliseconds += alone * each + sum([w.milliseconds for bodies in inside for w in bodies])
        fused = fused and all([w.border for bodies in inside for w in bodies])
        fused = fused and (not alone or (each <= _FUSED and kind not in _LIBRARY))
    handed = sum([a.aval.nbytes for a in (*jaxpr.ins, *jaxpr.outs)]) / BYTES if fused else 0.0
    return Weight(equations, milliseconds, time_of(jaxpr), handed)


def _milliseconds(kind: type[Primitive]) -> float:
    if issubclass(kind, _MOVES):
        return 0.0
    if issubclass(kind, _ELEMENTWISE):
        return _FUSED
    return _CALLED if issubclass(kind, _LIBRARY) else _KERNEL
