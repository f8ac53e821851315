"""NumPy's indexing in one equation each: `index` for ints and slices, `index_vectors` for integer arrays.

Both take run-time indices as the user writes them: of any integer dtype, negative ones counted from the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.sizes.size import Size, may_fit
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError
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
    HloValues,
    Jaxpr,
    Lit,
    NDArray,
    Shape,
    params,
    primitive,
)
from fxad.primitives.axes import axes_after_insert, insert_entry, remove_axes
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice
from fxad.primitives.elementwise.arithmetic import ADD, MAX, MIN
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import LT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import LinearInFirst, WithoutTangent
from fxad.primitives.gather_scatter import gather_window_per_example
from fxad.primitives.operand_checks import check_axes, check_ranks
from fxad.primitives.shape import (
    ReduceSum,
    Squeeze,
    broadcast_to_axis,
    emit_broadcast,
    emit_expand_dims,
    emit_reshape,
    move_axis,
)
from fxad.primitives.slicing import Concatenate, Pad, Slice

INT32_MAX: Final = 2**31 - 1


# ------------------------------------------------------------------------------------ indices counted from the front


def index_dtype(sizes: Sequence[int]) -> DType:
    """Return the dtype of indices into axes of these sizes: int32 if it can hold them all. A size without a number is
    assumed to fit, as the program of every size has one dtype; `check_positions` refuses the sizes that do not."""
    return dtypes.int32 if max([n for n in sizes if type(n) is int], default=0) <= INT32_MAX else dtypes.int64


def check_positions(what: str, jaxpr: Jaxpr, value: Callable[[int], int]) -> None:
    """Check the assumption of `index_dtype` for sizes that get a number, `value(size)`: each dimension, each number of
    steps and each number of integers that are added up fits in int32. Bodies are checked when they are transformed.

    Raises: ShapeError.
    """
    sizes = {n: None for v in (*jaxpr.ins, *[v for eqn in jaxpr.eqns for v in eqn.outs]) for n in v.aval.shape}
    for prim in dict.fromkeys(jaxpr.prims):
        sizes.update({n: None for _, n in params(prim) if type(n) is Size})
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, ReduceSum) and eqn.outs[0].aval.dtype is dtypes.int32:
            shape = eqn.ins[0].aval.shape
            sizes[reduce(mul, [shape[k] for k in eqn.prim.axes], 1)] = None
    for n in sizes:
        if type(n) is Size and type(number := value(n)) is int and number > INT32_MAX:
            raise ShapeError(
                f"{what}: {n} is {number}, and a program of symbolic shape counts with int32",
                remedy="trace the function at these sizes",
            )


def _may_not_fit(from_dtype: DType, dtype: DType) -> bool:
    """Return True if an index of dtype `from_dtype` may not fit in `dtype`, which is int32 or int64."""
    if from_dtype.itemsize == dtype.itemsize:
        return from_dtype in dtypes.UNSIGNED
    return from_dtype.itemsize > dtype.itemsize


def normalize_index(emit: Emit, i: Atom, size: int, dtype: DType) -> Atom:
    """Return indices into an axis of `size`, counted from its front, in `dtype`. An index out of range stays out of
    range."""
    if isinstance(i, Lit) and (i.size is not None or type(size) is Size):
        index = i.integer
        return Lit.of(index if index >= 0 else index + size, i.aval.with_dtype(dtype))
    if isinstance(i, Lit):
        return Lit.of(int(normalize_index_numpy(np.asarray(i.value), size, dtype)), i.aval.with_dtype(dtype))
    signed = i.aval.dtype not in dtypes.UNSIGNED
    if _may_not_fit(i.aval.dtype, dtype):
        i = emit.one(MIN, i, Lit.of(size, i.aval))
        i = emit.one(MAX, i, Lit.of(-size - 1, i.aval)) if signed else i
    if i.aval.dtype is not dtype:
        i = emit.one(ConvertElementType(dtype), i)
    if not signed:
        return i
    return emit_where(emit, emit.one(LT, i, Lit.of(0, i.aval)), emit.one(ADD, i, Lit.of(size, i.aval)), i)


def normalize_index_numpy(i: NDArray, size: int, dtype: DType) -> NDArray:
    """Return `normalize_index`, in NumPy."""
    if _may_not_fit(i.dtype, dtype):
        i = np.minimum(i, np.asarray(size, i.dtype))
        i = np.maximum(i, np.asarray(-size - 1, i.dtype)) if i.dtype not in dtypes.UNSIGNED else i
    signed = i.astype(np.int64)
    return np.where(signed < 0, signed + size, signed).astype(dtype)


@final
@primitive
class IndexVectors(WithoutTangent):
    """Integer arrays, one for each of the axes they index, as the index vectors of a gather or scatter.

    Type: integer arrays of any dtypes whose shapes broadcast together, one for each of `sizes`, those of the axes;
          the result has the vectors on its last axis, in i32 (i64 where a size asks for it).
    Rule: negative indices count from the end; indices out of range stay out of range.
    """

    name: ClassVar[str] = "index_vectors"
    sizes: Shape

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if not avals or len(avals) != len(self.sizes):
            raise ArgumentError(f"index_vectors: takes one operand for each of sizes {self.sizes}, got {len(avals)}")
        for k, a in enumerate(avals):
            if a.dtype not in dtypes.INTEGER:
                raise DTypeError(f"index_vectors: operand {k} must be an integer array, got {a}")
        if any([n < 0 for n in self.sizes]):
            raise ParameterError(f"index_vectors: sizes {self.sizes} of axes are not negative")
        if len(avals) == 1:
            return (Aval((*avals[0].shape, 1), index_dtype(self.sizes)),)
        rank = max([a.ndim for a in avals])
        shape: list[int] = []
        for row in zip(*[(1,) * (rank - a.ndim) + a.shape for a in avals], strict=True):
            sizes = {n for n in row if n != 1}
            if len(sizes) > 1:
                raise ShapeError(f"index_vectors: shapes do not broadcast: {', '.join(map(str, avals))}")
            shape.append(sizes.pop() if sizes else 1)
        return (Aval((*shape, len(avals)), index_dtype(self.sizes)),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        dtype = index_dtype(self.sizes)
        columns = [normalize_index_numpy(i, n, dtype) for i, n in zip(args, self.sizes, strict=True)]
        return (np.stack(np.broadcast_arrays(*columns), -1),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        b, dtype, shape = Builder(), index_dtype(self.sizes), outs[0].shape[:-1]
        columns = []
        for i, n in zip(b.inputs(ins), self.sizes, strict=True):
            column = normalize_index(b, i, n, dtype)
            lead = len(shape) - column.aval.ndim
            columns.append(emit_broadcast(b, column, (*shape, 1), tuple(range(lead, len(shape)))))
        out = columns[0] if len(columns) == 1 else b.one(Concatenate(len(shape)), *columns)
        return hlo.call(b.build((out,), "index_vectors"), args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        ndim = max([a.aval.ndim - (d is not None) for a, d in zip(args, dims, strict=True)])
        aligned = []
        for i, d in zip(args, dims, strict=True):
            if d is not None:
                i = move_axis(ctx, i, d, 0)
                index_shape = i.aval.shape
                i = emit_reshape(ctx, i, (index_shape[0], *(1,) * (ndim + 1 - len(index_shape)), *index_shape[1:]))
            aligned.append(i)
        return ctx(self, *aligned), (0,)


# ------------------------------------------------------------------------------------------------------------ index


@final
@primitive
class Index(LinearInFirst):
    """`x[3, i, 1:9:2]`: the elements of a window of x, without the axes `dropped`.

    Along each axis the window has `sizes` elements from `starts` on, every `strides`-th. Along an axis of `dynamic` an
    operand gives its start, counted from the end if negative, and clamped so that the window lies inside x.

    `x[1:9:2, i]` of x: f32[10,5] has starts (1, 0), sizes (4, 1), strides (2, 1), dropped (1,) and dynamic (1,); its
    operands are x and i.

    Type: x of any dtype, then one 0-d integer of any dtype for each axis of `dynamic`; the window lies in x, along the
          axes of `dynamic` it has start 0 and stride 1, along those `dropped` size 1.
    Rule: linear in x; the transpose writes into zeros.
    Source: stablehlo.slice or stablehlo.dynamic_slice, then stablehlo.reshape
    """

    name: ClassVar[str] = "index"
    starts: tuple[int, ...]
    sizes: Shape
    strides: tuple[int, ...]
    dropped: tuple[int, ...]
    dynamic: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) != 1 + len(self.dynamic):
            raise ArgumentError(
                f"index: takes an operand and a place for each of the axes {self.dynamic}, got {len(avals)} operands"
            )
        x, sizes = avals[0], self.sizes
        if not len(x.shape) == len(self.starts) == len(sizes) == len(self.strides):
            check_ranks("index", x, starts=self.starts, sizes=sizes, strides=self.strides)
        for a, (start, m, stride, n) in enumerate(zip(self.starts, sizes, self.strides, x.shape, strict=True)):
            if not (
                may_fit(0, m) and may_fit(0, start) and may_fit(start + ((m - 1) * stride + 1 if m != 0 else 0), n)
            ):
                raise ShapeError(f"index: {m} elements from {start} on do not lie in axis {a} of {x}, of size {n}")
            if stride < 1:
                raise ParameterError(f"index: stride {stride} of axis {a} is not positive", remedy="use rev as well")
        check_axes("index", self.dropped, x.ndim)
        for a in self.dropped:
            if sizes[a] != 1:
                raise ParameterError(f"index: axis {a} is dropped, its window has size {sizes[a]}, not 1")
        if self.dynamic:
            self._check_indices(x, avals[1:])
        return (Aval(remove_axes(sizes, self.dropped), x.dtype),)

    def _check_indices(self, x: Aval, indices: tuple[Aval, ...]) -> None:
        check_axes("index", self.dynamic, x.ndim)
        for k, (a, i) in enumerate(zip(self.dynamic, indices, strict=True)):
            if i.shape:
                raise ShapeError(f"index: place {k} must be 0-d, got {i}")
            if i.dtype not in dtypes.INTEGER:
                raise DTypeError(f"index: place {k} must be an integer, got {i}")
            if self.starts[a] or self.strides[a] != 1:
                raise ParameterError(
                    f"index: axis {a} starts where operand {k + 1} says: its start is 0 and its stride 1, "
                    f"got {self.starts[a]} and {self.strides[a]}"
                )

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, *indices = args
        starts, dtype = list(self.starts), index_dtype(x.shape)
        for a, i in zip(self.dynamic, indices, strict=True):
            starts[a] = min(max(int(normalize_index_numpy(i, x.shape[a], dtype)), 0), x.shape[a] - self.sizes[a])
        window = [slice(s, s + m * t, t) for s, m, t in zip(starts, self.sizes, self.strides, strict=True)]
        return (x[tuple(window)].reshape(remove_axes(self.sizes, self.dropped)),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if self.dynamic:
            b = Builder()
            x, *indices = b.inputs(ins)
            x = b.one(DynamicSlice(self.sizes), self._reachable(b, x), *self.window_starts(b, ins[0].shape, indices))
            return hlo.call(b.build((self._drop_axes(b, x),), "index"), args)
        attrs = self.reachable_slice(ins[0].shape).attributes()
        window = hlo.op("stablehlo.slice", args, (Aval(self.sizes, ins[0].dtype),), attrs)
        return hlo.op("stablehlo.reshape", window, outs) if self.dropped else window

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x, *indices), (dim, *index_dims) = args, dims
        prim = self if dim is None else self._mapped(x.aval.shape[dim], dim)
        if index_dims.count(None) == len(indices):
            return ctx(prim, *args), (None if dim is None else dim - len([a for a in prim.dropped if a < dim]),)
        x = prim._reachable(ctx, x)
        columns = [
            broadcast_to_axis(ctx, i, d, ctx.size, 0) if d is not None else i
            for i, d in zip(indices, index_dims, strict=True)
        ]
        vectors = ctx.one(IndexVectors(tuple([x.aval.shape[a] for a in prim.dynamic])), *columns)
        gather = gather_window_per_example(self.sizes, self.dropped, self.dynamic, dim, ctx.size)
        return ctx(gather, x, vectors), (0,)

    def _mapped(self, size: int, dim: int) -> Index:
        starts, strides = insert_entry(self.starts, dim, 0), insert_entry(self.strides, dim, 1)
        return Index(
            starts,
            insert_entry(self.sizes, dim, size),
            strides,
            axes_after_insert(self.dropped, dim),
            axes_after_insert(self.dynamic, dim),
        )

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        zero = Lit.zero(x.with_shape(()))
        if self.dropped:
            ct = emit_expand_dims(emit, ct, self.dropped)
        if self.dynamic:
            part_shape = self.reachable_shape(x.shape)
            starts = self.window_starts(emit, x.shape, others)
            ct = emit.one(DYNAMIC_UPDATE_SLICE, zero.with_shape(part_shape), ct, *starts)
            if part_shape == x.shape:
                return ct
        # along the axes that are not dynamic the window ends at its last element, the operand possibly later
        low = self.starts
        spans = [n if a in self.dynamic else (m - 1) * t + 1 if m != 0 else 0 for a, n, m, t in self._axes(x.shape)]
        high = tuple([n - s - span for n, s, span in zip(x.shape, low, spans, strict=True)])
        return emit.one(Pad(low, high, tuple([t - 1 for t in self.strides])), ct, zero)

    # ---------------------------------------------------------------------------------------------------- its parts

    def reachable_shape(self, shape: Shape) -> Shape:
        """Return the shape of the part of x that contains the window for every start index: (4, 5) for `x[1:9:2, i]`
        of x with shape (10, 5)."""
        return tuple([n if a in self.dynamic else m for a, n, m, _ in self._axes(shape)])

    def reachable_slice(self, shape: Shape) -> Slice:
        """Return the slice that takes this part: `x[1:9:2]` for `x[1:9:2, i]`."""
        windows = zip(self.starts, self.reachable_shape(shape), self.strides, strict=True)
        return Slice(self.starts, tuple([s + (m - 1) * t + 1 if m != 0 else s for s, m, t in windows]), self.strides)

    def _axes(self, shape: Shape) -> list[tuple[int, int, int, int]]:
        """Return for each axis of x: its number and its size, the size of the window and the stride."""
        return list(zip(range(len(shape)), shape, self.sizes, self.strides, strict=True))

    def _reachable(self, emit: Emit, x: Atom) -> Atom:
        """Return this part."""
        shape = x.aval.shape
        return x if self.reachable_shape(shape) == shape else emit.one(self.reachable_slice(shape), x)

    def window_starts(self, emit: Emit, shape: Shape, indices: Sequence[Atom]) -> list[Atom]:
        """Return the start of the window in this part, along each of its axes: [0, i] for `x[1:9:2, i]`."""
        dtype = index_dtype(shape)
        starts: list[Atom] = [Lit.of(0, Aval((), dtype))] * len(shape)
        for a, i in zip(self.dynamic, indices, strict=True):
            starts[a] = normalize_index(emit, i, shape[a], dtype)
        return starts

    def _drop_axes(self, emit: Emit, x: Atom) -> Atom:
        return emit.one(Squeeze(self.dropped), x) if self.dropped else x


INDEX: Final = (Index, IndexVectors)
