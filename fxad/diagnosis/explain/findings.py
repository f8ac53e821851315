"""The verdict: the problems, the worst first, and five lines about memory, time, what repeats, waste and digits.

Each finding names a line of the user and the amount. A line without a finding says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import hypot, inf, isfinite, isnan, log10
from typing import Final, Protocol, TypeAlias, final, runtime_checkable

from fxad.core.dataclasses import dataclass
from fxad.core.diff import diff
from fxad.diagnosis.explain.equations import Equations, ExplainedEquation, recomputes
from fxad.diagnosis.explain.origins import TRANSPOSED
from fxad.diagnosis.explain.page import Findings
from fxad.diagnosis.explain.problems import PageProblem, ranked
from fxad.diagnosis.explain.rows import Callers, ExplainedProgram, Memory, MemoryRow, TimeRow, callers_of
from fxad.dtypes import DType
from fxad.ir import Aval, HigherOrder, Jaxpr, Primitive, SourceLocation, Var, source_location
from fxad.lower import aliases
from fxad.primitives.check import CallsHost
from fxad.primitives.control.remat import Remat
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.fusion import MOVES, VIEWS
from fxad.runtime import active_cache
from fxad.support.constants import HOST_MICROSECONDS
from fxad.tracing.program import Argument, Program
from fxad.transforms.costs import Fusion, compile_cost, microseconds
from fxad.units.compile_time import milliseconds

_NAMED: Final = 3  # consumers, and findings of one kind, that a line of the verdict names
_ACCURATE: Final = 100.0  # unit roundoffs: results with a smaller error have no cause worth a line
_LARGE: Final = 0.1  # of the memory, of values of one line that are stored
_SMALL: Final = 1 << 14  # bytes that no one misses
_SEVERAL: Final = 0.15  # of several values, against one: each has to be stored less, as at any line of a derivative
_MOST_OF_IT: Final = 0.5  # of the temporaries, of one value that is not stored
_SHARE: Final = 0.01  # of the arguments or of the time, below which nothing is said


class ErrorRow(Protocol):
    """A row of a table of rounding errors."""

    @property
    def error(self) -> float:
        """The estimated error that the equation adds to the results; nan if it is not known."""

    @property
    def digits(self) -> float:
        """The decimal digits that are lost by cancellation."""

    @property
    def line(self) -> SourceLocation | None:
        """The user's line."""

    @property
    def equation(self) -> str:
        """The text of the equation."""

    @property
    def causes(self) -> tuple[str, ...]:
        """The faults beside rounding, such as "cancellation of 5 digits", "overflow"."""


@runtime_checkable
class ErrorTable(Protocol):
    """A table of rounding errors, as `fx.rounding_errors` returns it."""

    @property
    def jaxpr(self) -> Jaxpr:
        """The program."""

    @property
    def rows(self) -> Sequence[ErrorRow]:
        """The error that each equation adds."""

    @property
    def relative(self) -> float:
        """The estimated error of the results, relative to their size."""

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding a number to the dtype of a result."""


_Place: TypeAlias = "SourceLocation | None"
# Equations that are the same work: the file, the number of the line, the primitive, the types of the operands.
_Operation: TypeAlias = tuple[str, int, Primitive, tuple[Aval, ...]]


def verdict(
    s: ExplainedProgram,
    memory: Memory,
    time: Sequence[TimeRow],
    digits: ErrorTable | None,
    compared: Jaxpr | None = None,
) -> Verdict:
    """Return what was found about memory, time, what repeats, what is wasted, digits. `compared` is the program that
    this one is compared with: it is no trace of the same function that was compiled again."""
    stored, seconds = _memory(s, memory), _time(s, time)
    again = [*recomputed(s.equations, time), *compiled_again(s, time, compared)]
    waste = [*wide_values(s), *stored_twice(s, memory), *missed_donations(s)]
    lost = _digits(s, digits)
    everything = [*stored, *seconds, *again, *waste, *lost]
    return Verdict(
        (
            Findings("memory", _texts(stored)),
            Findings("time", _texts(seconds) or ("nothing runs",)),
            Findings("again", _texts(again) or ("nothing is computed or compiled again",)),
            Findings("waste", _texts(waste) or ("none found",)),
            Findings("digits", _texts(lost)),
        ),
        ranked([f.problem for f in everything if f.problem is not None]),
    )


@final
@dataclass(frozen=True, slots=True)
class Observation:
    """A text of a line of the verdict, empty if a part of another one, and the problem that it is; None if it is
    none."""

    text: str
    problem: PageProblem | None = None


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings by subject, and the problems, the worst first."""

    findings: tuple[Findings, ...]
    problems: tuple[PageProblem, ...]


