"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Atom, Avals, Hlo, HloValues, JvpCtx, Lit, Tangent, Zero, primitive
from fxad.primitives.elementwise import annex_g
from fxad.primitives.elementwise.annex_g import ComplexFunction, ComplexUnary
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.complex_parts import COMPLEX, IMAG, REAL
from fxad.primitives.elementwise.convert import emit_convert, emit_in_float32
from fxad.primitives.elementwise.family import Binary, from_ufunc, literal_like
from fxad.primitives.elementwise.logic import LT
from fxad.primitives.elementwise.powers import ABS, DIRECTION_COSINE, HYPOT, RSQRT, SQUARE
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.stablehlo import bitcast_to_int


@final
@primitive
class Sin(ComplexUnary):
    """The sine of x.

    Type:   a float or complex operand.
    Rule:   d = cos(x).
    Source: stablehlo.sine
    """

    name: ClassVar[str] = "sin"
    hlo_name: ClassVar[str] = "stablehlo.sine"
    complex_function: ClassVar[ComplexFunction] = annex_g.sin
    compute = from_ufunc(np.sin)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(COS, x))


@final
@primitive
class Cos(ComplexUnary):
    """The cosine of x.

    Type:   a float or complex operand.
    Rule:   d = -sin(x).
    Source: stablehlo.cosine
    """

    name: ClassVar[str] = "cos"
    hlo_name: ClassVar[str] = "stablehlo.cosine"
    complex_function: ClassVar[ComplexFunction] = annex_g.cos
    compute = from_ufunc(np.cos)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(NEG, ctx.one(SIN, x)))


@final
@primitive
class Tan(ComplexUnary):
    """The tangent of x.

    Type:   a float or complex operand.
    Rule:   d = 1 + y^2; 1 / cos(x)^2 for complex x.
    Source: stablehlo.tan
    """

    name: ClassVar[str] = "tan"
    hlo_name: ClassVar[str] = "stablehlo.tan"
    complex_function: ClassVar[ComplexFunction] = annex_g.tan
    compute = from_ufunc(np.tan)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        one = literal_like(1.0, x)
        if x.aval.dtype in dtypes.COMPLEX:
            # far from the real axis y is i, and the sum has no digit left
            return scale_tangent(ctx, t, ctx.one(SQUARE, ctx.one(DIV, one, ctx.one(COS, x))))
        return scale_tangent(ctx, t, ctx.one(ADD, ctx.one(SQUARE, y), one))


def _factors(ctx: JvpCtx, z: Atom) -> tuple[Atom, Atom]:
    """Return 1 - z and 1 + z. Close to a pole one of them keeps the digits that 1 - z^2 loses, and neither overflows.

    The sum of two complex numbers loses the sign of a zero imaginary part, which tells the side of a branch cut.
    """
    a, b = ctx.one(REAL, z), ctx.one(IMAG, z)
    one = literal_like(1.0, a)
    return ctx.one(COMPLEX, ctx.one(SUB, one, a), ctx.one(NEG, b)), ctx.one(COMPLEX, ctx.one(ADD, one, a), b)


def _times_i(ctx: JvpCtx, z: Atom) -> Atom:
    """Return i z with the signs of its zeros, which tell the sides of a branch cut."""
    return ctx.one(COMPLEX, ctx.one(NEG, ctx.one(IMAG, z)), ctx.one(REAL, z))


def _reciprocal_circle(ctx: JvpCtx, z: Atom) -> Atom:
    """Return 1 / (1 - z^2) of complex z. Around 0 the derivative of the product is a difference of nearly equal
    numbers."""
    one = literal_like(1.0, z)
    near = ctx.one(LT, ctx.one(ABS, z), literal_like(0.5, ctx.one(ABS, z)))
    small = emit_where(ctx, near, z, literal_like(0.0, z))
    below, above = _factors(ctx, emit_where(ctx, near, literal_like(0.0, z), z))
    away = ctx.one(DIV, ctx.one(DIV, one, below), above)
    return emit_where(ctx, near, ctx.one(DIV, one, ctx.one(SUB, one, ctx.one(SQUARE, small))), away)


def _reciprocal_root(ctx: JvpCtx, z: Atom) -> Atom:
    """Return 1 / sqrt(1 - z^2) of complex z, on the branch of the derivative of asin."""
    one = literal_like(1.0, z)
    near = ctx.one(LT, ctx.one(ABS, z), literal_like(0.5, ctx.one(ABS, z)))
    small = emit_where(ctx, near, z, literal_like(0.0, z))
    below, above = [ctx.one(RSQRT, v) for v in _factors(ctx, emit_where(ctx, near, literal_like(0.0, z), z))]
    away = ctx.one(MUL, below, above)
    return emit_where(ctx, near, ctx.one(RSQRT, ctx.one(SUB, one, ctx.one(SQUARE, small))), away)


