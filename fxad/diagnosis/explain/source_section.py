"""The section of a page that shows the user's lines, with their costs in the margin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from fxad.diagnosis.explain.cost_sections import file_and_number, sums, with_calls
from fxad.diagnosis.explain.equations import Equations, ExplainedEquation
from fxad.diagnosis.explain.error_tables import ErrorTable, errors_by_line
from fxad.diagnosis.explain.memory_rows import MemoryRow
from fxad.diagnosis.explain.page import PageBlock, PageSection, SourceLines
from fxad.diagnosis.explain.texts import duration, line_text
from fxad.diagnosis.explain.time_rows import TimeRow
from fxad.ir import HigherOrder
from fxad.storage.source_lines import text_of
from fxad.support.tables import Table

_SOURCE_LINES: Final = 400  # greatest number of lines of the user's files that are shown
_CONTEXT: Final = 2  # number of lines shown before and after a line with a cost

_Line: TypeAlias = tuple[str, int]  # a file and a number


def source_section(
    equations: Equations, at_peak: Sequence[MemoryRow], time: Sequence[TimeRow], digits: ErrorTable | None
) -> PageSection:
    """Return the lines of the user with their costs in the margin, those of loops and other bodies, those that call
    them, and those around them. Where the text is not that of the program, the lines stand alone."""
    size = sums([(file_and_number(r.line), r.bytes) for r in at_peak])
    seconds = sums([(file_and_number(t.line), t.seconds) for t in time])
    flops = sums([(file_and_number(t.line), t.flops) for t in time])
    with_callees = with_calls(equations, [(t.number, t.seconds) for t in time])
    errors = {} if digits is None else {file_and_number(x.line): x for x in errors_by_line(digits)}
    bodies = {file_and_number(e.line) for e in equations if isinstance(e.eqn.prim, HigherOrder)}
    lines = {*size, *seconds, *with_callees, *errors, *bodies} - {("", 0)}
    first: dict[_Line, ExplainedEquation] = {}
    digests: dict[str, str] = {}
    functions: dict[_Line, str] = {}
    for e in equations:
        first.setdefault(file_and_number(e.line), e)
        for location in () if e.line is None else (e.line, *e.line.callers):
            functions.setdefault(file_and_number(location), line_text(location).partition(" ")[2])
            if e.line is not None and e.line.digest:
                digests[location.file] = location.digest
    files = Counter[str]()
    for line in lines:
        files[line[0]] += int(size.get(line, 0))

    def cells(line: _Line) -> list[str]:
        callees = with_callees.get(line, 0.0) > 1.001 * seconds.get(line, 0.0)
        error = errors[line].error if line in errors else 0.0
        return [
            f"{size[line]:,.0f}" if size.get(line) else "",
            f"{flops[line]:.3g}" if flops.get(line) else "",
            duration(seconds[line]) if seconds.get(line) else "",
            duration(with_callees[line]) if callees else "",
            *([] if digits is None else [f"{error:.1e}" if error else ""]),
        ]

    blocks: list[PageBlock] = []
    remaining = _SOURCE_LINES
    margin = ("bytes", "flops", "time", "with calls", *([] if digits is None else ["error"]), "line")
    for file in sorted(files, key=lambda f: (-files[f], f)):
        numbers = sorted({k for f, k in lines if f == file})
        text = text_of(file, digests.get(file, ""))
        if text:
            around = {k for n in numbers for k in range(n - _CONTEXT, n + _CONTEXT + 1)}
            numbers = sorted(around & {*range(1, len(text) + 1)})
        else:
            blocks.append(f"{file}: its text is not here, or is another one than when the program was saved")
        numbers = numbers[:remaining]
        remaining -= len(numbers)
        rows: list[tuple[str, ...]] = []
        equation_numbers: list[int | None] = []
        for previous, k in pairwise([0, *numbers]):
            line = file, k
            if text and previous and k > previous + 1:
                rows.append((*[""] * len(margin), "..."))
                equation_numbers.append(None)
            source = text[k - 1].rstrip("\n") if text else functions.get(line, "")
            rows.append((*cells(line), str(k), source))
            equation_numbers.append(first[line].number if line in first else None)
        if rows:
            table = Table((*margin, file), tuple(rows), right=tuple(range(len(margin))))
            blocks.append(SourceLines(file, table, tuple(equation_numbers)))
    if not blocks:
        blocks.append("No equation has a line: a program of a text, or a file saved with lines=False, has none.")
    return PageSection("source", "Source", tuple(blocks))