def _texts(found: Sequence[Observation]) -> tuple[str, ...]:
    return tuple([f.text for f in found if f.text])


def line_text(line: SourceLocation | None, nowhere: str = "no line") -> str:
    """Return a line for people: `model.py:12 in loss`; `nowhere` if there is none."""
    return f"{line.short} in {line.function.rpartition('<locals>.')[2]}" if line is not None else nowhere


def amount(n: float) -> str:
    """Return bytes for people."""
    size, unit = float(n), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a time for people."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.1f} {unit}"
    return f"{seconds * 1e9:,.1f} ns"


# -------------------------------------------------------------------------------------------------------- memory, time


def _memory(s: ExplainedProgram, memory: Memory) -> list[Observation]:
    temporaries = s.stats.temp_bytes
    if not temporaries:
        return [Observation("no temporaries")]
    total = sum([r.bytes for r in memory.rows if r.bytes > 0])
    parts = []
    if memory.problem:
        parts.append(Observation(f"no details: {memory.problem}"))
    by_line: dict[_Place, list[MemoryRow]] = {}
    for row in memory.rows:
        if row.bytes > 0 and row.equation:
            by_line.setdefault(row.line, []).append(row)
    order = sorted(by_line, key=lambda line: -sum([r.bytes for r in by_line[line]]))
    for line in order[:_NAMED]:
        parts.append(Observation(_consumer(by_line[line], line, total), large_values(s, by_line[line], line)))
    reused = sum([r.bytes for r in memory.rows if r.bytes < 0])
    more = f" and {amount(-reused)} in memory of arguments and results" if reused else ""
    first, *others = parts or [Observation("")]
    return [Observation(f"{amount(temporaries)} of temporaries{more}: {first.text}", first.problem), *others]


def _consumer(rows: Sequence[MemoryRow], line: _Place, total: int) -> str:
    size, largest = sum([r.bytes for r in rows]), max(rows, key=lambda r: r.bytes)
    values = "1 value" if len(rows) == 1 else f"{len(rows)} values"
    share = f"{100 * size / total:.0f} %"
    return f"{line_text(line)} {amount(size)} ({share}), {values} such as {largest.type}, {largest.reason}"


def large_values(s: ExplainedProgram, rows: Sequence[MemoryRow], line: _Place) -> PageProblem | None:
    """Return the problem that the values of a line take a large part of the memory; None if they do not."""
    size, largest = sum([r.bytes for r in rows]), max(rows, key=lambda r: r.bytes)
    whole = max(1, s.stats.peak_bytes, s.stats.temp_bytes)
    severity = max(largest.bytes, _SEVERAL * size) / whole
    if size < _SMALL or size < _LARGE * whole or s.stats.temp_bytes < _LARGE * s.stats.argument_bytes:
        return None
    kept = sum([r.bytes for r in rows if r.stored]) >= size / 2
    loop = None if largest.number is None else s.equations[largest.number].in_loop
    if kept and "policy" in largest.reason and "no policy" not in largest.reason:
        remedy = "keep less: another policy of that remat"
    elif kept and loop is not None:
        remedy = f"compute it again: fx.remat around the body of the loop of {line_text(loop)}"
    elif kept:
        remedy = "compute it again: fx.remat around the function of the line; or set compile(budget=...)"
    elif (
        largest.bytes < _MOST_OF_IT * s.stats.temp_bytes
    ):  # values that the next equations read, or cotangents, must be somewhere
        return None
    else:
        remedy = "compute it in blocks: lax.map(f, xs, batch_size=...)"
    verb = "stores" if kept else "makes"
    values = f"{len(rows)} values such as " if len(rows) > 1 else ""
    called = _called_from(largest.callers)
    return PageProblem(
        f"{line_text(line)}{called} {verb} {values}{largest.type}: {largest.reason}",
        f"{amount(size)}, {100 * size / max(1, s.stats.temp_bytes):.0f} % of the temporaries",
        remedy,
        severity,
        "memory",
        line,
        largest.number,
    )


