"""The sections of a page about memory, time and digits: tables by line and by equation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isnan
from typing import Final, TypeVar

from fxad.diagnosis.explain.equations import Equations, shortened
from fxad.diagnosis.explain.error_tables import ErrorTable, errors_by_line, relevant_errors
from fxad.diagnosis.explain.memory_rows import Memory, MemoryRow
from fxad.diagnosis.explain.observations import Place
from fxad.diagnosis.explain.page import EquationRows, PageBlock, PageSection, Picture
from fxad.diagnosis.explain.parts import Callers, ExplainedProgram
from fxad.diagnosis.explain.picture import curve_picture
from fxad.diagnosis.explain.texts import amount, digits_left, duration, line_text, percent
from fxad.diagnosis.explain.time_rows import TimeRow
from fxad.ir import SourceLocation
from fxad.support.tables import Table

NOWHERE: Final = "no line of the user"
_CALLERS: Final = 3  # greatest number of callers of a line that a table names

_Key = TypeVar("_Key")


def memory_section(s: ExplainedProgram, at_peak: Memory) -> PageSection:
    """Return the memory over the schedule, and the values at its peak by line and one by one."""
    total = s.stats.temp_bytes
    single = len(s.plan.steps) == 1
    blocks: list[PageBlock] = []
    if at_peak.problem:
        blocks.append(f"Details are missing: {at_peak.problem}.")
    if at_peak.curve:
        peak = at_peak.curve.index(max(at_peak.curve))
        steps = f"step {peak} of {len(at_peak.curve)} of XLA's schedule"
        words = f"{amount(max(at_peak.curve))} in use at the peak, which is {steps}."
        blocks.append(Picture(curve_picture(at_peak, single), words))
    blocks.append(f"The values in memory at the peak, which sum to the {total:,} bytes of temporaries:")
    blocks.append(_by_line(at_peak.rows))
    rows = [
        (
            f"{r.bytes:,}",
            r.type,
            line_text(r.line, ""),
            "" if r.number is None else str(r.number),
            r.equation,
            ", ".join([line.short for line in r.readers]),
            r.reason,
        )
        for r in at_peak.rows
    ]
    head = ("bytes", "type", "line", "no.", "equation", "read by", "why it is stored")
    blocks.append(EquationRows(Table(head, tuple(rows), right=(0,)), number_at=head.index("no.")))
    return PageSection("memory", "Memory", tuple(blocks))


def _by_line(rows: Sequence[MemoryRow]) -> Table:
    size, count = Counter[Place](), Counter[Place]()
    for r in rows:
        size[r.line] += r.bytes
        count[r.line] += 1
    order = sorted(size, key=lambda line: -size[line])
    total = sum([r.bytes for r in rows if r.bytes > 0])
    called = _called_by([(r.line, r.callers, r.bytes) for r in rows])
    cells = [
        (
            f"{size[k]:,}",
            f"{100 * size[k] / max(1, total):.1f} %",
            str(count[k]),
            line_text(k, NOWHERE),
            called.get(k, ""),
        )
        for k in order
    ]
    return Table(("bytes", "share", "values", "line", "called by"), tuple(cells), right=(0, 1, 2))


def _called_by(rows: Iterable[tuple[Place, Callers, float]]) -> dict[Place, str]:
    """Return the lines that call the function of each line, with their shares of its amount, the largest first."""
    by_caller: dict[Place, dict[SourceLocation, float]] = {}
    for line, callers, n in rows:
        amounts = by_caller.setdefault(line, {})
        for caller, share in callers:
            amounts[caller] = amounts.get(caller, 0.0) + share * n
    texts = {}
    for line, amounts in by_caller.items():
        total = sum(amounts.values())
        order = sorted(amounts, key=lambda caller: (-amounts[caller], caller.file, caller.line))
        named = [f"{line_text(k)} {100 * amounts[k] / total:.0f} %" for k in order[:_CALLERS]] if total else []
        more = [f"{len(order) - _CALLERS} more"] if len(order) > _CALLERS else []
        texts[line] = ", ".join([*named, *more])
    return texts


def with_calls(equations: Equations, rows: Iterable[tuple[int | None, float]]) -> dict[tuple[str, int], float]:
    """Return the amount of each line with that of the functions and bodies that it calls. Rows have the number of an
    equation and an amount."""
    by_equation: dict[int, float] = sums([(number, n) for number, n in rows if number is not None])
    by_line: dict[tuple[str, int], float] = {}
    for number, n in by_equation.items():
        # a line that is on the way twice, as of a recursive function, counts once
        shares: dict[tuple[str, int], float] = {}
        for line, share in equations.lines_on_the_way(equations[number]).items():
            place = file_and_number(line)
            shares[place] = max(share, shares.get(place, 0.0))
        for place, share in shares.items():
            by_line[place] = by_line.get(place, 0.0) + share * n
    return by_line


def time_section(equations: Equations, time: Sequence[TimeRow]) -> PageSection:
    """Return the time, flops and bytes written by line and by equation."""
    total = sum([r.seconds for r in time]) or 1.0
    columns = [r.seconds for r in time], [r.flops for r in time], [float(r.bytes) for r in time]
    seconds, flops, size = (sums([(r.line, n) for r, n in zip(time, column, strict=True)]) for column in columns)
    order = sorted(seconds, key=lambda line: -seconds[line])
    called = _called_by([(r.line, r.callers, r.seconds) for r in time])
    through = with_calls(equations, [(r.number, r.seconds) for r in time])
    lines = [
        (
            duration(seconds[k]),
            f"{100 * seconds[k] / total:.1f} %",
            f"{100 * through.get(file_and_number(k), seconds[k]) / total:.1f} %",
            f"{flops[k]:.3g}",
            f"{size[k]:,.0f}",
            line_text(k, NOWHERE),
            called.get(k, ""),
        )
        for k in order
    ]
    how = (
        "Measured, by a profile of this program."
        if time and time[0].measured
        else "Estimated by fxad's cost model: give a profile for measured times, explain(..., profile=folder)."
    )
    rows = [
        (
            duration(r.seconds),
            f"{r.flops:.3g}",
            f"{r.bytes:,}",
            f"{r.runs:,}",
            line_text(r.line, ""),
            "" if r.number is None else str(r.number),
            r.equation,
        )
        for r in time[:200]
    ]
    by_line = ("time", "share", "with calls", "flops", "bytes written", "line", "called by")
    table = Table(by_line, tuple(lines), right=(0, 1, 2, 3, 4))
    head = ("time", "flops", "bytes written", "runs", "line", "no.", "equation")
    detail = EquationRows(Table(head, tuple(rows), right=(0, 1, 2, 3)), number_at=head.index("no."))
    return PageSection("time", "Time and flops", (how, table, detail))


def sums(amounts: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    """Return the sum of the amounts of each key."""
    totals: dict[_Key, float] = {}
    for key, n in amounts:
        totals[key] = totals.get(key, 0.0) + n
    return totals


def file_and_number(line: Place) -> tuple[str, int]:
    """Return the file of a line and its number; 0 if there is none."""
    return ("", 0) if line is None else (line.file, line.line)


def digits_section(table: ErrorTable) -> PageSection:
    """Return the rounding errors by line and by equation."""
    total = f"Relative error of the results of {table.jaxpr.name}: {table.relative:.2g}"
    if table.relative > 0:
        total += f"; of their decimal digits, {digits_left(table.relative)}"
    lines = [
        (f"{x.error:.2e}", percent(x.share), line_text(x.line, NOWHERE), ", ".join(x.causes))
        for x in errors_by_line(table)
    ]
    rows = [
        (
            "unknown" if isnan(r.error) else f"{r.error:.2e}",
            line_text(r.line, ""),
            shortened(r.equation),
            ", ".join(r.causes),
        )
        for r in relevant_errors(table)
    ]
    blocks: tuple[PageBlock, ...] = (
        f"{total}. Digits lost by line:",
        Table(("error", "share", "line", "cause"), tuple(lines), right=(0, 1)),
        "The rounding error that each equation adds to the results, to first order:",
        Table(("error", "line", "equation", "cause"), tuple(rows), right=(0,)),
    )
    return PageSection("digits", "Digits", blocks)
