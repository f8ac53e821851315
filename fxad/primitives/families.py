"""Families: the base classes of primitives, and what a table of a transformation says of a family.

A table has a row for a family, and rows for those of its members for which the family is not enough (`of_family`). The
families stand with their primitives, except those whose derivative has a simple form, which are here: no tangent,
linear in one operand, bilinear.

`Bilinear` makes its derivative of its two cotangents. `LinearInOne` makes only the transpose: a primitive with one
operand is a `LinearMap` too, one with operands without tangents a `LinearInFirst`, and others write `jvp`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, TypeVar, final

from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Cotangent,
    Cotangents,
    Emit,
    Hole,
    JvpCtx,
    Linear,
    Operands,
    Primitive,
    Tangents,
    TransposeCtx,
    Zero,
    known_operands,
)

T = TypeVar("T")


def of_family(rows: Mapping[type[Primitive], T], kind: type[Primitive]) -> T | None:
    """Return the row of a primitive in a table, or that of its nearest family; None if there is none."""
    return next((rows[base] for base in kind.__mro__ if base in rows), None)


def only_cotangent(cts: Cotangents) -> Atom:
    """Return the cotangent in a transpose rule of a primitive with one result. It is not `Zero`: at least one cotangent
    is not."""
    (ct,) = cts
    assert not isinstance(ct, Zero), "transpose: at least one cotangent is not zero"
    return ct


class WithoutTangent(Primitive):
    """A primitive whose results have no tangent: integers, bools, and constants."""

    __slots__ = ()

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        outs = ctx(self, *primals)
        return outs, tuple([Zero(v.aval) for v in outs])


class LinearInOne(Linear):
    """A primitive with one result that is linear in one operand, with the others held fixed."""

    __slots__ = ()

    linear_operand: ClassVar[int] = 0

    @abstractmethod
    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        """Return the cotangent of the linear operand, whose type is `x`. `others` are the other operands."""

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags.count(True) == 1 and flags[self.linear_operand]

    @final
    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, k = only_cotangent(cts), self.linear_operand
        bar = self.cotangent(ctx, ct, args[k].aval, known_operands(args))
        return tuple([bar if j == k else None for j in range(len(args))])


class LinearInFirst(LinearInOne):
    """A primitive with one result that is linear in its first operand. The result has no tangent from the others: they
    are indices, or select elements."""

    __slots__ = ()

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(self, tangents[0], *primals[1:])


class Bilinear(Linear):
    """A primitive with one result and two operands that is linear in each, with the other held fixed."""

    __slots__ = ()

    @abstractmethod
    def lhs_cotangent(self, emit: Emit, ct: Atom, lhs: Aval, rhs: Atom) -> Atom:
        """Return the cotangent of the first operand, whose type is `lhs`."""

    @abstractmethod
    def rhs_cotangent(self, emit: Emit, ct: Atom, lhs: Atom, rhs: Aval) -> Atom:
        """Return the cotangent of the second operand, whose type is `rhs`."""

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (lhs, rhs), (lhs_dot, rhs_dot) = primals, tangents
        t = ctx.add(ctx.lin_one(self, lhs_dot, rhs), ctx.lin_one(self, lhs, rhs_dot))
        return ctx(self, *primals), (t,)

    @final
    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags in ((True, False), (False, True))

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (lhs, rhs) = only_cotangent(cts), args
        if not isinstance(rhs, Hole):
            return self.lhs_cotangent(ctx, ct, lhs.aval, rhs), None
        assert not isinstance(lhs, Hole), "a bilinear primitive is not linear in both operands together"
        return None, self.rhs_cotangent(ctx, ct, lhs, rhs.aval)
