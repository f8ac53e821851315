"""The program of a page: its equations, and the parts that XLA compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.equations import Equations, ExplainedEquation
from fxad.diagnosis.explain.hlo import Assignment, HloModule, read_assignment, read_module
from fxad.diagnosis.explain.live import BufferSchedule, schedule
from fxad.diagnosis.explain.origins import Origins
from fxad.execution.executable import Executable
from fxad.ir import SourceLocation
from fxad.runtime import MemoryStats, XlaExecutable
from fxad.units.plan import UnitPlan

# The lines that called the function of a line, each with its share, the largest first.
Callers: TypeAlias = tuple[tuple[SourceLocation, float], ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class PartOfProgram:
    """A part that XLA compiled: its executable, and what XLA says of it; None if this jaxlib does not say."""

    executable: XlaExecutable
    stats: MemoryStats
    module: HloModule | None
    assignment: Assignment | None
    schedule: BufferSchedule | None
    origins: Origins | None
    problem: str = ""  # why there is none


@final
@dataclass(frozen=True, slots=True, eq=False)
class ExplainedProgram:
    """The program of a page, in parts, with its equations. `stats` is `executable.memory()`, which takes time."""

    executable: Executable[..., object]
    stats: MemoryStats
    plan: UnitPlan
    equations: Equations
    parts: tuple[PartOfProgram, ...]


def explained_program(executable: Executable[..., object]) -> ExplainedProgram:
    """Return the parts of a compiled program. Cost: reads what XLA says of each part; linear in its instructions."""
    plan = executable.lowered.units
    equations = Equations([(u.body, u.uses) for u in plan.units])
    parts = tuple([_part(p, equations) for p in executable.parts])
    stats = parts[0].stats if len(plan.steps) == 1 else executable.memory()
    return ExplainedProgram(executable, stats, plan, equations, parts)


def _part(executable: XlaExecutable, equations: Equations) -> PartOfProgram:
    module_bytes, assignment_bytes = executable.hlo_proto(), executable.buffer_assignment_proto()
    stats = executable.memory()
    if not module_bytes:
        return PartOfProgram(
            executable, stats, None, None, None, None, "this jaxlib does not give the optimised module"
        )
    try:
        module = read_module(module_bytes)
        origins = Origins(module, equations)
        if not assignment_bytes:
            problem = "this jaxlib does not give XLA's assignment of buffers"
            return PartOfProgram(executable, stats, module, None, None, origins, problem)
        assignment = read_assignment(assignment_bytes)
        return PartOfProgram(executable, stats, module, assignment, schedule(module, assignment), origins)
    except (ValueError, LookupError) as e:
        problem = f"the messages of this jaxlib cannot be read: {type(e).__name__}: {e}"
        return PartOfProgram(executable, stats, None, None, None, None, problem)


def callers_of(equations: Equations, explained: Sequence[ExplainedEquation]) -> Callers:
    """Return the lines that call the functions of the lines of equations, with their shares of the runs."""
    runs: dict[SourceLocation, float] = {}
    for e in explained:
        for line, share in equations.callers(e).items():
            runs[line] = runs.get(line, 0.0) + share * max(1, e.runs)
    total = sum(runs.values())
    return tuple(sorted([(line, n / total) for line, n in runs.items()], key=lambda c: -c[1]))
