"""Writes at the places in an index array that replace elements, multiply with them, or keep the minimum or maximum.

The tangents use `scatter_add` and `gather`, so second derivatives need no further rules.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
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
    Lit,
    Operands,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MUL
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.gather import ScatterAdd, ScatterFamily
from fxad.primitives.linear_families import LinearInOne, only_cotangent
from fxad.primitives.reduce import MAXIMUM, MINIMUM, ORDERED, PRODUCT, Monoid
from fxad.primitives.shape import Iota, Reshape


@final
@primitive
class Scatter(ScatterFamily, Linear):
    """Replace windows of x, at the places in an index array, by updates.

    Type: x of any dtype, indices of any integer dtype, updates of x's dtype.
    Rule: if several updates write one element, one of them is stored: in XLA any one, in `impl` the last. The
          derivative follows the stored one. With `unique_indices`, linear in x and the updates together.
    Source: stablehlo.scatter; see `ScatterFamily`.
    """

    name: ClassVar[str] = "scatter"
    monoid: ClassVar[Monoid | None] = None
    takes: ClassVar[frozenset[DType]] = frozenset(dtypes.ALL)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        if self.unique_indices:
            return ctx(self, *primals), ctx.lin(self, tx, indices, tu)
        # scatter the number of each update, from 1, instead of the update: a gather then finds the stored ones
        shape, size = updates.aval.shape, updates.aval.size
        one = Lit.of(1, Aval((), dtypes.int32))
        numbers = ctx.one(ADD, ctx.one(Iota((size,), dtypes.int32, 0)), one.with_aval((size,)))
        numbers = ctx.one(Reshape(shape), numbers)
        owner = ctx.one(self, Lit.of(0, x.aval.with_dtype(dtypes.int32)), indices, numbers)
        stays = ctx.one(EQ, self.read(ctx, owner, indices, numbers.aval), numbers)
        kept = ctx.one(EQ, owner, Lit.of(0, owner.aval))
        tx = ctx.lin_one(SELECT_N, kept, Zero(tx.aval), tx)
        tu = ctx.lin_one(SELECT_N, stays, Zero(tu.aval), tu)
        add = ScatterAdd(*self.windows.numbers, self.mode, self.indices_sorted, self.unique_indices)
        return ctx(self, *primals), ctx.lin(add, tx, indices, tu)

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return self.unique_indices and mask == (True, False, True)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, indices, updates) = only_cotangent(cts), args
        assert not isinstance(indices, Hole), "scatter is not linear in its indices"
        x_bar = ctx.one(self, ct, indices, Zero(updates.aval).instantiate()) if isinstance(x, Hole) else None
        return x_bar, None, self.read(ctx, ct, indices, updates.aval) if isinstance(updates, Hole) else None


_REMEDY: Final = "say unique_indices=True if no two updates meet"


@final
@primitive
class ScatterMul(ScatterFamily, LinearInOne):
    """Multiply windows of x, at the places in an index array, by updates. Updates of the same element are multiplied.

    Type: x of any dtype but bool, indices of any integer dtype, updates of x's dtype.
    Rule: linear in x. With `unique_indices` differentiable in the updates: an update's tangent is multiplied by x.
    Source: stablehlo.scatter with stablehlo.multiply; see `ScatterFamily`.
    """

    name: ClassVar[str] = "scatter_mul"
    monoid: ClassVar[Monoid | None] = PRODUCT
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        t_out = ctx.lin_one(self, tx, indices, updates) if not isinstance(tx, Zero) else tx
        if isinstance(tu, Zero):
            return ctx(self, *primals), (t_out,)
        if not self.unique_indices:
            raise NotDifferentiableError(
                "scatter_mul: updates may meet in one place, where the derivative in one is the product of the others",
                remedy=_REMEDY,
            )
        add = ScatterAdd(*self.windows.numbers, self.mode, self.indices_sorted, self.unique_indices)
        scaled = ctx.lin_one(MUL, tu, self.read(ctx, x, indices, updates.aval))
        t_add = ctx.lin_one(add, Zero(x.aval), indices, scaled)
        return ctx(self, *primals), (ctx.add(t_out, t_add),)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(self, ct, *others)


class ScatterExtremum(ScatterFamily):
    """Store the minimum, or the maximum, of the elements of x and the updates.

    Type: x integer, float or bool, indices of any integer dtype, updates of x's dtype; the result is nan if any of them
          is nan.
    Rule: the tangent is the mean of the tangents of the values, in x and the updates, equal to the extremum.
    """

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = ORDERED

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = ctx.one(self, *primals)
        add = ScatterAdd(*self.windows.numbers, self.mode, self.indices_sorted, self.unique_indices)
        to_float = ConvertElementType(x.aval.dtype)
        kept = ctx.one(to_float, ctx.one(EQ, x, out))
        won = ctx.one(to_float, ctx.one(EQ, updates, self.read(ctx, out, indices, updates.aval)))
        # the number of values equal to the extremum; 0 if it is nan
        count = ctx.one(MAX, ctx.one(add, kept, indices, won), Lit.of(1, x.aval))
        tx = ctx.lin_one(MUL, tx, ctx.one(DIV, kept, count))
        tu = ctx.lin_one(MUL, tu, ctx.one(DIV, won, self._counts(ctx, count, indices, updates)))
        return (out,), ctx.lin(add, tx, indices, tu)

    def _counts(self, ctx: JvpCtx, count: Atom, indices: Atom, updates: Atom) -> Atom:
        """Return the counts at the places of the updates; 1 for updates that are left out."""
        counts = self.read(ctx, count, indices, updates.aval)
        return ctx.one(MAX, counts, Lit.of(1, updates.aval))


@final
@primitive
class ScatterMin(ScatterExtremum):
    """The minimum of windows of x, at the places in an index array, and all updates of each element.

    Type, Rule: see `ScatterExtremum`.
    Source: stablehlo.scatter with stablehlo.minimum; see `ScatterFamily`.
    """

    name: ClassVar[str] = "scatter_min"
    monoid: ClassVar[Monoid | None] = MINIMUM


@final
@primitive
class ScatterMax(ScatterExtremum):
    """The maximum of windows of x, at the places in an index array, and all updates of each element.

    Type, Rule: see `ScatterExtremum`.
    Source: stablehlo.scatter with stablehlo.maximum; see `ScatterFamily`.
    """

    name: ClassVar[str] = "scatter_max"
    monoid: ClassVar[Monoid | None] = MAXIMUM


SCATTER: Final = (Scatter, ScatterMul, ScatterMin, ScatterMax)
