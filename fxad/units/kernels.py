"""Estimates XLA's compile time of a program from its distinct kernels.

XLA's CPU compiler compiles equal kernels once: 30 equal layers of a product and a tanh take 0.08 s, 30 layers of
different widths 1.15 s. Products and plain reductions call a library. Any other kernel takes `KERNEL_MS`, plus a time
for each operation in it. Special functions take most, because they are polynomials and series. XLA's passes over the
whole module take `EQUATION_MS` for each equation, equal or not, including calls. The figures are milliseconds of one
core of 2026: see the table in `docs/adr/0024-a-program-runs-as-linked-units.md`.
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
from fxad.primitives.elementwise.complex_parts import Complex, Conj, Imag, Real
from fxad.primitives.elementwise.convert import ConvertElementType, StopGradient
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.gamma import Incomplete
from fxad.primitives.elementwise.logic import And, IsFinite, Not, Or, Xor
from fxad.primitives.elementwise.powers import Abs, IntegerPow, Sign, Square
from fxad.primitives.elementwise.select import Ceil, Clamp, Floor, Round, SelectN
from fxad.primitives.elementwise.special import Digamma, Erfc, ErfInv, Lgamma, Polygamma
from fxad.primitives.gather import Gather, ScatterFamily
from fxad.primitives.index import Index
from fxad.primitives.marks import Mark
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

FIXED_MS: Final = 10.0  # an empty program
EQUATION_MS: Final = 0.15  # any equation, also a call
KERNEL_MS: Final = 25.0
LIBRARY_MS: Final = 8.0  # a product or a plain reduction: a call of a library function
AT_MOST: Final = 4096  # equations that the estimate reads
FIRST: Final = 1024  # equations that `takes` reads first

_Kinds = tuple[type[Primitive], ...]
_VIEWS: Final[_Kinds] = (ExpandDims, Reshape, Squeeze, Mark, StopGradient)
_CHEAP: Final[_Kinds] = (
    Add, Sub, Mul, Neg, Max, Min, Abs, Sign, Square, IntegerPow, Floor, Ceil, Round, Clamp, SelectN, Compare,
    And, Or, Xor, Not, IsFinite, ConvertElementType, Real, Imag, Conj, Complex,
    BroadcastInDim, Rev, Transpose, Iota, Slice, Pad, Concatenate, DynamicSlice, Index, Gather,
)  # fmt: skip
_LIBRARY: Final[_Kinds] = (DotGeneral, ConvGeneralDilated)
_REDUCTIONS: Final[_Kinds] = (ReduceSum, ReduceMax, ReduceMin)
# in addition to `KERNEL_MS`, for primitives that are expanded into many operations or into loops
_SPECIAL: Final[tuple[tuple[type[Primitive], float], ...]] = (
    (Lgamma, 22.0), (Digamma, 22.0), (Erfc, 16.0), (ErfInv, 16.0), (BesselI0e, 24.0), (BesselI1e, 24.0),
    (Polygamma, 150.0), (Zeta, 300.0), (Threefry2x32, 12.0), (Incomplete, 500.0), (RegularizedIncompleteBeta, 1200.0),
)  # fmt: skip
_APART: Final[tuple[tuple[type[Primitive], float], ...]] = (
    (Sort, 50.0), (TopK, 20.0), (Cumulative, 170.0), (ScatterFamily, 0.0), (Softmax, 12.0),
)  # fmt: skip
_ONE: Final = 0.5  # an operation in a kernel
_DEAR: Final = 1.2  # a function that is evaluated as a polynomial


def milliseconds(jaxpr: Jaxpr) -> float:
    """The estimated compile time of a program.

    Law:  equal kernels count once; adding different ones never lowers the estimate.
    Cost: linear in its first `AT_MOST` equations, with calls inlined: 5 us each. The other equations are ignored.
    """
    return _of_first(jaxpr, AT_MOST)[0]


def takes(jaxpr: Jaxpr, least: float) -> bool:
    """Returns True if the estimate is at least `least` milliseconds. The first layers of a deep network often suffice
    to decide."""
    begun, all_of_it = _of_first(jaxpr, FIRST)
    return begun >= least or (not all_of_it and milliseconds(jaxpr) >= least)


@by_value
def _of_first(jaxpr: Jaxpr, at_most: int) -> tuple[float, bool]:
    """The estimate for the first `at_most` equations, and True if the program has no others."""
    program = Inlined(jaxpr, at_most)
    kernels = Kernels(program, cost).found.values()
    estimate = FIXED_MS + EQUATION_MS * program.seen + sum([_of_kernel(k.kind) + k.milliseconds for k in kernels])
    return estimate, program.seen < at_most


def _of_kernel(kind: Kind) -> float:
    return LIBRARY_MS if kind is Kind.REDUCTION else KERNEL_MS


def cost(kind: type[Primitive]) -> Cost:
    """The kind of a primitive, and the milliseconds that it adds to a kernel."""
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
