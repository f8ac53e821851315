"""Writes at the places in an index array that replace elements."""

from __future__ import annotations

from typing import ClassVar, Final, final

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import (
    Atoms,
    Aval,
    Cotangent,
    Cotangents,
    Hole,
    JvpCtx,
    Linear,
    Lit,
    NDArray,
    Operands,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.dimension_numbers import DimensionNumbers
from fxad.primitives.elementwise import ADD, EQ, SELECT_N
from fxad.primitives.gather import Positions, ScatterAdd, ScatterFamily
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
    applies: ClassVar[str] = ""
    takes: ClassVar[frozenset[DType]] = frozenset(dtypes.ALL)
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    mode: str
    indices_sorted: bool
    unique_indices: bool

    def combine(self, out: NDArray, at: Positions, updates: NDArray) -> None:
        out[at] = updates

    def remade(self, windows: DimensionNumbers, mode: str, indices_sorted: bool, unique_indices: bool) -> Scatter:
        return Scatter(*windows.numbers, mode, indices_sorted, unique_indices)

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
        (ct,), (x, indices, updates) = cts, args
        if isinstance(ct, Zero) or isinstance(indices, Hole):
            return tuple([Zero(a.aval) if isinstance(a, Hole) else None for a in args])
        x_bar = ctx.one(self, ct, indices, Zero(updates.aval).instantiate()) if isinstance(x, Hole) else None
        return x_bar, None, self.read(ctx, ct, indices, updates.aval) if isinstance(updates, Hole) else None


SCATTER: Final = (Scatter,)