def _slope_of_asin(ctx: JvpCtx, x: Atom) -> Atom:
    if x.aval.dtype in dtypes.COMPLEX:
        return _reciprocal_root(ctx, x)
    return ctx.one(RSQRT, _unit_circle(ctx, x))


def _unit_circle(ctx: JvpCtx, x: Atom) -> Atom:
    """Return 1 - x^2 of real x. Around 0 the derivative of (1 - x)(1 + x) is a difference of nearly equal numbers, and
    close to 1 the square has lost the digits of the result."""
    one = literal_like(1.0, x)
    outer = ctx.one(MUL, ctx.one(SUB, one, x), ctx.one(ADD, x, one))
    inner = ctx.one(SUB, one, ctx.one(SQUARE, x))
    return emit_where(ctx, ctx.one(LT, ctx.one(ABS, x), literal_like(0.5, x)), inner, outer)


def _cosine_of_atan(ctx: JvpCtx, x: Atom) -> Atom:
    """Return 1 / sqrt(1 + x^2), the cosine of the angle atan(x)."""
    return ctx.one(DIRECTION_COSINE, literal_like(1.0, x), x)


@final
@primitive
class Asin(ComplexUnary):
    """The inverse sine of x, in [-pi/2, pi/2]; nan outside [-1, 1].

    Type:   a float or complex operand.
    Rule:   d = 1 / sqrt(1 - x^2), inf at -1 and 1.
    Source: chlo.asin
    """

    name: ClassVar[str] = "asin"
    hlo_name: ClassVar[str] = "chlo.asin"
    complex_function: ClassVar[ComplexFunction] = annex_g.asin
    compute = from_ufunc(np.arcsin)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, _slope_of_asin(ctx, x))


@final
@primitive
class Acos(ComplexUnary):
    """The inverse cosine of x, in [0, pi]; nan outside [-1, 1].

    Type:   a float or complex operand.
    Rule:   d = -1 / sqrt(1 - x^2), -inf at -1 and 1.
    Source: chlo.acos
    """

    name: ClassVar[str] = "acos"
    hlo_name: ClassVar[str] = "chlo.acos"
    complex_function: ClassVar[ComplexFunction] = annex_g.acos
    compute = from_ufunc(np.arccos)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(NEG, _slope_of_asin(ctx, x)))


@final
@primitive
class Atan(ComplexUnary):
    """The inverse tangent of x, in [-pi/2, pi/2].

    Type:   a float or complex operand.
    Rule:   d = 1 / (1 + x^2), as the square of a cosine: x^2 may overflow.
    Source: chlo.atan
    """

    name: ClassVar[str] = "atan"
    hlo_name: ClassVar[str] = "chlo.atan"
    complex_function: ClassVar[ComplexFunction] = annex_g.atan
    compute = from_ufunc(np.arctan)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if x.aval.dtype in dtypes.COMPLEX:
            return scale_tangent(ctx, t, _reciprocal_circle(ctx, _times_i(ctx, x)))
        return scale_tangent(ctx, t, emit_in_float32(ctx, lambda x: ctx.one(SQUARE, _cosine_of_atan(ctx, x)), x))


