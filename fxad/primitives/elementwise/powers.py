"""Magnitudes, powers and roots."""

from __future__ import annotations

import math
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError
from fxad.ir import (
    Atom,
    Aval,
    Avals,
    Hlo,
    HloValue,
    HloValues,
    JvpCtx,
    Lit,
    NDArray,
    Tangent,
    Zero,
    literal_number,
    primitive,
)
from fxad.primitives.elementwise import annex_g
from fxad.primitives.elementwise.annex_g import ComplexFunction, ComplexUnary, HloReal
from fxad.primitives.elementwise.arithmetic import DIV, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.complex_parts import COMPLEX, CONJ, IMAG, REAL
from fxad.primitives.elementwise.convert import emit_convert, emit_in_float32
from fxad.primitives.elementwise.exponential import LOG
from fxad.primitives.elementwise.family import SIGNED_OR_INEXACT, Binary, Unary, from_ufunc, literal_like
from fxad.primitives.elementwise.logic import AND, EQ, OR
from fxad.primitives.elementwise.references import divide
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.stablehlo import bitcast_to_int, lower_compare, lower_in_float32


@final
@primitive
class Sign(ComplexUnary):
    """-1, 0 or 1 by the sign of x, nan kept, 0.0 at -0.0; for complex x, x / abs(x) and 0 at 0. That of a complex
    number with one infinite part is the sign of this part; with two, or a nan, it is nan.

    Type:   a numeric operand.
    Rule:   the tangent of a real sign is `Zero`; a complex one moves along the circle.
    Source: stablehlo.sign
    """

    name: ClassVar[str] = "sign"
    complex_function: ClassVar[ComplexFunction] = annex_g.sign
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC

    def compute(self, x: NDArray) -> object:
        sign = np.sign(x)
        return np.where(np.isnan(x), np.multiply(x, np.nan), sign) if x.dtype in dtypes.COMPLEX else sign

    def lower_real(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,) = ins
        if x.dtype in dtypes.FLOATING:
            return self._by_bits(hlo, args[0], x)
        if x.dtype not in dtypes.UNSIGNED:
            return hlo.op("stablehlo.sign", args, outs)
        return hlo.op("stablehlo.minimum", (*args, hlo.constant(Lit.of(1, ins[0]))), outs)

    def _by_bits(self, hlo: Hlo, x: HloValue, aval: Aval) -> tuple[HloValue, ...]:
        """Return the sign from the bits as an integer: their magnitude with the sign of x, clamped to -1, 0 or 1.

        Of float16: 1.5 has the bits 0x3e00, clamped to 1; -0.0 has the sign bit alone, so the magnitude 0; -6e-8 has
        the magnitude 1 and the sign -1. `stablehlo.sign` keeps -0.0, and treats subnormals as 0. A comparison of the
        bits with 0 in place of the clamp is not enough: LLVM joins it with the test for nan into one of floats, which
        treats subnormals as 0 again.
        """
        bits, int_type = bitcast_to_int(hlo, x, aval)
        all_but_sign = dtypes.RANGES[int_type.dtype][1]
        minus_one, zero, one, mask = [hlo.constant(Lit.of(k, int_type)) for k in (-1, 0, 1, all_but_sign)]
        (negative,) = lower_compare(hlo, "LT", (bits, zero), int_type)
        (magnitude,) = hlo.op("stablehlo.and", (bits, mask), (int_type,))
        (minus_magnitude,) = hlo.op("stablehlo.negate", (magnitude,), (int_type,))
        (signed,) = hlo.op("stablehlo.select", (negative, minus_magnitude, magnitude), (int_type,))
        (sign,) = hlo.op("stablehlo.clamp", (minus_one, signed, one), (int_type,))
        (out,) = hlo.op("stablehlo.convert", (sign,), (aval,))
        (is_nan,) = lower_compare(hlo, "NE", (x, x), aval)
        return hlo.op("stablehlo.select", (is_nan, x, out), (aval,))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if y.aval.dtype not in dtypes.COMPLEX:
            return Zero(y.aval)
        # the part of t across the direction y, over the radius
        radius = ctx.one(ABS, x)
        safe = emit_where(ctx, ctx.one(EQ, radius, literal_like(0.0, radius)), literal_like(1.0, radius), radius)
        across = ctx.lin_one(DIV, ctx.lin_one(IMAG, scale_tangent(ctx, t, ctx.one(CONJ, y))), safe)
        return scale_tangent(ctx, ctx.lin_one(COMPLEX, Zero(across.aval), across), y)


