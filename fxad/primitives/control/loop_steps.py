"""The step of a loop, `scan` or `while`: its operands in groups, and its carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, final

from fxad.core.dataclasses import dataclass
from fxad.core.flags import flags_or, select_by_flags
from fxad.ir import Flags, Jaxpr

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Steps:
    """The step of a scan: `body` takes constants, the carry, and a slice of each array."""

    body: Jaxpr
    n_consts: int
    n_carry: int

    def split(self, values: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """Split values for the operands into those for the constants, the carry and the arrays."""
        a, b = self.n_consts, self.n_consts + self.n_carry
        return tuple(values[:a]), tuple(values[a:b]), tuple(values[b:])

    def split_marked(self, values: Sequence[T], flags: Flags) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """As `split`, of the values that the flags mark."""
        consts, carry, xs = zip(self.split(values), self.split(flags), strict=True)
        return select_by_flags(*consts), select_by_flags(*carry), select_by_flags(*xs)


def carry_fixpoint(carry: Flags, step: Callable[[Flags], tuple[T, Flags]]) -> tuple[T, Flags, Flags]:
    """Mark carries until no mark is added.

    `step`, applied to the marks of the carries, returns a value, and the marks of the results of a step, of which the
    first are the carries. Return the value and these marks for the fixpoint, and the fixpoint.
    """
    while True:
        value, outs = step(carry)
        wider = flags_or(carry, outs[: len(carry)])
        if wider == carry:
            return value, outs, carry
        carry = wider


def unchanged_carries(steps: Steps) -> Flags:
    """Return flags that mark the carries that every step returns unchanged."""
    _, carry, _ = steps.split(steps.body.ins)
    return tuple([a is v for a, v in zip(steps.body.outs, carry, strict=False)])  # the carries are the first results
