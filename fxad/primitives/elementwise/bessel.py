"""The modified Bessel functions of the first kind, scaled so that they do not overflow, and Hurwitz's zeta function."""

from __future__ import annotations

import math
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
from fxad.ir import Atom, Avals, Hlo, HloValues, JvpCtx, NDArray, Tangent, Zero, primitive
from fxad.primitives.elementwise.annex_g import HloReal
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.family import FLOAT_ABOVE_8, Binary, Unary, literal_like
from fxad.primitives.elementwise.formula import Formulas, chebyshev, formula_program
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.powers import SIGN
from fxad.primitives.elementwise.references import scipy_special
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.stablehlo import lower_in_float32

# exp(-x) I0(x) for 0 <= x <= 8 in x / 4 - 1, and its product with sqrt(x) for x > 8 in 16 / x - 1: Chebyshev
# interpolants of scipy.special.i0e, highest order first
_NEAR: Final = (
    8.071765478234738e-17, -4.8316906031686816e-17, -1.665512172621675e-16, 1.6399326341343113e-15,
    -1.1599468052736485e-14, 7.669541446375662e-14, -4.855689894611715e-13, 2.9549897817560126e-12,
    -1.726818368297245e-11, 9.675800299646654e-11, -5.189794796933711e-10, 2.6598236490826823e-09,
    -1.3000250016830251e-08, 6.046995014685308e-08, -2.6707938531330915e-07, 1.1173875390340983e-06,
    -4.416738358371504e-06, 1.6448448070655105e-05, -5.754195010075819e-05, 0.00018850288509573605,
    -0.0005763755745384856, 0.001639475616941245, -0.00432430999505049, 0.010546460394594925,
    -0.023737414805899377, 0.049305284239670656, -0.09490109704804757, 0.17162090152220874, -0.30468267234319835,
    0.33839763720473803,
)  # fmt: skip
_FAR: Final = (
    -3.865352482534945e-17, 2.955857780762017e-17, 2.2737367544323207e-17, 6.366462912410498e-17,
    -3.1150193535722795e-16, -3.160494088660926e-16, 1.7371348803862932e-15, 3.838067641481758e-15,
    -9.588347893441097e-15, -4.1495695768389856e-14, 1.537046045996249e-14, 3.8530743040610107e-13,
    7.179778549470939e-13, -1.7941465557669292e-12, -1.321583567914786e-11, -3.1499148462899034e-11,
    1.18891102829366e-11, 4.940602775604931e-10, 3.396232004888589e-09, 2.2666689937977936e-08,
    2.0489185892074604e-07, 2.891370520846977e-06, 6.889758346913369e-05, 0.00336911647825571,
    0.40224520550705445,
)  # fmt: skip


@final
@primitive
class BesselI0e(Unary):
    """exp(-|x|) I0(x), of the modified Bessel function of the first kind of order 0.

    Type:   a float operand, not float8.
    Rule:   d = i1e(x) - sign(x) i0e(x).
    Source: Clenshaw's sums of Chebyshev polynomials, on two intervals as in Cephes, i0.c.
    """

    name: ClassVar[str] = "bessel_i0e"
    hlo_name: ClassVar[str] = ""  # XLA has none
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def compute(self, x: NDArray) -> object:
        return scipy_special("i0e", x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(
            hlo, args, ins[0], lambda wide, t: hlo.call(formula_program("bessel_i0e", (t,), _i0e), wide)[0]
        )

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        slope = ctx.one(SUB, ctx.one(BESSEL_I1E, x), ctx.one(MUL, ctx.one(SIGN, x), y))
        return scale_tangent(ctx, t, slope)


def _i0e(f: Formulas) -> Formulas:
    x = abs(f[0])
    near = chebyshev(x * 0.25 - 1, _NEAR)
    far = chebyshev(16 / x.greatest(8) - 1, _FAR) * x.greatest(8).rsqrt()
    return ((x > 8).where(far, near),)


@final
@primitive
class BesselI1e(Unary):
    """exp(-|x|) I1(x), of the modified Bessel function of the first kind of order 1.

    Type:   a float operand, not float8.
    Rule:   d = i0e(x) - (sign(x) + 1 / x) i1e(x), which is 1/2 at 0.
    Source: chlo.bessel_i1e
    """

    name: ClassVar[str] = "bessel_i1e"
    hlo_name: ClassVar[str] = "chlo.bessel_i1e"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def compute(self, x: NDArray) -> object:
        return scipy_special("i1e", x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        zero = ctx.one(EQ, x, literal_like(0, x))
        divisor = emit_where(ctx, zero, literal_like(1, x), x)
        ratio = emit_where(ctx, zero, literal_like(0.5, x), ctx.one(DIV, y, divisor))
        slope = ctx.one(SUB, ctx.one(BESSEL_I0E, x), ctx.one(ADD, ctx.one(MUL, ctx.one(SIGN, x), y), ratio))
        return scale_tangent(ctx, t, slope)


@final
@primitive
class Zeta(Binary):
    """Hurwitz's zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ...

    Type:   x, q: two float operands of one type, not float8. As in SciPy: inf at x = 1 and, for x > 1, at q = 0, -1,
            -2, ...; nan for x < 1, and for other q < 0 if x is not integral.
    Rule:   d/dq = -x zeta(x + 1, q); x has no derivative.
    Source: chlo.zeta; for large x the greatest term; for large q DLMF 25.11.43
    """

    name: ClassVar[str] = "zeta"
    hlo_name: ClassVar[str] = "chlo.zeta"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def compute(self, x: NDArray, q: NDArray) -> object:
        return np.where(np.isnan(x) | np.isnan(q), np.nan, scipy_special("zeta", x, q))

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(
            hlo, args, ins[0], lambda wide, t: _lower_zeta(*[HloReal(hlo, value, t) for value in wide]).value
        )

    def tangent(self, ctx: JvpCtx, x: Atom, q: Atom, y: Atom, x_dot: Tangent, q_dot: Tangent) -> Tangent:
        if not isinstance(x_dot, Zero):
            raise NotDifferentiableError(
                "zeta: the derivative in the exponent x is not known", remedy="apply stop_gradient to the first operand"
            )
        slope = ctx.one(NEG, ctx.one(MUL, x, ctx.one(ZETA, ctx.one(ADD, x, literal_like(1, x)), q)))
        return scale_tangent(ctx, q_dot, slope)


def _lower_zeta(x: HloReal, q: HloReal) -> HloReal:
    double = x.aval.dtype == dtypes.float64
    value = x.op("chlo.zeta", q)
    # XLA's sum is nan for an infinite q, and powers in it underflow for a large one
    tail = q.op("power", 1 - x) * (x.like(1) / (x - x.like(1)) + x.like(0.5) / q)
    value = ((x > 1) & (q > (1e8 if double else 1e4))).where(tail, value)
    # a large x leaves the term of the q + k that is nearest to 0: at most 1/2 from it if q is negative
    value = ((x > 1e4) & (q > 0)).where(q.op("power", -x), value)
    always_even = x > (2.0**53 if double else 2.0**24)
    value = (always_even & (q < 0)).where(math.inf, value)
    pole = (q < 0) | q.equals(0)
    value = ((x > 1) & pole & q.equals(q.op("floor"))).where(math.inf, value)
    return ((x < 1) | x.is_nan | q.is_nan).where(math.nan, value)


BESSEL_I0E: Final = BesselI0e()
BESSEL_I1E: Final = BesselI1e()
ZETA: Final = Zeta()

BESSEL: Final = (BesselI0e, BesselI1e, Zeta)
