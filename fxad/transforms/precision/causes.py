"""Causes of errors in the result of an equation, beside the rounding of its elements."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import final

from fxad.core.dataclasses import dataclass
from fxad.ir import SourceLocation
from fxad.transforms.locate import innermost


@final
class CauseKind(Enum):
    """Kinds of causes. The value is the text, which may name a number of digits."""

    NOT_MEASURED = "not measured"
    NOT_FINITE = "not finite"
    INFINITE_DERIVATIVE = "infinite derivative"
    OVERFLOW = "overflow"
    UNDERFLOW = "underflow"
    CANCELLATION = "cancellation of {} digits"
    ILL_CONDITIONED = "ill-conditioned by {} digits"
    LOST_INSIDE = "{} digits lost inside"


@final
@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of an error. `digits` are the decimal digits that are lost, a whole number, inf for all of them; None for
    a kind that loses no number of digits. The text of a cause is made of both."""

    kind: CauseKind
    digits: float | None = None

    @property
    def flows(self) -> bool:
        """Return True if the value has left the range of its dtype."""
        return self.kind is CauseKind.OVERFLOW or self.kind is CauseKind.UNDERFLOW

    def __str__(self) -> str:
        if self.digits is None:
            return self.kind.value
        return self.kind.value.format("all" if self.digits == inf else f"{self.digits:.0f}")


class EquationWithCauses:
    """A row of a table about the errors of an equation. `lines` are the user's lines of the equation and of those whose
    bodies contain it, the outermost first."""

    __slots__ = ()

    lines: tuple[SourceLocation, ...]
    typed_causes: tuple[Cause, ...]

    @property
    def line(self) -> SourceLocation | None:
        """The line of the equation itself."""
        return innermost(self.lines)

    @property
    def causes(self) -> tuple[str, ...]:
        """The texts of what is wrong."""
        return tuple(map(str, self.typed_causes))


def digits_lost(kind: CauseKind, digits: float) -> Cause:
    """Return the cause that loses about so many digits."""
    return Cause(kind, digits if digits == inf else float(round(digits)))
