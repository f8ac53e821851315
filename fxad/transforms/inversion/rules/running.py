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
    LinearRecurrence,
    predecessors,
    subtract_or_zero,
)
from fxad.primitives.elementwise.arithmetic import DIV, MUL, SUB
from fxad.primitives.elementwise.formula import Formula
from fxad.primitives.fft import Fft
from fxad.transforms.inversion.rules.arithmetic import finite_part, inexact
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


def _cumsum(ctx: InverseCtx, prim: CumSum, args: Args, outs: Outs) -> Solved:
    (y,) = outs
    return (ctx.one(SUB, y, predecessors(ctx, y, prim.axis, prim.reverse, prim.identity(y.aval.dtype))),)


def _cumprod(ctx: InverseCtx, prim: CumProd, args: Args, outs: Outs) -> Solved | Refused:
    (y,) = outs
    if why := inexact(y):
        return Refused(why)
    return (
        finite_part(ctx, ctx.one(DIV, y, predecessors(ctx, y, prim.axis, prim.reverse, prim.identity(y.aval.dtype)))),
    )


def _cumprod_log_det(ctx: InverseCtx, prim: CumProd, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    (y,) = outs
    return total(ctx, log_sizes(ctx, predecessors(ctx, y, prim.axis, prim.reverse, prim.identity(y.aval.dtype))))


def _cumlogsumexp(ctx: InverseCtx, prim: CumLogSumExp, args: Args, outs: Outs) -> Solved:
    """Uses log(exp y[i] - exp y[i - 1]) = y[i] + log(-expm1(y[i - 1] - y[i]))."""
    (y,) = outs
    ahead = predecessors(ctx, y, prim.axis, prim.reverse, prim.identity(y.aval.dtype))
    below = Formula(ctx, subtract_or_zero(ctx, ahead, y)).expm1()
    return ((Formula(ctx, y) + (-below).log()).atom,)


def _cumlogsumexp_log_det(ctx: InverseCtx, prim: CumLogSumExp, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    return total(ctx, ctx.one(SUB, args[0], outs[0]))


def _recurrence(ctx: InverseCtx, prim: LinearRecurrence, args: Args, outs: Outs) -> Solved | Refused:
    (y,), (a, _) = outs, args
    if isinstance(a, Hole):
        return Refused("the first factor is multiplied by 0")
    ahead = predecessors(ctx, y, prim.axis, prim.reverse, Lit.zero(y.aval.with_shape(())))
    return None, ctx.one(SUB, y, ctx.one(MUL, a, ahead))


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
