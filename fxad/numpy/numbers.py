"""Functions of integers, of bits and of the parts of floats, and predicates."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Final, cast

import numpy as np

from fxad import dtypes, lax
from fxad.errors import DTypeError, ParameterError
from fxad.numpy.apply import as_array
from fxad.numpy.binary import (
    array_equal,
    copysign,
    equal,
    fmod,
    logaddexp,
    maximum,
    minimum,
    power,
    remainder,
    where,
)
from fxad.numpy.composites import jit_composite, jit_composite_all, promote_arguments
from fxad.numpy.creation import Nested, asarray, nested_array
from fxad.numpy.shapes import broadcast_arrays, concat, moveaxis
from fxad.numpy.types import finfo, result_type
from fxad.numpy.unary import abs, exp2, expm1, isinf, isnan, log1p, trunc
from fxad.operations import promotion
from fxad.operations.arguments import contained_array, no_out, to_int, word
from fxad.operations.axes import normalize_axis_index
from fxad.tracing.array import Array, ArrayLike, aval_of
from fxad.tracing.traced_numbers import is_number

# ----------------------------------------------------------------------------------------------------- of integers


def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the greatest common divisor of integers; never negative."""
    return jit_composite(_gcd, *_integers("gcd", x1, x2))


def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the least common multiple of integers; it wraps if it does not fit the dtype."""
    return jit_composite(_lcm, *_integers("lcm", x1, x2))


def _integers(name: str, x1: ArrayLike, x2: ArrayLike) -> tuple[Array, Array]:
    a, b = _promote_pair(name, x1, x2)
    if a.dtype not in dtypes.INTEGER:
        raise DTypeError(f"{name}: takes integers, got {a.dtype.name}")
    return a, b


def _promote_pair(name: str, x1: ArrayLike, x2: ArrayLike) -> tuple[Array, Array]:
    """Return two arguments in their common dtype."""
    a, b = promote_arguments(name, x1, x2)
    dtype = result_type(a, b)
    return a.astype(dtype), b.astype(dtype)


def _gcd(x: Array, y: Array) -> Array:
    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = state
        more = b != 0
        return where(more, b, a), where(more, remainder(a, where(more, b, 1)), b)

    a, b = broadcast_arrays(abs(x), abs(y))
    # the least integer has no absolute value, and leaves its sign
    return abs(lax.while_loop(lambda state: (state[1] != 0).any(), step, (a, b))[0])


def _lcm(x: Array, y: Array) -> Array:
    divisor = _gcd(x, y)
    # as NumPy: of absolute values, so that only what does not fit is below 0
    return abs(x) // where(divisor == 0, 1, divisor) * abs(y)


def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Pack eight bools (or nonzero integers) along an axis into one uint8, padded with zeros at the end. None flattens
    `a`.

    Rule:   the first element is the highest bit for `bitorder` "big", the lowest for "little".
    """
    axis = None if axis is None else to_int("packbits", "axis", axis)
    array = as_array("packbits", a)
    if array.dtype in dtypes.INEXACT:
        raise DTypeError(f"packbits: takes bools or integers, got {array.aval}", remedy="use x != 0")
    array = array.reshape(-1) if axis is None else array
    return jit_composite(
        _pack_bits, array, normalize_axis_index("packbits", axis or 0, array.ndim), _bit_positions(bitorder, "packbits")
    )


def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """Unpack uint8 along an axis into bits, as uint8 0 and 1. None flattens `a`. `count` is the number of bits to
    return; a negative count drops bits from the end."""
    axis = None if axis is None else to_int("unpackbits", "axis", axis)
    count = None if count is None else to_int("unpackbits", "count", count)
    array = as_array("unpackbits", a)
    if array.dtype is not dtypes.uint8:
        raise DTypeError(f"unpackbits: takes uint8, got {array.aval}", remedy="use astype('uint8')")
    array = array.reshape(-1) if axis is None else array
    at = normalize_axis_index("unpackbits", axis or 0, array.ndim)
    if count is not None and type(array.shape[at]) is int and -count > 8 * array.shape[at]:
        raise ParameterError(f"unpackbits: count {count} of {8 * array.shape[at]} bits")
    return jit_composite(
        _unpack_bits,
        array,
        at,
        count,
        _bit_positions(bitorder, "unpackbits"),
    )


