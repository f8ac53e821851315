"""The cost model: estimates of run time and of the size of a program, and how XLA compiles each primitive.

The estimates are rough and monotone, and read the bodies of an equation by its layout. Run time: the arithmetic of
products and convolutions, and the bytes that are written. Size: the number of equations that XLA gets.
`fxad.units.compile_time` estimates compile time from distinct kernels. The constants are in `fxad.support.constants`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeAlias, final

from fxad.core.atoms import nominal
from fxad.core.dataclasses import dataclass
from fxad.core.layout import InParallel, OneOf, Runs, Times, UpTo
from fxad.core.memo import by_value
from fxad.core.sizes.size import Size
from fxad.ir import Aval, Eqn, HigherOrder, Jaxpr, Primitive, distinct_jaxprs
from fxad.primitives.control.call import Call
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.dot import Contraction
from fxad.primitives.dynamic_slicing import DynamicSlice
from fxad.primitives.elementwise.arithmetic import Div
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.elementwise.powers import Rsqrt, Sqrt
from fxad.primitives.elementwise.sigmoid import Logistic, Sech2, Tanh
from fxad.primitives.fusion import ARITHMETIC, MOVES, VIEWS, Kinds
from fxad.primitives.gather_scatter import Gather
from fxad.primitives.index import Index
from fxad.primitives.marks import Mark
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.shape import Permutation, ReduceSum
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.support.constants import (
    BYTES_PER_MICROSECOND,
    EXPANDED_MS,
    FLOPS_PER_MICROSECOND,
    FUNCTION_MS,
    KERNEL_MS,
    LIBRARY_MS,
    OPERATION_MS,
)

# ------------------------------------------------------------------------------------------------------------ run time


def microseconds(eqn: Eqn) -> float:
    """Return the estimated time of one run."""
    prim = eqn.prim
    if isinstance(prim, HigherOrder):
        layout = prim.layout
        branches, others = [0.0], 0.0
        for k in layout.running:
            body, runs = layout.bodies[k], layout.bodies[k].runs
            if isinstance(runs, OneOf):
                branches.append(time_of(body.jaxpr))
            else:
                others += time_of(body.jaxpr) * number_of_runs(runs)
        return max(branches) + others
    return flops(eqn) / FLOPS_PER_MICROSECOND + sum([v.aval.nbytes for v in eqn.outs]) / BYTES_PER_MICROSECOND


def number_of_runs(runs: Runs) -> int:
    """Return the number of runs of a body, or a bound that is usually reached; 1 if a predicate determines it."""
    match runs:
        case Times(count) | InParallel(count) | UpTo(count):
            return nominal(count) if type(count) is Size else count
        case _:
            return 1


@by_value
def time_of(jaxpr: Jaxpr) -> float:
    """Return the sum of `microseconds` over a program."""
    return total_time(jaxpr.eqns)


def total_time(eqns: Iterable[Eqn]) -> float:
    """Return the sum of `microseconds` over equations. Cost: 0.2 us each; for most equations only the bytes written
    count."""
    plain: dict[type[Primitive], bool] = {}
    time, written = 0.0, 0
    for eqn in eqns:
        kind = type(eqn.prim)
        only_writes = plain.get(kind)
        if only_writes is None:
            only_writes = plain[kind] = not issubclass(kind, _COMPUTE)
        if only_writes:
            for v in eqn.outs:
                written += v.aval.nbytes
        else:
            time += microseconds(eqn)
    return time + written / BYTES_PER_MICROSECOND


_COMPUTE: Final[tuple[type, ...]] = (HigherOrder, Contraction, ConvGeneralDilated)


def flops(eqn: Eqn) -> float:
    """Return the floating point operations of a product or a convolution; 0 for another equation."""
    prim = eqn.prim
    if isinstance(prim, Contraction):
        shape = eqn.ins[0].aval.shape
        return (
            2.0
            * elements(eqn.outs[0].aval)
            * elements(eqn.ins[0].aval.with_shape([shape[d] for d in prim.lhs_contract]))
        )
    if isinstance(prim, ConvGeneralDilated):
        kernel = eqn.ins[1].aval
        features = kernel.with_shape(kernel.shape[prim.rhs_spec[0] : prim.rhs_spec[0] + 1])
        return 2.0 * elements(eqn.outs[0].aval) * elements(kernel) / max(1, elements(features))
    return 0.0


def elements(aval: Aval) -> int:
    """Return the number of elements; nominal for a symbolic shape."""
    return aval.nbytes // aval.dtype.itemsize


# ---------------------------------------------------------------------------------------------------------------- size


def equations_to_compile(eqn: Eqn) -> int:
    """Return one, or the number of those in the bodies. A call counts as none: calls share their body, which is
    compiled once, while the bodies of other primitives are compiled for each equation. `Weight` counts with calls
    inlined."""
    prim = eqn.prim
    if isinstance(prim, Call):
        return 0
    return sum(map(_equations_to_compile, prim.bodies)) if isinstance(prim, HigherOrder) else 1


@by_value
def _equations_to_compile(jaxpr: Jaxpr) -> int:
    return sum(map(equations_to_compile, jaxpr.eqns))


@final
@dataclass(frozen=True, slots=True)
class Weight:
    """`equations`: the number that XLA gets, with calls inlined and the body of a loop counted once. `microseconds`:
    the time of a run. `border`: the time to read the operands and write the results, if XLA fuses every equation with
    those around it, so that a call adds this time; else 0."""

    equations: int
    microseconds: float
    border: float


def weight_of_nested(jaxpr: Jaxpr) -> Weight:
    """Return `weight` without deep recursion: it computes the weights of nested bodies first, innermost first."""
    for body in distinct_jaxprs(jaxpr):
        weight(body)
    return weight(jaxpr)


@by_value
def weight(jaxpr: Jaxpr) -> Weight:
    """Return the weight of a program. Cost: linear in its distinct equations, once; recursive, see
    `weight_of_nested`."""
    kinds = Counter([type(eqn.prim) for eqn in jaxpr.eqns])
    if any([issubclass(kind, HigherOrder) for kind in kinds]):
        with_bodies = [e.prim for e in jaxpr.eqns if isinstance(e.prim, HigherOrder) and e.prim.bodies]
    else:
        with_bodies = []
    inside = [weight(body) for prim in with_bodies for body in prim.bodies]
    kinds.subtract(map(type, with_bodies))  # only their bodies count
    others = [kind for kind, n in kinds.items() if n]
    size = len(jaxpr.eqns) - len(with_bodies) + sum([w.equations for w in inside])
    fused = all([compile_cost(kind)[0] in FUSED for kind in others]) and all([w.border for w in inside])
    border = sum([a.aval.nbytes for a in (*jaxpr.ins, *jaxpr.outs)]) / BYTES_PER_MICROSECOND if fused else 0.0
    return Weight(size, time_of(jaxpr), border)


# ------------------------------------------------------------------------------------------------- what XLA compiles


class Fusion(Enum):
    """How XLA fuses a primitive: the code that it compiles it to, and in which kernels."""

    VIEW = "no code: the result has the memory of the operand"
    CHEAP = "fused into the kernel of each reader, so it may be computed several times"
    EXPENSIVE = "fused into the kernel of its reader if there is only one, otherwise a kernel"
    REDUCTION = "a kernel, into which its operands may be fused"
    KERNEL = "a kernel, which reads its operands in memory"


FUSED: Final = (Fusion.VIEW, Fusion.CHEAP, Fusion.EXPENSIVE)  # with the operations around them

# How XLA fuses a primitive, and the compile time that it adds to a kernel, in milliseconds.
CompileCost: TypeAlias = tuple[Fusion, float]

# these read elements of an operand at other places than those that they write
REARRANGEMENTS: Final[Kinds] = (*MOVES, Slice, Pad, Concatenate, DynamicSlice, Index, Gather)
_CHEAP: Final[Kinds] = (*ARITHMETIC, *REARRANGEMENTS, Permutation)
_LIBRARY: Final[Kinds] = (Contraction, ConvGeneralDilated)
_REDUCTIONS: Final[Kinds] = (ReduceSum, ReduceMax, ReduceMin)
# Classes and families of `EXPANDED_MS` that have a kernel of their own. The other ones are functions. Both tables name
# classes: few programs use these primitives, and a name does not import their files. tests/units/test_kernels.py checks
# that each is the name of a class; a primitive from outside with such a name has the same row.
_OWN_KERNEL: Final = frozenset({"SortLike", "Cumulative", "ScatterFamily", "Softmax", "LogSoftmax"})


def compile_cost(kind: type[Primitive]) -> CompileCost:
    """Return how XLA fuses primitives of a class, and the milliseconds that each adds to those of a kernel: a negative
    number for a call of a library function."""
    if issubclass(kind, VIEWS):
        return Fusion.VIEW, 0.0
    if issubclass(kind, _CHEAP):
        return Fusion.CHEAP, OPERATION_MS
    expanded = next((base.__name__ for base in kind.__mro__ if base.__name__ in EXPANDED_MS), None)
    if expanded is not None:
        own_kernel = any([base.__name__ in _OWN_KERNEL for base in kind.__mro__])
        return Fusion.KERNEL if own_kernel else Fusion.EXPENSIVE, EXPANDED_MS[expanded]
    if issubclass(kind, (Unary, Binary)):
        return Fusion.EXPENSIVE, FUNCTION_MS
    if issubclass(kind, _LIBRARY):
        return Fusion.KERNEL, LIBRARY_MS - KERNEL_MS
    if issubclass(kind, _REDUCTIONS):
        return Fusion.REDUCTION, 0.0
    return Fusion.KERNEL, 0.0


# Values of these are computed again in a later unit rather than stored. Not `Mark`: the user marks values to be stored.
CHEAP_TO_RECOMPUTE: Final[Kinds] = (
    *ARITHMETIC, Div, Sqrt, Rsqrt, *[kind for kind in VIEWS if kind is not Mark], *MOVES, Slice, Index,
)  # fmt: skip

# Functions that cost little more than reading their result, whose derivatives read the operand. So their results are
# computed again if fewer bytes are stored then, which is the case if the operand is stored anyway.
SIGMOIDS: Final[Kinds] = (Tanh, Logistic, Sech2)
