"""The incomplete gamma functions, their derivatives in `a`, and the derivative of a gamma sample.

XLA has none of them. The point (a, x) selects an expansion (Cephes, igam.c):

    a >= 1e6 and |x - a| < a / 20   Temme's expansion, which is uniform in x near a
    x > a, beyond about 1           the continued fraction of the upper function
    a and x of about 1 and less     the series of the upper function; for `igammac` only
    elsewhere                       the power series of the lower function

The series and the fraction are factored by the density x^a exp(-x) / gamma(a + 1), which is computed without
cancellation (Loader 2000). The derivatives in `a` follow the series and the fraction term by term (Figurnov, Mohamed
and Mnih 2018). Near x = a the series and the fraction need about 9 sqrt(a) terms, so a large `a` needs Temme's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Final, final

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
from fxad.ir import (
    Atom,
    Aval,
    Avals,
    Emit,
    Hlo,
    HloValue,
    HloValues,
    JvpCtx,
    NDArray,
    Tangent,
    Zero,
    primitive,
)
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.family import FLOAT_ABOVE_8, Binary, literal_like
from fxad.primitives.elementwise.formula import (
    Formula,
    FormulaFunction,
    Formulas,
    formula_program,
    iterate_until_converged,
    polynomial,
    x_log_y,
)
from fxad.primitives.elementwise.powers import POW
from fxad.primitives.elementwise.references import gamma_slopes, scipy_special
from fxad.primitives.elementwise.special import ERFC, EULER, LGAM1P
from fxad.primitives.stablehlo import lower_in_float32

# ---------------------------------------------------------------------------------------------------- the density

# log(1 + mu) = 2 atanh(mu / (2 + mu)): the odd powers after the first, highest first
_ATANH: Final = tuple([1 / (2 * k + 3) for k in reversed(range(18))])
# log gamma(a + 1) less Stirling's formula, in powers of 1 / a^2, highest first (Abramowitz & Stegun 6.1.41)
_STIRLING: Final = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
# log a - digamma(a) less 1 / 2a, divided by 1 / a^2, in powers of 1 / a^2, highest first (6.3.18)
_DIGAMMA: Final = (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


def log_gamma_1p(a: Formula) -> Formula:
    """Return log gamma(1 + a) with all digits for a < 1.5."""
    more = a > 0.5
    b = more.where(a - 1, a)
    near = b * ((1 - EULER) + b * polynomial(b, LGAM1P)) - more.where(0, a).log1p()
    return (a < 1.5).where(near, (a + 1).lgamma())


def excess(mu: Formula, v: Formula, ratio: Formula) -> Formula:
    """Return mu - log(1 + mu), for v = mu / (2 + mu) and ratio = 1 + mu, with all digits near mu = 0 and near ratio =
    0."""
    near = mu * v - 2 * v * v * v * polynomial(v * v, _ATANH)
    return (abs(mu) < 0.5).where(near, mu - ratio.log())


def stirling(a: Formula) -> Formula:
    """Return log gamma(a) less (a - 1/2) log a - a + log(2 pi) / 2, for a >= 10."""
    inverse = 1 / a
    return polynomial(inverse * inverse, _STIRLING) * inverse


def log_gamma_ratio(a: Formula, b: Formula) -> Formula:
    """Return log gamma(a + b) - log gamma(a), without cancellation, for a >= 10 and a + b >= 10."""
    total = a + b
    return (a - 0.5) * (b / a).log1p() + b * total.log() - b + _stirling_difference(a, b, total)


def _stirling_difference(a: Formula, b: Formula, total: Formula) -> Formula:
    """Return stirling(total) - stirling(a) for total = a + b, in proportion to b where it is small.

    With p the polynomial and u, v the inverses of total and a: (u - v) p(u^2) + v (p(u^2) - p(v^2)). The second
    difference is divided by u^2 - v^2 with the polynomial, as Horner's rule goes on.
    """
    u, v = 1 / total, 1 / a
    top, *rest = _STIRLING
    value, quotient = a.like(top), a.like(0)
    for c in rest:
        quotient = quotient * (v * v) + value
        value = value * (u * u) + c
    return -(b * u * v) * (value + v * (u + v) * quotient)


def density(a: Formula, x: Formula) -> Formula:
    """Return x^a exp(-x) / gamma(a + 1), for a > 0 and x > 0."""
    phi = excess((x - a) / a, (x - a) / (x + a), x / a)
    large = (-a * phi - stirling(a)).exp() * (a * (2 * math.pi)).rsqrt()
    small = (a * x.log() - x - log_gamma_1p(a)).exp()
    return (a >= 10).where(large, small)


# --------------------------------------------------------------------------------------- the series and the fraction


def series(
    hlo: Hlo, a: HloValue, x: HloValue, mask: HloValue, t: Aval, *, with_slope: bool = False
) -> tuple[HloValue, ...]:
    """Return the sum of x^n / ((a + 1) ... (a + n)) where `mask` holds; and, `with_slope`, its derivative in a.

    igamma(2, 1) is this sum, 1 + 1/3 + 1/12 + 1/60 + ... = 1.4366, times the density 1^2 exp(-1) / 2! = 0.1839.
    """

    def start(args: Formulas) -> Formulas:
        a, _ = args
        one, zero = a.like(1), a.like(0)
        return (one, zero, a, one, zero) if with_slope else (one, a, one)

    def step(state: Formulas) -> tuple[Formula, Formulas]:
        if not with_slope:
            _, x, total, divisor, term = state
            divisor = divisor + 1
            term = term * (x / divisor)
            return term > total * total.eps, (total + term, divisor, term)
        _, x, total, dtotal, divisor, term, dterm = state
        divisor = divisor + 1
        ratio = x / divisor
        dterm = dterm * ratio - term * ratio / divisor
        term, dtotal = term * ratio, dtotal + dterm
        goes_on = (abs(dterm) > abs(dtotal) * term.eps) | (term > total * term.eps)
        return goes_on, (total + term, dtotal, divisor, term, dterm)

    return iterate_until_converged(hlo, "gamma_series", mask, (a, x), t, start, step, n_results=1 + with_slope)


def fraction(
    hlo: Hlo, a: HloValue, x: HloValue, mask: HloValue, t: Aval, *, with_slope: bool = False
) -> tuple[HloValue, ...]:
    """Return the continued fraction of the upper function over its density times a, where `mask` holds (Abramowitz &
    Stegun 6.5.31); and, `with_slope`, its derivative in a.

    The convergents are p / q. A step needs the last two: (p1, q1) and, before them, (p2, q2). All four are scaled down
    together before they overflow. The names beginning with d are derivatives in a.
    """

    def start(args: Formulas) -> Formulas:
        a, x = args
        y, one, zero = 1 - a, a.like(1), a.like(0)
        z = x + y + 1
        p, q = x + 1, z * x
        ratio = p / q
        values = (zero, y, z, one, x, p, q)  # count, y, z, p2, q2, p1, q1
        return (ratio, ratio * x / q, *values, zero, zero, zero, -x) if with_slope else (ratio, *values)

    def step(state: Formulas) -> tuple[Formula, Formulas]:
        _, _, *results = state[: 3 + with_slope]
        count, y, z, p2, q2, p1, q1, *slopes = state[3 + with_slope :]
        ratio = results[0]
        count, y, z = count + 1, y + 1, z + 2
        yc = y * count
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        new = (abs(q) > 0).where(p / q, ratio)
        goes_on = abs(new - ratio) > abs(new) * (2 * ratio.eps)
        scale = (abs(p) > 1 / ratio.eps).where(ratio.eps, ratio.like(1))
        values = (count, y, z, p1 * scale, q1 * scale, p * scale, q * scale)
        if not with_slope:
            return goes_on, (new, *values)
        dratio = results[1]
        dp2, dq2, dp1, dq1 = slopes
        dp = dp1 * z - p1 - dp2 * yc + p2 * count
        dq = dq1 * z - q1 - dq2 * yc + q2 * count
        dnew = (abs(q) > 0).where((dp - new * dq) / q, dratio)
        goes_on = goes_on | (abs(dnew - dratio) > (abs(dnew) + abs(new)) * (2 * ratio.eps))
        return goes_on, (new, dnew, *values, dp1 * scale, dq1 * scale, dp * scale, dq * scale)

    return iterate_until_converged(hlo, "gamma_fraction", mask, (a, x), t, start, step, n_results=1 + with_slope)


_SMALL_TERMS: Final = 22


def _upper_small(a: Formula, x: Formula) -> Formula:
    """Return the upper function for a and x of about 1 and less, with all digits where it is small itself."""
    total, term = x.like(0), x.like(1)
    for n in range(1, _SMALL_TERMS):
        term = term * x * (-1 / n)
        total = total + term / (a + n)
    log = a * x.log() - log_gamma_1p(a)
    return -log.expm1() - log.exp() * a * total


# ------------------------------------------------------------------------------------------------ Temme's expansion

# With mu = (x - a) / a and eta^2 / 2 = mu - log(1 + mu), eta of the sign of mu: mu / eta in powers of eta, highest
# first, and the coefficients of a^0, a^-1, a^-2 (c_0, c_1, c_2 of DLMF 8.12.7) in powers of eta, highest first
_MU_OVER_ETA: Final = (
    -281 / 1515591000, -571 / 2351462400, 1 / 204120, -139 / 5443200, 1 / 17010, 1 / 4320, -1 / 270, 1 / 36, 1 / 3, 1,
)  # fmt: skip
_TEMME: Final = (
    (163879 / 197522841600, -281 / 151559100, -571 / 261273600, 1 / 25515, -139 / 777600, 1 / 2835, 1 / 864, -2 / 135,
     1 / 12, -1 / 3),
    (-1 / 2488320, 1 / 4860, -77 / 77760, 1 / 378, -1 / 288, -1 / 540),
    (1 / 1296, -139 / 51840, 25 / 6048),
)  # fmt: skip
_TEMME_LEAST_A: Final = 1e6
_TEMME_WIDTH: Final = 0.05  # the greatest |mu|: beyond it the tail is below the smallest float


def _near_mode(a: Formula, x: Formula) -> Formula:
    """Return the mask of the elements that Temme's expansion computes."""
    return (a >= _TEMME_LEAST_A) & (abs(x - a) < a * _TEMME_WIDTH)


