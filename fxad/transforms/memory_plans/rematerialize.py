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
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, count, pairwise
from typing import Final, Self, TypeAlias, final

from fxad.core.builder import Builder, live_ins, rewrite, subprogram, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Var
from fxad.primitives.control.call import Applied
from fxad.primitives.control.remat import Remat
from fxad.transforms.costs import FUSED, Fusion, compile_cost, time_of, total_time
from fxad.transforms.liveness import peak_bytes
from fxad.transforms.memory.nested_scan import balanced
from fxad.transforms.memory.segments import last_reads, live_bytes
from fxad.transforms.memory_plans.layers import cuts_at_minima, layer_cuts
from fxad.transforms.memory_plans.loop_pairs import divided, divisions

SMALL: Final = 64  # a value that is so many times smaller than the largest residual is stored
LAYER_PARTS: Final = (1, 2, 4, 8)  # parts into which a layer is cut
GROUP_DEPTHS: Final = (1, 2, 3)  # levels of groups of layers
MAX_BYTES_RATIO: Final = 0.85  # of the estimated bytes of a schedule that is tried to those of the one before
EXPANDED: Final = 2  # a value that is so many times larger than its operands is computed late

_LinkedVars: TypeAlias = "tuple[Var, _LinkedVars] | None"


# ---------------------------------------------------------------------------------------------------- the flat program


@by_value
def flat_program(jaxpr: Jaxpr) -> Jaxpr:
    """Return a program that is not differentiated any more without calls, in an order that needs less memory: updates
    run early, and broadcast values are computed late.

    Law: same value, same effects in the same order.
    """

    def opens(eqn: Eqn, _ins: Atoms) -> Jaxpr | None:
        prim = eqn.prim
        if isinstance(prim, Remat):
            return None if prim.opaque else prim.body
        return prim.applied if isinstance(prim, Applied) else None

    b = Builder.like(jaxpr)
    return _expand_late(_update_early(b.build(b.inline_calls(jaxpr, jaxpr.ins, opens), jaxpr.name)))


def _update_early(flat: Jaxpr) -> Jaxpr:
    """Return the program in which an update runs as soon as its operands are known. An update is a fusible equation
    that only results of the program need. So the step of an optimiser does not wait until all gradients are there, and
    holds one of them at a time. An update that reads operands of the program only runs just before its first reader."""
    made_by = {v: k for k, e in enumerate(flat.eqns) for v in e.outs}
    read_by_others: set[Atom] = set()
    updates = set[int]()
    for k in reversed(range(len(flat.eqns))):
        eqn = flat.eqns[k]
        fusible = compile_cost(type(eqn.prim))[0] in FUSED and not eqn.prim.effects
        if fusible and read_by_others.isdisjoint(eqn.outs):
            updates.add(k)
        else:
            read_by_others.update(eqn.ins)
    place = [*range(len(flat.eqns))]  # the equation after which each equation runs
    for k in sorted(updates):
        place[k] = max([place[made_by[a]] for a in flat.eqns[k].ins if a in made_by], default=-1)
    first_reader: dict[Atom, int] = {}
    for k in sorted(updates, reverse=True):
        eqn = flat.eqns[k]
        if place[k] < 0:
            place[k] = min([first_reader[v] for v in eqn.outs if v in first_reader], default=k)
        for a in eqn.ins:
            first_reader[a] = min(first_reader.get(a, place[k]), place[k])
    b, env = Builder.like(flat), dict[Atom, Atom]()
    b.extend([flat.eqns[k] for k in sorted(range(len(place)), key=lambda k: (place[k], k in updates, k))], env)
    return b.build(substitute(flat.outs, env), flat.name)


def _expand_late(flat: Jaxpr) -> Jaxpr:
    """Return the program in which a value that is larger than its operands, as a broadcast one, is computed just
    before it is read first."""
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    waiting: dict[Atom, Eqn] = {}

    def emit(eqn: Eqn) -> None:
        for a in eqn.ins:
            if a in waiting:
                emit(waiting.pop(a))
        b.extend((eqn,), env)

    for eqn in flat.eqns:
        if _expands(eqn):
            waiting[eqn.outs[0]] = eqn
        else:
            emit(eqn)
    for a in flat.outs:
        if a in waiting:
            emit(waiting.pop(a))
    return b.build(substitute(flat.outs, env), flat.name)


