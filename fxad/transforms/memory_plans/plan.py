"""Memory plans: values that say which values of a program are stored and which are computed again, and their passes.

A plan is for a program that is not differentiated any more, such as a gradient or a training step. See docs/adr/0095.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import SupportsIndex, final

from fxad.core.dataclasses import dataclass
from fxad.core.passes import Pass, Passes
from fxad.errors import ArgumentError, shown
from fxad.ir import Jaxpr, source_location
from fxad.primitives.marks import without_budgets
from fxad.support.tables import Shown, Table, as_row_number
from fxad.transforms.costs import time_of
from fxad.transforms.liveness import peak_bytes
from fxad.transforms.memory_plans.flat_program import flat_program
from fxad.transforms.memory_plans.rematerialize import Crossing, SegmentSchedule, block_bodies, crossings
from fxad.transforms.memory_plans.search import Recomputation, plain_schedule, recomputations

NAME = "plan_memory"


def memory_passes(jaxpr: Jaxpr) -> Iterator[Pass]:
    """Yield the recomputations that are worth trying for a program, as passes: those that need less time first.

    Law: they do not depend on a budget. So a smaller budget gives the same pass or a later one.
    """
    for recomputation in recomputations(flat_program(jaxpr)):
        yield _pass(recomputation)


def _pass(function: Callable[[Jaxpr], Jaxpr]) -> Pass:
    return Pass(NAME, function, block_bodies)  # each block is a unit, so that the blocks run in order


@final
@dataclass(frozen=True, slots=True)
class MemoryPlan(Shown):
    """The values that a program stores and computes again. `print` shows a row for each value that crosses the turn
    from the forward to the backward part, or that lies between two segments.

    `keep(k, ...)` and `without(k, ...)` return a plan that stores rows, or computes them again. `in_segments(...)`
    returns one with its loops in segments of other sizes. `lower(program, passes=plan.passes)` applies it. `bytes` and
    `microseconds` are estimates: of temporaries, and of run time.
    """

    jaxpr: Jaxpr
    recomputation: Recomputation

    @property
    def program(self) -> Jaxpr:
        """The program under the plan."""
        return self.recomputation(self.jaxpr)

    @property
    def bytes(self) -> int:
        """The estimated bytes of temporaries."""
        return peak_bytes(self.program)

    @property
    def microseconds(self) -> float:
        """The estimated run time."""
        return time_of(self.program)

    @property
    def rows(self) -> tuple[Crossing, ...]:
        """The values of the table."""
        return crossings(self._unscheduled, self._schedule)

    def keep(self, *rows: SupportsIndex) -> MemoryPlan:
        """Return a plan that stores the values of rows.

        Raises: ArgumentError for a row that does not exist.
        """
        numbers = {self._row(k).var.index for k in rows}
        return self._edited(numbers, set())

    def without(self, *rows: SupportsIndex) -> MemoryPlan:
        """Return a plan that computes the values of rows again where they are read after the turn.

        Raises: ArgumentError for a row that does not exist, and for a result of the program, which is in memory anyway.
        """
        for k in rows:
            if self._row(k).fixed:
                raise ArgumentError(
                    f"plan: row {k} is a result of {self.jaxpr.name}, or has an effect: it is not computed again",
                    remedy="choose another row of print(plan)",
                )
        return self._edited(set(), {self._row(k).var.index for k in rows})

    def in_segments(self, *sizes: SupportsIndex) -> MemoryPlan:
        """Return a plan whose pairs of loops run in nested segments of so many steps, outermost first; without sizes
        they store all their steps. The other values are stored: what the planner chose to compute again, in bodies
        too, and rows that were edited are forgotten.

        Raises: ArgumentError for sizes that are not ints from 1 on.
        """
        numbers = [as_row_number(m) for m in sizes]
        valid = tuple([m for m in numbers if m is not None and m > 0])
        if len(valid) < len(numbers):
            raise ArgumentError(
                f"plan: the sizes of segments are {shown(sizes)}, not ints from 1 on",
                remedy="give ints, the outermost first: plan.in_segments(100, 10)",
            )
        flat, segments = flat_program(self.jaxpr), Recomputation(valid)
        changes = segments.program(flat).digest != flat.digest  # no loop may have so many steps, or there is none
        return replace(self, recomputation=segments if changes else Recomputation())

    @property
    def passes(self) -> Passes | None:
        """The plan as passes for `lower` and `jit`: None, the default pipeline, if it computes nothing again. The pass
        raises ArgumentError for another program."""
        if self.recomputation == Recomputation():
            return None
        return (_pass(_ForProgram(self.jaxpr.digest, self.jaxpr.name, self.recomputation)),)

    @property
    def _unscheduled(self) -> Jaxpr:
        return self.recomputation.unscheduled(flat_program(self.jaxpr))

    @property
    def _schedule(self) -> SegmentSchedule:
        return self.recomputation.schedule or plain_schedule(self._unscheduled)

    def _row(self, k: object) -> Crossing:
        number, rows, remedy = as_row_number(k), self.rows, "print(plan) shows the numbers, from 0"
        if number is None:
            raise ArgumentError(f"plan: {shown(k)} is not the number of a row", remedy=remedy)
        if not 0 <= number < len(rows):
            raise ArgumentError(f"plan: row {number} does not exist: there are {len(rows)}", remedy=remedy)
        return rows[number]

    def _edited(self, stored: set[int], recomputed: set[int]) -> MemoryPlan:
        before = self._schedule
        schedule = replace(
            before,
            to_store=tuple(sorted({*before.to_store} - recomputed | stored)),
            to_recompute=tuple(sorted({*before.to_recompute} - stored | recomputed)),
        )
        return replace(self, recomputation=replace(self.recomputation, schedule=schedule))

    def __repr__(self) -> str:
        return f"<MemoryPlan of {self.jaxpr.name}: {len(self.rows)} values, {self.bytes:,} bytes>"

    @property
    def _table(self) -> Table:
        rows = []
        for k, row in enumerate(self.rows):
            where = source_location(row.eqn.source)
            line = where.short if where else ""
            rows.append(
                (str(k), f"{row.var.aval.nbytes:,}", str(row.var.aval), row.eqn.prim.name, line, _treatment(row))
            )
        return Table(("", "bytes", "type", "operation", "where", "after the turn"), tuple(rows), right=(0, 1))

    @property
    def _lines(self) -> Sequence[str]:
        r = self.recomputation
        loops = [f"loops in segments of {', '.join(map(str, r.loops))} steps"] if r.loops else []
        return [*loops, *(["bodies of loops, branches and calls compute values again"] if r.bodies is not None else [])]

    @property
    def _estimate(self) -> str:
        return f"estimate: {self.bytes:,} bytes of temporaries, {self.microseconds:,.0f} microseconds"

    def __str__(self) -> str:
        return "\n".join([*self._lines, self._table.text(), self._estimate])

    def _shown(self) -> tuple[str, Sequence[Table]]:
        return "\n".join([f"MemoryPlan of {self.jaxpr.name}, {self._estimate}", *self._lines]), [self._table]


@final
@dataclass(frozen=True, slots=True)
class _ForProgram:
    """A recomputation of one program. It has the digest: a memo of the program must not refer to the program."""

    digest: str
    name: str
    recomputation: Recomputation

    def __call__(self, jaxpr: Jaxpr) -> Jaxpr:
        program = without_budgets(jaxpr)
        if program.digest != self.digest:
            raise ArgumentError(
                f"lower: the memory plan is for another program: {self.name}, this is {jaxpr.name}",
                remedy="make it with plan_memory(program, budget=...) of this very program",
            )
        return self.recomputation(program)


def _treatment(row: Crossing) -> str:
    if row.stored:
        return "stored"
    if not row.intervals:
        return "not read"
    return f"recomputed in interval{'s' * (len(row.intervals) > 1)} {', '.join(map(str, row.intervals))}"
