"""The interface of mask rules. A rule writes one equation of symbolic shape over padded arrays.

- A lane is an index along an axis of symbolic size. A primitive whose results in a lane depend on the operands in that
  lane only is applied as it is: `rules/lanes.py`.
- Where lanes meet (a sum over them, a product of matrices), a rule fills the padding of the operands with the neutral
  element: `MaskCtx.filled`.
- Where a value goes to several lanes (a broadcast), or a lane of padding reads a valid element (a slice), a rule clears
  the padding of the result, at once or later: `MaskCtx.cleared`, `MaskCtx.cleared_later`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeVar, final

from fxad.core.dataclasses import dataclass
from fxad.errors import NotMaskedError
from fxad.ir import Atom, Atoms, Avals, Primitive
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.rule_tables import RuleTable

P = TypeVar("P", bound=Primitive)
Q = TypeVar("Q", bound=Primitive, contravariant=True)


class Write(Protocol[Q]):
    """Emits an equation over padded arrays. `ins` and `outs` are the symbolic types. The results have the padded types;
    their padding may hold anything."""

    def __call__(self, ctx: MaskCtx, prim: Q, args: Atoms, ins: Avals, outs: Avals, /) -> Sequence[Atom]: ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class MaskRow:
    """A row of the table, made by `row` or `refused`. `summary` describes the rule in the rule matrix.
    `clears_operands`: pending operands are cleared before the rule runs; a rule that clears them itself has False."""

    kind: type[Primitive]
    write: Write[Primitive]
    summary: str
    clears_operands: bool = True


class HasMask(Primitive):
    """A primitive from outside fxad that has a rule of `mask`. Those of fxad have rows in a table."""

    __slots__ = ()

    @abstractmethod
    def mask(self, ctx: MaskCtx, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
        """Mask the equation, as in `Write`. If a lane of the results depends on that lane of the operands only:
        `ctx(self, *args)`."""


@final
class MaskTable(RuleTable[MaskRow]):
    """A table of mask rules."""

    __slots__ = ()

    def stated_by(self, prim: Primitive) -> MaskRow | None:
        """Return the rule of a `HasMask`."""
        if not isinstance(prim, HasMask):
            return None

        def write(ctx: MaskCtx, prim: HasMask, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
            return prim.mask(ctx, args, ins, outs)

        return row(type(prim), write, "own")


def row(kind: type[P], write: Write[P], summary: str, *, clears_operands: bool = True) -> MaskRow:
    """Return the rule of the primitives of one class."""

    def writing(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
        assert isinstance(prim, kind)
        return write(ctx, prim, args, ins, outs)

    return MaskRow(kind, writing, summary, clears_operands)


def refused(kind: type[Primitive], reason: str) -> MaskRow:
    """Return the row of a primitive that cannot be masked. `reason` completes the sentence "fft is not masked: ..."."""

    def refusing(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
        raise not_masked(prim, reason)

    return MaskRow(kind, refusing, f"none: {reason}")


def not_masked(
    prim: Primitive, reason: str, remedy: str = "mask the functions around it, or specialize the program to each size"
) -> NotMaskedError:
    """Return the error for an equation that has no padded form."""
    return NotMaskedError(f"mask: {prim.name} is not masked: {reason}", remedy=remedy)


__all__ = ["HasMask", "MaskRow", "MaskTable", "Write", "not_masked", "refused", "row"]
