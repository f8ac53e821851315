"""Inverses of sums, products, powers, logic and choices, in one unknown operand, the others known.

A product, quotient or power that is infinite or 0 does not determine its operand: it may have overflowed or
underflowed, or the other operand has absorbed it (a factor 0). Such an operand is nan. A result of 0 gives the operand
0 only if all operands with this result are 0 within the rounding of 1: 0 = 3 x gives x = 0, and 0 = 1e-38 x in float32
gives nan, because x = 0.5 has the result 0 too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from fxad import dtypes
from fxad.ir import Atom, Atoms, Emit, Flags, Hole, Lit, Var, literal_number
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, NEG, SUB, Add, Div, Mul, Neg, Sub
from fxad.primitives.elementwise.exponential import LOG
from fxad.primitives.elementwise.formula import Formula
from fxad.primitives.elementwise.logic import NE, NOT, XOR, Eq, Ne, Not, Xor
from fxad.primitives.elementwise.powers import POW, SIGN, IntegerPow, Pow
from fxad.primitives.elementwise.select import SelectN
from fxad.transforms.inversion.rules.assembling import constant_mask, where_case, where_chosen, with_part
from fxad.transforms.inversion.rules.contract import (
    VOLUME,
    Args,
    ChosenPart,
    InverseCtx,
    InverseRow,
    Outs,
    Refused,
    ScatteredPart,
    Solved,
    row,
)
from fxad.transforms.inversion.rules.elementwise import (
    determined,
    finite,
    is_finite,
    nan_outside,
    rounding,
    smallest,
    why_too_coarse,
)
from fxad.transforms.inversion.rules.totals import log_sizes

BOTH_UNKNOWN: Final = Refused("both operands are unknown")
BOTH_TERMS_UNKNOWN: Final = replace(
    BOTH_UNKNOWN,
    remedy="write a coupling by a mask as where(m, x, ...), or m * x + (1 - m) * (...) with m an fxad array",
)
TRUTH_VALUE: Final = "a truth value says less than its operands"


def solve_for_unknown(
    args: Args, refusal: str, solve: Callable[[int, Atom], Atom | Refused], both_unknown: Refused = BOTH_UNKNOWN
) -> Solved | Refused:
    """Solve an equation for the unknown one of its two operands: `solve(k, other)` returns operand k, given the other
    one. Refuses if both are unknown, or with the reason `refusal` if it is not empty."""
    match args:
        case Hole(), (Var() | Lit()) as other:
            k = 0
        case (Var() | Lit()) as other, Hole():
            k = 1
        case _:
            return both_unknown
    solved = Refused(refusal) if refusal else solve(k, other)
    if isinstance(solved, Refused):
        return solved
    return (solved, None) if k == 0 else (None, solved)


# ---------------------------------------------------------------------------------------------- sums, products, powers


def _neg(ctx: InverseCtx, prim: Neg, args: Args, outs: Outs) -> Solved:
    return (ctx.one(NEG, outs[0]),)


def _add(ctx: InverseCtx, prim: Add, args: Args, outs: Outs) -> Solved | Refused:
    (y,) = outs
    return solve_for_unknown(args, why_too_coarse(y.aval), lambda _, other: ctx.one(SUB, y, other), BOTH_TERMS_UNKNOWN)


def _sub(ctx: InverseCtx, prim: Sub, args: Args, outs: Outs) -> Solved | Refused:
    (y,) = outs

    def solve(k: int, other: Atom) -> Atom:
        return ctx.one(SUB, other, y) if k else ctx.one(ADD, y, other)

    return solve_for_unknown(args, why_too_coarse(y.aval), solve)


def _mul(ctx: InverseCtx, prim: Mul, args: Args, outs: Outs) -> Solved | Refused:
    (y,) = outs
    return solve_for_unknown(args, why_not_divided(y), lambda _, other: finite_quotient(ctx, y, other))


def _mul_log_det(ctx: InverseCtx, prim: Mul, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
    return log_sizes(ctx, args[0] if unknown[1] else args[1])


def _div(ctx: InverseCtx, prim: Div, args: Args, outs: Outs) -> Solved | Refused:
    (y,) = outs

    def solve(k: int, other: Atom) -> Atom:
        # a divisor of 0 stems from an infinite y alone
        return determined(Formula(ctx, ctx.one(DIV, other, y))).atom if k else _dividend(ctx, y, other)

    return solve_for_unknown(args, why_not_divided(y), solve)


def _div_log_det(ctx: InverseCtx, prim: Div, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
    sizes = [log_sizes(ctx, a) for a in (args[1], *outs)]
    if unknown[0]:
        return ctx.one(NEG, sizes[0])
    return ctx.one(SUB, sizes[1], sizes[0])


def why_not_divided(y: Atom) -> str:
    """Return the reason why products of a dtype are not inverted by a division; empty if they are."""
    if y.aval.dtype not in dtypes.INEXACT:
        return f"integers wrap and lose remainders: different {y.aval.dtype} operands have the same result"
    return why_too_coarse(y.aval)


def finite_quotient(emit: Emit, y: Atom, factor: Atom) -> Atom:
    """Return x with x * factor = y, which is y / factor; nan where y does not determine it."""
    x, least = Formula(emit, emit.one(DIV, y, factor)), smallest(y.aval) / rounding(y.aval)
    if isinstance(factor, Lit):
        return (determined(x) if _literal_size(factor) < least else finite(x)).atom
    return _unless_underflowed(x, Formula(emit, y), abs(Formula(emit, factor)) >= least).atom


def _dividend(emit: Emit, y: Atom, divisor: Atom) -> Atom:
    """Return x with x / divisor = y, which is y * divisor; nan where y does not determine it."""
    x, largest = Formula(emit, emit.one(MUL, y, divisor)), rounding(y.aval) / smallest(y.aval)
    if isinstance(divisor, Lit):
        return (determined(x) if _literal_size(divisor) > largest else finite(x)).atom
    return _unless_underflowed(x, Formula(emit, y), abs(Formula(emit, divisor)) <= largest).atom


def _literal_size(x: Lit) -> float:
    """Return the magnitude of a literal; 1 for a literal whose value is a named size."""
    number = literal_number(x)
    return 1.0 if number is None else float(abs(np.complex128(number)))


def _unless_underflowed(x: Formula, y: Formula, is_visible: Formula) -> Formula:
    """Return the operand x of a product or quotient y, with nan where it is infinite, and where y is 0 but for
    `is_visible`: operands above the rounding of 1 have results other than 0."""
    return (is_finite(x) & (y.apply(NE, 0.0) | is_visible)).where(x, x.like(math.nan))


def _integer_pow(ctx: InverseCtx, prim: IntegerPow, args: Args, outs: Outs) -> Solved | Refused:
    y, n = outs[0], prim.n
    if n == 1:
        return (y,)
    if why := _no_root(y, n):
        return Refused(why)
    return (root(Formula(ctx, y), n).atom,)


def _integer_pow_log_det(ctx: InverseCtx, prim: IntegerPow, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
    return _log_slope_of_power(ctx, args[0], prim.n)


def _log_slope_of_power(emit: Emit, base: Atom, power: float) -> Atom:
    """Return log |n x^(n - 1)|, element by element. For the power 1 it is 0, also where x is 0 or infinite."""
    if power == 1:
        return Lit.of(0, base.aval.with_dtype(dtypes.real_part(base.aval.dtype)))
    return (Formula(emit, log_sizes(emit, base)) * (power - 1.0) + math.log(abs(power))).atom


def _no_root(y: Atom, n: int) -> str:
    """Return the reason why an n-th power is not inverted; empty if it is."""
    if n == 0:
        return "the power 0 is 1, whatever the base"
    if n % 2 == 0:
        return f"x and -x have the same power {n}"
    if why := why_not_divided(y):
        return why
    return f"complex numbers have {abs(n)} roots" if y.aval.dtype in dtypes.COMPLEX and abs(n) > 1 else ""


def root(y: Formula, n: int) -> Formula:
    """Return the real x with x^n = y for odd n; nan where y does not determine it."""
    if n == 1:
        return y
    base = y if n > 0 else 1.0 / y
    return _root_unless_lost(base if n == -1 else abs(base).apply(POW, 1.0 / abs(n)) * base.apply(SIGN), y, n)


def _root_unless_lost(x: Formula, y: Formula, power: float) -> Formula:
    """Return x with x^power = y, with nan where y has overflowed or underflowed. The result 0 determines the root 0 if
    all roots with this result are 0 within the rounding of 1."""
    aval = y.atom.aval
    return finite(x) if power > 0 and smallest(aval) ** (1.0 / power) <= rounding(aval) else determined(x)


def _pow(ctx: InverseCtx, prim: Pow, args: Args, outs: Outs) -> Solved | Refused:
    y = Formula(ctx, outs[0])

    def solve(k: int, other: Atom) -> Atom | Refused:
        if other.aval.dtype in dtypes.COMPLEX:
            return Refused("complex numbers have many roots and logarithms")
        return finite(y.log() / Formula(ctx, other).log()).atom if k else _base(y, other)

    return solve_for_unknown(args, why_not_divided(outs[0]), solve)


def _base(y: Formula, exponent: Atom) -> Atom | Refused:
    """Return x with x ** exponent = y, for a constant exponent."""
    number = literal_number(exponent)
    if number is None:
        return Refused("the exponent is known only when the program runs, and x and -x have the same even powers")
    power = float(number) if exponent.aval.size != 0 else 1.0
    if not math.isfinite(power):
        return Refused(f"different bases have the same power {power}")
    if power != int(power):
        return _root_unless_lost(nan_outside(0.0, math.inf, y, y.apply(POW, 1.0 / power)), y, power).atom
    if why := _no_root(y.atom, int(power)):
        return Refused(why)
    return root(y, int(power)).atom


def _pow_log_det(ctx: InverseCtx, prim: Pow, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
    base, power = args
    if unknown[1]:
        slope = Formula(ctx, log_sizes(ctx, outs[0])) + Formula(ctx, log_sizes(ctx, ctx.one(LOG, base)))
    elif (number := literal_number(power)) is not None and power.aval.size != 0:
        return _log_slope_of_power(ctx, base, float(number))
    else:
        less = Formula(ctx, power) - 1.0
        slope = Formula(ctx, log_sizes(ctx, base)) * less + Formula(ctx, log_sizes(ctx, power))
    return slope.atom


# --------------------------------------------------------------------------------------------------- bits and choices


def _not(ctx: InverseCtx, prim: Not, args: Args, outs: Outs) -> Solved:
    return (ctx.one(NOT, outs[0]),)


def _xor(ctx: InverseCtx, prim: Xor, args: Args, outs: Outs) -> Solved | Refused:
    return solve_for_unknown(args, "", lambda _, other: ctx.one(XOR, outs[0], other))


def _eq(ctx: InverseCtx, prim: Eq | Ne, args: Args, outs: Outs) -> Solved | Refused:
    """Invert a comparison of bools: it is the other operand or its negation, so the same comparison inverts it."""
    refusal = "" if args[0].aval.dtype == dtypes.bool_ else TRUTH_VALUE
    return solve_for_unknown(args, refusal, lambda _, other: ctx.one(prim, outs[0], other))


def _select_n(ctx: InverseCtx, prim: SelectN, args: Args, outs: Outs) -> Solved | Refused:
    """Invert a choice: each case is known where it was chosen. If all other cases are nan, the result is the operand or
    nan."""
    selector, *cases = args
    holes = [k for k, case in enumerate(cases) if isinstance(case, Hole)]
    if len(holes) == 1 < len(cases) and all([_nan(case) for k, case in enumerate(cases) if k not in holes]):
        shown = _unless_nan(outs[0], selector, holes[0], len(cases))
        return (None, *[shown if k in holes else None for k in range(len(cases))])
    if isinstance(selector, Hole):
        return Refused("the result does not say which case was chosen")
    mask = constant_mask(selector, ctx.producer)
    parts = [
        ChosenPart(outs[0], selector, k, len(cases), None if mask is None else where_case(mask, k))
        for k in range(len(cases))
    ]
    return (None, *[replace(p, value=where_chosen(ctx, outs[0], p)) if p.case in holes else None for p in parts])


def _unless_nan(y: Atom, selector: Atom | Hole, case: int, count: int) -> ScatteredPart:
    """Return the elements of y where the selector chose a case, if the other cases are nan. If the selector is not
    known, these are the elements that are not nan."""

    def write(emit: Emit, base: Atom) -> Atom:
        if _nan(base):  # the other elements, of cases that are nan, are nan in y too
            return y
        if isinstance(selector, Hole):
            return with_part(emit, ChosenPart(y, emit.one(NE, y, y), 0, 2), base)
        return with_part(emit, ChosenPart(y, selector, case, count), base)

    return ScatteredPart(y, write, y.aval.size)


def _nan(a: Atom | Hole) -> bool:
    """Return True for a non-empty literal whose elements are all nan."""
    number = literal_number(a)
    return number is not None and a.aval.inexact and a.aval.size > 0 and bool(np.isnan(number))


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
