"""Outlining: repeated sequences of equations become calls of one body, which is transformed and compiled once."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isqrt
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Jaxpr, Var
from fxad.primitives.control.call import Call
from fxad.support.constants import BODY_EQUATIONS, CALL_EQUATIONS, OVERLAP, VALUE_BYTES, VALUE_EQUATIONS, WASTE
from fxad.transforms.costs import equations_to_compile, microseconds
from fxad.transforms.map_bodies import map_bodies
from fxad.transforms.outlining.incomplete_match import BodySearch, IncompleteMatch, comparisons_for, ends
from fxad.transforms.outlining.merge_bodies import merge_bodies
from fxad.transforms.outlining.repeats import FreePlaces, Run, Windows, non_overlapping, runs
from fxad.transforms.outlining.shared_body import EquationSequence, SharedBody, group_by_dataflow, shared_body

MAX_PERIODS: Final = 8  # the number of periods that are examined to choose the cuts of a run


@by_value
def outline(jaxpr: Jaxpr, min_cost: float = 0.0, waste: float = WASTE) -> Jaxpr:
    """Return the program in which repeated sequences of equations are calls of one body for each kind of sequence.

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
    # Each iteration reduces the equations to compile. Where nothing repeats any more, calls of nearly equal bodies may
    # be left: those of a gradient of calls, or after `dce`.
    while True:
        jaxpr = map_bodies(jaxpr, lambda body: outline(body, min_cost, waste))
        uses = _RepeatSearch(jaxpr, min_cost, waste).uses() if len(jaxpr.eqns) > 1 else []
        better = _rewritten(jaxpr, uses) if uses else merge_bodies(jaxpr, waste)
        if better is jaxpr:
            return jaxpr
        jaxpr = better


# The saving of a run with a minus sign, so that the largest comes first; its start, stop and period.
_Candidate: TypeAlias = tuple[float, int, int, int]

# A cost is the number of equations to compile, and a saving is the number that calls of a shared body spare.


def _saving(uses: int, cost: float) -> float:
    """Return the saving if `uses` sequences of the same cost share a body. The values that pass through the calls are
    free here."""
    return (uses - 1) * cost - uses * CALL_EQUATIONS - BODY_EQUATIONS


def _saving_with_values(shared: SharedBody, cost: float) -> float:
    """Return the saving of a body, less the cost of the operands and results of its calls."""
    uses = len(shared.starts)
    return _saving(uses, cost) - uses * VALUE_EQUATIONS * (len(shared.body.ins) + len(shared.body.outs))


@final
@dataclass(frozen=True, slots=True)
class _BodyUse:
    """A call that replaces equations between `start` and `stop`. `places` maps an equation of the body to the equation
    of the program that it replaces. `late` are the equations in this range that are not replaced and come after the
    call."""

    shared: SharedBody
    start: int
    stop: int
    operands: Atoms
    places: Mapping[int, int]
    late: tuple[int, ...] = ()


def _uses(shared: SharedBody, matches: Iterable[IncompleteMatch]) -> Iterator[_BodyUse]:
    for start, operands in zip(shared.starts, shared.operands, strict=True):
        places = {k: start + k for k in range(shared.length)}
        yield _BodyUse(shared, start, start + shared.length, operands, places)
    for match in matches:
        yield _BodyUse(shared, match.start, match.stop, match.operands, match.places, match.late)


def _rewritten(jaxpr: Jaxpr, uses: Iterable[_BodyUse]) -> Jaxpr:
    """Return the program with each use as a call."""
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}

    def copy(places: Iterable[int]) -> None:
        b.extend([jaxpr.eqns[number] for number in places], env)

    next_eqn = 0
    for use in sorted(uses, key=lambda use: use.start):
        replaced = set(use.places.values())
        copy(range(next_eqn, use.start))
        copy([number for number in range(use.start, use.stop) if number not in replaced and number not in use.late])
        b.source = jaxpr.eqns[min(replaced)].source
        outs = b(Call(use.shared.body), *substitute(use.operands, env))
        owners = use.shared.owners
        for code, value in zip(use.shared.results, outs, strict=True):
            slot, k = owners[code]
            if slot in use.places:
                env[jaxpr.eqns[use.places[slot]].outs[k]] = value
        copy(use.late)
        next_eqn = use.stop
    copy(range(next_eqn, len(jaxpr.eqns)))
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)


# ------------------------------------------------------------------------------------------------------------- search


