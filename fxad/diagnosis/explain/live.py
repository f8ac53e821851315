"""Which buffers are in memory when: liveness of XLA's buffers over its schedule.

XLA gives each buffer a fixed place. A buffer is live from the instruction that defines it to the last that reads it,
also through tuples, bitcasts, loops and calls, which pass buffers on. The schedule is made flat: the instructions of a
called computation stand before the one that calls it, once, as in XLA's `HloLiveRange`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.hlo import AssignedBuffer, Assignment, HloModule, Instruction

_RUN_BODIES: Final = frozenset({"while", "call", "conditional", "async-start"})
# These pass the buffers of their operands on, and read none.
_VIEWS: Final = frozenset({"bitcast", "get-tuple-element", "tuple", "opt-barrier", "parameter", "constant"})


@final
class _BuffersOfResult:
    """The buffers that hold a result: its own, and those of the elements of a tuple."""

    __slots__ = ("own", "parts")

    def __init__(self, own: tuple[AssignedBuffer, ...], parts: tuple[_BuffersOfResult, ...] = ()) -> None:
        self.own, self.parts = own, parts

    def leaves(self) -> Iterator[AssignedBuffer]:
        """Yield all buffers."""
        yield from self.own
        for part in self.parts:
            yield from part.leaves()


_NOTHING: Final = _BuffersOfResult(())


@final
@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The steps of the schedule during which a buffer is live, both included, and the instructions that read it."""

    buffer: AssignedBuffer
    begin: int
    end: int
    readers: tuple[Instruction, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class BufferSchedule:
    """The steps of a program, the spans of its buffers, and the bytes in use at each step."""

    steps: tuple[Instruction, ...]
    spans: tuple[Span, ...]
    bytes: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The first step at which most bytes are in use."""
        return max(range(len(self.bytes)), key=self.bytes.__getitem__, default=0)


def schedule(module: HloModule, assignment: Assignment) -> BufferSchedule:
    """Return the schedule of a module with the spans of its buffers. Cost: linear, and a sort."""
    walk = _Walk(module, assignment)
    walk.run()
    spans = tuple(
        [Span(b, walk.begin[b], walk.end[b], tuple(walk.readers[b])) for b in assignment.buffers if b in walk.begin]
    )
    return BufferSchedule(tuple(walk.steps), spans, tuple(_bytes_in_use(spans, len(walk.steps))))


@final
class _Walk:
    """A walk over the flat schedule."""

    __slots__ = ("begin", "defined", "end", "module", "nodes", "readers", "steps")

    def __init__(self, module: HloModule, assignment: Assignment) -> None:
        self.module = module
        self.defined = assignment.defined
        self.nodes: dict[int, _BuffersOfResult] = {}
        self.steps: list[Instruction] = []
        self.begin: dict[AssignedBuffer, int] = {}
        self.end: dict[AssignedBuffer, int] = {}
        self.readers: dict[AssignedBuffer, list[Instruction]] = {}

    def run(self) -> None:
        root = self._computation(self.module.entry, ())
        self._read(root, None)

    def _computation(self, number: int, operands: tuple[_BuffersOfResult, ...]) -> _BuffersOfResult:
        """Walk a computation. Return the node of its root."""
        computation = self.module.computations[number]
        for i in computation.instructions:
            self.nodes[i.id] = self._instruction(i, operands)
        return self.nodes.get(computation.root, _NOTHING)

    def _instruction(self, i: Instruction, operands: tuple[_BuffersOfResult, ...]) -> _BuffersOfResult:
        ins = [self.nodes.get(k, _NOTHING) for k in i.operands]
        operand_buffers = self._passed(i, ins, operands)
        if i.opcode not in _VIEWS:
            for node in () if i.opcode in _RUN_BODIES else ins:  # what a body contains reads
                self._read(node, i)
            self.steps.append(i)
        return self._with_defined(i, operand_buffers)

    def _passed(
        self, i: Instruction, ins: list[_BuffersOfResult], operands: tuple[_BuffersOfResult, ...]
    ) -> _BuffersOfResult:
        """Return the buffers that the result of an instruction takes over."""
        match i.opcode:
            case "parameter":
                return operands[i.place] if i.place < len(operands) else _NOTHING
            case "tuple":
                return _BuffersOfResult((), tuple(ins))
            case "get-tuple-element":
                parts = ins[0].parts
                return parts[i.place] if i.place < len(parts) else _NOTHING
            case "while":
                return self._loop(i, ins[0])
            case "conditional":
                self._read(ins[0], i)
                roots = [self._computation(c, (node,)) for c, node in zip(i.called, ins[1:], strict=False)]
                return _merged(roots)
            case "call" | "async-start":
                return self._computation(i.called[0], tuple(ins)) if i.called else _NOTHING
            case _:  # an instruction without a buffer of its own is a view
                return ins[0] if ins and i.id not in self.defined else _NOTHING

    def _loop(self, i: Instruction, init: _BuffersOfResult) -> _BuffersOfResult:
        """Walk a loop. The operands of its body are live until its end: the next run reads them."""
        self._read(init, None)
        body, condition = i.called if len(i.called) == 2 else (i.called[0], i.called[0])
        for number in dict.fromkeys((condition, body)):
            self._read(self._computation(number, (init,)), None)
        for inside in self.module.computations[body].instructions:
            if inside.opcode == "parameter":
                self._read(self.nodes[inside.id], None)
        return init

    def _read(self, node: _BuffersOfResult, reader: Instruction | None) -> None:
        now = len(self.steps)
        for b in node.leaves():
            if b in self.begin:
                self.end[b] = max(self.end[b], now)
                if reader is not None and (not self.readers[b] or self.readers[b][-1] is not reader):
                    self.readers[b].append(reader)

    def _with_defined(self, i: Instruction, operand_buffers: _BuffersOfResult) -> _BuffersOfResult:
        """Return the node of a result: buffers that the instruction defines replace those that are passed on."""
        defined_buffers = self.defined.get(i.id)
        if defined_buffers is None:
            return operand_buffers
        now = max(0, len(self.steps) - 1)
        for b in defined_buffers.values():
            if b is not None:
                self.begin[b] = min(self.begin.get(b, now), now)
                self.end[b] = max(self.end.get(b, now), now)
                self.readers.setdefault(b, [])
        prefixes = {path[:k] for path in defined_buffers for k in range(1, len(path) + 1)}
        return _overlaid(operand_buffers, defined_buffers, (), prefixes)


def _merged(nodes: list[_BuffersOfResult]) -> _BuffersOfResult:
    width = max([len(n.parts) for n in nodes], default=0)
    parts = [_merged([n.parts[k] for n in nodes if k < len(n.parts)]) for k in range(width)]
    return _BuffersOfResult(tuple(dict.fromkeys([b for n in nodes for b in n.own])), tuple(parts))


def _overlaid(
    node: _BuffersOfResult,
    own: Mapping[tuple[int, ...], AssignedBuffer | None],
    at: tuple[int, ...],
    inner: set[tuple[int, ...]],
) -> _BuffersOfResult:
    """Return a node with the buffers `own` at their paths in place of others."""
    width = max([len(node.parts), *[path[-1] + 1 for path in inner if len(path) == len(at) + 1 and path[:-1] == at]])
    parts = []
    for k in range(width):
        path, part = (*at, k), node.parts[k] if k < len(node.parts) else _NOTHING
        parts.append(_overlaid(part, own, path, inner) if path in inner else part)
    if at not in own:
        return _BuffersOfResult(node.own, tuple(parts))
    buffer = own[at]
    return _BuffersOfResult(() if buffer is None else (buffer,), tuple(parts))


def _bytes_in_use(spans: tuple[Span, ...], steps: int) -> list[int]:
    """Return the bytes in use at each step. Buffers in one place, of which one takes over from the other, count
    once."""
    change = [0] * (steps + 2)
    places: dict[tuple[int, int, int], list[Span]] = {}
    for span in spans:
        b = span.buffer
        places.setdefault((b.allocation, b.offset, b.size), []).append(span)
    for (_, _, size), spans_in_place in places.items():
        for begin, end in _united(spans_in_place):
            change[begin] += size
            change[end + 1] -= size
    out, now = [], 0
    for k in range(steps):
        now += change[k]
        out.append(now)
    return out


def _united(spans: list[Span]) -> list[tuple[int, int]]:
    """Return the union of spans as disjoint intervals."""
    intervals: list[tuple[int, int]] = []
    for span in sorted(spans, key=attrgetter("begin", "end")):
        if intervals and span.begin <= intervals[-1][1]:
            intervals[-1] = intervals[-1][0], max(intervals[-1][1], span.end)
        else:
            intervals.append((span.begin, span.end))
    return intervals


@final
@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Bytes of temporaries that one buffer has: at the peak, or, if no buffer has them then, at another time."""

    span: Span
    bytes: int
    at_peak: bool


_Piece: TypeAlias = tuple[int, int]  # addresses, the second excluded


def shares(assignment: Assignment, flat: BufferSchedule) -> list[Share]:
    """Divide the bytes of temporaries among buffers. First those that are live at the peak have their places; of two
    buffers in one place, the larger has it. Then bytes that are not in use at the peak belong to the buffers that have
    them at other times, the longest-lived ones first.

    Law: no byte belongs to two buffers, so the shares sum to at most `assignment.bytes`.
    """
    peak = flat.peak
    result: list[Share] = []
    for number, size in assignment.sizes.items():
        free: list[_Piece] = [(0, size)]
        spans_in_allocation = [s for s in flat.spans if s.buffer.allocation == number]
        live = [s for s in spans_in_allocation if s.begin <= peak <= s.end]
        others = [s for s in spans_in_allocation if not s.begin <= peak <= s.end]
        live.sort(key=lambda s: (-s.buffer.size, s.begin - s.end, s.buffer.id))
        others.sort(key=lambda s: (s.begin - s.end, -s.buffer.size, s.buffer.id))
        for at_peak, spans in ((True, live), (False, others)):
            for s in spans:
                free, n = _taken(free, s.buffer.offset, s.buffer.offset + s.buffer.size)
                if n:
                    result.append(Share(s, n, at_peak))
                if not free:
                    break
    return result


def _taken(free: list[_Piece], begin: int, end: int) -> tuple[list[_Piece], int]:
    """Return the free pieces without the bytes from `begin` to `end`, and how many of those were free."""
    first = bisect_right(free, begin, key=itemgetter(1))
    remaining: list[_Piece] = []
    n, last = 0, first
    while last < len(free) and free[last][0] < end:
        start, stop = free[last]
        n += min(stop, end) - max(start, begin)
        remaining += [piece for piece in ((start, min(stop, begin)), (max(start, end), stop)) if piece[0] < piece[1]]
        last += 1
    return [*free[:first], *remaining, *free[last:]] if n else free, n