def _temme_operands(a: Formula, x: Formula) -> tuple[Formula, Formula, Formula, Formula]:
    """Return a, mu, eta^2 / 2 and eta, for elements not near the mode those of a = x."""
    near = _near_mode(a, x)
    a = near.where(a, a.like(_TEMME_LEAST_A))
    mu = near.where((x - a) / a, x.like(0))
    half_square = excess(mu, mu / (mu + 2), mu + 1).greatest(0)
    eta = (half_square + half_square).sqrt()
    return a, mu, half_square, (mu < 0).where(-eta, eta)


def _temme_sum(a: Formula, eta: Formula) -> Formula:
    c0, c1, c2 = [polynomial(eta, c) for c in _TEMME]
    return c0 + (c1 + c2 / a) / a


def _temme(a: Formula, x: Formula, *, upper: bool) -> Formula:
    """Return the lower or the upper function near the mode (Temme 1979; DLMF 8.12.3 and 8.12.4)."""
    a, _, half_square, eta = _temme_operands(a, x)
    correction = (-a * half_square).exp() * (a * (2 * math.pi)).rsqrt() * _temme_sum(a, eta)
    argument = eta * (a * 0.5).sqrt()
    if upper:
        return argument.apply(ERFC) * 0.5 + correction
    return (-argument).apply(ERFC) * 0.5 - correction