def _called_from(callers: Callers) -> str:
    named = [line_text(line) for line, _ in callers[:2]]
    more = f" and {len(callers) - 2} more" if len(callers) > 2 else ""
    return f", called from {', '.join(named)}{more}," if named else ""


def _time(s: ExplainedProgram, time: Sequence[TimeRow]) -> list[Observation]:
    total = sum([r.seconds for r in time])
    parts = []
    if total:
        by_line: dict[_Place, float] = {}
        for r in time:
            by_line[r.line] = by_line.get(r.line, 0.0) + r.seconds
        order = sorted(by_line, key=lambda line: -by_line[line])[:_NAMED]
        shares = [f"{line_text(line)} {100 * by_line[line] / total:.0f} %" for line in order]
        parts.append(Observation(f"{duration(total)} a call, {time[0].reason}: {', '.join(shares)}"))
    return [*host_calls(s.equations, total), *parts, *map(Observation, unknown_loops(s.equations, time))]


def unknown_loops(equations: Equations, time: Sequence[TimeRow]) -> list[str]:
    """Return the loops whose number of steps is not known, if times are estimated."""
    if time and time[0].measured:
        return []
    loops = dict.fromkeys([e.in_loop for e in equations if e.unbounded and e.runs])
    return [f"the steps of the loop of {line_text(line)} are not known: it counts as one" for line in loops][:_NAMED]


def host_calls(equations: Equations, total: float) -> list[Observation]:
    """Return the calls of the host, with their loops. `total` are the seconds of the program."""
    out = []
    for e in equations:
        if isinstance(e.eqn.prim, CallsHost) and e.runs:
            where = f" in the loop of {line_text(e.in_loop)}" if e.in_loop is not None else ""
            times = "in each step" if e.unbounded else "once" if e.runs == 1 else f"{e.runs:,} times"
            called = _called_from(callers_of(equations, [e]))
            text = f"calls the host {times}{where} ({e.eqn.prim.name}): the device waits for it"
            seconds = 1e-6 * HOST_MICROSECONDS * e.runs
            remedy = (
                "return the value and use it after the call"
                if e.in_loop is None
                else "return the values of the loop, and use them after it; or call every k-th step, with lax.cond"
            )
            each = "in each step" if e.unbounded else "a call"
            problem = PageProblem(
                f"{line_text(e.line)}{called} {text}",
                f"about {duration(seconds)} {each}",
                remedy,
                seconds / (seconds + total),
                "time",
                e.line,
                e.number,
            )
            out.append(Observation(f"{line_text(e.line)} {text}", problem))
    return _shortened(out, "calls of the host")


def _shortened(findings: list[Observation], what: str) -> list[Observation]:
    more = len(findings) - _NAMED
    if more <= 0:
        return findings
    return [
        *findings[:_NAMED],
        Observation(f"{more} more {what}"),
        *[Observation("", f.problem) for f in findings[_NAMED:]],
    ]


# --------------------------------------------------------------------------------------------------------------- again


