"""The incomplete beta function.

XLA has none. It is a weight, x^a (1-x)^b / B(a, b), computed without cancellation as the density of the incomplete
gamma functions is, over a continued fraction of positive terms (Didonato and Morris 1992, equation 18, as in Boost's
ibeta_fraction2).
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
from fxad.ir import (
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Hlo,
    HloValue,
    HloValues,
    JvpCtx,
    NDArray,
    Primitive,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import scale_tangent
from fxad.primitives.elementwise.family import (
    FLOAT_ABOVE_8,
    as_accumulated,
    batch_elementwise,
    operand_error,
)
from fxad.primitives.elementwise.formula import (
    Formula,
    Formulas,
    formula_program,
    iterate_until_converged,
    x_log1p_y,
    x_log_y,
)
from fxad.primitives.elementwise.gamma import emit_formula, excess, log_gamma_1p, log_gamma_ratio, stirling
from fxad.primitives.elementwise.powers import POW
from fxad.primitives.elementwise.references import scipy_special
from fxad.primitives.elementwise.special import ERFC
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import lower_in_float32


@final
@primitive
class RegularizedIncompleteBeta(Primitive):
    """The integral of s^(a-1) (1-s)^(b-1) from 0 to x, over that from 0 to 1.

    Type:   a, b, x: three float operands of one type, not float8; nan unless a >= 0, b >= 0 and 0 <= x <= 1. With a = 0
            or an infinite b the distribution is concentrated at 0, with b = 0 or an infinite a at 1; nan if both hold.
    Rule:   d/dx is the density of the beta distribution; a and b have no derivative.
    Cost:   the number of rounds of the slowest element: about the root of the lesser of a and b, up to 20,000.
    Source: Didonato and Morris, Algorithm 708 (1992), equation 18; for large a and b DLMF 8.18.9.
    """

    name: ClassVar[str] = "regularized_incomplete_beta"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, b, x = check_count(self, avals, 3)
        if a is not b or a is not x or a.dtype not in self.takes:
            raise operand_error(self, self.takes, a, b, x)
        return (a,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        a, b, x = [as_accumulated(v) for v in args]
        with np.errstate(all="ignore"):
            return (scipy_special("betainc", a, b, x).astype(args[0].dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: _lower_wide(hlo, wide, t))

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return batch_elementwise(self, ctx, args, dims)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        for name, t in zip("ab", tangents[:2], strict=True):
            if not isinstance(t, Zero):
                raise NotDifferentiableError(
                    f"{self.name}: the derivative in {name} is not known",
                    remedy="apply stop_gradient to the first two operands",
                )
        slope = emit_formula(ctx, "beta_pdf", _pdf, *primals)
        return ctx(self, *primals), (scale_tangent(ctx, tangents[2], slope),)


def beta_log_pdf(args: Formulas) -> Formulas:
    """Return log of the density of the beta distribution, x^(a-1) (1-x)^(b-1) / B(a, b).

    The logarithms of its factors nearly cancel near the mode for large a and b: there it is that of `_weight_of_large`.
    Operands of the other formula are replaced by constants, so that it adds no nan to a derivative.
    """
    a, b, x = args
    near_mode = (x * (a + b) > a * 0.5) & ((1 - x) * (a + b) > b * 0.5)
    large = (a >= 10) & (b >= 10) & (x > 0) & (x < 1) & near_mode
    inner = large.where(x, x.like(0.5))
    factor, exponent = _weight_of_large(large.where(a, a.like(10)), large.where(b, b.like(10)), inner, 1 - inner)
    log_of_large = factor.log() + exponent - inner.log() - (1 - inner).log()
    small_a, small_b = large.where(a.like(1), a), large.where(b.like(1), b)
    log_of_small = x_log_y(small_a - 1, x) + x_log1p_y(small_b - 1, -x) - log_beta((small_a, small_b))[0]
    return (large.where(log_of_large, log_of_small),)


def _pdf(args: Formulas) -> Formulas:
    """Return the density of the beta distribution."""
    a, b, x = args
    # at the ends powers, which have all derivatives there; that of exp of a logarithm is 0 times infinity
    at_end = ((x <= 0) & (x >= 0)) | ((x >= 1) & (x <= 1))
    end = at_end.where(x, x.like(0.5))
    powers = end.apply(POW, a - 1) * (1 - end).apply(POW, b - 1)
    inside = beta_log_pdf((a, b, at_end.where(0.5, x)))[0].exp()
    return (at_end.where(powers * (-log_beta((a, b))[0]).exp(), inside),)


def _lower_wide(hlo: Hlo, args: HloValues, t: Aval) -> HloValue:
    mask = t.with_dtype(dtypes.bool_)
    inside, swapped, *clear = hlo.call(formula_program("beta_start", (t,) * 3, _swap_for_convergence), args)
    (ratio,) = _fraction(hlo, tuple(clear), inside, t)
    (few,) = hlo.call(formula_program("beta_few", (mask, t), lambda f: (f[0] & (f[1] < 1),)), (swapped, clear[0]))
    (terms,) = _series_of_rest(hlo, tuple(clear), few, t)

    def end(f: Formulas) -> Formulas:
        inside, swapped, a, b, x, y, ratio, few, terms, given_a, given_b, given_x = f
        value = weight(a, b, x, y) / ratio
        value = swapped.where(1 - value, value)
        value = (few & (value < 0.5)).where(_rest(few.where(a, a.like(0.5)), b, x, terms), value)
        all_at_0 = (given_a <= 0) | (given_b >= math.inf)
        all_at_1 = (given_b <= 0) | (given_a >= math.inf)
        in_domain = (given_a >= 0) & (given_b >= 0) & (given_x >= 0) & (given_x <= 1)
        is_one = (given_x >= 1) | (all_at_0 & (given_x > 0))
        limit = (in_domain & ~(all_at_0 & all_at_1)).where(is_one.where(1, given_x.like(0)), given_x.like(math.nan))
        large = _both_large(given_a, given_b, given_x)
        return (inside.where(value, large.where(_of_large(given_a, given_b, given_x, large), limit)),)

    types = (mask, mask, *[t] * 5, mask, *[t] * 4)
    operands = (inside, swapped, *clear, ratio, few, terms, *args)
    return hlo.call(formula_program("beta_end", types, end), operands)[0]


def _in_domain(a: Formula, b: Formula, x: Formula) -> Formula:
    return (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < math.inf) & (b < math.inf)


_LARGE: Final = 1e10  # of both parameters: from here on, the fraction would need too many rounds near the mode


def _both_large(a: Formula, b: Formula, x: Formula) -> Formula:
    return _in_domain(a, b, x) & (a.least(b) >= _LARGE)


def _of_large(a: Formula, b: Formula, x: Formula, large: Formula) -> Formula:
    """Return the first two terms of the uniform expansion of Temme for large a and b (DLMF 8.18.9).

    With p = a / (a + b) the mode, and z the distance of x from it in standard deviations, to the first order: the
    integral of a normal density up to z, and a correction for the skewness.
    """
    a, b, x = large.where(a, a.like(_LARGE)), large.where(b, a.like(_LARGE)), large.where(x, x.like(0.25))
    y = 1 - x
    p, q = 1 / (b / a + 1), 1 / (a / b + 1)
    mu_a, mu_b = x * (b / a) - y, y * (a / b) - x
    half_square = a * excess(mu_a, mu_a / (mu_a + 2), x / p) + b * excess(mu_b, mu_b / (mu_b + 2), y / q)
    root = half_square.greatest(0).sqrt()
    root = (mu_a < 0).where(-root, root)
    at_mode = abs(root) < 0.07
    away = at_mode.where(root.like(1), root)
    linear = at_mode.where(root.like(1), mu_a * (a / q).sqrt())
    skewness = at_mode.where((q - p) / (3 * (a * q).sqrt()), math.sqrt(0.5) / away - 1 / linear)
    return (-root).apply(ERFC) * 0.5 + (-half_square).exp() * skewness * math.sqrt(0.5 / math.pi)


def _swap_for_convergence(f: Formulas) -> Formulas:
    """Return the mask of the elements that the fraction computes, the mask of those whose operands are swapped so that
    it converges, and the operands of the fraction: a, b, x and 1 - x."""
    a, b, x = f
    inside = _in_domain(a, b, x) & ~_both_large(a, b, x)
    a, b, x = inside.where(a, a.like(1)), inside.where(b, a.like(1)), inside.where(x, x.like(0.5))
    y = 1 - x
    # beyond `huge` the squares of the larger operand overflow: the function depends on its product with x or y only
    huge = 1e140 if x.double else 1e17
    limit_b, limit_a = (x * (b / huge)).least(0.5), (y * (a / huge)).least(0.5)
    x, y = (
        (b > huge).where(limit_b, (a > huge).where(1 - limit_a, x)),
        (b > huge).where(1 - limit_b, (a > huge).where(limit_a, y)),
    )
    a, b = a.least(huge), b.least(huge)
    swapped = x > (a + 1) / (a + b + 2)
    return (
        inside, swapped, swapped.where(b, a), swapped.where(a, b), swapped.where(y, x), swapped.where(x, y),
    )  # fmt: skip


def _fraction(hlo: Hlo, args: tuple[HloValue, ...], mask: HloValue, t: Aval) -> tuple[HloValue, ...]:
    """Return the continued fraction beta_0 + alpha_1 / (beta_1 + alpha_2 / (beta_2 + ...)) where `mask` holds, by the
    method of Lentz. All beta are positive."""

    def start(f: Formulas) -> Formulas:
        a, b, x, y = f
        beta_0 = _at_least_tiny(a * (a * y - b * x + 1) / (a + 1))
        return beta_0, x.like(0), beta_0, x.like(0)

    def step(f: Formulas) -> tuple[Formula, Formulas]:
        a, b, x, y, value, m, c, d = f
        m = m + 1
        odd = a + 2 * m - 1
        rest = (b - m) * x
        alpha = (m * (a + (m - 1)) / odd) * ((a + b + m - 1) / odd) * rest * x
        beta = m + m * rest / odd + (a + m) * (a * y - b * x + 1 + m * (1 + y)) / (odd + 2)
        d, c = 1 / _at_least_tiny(beta + alpha * d), _at_least_tiny(beta + alpha / c)
        change = c * d
        return abs(change - 1) > 4 * x.eps, (value * change, m, c, d)

    return iterate_until_converged(hlo, "beta_fraction", mask, args, t, start, step, n_results=1)


def _series_of_rest(hlo: Hlo, args: tuple[HloValue, ...], mask: HloValue, t: Aval) -> tuple[HloValue, ...]:
    """Return the sum of (1 - b) (2 - b) ... (n - b) / n! * x^n / (a + n) for n >= 1, where `mask` holds."""

    def step(f: Formulas) -> tuple[Formula, Formulas]:
        a, b, x, _, total, n, product = f
        n = n + 1
        product = product * (n - b) / n * x
        term = product / (a + n)
        return abs(term) > abs(total) * x.eps, (total + term, n, product)

    def start(f: Formulas) -> Formulas:
        x = f[2]
        return x.like(0), x.like(0), x.like(1)

    return iterate_until_converged(hlo, "beta_series", mask, args, t, start, step, n_results=1)


def _rest(a: Formula, b: Formula, x: Formula, terms: Formula) -> Formula:
    """Return 1 - I_x(a, b) for a < 1, where it may be small: in proportion to a.

    I_x(a, b) = w (1 + a * terms) with w = x^a gamma(a + b) / (gamma(a + 1) gamma(b)), which is close to 1 for a small
    a (DLMF 8.17.7). log w is computed with the digits of a: gamma(a + b) / gamma(b) from that of b + 10.
    """
    rising = a.like(0)  # the product of (1 + a / (b + k)) for k < 10, less 1
    for k in range(10):
        quotient = a / (b + k)
        rising = rising + quotient + rising * quotient
    log_w = a * x.log() + (log_gamma_ratio(b + 10, a) - rising.log1p()) - log_gamma_1p(a)
    return -log_w.expm1() - log_w.exp() * a * terms


def _at_least_tiny(x: Formula) -> Formula:
    """Return x, or a tiny number where x is 0 or nearly so: it will be a divisor."""
    tiny = 1e-290 if x.double else 1e-30
    return (abs(x) < tiny).where(tiny, x)


def weight(a: Formula, b: Formula, x: Formula, y: Formula) -> Formula:
    """Return x^a y^b / B(a, b) for y = 1 - x."""
    smaller, larger = a.least(b), a.greatest(b)
    both_large = smaller >= 10
    large_a, large_b = both_large.where(a, a.like(10)), both_large.where(b, b.like(10))
    factor, exponent = _weight_of_large(
        large_a, large_b, both_large.where(x, x.like(0.5)), both_large.where(y, y.like(0.5))
    )
    total = a + b
    small_value = log_gamma_1p(total) - total.log() - log_gamma_1p(larger) + larger.log()
    log_ratio = (larger >= 10).where(log_gamma_ratio(larger, smaller), small_value)
    log_powers = a * _log_of_rest(x, y) + b * _log_of_rest(y, x)
    exponent = both_large.where(exponent, log_powers + log_ratio - log_gamma_1p(smaller))
    return both_large.where(factor, smaller) * exponent.exp()


def _weight_of_large(a: Formula, b: Formula, x: Formula, y: Formula) -> tuple[Formula, Formula]:
    """Return a factor and an exponent: x^a y^b / B(a, b) = factor * exp(exponent), for a and b of 10 and more, and
    y = 1 - x. By Stirling's formula, from the distance to the mode."""
    total, distance = a + b, x * b - y * a
    fall_a = excess(distance / a, distance / (a + a + distance), x * total / a)
    fall_b = excess(-distance / b, -distance / (b + b - distance), y * total / b)
    corrections = stirling(total) - stirling(a) - stirling(b)
    return (a * b / (total * (2 * math.pi))).sqrt(), corrections - a * fall_a - b * fall_b


