"""The incomplete beta function.

XLA has none. It is a density, computed without cancellation as that of the incomplete gamma functions is, over a
continued fraction of positive terms (Didonato and Morris 1992, equation 18, as in Boost's ibeta_fraction2).
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
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG, SUB, scale_tangent
from fxad.primitives.elementwise.exponential import EXP, LOG, LOG1P
from fxad.primitives.elementwise.family import (
    FLOAT_ABOVE_8,
    as_accumulated,
    batch_elementwise,
    literal_like,
    operand_error,
)
from fxad.primitives.elementwise.formula import Formula, Formulas, formula_program, iterate_until_converged
from fxad.primitives.elementwise.gamma import excess, log_gamma_1p, stirling
from fxad.primitives.elementwise.references import scipy_special
from fxad.primitives.elementwise.special import LGAMMA
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import lower_in_float32


@final
@primitive
class RegularizedIncompleteBeta(Primitive):
    """The integral of s^(a-1) (1-s)^(b-1) from 0 to x, over that from 0 to 1.

    Type:   a, b, x: three float operands of one type, not float8; nan unless a >= 0, b >= 0 and 0 <= x <= 1. With a = 0
            or an infinite b the distribution is concentrated at 0, with b = 0 or an infinite a at 1; nan if both hold.
    Rule:   d/dx is the density of the beta distribution; a and b have no derivative.
    Cost:   the number of rounds of the slowest element: about the root of the greater of a and b.
    Source: Didonato and Morris, Algorithm 708 (1992), equation 18.
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
        a, b, x = primals
        for name, t in zip("ab", tangents[:2], strict=True):
            if not isinstance(t, Zero):
                raise NotDifferentiableError(
                    f"{self.name}: the derivative in {name} is not known",
                    remedy="apply stop_gradient to the first two operands",
                )
        one = literal_like(1, a)
        left = ctx.one(MUL, ctx.one(SUB, a, one), ctx.one(LOG, x))
        right = ctx.one(MUL, ctx.one(SUB, b, one), ctx.one(LOG1P, ctx.one(NEG, x)))
        sum_of_logs = ctx.one(ADD, ctx.one(LGAMMA, a), ctx.one(LGAMMA, b))
        scale = ctx.one(SUB, ctx.one(LGAMMA, ctx.one(ADD, a, b)), sum_of_logs)
        slope = ctx.one(EXP, ctx.one(ADD, ctx.one(ADD, left, right), scale))
        return ctx(self, *primals), (scale_tangent(ctx, tangents[2], slope),)


def _lower_wide(hlo: Hlo, args: HloValues, t: Aval) -> HloValue:
    mask = t.with_dtype(dtypes.bool_)
    inside, swapped, *clear = hlo.call(formula_program("beta_start", (t,) * 3, _swap_for_convergence), args)
    (ratio,) = _fraction(hlo, tuple(clear), inside, t)

    def end(f: Formulas) -> Formulas:
        inside, swapped, a, b, x, y, ratio, ga, gb, gx = f
        value = density(a, b, x, y) / ratio
        value = swapped.where(1 - value, value)
        first, last = (ga <= 0) | (gb >= math.inf), (gb <= 0) | (ga >= math.inf)
        valid = (ga >= 0) & (gb >= 0) & (gx >= 0) & (gx <= 1) & ~(first & last)
        there = (gx >= 1) | (first & (gx > 0))
        edge = valid.where(there.where(1, gx.like(0)), gx.like(math.nan))
        return (inside.where(value, edge),)

    types = (mask, mask, *[t] * 8)
    return hlo.call(formula_program("beta_end", types, end), (inside, swapped, *clear, ratio, *args))[0]


def _swap_for_convergence(f: Formulas) -> Formulas:
    """Return a mask where the fraction holds; whether the operands were swapped so that it converges; its a, b, x and 1
    - x."""
    a, b, x = f
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < math.inf) & (b < math.inf)
    a, b, x = inside.where(a, a.like(1)), inside.where(b, a.like(1)), inside.where(x, x.like(0.5))
    swapped = x > (a + 1) / (a + b + 2)
    y = 1 - x
    return (
        inside, swapped, swapped.where(b, a), swapped.where(a, b), swapped.where(y, x), swapped.where(x, y),
    )  # fmt: skip


def _fraction(hlo: Hlo, args: tuple[HloValue, ...], here: HloValue, t: Aval) -> tuple[HloValue, ...]:
    """The continued fraction b0 + a1 / (b1 + a2 / (b2 + ...)), by the method of Lentz. All b are positive."""

    def start(f: Formulas) -> Formulas:
        a, b, x, y = f
        first = _away_from_zero(a * (a * y - b * x + 1) / (a + 1))
        return x.like(0), first, x.like(0), first

    def step(f: Formulas) -> tuple[Formula, Formulas]:
        a, b, x, y, m, c, d, h = f
        m = m + 1
        over = a + 2 * m - 1
        rest = (b - m) * x
        above = (m * (a + m - 1) / over) * ((a + b + m - 1) / over) * rest * x
        below = m + m * rest / over + (a + m) * (a * y - b * x + 1 + m * (1 + y)) / (over + 2)
        d, c = 1 / _away_from_zero(below + above * d), _away_from_zero(below + above / c)
        change = c * d
        return abs(change - 1) > 4 * x.eps, (m, c, d, h * change)

    return iterate_until_converged(hlo, "beta_fraction", here, args, t, start, step, keep=(3,))


def _away_from_zero(x: Formula) -> Formula:
    """x, kept away from 0."""
    tiny = 1e-290 if x.double else 1e-30
    return (abs(x) < tiny).where(tiny, x)


def density(a: Formula, b: Formula, x: Formula, y: Formula) -> Formula:
    """x^a y^b / B(a, b) for y = 1 - x."""
    distance_from_mode = x * b - y * a
    total = a + b
    fall = a * excess(distance_from_mode / a, distance_from_mode / (a + a + distance_from_mode)) + b * excess(
        -distance_from_mode / b, -distance_from_mode / (b + b - distance_from_mode)
    )
    large = (a * b / (total * (2 * math.pi))).sqrt() * (stirling(total) - stirling(a) - stirling(b) - fall).exp()
    log_x, log_y = (y > 0.1).where(x.log(), (-y).log1p()), (x > 0.1).where(y.log(), (-x).log1p())
    small, big = a.least(b), a.greatest(b)
    # log gamma(small + big) - log gamma(big), for a big one by the difference of Stirling's formulas
    ratio = (big - 0.5) * (small / big).log1p() + small * (small + big).log() - small + stirling(total) - stirling(big)
    ratio = (big >= 10).where(ratio, log_gamma_1p(total) - total.log() - log_gamma_1p(big) + big.log())
    mixed = (a * log_x + b * log_y + ratio - log_gamma_1p(small)).exp() * small
    return (small >= 10).where(large, mixed)


REGULARIZED_INCOMPLETE_BETA: Final = RegularizedIncompleteBeta()

BETA: Final = (RegularizedIncompleteBeta,)
