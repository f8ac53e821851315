"""The reasons for which a program is not inverted, as errors about the equations that the user wrote.

The solver works on another form of the program. So the equation that it refuses is looked up in the original program.

Example: `z = exp x * w + exp x * w` is computed by two equal products. The normal form has one of them, so the solver
refuses `add %1 %1`. `reason_in_program` solves the program once more, with the origin of each value, and the message
shows `add %1 %3`, which the user wrote. An equation that only the derivative computes (the cosine for a sine) is in no
form of the program. `_locate_reason` then gives the user's line, and the equation at this line if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fxad.core.masks import select_by_mask
from fxad.errors import NotDifferentiableError, NotInvertibleError
from fxad.ir import Jaxpr, Mask
from fxad.transforms.inversion.normal_form import origin_of, shallow_normal_form, without_effects_and_checks
from fxad.transforms.inversion.rules.arithmetic import BOTH_UNKNOWN
from fxad.transforms.inversion.rules.contract import InverseTable, Refused
from fxad.transforms.inversion.rules.control import BRANCH_UNKNOWN, STEP_COUNT_UNKNOWN
from fxad.transforms.inversion.rules.conversion import LOSS_NOT_SHOWN
from fxad.transforms.inversion.rules.indexing import UPDATES_ADDED, UPDATES_LOST, UPDATES_MULTIPLIED
from fxad.transforms.inversion.solver import PARTLY_DETERMINED, solve
from fxad.transforms.locate import describe, primitive_name_in

MASKS: Final = "write a coupling by a mask as where(m, x, ...), or m * x + (1 - m) * (...) with m an fxad array"
SLICES: Final = "write to a slice, such as x.at[..., 1::2], or choose by where(m, x, ...)"
HINTS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("add", BOTH_UNKNOWN): MASKS,
        ("scatter", UPDATES_LOST): SLICES,
        ("scatter", PARTLY_DETERMINED.reason): SLICES,
        ("scatter_add", UPDATES_ADDED): SLICES,
        ("scatter_mul", UPDATES_MULTIPLIED): SLICES,
        ("", PARTLY_DETERMINED.reason): "return the other elements too, as they are or changed by what stays",
        ("", LOSS_NOT_SHOWN): "return the integer or the bool too",
        ("", BRANCH_UNKNOWN): "compute the predicate from values that are not reconstructed",
        ("", STEP_COUNT_UNKNOWN): "take a number of steps that is known: fori_loop or scan",
    }
)


def reason_in_program(
    jaxpr: Jaxpr, known: Mask, outs: Mask, rules: InverseTable, k: int, why: Refused | None
) -> Refused:
    """Returns the reason why operand k is not determined, with an equation of the original program.

    `why` was found in another form of the program: without dead and duplicate equations, or with additional values for
    derivatives. The result is the equation between the operand and the results that is refused for the same reason.
    """
    assert why is not None, "something is not determined"
    shallow, origins = shallow_normal_form(Jaxpr(jaxpr.ins, jaxpr.eqns, select_by_mask(jaxpr.outs, outs), jaxpr.name))
    plan = solve(
        without_effects_and_checks(shallow), (*select_by_mask(jaxpr.ins, known), *shallow.outs), rules, False, origins
    )
    reasons = list(plan.reasons(shallow.ins[k]))
    equal = [r for r in reasons if (r.name, r.reason) == (why.name, why.reason)]
    at_line = [r for r in equal if r.where == why.where]
    return next(iter([*at_line, *equal, *reasons]), None) or _locate_reason(jaxpr, why)


def _locate_reason(jaxpr: Jaxpr, why: Refused) -> Refused:
    """Locates a reason about an equation that only derivatives compute, which is not in the program. Keeps the user's
    line, and names the program's equation with this primitive at this line, if there is one."""
    origin = origin_of(jaxpr, why.name, "", why.where)
    reason = Refused(why.reason, why.name, describe(origin.eqn) if origin else "", why.where)
    return reason.within(*origin.inside) if origin else reason


def locate_error(jaxpr: Jaxpr, e: NotDifferentiableError) -> NotDifferentiableError:
    """Adds to the error of a derivative rule the equation of the original program and the bodies that contain it."""
    if not e.inside and (origin := origin_of(jaxpr, primitive_name_in(e.equation), e.equation, e.where)):
        e.equation, e.inside = describe(origin.eqn), origin.inside
    return e


def not_invertible(op: str, what: str, why: Refused, remedy: str = "") -> NotInvertibleError:
    """Returns the error for a value that the results do not determine."""
    hint = HINTS.get((why.name, why.reason)) or HINTS.get(("", why.reason))
    remedy = "; or ".join([part for part in (hint, remedy) if part])
    subject = f"{why.name} is not inverted: {why.reason}" if why.name else why.reason
    message = f"{op}: {what}: {subject}"
    return NotInvertibleError(message, equation=why.equation, where=why.where, inside=why.inside, remedy=remedy)
