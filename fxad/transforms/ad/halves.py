"""The results of partial evaluation: a program or an equation as a known and an unknown half.

The known half depends on known operands alone. The unknown half takes its residuals. Both are records here; the rules
that split equations are in `partial_eval_rules`, `split_loops` and `split_bounded_loops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.flags import merge_by_flags, select_by_flags
from fxad.ir import Atoms, Aval, Flags, Jaxpr, Lit, Primitive, SourceLocation, Var


@final
@dataclass(frozen=True, slots=True)
class PassedValue:
    """A residual, which the first program returns and the second reads.

    name:  its `checkpoint_name`, or the operation that computes it, with a number, or the number of the operand.
    where: the user's line.
    """

    name: str
    aval: Aval
    where: SourceLocation | None


@final
@dataclass(frozen=True, slots=True)
class Halves:
    """A program in two halves.

    known:     known operands -> the results marked in `out_known`, then residuals.
    unknown:   residuals, then the other operands -> the other results.
    residuals: a description of each residual.
    """

    known: Jaxpr
    unknown: Jaxpr
    residuals: tuple[PassedValue, ...]
    out_known: Flags

    @property
    def residual_atoms(self) -> Atoms:
        """The residuals, as atoms of `known`."""
        return self.known.outs[sum(self.out_known) :]

    def with_out_known(self, out_known: Flags) -> Halves:
        """Return the two halves with fewer known results: those marked in `out_known`. The other known results become
        results of `unknown`: literals as they are, variables through new residuals.

        For example, if `out_known` changes from (True, True, True, False) to (True, False, False, False),

            before:  known(x) = (sin(x), exp(x), 2.0)    unknown(y) = -y
            after:   known(x) = (sin(x), exp(x))         unknown(e, y) = (e, 2.0, -y)
        """
        if out_known == self.out_known:
            return self
        n_known, n_residuals = sum(self.out_known), len(self.residuals)
        numbers = select_by_flags(range(len(out_known)), self.out_known)
        results = dict(zip(numbers, self.known.outs[:n_known], strict=True))
        still_known = [a for k, a in results.items() if out_known[k]]
        moved = {k: a for k, a in results.items() if not out_known[k]}
        new_residuals = {k: a for k, a in moved.items() if isinstance(a, Var)}
        b = Builder()
        residuals = b.inputs(self.unknown.in_avals[:n_residuals])
        moved.update(zip(new_residuals, b.inputs([a.aval for a in new_residuals.values()]), strict=True))
        others = b.inline(self.unknown, (*residuals, *b.inputs(self.unknown.in_avals[n_residuals:])))
        is_moved = [k in moved for k, known in enumerate(out_known) if not known]
        return Halves(
            self.known.with_outs((*still_known, *self.residual_atoms, *new_residuals.values())),
            b.build(merge_by_flags(is_moved, moved.values(), others), self.unknown.name),
            (*self.residuals, *[PassedValue(f"result {k}", a.aval, None) for k, a in new_residuals.items()]),
            out_known,
        )

    @property
    def nothing_known(self) -> bool:
        """Return True if the known half has no equations and no results."""
        return not self.known.eqns and not any(self.out_known)


# Splits a body, given flags for its known operands: `partial_eval`.
SplitBody: TypeAlias = Callable[[Jaxpr, Flags], Halves]


@final
@dataclass(frozen=True, slots=True)
class KnownResult:
    """Result `number` of the known half, which the unknown half takes."""

    number: int


# An operand of the unknown half: the number of an operand of the equation, or a result of the known half.
OperandOrigin: TypeAlias = int | KnownResult


@final
@dataclass(frozen=True, slots=True)
class SplitEqn:
    """An equation in two halves, `known` and `unknown`.

    known_operands:   for each operand of `known`, the number of an operand of the equation, or a literal.
    unknown_operands: for each operand of `unknown`, the number of an operand of the equation, or a result of `known`.
    out_known:        marks the results of the equation that `known` computes. `unknown` returns the others.
    known_results:    for each of the marked results, the number of a result of `known`.
    """

    known: Primitive
    unknown: Primitive
    known_operands: tuple[int | Lit, ...]
    unknown_operands: tuple[OperandOrigin, ...]
    out_known: Flags
    known_results: tuple[int, ...]