def recomputed(equations: Equations, time: Sequence[TimeRow]) -> list[Observation]:
    """Return the lines whose equations run again in recomputations, the most expensive first. Two runs are what a
    `remat` is for; more are a problem."""
    plain, again = Counter[_Operation](), Counter[_Operation]()
    first: dict[_Operation, ExplainedEquation] = {}
    for e in equations:
        if isinstance(e.eqn.prim, (HigherOrder, *VIEWS, *MOVES)) or e.line is None:
            continue
        key = e.line.file, e.line.line, e.eqn.prim, tuple([a.aval for a in e.eqn.ins])
        first.setdefault(key, e)
        plain[key] += e.runs - e.again
        again[key] += e.again
    runs = {key: (plain[key] + n) / plain[key] for key, n in again.items() if n and plain[key]}
    cost = {key: again[key] * microseconds(first[key].eqn) for key in runs}
    by_line: dict[_Place, list[_Operation]] = {}
    for key in sorted(cost, key=lambda k: -cost[k]):
        by_line.setdefault(first[key].line, []).append(key)
    marks = remat_lines(equations)
    nested = any([recomputes(e.eqn.prim) and e.again for e in equations])
    by = f", by remat of {' and '.join(marks[:_NAMED])}" if marks else ""
    out = []
    wasted, most, worst = 0.0, 0.0, ""
    at: tuple[_Place, int | None] = (None, None)
    for line, keys in by_line.items():
        # Counts of cheap operations are not certain: a product of the derivative has the line, and may have the types,
        # of one of the function, and is counted with it. So the most runs of an operation that is not cheap count, or
        # else the least.
        certain = [k for k in keys if compile_cost(type(first[k].eqn.prim))[0] is not Fusion.CHEAP]
        if certain:
            key = max(certain, key=lambda k: (runs[k], cost[k]))
        else:
            key = min(keys, key=lambda k: (runs[k], -cost[k]))
        # Without nesting, each equation runs twice at most. A ratio is above 2 if a first run is left out, whose value
        # nothing reads: of two equal equations, 1 runs at first and 2 run again, a ratio of (1 + 2) / 1.
        total = runs[key] if nested else min(2.0, runs[key])
        inside = " (a remat inside another)" if total > 2 else ""
        times = f"{total:.3g} times" if total != 2 else "twice"
        text = f"{line_text(line)} runs {times}{inside}: {first[key].eqn.prim.name} is computed again{by}"
        out.append((total <= 2, text))
        if total > 2:
            # `cost` is that of total - 1 runs, all but the first; a single remat would make one of them
            share = sum([cost[k] for k in keys]) * (total - 2) / (total - 1)
            where = line, first[key].number
            if share > most:
                most, worst, at = share, text, where
            wasted += share
    found = [Observation(text) for _, text in sorted(out, key=lambda x: x[0])]
    if wasted:
        seconds = 1e-6 * wasted
        total_seconds = sum([r.seconds for r in time]) or seconds
        severity = min(1.0, seconds / total_seconds)
        problem = PageProblem(
            worst,
            f"{duration(seconds)} a call, {100 * severity:.0f} % of the time",
            "drop one of the two remats, or give the outer one a policy that keeps what the inner one returns",
            severity,
            "time",
            *at,
        )
        found[0] = Observation(found[0].text, problem)
    return _shortened(found, "lines that are computed again")


def remat_lines(equations: Equations) -> list[str]:
    """Return the lines of the `remat` equations that compute values again."""
    found = [e.line for e in equations if recomputes(e.eqn.prim) or (isinstance(e.eqn.prim, Remat) and e.again)]
    return list(dict.fromkeys([line_text(line) for line in found if line is not None]))


