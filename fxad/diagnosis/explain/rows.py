"""The rows of a page: bytes of temporaries, seconds and flops, each with a line of the user, an equation and a reason.

The rows of memory are the values that are live at the peak, as XLA has placed them. They sum to
`executable.memory().temp_bytes`: a row without a line has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.equations import Equations, ExplainedEquation, shortened
from fxad.diagnosis.explain.hlo import AssignedBuffer, Assignment, HloModule, read_assignment, read_module
from fxad.diagnosis.explain.live import BufferSchedule, Share, Span, schedule, shares
from fxad.diagnosis.explain.origins import TRANSPOSED, Origins, ValueOrigin
from fxad.execution.executable import Executable
from fxad.ir import HigherOrder, SourceLocation
from fxad.primitives.fusion import MOVES, VIEWS
from fxad.runtime import MemoryStats, XlaExecutable
from fxad.transforms.costs import elements, flops, microseconds
from fxad.units.plan import UnitPlan

# The lines that called the function of a line, each with its share, the largest first.
Callers: TypeAlias = tuple[tuple[SourceLocation, float], ...]

_READERS: Final = 3  # lines of readers that a row names
_LONG: Final = 4  # steps during which a value waits, at least, and their share of all steps
_LONG_SHARE: Final = 0.2


@final
@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes of temporaries at the peak, for a value of type `type`.

    `reason` says why it is in memory; `stored` is True if it waits for an equation much later, such as one of the
    derivative. `readers` are the lines that read the value, `steps` the first and the last step of the schedule during
    which it is in memory, `number` that of the equation on the page, `instruction` the name in `executable.text()` of
    what computes the value. `callers` are the lines that called the function of the line, with their shares; of values
    of one line and one type, each has those of all.
    """

    bytes: int
    type: str
    line: SourceLocation | None
    equation: str
    reason: str
    readers: tuple[SourceLocation, ...] = ()
    steps: tuple[int, int] = (0, 0)
    number: int | None = None
    instruction: str = ""
    stored: bool = False
    callers: Callers = ()


@final
@dataclass(frozen=True, slots=True)
class TimeRow:
    """The time of an equation in one call of the program, over all its runs. `bytes` are those that it writes. The time
    is `measured`, by a profile, or estimated. `callers` are the lines that called the function of the line, with their
    shares."""

    seconds: float
    flops: float
    bytes: int
    runs: int
    line: SourceLocation | None
    equation: str
    measured: bool
    number: int | None = None
    callers: Callers = ()

    @property
    def reason(self) -> str:
        """How the time is known: "measured" or "estimated"."""
        return "measured" if self.measured else "estimated"


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


def subject(executable: Executable[..., object]) -> ExplainedProgram:
    """Return the parts of a compiled program. Cost: reads what XLA says of each part; linear in its instructions."""
    plan = executable.lowered.units
    equations = Equations([(u.body, u.uses) for u in plan.units])
    parts = tuple([_part(p, equations) for p in executable.parts])
    stats = parts[0].stats if len(plan.steps) == 1 else executable.memory()
    return ExplainedProgram(executable, stats, plan, equations, parts)


def _part(executable: XlaExecutable, equations: Equations) -> PartOfProgram:
    of_module, of_buffers = executable.hlo_proto(), executable.buffer_assignment_proto()
    stats = executable.memory()
    if not of_module:
        return PartOfProgram(
            executable, stats, None, None, None, None, "this jaxlib does not give the optimised module"
        )
    try:
        module = read_module(of_module)
        origins = Origins(module, equations)
        if not of_buffers:
            problem = "this jaxlib does not give XLA's assignment of buffers"
            return PartOfProgram(executable, stats, module, None, None, origins, problem)
        assignment = read_assignment(of_buffers)
        return PartOfProgram(executable, stats, module, assignment, schedule(module, assignment), origins)
    except (ValueError, LookupError) as e:
        problem = f"the messages of this jaxlib cannot be read: {type(e).__name__}: {e}"
        return PartOfProgram(executable, stats, None, None, None, None, problem)


# -------------------------------------------------------------------------------------------------------------- memory


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """The rows of memory, the bytes of temporaries in use at each step, and why details are missing, if they are."""

    rows: tuple[MemoryRow, ...]
    curve: tuple[int, ...]
    problem: str = ""


