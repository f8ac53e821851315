"""Repeated subsequences of a sequence of numbers: runs with a period, and windows that occur several times.

This module does not depend on equations. At each scale k, a number identifies each window: `Windows.ids[k][i]` is equal
for two places exactly if the 2**k numbers from there on are equal. So two subsequences of any length are compared by
two numbers. A run of period p shows at the scales below p: the next equal window is always p places later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad.core.dataclasses import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]

MIN_PLACES: Final = 2  # the least number of places of a repeated window
MIN_SCALE: Final = 2  # scale of the shortest repeated windows that are searched: 4 numbers
STALE_SCORE: Final = 0.8  # a window that still has this part of its score is used without another look at the heap


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

    def __init__(self, many: int) -> None:
        self.taken = bytearray(many)

    def has(self, start: int, stop: int) -> bool:
        """Returns True if all places from `start` to `stop` are free."""
        return self.taken.find(1, start, stop) < 0

    def take(self, start: int, stop: int) -> None:
        """Marks the places from `start` to `stop` as taken."""
        self.taken[start:stop] = b"\1" * (stop - start)

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yields the maximal free ranges between `start` and `stop`."""
        while (first := self.taken.find(0, start, stop)) >= 0:
            end = self.taken.find(1, first, stop)
            start = stop if end < 0 else end
            yield first, start

    def before(self) -> Ints:
        """Returns the number of taken places before each place, and before the end."""
        before: Ints = np.concatenate([[0], np.cumsum(np.frombuffer(self.taken, np.uint8), dtype=np.int64)])
        return before


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
        """Returns every place at which the subsequence occurs, in order. It must be shorter than twice the longest
        numbered window.

        Cost: `length`, and the places of the rarest window in it.
        """
        k = min(length.bit_length(), len(self.ids)) - 1
        ids, edges, shift = self.ids[k], self.edges[k], length - (1 << k)
        inside = ids[start : start + shift + 1]
        rarest = int(np.argmin(edges[inside + 1] - edges[inside]))
        w = int(inside[rarest])
        places: Ints = self.order[k][edges[w] : edges[w + 1]] - rarest
        places = places[(places >= 0) & (places < len(ids) - shift)]
        same: npt.NDArray[np.bool_] = (ids[places] == ids[start]) & (ids[places + shift] == ids[start + shift])
        return places[same]

    def gaps(self, scale: int) -> Ints:
        """Returns for every place the distance to the next equal window; 0 if there is none."""
        ids, order = self.ids[scale], self.order[scale]
        same = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
        out = np.zeros(len(ids), np.int64)
        out[order[same]] = order[same + 1] - order[same]
        return out


@final
@dataclass(frozen=True, slots=True)
class Repeat:
    """The same `length` numbers occur at each of `starts`, without overlap."""

    starts: tuple[int, ...]
    length: int


def repeats(windows: Windows, free: FreePlaces) -> Iterator[Repeat]:
    """Yields subsequences that occur in several free places, of maximal common length; those that cover most come
    first.

    The caller must take the places of one before it requests the next.
    """
    classes = [c for scale in range(MIN_SCALE, len(windows.ids)) for c in _classes(windows, free, scale)]
    heap = [(-(len(places) - 1) * size, k) for k, (places, size) in enumerate(classes)]
    heapq.heapify(heap)
    while heap:
        score, k = heapq.heappop(heap)
        places, size = classes[k]
        starts = non_overlapping([at for at in places.tolist() if free.has(at, at + size)], size)
        if len(starts) < MIN_PLACES:
            continue
        if (len(starts) - 1) * size < STALE_SCORE * -score:  # other repeats have taken some of its places
            heapq.heappush(heap, ((1 - len(starts)) * size, k))
        elif not _grows(windows, free, starts, size):
            yield Repeat(tuple(starts), _extended(windows, free, np.asarray(starts), size))


def _classes(windows: Windows, free: FreePlaces, scale: int) -> Iterator[tuple[Ints, int]]:
    """Yields the places of each window of 2**scale numbers that occurs in several free places."""
    order, size, before = windows.order[scale], 1 << scale, free.before()
    places = order[before[order + size] == before[order]]
    edges = np.flatnonzero(np.diff(windows.ids[scale][places], prepend=-1, append=-1))
    for first, end in pairwise(edges.tolist()):
        if end - first >= MIN_PLACES:
            yield places[first:end], size


def non_overlapping(places: list[int], size: int) -> list[int]:
    """Returns the ordered places that are at least `size` after the previous one."""
    out: list[int] = []
    for place in places:
        if not out or place >= out[-1] + size:
            out.append(place)
    return out


def _grows(windows: Windows, free: FreePlaces, starts: list[int], size: int) -> bool:
    """Returns True if all subsequences can be extended to the left by a number that is free, equal and not in another
    of them. Then the windows one place to the left find them."""
    ids, first = windows.ids[0], starts[0] - 1
    if first < 0 or any([b - a <= size for a, b in pairwise(starts)]):
        return False
    return all([ids[at - 1] == ids[first] and not free.taken[at - 1] for at in starts])


def _extended(windows: Windows, free: FreePlaces, starts: Ints, size: int) -> int:
    """Returns the length of equal subsequences after all of them are extended to the right as far as possible."""
    limits = np.concatenate([starts[1:], [len(windows.ids[0])]])
    for scale in reversed(range(len(windows.ids))):
        ids, step = windows.ids[scale], 1 << scale
        while (starts + size + step <= limits).all():
            ends = starts + size
            if not (ids[ends] == ids[ends[0]]).all() or not all([free.has(at, at + step) for at in ends.tolist()]):
                break
            size += step
    return size


def runs(windows: Windows) -> Iterator[Run]:
    """Yields runs of two periods or more, each once. A run whose period is itself periodic is not yielded."""
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
