"""Selection between values, and rounding to integral values."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, NotDifferentiableError, ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
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
    Primitive,
    Tangent,
    Tangents,
    TransposeCtx,
    Var,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.family import (
    FLOAT32_OR_64,
    FLOAT_ABOVE_8,
    INTEGER_OR_FLOAT,
    Binary,
    PiecewiseConstantUnary,
    Unary,
    as_accumulated,
    batch_elementwise,
    from_ufunc,
    operand_error,
)
from fxad.primitives.elementwise.logic import AND, LE, LT, OR
from fxad.primitives.families import only_cotangent
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import bitcast_to_int, lower_compare


@final
@primitive
class SelectN(Linear):
    """Element by element, the case that `which` names: False or 0 the first, True or 1 the second, and so on.

    Type: which bool (two cases) or i32 (any number of cases; out of range picks the nearest); cases of one type, with
          the shape of `which`; the result has the type of the cases.
    Rule: linear in the cases; the cotangent of a case is the cotangent where it was picked, 0 elsewhere.
    Source: stablehlo.select, nested for more than two cases.
    """

    name: ClassVar[str] = "select_n"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) == 3:
            which, x, y = avals
            if x is y and which.dtype == dtypes.bool_ and which.shape == x.shape:
                return avals[1:2]
        if len(avals) < 2:
            raise ArgumentError(f"select_n: takes a selector and at least one case, got {len(avals)} operands")
        which, first = avals[:2]
        for k, case in enumerate(avals[1:]):
            if case.dtype != first.dtype:
                raise DTypeError(f"select_n: dtypes differ: case 0 {first}, case {k} {case}")
            if case.shape != which.shape:
                raise ShapeError(
                    f"select_n: shapes differ: selector {which}, case {k} {case}",
                    remedy="give one shape to all; fxad.numpy.where broadcasts",
                )
        count = len(avals) - 1
        if which.dtype != dtypes.int32 and (which.dtype != dtypes.bool_ or count != 2):
            raise DTypeError(
                f"select_n: the selector of {count} case{'s' * (count != 1)} must be "
                f"{'bool or ' * (count == 2)}int32, got {which}"
            )
        return (first,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        which, *cases = args
        out = np.array(cases[-1])
        for k in range(len(cases) - 2, -1, -1):
            np.copyto(out, cases[k], where=np.less_equal(which, k))
        return (out,)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        which, *cases = args
        if ins[0].dtype == dtypes.bool_:
            return hlo.op("stablehlo.select", (which, cases[1], cases[0]), outs)
        out = cases[-1]
        for k in range(len(cases) - 2, -1, -1):
            (early,) = lower_compare(hlo, "LE", (which, hlo.constant(Lit.of(k, ins[0]))), ins[0])
            (out,) = hlo.op("stablehlo.select", (early, cases[k], out), outs)
        return (out,)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return batch_elementwise(self, ctx, args, dims)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(self, primals[0], *tangents[1:])

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return not flags[0] and all(flags[1:])

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (which, *cases) = only_cotangent(cts), args
        assert not isinstance(which, Hole), "select_n is not linear in its selector"
        zero = Lit.zero(ct.aval)
        bars: list[Cotangent | None] = [None]
        for k, case in enumerate(cases):
            others = [zero] * len(cases)
            picked = [*others[:k], ct, *others[k + 1 :]]
            bars.append(ctx.one(self, which, *picked) if isinstance(case, Hole) else None)
        return tuple(bars)


def emit_where(emit: Emit, mask: Atom, yes: Atom, no: Atom) -> Var:
    """Return `yes` where the mask is True, else `no`."""
    return emit.one(SELECT_N, mask, no, yes)


@final
@primitive
class Clamp(Primitive):
    """x held between `low` and `high`: min(max(low, x), high).

    Type:   low, x, high: three integer or float operands of one type; nan where one is nan.
    Rule:   the tangent of x strictly inside, of a bound strictly beyond it, 0 on a bound; of `high` if low > high.
    Source: stablehlo.clamp
    """

    name: ClassVar[str] = "clamp"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) == 3 and avals[0] is avals[1] is avals[2] and avals[0].dtype in INTEGER_OR_FLOAT:
            return avals[:1]
        raise operand_error(self, INTEGER_OR_FLOAT, *check_count(self, avals, 3))

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        low, x, high = [as_accumulated(a) for a in args]
        return (np.asarray(np.minimum(np.maximum(low, x), high)).astype(args[1].dtype, copy=False),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.clamp", args, outs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return batch_elementwise(self, ctx, args, dims)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        low, x, high = primals
        out = ctx.one(CLAMP, low, x, high)

        def where(t: Tangent, join: Primitive, *comparisons: tuple[Primitive, Atom, Atom]) -> Tangent:
            if isinstance(t, Zero):
                return t
            test = ctx.one(join, *[ctx.one(compare, a, b) for compare, a, b in comparisons])
            return ctx.lin_one(SELECT_N, test, Zero(t.aval), t)

        t_low, t_x, t_high = tangents
        total = where(t_x, AND, (LT, low, x), (LT, x, high))
        total = ctx.add(total, where(t_low, AND, (LT, x, low), (LE, low, high)))
        return (out,), (ctx.add(total, where(t_high, OR, (LT, high, x), (LT, high, low))),)


@final
@primitive
class Floor(PiecewiseConstantUnary):
    """The largest integral value not above x.

    Type:   a float operand.
    Rule:   piecewise constant: the tangent is `Zero`.
    Source: stablehlo.floor
    """

    name: ClassVar[str] = "floor"
    hlo_name: ClassVar[str] = "stablehlo.floor"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    compute = from_ufunc(np.floor)


@final
@primitive
class Ceil(PiecewiseConstantUnary):
    """The smallest integral value not below x.

    Type:   a float operand.
    Rule:   piecewise constant: the tangent is `Zero`.
    Source: stablehlo.ceil
    """

    name: ClassVar[str] = "ceil"
    hlo_name: ClassVar[str] = "stablehlo.ceil"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    compute = from_ufunc(np.ceil)


AWAY_FROM_ZERO: Final = "away_from_zero"
TO_NEAREST_EVEN: Final = "to_nearest_even"


@final
@primitive
class Round(PiecewiseConstantUnary):
    """The nearest integral value; halves away from zero or to the even one, as `method` says.

    Type:   a float operand; `method` is "away_from_zero" or "to_nearest_even".
    Rule:   piecewise constant: the tangent is `Zero`.
    Source: stablehlo.round_nearest_afz, stablehlo.round_nearest_even
    """

    name: ClassVar[str] = "round"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING
    method: str

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = Unary.abstract_eval(self, *avals)
        if self.method not in (AWAY_FROM_ZERO, TO_NEAREST_EVEN):
            raise ParameterError(
                f"round: unknown method {self.method!r}", remedy=f"use {AWAY_FROM_ZERO!r} or {TO_NEAREST_EVEN!r}"
            )
        return (x,)

    def compute(self, x: NDArray) -> object:
        if self.method == TO_NEAREST_EVEN:
            return np.rint(x)
        whole = np.trunc(x)
        # not trunc(x + 1/2): the sum rounds up just below a half
        up = np.greater_equal(np.abs(np.subtract(x, whole)), 0.5)
        return np.copysign(np.add(np.abs(whole), up), x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op(f"stablehlo.round_nearest_{'afz' if self.method == AWAY_FROM_ZERO else 'even'}", args, outs)


@final
@primitive
class Nextafter(Binary):
    """The float next to x in the direction of y.

    Type:   two operands of one type, float (not float8).
    Rule:   refused: a step to the neighbouring float has no derivative.
    Source: chlo.next_after; of 16 bits, which that does not take, a step in the integers that are ordered as the floats
    """

    name: ClassVar[str] = "nextafter"
    hlo_name: ClassVar[str] = "chlo.next_after"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8
    compute = from_ufunc(np.nextafter)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, y = args
        with np.errstate(all="ignore"):
            return (np.where(x == y, y, np.nextafter(x, y)),)  # of two zeros the second, in all dtypes

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (aval,) = outs
        if aval.dtype in FLOAT32_OR_64:
            return hlo.op(self.hlo_name, args, outs)
        (x, t), (y, _) = [bitcast_to_int(hlo, v, aval) for v in args]
        number = partial(_constant_like, hlo, t)
        least, zero = number(-0x8000), number(0)

        def negated(bits: HloValue) -> HloValue:
            """Return the integer that is ordered as the float for its bits, or the bits for that integer."""
            (below,) = lower_compare(hlo, "LT", (bits, zero), t)
            (mirrored,) = hlo.op("stablehlo.subtract", (least, bits), (t,))
            return hlo.op("stablehlo.select", (below, mirrored, bits), (t,))[0]

        start, goal = negated(x), negated(y)
        (up,) = lower_compare(hlo, "LT", (start, goal), t)
        (step,) = hlo.op("stablehlo.select", (up, number(1), number(-1)), (t,))
        (place,) = hlo.op("stablehlo.add", (start, step), (t,))
        (at_zero,) = lower_compare(hlo, "EQ", (place, zero), t)
        (sign,) = hlo.op("stablehlo.and", (x, least), (t,))  # a step to 0 keeps the sign
        (bits,) = hlo.op("stablehlo.select", (at_zero, sign, negated(place)), (t,))
        (stepped,) = hlo.op("stablehlo.bitcast_convert", (bits,), outs)
        (there,) = lower_compare(hlo, "EQ", (start, goal), t)
        (result,) = hlo.op("stablehlo.select", (there, args[1], stepped), outs)
        without = [lower_compare(hlo, "NE", (v, v), aval)[0] for v in args]
        (nan,) = hlo.op("stablehlo.or", without, (aval.with_dtype(dtypes.bool_),))
        return hlo.op("stablehlo.select", (nan, hlo.constant(Lit.of(np.nan, aval)), result), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        raise NotDifferentiableError(
            "nextafter: a step to the neighbouring float has no derivative",
            remedy="apply stop_gradient to its operands",
        )


def _constant_like(hlo: Hlo, aval: Aval, value: int) -> HloValue:
    return hlo.constant(Lit.of(value, aval))


SELECT_N: Final = SelectN()
CLAMP: Final = Clamp()
FLOOR: Final = Floor()
CEIL: Final = Ceil()
NEXTAFTER: Final = Nextafter()
ROUND_AWAY: Final = Round(AWAY_FROM_ZERO)
ROUND_EVEN: Final = Round(TO_NEAREST_EVEN)