def memory(s: ExplainedProgram) -> Memory:
    """Return the rows of memory. Law: their bytes sum to `executable.memory().temp_bytes`."""
    total = s.stats.temp_bytes
    base = _bytes_around_units(s)
    temps = [p.stats.temp_bytes for p in s.parts]
    step = max(range(len(base)), key=lambda k: base[k] + temps[s.plan.steps[k].unit])
    part = s.parts[s.plan.steps[step].unit]
    waiting = _waiting_rows(s, step) if len(base) > 1 else []
    rows = [*waiting, *_rows_of_part(part)]
    rest = total - sum([r.bytes for r in rows])
    if rest:
        rows.append(MemoryRow(rest, "", None, "", _why_rest(part, len(base) > 1)))
    known: dict[int, Callers] = {}
    rows = [_with_callers(s.equations, r, known) for r in rows]
    rows.sort(key=lambda r: (-r.bytes, r.steps[0] - r.steps[1]))  # of equal ones those that last longest
    return Memory(tuple(rows), _curve(s, base), part.problem)


def _with_callers(equations: Equations, row: MemoryRow, known: dict[int, Callers]) -> MemoryRow:
    """Return a row with its callers. `known` are those of equations, by the number of the first that is alike."""
    if row.number is None:
        return row
    alike = equations.alike(equations[row.number])
    if alike[0].number not in known:
        known[alike[0].number] = callers_of(equations, alike)
    return replace(row, callers=known[alike[0].number])


def callers_of(equations: Equations, of: Sequence[ExplainedEquation]) -> Callers:
    """Return the lines that call the functions of the lines of equations, with their shares of the runs."""
    found: dict[SourceLocation, float] = {}
    for e in of:
        for line, share in equations.callers(e).items():
            found[line] = found.get(line, 0.0) + share * max(1, e.runs)
    total = sum(found.values())
    return tuple(sorted([(line, n / total) for line, n in found.items()], key=lambda c: -c[1]))


def _why_rest(part: PartOfProgram, linked: bool) -> str:
    if part.problem:
        return part.problem
    if linked:
        return "gaps between values, less results that are not written yet and donated memory that is reused"
    return "gaps between values: XLA's alignment"


def _bytes_around_units(s: ExplainedProgram) -> list[int]:
    """Return, for each step of the plan, the bytes of temporaries outside the unit that runs: values that wait for a
    later step."""
    m = s.stats
    around = m.argument_bytes + m.output_bytes - m.alias_bytes
    aliases = [p.stats.alias_bytes for p in s.parts]
    if len(s.plan.steps) == 1:
        return [0]
    return [step.live_bytes - aliases[step.unit] - around for step in s.plan.steps]


def _curve(s: ExplainedProgram, base: Sequence[int]) -> tuple[int, ...]:
    out: list[int] = []
    for k, step in zip(base, s.plan.steps, strict=True):
        part = s.parts[step.unit]
        inside = part.schedule.bytes if part.schedule is not None else (part.stats.temp_bytes,)
        out += [max(0, k + n) for n in inside or (0,)]
    return tuple(out)


def _rows_of_part(part: PartOfProgram) -> list[MemoryRow]:
    if part.schedule is None or part.assignment is None or part.origins is None:
        return []
    divided = shares(part.assignment, part.schedule)
    places = {_place(share.span.buffer) for share in divided}
    spans: dict[tuple[tuple[int, int, int], int], list[Span]] = {}
    for span in part.schedule.spans:
        if (at := _place(span.buffer)) in places:
            spans.setdefault((at, part.origins.of_buffer(span.buffer).instruction.id), []).append(span)
    rows = []
    for share in divided:
        key = _place(share.span.buffer), part.origins.of_buffer(share.span.buffer).instruction.id
        rows.append(_row(part, part.origins, replace(share, span=_whole_life(share.span, spans[key]))))
    return rows


def _place(buffer: AssignedBuffer) -> tuple[int, int, int]:
    return buffer.allocation, buffer.offset, buffer.size


def _whole_life(span: Span, others: Sequence[Span]) -> Span:
    """Return the span of a value that buffers in one place have one after the other, as the state of a loop has: those
    of `others` that meet the span."""
    begin, end = span.begin, span.end
    for other in sorted(others, key=lambda s: s.begin):
        if other.begin <= end + 1 and begin <= other.end + 1:
            begin, end = min(begin, other.begin), max(end, other.end)
    inside = [other for other in others if begin <= other.begin and other.end <= end]
    readers = [i for other in sorted(inside, key=lambda s: s.end) for i in other.readers]
    return replace(span, begin=begin, end=end, readers=tuple(dict.fromkeys(readers)))


