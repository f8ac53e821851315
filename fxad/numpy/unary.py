"""Elementwise functions of one array."""

from __future__ import annotations

import math

from fxad import dtypes
from fxad.numpy.apply import apply_op, number_or_array, to_device
from fxad.operations import arithmetic, elementwise
from fxad.operations.arguments import flag, no_out, to_int
from fxad.primitives.elementwise.exponential import EXP, EXP2, EXPM1, LOG, LOG1P, LOG2, LOG10
from fxad.primitives.elementwise.powers import CBRT, SIGN, SQRT, SQUARE
from fxad.primitives.elementwise.select import CEIL, FLOOR
from fxad.primitives.elementwise.sigmoid import TANH
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
from fxad.runtime import Device
from fxad.tracing.array import Array, ArrayLike

# -------------------------------------------------------------------------------------- floating results


def sin(x: ArrayLike, /) -> Array:
    """The sine of x."""
    return apply_op("sin", elementwise.inexact_unary, (x,), SIN)


def cos(x: ArrayLike, /) -> Array:
    """The cosine of x."""
    return apply_op("cos", elementwise.inexact_unary, (x,), COS)


def tan(x: ArrayLike, /) -> Array:
    """The tangent of x."""
    return apply_op("tan", elementwise.inexact_unary, (x,), TAN)


def asin(x: ArrayLike, /) -> Array:
    """The arc sine of x."""
    return apply_op("asin", elementwise.inexact_unary, (x,), ASIN)


def acos(x: ArrayLike, /) -> Array:
    """The arc cosine of x."""
    return apply_op("acos", elementwise.inexact_unary, (x,), ACOS)


def atan(x: ArrayLike, /) -> Array:
    """The arc tangent of x."""
    return apply_op("atan", elementwise.inexact_unary, (x,), ATAN)


def sinh(x: ArrayLike, /) -> Array:
    """The hyperbolic sine of x."""
    return apply_op("sinh", elementwise.inexact_unary, (x,), SINH)


def cosh(x: ArrayLike, /) -> Array:
    """The hyperbolic cosine of x."""
    return apply_op("cosh", elementwise.inexact_unary, (x,), COSH)


def tanh(x: ArrayLike, /) -> Array:
    """The hyperbolic tangent of x."""
    return apply_op("tanh", elementwise.inexact_unary, (x,), TANH)


def asinh(x: ArrayLike, /) -> Array:
    """The inverse hyperbolic sine of x."""
    return apply_op("asinh", elementwise.inexact_unary, (x,), ASINH)


def acosh(x: ArrayLike, /) -> Array:
    """The inverse hyperbolic cosine of x."""
    return apply_op("acosh", elementwise.inexact_unary, (x,), ACOSH)


def atanh(x: ArrayLike, /) -> Array:
    """The inverse hyperbolic tangent of x."""
    return apply_op("atanh", elementwise.inexact_unary, (x,), ATANH)


def exp(x: ArrayLike, /) -> Array:
    """e to the power x."""
    return apply_op("exp", elementwise.inexact_unary, (x,), EXP)


def exp2(x: ArrayLike, /) -> Array:
    """2 to the power x."""
    return apply_op("exp2", elementwise.inexact_unary, (x,), EXP2)


def expm1(x: ArrayLike, /) -> Array:
    """exp(x) - 1, exact near 0."""
    return apply_op("expm1", elementwise.inexact_unary, (x,), EXPM1)


def log(x: ArrayLike, /) -> Array:
    """The natural logarithm of x."""
    return apply_op("log", elementwise.inexact_unary, (x,), LOG)


def log1p(x: ArrayLike, /) -> Array:
    """log(1 + x), exact near 0."""
    return apply_op("log1p", elementwise.inexact_unary, (x,), LOG1P)


def sqrt(x: ArrayLike, /) -> Array:
    """The square root of x."""
    return apply_op("sqrt", elementwise.inexact_unary, (x,), SQRT)


def cbrt(x: ArrayLike, /) -> Array:
    """The cube root of x."""
    return apply_op("cbrt", elementwise.inexact_unary, (x,), CBRT)


def log2(x: ArrayLike, /) -> Array:
    """The logarithm in base 2."""
    return apply_op("log2", elementwise.log_in_base, (x,), LOG2)


def log10(x: ArrayLike, /) -> Array:
    """The logarithm in base 10."""
    return apply_op("log10", elementwise.log_in_base, (x,), LOG10)


def reciprocal(x: ArrayLike, /) -> Array:
    """1 / x."""
    return apply_op("reciprocal", elementwise.reciprocal, (x,))


def deg2rad(x: ArrayLike, /) -> Array:
    """Convert degrees to radians."""
    return apply_op("deg2rad", elementwise.times_constant, (x,), math.pi / 180)


def rad2deg(x: ArrayLike, /) -> Array:
    """Convert radians to degrees."""
    return apply_op("rad2deg", elementwise.times_constant, (x,), 180 / math.pi)


