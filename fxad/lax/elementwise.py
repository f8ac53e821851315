"""Elementwise primitives of one operand as functions."""

from __future__ import annotations

from operator import index
from typing import TypeVar, overload

from fxad import dtypes
from fxad.core import tree
from fxad.errors import ArgumentError, described
from fxad.ir import Atom, Emit, Lit, Primitive
from fxad.primitives.elementwise.arithmetic import DIV, NEG
from fxad.primitives.elementwise.complex_parts import CONJ, IMAG, REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, BitcastConvertType, ConvertElementType, ReducePrecision
from fxad.primitives.elementwise.exponential import EXP, EXP2, EXPM1, LOG, LOG1P, LOG2
from fxad.primitives.elementwise.logic import CLZ, IS_FINITE, NOT, POPULATION_COUNT
from fxad.primitives.elementwise.powers import ABS, CBRT, RSQRT, SIGN, SQRT, SQUARE, IntegerPow
from fxad.primitives.elementwise.select import AWAY_FROM_ZERO, CEIL, FLOOR, Round
from fxad.primitives.elementwise.sigmoid import LOGISTIC, TANH
from fxad.primitives.elementwise.special import DIGAMMA, ERF, ERF_INV, ERFC, LGAMMA
from fxad.primitives.elementwise.trigonometric import (
    ACOS,
    ACOSH,
    ASIN,
    ASINH,
    ATAN,
    ATANH,
    COS,
    COSH,
    SIN,
    SINH,
    TAN,
)
from fxad.tracing.array import Array, ArrayLike, binder

T = TypeVar("T")


def neg(x: ArrayLike) -> Array:
    """-x."""
    return binder().bind(NEG, (x,))[0]


def sign(x: ArrayLike) -> Array:
    """-1, 0 or 1 by the sign of x; x / abs(x) for complex x."""
    return binder().bind(SIGN, (x,))[0]


def floor(x: ArrayLike) -> Array:
    """The greatest integral value not above x."""
    return binder().bind(FLOOR, (x,))[0]


def ceil(x: ArrayLike) -> Array:
    """The least integral value not below x."""
    return binder().bind(CEIL, (x,))[0]


def is_finite(x: ArrayLike) -> Array:
    """True where x is neither infinite nor nan."""
    return binder().bind(IS_FINITE, (x,))[0]


def exp(x: ArrayLike) -> Array:
    """e to the power x."""
    return binder().bind(EXP, (x,))[0]


def exp2(x: ArrayLike) -> Array:
    """2 to the power x."""
    return binder().bind(EXP2, (x,))[0]


def expm1(x: ArrayLike) -> Array:
    """exp(x) - 1, accurate near 0."""
    return binder().bind(EXPM1, (x,))[0]


def log(x: ArrayLike) -> Array:
    """The natural logarithm of x."""
    return binder().bind(LOG, (x,))[0]


def log1p(x: ArrayLike) -> Array:
    """log(1 + x), accurate near 0."""
    return binder().bind(LOG1P, (x,))[0]


def log2(x: ArrayLike) -> Array:
    """The logarithm in base 2, exact for powers of 2."""
    return binder().bind(LOG2, (x,))[0]


