"""The table of rounding errors: what each equation adds to the error of the results."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, isnan, log10, sqrt
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Eqn, HigherOrder, Jaxpr, NDArray, Primitive, SourceLocation
from fxad.support.tables import ShownSummary, Table
from fxad.transforms.locate import body_label, describe, lines_of
from fxad.transforms.precision.causes import Cause, CauseKind, EquationWithCauses, digits_lost
from fxad.transforms.precision.retype import unit_roundoff
from fxad.transforms.precision.rounding import Path, Site, applied_body
from fxad.transforms.precision.taps import Sum

_CANCELLATION: Final = 100.0  # operands this many times larger than their difference: two digits
_SHOWN: Final = 30  # rows of the text


@final
@dataclass(frozen=True, slots=True)
class RoundingError(EquationWithCauses):
    """The error that the rounding of one equation adds to the error of the results.

    `error` is the size of the change of the results that it causes, to first order: exact for one real result, and an
    estimate of the Euclidean norm for more. nan if the error of the equation is unknown: it calls the host. `signed` is
    the change of the weighted sum of the results: exact minus computed. `bound` is the norm of the changes that its
    elements cause one by one, without those that cancel each other. `sensitivity` is the norm of the change that errors
    as large as its own elements would cause: times a unit roundoff, what the equation may add in another dtype.
    `operand_sensitivity` is the same for the larger operand of a sum or a difference, and 0 for other operations.

    `equation` is its text, `primitive` its operation, `dtype` that of its result, `inside` names the bodies that
    contain it, and `lines` are the user's lines of those and of the equation, the outermost first. `path` are the
    numbers of the equations and bodies that lead to it. `digits` are the decimal digits lost by cancellation.
    `estimated`: the error is a typical one of such an operation, not that of this run. `typed_causes` is what is wrong
    beside rounding, and `causes` are its texts: "cancellation of 5 digits", "7 digits lost inside" (of a sum or product
    of many terms), "not measured". If the error is not finite, a shadow run names "overflow" and "underflow", what is
    "not finite", and "infinite derivative": the results do not change in proportion to the error, as those of a square
    root of 0.
    """

    error: float
    equation: str
    primitive: str
    dtype: str
    lines: tuple[SourceLocation, ...]
    inside: tuple[str, ...]
    path: Path
    typed_causes: tuple[Cause, ...]
    signed: float
    bound: float
    sensitivity: float
    operand_sensitivity: float = 0.0
    digits: float = 0.0
    estimated: bool = False

    @property
    def where(self) -> SourceLocation | None:
        """The same as `line`, by the name that rows of `residuals` have."""
        return self.line


@final
@dataclass(frozen=True, slots=True, eq=False)
class RoundingErrors(ShownSummary[RoundingError]):
    """The rounding errors of a program for some operands, a row for each equation that rounds, in the order of the
    program. `print` shows the largest ones first.

    `error` is the estimated error of all floating results together (their Euclidean norm), `size` the norm of these
    results, `relative` the quotient. `stopped`: errors of values that `stop_gradient` holds constant are not counted,
    because one of them has no derivative.
    """

    jaxpr: Jaxpr
    rows: tuple[RoundingError, ...]
    error: float
    size: float
    operands: tuple[NDArray, ...]
    stopped: bool = False

    @property
    def relative(self) -> float:
        """The estimated error, relative to the size of the results."""
        return relative_to(self.error, self.size)

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding a number to the dtype of a floating result."""
        return max([unit_roundoff(a.dtype) for a in self.jaxpr.out_avals if a.inexact])

    @property
    def worst(self) -> tuple[RoundingError, ...]:
        """The rows, those with the largest errors first; unknown errors, and then those of rows without one, last."""
        return tuple(
            sorted(self.rows, key=lambda r: (-inf if isnan(r.error) else r.error, len(r.typed_causes)), reverse=True)
        )

    def by_line(self) -> tuple[tuple[SourceLocation | None, float], ...]:
        """Return the errors of the user's lines, the largest first: that of a line is the norm of those of its
        equations."""
        sums: dict[SourceLocation | None, float] = {}
        for row in self.rows:
            if not isnan(row.error):
                sums[row.line] = sums.get(row.line, 0.0) + row.error**2
        return tuple(sorted([(line, sqrt(total)) for line, total in sums.items()], key=lambda x: -x[1]))

    def __repr__(self) -> str:
        return f"<RoundingErrors of {self.jaxpr.name}: {self._total}>"

    @property
    def _total(self) -> str:
        unknown = sum([isnan(r.error) for r in self.rows])
        more = f", without {unknown} unknown" if unknown else ""
        more += ", without those behind stop_gradient" if self.stopped else ""
        return f"error {self.error:.2g}, {self.relative:.2g} of the results{more}"

    @property
    def _table(self) -> Table:
        rows = [r for r in self.worst if r.error > 0 or r.typed_causes]
        head = ("error", "of the results", "equation", "where", "causes")
        return Table(head, tuple([_cells(r, self.size) for r in rows[:_SHOWN]]), right=(0, 1))

    def __str__(self) -> str:
        shown = sum([r.error > 0 or bool(r.typed_causes) for r in self.rows])
        more = f"\n{shown - _SHOWN:,} more rows" if shown > _SHOWN else ""
        return f"{self._table.text()}{more}\n{self._total}"

    @property
    def _title(self) -> str:
        return f"Rounding errors of {self.jaxpr.name}"


