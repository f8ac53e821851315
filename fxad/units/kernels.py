"""How long XLA compiles a program, estimated: by its distinct kernels.

XLA's compiler for the CPU compiles equal kernels once, whatever they are applied to: 30 equal layers of a product and a
tanh take 0.08 s, 30 of as many widths 1.15. Products and plain reductions call a library. Any other kernel takes
`KERNEL_MS`, and more for what is in it: most for special functions, which are polynomials and series. All that XLA is
given passes through it, equal or not, and a call too, for `EQUATION_MS` each. Milliseconds of one core of 2026: see the
table in `docs/adr/0024-a-program-runs-as-linked-units.md`.
"""

from __future__ import annotations

from typing import Final

from fxad.core.memo import by_value
from fxad.ir import Jaxpr, Primitive
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.cumulative import Cumulative
from fxad.primitives.dot import DotGeneral
from fxad.primitives.dynamic_slicing import DynamicSlice
from fxad.primitives.elementwise.arithmetic import Add, Max, Min, Mul, Neg, Sub
from fxad.primitives.elementwise.bessel import BesselI0e, BesselI1e, Zeta
from fxad.primitives.elementwise.beta import RegularizedIncompleteBeta
from fxad.primitives.elementwise.convert import ConvertElementType, StopGradient
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.gamma import Incomplete
from fxad.primitives.elementwise.logic import And, IsFinite, Not, Or, Xor
from fxad.primitives.elementwise.parts import Complex, Conj, Imag, Real
from fxad.primitives.elementwise.powers import Abs, IntegerPow, Sign, Square
from fxad.primitives.elementwise.select import Ceil, Clamp, Floor, Round, SelectN
from fxad.primitives.elementwise.special import Digamma, Erfc, ErfInv, Lgamma, Polygamma
from fxad.primitives.indexing import Gather, ScatterFamily
from fxad.primitives.naming import Mark
from fxad.primitives.picking import Index
from fxad.primitives.random import Threefry2x32
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.shape import (
    BroadcastInDim,
    ExpandDims,
    Iota,
    ReduceSum,
    Reshape,
    Rev,
    Squeeze,
    Transpose,
)
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.primitives.softmax import Softmax
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK
from fxad.units.fused import Cost, Inlined, Kernels, Kind

FIXED_MS: Final = 10.0  # a program of nothing
EQUATION_MS: Final = 0.15  # whatever it is, a call too
KERNEL_MS: Final = 25.0
LIBRARY_MS: Final = 8.0  # a product, a plain reduction: arguments of a function that is there
AT_MOST: Final = 4096  # equations that are looked at
FIRST: Final = 1024  # and before all of them

_Kinds = tuple[type[Primitive], ...]
_VIEWS: Final[_Kinds] = (ExpandDims, Reshape, Squeeze, Mark, StopGradient)
_CHEAP: Final[_Kinds] = (
    Add, Sub, Mul, Neg, Max, Min, Abs, Sign, Square, IntegerPow, Floor, Ceil, Round, Clamp, SelectN, Compare,
    And, Or, Xor, Not, IsFinite, ConvertElementType, Real, Imag, Conj, Complex,
    BroadcastInDim, Rev, Transpose, Iota, Slice, Pad, Concatenate, DynamicSlice, Index, Gather,
)  # fmt: skip
_LIBRARY: Final[_Kinds] = (DotGeneral, ConvGeneralDilated)
_REDUCTIONS: Final[_Kinds] = (ReduceSum, ReduceMax, ReduceMin)
# beside `KERNEL_MS`, for those that are expanded into many operations or into loops
_SPECIAL: Final[tuple[tuple[type[Primitive], float], ...]] = (
    (Lgamma, 22.0), (Digamma, 22.0), (Erfc, 16.0), (ErfInv, 16.0), (BesselI0e, 24.0), (BesselI1e, 24.0),
    (Polygamma, 150.0), (Zeta, 300.0), (Threefry2x32, 12.0), (Incomplete, 500.0), (RegularizedIncompleteBeta, 1200.0),
)  # fmt: skip
_APART: Final[tuple[tuple[type[Primitive], float], ...]] = (
    (Sort, 50.0), (TopK, 20.0), (Cumulative, 170.0), (ScatterFamily, 0.0), (Softmax, 12.0),
)  # fmt: skip
_ONE: Final = 0.5  # an operation in a kernel
_DEAR: Final = 1.2  # a function that is computed by a polynomial


def milliseconds(jaxpr: Jaxpr) -> float:
    """Time that XLA takes to compile a program.

    Law:  what is computed often in the same way counts once; more of it that differs never counts less.
    Cost: linear in its first `AT_MOST` equations, calls inlined: 5 us each. The rest counts nothing.
    """
    return _of_first(jaxpr, AT_MOST)[0]


def takes(jaxpr: Jaxpr, least: float) -> bool:
    """Whether XLA takes `least` milliseconds or more. Of a deep network the first layers tell."""
    begun, all_of_it = _of_first(jaxpr, FIRST)
    return begun >= least or (not all_of_it and milliseconds(jaxpr) >= least)


@by_value
def _of_first(jaxpr: Jaxpr, at_most: int) -> tuple[float, bool]:
    """The estimate for as many equations, and whether these are all there are."""
    program = Inlined(jaxpr, at_most)
    kernels = Kernels(program, cost).found.values()
    estimate = FIXED_MS + EQUATION_MS * program.seen + sum([_of_kernel(k.kind) + k.milliseconds for k in kernels])
    return estimate, program.seen < at_most


def _of_kernel(kind: Kind) -> float:
    return LIBRARY_MS if kind is Kind.REDUCTION else KERNEL_MS


def cost(kind: type[Primitive]) -> Cost:
    """How a primitive is compiled, and what it adds to a kernel."""
    if issubclass(kind, _VIEWS):
        return Kind.VIEW, 0.0
    if issubclass(kind, _CHEAP):
        return Kind.CHEAP, _ONE
    for family, more in _SPECIAL:
        if issubclass(kind, family):
            return Kind.DEAR, more
    if issubclass(kind, (Unary, Binary)):
        return Kind.DEAR, _DEAR
    if issubclass(kind, _LIBRARY):
        return Kind.KERNEL, LIBRARY_MS - KERNEL_MS
    if issubclass(kind, _REDUCTIONS):
        return Kind.REDUCTION, 0.0
    return Kind.KERNEL, next((more for family, more in _APART if issubclass(kind, family)), 0.0)
