"""Facts about the padding of a value: a dataflow analysis, run while `mask` adds equations.

The facts save selects. Padding that is zero need not be filled with zeros again. Padding that is finite need not be
cleared at once. A lower bound of a value tells that a reciprocal or a logarithm of it is finite. `PaddingFacts` has the
facts about one value. `facts_of_result` derives those about the result of an equation from those about its operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.lower_bounds import lower_bound
from fxad.ir import Atom, Atoms, Aval, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.dot import Contraction
from fxad.primitives.dynamic_slicing import DynamicSlice
from fxad.primitives.elementwise.family import Unary
from fxad.primitives.gather_scatter import Gather
from fxad.primitives.index import Index
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.shape import AxisMove, BroadcastInDim, Permutation, ReduceSum
from fxad.primitives.slicing import Concatenate, Pad, Slice

# Axes with padding, each with its symbolic size: the padding along the axis is at the indices from this size on.
PaddedAxes: TypeAlias = frozenset[tuple[int, int]]
NO_AXES: Final[PaddedAxes] = frozenset()


@final
@dataclass(frozen=True, slots=True)
class PaddingFacts:
    """The facts about one value. A default says nothing. In a fact about an axis, the row of an element consists of the
    elements that differ from it only in the index along this axis.

    finite:                the whole value is finite, padding included, if the operands of the program are.
    finite_axes:           the padding along these axes is finite.
    zeros:                 the padding along these axes is zero.
    zeros_unless_nan:      it is zero, or its whole row is nan, as in a softmax.
    zeros_unless_infinite: it is zero, or no valid element of its row is finite.
    least:                 no element is less than this number, padding included. None: no number is known.
    """

    finite: bool = False
    finite_axes: PaddedAxes = NO_AXES
    zeros: PaddedAxes = NO_AXES
    zeros_unless_nan: PaddedAxes = NO_AXES
    zeros_unless_infinite: PaddedAxes = NO_AXES
    least: float | None = None

    def __or__(self, more: PaddingFacts) -> PaddingFacts:
        """Return the facts of both, about one value."""
        bounds = [least for least in (self.least, more.least) if least is not None]
        return PaddingFacts(
            self.finite or more.finite,
            self.finite_axes | more.finite_axes,
            self.zeros | more.zeros,
            self.zeros_unless_nan | more.zeros_unless_nan,
            self.zeros_unless_infinite | more.zeros_unless_infinite,
            max(bounds, default=None),
        )

    def finite_along(self, axes: PaddedAxes) -> bool:
        """Return True if the padding along these axes is finite."""
        return self.finite or axes <= self.finite_axes

    def at_least(self, bound: float) -> bool:
        """Return True if no element is less than `bound`."""
        return self.least is not None and self.least >= bound


NO_FACTS: Final = PaddingFacts()
WITHOUT_INFINITIES: Final = PaddingFacts(finite=True)  # of the values of a dtype that has no infinity: integers, bools

# f(0) = 0, and not -0.0. The derivatives of all orders are finite at 0: sqrt and cbrt are not here, for 0 * inf is nan
_ZERO_AT_ZERO: Final[tuple[Unary, ...]] = (
    *(ew.SIN, ew.TAN, ew.TANH, ew.ASIN, ew.ATAN, ew.SINH, ew.ASINH, ew.ATANH, ew.ERF),
    *(ew.EXPM1, ew.LOG1P, ew.ABS, ew.SIGN, ew.SQUARE, ew.STOP_GRADIENT),
)
_ZERO_OF_ZEROS: Final = (ew.ADD, ew.SUB, ew.MUL, ew.MAX, ew.MIN)

# Results and derivatives of all orders are finite for finite operands, but for overflow of sums and products.
_ARITHMETIC: Final[frozenset[Primitive]] = frozenset(
    [
        *(ew.ADD, ew.SUB, ew.MUL, ew.NEG, ew.SQUARE, ew.SELECT_N, ew.STOP_GRADIENT),
        *(ew.REAL, ew.IMAG, ew.COMPLEX, ew.CONJ),
    ]
)
# Those of real operands: in the complex plane they have poles, or grow without bound.
_REAL: Final[frozenset[Primitive]] = frozenset(
    [
        *(ew.ABS, ew.SIGN, ew.MAX, ew.MIN, ew.CLAMP, ew.SIN, ew.COS),
        *(ew.TANH, ew.SECH2, ew.ATAN, ew.ASINH, ew.LOGISTIC, ew.ERF, ew.ERFC),
    ]
)
# Those that may overflow, or have an infinite slope elsewhere, but are finite at 0 with all derivatives.
_FINITE_AT_ZERO: Final[frozenset[Primitive]] = frozenset(
    [ew.EXP, ew.EXP2, ew.EXPM1, ew.LOG1P, ew.SINH, ew.COSH, ew.TAN, ew.ASIN, ew.ATANH, ew.ERF_INV]
)
# And those that are at 1.
_FINITE_AT_ONE: Final[frozenset[Primitive]] = frozenset(
    [ew.LOG, ew.LOG2, ew.LOG10, ew.SQRT, ew.RSQRT, ew.CBRT, ew.DIGAMMA, ew.LGAMMA]
)
# Those that are not negative, of real operands.
_NOT_NEGATIVE: Final[frozenset[Primitive]] = frozenset(
    [ew.SQUARE, ew.ABS, ew.EXP, ew.EXP2, ew.LOGISTIC, ew.SECH2, ew.ERFC, ew.RSQRT]
)
# With more than these, products in the padding may overflow where those of valid elements do not: (x - 1e10) ** 5.
_MAX_FACTORS: Final = 4
_MAX_LITERAL: Final = 2.0**64
# Reciprocals of numbers from this one on are finite, with several derivatives: the variance of a constant row is 0, and
# models add 1e-5 or 1e-12 to it.
_SAFE_DIVISOR: Final = 2.0**-40
# Each element of the result is an element of an operand, or zero.
_MOVES: Final = (Permutation, BroadcastInDim, Slice, Index, Pad, Concatenate)
# A lane of the result depends on that lane of the operands, or on an axis that has no lanes any more. `lanewise` is the
# rule of more of these; here are those whose axes `moved_axes` knows.
_LANEWISE: Final[tuple[type[Primitive], ...]] = (
    *ew.ELEMENTWISE,
    *(AxisMove, BroadcastInDim, ReduceSum, Concatenate),
)
_LINEAR: Final = (*_MOVES, ReduceSum, Contraction, Gather, DynamicSlice)


def facts_of_literal(x: Lit) -> PaddingFacts:
    """Return the facts about a literal."""
    least = _literal_value(x) if x.size is None else lower_bound(x.size)
    return PaddingFacts(finite=x.aval.dtype not in dtypes.NARROW_RANGE and _is_moderate(x), least=least)


def facts_of_result(prim: Primitive, args: Atoms, facts: Sequence[PaddingFacts]) -> PaddingFacts:
    """Return the facts about the result of an equation, given those about its operands."""
    keeps = keeps_finite(prim, args, facts)
    finite = keeps and all([f.finite for f in facts])
    return PaddingFacts(
        finite=finite,
        finite_axes=NO_AXES if finite else _finite_axes(prim, args, facts, keeps),
        zeros=_zeros(prim, args, [f.zeros for f in facts]),
        zeros_unless_infinite=_zeros_unless_infinite(prim, args, [f.zeros | f.zeros_unless_infinite for f in facts]),
        least=_lower_bound(prim, args, facts),
    )


def _zeros(prim: Primitive, args: Atoms, zeros: Sequence[PaddedAxes]) -> PaddedAxes:
    """Return the axes along which the padding of the result is zero, given those of the operands."""
    if not args:
        return NO_AXES
    if prim in _ZERO_AT_ZERO or isinstance(prim, ew.ConvertElementType):
        return zeros[0]
    if prim is ew.MUL and (_is_positive(args[0]) or _is_positive(args[1])):
        return zeros[1 if _is_positive(args[0]) else 0]
    if prim in _ZERO_OF_ZEROS:
        return _common_axes(args, zeros)
    if prim is ew.SELECT_N:
        return _common_axes(args[1:], zeros[1:])
    if prim is ew.DIV:
        return zeros[0] if _is_positive(args[1]) else NO_AXES
    if isinstance(prim, Concatenate):
        return frozenset([(a, n) for a, n in _common_axes(args, zeros) if a != prim.axis])
    if isinstance(prim, AxisMove | BroadcastInDim | ReduceSum):
        return moved_axes(prim, args[0].aval, zeros[0])
    return NO_AXES


def _zeros_unless_infinite(prim: Primitive, args: Atoms, zeros: Sequence[PaddedAxes]) -> PaddedAxes:
    """Return the axes along which the padding of the result is zero, or no valid element of its row is finite, given
    those of the operands. In scores, 0 * inf is nan: so their padding has nan only in the rows of infinities and
    nan."""
    if not args:
        return NO_AXES
    if isinstance(prim, ew.ConvertElementType):
        return zeros[0] if prim.dtype in dtypes.FLOATING else NO_AXES
    if prim in (ew.ADD, ew.SUB):
        return _common_axes(args, zeros)
    if prim is ew.MUL:
        return zeros[1] if _is_positive(args[0]) else zeros[0] if _is_positive(args[1]) else NO_AXES
    if prim is ew.DIV:
        return zeros[0] if _is_positive(args[1]) else NO_AXES
    return moved_axes(prim, args[0].aval, zeros[0]) if isinstance(prim, AxisMove) else NO_AXES


def moved_axes(prim: Primitive, x: Aval, axes: PaddedAxes) -> PaddedAxes:
    """Return the places, in the result, of these axes of an operand. Axes that the result does not have are left
    out."""
    if isinstance(prim, AxisMove):
        places = prim.places(x.ndim)
        return frozenset([(place, n) for a, n in axes if (place := places[a]) is not None])
    if isinstance(prim, BroadcastInDim):
        return frozenset([(prim.dims[a], n) for a, n in axes])
    if isinstance(prim, ReduceSum | ReduceMax | ReduceMin):
        return frozenset([(a - sum([b < a for b in prim.axes]), n) for a, n in axes if a not in prim.axes])
    return axes


def _is_moderate(x: Lit) -> bool:
    """Return True for a literal that is finite, and not so large that sums and products of it overflow. The least
    number of a dtype, which fills masked scores, is too large."""
    return x.size is not None or bool(abs(np.asarray(x.value).astype(np.complex128)) <= _MAX_LITERAL)


def keeps_finite(prim: Primitive, args: Atoms, facts: Sequence[PaddingFacts]) -> bool:
    """Return True if the result and its derivatives are finite where the operands, which have these facts, are."""
    if isinstance(prim, ew.ConvertElementType):
        narrows = dtypes.real_part(args[0].aval.dtype) is dtypes.float64 and prim.dtype in dtypes.INEXACT
        return not narrows or dtypes.real_part(prim.dtype) is dtypes.float64
    if prim is ew.DIV:
        by = args[1]
        if isinstance(by, Lit) and by.size is None:
            return bool(abs(np.asarray(by.value)) >= 1 / _MAX_LITERAL)
        return facts[1].at_least(_SAFE_DIVISOR)
    if isinstance(prim, ew.IntegerPow):
        return abs(prim.n) <= _MAX_FACTORS and (prim.n >= 0 or facts[0].at_least(_SAFE_DIVISOR))
    if prim in (ew.SQRT, ew.RSQRT, ew.LOG):
        return facts[0].at_least(_SAFE_DIVISOR)
    if prim is ew.LOG1P:
        return facts[0].at_least(-0.5)
    real = not any([a.aval.dtype in dtypes.COMPLEX for a in args])
    return prim in _ARITHMETIC or (real and prim in _REAL) or isinstance(prim, _LINEAR)


def _finite_axes(prim: Primitive, args: Atoms, facts: Sequence[PaddingFacts], keeps: bool) -> PaddedAxes:
    """Return the axes along which the padding of the result is finite. `keeps`: the equation keeps finite values."""
    if not keeps:
        at_zero = prim in _FINITE_AT_ZERO or (isinstance(prim, ew.IntegerPow) and prim.n >= 0)
        return facts[0].zeros if at_zero else NO_AXES
    if not isinstance(prim, _LANEWISE):
        return NO_AXES
    of_operands = [moved_axes(prim, a.aval, f.finite_axes) for a, f in zip(args, facts, strict=True) if not f.finite]
    common = _intersection(of_operands)
    return frozenset([(a, n) for a, n in common if a != prim.axis]) if isinstance(prim, Concatenate) else common


def filled_with_one(prim: Primitive) -> int | None:
    """Return the number of the operand that is filled with 1, not 0: where it is 0, the function may have an infinite
    slope; where it is 1 and the others are finite, derivatives of all orders are finite. None for other functions."""
    if prim in (ew.DIV, ew.ATAN2):
        return 1
    one = prim in _FINITE_AT_ONE or prim is ew.POW or (isinstance(prim, ew.IntegerPow) and prim.n < 0)
    return 0 if one else None


def _lower_bound(prim: Primitive, args: Atoms, facts: Sequence[PaddingFacts]) -> float | None:
    """Return a lower bound of the elements of the result that are not nan, given the facts about the operands; None if
    none is known."""
    if not args or args[0].aval.dtype in dtypes.COMPLEX:
        return 0.0 if prim is ew.ABS else None
    low = _least_before_rounding(prim, args, [f.least for f in facts])
    return 0.0 if low is not None and 0 < low < _SAFE_DIVISOR else low  # it may underflow


def _least_before_rounding(prim: Primitive, args: Atoms, least: Sequence[float | None]) -> float | None:
    """Return a lower bound of the exact result, given those of the operands."""
    first = least[0]
    if isinstance(prim, ew.ConvertElementType):
        rounds_little = prim.dtype in dtypes.FLOATING - dtypes.NARROW_RANGE
        return first if rounds_little and args[0].aval.dtype in (*dtypes.FLOATING, dtypes.int32, dtypes.int64) else None
    if prim is ew.STOP_GRADIENT:
        return first
    if args[0].aval.dtype not in dtypes.FLOATING and prim is not ew.SELECT_N:
        return first if isinstance(prim, BroadcastInDim) else None
    if prim in _NOT_NEGATIVE or (isinstance(prim, ew.IntegerPow) and prim.n % 2 == 0):
        return 0.0
    if prim is ew.SQRT:
        return float(max(first or 0.0, 0.0) ** 0.5)
    if isinstance(prim, Concatenate | Pad) or prim in (ew.ADD, ew.MUL, ew.DIV, ew.MAX, ew.MIN, ew.SELECT_N):
        of_operands = least[1:] if prim is ew.SELECT_N else least
        bounds = [low for low in of_operands if low is not None]
        if prim is ew.MUL and args[0] is args[1]:
            return 0.0
        if prim is ew.MAX:
            return max(bounds, default=None)
        if len(bounds) < len(of_operands):
            return None
        if prim is ew.ADD:
            return sum(bounds)
        if prim not in (ew.MUL, ew.DIV):
            return min(bounds)
        x, y = bounds
        if x < 0 or y < 0:
            return None
        if prim is ew.MUL:
            return x * y
        return x / y if isinstance(args[1], Lit) and y > 0 else 0.0  # the greatest value of a variable is not known
    if isinstance(prim, ReduceSum):
        return 0.0 if first is not None and first >= 0 else None
    if isinstance(prim, Contraction):
        return 0.0 if all([low is not None and low >= 0 for low in least]) else None
    return first if isinstance(prim, _MOVES) else None


def _literal_value(x: Lit) -> float | None:
    """Return the number of a literal of real numbers; None if it is nan, or a size."""
    if x.size is not None or x.aval.dtype in dtypes.COMPLEX:
        return None
    value = float(np.asarray(x.value).astype(np.float64))
    return None if np.isnan(value) else value


def _common_axes(args: Sequence[Atom], axes: Sequence[PaddedAxes]) -> PaddedAxes:
    """Return the axes that all operands have in common. Literal zeros, which are zero along every axis, do not
    count."""
    return _intersection([of_one for a, of_one in zip(args, axes, strict=True) if not is_zero_literal(a)])


def _intersection(axes: Iterable[PaddedAxes]) -> PaddedAxes:
    first, *others = [*axes] or [NO_AXES]
    return first.intersection(*others)


def is_zero_literal(x: Atom) -> bool:
    """Return True for a literal of zeros, of any dtype, and not -0.0."""
    return isinstance(x, Lit) and x.size is None and not any(x.bits)


def _is_positive(x: Atom) -> bool:
    """Return True for a literal that is a positive number: 0 times it is 0, and not nan or -0.0."""
    if not isinstance(x, Lit) or x.size is not None or x.aval.dtype.kind == "c":
        return False
    value = np.asarray(x.value).astype(np.float64)
    return bool(np.isfinite(value) and value > 0)


__all__ = [
    "NO_AXES",
    "NO_FACTS",
    "WITHOUT_INFINITIES",
    "PaddedAxes",
    "PaddingFacts",
    "facts_of_literal",
    "facts_of_result",
    "filled_with_one",
    "is_zero_literal",
    "keeps_finite",
    "moved_axes",
]