@final
@primitive
class Abs(Unary):
    """The absolute value of x.

    Type:   a signed integer, float or complex operand; for complex, the result has the dtype of the parts. The smallest
            integer is its own absolute value.
    Rule:   the tangent times sign(x), 0 at 0; for complex x, its part along x.
    Source: stablehlo.abs
    """

    name: ClassVar[str] = "abs"
    hlo_name: ClassVar[str] = "stablehlo.abs"
    takes: ClassVar[frozenset[DType]] = SIGNED_OR_INEXACT
    lower = annex_g.lower_abs

    def compute(self, x: NDArray) -> object:
        # NumPy's of complex numbers is not exact where it can be
        return _hypot(np.real(x), np.imag(x)) if x.dtype in dtypes.COMPLEX else np.abs(x)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = Unary.abstract_eval(self, *avals)
        return (x.with_dtype(dtypes.real_part(x.dtype)),) if x.dtype in dtypes.COMPLEX else (x,)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        direction = ctx.one(SIGN, x)
        if x.aval.dtype in dtypes.COMPLEX:
            return ctx.lin_one(REAL, scale_tangent(ctx, t, ctx.one(CONJ, direction)))
        return scale_tangent(ctx, t, direction)


@final
@primitive
class Square(Unary):
    """x * x. The real part of a complex square is (a - b) (a + b), which keeps its digits where a is close to b.

    Type:   a numeric operand; integers wrap.
    Rule:   d = 2 x.
    Source: stablehlo.multiply
    """

    name: ClassVar[str] = "square"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC

    def compute(self, x: NDArray) -> object:
        if x.dtype not in dtypes.COMPLEX:
            return np.multiply(x, x)
        a, b, out = np.real(x), np.imag(x), np.empty_like(x)
        less, more = a - b, a + b
        # the sum may overflow where the difference is 0
        out.real, out.imag = np.where((less == 0) | (more == 0), 0, less * more), a * b + a * b
        return out

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,) = ins
        if x.dtype not in dtypes.COMPLEX:
            return hlo.op("stablehlo.multiply", (args[0], args[0]), outs)
        part = (x.with_dtype(dtypes.real_part(x.dtype)),)
        (a,), (b,) = hlo.op("stablehlo.real", args, part), hlo.op("stablehlo.imag", args, part)
        (less,), (more,) = hlo.op("stablehlo.subtract", (a, b), part), hlo.op("stablehlo.add", (a, b), part)
        (real,), zero = hlo.op("stablehlo.multiply", (less, more), part), hlo.constant(Lit.zero(part[0]))
        for factor in (less, more):  # the other one may overflow
            (is_zero,) = lower_compare(hlo, "EQ", (factor, zero), part[0])
            (real,) = hlo.op("stablehlo.select", (is_zero, zero, real), part)
        (product,) = hlo.op("stablehlo.multiply", (a, b), part)
        return hlo.op("stablehlo.complex", (real, *hlo.op("stablehlo.add", (product, product), part)), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(MUL, x, literal_like(2.0, x)))


