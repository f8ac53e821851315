"""The verdict: the problems, the worst first, and five lines about memory, time, what repeats, waste and digits.

Each finding names a line of the user and the amount. A line without a finding says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.error_tables import ErrorTable, digit_findings
from fxad.diagnosis.explain.memory_findings import memory_findings, missed_donations, stored_twice, wide_values
from fxad.diagnosis.explain.memory_rows import Memory
from fxad.diagnosis.explain.observations import Observation
from fxad.diagnosis.explain.page import Findings
from fxad.diagnosis.explain.parts import ExplainedProgram
from fxad.diagnosis.explain.problems import PageProblem, ranked
from fxad.diagnosis.explain.time_findings import compiled_again, recomputed, time_findings
from fxad.diagnosis.explain.time_rows import TimeRow
from fxad.ir import Jaxpr


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings by subject, and the problems, the worst first."""

    findings: tuple[Findings, ...]
    problems: tuple[PageProblem, ...]


def verdict(
    s: ExplainedProgram,
    memory: Memory,
    time: Sequence[TimeRow],
    digits: ErrorTable | None,
    compared: Jaxpr | None = None,
) -> Verdict:
    """Return what was found about memory, time, what repeats, what is wasted, digits. `compared` is the program that
    this one is compared with: it is no trace of the same function that was compiled again."""
    storage, duration = memory_findings(s, memory), time_findings(s, time)
    repeats = [*recomputed(s.equations, time), *compiled_again(s, time, compared)]
    waste = [*wide_values(s), *stored_twice(s, memory), *missed_donations(s)]
    errors = digit_findings(s, digits)
    everything = [*storage, *duration, *repeats, *waste, *errors]
    return Verdict(
        (
            Findings("memory", _texts(storage)),
            Findings("time", _texts(duration) or ("nothing runs",)),
            Findings("again", _texts(repeats) or ("nothing is computed or compiled again",)),
            Findings("waste", _texts(waste) or ("none found",)),
            Findings("digits", _texts(errors)),
        ),
        ranked([f.problem for f in everything if f.problem is not None]),
    )


def _texts(findings: Sequence[Observation]) -> tuple[str, ...]:
    return tuple([f.text for f in findings if f.text])
