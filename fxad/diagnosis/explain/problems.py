"""The problems of a program, the worst first: each a sentence with its line, its cost and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.ir import SourceLocation

_LEAST: Final = 0.01  # a cost of a smaller share of what the program takes is no problem
_MOST: Final = 8  # greatest number of problems that a page lists


@final
@dataclass(frozen=True, slots=True)
class PageProblem:
    """A problem of a program. `sentence` says what is wrong on which line, `cost` what it takes, `remedy` what to do.

    `severity` orders problems: the part of the bytes, of the time or of the digits of the program that it takes, from 0
    to 1. `line` is its line, `number` that of an equation on the page, `part` the part of the page that shows it.
    """

    sentence: str
    cost: str
    remedy: str
    severity: float
    part: str
    line: SourceLocation | None = None
    number: int | None = None

    def __str__(self) -> str:
        return f"{self.sentence}. Cost: {self.cost}. Remedy: {self.remedy}"


def ranked(problems: Iterable[PageProblem]) -> tuple[PageProblem, ...]:
    """Return the problems that matter, the worst first."""
    known = [p for p in problems if p.severity >= _LEAST]
    return tuple(sorted(known, key=lambda p: -p.severity)[:_MOST])
