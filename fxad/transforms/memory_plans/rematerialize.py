"""Rematerialization of any program: values that live long are computed again before they are read.

The program is flat: its calls are inlined. Its *turn* is the place between two equations that the values with the
longest lives cross: in a training step, the loss. Values from before the turn that equations after it read are the
*residuals*. The equations before the turn are cut into segments. The equations after it are cut into as many intervals,
in the opposite order: the interval of a segment begins where the first of its residuals is read.

A `Schedule` says which residuals are stored. An interval computes the other ones again, from what is stored, in blocks
that XLA does not merge with the first computation (opaque `remat` equations). A block may also return the values
between two segments, from which a later block starts:

    segments      0  1  2  3 | 3  2  1  0     intervals
    stored              x        the values between the segments 1 and 2
    blocks                     3  2' 1' 0'    2' starts from x; 1' runs the segment 0 too, from the operands, and
                                              returns the values between 0 and 1; 0' starts from the operands

See docs/adr/0095.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder, rewrite, subprogram, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Var
from fxad.primitives.control.call import Applied
from fxad.primitives.control.remat import Remat
from fxad.transforms.costs import Fusion, compile_cost, time_of
from fxad.transforms.liveness import peak_bytes, spans
from fxad.transforms.memory.nested_scan import balanced
from fxad.transforms.memory.segments import last_reads, live_bytes
from fxad.transforms.memory_plans.layers import cuts_at_minima, layer_cuts
from fxad.transforms.memory_plans.loop_pairs import divided, divisions

SMALL: Final = 64  # a value that is so many times smaller than the largest residual is stored
LAYER_PARTS: Final = (1, 2, 4, 8)  # parts into which a layer is cut
DEPTHS: Final = (1, 2, 3)  # levels of groups of layers
MAX_BYTES_RATIO: Final = 0.85  # of the estimated bytes of a schedule that is tried to those of the one before
EXPANDED: Final = 2  # a value that is so many times larger than its operands is computed late

_Chain: TypeAlias = "tuple[Var, _Chain] | None"


# ---------------------------------------------------------------------------------------------------- the flat program


@by_value
def flat_program(jaxpr: Jaxpr) -> Jaxpr:
    """Return a program that is not differentiated any more without calls, and with broadcast values computed late.

    Law: same value, same effects in the same order.
    """

    def opens(eqn: Eqn, _ins: Atoms) -> Jaxpr | None:
        prim = eqn.prim
        if isinstance(prim, Remat):
            return None if prim.opaque else prim.body
        return prim.applied if isinstance(prim, Applied) else None

    b = Builder.like(jaxpr)
    return _expand_late(b.build(b.inline_calls(jaxpr, jaxpr.ins, opens), jaxpr.name))


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

    A value that is in memory there counts as its bytes times the equations during which it is in memory.
    """
    begin, end = spans(flat, (False,) * len(flat.ins), (False,) * len(flat.outs))
    change = [0] * (len(flat.eqns) + 2)
    for v, k in begin.items():
        weight = v.aval.nbytes * (end[v] - k)
        change[k + 1] += weight
        change[end[v] + 1] -= weight
    most, turn, crossing = 0, 0, 0
    for k, more in enumerate(change):
        crossing += more
        if crossing > most:
            most, turn = crossing, k
    return turn


# ---------------------------------------------------------------------------------------------------------- schedules


@final
@dataclass(frozen=True, slots=True)
class Schedule:
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
                (returned.setdefault(stop - 1, set()) if depth else stored).update(borders[1:-1])
            groups = inner
        return stored, returned


@final
@dataclass(frozen=True, slots=True)
class Recomputation:
    """The parts that a program computes again: the segments of its pairs of loops, the number of the recomputation of
    its bodies (None: they stay as they are), and the schedule of its own equations."""

    loops: tuple[int, ...] = ()
    bodies: int | None = None
    schedule: Schedule | None = None

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


