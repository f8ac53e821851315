"""Inverses of sums, products, powers, logic and choices, in one unknown operand, the others known.

A factor of 0 gives 0 / 0, and an infinite one inf / inf: an operand that they absorbed is reconstructed as nan. A
result that has underflowed counts as a rounded result.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fxad import dtypes
from fxad.ir import Atom, Emit, Hole, Lit, Mask, Var
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, NEG, SUB, Add, Div, Mul, Neg, Sub
from fxad.primitives.elementwise.exponential import LOG
from fxad.primitives.elementwise.formula import Formula
from fxad.primitives.elementwise.logic import NOT, XOR, Eq, Ne, Not, Xor
from fxad.primitives.elementwise.powers import POW, SIGN, IntegerPow, Pow
from fxad.primitives.elementwise.select import SelectN
from fxad.transforms.inversion.rules.assembling import chosen_part, where_chosen
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
from fxad.transforms.inversion.rules.elementwise import coarse, finite, nan_outside
from fxad.transforms.inversion.rules.totals import log_sizes

BOTH: Final = "both operands are unknown"
TRUTH: Final = "a truth value says less than its operands"


def unknown_of(args: Args) -> tuple[int, Atom] | None:
    """Returns the index of the unknown one of two operands, and the other operand; None if both are unknown."""
    match args:
        case Hole(), (Var() | Lit()) as other:
            return 0, other
        case (Var() | Lit()) as other, Hole():
            return 1, other
        case _:
            return None


def placed(k: int, x: Atom) -> Solved:
    """Returns the operand x as the result of a rule for two operands."""
    return (x, None) if k == 0 else (None, x)


# ---------------------------------------------------------------------------------------------- sums, products, powers


def _neg(ctx: InverseCtx, prim: Neg, args: Args, outs: Outs) -> Solved:
    return (ctx.one(NEG, outs[0]),)


def _add(ctx: InverseCtx, prim: Add, args: Args, outs: Outs) -> Solved | Refused:
    unknown = unknown_of(args)
    if unknown is None or outs[0].aval.dtype in dtypes.FLOAT8:
        return Refused(BOTH if unknown is None else coarse(outs[0].aval))
    k, other = unknown
    return placed(k, ctx.one(SUB, outs[0], other))


def _sub(ctx: InverseCtx, prim: Sub, args: Args, outs: Outs) -> Solved | Refused:
    unknown = unknown_of(args)
    if unknown is None or outs[0].aval.dtype in dtypes.FLOAT8:
        return Refused(BOTH if unknown is None else coarse(outs[0].aval))
    k, other = unknown
    return placed(k, ctx.one(SUB, other, outs[0]) if k else ctx.one(ADD, outs[0], other))


def _mul(ctx: InverseCtx, prim: Mul, args: Args, outs: Outs) -> Solved | Refused:
    unknown, y = unknown_of(args), outs[0]
    if unknown is None or (why := inexact(y)):
        return Refused(BOTH if unknown is None else why)
    k, other = unknown
    return placed(k, finite_part(ctx, ctx.one(DIV, y, other)))


def _mul_log_det(ctx: InverseCtx, prim: Mul, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    return log_sizes(ctx, args[0] if unknown[1] else args[1])


def _div(ctx: InverseCtx, prim: Div, args: Args, outs: Outs) -> Solved | Refused:
    unknown, y = unknown_of(args), outs[0]
    if unknown is None or (why := inexact(y)):
        return Refused(BOTH if unknown is None else why)
    k, other = unknown
    return placed(k, finite_part(ctx, ctx.one(DIV, other, y)) if k else ctx.one(MUL, y, other))


def _div_log_det(ctx: InverseCtx, prim: Div, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    sizes = [log_sizes(ctx, a) for a in (args[1], *outs)]
    if unknown[0]:
        return ctx.one(NEG, sizes[0])
    return ctx.one(SUB, sizes[1], sizes[0])


def inexact(y: Atom) -> str:
    """Returns the reason why products of a dtype are not inverted; empty if they are."""
    if y.aval.dtype not in dtypes.INEXACT:
        return f"integers wrap and lose remainders: different {y.aval.dtype} operands have the same result"
    return coarse(y.aval) if y.aval.dtype in dtypes.FLOAT8 else ""


def finite_part(emit: Emit, x: Atom) -> Atom:
    """Returns x, with nan where it is infinite. A complex quotient with the divisor 0 is nan already."""
    return x if x.aval.dtype in dtypes.COMPLEX else finite(Formula(emit, x)).atom


def _integer_pow(ctx: InverseCtx, prim: IntegerPow, args: Args, outs: Outs) -> Solved | Refused:
    y, n = outs[0], prim.n
    if n == 1:
        return (y,)
    if why := _no_root(y, n):
        return Refused(why)
    one = Lit.of(1, y.aval)
    return (root(Formula(ctx, y if n > 0 else ctx.one(DIV, one, y)), abs(n)).atom,)


def _integer_pow_log_det(ctx: InverseCtx, prim: IntegerPow, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    return (Formula(ctx, log_sizes(ctx, args[0])) * (prim.n - 1.0) + math.log(abs(prim.n))).atom


def _no_root(y: Atom, n: int) -> str:
    """Returns the reason why an n-th power is not inverted; empty if it is."""
    if n == 0:
        return "the power 0 is 1, whatever the base"
    if n % 2 == 0:
        return f"x and -x have the same power {n}"
    if why := inexact(y):
        return why
    return f"complex numbers have {abs(n)} roots" if y.aval.dtype in dtypes.COMPLEX and abs(n) > 1 else ""


def root(y: Formula, n: int) -> Formula:
    """Returns the real n-th root for odd n."""
    if n == 1:
        return y
    size = abs(y).apply(POW, 1.0 / n)
    return finite(size * y.apply(SIGN))


def _pow(ctx: InverseCtx, prim: Pow, args: Args, outs: Outs) -> Solved | Refused:
    unknown, y = unknown_of(args), Formula(ctx, outs[0])
    if unknown is None:
        return Refused(BOTH)
    k, other = unknown
    if why := inexact(outs[0]):
        return Refused(why)
    if other.aval.dtype in dtypes.COMPLEX:
        return Refused("complex numbers have many roots and logarithms")
    if k == 1:
        return placed(k, finite(y.log() / Formula(ctx, other).log()).atom)
    if not isinstance(other, Lit):
        return Refused("the exponent is known only when the program runs, and x and -x have the same even powers")
    power = float(other.array.ravel()[0]) if other.array.size else 1.0
    if power != int(power):
        return placed(k, finite(nan_outside(0.0, math.inf, y, y.apply(POW, 1.0 / power))).atom)
    if why := _no_root(outs[0], int(power)):
        return Refused(why)
    return placed(k, root(y if power > 0 else 1.0 / y, abs(int(power))).atom)


def _pow_log_det(ctx: InverseCtx, prim: Pow, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    base, power = args
    if unknown[1]:
        slope = Formula(ctx, log_sizes(ctx, outs[0])) + Formula(ctx, log_sizes(ctx, ctx.one(LOG, base)))
    else:
        less = Formula(ctx, power) - 1.0
        slope = Formula(ctx, log_sizes(ctx, base)) * less + Formula(ctx, log_sizes(ctx, power))
    return slope.atom


# --------------------------------------------------------------------------------------------------- bits and choices


def _not(ctx: InverseCtx, prim: Not, args: Args, outs: Outs) -> Solved:
    return (ctx.one(NOT, outs[0]),)


def _xor(ctx: InverseCtx, prim: Xor, args: Args, outs: Outs) -> Solved | Refused:
    unknown = unknown_of(args)
    if unknown is None:
        return Refused(BOTH)
    k, other = unknown
    return placed(k, ctx.one(XOR, outs[0], other))


def _eq(ctx: InverseCtx, prim: Eq | Ne, args: Args, outs: Outs) -> Solved | Refused:
    """A comparison of bools is the other operand or its negation, so the same comparison inverts it."""
    unknown = unknown_of(args)
    if args[0].aval.dtype != dtypes.bool_ or unknown is None:
        return Refused(BOTH if unknown is None else TRUTH)
    k, other = unknown
    return placed(k, ctx.one(prim, outs[0], other))


def _select_n(ctx: InverseCtx, prim: SelectN, args: Args, outs: Outs) -> Solved | Refused:
    """Each case is known where it was chosen. If all other cases are nan, the result is the operand or nan."""
    which, *cases = args
    holes = [k for k, case in enumerate(cases) if isinstance(case, Hole)]
    if len(holes) == 1 < len(cases) and all([_nan(case) for k, case in enumerate(cases) if k not in holes]):
        return (None, *[outs[0] if k in holes else None for k in range(len(cases))])
    if isinstance(which, Hole):
        return Refused("the result does not say which case was chosen")
    shares = [(which, k, len(cases)) for k in range(len(cases))]
    return (None, *[chosen_part(where_chosen(ctx, outs[0], s), s) if s[1] in holes else None for s in shares])


def _nan(a: Atom | Hole) -> bool:
    """Returns True for a non-empty literal whose elements are all nan."""
    return isinstance(a, Lit) and a.aval.inexact and a.aval.size > 0 and bool(np.isnan(a.array).all())


ARITHMETIC: Final[tuple[InverseRow, ...]] = (
    row(Neg, _neg, VOLUME),
    row(Add, _add, VOLUME),
    row(Sub, _sub, VOLUME),
    row(Mul, _mul, _mul_log_det),
    row(Div, _div, _div_log_det),
    row(IntegerPow, _integer_pow, _integer_pow_log_det),
    row(Pow, _pow, _pow_log_det),
    row(Not, _not, VOLUME),
    row(Xor, _xor, VOLUME),
    row(Eq, _eq, VOLUME),
    row(Ne, _eq, VOLUME),
    row(SelectN, _select_n, VOLUME),
)
