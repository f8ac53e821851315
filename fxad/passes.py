"""The passes that run on a program between tracing and XLA, as values in two tuples, one for each of two moments.

    function ──trace──▶ BEFORE_DIFFERENTIATION ──grad, vjp, ...──▶ BEFORE_COMPILATION ──▶ plan of units ──▶ XLA

- `grad`, `vjp` and the like run BEFORE_DIFFERENTIATION on the program, that of a function as soon as it is traced. So
  `grad(trace(f, x))` is the trace of `grad(f)`. They differentiate what `fx.apply_passes` with this tuple gives. The
  transformations of jaxprs in `fxad.transforms` run no pass.
- A program with a budget then goes through the first pass of WITHIN_BUDGET under which its executable fits.
- Compilation calls `plan_of`. It runs BEFORE_COMPILATION if the program is large enough, and plans units of the result.
  If the cost rule of `fxad.units.cost_rule` says that they pay, they are compiled; otherwise the program is compiled
  unchanged. `lower(program, passes=...)` and `jit(f, passes=...)` take another tuple, which is always run.

`lowered.stages` shows the program after each pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from math import inf
from typing import Final, SupportsIndex, final

from fxad import transforms
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.core.passes import Pass, Passes
from fxad.errors import ArgumentError, AxisError, ParameterError, shown
from fxad.ir import Aval, Jaxpr, distinct_jaxprs
from fxad.primitives.control.remat import body_of_call_or_remat
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.primitives.custom import has_reversible
from fxad.support.constants import GROUP_MICROSECONDS, SAVED_MS, STRETCH_OPERATIONS, WASTE
from fxad.support.tables import Shown, Table, as_row_number
from fxad.transforms.cleanup.derivative_rules import drop_derivative_rules
from fxad.transforms.costs import weight_of_nested
from fxad.transforms.outlining.merge_bodies import merge_bodies
from fxad.transforms.outlining.outline import outline
from fxad.transforms.outlining.outline_before_ad import outline_before_ad
from fxad.units.cost_rule import (
    large_enough,
    left_to_compile,
    saves_compile_time,
    units_by_cost,
    uses,
)
from fxad.units.pieces import has_recomputation
from fxad.units.plan import UnitPlan, UnitsChoice, linked_plan, single_unit
from fxad.units.stretches import cut_stretches

# ------------------------------------------------------------------------------------------------------ the pipeline


def _merge_bodies(jaxpr: Jaxpr) -> Jaxpr:
    """Merge bodies: if one lacks a few equations of a larger one, its calls become calls of that one."""
    return merge_bodies(jaxpr, WASTE)


def _outline(jaxpr: Jaxpr) -> Jaxpr:
    """Outline a program, unless most of its equations are in repeated calls already. The gradient of a function that
    was outlined before differentiation is such a program, so a program is outlined once."""
    if 2 * left_to_compile(jaxpr, units_by_cost(jaxpr)) <= weight_of_nested(jaxpr).equations:
        return jaxpr
    return outline(jaxpr, GROUP_MICROSECONDS, WASTE)


def _merge_invertible(jaxpr: Jaxpr) -> Jaxpr:
    """Merge consecutive `invertible` calls.

    The pass needs the inverse rules of all primitives. `fxad.transforms` imports the file of a name when the name is
    first used (`core/lazy_exports`), so a process without reversible equations imports none of them.
    """
    return transforms.merge_invertible(jaxpr) if has_reversible(jaxpr) else jaxpr


def _memory_passes(jaxpr: Jaxpr) -> Iterable[Pass]:
    """Return the passes of the memory planner, which is imported here, as above: for a program with a budget."""
    return transforms.memory_passes(jaxpr)


BEFORE_DIFFERENTIATION: Final[Passes] = (
    Pass("outline_before_ad", outline_before_ad),
    Pass("merge_invertible", _merge_invertible),
)
BEFORE_COMPILATION: Final[Passes] = (
    Pass("drop_derivative_rules", drop_derivative_rules),
    Pass("merge_bodies", _merge_bodies),
    Pass("outline", _outline),
)
# For a program with a budget: functions that give passes, in order. The first under which the program fits runs last.
WITHIN_BUDGET: Final[tuple[Callable[[Jaxpr], Iterable[Pass]], ...]] = (_memory_passes,)
# Both, to read and to compare: nothing runs it as a whole.
PIPELINE: Final[tuple[Passes, Passes]] = (BEFORE_DIFFERENTIATION, BEFORE_COMPILATION)


def check_passes(what: str, passes: object, optional: bool = True) -> None:
    """Check that `passes` is a tuple of passes, or None if that is optional. Raises: ParameterError."""
    if (passes is None and optional) or (isinstance(passes, tuple) and all([isinstance(p, Pass) for p in passes])):
        return
    raise ParameterError(
        f"{what}: passes must be a tuple of Pass, got {shown(passes)}",
        remedy="passes=(fx.passes.Pass('cse', function),), with a function from Jaxpr to Jaxpr; () is no pass",
    )


def run_passes(jaxpr: Jaxpr, passes: Passes) -> Jaxpr:
    """Return the program after all passes, in order."""
    for p in passes:
        jaxpr = _run_pass(jaxpr, p).result or jaxpr
    return jaxpr


@final
@dataclass(frozen=True, slots=True)
class _PassResult:
    """The result of a pass, and the seconds it took. `result` is None if the pass returned its argument: the memo of a
    program must not refer to the program."""

    result: Jaxpr | None
    seconds: float


@by_value
def _run_pass(jaxpr: Jaxpr, p: Pass) -> _PassResult:
    start = time.perf_counter()
    out = p(jaxpr)
    return _PassResult(None if out is jaxpr else out, time.perf_counter() - start)


# ------------------------------------------------------------------------------------------------------------- plans


def plan_of(jaxpr: Jaxpr, choice: UnitsChoice, donate: tuple[int, ...] = (), passes: Passes | None = None) -> UnitPlan:
    """Return the plan by which a program is compiled after the passes. The plan may overwrite operands in `donate`.

    `passes` are those that the caller gives, which run here, on any program; () is none. None stands for the default
    pipeline, which is for "auto" only, and runs in `_plan_by_cost`, between the check that the program is large enough
    and the choice of units.

    The units are, in this order: one, if the caller's `choice` is "none"; those that the last pass selects, if its
    field `units` is a function, also in place of bodies that the caller chose (a memory plan runs its blocks in order,
    which holds for its own units only); the bodies in `choice`; for "auto", what the cost model says.

    Law: a pure function of the arguments; "auto" gives a single unit if several do not pay.
    """
    if passes is not None:
        jaxpr = run_passes(jaxpr, passes)
        if passes and choice != "none" and (units_of := passes[-1].units):
            choice = units_of(jaxpr)
    if isinstance(choice, tuple):
        plan = _plan_by_choice(jaxpr, choice, donate)
    elif choice == "auto":
        plan = _plan_by_cost(jaxpr, donate, BEFORE_COMPILATION if passes is None else ())
        if plan is None:  # XLA gets the program as it is, but for the borders of pieces
            plan = _plan_by_size(jaxpr, donate)
    else:
        plan = None
    # A plan of a single unit refers to the program, so it is not memoised: it would keep the program alive.
    return plan or single_unit(jaxpr, donate)


@by_value
def _plan_by_choice(jaxpr: Jaxpr, chosen: tuple[Jaxpr, ...], donate: tuple[int, ...]) -> UnitPlan | None:
    """Return the plan with the units that the user chose; None if it has one step only, or runs on several devices."""
    return None if runs_on_devices(jaxpr) else linked_plan(jaxpr, chosen, donate, jaxpr.name)


@by_value
def _plan_by_cost(jaxpr: Jaxpr, donate: tuple[int, ...], passes: Passes) -> UnitPlan | None:
    """Return the plan with the units that the cost model chooses; None if there is one step only, or if units do not
    pay.

    `passes` run after the program was found large enough, and the units are chosen in their result. A program on
    several devices is one unit (docs/adr/0077).

    | program | units need to save | no plan if |
    |---|---|---|
    | donates or recomputes | nothing: they save memory | small, or one step |
    | any other | `SAVED_MS` | small, one step, or they save less |

    Without a plan, `_plan_by_size` asks another question: is there a stretch that XLA compiles too slowly?
    """
    if runs_on_devices(jaxpr):
        return None
    one_unit = drop_derivative_rules(jaxpr)  # the program as one unit: XLA gets no derivative rules
    # A program that donates or recomputes was written to hold less memory. As units it does (docs/adr/0024).
    least_saving = -inf if donate or has_recomputation(one_unit) else SAVED_MS
    if not large_enough(one_unit, least_saving):
        return None
    after_passes = run_passes(jaxpr, passes)
    cut, chosen = cut_stretches(after_passes, units_by_cost(after_passes))
    plan = linked_plan(cut, chosen, donate, jaxpr.name)
    # The estimate is of the units of the plan: they recompute cheap values, so they store less and have fewer kernels.
    return plan if plan and saves_compile_time([u.body for u in plan.units], one_unit, least_saving) else None


@by_value
def _plan_by_size(jaxpr: Jaxpr, donate: tuple[int, ...]) -> UnitPlan | None:
    """Return the plan of a program that has a long stretch of fusible equations, whose pieces are units; None for
    another program, and for one that recomputes, in whose pieces XLA would merge what is computed again."""
    if runs_on_devices(jaxpr) or weight_of_nested(jaxpr).equations <= STRETCH_OPERATIONS or has_recomputation(jaxpr):
        return None
    cut, chosen = cut_stretches(drop_derivative_rules(jaxpr), ())
    return linked_plan(cut, chosen, donate, jaxpr.name) if chosen else None


# ------------------------------------------------------------------------------------------------------------ stages


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """A program after a pass. `name` is the name of the pass; the first stage is the input, named "program".

    `seconds` is the time of the run of the pass. A pass runs once for each distinct program.
    """

    name: str
    program: Jaxpr
    seconds: float = field(default=0.0, compare=False)

    @property
    def equations(self) -> int:
        """Equations of the program and of its bodies, each distinct body once."""
        return sum([len(body.eqns) for body in distinct_jaxprs(self.program)])

    @property
    def bytes(self) -> int:
        """Bytes that the equations write in one run, with the bodies of calls, without those of loops and branches."""
        times = {**uses(self.program), self.program: 1}
        return sum([n * sum([a.nbytes for a in _written(body)]) for body, n in times.items()])


def _written(jaxpr: Jaxpr) -> list[Aval]:
    return [v.aval for e in jaxpr.eqns if body_of_call_or_remat(e) is None for v in e.outs]


@final
@dataclass(frozen=True, slots=True)
class Stages(Shown):
    """A program, and the result of each pass on it, in order. `str(stages)` is a table."""

    stages: tuple[Stage, ...]

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __getitem__(self, k: SupportsIndex | str) -> Stage:
        """Return the stage at an index, or that of the pass with a name; the last one, if the pass ran twice.

        Raises: ArgumentError for what is neither a number nor a name, AxisError for a number without a stage, and
                ParameterError for an unknown name.
        """
        stages, names = self.stages, ", ".join([s.name for s in self.stages])
        if isinstance(k, str):
            stage = next((s for s in reversed(stages) if s.name == k), None)
            if stage is None:
                raise ParameterError(
                    f"stages: the program goes through no pass {k!r}", remedy=f"its stages are {names}"
                )
            return stage
        if (number := as_row_number(k)) is None:
            raise ArgumentError(
                f"stages: {shown(k)} is neither the number of a stage nor its name",
                remedy=f"pass one integer or one name; list(stages) has all of them: {names}",
            )
        if not -len(stages) <= number < len(stages):
            raise AxisError(
                f"stages: stage {number} does not exist: there are {len(stages)}",
                remedy=f"they are numbered from 0: {names}",
            )
        return stages[number]

    def table(self, *, times: bool = True) -> str:
        """Return the stages as text; `times` adds the milliseconds of each pass."""
        return self._table(times).text()

    def __str__(self) -> str:
        return self.table()

    def _shown(self) -> tuple[str, Sequence[Table]]:
        return "", [self._table(True)]

    def _table(self, times: bool) -> Table:
        rows = [
            (s.name, f"{s.equations:,}", f"{s.bytes:,}", f"{1e3 * s.seconds:.1f}" if times else "") for s in self.stages
        ]
        return Table(("stage", "equations", "bytes", "ms" if times else ""), tuple(rows), right=(1, 2, 3))


def stages_of(jaxpr: Jaxpr, choice: UnitsChoice, donate: tuple[int, ...] = (), passes: Passes | None = None) -> Stages:
    """Return the program, and the result of each pass that `plan_of` runs on it."""
    if passes is None:
        by_cost = choice == "auto" and _plan_by_cost(jaxpr, donate, BEFORE_COMPILATION) is not None
        passes = BEFORE_COMPILATION if by_cost else ()
    stages = [Stage("program", jaxpr)]
    for p in passes:
        outcome = _run_pass(jaxpr, p)
        jaxpr = outcome.result or jaxpr
        stages.append(Stage(p.name, jaxpr, outcome.seconds))
    return Stages(tuple(stages))


__all__ = [
    "BEFORE_COMPILATION",
    "BEFORE_DIFFERENTIATION",
    "PIPELINE",
    "WITHIN_BUDGET",
    "Pass",
    "Passes",
    "Stage",
    "Stages",
    "run_passes",
]


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
