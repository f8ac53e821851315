"""The page of a program, and that of two programs."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.diagnosis.explain.cost_sections import NOWHERE, digits_section, memory_section, time_section
from fxad.diagnosis.explain.error_tables import ErrorTable
from fxad.diagnosis.explain.memory_rows import memory
from fxad.diagnosis.explain.observations import Place
from fxad.diagnosis.explain.page import Findings, Page, PageBlock, PageSection
from fxad.diagnosis.explain.parts import explained_program
from fxad.diagnosis.explain.profiles import read_profile
from fxad.diagnosis.explain.program_sections import (
    DIFF_EQUATIONS,
    diff_block,
    identity_section,
    program_section,
    residuals_section,
    stages_section,
    units_section,
)
from fxad.diagnosis.explain.source_section import source_section
from fxad.diagnosis.explain.texts import amount, duration, line_text
from fxad.diagnosis.explain.time_rows import estimated_times, measured_times
from fxad.diagnosis.explain.verdict import verdict
from fxad.execution.executable import Executable
from fxad.ir import Jaxpr
from fxad.support.tables import Table
from fxad.transforms.memory.residuals import Residuals


def page_of(
    executable: Executable[..., object],
    profile: str | None,
    digits: ErrorTable | None,
    residuals: Residuals | None,
    compared: Jaxpr | None = None,
) -> Page:
    """Return the page of a compiled program. `compared` is the program that it is compared with."""
    s = explained_program(executable)
    at_peak = memory(s)
    time = estimated_times(s)
    measured = None if profile is None else read_profile(profile)
    if measured is not None:
        time = measured_times(s, *measured)
    sections = [
        identity_section(s),
        memory_section(s, at_peak),
        time_section(s.equations, time),
        source_section(s.equations, at_peak.rows, time, digits),
        *([] if digits is None else [digits_section(digits)]),
        stages_section(executable.lowered),
        units_section(s),
        residuals_section(at_peak, residuals),
        program_section(s.equations),
    ]
    conclusion = verdict(s, at_peak, time, digits, compared)
    return Page(
        executable.program.name, conclusion.findings, at_peak.rows, tuple(time), tuple(sections), conclusion.problems
    )


def comparison(before: Page, after: Page, old: Jaxpr, new: Jaxpr) -> Page:
    """Return the page of the second program, with what differs from the first one."""
    size = _differences([(r.line, r.bytes) for r in before.memory], [(r.line, r.bytes) for r in after.memory])
    time = _differences([(r.line, r.seconds) for r in before.time], [(r.line, r.seconds) for r in after.time])
    rows = []
    for line in sorted(
        {*size, *time}, key=lambda k: (-abs(size.get(k, (0, 0, 0))[2]), -abs(time.get(k, (0, 0, 0))[2]), k)
    ):
        b, t = size.get(line, (0, 0, 0)), time.get(line, (0.0, 0.0, 0.0))
        if b[2] or t[2]:
            rows.append((line, f"{b[0]:,}", f"{b[1]:,}", f"{b[2]:+,}", duration(t[0]), duration(t[1]), _change(t[2])))
    head = ("line", "bytes before", "after", "change", "time before", "after", "change")
    table = Table(head, tuple(rows), right=(1, 2, 3, 4, 5, 6))
    grew = _named([(k, v[2]) for k, v in size.items() if v[2] > 0])
    shrank = _named([(k, v[2]) for k, v in size.items() if v[2] < 0])
    totals = [sum([r.bytes for r in p.memory]) for p in (before, after)]
    temporaries = f"temporaries {amount(totals[0])} before, {amount(totals[1])} after"
    change = Findings("change", (temporaries, f"grew: {grew}", f"shrank: {shrank}"))
    same = "The programs are equal." if old is new else "The programs side by side:"
    blocks: list[PageBlock] = [table, same]
    if old is not new and max(len(old.eqns), len(new.eqns)) <= DIFF_EQUATIONS:
        blocks.append(diff_block(old, new))
    section = PageSection("change", "What changed", tuple(blocks))
    return Page(
        f"{before.name} and {after.name}",
        (change, *after.findings),
        after.memory,
        after.time,
        (section, *after.sections),
        after.problems,
    )


def _change(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def _named(changes: list[tuple[str, float]]) -> str:
    changes.sort(key=lambda c: -abs(c[1]))
    return ", ".join([f"{k} by {amount(abs(n))}" for k, n in changes[:3]]) or "nothing"


def _differences(
    before: Sequence[tuple[Place, float]], after: Sequence[tuple[Place, float]]
) -> dict[str, tuple[float, float, float]]:
    """Return the sums by line before and after, and their difference. A line is known by the name of its file, its
    number and its function."""
    sums: dict[str, list[float]] = {}
    for k, rows in enumerate((before, after)):
        for line, n in rows:
            sums.setdefault(line_text(line, NOWHERE), [0, 0])[k] += n
    return {key: (a, b, b - a) for key, (a, b) in sums.items()}
