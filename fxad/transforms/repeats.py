"""Repeated stretches of a sequence of numbers: runs with a period, and windows that stand in several places.

Nothing here knows of equations. A sequence is named at every scale: `Windows.ids[k][i]` is equal for two places
exactly when the 2**k numbers from there on are. So two stretches of any length are compared by two numbers, and a run
of period p is seen at the scales below p, as places whose next equal window is always p further on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

FEW: Final = 2  # a window that stands in fewer places is no repetition


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
