"""Exponentials and logarithms."""

from __future__ import annotations

import math
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Atom, Avals, Hlo, HloValues, JvpCtx, Lit, NDArray, Tangent, primitive
from fxad.primitives.elementwise.annex_g import ComplexUnary
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, SUB, scale_tangent
from fxad.primitives.elementwise.family import Unary, from_ufunc, literal_like
from fxad.primitives.elementwise.references import divide, log1p_complex


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
    compute = from_ufunc(np.exp)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, y)


@final
@primitive
class Exp2(ComplexUnary):
    """2 to the power x; exact for integral x.

    Type:   a float or complex operand.
    Rule:   d = log(2) y.
    Source: stablehlo.power of 2
    """

    name: ClassVar[str] = "exp2"
    compute = from_ufunc(np.exp2)

    def lower_real(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.power", (hlo.constant(Lit.of(2, ins[0])), *args), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(MUL, y, literal_like(math.log(2), y)))


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
    """The natural logarithm; -inf at 0, nan below.

    Type:   a float or complex operand.
    Rule:   d = 1 / x, inf at 0.
    Source: stablehlo.log
    """

    name: ClassVar[str] = "log"
    hlo_name: ClassVar[str] = "stablehlo.log"
    compute = from_ufunc(np.log)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(DIV, t, x)


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

    def compute(self, x: NDArray) -> object:
        return log1p_complex(x) if x.dtype in dtypes.COMPLEX else np.log1p(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(DIV, t, ctx.one(ADD, x, literal_like(1.0, x)))


@final
@primitive
class Logistic(ComplexUnary):
    """1 / (1 + exp(-x)).

    Type:   a float or complex operand.
    Rule:   d = y (1 - y).
    Source: stablehlo.logistic
    """

    name: ClassVar[str] = "logistic"
    hlo_name: ClassVar[str] = "stablehlo.logistic"

    def compute(self, x: NDArray) -> object:
        return divide(np.ones_like(x), np.add(1, np.exp(np.negative(x))))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(MUL, y, ctx.one(SUB, literal_like(1.0, y), y)))


@final
@primitive
class Logit(Unary):
    """log(x / (1 - x)), the inverse of the logistic: -inf and inf at 0 and 1, nan outside.

    Type:   a float or complex operand.
    Rule:   d = 1 / (x (1 - x)).
    Source: log x - log1p(-x): stablehlo.log, stablehlo.log_plus_one
    """

    name: ClassVar[str] = "logit"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT

    def compute(self, x: NDArray) -> object:
        return np.subtract(np.log(x), np.log1p(np.negative(x)))

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        # near 1/2 the logarithms cancel: floats below 32 bits would have no digit left
        small = ins[0].dtype in dtypes.FLOATING and ins[0].dtype.itemsize <= 2
        wide = (ins[0].with_dtype(dtypes.float32),) if small else ins
        xs = hlo.op("stablehlo.convert", args, wide) if small else args
        (log,) = LOG.lower(hlo, xs, wide, wide)
        (rest,) = LOG1P.lower(hlo, hlo.op("stablehlo.negate", xs, wide), wide, wide)
        difference = hlo.op("stablehlo.subtract", (log, rest), wide)
        return hlo.op("stablehlo.convert", difference, outs) if small else difference

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(DIV, t, ctx.one(MUL, x, ctx.one(SUB, literal_like(1.0, x), x)))


EXP: Final = Exp()
EXP2: Final = Exp2()
EXPM1: Final = Expm1()
LOG: Final = Log()
LOG1P: Final = Log1p()
LOGISTIC: Final = Logistic()
LOGIT: Final = Logit()
