"""Repeated stretches of a sequence of numbers: runs with a period, and windows that stand in several places.

Nothing here knows of equations. A sequence is named at every scale: `Windows.ids[k][i]` is equal for two places
exactly when the 2**k numbers from there on are. So two stretches of any length are compared by two numbers, and a run
of period p is seen at the scales below p, as places whose next equal window is always p further on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad.records import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]
Taken: TypeAlias = npt.NDArray[np.bool_]  # for each place, whether it is no longer free

FEW: Final = 2  # a window that stands in fewer places is no repetition
SHORT: Final = 2  # scale of the shortest windows that are looked for in several places, of 4 numbers


@final
@dataclass(frozen=True, slots=True)
class Run:
    """The numbers from `start` to `stop` have the period `period`: number i equals number i + period."""

    start: int
    stop: int
    period: int

    @property
    def count(self) -> int:
        """How many whole periods lie in it."""
        return (self.stop - self.start) // self.period


@final
class Windows:
    """Names for the windows of a sequence, one array for each power of two, up to the longest that repeats.

    Cost:   n log n at each scale, in NumPy; as many scales as the longest repeated window has binary digits.
    Source: Karp, Miller, Rosenberg, "Rapid identification of repeated patterns in strings, trees and arrays" (1972)
    """

    __slots__ = ("ids",)

    def __init__(self, numbers: Ints) -> None:
        self.ids: list[Ints] = [np.unique(numbers, return_inverse=True)[1]]
        while True:
            half, size = self.ids[-1], 1 << len(self.ids)
            many = len(numbers) - size + 1
            if many < FEW:
                return
            pairs = half[:many] * np.int64(len(numbers)) + half[size // 2 : size // 2 + many]
            names, ids = np.unique(pairs, return_inverse=True)
            if len(names) == len(ids):
                return
            self.ids.append(ids)

    def name(self, start: int, length: int) -> tuple[int, int, int]:
        """Equal for two stretches that repeat exactly when they are equal: scale, and the windows at both ends."""
        k = min(length.bit_length(), len(self.ids)) - 1
        ids = self.ids[k]
        return k, int(ids[start]), int(ids[start + length - (1 << k)])

    def places(self, start: int, length: int) -> Ints:
        """Every place at which the stretch stands, in order. It is shorter than twice the longest named window."""
        k, first, last = self.name(start, length)
        ids, shift = self.ids[k], length - (1 << k)
        return np.flatnonzero((ids[: len(ids) - shift] == first) & (ids[shift:] == last))

    def gaps(self, scale: int) -> Ints:
        """How far on the next equal window stands, for every place; 0: there is none."""
        ids = self.ids[scale]
        order = np.argsort(ids, kind="stable")
        same = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
        out = np.zeros(len(ids), np.int64)
        out[order[same]] = order[same + 1] - order[same]
        return out


@final
@dataclass(frozen=True, slots=True)
class Repeat:
    """The same `length` numbers stand at each of `starts`, without overlap."""

    starts: tuple[int, ...]
    length: int


def repeats(windows: Windows, taken: Taken) -> Iterator[Repeat]:
    """Stretches that stand in several free places, as long as they are the same in all of them; what covers most first.

    Who takes one marks it in `taken` before asking for the next.
    """
    classes = [c for scale in range(SHORT, len(windows.ids)) for c in _classes(windows, taken, scale)]
    heap = [(-(len(places) - 1) * size, k) for k, (places, size) in enumerate(classes)]
    heapq.heapify(heap)
    while heap:
        score, k = heapq.heappop(heap)
        places, size = classes[k]
        starts = _apart(places[_free(taken, places, size)], size)
        if len(starts) < FEW:
            continue
        if (1 - len(starts)) * size > score:  # others have taken some of its places
            heapq.heappush(heap, ((1 - len(starts)) * size, k))
        elif not _grows(windows.ids[0], taken, starts - 1, np.concatenate([[0], starts[:-1] + size])):
            yield _extended(windows.ids[0], taken, starts, size)  # else it is found from its first number on


def _classes(windows: Windows, taken: Taken, scale: int) -> Iterator[tuple[Ints, int]]:
    """The places of each window of 2**scale numbers that stands in several free places."""
    ids, size = windows.ids[scale], 1 << scale
    places = np.flatnonzero(_free(taken, np.arange(len(ids)), size))
    places = places[np.argsort(ids[places], kind="stable")]
    edges = np.flatnonzero(np.diff(ids[places], prepend=-1, append=-1))
    for first, end in pairwise(edges.tolist()):
        if end - first >= FEW:
            yield places[first:end], size


def _free(taken: Taken, places: Ints, size: int) -> Taken:
    """Whether the `size` numbers from each of the places on are all free."""
    before = np.concatenate([[0], np.cumsum(taken)])
    return np.asarray(before[places + size] == before[places])


def _apart(places: Ints, size: int) -> Ints:
    """Places, in order, of which each is `size` or more after the one before."""
    out: list[int] = []
    for place in places.tolist():
        if not out or place >= out[-1] + size:
            out.append(place)
    return np.asarray(out, np.int64)


def _grows(numbers: Ints, taken: Taken, places: Ints, limits: Ints) -> bool:
    """Whether stretches can all take in the numbers at `places`, to their left: free, equal, not before `limits`."""
    if (places < limits).any() or taken[places].any():
        return False
    return bool((numbers[places] == numbers[places[0]]).all())


def _extended(numbers: Ints, taken: Taken, starts: Ints, size: int) -> Repeat:
    """Equal stretches, each as far to the right as all of them go."""
    limits = np.concatenate([starts[1:], [len(numbers)]])
    ends = starts + size
    while (ends < limits).all() and not taken[ends].any() and (numbers[ends] == numbers[ends[0]]).all():
        ends = ends + 1
    return Repeat(tuple(starts.tolist()), int(ends[0] - starts[0]))


def runs(windows: Windows) -> Iterator[Run]:
    """Runs of two periods or more, each once. A run whose period consists of equal parts is not listed."""
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