def _expands(eqn: Eqn) -> bool:
    if len(eqn.outs) != 1 or isinstance(eqn.prim, HigherOrder) or eqn.prim.effects:
        return False
    return eqn.outs[0].aval.nbytes > EXPANDED * sum([a.aval.nbytes for a in eqn.ins if isinstance(a, Var)])


def turn_of(flat: Jaxpr) -> int:
    """Return the place that the values with the longest lives cross: the number of the equations before it.

    A value that is computed before it and read after it counts as its bytes times the equations from one to the other.
    Fusion does not matter: the turn is a place of the program, as that of its loss.
    """
    last = {a: k for k, e in enumerate(flat.eqns) for a in e.ins}
    change = [0] * (len(flat.eqns) + 2)
    for k, eqn in enumerate(flat.eqns):
        for v in eqn.outs:
            life = last.get(v, k) - k
            change[k + 1] += v.aval.nbytes * life
            change[k + life + 1] -= v.aval.nbytes * life
    crossing = list(accumulate(change))
    return max(range(len(crossing)), key=crossing.__getitem__)


# ---------------------------------------------------------------------------------------------------------- schedules


@final
@dataclass(frozen=True, slots=True)
class SegmentSchedule:
    """The choice of the segments that are stored and of those that are computed again.

    turn:       the equations before the turn.
    cuts:       the borders of the segments, as numbers of equations.
    recomputed: the first so many segments are computed again. The values of the others are stored.
    levels:     the borders of nested groups of the segments that are computed again, as numbers of segments, the
                outermost groups first. The values between the outermost groups are stored; those between the groups in
                a group are returned by the block that runs first in it.
    forward:    equations before the turn that run together, from one of these numbers to the next.
    split:      each block has at most one kernel after the turn, and a block of its own computes the values that lead
                to a segment.
    kept:       values from before the turn, by their numbers, that are stored in any case.
    dropped:    those that are computed again in any case.
    """

    turn: int
    cuts: tuple[int, ...]
    recomputed: int
    levels: tuple[tuple[int, ...], ...]
    forward: tuple[int, ...]
    split: bool = False
    kept: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()

    def saves(self) -> tuple[set[int], dict[int, set[int]]]:
        """Return the segments before which all values are stored, and for the interval of a segment those before which
        its first block returns all values."""
        stored = {self.recomputed}
        returned: dict[int, set[int]] = {}
        groups = [(0, self.recomputed)]
        for depth, level in enumerate(self.levels):
            inner: list[tuple[int, int]] = []
            for start, stop in groups:
                borders = [start, *[k for k in level if start < k < stop], stop]
                inner += pairwise(borders)
                saved = returned.setdefault(stop - 1, set()) if depth else stored
                saved.update(borders[1:-1])
            groups = inner
        return stored, returned


@final
@dataclass(frozen=True, slots=True)
class Recomputation:
    """The parts that a program computes again: the segments of its pairs of loops, the number of the recomputation of
    its bodies (None: they stay as they are), and the schedule of its own equations."""

    loops: tuple[int, ...] = ()
    bodies: int | None = None
    schedule: SegmentSchedule | None = None

    def __call__(self, jaxpr: Jaxpr) -> Jaxpr:
        """Return a program with this recomputation, flat. Law: same value; effects stay, in order."""
        return jaxpr if self == Recomputation() else self.program(flat_program(jaxpr))

    def program(self, flat: Jaxpr) -> Jaxpr:
        """Return a flat program with this recomputation."""
        out = self.unscheduled(flat)
        return out if self.schedule is None else scheduled(out, self.schedule)

    def unscheduled(self, flat: Jaxpr) -> Jaxpr:
        """Return a flat program with the recomputations of its loops and bodies only."""
        out = divided(flat, self.loops) if self.loops else flat
        return out if self.bodies is None else _in_bodies(out, self.bodies)


