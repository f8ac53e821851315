"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Atom, JvpCtx, NDArray, Tangent, Zero, primitive
from fxad.primitives.elementwise import annex_g
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.family import Binary, Unary, literal_like
from fxad.primitives.elementwise.powers import RSQRT, SQUARE


@final
@primitive
class Sin(Unary):
    """Sine.

    Type:   a float or complex operand.
    Rule:   d = cos(x).
    Source: stablehlo.sine
    """

    name: ClassVar[str] = "sin"
    hlo_name: ClassVar[str] = "stablehlo.sine"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.sin(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(COS, x))


@final
@primitive
class Cos(Unary):
    """Cosine.

    Type:   a float or complex operand.
    Rule:   d = -sin(x).
    Source: stablehlo.cosine
    """

    name: ClassVar[str] = "cos"
    hlo_name: ClassVar[str] = "stablehlo.cosine"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.cos(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(NEG, ctx.one(SIN, x)))


@final
@primitive
class Tan(Unary):
    """Tangent.

    Type:   a float or complex operand.
    Rule:   d = 1 + y^2.
    Source: stablehlo.tan
    """

    name: ClassVar[str] = "tan"
    hlo_name: ClassVar[str] = "stablehlo.tan"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.tan(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(ADD, ctx.one(SQUARE, y), literal_like(1.0, y)))


def _unit_circle(ctx: JvpCtx, x: Atom) -> Atom:
    """1 - x^2 as (1 - x)(1 + x), which keeps its digits where x is close to 1."""
    one = literal_like(1.0, x)
    return ctx.one(MUL, ctx.one(SUB, one, x), ctx.one(ADD, x, one))


@final
@primitive
class Asin(Unary):
    """Inverse sine, in [-pi/2, pi/2]; nan outside [-1, 1].

    Type:   a float or complex operand.
    Rule:   d = 1 / sqrt(1 - x^2), inf at -1 and 1.
    Source: chlo.asin
    """

    name: ClassVar[str] = "asin"
    hlo_name: ClassVar[str] = "chlo.asin"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.arcsin(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(RSQRT, _unit_circle(ctx, x)))


@final
@primitive
class Acos(Unary):
    """Inverse cosine, in [0, pi]; nan outside [-1, 1].

    Type:   a float or complex operand.
    Rule:   d = -1 / sqrt(1 - x^2), -inf at -1 and 1.
    Source: chlo.acos
    """

    name: ClassVar[str] = "acos"
    hlo_name: ClassVar[str] = "chlo.acos"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.arccos(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(NEG, ctx.one(RSQRT, _unit_circle(ctx, x))))


@final
@primitive
class Atan(Unary):
    """Inverse tangent, in [-pi/2, pi/2].

    Type:   a float or complex operand.
    Rule:   d = 1 / (1 + x^2).
    Source: chlo.atan
    """

    name: ClassVar[str] = "atan"
    hlo_name: ClassVar[str] = "chlo.atan"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.arctan(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(DIV, t, ctx.one(ADD, ctx.one(SQUARE, x), literal_like(1.0, x)))


@final
@primitive
class Atan2(Binary):
    """The angle of the point (y, x), in [-pi, pi]: first operand over second.

    Type:   two float operands of one type.
    Rule:   (x_dot y - y_dot x) / (x^2 + y^2), nan at the origin.
    Source: stablehlo.atan2
    """

    name: ClassVar[str] = "atan2"
    hlo_name: ClassVar[str] = "stablehlo.atan2"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.arctan2(x, y)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        radius2 = ctx.one(ADD, ctx.one(SQUARE, x), ctx.one(SQUARE, y))
        if isinstance(tx, Zero):
            return scale_tangent(ctx, ty, ctx.one(NEG, ctx.one(DIV, x, radius2)))
        if isinstance(ty, Zero):
            return scale_tangent(ctx, tx, ctx.one(DIV, y, radius2))
        return ctx.lin_one(DIV, ctx.lin_one(SUB, scale_tangent(ctx, tx, y), scale_tangent(ctx, ty, x)), radius2)


@final
@primitive
class Sinh(Unary):
    """Hyperbolic sine.

    Type:   a float or complex operand.
    Rule:   d = cosh(x).
    Source: chlo.sinh
    """

    name: ClassVar[str] = "sinh"
    hlo_name: ClassVar[str] = "chlo.sinh"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.sinh(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(COSH, x))


@final
@primitive
class Cosh(Unary):
    """Hyperbolic cosine.

    Type:   a float or complex operand.
    Rule:   d = sinh(x).
    Source: chlo.cosh
    """

    name: ClassVar[str] = "cosh"
    hlo_name: ClassVar[str] = "chlo.cosh"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.cosh(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(SINH, x))


@final
@primitive
class Tanh(Unary):
    """Hyperbolic tangent.

    Type:   a float or complex operand.
    Rule:   d = 1 - y^2.
    Source: stablehlo.tanh
    """

    name: ClassVar[str] = "tanh"
    hlo_name: ClassVar[str] = "stablehlo.tanh"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.tanh(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(SUB, literal_like(1.0, y), ctx.one(SQUARE, y)))


@final
@primitive
class Asinh(Unary):
    """Inverse hyperbolic sine.

    Type:   a float or complex operand.
    Rule:   d = 1 / sqrt(x^2 + 1).
    Source: chlo.asinh
    """

    name: ClassVar[str] = "asinh"
    hlo_name: ClassVar[str] = "chlo.asinh"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.arcsinh(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(RSQRT, ctx.one(ADD, ctx.one(SQUARE, x), literal_like(1.0, x))))


@final
@primitive
class Acosh(Unary):
    """Inverse hyperbolic cosine; nan below 1.

    Type:   a float or complex operand.
    Rule:   d = 1 / sqrt(x^2 - 1), inf at 1.
    Source: chlo.acosh
    """

    name: ClassVar[str] = "acosh"
    hlo_name: ClassVar[str] = "chlo.acosh"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.arccosh(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        one = literal_like(1.0, x)
        below, above = ctx.one(SUB, x, one), ctx.one(ADD, x, one)
        if x.aval.dtype in dtypes.COMPLEX:
            # the root of the product is on the wrong branch in the left half plane
            return scale_tangent(ctx, t, ctx.one(MUL, ctx.one(RSQRT, below), ctx.one(RSQRT, above)))
        return scale_tangent(ctx, t, ctx.one(RSQRT, ctx.one(MUL, below, above)))


@final
@primitive
class Atanh(Unary):
    """Inverse hyperbolic tangent; nan outside [-1, 1].

    Type:   a float or complex operand.
    Rule:   d = 1 / (1 - x^2), inf at -1 and 1.
    Source: chlo.atanh
    """

    name: ClassVar[str] = "atanh"
    hlo_name: ClassVar[str] = "chlo.atanh"
    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    lower = annex_g.lower

    def compute(self, x: NDArray) -> object:
        return np.arctanh(x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
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
TANH: Final = Tanh()
ASINH: Final = Asinh()
ACOSH: Final = Acosh()
ATANH: Final = Atanh()