def _row(part: PartOfProgram, origins: Origins, share: Share) -> MemoryRow:
    span = share.span
    origin = origins.of_buffer(span.buffer)
    readers = [line for i in span.readers if (line := origins.of(i.id).line) is not None]
    equation = origin.equation
    text = shortened(equation.text) if equation is not None else f"{origin.instruction.opcode}, added by XLA"
    why = _why_in_memory(span, origin, origins, 0 if part.schedule is None else len(part.schedule.steps))
    return MemoryRow(
        share.bytes,
        _type_of(part, span, origin),
        origin.line,
        text,
        why.text if share.at_peak else f"not in use at the peak, before or after it: {why.text}",
        tuple(dict.fromkeys(readers[-_READERS:])),
        (span.begin, span.end),
        None if equation is None else equation.number,
        origin.instruction.name,
        why.stored,
    )


def _type_of(part: PartOfProgram, span: Span, origin: ValueOrigin) -> str:
    at, index = part.module.by_id.get(span.buffer.instruction) if part.module is not None else None, span.buffer.index
    if at is None or len(index) > 1:
        return origin.instruction.type or "a tuple"
    return (at.parts[index[0]] if index and index[0] < len(at.parts) else at.type) or "a tuple"


@final
@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a value is in memory, and whether it is stored for an equation much later."""

    text: str
    stored: bool


def _why_in_memory(span: Span, origin: ValueOrigin, origins: Origins, steps: int) -> _Reason:
    """Return which decision keeps a value in memory."""
    equation = origin.equation
    decided = origins.policy_of(equation) if equation is not None else ""
    if decided:
        return _Reason(f"stored: {decided}", True)
    operation = origin.instruction.operation
    if equation is not None and equation.again and equation.again == equation.runs:
        return _Reason("computed again for the derivative, by remat", False)
    if TRANSPOSED in operation:
        return _Reason("a cotangent: the derivative computes it", False)
    later = _derivative_that_reads(span, origin, origins)
    if later:
        return _Reason(f"a residual: stored until {later} reads it, no policy decided it", True)
    last = next((line for i in reversed(span.readers) if (line := origins.of(i.id).line) is not None), None)
    lasts = span.end - span.begin
    if last is not None and lasts >= max(_LONG, _LONG_SHARE * steps):
        text = f"stored for {lasts} of {steps} steps, until {last.short} reads it, no policy decided it"
        return _Reason(text, True)
    return _Reason("a temporary: the next equations read it", False)


def _derivative_that_reads(span: Span, origin: ValueOrigin, origins: Origins) -> str:
    """Return the derivative that reads a value, empty if none does: it is read in a transposed program, or again on a
    line that has read it or computed it before, after other lines."""
    readers = [origins.of(i.id) for i in span.readers]
    if any([origins.in_derivative(i) for i in span.readers]):
        line = next((r.line for r in reversed(readers) if r.line is not None), None)
        return f"the derivative of {line.short}" if line is not None else "the derivative"
    last = readers[-1] if len(readers) > 1 and span.end - span.begin > 2 else None
    if last is None or last.line is None or not origins.has_derivative:
        return ""
    before = [origin.line, *[r.line for r in readers[:-1]]]
    again = last.line in before and origins.returns_to(last.line)
    return f"the derivative of {last.line.short}" if again else ""


def _waiting_rows(s: ExplainedProgram, now: int) -> list[MemoryRow]:
    """Return the values that are in memory between units, while a step runs."""
    plan = s.plan
    first = len(plan.in_avals) + len(plan.constants)
    results = {*plan.outs}
    made: dict[int, tuple[int, int]] = {}  # for each slot, the step that computes it, and which result it is
    slot = first
    for k, step in enumerate(plan.steps):
        for j in range(len(plan.units[step.unit].body.outs)):
            made[slot] = k, j
            slot += 1
    freed = {slot: k for k, step in enumerate(plan.steps) for slot in step.frees}
    rows = []
    for slot, (k, j) in made.items():
        last = freed.get(slot, len(plan.steps) - 1)
        if k <= now <= last and slot not in results:
            rows.append(_waiting_row(s, slot, k, j, last))
    constants = sum([c.aval.nbytes for c in plan.constants])
    if constants:
        rows.append(MemoryRow(constants, "", None, "", "constants that several units read"))
    return rows


def _waiting_row(s: ExplainedProgram, slot: int, k: int, j: int, last: int) -> MemoryRow:
    plan = s.plan
    body, aval = plan.units[plan.steps[k].unit].body, plan.slots[slot]
    equation = s.equations.producer(body, body.outs[j])
    readers = [plan.units[t.unit].body.name for t in plan.steps[k + 1 : last + 1] if slot in t.ins]
    reads = f"until step {last} ({readers[-1]}) reads it" if readers else "and not read"
    lines = [_line_that_reads(s, t.unit, t.ins.index(slot)) for t in plan.steps[k + 1 : last + 1] if slot in t.ins]
    return MemoryRow(
        aval.nbytes,
        str(aval),
        equation.line if equation is not None else None,
        shortened(equation.text) if equation is not None else "",
        f"between units: computed in step {k} ({body.name}), stored {reads}",
        tuple(dict.fromkeys([line for line in lines if line is not None]))[-_READERS:],
        (k, last),
        equation.number if equation is not None else None,
        stored=True,
    )


def _line_that_reads(s: ExplainedProgram, unit: int, operand: int) -> SourceLocation | None:
    """Return the line of the first equation of a unit that reads one of its operands."""
    body = s.plan.units[unit].body
    value = body.ins[operand]
    first = next((s.equations.producer(body, e.outs[0]) for e in body.eqns if value in e.ins and e.outs), None)
    return None if first is None else first.line


# ---------------------------------------------------------------------------------------------------------------- time


def estimated_times(s: ExplainedProgram) -> list[TimeRow]:
    """Return the estimated times of equations without bodies, by the cost model of fxad, the longest first."""
    rows = []
    for e in s.equations:
        if isinstance(e.eqn.prim, (HigherOrder, *VIEWS)) or not e.runs:
            continue
        written = e.runs * sum([v.aval.nbytes for v in e.eqn.outs])
        rows.append(
            TimeRow(
                1e-6 * e.runs * microseconds(e.eqn),
                e.runs * work(e),
                written,
                e.runs,
                e.line,
                shortened(e.text),
                False,
                e.number,
                callers_of(s.equations, [e]),
            )
        )
    return sorted(rows, key=lambda r: (-r.seconds, r.number))


def work(e: ExplainedEquation) -> float:
    """Return the floating point operations of one run: those of products and convolutions, one for each element that
    another equation reads or writes, none where values only move."""
    eqn = e.eqn
    if isinstance(eqn.prim, (*VIEWS, *MOVES)):
        return 0.0
    return flops(eqn) or float(max([elements(a.aval) for a in (*eqn.ins, *eqn.outs)], default=0))


def measured_times(s: ExplainedProgram, profile: Mapping[str, tuple[float, int]], calls: int) -> list[TimeRow]:
    """Return the measured times by equation. `profile` has seconds and runs by the name of an instruction."""
    estimated = {r.number: r for r in estimated_times(s)}
    seconds: dict[tuple[int | None, SourceLocation | None, str], float] = {}
    for part in s.parts:
        if part.module is None or part.origins is None:
            continue
        for i in part.module.by_id.values():
            if i.name in profile and i.opcode not in _CONTAINERS:
                origin = part.origins.of(i.id)
                number = origin.equation.number if origin.equation is not None else None
                text = shortened(origin.equation.text) if origin.equation is not None else f"{i.opcode}, added by XLA"
                key = number, origin.line, text
                seconds[key] = seconds.get(key, 0.0) + profile[i.name][0] / max(1, calls)
    rows = []
    for (number, line, text), t in seconds.items():
        e = estimated.get(number)
        rows.append(
            TimeRow(
                t,
                e.flops if e else 0.0,
                e.bytes if e else 0,
                e.runs if e else 0,
                line,
                text,
                True,
                number,
                e.callers if e else (),
            )
        )
    return sorted(rows, key=lambda r: (-r.seconds, -1 if r.number is None else r.number))


_CONTAINERS: Final = frozenset({"while", "conditional", "call"})  # their time is that of what they contain