def logistic(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x))."""
    return binder().bind(LOGISTIC, (x,))[0]


def sin(x: ArrayLike) -> Array:
    """The sine of x."""
    return binder().bind(SIN, (x,))[0]


def cos(x: ArrayLike) -> Array:
    """The cosine of x."""
    return binder().bind(COS, (x,))[0]


def tan(x: ArrayLike) -> Array:
    """The tangent of x."""
    return binder().bind(TAN, (x,))[0]


def asin(x: ArrayLike) -> Array:
    """The arc sine of x."""
    return binder().bind(ASIN, (x,))[0]


def acos(x: ArrayLike) -> Array:
    """The arc cosine of x."""
    return binder().bind(ACOS, (x,))[0]


def atan(x: ArrayLike) -> Array:
    """The arc tangent of x."""
    return binder().bind(ATAN, (x,))[0]


def sinh(x: ArrayLike) -> Array:
    """The hyperbolic sine of x."""
    return binder().bind(SINH, (x,))[0]


def cosh(x: ArrayLike) -> Array:
    """The hyperbolic cosine of x."""
    return binder().bind(COSH, (x,))[0]


def tanh(x: ArrayLike) -> Array:
    """The hyperbolic tangent of x."""
    return binder().bind(TANH, (x,))[0]


def asinh(x: ArrayLike) -> Array:
    """The inverse hyperbolic sine of x."""
    return binder().bind(ASINH, (x,))[0]


def acosh(x: ArrayLike) -> Array:
    """The inverse hyperbolic cosine of x."""
    return binder().bind(ACOSH, (x,))[0]


def atanh(x: ArrayLike) -> Array:
    """The inverse hyperbolic tangent of x."""
    return binder().bind(ATANH, (x,))[0]


def sqrt(x: ArrayLike) -> Array:
    """The square root of x."""
    return binder().bind(SQRT, (x,))[0]


def rsqrt(x: ArrayLike) -> Array:
    """1 / sqrt(x)."""
    return binder().bind(RSQRT, (x,))[0]


def cbrt(x: ArrayLike) -> Array:
    """The cube root of x."""
    return binder().bind(CBRT, (x,))[0]


def square(x: ArrayLike) -> Array:
    """x * x."""
    return binder().bind(SQUARE, (x,))[0]


def abs(x: ArrayLike) -> Array:
    """The absolute value of x; real for complex x."""
    return binder().bind(ABS, (x,))[0]


def real(x: ArrayLike) -> Array:
    """The real part of complex x."""
    return binder().bind(REAL, (x,))[0]


def imag(x: ArrayLike) -> Array:
    """The imaginary part of complex x."""
    return binder().bind(IMAG, (x,))[0]


def conj(x: ArrayLike) -> Array:
    """The conjugate of complex x."""
    return binder().bind(CONJ, (x,))[0]


def erf(x: ArrayLike) -> Array:
    """The error function of x."""
    return binder().bind(ERF, (x,))[0]


def erfc(x: ArrayLike) -> Array:
    """1 - erf(x), accurate where erf is near 1."""
    return binder().bind(ERFC, (x,))[0]


def erf_inv(x: ArrayLike) -> Array:
    """The inverse of the error function."""
    return binder().bind(ERF_INV, (x,))[0]


def lgamma(x: ArrayLike) -> Array:
    """The logarithm of abs(gamma(x))."""
    return binder().bind(LGAMMA, (x,))[0]


def digamma(x: ArrayLike) -> Array:
    """The derivative of lgamma at x."""
    return binder().bind(DIGAMMA, (x,))[0]


def bitwise_not(x: ArrayLike) -> Array:
    """Invert every bit of x; logical not for bools."""
    return binder().bind(NOT, (x,))[0]


def population_count(x: ArrayLike) -> Array:
    """The number of set bits of x."""
    return binder().bind(POPULATION_COUNT, (x,))[0]


def clz(x: ArrayLike) -> Array:
    """The number of leading zero bits of x."""
    return binder().bind(CLZ, (x,))[0]


@overload
def stop_gradient(x: ArrayLike) -> Array: ...
@overload
def stop_gradient(x: T) -> T: ...
def stop_gradient(x: object) -> object:
    """x, an array or a pytree of arrays, with a derivative of zero."""
    return tree.map(lambda leaf: binder().bind(STOP_GRADIENT, (leaf,))[0], x)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """x to the power of a Python int, by repeated multiplication."""
    try:
        exponent = index(y)
    except TypeError:
        raise ArgumentError(
            f"integer_pow: the exponent is {described(y)}, not an int: {y!r}", remedy="use pow"
        ) from None
    return binder().bind(IntegerPow(exponent), (x,))[0]


def reciprocal(x: ArrayLike) -> Array:
    """1 / x."""
    return binder().apply(_one_over, (x,), (DIV,))[0]


def _one_over(emit: Emit, x: Atom, prim: Primitive) -> tuple[Atom, ...]:
    return emit(prim, Lit.of(1, x.aval), x)


def round(x: ArrayLike, rounding_method: str = AWAY_FROM_ZERO) -> Array:
    """x rounded to integral values; ties "away_from_zero" or "to_nearest_even"."""
    return binder().bind(Round(rounding_method), (x,))[0]


def convert_element_type(operand: ArrayLike, new_dtype: object) -> Array:
    """The same values in another dtype."""
    return binder().bind(ConvertElementType(dtypes.as_dtype(new_dtype)), (operand,))[0]


def bitcast_convert_type(operand: ArrayLike, new_dtype: object) -> Array:
    """The same bits read as another dtype. A narrower dtype adds a last axis; a wider one removes it."""
    return binder().bind(BitcastConvertType(dtypes.as_dtype(new_dtype)), (operand,))[0]


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """The values rounded to a narrower floating-point format."""
    return binder().bind(ReducePrecision(exponent_bits, mantissa_bits), (operand,))[0]