@final
class _RepeatSearch:
    """Chooses the sequences of a program that share bodies, in two steps.

    `bodies` takes the runs, greedily: the largest saving first. `incomplete_uses` looks for further uses of these
    bodies in the equations that are left.
    """

    def __init__(self, jaxpr: Jaxpr, min_cost: float, waste: float) -> None:
        self.flow = EquationSequence(jaxpr)
        self.min_cost = min_cost  # a time in microseconds
        self.waste = waste
        self.windows = Windows(self.flow.numbers)
        # prefix sums over the equations
        self.costs = np.concatenate([[0.0], np.cumsum(self.flow.of_each(equations_to_compile))])
        self.times = np.concatenate([[0.0], np.cumsum(self.flow.of_each(microseconds))])
        self.free = FreePlaces(len(jaxpr.eqns))

    def cost(self, start: int, length: int) -> float:
        """Return the number of equations to compile of a sequence."""
        return float(self.costs[start + length] - self.costs[start])

    def time(self, start: int, length: int) -> float:
        """Return the estimated microseconds that a sequence takes."""
        return float(self.times[start + length] - self.times[start])

    def uses(self) -> list[_BodyUse]:
        """Return the calls to make."""
        bodies = self.bodies()
        incomplete = self.incomplete_uses(bodies)
        return [use for shared, matches in zip(bodies, incomplete, strict=True) for use in _uses(shared, matches)]

    def bodies(self) -> list[SharedBody]:
        """Return the bodies of runs, by decreasing saving. Of a run that overlaps one with a larger saving, the free
        parts are runs of their own."""
        out: list[SharedBody] = []
        queue: list[_Candidate] = []
        for run in runs(self.windows):
            self._push(queue, run)
        while queue:
            _, start, stop, period = heapq.heappop(queue)
            if self.free.has(start, stop):
                for starts, length in self._division(Run(start, stop, period)):
                    out += self._shared(self._with_equal_places(starts, length), length)
            else:
                for first, last in self.free.parts(start, stop):
                    if last - first >= 2 * period:
                        self._push(queue, Run(first, last, period))
        return out

    def _with_equal_places(self, starts: list[int], length: int) -> list[int]:
        """Return the starts of a sequence in a run, and of equal sequences elsewhere: the two runs of A in 4 layers A,
        4 layers B and 4 layers A share a body."""
        starts_outside = [
            start
            for start in self.windows.places(starts[0], length).tolist()
            if (start + length <= starts[0] or start >= starts[-1] + length) and self.free.has(start, start + length)
        ]
        return sorted([*starts, *non_overlapping(starts_outside, length)])

    def _shared(self, starts: Sequence[int], length: int) -> Iterator[SharedBody]:
        """Yield bodies for equal sequences if they pay, and take the places of these sequences."""
        cost = self.cost(starts[0], length)
        if _saving(len(starts), cost) <= 0:
            return
        for group in group_by_dataflow(self.flow, starts, length):
            if _saving(len(group), cost) > 0:
                shared = shared_body(self.flow, group, length)
                if shared.body.outs and _saving_with_values(shared, cost) > 0:
                    for start in group:
                        self.free.take(start, start + length)
                    yield shared

    def _push(self, queue: list[_Candidate], run: Run) -> None:
        """Add a run to the queue, if its division saves anything."""
        per_body = self._repetitions_per_body(run)
        saving = _saving(run.count // per_body, per_body * self.cost(run.start, run.period))
        if saving > 0:
            heapq.heappush(queue, (-saving, run.start, run.stop, run.period))

    def _division(self, run: Run) -> Iterator[tuple[list[int], int]]:
        """Yield the starts of the groups in a run, and the length of a group; then the same of the single repetitions
        that are left over."""
        count, period = run.count, run.period
        start, per_body = run.start + self._phase(run), self._repetitions_per_body(run)
        in_groups = count - count % per_body
        if in_groups >= 2 * per_body:
            yield [start + k * period for k in range(0, in_groups, per_body)], per_body * period
        if count > in_groups >= 2 * per_body:
            yield [start + k * period for k in range(in_groups, count)], period

    def _repetitions_per_body(self, run: Run) -> int:
        """Return the number of repetitions of a run to group in one body: 1, except in two cases.

        - One repetition takes less than `min_cost`: a group takes at least as much, and few repetitions are left over.
        - One repetition costs no more than a call (100 products in a row): groups of the size that saves most.
        """
        count, cost, time = run.count, self.cost(run.start, run.period), self.time(run.start, run.period)
        least = max(1, int(np.ceil(self.min_cost / time))) if time else count
        if least > 1:
            # of a group of more than half of the repetitions there is one only: it shares nothing
            sizes = range(least, min(2 * least, count // 2 + 1))
            return min(sizes, key=lambda m: (m + (count % m), m), default=count)
        if cost > CALL_EQUATIONS or count < 4:
            return 1
        # the best size is near the square root of `count`
        return max(range(1, min(count // 2, 4 * isqrt(count)) + 1), key=lambda m: _saving(count // m, m * cost))

    def _phase(self, run: Run) -> int:
        """Return the offset of the first sequence in a run. As many sequences as possible fit, and the fewest bytes
        are live at the cuts.

        Of several offsets with equally few bytes, it is the one that leaves the most equations in one piece, before
        the first sequence or after the last: they may be an incomplete use.
        """
        phases = range((run.stop - run.start) % run.period + 1)
        if len(phases) == 1:
            return 0
        bytes_at_cut = self._bytes_at_cut(run)
        cuts = run.period * np.arange(1, min(run.count, MAX_PERIODS))
        live_bytes = [float(bytes_at_cut[phase + cuts].sum()) for phase in phases]
        least = min(live_bytes) * (1 + 1e-9)
        ties = [phase for phase in phases if live_bytes[phase] <= least]
        return max(ties, key=lambda phase: max(phase, phases[-1] - phase))

    def _bytes_at_cut(self, run: Run) -> npt.NDArray[np.float64]:
        """Return the bytes that pass through calls if a run is cut before each of its equations, with `VALUE_BYTES`
        more for each value. Values that are not used for longer than a period are not counted."""
        stop = min(run.stop, run.start + MAX_PERIODS * run.period)
        flow, change = self.flow, np.zeros(stop - run.start + 2)
        last: dict[Atom, int] = {}  # the last equation so far that computes or reads a value
        for number in range(run.start, stop):
            eqn = flow.eqns[number]
            for a in eqn.ins:
                if isinstance(a, Var):
                    before = last.get(a)
                    if before is not None and number - before <= run.period:
                        nbytes = VALUE_BYTES + a.aval.nbytes
                        change[before + 1 - run.start] += nbytes
                        change[number + 1 - run.start] -= nbytes
                    last[a] = number
            last.update(dict.fromkeys(eqn.outs, number))
        return np.cumsum(change)

    def incomplete_uses(self, bodies: list[SharedBody]) -> list[list[IncompleteMatch]]:
        """Return the incomplete uses of each body in the free parts of the program. The search begins with the longest
        body and the largest part; it ends after a number of comparisons that grows with the length of the program."""
        out: list[list[IncompleteMatch]] = [[] for _ in bodies]
        waste_left = self.waste * float(self.times[-1])
        comparisons_left = comparisons_for(len(self.flow.eqns))
        parts = [(self.cost(a, b - a), a, b) for a, b in self.free.parts(0, len(self.flow.eqns))]
        parts.sort(reverse=True)
        for k in sorted(range(len(bodies)), key=lambda k: -bodies[k].length):
            pattern = BodySearch(self.flow, bodies[k])
            least = OVERLAP * self.cost(bodies[k].starts[0], bodies[k].length)
            for cost, first, last in parts:
                comparisons_left -= 1
                if cost < least or comparisons_left < 0:
                    break
                free = self.free.parts(first, last)
                for start, stop in [part for a, b in free for part in ends(a, b, bodies[k].length)]:
                    comparisons_left -= pattern.comparisons(start, stop)
                    if comparisons_left >= 0 and (match := pattern.match(start, stop)) is not None:
                        waste = self._unused_microseconds(bodies[k], match)
                        if waste is not None and waste <= waste_left:
                            waste_left -= waste
                            self.free.take(match.start, match.stop)
                            out[k].append(match)
        return out

    def _unused_microseconds(self, shared: SharedBody, match: IncompleteMatch) -> float | None:
        """Return the microseconds of unused computation in an incomplete use; None if the use does not pay."""
        cost_of_body = self.cost(shared.starts[0], shared.length)
        missing = [shared.starts[0] + slot for slot in range(shared.length) if slot not in match.places]
        present = cost_of_body - sum([self.cost(number, 1) for number in missing])
        call = CALL_EQUATIONS + VALUE_EQUATIONS * (len(shared.body.ins) + len(shared.body.outs))
        if present < OVERLAP * cost_of_body or present <= call or not self._returns_all(shared, match):
            return None
        return sum([self.time(number, 1) for number in missing])

    def _returns_all(self, shared: SharedBody, match: IncompleteMatch) -> bool:
        """Return True if the results of the body include every value of this use that is read outside of it."""
        mine = set(match.places.values())
        others = [number for number in range(match.start, match.stop) if number not in mine]
        used = {a for number in others for a in self.flow.eqns[number].ins}
        results = set(shared.results)
        for code, (slot, k) in enumerate(shared.owners):
            if slot in match.places and code not in results:
                v = self.flow.eqns[match.places[slot]].outs[k]
                if v in used or self.flow.last_use[v.index] >= match.stop:
                    return False
        return True
