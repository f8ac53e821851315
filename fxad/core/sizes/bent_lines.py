"""Lines with bends: piecewise linear functions of one whole number.

Sums of `max` and `min` in one named size are such lines. Two of them are equal if their values, slopes and bends are:
max(0, max(0, n - 1) - min(1, n)) is max(0, n - 2). Their least values are found at the bends. This is arithmetic of
ints; `polynomials.line_of_name` gives the line that a size is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final


@final
class BentLine(NamedTuple):
    """A line with bends, as a function of a named size: the value at the least size, the slope there, and the change of
    the slope at each bend."""

    value: int
    slope: int
    bends: Mapping[int, int]


MOST_BENDS: Final = 16


def add_lines(a: BentLine, b: BentLine, c: int) -> BentLine:
    """Return a + c * b."""
    bends = dict(a.bends)
    for k, change in b.bends.items():
        bends[k] = bends.get(k, 0) + c * change
    changes = {k: change for k, change in bends.items() if change}
    return BentLine(a.value + c * b.value, a.slope + c * b.slope, changes)


def positive_line(line: BentLine, least: int) -> BentLine:
    """Return max(0, line), exact at whole numbers from `least` on."""
    value, slope, bends = line
    starts = [least, *[k for k in sorted(bends) if k > least]]
    points: set[int] = {least, least + 1}
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        if start > least:
            slope = slope + bends[start]
        points.update((start, start + 1))
        if slope and (value < 0) != (slope < 0):  # it crosses 0 at `start + steps`, or just before
            steps = -(-abs(value) // abs(slope))
            if end is None or start + steps <= end:
                points.update((start + steps - 1, start + steps, start + steps + 1))
        if end is not None:
            value = value + slope * (end - start)

    def at(n: int) -> int:
        return max(0, value_of_line(line, least, n))

    first = at(least + 1) - at(least)
    changes = {k: at(k + 1) - 2 * at(k) + at(k - 1) for k in points if k > least}
    return BentLine(at(least), first, {k: change for k, change in changes.items() if change})


def value_of_line(line: BentLine, least: int, n: int) -> int:
    """Return the value of a line at `n`. `least` is where it begins."""
    value, slope, bends = line
    return value + slope * (n - least) + sum([change * max(0, n - k) for k, change in bends.items()])


def least_of_line(line: BentLine, least: int) -> int | None:
    """Return the least value of a line from `least` on; None if there is none."""
    value, slope, bends = line
    if slope + sum(bends.values()) < 0:
        return None
    return min([value, *[value_of_line(line, least, k) for k in bends]])
