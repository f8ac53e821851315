"""Exponentials and logarithms."""

from __future__ import annotations

import math
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Avals, Hlo, HloValue, HloValues, JvpCtx, Lit, NDArray, Tangent, Zero, primitive
from fxad.primitives.elementwise import annex_g
from fxad.primitives.elementwise.annex_g import ComplexFunction, ComplexUnary, HloReal
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, SUB, scale_tangent
from fxad.primitives.elementwise.family import Binary, Unary, from_ufunc, literal_like
from fxad.primitives.elementwise.logic import AND, EQ
from fxad.primitives.elementwise.references import log1p_complex
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.stablehlo import bitcast_to_int, lower_in_float32


@final
@primitive
class Exp(ComplexUnary):
    """e to the power x.

    Type:   a float or complex operand.
    Rule:   d = y.
    Source: stablehlo.exponential
    """

    name: ClassVar[str] = "exp"
    hlo_name: ClassVar[str] = "stablehlo.exponential"
    complex_function: ClassVar[ComplexFunction] = annex_g.exp
    compute = from_ufunc(np.exp)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, y)


@final
@primitive
class Exp2(ComplexUnary):
    """2 to the power x; exact for integral x.

    Type:   a float or complex operand.
    Rule:   d = 2 log(2) exp2(x - 1), which is finite where y overflows first.
    Source: stablehlo.power of 2
    """

    name: ClassVar[str] = "exp2"
    complex_function: ClassVar[ComplexFunction] = annex_g.exp2

    def compute(self, x: NDArray) -> object:
        # NumPy's in float32 is not exact
        return np.exp2(x.astype(np.float64) if x.dtype == dtypes.float32 else x)

    def lower_real(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.power", (hlo.constant(Lit.of(2, ins[0])), *args), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if y.aval.dtype in dtypes.COMPLEX:
            return scale_tangent(ctx, t, ctx.one(MUL, y, literal_like(math.log(2), y)))
        half = ctx.one(EXP2, ctx.one(SUB, x, literal_like(1.0, x)))
        return scale_tangent(ctx, t, ctx.one(MUL, half, literal_like(2 * math.log(2), y)))


@final
@primitive
class Expm1(ComplexUnary):
    """exp(x) - 1, accurate for small x.

    Type:   a float or complex operand.
    Rule:   d = exp(x).
    Source: stablehlo.exponential_minus_one
    """

    name: ClassVar[str] = "expm1"
    hlo_name: ClassVar[str] = "stablehlo.exponential_minus_one"
    complex_function: ClassVar[ComplexFunction] = annex_g.expm1

    def compute(self, x: NDArray) -> object:
        y = np.expm1(x)
        # NumPy's has nan beside infinities
        return np.where(np.isfinite(y), y, np.subtract(np.exp(x), 1)) if x.dtype in dtypes.COMPLEX else y

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        # not 1 + y, which has lost exp(x) where y is close to -1
        return scale_tangent(ctx, t, ctx.one(EXP, x))


@final
@primitive
class Log(ComplexUnary):
    """The natural logarithm of x; -inf at 0, nan below.

    Type:   a float or complex operand.
    Rule:   d = 1 / x, inf at 0.
    Source: stablehlo.log
    """

    name: ClassVar[str] = "log"
    hlo_name: ClassVar[str] = "stablehlo.log"
    complex_function: ClassVar[ComplexFunction] = annex_g.log_of
    compute = from_ufunc(np.log)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(DIV, t, x)


def _mantissa_and_exponent(x: HloReal) -> tuple[HloReal, HloReal]:
    """Return m and e with x = m 2^e and m in [sqrt(1/2), sqrt(2)], for positive finite x. They are read from the bits,
    because XLA treats subnormals as 0."""
    double = x.aval.dtype == dtypes.float64
    digits, bias = (52, 1023) if double else (23, 127)
    number, whole = x.aval, x.aval.with_dtype(dtypes.int64 if double else dtypes.int32)

    def op(name: str, v: HloReal, t: Aval) -> HloReal:
        return HloReal(x.hlo, x.hlo.op(f"stablehlo.{name}", (v.value,), (t,))[0], t)

    bits = op("bitcast_convert", x, whole)
    # a subnormal is its bits times the least one
    subnormal = bits < (1 << digits)
    bits = subnormal.where(op("bitcast_convert", op("convert", bits, number), whole), bits)
    exponent = bits.op("shift_right_logical", bits.like(digits)) - bits.like(bias)
    one_to_two = bits.op("and", bits.like((1 << digits) - 1)).op("or", bits.like(bias << digits))
    m = op("bitcast_convert", one_to_two, number)
    exponent = subnormal.where(exponent - bits.like(bias + digits - 1), exponent)
    upper = m > math.sqrt(2)
    return upper.where(m * m.like(0.5), m), op("convert", upper.where(exponent + bits.like(1), exponent), number)


class _LogInBase(Unary):
    """The logarithm in a base: of m 2^e it is e log(2) + log(m), so that no digit of e is lost."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    base: ClassVar[int]
    # log(2) in this base: a part of few bits, so that its product with an exponent is exact, and the rest
    parts32: ClassVar[tuple[float, float]]
    parts64: ClassVar[tuple[float, float]]

    @final
    def compute(self, x: NDArray) -> object:
        inside = np.isfinite(x) & np.greater(x, 0)
        m, e = np.frexp(np.where(inside, x, np.ones_like(x)))
        low = np.less(m, math.sqrt(0.5))
        m, e = np.where(low, np.multiply(m, 2), m), np.subtract(e, low).astype(x.dtype)
        high, rest = self.parts64 if x.dtype == dtypes.float64 else self.parts32
        scale, upper, lower = [np.asarray(v, x.dtype) for v in (1 / math.log(self.base), high, rest)]
        value = np.add(np.multiply(e, upper), np.add(np.multiply(e, lower), np.multiply(np.log(m), scale)))
        return np.where(inside, value, np.log(x))

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: self._of_bits(HloReal(hlo, wide[0], t)).value)

    def _of_bits(self, x: HloReal) -> HloReal:
        m, e = _mantissa_and_exponent(x)
        high, rest = self.parts64 if x.aval.dtype == dtypes.float64 else self.parts32
        value = e * e.like(high) + (e * e.like(rest) + m.op("log") * m.like(1 / math.log(self.base)))
        bits = HloReal(x.hlo, *bitcast_to_int(x.hlo, x.value, x.aval))
        magnitude = bits.op("and", bits.like(dtypes.RANGES[bits.aval.dtype][1]))
        # -1, 0 or 1 by the sign, as in `Sign`: LLVM joins comparisons of the bits into one that treats subnormals as 0
        signed = (bits < 0).where(-magnitude, magnitude).op("maximum", bits.like(-1)).op("minimum", bits.like(1))
        sign = HloReal(x.hlo, x.hlo.op("stablehlo.convert", (signed.value,), (x.aval,))[0], x.aval)
        edge = x.is_finite.where(sign.op("log"), (x < 0).where(math.nan, x))
        return (x.is_finite & (sign > 0)).where(value, edge)

    @final
    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(DIV, literal_like(1 / math.log(self.base), x), x))


@final
@primitive
class Log2(_LogInBase):
    """The logarithm in base 2, exact for powers of 2; -inf at 0, nan below.

    Type:   a float operand.
    Rule:   d = 1 / (log(2) x), inf at 0.
    Source: the exponent, and stablehlo.log of the mantissa
    """

    name: ClassVar[str] = "log2"
    base: ClassVar[int] = 2
    parts32: ClassVar[tuple[float, float]] = (1.0, 0.0)
    parts64: ClassVar[tuple[float, float]] = (1.0, 0.0)


@final
@primitive
class Log10(_LogInBase):
    """The logarithm in base 10, exact for the powers of 10 that the dtype holds; -inf at 0, nan below.

    Type:   a float operand.
    Rule:   d = 1 / (log(10) x), inf at 0.
    Source: fdlibm, e_log10.c: the exponent times log10(2) in two parts, and stablehlo.log of the mantissa
    """

    name: ClassVar[str] = "log10"
    base: ClassVar[int] = 10
    parts32: ClassVar[tuple[float, float]] = (0.301025390625, 4.605038981195214e-06)
    parts64: ClassVar[tuple[float, float]] = (0.30102999566361177, 3.694239077158931e-13)


@final
@primitive
class Log1p(ComplexUnary):
    """log(1 + x), accurate for small x.

    Type:   a float or complex operand.
    Rule:   d = 1 / (1 + x), inf at -1.
    Source: stablehlo.log_plus_one
    """

    name: ClassVar[str] = "log1p"
    hlo_name: ClassVar[str] = "stablehlo.log_plus_one"
    complex_function: ClassVar[ComplexFunction] = annex_g.log1p

    def compute(self, x: NDArray) -> object:
        return log1p_complex(x) if x.dtype in dtypes.COMPLEX else np.log1p(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(DIV, t, ctx.one(ADD, x, literal_like(1.0, x)))


@final
@primitive
class Logit(Unary):
    """log(x / (1 - x)), the inverse of the logistic: -inf and inf at 0 and 1, nan outside.

    Type:   a float or complex operand.
    Rule:   d = 1 / (x (1 - x)).
    Source: log x - log1p(-x): stablehlo.log, stablehlo.log_plus_one; near 1/2 by one of them
    """

    name: ClassVar[str] = "logit"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT

    def compute(self, x: NDArray) -> object:
        difference = np.subtract(np.log(x), np.log1p(np.negative(x)))
        if not np.issubdtype(x.dtype, np.floating):
            return difference
        near = np.abs(np.subtract(x, 0.5)) < 0.25
        inner = np.where(near, x, x.dtype.type(0.5))
        return np.where(near, np.subtract(x.dtype.type(0), np.log1p((1 - 2 * inner) / inner)), difference)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if ins[0].dtype in dtypes.COMPLEX:
            (log,) = LOG.lower(hlo, args, ins, ins)
            (rest,) = LOG1P.lower(hlo, hlo.op("stablehlo.negate", args, ins), ins, ins)
            return hlo.op("stablehlo.subtract", (log, rest), outs)
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: _lower_logit(HloReal(hlo, wide[0], t)))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(DIV, t, ctx.one(MUL, x, ctx.one(SUB, literal_like(1.0, x), x)))


def _lower_logit(x: HloReal) -> HloValue:
    """Return log x - log1p(-x); near 1/2, where the two cancel, -log1p((1 - 2x) / x), whose numerator is exact."""
    near = (x > 0.25) & (x < 0.75)
    inner = near.where(x, x.like(0.5))
    t = (x.aval,)
    (log,) = LOG.lower(x.hlo, (near.where(1, x).value,), t, t)
    (rest,) = LOG1P.lower(x.hlo, (near.where((1 - (inner + inner)) / inner, -x).value,), t, t)
    return x.hlo.op("stablehlo.subtract", (log, rest), t)[0]


class _TimesLog(Binary):
    """x log(y + shift), 0 where x is 0 and y is no nan."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    shift: ClassVar[float]

    @final
    def compute(self, x: NDArray, y: NDArray, /) -> object:
        log = np.log1p if self.shift else np.log
        return np.where(np.equal(x, 0) & ~np.isnan(y), np.zeros_like(x), np.multiply(x, log(y)))

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        def product(wide: HloValues, t: Aval) -> HloValue:
            x, y = [HloReal(hlo, v, t) for v in wide]
            # of a y that is no nan, a logarithm that is not finite has no part where x is 0
            return (x.equals(0) & y.equals(y)).where(0, x * y.op(self.hlo_name)).value

        return lower_in_float32(hlo, args, ins[0], product)

    @final
    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        log = LOG1P if self.shift else LOG
        along_x = tx if isinstance(tx, Zero) else scale_tangent(ctx, tx, ctx.one(log, y))
        if isinstance(ty, Zero):
            return along_x
        divisor = ctx.one(ADD, y, literal_like(self.shift, y)) if self.shift else y
        pole = ctx.one(AND, ctx.one(EQ, x, literal_like(0.0, x)), ctx.one(EQ, divisor, literal_like(0.0, divisor)))
        slope = ctx.one(DIV, x, emit_where(ctx, pole, literal_like(1.0, divisor), divisor))
        return ctx.add(along_x, scale_tangent(ctx, ty, slope))


@final
@primitive
class XLogY(_TimesLog):
    """x log y, 0 where x is 0.

    It is a primitive because that of the parts loses x / y where 1 / y is subnormal or infinite.

    Type:   two float operands of one type.
    Rule:   d/dx = log y; d/dy = x / y, 0 where both are 0.
    Source: stablehlo.log
    """

    name: ClassVar[str] = "xlogy"
    shift: ClassVar[float] = 0.0
    hlo_name: ClassVar[str] = "stablehlo.log"


@final
@primitive
class XLog1pY(_TimesLog):
    """x log(1 + y), 0 where x is 0.

    Type:   two float operands of one type.
    Rule:   d/dx = log1p y; d/dy = x / (1 + y), 0 where x is 0 and y is -1.
    Source: stablehlo.log_plus_one
    """

    name: ClassVar[str] = "xlog1py"
    shift: ClassVar[float] = 1.0
    hlo_name: ClassVar[str] = "stablehlo.log_plus_one"


EXP: Final = Exp()
EXP2: Final = Exp2()
EXPM1: Final = Expm1()
LOG: Final = Log()
LOG1P: Final = Log1p()
LOG2: Final = Log2()
LOG10: Final = Log10()
LOGIT: Final = Logit()
XLOGY: Final = XLogY()
XLOG1PY: Final = XLog1pY()
