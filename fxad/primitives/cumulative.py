"""Cumulative sums, products, extrema and log-sum-exp along an axis.

They are closed under differentiation and transposition. A cumulative sum is its own adjoint in the reverse direction.
The tangent of every other one is a linear recurrence y[i] = a[i] y[i - 1] + b[i], whose derivative and adjoint are
linear recurrences.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.constants import WINDOW_SIZE
from fxad.dtypes import DType
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Emit,
    Hlo,
    HloValue,
    HloValues,
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
from fxad.primitives.cumulative_lowering import Join, Parts, cumulative_program
from fxad.primitives.elementwise import (
    ABS,
    ADD,
    AND,
    EQ,
    EXP,
    LOG1P,
    MAX,
    MIN,
    MUL,
    NE,
    NEG,
    OR,
    SELECT_N,
    SUB,
)
from fxad.primitives.elementwise.family import WIDER, as_accumulated
from fxad.primitives.gather import Gather
from fxad.primitives.linear_recurrence import SUMMED, LinearRecurrence, check_same_type, predecessors, zero_scalar
from fxad.primitives.mlir_attributes import i64_array
from fxad.primitives.operand_checks import check_count
from fxad.primitives.reduce import ORDERED, extreme_value
from fxad.primitives.shape import ExpandDims, Iota


def subtract_or_zero(emit: Emit, a: Atom, b: Atom) -> Atom:
    """Return a - b, or 0 if both are the same infinity."""
    return emit.one(SELECT_N, emit.one(EQ, a, b), emit.one(SUB, a, b), Lit.of(0.0, a.aval))


def log_add_exp(emit: Emit, left: Parts, right: Parts) -> Parts:
    """Return log(exp(a) + exp(b)), exact if one of them is infinite."""
    (a,), (b,) = left, right
    top = emit.one(MAX, a, b)
    more = emit.one(LOG1P, emit.one(EXP, emit.one(NEG, emit.one(ABS, subtract_or_zero(emit, a, b)))))
    infinite = emit.one(EQ, emit.one(ABS, top), Lit.of(np.inf, top.aval))
    return (emit.one(SELECT_N, infinite, emit.one(ADD, top, more), top),)


class Cumulative(Primitive):
    """Combine all elements up to each along `axis`; from the end with `reverse`. The result has the operand's type."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]]
    applies: ClassVar[str]  # the operation of two elements in StableHLO; empty where it takes more than one
    axis: int
    reverse: bool

    @abstractmethod
    def unit(self, dtype: DType) -> Lit:
        """Return the identity element."""

    @abstractmethod
    def join(self) -> Join:
        """Return the operation on two elements."""

    @abstractmethod
    def compute(self, x: NDArray) -> object:
        """Compute the result in NumPy along axis 0, from the front, for an axis that is not empty. Floats below 32 bits
        are given as float32."""

    @abstractmethod
    def along(self, axis: int, reverse: bool) -> Primitive:
        """Return the same primitive for another axis."""

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_same_type(self, self.axis, self.takes, *check_count(self, avals, 1))
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        if not x.size:
            return (x,)
        front = np.moveaxis(as_accumulated(x), self.axis, 0)
        with np.errstate(all="ignore"):
            done = np.asarray(self.compute(front[::-1] if self.reverse else front))
        return (np.moveaxis(done[::-1] if self.reverse else done, 0, self.axis).astype(x.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), n = ins, ins[0].shape[self.axis]
        if x.size == 0 or n == 1:
            return args
        wide = x.with_dtype(dtypes.accumulated(x.dtype))
        wide_args = args if wide is x else hlo.op("stablehlo.convert", args, (wide,))
        unit = self.unit(wide.dtype)
        if n <= WINDOW_SIZE and self.applies:
            done = self._window(hlo, wide_args[0], wide, hlo.constant(unit))
        else:
            done = hlo.call(
                cumulative_program(self.name, (wide,), self.join(), (unit.value,), self.axis, self.reverse), wide_args
            )
        return done if wide is x else hlo.op("stablehlo.convert", done, (x,))

    def _window(self, hlo: Hlo, x: HloValue, aval: Aval, unit: HloValue) -> HloValues:
        n = aval.shape[self.axis]
        window = [n if a == self.axis else 1 for a in range(aval.ndim)]
        pads = [[0, m - 1] if self.reverse else [m - 1, 0] for m in window]
        attrs = {"window_dimensions": i64_array(window), "padding": f"dense<{pads}> : tensor<{aval.ndim}x2xi64>"}
        return hlo.op("stablehlo.reduce_window", (x, unit), (aval,), attrs, (self.applies,))

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (dim,) = dims
        axis = self.axis if dim is None else self.axis + (self.axis >= dim)
        return ctx(self.along(axis, self.reverse), *args), dims


@final
@primitive
class CumSum(Cumulative, Linear):
    """The sum of the elements up to each along `axis`; from the end with `reverse`.

    Type: x numeric, not float8; floats below 32 bits are added in float32.
    Rule: linear; the transpose is the running sum from the other end.
    Cost: one pass.
    Source: stablehlo.while; stablehlo.reduce_window for short axes.
    """

    name: ClassVar[str] = "cumsum"
    takes: ClassVar[frozenset[DType]] = SUMMED
    applies: ClassVar[str] = "stablehlo.add"
    axis: int
    reverse: bool

    def unit(self, dtype: DType) -> Lit:
        return Lit.of(0, Aval((), dtype))

    def join(self) -> Join:
        return lambda emit, left, right: emit(ADD, *left, *right)

    def compute(self, x: NDArray) -> object:
        return np.add.accumulate(x, dtype=x.dtype)

    def along(self, axis: int, reverse: bool) -> CumSum:
        return CumSum(axis, reverse)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(self, *tangents)

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return mask == (True,)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        (ct,) = cts
        return (ct if isinstance(ct, Zero) else ctx.one(CumSum(self.axis, not self.reverse), ct),)


@final
@primitive
class CumProd(Cumulative):
    """The product of the elements up to each along `axis`; from the end with `reverse`.

    Type: x numeric, not float8; floats below 32 bits are multiplied in float32.
    Rule: dy[i] = x[i] dy[i - 1] + y[i - 1] dx[i]: right where elements are 0.
    Cost: one pass.
    Source: stablehlo.while; stablehlo.reduce_window for short axes.
    """

    name: ClassVar[str] = "cumprod"
    takes: ClassVar[frozenset[DType]] = SUMMED
    applies: ClassVar[str] = "stablehlo.multiply"
    axis: int
    reverse: bool

    def unit(self, dtype: DType) -> Lit:
        return Lit.of(1, Aval((), dtype))

    def join(self) -> Join:
        return lambda emit, left, right: emit(MUL, *left, *right)

    def compute(self, x: NDArray) -> object:
        return np.multiply.accumulate(x, dtype=x.dtype)

    def along(self, axis: int, reverse: bool) -> CumProd:
        return CumProd(axis, reverse)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        ahead = predecessors(ctx, y, self.axis, self.reverse, self.unit(x.aval.dtype))
        return (y,), ctx.lin(LinearRecurrence(self.axis, self.reverse), x, ctx.lin_one(MUL, t, ahead))


class CumExtremum(Cumulative):
    """The greatest or least element up to each. The tangent is that of the first element equal to it."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = ORDERED
    sign: ClassVar[int]  # +1 for the greatest element, -1 for the least

    @final
    def unit(self, dtype: DType) -> Lit:
        return extreme_value(dtype, -self.sign)

    @final
    def join(self) -> Join:
        prim = MAX if self.sign > 0 else MIN
        return lambda emit, left, right: emit(prim, *left, *right)

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        if isinstance(t, Zero) or not x.aval.size:
            return (y,), (Zero(y.aval),)
        index = ctx.one(ExpandDims((x.aval.ndim,)), self._places(ctx, y))
        others = tuple([a for a in range(x.aval.ndim) if a != self.axis])
        gather = Gather(
            (), (self.axis,), others, others, (self.axis,), (1,) * x.aval.ndim, "promise_in_bounds", False, False
        )
        return (y,), ctx.lin(gather, t, index)

    def _places(self, emit: Emit, y: Atom) -> Atom:
        """Return the index at which the current extremum first occurs."""
        n = y.aval.shape[self.axis]
        ahead = predecessors(emit, y, self.axis, self.reverse, zero_scalar(y.aval))
        # a new extremum differs from the previous one; nan differs from itself, and no extremum follows it
        nans = emit.one(AND, emit.one(NE, y, y), emit.one(NE, ahead, ahead))
        same = emit.one(OR, nans, emit.one(EQ, y, ahead))
        at = emit.one(Iota(y.aval.shape, dtypes.int32, self.axis))
        first = n - 1 if self.reverse else 0
        latest = emit.one(SELECT_N, same, at, Lit.of(first, at.aval))
        return emit.one((CumMin if self.reverse else CumMax)(self.axis, self.reverse), latest)


@final
@primitive
class CumMax(CumExtremum):
    """The greatest element up to each along `axis`, nan from the first nan on; from the end with `reverse`.

    Type: x integer, float or bool.
    Rule: the tangent of the first element that is as great.
    Cost: one pass.
    Source: stablehlo.while; stablehlo.reduce_window for short axes.
    """

    name: ClassVar[str] = "cummax"
    applies: ClassVar[str] = "stablehlo.maximum"
    sign: ClassVar[int] = 1
    axis: int
    reverse: bool

    def compute(self, x: NDArray) -> object:
        return np.maximum.accumulate(x)

    def along(self, axis: int, reverse: bool) -> CumMax:
        return CumMax(axis, reverse)


@final
@primitive
class CumMin(CumExtremum):
    """The least element up to each along `axis`, nan from the first nan on; from the end with `reverse`.

    Type: x integer, float or bool.
    Rule: the tangent of the first element that is as small.
    Cost: one pass.
    Source: stablehlo.while; stablehlo.reduce_window for short axes.
    """

    name: ClassVar[str] = "cummin"
    applies: ClassVar[str] = "stablehlo.minimum"
    sign: ClassVar[int] = -1
    axis: int
    reverse: bool

    def compute(self, x: NDArray) -> object:
        return np.minimum.accumulate(x)

    def along(self, axis: int, reverse: bool) -> CumMin:
        return CumMin(axis, reverse)


@final
@primitive
class CumLogSumExp(Cumulative):
    """log of the sum of exp of the elements up to each along `axis`; from the end with `reverse`. Nothing overflows.

    Type: x float, not float8.
    Rule: dy[i] = w dy[i - 1] + (1 - w) dx[i] with w = exp(y[i - 1] - y[i]), which lies in [0, 1].
    Cost: one pass.
    Source: stablehlo.while
    """

    name: ClassVar[str] = "cumlogsumexp"
    takes: ClassVar[frozenset[DType]] = WIDER
    applies: ClassVar[str] = ""
    axis: int
    reverse: bool

    def unit(self, dtype: DType) -> Lit:
        return Lit.of(-np.inf, Aval((), dtype))

    def join(self) -> Join:
        return log_add_exp

    def compute(self, x: NDArray) -> object:
        return np.logaddexp.accumulate(x)

    def along(self, axis: int, reverse: bool) -> CumLogSumExp:
        return CumLogSumExp(axis, reverse)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        ahead = predecessors(ctx, y, self.axis, self.reverse, self.unit(x.aval.dtype))
        # while the sum is 0, the tangent is 0
        empty = ctx.one(EQ, y, Lit.of(-np.inf, y.aval))
        old, new = [
            ctx.one(SELECT_N, empty, ctx.one(EXP, subtract_or_zero(ctx, part, y)), Zero(y.aval).instantiate())
            for part in (ahead, x)
        ]
        return (y,), ctx.lin(LinearRecurrence(self.axis, self.reverse), old, ctx.lin_one(MUL, t, new))


CUMULATIVE: Final = (CumSum, CumProd, CumMax, CumMin, CumLogSumExp, LinearRecurrence)
