"""A finding of the verdict: its text, and the problem that it is."""

from __future__ import annotations

from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.problems import PageProblem
from fxad.ir import SourceLocation

NAMED: Final = 3  # greatest number of consumers, or of findings of one kind, that a line of the verdict names
SHARE: Final = 0.01  # nothing is said of a smaller share of the arguments or of the time

Place: TypeAlias = "SourceLocation | None"


@final
@dataclass(frozen=True, slots=True)
class Observation:
    """A text of a line of the verdict, empty if a part of another one, and the problem that it is; None if it is
    none."""

    text: str
    problem: PageProblem | None = None


def limited(findings: list[Observation], what: str) -> list[Observation]:
    """Return the findings of one kind: the first few, and the number of the others, whose problems stay."""
    more = len(findings) - NAMED
    if more <= 0:
        return findings
    return [
        *findings[:NAMED],
        Observation(f"{more} more {what}"),
        *[Observation("", f.problem) for f in findings[NAMED:]],
    ]
