"""Elementwise primitives of one operand as functions."""

from __future__ import annotations

from enum import StrEnum
from operator import index
from typing import TypeVar, overload

from fxad import dtypes
from fxad.core.trees import tree
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Atom, Emit, Lit, Primitive
from fxad.lax.documented import F, documented, unary
from fxad.primitives.elementwise.arithmetic import DIV, NEG
from fxad.primitives.elementwise.complex_parts import CONJ, IMAG, REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, BitcastConvertType, ConvertElementType, ReducePrecision
from fxad.primitives.elementwise.exponential import EXP, EXP2, EXPM1, LOG, LOG1P, LOG2
from fxad.primitives.elementwise.logic import CLZ, IS_FINITE, NOT, POPULATION_COUNT
from fxad.primitives.elementwise.powers import ABS, CBRT, RSQRT, SIGN, SQRT, SQUARE, IntegerPow
from fxad.primitives.elementwise.select import AWAY_FROM_ZERO, CEIL, FLOOR, TO_NEAREST_EVEN, Round
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
from fxad.tracing.array import Array, ArrayLike, aval_of, binder

T = TypeVar("T")


def _unary(signature: F, prim: Primitive, name: str = "") -> F:
    """Return the function of a primitive, with its docstring, and with its name unless another one is given."""

    def function(x: ArrayLike) -> Array:
        return binder().bind(prim, (x,))[0]  # here, and not in a shared function: a frame less on the hot path

    return documented(function, signature, prim, name)


neg = _unary(unary, NEG)
sign = _unary(unary, SIGN)
floor = _unary(unary, FLOOR)
ceil = _unary(unary, CEIL)
is_finite = _unary(unary, IS_FINITE)
exp = _unary(unary, EXP)
exp2 = _unary(unary, EXP2)
expm1 = _unary(unary, EXPM1)
log = _unary(unary, LOG)
log1p = _unary(unary, LOG1P)
log2 = _unary(unary, LOG2)
logistic = _unary(unary, LOGISTIC)
sin = _unary(unary, SIN)
cos = _unary(unary, COS)
tan = _unary(unary, TAN)
asin = _unary(unary, ASIN)
acos = _unary(unary, ACOS)
atan = _unary(unary, ATAN)
sinh = _unary(unary, SINH)
cosh = _unary(unary, COSH)
tanh = _unary(unary, TANH)
asinh = _unary(unary, ASINH)
acosh = _unary(unary, ACOSH)
atanh = _unary(unary, ATANH)
sqrt = _unary(unary, SQRT)
rsqrt = _unary(unary, RSQRT)
cbrt = _unary(unary, CBRT)
square = _unary(unary, SQUARE)
abs = _unary(unary, ABS)
real = _unary(unary, REAL)
imag = _unary(unary, IMAG)
erf = _unary(unary, ERF)
erfc = _unary(unary, ERFC)
erf_inv = _unary(unary, ERF_INV)
lgamma = _unary(unary, LGAMMA)
digamma = _unary(unary, DIGAMMA)
bitwise_not = _unary(unary, NOT, "bitwise_not")
population_count = _unary(unary, POPULATION_COUNT)
clz = _unary(unary, CLZ)


def conj(x: ArrayLike) -> Array:
    """Return the complex conjugate of x. A floating x becomes complex, as in JAX; `fxad.numpy.conj` leaves it real."""
    dtype = aval_of(x, "conj: argument 0").dtype
    prim = ConvertElementType(dtypes.complex_of(dtype)) if dtype in (dtypes.float32, dtypes.float64) else CONJ
    return binder().bind(prim, (x,))[0]


@overload
def stop_gradient(x: ArrayLike) -> Array: ...
@overload
def stop_gradient(x: T) -> T: ...
def stop_gradient(x: object) -> object:
    """Return x, an array or a pytree of arrays, with a derivative of zero."""
    return tree.map(lambda leaf: binder().bind(STOP_GRADIENT, (leaf,))[0], x)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """Return x to the power of a Python int, by repeated multiplication."""
    try:
        exponent = index(y)
    except TypeError:
        raise ArgumentError(
            f"integer_pow: the exponent is {described(y)}, not an int: {shown(y)}", remedy="use pow"
        ) from None
    return binder().bind(IntegerPow(exponent), (x,))[0]


def reciprocal(x: ArrayLike) -> Array:
    """Return 1 / x."""
    return binder().apply(_one_over, (x,), (DIV,))[0]


def _one_over(emit: Emit, x: Atom, prim: Primitive) -> tuple[Atom, ...]:
    return emit(prim, Lit.of(1, x.aval), x)


class RoundingMethod(StrEnum):
    """The ways in which `round` treats ties, with JAX's names. Each member is a string."""

    AWAY_FROM_ZERO = AWAY_FROM_ZERO
    TO_NEAREST_EVEN = TO_NEAREST_EVEN


def round(x: ArrayLike, rounding_method: str = AWAY_FROM_ZERO) -> Array:
    """Return x rounded to integral values; ties "away_from_zero" or "to_nearest_even"."""
    method = str(rounding_method) if isinstance(rounding_method, RoundingMethod) else rounding_method
    return binder().bind(Round(method), (x,))[0]


def convert_element_type(operand: ArrayLike, new_dtype: object) -> Array:
    """Return the same values in another dtype."""
    return binder().bind(ConvertElementType(dtypes.as_dtype(new_dtype)), (operand,))[0]


def bitcast_convert_type(operand: ArrayLike, new_dtype: object) -> Array:
    """Return the same bits read as another dtype. A narrower dtype adds a last axis; a wider one removes it."""
    return binder().bind(BitcastConvertType(dtypes.as_dtype(new_dtype)), (operand,))[0]


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Return the values rounded to a narrower floating-point format."""
    return binder().bind(ReducePrecision(exponent_bits, mantissa_bits), (operand,))[0]