def compiled_again(s: ExplainedProgram, time: Sequence[TimeRow], compared: Jaxpr | None = None) -> list[Observation]:
    """Return why the cache holds several programs of this name, from the first difference to each of them, but for
    `compared`."""
    jaxpr = s.executable.program.jaxpr
    named = [p for p in active_cache().programs_named(jaxpr.name) if p is not jaxpr and p is not compared]
    others = [p for p in named if _is_similar(p, jaxpr)]
    if not others:
        return []
    difference = diff(jaxpr, others[0])
    if difference is None:
        return []
    where = f", {line_text(difference.line)}" if difference.line is not None else ""
    remedy = (
        "pass what changes as an array argument"
        if difference.operand is None
        else "pad to a few sizes (fx.bucketed), or keep one dtype"
    )
    count = f"{jaxpr.name} was compiled {len(others) + 1} times"
    text = f"{count}: the last two differ at {difference}{where}"
    compiling = 1e-3 * milliseconds(jaxpr)
    severity = compiling / (compiling + sum([r.seconds for r in time]))
    cost = f"about {duration(compiling)} for each new program"
    problem = PageProblem(text, cost, remedy, severity, "program", difference.line)
    return [Observation(f"{text}. To compile once, {remedy}", problem)]


def _is_similar(a: Jaxpr, b: Jaxpr) -> bool:
    """Return True for programs that are likely traces of one function: most equations are of the same lines."""
    kinds = []
    for p in (a, b):
        lines = [(e.prim.name, source_location(e.source)) for e in p.eqns]
        kinds.append(Counter([(name, line.file, line.line) if line else (name, "", 0) for name, line in lines]))
    shared = sum((kinds[0] & kinds[1]).values())
    return 2 * shared >= max(1, 0.8 * (len(a.eqns) + len(b.eqns)))


# --------------------------------------------------------------------------------------------------------------- waste


def missed_donations(s: ExplainedProgram) -> list[Observation]:
    """Return the arguments that have the type of a result, and are not donated, the largest first."""
    program, donated = s.executable.program, {*s.executable.lowered.donate}
    first = len(program.bound)
    ins, outs = program.jaxpr.in_avals, program.jaxpr.out_avals
    possible = aliases(ins, outs, [*sorted(donated), *[k for k in range(first, len(ins)) if k not in donated]])
    taken = {*aliases(ins, outs, sorted(donated))}
    missed = [k for k in possible if k >= first and k not in taken and k not in donated]
    total = sum([a.nbytes for a in ins]) or 1
    missed = [k for k in missed if ins[k].nbytes >= _SHARE * total and ins[k].shape]
    if not missed:
        return []
    missed.sort(key=lambda k: -ins[k].nbytes)
    named = ", ".join([program.paths[k - first] for k in missed[:_NAMED]])
    more = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
    size = sum([ins[k].nbytes for k in missed])
    keys = tuple([a.key for a, _ in by_argument(program, [k - first for k in missed])])
    how = f"jit(f, donate={keys}), or compile(donate={keys}), if nothing reads them after the call"
    text = f"{named}{more} can be donated: results have their types, and reuse {amount(size)}"
    severity = size / max(1, s.stats.peak_bytes, size)
    result = program.jaxpr.outs[possible[missed[0]]]
    made = next((source_location(e.source) for e in program.jaxpr.eqns if result in e.outs), None)
    where = f", as that of {line_text(made)}" if made is not None else ""
    problem = PageProblem(
        f"{named}{more} stay in memory beside results of their types{where}: they can be donated",
        f"{amount(size)}, {100 * severity:.0f} % of the peak",
        how,
        severity,
        "identity",
        made,
    )
    return [Observation(f"{text} ({how})", problem)]


def by_argument(program: Program[..., object], leaves: Collection[int]) -> list[tuple[Argument, list[str]]]:
    """Return the arguments with some of these leaves, and the paths of these."""
    found = [(a, [program.paths[k] for k in a.leaves if k in leaves]) for a in program.arguments]
    return [(a, paths) for a, paths in found if paths]