@final
@primitive
class IntegerPow(Unary):
    """x to the power `n`; 1 for n = 0, whatever x.

    Type:   a numeric operand; n >= 0 for integers, which wrap.
    Rule:   d = n x^(n-1), 0 for n = 0.
    Source: stablehlo.multiply, by repeated squaring.
    """

    name: ClassVar[str] = "integer_pow"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    n: int

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = Unary.abstract_eval(self, *avals)
        if self.n < 0 and x.dtype in dtypes.INTEGER:
            raise DTypeError(
                f"integer_pow: an integer has no power {self.n}, got {x}", remedy="convert it to float first"
            )
        return (x,)

    def compute(self, x: NDArray) -> object:
        out, factor, n = np.ones_like(x), x, abs(self.n)
        while n:
            out = np.multiply(out, factor) if n & 1 else out
            factor, n = np.multiply(factor, factor), n >> 1
        return divide(np.ones_like(x), out) if self.n < 0 else out

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        one = hlo.constant(Lit.of(1, ins[0]))
        out, factor, n = None, args[0], abs(self.n)
        while n:
            if n & 1:
                out = factor if out is None else hlo.op("stablehlo.multiply", (out, factor), outs)[0]
            n >>= 1
            if n:
                (factor,) = hlo.op("stablehlo.multiply", (factor, factor), outs)
        if out is None:
            return (one,)
        return hlo.op("stablehlo.divide", (one, out), outs) if self.n < 0 else (out,)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return _times_power(ctx, t, x, self.n)


def _times_power(ctx: JvpCtx, t: Tangent, x: Atom, n: int) -> Tangent:
    """Return t times the derivative of x^n."""
    if n in (0, 1):
        return t if n else Zero(t.aval)

    def slope(x: Atom) -> Atom:
        power = x if n == 2 else ctx.one(SQUARE if n == 3 else IntegerPow(n - 1), x)
        return ctx.one(MUL, power, literal_like(float(n), x))

    # n may be no number of the dtype: 70,000 is infinite in float16, and infinity times a power of 0.5 would be nan
    if np.isfinite(complex(literal_like(float(n), x).value)):
        return scale_tangent(ctx, t, slope(x))
    return scale_tangent(ctx, t, emit_in_float32(ctx, slope, x))