def recomputations(flat: Jaxpr) -> Iterator[Recomputation]:
    """Yield the recomputations that are worth trying for a flat program: each is estimated to be slower and smaller
    than the one before; then come those that need least memory, whatever their time.

    The candidates are visited in the order of their time. Each is written, and its bytes are estimated, when it is
    visited. Then its refinements are added: they compute more again, so they take longer.

    Law:  they do not depend on a budget, so a smaller budget never chooses a larger program.
    Cost: that of the candidates up to the one that is taken.
    """
    sizes = divisions(flat)
    refined = ((), *sizes[:1], *sizes[-1:])
    least = float(peak_bytes(flat))
    tried: set[Recomputation] = set()
    number = count()  # of equal times, the one that was added first comes first
    waiting = [(time_of(part.program(flat)), next(number), part) for part in map(Recomputation, ((), *sizes))]
    heapify(waiting)
    while waiting:
        _, _, r = heappop(waiting)
        program = r.program(flat)
        nbytes = peak_bytes(program)
        if r != Recomputation() and nbytes <= MAX_BYTES_RATIO * least:
            tried.add(r)
            least = nbytes
            yield r
        if r.schedule is None and r.bodies is None and r.loops in refined:
            for time, schedule in _schedules(program):
                heappush(waiting, (time, next(number), replace(r, schedule=schedule)))
            # what other values take beside those in bodies remains
            if nbytes - max(map(peak_bytes, _running_bodies(program)), default=0) <= MAX_BYTES_RATIO * least:
                for k in range(max([len(_of_body(body)) for body in _running_bodies(program)], default=0)):
                    heappush(waiting, (time_of(_in_bodies(program, k)), next(number), replace(r, bodies=k)))
    for part in map(Recomputation, ((), *sizes)):
        last = [part] if part.loops else []
        if part.loops in refined:
            last += [replace(part, schedule=s) for s in _smallest_schedules(part.program(flat))]
        yield from [r for r in dict.fromkeys(last) if r not in tried]


@by_value
def _of_body(body: Jaxpr) -> tuple[Recomputation, ...]:
    return tuple(recomputations(flat_program(body)))


@final
class _Layers:
    """The layers of a flat program before its turn: `borders` between them, as numbers of equations. `forward` are
    those of the equations that run together."""

    __slots__ = ("borders", "forward", "live", "turn")

    def __init__(self, flat: Jaxpr) -> None:
        self.turn = turn_of(flat)
        before = Jaxpr(flat.ins, flat.eqns[: self.turn], (), flat.name)
        self.live = live_bytes(before, (False,) * len(before.ins))
        self.borders = tuple(layer_cuts(before, self.live)) if self.turn else (0, 0)
        # the last layer computes most of what is stored, and the first cotangents
        last = range(self.borders[-2], self.turn)
        kernels = [k for k in last if compile_cost(type(flat.eqns[k].prim))[0] is Fusion.KERNEL]
        self.forward = tuple(sorted({*self.borders, *kernels}))

    def cuts(self, parts: int) -> tuple[int, ...]:
        """Return the borders of the segments, if each layer is cut into so many parts, where few bytes are live."""
        return tuple(sorted({k for a, c in pairwise(self.borders) for k in cuts_at_minima(self.live, a, c, parts)}))

    def levels(self, cuts: tuple[int, ...], depth: int) -> tuple[tuple[int, ...], ...]:
        """Return the borders of nested groups of layers, as numbers of segments."""
        segment = {k: i for i, k in enumerate(cuts)}
        sizes = balanced(len(self.borders) - 1, depth)
        return tuple([tuple([segment[k] for k in self.borders[::size]]) for size in (*sizes, 1)])


