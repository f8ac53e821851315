"""Comparisons, logic and the bits of integers. Their results have no tangent."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Aval, Avals, Hlo, HloValues, NDArray, primitive
from fxad.primitives.elementwise.family import (
    ANY,
    BITS,
    ORDERED,
    Compare,
    PiecewiseConstantBinary,
    PiecewiseConstantUnary,
    Unary,
    from_ufunc,
)


@final
@primitive
class Eq(Compare):
    """True where x equals y; nan equals nothing, -0.0 equals 0.0.

    Type:   two operands of one type; result bool.
    Source: stablehlo.compare EQ
    """

    name: ClassVar[str] = "eq"
    takes: ClassVar[frozenset[DType]] = ANY
    compute = from_ufunc(np.equal)


@final
@primitive
class Ne(Compare):
    """True where x differs from y; nan differs from everything.

    Type:   two operands of one type; result bool.
    Source: stablehlo.compare NE
    """

    name: ClassVar[str] = "ne"
    takes: ClassVar[frozenset[DType]] = ANY
    compute = from_ufunc(np.not_equal)


@final
@primitive
class Lt(Compare):
    """True where x < y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare LT
    """

    name: ClassVar[str] = "lt"
    takes: ClassVar[frozenset[DType]] = ORDERED
    compute = from_ufunc(np.less)


@final
@primitive
class Le(Compare):
    """True where x <= y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare LE
    """

    name: ClassVar[str] = "le"
    takes: ClassVar[frozenset[DType]] = ORDERED
    compute = from_ufunc(np.less_equal)


@final
@primitive
class Gt(Compare):
    """True where x > y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare GT
    """

    name: ClassVar[str] = "gt"
    takes: ClassVar[frozenset[DType]] = ORDERED
    compute = from_ufunc(np.greater)


@final
@primitive
class Ge(Compare):
    """True where x >= y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare GE
    """

    name: ClassVar[str] = "ge"
    takes: ClassVar[frozenset[DType]] = ORDERED
    compute = from_ufunc(np.greater_equal)


@final
@primitive
class And(PiecewiseConstantBinary):
    """x and y, bit by bit.

    Type:   two integer or bool operands of one type.
    Source: stablehlo.and
    """

    name: ClassVar[str] = "and"
    hlo_name: ClassVar[str] = "stablehlo.and"
    takes: ClassVar[frozenset[DType]] = BITS
    compute = from_ufunc(np.bitwise_and)


@final
@primitive
class Or(PiecewiseConstantBinary):
    """x or y, bit by bit.

    Type:   two integer or bool operands of one type.
    Source: stablehlo.or
    """

    name: ClassVar[str] = "or"
    hlo_name: ClassVar[str] = "stablehlo.or"
    takes: ClassVar[frozenset[DType]] = BITS
    compute = from_ufunc(np.bitwise_or)


@final
@primitive
class Xor(PiecewiseConstantBinary):
    """x or y but not both, bit by bit.

    Type:   two integer or bool operands of one type.
    Source: stablehlo.xor
    """

    name: ClassVar[str] = "xor"
    hlo_name: ClassVar[str] = "stablehlo.xor"
    takes: ClassVar[frozenset[DType]] = BITS
    compute = from_ufunc(np.bitwise_xor)


@final
@primitive
class Not(PiecewiseConstantUnary):
    """x with every bit inverted; for bool, the negation.

    Type:   an integer or bool operand.
    Source: stablehlo.not
    """

    name: ClassVar[str] = "not"
    hlo_name: ClassVar[str] = "stablehlo.not"
    takes: ClassVar[frozenset[DType]] = BITS
    compute = from_ufunc(np.invert)


@final
@primitive
class ShiftLeft(PiecewiseConstantBinary):
    """x shifted left by y bits; 0 from the width of the dtype on.

    Type:   two integer operands of one type; amounts are read as unsigned.
    Source: stablehlo.shift_left
    """

    name: ClassVar[str] = "shift_left"
    hlo_name: ClassVar[str] = "stablehlo.shift_left"
    takes: ClassVar[frozenset[DType]] = dtypes.INTEGER

    def compute(self, x: NDArray, y: NDArray) -> object:
        inside, amount = _amount(y)
        return np.where(inside, np.left_shift(x, amount), np.zeros_like(x))


@final
@primitive
class ShiftRightLogical(PiecewiseConstantBinary):
    """x shifted right by y bits, zeros moving in; 0 from the width of the dtype on.

    Type:   two integer operands of one type; amounts are read as unsigned.
    Source: stablehlo.shift_right_logical
    """

    name: ClassVar[str] = "shift_right_logical"
    hlo_name: ClassVar[str] = "stablehlo.shift_right_logical"
    takes: ClassVar[frozenset[DType]] = dtypes.INTEGER

    def compute(self, x: NDArray, y: NDArray) -> object:
        inside, amount = _amount(y)
        shifted = np.right_shift(_unsigned(x), _unsigned(amount)).view(x.dtype)
        return np.where(inside, shifted, np.zeros_like(x))


@final
@primitive
class ShiftRightArithmetic(PiecewiseConstantBinary):
    """x shifted right by y bits, the top bit repeated; nothing but top bits from the width of the dtype on.

    Type:   two integer operands of one type; amounts are read as unsigned.
    Source: stablehlo.shift_right_arithmetic
    """

    name: ClassVar[str] = "shift_right_arithmetic"
    hlo_name: ClassVar[str] = "stablehlo.shift_right_arithmetic"
    takes: ClassVar[frozenset[DType]] = dtypes.INTEGER

    def compute(self, x: NDArray, y: NDArray) -> object:
        inside, amount = _amount(y)
        signed = x.view(f"i{x.dtype.itemsize}")
        most = np.full_like(amount, 8 * x.dtype.itemsize - 1)
        return np.right_shift(signed, np.where(inside, amount, most).view(signed.dtype)).view(x.dtype)


@final
@primitive
class PopulationCount(PiecewiseConstantUnary):
    """The number of bits of x that are set.

    Type:   an integer operand; the dtype is kept.
    Source: stablehlo.popcnt
    """

    name: ClassVar[str] = "population_count"
    hlo_name: ClassVar[str] = "stablehlo.popcnt"
    takes: ClassVar[frozenset[DType]] = dtypes.INTEGER

    def compute(self, x: NDArray) -> object:
        return np.bitwise_count(_unsigned(x))


@final
@primitive
class Clz(PiecewiseConstantUnary):
    """The number of zeros before the first set bit of x; the width of the dtype for 0.

    Type:   an integer operand; the dtype is kept.
    Source: stablehlo.count_leading_zeros
    """

    name: ClassVar[str] = "clz"
    hlo_name: ClassVar[str] = "stablehlo.count_leading_zeros"
    takes: ClassVar[frozenset[DType]] = dtypes.INTEGER

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        # of bits that are unsigned: XLA folds count_leading_zeros of a negative constant narrower than 64 bits as if it
        # were sign-extended, to a negative number (jaxlib 0.10.2)
        bits = [ins[0].with_dtype(dtypes.as_dtype(f"uint{8 * ins[0].dtype.itemsize}"))]
        for name, types in (("bitcast_convert", bits), ("count_leading_zeros", bits), ("bitcast_convert", outs)):
            args = hlo.op(f"stablehlo.{name}", args, types)
        return args

    def compute(self, x: NDArray) -> object:
        rest, width = _unsigned(x), 8 * x.dtype.itemsize
        zeros = np.full_like(rest, width)
        for _ in range(width):
            zeros = np.subtract(zeros, np.not_equal(rest, 0))
            rest = np.right_shift(rest, 1)
        return zeros


@final
@primitive
class IsFinite(PiecewiseConstantUnary):
    """True where x is neither infinite nor nan.

    Type:   a float operand; result bool.
    Source: stablehlo.is_finite
    """

    name: ClassVar[str] = "is_finite"
    hlo_name: ClassVar[str] = "stablehlo.is_finite"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    compute = from_ufunc(np.isfinite)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = Unary.abstract_eval(self, *avals)
        return (x.with_dtype(dtypes.bool_),)


def _unsigned(x: NDArray) -> NDArray:
    """Return the same bits as unsigned integers."""
    return x.view(f"u{x.dtype.itemsize}")


def _amount(y: NDArray) -> tuple[NDArray, NDArray]:
    """Return the mask of amounts that are less than the width, read as unsigned; and the amounts, 0 outside the
    mask."""
    inside = np.less(_unsigned(y), 8 * y.dtype.itemsize)
    return inside, np.where(inside, y, np.zeros_like(y))


EQ: Final = Eq()
NE: Final = Ne()
LT: Final = Lt()
LE: Final = Le()
GT: Final = Gt()
GE: Final = Ge()
AND: Final = And()
OR: Final = Or()
XOR: Final = Xor()
NOT: Final = Not()
SHIFT_LEFT: Final = ShiftLeft()
SHIFT_RIGHT_LOGICAL: Final = ShiftRightLogical()
SHIFT_RIGHT_ARITHMETIC: Final = ShiftRightArithmetic()
POPULATION_COUNT: Final = PopulationCount()
CLZ: Final = Clz()
IS_FINITE: Final = IsFinite()
