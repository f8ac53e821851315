"""`inverse`: a program from results to operands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError, NotInvertibleError
from fxad.ir import Jaxpr, Mask
from fxad.primitives.control.bodies import select_by_mask
from fxad.transforms.inversion.normal_form import normal_form_with_origins, origin_of, without_effects_and_checks
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.rules.arithmetic import BOTH
from fxad.transforms.inversion.rules.contract import InverseRules, Refused
from fxad.transforms.inversion.rules.control import STEPS, TAKEN
from fxad.transforms.inversion.rules.conversion import LOST
from fxad.transforms.inversion.rules.indexing import ADDED, LEFT_OUT, MULTIPLIED
from fxad.transforms.inversion.rules.totals import not_square, real_numbers
from fxad.transforms.inversion.solver import PARTLY_DETERMINED, determine, solve
from fxad.transforms.locate import describe, primitive_name_in

REMEDY: Final = "hold the argument (argnums), or give the function that is not inverted a custom_inverse"

WITHOUT_LOG_DET: Final = "ask for the arguments alone, and add the log-determinant by hand"
MASKS: Final = "write a coupling by a mask as where(m, x, ...), or m * x + (1 - m) * (...) with m an fxad array"
SLICES: Final = "write to a slice, such as x.at[..., 1::2], or choose by where(m, x, ...)"
HINTS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("add", BOTH): MASKS,
        ("scatter", LEFT_OUT): SLICES,
        ("scatter", PARTLY_DETERMINED.reason): SLICES,
        ("scatter_add", ADDED): SLICES,
        ("scatter_mul", MULTIPLIED): SLICES,
        ("", PARTLY_DETERMINED.reason): "return the other elements too, as they are or changed by what stays",
        ("", LOST): "return the integer or the bool too",
        ("", TAKEN): "choose by what is held",
        ("", STEPS): "take a number of steps that is known: fori_loop or scan",
    }
)


@by_value
def inverse(
    jaxpr: Jaxpr,
    wanted: Mask,
    log_det: bool = False,
    labels: tuple[str, ...] = (),
    rules: InverseRules = INVERSE_RULES,
) -> Jaxpr:
    """Returns the inverse program: (results, then operands not wanted) -> the operands wanted.

    With `log_det` the last result is log|det| of the Jacobian. `labels` are the names of the operands in messages.

    Law:    inverse(f(x), held) = x, within rounding; log_det = log|det J| of the results in the operands wanted.
    Rule:   works on the dataflow graph, independent of the order of equations; every result is assumed to be correct.
    Raises: NotInvertibleError that names the equation.
    """
    fixed = tuple([not w for w in wanted])
    every = (True,) * len(jaxpr.outs)
    determined = determine(jaxpr, fixed, every, rules, log_det)
    for k, (w, s) in enumerate(zip(wanted, determined.solved, strict=True)):
        if w and not s:
            label = labels[k] if labels else f"operand {k}"
            which = f"{label} of {jaxpr.name} is not determined by its results"
            why = reason_in_program(jaxpr, fixed, every, rules, k, determined.refused)
            raise not_invertible("inverse", which, why, REMEDY)
    if determined.unmeasured:
        again = determine(jaxpr, fixed, every, rules, True, True)
        raise not_invertible(
            "inverse", f"log_det of {jaxpr.name}", again.unmeasured or determined.unmeasured, WITHOUT_LOG_DET
        )
    if log_det:
        check_square(jaxpr, wanted)
    return determined.program


def check_square(jaxpr: Jaxpr, wanted: Mask) -> None:
    """Checks that the Jacobian is square. Raises: NotInvertibleError if it is not."""
    n, m = real_numbers(select_by_mask(jaxpr.in_avals, wanted)), real_numbers(jaxpr.out_avals)
    if n != m:
        raise NotInvertibleError(
            f"inverse: log_det of {jaxpr.name}: {not_square(m, n)}",
            remedy="return as many numbers as are to be reconstructed",
        )


def reason_in_program(
    jaxpr: Jaxpr, known: Mask, outs: Mask, rules: InverseRules, k: int, why: Refused | None
) -> Refused:
    """Returns the reason why operand k is not determined, with an equation of the original program.

    `why` was found in another form of the program: without dead and duplicate equations, or with additional values for
    derivatives. The result is the equation between the operand and the results that is refused for the same reason.
    """
    assert why is not None, "something is not determined"
    traced, origins = normal_form_with_origins(
        Jaxpr(jaxpr.ins, jaxpr.eqns, select_by_mask(jaxpr.outs, outs), jaxpr.name)
    )
    plan = solve(
        without_effects_and_checks(traced), (*select_by_mask(jaxpr.ins, known), *traced.outs), rules, False, origins
    )
    reasons = list(plan.reasons(traced.ins[k]))
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


def not_invertible(what: str, which: str, why: Refused, remedy: str = "") -> NotInvertibleError:
    """Returns the error for a value that the results do not determine."""
    hint = HINTS.get((why.name, why.reason)) or HINTS.get(("", why.reason))
    remedy = "; or ".join([part for part in (hint, remedy) if part])
    subject = f"{why.name} is not inverted: {why.reason}" if why.name else why.reason
    message = f"{what}: {which}: {subject}"
    return NotInvertibleError(message, equation=why.equation, where=why.where, inside=why.inside, remedy=remedy)