@final
@primitive
class Pow(Binary):
    """x to the power y.

    Type:   two numeric operands of one type; 1 for y = 0, nan for a negative x and a y that is not integral. Integers
            wrap; a negative power of one is 0, but for 1 and -1.
    Rule:   d/dx = y x^(y-1), 0 for y = 0; d/dy = x^y log(x), taken as 0 where x or the power is 0.
    Source: stablehlo.power
    """

    name: ClassVar[str] = "pow"
    hlo_name: ClassVar[str] = "stablehlo.power"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC

    def compute(self, x: NDArray, y: NDArray) -> object:
        if x.dtype not in dtypes.SIGNED:
            return np.power(x, y)
        # NumPy has no negative powers of integers: those of 1 and -1 are their powers, of others 0
        below = np.less(y, 0)
        power = np.power(x, np.where(below, np.bitwise_and(y, np.ones_like(y)), y))
        return np.where(below & (x != 1) & (x != -1), np.zeros_like(x), power)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if ins[0].dtype in dtypes.INTEGER:
            return self._of_integers(hlo, args[0], args[1], ins[0])
        power = hlo.op(self.hlo_name, args, outs)
        if ins[0].dtype not in dtypes.COMPLEX:
            return power
        # XLA takes the logarithm of a complex 0 and gets nan; the power is 0 where the exponent's real part is positive
        (part,) = REAL.abstract_eval(ins[1])
        zero = hlo.constant(Lit.of(0, ins[0]))
        base = lower_compare(hlo, "EQ", (args[0], zero), ins[0])
        real = hlo.op(REAL.hlo_name, args[1:], (part,))
        decays = lower_compare(hlo, "GT", (*real, hlo.constant(Lit.of(0, part))), part)
        both = hlo.op("stablehlo.and", (*base, *decays), (part.with_dtype(dtypes.bool_),))
        return hlo.op("stablehlo.select", (*both, zero, *power), outs)

    def _of_integers(self, hlo: Hlo, x: HloValue, y: HloValue, aval: Aval) -> HloValues:
        """XLA reads only six bits of an exponent: the exponent is processed six bits at a time, and the base is raised
        to the 64th power after each. For y = 100 = 36 + 1 * 64 the power is x^36 * (x^64)^1."""

        def op(name: str, *operands: HloValue | int) -> HloValue:
            values = [hlo.constant(Lit.of(v, aval)) if isinstance(v, int) else v for v in operands]
            return hlo.op(f"stablehlo.{name}", values, (aval,))[0]

        bits = 8 * aval.dtype.itemsize
        power, base = op("power", x, op("and", y, 63)), x
        for shift in range(6, bits, 6):
            for _ in range(6):
                base = op("multiply", base, base)
            power = op("multiply", power, op("power", base, op("and", op("shift_right_logical", y, shift), 63)))
        if aval.dtype in dtypes.UNSIGNED:
            return (power,)
        zero, one, minus_one = [hlo.constant(Lit.of(v, aval)) for v in (0, 1, -1)]
        (is_one,) = lower_compare(hlo, "EQ", (x, one), aval)
        (is_minus_one,) = lower_compare(hlo, "EQ", (x, minus_one), aval)
        (odd,) = lower_compare(hlo, "NE", (op("and", y, one), zero), aval)
        (below,) = lower_compare(hlo, "LT", (y, zero), aval)
        inverse = op("select", is_one, one, op("select", is_minus_one, op("select", odd, x, one), zero))
        return (op("select", below, inverse, power),)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        return ctx.add(self._along_base(ctx, x, y, tx), self._along_exponent(ctx, x, z, ty))

    def _along_base(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if isinstance(t, Zero):
            return t
        number = literal_number(y)
        if number is not None:
            n = complex(number)
            if n in (0, 1, 2):
                return _times_power(ctx, t, x, int(n.real))
            less: Atom = Lit.of(np.subtract(number, 1), y.aval)
        else:
            # 0 * 0^-1 would be nan: where both are 0 the power is taken of 1; elsewhere higher derivatives stay right
            less = ctx.one(SUB, y, literal_like(1.0, y))
            none = ctx.one(EQ, y, literal_like(0.0, y))
            if not isinstance(y, Lit):  # a size has no derivatives: where it is 0 the power may be taken of 1 anywhere
                none = ctx.one(AND, ctx.one(EQ, x, literal_like(0.0, x)), none)
            x = emit_where(ctx, none, literal_like(1.0, x), x)
        # in float32 at least: in float16, x^(y-1) is infinite where y times it is not
        wide = dtypes.accumulated(t.aval.dtype)
        x, less, factor = [emit_convert(ctx, v, wide) for v in (x, less, y)]
        return scale_tangent(ctx, t, emit_convert(ctx, ctx.one(MUL, ctx.one(POW, x, less), factor), t.aval.dtype))

    def _along_exponent(self, ctx: JvpCtx, x: Atom, z: Atom, t: Tangent) -> Tangent:
        if isinstance(t, Zero):
            return t
        base = literal_number(x)
        if base is not None and x.aval.dtype in dtypes.FLOATING and 0 < float(base) < math.inf:
            return scale_tangent(ctx, t, ctx.one(MUL, z, literal_like(math.log(float(base)), x)))
        none = ctx.one(OR, *[ctx.one(EQ, v, literal_like(0.0, v)) for v in (x, z)])
        return scale_tangent(ctx, t, ctx.one(MUL, z, ctx.one(LOG, emit_where(ctx, none, literal_like(1.0, x), x))))


@final
@primitive
class Sqrt(ComplexUnary):
    """The square root of x; nan below 0.

    Type:   a float or complex operand.
    Rule:   d = 1/2 / sqrt(x), inf at 0.
    Source: stablehlo.sqrt
    """

    name: ClassVar[str] = "sqrt"
    hlo_name: ClassVar[str] = "stablehlo.sqrt"
    complex_function: ClassVar[ComplexFunction] = annex_g.sqrt
    compute = from_ufunc(np.sqrt)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(DIV, literal_like(0.5, y), y))


