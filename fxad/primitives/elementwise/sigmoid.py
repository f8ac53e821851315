"""The sigmoid functions, and their common derivative.

`1 - tanh(x)^2` and `y (1 - y)` of a rounded result have no digit left where the result is close to its limit, so the
derivatives are computed from the operand. That is a primitive, because the derivative of its parts is a difference of
nearly equal numbers around 0.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Atom, Avals, Hlo, HloValues, JvpCtx, NDArray, Tangent, primitive
from fxad.primitives.elementwise import annex_g
from fxad.primitives.elementwise.annex_g import ComplexFunction, ComplexUnary, HloReal
from fxad.primitives.elementwise.arithmetic import DIV, MUL, NEG, scale_tangent
from fxad.primitives.elementwise.family import Unary, from_ufunc, literal_like
from fxad.primitives.elementwise.references import divide
from fxad.primitives.elementwise.trigonometric import COSH
from fxad.primitives.stablehlo import lower_in_float32


@final
@primitive
class Tanh(ComplexUnary):
    """The hyperbolic tangent of x.

    Type:   a float or complex operand.
    Rule:   d = sech2(x); 1 / cosh(x)^2 for complex x.
    Source: stablehlo.tanh
    """

    name: ClassVar[str] = "tanh"
    hlo_name: ClassVar[str] = "stablehlo.tanh"
    complex_function: ClassVar[ComplexFunction] = annex_g.tanh
    compute = from_ufunc(np.tanh)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if x.aval.dtype in dtypes.COMPLEX:
            # 1 - y^2 loses every digit where y is close to 1
            sech = ctx.one(DIV, literal_like(1.0, x), ctx.one(COSH, x))
            return scale_tangent(ctx, t, ctx.one(MUL, sech, sech))
        return scale_tangent(ctx, t, ctx.one(SECH2, x))


@final
@primitive
class Logistic(ComplexUnary):
    """1 / (1 + exp(-x)).

    Type:   a float or complex operand.
    Rule:   d = sech2(x / 2) / 4; y logistic(-x) for complex x.
    Source: 1 / (1 + e) for x >= 0 and e / (1 + e) for x < 0, with e = exp(-|x|): stablehlo.exponential
    """

    name: ClassVar[str] = "logistic"
    complex_function: ClassVar[ComplexFunction] = annex_g.logistic

    def compute(self, x: NDArray) -> object:
        if np.iscomplexobj(x):
            return divide(np.ones_like(x), np.add(1, np.exp(np.negative(x))))
        e = np.exp(np.negative(np.abs(x)))
        return np.divide(np.where(np.less(x, 0), e, np.ones_like(e)), np.add(e, 1))

    def lower_real(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        # not stablehlo.logistic: XLA computes the exponential of a value and of its derivative once
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: _logistic(HloReal(hlo, wide[0], t)).value)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        if x.aval.dtype in dtypes.COMPLEX:
            # 1 - y loses every digit where y is close to 1
            return scale_tangent(ctx, t, ctx.one(MUL, y, ctx.one(LOGISTIC, ctx.one(NEG, x))))
        slope = ctx.one(SECH2, ctx.one(MUL, x, literal_like(0.5, x)))
        return scale_tangent(ctx, t, ctx.one(MUL, slope, literal_like(0.25, x)))


@final
@primitive
class Sech2(Unary):
    """1 / cosh(x)^2, the derivative of tanh.

    Type:   a float operand.
    Rule:   d = -2 tanh(x) y.
    Source: 4 e / (1 + e)^2 with e = exp(-2 |x|): stablehlo.exponential
    """

    name: ClassVar[str] = "sech2"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray) -> object:
        e = np.exp(np.multiply(np.abs(x), -2))
        return np.divide(np.multiply(e, 4), np.square(np.add(e, 1)))

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: _sech2(HloReal(hlo, wide[0], t)).value)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        bend = ctx.one(MUL, ctx.one(TANH, x), literal_like(-2.0, x))
        return scale_tangent(ctx, t, ctx.one(MUL, bend, y))


def _logistic(x: HloReal) -> HloReal:
    e, r = _decay(x * x.like(0.5))
    return (x < 0).where(e * r, r)


def _sech2(x: HloReal) -> HloReal:
    e, r = _decay(x)
    return e * e.like(4) * (r * r)


def _decay(x: HloReal) -> tuple[HloReal, HloReal]:
    """Return e = exp(-2 |x|) and 1 / (1 + e)."""
    e = (abs(x) * x.like(-2)).op("exponential")
    return e, e.like(1) / (e + e.like(1))


TANH: Final = Tanh()
LOGISTIC: Final = Logistic()
SECH2: Final = Sech2()
