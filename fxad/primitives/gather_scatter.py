"""Reads and writes of windows at the places in an index array. gather and scatter_add are duals.

The other scatters replace elements, multiply with them, or keep the minimum or maximum. Their tangents use scatter_add
and gather, so second derivatives need no further rules. `dimension_numbers` says where the windows are.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar, Final, Self, TypeVar, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.sizes.size import minimum
from fxad.dtypes import DType
from fxad.errors import DTypeError, NotDifferentiableError, ShapeError
from fxad.ir import (
    INT32_SCALAR,
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
    HloValues,
    Hole,
    Jaxpr,
    JvpCtx,
    Linear,
    Lit,
    NDArray,
    Operands,
    Primitive,
    Shape,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
    primitive_family,
)
from fxad.primitives.axes import axes_after_insert, insert_entry, other_axes
from fxad.primitives.dimension_numbers import (
    DimensionNumbers,
    GatherScatterMode,
    clamp_starts,
    widen_indices,
    windows_in_range,
)
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MUL
from fxad.primitives.elementwise.convert import convert_tangent, emit_convert
from fxad.primitives.elementwise.family import ORDERED, as_accumulated
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import SELECT_N, emit_where
from fxad.primitives.families import LinearInFirst, LinearInOne, only_cotangent
from fxad.primitives.operand_checks import check_count, check_ranks, check_window
from fxad.primitives.reduce import MAXIMUM, MINIMUM, PRODUCT, SUM, Monoid
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Iota, Reshape, Squeeze, broadcast_to_axis, move_axis
from fxad.primitives.stablehlo import bool_attribute, i64_array, zeros_constant
from fxad.support.constants import ELEMENTS_PER_UPDATE

S = TypeVar("S", bound="ScatterFamily")

# the names of the dimension numbers in the attributes of StableHLO
_GATHER_NAMES: Final = (
    "offset_dims",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "start_index_map",
)
_SCATTER_NAMES: Final = (
    "update_window_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims",
)


@final
@primitive
class Gather(LinearInFirst):
    """Windows of `slice_sizes` at the places in an index array.

    `mode` defines windows out of range: they are clamped (`clip`), zero (`drop`), or promised not to occur.

    Type: x of any dtype, indices of any integer dtype, index vectors on their last axis.
    Rule: linear in x; transpose is scatter_add into zeros.
    Source: stablehlo.gather, with index_vector_dim the last axis of the indices.
    """

    name: ClassVar[str] = "gather"
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    start_indices_batching_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    slice_sizes: Shape
    mode: GatherScatterMode
    indices_sorted: bool
    unique_indices: bool

    @property
    def windows(self) -> DimensionNumbers:
        """The dimension numbers."""
        return DimensionNumbers(
            self.offset_dims,
            self.collapsed_slice_dims,
            self.operand_batching_dims,
            self.start_indices_batching_dims,
            self.start_index_map,
        )

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        x, indices = check_count(self, avals, 2)
        windows = self.windows
        windows.check("gather", x, indices, self.mode)
        check_ranks("gather", x, slice_sizes=self.slice_sizes)
        axes = windows.axes(x.ndim)
        check_window("gather", x, self.slice_sizes)
        for a, size in enumerate(self.slice_sizes):
            if a not in axes and size > 1:
                raise ShapeError(f"gather: axis {a} is collapsed or batched, its window has size {size}, not 1")
        return (Aval(windows.gathered(indices.shape, tuple([self.slice_sizes[a] for a in axes])), x.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, indices = args
        windows = self.windows
        window_shape = (*indices.shape[:-1], *[self.slice_sizes[a] for a in windows.axes(x.ndim)])
        if x.size == 0:
            out = np.zeros(window_shape, x.dtype)
        else:
            positions, in_range = windows.window_positions(x.shape, indices, self.slice_sizes)
            gathered = x[positions] if positions else np.broadcast_to(x, in_range.shape)
            if self.mode == "drop":
                gathered = np.where(in_range.reshape(in_range.shape + (1,) * x.ndim), gathered, np.zeros((), x.dtype))
            out = gathered.reshape(window_shape)
        return (out.transpose(windows.permutation(out.ndim)),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        x, indices = ins
        if x.size == 0 or outs[0].size == 0:
            return (zeros_constant(hlo, outs[0]),)
        if self.mode == "drop" or indices.dtype.itemsize < 4:
            return hlo.call(self._with_explicit_range_check(x, indices), args)
        attrs = {
            "dimension_numbers": self.windows.attribute("gather", _GATHER_NAMES, indices.ndim - 1),
            "slice_sizes": i64_array(self.slice_sizes),
            "indices_are_sorted": bool_attribute(self.indices_sorted),
        }
        return hlo.op("stablehlo.gather", args, outs, attrs)

    def _with_explicit_range_check(self, x: Aval, indices: Aval) -> Jaxpr:
        """Return an equivalent program whose gather needs no rule for windows out of range."""
        b = Builder()
        operand, vectors = b.inputs((x, indices))
        starts = widen_indices(b, vectors)
        out = b.one(self._with(self.windows, self.slice_sizes, "clip"), operand, starts)
        if self.mode == "drop" and self.start_index_map:
            within = windows_in_range(
                b, starts, tuple([x.shape[a] - self.slice_sizes[a] for a in self.start_index_map])
            )
            batch = other_axes(self.offset_dims, out.aval.ndim)
            mask = b.one(BroadcastInDim(out.aval.shape, batch), within)
            out = emit_where(b, mask, out, Lit.zero(out.aval))
        return b.build((out,), "gather")

    def _with(self, w: DimensionNumbers, sizes: Shape, mode: GatherScatterMode, *, stacked: bool = False) -> Gather:
        """Return the gather with other dimension numbers. `stacked`: it takes a stack of index arrays. As a whole these
        are not sorted, and unique only if the operand is a stack too, so that they read different operands."""
        paired = len(w.batched) > len(self.operand_batching_dims)
        unique = self.unique_indices and (paired or not stacked)
        return Gather(*w.numbers, sizes, mode, self.indices_sorted and not stacked, unique)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x, indices), (dim, index_dim) = args, dims
        stacked = index_dim is not None
        windows, out_dim = self.windows.mapped(len(self.slice_sizes), operand=dim, indices=stacked)
        sizes = self.slice_sizes
        if dim is not None:
            n = x.aval.shape[dim]
            sizes = insert_entry(sizes, dim, minimum(1, n) if stacked else n)
        if index_dim is not None:
            indices = move_axis(ctx, indices, index_dim, 0)
        return ctx(self._with(windows, sizes, self.mode, stacked=stacked), x, indices), (out_dim,)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        scatter = ScatterAdd(*self.windows.numbers, self.mode, self.indices_sorted, self.unique_indices)
        return emit.one(scatter, Lit.zero(x), *others, ct)


def gather_along_axis(
    shape: Shape, axis: int, *, mode: GatherScatterMode = "promise_in_bounds", unique_indices: bool = False
) -> Gather:
    """Return the gather that is NumPy's `take_along_axis`, for an operand of this shape.

    It takes index vectors of size 1: the indices with one more axis. Their shape may differ from that of the operand
    along `axis`. For [[a, b, c], [d, e, f]], axis 1 and the indices [[2, 0], [1, 0]] it gives [[c, a], [e, d]].
    """
    batch_axes = other_axes((axis,), len(shape))
    return Gather(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        operand_batching_dims=batch_axes,
        start_indices_batching_dims=batch_axes,
        start_index_map=(axis,),
        slice_sizes=tuple([minimum(1, n) for n in shape]),
        mode=mode,
        indices_sorted=False,
        unique_indices=unique_indices,
    )


def scatter_along_axis(kind: type[S], ndim: int, axis: int, mode: GatherScatterMode) -> S:
    """Return the scatter of elements to places along an axis: the other direction of `gather_along_axis`."""
    batch_axes = other_axes((axis,), ndim)
    return kind(
        update_window_dims=(),
        inserted_window_dims=(axis,),
        operand_batching_dims=batch_axes,
        scatter_indices_batching_dims=batch_axes,
        scatter_dims_to_operand_dims=(axis,),
        mode=mode,
        indices_sorted=False,
        unique_indices=False,
    )


def index_vectors(emit: Emit, indices: Atom) -> Atom:
    """Return indices as index vectors of size 1."""
    return emit.one(ExpandDims((indices.aval.ndim,)), indices)


def gather_window_per_example(
    sizes: Shape, dropped: tuple[int, ...], indexed: tuple[int, ...], dim: int | None, count: int
) -> Gather:
    """Return the gather of one window for each of `count` examples, clamped, stacked along axis 0 of the result. The
    index vectors are stacked along axis 0 of the indices.

    `sizes`, `dropped` and `indexed` are the window's sizes, the axes that the result does not have, and the axes that
    an index vector is for, in an operand without mapped axis. `dim` is the mapped axis of the operand, if it has one.
    """
    if dim is not None:
        sizes = insert_entry(sizes, dim, minimum(1, count))
        dropped, indexed = axes_after_insert(dropped, dim), axes_after_insert(indexed, dim)
    n_mapped = int(dim is not None)
    return Gather(
        offset_dims=tuple(range(1, len(sizes) - n_mapped - len(dropped) + 1)),
        collapsed_slice_dims=dropped,
        operand_batching_dims=() if dim is None else (dim,),
        start_indices_batching_dims=() if dim is None else (0,),
        start_index_map=indexed,
        slice_sizes=sizes,
        mode="clip",
        indices_sorted=False,
        unique_indices=False,
    )


@primitive_family
class ScatterFamily(Primitive):
    """Combine windows of x, at the places in an index array, with updates.

    `mode` defines windows out of range: they are clamped (`clip`), left out (`drop`), or promised not to occur.

    Type: x, indices of any integer dtype with index vectors on their last axis, updates of x's dtype.
    Source: stablehlo.scatter, with index_vector_dim the last axis of the indices; updates of the same element are
            combined in any order. `impl` adds and multiplies floats below 32 bits in float32 and rounds once. So do
            compiled programs, unless the operand has many elements for each update. Then each partial result is
            rounded, as in jax: 3,000 ones are 2,048 in float16.
    """

    __slots__ = ()

    monoid: ClassVar[Monoid | None]  # combines an element and its updates; None: an update replaces the element
    takes: ClassVar[frozenset[DType]]

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    mode: GatherScatterMode
    indices_sorted: bool
    unique_indices: bool

    def with_windows(
        self,
        windows: DimensionNumbers,
        mode: GatherScatterMode,
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> Self:
        """Return the same primitive with other dimension numbers, mode and promises."""
        return type(self)(*windows.numbers, mode, indices_sorted, unique_indices)

    @property
    def windows(self) -> DimensionNumbers:
        """The dimension numbers."""
        return DimensionNumbers(
            self.update_window_dims,
            self.inserted_window_dims,
            self.operand_batching_dims,
            self.scatter_indices_batching_dims,
            self.scatter_dims_to_operand_dims,
        )

    def sizes(self, x: Shape, updates: Shape) -> Shape:
        """Return the size of the window on each axis of x."""
        window = dict(zip(self.windows.axes(len(x)), [updates[a] for a in self.update_window_dims], strict=True))
        return tuple([window.get(a, minimum(1, n)) for a, n in enumerate(x)])

    @final
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        x, indices, updates = check_count(self, avals, 3)
        windows = self.windows
        windows.check(self.name, x, indices, self.mode)
        if x.dtype not in self.takes:
            raise DTypeError(f"{self.name}: is not defined for {x}", remedy="convert the operand first")
        if updates.dtype != x.dtype:
            raise DTypeError(f"{self.name}: dtypes differ: operand {x}, updates {updates}")
        if updates.ndim != indices.ndim - 1 + len(windows.offset):
            raise ShapeError(
                f"{self.name}: updates {updates} must have {indices.ndim - 1} axes of indices {indices} and "
                f"{len(windows.offset)} of the window"
            )
        sizes = self.sizes(x.shape, updates.shape)
        want = windows.gathered(indices.shape, tuple([sizes[a] for a in windows.axes(x.ndim)]))
        if updates.shape != want:
            raise ShapeError(f"{self.name}: shapes differ: updates {updates}, indices {indices} ask for {want}")
        check_window(self.name, x, sizes)
        return (x,)

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, indices, updates = args
        if x.size == 0 or updates.size == 0:
            return (x,)
        windows, sizes = self.windows, self.sizes(x.shape, updates.shape)
        positions, in_range = windows.window_positions(x.shape, indices, sizes)
        # (batch, window) order, with axes of size 1 where the window has none
        back = np.argsort(windows.permutation(updates.ndim))
        update_windows = updates.transpose(back).reshape(in_range.shape + sizes)
        kept = np.broadcast_to(
            in_range.reshape(in_range.shape + (1,) * x.ndim) | (self.mode == "clip"), update_windows.shape
        )
        out = np.array(x, ndmin=1)  # a 0-d operand has one place
        at = tuple([p[kept] for p in positions]) or (np.zeros(np.count_nonzero(kept), np.int64),)
        if self.monoid is None:
            out[at] = update_windows[kept]
        else:
            total = as_accumulated(out)
            self.monoid.ufunc.at(total, at, as_accumulated(update_windows[kept]))
            out[...] = total
        return (out.reshape(x.shape),)

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        x, indices, updates = ins
        if x.size == 0 or updates.size == 0:
            return (args[0],)
        if self._in_float32(x, indices, updates):
            wide, wide_updates = [a.with_dtype(dtypes.float32) for a in (x, updates)]
            operand, values = [
                hlo.op("stablehlo.convert", (a,), (t,))[0] for a, t in ((args[0], wide), (args[2], wide_updates))
            ]
            scattered = self.lower(hlo, (operand, args[1], values), (wide, indices, wide_updates), (wide,))
            return hlo.op("stablehlo.convert", scattered, outs)
        if indices.shape[-1] == 0:
            return hlo.call(self._with_one_index(x, indices, updates), args)
        if self.mode == "clip" or indices.dtype.itemsize < 4:
            return hlo.call(self._with_explicit_range_check(x, indices, updates), args)
        attrs = {
            "scatter_dimension_numbers": self.windows.attribute("scatter", _SCATTER_NAMES, indices.ndim - 1),
            "indices_are_sorted": bool_attribute(self.indices_sorted),
            "unique_indices": bool_attribute(self.unique_indices),
        }
        region = self.monoid.prim.hlo_name if self.monoid else _replace_program(x.with_shape(()))
        return hlo.op("stablehlo.scatter", args, outs, attrs, (region,))

    def _in_float32(self, x: Aval, indices: Aval, updates: Aval) -> bool:
        """Return True if updates of floats below 32 bits may meet, and are to be combined in float32. XLA would round
        each partial result, and it would not be faster."""
        may_meet = not self.unique_indices and prod(indices.shape[:-1]) > 1
        rounds = self.monoid in (SUM, PRODUCT) and dtypes.accumulated(x.dtype) != x.dtype
        return may_meet and rounds and x.size <= ELEMENTS_PER_UPDATE * updates.size

    def _with_explicit_range_check(self, x: Aval, indices: Aval, updates: Aval) -> Jaxpr:
        """Return an equivalent program whose scatter drops windows out of range."""
        b = Builder()
        operand, vectors, values = b.inputs((x, indices, updates))
        at = widen_indices(b, vectors)
        if self.mode == "clip":
            sizes = self.sizes(x.shape, updates.shape)
            at = clamp_starts(b, at, tuple([x.shape[a] - sizes[a] for a in self.scatter_dims_to_operand_dims]))
        scatter = self.with_windows(self.windows, "drop", self.indices_sorted, self.unique_indices)
        return b.build(b(scatter, operand, at, values), self.name)

    def _with_one_index(self, x: Aval, indices: Aval, updates: Aval) -> Jaxpr:
        """Return an equivalent program with one more index, into a new axis of size 1: XLA fails on empty index
        vectors."""
        b = Builder()
        operand, _, values = b.inputs((x, indices, updates))
        windows, _ = self.windows.mapped(x.ndim, operand=0, indices=False)
        offset, index_map = self.windows.offset, (0, *windows.index_map)
        windows = DimensionNumbers(offset, (0, *windows.collapsed), windows.batched, windows.index_batched, index_map)
        scatter = self.with_windows(windows, "drop", self.indices_sorted, self.unique_indices)
        at = Lit.of(0, Aval((*indices.shape[:-1], 1), dtypes.int32))
        out = b.one(scatter, b.one(ExpandDims((0,)), operand), at, values)
        return b.build((b.one(Squeeze((0,)), out),), self.name)

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x, indices, updates), (dim, index_dim, update_dim) = args, dims
        ndim = x.aval.ndim - (dim is not None)
        dim, x = (0, broadcast_to_axis(ctx, x, None, ctx.size, 0)) if dim is None else (dim, x)
        stacked = index_dim is not None
        windows, at = self.windows.mapped(ndim, operand=dim, indices=stacked)
        if index_dim is not None:
            indices = move_axis(ctx, indices, index_dim, 0)
        updates = broadcast_to_axis(ctx, updates, update_dim, ctx.size, at)
        scatter = self.with_windows(windows, self.mode, self.indices_sorted and not stacked, self.unique_indices)
        return ctx(scatter, x, indices, updates), (dim,)

    def read(self, emit: Emit, x: Atom, indices: Atom, updates: Aval) -> Atom:
        """Return the windows of `x` that the updates apply to; zero for updates that are left out."""
        sizes = self.sizes(x.aval.shape, updates.shape)
        gather = Gather(*self.windows.numbers, sizes, self.mode, self.indices_sorted, self.unique_indices)
        return emit.one(gather, x, indices)

    def adding(self) -> ScatterAdd:
        """Return the scatter_add with the same windows."""
        return ScatterAdd(*self.windows.numbers, self.mode, self.indices_sorted, self.unique_indices)


def _replace_program(scalar: Aval) -> Jaxpr:
    b = Builder()
    return b.build(b.inputs((scalar, scalar))[1:], "second")


@final
@primitive
class ScatterAdd(ScatterFamily, Linear):
    """Add updates to windows of x at the places in an index array. Updates of the same element are summed.

    Type: x of any dtype but bool, indices of any integer dtype, updates of x's dtype.
    Rule: linear in x and the updates together; the cotangent of the updates is a gather.
    Source: stablehlo.scatter with stablehlo.add; see `ScatterFamily`.
    """

    name: ClassVar[str] = "scatter_add"
    monoid: ClassVar[Monoid | None] = SUM
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(self, tangents[0], primals[1], tangents[2])

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags == (True, False, True)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, indices, updates) = only_cotangent(cts), args
        assert not isinstance(indices, Hole), "scatter_add is not linear in its indices"
        updates_bar = self.read(ctx, ct, indices, updates.aval) if isinstance(updates, Hole) else None
        return ct if isinstance(x, Hole) else None, None, updates_bar


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
        one = Lit.of(1, INT32_SCALAR)
        numbers = ctx.one(ADD, ctx.one(Iota((size,), dtypes.int32, 0)), one.with_shape((size,)))
        numbers = ctx.one(Reshape(shape), numbers)
        owner = ctx.one(self, Lit.of(0, x.aval.with_dtype(dtypes.int32)), indices, numbers)
        stored = ctx.one(EQ, self.read(ctx, owner, indices, numbers.aval), numbers)
        unwritten = ctx.one(EQ, owner, Lit.of(0, owner.aval))
        tx = ctx.lin_one(SELECT_N, unwritten, Zero(tx.aval), tx)
        tu = ctx.lin_one(SELECT_N, stored, Zero(tu.aval), tu)
        return ctx(self, *primals), ctx.lin(self.adding(), tx, indices, tu)

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return self.unique_indices and flags == (True, False, True)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, indices, updates) = only_cotangent(cts), args
        assert not isinstance(indices, Hole), "scatter is not linear in its indices"
        x_bar = ctx.one(self, ct, indices, Lit.zero(updates.aval)) if isinstance(x, Hole) else None
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
        scaled = ctx.lin_one(MUL, tu, self.read(ctx, x, indices, updates.aval))
        t_add = ctx.lin_one(self.adding(), Zero(x.aval), indices, scaled)
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
        # float16 and bfloat16 count to 2,048 and 256
        add, wide = self.adding(), dtypes.accumulated(x.aval.dtype)
        tied = emit_convert(ctx, ctx.one(EQ, x, out), wide)
        updates_tied = emit_convert(ctx, ctx.one(EQ, updates, self.read(ctx, out, indices, updates.aval)), wide)
        # the number of values equal to the extremum; 0 if it is nan
        count = ctx.one(MAX, ctx.one(add, tied, indices, updates_tied), Lit.of(1, tied.aval))
        # for updates that are left out, 0 is read
        count_read = ctx.one(MAX, self.read(ctx, count, indices, updates_tied.aval), Lit.of(1, updates_tied.aval))
        tx = ctx.lin_one(MUL, convert_tangent(ctx, tx, wide), ctx.one(DIV, tied, count))
        tu = ctx.lin_one(MUL, convert_tangent(ctx, tu, wide), ctx.one(DIV, updates_tied, count_read))
        return (out,), (convert_tangent(ctx, ctx.lin_one(add, tx, indices, tu), x.aval.dtype),)


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


GATHER_SCATTER: Final = (Gather, ScatterAdd, Scatter, ScatterMul, ScatterMin, ScatterMax)
