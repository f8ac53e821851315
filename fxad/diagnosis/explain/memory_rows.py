"""The rows of memory of a page: the values that are live at the peak, as XLA has placed them, each with a line of the
user, an equation and a reason.

They sum to `executable.memory().temp_bytes`: a row without a line has the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.equations import Equations, shortened
from fxad.diagnosis.explain.hlo import AssignedBuffer
from fxad.diagnosis.explain.live import Share, Span, shares
from fxad.diagnosis.explain.origins import TRANSPOSED, Origins, ValueOrigin
from fxad.diagnosis.explain.parts import Callers, ExplainedProgram, PartOfProgram, callers_of
from fxad.ir import SourceLocation

_READERS: Final = 3  # greatest number of lines with readers that a row names
_LONG: Final = 4  # least number of steps during which a value waits long
_LONG_SHARE: Final = 0.2  # and least share of all steps


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
    unnamed_bytes = total - sum([r.bytes for r in rows])
    if unnamed_bytes:
        rows.append(MemoryRow(unnamed_bytes, "", None, "", _why_rest(part, len(base) > 1)))
    callers_by_equation: dict[int, Callers] = {}
    rows = [_with_callers(s.equations, r, callers_by_equation) for r in rows]
    rows.sort(key=lambda r: (-r.bytes, r.steps[0] - r.steps[1]))  # of equal ones those that last longest
    return Memory(tuple(rows), _curve(s, base), part.problem)


def _with_callers(equations: Equations, row: MemoryRow, callers_by_equation: dict[int, Callers]) -> MemoryRow:
    """Return a row with its callers. `known` are those of equations, by the number of the first that is alike."""
    if row.number is None:
        return row
    equal_equations = equations.alike(equations[row.number])
    if equal_equations[0].number not in callers_by_equation:
        callers_by_equation[equal_equations[0].number] = callers_of(equations, equal_equations)
    return replace(row, callers=callers_by_equation[equal_equations[0].number])


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
    passed_bytes = m.argument_bytes + m.output_bytes - m.alias_bytes
    aliases = [p.stats.alias_bytes for p in s.parts]
    if len(s.plan.steps) == 1:
        return [0]
    return [step.live_bytes - aliases[step.unit] - passed_bytes for step in s.plan.steps]


def _curve(s: ExplainedProgram, base: Sequence[int]) -> tuple[int, ...]:
    curve: list[int] = []
    for k, step in zip(base, s.plan.steps, strict=True):
        part = s.parts[step.unit]
        bytes_in_part = part.schedule.bytes if part.schedule is not None else (part.stats.temp_bytes,)
        curve += [max(0, k + n) for n in bytes_in_part or (0,)]
    return tuple(curve)


def _rows_of_part(part: PartOfProgram) -> list[MemoryRow]:
    if part.schedule is None or part.assignment is None or part.origins is None:
        return []
    shares_of_buffers = shares(part.assignment, part.schedule)
    places = {_place(share.span.buffer) for share in shares_of_buffers}
    spans: dict[tuple[tuple[int, int, int], int], list[Span]] = {}
    for span in part.schedule.spans:
        if (place := _place(span.buffer)) in places:
            spans.setdefault((place, part.origins.of_buffer(span.buffer).instruction.id), []).append(span)
    rows = []
    for share in shares_of_buffers:
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
    in_life = [other for other in others if begin <= other.begin and other.end <= end]
    readers = [i for other in sorted(in_life, key=lambda s: s.end) for i in other.readers]
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
    instruction = None if part.module is None else part.module.by_id.get(span.buffer.instruction)
    index = span.buffer.index
    if instruction is None or len(index) > 1:
        return origin.instruction.type or "a tuple"
    return (
        instruction.parts[index[0]] if index and index[0] < len(instruction.parts) else instruction.type
    ) or "a tuple"


@final
@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a value is in memory, and whether it is stored for an equation much later."""

    text: str
    stored: bool


def _why_in_memory(span: Span, origin: ValueOrigin, origins: Origins, steps: int) -> _Reason:
    """Return which decision keeps a value in memory."""
    equation = origin.equation
    policy = origins.policy_of(equation) if equation is not None else ""
    if policy:
        return _Reason(f"stored: {policy}", True)
    operation = origin.instruction.operation
    if equation is not None and equation.again and equation.again == equation.runs:
        return _Reason("computed again for the derivative, by remat", False)
    if TRANSPOSED in operation:
        return _Reason("a cotangent: the derivative computes it", False)
    derivative = _derivative_that_reads(span, origin, origins)
    if derivative:
        return _Reason(f"a residual: stored until {derivative} reads it, no policy decided it", True)
    last_line = next((line for i in reversed(span.readers) if (line := origins.of(i.id).line) is not None), None)
    duration = span.end - span.begin
    if last_line is not None and duration >= max(_LONG, _LONG_SHARE * steps):
        text = f"stored for {duration} of {steps} steps, until {last_line.short} reads it, no policy decided it"
        return _Reason(text, True)
    return _Reason("a temporary: the next equations read it", False)


def _derivative_that_reads(span: Span, origin: ValueOrigin, origins: Origins) -> str:
    """Return the derivative that reads a value, empty if none does: it is read in a transposed program, or again on a
    line that has read it or computed it before, after other lines."""
    readers = [origins.of(i.id) for i in span.readers]
    if any([origins.in_derivative(i) for i in span.readers]):
        line = next((r.line for r in reversed(readers) if r.line is not None), None)
        return f"the derivative of {line.short}" if line is not None else "the derivative"
    last_reader = readers[-1] if len(readers) > 1 and span.end - span.begin > 2 else None
    if last_reader is None or last_reader.line is None or not origins.has_derivative:
        return ""
    earlier_lines = [origin.line, *[r.line for r in readers[:-1]]]
    reads_again = last_reader.line in earlier_lines and origins.returns_to(last_reader.line)
    return f"the derivative of {last_reader.line.short}" if reads_again else ""


def _waiting_rows(s: ExplainedProgram, running_step: int) -> list[MemoryRow]:
    """Return the values that are in memory between units, while a step runs."""
    plan = s.plan
    first = len(plan.in_avals) + len(plan.constants)
    results = {*plan.outs}
    producers: dict[int, tuple[int, int]] = {}  # for each slot, the step that computes it, and which result it is
    slot = first
    for k, step in enumerate(plan.steps):
        for j in range(len(plan.units[step.unit].body.outs)):
            producers[slot] = k, j
            slot += 1
    freed_at = {slot: k for k, step in enumerate(plan.steps) for slot in step.frees}
    rows = []
    for slot, (k, j) in producers.items():
        last_step = freed_at.get(slot, len(plan.steps) - 1)
        if k <= running_step <= last_step and slot not in results:
            rows.append(_waiting_row(s, slot, k, j, last_step))
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