@by_value
def recomputations(flat: Jaxpr) -> tuple[Recomputation, ...]:
    """Return the recomputations that are worth trying for a flat program: each is estimated to be slower and smaller
    than the one before; then come those that need least memory, whatever their time.

    Law: they do not depend on a budget, so a smaller budget never chooses a larger program.
    """
    fast: list[Recomputation] = []
    last: list[Recomputation] = []
    divisions_of_loops = divisions(flat)
    for loops in ((), *divisions_of_loops):
        part = Recomputation(loops)
        program = part.program(flat)
        if loops:
            fast.append(part)
            last.append(part)
        if not loops or loops in (divisions_of_loops[0], divisions_of_loops[-1]):
            schedules, smallest = _schedules(program)
            fast += [replace(part, schedule=s) for s in schedules]
            fast += [replace(part, bodies=k) for k in range(_in_bodies_at_most(program))]
            last += [replace(part, schedule=s) for s in smallest]
    estimates = [(time_of(p), peak_bytes(p), r) for r in fast for p in [r.program(flat)]]
    estimates.sort(key=lambda row: row[:2])
    out, least = [], float(peak_bytes(flat))
    for _, size, r in estimates:
        if size <= MAX_BYTES_RATIO * least:
            out.append(r)
            least = size
    return tuple(dict.fromkeys([*out, *last]))


