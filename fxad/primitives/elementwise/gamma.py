"""The incomplete gamma functions, their derivatives in `a`, and the derivative of a gamma sample.

XLA has none of them. Three expansions share the plane (Cephes, igam.c): the power series of the lower function, the
continued fraction of the upper one where x > a, and the series of the upper one where both are small. All are factored
by the density x^a exp(-x) / gamma(a + 1), which is computed without cancellation (Loader 2000). The derivatives in `a`
follow the series and the fraction term by term (Figurnov, Mohamed and Mnih 2018).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Final, final

from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
from fxad.ir import Atom, Aval, Avals, Hlo, HloValue, HloValues, JvpCtx, NDArray, Primitive, Tangent, Zero, primitive
from fxad.primitives.elementwise.arithmetic import DIV, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.exponential import EXP, LOG
from fxad.primitives.elementwise.family import FLOAT_ABOVE_8, Binary, literal_like
from fxad.primitives.elementwise.formula import Formula, Formulas, formula_program, iterate_until_converged, polynomial
from fxad.primitives.elementwise.references import gamma_slopes, scipy_special
from fxad.primitives.elementwise.special import DIGAMMA, LGAMMA
from fxad.primitives.stablehlo import lower_in_float32

# ---------------------------------------------------------------------------------------------------- the density

# log(1 + mu) = 2 atanh(mu / (2 + mu)): the odd powers after the first, highest first
_ATANH: Final = tuple([1 / (2 * k + 3) for k in reversed(range(18))])
# log gamma(a + 1) less Stirling's formula, in powers of 1 / a^2, highest first (Abramowitz & Stegun 6.1.41)
_STIRLING: Final = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
# log a - digamma(a) less 1 / 2a, divided by 1 / a^2, in powers of 1 / a^2, highest first (6.3.18)
_DIGAMMA: Final = (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
# log gamma(1 + a) + log(1 + a) less a (1 - Euler's constant), divided by a^2: (-1)^k (zeta(k) - 1) / k, highest first
_EULER: Final = 0.5772156649015329
_ZETA: Final = (
    0.6449340668482264, 0.2020569031595943, 0.0823232337111382, 0.0369277551433699, 0.0173430619844491,
    0.0083492773819228, 0.0040773561979443, 0.0020083928260822, 0.0009945751278181, 0.0004941886041195,
    0.0002460865533080, 0.0001227133475785, 0.0000612481350587, 0.0000305882363070, 0.0000152822594087,
)  # fmt: skip  # zeta(k) - 1 for k = 2, 3, ...; from there on 2^-k + 3^-k + 4^-k
_LGAM1P: Final = tuple(
    [
        (-1) ** k * (_ZETA[k - 2] if k < len(_ZETA) + 2 else 2.0**-k + 3.0**-k + 4.0**-k) / k
        for k in reversed(range(2, 30))
    ]
)


def log_gamma_1p(a: Formula) -> Formula:
    """log gamma(1 + a) with all digits for a < 1.5."""
    more = a > 0.5
    b = more.where(a - 1, a)
    near = b * ((1 - _EULER) + b * polynomial(b, _LGAM1P)) - more.where(0, a).log1p()
    return (a < 1.5).where(near, (a + 1).lgamma())


def excess(mu: Formula, v: Formula) -> Formula:
    """mu - log(1 + mu), for v = mu / (2 + mu), with all digits near 0."""
    near = mu * v - 2 * v * v * v * polynomial(v * v, _ATANH)
    return (abs(mu) < 0.5).where(near, mu - mu.log1p())


def stirling(a: Formula) -> Formula:
    """log gamma(a) less (a - 1/2) log a - a + log(2 pi) / 2, for a >= 10."""
    inverse = 1 / a
    return polynomial(inverse * inverse, _STIRLING) * inverse


def density(a: Formula, x: Formula) -> Formula:
    """x^a exp(-x) / gamma(a + 1), for a > 0 and x > 0."""
    phi = excess((x - a) / a, (x - a) / (x + a))
    large = (-a * phi - stirling(a)).exp() * (a * (2 * math.pi)).rsqrt()
    small = (a * x.log() - x - log_gamma_1p(a)).exp()
    return (a >= 10).where(large, small)


# -------------------------------------------------------------------------------------------------- the expansions


def series(hlo: Hlo, a: HloValue, x: HloValue, here: HloValue, t: Aval, slope: bool) -> tuple[HloValue, ...]:
    """The sum of x^n / ((a + 1) ... (a + n)) where `here` holds; and, for `slope`, its derivative in a."""

    def start(f: Formulas) -> Formulas:
        a, _ = f
        one, zero = a.like(1), a.like(0)
        return (a, one, one, zero, zero) if slope else (a, one, one)

    def step(s: Formulas) -> tuple[Formula, Formulas]:
        _, x, r, c, total, *rest = s
        r = r + 1
        ratio = x / r
        if not slope:
            c = c * ratio
            return c > total * total.eps, (r, c, total + c)
        dc, dtotal = rest
        dc = dc * ratio - c * ratio / r
        c, dtotal = c * ratio, dtotal + dc
        return (abs(dc) > abs(dtotal) * c.eps) | (c > total * c.eps), (r, c, total + c, dc, dtotal)

    return iterate_until_converged(hlo, "gamma_series", here, (a, x), t, start, step, keep=(2, 4) if slope else (2,))


def fraction(hlo: Hlo, a: HloValue, x: HloValue, here: HloValue, t: Aval, slope: bool) -> tuple[HloValue, ...]:
    """The continued fraction of the upper function over its density times a, where `here` holds (Abramowitz & Stegun
    6.5.31); and, for `slope`, its derivative in a."""

    def start(f: Formulas) -> Formulas:
        a, x = f
        y, one, zero = 1 - a, a.like(1), a.like(0)
        z = x + y + 1
        p, q = x + 1, z * x
        r = p / q
        values = (zero, y, z, one, x, p, q, r)
        return (*values, zero, zero, zero, -x, r * x / q) if slope else values

    def step(s: Formulas) -> tuple[Formula, Formulas]:
        _, _, c, y, z, p2, q2, p1, q1, r, *rest = s
        c, y, z = c + 1, y + 1, z + 2
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        new = (abs(q) > 0).where(p / q, r)
        going = abs(new - r) > abs(new) * (2 * r.eps)
        scale = (abs(p) > 1 / r.eps).where(r.eps, r.like(1))
        values = (c, y, z, p1 * scale, q1 * scale, p * scale, q * scale, new)
        if not slope:
            return going, values
        dp2, dq2, dp1, dq1, dr = rest
        dp = dp1 * z - p1 - dp2 * yc + p2 * c
        dq = dq1 * z - q1 - dq2 * yc + q2 * c
        dnew = (abs(q) > 0).where((dp - new * dq) / q, dr)
        going = going | (abs(dnew - dr) > (abs(dnew) + abs(new)) * (2 * r.eps))
        return going, (*values, dp1 * scale, dq1 * scale, dp * scale, dq * scale, dnew)

    return iterate_until_converged(hlo, "gamma_fraction", here, (a, x), t, start, step, keep=(7, 12) if slope else (7,))


_SMALL_TERMS: Final = 22


def _upper_small(a: Formula, x: Formula) -> Formula:
    """The upper function for a and x of about 1 and less, with all digits where it is small itself."""
    total, term = x.like(0), x.like(1)
    for n in range(1, _SMALL_TERMS):
        term = term * x * (-1 / n)
        total = total + term / (a + n)
    log = a * x.log() - log_gamma_1p(a)
    return -log.expm1() - log.exp() * a * total


# ------------------------------------------------------------------------------------------------------- primitives


def _replace_outside(a: Formula, x: Formula) -> tuple[Formula, Formula, Formula]:
    """Return the operands where the expansions hold, others replaced by 1; and a mask of these elements."""
    large = 1e150 if x.double else 1e15  # beyond this the result is 0 or 1, and the expansions would overflow
    inside = (a > 0) & (x > 0) & (a < large) & (x < large)
    return inside, inside.where(a, a.like(1)), inside.where(x, x.like(1))


class Incomplete(Binary):
    """The base class of the incomplete gamma functions."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8
    hlo_name: ClassVar[str] = ""  # XLA has none

    @abstractmethod
    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        """The function in StableHLO, for floats of at least 32 bits."""

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: self.lower_wide(hlo, wide[0], wide[1], t))


