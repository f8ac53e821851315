"""Reductions along axes by one operation: the operations, the family, extrema, and logical operations.

Where each reduction is:

| `fxad.lax` | primitives | file |
|---|---|---|
| `reduce_sum` | `ReduceSum` | `shape`, beside its transpose |
| `reduce_prod` | `ReduceProd` | `reduce_prod` |
| `reduce_max`, `reduce_min`, `reduce_and`, `reduce_or`, `reduce_xor` | `ReduceMax`, ... | this file |
| `argmax`, `argmin` | `ArgMax`, `ArgMin` | `argmax` |
| `reduce` by a function | `Reduce`, or one of the above if the function is one operation | `fold` |
| `reduce_window` by one operation | `ReduceWindowSum`, `ReduceWindowMax`, ... | `reduce_window` |
| `reduce_window` by a function | `ReduceWindow` | `fold` |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final, final

import ml_dtypes
import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Emit,
    Hlo,
    HloValues,
    JvpCtx,
    Lit,
    NDArray,
    Primitive,
    Tangent,
    Tangents,
    primitive,
    primitive_family,
)
from fxad.primitives.axes import Axes, axes_after_insert, axis_after_remove, other_axes, remove_axes
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.family import BITS, ORDERED, Binary, as_accumulated
from fxad.primitives.elementwise.logic import AND, EQ, OR, XOR
from fxad.primitives.families import WithoutTangent
from fxad.primitives.operand_checks import check_axes, check_count, check_dtype
from fxad.primitives.shape import BroadcastInDim, ReduceSum
from fxad.primitives.stablehlo import i64_array, lower_reduce


def extreme_value(dtype: DType, sign: int) -> Lit:
    """Return the least (`sign` -1) or greatest (+1) value of a dtype as a 0-d literal; an infinity if the dtype has
    one. Complex numbers are ordered by real, then by imaginary parts."""
    aval = Aval((), dtype)
    if dtype in dtypes.COMPLEX:
        return Lit.of(complex(sign * np.inf, sign * np.inf), aval)
    if dtype == dtypes.bool_:
        return Lit.of(sign > 0, aval)
    if dtypes.is_integer(dtype):
        return Lit.of(dtypes.RANGES[dtype][sign > 0], aval)
    infinite = Lit.of(sign * np.inf, aval)
    if np.isinf(infinite.value):
        return infinite
    # a float8 without infinities
    return Lit.of(sign * float(ml_dtypes.finfo(dtype).max), aval)  # type: ignore[no-untyped-call]  # ml_dtypes has no types


@final
@dataclass(frozen=True, slots=True, eq=False)
class Monoid:
    """An associative and commutative operation with an identity element: as a primitive and in NumPy."""

    prim: Binary
    ufunc: np.ufunc
    identity: Callable[[DType], Lit]

    def reduce(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Combine the elements along `axes` in NumPy. Floats below 32 bits are combined in float32 and rounded once."""
        wide, start = as_accumulated(x), as_accumulated(self.identity(x.dtype).array)
        return np.asarray(self.ufunc.reduce(wide, axes, wide.dtype, initial=start[()])).astype(x.dtype)


SUM: Final = Monoid(ADD, np.add, lambda dtype: Lit.of(0, Aval((), dtype)))
PRODUCT: Final = Monoid(MUL, np.multiply, lambda dtype: Lit.of(1, Aval((), dtype)))
MAXIMUM: Final = Monoid(MAX, np.maximum, lambda dtype: extreme_value(dtype, -1))
MINIMUM: Final = Monoid(MIN, np.minimum, lambda dtype: extreme_value(dtype, 1))
ALL_BITS: Final = Monoid(
    AND, np.bitwise_and, lambda dtype: Lit.of(True if dtype == dtypes.bool_ else -1, Aval((), dtype))
)
ANY_BITS: Final = Monoid(OR, np.bitwise_or, SUM.identity)
PARITY: Final = Monoid(XOR, np.bitwise_xor, SUM.identity)