def _schedules(flat: Jaxpr) -> tuple[list[Schedule], list[Schedule]]:
    """Return schedules of the equations of a flat program, and those that need least memory, whatever their time."""
    turn = turn_of(flat)
    before = Jaxpr(flat.ins, flat.eqns[:turn], (), flat.name)
    live = live_bytes(before, (False,) * len(before.ins))
    layers = tuple(layer_cuts(before)) if turn else ()
    if len(layers) < 2:
        return [], []
    # the last layer computes most of what is stored, and the first cotangents
    kernels = [k for k in range(layers[-2], turn) if compile_cost(type(flat.eqns[k].prim))[0] is Fusion.KERNEL]
    forward = tuple(sorted({*layers, *kernels}))
    out: list[Schedule] = []
    smallest: list[Schedule] = []
    restarting: list[Schedule] = []  # each segment starts from the operands of the program
    for parts in LAYER_PARTS:
        cuts = tuple(sorted({k for a, c in pairwise(layers) for k in cuts_at_minima(live, a, c, parts)}))
        if len(cuts) < 3:
            continue
        segment = {k: i for i, k in enumerate(cuts)}
        leaves, n = tuple(range(len(cuts))), len(cuts) - 1
        # the derivative of the last segment comes first: its values are stored
        if parts == 1:
            out.append(Schedule(turn, cuts, n // 2, (leaves,), forward))
        for depth in DEPTHS:
            sizes = balanced(len(layers) - 1, depth)
            levels = tuple([tuple([segment[k] for k in layers[::size]]) for size in (*sizes, 1)])
            out.append(Schedule(turn, cuts, n - 1, (*levels, leaves), forward))
            if parts in LAYER_PARTS[-2:] and depth == 2:
                smallest.append(Schedule(turn, cuts, n, levels, forward, True))
        if parts == LAYER_PARTS[-2]:
            restarting.append(Schedule(turn, cuts, n, (), forward, True))
    return list(dict.fromkeys(out)), [*smallest, *restarting]


def _in_bodies_at_most(program: Jaxpr) -> int:
    """Return the most recomputations that a body of a program has."""
    return max([len(recomputations(flat_program(body))) for body in _running_bodies(program)], default=0)


def _running_bodies(program: Jaxpr) -> Iterator[Jaxpr]:
    for eqn in program.eqns:
        if isinstance(eqn.prim, HigherOrder):
            layout = eqn.prim.layout
            yield from [layout.bodies[k].jaxpr for k in layout.running]


@by_value
def _in_bodies(program: Jaxpr, k: int) -> Jaxpr:
    """Return the program in which each body has its recomputation number k, or its last one."""

    def body_with(body: Jaxpr) -> Jaxpr:
        flat = flat_program(body)
        choices = recomputations(flat)
        return choices[min(k, len(choices) - 1)].program(flat) if choices else body

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
def scheduled(flat: Jaxpr, schedule: Schedule) -> Jaxpr:
    """Return the flat program under a schedule.

    Law: same value; effects stay, in order.
    """
    return _Rematerialization(flat, schedule).program()


@final
class _Rematerialization:
    """A flat program under a schedule, while it is written.

    `level` is the segment of each residual: the last one that reads it, or the one that computes it. `available` are
    the values from before the turn that need not be computed again, at the place that is reached.
    """

    def __init__(self, flat: Jaxpr, schedule: Schedule) -> None:
        self.flat, self.schedule = flat, schedule
        turn, cuts = schedule.turn, schedule.cuts
        self.before, self.after = flat.eqns[:turn], flat.eqns[turn:]
        self.made_by = {v: k for k, e in enumerate(self.before) for v in e.outs}
        self.last_before = {a: k for k, e in enumerate(self.before) for a in e.ins}
        self.last_after = last_reads(Jaxpr(flat.ins, self.after, flat.outs, flat.name))
        first_after = {a: k for k, e in reversed([*enumerate(self.after)]) for a in e.ins}
        self.residuals = [v for v in first_after if v in self.made_by]
        segment = [s for s, (a, b) in enumerate(pairwise(cuts)) for _ in range(a, b)]
        self.level = {v: segment[max(self.made_by[v], self.last_before.get(v, 0))] for v in self.residuals}
        largest = max([v.aval.nbytes for v in self.residuals], default=0)
        small = {v for v in self.made_by if v.aval.nbytes * SMALL <= largest}
        in_order = _in_order([v for v in self.residuals if v not in small], self.level, first_after, len(cuts) - 1)
        self.starts = self._starts(in_order, first_after)
        self.between = self._values_between()
        self.stored_between, self.returned = schedule.saves()
        results, stored_from = {*flat.outs}, cuts[schedule.recomputed]
        self.available: set[Atom] = {
            v for v, k in self.made_by.items() if k >= stored_from or v in results or self.before[k].prim.effects
        }
        self.available.update(small, [v for v in self.residuals if v not in in_order])
        for s in self.stored_between:
            self.available |= self.between[s]
        between = set[Atom]().union(*self.between)
        self.crossing = [v for v in self.made_by if v in first_after or v in between]
        self.fixed = {v for v in self.crossing if v in results or self.before[self.made_by[v]].prim.effects}
        self.available.update([v for v in self.crossing if v.index in schedule.kept])
        self.available.difference_update([v for v in self.crossing if v.index in schedule.dropped])
        self.again: dict[Atom, list[int]] = {}  # the intervals whose blocks compute a value again
        self.read_late: set[Atom] = set()  # values that are read after the turn
        self.interval = len(cuts)
        self.b = Builder.like(flat)
        self.env: dict[Atom, Atom] = {}

    def _starts(self, in_order: set[Var], first_after: dict[Atom, int]) -> list[int]:
        """Return where the interval of each segment starts, in equations after the turn."""
        n = len(self.schedule.cuts) - 1
        starts = [len(self.after)] * n
        for v in in_order:
            starts[self.level[v]] = min(starts[self.level[v]], first_after[v])
        for s in range(n):
            while 0 < starts[s] < len(self.after) and _expands(self.after[starts[s] - 1]):
                starts[s] -= 1
        for s in range(1, n):  # an interval without residuals is empty
            starts[s] = min(starts[s], starts[s - 1])
        starts[-1] = 0
        return starts

    def _values_between(self) -> list[set[Atom]]:
        """Return, for each cut, the values that the segment after it, or a later one, needs from those before it."""
        cuts = self.schedule.cuts
        out: list[set[Atom]] = [set() for _ in cuts]
        for v, k in self.made_by.items():
            last = max(bisect_right(cuts, self.last_before.get(v, -1)) - 1, self.level.get(v, -1))
            for segment in range(bisect_right(cuts, k), last + 1):
                out[segment].add(v)
        return out

    def program(self) -> Jaxpr:
        """Return the program."""
        for start, stop in pairwise(self.schedule.forward):
            self._run_together(start, stop)
        for s in reversed(range(len(self.starts))):
            self._interval(s, self.starts[s], self.starts[s - 1] if s else len(self.after))
        return dce(self.b.build(substitute(self.flat.outs, self.env), self.flat.name))

    def _run_together(self, start: int, stop: int) -> None:
        """Add equations before the turn, as one block if they have no effects."""
        eqns = self.before[start:stop]
        if not eqns:
            return
        if any([e.prim.effects for e in eqns]):
            self.b.extend(eqns, self.env)
            return
        self._add(eqns, [v for e in eqns for v in e.outs if self.last_before.get(v, -1) >= stop or v in self.available])

    def _interval(self, segment: int, start: int, stop: int) -> None:
        """Add the equations of an interval, in blocks that compute again what they read."""
        after = self.after
        self.interval = segment
        returned = set[Atom]().union(*[self.between[s] for s in self.returned.get(segment, ())]) - self.available
        if start == stop:  # the next interval that is not empty returns them
            self.returned.setdefault(segment - 1, set()).update(self.returned.get(segment, ()))
            return
        if self.schedule.split and self._unavailable(after[start:stop]):
            self._block((), (returned | self.between[segment]) - self.available, start)
            returned = set()
        for run in _runs(after, start, stop, self.schedule.split):
            needed = self._unavailable(after[run.start : run.stop])
            if not needed and not returned:
                self.b.extend(after[run.start : run.stop], self.env)
                continue
            first = next((k for k in run if not needed.isdisjoint(after[k].ins)), run.start)
            # after the last interval come equations that belong to no segment, such as an optimiser
            end = (
                run.stop if segment else max([k + 1 for k in run if not needed.isdisjoint(after[k].ins)], default=first)
            )
            self.b.extend(after[run.start : first], self.env)
            later = {v for v in needed if self.last_after.get(v, -1) >= stop}
            self._block(after[first:end], returned | later, end)
            self.b.extend(after[end : run.stop], self.env)
            returned = set()

    def _unavailable(self, eqns: Sequence[Eqn]) -> set[Atom]:
        """Return the residuals that equations read and that are to be computed again."""
        return {a for e in eqns for a in e.ins if a in self.made_by and a not in self.available}

    def _computing(self, values: set[Atom]) -> list[Eqn]:
        """Return the equations that compute values from before the turn from what is available."""
        needed = set[int]()
        stack = [*values]
        while stack:
            v = stack.pop()
            if isinstance(v, Var) and v in self.made_by and self.made_by[v] not in needed:
                needed.add(self.made_by[v])
                stack += [a for a in self.before[self.made_by[v]].ins if a not in self.available]
        return [self.before[k] for k in sorted(needed)]

    def _block(self, eqns: Sequence[Eqn], returned: set[Atom], end: int) -> None:
        """Add equations after the turn, up to `end`, with what they need, and `returned`, computed again."""
        again = self._computing(self._unavailable(eqns) | returned)
        if not again and not eqns:
            return
        for v in {v for e in again for v in e.outs}:
            self.again.setdefault(v, []).append(self.interval)
        results = [v for e in again for v in e.outs if v in returned]
        results += [v for e in eqns for v in e.outs if self.last_after.get(v, -1) >= end]
        self._add([*again, *eqns], results)
        self.available |= returned

    def _add(self, eqns: Sequence[Eqn], results: Sequence[Var]) -> None:
        """Add equations as one block."""
        made = {v for e in eqns for v in e.outs}
        read = dict.fromkeys([a for e in eqns for a in e.ins if isinstance(a, Var) and a not in made])
        if self.interval < len(self.schedule.cuts):
            self.read_late.update(read)
        # XLA runs a block when its last operand is known: one from after the turn, if there is any
        ins = sorted(read, key=lambda a: a.index >= 0 and a not in self.made_by)
        self.b.source = eqns[-1].source
        outs = self.b(Remat(subprogram(eqns, ins, results, "block"), True), *substitute(ins, self.env))
        self.env.update(zip(results, outs, strict=True))


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


def crossings(flat: Jaxpr, schedule: Schedule) -> tuple[Crossing, ...]:
    """Return the values that cross the turn, or lie between two segments, in the order of their equations."""
    work = _Rematerialization(flat, schedule)
    work.program()
    late = work.read_late | {a for e in work.after for a in e.ins if a not in work.again}
    out = []
    for v in work.crossing:
        intervals = tuple(dict.fromkeys(work.again.get(v, ())))
        stored = v in work.fixed or (v in late and not intervals)
        out.append(Crossing(v, work.before[work.made_by[v]], intervals, stored, v in work.fixed))
    return tuple(out)


def plain_schedule(flat: Jaxpr) -> Schedule:
    """Return the schedule that computes nothing again, with a segment for each layer."""
    turn = turn_of(flat)
    before = Jaxpr(flat.ins, flat.eqns[:turn], (), flat.name)
    cuts = tuple(layer_cuts(before)) if turn else (0, 0)
    return Schedule(turn, cuts, 0, (), cuts)


def _in_order(residuals: Sequence[Var], level: dict[Var, int], first_read: dict[Atom, int], n: int) -> set[Var]:
    """Return residuals that are read in the opposite order of their segments: of all such sets the one with most
    bytes."""
    # A Fenwick tree over the segments, the last one first: of the sets that end at a segment or later, the largest. It
    # is read and updated in a time that grows with log(n).
    best: list[tuple[int, _Chain]] = [(0, None)] * (n + 1)

    def largest(k: int) -> tuple[int, _Chain]:
        found = best[0]
        while k:
            found, k = max(found, best[k], key=lambda item: item[0]), k & (k - 1)
        return found

    for v in sorted(residuals, key=lambda v: (first_read[v], -level[v])):
        k = n - level[v]
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
    """Return the stretches without effects, and each equation with an effect. With `split`, a stretch has at most one
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
