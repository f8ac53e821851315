"""Cuts of a program into layers: between repeated stretches of equations, and elsewhere where few bytes live."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fxad.ir import Jaxpr
from fxad.transforms.costs import Fusion, compile_cost

MAX_PARTS: Final = 16  # parts of a stretch in which nothing repeats
MAX_PERIOD: Final = 1024  # equations of a repeated layer


def layer_cuts(flat: Jaxpr, live: Sequence[int]) -> list[int]:
    """Return where a program is cut into layers: between repeated stretches, and elsewhere where few of the bytes
    `live` before each equation are."""
    labels: dict[object, int] = {}
    kinds = [
        labels.setdefault((e.prim, tuple([a.aval for a in e.ins]), tuple([v.aval for v in e.outs])), len(labels))
        for e in flat.eqns
    ]
    kernel = [compile_cost(type(e.prim))[0] is Fusion.KERNEL for e in flat.eqns]
    inner = sorted({*_cuts_between(kinds, kernel, live, 0, len(kinds))} - {0, len(kinds)})
    return [0, *inner, len(kinds)]


def _cuts_between(
    kinds: Sequence[int], kernel: Sequence[bool], live: Sequence[int], start: int, stop: int
) -> list[int]:
    """Return the cuts of a stretch of equations, given their kinds and which of them are kernels."""
    n = stop - start
    if n < 4:
        return [start, stop]
    # `outlining/repeats.runs` would be faster, but it misses a run of two periods in which windows repeat: two layers
    # of the kinds 1 1 1 1 1 2 3. A program of two layers would be cut elsewhere.
    # The run that covers most equations; of several, the one with the shortest period. A run is represented by
    # (equations that it covers, -period, its first equation), so that it is the maximum.
    best = (0, 0, 0)
    for period in range(1, min(n // 2, MAX_PERIOD) + 1):
        run = 0
        for k in range(start, stop - period):
            run = run + 1 if kinds[k] == kinds[k + period] else 0
            if run >= period:
                best = max(best, (run + period, -period, k - run + 1))
        if best[0] > 0.8 * n:
            break
    covered, period, first = best[0], -best[1], best[2]
    if covered < n // 2 or period < 2:
        return cuts_at_minima(live, start, stop, min(MAX_PARTS, max(1, n // 4)))
    # Layers begin where the fewest bytes live on average. Of equal offsets from the start of the run, they begin with a
    # kernel, because XLA fuses what follows a kernel into it; then at the first.
    offsets = [range(first + k, first + covered + 1, period) for k in range(period)]
    mean_bytes = [sum([live[c] for c in places]) / max(1, len(places)) for places in offsets]
    phase = min(range(period), key=lambda k: (mean_bytes[k], not kernel[first + k]))
    cuts = list(range(first + phase, first + covered + 1, period))
    before = _cuts_between(kinds, kernel, live, start, cuts[0]) if cuts[0] - start > 2 * period else [start]
    after = _cuts_between(kinds, kernel, live, cuts[-1], stop) if stop - cuts[-1] > 2 * period else [stop]
    return [*before, *cuts, *after]


def cuts_at_minima(live: Sequence[int], start: int, stop: int, parts: int) -> list[int]:
    """Return cuts of a stretch in which nothing repeats: in each of equal parts, where the fewest bytes live."""
    ends = [start + (stop - start) * k // parts for k in range(parts + 1)]
    inside = [min(range(a + 1, b + 1), key=lambda k: (live[k], -k)) for a, b in pairwise(ends) if a < b]
    return [start, *inside, stop]
