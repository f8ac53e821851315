"""Findings about memory, for the verdict: its consumers, and arguments, dtypes and copies that waste it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from fxad.diagnosis.explain.equations import ExplainedEquation
from fxad.diagnosis.explain.memory_rows import Memory, MemoryRow
from fxad.diagnosis.explain.observations import NAMED, SHARE, Observation, Place, limited
from fxad.diagnosis.explain.origins import TRANSPOSED
from fxad.diagnosis.explain.parts import ExplainedProgram
from fxad.diagnosis.explain.problems import PageProblem
from fxad.diagnosis.explain.texts import amount, called_from, line_text
from fxad.dtypes import DType
from fxad.ir import Aval, HigherOrder, Var, source_location
from fxad.lower import aliases
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.tracing.program import Argument, Program

_LARGE: Final = 0.1  # smallest share of the memory for which the stored values of one line are a finding
_SMALL: Final = 1 << 14  # fewer bytes are no finding
# Weight of the bytes of several values against those of one: each of them has to be stored less, as at any line of a
# derivative.
_SEVERAL: Final = 0.15
_MOST_OF_IT: Final = 0.5  # smallest share of the temporaries for which one value that is not stored is a finding


def memory_findings(s: ExplainedProgram, memory: Memory) -> list[Observation]:
    """Return what the verdict says of memory: the size of the temporaries, and the lines with most of them."""
    temporaries = s.stats.temp_bytes
    if not temporaries:
        return [Observation("no temporaries")]
    total = sum([r.bytes for r in memory.rows if r.bytes > 0])
    parts = []
    if memory.problem:
        parts.append(Observation(f"no details: {memory.problem}"))
    by_line: dict[Place, list[MemoryRow]] = {}
    for row in memory.rows:
        if row.bytes > 0 and row.equation:
            by_line.setdefault(row.line, []).append(row)
    order = sorted(by_line, key=lambda line: -sum([r.bytes for r in by_line[line]]))
    for line in order[:NAMED]:
        parts.append(Observation(_consumer(by_line[line], line, total), large_values(s, by_line[line], line)))
    reused = sum([r.bytes for r in memory.rows if r.bytes < 0])
    more = f" and {amount(-reused)} in memory of arguments and results" if reused else ""
    first, *others = parts or [Observation("")]
    return [Observation(f"{amount(temporaries)} of temporaries{more}: {first.text}", first.problem), *others]


def _consumer(rows: Sequence[MemoryRow], line: Place, total: int) -> str:
    size, largest = sum([r.bytes for r in rows]), max(rows, key=lambda r: r.bytes)
    values = "1 value" if len(rows) == 1 else f"{len(rows)} values"
    share = f"{100 * size / total:.0f} %"
    return f"{line_text(line)} {amount(size)} ({share}), {values} such as {largest.type}, {largest.reason}"


def large_values(s: ExplainedProgram, rows: Sequence[MemoryRow], line: Place) -> PageProblem | None:
    """Return the problem that the values of a line take a large part of the memory; None if they do not."""
    size, largest = sum([r.bytes for r in rows]), max(rows, key=lambda r: r.bytes)
    peak = max(1, s.stats.peak_bytes, s.stats.temp_bytes)
    severity = max(largest.bytes, _SEVERAL * size) / peak
    if size < _SMALL or size < _LARGE * peak or s.stats.temp_bytes < _LARGE * s.stats.argument_bytes:
        return None
    mostly_stored = sum([r.bytes for r in rows if r.stored]) >= size / 2
    loop = None if largest.number is None else s.equations[largest.number].in_loop
    if mostly_stored and "policy" in largest.reason and "no policy" not in largest.reason:
        remedy = "keep less: another policy of that remat"
    elif mostly_stored and loop is not None:
        remedy = f"compute it again: fx.remat around the body of the loop of {line_text(loop)}"
    elif mostly_stored:
        remedy = "compute it again: fx.remat around the function of the line; or set compile(budget=...)"
    elif largest.bytes < _MOST_OF_IT * s.stats.temp_bytes:
        return None  # the next equations read these values, or they are cotangents: they must be somewhere
    else:
        remedy = "compute it in blocks: lax.map(f, xs, batch_size=...)"
    verb = "stores" if mostly_stored else "makes"
    values = f"{len(rows)} values such as " if len(rows) > 1 else ""
    called = called_from(largest.callers)
    return PageProblem(
        f"{line_text(line)}{called} {verb} {values}{largest.type}: {largest.reason}",
        f"{amount(size)}, {100 * size / max(1, s.stats.temp_bytes):.0f} % of the temporaries",
        remedy,
        severity,
        "memory",
        line,
        largest.number,
    )


def missed_donations(s: ExplainedProgram) -> list[Observation]:
    """Return the arguments that have the type of a result, and are not donated, the largest first."""
    program, donated = s.executable.program, {*s.executable.lowered.donate}
    first = len(program.bound)
    ins, outs = program.jaxpr.in_avals, program.jaxpr.out_avals
    possible = aliases(ins, outs, [*sorted(donated), *[k for k in range(first, len(ins)) if k not in donated]])
    taken = {*aliases(ins, outs, sorted(donated))}
    missed = [k for k in possible if k >= first and k not in taken and k not in donated]
    total = sum([a.nbytes for a in ins]) or 1
    missed = [k for k in missed if ins[k].nbytes >= SHARE * total and ins[k].shape]
    if not missed:
        return []
    missed.sort(key=lambda k: -ins[k].nbytes)
    named = ", ".join([program.paths[k - first] for k in missed[:NAMED]])
    more = f" and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
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
    widening: dict[Place, tuple[ExplainedEquation, Aval]] = {}
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
    cause = f" ({', '.join(brought[:NAMED])})" if brought else ""
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
    return limited(out, "lines that make values 64-bit")


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
        if len(rows) > 1 and rows[0].bytes >= SHARE * total:
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
    return limited(out, "values that are stored twice")
