"""The search for recomputations that are worth trying: loops in segments, schedules of the segments of a program, and
recomputations of its bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, count, pairwise
from typing import Final, final

from fxad.core.builder import Builder, last_readers, rewrite
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr
from fxad.transforms.costs import Fusion, compile_cost, time_of
from fxad.transforms.liveness import peak_bytes
from fxad.transforms.memory.nested_scan import balanced
from fxad.transforms.memory.segments import live_bytes
from fxad.transforms.memory_plans.flat_program import flat_program
from fxad.transforms.memory_plans.layers import cuts_at_minima, layer_cuts
from fxad.transforms.memory_plans.loop_pairs import divided, divisions
from fxad.transforms.memory_plans.rematerialize import SegmentSchedule, estimated_times, scheduled

LAYER_PARTS: Final = (1, 2, 4, 8)  # parts into which a layer is cut
GROUP_DEPTHS: Final = (1, 2, 3)  # levels of groups of layers
# The (parts of a layer, levels of groups) of the schedules that need least memory: with shorter segments, then without
# groups, from the operands of the program. In four networks, each needed at most as many bytes as the one before.
SMALLEST: Final = ((LAYER_PARTS[-2], 2), (LAYER_PARTS[-1], 2), (LAYER_PARTS[-2], 0))
MAX_BYTES_RATIO: Final = 0.85  # of the estimated bytes of a schedule that is tried to those of the one before


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
    # Each refinement is written, so of the divisions only the fastest and the smallest are refined.
    refined = ((), *sizes[:1], *sizes[-1:])
    fewest_bytes = float(peak_bytes(flat))
    tried: set[Recomputation] = set()
    number = count()  # of equal times, the one that was added first comes first
    queue = [
        (time_of(candidate.program(flat)), next(number), candidate) for candidate in map(Recomputation, ((), *sizes))
    ]
    heapify(queue)
    while queue:
        _, _, r = heappop(queue)
        program = r.program(flat)
        nbytes = peak_bytes(program)
        if r != Recomputation() and nbytes <= MAX_BYTES_RATIO * fewest_bytes:
            tried.add(r)
            fewest_bytes = nbytes
            yield r
        if r.schedule is None and r.bodies is None and r.loops in refined:
            for time, schedule in _schedules(program):
                heappush(queue, (time, next(number), replace(r, schedule=schedule)))
            # Recomputing bodies saves the bytes of the largest body at most. If the rest is too large now, the
            # refinement is not worth a visit later: the limit only falls.
            rest = nbytes - max(map(peak_bytes, _running_bodies(program)), default=0)
            if rest <= MAX_BYTES_RATIO * fewest_bytes:
                for k in range(max([len(_of_body(body)) for body in _running_bodies(program)], default=0)):
                    heappush(queue, (time_of(_in_bodies(program, k)), next(number), replace(r, bodies=k)))
    for candidate in map(Recomputation, ((), *sizes)):
        smallest = [candidate] if candidate.loops else []
        if candidate.loops in refined:
            smallest += [replace(candidate, schedule=s) for s in _smallest_schedules(candidate.program(flat))]
        yield from [r for r in dict.fromkeys(smallest) if r not in tried]


@by_value
def _of_body(body: Jaxpr) -> tuple[Recomputation, ...]:
    return tuple(recomputations(flat_program(body)))


@final
class _Layers:
    """The layers of a flat program before its turn: `borders` between them, and `forward` between the blocks in which
    these equations run, as numbers of equations.

    The last layer computes most of what is stored, and the first cotangents. Blocks run in order, but XLA may hold all
    values of a block at once. So each kernel of the last layer starts a block: with layers that begin at 0, 10 and 20,
    the turn 30, and products at 20, 23 and 27, `forward` is (0, 10, 20, 23, 27, 30).
    """

    __slots__ = ("borders", "forward", "live", "turn")

    def __init__(self, flat: Jaxpr) -> None:
        self.turn = turn_of(flat)
        before = Jaxpr(flat.ins, flat.eqns[: self.turn], (), flat.name)
        self.live = live_bytes(before, (False,) * len(before.ins))
        self.borders = tuple(layer_cuts(before, self.live)) if self.turn else (0, 0)
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
    distinct = list(dict.fromkeys(out))
    return list(zip(estimated_times(flat, turn, distinct), distinct, strict=True))


def _smallest_schedules(flat: Jaxpr) -> list[SegmentSchedule]:
    """Return the schedules that need least memory, whatever their time; in the last one each segment starts from the
    operands of the program."""
    layers = _Layers(flat)
    out: list[SegmentSchedule] = []
    for parts, depth in SMALLEST:
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


def turn_of(flat: Jaxpr) -> int:
    """Return the place that the values with the longest lives cross: the number of the equations before it.

    A value that is computed before it and read after it counts as its bytes times the equations from one to the other.
    Fusion does not matter: the turn is a place of the program, as that of its loss.
    """
    last = last_readers(flat.eqns)
    change = [0] * (len(flat.eqns) + 2)
    for k, eqn in enumerate(flat.eqns):
        for v in eqn.outs:
            life = last.get(v, k) - k
            change[k + 1] += v.aval.nbytes * life
            change[k + life + 1] -= v.aval.nbytes * life
    crossing = list(accumulate(change))
    return max(range(len(crossing)), key=crossing.__getitem__)


def plain_schedule(flat: Jaxpr) -> SegmentSchedule:
    """Return the schedule that computes nothing again, with a segment for each layer.

    Its blocks are the layers. To cut the last layer at its kernels too, as `forward` does, makes room for what is
    computed again, and here nothing is.
    """
    layers = _Layers(flat)
    return SegmentSchedule(layers.turn, layers.borders, 0, (), layers.borders)