def _apply_limits(a: Formula, x: Formula, value: Formula, at_zero: float) -> Formula:
    """Return `value` with the limits outside of the expansions: `at_zero` where x is 0, 1 - `at_zero` at infinity."""
    beyond = (x > a).where(1 - at_zero, x.like(at_zero))
    inside, _, _ = _replace_outside(a, x)
    outside = ((a >= 0) & (x > 0)).where(beyond, x.like(math.nan))
    outside = ((a > 0) & (x >= 0) & (x <= 0)).where(at_zero, outside)
    both = (a >= math.inf) & (x >= math.inf)
    return inside.where(value, both.where(math.nan, outside))


@final
@primitive
class Igamma(Incomplete):
    """The regularized lower incomplete gamma function: the integral of s^(a-1) exp(-s) from 0 to x, over gamma(a).

    Type:   a, x: two float operands of one type, not float8; nan where a < 0 or x < 0.
    Rule:   d/dx is the density of the gamma distribution; d/da is igamma_grad_a.
    Cost:   as many rounds as the slowest element needs: about 9 sqrt(a) near x = a, some dozens elsewhere.
    Source: Cephes, igam.c; Abramowitz & Stegun 6.5.29 and 6.5.31.
    """

    name: ClassVar[str] = "igamma"

    def compute(self, a: NDArray, x: NDArray) -> object:
        return scipy_special("gammainc", a, x)

    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        start = formula_program("igamma_start", (t, t), lambda f: _split_by_expansion(*f, upper=False))
        clear_a, clear_x, low, high, _ = hlo.call(start, (a, x))
        (total,) = series(hlo, clear_a, clear_x, low, t, False)
        (ratio,) = fraction(hlo, clear_a, clear_x, high, t, False)

        def end(f: Formulas) -> Formulas:
            a, x, total, ratio = f
            _, ca, cx = _replace_outside(a, x)
            weight = density(ca, cx)
            value = ((cx > 1) & (cx > ca)).where(1 - ratio * weight * ca, total * weight)
            return (_apply_limits(a, x, value, 0),)

        return hlo.call(formula_program("igamma_end", (t, t, t, t), end), (a, x, total, ratio))[0]

    def tangent(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
        return _igamma_tangent(ctx, a, x, a_dot, x_dot)


@final
@primitive
class Igammac(Incomplete):
    """The regularized upper incomplete gamma function, 1 - igamma(a, x), with all digits where it is small.

    Type:   a, x: two float operands of one type, not float8; nan where a < 0 or x < 0.
    Rule:   the derivatives of igamma, negated.
    Cost:   as igamma.
    Source: Cephes, igam.c; Abramowitz & Stegun 6.5.31; for small operands scipy's igamc_series.
    """

    name: ClassVar[str] = "igammac"

    def compute(self, a: NDArray, x: NDArray) -> object:
        return scipy_special("gammaincc", a, x)

    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        start = formula_program("igammac_start", (t, t), lambda f: _split_by_expansion(*f, upper=True))
        clear_a, clear_x, low, high, small = hlo.call(start, (a, x))
        (total,) = series(hlo, clear_a, clear_x, low, t, False)
        (ratio,) = fraction(hlo, clear_a, clear_x, high, t, False)

        def end(f: Formulas) -> Formulas:
            a, x, total, ratio, high, small = f
            _, ca, cx = _replace_outside(a, x)
            weight = density(ca, cx)
            value = high.where(ratio * weight * ca, 1 - total * weight)
            value = small.where(_upper_small(ca, cx), value)
            return (_apply_limits(a, x, value, 1),)

        mask = t.with_dtype("bool")
        return hlo.call(
            formula_program("igammac_end", (t, t, t, t, mask, mask), end), (a, x, total, ratio, high, small)
        )[0]

    def tangent(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
        slope = _igamma_tangent(ctx, a, x, a_dot, x_dot)
        return slope if isinstance(slope, Zero) else ctx.lin_one(NEG, slope)


def _split_by_expansion(a: Formula, x: Formula, *, upper: bool) -> Formulas:
    """Return clear operands, and masks of the three expansions: series, fraction, small series."""
    inside, a, x = _replace_outside(a, x)
    if not upper:
        high = (x > 1) & (x > a)
        return a, x, inside & ~high, inside & high, inside & ~inside
    high = (x > 1.1) & (x >= a)
    bound = (x <= 0.5).where(-0.4 / x.log(), x * 1.1)
    small = (x <= 1.1) & (a <= bound)
    return a, x, inside & ~high & ~small, inside & high, inside & small


def _log_density(ctx: JvpCtx, a: Atom, x: Atom) -> Atom:
    """log of x^(a-1) exp(-x) / gamma(a)."""
    power = ctx.one(MUL, ctx.one(SUB, a, literal_like(1, a)), ctx.one(LOG, x))
    return ctx.one(SUB, ctx.one(SUB, power, x), ctx.one(LGAMMA, a))


def _igamma_tangent(ctx: JvpCtx, a: Atom, x: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
    """The tangent of igamma."""
    in_a: Tangent = Zero(a.aval)
    in_x: Tangent = Zero(x.aval)
    if not isinstance(a_dot, Zero):
        in_a = scale_tangent(ctx, a_dot, ctx.one(IGAMMA_GRAD_A, a, x))
    if not isinstance(x_dot, Zero):
        in_x = scale_tangent(ctx, x_dot, ctx.one(EXP, _log_density(ctx, a, x)))
    return ctx.add(in_a, in_x)


def _split_for_slope(a: Formula, x: Formula) -> Formulas:
    inside, a, x = _replace_outside(a, x)
    high = (x > 1) & (x > a)
    return a, x, inside & ~high, inside & high


def _score(a: Formula, x: Formula) -> Formula:
    """log x - digamma(a)."""
    inverse = 1 / a
    square = inverse * inverse
    # log a - digamma(a), Abramowitz & Stegun 6.3.18
    less = inverse * 0.5 + square * polynomial(square, _DIGAMMA)
    return (a >= 10).where(((x - a) / a).log1p() + less, x.log() - (a + 1).digamma() + inverse)


def _slope(hlo: Hlo, name: str, a: HloValue, x: HloValue, t: Aval, sample: bool) -> HloValue:
    """d igamma / da; or, for `sample`, minus that over d igamma / dx."""
    clear_a, clear_x, low, high = hlo.call(
        formula_program(f"{name}_start", (t, t), lambda f: _split_for_slope(*f)), (a, x)
    )
    total, dtotal = series(hlo, clear_a, clear_x, low, t, True)
    ratio, dratio = fraction(hlo, clear_a, clear_x, high, t, True)

    def end(f: Formulas) -> Formulas:
        a, x, total, dtotal, ratio, dratio = f
        inside, ca, cx = _replace_outside(a, x)
        high = (cx > 1) & (cx > ca)
        rise = _score(ca, cx)
        lower, upper = dtotal + total * (rise - 1 / ca), dratio + ratio * rise
        if sample:
            value = high.where(upper * cx, -lower * cx / ca)
            zero = (a > 0) & (x >= 0) & (x <= 0)
        else:
            weight = density(ca, cx)
            value = high.where(-upper * weight * ca, lower * weight)
            zero = (a > 0) & (x >= 0) & ~inside
        return (inside.where(value, zero.where(0, x.like(math.nan))),)

    return hlo.call(formula_program(f"{name}_end", (t,) * 6, end), (a, x, total, dtotal, ratio, dratio))[0]


def _second_derivative_error(prim: Primitive) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{prim.name}: the second derivative in the shape parameter a is not known",
        remedy="apply stop_gradient to the first operand",
    )


@final
@primitive
class IgammaGradA(Incomplete):
    """The derivative of igamma(a, x) in a.

    Type:   a, x: two float operands of one type, not float8; nan where a <= 0 or x < 0.
    Rule:   d/dx = d igamma/dx (log x - digamma(a)); the second derivative in a is refused.
    Cost:   as igamma, three times the work in a round.
    Source: Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients (2018).
    """

    name: ClassVar[str] = "igamma_grad_a"

    def compute(self, a: NDArray, x: NDArray) -> object:
        return gamma_slopes(a, x)[0]

    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        return _slope(hlo, self.name, a, x, t, False)

    def tangent(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
        if not isinstance(a_dot, Zero):
            raise _second_derivative_error(self)
        score = ctx.one(SUB, ctx.one(LOG, x), ctx.one(DIGAMMA, a))
        return scale_tangent(ctx, x_dot, ctx.one(MUL, ctx.one(EXP, _log_density(ctx, a, x)), score))


@final
@primitive
class RandomGammaGrad(Incomplete):
    """The derivative in a of a sample x of the gamma distribution of shape a, its place in the distribution kept:
    -(d igamma/da) / (d igamma/dx).

    Type:   a, x: two float operands of one type, not float8; nan where a <= 0 or x < 0.
    Rule:   d/dx = digamma(a) - log x - y ((a - 1) / x - 1) for the result y; the second derivative in a is refused.
    Cost:   as igamma_grad_a.
    Source: Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients (2018).
    """

    name: ClassVar[str] = "random_gamma_grad"

    def compute(self, a: NDArray, x: NDArray) -> object:
        return gamma_slopes(a, x)[1]

    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        return _slope(hlo, self.name, a, x, t, True)

    def tangent(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
        if not isinstance(a_dot, Zero):
            raise _second_derivative_error(self)
        bend = ctx.one(SUB, ctx.one(DIV, ctx.one(SUB, a, literal_like(1, a)), x), literal_like(1, a))
        score = ctx.one(SUB, ctx.one(DIGAMMA, a), ctx.one(LOG, x))
        return scale_tangent(ctx, x_dot, ctx.one(SUB, score, ctx.one(MUL, y, bend)))


IGAMMA: Final = Igamma()
IGAMMAC: Final = Igammac()
IGAMMA_GRAD_A: Final = IgammaGradA()
RANDOM_GAMMA_GRAD: Final = RandomGammaGrad()

GAMMA: Final = (Igamma, Igammac, IgammaGradA, RandomGammaGrad)
