"""Writes at the places in an index array that multiply with elements, or keep the minimum or maximum.

Each tangent uses scatter_add of `fxad.primitives.gather`, so second derivatives need no further rules.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
from fxad.ir import (
    Atom,
    Atoms,
    Cotangent,
    Cotangents,
    Hole,
    JvpCtx,
    Linear,
    Lit,
    NDArray,
    Operands,
    Primitive,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.dimension_numbers import DimensionNumbers
from fxad.primitives.elementwise import DIV, EQ, MAX, MUL, ConvertElementType
from fxad.primitives.elementwise.family import as_accumulated
from fxad.primitives.gather import Positions, ScatterAdd, ScatterFamily
from fxad.primitives.reduce import ORDERED

_REMEDY: Final = "say unique_indices=True if no two updates meet"


@final
@primitive
class ScatterMul(ScatterFamily, Linear):
    """Multiply windows of x, at the places in an index array, by updates. Updates of the same element are multiplied.

    Type: x of any dtype but bool, indices of any integer dtype, updates of x's dtype.
    Rule: linear in x. With `unique_indices` differentiable in the updates: an update's tangent is multiplied by x.
    Source: stablehlo.scatter with stablehlo.multiply; see `ScatterFamily`.
    """

    name: ClassVar[str] = "scatter_mul"
    applies: ClassVar[str] = "stablehlo.multiply"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    mode: str
    indices_sorted: bool
    unique_indices: bool

    def combine(self, out: NDArray, at: Positions, updates: NDArray) -> None:
        _combine(np.multiply, out, at, updates)

    def remade(self, windows: DimensionNumbers, mode: str, indices_sorted: bool, unique_indices: bool) -> ScatterMul:
        return ScatterMul(*windows.numbers, mode, indices_sorted, unique_indices)

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

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return mask == (True, False, False)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        (ct,), (x, indices, updates) = cts, args
        if isinstance(ct, Zero) or isinstance(indices, Hole) or isinstance(updates, Hole):
            return (Zero(x.aval) if isinstance(x, Hole) else None), None, None
        return ctx.one(self, ct, indices, updates) if isinstance(x, Hole) else None, None, None


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
    applies: ClassVar[str] = "stablehlo.minimum"
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    mode: str
    indices_sorted: bool
    unique_indices: bool

    def combine(self, out: NDArray, at: Positions, updates: NDArray) -> None:
        _combine(np.minimum, out, at, updates)

    def remade(self, windows: DimensionNumbers, mode: str, indices_sorted: bool, unique_indices: bool) -> Primitive:
        return ScatterMin(*windows.numbers, mode, indices_sorted, unique_indices)


@final
@primitive
class ScatterMax(ScatterExtremum):
    """The maximum of windows of x, at the places in an index array, and all updates of each element.

    Type, Rule: see `ScatterExtremum`.
    Source: stablehlo.scatter with stablehlo.maximum; see `ScatterFamily`.
    """

    name: ClassVar[str] = "scatter_max"
    applies: ClassVar[str] = "stablehlo.maximum"
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    mode: str
    indices_sorted: bool
    unique_indices: bool

    def combine(self, out: NDArray, at: Positions, updates: NDArray) -> None:
        _combine(np.maximum, out, at, updates)

    def remade(self, windows: DimensionNumbers, mode: str, indices_sorted: bool, unique_indices: bool) -> Primitive:
        return ScatterMax(*windows.numbers, mode, indices_sorted, unique_indices)


def _combine(ufunc: np.ufunc, out: NDArray, at: Positions, updates: NDArray) -> None:
    wide = as_accumulated(out)
    ufunc.at(wide, at, as_accumulated(updates))
    out[...] = wide


SCATTER_COMBINE: Final = (ScatterMul, ScatterMin, ScatterMax)
