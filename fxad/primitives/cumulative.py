"""Cumulative sums, products, extrema and log-sum-exp along an axis, and linear recurrences.

The tangent of a cumulative extremum is gathered from the places of the extrema. The tangents of all others are
cumulative too. That of a cumulative sum is the sum of the tangents, and its adjoint is the sum from the other end. The
tangents of the others are linear recurrences y[i] = a[i] y[i - 1] + b[i], whose derivatives and adjoints are linear
recurrences.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isqrt, prod
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.errors import mismatch
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    Hlo,
    HloValue,
    HloValues,
    Jaxpr,
    JvpCtx,
    LinearMap,
    Lit,
    NDArray,
    Primitive,
    Region,
    Shape,
    Tangents,
    Zero,
    primitive,
    primitive_family,
)
from fxad.primitives.axes import axis_after_insert
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import (
    ADD,
    MAX,
    MUL,
    MUL_NO_NAN,
    NEG,
    SUB,
    scale_tangent_no_nan,
)
from fxad.primitives.elementwise.exponential import EXP, LOG1P
from fxad.primitives.elementwise.family import FLOAT_ABOVE_8, ORDERED, as_accumulated
from fxad.primitives.elementwise.logic import AND, EQ, NE, OR
from fxad.primitives.elementwise.powers import ABS
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import LinearInOne
from fxad.primitives.gather_scatter import gather_along_axis, index_vectors
from fxad.primitives.index import index_dtype
from fxad.primitives.operand_checks import check_axis, check_count, check_dtype
from fxad.primitives.reduce import MAXIMUM, MINIMUM, PRODUCT, SUM, Monoid, ReduceAnd
from fxad.primitives.shape import Iota, Transpose, align_to_first, emit_broadcast, emit_reshape
from fxad.primitives.slicing import emit_slice, pad_along_axis
from fxad.primitives.stablehlo import i64_array, lower_in_float32
from fxad.support.constants import ROW_SIZE, UNSPLIT_STEPS, WINDOW_SIZE

# (left, right) -> combined: element by element, associative
CombineElements: TypeAlias = Callable[[Emit, Atoms, Atoms], Atoms]


@dataclass(frozen=True, slots=True)
class CumulativeOperation:
    """An associative operation: each result combines all elements up to its own; from the end for `reverse`."""

    name: str
    combine: CombineElements
    identities: tuple[object, ...]
    reverse: bool


SUMMED: Final = dtypes.NUMERIC - dtypes.FLOAT8


def predecessors(emit: Emit, x: Atom, axis: int, reverse: bool, start: Lit) -> Atom:
    """Return the element before each one along an axis, `start` before the first: [start, a, b] for [a, b, c]. With
    `reverse` the elements are counted from the end: [b, c, start]."""
    if x.aval.shape[axis] == 0:
        return x
    shift = -1 if reverse else 1
    return emit.one(pad_along_axis(x.aval.ndim, axis, low=shift, high=-shift), x, start)


def without_first_factor(emit: Emit, a: Atom, axis: int, reverse: bool) -> Atom:
    """Return the factors of a linear recurrence with 0 for the first one, which is not used. It would be multiplied by
    the 0 before the first element, which gives nan if it is infinite."""
    index = emit.one(Iota(a.aval.shape, index_dtype((a.aval.shape[axis],)), axis))
    first = a.aval.shape[axis] - 1 if reverse else 0
    return emit_where(emit, emit.one(EQ, index, Lit.of(first, index.aval)), Lit.zero(a.aval), a)


def compose_affine(emit: Emit, left: Atoms, right: Atoms) -> Atoms:
    """Return the map y -> right(left(y)) for maps y -> a y + b."""
    (a, b), (c, d) = left, right
    return emit.one(MUL, a, c), emit.one(ADD, emit.one(MUL, c, b), d)


def compose_affine_of_zeros(emit: Emit, left: Atoms, right: Atoms) -> Atoms:
    """Return the map y -> right(left(y)) for maps y -> a y + b, where c * 0 is 0 for every factor c of `right`. The
    product of the factors is an ordinary one: it is nan if one of them is."""
    (a, b), (c, d) = left, right
    zero = Lit.zero(b.aval)
    product = emit_where(emit, emit.one(EQ, b, zero), zero, emit.one(MUL, c, b))
    return emit.one(MUL, a, c), emit.one(ADD, product, d)


def _all_finite(emit: Emit, x: Atom) -> Atom:
    """Return True if no element is infinite or nan."""
    return emit.one(ReduceAnd(tuple(range(x.aval.ndim))), emit.one(EQ, emit.one(SUB, x, x), Lit.zero(x.aval)))


def check_same_type(prim: Primitive, axis: int, takes: frozenset[DType], *avals: Aval) -> None:
    """Check that operands have one type that `prim` takes, and the axis. Raises: AxisError, DTypeError, ShapeError."""
    x = avals[0]
    check_axis(prim.name, axis, x.ndim)
    for k, a in enumerate(avals):
        check_dtype(prim.name, a, takes)
        if a is not x:
            error = mismatch(a, x)
            raise error(f"{prim.name}: operands differ: operand 0 {x}, operand {k} {a}")


@final
@primitive
class LinearRecurrence(LinearInOne):
    """y[0] = b[0], then y[i] = a[i] y[i - 1] + b[i] along `axis`; from the end with `reverse`. The first factor is not
    used: the result is b[0] if it is infinite or nan. With `skip_zeros` the product of a factor and a previous result
    of 0 is 0, also if the factor is infinite or nan.

    Type: a, b of one type, float or complex, not float8; those below 32 bits are computed in float32.
    Rule: linear in b; the transpose is the recurrence from the other end with the next factor. d/da is the recurrence
          of da[i] y[i - 1]. Tangents and cotangents have `skip_zeros`: an element behind all that is read has a
          cotangent of 0 beside nan and infinities too (`mul_no_nan`).
    Cost: one pass. A long axis is computed in blocks, unless the product of the factors of a block is infinite or nan.
    Source: Blelloch, Prefix Sums and Their Applications (1990), 1.4.
    """

    name: ClassVar[str] = "linear_recurrence"
    linear_operand: ClassVar[int] = 1
    takes: ClassVar[frozenset[DType]] = SUMMED & dtypes.INEXACT
    axis: int
    reverse: bool
    skip_zeros: bool = False

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_same_type(self, self.axis, self.takes, *check_count(self, avals, 2))
        return avals[:1]

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        a, b = [np.moveaxis(as_accumulated(x), self.axis, 0) for x in args]
        y = b.copy()
        for previous, i in pairwise(range(len(b))[:: -1 if self.reverse else 1]):
            product = a[i] * y[previous]
            y[i] = (np.where(y[previous] == 0, 0, product) if self.skip_zeros else product) + b[i]
        return (np.moveaxis(y, 0, self.axis).astype(args[0].dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        x = ins[0]
        if x.size == 0 or x.shape[self.axis] == 1:
            return args[1:]
        return lower_in_float32(hlo, args, x, lambda wide, t: self._lower_wide(hlo, wide, t))

    def _lower_wide(self, hlo: Hlo, args: HloValues, x: Aval) -> HloValue:
        # y[i] is b of the composition of the maps 0 to i; y -> a y + b, then y -> c y + d, is y -> c a y + (c b + d)
        compose = compose_affine_of_zeros if self.skip_zeros else compose_affine
        operation = CumulativeOperation(self.name, compose, (1.0, 0.0), self.reverse)
        b = Builder()
        at_once = b.build(_cumulate_at_once(b, operation, self._maps(b, b.inputs((x, x))), self.axis)[1:], self.name)
        blocks = _block_count(x.shape, self.axis)
        if blocks == 1:
            return hlo.call(at_once, args)[0]
        within_blocks = self._within_blocks(operation, x, blocks)
        finite, *values = hlo.call(within_blocks, args)
        in_blocks = self._joined_blocks(operation, x, within_blocks.out_avals[1:])
        # a composition of maps with an infinite factor, or of an infinite value and a factor that underflows, may be
        # nan where applying one map after the other is not: 0 * inf
        branches = Region(in_blocks, tuple(values)), Region(at_once, tuple(args))
        return hlo.op("stablehlo.if", (finite,), (x,), regions=branches)[0]

    def _within_blocks(self, operation: CumulativeOperation, x: Aval, blocks: int) -> Jaxpr:
        """Return the program of the compositions within each block: whether the total factors and the results at the
        ends of blocks are finite, the compositions up to the ends (a, b), the rows of compositions (a, b)."""
        b = Builder()
        totals, rows = _scan_blocks(b, operation, self._maps(b, b.inputs((x, x))), self.axis, blocks)
        # of a composition of totals only b is used: so no product of their factors overflows
        ends = _cumulate_at_once(b, operation, totals, 1)
        finite = b.one(AND, _all_finite(b, totals[0]), _all_finite(b, ends[1]))
        return b.build((finite, *ends, *rows), f"{self.name}_blocks")

    def _joined_blocks(self, operation: CumulativeOperation, x: Aval, parts: Avals) -> Jaxpr:
        """Return the program from the compositions up to the ends of blocks and the rows, of types `parts`, to y."""
        b = Builder()
        a_ends, b_ends, *in_block = b.inputs(parts)
        combined = _combine_blocks(b, operation, (a_ends, b_ends), tuple(in_block))
        return b.build(_join_rows(b, combined[1:], x.shape, self.axis), self.name)

    def _maps(self, emit: Emit, args: Atoms) -> Atoms:
        """Return the maps y -> a y + b. The first one is constant."""
        a, b = args
        return without_first_factor(emit, a, self.axis, self.reverse), b

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args, at = align_to_first(ctx, args, dims)
        return ctx(replace(self, axis=axis_after_insert(self.axis, at)), *args), (at,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (a, b), (ta, tb) = primals, tangents
        y = ctx.one(self, a, b)
        if not isinstance(ta, Zero):
            previous = predecessors(ctx, y, self.axis, self.reverse, Lit.zero(y.aval.with_shape(())))
            # of a recurrence of tangents, a previous result of 0 stays 0 beside any factor
            product = (ta, previous) if self.skip_zeros else (previous, ta)
            tb = ctx.add(tb, ctx.lin_one(MUL_NO_NAN, *product))
        return (y,), ctx.lin(replace(self, skip_zeros=True), a, tb)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        (a,) = others
        following = predecessors(emit, a, self.axis, not self.reverse, Lit.zero(x.with_shape(())))
        return emit.one(LinearRecurrence(self.axis, not self.reverse, skip_zeros=True), following, ct)


@primitive_family
class Cumulative(Primitive):
    """Combine all elements up to each along `axis`; from the end with `reverse`. The result has the operand's type."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]]
    axis: int
    reverse: bool

    @abstractmethod
    def identity(self, dtype: DType) -> Lit:
        """Return the identity element."""

    @abstractmethod
    def combine(self) -> CombineElements:
        """Return the operation on two elements, as equations."""

    @abstractmethod
    def compute(self, x: NDArray) -> object:
        """Compute the result in NumPy along axis 0, from the front, for an axis that is not empty. Floats below 32 bits
        are given as float32."""

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_same_type(self, self.axis, self.takes, *check_count(self, avals, 1))
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        if x.size == 0:
            return (x,)
        front = np.moveaxis(as_accumulated(x), self.axis, 0)
        with np.errstate(all="ignore"):
            scanned = np.asarray(self.compute(front[::-1] if self.reverse else front))
        return (np.moveaxis(scanned[::-1] if self.reverse else scanned, 0, self.axis).astype(x.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,) = ins
        if x.size == 0 or x.shape[self.axis] == 1:
            return args
        return lower_in_float32(hlo, args, x, lambda wide, t: self.lower_wide(hlo, wide, t)[0])

    def lower_wide(self, hlo: Hlo, args: HloValues, x: Aval) -> HloValues:
        """Add StableHLO operations for an operand of at least 32 bits and of more than one element along the axis."""
        identity = self.identity(x.dtype).value
        operation = CumulativeOperation(self.name, self.combine(), (identity,), self.reverse)
        return hlo.call(cumulative_program(operation, (x,), self.axis), args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (dim,) = dims
        axis = self.axis if dim is None else axis_after_insert(self.axis, dim)
        return ctx(replace(self, axis=axis), *args), dims


class MonoidScan(Cumulative):
    """A cumulative operation of a monoid."""

    __slots__ = ()

    monoid: ClassVar[Monoid]

    @final
    def identity(self, dtype: DType) -> Lit:
        return self.monoid.identity(dtype)

    @final
    def combine(self) -> CombineElements:
        return lambda emit, left, right: emit(self.monoid.prim, *left, *right)

    @final
    def compute(self, x: NDArray) -> object:
        return self.monoid.ufunc.accumulate(x, dtype=x.dtype)

    @final
    def lower_wide(self, hlo: Hlo, args: HloValues, x: Aval) -> HloValues:
        n = x.shape[self.axis]
        if n > WINDOW_SIZE:
            return super().lower_wide(hlo, args, x)
        window = [n if a == self.axis else 1 for a in range(x.ndim)]
        pads = [[0, m - 1] if self.reverse else [m - 1, 0] for m in window]
        attrs = {"window_dimensions": i64_array(window), "padding": f"dense<{pads}> : tensor<{x.ndim}x2xi64>"}
        operands = (*args, hlo.constant(self.identity(x.dtype)))
        return hlo.op("stablehlo.reduce_window", operands, (x,), attrs, (self.monoid.prim.hlo_name,))


def subtract_or_zero(emit: Emit, a: Atom, b: Atom) -> Atom:
    """Return a - b, or 0 if both are the same infinity."""
    return emit_where(emit, emit.one(EQ, a, b), Lit.of(0.0, a.aval), emit.one(SUB, a, b))


def log_add_exp(emit: Emit, left: Atoms, right: Atoms) -> Atoms:
    """Return log(exp(a) + exp(b)), exact if one of them is infinite."""
    (a,), (b,) = left, right
    top = emit.one(MAX, a, b)
    increment = emit.one(LOG1P, emit.one(EXP, emit.one(NEG, emit.one(ABS, subtract_or_zero(emit, a, b)))))
    infinite = emit.one(EQ, emit.one(ABS, top), Lit.of(np.inf, top.aval))
    return (emit_where(emit, infinite, top, emit.one(ADD, top, increment)),)


@final
@primitive
class CumSum(MonoidScan, LinearMap, LinearInOne):
    """The sum of the elements up to each along `axis`; from the end with `reverse`.

    Type: x numeric, not float8; floats below 32 bits are added in float32.
    Rule: linear; the transpose is the running sum from the other end.
    Cost: one pass.
    Source: stablehlo.while; stablehlo.reduce_window for short axes.
    """

    name: ClassVar[str] = "cumsum"
    takes: ClassVar[frozenset[DType]] = SUMMED
    monoid: ClassVar[Monoid] = SUM

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(CumSum(self.axis, not self.reverse), ct)


@final
@primitive
class CumProd(MonoidScan):
    """The product of the elements up to each along `axis`; from the end with `reverse`.

    Type: x numeric, not float8; floats below 32 bits are multiplied in float32.
    Rule: dy[i] = x[i] dy[i - 1] + y[i - 1] dx[i]: right where elements are 0. Elements behind the last result that is
          read have a gradient of 0, whatever they are.
    Cost: one pass.
    Source: stablehlo.while; stablehlo.reduce_window for short axes.
    """

    name: ClassVar[str] = "cumprod"
    takes: ClassVar[frozenset[DType]] = SUMMED
    monoid: ClassVar[Monoid] = PRODUCT

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        previous = predecessors(ctx, y, self.axis, self.reverse, self.identity(x.aval.dtype))
        recurrence = LinearRecurrence(self.axis, self.reverse, skip_zeros=True)
        return (y,), ctx.lin(recurrence, x, scale_tangent_no_nan(ctx, t, previous))


class CumExtremum(MonoidScan):
    """The greatest or least element up to each. The tangent is that of the first element equal to it."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = ORDERED

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        if isinstance(t, Zero) or x.aval.size == 0:
            return (y,), (Zero(y.aval),)
        vectors = index_vectors(ctx, self._places(ctx, y))
        return (y,), ctx.lin(gather_along_axis(x.aval.shape, self.axis), t, vectors)

    def _places(self, emit: Emit, y: Atom) -> Atom:
        """Return the index at which the current extremum first occurs."""
        n = y.aval.shape[self.axis]
        previous = predecessors(emit, y, self.axis, self.reverse, Lit.zero(y.aval.with_shape(())))
        # a new extremum differs from the previous one; nan differs from itself, and no extremum follows it
        nans = emit.one(AND, emit.one(NE, y, y), emit.one(NE, previous, previous))
        same = emit.one(OR, nans, emit.one(EQ, y, previous))
        at = emit.one(Iota(y.aval.shape, index_dtype((n,)), self.axis))
        first = n - 1 if self.reverse else 0
        latest = emit_where(emit, same, Lit.of(first, at.aval), at)
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
    monoid: ClassVar[Monoid] = MAXIMUM


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
    monoid: ClassVar[Monoid] = MINIMUM


@final
@primitive
class CumLogSumExp(Cumulative):
    """log of the sum of exp of the elements up to each along `axis`; from the end with `reverse`. Nothing overflows.

    Type: x float, not float8.
    Rule: dy[i] = w dy[i - 1] + (1 - w) dx[i] with w = exp(y[i - 1] - y[i]), which lies in [0, 1]. Of several infinite
          elements the first has the tangent.
    Cost: one pass.
    Source: stablehlo.while
    """

    name: ClassVar[str] = "cumlogsumexp"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def identity(self, dtype: DType) -> Lit:
        return Lit.of(-np.inf, Aval((), dtype))

    def combine(self) -> CombineElements:
        return log_add_exp

    def compute(self, x: NDArray) -> object:
        return np.logaddexp.accumulate(x)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        previous = predecessors(ctx, y, self.axis, self.reverse, self.identity(x.aval.dtype))
        # while the sum is 0, the tangent is 0. A sum that is nan has a slope of nan, which is a constant: where it is
        # not read, the second derivative would multiply nan and 0
        empty, is_nan = ctx.one(EQ, y, Lit.of(-np.inf, y.aval)), ctx.one(NE, y, y)
        zero, nan = Lit.zero(y.aval), Lit.of(np.nan, y.aval)
        total, *parts = [emit_where(ctx, is_nan, zero, part) for part in (y, previous, x)]
        old, new = [emit_where(ctx, empty, zero, ctx.one(EXP, subtract_or_zero(ctx, part, total))) for part in parts]
        # the first infinite element decides the sum
        decided = ctx.one(EQ, previous, Lit.of(np.inf, y.aval))
        old = emit_where(ctx, is_nan, nan, old)
        new = emit_where(ctx, is_nan, nan, emit_where(ctx, decided, zero, new))
        recurrence = LinearRecurrence(self.axis, self.reverse, skip_zeros=True)
        return (y,), ctx.lin(recurrence, old, scale_tangent_no_nan(ctx, t, new))


# ---------------------------------------------------------------------------------------------------------- lowering

# A loop runs along the axis and combines one row of all other elements per step. If rows are short, the axis is split
# into blocks that are scanned in parallel; then the totals of the blocks are scanned, and the prefix of each block is
# combined with all its elements. The cumulative sum of [1, 2, 3, 4, 5, 6], in 2 blocks of 3 steps:
#
#   rows        [1, 4]  [2, 5]   [3, 6]      one row per step, one element of each block
#   scanned     [1, 4]  [3, 9]   [6, 15]     the totals of the blocks are [6, 15]
#   prefixes    [0, 6]                       the totals before each block: scanned again, and shifted by one
#   results     [1, 10] [3, 15]  [6, 21]     in order: 1, 3, 6, 10, 15, 21
#
# XLA's window reduction takes three times as long to run and to compile (a million floats: 12 ms and 220 ms).


def cumulative_program(operation: CumulativeOperation, avals: tuple[Aval, ...], axis: int) -> Jaxpr:
    """Return the program of a cumulative operation.

    Type: operands of one shape -> results of the same types.
    """
    b = Builder()
    return b.build(_cumulate_along(b, operation, b.inputs(avals), axis), operation.name)


def _cumulate_along(emit: Emit, op: CumulativeOperation, xs: Atoms, axis: int) -> Atoms:
    blocks = _block_count(xs[0].aval.shape, axis)
    if blocks == 1:
        return _cumulate_at_once(emit, op, xs, axis)
    totals, rows = _scan_blocks(emit, op, xs, axis, blocks)
    rows = _combine_blocks(emit, op, _cumulate_along(emit, op, totals, 1), rows)
    return _join_rows(emit, rows, xs[0].aval.shape, axis)


def _cumulate_at_once(emit: Emit, op: CumulativeOperation, xs: Atoms, axis: int) -> Atoms:
    """Return the results, computed one after the other."""
    _, rows = _scan_blocks(emit, op, xs, axis, 1)
    return _join_rows(emit, rows, xs[0].aval.shape, axis)


def _block_count(shape: Shape, axis: int) -> int:
    """Return the number of blocks into which an axis is split."""
    n = shape[axis]
    row = prod(shape[:axis]) * prod(shape[axis + 1 :])
    return min(-(-ROW_SIZE // max(row, 1)), isqrt(n)) if n > UNSPLIT_STEPS else 1


def _scan_blocks(emit: Emit, op: CumulativeOperation, xs: Atoms, axis: int, blocks: int) -> tuple[Atoms, Atoms]:
    """Return the totals of the blocks, and the cumulative values inside of each block, as rows."""
    shape = xs[0].aval.shape
    before, n, after = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    steps = -(-n // blocks)
    split = [
        emit_reshape(emit, _pad_end(emit, x, axis, blocks * steps - n, identity), (before, blocks, steps, after))
        for x, identity in zip(xs, op.identities, strict=True)
    ]
    return _scan_rows(emit, op, [_permute(emit, x, (2, 0, 1, 3)) for x in split])


def _combine_blocks(emit: Emit, op: CumulativeOperation, totals: Atoms, rows: Atoms) -> Atoms:
    """Return the rows, each block combined with the blocks before it. `totals` are cumulative."""
    prefixes = [
        predecessors(emit, t, 1, op.reverse, Lit.of(identity, t.aval.with_shape(())))
        for t, identity in zip(totals, op.identities, strict=True)
    ]
    return op.combine(emit, tuple([emit_broadcast(emit, t, rows[0].aval.shape, (1, 2, 3)) for t in prefixes]), rows)


def _join_rows(emit: Emit, rows: Atoms, shape: Shape, axis: int) -> Atoms:
    """Return rows as arrays of a shape whose axis is the blocks, one after the other, without padding at the end."""
    steps, before, blocks, after = rows[0].aval.shape
    n = shape[axis]
    joined = [emit_reshape(emit, _permute(emit, r, (1, 2, 0, 3)), (before, blocks * steps, after)) for r in rows]
    return tuple([emit_reshape(emit, emit_slice(emit, y, 1, 0, n) if blocks * steps > n else y, shape) for y in joined])


def _pad_end(emit: Emit, x: Atom, axis: int, count: int, identity: object) -> Atom:
    if count == 0:
        return x
    return emit.one(pad_along_axis(x.aval.ndim, axis, high=count), x, Lit.of(identity, x.aval.with_shape(())))


def _permute(emit: Emit, x: Atom, axes: tuple[int, ...]) -> Atom:
    """Return `x` with its axes permuted; a reshape if only axes of size 1 change their order."""
    shape = x.aval.shape
    if [a for a in axes if shape[a] > 1] == [a for a in range(len(shape)) if shape[a] > 1]:
        return emit_reshape(emit, x, tuple([shape[a] for a in axes]))
    return emit.one(Transpose(axes), x)


def _scan_rows(emit: Emit, op: CumulativeOperation, rows: Sequence[Atom]) -> tuple[Atoms, Atoms]:
    """Return the totals of all rows, and the cumulative values."""
    b, k = Builder(), len(rows)
    row = [r.aval.with_shape(r.aval.shape[1:]) for r in rows]
    total, x = b.inputs(row), b.inputs(row)
    new = op.combine(b, total, x)
    body = b.build((*new, *new), f"{op.name}_step")
    start = [Lit.of(identity, a) for identity, a in zip(op.identities, row, strict=True)]
    outs = emit(Scan(body, rows[0].aval.shape[0], op.reverse, 1, 0, k), *start, *rows)
    return outs[:k], outs[k:]


CUMULATIVE: Final = (CumSum, CumProd, CumMax, CumMin, CumLogSumExp, LinearRecurrence)