def _bit_positions(bitorder: str, name: str) -> tuple[int, ...]:
    word(name, "bitorder", bitorder, ("big", "little"))
    return tuple(range(7, -1, -1)) if bitorder == "big" else tuple(range(8))


def _pack_bits(x: Array, axis: int, bits: tuple[int, ...]) -> Array:
    x = moveaxis(x.astype(dtypes.bool_).astype(dtypes.uint8), axis, -1)
    missing = -x.shape[-1] % 8
    if missing:
        x = concat([x, lax.full((*x.shape[:-1], missing), 0, dtypes.uint8)], -1)
    x = x.reshape(*x.shape[:-1], x.shape[-1] // 8, 8)
    out = x[..., 0] << bits[0]
    for k, bit in enumerate(bits[1:], 1):
        out = out | (x[..., k] << bit)
    return moveaxis(out, -1, axis)


def _unpack_bits(x: Array, axis: int, count: int | None, bits: tuple[int, ...]) -> Array:
    x = moveaxis(x, axis, -1)
    n = 8 * x.shape[-1]
    out = concat([((x >> bit) & 1)[..., None] for bit in bits], -1).reshape(*x.shape[:-1], n)
    if count is not None:
        end = count if count >= 0 else n + count
        more = lax.full((*x.shape[:-1], max(end - n, 0)), 0, dtypes.uint8)
        out = concat([out[..., : max(end, 0)], more], -1)
    return moveaxis(out, -1, axis)


# ----------------------------------------------------------------------------------------------- of floating numbers

# For each float format: the integer of its size, the bits of its fraction, the greatest exponent.
_FORMAT: Final = MappingProxyType(
    {
        dtypes.float32: (dtypes.int32, 23, 127),
        dtypes.float64: (dtypes.int64, 52, 1023),
    }
)


def _to_real_inexact(name: str, x: ArrayLike, k: int = 0) -> Array:
    array = as_array(name, x, k)
    if array.dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: takes real values, got {array.aval}")
    return array.astype(promotion.to_inexact_dtype(array.dtype))


def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 * 2**x2 for integers x2, without overflow of 2**x2."""
    exponent = as_array("ldexp", x2, 1)
    if exponent.dtype not in dtypes.INTEGER:
        raise DTypeError(f"ldexp: exponents must be integers, got {exponent.aval}")
    return jit_composite(_ldexp, _to_real_inexact("ldexp", x1), exponent)


def _to_float32_or_64(x: Array) -> Array:
    """Return x in a dtype of `_FORMAT`: narrow floats as float32."""
    return x if x.dtype in _FORMAT else x.astype(dtypes.float32)


def _ldexp(x: Array, exponent: Array) -> Array:
    dtype, x = x.dtype, _to_float32_or_64(x)
    integer, fraction, most = _FORMAT[x.dtype]
    wide = exponent.astype(result_type(exponent, dtypes.int32))
    # twice the range of exponents leads from any number to 0 or to an infinity, in at most three steps
    remaining = minimum(maximum(wide, -3 * most), 3 * most).astype(integer)
    for _ in range(3):
        step = minimum(maximum(remaining, 1 - most), most)
        x = x * lax.bitcast_convert_type((step + most) << fraction, x.dtype)
        remaining = remaining - step
    return x.astype(dtype)


def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Return (m, k) with x = m * 2**k: 1/2 <= |m| < 1 or m = 0; k is int32. Infinities and nan have m = x and k = 0."""
    mantissa, exponent = jit_composite_all(_frexp_parts, _to_real_inexact("frexp", x))
    return mantissa, exponent


def _frexp_parts(x: Array) -> tuple[Array, Array]:
    dtype, x = x.dtype, _to_float32_or_64(x)
    integer, fraction, most = _FORMAT[x.dtype]
    # XLA computes with subnormals as with 0. A subnormal is its fraction bits times the least number, 2**-least
    bits = lax.bitcast_convert_type(x, integer)
    bits_of_abs = bits & ~(-1 << 8 * x.dtype.itemsize - 1)
    subnormal, least = bits_of_abs < 1 << fraction, most - 1 + fraction
    scaled = where(bits < 0, -bits_of_abs, bits_of_abs).astype(x.dtype)  # x * 2**least, if x is subnormal
    normal_bits = where(subnormal, lax.bitcast_convert_type(scaled, integer), bits)
    exponent_of_normal = ((normal_bits >> fraction) & (2 * most + 1)) - (most - 1)
    unchanged = (bits_of_abs == 0) | isnan(x) | isinf(x)
    exponent_of_normal = where(unchanged, 0, exponent_of_normal)
    exponent = exponent_of_normal - where(subnormal & ~unchanged, least, 0)
    mantissa = where(unchanged, x, _ldexp(where(subnormal, scaled, x), -exponent_of_normal))
    return mantissa.astype(dtype), exponent.astype(dtypes.int32)


def modf(x: ArrayLike, /) -> tuple[Array, Array]:
    """Return the fractional and the integral part of x, both with the sign of x."""
    fraction, whole = jit_composite_all(_fraction, _to_real_inexact("modf", x))
    return fraction, whole


def _fraction(x: Array) -> tuple[Array, Array]:
    whole = trunc(x)
    return where(isinf(x), copysign(0, x), fmod(x, 1)), whole  # x - whole would have no sign at -1


def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the greater of x1 and x2; the other one if one is nan."""
    return jit_composite(_ignore_nan, *_promote_pair("fmax", x1, x2), True)


def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the lesser of x1 and x2; the other one if one is nan."""
    return jit_composite(_ignore_nan, *_promote_pair("fmin", x1, x2), False)


def _ignore_nan(x: Array, y: Array, greater: bool) -> Array:
    if x.dtype not in dtypes.INEXACT:
        return maximum(x, y) if greater else minimum(x, y)
    x, y = where(isnan(x), y, x), where(isnan(y), x, y)
    return maximum(x, y) if greater else minimum(x, y)


def float_power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 to the power x2 in floating numbers: integers and bools are first converted to float32."""
    operands = [v if is_number(v) else as_array("float_power", v, k) for k, v in enumerate((x1, x2))]
    dtype = promotion.to_inexact_dtype(result_type(*operands))
    a, b = promote_arguments("float_power", x1, x2, dtype=dtype)
    return power(a.astype(dtype), b.astype(dtype))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return log2(2**x1 + 2**x2), without overflow."""
    a, b = _promote_pair("logaddexp2", x1, x2)
    if a.dtype in dtypes.COMPLEX:
        y = logaddexp(_scaled(a, math.log(2)), _scaled(b, math.log(2)))
        return _scaled(y, 1 / math.log(2))
    return jit_composite(_logaddexp2, _to_real_inexact("logaddexp2", a), _to_real_inexact("logaddexp2", b, 1))


def _scaled(x: Array, factor: float) -> Array:
    """Return complex x times a real number, part by part: a product of complex numbers turns infinities into nan."""
    return lax.complex(x.real * factor, x.imag * factor)


def _logaddexp2(x: Array, y: Array) -> Array:
    total, without = x + y, isnan(x - y)
    # the difference of equal infinities is nan: they are replaced, so that no nan reaches a derivative
    x, y, total = where(without, 0, x), where(without, 0, y), where(without, total, 0)
    gap, swapped = x - y, x < y
    # chosen, not maximum and abs: at a tie each choice has all derivatives of the result
    top, down = where(swapped, y, x), where(swapped, gap, -gap)
    # 1 + 2^d is 2 (1 + (2^d - 1) / 2): for d near 0 the 1 is added first, so a result near 0 keeps its digits
    near = down > -1
    part = where(near, expm1(where(near, down, 0) * math.log(2)) / 2, exp2(where(near, -1, down)))
    smooth = where(near, top + 1, top) + log1p(part) / math.log(2)
    # two elements that are inf have half of the slope each. Two that are -inf are no elements: a constant. A nan stays
    edge = total * where(isnan(total), math.nan, 0.5).astype(total.dtype)
    return where(without, where(total == -math.inf, -math.inf, edge), smooth)


def fabs(x: ArrayLike, /) -> Array:
    """Return the absolute value of real x, as a float."""
    return abs(_to_real_inexact("fabs", x))


def spacing(x: ArrayLike, /) -> Array:
    """Return the distance from x to the next float away from 0, with the sign of x."""
    return jit_composite(_spacing, _to_real_inexact("spacing", x))


def _spacing(x: Array) -> Array:
    # in bits, for results may be subnormal: a step down of the exponent, or a bit further down the fraction
    fraction = round(-math.log2(finfo(x.dtype).eps))
    integer = dtypes.SIGNED_OF_SIZE[x.dtype.itemsize]
    sign = -1 << 8 * x.dtype.itemsize - 1
    bits = lax.bitcast_convert_type(x, integer)
    size = bits & ~sign
    exponent = size >> fraction
    lower = maximum(exponent - fraction, 0) << fraction
    one = lax.full(x.shape, 1, integer)
    step = where(lower == 0, one << minimum(maximum(exponent - 1, 0), fraction), lower)
    step = where((bits < 0) & (size != 0), step | sign, step)
    return where(isinf(x) | isnan(x), math.nan, lax.bitcast_convert_type(step, x.dtype))


# -------------------------------------------------------------------------------------------------------- questions


def isposinf(x: ArrayLike, out: None = None) -> Array:
    """Return True where x is inf."""
    no_out("isposinf", out)
    return equal(_ordered_floats("isposinf", x), math.inf)


def isneginf(x: ArrayLike, out: None = None) -> Array:
    """Return True where x is -inf."""
    no_out("isneginf", out)
    return equal(_ordered_floats("isneginf", x), -math.inf)


def _ordered_floats(name: str, x: ArrayLike) -> Array:
    """Return x as real floats. Raises: DTypeError for complex numbers."""
    array = as_array(name, x)
    if array.dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: complex infinities have no sign, got {array.aval}")
    return array if array.dtype in dtypes.FLOATING else array.astype(dtypes.float32)


def isreal(x: ArrayLike) -> Array:
    """Return True where the imaginary part is 0."""
    return equal(as_array("isreal", x).imag, 0)


def iscomplex(x: ArrayLike) -> Array:
    """Return True where the imaginary part is not 0."""
    return as_array("iscomplex", x).imag != 0


def isrealobj(x: ArrayLike) -> bool:
    """Return True if the dtype is not complex."""
    return not iscomplexobj(x)


def iscomplexobj(x: Nested) -> bool:
    """Return True if the dtype is complex."""
    array = asarray(x) if isinstance(x, list | tuple) else cast("ArrayLike", x)
    return aval_of(contained_array(array), "iscomplexobj: argument 0").dtype in dtypes.COMPLEX


def isscalar(element: object) -> bool:
    """Return True for a Python or NumPy scalar, and for an fxad array of shape ()."""
    element = contained_array(element)
    return (
        element.ndim == 0
        if isinstance(element, Array)
        else isinstance(element, bool | int | float | complex | np.generic)
    )


def iterable(y: object) -> bool:
    """Return True if `for` can iterate over the object."""
    return y.ndim > 0 if isinstance(y, Array) else bool(np.iterable(y))


def array_equiv(a1: Nested, a2: Nested) -> Array:
    """Return True if `a1` and `a2` broadcast to one shape and have equal elements."""
    given = [a if is_number(a) else nested_array("array_equiv", a, k) for k, a in enumerate((a1, a2))]
    a, b = promote_arguments("array_equiv", *given)
    sizes = zip(a.shape[::-1], b.shape[::-1], strict=False)
    if not all([n == m or 1 in (n, m) for n, m in sizes]):
        return lax.full((), False)
    left, right = broadcast_arrays(a, b)
    return array_equal(left, right)


__all__ = [
    "array_equiv", "fabs", "float_power", "fmax", "fmin", "frexp", "gcd", "iscomplex", "iscomplexobj", "isneginf",
    "isposinf", "isreal", "isrealobj", "isscalar", "iterable", "lcm", "ldexp", "logaddexp2", "modf", "packbits",
    "spacing", "unpackbits",
]  # fmt: skip
