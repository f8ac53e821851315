"""Makes the page of a program, and that of two programs."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from typing import Final, TypeAlias, TypeVar

import numpy as np

from fxad.core.diff import side_by_side
from fxad.core.trees import tree
from fxad.diagnosis.explain.equations import Equations, ExplainedEquation, shortened
from fxad.diagnosis.explain.findings import (
    ErrorTable,
    amount,
    by_argument,
    digits_left,
    duration,
    errors_by_line,
    line_text,
    percent,
    relevant_errors,
    verdict,
)
from fxad.diagnosis.explain.page import (
    LISTED,
    EquationRows,
    Findings,
    Listing,
    Page,
    PageBlock,
    PageSection,
    Picture,
    PreformattedLines,
    SourceLines,
)
from fxad.diagnosis.explain.picture import curve_picture
from fxad.diagnosis.explain.profiles import read_profile
from fxad.diagnosis.explain.rows import (
    Callers,
    ExplainedProgram,
    Memory,
    MemoryRow,
    TimeRow,
    estimated_times,
    measured_times,
    memory,
    subject,
)
from fxad.execution.executable import Executable, Lowered
from fxad.ir import HigherOrder, Jaxpr, SourceLocation, Var
from fxad.lowering.jaxlib import jaxlib_version
from fxad.passes import BEFORE_COMPILATION, Stages
from fxad.runtime import CompileOptions
from fxad.storage.source_lines import text_of
from fxad.support.tables import Table
from fxad.transforms.memory.residuals import Residuals

_PYTHON: Final = platform.python_version()
_SOURCE_LINES: Final = 400  # of the user's files
_CONTEXT: Final = 2  # lines of source before and after one with a cost
_DIFF_LINES: Final = 80  # of one pass
_CALLERS: Final = 3  # of a line, that a table names
_NOWHERE: Final = "no line of the user"
_DIFF_EQUATIONS: Final = 3000  # of a program whose passes are shown as diffs

_Line: TypeAlias = "SourceLocation | None"
_Key = TypeVar("_Key")


def page_of(
    executable: Executable[..., object],
    profile: str | None,
    digits: ErrorTable | None,
    residuals: Residuals | None,
    compared: Jaxpr | None = None,
) -> Page:
    """Return the page of a compiled program. `compared` is the program that it is compared with."""
    s = subject(executable)
    held = memory(s)
    time = estimated_times(s)
    measured = None if profile is None else read_profile(profile)
    if measured is not None:
        time = measured_times(s, *measured)
    sections = [
        _identity(s),
        _memory_section(s, held),
        _time_section(s.equations, time),
        _source_section(s.equations, held.rows, time, digits),
        *([] if digits is None else [_digits_section(digits)]),
        _stages_section(executable.lowered),
        _units_section(s),
        _residuals_section(held, residuals),
        _program_section(s.equations),
    ]
    found = verdict(s, held, time, digits, compared)
    return Page(executable.program.name, found.findings, held.rows, tuple(time), tuple(sections), found.problems)


# ------------------------------------------------------------------------------------------------------------ identity


def _version() -> str:
    """Return the version of fxad; that of a checkout is not known."""
    try:
        return version("fxad")
    except PackageNotFoundError:
        return "of a checkout"


def _identity(s: ExplainedProgram) -> PageSection:
    program, lowered = s.executable.program, s.executable.lowered
    memory, cost = s.stats, s.executable.cost()
    passes = "the default pipeline" if lowered.passes is None else ", ".join([p.name for p in lowered.passes]) or "none"
    units = lowered.choice if isinstance(lowered.choice, str) else f"{len(lowered.choice)} bodies chosen by the user"
    arguments = by_argument(program, [k - len(program.bound) for k in lowered.donate])
    donated = ", ".join([paths[0] if len(paths) == 1 else f"{a.name} ({len(paths)} arrays)" for a, paths in arguments])
    how = _options_text(s.executable.choices.options)
    facts = [
        ("program", program.name),
        ("digest", program.jaxpr.digest),
        ("equations", f"{len(s.equations):,} in {len(s.equations.bodies):,} distinct bodies"),
        (
            "compiled",
            f"in {_count(s.parts, 'unit')}, {_count(s.plan.steps, 'step')}; units={units}; passes: {passes}; {how}",
        ),
        ("donated", donated or "nothing"),
        ("device", _devices(s)),
        (
            "versions",
            f"fxad {_version()}, jaxlib {jaxlib_version}, NumPy {np.__version__}, Python {_PYTHON}",
        ),
        ("arguments", amount(memory.argument_bytes)),
        ("results", f"{amount(memory.output_bytes)}, of which {amount(memory.alias_bytes)} reuse arguments"),
        ("temporaries", f"{amount(memory.temp_bytes)} ({memory.temp_bytes:,} bytes)"),
        ("peak", f"{amount(memory.peak_bytes)}, with arguments and results"),
        (
            "XLA's estimate",
            f"{cost.flops:.3g} flops, {amount(cost.bytes_accessed)} read and written; it counts one step of a loop",
        ),
    ]
    values = [(path, str(a)) for path, a in zip(program.paths, program.in_avals, strict=True)]
    bound = [(f"closed-over array {k}", str(a)) for k, a in enumerate(program.jaxpr.in_avals[: len(program.bound)])]
    returned = tree.paths(program.out_tree, "result")
    results = [(path, str(a)) for path, a in zip(returned, program.out_avals, strict=True)]
    return PageSection(
        "identity",
        "What it is",
        (Table(("", ""), tuple(facts)), Table(("value", "type"), (*values, *bound, *results))),
    )


def _devices(s: ExplainedProgram) -> str:
    """Return the devices; the bytes of the page are those of one."""
    devices = s.parts[0].executable.devices
    first = str(devices[0])
    return first if len(devices) == 1 else f"{len(devices)}, {first} to {devices[-1]}: bytes are those of each of them"


def _count(items: Sequence[object], what: str) -> str:
    return f"1 {what}" if len(items) == 1 else f"{len(items):,} {what}s"


def _options_text(options: CompileOptions) -> str:
    """Return the options of XLA, without donated operands."""
    level = [] if options.optimization_level is None else [f"optimization level {options.optimization_level}"]
    return ", ".join([*level, *[f"{name}={value}" for name, value in options.flags]]) or "default options"


# -------------------------------------------------------------------------------------------------------- memory, time


def _memory_section(s: ExplainedProgram, held: Memory) -> PageSection:
    total = s.stats.temp_bytes
    single = len(s.plan.steps) == 1
    blocks: list[PageBlock] = []
    if held.problem:
        blocks.append(f"Details are missing: {held.problem}.")
    if held.curve:
        where = held.curve.index(max(held.curve))
        steps = f"step {where} of {len(held.curve)} of XLA's schedule"
        words = f"{amount(max(held.curve))} in use at the peak, which is {steps}."
        blocks.append(Picture(curve_picture(held, single), words))
    blocks.append(f"The values in memory at the peak, which sum to the {total:,} bytes of temporaries:")
    blocks.append(_by_line(held.rows))
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
        for r in held.rows
    ]
    head = ("bytes", "type", "line", "no.", "equation", "read by", "why it is stored")
    blocks.append(EquationRows(Table(head, tuple(rows), right=(0,)), number_at=head.index("no.")))
    return PageSection("memory", "Memory", tuple(blocks))


def _by_line(rows: Sequence[MemoryRow]) -> Table:
    size, count = Counter[_Line](), Counter[_Line]()
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
            line_text(k, _NOWHERE),
            called.get(k, ""),
        )
        for k in order
    ]
    return Table(("bytes", "share", "values", "line", "called by"), tuple(cells), right=(0, 1, 2))


def _called_by(rows: Iterable[tuple[_Line, Callers, float]]) -> dict[_Line, str]:
    """Return the lines that call the function of each line, with their shares of its amount, the largest first."""
    sums: dict[_Line, dict[SourceLocation, float]] = {}
    for line, callers, n in rows:
        of_line = sums.setdefault(line, {})
        for caller, share in callers:
            of_line[caller] = of_line.get(caller, 0.0) + share * n
    out = {}
    for line, of_line in sums.items():
        total = sum(of_line.values())
        order = sorted(of_line, key=lambda k: (-of_line[k], k.file, k.line))
        named = [f"{line_text(k)} {100 * of_line[k] / total:.0f} %" for k in order[:_CALLERS]] if total else []
        more = [f"{len(order) - _CALLERS} more"] if len(order) > _CALLERS else []
        out[line] = ", ".join([*named, *more])
    return out


def _with_calls(equations: Equations, rows: Iterable[tuple[int | None, float]]) -> dict[tuple[str, int], float]:
    """Return the amount of each line with that of the functions and bodies that it calls. Rows have the number of an
    equation and an amount."""
    sums: dict[int, float] = _sums([(number, n) for number, n in rows if number is not None])
    out: dict[tuple[str, int], float] = {}
    for number, n in sums.items():
        shares: dict[tuple[str, int], float] = {}
        for line, share in equations.lines_on_the_way(equations[number]).items():
            at = _number(line)
            shares[at] = max(share, shares.get(at, 0.0))
        for at, share in shares.items():
            out[at] = out.get(at, 0.0) + share * n
    return out


def _time_section(equations: Equations, time: Sequence[TimeRow]) -> PageSection:
    total = sum([r.seconds for r in time]) or 1.0
    columns = [r.seconds for r in time], [r.flops for r in time], [float(r.bytes) for r in time]
    seconds, flops, size = (_sums([(r.line, n) for r, n in zip(time, column, strict=True)]) for column in columns)
    order = sorted(seconds, key=lambda line: -seconds[line])
    called = _called_by([(r.line, r.callers, r.seconds) for r in time])
    through = _with_calls(equations, [(r.number, r.seconds) for r in time])
    lines = [
        (
            duration(seconds[k]),
            f"{100 * seconds[k] / total:.1f} %",
            f"{100 * through.get(_number(k), seconds[k]) / total:.1f} %",
            f"{flops[k]:.3g}",
            f"{size[k]:,.0f}",
            line_text(k, _NOWHERE),
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


def _sums(amounts: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    """Return the sum of the amounts of each key."""
    out: dict[_Key, float] = {}
    for key, n in amounts:
        out[key] = out.get(key, 0.0) + n
    return out


# -------------------------------------------------------------------------------------------------------------- source


def _number(line: _Line) -> tuple[str, int]:
    """Return the file of a line and its number; 0 if there is none."""
    return ("", 0) if line is None else (line.file, line.line)


def _source_section(
    equations: Equations, held: Sequence[MemoryRow], time: Sequence[TimeRow], digits: ErrorTable | None
) -> PageSection:
    """Return the lines of the user with their costs in the margin, those of loops and other bodies, those that call
    them, and those around them. Where the text is not that of the program, the lines stand alone."""
    size = _sums([(_number(r.line), r.bytes) for r in held])
    seconds = _sums([(_number(t.line), t.seconds) for t in time])
    flops = _sums([(_number(t.line), t.flops) for t in time])
    through = _with_calls(equations, [(t.number, t.seconds) for t in time])
    lost = {} if digits is None else {_number(x.line): x for x in errors_by_line(digits)}
    bodies = {_number(e.line) for e in equations if isinstance(e.eqn.prim, HigherOrder)}
    costs = {*size, *seconds, *through, *lost, *bodies} - {("", 0)}
    first: dict[tuple[str, int], ExplainedEquation] = {}
    digests: dict[str, str] = {}
    functions: dict[tuple[str, int], str] = {}
    for e in equations:
        first.setdefault(_number(e.line), e)
        for line in () if e.line is None else (e.line, *e.line.callers):
            functions.setdefault(_number(line), line_text(line).partition(" ")[2])
            if e.line is not None and e.line.digest:
                digests[line.file] = line.digest
    files = Counter[str]()
    for file, number in costs:
        files[file] += int(size.get((file, number), 0))
    blocks: list[PageBlock] = []
    left = _SOURCE_LINES
    margin = ("bytes", "flops", "time", "with calls", *([] if digits is None else ["error"]), "line")
    for file in sorted(files, key=lambda f: (-files[f], f)):
        wanted = sorted({k for f, k in costs if f == file})
        text = text_of(file, digests.get(file, ""))
        shown = wanted
        if text:
            shown = sorted({k for n in wanted for k in range(n - _CONTEXT, n + _CONTEXT + 1) if 0 < k <= len(text)})
        else:
            blocks.append(f"{file}: its text is not here, or is another one than when the program was saved")
        rows: list[tuple[str, ...]] = []
        numbers: list[int | None] = []
        before = 0
        for k in shown[:left]:
            if text and before and k > before + 1:
                rows.append((*[""] * len(margin), "..."))
                numbers.append(None)
            at = file, k
            of_calls = through.get(at, 0.0) > 1.001 * seconds.get(at, 0.0)
            rows.append(
                (
                    f"{size[at]:,.0f}" if size.get(at) else "",
                    f"{flops[at]:.3g}" if flops.get(at) else "",
                    duration(seconds[at]) if seconds.get(at) else "",
                    duration(through[at]) if of_calls else "",
                    *([] if digits is None else [f"{lost[at].error:.1e}" if at in lost and lost[at].error else ""]),
                    str(k),
                    text[k - 1].rstrip("\n") if text else functions.get(at, ""),
                )
            )
            numbers.append(first[at].number if at in first else None)
            before = k
        left -= len(shown[:left])
        if rows:
            table = Table((*margin, file), tuple(rows), right=tuple(range(len(margin))))
            blocks.append(SourceLines(file, table, tuple(numbers)))
    if not blocks:
        blocks.append("No equation has a line: a program of a text, or a file saved with lines=False, has none.")
    return PageSection("source", "Source", tuple(blocks))


def _digits_section(table: ErrorTable) -> PageSection:
    total = f"Relative error of the results of {table.jaxpr.name}: {table.relative:.2g}"
    if table.relative > 0:
        total += f"; of their decimal digits, {digits_left(table.relative)}"
    lines = [
        (f"{x.error:.2e}", percent(x.share), line_text(x.line, _NOWHERE), ", ".join(x.causes))
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


# ----------------------------------------------------------------------------------------- stages, units, residuals


def _stages_section(lowered: Lowered[..., object]) -> PageSection:
    stages: Stages = lowered.stages
    blocks: list[PageBlock] = [
        Table(
            ("stage", "equations", "bytes"),
            tuple([(x.name, f"{x.equations:,}", f"{x.bytes:,}") for x in stages]),
            (1, 2),
        )
    ]
    reasons = {p.name: _first_sentence(p.function.__doc__) for p in lowered.passes or BEFORE_COMPILATION}
    for before, after in zip(stages.stages, stages.stages[1:], strict=False):
        why = reasons.get(after.name, "")
        if before.program is after.program:
            blocks.append(f"{after.name}: no change. {why}")
            continue
        blocks.append(f"{after.name}: {why}")
        if max(before.equations, after.equations) <= _DIFF_EQUATIONS:
            blocks.append(_diff(before.program, after.program))
    return PageSection("stages", "Stages", tuple(blocks), folded=True)


def _first_sentence(doc: str | None) -> str:
    return " ".join((doc or "").split(".")[0].split()) + "." if doc else ""


def _diff(a: Jaxpr, b: Jaxpr) -> PreformattedLines:
    difference = side_by_side(a, b)
    lines = [] if difference is None else list(difference.lines)
    shown = [str(replace(line, where=line.where.rpartition("/")[2])) for line in lines[:_DIFF_LINES]]
    marks = "".join([line.mark for line in lines[:_DIFF_LINES]])
    more = [f"... {len(lines) - _DIFF_LINES:,} more lines"] if len(lines) > _DIFF_LINES else []
    return PreformattedLines((*shown, *more), marks)


def _units_section(s: ExplainedProgram) -> PageSection:
    blocks: list[PageBlock] = [s.plan.summary]
    rows = [
        (
            str(k),
            u.body.name,
            str(u.uses),
            f"{u.equations:,}",
            amount(p.stats.temp_bytes),
            str(len(u.donate)),
        )
        for k, (u, p) in enumerate(zip(s.plan.units, s.parts, strict=True))
    ]
    head = ("unit", "body", "uses", "equations", "temporaries", "donated operands")
    blocks.append(Table(head, tuple(rows), right=(0, 2, 3, 4, 5)))
    return PageSection("units", "Units", tuple(blocks), folded=True)


def _residuals_section(held: Memory, residuals: Residuals | None) -> PageSection:
    stored = [r for r in held.rows if r.stored and r.equation]
    size = amount(sum([r.bytes for r in stored]))
    text = f"{len(stored)} values at the peak are stored for much later equations, as those of derivatives: {size}."
    blocks: list[PageBlock] = [text]
    if residuals is not None:
        rows = [
            (
                f"{r.bytes:,}",
                str(r.aval),
                r.made_by,
                " > ".join([line.short for line in r.lines]),
                r.read_by,
                r.decided_by if r.stored else "plan: computed again",
            )
            for r in residuals
        ]
        head = ("bytes", "type", "made by", "line", "read by", "decided by")
        blocks.append(Table(head, tuple(rows), right=(0,)))
    else:
        blocks.append(
            "For the table of the program before it was differentiated: explain(..., residuals=fx.residuals(f, *args))."
        )
    return PageSection("residuals", "Residuals", tuple(blocks), folded=residuals is None)


# ------------------------------------------------------------------------------------------------------------- program


def _program_section(equations: Equations) -> PageSection:
    readers: dict[int, list[int]] = {}
    operands: dict[int, tuple[int, ...]] = {}
    listed = equations[:LISTED]
    for e in equations:
        computed = [equations.producer(e.body, a) for a in e.eqn.ins if isinstance(a, Var)]
        numbers = tuple(dict.fromkeys([p.number for p in computed if p is not None]))
        operands[e.number] = numbers
        for n in numbers:
            readers.setdefault(n, []).append(e.number)
    heads: dict[int, str] = {}
    for e in listed:
        if e.number == 0 or e.body is not equations[e.number - 1].body:
            runs = "once" if e.runs == 1 else f"{e.runs:,} times"
            heads[e.number] = f"{equations.labels[e.body]}, runs {runs}"
    entries = tuple(
        [
            (
                e.number,
                _short(e.text),
                e.line.short if e.line else "",
                operands[e.number],
                tuple(readers.get(e.number, ())),
            )
            for e in listed
        ]
    )
    listing = Listing(entries, tuple(heads.items()), len(equations) - len(entries))
    return PageSection("program", "Program", (listing,), folded=True)


def _short(text: str) -> str:
    return text if len(text) <= 110 else f"{text[:107]}..."


# ---------------------------------------------------------------------------------------------------------- comparison


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
    if old is not new and max(len(old.eqns), len(new.eqns)) <= _DIFF_EQUATIONS:
        blocks.append(_diff(old, new))
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
    before: Sequence[tuple[_Line, float]], after: Sequence[tuple[_Line, float]]
) -> dict[str, tuple[float, float, float]]:
    """Return the sums by line before and after, and their difference. A line is known by the name of its file, its
    number and its function."""
    sums: dict[str, list[float]] = {}
    for k, rows in enumerate((before, after)):
        for line, n in rows:
            sums.setdefault(line_text(line, _NOWHERE), [0, 0])[k] += n
    return {key: (a, b, b - a) for key, (a, b) in sums.items()}