def _temme_slope(a: Formula, x: Formula, *, sample: bool) -> Formula:
    """Return d igamma / da near the mode; or, for `sample`, minus that over d igamma / dx.

    With S the sum of c_k(eta) a^-k, and d eta / da = -mu / (a eta): d igamma / da is exp(-a eta^2 / 2) / sqrt(2 pi a)
    times eta / 2 - mu / eta + S (eta^2 / 2 + 1 / 2a - mu) - dS/da + (mu / eta) dS/deta / a.
    """
    a, mu, half_square, eta = _temme_operands(a, x)
    _, c1, c2 = [polynomial(eta, c) for c in _TEMME]
    d0, d1, d2 = [polynomial(eta, _derivative(c)) for c in _TEMME]
    in_a, in_eta = -(c1 + 2 * c2 / a) / (a * a), d0 + (d1 + d2 / a) / a
    mu_over_eta = polynomial(eta, _MU_OVER_ETA)
    inner = _temme_sum(a, eta) * (half_square + 0.5 / a - mu) - in_a + mu_over_eta * in_eta / a
    factor = eta * 0.5 - mu_over_eta + inner
    if sample:
        return -factor * stirling(a).exp() * (mu + 1)
    return factor * (-a * half_square).exp() * (a * (2 * math.pi)).rsqrt()


