"""Inverses of functions of one number, and log |dy/dx| of each.

A result without a unique preimage gives nan, never a plausible number: where a function saturates or overflows (tanh x
= 1, exp x = 0), and outside of its range (sqrt x = -1). So `f(inverse(f)(y))` is y or nan. It is inf if the inverse
overflows: no float32 has the logarithm 100, and the inverse of `log` is inf there.

Slopes are computed from x or from y, depending on which loses no digits. For example, log |d tanh x| is 2 (log 2 - |x|
- log1p(exp(-2 |x|))), not log(1 - y^2), which is -inf from x = 9 on in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Atoms, Aval, Flags, Lit, Primitive
from fxad.primitives.elementwise.exponential import EXP2, Exp, Exp2, Expm1, Log, Log1p, Log2, Log10, Logit
from fxad.primitives.elementwise.formula import Formula
from fxad.primitives.elementwise.logic import IS_FINITE, NE
from fxad.primitives.elementwise.powers import POW, SQUARE, Cbrt, IntegerPow, Rsqrt, Sqrt
from fxad.primitives.elementwise.sigmoid import LOGISTIC, TANH, Logistic, Tanh
from fxad.primitives.elementwise.special import ERF, ERF_INV, ERFC, Erf, Erfc, ErfInv
from fxad.primitives.elementwise.trigonometric import (
    ASINH,
    ATANH,
    COS,
    COSH,
    SIN,
    SINH,
    TAN,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Sinh,
)
from fxad.transforms.inversion.rules.contract import Args, InverseCtx, InverseRow, Outs, Refused, Solved, row

LOG_2: Final = math.log(2)
LOG_10: Final = math.log(10)
PERIODIC: Final = "complex numbers a period apart have the same value"


@final
@dataclass(frozen=True, slots=True)
class ScalarInverse:
    """The inverse of a function of one number. `undo` is y -> x. `slope` is (x, y) -> log |dy/dx|, or for complex
    numbers the logarithm of the derivative.

    `complex_refusal` is the reason why complex numbers are not inverted. If it is empty, the inverse returns the
    principal value.
    """

    undo: Callable[[Formula], Formula]
    slope: Callable[[Formula, Formula], Formula]
    complex_refusal: str = ""


# ----------------------------------------------------------------------------------------------------------- guards


def is_finite(x: Formula) -> Formula:
    """Return True where a number is neither infinite nor nan; also for complex numbers."""
    return (abs(x) if x.atom.aval.dtype in dtypes.COMPLEX else x).apply(IS_FINITE)


def finite(x: Formula) -> Formula:
    """Return x, with nan where it is infinite, which results from a saturated or overflowed value."""
    return is_finite(x).where(x, x.like(math.nan))


def determined(x: Formula) -> Formula:
    """Return x, with nan where it is infinite or 0, if both result only from a value that has overflowed or
    underflowed."""
    return (is_finite(x) & x.apply(NE, 0.0)).where(x, x.like(math.nan))


def rounding(x: Aval) -> float:
    """Return the distance from 1 to the next number of a dtype."""
    return 2.0 ** (1 - dtypes.SIGNIFICAND_BITS[x.dtype])


def smallest(x: Aval) -> float:
    """Return the magnitude below which a number of a dtype may become 0. XLA on CPUs takes subnormal numbers for 0 in
    every dtype but float16."""
    if x.dtype == dtypes.float16:
        return 2.0**-24
    return 2.0**-1022 if dtypes.real_part(x.dtype) == dtypes.float64 else 2.0**-126


def nan_outside(low: float, high: float, y: Formula, x: Formula) -> Formula:
    """Return x where the real number y lies in the range of the function, else nan. Complex ranges are not checked."""
    if y.atom.aval.dtype in dtypes.COMPLEX:
        return x
    return ((y >= low) & (y <= high)).where(x, x.like(math.nan))


def rounded(value: float, like: Formula) -> float:
    """Return a number rounded to the dtype of `like`: the value that a function with this limit reaches."""
    return float(Lit.of(value, Aval((), dtypes.real_part(like.atom.aval.dtype))).array)


# -------------------------------------------------------------------------------------------------------- functions


def log_cosh(x: Formula) -> Formula:
    """Return log cosh x, without overflow for real x; for complex x by the definition."""
    if x.atom.aval.dtype in dtypes.COMPLEX:
        return x.apply(COSH).log()
    return abs(x) + (abs(x) * -2.0).exp().log1p() - LOG_2


def log_sinh(x: Formula) -> Formula:
    """Return log sinh x for x >= 0, without overflow for real x; for complex x by the definition."""
    if x.atom.aval.dtype in dtypes.COMPLEX:
        return x.apply(SINH).log()
    return x + (-(x * -2.0).expm1()).log() - LOG_2


def logit(y: Formula) -> Formula:
    """Return the inverse of the logistic function."""
    return finite(y.log() - (-y).log1p())


def logistic(y: Formula) -> Formula:
    """Return the inverse of the logit, accurate to all digits at both ends."""
    if y.atom.aval.dtype in dtypes.COMPLEX:
        return y.apply(LOGISTIC)
    small = (-abs(y)).exp()
    return (y < 0).where(small, y.like(1.0)) / (small + 1.0)


def slope_of_logit(x: Formula, y: Formula) -> Formula:
    """Return -log(x (1 - x)), computed from y for real numbers, which loses no digits."""
    if y.atom.aval.dtype in dtypes.COMPLEX:
        return -(x.log() + (-x).log1p())
    return abs(y) + (-abs(y)).exp().log1p() * 2.0


def arc(y: Formula) -> Formula:
    """Return the inverse of atan; nan where |y| rounds to pi/2 or more, because its tangent there is a large number of
    either sign."""
    if y.atom.aval.dtype in dtypes.COMPLEX:
        return y.apply(TAN)
    return (abs(y) < rounded(math.pi / 2, y)).where(y.apply(TAN), y.like(math.nan))


def erfc_inv(y: Formula) -> Formula:
    """Return the inverse of erfc: erf_inv(1 - y), and where 1 - y loses digits Newton's method for log erfc x = log y.

    log erfc is concave, and sqrt(-log y) is greater than its root. So the iterates decrease to the root and do not pass
    it.
    """
    x = (-y.log()).sqrt()
    for _ in range(6):
        here = x.apply(ERFC)
        x = x + (here.log() - y.log()) * here * (x.apply(SQUARE).exp() * (math.sqrt(math.pi) / 2))
    return finite((y < 0.1).where(x, (1.0 - y).apply(ERF_INV)))


def log_of_gaussian(x: Formula) -> Formula:
    """Return log of 2 / sqrt(pi) exp(-x^2), the slope of erf."""
    return math.log(2 / math.sqrt(math.pi)) - x.apply(SQUARE)


SCALAR_INVERSES: Final[Mapping[type[Primitive], ScalarInverse]] = MappingProxyType(
    {
        Exp: ScalarInverse(lambda y: finite(y.log()), lambda x, _: x, PERIODIC),
        Exp2: ScalarInverse(lambda y: finite(y.log() / LOG_2), lambda x, _: x * LOG_2 + math.log(LOG_2), PERIODIC),
        Expm1: ScalarInverse(lambda y: finite(y.log1p()), lambda x, _: x, PERIODIC),
        Log: ScalarInverse(lambda y: y.exp(), lambda _, y: -y),
        Log2: ScalarInverse(lambda y: y.apply(EXP2), lambda _, y: y * -LOG_2 - math.log(LOG_2)),
        Log10: ScalarInverse(lambda y: y.like(10.0).apply(POW, y), lambda _, y: y * -LOG_10 - math.log(LOG_10)),
        Log1p: ScalarInverse(lambda y: y.expm1(), lambda _, y: -y),
        Logistic: ScalarInverse(logit, lambda x, _: -(abs(x) + (-abs(x)).exp().log1p() * 2.0), PERIODIC),
        Logit: ScalarInverse(logistic, slope_of_logit),
        Tanh: ScalarInverse(lambda y: finite(y.apply(ATANH)), lambda x, _: log_cosh(x) * -2.0, PERIODIC),
        Atanh: ScalarInverse(lambda y: y.apply(TANH), lambda _, y: log_cosh(y) * 2.0),
        Sinh: ScalarInverse(lambda y: finite(y.apply(ASINH)), lambda x, _: log_cosh(x), PERIODIC),
        Asinh: ScalarInverse(lambda y: y.apply(SINH), lambda _, y: -log_cosh(y)),
        Acosh: ScalarInverse(lambda y: nan_outside(0.0, math.inf, y, y.apply(COSH)), lambda _, y: -log_sinh(y)),
        Asin: ScalarInverse(
            lambda y: nan_outside(-rounded(math.pi / 2, y), rounded(math.pi / 2, y), y, y.apply(SIN)),
            lambda x, _: ((-x).log1p() + x.log1p()) * -0.5,
        ),
        Acos: ScalarInverse(
            lambda y: nan_outside(0.0, rounded(math.pi, y), y, y.apply(COS)),
            lambda x, _: ((-x).log1p() + x.log1p()) * -0.5,
        ),
        Atan: ScalarInverse(arc, lambda x, _: -x.apply(SQUARE).log1p()),
        Erf: ScalarInverse(lambda y: finite(y.apply(ERF_INV)), lambda x, _: log_of_gaussian(x)),
        Erfc: ScalarInverse(erfc_inv, lambda x, _: log_of_gaussian(x)),
        ErfInv: ScalarInverse(lambda y: y.apply(ERF), lambda _, y: -log_of_gaussian(y)),
        Sqrt: ScalarInverse(lambda y: nan_outside(0.0, math.inf, y, y.apply(SQUARE)), lambda _, y: -(y.log() + LOG_2)),
        Rsqrt: ScalarInverse(
            lambda y: nan_outside(0.0, math.inf, y, (1.0 / y).apply(SQUARE)), lambda _, y: y.log() * 3.0 - LOG_2
        ),
        Cbrt: ScalarInverse(lambda y: y.apply(IntegerPow(3)), lambda _, y: abs(y).log() * -2.0 - math.log(3)),
    }
)


def _row(kind: type[Primitive], inverse: ScalarInverse) -> InverseRow:
    def solve(ctx: InverseCtx, prim: Primitive, args: Args, outs: Outs) -> Solved | Refused:
        (y,) = outs
        if y.aval.dtype in dtypes.COMPLEX and inverse.complex_refusal:
            return Refused(inverse.complex_refusal)
        if why := why_too_coarse(y.aval):
            return Refused(why)
        return (inverse.undo(Formula(ctx, y)).atom,)

    def log_det(ctx: InverseCtx, prim: Primitive, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
        return inverse.slope(Formula(ctx, args[0]), Formula(ctx, outs[0])).atom

    return row(kind, solve, log_det)


def why_too_coarse(x: Aval) -> str:
    """Return the reason why arithmetic in a dtype of 8 bits is not inverted; empty for other dtypes."""
    return f"{x.dtype} has too few digits for values to come back" if x.dtype in dtypes.FLOAT8 else ""


ELEMENTARY: Final[tuple[InverseRow, ...]] = tuple([_row(kind, inverse) for kind, inverse in SCALAR_INVERSES.items()])
