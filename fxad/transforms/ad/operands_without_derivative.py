"""Finds the operands with respect to which a program has no derivative."""

from __future__ import annotations

from fxad.errors import NotDifferentiableError
from fxad.ir import Jaxpr, Mask
from fxad.transforms.ad.linearize import linearize


def operands_without_derivative(jaxpr: Jaxpr, candidates: Mask) -> Mask:
    """The operands among `candidates` without a derivative. A function with rules may close over such an operand.

    Raises: NotDifferentiableError if the program has no derivative with respect to the other inexact operands.
    """
    no_marks, moving = (False,) * len(jaxpr.ins), tuple([a.inexact for a in jaxpr.in_avals])
    try:
        linearize(jaxpr, moving)
    except NotDifferentiableError:
        fixed = list(no_marks)
        for k, (moves, is_candidate) in enumerate(zip(moving, candidates, strict=True)):
            if moves and is_candidate:
                try:
                    linearize(jaxpr, (*no_marks[:k], True, *no_marks[k + 1 :]))
                except NotDifferentiableError:
                    fixed[k] = True
        remaining = tuple([m and not f for m, f in zip(moving, fixed, strict=True)])
        if not any(remaining):
            raise
        linearize(jaxpr, remaining)
        return tuple(fixed)
    return no_marks