def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The angle of a complex number, from -pi to pi; from -180 to 180 with `deg`."""
    radians = apply_op("angle", elementwise.angle, (z,))
    return radians * (180 / math.pi) if flag("angle", "deg", deg) else radians


# ---------------------------------------------------------------------------------- results of the dtype of x


def abs(x: ArrayLike, /) -> Array:
    """The absolute value of x; real for complex x."""
    return apply_op("abs", arithmetic.absolute, (x,))


def negative(x: ArrayLike, /) -> Array:
    """-x; refused for bools."""
    return apply_op("negative", arithmetic.negative, (x,))


def positive(x: ArrayLike, /) -> Array:
    """Return x."""
    return apply_op("positive", elementwise.identity, (x,))


def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1 by the sign of x; x / abs(x) for complex x."""
    return apply_op("sign", elementwise.unary, (x,), SIGN)


def square(x: ArrayLike, /) -> Array:
    """x * x."""
    return apply_op("square", elementwise.unary, (x,), SQUARE)


def conj(x: ArrayLike, /) -> Array:
    """The complex conjugate; real values are returned unchanged."""
    return apply_op("conj", elementwise.conj, (x,))


def real(x: ArrayLike, /) -> Array:
    """The real part; real values are returned unchanged."""
    return apply_op("real", elementwise.real, (x,))


def imag(x: ArrayLike, /) -> Array:
    """The imaginary part; 0 for real values."""
    return apply_op("imag", elementwise.imag, (x,))


def floor(x: ArrayLike, /) -> Array:
    """The greatest integral value not above x."""
    return apply_op("floor", elementwise.round_unary, (x,), FLOOR)


def ceil(x: ArrayLike, /) -> Array:
    """The least integral value not below x."""
    return apply_op("ceil", elementwise.round_unary, (x,), CEIL)


def trunc(x: ArrayLike) -> Array:
    """The integral part of x."""
    return apply_op("trunc", elementwise.trunc, (x,))


def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """The elements rounded to a number of decimals, ties to even."""
    no_out("round", out)
    decimals = to_int("round", "decimals", decimals)
    return apply_op("round", elementwise.round_to, (a,), decimals)


def rint(x: ArrayLike, /) -> Array:
    """x rounded to integral values, ties to even."""
    return apply_op("rint", elementwise.round_to, (x,), 0)


def bitwise_invert(x: ArrayLike, /) -> Array:
    """Invert every bit of x; logical not for bools."""
    return apply_op("bitwise_invert", arithmetic.invert, (x,))


def bitwise_count(x: ArrayLike, /) -> Array:
    """The number of set bits of abs(x)."""
    return apply_op("bitwise_count", elementwise.bit_count, (x,))


def astype(
    x: ArrayLike,
    dtype: object,
    /,
    *,
    copy: bool = True,
    device: Device | None = None,
) -> Array:
    """Convert to another dtype. Arrays are immutable, so `copy` has no visible effect."""
    copy = flag("astype", "copy", copy)
    return to_device("astype", apply_op("astype", elementwise.astype, (x,), dtypes.as_dtype(dtype)), device)


def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: float | Array = 0.0,
    posinf: float | Array | None = None,
    neginf: float | Array | None = None,
) -> Array:
    """Return x with nan replaced by 0, and infinities by the greatest and the least finite number. The replacements may
    be traced.

    Rule:   arrays are immutable, so `copy` has no effect.
    """
    flag("nan_to_num", "copy", copy)
    given = ("nan", nan), ("posinf", posinf), ("neginf", neginf)
    values = [None if v is None else number_or_array("nan_to_num", what, v) for what, v in given]
    arrays = tuple([v for v in values if isinstance(v, Array)])
    static = tuple([None if isinstance(v, Array) else v for v in values])
    which = tuple([isinstance(v, Array) for v in values])
    return apply_op("nan_to_num", elementwise.nan_to_num, (x, *arrays), static, which)


# --------------------------------------------------------------------------------------------------- questions


def isfinite(x: ArrayLike, /) -> Array:
    """True where x is neither infinite nor nan."""
    return apply_op("isfinite", elementwise.isfinite, (x,))


def isinf(x: ArrayLike, /) -> Array:
    """True where x is infinite."""
    return apply_op("isinf", elementwise.isinf, (x,))


def isnan(x: ArrayLike, /) -> Array:
    """True where x is nan."""
    return apply_op("isnan", elementwise.isnan, (x,))


def signbit(x: ArrayLike, /) -> Array:
    """True where the sign bit is set, also for -0.0."""
    return apply_op("signbit", elementwise.signbit, (x,))


def logical_not(x: ArrayLike, /) -> Array:
    """True where x is zero."""
    return apply_op("logical_not", elementwise.logical_not, (x,))


# NumPy's other names.
arcsin = asin
arccos = acos
arctan = atan
arcsinh = asinh
arccosh = acosh
arctanh = atanh
radians = deg2rad
degrees = rad2deg
absolute = abs
conjugate = conj
fix = trunc
around = round
invert = bitwise_invert
bitwise_not = bitwise_invert
