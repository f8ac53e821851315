"""Plans of mixed precision: which equations compute in a narrower dtype, within a tolerance."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite, sqrt
from typing import Final, SupportsIndex, final

from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.errors import ArgumentError, shown
from fxad.ir import Jaxpr, SourceLocation
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.support.tables import ShownSummary, Table, as_row_number
from fxad.transforms.costs import microseconds
from fxad.transforms.locate import innermost
from fxad.transforms.precision.cast import Decisions
from fxad.transforms.precision.retype import unit_roundoff
from fxad.transforms.precision.table import RoundingErrors, body_of, relative_to

_OPERANDS: Final = 2.0  # the operands of an equation are rounded too: they add about as much as its result


@final
@dataclass(frozen=True, slots=True)
class PlannedEquation:
    """An equation that a plan of mixed precision decides: one of a body stands for all uses of the body.

    `error` is the error that it is expected to add in the narrower dtype, relative to the size of the results. `cast`
    is True if it computes in that dtype. `reason` says why. `program` and `number` are the digest of its program and
    its number there. `equation`, `line` and `lines` are those of `RoundingError`.
    """

    error: float
    cast: bool
    reason: str
    equation: str
    lines: tuple[SourceLocation, ...]
    program: str
    number: int
    microseconds: float

    @property
    def line(self) -> SourceLocation | None:
        """The line of the equation itself."""
        return innermost(self.lines)


@final
@dataclass(frozen=True, slots=True)
class PrecisionPlan(ShownSummary[PlannedEquation]):
    """Which equations of a program compute in `dtype`: a table to print and to edit, in the order of the program.

    `fx.cast(program, plan.dtype, keep=plan)` applies it. `error` is the relative error of the compiled program that was
    measured, beside the program itself; None for a plan that was edited since. `keep(k, ...)` and `cast(k, ...)` return
    a copy in which rows stay in their dtype, or compute in `dtype`.
    """

    jaxpr: Jaxpr
    dtype: DType
    tolerance: float
    rows: tuple[PlannedEquation, ...]
    error: float | None = None

    @property
    def decisions(self) -> Decisions:
        """The equations that compute in `dtype`, and those that do not, as `cast` takes them."""
        sets: tuple[set[tuple[str, int]], set[tuple[str, int]]] = set(), set()
        for r in self.rows:
            sets[not r.cast].add((r.program, r.number))
        return Decisions(*map(frozenset, sets))

    def keep(self, *rows: SupportsIndex) -> PrecisionPlan:
        """Return a copy in which these rows stay in their dtype. Raises: ArgumentError for no row."""
        return self._with("keep", rows, False)

    def cast(self, *rows: SupportsIndex) -> PrecisionPlan:
        """Return a copy in which these rows compute in `dtype`. Raises: ArgumentError for no row."""
        return self._with("cast", rows, True)

    def _with(self, what: str, numbers: tuple[SupportsIndex, ...], is_cast: bool) -> PrecisionPlan:
        rows = list(self.rows)
        for number in numbers:
            k = as_row_number(number)
            if k is None or not 0 <= k < len(rows):
                raise ArgumentError(
                    f"plan_precision: {what}: {shown(number)} is not the number of one of {len(rows)} rows",
                    remedy="rows are numbered from 0, as print(plan) shows them",
                )
            rows[k] = replace(rows[k], cast=is_cast, reason="edited")
        return replace(self, rows=tuple(rows), error=None)

    @property
    def _total(self) -> str:
        n = sum([r.cast for r in self.rows])
        measured = "not measured" if self.error is None else f"measured {self.error:.2g}"
        return f"{n} of {len(self.rows)} equations in {self.dtype}, tolerance {self.tolerance:g}, {measured}"

    @property
    def _table(self) -> Table:
        rows = [
            (str(k), str(self.dtype) if r.cast else "kept", f"{r.error:.2g}", r.equation, _place(r), r.reason)
            for k, r in enumerate(self.rows)
        ]
        return Table(("", "computes in", "expected error", "equation", "where", "reason"), tuple(rows), right=(0, 2))

    def __repr__(self) -> str:
        return f"<PrecisionPlan of {self.jaxpr.name}: {self._total}>"

    @property
    def _title(self) -> str:
        return f"Plan of {self.jaxpr.name}"


def _place(r: PlannedEquation) -> str:
    return r.line.short if r.line else ""


def planned(jaxpr: Jaxpr, table: RoundingErrors, dtype: DType, tolerance: float, share: float) -> PrecisionPlan:
    """Return a plan whose expected error is at most `share` of the tolerance. With a share of 0, nothing is cast.

    The expected error of an equation is the norm of what errors of a unit roundoff in each of its elements change in
    the results; those of several equations add up as squares. Equations that save the most time for the error that they
    add are chosen first.
    """
    rows = _candidates(jaxpr, table, dtype)
    order = sorted(range(len(rows)), key=lambda k: (_square(rows[k].error) / max(rows[k].microseconds, 1e-9), k))
    remaining, cast = (tolerance * share) ** 2, set[int]()
    for k in order:
        square = _square(rows[k].error)
        if share > 0 and square <= remaining:
            remaining -= square
            cast.add(k)
    return PrecisionPlan(
        jaxpr,
        dtype,
        tolerance,
        tuple(
            [
                replace(r, cast=k in cast, reason="within the tolerance" if k in cast else _reason(r))
                for k, r in enumerate(rows)
            ]
        ),
    )


def _square(error: float) -> float:
    return error**2 if isfinite(error) else inf


def _reason(r: PlannedEquation) -> str:
    return r.reason or "more than what is left of the tolerance"


def _candidates(jaxpr: Jaxpr, table: RoundingErrors, dtype: DType) -> list[PlannedEquation]:
    """Return the equations that may compute in a narrower dtype, all uses of a body as one."""
    roundoff = unit_roundoff(dtype)
    candidates: dict[tuple[str, int], PlannedEquation] = {}
    for row in table.rows:
        program = jaxpr
        for number, body in zip(row.path[:-1:2], row.path[1::2], strict=True):
            program = body_of(program.eqns[number].prim, body)
        eqn = program.eqns[row.path[-1]]
        if isinstance(eqn.prim, ConvertElementType) or not any(
            [v.aval.inexact and v.aval.dtype.kind != "c" and unit_roundoff(v.aval.dtype) < roundoff for v in eqn.outs]
        ):
            continue
        key = (program.digest, row.path[-1])
        relative = relative_to(_OPERANDS * roundoff * max(row.sensitivity, row.operand_sensitivity), table.size)
        expected = inf if any([cause.flows for cause in row.typed_causes]) else relative
        earlier = candidates.get(key)
        if earlier is None:
            reason = "; ".join(row.causes)
            candidates[key] = PlannedEquation(expected, False, reason, row.equation, row.lines, *key, microseconds(eqn))
        else:
            candidates[key] = replace(
                earlier,
                error=sqrt(_square(earlier.error) + _square(expected)),
                microseconds=earlier.microseconds + microseconds(eqn),
            )
    return list(candidates.values())
