"""Repeated subsequences of a sequence of numbers: runs with a period, and the places of equal windows.

This module does not depend on equations. At each scale k, a number identifies each window: `Windows.ids[k][i]` is equal
for two places exactly if the 2**k numbers from there on are equal. So two subsequences of any length are compared by
two numbers. A run of period p shows at the scales below p: the next equal window is always p places later.

For example, the sequence 7 1 2 1 2 1 2 9 has the windows of two numbers 71 12 21 12 21 12 29, so `ids[1]` is
3 0 1 0 1 0 2. The distance from each window to the next equal one (`gaps(1)`) is 0 2 2 2 0 0 0. It is 2 at the places 1
to 3; the last of these windows begins at 3, and the one that equals it at 5. So `Run(start=1, stop=7, period=2)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad.core.dataclasses import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]

MIN_PLACES: Final = 2  # the least number of places of a repeated window


@final
@dataclass(frozen=True, slots=True)
class Run:
    """The numbers from `start` to `stop` have the period `period`: number i equals number i + period."""

    start: int
    stop: int
    period: int

    @property
    def count(self) -> int:
        """The number of whole periods in the run."""
        return (self.stop - self.start) // self.period


@final
class FreePlaces:
    """The free places of a sequence. A place that is taken stays taken."""

    __slots__ = ("taken",)

    def __init__(self, length: int) -> None:
        self.taken = bytearray(length)

    def has(self, start: int, stop: int) -> bool:
        """Return True if all places from `start` to `stop` are free."""
        return self.taken.find(1, start, stop) < 0

    def take(self, start: int, stop: int) -> None:
        """Mark the places from `start` to `stop` as taken."""
        self.taken[start:stop] = b"\1" * (stop - start)

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the maximal free ranges between `start` and `stop`."""
        while (first := self.taken.find(0, start, stop)) >= 0:
            end = self.taken.find(1, first, stop)
            start = stop if end < 0 else end
            yield first, start


@final
class Windows:
    """Numbers for the windows of a sequence: one array for each power of two, up to the longest window that repeats.

    Cost:   n log n at each scale, in NumPy; as many scales as the longest repeated window has binary digits.
    Source: Karp, Miller, Rosenberg, "Rapid identification of repeated patterns in strings, trees and arrays" (1972)
    """

    __slots__ = ("edges", "ids", "order")

    def __init__(self, numbers: Ints) -> None:
        self.ids: list[Ints] = []
        # the places of window w at a scale, in order, are order[edges[w] : edges[w + 1]]
        self.order: list[Ints] = []
        self.edges: list[Ints] = []
        names = numbers
        while True:
            ids = np.unique(names, return_inverse=True)[1]
            counts = np.bincount(ids)
            if self.ids and len(counts) == len(ids):
                return
            self.ids.append(ids)
            self.order.append(np.argsort(ids, kind="stable"))
            self.edges.append(np.concatenate([[0], np.cumsum(counts)]))
            size = 1 << len(self.ids)
            many = len(numbers) - size + 1
            if many < MIN_PLACES:
                return
            names = ids[:many] * np.int64(len(numbers)) + ids[size // 2 : size // 2 + many]

    def places(self, start: int, length: int) -> Ints:
        """Return every place at which the subsequence occurs, in order. It must be shorter than twice the longest
        numbered window.

        Cost: `length`, and the places of the rarest window in it.
        """
        k = min(length.bit_length(), len(self.ids)) - 1
        ids, edges, shift = self.ids[k], self.edges[k], length - (1 << k)
        # candidates: the places of the rarest window in the subsequence, less its distance from the start
        inside = ids[start : start + shift + 1]
        distance = int(np.argmin(edges[inside + 1] - edges[inside]))
        rarest = int(inside[distance])
        places: Ints = self.order[k][edges[rarest] : edges[rarest + 1]] - distance
        places = places[(places >= 0) & (places < len(ids) - shift)]
        # equal subsequences have equal windows at their start and at their end, which cover them
        same: npt.NDArray[np.bool_] = (ids[places] == ids[start]) & (ids[places + shift] == ids[start + shift])
        return places[same]

    def gaps(self, scale: int) -> Ints:
        """Return for every place the distance to the next equal window; 0 if there is none."""
        ids, order = self.ids[scale], self.order[scale]
        same = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
        out = np.zeros(len(ids), np.int64)
        out[order[same]] = order[same + 1] - order[same]
        return out


def non_overlapping(places: list[int], size: int) -> list[int]:
    """Return the ordered places that are at least `size` after the previous one."""
    out: list[int] = []
    for place in places:
        if not out or place >= out[-1] + size:
            out.append(place)
    return out


def runs(windows: Windows) -> Iterator[Run]:
    """Yield runs of two periods or more, each once. A run whose period is itself periodic is not yielded. One of fewer
    than three periods may be missing: in 1 1 1 1 1 2 3 1 1 1 1 1 2 3 the next window equal to 1 1 1 1 is one place
    later, not seven."""
    seen: set[Run] = set()
    for scale in range(len(windows.ids)):
        gaps, size = windows.gaps(scale), 1 << scale
        edges = np.flatnonzero(np.diff(gaps, prepend=-1, append=-1))
        starts, stops = edges[:-1], edges[1:]
        periods = gaps[starts]
        long = (periods > 0) & (stops - starts + size - 1 >= periods)
        for start, stop, period in zip(
            starts[long].tolist(), stops[long].tolist(), periods[long].tolist(), strict=True
        ):
            run = Run(start, stop - 1 + size + period, period)
            if run not in seen:
                seen.add(run)
                yield run
