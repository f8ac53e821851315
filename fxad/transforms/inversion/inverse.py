"""`inverse`: a program from results to operands."""

from __future__ import annotations

from typing import Final

from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.errors import NotInvertibleError
from fxad.ir import Flags, Jaxpr
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.rules.contract import InverseTable
from fxad.transforms.inversion.rules.totals import not_square, real_numbers
from fxad.transforms.inversion.solver import partial_inverse

REMEDY: Final = "hold the argument (argnums), or give the function that is not inverted a custom_inverse"

WITHOUT_LOG_DET: Final = "ask for the arguments alone, and add the log-determinant by hand"


@by_value
def inverse(
    jaxpr: Jaxpr,
    unknown_ins: Flags,
    log_det: bool = False,
    labels: tuple[str, ...] = (),
    name: str = "",
    rules: InverseTable = INVERSE_RULES,
) -> Jaxpr:
    """Return the inverse program: (results, then known operands) -> the operands marked in `unknown_ins`.

    With `log_det` the last result is log|det| of the Jacobian. `labels` and `name` are those of the operands and of
    the function in messages: an equal function may have given `jaxpr` its name.

    Law:    inverse(f(x), known) = x, within rounding; log_det = log|det J| of the results in the unknown operands.
    Rule:   works on the dataflow graph, independent of the order of equations; every result is assumed to be correct.
    Raises: NotInvertibleError that names the equation.
    """
    name = name or jaxpr.name
    known_ins, every = tuple([not w for w in unknown_ins]), (True,) * len(jaxpr.outs)
    inverted = partial_inverse(jaxpr, known_ins, every, rules, log_det)
    if inverted.refused or inverted.unmeasured:  # once more, for a message about an equation of the program
        inverted = partial_inverse(jaxpr, known_ins, every, rules, log_det, located=True)
    for k, (w, s) in enumerate(zip(unknown_ins, inverted.solved, strict=True)):
        if w and not s:
            label = labels[k] if labels else f"operand {k} of {name}"
            undetermined = f"{label} is not determined by its results"
            raise inverted.why_not.error("inverse", undetermined, REMEDY)
    if inverted.unmeasured:
        raise inverted.unmeasured.error("inverse", f"log_det of {name}", WITHOUT_LOG_DET)
    if log_det:
        _check_square(jaxpr, unknown_ins, name)
    return inverted.program


def _check_square(jaxpr: Jaxpr, unknown_ins: Flags, name: str) -> None:
    """Check that the Jacobian is square. Raises: NotInvertibleError if it is not."""
    n, m = real_numbers(select_by_flags(jaxpr.in_avals, unknown_ins)), real_numbers(jaxpr.out_avals)
    if n != m:
        raise NotInvertibleError(
            f"inverse: log_det of {name}: {not_square(m, n)}",
            remedy="return as many numbers as are to be reconstructed",
        )