def wide_values(s: ExplainedProgram) -> list[Observation]:
    """Return the lines where a value of fewer bits becomes one of 64 (128, if complex), and the operands that bring
    such values."""
    widening: dict[_Place, tuple[ExplainedEquation, Aval]] = {}
    for e in s.equations:
        narrow = [a.aval for a in e.eqn.ins if isinstance(a, Var) and _is_narrow(a.aval.dtype)]
        wide = [v.aval for v in e.eqn.outs if _is_wide(v.aval.dtype)]
        if isinstance(e.eqn.prim, HigherOrder) or not narrow or not wide:
            continue
        if narrow[0].dtype.kind == wide[0].dtype.kind and isinstance(e.eqn.prim, ConvertElementType):
            widening.setdefault(e.line, (e, wide[0]))
    if not widening:
        return []
    # those of the program before those of its derivative, which follow from them
    order = sorted(widening, key=lambda line: TRANSPOSED in widening[line][0].body.name)
    program = s.executable.program
    brought = [f"{program.operand_path(k)} is {a}" for k, a in enumerate(program.jaxpr.in_avals) if _is_wide(a.dtype)]
    cause = f" ({', '.join(brought[:_NAMED])})" if brought else ""
    written, wide_bytes = 1, 0
    for e in s.equations:
        if not isinstance(e.eqn.prim, HigherOrder):
            written += e.runs * sum([v.aval.nbytes for v in e.eqn.outs])
            wide_bytes += e.runs * sum([v.aval.nbytes for v in e.eqn.outs if _is_wide(v.aval.dtype)])
    severity = wide_bytes / written
    remedy = (
        f"give {brought[0].partition(' is ')[0]} 32 bits, as by .astype('float32')"
        if brought
        else "give the value there a dtype of 32 bits"
    )
    out: list[Observation] = []
    for line in order:
        e, aval = widening[line]
        text = f"{line_text(line)} makes a value 64-bit: {aval}{cause}"
        cost = f"{amount(wide_bytes / 2)} more to write a call; {100 * severity:.0f} % of what it writes has 64 bits"
        problem = None if out else PageProblem(text, cost, remedy, severity, "source", line, e.number)
        out.append(Observation(text, problem))
    return _shortened(out, "lines that make values 64-bit")


def _is_wide(dtype: DType) -> bool:
    return dtype.kind in "fiuc" and dtype.itemsize >= (16 if dtype.kind == "c" else 8)


def _is_narrow(dtype: DType) -> bool:
    return dtype.kind in "fiuc" and not _is_wide(dtype) and dtype.itemsize >= 2


def stored_twice(s: ExplainedProgram, memory: Memory) -> list[Observation]:
    """Return the values that are in memory twice at the peak: the result of one instruction, in two places."""
    places: dict[tuple[str, str], list[MemoryRow]] = {}
    for row in memory.rows:
        if row.instruction and row.bytes > 0:
            places.setdefault((row.instruction, row.type), []).append(row)
    total = sum([r.bytes for r in memory.rows]) or 1
    out = []
    for rows in places.values():
        if len(rows) > 1 and rows[0].bytes >= _SHARE * total:
            row = rows[0]
            text = f"{line_text(row.line)} is stored {len(rows)} times: {row.type}, {amount(row.bytes)} each"
            more = (len(rows) - 1) * row.bytes
            problem = PageProblem(
                text,
                amount(more),
                "read the old value before the line that writes the new one, so XLA needs no copy",
                more / max(1, s.stats.peak_bytes),
                "memory",
                row.line,
                row.number,
            )
            out.append(Observation(text, problem))
    return _shortened(out, "values that are stored twice")


# -------------------------------------------------------------------------------------------------------------- digits


@final
@dataclass(frozen=True, slots=True)
class LineErrors:
    """The rounding errors of a line. `error` is the norm of those of its equations, `share` its part of the sum over
    all lines; nan if a sum is not finite. `causes` are those of its equations, the worst first."""

    line: SourceLocation | None
    error: float
    share: float
    causes: tuple[str, ...]


def errors_by_line(table: ErrorTable) -> list[LineErrors]:
    """Return the lines with an error or a cause, the largest errors first."""
    errors: dict[_Place, float] = {}
    causes: dict[_Place, list[str]] = {}
    for r in sorted(table.rows, key=lambda r: -r.digits):
        known = 0.0 if isnan(r.error) else r.error
        if known or r.causes:
            errors[r.line] = hypot(errors.get(r.line, 0.0), known)
            causes.setdefault(r.line, []).extend(r.causes)
    total = sum(errors.values())
    shares = {line: e / total if 0 < total < inf else 0.0 if not e else float("nan") for line, e in errors.items()}
    order = sorted(errors, key=lambda line: -errors[line])
    return [LineErrors(line, errors[line], shares[line], tuple(dict.fromkeys(causes[line]))) for line in order]


