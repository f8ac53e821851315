"""Rematerialization of any program: values that live long are computed again before they are read.

The program is flat: its calls are inlined. Its *turn* is the place between two equations that the values with the
longest lives cross: in a training step, the loss. Values from before the turn that equations after it read are the
*residuals*. The equations before the turn are cut into segments. The equations after it are cut into as many intervals,
in the opposite order: the interval of a segment begins where the first of its residuals is read.

A `SegmentSchedule` says which residuals are stored. An interval computes the other ones again, from what is stored, in
blocks that XLA does not merge with the first computation (opaque `remat` equations). A block may also return the values
between two segments, from which a later block starts:

    segments      0  1  2  3 | 3  2  1  0     intervals
    stored              x        the values between the segments 1 and 2
    blocks                     3  2' 1' 0'    2' starts from x; 1' runs the segment 0 too, from the operands, and
                                              returns the values between 0 and 1; 0' starts from the operands

See docs/adr/0095.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Self, TypeAlias, final

from fxad.core.builder import Builder, last_readers, live_ins, producers, subprogram, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, Jaxpr, Var
from fxad.primitives.control.remat import Remat
from fxad.transforms.costs import Fusion, compile_cost, time_of, total_time
from fxad.transforms.memory.segments import last_reads
from fxad.transforms.memory_plans.flat_program import expands

SMALL: Final = 64  # a value that is so many times smaller than the largest residual is stored

_LinkedVars: TypeAlias = "tuple[Var, _LinkedVars] | None"


@final
@dataclass(frozen=True, slots=True)
class SegmentSchedule:
    """The choice of the segments that are stored and of those that are computed again.

    turn:         the equations before the turn.
    cuts:         the borders of the segments, as numbers of equations.
    recomputed:   the first so many segments are computed again. The values of the others are stored.
    levels:       the borders of nested groups of the segments that are computed again, as numbers of segments, the
                  outermost groups first. The values between the outermost groups are stored; those between the groups
                  in a group are returned by the block that runs first in it.
    forward:      equations before the turn that run together, from one of these numbers to the next.
    split:        each block has at most one kernel after the turn. Before the first of an interval, a block without
                  equations of the interval computes the values that the segment starts from, so what leads to them is
                  not in memory beside what the interval computes.
    to_store:     values from before the turn, by their numbers, that the user stores in any case.
    to_recompute: those that the user computes again in any case.
    """

    turn: int
    cuts: tuple[int, ...]
    recomputed: int
    levels: tuple[tuple[int, ...], ...]
    forward: tuple[int, ...]
    split: bool = False
    to_store: tuple[int, ...] = ()
    to_recompute: tuple[int, ...] = ()

    def saves(self) -> _Saves:
        """Return where values between segments are saved.

        The example at the top of this file, where the segment 3 is not computed again:

        >>> from fxad.transforms.memory_plans.rematerialize import SegmentSchedule
        >>> levels = (0, 2, 4), (0, 1, 2, 3, 4)
        >>> SegmentSchedule(turn=8, cuts=(0, 2, 4, 6, 8), recomputed=3, levels=levels, forward=(0, 8)).saves()
        _Saves(stored={2, 3}, returned={1: {1}})
        """
        stored = {self.recomputed}
        returned: dict[int, set[int]] = {}
        groups = [(0, self.recomputed)]
        for depth, level in enumerate(self.levels):
            inner: list[tuple[int, int]] = []
            for start, stop in groups:
                borders = [start, *[k for k in level if start < k < stop], stop]
                inner += pairwise(borders)
                between = borders[1:-1]
                if depth == 0:
                    stored.update(between)
                elif between:
                    returned.setdefault(stop - 1, set()).update(between)
            groups = inner
        return _Saves(stored, returned)


class _Saves(NamedTuple):
    """The cuts of which all values are saved, as numbers of the segments after them.

    stored:   they are stored.
    returned: for the interval of a segment, those that its first block returns: it runs first in a group.
    """

    stored: set[int]
    returned: dict[int, set[int]]


@by_value
def scheduled(flat: Jaxpr, schedule: SegmentSchedule) -> Jaxpr:
    """Return the flat program under a schedule.

    Law: same value; effects stay, in order.
    """
    return _Rematerialization.of(_SplitAtTurn(flat, schedule.turn), schedule).program()


def estimated_times(flat: Jaxpr, turn: int, schedules: Sequence[SegmentSchedule]) -> list[float]:
    """Return the estimated microseconds of a run of a flat program under schedules with one turn."""
    halves = _SplitAtTurn(flat, turn)
    return [_Rematerialization.of(halves, s).microseconds for s in schedules]


@final
class _SplitAtTurn:
    """A flat program before and after its turn: where each value is computed and read. Equations are numbered in each
    half. `residuals` are the values that the second half reads from the first one."""

    __slots__ = (
        "after",
        "before",
        "first_after",
        "flat",
        "last_after",
        "last_before",
        "eqn_number",
        "residuals",
        "results",
        "times",
    )

    def __init__(self, flat: Jaxpr, turn: int) -> None:
        self.flat = flat
        self.before, self.after = flat.eqns[:turn], flat.eqns[turn:]
        self.results = {*flat.outs}
        self.eqn_number = producers(self.before)
        self.last_before = last_readers(self.before)
        self.last_after = last_reads(Jaxpr(flat.ins, self.after, flat.outs, flat.name))
        self.first_after = {a: k for k, e in reversed([*enumerate(self.after)]) for a in e.ins}
        self.residuals = [v for v in self.first_after if v in self.eqn_number]
        self.times = [total_time((e,)) for e in self.before]

    def is_after_turn(self, v: Var) -> bool:
        """Return True if an equation after the turn computes a value."""
        return not v.is_operand and v not in self.eqn_number


@final
@dataclass(frozen=True, slots=True)
class _PlannedBlock:
    """Equations that run together, as an opaque `remat` with these results; None: one after the other."""

    eqns: Sequence[Eqn]
    results: Sequence[Var] | None


@final
class _Rematerialization:
    """A flat program under a schedule, as `blocks`.

    segment_of     of each value from before the turn: the last segment that reads it, or the one that computes it.
    starts         where the interval of each segment starts, in equations after the turn.
    between        for each cut, the values that the segment after it, or a later one, needs from those before it.
    crossing       the values that cross the turn, or lie between two segments.
    fixed          values from before the turn that are in memory in any case.
    returned       for the interval of each segment, the cuts of which its first block returns the values.
    available      values from before the turn that need not be computed again: at first those that are stored; an
                   interval adds those that it returns.
    recomputed_in  the segments in whose intervals each equation before the turn runs again.

    In the example of `SegmentSchedule.saves`, let equation k before the turn compute v_k from v_(k-1), and let the
    equations after it read v_7, v_6, ..., v_0, one each. Then

        segment_of     v_0: 0, v_1 and v_2: 1, v_3 and v_4: 2, v_5 to v_7: 3, as the segment 1 reads v_1, and so on
        between        v_1, v_3 and v_5: one value for each of the three inner cuts
        crossing       all of them
        fixed          none; v_7 would be, if it was a result of the program
        starts         7, 5, 3, 0: the segment 0 has v_0 alone, which the last equation reads
        returned       {1} for the segment 1: its block returns v_1
        available      v_3 and v_5 are stored by `saves`, v_6 and v_7 as the segment 3 is not computed again; later v_1
        recomputed_in  segment 2: v_4 from v_3; segment 1: v_0, v_1 and v_2; segment 0: v_0
    """

    def __init__(self, halves: _SplitAtTurn, schedule: SegmentSchedule) -> None:
        self.halves, self.schedule, self.cuts = halves, schedule, schedule.cuts
        eqn_number = halves.eqn_number
        segment = [s for s, (a, b) in enumerate(pairwise(schedule.cuts)) for _ in range(a, b)]  # of each equation
        self.segment_of = {v: segment[halves.last_before.get(v, k)] for v, k in eqn_number.items()}
        self.between: list[set[Atom]] = [set() for _ in schedule.cuts]
        for v, k in eqn_number.items():
            for s in range(segment[k] + 1, self.segment_of[v] + 1):
                self.between[s].add(v)
        between = set[Atom]().union(*self.between)
        self.crossing = [v for v in eqn_number if v in halves.first_after or v in between]
        self.fixed = {v for v, k in eqn_number.items() if v in halves.results or halves.before[k].prim.effects}
        largest = max([v.aval.nbytes for v in halves.residuals], default=0)
        small = {v for v in eqn_number if v.aval.nbytes * SMALL <= largest}
        large = [v for v in halves.residuals if v not in small]
        in_order = _heaviest_in_order(large, self.segment_of, halves.first_after, len(schedule.cuts) - 1)
        self.starts = self._starts(in_order)
        saves = schedule.saves()
        self.returned = self._returned(saves.returned)
        self.available = self._stored(small, in_order, saves.stored)
        self.recomputed_in: list[list[int]] = [[] for _ in halves.before]
        self.blocks: list[_PlannedBlock] = []
        self.forward_blocks = 0

    @classmethod
    def of(cls, halves: _SplitAtTurn, schedule: SegmentSchedule) -> Self:
        """Return the program under a schedule, with its blocks."""
        out = cls(halves, schedule)
        out._add_first_half()
        out._add_second_half()
        return out

    def _add_first_half(self) -> None:
        for start, stop in pairwise(self.schedule.forward):
            self._add_forward_block(start, stop)
        self.forward_blocks = len(self.blocks)

    def _add_second_half(self) -> None:
        """Add the intervals of the segments, the last segment first."""
        for s in reversed(range(len(self.starts))):
            if self._interval_of(s):
                self._add_interval(s, self._interval_of(s))

    def _interval_of(self, segment: int) -> range:
        """Return the equations of the interval of a segment."""
        stop = self.starts[segment - 1] if segment else len(self.halves.after)
        return range(self.starts[segment], stop)

    def _stored(self, small: set[Var], in_order: set[Var], stored_between: set[int]) -> set[Atom]:
        """Return the values from before the turn that are stored.

        These are all values of the segments that are not computed again, and of any segment

            results of the program or of an effect      they are in memory in any case
            small ones                                  they take little memory
            residuals that are not read in order        the interval of their segment would begin too early
            those between the outermost groups          the schedule says so
            those in `to_store`, and none in `to_recompute`      the user says so
        """
        schedule, eqn_number = self.schedule, self.halves.eqn_number
        stored: set[Atom] = {v for v, k in eqn_number.items() if k >= self.cuts[schedule.recomputed]}
        stored.update(self.fixed, small, [v for v in self.halves.residuals if v not in in_order])
        stored.update(*[self.between[s] for s in stored_between])
        stored.update([v for v in self.crossing if v.index in schedule.to_store])
        return stored.difference([v for v in self.crossing if v.index in schedule.to_recompute])

    def _starts(self, in_order: set[Var]) -> list[int]:
        """Return where the interval of each segment starts, in equations after the turn: where the first of its
        residuals is read, before the equations that only expand a value for that reader.

        An interval without residuals is empty, and that of the last segment starts at the turn. If equation 7 is the
        first to read residuals of segment 0, equation 2 those of segment 2, and none reads those of segment 1, the
        intervals of the three start at 7, 7 and 0.
        """
        n, after = len(self.cuts) - 1, self.halves.after
        starts = [len(after)] * n
        for v in in_order:
            starts[self.segment_of[v]] = min(starts[self.segment_of[v]], self.halves.first_after[v])
        for s in range(n):
            while 0 < starts[s] < len(after) and expands(after[starts[s] - 1]):
                starts[s] -= 1
        for s in range(1, n):
            starts[s] = min(starts[s], starts[s - 1])
        starts[-1] = 0
        return starts

    def _returned(self, returned: dict[int, set[int]]) -> list[set[int]]:
        """Return the cuts of which each interval returns the values. What an empty interval would return, the next one
        does."""
        out = [returned.get(s, set()) for s in range(len(self.starts))]
        for s in reversed(range(1, len(out))):
            if not self._interval_of(s):
                out[s - 1], out[s] = out[s - 1] | out[s], set()
        return out

    @property
    def microseconds(self) -> float:
        """The estimated time of a run."""
        recomputation = sum(
            [time * len(segments) for time, segments in zip(self.halves.times, self.recomputed_in, strict=True)]
        )
        return time_of(self.halves.flat) + recomputation

    def program(self) -> Jaxpr:
        """Return the program."""
        b, env = Builder.like(self.halves.flat), dict[Atom, Atom]()
        for block in self.blocks:
            if block.results is None:
                b.extend(block.eqns, env)
                continue
            # XLA runs a block when its last operand is known: one from after the turn, if there is any
            ins = sorted(live_ins(block.eqns), key=self.halves.is_after_turn)
            b.source = block.eqns[-1].source
            body = subprogram(block.eqns, ins, block.results, "block")
            env.update(zip(block.results, b(Remat(body, opaque=True), *substitute(ins, env)), strict=True))
        return dce(b.build(substitute(self.halves.flat.outs, env), self.halves.flat.name))

    def crossings(self) -> tuple[Crossing, ...]:
        """Return the values that cross the turn, or lie between two segments, in the order of their equations."""
        read_late = {v for block in self.blocks[self.forward_blocks :] for v in live_ins(block.eqns)}
        out = []
        for v in self.crossing:
            k = self.halves.eqn_number[v]
            intervals = tuple(dict.fromkeys(self.recomputed_in[k]))
            stored = v in self.fixed or (v in read_late and not intervals)
            out.append(Crossing(v, self.halves.before[k], intervals, stored, v in self.fixed))
        return tuple(out)

    def _add_forward_block(self, start: int, stop: int) -> None:
        """Add equations before the turn, as one block if they have no effects."""
        eqns = self.halves.before[start:stop]
        if not eqns:
            return
        if any([e.prim.effects for e in eqns]):
            self._add(eqns)
            return
        last_read, available = self.halves.last_before, self.available
        self._add(eqns, [v for e in eqns for v in e.outs if last_read.get(v, -1) >= stop or v in available])

    def _add_interval(self, segment: int, interval: range) -> None:
        """Add the equations of an interval that is not empty.

        Each of its runs (`_runs`) has three parts:

            equations     up to the first reader      from there                       after the last reader
            they run      one after the other         in a block that computes again   one after the other
                                                      what they read

        A reader reads a value that is to be computed again. The third part is empty, but in the interval of segment 0,
        the last one: there it has equations of no segment, such as an optimiser. A run without readers is one part.
        For example, t and u are there, v = sin(u) is to be computed again, and the run has a = cos(t), g = a * v and
        h = g + 1. A | separates the parts:

            segment 1     a = cos(t) | v = sin(u), g = a * v, h = g + 1
            segment 0     a = cos(t) | v = sin(u), g = a * v | h = g + 1

        The first block of the interval also returns values between segments, if the schedule says so. Each block
        returns its residuals that a later interval reads.

        With `split`, the first block computes nothing but those values and what the segment starts from. They are
        available from then on, so the next block computes its residuals from them. Example: the interval has s, g and
        h, and its segment starts from u. A | ends a block, and h runs alone, because it reads nothing that is computed
        again:

            split   runs
            False   u = x @ W, s = sech2(u), g = f * s, h = g @ W
            True    u = x @ W | s = sech2(u), g = f * s | h = g @ W
        """
        after = self.halves.after
        returned = set[Atom]().union(*[self.between[s] for s in self.returned[segment]]) - self.available
        if self.schedule.split and self._unavailable(after[interval.start : interval.stop]):
            before_segment = self.between[segment]
            self._add_block(segment, (), (returned | before_segment) - self.available, interval.start)
            returned = set()
        for run in _runs(after, interval, self.schedule.split):
            unavailable = self._unavailable(after[run.start : run.stop])
            readers = [k for k in run if not unavailable.isdisjoint(after[k].ins)]
            if not readers and not returned:
                self._add(after[run.start : run.stop])
                continue
            start, end = (readers[0], readers[-1] + 1) if readers else (run.start, run.start)
            if segment:  # there is no third part
                end = run.stop
            read_later = {v for v in unavailable if self.halves.last_after.get(v, -1) >= interval.stop}
            self._add(after[run.start : start])
            self._add_block(segment, after[start:end], returned | read_later, end)
            self._add(after[end : run.stop])
            returned = set()

    def _unavailable(self, eqns: Sequence[Eqn]) -> set[Atom]:
        """Return the residuals that equations read and that are to be computed again."""
        eqn_number, available = self.halves.eqn_number, self.available
        return {a for e in eqns for a in e.ins if a in eqn_number and a not in available}

    def _equations_that_compute(self, values: set[Atom]) -> list[int]:
        """Return the equations that compute values from before the turn from what is available."""
        eqn_number, before = self.halves.eqn_number, self.halves.before
        numbers = set[int]()
        stack = [*values]
        while stack:
            v = stack.pop()
            if isinstance(v, Var) and v in eqn_number and eqn_number[v] not in numbers:
                numbers.add(eqn_number[v])
                stack += [a for a in before[eqn_number[v]].ins if a not in self.available]
        return sorted(numbers)

    def _add_block(self, segment: int, eqns: Sequence[Eqn], returned: set[Atom], end: int) -> None:
        """Add equations after the turn, up to `end`, with what they need, and `returned`, computed again in the
        interval of a segment. Then the values that are returned are available."""
        numbers = self._equations_that_compute(self._unavailable(eqns) | returned)
        for k in numbers:
            self.recomputed_in[k].append(segment)
        recomputed = [self.halves.before[k] for k in numbers]
        results = [v for e in recomputed for v in e.outs if v in returned]
        results += [v for e in eqns for v in e.outs if self.halves.last_after.get(v, -1) >= end]
        self._add([*recomputed, *eqns], results)
        self.available |= returned

    def _add(self, eqns: Sequence[Eqn], results: Sequence[Var] | None = None) -> None:
        if eqns:
            self.blocks.append(_PlannedBlock(eqns, results))


@final
@dataclass(frozen=True, slots=True)
class Crossing:
    """A value from before the turn that is read after it, or between two segments, under a schedule.

    `intervals` are the segments in whose intervals it is computed again. `stored` is True if it is in memory at the
    turn, `fixed` if it is in any case, as a result of the program.
    """

    var: Var
    eqn: Eqn
    intervals: tuple[int, ...]
    stored: bool
    fixed: bool


def crossings(flat: Jaxpr, schedule: SegmentSchedule) -> tuple[Crossing, ...]:
    """Return the values that cross the turn, or lie between two segments, in the order of their equations."""
    return _Rematerialization.of(_SplitAtTurn(flat, schedule.turn), schedule).crossings()


def block_bodies(program: Jaxpr) -> tuple[Jaxpr, ...]:
    """Return the bodies of the blocks of a program under a schedule."""
    blocks = [e.prim.body for e in program.eqns if isinstance(e.prim, Remat) and e.prim.opaque]
    return tuple(dict.fromkeys(blocks))


def _heaviest_in_order(
    residuals: Sequence[Var], segment_of: dict[Var, int], first_read: dict[Atom, int], n: int
) -> set[Var]:
    """Return residuals that are read in the opposite order of their segments: of all such sets the one with most
    bytes.

    Source: the heaviest increasing subsequence, by a Fenwick tree over the segments, the last one first. Of the sets
            that end at a segment or later, the tree gives the largest in a time that grows with log(n).
    """
    best: list[tuple[int, _LinkedVars]] = [(0, None)] * (n + 1)

    def largest(k: int) -> tuple[int, _LinkedVars]:
        heaviest = best[0]
        while k:
            heaviest, k = max(heaviest, best[k], key=lambda item: item[0]), k & (k - 1)
        return heaviest

    for v in sorted(residuals, key=lambda v: (first_read[v], -segment_of[v])):
        k = n - segment_of[v]
        size, chain = largest(k)
        extended = size + v.aval.nbytes, (v, chain)
        while k <= n:
            best[k] = max(best[k], extended, key=lambda item: item[0])
            k += k & -k
    chain = largest(n)[1]
    out = set[Var]()
    while chain is not None:
        v, chain = chain
        out.add(v)
    return out


def _runs(eqns: Sequence[Eqn], interval: range, split: bool) -> Iterator[range]:
    """Yield the stretches without effects, and each equation with an effect. With `split`, a stretch has at most one
    kernel, with which it begins."""
    begin = interval.start
    for k in interval:
        effects = bool(eqns[k].prim.effects)
        if effects or (split and compile_cost(type(eqns[k].prim))[0] is Fusion.KERNEL):
            if begin < k:
                yield range(begin, k)
            begin = k
        if effects:
            yield range(k, k + 1)
            begin = k + 1
    if begin < interval.stop:
        yield range(begin, interval.stop)
