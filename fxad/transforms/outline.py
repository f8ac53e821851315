"""Outlining: stretches of equations that repeat become calls of one body, which is transformed and compiled once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final, final

import numpy as np
import numpy.typing as npt

from fxad.builder import Builder
from fxad.ir import Atom, Jaxpr, Var
from fxad.memo import by_value
from fxad.primitives.control.call import Call
from fxad.transforms.effort import equations, microseconds
from fxad.transforms.repeats import Run, Windows, repeats, runs
from fxad.transforms.stretches import Flow, Shared, alike, share

# In equations to compile: what a body costs to have, a call to make, and a value to hand in or out of one.
BODY: Final = 5.0
SCATTERED: Final = 7.0  # more, for a body whose uses do not follow each other
CALL: Final = 1.0
VALUE: Final = 0.1


@by_value
def outline(jaxpr: Jaxpr, min_cost: float = 0.0) -> Jaxpr:
    """The program with its repeated stretches of equations as calls, of one body for each kind of stretch.

    min_cost: microseconds, estimated, that one call is to take at least: shorter repetitions are grouped, several to a
              body, so that calling costs a small part of the run.

    Law:  same value; idempotent; never more distinct equations; effects stay in order.
    Cost: near-linear in the number of equations.
    """
    while (better := _pass(jaxpr, min_cost)) is not jaxpr:
        jaxpr = better
    return jaxpr


def _pass(jaxpr: Jaxpr, min_cost: float) -> Jaxpr:
    if len(jaxpr.eqns) < 2:
        return jaxpr
    found = _Search(jaxpr, min_cost).found()
    return _rewritten(jaxpr, found) if found else jaxpr


def gain(shared: Shared, size: float) -> float:
    """Equations that need not be compiled because stretches of `size` share a body, less what the calls cost."""
    uses = len(shared.starts)
    handed = len(shared.body.ins) + len(shared.results)
    return (uses - 1) * size - uses * (CALL + VALUE * handed) - BODY


def _rewritten(jaxpr: Jaxpr, found: Sequence[Shared]) -> Jaxpr:
    """The program with each of the stretches as a call."""
    calls = {start: (shared, k) for shared in found for k, start in enumerate(shared.starts)}
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    at = 0
    while at < len(jaxpr.eqns):
        eqn = jaxpr.eqns[at]
        if at in calls:
            shared, k = calls[at]
            b.source = eqn.source
            outs = b(Call(shared.body), *[env.get(a, a) for a in shared.operands[k]])
            made = [v for e in jaxpr.eqns[at : at + shared.length] for v in e.outs]
            env.update(zip([made[code] for code in shared.results], outs, strict=True))
            at += shared.length
        else:
            env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
            at += 1
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


# ------------------------------------------------------------------------------------------------------------- search


@final
class _Search:
    """Which stretches of a program are to share bodies: greedy, what saves most first."""

    def __init__(self, jaxpr: Jaxpr, min_cost: float) -> None:
        self.flow = Flow(jaxpr)
        self.min_cost = min_cost
        self.windows = Windows(self.flow.numbers)
        # sums over the equations before each place
        self.sizes = np.concatenate([[0.0], np.cumsum([equations(e) for e in jaxpr.eqns])])
        self.times = np.concatenate([[0.0], np.cumsum([microseconds(e) for e in jaxpr.eqns])])
        self.taken: npt.NDArray[np.bool_] = np.zeros(len(jaxpr.eqns), np.bool_)

    def size(self, start: int, length: int) -> float:
        """Equations to compile of a stretch."""
        return float(self.sizes[start + length] - self.sizes[start])

    def found(self) -> list[Shared]:
        """The bodies: of runs, the one that saves most first, and then of what else stands in several places."""
        out: list[Shared] = []
        heap: list[tuple[float, int, int, int]] = []
        for run in runs(self.windows):
            self._push(heap, run)
        while heap:
            _, start, stop, period = heapq.heappop(heap)
            run = Run(start, stop, period)
            if self.taken[start:stop].any():
                for part in self._free(run):
                    self._push(heap, part)
            else:
                for starts, length in self._choice(run):
                    out += self._shared(self._everywhere(starts, length), length)
        for repeat in repeats(self.windows, self.taken):
            if self.min_cost <= self.times[repeat.starts[0] + repeat.length] - self.times[repeat.starts[0]]:
                out += self._shared(repeat.starts, repeat.length, SCATTERED)
        return out

    def _everywhere(self, starts: list[int], length: int) -> list[int]:
        """The starts of a stretch in a run, and those of equal stretches elsewhere."""
        out: list[int] = []
        for place in self.windows.places(starts[0], length).tolist():
            outside = place + length <= starts[0] or place >= starts[-1] + length
            apart = not out or place >= out[-1] + length
            if outside and apart and not self.taken[place : place + length].any():
                out.append(place)
        return sorted([*starts, *out])

    def _shared(self, starts: Sequence[int], length: int, least: float = 0.0) -> Iterator[Shared]:
        """Bodies for equal stretches, where they pay; the stretches are no longer free."""
        for group in alike(self.flow, starts, length):
            if len(group) > 1:
                shared = share(self.flow, group, length)
                if shared.results and gain(shared, self.size(group[0], length)) > least:
                    for start in group:
                        self.taken[start : start + length] = True
                    yield shared

    def _push(self, heap: list[tuple[float, int, int, int]], run: Run) -> None:
        saved = (run.count - 1) * self.size(run.start, run.period) - run.count * CALL - BODY
        if saved > 0:
            heapq.heappush(heap, (-saved, run.start, run.stop, run.period))

    def _free(self, run: Run) -> Iterator[Run]:
        """The parts of a run that nothing else has taken."""
        edges = np.flatnonzero(np.diff(self.taken[run.start : run.stop], prepend=True, append=True))
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if stop - start >= 2 * run.period:
                yield Run(run.start + start, run.start + stop, run.period)

    def _choice(self, run: Run) -> Iterator[tuple[list[int], int]]:
        """How a run is divided: stretches of one length each."""
        count, period = run.count, run.period
        start = run.start + self._phase(run)
        many = self._together(count, float(self.times[start + period] - self.times[start]))
        whole = count - count % many
        if whole >= 2 * many:
            yield [start + k * period for k in range(0, whole, many)], many * period
        if count > whole >= 2 * many:
            yield [start + k * period for k in range(whole, count)], period

    def _together(self, count: int, time: float) -> int:
        """How many repetitions of `time` go into a body: enough for `min_cost`, such that few are left over."""
        least = max(1, int(np.ceil(self.min_cost / time))) if time else count
        if least == 1:
            return 1
        return min(range(least, max(2 * least, least + 1)), key=lambda m: (m + (count % m), m))

    def _phase(self, run: Run) -> int:
        """Where in a run its first stretch starts: all that fit do, and as little as can be crosses their edges."""
        choices = (run.stop - run.start) % run.period + 1
        if choices == 1:
            return 0
        crossing = self._crossing(run)
        costs = [crossing[phase : phase + run.count * run.period + 1 : run.period].sum() for phase in range(choices)]
        return int(np.argmin(costs))

    def _crossing(self, run: Run) -> npt.NDArray[np.float64]:
        """What it costs to cut a run before each of its equations: bytes that are written and read again."""
        flow, change = self.flow, np.zeros(run.stop - run.start + 2)
        last: dict[Atom, int] = {}
        for at in range(run.start, run.stop):
            eqn = flow.eqns[at]
            for a in eqn.ins:
                if isinstance(a, Var):
                    before = last.get(a)
                    if before is not None and at - before <= run.period:
                        cost = HANDED + a.aval.nbytes
                        change[before + 1 - run.start] += cost
                        change[at + 1 - run.start] -= cost
                    last[a] = at
            last.update(dict.fromkeys(eqn.outs, at))
        return np.cumsum(change)


HANDED: Final = 4096.0  # bytes that could be moved while one more value is handed in and out