def _derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """Return the derivative of a polynomial, the highest power first."""
    n = len(coefficients) - 1
    return tuple([c * (n - k) for k, c in enumerate(coefficients[:-1])])


# ------------------------------------------------------------------------------------------ the choice of an expansion


def _replace_outside(a: Formula, x: Formula) -> tuple[Formula, Formula, Formula]:
    """Return the mask of the elements that the series and the fraction compute; and a and x there, 1 elsewhere."""
    large = 1e150 if x.double else 1e15  # beyond this the result is 0 or 1, and the expansions would overflow
    inside = (a > 0) & (x > 0) & (a < large) & (x < large) & ~_near_mode(a, x)
    return inside, inside.where(a, a.like(1)), inside.where(x, x.like(1))


def _above_mode(a: Formula, x: Formula) -> Formula:
    """Return the mask of the elements for which the fraction converges faster than the series."""
    return (x > 1) & (x > a)


def _split_lower(args: Formulas) -> Formulas:
    """Return a and x, replaced where no loop computes the element, and the masks of the series and of the fraction."""
    inside, a, x = _replace_outside(*args)
    above = _above_mode(a, x)
    return a, x, inside & ~above, inside & above


def _split_upper(args: Formulas) -> Formulas:
    """Return the results of `_split_lower` for the upper function, then the mask of the series for small operands."""
    inside, a, x = _replace_outside(*args)
    above = (x > 1.1) & (x >= a)
    bound = (x <= 0.5).where(-0.4 / x.log(), x * 1.1)
    small = (x <= 1.1) & (a <= bound)
    return a, x, inside & ~above & ~small, inside & above, inside & small


# ------------------------------------------------------------------------------------------------------- primitives


class Incomplete(Binary):
    """The base class of the incomplete gamma functions."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    @abstractmethod
    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        """Return the function in StableHLO, for floats of at least 32 bits."""

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: self.lower_wide(hlo, wide[0], wide[1], t))


def _elsewhere(a: Formula, x: Formula, inside: Formula, value: Formula, *, upper: bool) -> Formula:
    """Return `value` inside, Temme's expansion near the mode, and the limits of the function where neither holds."""
    at_zero = 1 if upper else 0  # the value at x = 0; at infinity it is 1 - at_zero
    limit = (x > a).where(1 - at_zero, x.like(at_zero))
    limit = ((a >= 0) & (x > 0)).where(limit, x.like(math.nan))
    limit = ((a > 0) & (x >= 0) & (x <= 0)).where(at_zero, limit)
    both_infinite = (a >= math.inf) & (x >= math.inf)
    limit = both_infinite.where(math.nan, limit)
    return inside.where(value, _near_mode(a, x).where(_temme(a, x, upper=upper), limit))