@final
@primitive
class Rsqrt(ComplexUnary):
    """1 / sqrt(x); inf at 0, nan below.

    Type:   a float or complex operand.
    Rule:   d = -1/2 rsqrt(x) / x.
    Source: stablehlo.rsqrt
    """

    name: ClassVar[str] = "rsqrt"
    hlo_name: ClassVar[str] = "stablehlo.rsqrt"
    complex_function: ClassVar[ComplexFunction] = annex_g.rsqrt

    def compute(self, x: NDArray) -> object:
        return divide(np.ones_like(x), np.sqrt(x))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        dtype = x.aval.dtype
        # in float32 at least: in float16, half of a small y is subnormal. y / x may be infinite where half of it is not
        x, y = [emit_convert(ctx, v, dtypes.accumulated(dtype)) for v in (x, y)]
        slope = ctx.one(DIV, ctx.one(MUL, y, literal_like(-0.5, y)), x)
        return scale_tangent(ctx, t, emit_convert(ctx, slope, dtype))


@final
@primitive
class Cbrt(Unary):
    """The real cube root of x.

    Type:   a float operand.
    Rule:   d = 1/3 / cbrt(x)^2, inf at 0.
    Source: stablehlo.cbrt; for a subnormal, whose bits are an integer m, the root of 2m or m times a power of 2
    """

    name: ClassVar[str] = "cbrt"
    hlo_name: ClassVar[str] = "stablehlo.cbrt"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    compute = from_ufunc(np.cbrt)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: _lower_cbrt(hlo, wide[0], t))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(DIV, literal_like(1 / 3, y), ctx.one(SQUARE, y)))


def _lower_cbrt(hlo: Hlo, x: HloValue, aval: Aval) -> HloValue:
    """XLA reads a subnormal as 0, or gives a wrong number for it: `docs/known-faults.md`."""
    double = aval.dtype is dtypes.float64
    bits, integer = bitcast_to_int(hlo, x, aval)
    below_sign, zero, least = [
        hlo.constant(Lit.of(k, integer)) for k in (dtypes.RANGES[integer.dtype][1], 0, 1 << (52 if double else 23))
    ]
    (mantissa,) = hlo.op("stablehlo.and", (bits, below_sign), (integer,))
    (subnormal,) = lower_compare(hlo, "LT", (mantissa, least), integer)
    (negative,) = lower_compare(hlo, "LT", (bits, zero), integer)
    # x is m / 2^1074 or m / 2^149, that is 2m / 2^150; the exponents are multiples of 3
    (m,) = hlo.op("stablehlo.convert", (mantissa,), (aval,))
    if not double:
        (m,) = hlo.op("stablehlo.add", (m, m), (aval,))
    (minus_m,) = hlo.op("stablehlo.negate", (m,), (aval,))
    (m,) = hlo.op("stablehlo.select", (negative, minus_m, m), (aval,))
    (operand,) = hlo.op("stablehlo.select", (subnormal, m, x), (aval,))
    (root,) = hlo.op("stablehlo.cbrt", (operand,), (aval,))
    if double:
        root = _exact_cbrt(hlo, operand, root, aval)
    scale = hlo.constant(Lit.of(2.0 ** (-358 if double else -50), aval))
    (scaled,) = hlo.op("stablehlo.multiply", (root, scale), (aval,))
    return hlo.op("stablehlo.select", (subnormal, scaled, root), (aval,))[0]


def _exact_cbrt(hlo: Hlo, x: HloValue, root: HloValue, aval: Aval) -> HloValue:
    """Return the root, rounded to 21 bits if the cube of that is x. The root of a cube of float64 has at most 18 bits;
    XLA's is off by one unit in the last place for every second one."""
    bits, integer = bitcast_to_int(hlo, root, aval)
    half, mask = [hlo.constant(Lit.of(k, integer)) for k in (1 << 31, -(1 << 32))]
    (bits,) = hlo.op("stablehlo.add", (bits, half), (integer,))
    (bits,) = hlo.op("stablehlo.and", (bits, mask), (integer,))
    (short,) = hlo.op("stablehlo.bitcast_convert", (bits,), (aval,))
    (square,) = hlo.op("stablehlo.multiply", (short, short), (aval,))
    (cube,) = hlo.op("stablehlo.multiply", (square, short), (aval,))
    (exact,) = lower_compare(hlo, "EQ", (cube, x), aval)
    return hlo.op("stablehlo.select", (exact, short, root), (aval,))[0]