@final
@primitive
class Atan2(Binary):
    """The angle in [-pi, pi] of the point with the ordinate x, the first operand, and the abscissa y, the second.

    Type:   two float operands of one type.
    Rule:   (x_dot y - y_dot x) / (x^2 + y^2), nan at the origin.
    Source: stablehlo.atan2; in float64 with the sign of the ordinate, which XLA loses if it is subnormal
    """

    name: ClassVar[str] = "atan2"
    hlo_name: ClassVar[str] = "stablehlo.atan2"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    compute = from_ufunc(np.arctan2)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (angle,) = hlo.op(self.hlo_name, args, outs)
        if ins[0].dtype is not dtypes.float64:
            return (angle,)
        (angle_bits, bits), (x_bits, _) = [bitcast_to_int(hlo, v, ins[0]) for v in (angle, args[0])]
        below_sign = hlo.constant(Lit.of(dtypes.RANGES[bits.dtype][1], bits))
        sign = hlo.constant(Lit.of(dtypes.RANGES[bits.dtype][0], bits))
        size = hlo.op("stablehlo.and", (angle_bits, below_sign), (bits,))
        signed = hlo.op("stablehlo.or", (*size, *hlo.op("stablehlo.and", (x_bits, sign), (bits,))), (bits,))
        return hlo.op("stablehlo.bitcast_convert", signed, outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        dtype = x.aval.dtype
        # in float32 at least: in float16 the radius overflows, and its quotients are subnormal
        x, y = [emit_convert(ctx, v, dtypes.accumulated(dtype)) for v in (x, y)]
        radius = ctx.one(HYPOT, x, y)
        along_x, along_y = tx, ty
        if not isinstance(tx, Zero):
            along = ctx.one(DIV, ctx.one(DIRECTION_COSINE, y, x), radius)
            along_x = scale_tangent(ctx, tx, emit_convert(ctx, along, dtype))
        if not isinstance(ty, Zero):
            along = ctx.one(NEG, ctx.one(DIV, ctx.one(DIRECTION_COSINE, x, y), radius))
            along_y = scale_tangent(ctx, ty, emit_convert(ctx, along, dtype))
        return ctx.add(along_x, along_y)


@final
@primitive
class Sinh(ComplexUnary):
    """The hyperbolic sine of x.

    Type:   a float or complex operand.
    Rule:   d = cosh(x).
    Source: chlo.sinh
    """

    name: ClassVar[str] = "sinh"
    hlo_name: ClassVar[str] = "chlo.sinh"
    complex_function: ClassVar[ComplexFunction] = annex_g.sinh
    compute = from_ufunc(np.sinh)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(COSH, x))


@final
@primitive
class Cosh(ComplexUnary):
    """The hyperbolic cosine of x.

    Type:   a float or complex operand.
    Rule:   d = sinh(x).
    Source: chlo.cosh
    """

    name: ClassVar[str] = "cosh"
    hlo_name: ClassVar[str] = "chlo.cosh"
    complex_function: ClassVar[ComplexFunction] = annex_g.cosh
    compute = from_ufunc(np.cosh)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(SINH, x))


@final
@primitive
class Asinh(ComplexUnary):
    """The inverse hyperbolic sine of x.

    Type:   a float or complex operand.
    Rule:   d = 1 / sqrt(x^2 + 1), as a cosine: x^2 may overflow.
    Source: chlo.asinh
    """

    name: ClassVar[str] = "asinh"
    hlo_name: ClassVar[str] = "chlo.asinh"
    complex_function: ClassVar[ComplexFunction] = annex_g.asinh
    compute = from_ufunc(np.arcsinh)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if x.aval.dtype in dtypes.COMPLEX:
            return scale_tangent(ctx, t, _reciprocal_root(ctx, _times_i(ctx, x)))
        return scale_tangent(ctx, t, _cosine_of_atan(ctx, x))


@final
@primitive
class Acosh(ComplexUnary):
    """The inverse hyperbolic cosine of x; nan below 1.

    Type:   a float or complex operand.
    Rule:   d = 1 / sqrt(x^2 - 1), inf at 1.
    Source: chlo.acosh
    """

    name: ClassVar[str] = "acosh"
    hlo_name: ClassVar[str] = "chlo.acosh"
    complex_function: ClassVar[ComplexFunction] = annex_g.acosh
    compute = from_ufunc(np.arccosh)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        # not the root of the product: that overflows, and in the left half-plane it is on the wrong branch
        one = literal_like(1.0, x)
        above = _factors(ctx, x)[1] if x.aval.dtype in dtypes.COMPLEX else ctx.one(ADD, x, one)
        below = ctx.one(RSQRT, ctx.one(SUB, x, one))
        return scale_tangent(ctx, t, ctx.one(MUL, below, ctx.one(RSQRT, above)))


@final
@primitive
class Atanh(ComplexUnary):
    """The inverse hyperbolic tangent of x; nan outside [-1, 1].

    Type:   a float or complex operand.
    Rule:   d = 1 / (1 - x^2), inf at -1 and 1.
    Source: chlo.atanh
    """

    name: ClassVar[str] = "atanh"
    hlo_name: ClassVar[str] = "chlo.atanh"
    complex_function: ClassVar[ComplexFunction] = annex_g.atanh
    compute = from_ufunc(np.arctanh)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if x.aval.dtype in dtypes.COMPLEX:
            return scale_tangent(ctx, t, _reciprocal_circle(ctx, x))
        return ctx.lin_one(DIV, t, _unit_circle(ctx, x))


SIN: Final = Sin()
COS: Final = Cos()
TAN: Final = Tan()
ASIN: Final = Asin()
ACOS: Final = Acos()
ATAN: Final = Atan()
ATAN2: Final = Atan2()
SINH: Final = Sinh()
COSH: Final = Cosh()
ASINH: Final = Asinh()
ACOSH: Final = Acosh()
ATANH: Final = Atanh()
