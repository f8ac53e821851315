"""Tables of rounding errors, and what the verdict says of the digits that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, inf, isfinite, isnan, log10
from typing import Final, Protocol, final, runtime_checkable

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.observations import NAMED, Observation, Place, limited
from fxad.diagnosis.explain.parts import ExplainedProgram
from fxad.diagnosis.explain.problems import PageProblem
from fxad.diagnosis.explain.texts import digits_left, line_text, percent
from fxad.ir import Jaxpr, SourceLocation

_ACCURATE: Final = 100.0  # in unit roundoffs: results with a smaller error have no cause worth a line


class ErrorRow(Protocol):
    """A row of a table of rounding errors."""

    @property
    def error(self) -> float:
        """The estimated error that the equation adds to the results; nan if it is not known."""

    @property
    def digits(self) -> float:
        """The decimal digits that are lost by cancellation."""

    @property
    def line(self) -> SourceLocation | None:
        """The user's line."""

    @property
    def equation(self) -> str:
        """The text of the equation."""

    @property
    def causes(self) -> tuple[str, ...]:
        """The faults beside rounding, such as "cancellation of 5 digits", "overflow"."""


@runtime_checkable
class ErrorTable(Protocol):
    """A table of rounding errors, as `fx.rounding_errors` returns it."""

    @property
    def jaxpr(self) -> Jaxpr:
        """The program."""

    @property
    def rows(self) -> Sequence[ErrorRow]:
        """The error that each equation adds."""

    @property
    def relative(self) -> float:
        """The estimated error of the results, relative to their size."""

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding a number to the dtype of a result."""


@final
@dataclass(frozen=True, slots=True)
class LineErrors:
    """The rounding errors of a line. `error` is the norm of those of its equations, `share` its part of the sum over
    all lines; nan if a sum is not finite. `causes` are those of its equations, the worst first."""

    line: SourceLocation | None
    error: float
    share: float
    causes: tuple[str, ...]


def errors_by_line(table: ErrorTable) -> list[LineErrors]:
    """Return the lines with an error or a cause, the largest errors first."""
    errors: dict[Place, float] = {}
    causes: dict[Place, list[str]] = {}
    for r in sorted(table.rows, key=lambda r: -r.digits):
        known = 0.0 if isnan(r.error) else r.error
        if known or r.causes:
            errors[r.line] = hypot(errors.get(r.line, 0.0), known)
            causes.setdefault(r.line, []).extend(r.causes)
    total = sum(errors.values())
    shares = {line: e / total if 0 < total < inf else 0.0 if not e else float("nan") for line, e in errors.items()}
    order = sorted(errors, key=lambda line: -errors[line])
    return [LineErrors(line, errors[line], shares[line], tuple(dict.fromkeys(causes[line]))) for line in order]


def relevant_errors(table: ErrorTable) -> list[ErrorRow]:
    """Return the rows with an error or a cause, the largest errors first, unknown ones last."""
    rows = [r for r in table.rows if r.error > 0 or r.causes]
    return sorted(rows, key=lambda r: (inf if isnan(r.error) else -r.error, -r.digits))


def digit_findings(s: ExplainedProgram, table: ErrorTable | None) -> list[Observation]:
    """Return what the verdict says of digits: the error of the results, its causes, and the lines that add most."""
    if table is None:
        return [Observation("not measured (explain(..., digits=fx.rounding_errors(program, *args)))")]
    lines = errors_by_line(table)
    if not lines:
        return [Observation("no rounding errors")]
    parts = [Observation("the results are exact")]
    if table.relative > 0:
        digits = digits_left(table.relative)
        jaxpr = s.executable.program.jaxpr
        of_program = "" if table.jaxpr is jaxpr else f" of {table.jaxpr.name}"
        parts = [
            Observation(
                f"the results{of_program} have a relative error of {table.relative:.1e}: of their digits, {digits}"
            )
        ]
    worst = sorted([r for r in table.rows if r.causes], key=lambda r: -r.digits)
    accurate = table.relative <= _ACCURATE * table.unit_roundoff
    if accurate:  # what is lost there does not matter
        worst = [r for r in worst if isnan(r.error)]
    caused: dict[str, ErrorRow] = {}
    for r in worst:
        caused.setdefault(f"{line_text(r.line)}: {', '.join(r.causes)}", r)
    parts += limited([Observation(t, _lost_digits(table, t, r)) for t, r in caused.items()], "causes")
    for k, line in enumerate([x for x in lines if x.error > 0][:NAMED]):
        share = f" ({percent(line.share)})" if percent(line.share) else ""
        text = f"{line_text(line.line)} adds an error of {line.error:.1e}{share}"
        # without a cause, the line of the largest error is the problem
        problem = None if k or accurate or worst else _lost_digits(table, text, line)
        parts.append(Observation(text, problem))
    return parts


def _lost_digits(table: ErrorTable, text: str, row: ErrorRow | LineErrors) -> PageProblem | None:
    """Return the problem that a line loses digits of the results."""
    digits = -log10(table.unit_roundoff)
    lost = digits
    if isfinite(table.relative):
        lost = min(digits, log10(max(1.0, table.relative / table.unit_roundoff)))
    severity = lost / digits if table.relative > 0 else 0.0
    remedy = next((how for word, how in _REMEDIES if any([word in cause for cause in row.causes])), _ROUNDED)
    return PageProblem(
        text, f"{lost:.1f} of the {digits:.1f} digits of the results", remedy, severity, "digits", row.line
    )


_ROUNDED: Final = "compute this line in float64, or add in another order; fx.plan_precision chooses dtypes"
_REMEDIES: Final = (
    ("cancellation", "rewrite it without the difference of numbers that are nearly equal, or compute it in float64"),
    ("overflow", "scale the operands first, as by subtracting their maximum before exp, or compute logarithms"),
    ("underflow", "scale the operands first, or compute logarithms"),
    ("not finite", "avoid the operands for which the line is not finite, with where on the operand"),
    ("infinite derivative", "keep the operand away from the point where the derivative is infinite"),
    ("ill-conditioned", "regularise the matrix, or compute this line in float64"),
)