def relative_to(error: float, size: float) -> float:
    """Return error / size; 0 for no error, inf for one of a size that is zero or not finite."""
    if error == 0:
        return 0.0
    return error / size if size > 0 and isfinite(size) else inf


def _cells(r: RoundingError, size: float) -> tuple[str, ...]:
    where = f"{r.line.short}{f', {r.line.scope}' if r.line.scope else ''}" if r.line else ""
    return f"{r.error:.2g}", f"{relative_to(r.error, size):.2g}", r.equation, where, "; ".join(r.causes)


def table_of(
    jaxpr: Jaxpr, sites: Sequence[Site], sums: NDArray, size: float, single: bool, operands: tuple[NDArray, ...]
) -> RoundingErrors:
    """Return the table of a program, from the sums of its sites and the size of its floating results. `single`: there
    is one real result."""
    scale = size if 0 < size < inf else 1.0
    rows = tuple([_row(jaxpr, site, row, scale, single) for site, row in zip(sites, sums, strict=True)])
    known = [r for r, site in zip(rows, sites, strict=True) if site.measured]
    signed = sum([r.signed for r in known if not r.estimated])
    if any([r.error == inf for r in rows]):
        error = inf
    elif single:
        error = sqrt(signed**2 + sum([r.bound**2 for r in known if r.estimated]))
    else:
        error = max(abs(signed), sqrt(sum([r.bound**2 for r in known])))
    return RoundingErrors(jaxpr, rows, error, size, operands)


def _row(jaxpr: Jaxpr, site: Site, sums: NDArray, scale: float, single: bool) -> RoundingError:
    """Return the row of a site from its sums, and the causes of its error.

    A sum of squares of summands that is more than `_CANCELLATION` squared times that of the results is a cancellation;
    it loses half the decimal logarithm of their ratio in digits. Example: 1e8 and 1e2 lose 3 digits.
    """
    around, eqn, inside = located(jaxpr, site.path)
    size_squares, operand_squares = float(sums[Sum.SIZE_SQUARES]), float(sums[Sum.SUMMAND_SQUARES])
    error_sum, squares = float(sums[Sum.ERROR]), float(sums[Sum.ERROR_SQUARES])
    unit = _roundoff(eqn)
    signed = scale * unit * error_sum
    size_of_sum = abs(error_sum) if single and not site.estimated else _root(squares)
    bound = scale * unit * size_of_sum
    causes: list[Cause] = []
    digits = 0.0
    if not site.measured:
        causes.append(Cause(CauseKind.NOT_MEASURED))
    else:
        if not isfinite(bound):
            causes.append(Cause(CauseKind.NOT_FINITE))
        if operand_squares > _CANCELLATION**2 * size_squares:
            digits = log10(operand_squares / size_squares) / 2 if size_squares else inf
            causes.append(digits_lost(CauseKind.CANCELLATION, digits))
        elif size_squares and (lost := bound / (scale * unit * _root(size_squares))) > _CANCELLATION:
            digits = log10(lost)
            causes.append(digits_lost(CauseKind.LOST_INSIDE, digits))
    error = bound if site.estimated else abs(signed) if single else max(abs(signed), bound)
    error = float("nan") if not site.measured else inf if not isfinite(error) else error
    return RoundingError(
        error, describe(eqn), eqn.prim.name, str(eqn.outs[0].aval.dtype), lines_of((*around, eqn)), inside, site.path,
        tuple(causes), signed, bound, scale * _root(size_squares), scale * _root(operand_squares), digits,
        site.estimated,
    )  # fmt: skip


def _root(squares: float) -> float:
    """Return the square root of a sum of squares, which may be nan."""
    return sqrt(squares) if squares >= 0 else squares


def _roundoff(eqn: Eqn) -> float:
    """Return the unit roundoff of the coarsest floating result."""
    return max([unit_roundoff(v.aval.dtype) for v in eqn.outs if v.aval.inexact])


def located(jaxpr: Jaxpr, path: Path) -> tuple[tuple[Eqn, ...], Eqn, tuple[str, ...]]:
    """Return the equations around the equation at a path, the equation, and the names of the bodies around it."""
    around: list[Eqn] = []
    inside: list[str] = []
    program = jaxpr
    for at, body in zip(path[:-1:2], path[1::2], strict=True):
        eqn = program.eqns[at]
        around.append(eqn)
        program = body_of(eqn.prim, body)
        inside.append(body_label(eqn, program))
    return tuple(around), program.eqns[path[-1]], tuple(inside)


def body_of(prim: Primitive, number: int) -> Jaxpr:
    """Return the body of a primitive that has a number in a path."""
    assert isinstance(prim, HigherOrder), "an equation with bodies"
    applied = applied_body(prim)
    return prim.layout.bodies[number].jaxpr if applied is None else applied
