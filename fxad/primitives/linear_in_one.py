"""The base class of primitives that are linear in one operand: they state its cotangent, and nothing else."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, final

from fxad.ir import Atom, Atoms, Aval, Cotangent, Cotangents, Emit, Hole, Linear, Operands, TransposeCtx, Zero


class LinearInOne(Linear):
    """A primitive with one result that is linear in one operand, with the others held fixed."""

    __slots__ = ()

    linear_operand: ClassVar[int] = 0

    @abstractmethod
    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        """The cotangent of the linear operand, whose type is `x`. `others` are the other operands."""

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return mask.count(True) == 1 and mask[self.linear_operand]

    @final
    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        (ct,), k = cts, self.linear_operand
        assert not isinstance(ct, Zero), "transpose: at least one cotangent is not zero"
        bar = self.cotangent(ctx, ct, args[k].aval, tuple([a for a in args if not isinstance(a, Hole)]))
        return tuple([bar if j == k else None for j in range(len(args))])