@final
@primitive
class Igamma(Incomplete):
    """The regularized lower incomplete gamma function: the integral of s^(a-1) exp(-s) from 0 to x, over gamma(a).

    Type:   a, x: two float operands of one type, not float8; nan where a < 0 or x < 0.
    Rule:   d/dx is the density of the gamma distribution; d/da is igamma_grad_a.
    Cost:   as many rounds as the slowest element needs: about 9 sqrt(a) near x = a, up to 9,000; some dozens elsewhere.
    Source: Cephes, igam.c; Abramowitz & Stegun 6.5.29 and 6.5.31; for large a DLMF 8.12.
    """

    name: ClassVar[str] = "igamma"

    def compute(self, a: NDArray, x: NDArray) -> object:
        return scipy_special("gammainc", a, x)

    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        start = formula_program("igamma_start", (t, t), _split_lower)
        clear_a, clear_x, by_series, by_fraction = hlo.call(start, (a, x))
        (total,) = series(hlo, clear_a, clear_x, by_series, t)
        (ratio,) = fraction(hlo, clear_a, clear_x, by_fraction, t)

        def end(args: Formulas) -> Formulas:
            a, x, total, ratio = args
            inside, clear_a, clear_x = _replace_outside(a, x)
            weight = density(clear_a, clear_x)
            value = _above_mode(clear_a, clear_x).where(1 - ratio * weight * clear_a, total * weight)
            return (_elsewhere(a, x, inside, value, upper=False),)

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
    Source: Cephes, igam.c; Abramowitz & Stegun 6.5.31; for small operands scipy's igamc_series; for large a DLMF 8.12.
    """

    name: ClassVar[str] = "igammac"

    def compute(self, a: NDArray, x: NDArray) -> object:
        return scipy_special("gammaincc", a, x)

    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        start = formula_program("igammac_start", (t, t), _split_upper)
        clear_a, clear_x, by_series, by_fraction, small = hlo.call(start, (a, x))
        (total,) = series(hlo, clear_a, clear_x, by_series, t)
        (ratio,) = fraction(hlo, clear_a, clear_x, by_fraction, t)

        def end(args: Formulas) -> Formulas:
            a, x, total, ratio, by_fraction, small = args
            inside, clear_a, clear_x = _replace_outside(a, x)
            weight = density(clear_a, clear_x)
            value = by_fraction.where(ratio * weight * clear_a, 1 - total * weight)
            value = small.where(_upper_small(clear_a, clear_x), value)
            return (_elsewhere(a, x, inside, value, upper=True),)

        mask = t.with_dtype(dtypes.bool_)
        end_program = formula_program("igammac_end", (t, t, t, t, mask, mask), end)
        return hlo.call(end_program, (a, x, total, ratio, by_fraction, small))[0]

    def tangent(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
        slope = _igamma_tangent(ctx, a, x, a_dot, x_dot)
        return slope if isinstance(slope, Zero) else ctx.lin_one(NEG, slope)


def gamma_log_pdf(args: Formulas) -> Formulas:
    """Return log of the density of the gamma distribution, x^(a-1) exp(-x) / gamma(a).

    The terms (a - 1) log x, x and log gamma(a) nearly cancel for a large a, and x near it: there the logarithm is that
    of `density`. Operands of the other formula are replaced by 10, so that it adds no nan to a derivative.
    """
    a, x = args
    large = (a >= 10) & (x > a * 0.5) & (x < a * 2)
    big_a, big_x = large.where(a, a.like(10)), large.where(x, x.like(10))
    phi = excess((big_x - big_a) / big_a, (big_x - big_a) / (big_x + big_a), big_x / big_a)
    log_of_large = (big_a / (2 * math.pi)).log() * 0.5 - big_x.log() - big_a * phi - stirling(big_a)
    small_a = large.where(a.like(10), a)
    log_of_small = x_log_y(small_a - 1, x) - x - small_a.lgamma()
    return (large.where(log_of_large, log_of_small),)


def _pdf(args: Formulas) -> Formulas:
    """Return the density of the gamma distribution, d igamma / dx; 0 where an operand is infinite."""
    a, x = args
    infinite = ((a >= math.inf) & (x >= 0)) | ((x >= math.inf) & (a >= 0))
    a, x = infinite.where(1, a), infinite.where(1, x)
    # at 0 a power, which has all derivatives there; that of exp of its logarithm is 0 times infinity
    at_zero = (x <= 0) & (x >= 0)
    power = at_zero.where(x, x.like(1)).apply(POW, a - 1) * (-x - a.lgamma()).exp()
    inside = gamma_log_pdf((a, at_zero.where(1, x)))[0].exp()
    return (infinite.where(0, at_zero.where(power, inside)),)


def _pdf_times_score(args: Formulas) -> Formulas:
    """Return the derivative of the density of the gamma distribution in a; 0 where an operand is infinite."""
    a, x = args
    infinite = ((a >= math.inf) & (x >= 0)) | ((x >= math.inf) & (a >= 0))
    vanishes = infinite | ((x <= 0) & (x >= 0) & (a > 1))
    a, x = vanishes.where(1, a), vanishes.where(1, x)
    return (vanishes.where(0, _pdf((a, x))[0] * _score(a, x)),)


def emit_formula(emit: Emit, name: str, body: FormulaFunction, *operands: Atom) -> Atom:
    """Emit a call of a formula of operands of one type; floats below 32 bits are computed in float32."""
    aval = operands[0].aval
    wide = dtypes.accumulated(aval.dtype)
    program = formula_program(name, (aval.with_dtype(wide),) * len(operands), body)
    value = emit.one(Call(program), *[emit_convert(emit, x, wide) for x in operands])
    return emit_convert(emit, value, aval.dtype)


def _igamma_tangent(ctx: JvpCtx, a: Atom, x: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
    """Return the tangent of igamma."""
    in_a: Tangent = Zero(a.aval)
    in_x: Tangent = Zero(x.aval)
    if not isinstance(a_dot, Zero):
        in_a = scale_tangent(ctx, a_dot, ctx.one(IGAMMA_GRAD_A, a, x))
    if not isinstance(x_dot, Zero):
        in_x = scale_tangent(ctx, x_dot, emit_formula(ctx, "gamma_pdf", _pdf, a, x))
    return ctx.add(in_a, in_x)


def _score(a: Formula, x: Formula) -> Formula:
    """Return log x - digamma(a)."""
    large = a >= 10
    big = large.where(a, a.like(10))
    inverse = 1 / big
    square = inverse * inverse
    # log a - digamma(a), Abramowitz & Stegun 6.3.18
    less = inverse * 0.5 + square * polynomial(square, _DIGAMMA)
    small = large.where(a.like(10), a)
    return large.where(((x - big) / big).log1p() + less, x.log() - (small + 1).digamma() + 1 / small)


def _slope(hlo: Hlo, name: str, a: HloValue, x: HloValue, t: Aval, *, of_sample: bool) -> HloValue:
    """Return d igamma / da; or, for a sample, minus that over d igamma / dx."""
    clear_a, clear_x, by_series, by_fraction = hlo.call(formula_program(f"{name}_start", (t, t), _split_lower), (a, x))
    total, dtotal = series(hlo, clear_a, clear_x, by_series, t, with_slope=True)
    ratio, dratio = fraction(hlo, clear_a, clear_x, by_fraction, t, with_slope=True)

    def end(args: Formulas) -> Formulas:
        a, x, total, dtotal, ratio, dratio = args
        inside, clear_a, clear_x = _replace_outside(a, x)
        above = _above_mode(clear_a, clear_x)
        score = _score(clear_a, clear_x)
        lower, upper = dtotal + total * (score - 1 / clear_a), dratio + ratio * score
        if of_sample:
            value = above.where(upper * clear_x, -lower * clear_x / clear_a)
            zero = (a > 0) & (x >= 0) & (x <= 0)
        else:
            weight = density(clear_a, clear_x)
            value = above.where(-upper * weight * clear_a, lower * weight)
            zero = (a > 0) & (x >= 0) & ~inside
        limit = _near_mode(a, x).where(_temme_slope(a, x, sample=of_sample), zero.where(0, x.like(math.nan)))
        return (inside.where(value, limit),)

    return hlo.call(formula_program(f"{name}_end", (t,) * 6, end), (a, x, total, dtotal, ratio, dratio))[0]


class SlopeInShape(Incomplete):
    """A derivative in the shape parameter a. It has a derivative in x; the second derivative in a is refused."""

    __slots__ = ()

    of_sample: ClassVar[bool]

    @final
    def compute(self, a: NDArray, x: NDArray) -> object:
        return gamma_slopes(a, x)[self.of_sample]

    @final
    def lower_wide(self, hlo: Hlo, a: HloValue, x: HloValue, t: Aval) -> HloValue:
        return _slope(hlo, self.name, a, x, t, of_sample=self.of_sample)

    @abstractmethod
    def slope_in_x(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom) -> Atom:
        """Return the derivative in x of the result y."""

    @final
    def tangent(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
        if not isinstance(a_dot, Zero):
            raise NotDifferentiableError(
                f"{self.name}: the second derivative in the shape parameter a is not known",
                remedy="apply stop_gradient to the first operand",
            )
        return scale_tangent(ctx, x_dot, self.slope_in_x(ctx, a, x, y))


@final
@primitive
class IgammaGradA(SlopeInShape):
    """The derivative of igamma(a, x) in a.

    Type:   a, x: two float operands of one type, not float8; nan where a <= 0 or x < 0.
    Rule:   d/dx = d igamma/dx (log x - digamma(a)); the second derivative in a is refused.
    Cost:   as igamma, three times the work in a round.
    Source: Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients (2018).
    """

    name: ClassVar[str] = "igamma_grad_a"
    of_sample: ClassVar[bool] = False

    def slope_in_x(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom) -> Atom:
        return emit_formula(ctx, "gamma_pdf_times_score", _pdf_times_score, a, x)


@final
@primitive
class RandomGammaGrad(SlopeInShape):
    """The derivative in a of a sample x of the gamma distribution of shape a, at a fixed quantile:
    -(d igamma/da) / (d igamma/dx).

    Type:   a, x: two float operands of one type, not float8; nan where a <= 0 or x < 0.
    Rule:   d/dx = digamma(a) - log x - y ((a - 1) / x - 1) for the result y; the second derivative in a is refused.
    Cost:   as igamma_grad_a.
    Source: Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients (2018).
    """

    name: ClassVar[str] = "random_gamma_grad"
    of_sample: ClassVar[bool] = True

    def slope_in_x(self, ctx: JvpCtx, a: Atom, x: Atom, y: Atom) -> Atom:
        bend = ctx.one(SUB, ctx.one(DIV, ctx.one(SUB, a, literal_like(1, a)), x), literal_like(1, a))
        score = emit_formula(ctx, "gamma_score", lambda f: (_score(*f),), a, x)
        return ctx.one(NEG, ctx.one(ADD, score, ctx.one(MUL, y, bend)))


IGAMMA: Final = Igamma()
IGAMMAC: Final = Igammac()
IGAMMA_GRAD_A: Final = IgammaGradA()
RANDOM_GAMMA_GRAD: Final = RandomGammaGrad()

GAMMA: Final = (Igamma, Igammac, IgammaGradA, RandomGammaGrad)