@primitive_family
class Reduction(Primitive):
    """Combine the elements along `axes`, which are removed, by an associative and commutative operation."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]]
    monoid: ClassVar[Monoid]
    rounds: ClassVar[bool] = False  # the operation rounds, so floats below 32 bits are combined in float32
    axes: Axes

    @final
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_dtype(self.name, x, self.takes)
        check_axes(self.name, self.axes, x.ndim)
        return (Aval(remove_axes(x.shape, self.axes), x.dtype),)

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (self.monoid.reduce(args[0], self.axes),)

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        start = self.monoid.identity(dtypes.accumulated(ins[0].dtype) if self.rounds else ins[0].dtype)
        attributes, operation = {"dimensions": i64_array(self.axes)}, self.monoid.prim.hlo_name
        return lower_reduce(hlo, "stablehlo.reduce", attributes, operation, start, args, ins[0], outs)

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (dim,) = dims
        if dim is None:
            return ctx(self, *args), (None,)
        axes = axes_after_insert(self.axes, dim)
        return ctx(replace(self, axes=axes), *args), (axis_after_remove(dim, axes),)


def broadcast_along(x: Aval, axes: Axes) -> BroadcastInDim:
    """Return the broadcast of the result of a reduction of `x` along `axes` to the shape of `x`."""
    return BroadcastInDim(x.shape, other_axes(axes, x.ndim))


def extremum_jvp(ctx: JvpCtx, prim: Primitive, axes: Axes, x: Atom, t: Tangent) -> tuple[Atom, Tangent]:
    """Return the result and tangent of a maximum or minimum: the mean of the tangents of the elements equal to it.

    The lowering lets XLA compute the elements once, to find the maximum and to compare them with it
    (`fxad.lowering.compared_extrema`): two roundings may differ in a bit.
    """
    y, total, broadcast = ctx.one(prim, x), ReduceSum(axes), broadcast_along(x.aval, axes)
    equal = ctx.one(EQ, x, ctx.one(broadcast, y))
    shares = shares_of_ties(ctx, equal, x.aval.dtype, lambda ones: ctx.one(broadcast, ctx.one(total, ones)))
    return y, ctx.lin_one(total, ctx.lin_one(MUL, t, shares))


def shares_of_ties(emit: Emit, equal: Atom, dtype: DType, count: Callable[[Atom], Atom]) -> Atom:
    """Return 1 / n for the n elements that are marked in `equal`, 0 for the others, in `dtype`. `count` sums ones to n
    for each element. They are counted in float32 at least: float16 has no 100,000."""
    ones = emit_convert(emit, equal, dtypes.accumulated(dtype))
    return emit_convert(emit, emit.one(DIV, ones, count(ones)), dtype)


class ExtremumReduction(Reduction):
    """The greatest or least element along `axes`."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = ORDERED

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        y, t = extremum_jvp(ctx, self, self.axes, primals[0], tangents[0])
        return (y,), (t,)


@final
@primitive
class ReduceMax(ExtremumReduction):
    """The greatest element along `axes`; nan if any element is nan; the least value of the dtype over no elements.

    Type: x integer, float or bool; the dtype is kept.
    Rule: the tangent is the mean of the tangents of the elements equal to the maximum.
    Source: stablehlo.reduce with stablehlo.maximum
    """

    name: ClassVar[str] = "reduce_max"
    monoid: ClassVar[Monoid] = MAXIMUM


@final
@primitive
class ReduceMin(ExtremumReduction):
    """The least element along `axes`; nan if any element is nan; the greatest value of the dtype over no elements.

    Type: x integer, float or bool; the dtype is kept.
    Rule: the tangent is the mean of the tangents of the elements equal to the minimum.
    Source: stablehlo.reduce with stablehlo.minimum
    """

    name: ClassVar[str] = "reduce_min"
    monoid: ClassVar[Monoid] = MINIMUM


class LogicalReduction(Reduction, WithoutTangent):
    """A logical operation along `axes`; bitwise for integers."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = BITS


@final
@primitive
class ReduceAnd(LogicalReduction):
    """True if all elements along `axes` are True; bitwise for integers.

    Type: x bool or integer; the dtype is kept.
    Source: stablehlo.reduce with stablehlo.and
    """

    name: ClassVar[str] = "reduce_and"
    monoid: ClassVar[Monoid] = ALL_BITS


@final
@primitive
class ReduceOr(LogicalReduction):
    """True if any element along `axes` is True; bitwise for integers.

    Type: x bool or integer; the dtype is kept.
    Source: stablehlo.reduce with stablehlo.or
    """

    name: ClassVar[str] = "reduce_or"
    monoid: ClassVar[Monoid] = ANY_BITS


@final
@primitive
class ReduceXor(LogicalReduction):
    """True if an odd number of elements along `axes` is True; bitwise for integers.

    Type: x bool or integer; the dtype is kept.
    Source: stablehlo.reduce with stablehlo.xor
    """

    name: ClassVar[str] = "reduce_xor"
    monoid: ClassVar[Monoid] = PARITY


REDUCE: Final = (ReduceMax, ReduceMin, ReduceAnd, ReduceOr, ReduceXor)