def _schedules(flat: Jaxpr) -> list[tuple[float, SegmentSchedule]]:
    """Return schedules of the equations of a flat program, each after the estimated time of a run."""
    layers = _Layers(flat)
    turn, forward = layers.turn, layers.forward
    out: list[SegmentSchedule] = []
    for parts in LAYER_PARTS:
        cuts = layers.cuts(parts)
        if len(cuts) < 3:
            continue
        leaves, n = tuple(range(len(cuts))), len(cuts) - 1
        # the derivative of the last segment comes first: its values are stored
        if parts == 1:
            out.append(SegmentSchedule(turn, cuts, n // 2, (leaves,), forward))
        out += [
            SegmentSchedule(turn, cuts, n - 1, (*layers.levels(cuts, depth), leaves), forward) for depth in GROUP_DEPTHS
        ]
    halves = _SplitAtTurn(flat, turn)
    return [(_Rematerialization.of(halves, s).microseconds, s) for s in dict.fromkeys(out)]


def _smallest_schedules(flat: Jaxpr) -> list[SegmentSchedule]:
    """Return the schedules that need least memory, whatever their time; in the last one each segment starts from the
    operands of the program."""
    layers = _Layers(flat)
    out: list[SegmentSchedule] = []
    for parts, depth in ((LAYER_PARTS[-2], 2), (LAYER_PARTS[-1], 2), (LAYER_PARTS[-2], 0)):
        cuts = layers.cuts(parts)
        if len(cuts) > 2:
            levels = layers.levels(cuts, depth) if depth else ()
            out.append(SegmentSchedule(layers.turn, cuts, len(cuts) - 1, levels, layers.forward, True))
    return out


def _running_bodies(program: Jaxpr) -> Iterator[Jaxpr]:
    for eqn in program.eqns:
        if isinstance(eqn.prim, HigherOrder):
            layout = eqn.prim.layout
            yield from [layout.bodies[k].jaxpr for k in layout.running]


@by_value
def _in_bodies(program: Jaxpr, k: int) -> Jaxpr:
    """Return the program in which each body has its recomputation number k, or its last one."""

    def body_with(body: Jaxpr) -> Jaxpr:
        choices = _of_body(body)
        return choices[min(k, len(choices) - 1)].program(flat_program(body)) if choices else body

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if not isinstance(prim, HigherOrder):
            return None
        layout = prim.layout
        bodies = [body_with(x.jaxpr) if i in layout.running else x.jaxpr for i, x in enumerate(layout.bodies)]
        return b.copy(eqn, ins, prim.with_bodies(tuple(bodies)))

    return rewrite(program, rule)


def block_bodies(program: Jaxpr) -> tuple[Jaxpr, ...]:
    """Return the bodies of the blocks of a program under a schedule."""
    blocks = [e.prim.body for e in program.eqns if isinstance(e.prim, Remat) and e.prim.opaque]
    return tuple(dict.fromkeys(blocks))


# ------------------------------------------------------------------------------------------------- applying a schedule


@by_value
def scheduled(flat: Jaxpr, schedule: SegmentSchedule) -> Jaxpr:
    """Return the flat program under a schedule.

    Law: same value; effects stay, in order.
    """
    return _Rematerialization.of(_SplitAtTurn(flat, schedule.turn), schedule).program()


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
        "made_by",
        "residuals",
        "results",
        "times",
    )

    def __init__(self, flat: Jaxpr, turn: int) -> None:
        self.flat = flat
        self.before, self.after = flat.eqns[:turn], flat.eqns[turn:]
        self.results = {*flat.outs}
        self.made_by = {v: k for k, e in enumerate(self.before) for v in e.outs}
        self.last_before = {a: k for k, e in enumerate(self.before) for a in e.ins}
        self.last_after = last_reads(Jaxpr(flat.ins, self.after, flat.outs, flat.name))
        self.first_after = {a: k for k, e in reversed([*enumerate(self.after)]) for a in e.ins}
        self.residuals = [v for v in self.first_after if v in self.made_by]
        self.times = [total_time((e,)) for e in self.before]


@final
@dataclass(frozen=True, slots=True)
class _PlannedBlock:
    """Equations that run together, as an opaque `remat` with these results; None: one after the other."""

    eqns: Sequence[Eqn]
    results: Sequence[Var] | None


@final
class _Rematerialization:
    """A flat program under a schedule, as `blocks`.

    segment_of   of each value from before the turn: the last segment that reads it, or the one that computes it.
    starts       where the interval of each segment starts, in equations after the turn.
    between      for each cut, the values that the segment after it, or a later one, needs from those before it.
    crossing     the values that cross the turn, or lie between two segments.
    fixed        values from before the turn that are in memory in any case.
    returned     for the interval of a segment, the cuts of which its first block returns the values.
    available    values from before the turn that need not be computed again: at first those that are stored; an
                 interval adds those that it returns.
    again        the segments in whose intervals each equation before the turn runs again.
    """

    def __init__(self, halves: _SplitAtTurn, schedule: SegmentSchedule) -> None:
        self.halves, self.schedule, self.cuts = halves, schedule, schedule.cuts
        made_by = halves.made_by
        segment = [s for s, (a, b) in enumerate(pairwise(schedule.cuts)) for _ in range(a, b)]  # of each equation
        self.segment_of = {v: segment[halves.last_before.get(v, k)] for v, k in made_by.items()}
        self.between: list[set[Atom]] = [set() for _ in schedule.cuts]
        for v, k in made_by.items():
            for s in range(segment[k] + 1, self.segment_of[v] + 1):
                self.between[s].add(v)
        between = set[Atom]().union(*self.between)
        self.crossing = [v for v in made_by if v in halves.first_after or v in between]
        self.fixed = {v for v, k in made_by.items() if v in halves.results or halves.before[k].prim.effects}
        largest = max([v.aval.nbytes for v in halves.residuals], default=0)
        small = {v for v in made_by if v.aval.nbytes * SMALL <= largest}
        large = [v for v in halves.residuals if v not in small]
        in_order = _in_order(large, self.segment_of, halves.first_after, len(schedule.cuts) - 1)
        self.starts = self._starts(in_order)
        stored_between, self.returned = schedule.saves()
        self.available = self._stored(small, in_order, stored_between)
        self.again: list[list[int]] = [[] for _ in halves.before]
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
            self._run_together(start, stop)
        self.forward_blocks = len(self.blocks)

    def _add_second_half(self) -> None:
        """Add the intervals of the segments, the last segment first."""
        ends = [len(self.halves.after), *self.starts]
        for s in reversed(range(len(self.starts))):
            self._interval(s, self.starts[s], ends[s])

    def _stored(self, small: set[Var], in_order: set[Var], stored_between: set[int]) -> set[Atom]:
        """Return the values from before the turn that are stored.

        These are all values of the segments that are not computed again, and of any segment

            results of the program or of an effect      they are in memory in any case
            small ones                                  they take little memory
            residuals that are not read in order        the interval of their segment would begin too early
            those between the outermost groups          the schedule says so
            those in `kept`, and none in `dropped`      the user says so
        """
        schedule, made_by = self.schedule, self.halves.made_by
        stored: set[Atom] = {v for v, k in made_by.items() if k >= self.cuts[schedule.recomputed]}
        stored.update(self.fixed, small, [v for v in self.halves.residuals if v not in in_order])
        stored.update(*[self.between[s] for s in stored_between])
        stored.update([v for v in self.crossing if v.index in schedule.kept])
        return stored.difference([v for v in self.crossing if v.index in schedule.dropped])

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
            while 0 < starts[s] < len(after) and _expands(after[starts[s] - 1]):
                starts[s] -= 1
        for s in range(1, n):
            starts[s] = min(starts[s], starts[s - 1])
        starts[-1] = 0
        return starts

    @property
    def microseconds(self) -> float:
        """The estimated time of a run."""
        again = sum([time * len(segments) for time, segments in zip(self.halves.times, self.again, strict=True)])
        return time_of(self.halves.flat) + again

    def program(self) -> Jaxpr:
        """Return the program."""
        b, env, made_by = Builder.like(self.halves.flat), dict[Atom, Atom](), self.halves.made_by
        for block in self.blocks:
            if block.results is None:
                b.extend(block.eqns, env)
                continue
            # XLA runs a block when its last operand is known: one from after the turn, if there is any
            ins = sorted(live_ins(block.eqns), key=lambda a: a.index >= 0 and a not in made_by)
            b.source = block.eqns[-1].source
            body = subprogram(block.eqns, ins, block.results, "block")
            env.update(zip(block.results, b(Remat(body, opaque=True), *substitute(ins, env)), strict=True))
        return dce(b.build(substitute(self.halves.flat.outs, env), self.halves.flat.name))

    def crossings(self) -> tuple[Crossing, ...]:
        """Return the values that cross the turn, or lie between two segments, in the order of their equations."""
        read_late = {v for block in self.blocks[self.forward_blocks :] for v in live_ins(block.eqns)}
        out = []
        for v in self.crossing:
            k = self.halves.made_by[v]
            intervals = tuple(dict.fromkeys(self.again[k]))
            stored = v in self.fixed or (v in read_late and not intervals)
            out.append(Crossing(v, self.halves.before[k], intervals, stored, v in self.fixed))
        return tuple(out)

    def _run_together(self, start: int, stop: int) -> None:
        """Add equations before the turn, as one block if they have no effects."""
        eqns = self.halves.before[start:stop]
        if not eqns:
            return
        if any([e.prim.effects for e in eqns]):
            self._add(eqns)
            return
        last, available = self.halves.last_before, self.available
        self._add(eqns, [v for e in eqns for v in e.outs if last.get(v, -1) >= stop or v in available])

    def _interval(self, segment: int, start: int, stop: int) -> None:
        """Add the equations of an interval.

        Each of its runs (`_runs`) has three parts:

            equations     up to the first reader      from there                       after the last reader
            they run      one after the other         in a block that computes again   one after the other
                                                      what they read

        A reader reads a value that is to be computed again. The third part is empty, but in the interval of segment 0,
        the last one: there it has equations of no segment, such as an optimiser. A run without readers is one part. The
        first block of the interval also returns values between segments, if the schedule says so. Each block returns
        its residuals that a later interval reads.
        """
        after = self.halves.after
        returned = set[Atom]().union(*[self.between[s] for s in self.returned.get(segment, ())]) - self.available
        if start == stop:  # the next interval that is not empty returns them
            self.returned.setdefault(segment - 1, set()).update(self.returned.get(segment, ()))
            return
        if self.schedule.split and self._unavailable(after[start:stop]):
            self._block(segment, (), (returned | self.between[segment]) - self.available, start)
            returned = set()
        for run in _runs(after, start, stop, self.schedule.split):
            needed = self._unavailable(after[run.start : run.stop])
            readers = [k for k in run if not needed.isdisjoint(after[k].ins)]
            if not readers and not returned:
                self._add(after[run.start : run.stop])
                continue
            first = readers[0] if readers else run.start
            end = run.stop if segment else readers[-1] + 1 if readers else first
            read_later = {v for v in needed if self.halves.last_after.get(v, -1) >= stop}
            self._add(after[run.start : first])
            self._block(segment, after[first:end], returned | read_later, end)
            self._add(after[end : run.stop])
            returned = set()

    def _unavailable(self, eqns: Sequence[Eqn]) -> set[Atom]:
        """Return the residuals that equations read and that are to be computed again."""
        made_by, available = self.halves.made_by, self.available
        return {a for e in eqns for a in e.ins if a in made_by and a not in available}

    def _computing(self, values: set[Atom]) -> list[int]:
        """Return the equations that compute values from before the turn from what is available."""
        made_by, before = self.halves.made_by, self.halves.before
        needed = set[int]()
        stack = [*values]
        while stack:
            v = stack.pop()
            if isinstance(v, Var) and v in made_by and made_by[v] not in needed:
                needed.add(made_by[v])
                stack += [a for a in before[made_by[v]].ins if a not in self.available]
        return sorted(needed)

    def _block(self, segment: int, eqns: Sequence[Eqn], returned: set[Atom], end: int) -> None:
        """Add equations after the turn, up to `end`, with what they need, and `returned`, computed again in the
        interval of a segment."""
        numbers = self._computing(self._unavailable(eqns) | returned)
        for k in numbers:
            self.again[k].append(segment)
        again = [self.halves.before[k] for k in numbers]
        results = [v for e in again for v in e.outs if v in returned]
        results += [v for e in eqns for v in e.outs if self.halves.last_after.get(v, -1) >= end]
        self._add([*again, *eqns], results)
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


def plain_schedule(flat: Jaxpr) -> SegmentSchedule:
    """Return the schedule that computes nothing again, with a segment for each layer."""
    layers = _Layers(flat)
    return SegmentSchedule(layers.turn, layers.borders, 0, (), layers.borders)


def _in_order(residuals: Sequence[Var], segment_of: dict[Var, int], first_read: dict[Atom, int], n: int) -> set[Var]:
    """Return residuals that are read in the opposite order of their segments: of all such sets the one with most
    bytes."""
    # A Fenwick tree over the segments, the last one first: of the sets that end at a segment or later, the largest. It
    # is read and updated in a time that grows with log(n).
    best: list[tuple[int, _LinkedVars]] = [(0, None)] * (n + 1)

    def largest(k: int) -> tuple[int, _LinkedVars]:
        found = best[0]
        while k:
            found, k = max(found, best[k], key=lambda item: item[0]), k & (k - 1)
        return found

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


def _runs(eqns: Sequence[Eqn], start: int, stop: int, split: bool) -> Iterator[range]:
    """Yield the stretches without effects, and each equation with an effect. With `split`, a stretch has at most one
    kernel, with which it begins."""
    begin = start
    for k in range(start, stop):
        effects = bool(eqns[k].prim.effects)
        if effects or (split and compile_cost(type(eqns[k].prim))[0] is Fusion.KERNEL):
            if begin < k:
                yield range(begin, k)
            begin = k
        if effects:
            yield range(k, k + 1)
            begin = k + 1
    if begin < stop:
        yield range(begin, stop)
