"""Growth steps that apply any primitive inside its domain, and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Atom, Aval, HigherOrder, Lit, Primitive
from fxad.primitives import ALL, elementwise as ew
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.collectives import COLLECTIVES
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.cumulative import CumMax, CumMin, CumSum
from fxad.primitives.elementwise.bessel import Zeta
from fxad.primitives.elementwise.beta import RegularizedIncompleteBeta
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.elementwise.gamma import Incomplete
from fxad.primitives.elementwise.special import Polygamma
from fxad.primitives.fft import Fft
from fxad.primitives.gather_scatter import ScatterExtremum, ScatterMul
from fxad.primitives.host_call import HostCall
from fxad.primitives.linalg.expm import ExpmFrechet
from fxad.primitives.linalg.family import Matrixwise
from fxad.primitives.linalg.qr import Geqrf, HouseholderProduct, Ormqr
from fxad.primitives.linalg.solve import Pinv, Solve
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linalg.tridiagonal import TridiagonalSolve
from fxad.primitives.random import GammaSample, Threefry2x32
from fxad.primitives.reduce_window import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from fxad.primitives.select_and_scatter import Selection
from fxad.primitives.shape import (
    Iota,
)
from fxad.primitives.sort import Sort
from fxad.testing.applications import DrawOperands
from fxad.testing.calls import SPECS
from fxad.testing.growth import Fact, Growth, up_to
from fxad.testing.values import SEEDS, Domain, sample

# `matrix_steps` applies these to well-conditioned matrices
_MATRICES: Final = (
    Matrixwise,
    Solve,
    TriangularSolve,
    TridiagonalSolve,
    Pinv,
    ExpmFrechet,
    HouseholderProduct,
    Ormqr,
    Geqrf,
)
# some derivatives are not known: in one operand, of second order, or where updates overlap. Laws differentiate all
_PARTLY: Final = (Incomplete, RegularizedIncompleteBeta, Zeta, Polygamma, ScatterMul)
_APPLIED: Final = tuple(
    [k for k in ALL if not issubclass(k, (HigherOrder, HostCall, ew.Nextafter, *_MATRICES, *_PARTLY, *COLLECTIVES))]
)
# derivatives by convention, and functions with jumps
_ROUGH: Final = (
    *(ew.StopGradient, ew.ReducePrecision, ew.BitcastConvertType, Compare, ArgMax, ArgMin, GammaSample),
    *(Sort, CumMax, CumMin, ReduceWindowMax, ReduceWindowMin, ScatterExtremum, Selection),
)
_SMOOTH: Final = tuple([k for k in _APPLIED if not issubclass(k, _ROUGH)])


def primitive_step(g: Growth, _: Atom) -> None:
    """Apply any primitive to values inside its domain."""
    _apply(g, SPECS[g.draw(st.sampled_from(_SMOOTH if g.smooth else _APPLIED))])


def kernel_step(g: Growth, _: Atom) -> None:
    """Apply a convolution, a window reduction, a Fourier transform or a cumulative operation, which are rare among all
    primitives."""
    kinds: list[type[Primitive]] = [ConvGeneralDilated, ReduceWindowSum, Fft, CumSum]
    _apply(g, SPECS[g.draw(st.sampled_from(kinds))])


def random_numbers(g: Growth, x: Atom) -> None:
    """Add uniform numbers in [0, 1) from a key that depends on a value: 24 bits of each word of the cipher."""
    emit, shape = g.builder.one, x.aval.shape
    word = Aval(shape, dtypes.uint32)
    key = emit(ew.ConvertElementType(dtypes.uint32), g.like(x.aval.with_dtype(dtypes.int32)))
    count = emit(Iota(shape, dtypes.uint32, len(shape) - 1)) if shape else Lit.of(0, word)
    bits = g.builder(Threefry2x32(g.draw(st.booleans())), key, Lit.of(7, word), count, Lit.of(1, word))[0]
    high = emit(ew.SHIFT_RIGHT_LOGICAL, bits, Lit.of(8, word))
    dtype = dtypes.float64 if g.smooth else dtypes.float32
    whole = emit(ew.ConvertElementType(dtype), high)
    g.emit(Fact(0, 1, True), ew.MUL, whole, Lit.of(2.0**-24, whole.aval))


def step_of(specs: DrawOperands) -> Callable[[Growth, Atom], None]:
    """Return the step that applies a primitive from outside fxad."""
    return lambda g, _: _apply(g, specs)


def _apply(g: Growth, specs: DrawOperands) -> None:
    """Apply a primitive to values inside its domain: existing values, existing values mapped into the domain, or
    literals."""
    prim, operands = specs(g.draw, g.smooth)
    kind = type(prim)
    # on a bound, the derivative of clamp is 0 by convention: clamp(x, x, high) would be no smooth program
    fixed = [kind is ew.Clamp and k != 1 for k in range(len(operands))]
    args = [_draw_operand(g, aval, domain, f) for (aval, domain), f in zip(operands, fixed, strict=True)]
    for v in g.builder(prim, *args):
        g.add(v, up_to(1e6))


def _draw_operand(g: Growth, aval: Aval, domain: Domain, fixed: bool) -> Atom:
    if aval.inexact and g.smooth and not fixed and domain.low < domain.high:
        return _map_into_domain(g, g.like(aval), domain)
    if not aval.inexact and domain.whole is None:
        return g.like(aval)
    candidates = [a for a in g.pool if a.aval is aval and g.facts[a].exact and _in_domain(g.facts[a], domain)]
    if candidates and aval.inexact:
        return g.one_of(candidates)
    # one element of the domain, for all elements alike
    value = sample(aval.with_shape(()), replace(domain, special=False), g.draw(SEEDS), 0)
    return Lit(value.tobytes(), aval)


def _in_domain(fact: Fact, domain: Domain) -> bool:
    return not domain.signs and domain.low <= fact.low and fact.high <= domain.high


def _map_into_domain(g: Growth, x: Atom, domain: Domain) -> Atom:
    """Return `x` where it lies in the domain, else low + (high - low) logistic(x); for complex numbers, part by
    part."""
    if _in_domain(g.facts[x], domain):
        return x
    if x.aval.dtype in dtypes.COMPLEX:
        size = g.facts[x].size
        parts = [g.emit(up_to(size), part, x) for part in (ew.REAL, ew.IMAG)]
        both = [_map_into_domain(g, part, domain) for part in parts]
        return g.emit(Fact(domain.low, domain.high, False), ew.COMPLEX, *both)
    emit = g.builder.one
    scaled = emit(ew.MUL, emit(ew.LOGISTIC, x), Lit.of(domain.high - domain.low, x.aval))
    return g.emit(Fact(domain.low, domain.high, False), ew.ADD, scaled, Lit.of(domain.low, x.aval))
