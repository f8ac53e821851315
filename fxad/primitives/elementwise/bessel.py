"""The modified Bessel functions of the first kind, scaled so that they do not overflow, and Hurwitz's zeta function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.ir import Atom, Aval, Avals, Hlo, HloValue, HloValues, JvpCtx, NDArray, Tangent, Zero, primitive
from fxad.primitives.elementwise.annex_g import HloReal
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.family import FLOAT_ABOVE_8, Binary, Unary, literal_like
from fxad.primitives.elementwise.formula import Formula, formula_program, polynomial
from fxad.primitives.elementwise.powers import SIGN, IntegerPow
from fxad.primitives.elementwise.references import Doubles, scipy_special
from fxad.primitives.stablehlo import lower_in_float32

_FAR: Final = 25.0  # from here on, the asymptotic series has all digits of float64


@final
@primitive
class BesselIOverPower(Unary):
    """I_n(x) / x^n, of the modified Bessel function of the first kind of order n; with `scaled` times exp(-|x|).

    It is an even function, positive and without a singularity. All of its derivatives are sums of positive terms, so
    those of i0 and i1 have all digits at 0 too.

    Type:   a float operand, not float8; n >= 0.
    Rule:   d = x y' for y' of order n + 1; with `scaled` less sign(x) y.
    Source: DLMF 10.25.2 and 10.29.4; for large x 10.40.1
    """

    name: ClassVar[str] = "bessel_i_over_power"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8
    order: int
    scaled: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if self.order < 0:
            raise ParameterError(f"bessel_i_over_power: the order must be 0 or more, got {self.order}")
        return Unary.abstract_eval(self, *avals)

    def compute(self, x: NDArray) -> object:
        size = np.abs(x.astype(np.float64))
        small, n = np.less(size, 1), self.order
        near, far = np.where(small, size, 0), np.where(small, 1, size)
        series = np.divide(scipy_special("hyp0f1", np.asarray(n + 1.0), near * near / 4), 2.0**n * math.factorial(n))
        large = scipy_special("ive" if self.scaled else "iv", np.asarray(float(n)), far)
        # SciPy's is nan where it overflows
        large = np.where(
            far > 1e4 if not self.scaled else np.isinf(far), 0.0 if self.scaled else np.inf, np.divide(large, far**n)
        )
        return np.where(
            np.isnan(size), size, np.where(small, np.multiply(series, np.exp(-near) if self.scaled else 1), large)
        )

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        def program(wide: HloValues, t: Aval) -> HloValue:
            name = f"bessel_i{self.order}_over_power{'_scaled' * self.scaled}"
            return hlo.call(formula_program(name, (t,), lambda f: (self._formula(f[0]),)), wide)[0]

        return lower_in_float32(hlo, args, ins[0], program)

    def _formula(self, x: Formula) -> Formula:
        n, size = self.order, abs(x)
        far = size > _FAR
        near_x = far.where(0, x)
        square, series = near_x * near_x * 0.25, x.like(1)
        for k in reversed(range(1, 52 if x.double else 38)):
            series = series * square * (1 / (k * (n + k))) + 1
        series = series * (1 / (2.0**n * math.factorial(n)))
        # exp(size) alone is infinite from 1e4 on
        a = far.where(size if self.scaled else size.least(1e4), size.like(_FAR))
        inverse, tail = 1 / a, x.like(1)
        for k in reversed(range(1, 32 if x.double else 14)):
            tail = 1 - tail * inverse * ((4 * n * n - (2 * k - 1) ** 2) / (8 * k))
        tail = tail * a.rsqrt() * (1 / math.sqrt(2 * math.pi))
        if n:
            tail = tail * inverse.apply(IntegerPow(n))
        if self.scaled:
            return far.where(tail, series * (-abs(near_x)).exp())
        # exp(x / 2) twice, because exp(x) overflows before the function does
        root = (a * 0.5).exp()
        return far.where(root * tail * root, series)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        slope = ctx.one(MUL, x, ctx.one(BesselIOverPower(self.order + 1, self.scaled), x))
        if self.scaled:
            slope = ctx.one(SUB, slope, ctx.one(MUL, ctx.one(SIGN, x), y))
        return scale_tangent(ctx, t, slope)


@final
@primitive
class BesselI0e(Unary):
    """exp(-|x|) I0(x), of the modified Bessel function of the first kind of order 0.

    Type:   a float operand, not float8.
    Rule:   d = i1e(x) - sign(x) i0e(x); from |x| = 25 on the derivative of the asymptotic series.
    Source: `BesselIOverPower`
    """

    name: ClassVar[str] = "bessel_i0e"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def compute(self, x: NDArray) -> object:
        return scipy_special("i0e", x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return BesselIOverPower(0, True).lower(hlo, args, ins, outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        def near(x: Atom) -> Atom:
            rise, level = ctx.one(BESSEL_I1E, x), ctx.one(BESSEL_I0E, x)
            return ctx.one(SUB, rise, ctx.one(MUL, ctx.one(SIGN, x), level))

        return scale_tangent(ctx, t, _scaled_slope(ctx, 0, x, near))


@final
@primitive
class BesselI1e(Unary):
    """exp(-|x|) I1(x), of the modified Bessel function of the first kind of order 1.

    Type:   a float operand, not float8.
    Rule:   d = (I1(x) / x + I2(x)) exp(-|x|) - sign(x) i1e(x); from |x| = 25 on that of the asymptotic series.
    Source: chlo.bessel_i1e
    """

    name: ClassVar[str] = "bessel_i1e"
    hlo_name: ClassVar[str] = "chlo.bessel_i1e"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def compute(self, x: NDArray) -> object:
        return scipy_special("i1e", x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        def near(x: Atom) -> Atom:
            first, second = [ctx.one(BesselIOverPower(n, True), x) for n in (1, 2)]
            rise = ctx.one(ADD, first, ctx.one(MUL, ctx.one(MUL, x, x), second))
            return ctx.one(SUB, rise, ctx.one(MUL, ctx.one(SIGN, x), ctx.one(BESSEL_I1E, x)))

        return scale_tangent(ctx, t, _scaled_slope(ctx, 1, x, near))


def _scaled_slope(ctx: JvpCtx, n: int, x: Atom, near: Callable[[Atom], Atom]) -> Atom:
    """Return the derivative of exp(-|x|) I_n(x), n = 0 or 1, from its rule `near` for |x| <= 25.

    The terms of the rule cancel: the derivative is about 1 / |2x| of them. So far from 0 it is that of the asymptotic
    series, and narrow floats are computed in float32.
    """
    dtype = x.aval.dtype
    wide = Formula(ctx, emit_convert(ctx, x, dtypes.accumulated(dtype)))
    size = abs(wide)
    far = size > _FAR
    a = far.where(size, size.like(_FAR))
    inverse, coefficients = 1 / a, [1.0]
    for k in range(1, 32 if wide.double else 14):
        coefficients.append(coefficients[-1] * ((2 * k - 1) ** 2 - 4 * n * n) / (8 * k))
    slopes = [-(k + 0.5) * c for k, c in enumerate(coefficients)]
    tail = polynomial(inverse, slopes[::-1]) * inverse * a.rsqrt() * (1 / math.sqrt(2 * math.pi))
    if n == 0:  # it is even, and its derivative odd
        tail = (wide > 0).where(tail, -tail)
    slope = far.where(tail, Formula(ctx, near(far.where(0, wide).atom)))
    return emit_convert(ctx, slope.atom, dtype)


@final
@primitive
class Zeta(Binary):
    """Hurwitz's zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ...

    Type:   x, q: two float operands of one type, not float8. As in SciPy: inf at x = 1 and, for x > 1, at q = 0, -1,
            -2, ...; nan for x < 1, and for other q < 0 if x is not integral.
    Rule:   d/dq = -x zeta(x + 1, q); x has no derivative.
    Source: chlo.zeta, which is for q > 0; below, the values at three positive numbers: see `_zeta_below_0`. For large x
            the greatest term; for large q DLMF 25.11.43
    """

    name: ClassVar[str] = "zeta"
    hlo_name: ClassVar[str] = "chlo.zeta"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def compute(self, x: NDArray, q: NDArray) -> object:
        s: Doubles = x.astype(np.float64)
        at: Doubles = q.astype(np.float64)
        # SciPy's has no bound on the terms that it adds below 0
        reflected = np.isfinite(s) & (s > 1) & (s == np.floor(s)) & (at < 0) & (at != np.floor(at))
        value = _zeta_above_0(s, np.where(reflected, 1.0, at))
        value = np.where(reflected, _zeta_below_0(s, np.where(reflected, at, -0.5)), value)
        return np.where(np.isnan(x) | np.isnan(q), np.nan, value)

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


def _zeta_above_0(x: Doubles, q: Doubles) -> Doubles:
    """Return SciPy's function; of a large x its greatest term, where SciPy's is nan."""
    leading = (x > 1e4) & (q > 0)
    value = scipy_special("zeta", np.where(leading, 2.0, x), q)
    return np.where(leading, np.power(np.where(leading, q, 1.0), -x), value)


def _zeta_below_0(x: Doubles, q: Doubles) -> Doubles:
    """Return zeta(x, q) of an integral x and a q < 0 that is not integral, from three values above 0.

    Of the numbers q + k, those above 0 begin with f = q - floor(q), and those below are -(1 - f), -(2 - f), ..., q:

        zeta(x, q) = zeta(x, f) + (-1)^x (zeta(x, 1 - f) - zeta(x, 1 - q))
    """
    above, below = q - np.floor(q), np.ceil(q) - q  # not 1 - f, which loses the digits of a q near 0
    first, second, rest = [_zeta_above_0(x, at) for at in (above, below, 1 - q)]
    difference = np.where(np.isinf(first) & np.isinf(second), np.where(above < below, np.inf, -np.inf), first - second)
    odd = np.where(above == below, rest, difference + rest)
    return np.where(np.fmod(x, 2) == 0, first + (second - rest), odd)


def _lower_zeta(x: HloReal, q: HloReal) -> HloReal:
    integral = x.equals(x.op("floor"))
    pole = ((q < 0) | q.equals(0)) & q.equals(q.op("floor"))
    # as in `_zeta_below_0`: XLA's sum is that of a q above -7
    reflected = (x > 1) & integral & (q < 0) & ~pole
    above, below = q - q.op("floor"), q.op("ceil") - q
    first = _lower_zeta_above_0(x, reflected.where(above, q))
    second, rest = _lower_zeta_above_0(x, below), _lower_zeta_above_0(x, 1 - q)
    both_infinite = first.equals(math.inf) & second.equals(math.inf)
    difference = both_infinite.where((above < below).where(math.inf, q.like(-math.inf)), first - second)
    odd = above.equals(below).where(rest, difference + rest)
    even = x.op("remainder", x.like(2)).equals(0)
    value = reflected.where(even.where(first + (second - rest), odd), first)
    infinite = x.equals(math.inf) & (q < 0)
    value = (((x > 1) & pole) | infinite).where(math.inf, value)
    return ((x < 1) | x.is_nan | q.is_nan).where(math.nan, value)


def _lower_zeta_above_0(x: HloReal, q: HloReal) -> HloReal:
    value = x.op("chlo.zeta", q)
    # XLA's sum is nan for an infinite q, and powers in it underflow for a large one
    tail = q.op("power", 1 - x) * (x.like(1) / (x - x.like(1)) + x.like(0.5) / q)
    value = ((x > 1) & (q > (1e8 if x.aval.dtype == dtypes.float64 else 1e4))).where(tail, value)
    # a large x leaves the greatest term
    return ((x > 1e4) & (q > 0)).where(q.op("power", -x), value)


BESSEL_I0E: Final = BesselI0e()
BESSEL_I1E: Final = BesselI1e()
ZETA: Final = Zeta()

BESSEL: Final = (BesselIOverPower, BesselI0e, BesselI1e, Zeta)
