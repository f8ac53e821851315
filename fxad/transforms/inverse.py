"""`inverse`: a program from results back to operands."""

from __future__ import annotations

from typing import Final

from fxad.errors import NotInvertibleError
from fxad.ir import Jaxpr
from fxad.memo import by_value
from fxad.primitives.control.bodies import marked
from fxad.transforms.inverse_rules import INVERSE_RULES
from fxad.transforms.inverse_rules.contract import Determined, InverseRules, Refused
from fxad.transforms.solving import Marks, determine

REMEDY: Final = "hold the argument (argnums), or give the function that is not inverted a custom_inverse"


@by_value
def inverse(
    jaxpr: Jaxpr,
    wanted: Marks,
    log_det: bool = False,
    labels: tuple[str, ...] = (),
    rules: InverseRules = INVERSE_RULES,
) -> Jaxpr:
    """(results, then operands not wanted) -> the operands wanted; with `log_det`, then log|det| of the Jacobian.

    `labels` are what messages call the operands.

    Law:    inverse(f(x), held) = x, within rounding; log_det = log|det J| of the results in the operands wanted.
    Rule:   on the dataflow graph, whatever the order of equations; every result is taken to be right.
    Raises: NotInvertibleError that names the equation.
    """
    held = tuple([not w for w in wanted])
    every = (True,) * len(jaxpr.outs)
    found = determine(jaxpr, held, every, rules, log_det)
    for k, (w, s) in enumerate(zip(wanted, found.solved, strict=True)):
        if w and not s:
            label = labels[k] if labels else f"operand {k}"
            which = f"{label} of {jaxpr.name} is not determined by its results"
            raise not_invertible("inverse", which, reason(found), REMEDY)
    if log_det:
        check_square(jaxpr, wanted)
        if found.unmeasured:
            raise not_invertible("inverse", f"log_det of {jaxpr.name}", found.unmeasured)
    return found.program


def check_square(jaxpr: Jaxpr, wanted: Marks) -> None:
    """Raises: NotInvertibleError when the Jacobian is not square."""
    n, m = sum([v.aval.size for v in marked(jaxpr.ins, wanted)]), sum([a.aval.size for a in jaxpr.outs])
    if n != m:
        raise NotInvertibleError(
            f"inverse: log_det of {jaxpr.name}: its Jacobian is {m} x {n}, which has no determinant",
            remedy="return as many numbers as are to be reconstructed",
        )


def reason(found: Determined) -> Refused:
    """Why not all operands are determined."""
    assert found.refused is not None
    return found.refused


def not_invertible(what: str, which: str, why: Refused, remedy: str = "") -> NotInvertibleError:
    """The error for what is not determined by the results."""
    subject = f"{why.name} is not inverted: {why.reason}" if why.name else why.reason
    return NotInvertibleError(f"{what}: {which}: {subject}", equation=why.equation, where=why.where, remedy=remedy)
