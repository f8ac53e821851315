"""Outlining: repeated sequences of equations become calls of one body, which is transformed and compiled once."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isqrt
from typing import Final, final

import numpy as np
import numpy.typing as npt

from fxad.core.builder import Builder, substitute
from fxad.core.constants import BODY_EQUATIONS, CALL_EQUATIONS, OVERLAP, VALUE_BYTES, VALUE_EQUATIONS, WASTE
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Jaxpr, Var
from fxad.primitives.control.call import Call
from fxad.transforms.costs import equations_to_compile, microseconds
from fxad.transforms.map_bodies import map_bodies
from fxad.transforms.outlining.incomplete_match import IncompleteMatch, Pattern, ends
from fxad.transforms.outlining.merge_bodies import merge_bodies
from fxad.transforms.outlining.repeats import FreePlaces, Run, Windows, non_overlapping, runs
from fxad.transforms.outlining.shared_body import Flow, SharedBody, group_by_dataflow, shared_body

# the budget of comparisons in the search for incomplete uses: for each equation, and in any program
COMPARISONS_PER_EQUATION: Final = 16
MIN_COMPARISONS: Final = 20_000
MAX_PERIODS: Final = 8  # the number of periods that are examined to choose the cuts of a run


@by_value
def outline(jaxpr: Jaxpr, min_cost: float = 0.0, waste: float = WASTE) -> Jaxpr:
    """Returns the program in which repeated sequences of equations are calls of one body for each kind of sequence.

    A sequence is found where it follows itself at least once; equal sequences elsewhere then share its body. Layers of
    several kinds in an irregular order are found if they are calls: `fx.jit` of a layer's function makes it one.

    The search includes the bodies of loops and branches, and the new bodies, such as the layers of a repeated stage.

    min_cost: the least estimated time of one call in microseconds. Shorter repetitions are grouped, several to a body,
              so that calls take a small part of the run time.
    waste:    the largest part of the run time that may compute unused values. A sequence that lacks some equations of a
              body, as the first layer of a network often does, is also called; the missing equations are then computed
              without use.

    Law:      same value; idempotent; never more equations to compile; effects stay in order; `inline` restores the
              equations (and the unused ones, which `dce` removes).
    Cost:     near-linear in the number of equations.
    """
    while True:
        jaxpr = map_bodies(jaxpr, lambda body: outline(body, min_cost, waste))
        uses = _Search(jaxpr, min_cost, waste).uses() if len(jaxpr.eqns) > 1 else []
        better = _rewritten(jaxpr, uses) if uses else merge_bodies(jaxpr, waste)
        if better is jaxpr:
            return jaxpr
        jaxpr = better  # each iteration reduces the equations to compile


def gain(shared: SharedBody, size: float) -> float:
    """Returns the number of equations that are saved when sequences of `size` share a body, less the cost of the
    calls."""
    uses = len(shared.starts)
    return saved(uses, size) - uses * VALUE_EQUATIONS * (len(shared.body.ins) + len(shared.body.outs))


def _group_size(count: int, size: float) -> int:
    """Returns the number of repetitions of `size` to group in one body. It exceeds 1 only if one repetition costs no
    more to compile than a call."""
    if size > CALL_EQUATIONS or count < 4:
        return 1
    return max(range(1, min(count // 2, 4 * isqrt(count)) + 1), key=lambda m: saved(count // m, m * size))


def saved(uses: int, size: float) -> float:
    """Returns `gain` without the cost of the operands and results of the calls."""
    return (uses - 1) * size - uses * CALL_EQUATIONS - BODY_EQUATIONS


@final
@dataclass(frozen=True, slots=True)
class _Use:
    """A call that replaces equations between `start` and `stop`. `places` maps an equation of the body to the equation
    of the program that it replaces. `late` are the equations in this range that are not replaced and come after the
    call."""

    shared: SharedBody
    start: int
    stop: int
    operands: Atoms
    places: Mapping[int, int]
    late: tuple[int, ...] = ()


def _uses(shared: SharedBody, matches: Iterable[IncompleteMatch]) -> Iterator[_Use]:
    for start, operands in zip(shared.starts, shared.operands, strict=True):
        places = {k: start + k for k in range(shared.length)}
        yield _Use(shared, start, start + shared.length, operands, places)
    for n in matches:
        yield _Use(shared, n.start, n.stop, n.operands, n.places, n.late)


def _rewritten(jaxpr: Jaxpr, uses: Iterable[_Use]) -> Jaxpr:
    """Returns the program with each use as a call."""
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}

    def copy(places: Iterable[int]) -> None:
        b.extend([jaxpr.eqns[at] for at in places], env)

    done = 0
    for use in sorted(uses, key=lambda use: use.start):
        replaced = set(use.places.values())
        copy(range(done, use.start))
        copy([at for at in range(use.start, use.stop) if at not in replaced and at not in use.late])
        b.source = jaxpr.eqns[min(replaced)].source
        outs = b(Call(use.shared.body), *substitute(use.operands, env))
        owners = use.shared.owners
        for code, value in zip(use.shared.results, outs, strict=True):
            slot, k = owners[code]
            if slot in use.places:
                env[jaxpr.eqns[use.places[slot]].outs[k]] = value
        copy(use.late)
        done = use.stop
    copy(range(done, len(jaxpr.eqns)))
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)


# ------------------------------------------------------------------------------------------------------------- search


@final
class _Search:
    """Chooses the sequences of a program that share bodies. Greedy: the largest saving first."""

    def __init__(self, jaxpr: Jaxpr, min_cost: float, waste: float) -> None:
        self.flow = Flow(jaxpr)
        self.min_cost = min_cost
        self.waste = waste
        self.windows = Windows(self.flow.numbers)
        # prefix sums over the equations
        self.sizes = np.concatenate([[0.0], np.cumsum(self.flow.of_each(equations_to_compile))])
        self.times = np.concatenate([[0.0], np.cumsum(self.flow.of_each(microseconds))])
        self.free = FreePlaces(len(jaxpr.eqns))

    def size(self, start: int, length: int) -> float:
        """Returns the equations to compile of a sequence."""
        return float(self.sizes[start + length] - self.sizes[start])

    def uses(self) -> list[_Use]:
        """Returns the calls to make."""
        bodies = self.bodies()
        others = self.incomplete_uses(bodies)
        return [use for shared, matches in zip(bodies, others, strict=True) for use in _uses(shared, matches)]

    def incomplete_uses(self, bodies: list[SharedBody]) -> list[list[IncompleteMatch]]:
        """Returns incomplete uses of the bodies in the free parts of the program: the longest body first, in the
        largest parts.

        Comparing can take long. The length of the program limits the number of comparisons.
        """
        out: list[list[IncompleteMatch]] = [[] for _ in bodies]
        waste_left = self.waste * float(self.times[-1])
        comparisons_left = MIN_COMPARISONS + COMPARISONS_PER_EQUATION * len(self.flow.eqns)
        parts = [(self.size(a, b - a), a, b) for a, b in self.free.parts(0, len(self.flow.eqns))]
        parts.sort(reverse=True)
        for k in sorted(range(len(bodies)), key=lambda k: -bodies[k].length):
            pattern = Pattern(self.flow, bodies[k])
            least = OVERLAP * self.size(bodies[k].starts[0], bodies[k].length)
            for size, first, last in parts:
                comparisons_left -= 1
                if size < least or comparisons_left < 0:
                    break
                for start, stop in [e for a, b in self.free.parts(first, last) for e in ends(a, b, bodies[k].length)]:
                    comparisons_left -= pattern.comparisons(start, stop)
                    if comparisons_left >= 0 and (match := pattern.match(start, stop)) is not None:
                        waste = self._unused_microseconds(bodies[k], match)
                        if waste is not None and waste <= waste_left:
                            waste_left -= waste
                            self.free.take(match.start, match.stop)
                            out[k].append(match)
        return out

    def _unused_microseconds(self, shared: SharedBody, match: IncompleteMatch) -> float | None:
        """Returns the microseconds of unused computation in an incomplete use; None if the use does not pay."""
        whole = self.size(shared.starts[0], shared.length)
        missing = [shared.starts[0] + slot for slot in range(shared.length) if slot not in match.places]
        present = whole - sum([self.size(at, 1) for at in missing])
        call = CALL_EQUATIONS + VALUE_EQUATIONS * (len(shared.body.ins) + len(shared.body.outs))
        if present < OVERLAP * whole or present <= call or not self._returns_all(shared, match):
            return None
        return sum([float(self.times[at + 1] - self.times[at]) for at in missing])

    def _returns_all(self, shared: SharedBody, match: IncompleteMatch) -> bool:
        """Returns True if the results of the body include every value of this use that is read outside of it."""
        mine = set(match.places.values())
        others = [at for at in range(match.start, match.stop) if at not in mine]
        used = {a for at in others for a in self.flow.eqns[at].ins}
        results = set(shared.results)
        for code, (slot, k) in enumerate(shared.owners):
            if slot in match.places and code not in results:
                v = self.flow.eqns[match.places[slot]].outs[k]
                if v in used or self.flow.last_use[v.index] >= match.stop:
                    return False
        return True

    def bodies(self) -> list[SharedBody]:
        """Returns the bodies of runs, by decreasing saving."""
        out: list[SharedBody] = []
        heap: list[tuple[float, int, int, int]] = []
        for run in runs(self.windows):
            self._push(heap, run)
        while heap:
            _, start, stop, period = heapq.heappop(heap)
            run = Run(start, stop, period)
            if not self.free.has(start, stop):
                for part in self._free(run):
                    self._push(heap, part)
            else:
                for starts, length in self._division(run):
                    out += self._shared(self._with_equal_places(starts, length), length)
        return out

    def _with_equal_places(self, starts: list[int], length: int) -> list[int]:
        """Returns the starts of a sequence in a run, and of equal sequences elsewhere."""
        outside = [
            at
            for at in self.windows.places(starts[0], length).tolist()
            if (at + length <= starts[0] or at >= starts[-1] + length) and self.free.has(at, at + length)
        ]
        return sorted([*starts, *non_overlapping(outside, length)])

    def _shared(self, starts: Sequence[int], length: int) -> Iterator[SharedBody]:
        """Yields bodies for equal sequences if they pay, and takes the places of these sequences."""
        size = self.size(starts[0], length)
        if saved(len(starts), size) <= 0:
            return
        for group in group_by_dataflow(self.flow, starts, length):
            if saved(len(group), size) > 0:
                shared = shared_body(self.flow, group, length)
                if shared.body.outs and gain(shared, size) > 0:
                    for start in group:
                        self.free.take(start, start + length)
                    yield shared

    def _push(self, heap: list[tuple[float, int, int, int]], run: Run) -> None:
        size = self.size(run.start, run.period)
        many = _group_size(run.count, size)
        if (most := saved(run.count // many, many * size)) > 0:
            heapq.heappush(heap, (-most, run.start, run.stop, run.period))

    def _free(self, run: Run) -> Iterator[Run]:
        """Yields the parts of a run that are still free."""
        for start, stop in self.free.parts(run.start, run.stop):
            if stop - start >= 2 * run.period:
                yield Run(start, stop, run.period)

    def _division(self, run: Run) -> Iterator[tuple[list[int], int]]:
        """Yields the division of a run: the starts of its parts, and their length."""
        count, period = run.count, run.period
        start = run.start + self._phase(run)
        many = self._repetitions_per_body(
            count, float(self.times[start + period] - self.times[start]), self.size(start, period)
        )
        whole = count - count % many
        if whole >= 2 * many:
            yield [start + k * period for k in range(0, whole, many)], many * period
        if count > whole >= 2 * many:
            yield [start + k * period for k in range(whole, count)], period

    def _repetitions_per_body(self, count: int, time: float, size: float) -> int:
        """Returns the number of repetitions in a body: enough of `time` for `min_cost`, with few repetitions left
        over."""
        least = max(1, int(np.ceil(self.min_cost / time))) if time else count
        if least == 1:
            return _group_size(count, size)
        return min(range(least, 2 * least), key=lambda m: (m + (count % m), m))

    def _phase(self, run: Run) -> int:
        """Returns the offset of the first sequence in a run. As many sequences as possible fit, and the fewest bytes
        are live at the cuts.

        If several offsets are equally good, the rest of the run is left in one piece, because it may be an incomplete
        use.
        """
        choices = (run.stop - run.start) % run.period + 1
        if choices == 1:
            return 0
        cut_costs = self._cut_costs(run)
        edges = run.period * np.arange(1, min(run.count, MAX_PERIODS))
        costs = [float(cut_costs[phase + edges].sum()) for phase in range(choices)]
        least = min(costs) * (1 + 1e-9)
        ties = [phase for phase, cost in enumerate(costs) if cost <= least]
        return max(ties, key=lambda phase: max(phase, choices - 1 - phase))

    def _cut_costs(self, run: Run) -> npt.NDArray[np.float64]:
        """Returns the cost of a cut before each equation of a run: the bytes that are written and read again."""
        stop = min(run.stop, run.start + MAX_PERIODS * run.period)
        flow, change = self.flow, np.zeros(stop - run.start + 2)
        last: dict[Atom, int] = {}
        for at in range(run.start, stop):
            eqn = flow.eqns[at]
            for a in eqn.ins:
                if isinstance(a, Var):
                    before = last.get(a)
                    if before is not None and at - before <= run.period:
                        cost = VALUE_BYTES + a.aval.nbytes
                        change[before + 1 - run.start] += cost
                        change[at + 1 - run.start] -= cost
                    last[a] = at
            last.update(dict.fromkeys(eqn.outs, at))
        return np.cumsum(change)