def relevant_errors(table: ErrorTable) -> list[ErrorRow]:
    """Return the rows with an error or a cause, the largest errors first, unknown ones last."""
    rows = [r for r in table.rows if r.error > 0 or r.causes]
    return sorted(rows, key=lambda r: (inf if isnan(r.error) else -r.error, -r.digits))


def digits_left(relative: float) -> str:
    """Return how many decimal digits of results with a relative error are right, as a text."""
    if not isfinite(relative):
        return "none are right"
    return f"about {max(0.0, -log10(relative)):.1f} are right"


def percent(share: float) -> str:
    """Return a share for people; empty for nan."""
    return "" if isnan(share) else f"{100 * share:.0f} %"


def _digits(s: ExplainedProgram, table: ErrorTable | None) -> list[Observation]:
    if table is None:
        return [Observation("not measured (explain(..., digits=fx.rounding_errors(program, *args)))")]
    lines = errors_by_line(table)
    if not lines:
        return [Observation("no rounding errors")]
    parts = [Observation("the results are exact")]
    if table.relative > 0:
        left = digits_left(table.relative)
        jaxpr = s.executable.program.jaxpr
        of = "" if table.jaxpr is jaxpr else f" of {table.jaxpr.name}"
        parts = [Observation(f"the results{of} have a relative error of {table.relative:.1e}: of their digits, {left}")]
    worst = sorted([r for r in table.rows if r.causes], key=lambda r: -r.digits)
    accurate = table.relative <= _ACCURATE * table.unit_roundoff
    if accurate:  # what is lost there does not matter
        worst = [r for r in worst if isnan(r.error)]
    caused: dict[str, ErrorRow] = {}
    for r in worst:
        caused.setdefault(f"{line_text(r.line)}: {', '.join(r.causes)}", r)
    parts += _shortened([Observation(t, _lost_digits(table, t, r)) for t, r in caused.items()], "causes")
    for k, line in enumerate([x for x in lines if x.error > 0][:_NAMED]):
        share = f" ({percent(line.share)})" if percent(line.share) else ""
        text = f"{line_text(line.line)} adds an error of {line.error:.1e}{share}"
        alone = None if k or accurate or worst else _lost_digits(table, text, line)
        parts.append(Observation(text, alone))
    return parts


def _lost_digits(table: ErrorTable, text: str, at: ErrorRow | LineErrors) -> PageProblem | None:
    """Return the problem that a line loses digits of the results."""
    whole = -log10(table.unit_roundoff)
    finite = isfinite(table.relative)
    lost = min(whole, log10(max(1.0, table.relative / table.unit_roundoff))) if finite else whole
    severity = lost / whole if table.relative > 0 else 0.0
    remedy = next((how for word, how in _REMEDIES if any([word in cause for cause in at.causes])), _ROUNDED)
    return PageProblem(
        text, f"{lost:.1f} of the {whole:.1f} digits of the results", remedy, severity, "digits", at.line
    )


_ROUNDED: Final = "compute this line in float64, or add in another order; fx.plan_precision chooses dtypes"
_REMEDIES: Final = (
    ("cancellation", "rewrite it without the difference of numbers that are nearly equal, or compute it in float64"),
    ("overflow", "scale the operands first, as by subtracting their maximum before exp, or compute logarithms"),
    ("underflow", "scale the operands first, or compute logarithms"),
    ("not finite", "avoid the operands for which the line is not finite, with where on the operand"),
    ("infinite derivative", "keep the operand away from the point where the derivative is infinite"),
    ("ill-conditioned", "regularise the matrix, or compute this line in float64"),
)
