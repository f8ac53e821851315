"""The rounding error of one equation: its exact result minus its result, for the operands that it has.

An equation of 32 bits or less is evaluated again in a wider dtype, over the same operands. One of 64 bits has no wider
dtype: the error of a sum, a product, a quotient or a square root is computed by error-free transformations; that of
another operation is estimated as half a unit roundoff of its result, or of the sum of its terms.

Source: Dekker, A floating-point technique for extending the available precision (1971); Ogita, Rump, Oishi, Accurate
        sum and dot product (2005), algorithms 3.1 to 3.5; Langlois, Automatic linear correction of rounding errors
        (2001), for errors of quotients and roots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import frexp, isfinite
from types import MappingProxyType
from typing import Final, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Atom, Atoms, Eqn, LinearMap, Lit, Primitive
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.collectives import AllGather, AllToAll, Extremum, Ppermute
from fxad.primitives.cumulative import CumExtremum
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, SUB, Add, Div, Max, Min, Mul, Neg, Rem, Sub
from fxad.primitives.elementwise.complex_parts import Complex, Conj, Imag, Real
from fxad.primitives.elementwise.convert import BitcastConvertType, ConvertElementType, StopGradient
from fxad.primitives.elementwise.logic import AND
from fxad.primitives.elementwise.powers import ABS, Abs, Sign, Sqrt
from fxad.primitives.elementwise.select import Ceil, Clamp, Floor, Nextafter, Round, SelectN
from fxad.primitives.families import Bilinear, WithoutTangent, of_family
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterExtremum
from fxad.primitives.host_call import HostCall
from fxad.primitives.index import Index
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet, Solve, lu_factors
from fxad.primitives.marks import Mark
from fxad.primitives.reduce import ExtremumReduction
from fxad.primitives.reduce_window import WindowExtremum
from fxad.primitives.shape import BroadcastInDim, Permutation
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK
from fxad.transforms.precision.retype import ROUNDS, converted, evaluated, unit_roundoff, wider
from fxad.transforms.precision.wide import faster

# Operations on a matrix that take its factors too, and whose derivative is by the matrix alone.
BY_FACTORS: Final = (Solve, Slogdet, Det, Pinv)


def factors_of(prim: Primitive) -> range:
    """Return the operands of one of `BY_FACTORS` that are factors."""
    return range(1, 2 if isinstance(prim, Pinv) else 3)


# Operations that copy, move or choose elements by their positions or by integers.
_COPIES: Final = (
    AllGather, AllToAll, BroadcastInDim, Concatenate, DynamicSlice, DynamicUpdateSlice, Gather, Index, Mark,
    OptimizationBarrier, Pad, Permutation, Ppermute, Scatter, SelectN, ShardingConstraint, Slice, StopGradient,
)  # fmt: skip
# Other operations whose floating results have no error.
_EXACT: Final = (
    BitcastConvertType, Ceil, Clamp, Complex, Conj, CumExtremum, Extremum, ExtremumReduction, Floor, Imag, Max, Min,
    Neg, Nextafter, Real, Rem, Round, ScatterExtremum, Sort, TopK, WindowExtremum, WithoutTangent,
)  # fmt: skip


def copies(prim: Primitive) -> bool:
    """Return True for an operation that copies elements, whatever their values."""
    return isinstance(prim, _COPIES)


def rounds(eqn: Eqn) -> bool:
    """Return True if the results of an equation may have a rounding error."""
    if not any([v.aval.inexact and v.aval.size != 0 for v in eqn.outs]):
        return False
    if isinstance(eqn.prim, ConvertElementType):
        return _narrows(eqn)
    if isinstance(eqn.prim, (Abs, Sign)):
        return eqn.ins[0].aval.dtype in dtypes.COMPLEX
    if isinstance(eqn.prim, Mul | Div) and any([_is_power_of_two(a) for a in eqn.ins[isinstance(eqn.prim, Div) :]]):
        return False
    return not isinstance(eqn.prim, _COPIES + _EXACT)


def _is_power_of_two(a: Atom) -> bool:
    """Return True for a literal by which a product is exact, up to underflow."""
    if not isinstance(a, Lit) or a.size is not None or a.aval.dtype in dtypes.COMPLEX:
        return False
    value = abs(float(a.value))
    return isfinite(value) and frexp(value)[0] == 0.5 and 2.0**-30 <= value <= 2.0**30


def _narrows(eqn: Eqn) -> bool:
    """Return True for a conversion that does not keep every value. A discarded imaginary part is no rounding."""
    return not np.can_cast(_source(eqn.ins[0], eqn.outs[0]), eqn.outs[0].aval.dtype, "safe")


def _source(x: Atom, y: Atom) -> DType:
    """Return the dtype of what a conversion of x to y rounds."""
    if not x.aval.inexact:
        return dtypes.float64 if x.aval.dtype.itemsize > 2 else x.aval.dtype
    return dtypes.real_part(x.aval.dtype) if y.aval.dtype not in dtypes.COMPLEX else x.aval.dtype


@final
@dataclass(frozen=True, slots=True)
class LocalErrors:
    """The errors of the floating results of an equation, each in the dtype of its result and in units of its roundoff
    (`unit_roundoff`), so that they do not underflow. `estimated`: they are sizes only."""

    errors: Atoms
    estimated: bool = False


def local_errors(b: Builder, eqn: Eqn, ins: Atoms, outs: Atoms) -> LocalErrors | None:
    """Add the errors of an equation. `outs` are its floating results, as the program computes them. None if they are
    unknown: the equation calls the host, or has no meaning in another dtype."""
    inexact = [k for k, v in enumerate(eqn.outs) if v.aval.inexact]
    types = wider([*[a.aval for a in ins], *[v.aval for v in eqn.outs]])
    if isinstance(eqn.prim, ROUNDS):
        wide = _source(ins[0], outs[0])
        error = b.one(SUB, converted(b, ins[0], wide), converted(b, outs[0], wide))
        return LocalErrors((_in_units(b, error, outs[0].aval.dtype),))
    if isinstance(eqn.prim, Pinv):  # it returns an operand: its error is that of the equations that computed it
        return None
    if types is None:
        rule = of_family(_ERROR_FREE, type(eqn.prim))
        if rule is not None and outs[0].aval.dtype == dtypes.float64:
            return LocalErrors((_in_units(b, rule(b, ins, outs[0]), dtypes.float64),))
        if isinstance(eqn.prim, HostCall):
            return None
        return LocalErrors(tuple([_estimate(b, eqn.prim, ins, y) for y in outs]), estimated=True)
    mapping = dict(types)
    wide_ins = tuple([converted(b, a, mapping.get(a.aval.dtype, a.aval.dtype)) for a in ins])
    if isinstance(eqn.prim, BY_FACTORS):  # the factors have errors of their own
        wide_ins = (wide_ins[0], *lu_factors(b, wide_ins[0]), *wide_ins[3:])
    fast = faster(b, eqn.prim, wide_ins)
    exact = evaluated(b, eqn.prim, wide_ins, [v.aval for v in eqn.outs], types) if fast is None else (fast,)
    if exact is None:
        return None
    exact = tuple([exact[k] for k in inexact])
    errors = tuple(
        [
            _in_units(b, b.one(SUB, x, converted(b, y, x.aval.dtype)), y.aval.dtype)
            for x, y in zip(exact, outs, strict=True)
        ]
    )
    return LocalErrors(errors)


def _in_units(b: Builder, error: Atom, dtype: DType) -> Atom:
    """Return an error in units of the roundoff of a dtype, in that dtype."""
    return converted(b, b.one(MUL, error, Lit.of(1 / unit_roundoff(dtype), error.aval)), dtype)


# ------------------------------------------------------------------------------------------------ operations of 64 bits


def _half_a_roundoff(b: Builder, y: Atom) -> Atom:
    """Return |y| / 2, in the dtype of y: in units of roundoff, the mean size of the error of a result rounded to
    nearest."""
    size = b.one(ABS, y)
    return converted(b, b.one(MUL, size, Lit.of(0.5, size.aval)), y.aval.dtype)


def _estimate(b: Builder, prim: Primitive, ins: Atoms, y: Atom) -> Atom:
    """Return the size of the error of a result: that of the sum of the sizes of its terms, if it is such a sum."""
    if isinstance(prim, Bilinear | LinearMap) and all([a.aval.dtype == dtypes.float64 for a in ins]):
        return _half_a_roundoff(b, b.one(prim, *[b.one(ABS, a) for a in ins]))
    return _half_a_roundoff(b, y)


def _of_sum(b: Builder, ins: Atoms, y: Atom) -> Atom:
    """Return x1 + x2 - y by TwoSum."""
    x1, x2 = ins
    part = b.one(SUB, y, x1)
    return b.one(ADD, b.one(SUB, x1, b.one(SUB, y, part)), b.one(SUB, x2, part))


def _of_difference(b: Builder, ins: Atoms, y: Atom) -> Atom:
    """Return x1 - x2 - y by TwoSum."""
    x1, x2 = ins
    part = b.one(SUB, y, x1)
    return b.one(SUB, b.one(SUB, x1, b.one(SUB, y, part)), b.one(ADD, x2, part))


def _of_product(b: Builder, ins: Atoms, y: Atom) -> Atom:
    """Return x1 x2 - y by TwoProduct. Factors of 27 bits have exact products, so a fused multiply-add changes
    nothing."""
    (high1, low1), (high2, low2) = _halves(b, ins[0]), _halves(b, ins[1])
    rest = b.one(SUB, b.one(MUL, high1, high2), y)
    rest = b.one(ADD, b.one(ADD, rest, b.one(MUL, high1, low2)), b.one(MUL, low1, high2))
    return b.one(ADD, rest, b.one(MUL, low1, low2))


def _halves(b: Builder, x: Atom) -> tuple[Atom, Atom]:
    """Return x as a sum of its leading 26 bits and the others."""
    bits = b.one(BitcastConvertType(dtypes.int64), x)
    high = b.one(BitcastConvertType(dtypes.float64), b.one(AND, bits, Lit.of(-(1 << 27), bits.aval)))
    return high, b.one(SUB, x, high)


def _of_quotient(b: Builder, ins: Atoms, y: Atom) -> Atom:
    """Return x1 / x2 - y = (x1 - y x2) / x2."""
    x1, x2 = ins
    product = b.one(MUL, y, x2)
    rest = b.one(SUB, b.one(SUB, x1, product), _of_product(b, (y, x2), product))
    return b.one(DIV, rest, x2)


def _of_root(b: Builder, ins: Atoms, y: Atom) -> Atom:
    """Return sqrt(x) - y = (x - y^2) / (2 y), up to second order."""
    square = b.one(MUL, y, y)
    rest = b.one(SUB, b.one(SUB, ins[0], square), _of_product(b, (y, y), square))
    return b.one(DIV, rest, b.one(ADD, y, y))


_ERROR_FREE: Final[Mapping[type[Primitive], Callable[[Builder, Atoms, Atom], Atom]]] = MappingProxyType(
    {Add: _of_sum, Sub: _of_difference, Mul: _of_product, Div: _of_quotient, Sqrt: _of_root}
)
