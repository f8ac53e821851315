"""Sums, products, quotients and extrema."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    Cotangent,
    Cotangents,
    Emit,
    Hlo,
    HloValue,
    HloValues,
    Hole,
    JvpCtx,
    Linear,
    Lit,
    NDArray,
    Operands,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.family import (
    INTEGER_OR_FLOAT,
    ORDERED,
    Binary,
    Compare,
    LinearUnary,
    from_ufunc,
    literal_like,
)
from fxad.primitives.elementwise.logic import EQ, GT, LT
from fxad.primitives.elementwise.references import divide
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import LinearInOne, only_cotangent
from fxad.primitives.stablehlo import lower_compare


def scale_tangent(ctx: JvpCtx, t: Tangent, slope: Atom) -> Tangent:
    """Return the tangent `t` times a primal value of its type."""
    return t if type(t) is Zero else ctx.lin_one(MUL, t, slope)


def scale_tangent_no_nan(ctx: JvpCtx, t: Tangent, slope: Atom) -> Tangent:
    """Return the tangent `t` times a primal value of its type, 0 where `t` or its cotangent is 0."""
    return t if type(t) is Zero else ctx.lin_one(MUL_NO_NAN, slope, t)


def _guarded(hlo: Hlo, op: str, args: HloValues, aval: Aval, at_zero: Callable[[], HloValue]) -> HloValues:
    """Emit a quotient or remainder; integers are never divided by 0: the result is `at_zero` there.

    XLA guards the division in the code that it generates for the CPU, but folds constants with the machine's division:
    compiling `1 // 0` would end the process (jaxlib 0.10.2).
    """
    if aval.dtype not in dtypes.INTEGER:
        return hlo.op(op, args, [aval])
    (by_zero,) = lower_compare(hlo, "EQ", (args[1], hlo.constant(Lit.of(0, aval))), aval)
    divisor = hlo.op("stablehlo.select", (by_zero, hlo.constant(Lit.of(1, aval)), args[1]), [aval])
    quotient = hlo.op(op, (args[0], *divisor), [aval])
    return hlo.op("stablehlo.select", (by_zero, at_zero(), *quotient), [aval])


@final
@primitive
class Add(Binary, Linear):
    """x + y.

    Type:   two numeric operands of one type; integers wrap.
    Rule:   linear in both; the cotangent is that of each.
    Source: stablehlo.add
    """

    name: ClassVar[str] = "add"
    hlo_name: ClassVar[str] = "stablehlo.add"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    compute = from_ufunc(np.add)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        return ctx.add(tx, ty)

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags == (True, True)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        return cts * 2


@final
@primitive
class Sub(Binary, Linear):
    """x - y.

    Type:   two numeric operands of one type; integers wrap.
    Rule:   linear in both; the cotangent of y is negated.
    Source: stablehlo.subtract
    """

    name: ClassVar[str] = "sub"
    hlo_name: ClassVar[str] = "stablehlo.subtract"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    compute = from_ufunc(np.subtract)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        if isinstance(ty, Zero):
            return tx
        return ctx.lin_one(NEG, ty) if isinstance(tx, Zero) else ctx.lin_one(SUB, tx, ty)

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags == (True, True)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct = only_cotangent(cts)
        return ct, ctx.one(NEG, ct)


@final
@primitive
class Mul(Binary, Linear):
    """x * y.

    Type:   two numeric operands of one type; integers wrap.
    Rule:   linear in one of them, the other held fixed; complex numbers are not conjugated.
    Source: stablehlo.multiply
    """

    name: ClassVar[str] = "mul"
    hlo_name: ClassVar[str] = "stablehlo.multiply"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    compute = from_ufunc(np.multiply)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        if x is y and tx is ty:
            return scale_tangent(ctx, tx, ctx.one(MUL, x, literal_like(2.0, x)))
        return ctx.add(scale_tangent(ctx, tx, y), scale_tangent(ctx, ty, x))

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags in ((True, False), (False, True))

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, y) = only_cotangent(cts), args
        if not isinstance(y, Hole):
            return _scale_cotangent(ctx, ct, y), None
        assert not isinstance(x, Hole), "mul is not linear in both"
        return None, _scale_cotangent(ctx, ct, x)


def _scale_cotangent(ctx: TransposeCtx, ct: Atom, by: Atom) -> Atom:
    return by if _is_one(ct) else ctx.one(MUL, ct, by)


def _is_one(ct: Atom) -> bool:
    # the cotangent of a sum is all ones: 1 * x is x, bit for bit, but for the signs of complex zeros
    return isinstance(ct, Lit) and ct.aval.dtype not in dtypes.COMPLEX and ct is literal_like(1, ct)


@final
@primitive
class MulNoNan(Binary, Linear):
    """x * y, but y where y is 0, also for an x that is infinite or nan.

    Derivative rules multiply a tangent y by a factor x that may be infinite or nan where nothing reads the result: then
    the tangent, or in reverse mode the cotangent, is 0.

    Type:   two float or complex operands of one type.
    Rule:   linear in y, x held fixed, and linear in x, y held fixed. The transpose in y is x times the cotangent, which
            is 0 where the cotangent is.
    Source: stablehlo.multiply, stablehlo.select
    """

    name: ClassVar[str] = "mul_no_nan"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.where(np.equal(y, 0), y, np.multiply(x, y))

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (is_zero,) = lower_compare(hlo, "EQ", (args[1], hlo.constant(Lit.zero(ins[1]))), ins[1])
        return hlo.op("stablehlo.select", (is_zero, args[1], *hlo.op("stablehlo.multiply", args, outs)), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        of_x = tx if isinstance(tx, Zero) else ctx.lin_one(MUL_NO_NAN, tx, y)
        return ctx.add(of_x, scale_tangent_no_nan(ctx, ty, x))

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags in ((True, False), (False, True))

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, y) = only_cotangent(cts), args
        if not isinstance(y, Hole):
            return ctx.one(MUL_NO_NAN, ct, y), None
        assert not isinstance(x, Hole), "mul_no_nan is not linear in both"
        return None, x if _is_one(ct) else ctx.one(MUL_NO_NAN, x, ct)


@final
@primitive
class Div(Binary, LinearInOne):
    """x / y; for integers the quotient rounded towards zero.

    Type:   two numeric operands of one type; an integer divided by 0 is -1 (all bits set), the smallest signed integer
            divided by -1 is itself.
    Rule:   linear in x, y held fixed.
    Source: stablehlo.divide
    """

    name: ClassVar[str] = "div"
    hlo_name: ClassVar[str] = "stablehlo.divide"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return _guarded(hlo, self.hlo_name, args, ins[0], lambda: hlo.constant(Lit.of(-1, ins[0])))

    def compute(self, x: NDArray, y: NDArray) -> object:
        if x.dtype not in dtypes.INTEGER:
            return divide(x, y)
        # NumPy rounds the quotient down and divides by 0 to 0; the remainder of fmod has the sign of x, as wanted here
        exact = np.subtract(x, np.fmod(x, y))
        return np.where(np.equal(y, 0), np.invert(np.zeros_like(x)), np.floor_divide(exact, y))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        if isinstance(ty, Zero):
            return ctx.lin_one(DIV, tx, y)
        if isinstance(tx, Zero):
            return scale_tangent(ctx, ty, ctx.one(NEG, ctx.one(DIV, z, y)))
        return ctx.lin_one(DIV, ctx.lin_one(SUB, tx, scale_tangent(ctx, ty, z)), y)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(DIV, ct, *others)


@final
@primitive
class Rem(Binary):
    """The remainder of x / y rounded towards zero; it has the sign of x.

    Type:   two integer or float operands of one type; the remainder of an integer by 0 is that integer.
    Rule:   x_dot - trunc(x / y) y_dot.
    Source: stablehlo.remainder
    """

    name: ClassVar[str] = "rem"
    hlo_name: ClassVar[str] = "stablehlo.remainder"
    takes: ClassVar[frozenset[DType]] = INTEGER_OR_FLOAT

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return _guarded(hlo, self.hlo_name, args, ins[0], lambda: args[0])

    def compute(self, x: NDArray, y: NDArray) -> object:
        r = np.fmod(x, y)
        return np.where(np.equal(y, 0), x, r) if x.dtype in dtypes.INTEGER else r

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        if isinstance(ty, Zero):
            return tx
        # x - z is a multiple of y exactly, so this quotient is the integral one
        slope = ctx.one(DIV, ctx.one(SUB, z, x), y)
        return ctx.add(tx, scale_tangent(ctx, ty, slope))


@final
@primitive
class Max(Binary):
    """The larger of x and y; nan where either is nan.

    Type:   two operands of one type, not complex.
    Rule:   the tangent of the larger one; at a tie, half of each.
    Source: stablehlo.maximum
    """

    name: ClassVar[str] = "max"
    hlo_name: ClassVar[str] = "stablehlo.maximum"
    takes: ClassVar[frozenset[DType]] = ORDERED
    compute = from_ufunc(np.maximum)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        return _extremum_tangent(ctx, GT, LT, x, y, tx, ty)


@final
@primitive
class Min(Binary):
    """The smaller of x and y; nan where either is nan.

    Type:   two operands of one type, not complex.
    Rule:   the tangent of the smaller one; at a tie, half of each.
    Source: stablehlo.minimum
    """

    name: ClassVar[str] = "min"
    hlo_name: ClassVar[str] = "stablehlo.minimum"
    takes: ClassVar[frozenset[DType]] = ORDERED
    compute = from_ufunc(np.minimum)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        return _extremum_tangent(ctx, LT, GT, x, y, tx, ty)


def _extremum_tangent(
    ctx: JvpCtx, beats: Compare, loses: Compare, x: Atom, y: Atom, tx: Tangent, ty: Tangent
) -> Tangent:
    """Return each tangent times 1 where its operand is the result, 1/2 at a tie, else 0 (nan included)."""
    tied = ctx.one(EQ, x, y)

    def share(t: Tangent, won: Compare) -> Tangent:
        if isinstance(t, Zero):
            return t
        alone = emit_where(ctx, ctx.one(won, x, y), literal_like(1.0, x), literal_like(0.0, x))
        return scale_tangent(ctx, t, emit_where(ctx, tied, literal_like(0.5, x), alone))

    return ctx.add(share(tx, beats), share(ty, loses))


@final
@primitive
class Neg(LinearUnary):
    """-x.

    Type:   a numeric operand; integers wrap.
    Rule:   linear; the cotangent is negated.
    Source: stablehlo.negate
    """

    name: ClassVar[str] = "neg"
    hlo_name: ClassVar[str] = "stablehlo.negate"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    compute = from_ufunc(np.negative)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(NEG, ct)


ADD: Final = Add()
SUB: Final = Sub()
MUL: Final = Mul()
MUL_NO_NAN: Final = MulNoNan()
DIV: Final = Div()
REM: Final = Rem()
MAX: Final = Max()
MIN: Final = Min()
NEG: Final = Neg()