def _hypot(x: NDArray, y: NDArray) -> object:
    # the function of the C library, which NumPy calls, is not exact in float32
    return np.hypot(x.astype(np.float64), y.astype(np.float64))


@final
@primitive
class Hypot(Binary):
    """sqrt(x^2 + y^2), without overflow, and exact if the squares, their sum and the root are.

    Type:   two float operands of one type; inf if one is infinite, even if the other is nan.
    Rule:   (x x_dot + y y_dot) / hypot(x, y), 0 at the origin.
    Source: the operands are scaled by a power of 2, so that no square over- or underflows
    """

    name: ClassVar[str] = "hypot"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray, y: NDArray, /) -> object:
        return _hypot(x, y)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(
            hlo, args, ins[0], lambda wide, t: annex_g.hypot(*[HloReal(hlo, v, t) for v in wide]).value
        )

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        along_x = tx if isinstance(tx, Zero) else scale_tangent(ctx, tx, ctx.one(DIRECTION_COSINE, x, y))
        along_y = ty if isinstance(ty, Zero) else scale_tangent(ctx, ty, ctx.one(DIRECTION_COSINE, y, x))
        return ctx.add(along_x, along_y)


@final
@primitive
class DirectionCosine(Binary):
    """x / hypot(x, y), the cosine of the angle between the point (x, y) and the first axis; 0 at the origin.

    It is a primitive because the derivative of the quotient is 1 - cos(a)^2 of a rounded cosine.

    Type:   two float operands of one type.
    Rule:   s (s x_dot - c y_dot) / hypot(x, y) for the cosine c and the sine s; 0 at the origin.
    Source: as hypot
    """

    name: ClassVar[str] = "direction_cosine"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray, y: NDArray, /) -> object:
        with np.errstate(all="ignore"):
            big = np.maximum(np.abs(x), np.abs(y))
            infinite = np.isinf(big)
            x, y = [np.where(infinite, np.copysign(np.isinf(v), v).astype(v.dtype), v) for v in (x, y)]
            _, exponent = np.frexp(np.where(infinite, np.ones_like(big), big))
            x, y = np.ldexp(x, -exponent), np.ldexp(y, -exponent)
            return np.where(
                np.equal(big, 0), np.zeros_like(x), np.divide(x, np.sqrt(np.add(np.square(x), np.square(y))))
            )

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(
            hlo, args, ins[0], lambda wide, t: annex_g.direction_cosine(*[HloReal(hlo, v, t) for v in wide]).value
        )

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        sine, radius = ctx.one(DIRECTION_COSINE, y, x), ctx.one(HYPOT, x, y)
        origin = ctx.one(EQ, radius, literal_like(0.0, radius))
        across = ctx.one(DIV, sine, emit_where(ctx, origin, literal_like(1.0, radius), radius))
        along_x = tx if isinstance(tx, Zero) else scale_tangent(ctx, tx, ctx.one(MUL, across, sine))
        if isinstance(ty, Zero):
            return along_x
        return ctx.add(along_x, scale_tangent(ctx, ty, ctx.one(MUL, across, ctx.one(NEG, z))))


SIGN: Final = Sign()
ABS: Final = Abs()
SQUARE: Final = Square()
POW: Final = Pow()
SQRT: Final = Sqrt()
RSQRT: Final = Rsqrt()
CBRT: Final = Cbrt()
HYPOT: Final = Hypot()
DIRECTION_COSINE: Final = DirectionCosine()
