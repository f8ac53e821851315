"""Inverses of sums, products, powers of e and tanh."""

from __future__ import annotations

from typing import Final

from fxad import dtypes
from fxad.ir import Atom, Emit, Hole, Lit
from fxad.primitives.elementwise import (
    ADD,
    ATANH,
    DIV,
    IS_FINITE,
    LOG,
    NEG,
    SELECT_N,
    SUB,
    Add,
    Exp,
    Mul,
    Neg,
    Sub,
    Tanh,
)
from fxad.transforms.inverse_rules.contract import (
    ELEMENTWISE,
    VOLUME,
    Args,
    InverseCtx,
    InverseRule,
    Outs,
    Refused,
    Solved,
    row,
)


def finite(ctx: Emit, x: Atom) -> Atom:
    """x, but nan where it is infinite: what a saturated or an absorbing operation leaves behind."""
    return ctx.one(SELECT_N, ctx.one(IS_FINITE, x), Lit.of(float("nan"), x.aval), x)


def _neg(ctx: InverseCtx, _prim: Neg, _args: Args, outs: Outs) -> Solved:
    return (ctx.one(NEG, outs[0]),)


def _add(ctx: InverseCtx, _prim: Add, args: Args, outs: Outs) -> Solved | Refused:
    x, y = args
    if not isinstance(y, Hole):
        return ctx.one(SUB, outs[0], y), None
    return Refused("both terms are unknown") if isinstance(x, Hole) else (None, ctx.one(SUB, outs[0], x))


def _sub(ctx: InverseCtx, _prim: Sub, args: Args, outs: Outs) -> Solved | Refused:
    x, y = args
    if not isinstance(y, Hole):
        return ctx.one(ADD, outs[0], y), None
    return Refused("both terms are unknown") if isinstance(x, Hole) else (None, ctx.one(SUB, x, outs[0]))


def _mul(ctx: InverseCtx, _prim: Mul, args: Args, outs: Outs) -> Solved | Refused:
    (z,), (x, y) = outs, args
    if z.aval.dtype not in dtypes.INEXACT:
        return Refused(f"products of {z.aval.dtype} wrap, so different factors have the same product")
    if not isinstance(y, Hole):
        return finite(ctx, ctx.one(DIV, z, y)), None
    return Refused("both factors are unknown") if isinstance(x, Hole) else (None, finite(ctx, ctx.one(DIV, z, x)))


def _exp(ctx: InverseCtx, _prim: Exp, _args: Args, outs: Outs) -> Solved:
    return (finite(ctx, ctx.one(LOG, outs[0])),)


def _tanh(ctx: InverseCtx, _prim: Tanh, _args: Args, outs: Outs) -> Solved:
    return (finite(ctx, ctx.one(ATANH, outs[0])),)


ARITHMETIC: Final[tuple[InverseRule, ...]] = (
    row(Neg, _neg, VOLUME),
    row(Add, _add, VOLUME),
    row(Sub, _sub, VOLUME),
    row(Mul, _mul, ELEMENTWISE),
    row(Exp, _exp, ELEMENTWISE),
    row(Tanh, _tanh, ELEMENTWISE),
)
