"""Elementwise functions of one array."""

from __future__ import annotations

import math
from collections.abc import Callable

from fxad import dtypes
from fxad.ir import Primitive
from fxad.lax.documented import documented
from fxad.numpy.apply import apply_op, number_or_array, to_device
from fxad.operations import arithmetic, elementwise
from fxad.operations.arguments import flag, no_out, to_int
from fxad.operations.operators import Operation
from fxad.primitives.elementwise.exponential import EXP, EXP2, EXPM1, LOG, LOG1P, LOG2, LOG10
from fxad.primitives.elementwise.powers import CBRT, SIGN, SQRT
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


def _function(operation: Operation, prim: Primitive) -> Callable[[ArrayLike], Array]:
    """Return the function that applies `operation` with a primitive. It has the name of the primitive, and the first
    paragraph of its docstring."""
    name = prim.name

    def function(x: ArrayLike, /) -> Array:
        return apply_op(name, operation, (x,), prim)

    return documented(function, function, prim, summary=True)


# -------------------------------------------------------------------------------------- floating results

sin = _function(elementwise.inexact_unary, SIN)
cos = _function(elementwise.inexact_unary, COS)
tan = _function(elementwise.inexact_unary, TAN)
asin = _function(elementwise.inexact_unary, ASIN)
acos = _function(elementwise.inexact_unary, ACOS)
atan = _function(elementwise.inexact_unary, ATAN)
sinh = _function(elementwise.inexact_unary, SINH)
cosh = _function(elementwise.inexact_unary, COSH)
tanh = _function(elementwise.inexact_unary, TANH)
asinh = _function(elementwise.inexact_unary, ASINH)
acosh = _function(elementwise.inexact_unary, ACOSH)
atanh = _function(elementwise.inexact_unary, ATANH)
exp = _function(elementwise.inexact_unary, EXP)
exp2 = _function(elementwise.inexact_unary, EXP2)
expm1 = _function(elementwise.inexact_unary, EXPM1)
log = _function(elementwise.inexact_unary, LOG)
log1p = _function(elementwise.inexact_unary, LOG1P)
sqrt = _function(elementwise.inexact_unary, SQRT)
cbrt = _function(elementwise.inexact_unary, CBRT)
log2 = _function(elementwise.log_in_base, LOG2)
log10 = _function(elementwise.log_in_base, LOG10)


def reciprocal(x: ArrayLike, /) -> Array:
    """Return 1 / x."""
    return apply_op("reciprocal", elementwise.reciprocal, (x,))


def deg2rad(x: ArrayLike, /) -> Array:
    """Convert degrees to radians."""
    return apply_op("deg2rad", elementwise.times_constant, (x,), math.pi / 180)


def rad2deg(x: ArrayLike, /) -> Array:
    """Convert radians to degrees."""
    return apply_op("rad2deg", elementwise.times_constant, (x,), 180 / math.pi)


def angle(z: ArrayLike, deg: bool = False) -> Array:
    """Return the angle of a complex number, from -pi to pi; from -180 to 180 with `deg`."""
    radians = apply_op("angle", elementwise.angle, (z,))
    return radians * (180 / math.pi) if flag("angle", "deg", deg) else radians


# ---------------------------------------------------------------------------------- results of the dtype of x

sign = _function(elementwise.unary, SIGN)
floor = _function(elementwise.round_unary, FLOOR)
ceil = _function(elementwise.round_unary, CEIL)


def square(x: ArrayLike, /) -> Array:
    """Return x * x; of bools, as int32."""
    return apply_op("square", elementwise.square, (x,))


def abs(x: ArrayLike, /) -> Array:
    """Return the absolute value of x; real for complex x."""
    return apply_op("abs", arithmetic.absolute, (x,))


def negative(x: ArrayLike, /) -> Array:
    """Return -x; refused for bools."""
    return apply_op("negative", arithmetic.negative, (x,))


def positive(x: ArrayLike, /) -> Array:
    """Return x."""
    return apply_op("positive", elementwise.identity, (x,))


def conj(x: ArrayLike, /) -> Array:
    """Return the complex conjugate; real values are returned unchanged."""
    return apply_op("conj", elementwise.conj, (x,))


def real(x: ArrayLike, /) -> Array:
    """Return the real part; real values are returned unchanged."""
    return apply_op("real", elementwise.real, (x,))


def imag(x: ArrayLike, /) -> Array:
    """Return the imaginary part; 0 for real values."""
    return apply_op("imag", elementwise.imag, (x,))


def trunc(x: ArrayLike) -> Array:
    """Return the integral part of x."""
    return apply_op("trunc", elementwise.trunc, (x,))


def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Return the elements rounded to a number of decimals, ties to even."""
    no_out("round", out)
    decimals = to_int("round", "decimals", decimals)
    return apply_op("round", elementwise.round_to, (a,), decimals)


def rint(x: ArrayLike, /) -> Array:
    """Return x rounded to integral values, ties to even."""
    return apply_op("rint", elementwise.round_to, (x,), 0)


def bitwise_invert(x: ArrayLike, /) -> Array:
    """Invert every bit of x; logical not for bools."""
    return apply_op("bitwise_invert", arithmetic.invert, (x,))


def bitwise_count(x: ArrayLike, /) -> Array:
    """Return the number of set bits of abs(x)."""
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
    """Return True where x is neither infinite nor nan."""
    return apply_op("isfinite", elementwise.isfinite, (x,))


def isinf(x: ArrayLike, /) -> Array:
    """Return True where x is infinite."""
    return apply_op("isinf", elementwise.isinf, (x,))


def isnan(x: ArrayLike, /) -> Array:
    """Return True where x is nan."""
    return apply_op("isnan", elementwise.isnan, (x,))


def signbit(x: ArrayLike, /) -> Array:
    """Return True where the sign bit is set, also for -0.0."""
    return apply_op("signbit", elementwise.signbit, (x,))


def logical_not(x: ArrayLike, /) -> Array:
    """Return True where x is zero."""
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