def log_beta(args: Formulas) -> Formulas:
    """Return log |B(a, b)|, without the cancellation of log gamma(a) + log gamma(b) - log gamma(a + b) for a large
    operand.

    Each formula gets constants where another one holds, so that it adds no nan to a derivative.
    """
    a, b = args
    # if they are equal, each has the derivative of one of the two; a minimum would have the average of both
    ordered = a <= b
    smaller, larger = ordered.where(a, b), ordered.where(b, a)
    mixed = (smaller > 0) & (smaller < 10) & (larger >= 10) & (larger < math.inf)
    both_large = (smaller >= 10) & (larger < math.inf)
    s, t = both_large.where(smaller, a.like(10)), both_large.where(larger, a.like(10))
    log_powers = (s - 0.5) * (s / (s + t)).log() - (t - 0.5) * (s / t).log1p() - (s + t).log() * 0.5
    of_large = log_powers + 0.5 * math.log(2 * math.pi) + (stirling(s) + stirling(t) - stirling(s + t))
    s, t = mixed.where(smaller, a.like(1)), mixed.where(larger, a.like(10))
    log_ratio = log_gamma_ratio(t, s)
    at_zero = (smaller >= 0) & (smaller <= 0) & (larger < math.inf)
    s = (both_large | at_zero).where(a.like(1), smaller)
    t = (mixed | both_large).where(a.like(1), larger)
    others = s.lgamma() + mixed.where(-log_ratio, t.lgamma() - (s + t).lgamma())
    at_infinity = (smaller > 0) & (larger >= math.inf)
    # -log x has the value and the slope of the pole
    pole = -at_zero.where(smaller, a.like(1)).log()
    limit = at_zero.where(pole, at_infinity.where(-math.inf, others))
    return (both_large.where(of_large, limit),)


def _log_of_rest(x: Formula, y: Formula) -> Formula:
    """Return log x, from y = 1 - x if that is small."""
    small = y <= 0.1
    return small.where((-small.where(y, y.like(0))).log1p(), x.log())


REGULARIZED_INCOMPLETE_BETA: Final = RegularizedIncompleteBeta()

BETA: Final = (RegularizedIncompleteBeta,)
