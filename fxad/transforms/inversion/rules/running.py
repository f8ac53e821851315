"""Inverses of running totals, and of Fourier transforms.

An element is recovered from a running total and the previous one. Digits lost to rounding in a sum cannot be recovered:
an element that is small compared with the total so far is reconstructed as 0.
"""

from __future__ import annotations

import math
from typing import Final

from fxad.ir import Atom, Hole, Lit, Mask
from fxad.primitives.cumulative import (
    CumLogSumExp,
    CumProd,
    CumSum,
    Cumulative,
    LinearRecurrence,
    predecessors,
    subtract_or_zero,
    without_first_factor,
)
from fxad.primitives.elementwise.arithmetic import MUL, SUB
from fxad.primitives.elementwise.formula import Formula
from fxad.primitives.fft import Fft
from fxad.transforms.inversion.rules.arithmetic import finite_quotient, why_not_divided
from fxad.transforms.inversion.rules.contract import (
    VOLUME,
    Args,
    InverseCtx,
    InverseRow,
    Outs,
    Refused,
    Solved,
    row,
)
from fxad.transforms.inversion.rules.totals import constant, log_sizes, total


def _totals_before(ctx: InverseCtx, prim: Cumulative, outs: Outs) -> Atom:
    """Return for each running total the one before it; for the first one, the total of nothing."""
    (y,) = outs
    return predecessors(ctx, y, prim.axis, prim.reverse, prim.identity(y.aval.dtype))


def _cumsum(ctx: InverseCtx, prim: CumSum, args: Args, outs: Outs) -> Solved:
    return (ctx.one(SUB, outs[0], _totals_before(ctx, prim, outs)),)


def _cumprod(ctx: InverseCtx, prim: CumProd, args: Args, outs: Outs) -> Solved | Refused:
    if why := why_not_divided(outs[0]):
        return Refused(why)
    return (finite_quotient(ctx, outs[0], _totals_before(ctx, prim, outs)),)


def _cumprod_log_det(ctx: InverseCtx, prim: CumProd, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    return total(ctx, log_sizes(ctx, _totals_before(ctx, prim, outs)))


def _cumlogsumexp(ctx: InverseCtx, prim: CumLogSumExp, args: Args, outs: Outs) -> Solved:
    """Use log(exp y[i] - exp y[i - 1]) = y[i] + log(-expm1(y[i - 1] - y[i]))."""
    (y,) = outs
    below = Formula(ctx, subtract_or_zero(ctx, _totals_before(ctx, prim, outs), y)).expm1()
    return ((Formula(ctx, y) + (-below).log()).atom,)


def _cumlogsumexp_log_det(ctx: InverseCtx, prim: CumLogSumExp, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    return total(ctx, ctx.one(SUB, args[0], outs[0]))


def _recurrence(ctx: InverseCtx, prim: LinearRecurrence, args: Args, outs: Outs) -> Solved | Refused:
    (y,), (a, _) = outs, args
    if isinstance(a, Hole):
        return Refused("the first factor is not used")
    a = without_first_factor(ctx, a, prim.axis, prim.reverse)
    before = predecessors(ctx, y, prim.axis, prim.reverse, Lit.zero(y.aval.with_shape(())))
    return None, ctx.one(SUB, y, ctx.one(MUL, a, before))


# ----------------------------------------------------------------------------------------------------------- Fourier


def _fft(ctx: InverseCtx, prim: Fft, args: Args, outs: Outs) -> Solved | Refused:
    if prim.kind == "IRFFT":
        return Refused("it does not read the imaginary part of the first element")
    back = {"FFT": "IFFT", "IFFT": "FFT", "RFFT": "IRFFT"}[prim.kind]
    return (ctx.one(Fft(back, prim.lengths), outs[0]),)


def _fft_log_det(ctx: InverseCtx, prim: Fft, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    """FFT over n elements is sqrt(n) times a unitary map. On n pairs of real numbers its determinant is n^n."""
    (y,) = outs
    size = y.aval.size * math.log(math.prod(prim.lengths))
    return constant(size if prim.kind == "FFT" else -size, y)


RUNNING: Final[tuple[InverseRow, ...]] = (
    row(CumSum, _cumsum, VOLUME),
    row(CumProd, _cumprod, _cumprod_log_det),
    row(CumLogSumExp, _cumlogsumexp, _cumlogsumexp_log_det),
    row(LinearRecurrence, _recurrence, VOLUME),
    row(Fft, _fft, _fft_log_det),
)
