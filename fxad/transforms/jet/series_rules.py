"""The choice of the rule for the series of an equation, by its primitive and by the operands that vary."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, final

from fxad.ir import Aval, Flags, HigherOrder, Linear, Primitive
from fxad.primitives.custom import CallWithRules
from fxad.primitives.linearity import is_linear_in_each
from fxad.transforms.jet.rows import ROWS

HIGH_ORDER: Final = 8  # each primitive has the rule of high orders


def has_own_derivative(prim: CallWithRules) -> bool:
    """Return True if the derivative is a rule that a user gave, and not that of a program."""
    return prim.rules.has_derivative and not prim.rules.of_body and prim.rules.derivative_of is None


def is_linear(prim: Primitive, varies: Flags) -> bool:
    """Return True if the equation is linear in the marked operands together, the others held fixed."""
    return isinstance(prim, Linear) and prim.linear_in(varies)


@final
class SeriesRule(Enum):
    """A rule for the series of an equation. The values are the words of `docs/rule-matrix.md`."""

    BODIES = "bodies"  # the same equation, over the series of its bodies
    ROW = "row"
    AFFINE = "affine"  # its linear part, applied to each coefficient
    PRODUCT = "product"  # the Cauchy product
    TANGENT = "tangent rule"


def series_rule(
    prim: Primitive, avals: Sequence[Aval], varies: Flags, order: int = HIGH_ORDER, *, in_tangent_rule: bool = False
) -> SeriesRule:
    """Return the rule for the series of an equation whose marked operands vary.

    `in_tangent_rule`: the coefficients of the operands are computed one at a time. So a linear equation with bodies is
    applied to each: the series of its bodies would need all coefficients at once.
    """
    # A rule that raised an error when it was traced is a `Refusal`, and counts too. Its tangent raises that error; the
    # series of the body would be a derivative that the user did not define.
    by_rule = isinstance(prim, CallWithRules) and has_own_derivative(prim)
    if isinstance(prim, HigherOrder) and prim.layout.transparent and not by_rule:
        return SeriesRule.AFFINE if in_tangent_rule and is_linear(prim, varies) else SeriesRule.BODIES
    row = ROWS.get(type(prim))
    if row is not None and order >= row.least and row.applies(prim, avals, varies):
        return SeriesRule.ROW
    if _is_affine(prim, avals, varies):
        return SeriesRule.AFFINE
    return SeriesRule.PRODUCT if _is_bilinear(prim, varies) else SeriesRule.TANGENT


def _is_affine(prim: Primitive, avals: Sequence[Aval], varies: Flags) -> bool:
    """Return True if the equation is affine in the varying operands: it is linear in them, as a product with a constant
    is, or in them together with the constants, as a sum with a constant is."""
    if not isinstance(prim, Linear):
        return False
    if prim.linear_in(varies):
        return True
    return not isinstance(prim, HigherOrder) and prim.linear_in(tuple([a.inexact for a in avals]))


def _is_bilinear(prim: Primitive, varies: Flags) -> bool:
    """Return True if the equation is linear in each of two varying operands, the other held fixed."""
    return sum(varies) == 2 and not isinstance(prim, HigherOrder) and is_linear_in_each(prim, varies)
