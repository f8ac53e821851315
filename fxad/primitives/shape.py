"""Primitives that move, copy and sum elements.

Duals: broadcast_in_dim and reduce_sum, squeeze and expand_dims; reshape, transpose and rev are their own duals.

The batching rules of all primitives place the mapped axis with the helpers at the top.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError
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
    LinearMap,
    Lit,
    NDArray,
    Shape,
    primitive,
)
from fxad.primitives.axes import axes_after_insert, axis_after_remove, insert_entry, other_axes, remove_axes
from fxad.primitives.families import LinearInOne, WithoutTangent
from fxad.primitives.operand_checks import check_axes, check_axis, check_count
from fxad.primitives.stablehlo import i64_array, i64_attribute, lower_reduce

# ------------------------------------------------------------------------------------------- placing a mapped axis


def move_axis(emit: Emit, x: Atom, src: int, dst: int) -> Atom:
    """Return `x` with axis `src` at `dst`, the others in order; emits nothing when it is there, or for a literal."""
    if src == dst:
        return x
    perm = [a for a in range(x.aval.ndim) if a != src]
    perm.insert(dst, src)
    if isinstance(x, Lit):
        return x.with_shape([x.aval.shape[a] for a in perm])
    return emit.one(Transpose(tuple(perm)), x)


def broadcast_to_axis(emit: Emit, x: Atom, dim: int | None, size: int, at: int) -> Atom:
    """Return `x` with a mapped axis of `size` at `at`: moved from `dim`, or added by broadcasting if `dim` is None."""
    if dim is not None:
        return move_axis(emit, x, dim, at)
    shape = x.aval.shape
    return emit_broadcast(emit, x, shape[:at] + (size,) + shape[at:], (*range(at), *range(at + 1, len(shape) + 1)))


def align_batch_axes(ctx: BatchCtx, args: Sequence[Atom], dims: Sequence[int | None], at: int = 0) -> Atoms:
    """Return operands with the mapped axis at `at`; an operand that is not mapped is broadcast."""
    return tuple([broadcast_to_axis(ctx, a, d, ctx.size, at) for a, d in zip(args, dims, strict=True)])


def align_to_first(ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, int]:
    """Return operands with the mapped axis where the first mapped one has it, and that place."""
    at = next(d for d in dims if d is not None)
    return (args if dims.count(at) == len(dims) else align_batch_axes(ctx, args, dims, at)), at


# ------------------------------------------------------------------- other shapes; no equation if nothing changes


def emit_broadcast(emit: Emit, x: Atom, shape: Shape, dims: tuple[int, ...]) -> Atom:
    """Return `x` broadcast to `shape`, its axes at `dims`; emits nothing for a literal or when nothing changes."""
    if isinstance(x, Lit):
        return x.with_shape(shape)
    return x if x.aval.shape == shape else emit.one(BroadcastInDim(shape, dims), x)


def emit_reshape(emit: Emit, x: Atom, shape: Shape) -> Atom:
    """Return `x` with another shape of the same size; emits nothing for a literal or when nothing changes."""
    if isinstance(x, Lit):
        return x.with_shape(shape)
    return x if x.aval.shape == shape else emit.one(Reshape(shape), x)


def emit_expand_dims(emit: Emit, x: Atom, axes: tuple[int, ...]) -> Atom:
    """Return `x` with axes of size 1, which are `axes` of the result; emits nothing for a literal."""
    prim = ExpandDims(axes)
    return x.with_shape(prim.result_shape(x.aval.shape)) if isinstance(x, Lit) else emit.one(prim, x)


def merge_axes(emit: Emit, x: Atom, axis: int, count: int = 2) -> Atom:
    """Return `x` with `count` neighbouring axes, from `axis` on, merged into one."""
    shape = x.aval.shape
    return emit_reshape(emit, x, (*shape[:axis], prod(shape[axis : axis + count]), *shape[axis + count :]))


def split_axis(emit: Emit, x: Atom, axis: int, *sizes: int) -> Atom:
    """Return `x` with one axis as several: those of `sizes`, then one of the remaining size."""
    shape = x.aval.shape
    rest = shape[axis]
    for n in sizes:
        rest //= n
    return emit_reshape(emit, x, (*shape[:axis], *sizes, rest, *shape[axis + 1 :]))


# ------------------------------------------------------------------------------------------------------ primitives


class Rearrange(LinearMap, LinearInOne):
    """A linear primitive of one operand of any dtype: every result element is an operand element or a sum of some."""

    __slots__ = ()

    hlo_name: ClassVar[str]

    @abstractmethod
    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        """Return the result for `x` mapped at `dim`, and the mapped axis of the result."""

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the operation in StableHLO."""
        return {}

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op(self.hlo_name, args, outs, self.attributes())

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        if dims[0] is None:
            return ctx(self, *args), (None,)
        out, dim = self.batch_at(ctx, args[0], dims[0])
        return (out,), (dim,)


class Permutation(Rearrange):
    """A rearrangement in which each element of the operand is one element of the result, and there are no others. So
    its transpose (`cotangent`) is its inverse."""

    __slots__ = ()


class AxisMove(Permutation):
    """A permutation that moves, drops or inserts axes: elements keep their index along each axis."""

    __slots__ = ()

    @abstractmethod
    def places(self, ndim: int) -> tuple[int | None, ...]:
        """Return the axis of the result for each of the `ndim` axes of the operand; None for one that is dropped."""


@final
@primitive
class BroadcastInDim(Rearrange):
    """Repeat elements: operand axis k becomes axis `dims[k]` of the result; a size of 1 there is stretched.

    Type: x of any dtype; `dims` increasing, x.shape[k] in (1, shape[dims[k]]); result has `shape`.
    Rule: transpose is reduce_sum over the new and the stretched axes.
    Source: stablehlo.broadcast_in_dim
    """

    name: ClassVar[str] = "broadcast_in_dim"
    hlo_name: ClassVar[str] = "stablehlo.broadcast_in_dim"
    shape: Shape
    dims: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        if len(self.dims) != x.ndim:
            raise ShapeError(f"broadcast_in_dim: dims {self.dims} has {len(self.dims)} entries for the axes of {x}")
        check_axes("broadcast_in_dim", self.dims, len(self.shape))
        for k, (n, d) in enumerate(zip(x.shape, self.dims, strict=True)):
            if n != 1 and n != self.shape[d]:
                raise ShapeError(
                    f"broadcast_in_dim: sizes differ: operand dim {k} has {n}, result dim {d} has {self.shape[d]}"
                )
        return (Aval(self.shape, x.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        shape = [1] * len(self.shape)
        for n, d in zip(x.shape, self.dims, strict=True):
            shape[d] = n
        return (np.broadcast_to(x.reshape(shape), self.shape),)

    def attributes(self) -> dict[str, str]:
        return {"broadcast_dimensions": i64_array(self.dims)}

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        # directly after its predecessor, so that the dims stay increasing
        at = self.dims[dim - 1] + 1 if dim else 0
        return emit_broadcast(
            emit,
            x,
            insert_entry(self.shape, at, x.aval.shape[dim]),
            insert_entry(axes_after_insert(self.dims, at), dim, at),
        ), at

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        kept = [d for n, d in zip(x.shape, self.dims, strict=True) if n == self.shape[d]]
        axes = other_axes(kept, len(self.shape))
        return emit_reshape(emit, emit.one(ReduceSum(axes), ct) if axes else ct, x.shape)


@final
@primitive
class ReduceSum(Rearrange):
    """Sum over `axes`, which are removed. Unlike the reductions in `reduce` it is linear, and the transpose of
    broadcast_in_dim: so it is a `Rearrange`, in this file.

    Type: x of any dtype but bool; `axes` increasing; the dtype is kept (integers wrap).
    Rule: transpose is broadcast_in_dim.
    Source: stablehlo.reduce with stablehlo.add; floats below 32 bits are summed in float32 and rounded once.
    """

    name: ClassVar[str] = "reduce_sum"
    axes: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        if x.dtype == dtypes.bool_:
            raise DTypeError(f"reduce_sum: {x} is not numeric", remedy="convert to an integer, or use reduce_or")
        check_axes("reduce_sum", self.axes, x.ndim)
        return (Aval(remove_axes(x.shape, self.axes), x.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        if not self.axes:
            return args  # NumPy would add each element to 0, and -0.0 would be 0.0
        wide = dtypes.accumulated(x.dtype)
        return (np.asarray(np.sum(x.astype(wide), axis=self.axes, dtype=wide)).astype(x.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        zero = Lit.zero(ins[0].with_shape(()).with_dtype(dtypes.accumulated(ins[0].dtype)))
        return lower_reduce(
            hlo, "stablehlo.reduce", {"dimensions": i64_array(self.axes)}, "stablehlo.add", zero, args, ins[0], outs
        )

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        axes = axes_after_insert(self.axes, dim)
        return emit.one(ReduceSum(axes), x), axis_after_remove(dim, axes)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit_broadcast(emit, ct, x.shape, other_axes(self.axes, x.ndim))


@final
@primitive
class Reshape(Permutation):
    """The same elements in row-major order, in another shape.

    Type: x of any dtype; the number of elements is kept.
    Rule: transpose is reshape.
    Source: stablehlo.reshape
    """

    name: ClassVar[str] = "reshape"
    hlo_name: ClassVar[str] = "stablehlo.reshape"
    shape: Shape

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        out = Aval(self.shape, x.dtype)
        if out.size != x.size:
            raise ShapeError(f"reshape: sizes differ: {x} has {x.size} elements, {self.shape} has {out.size}")
        return (out,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (args[0].reshape(self.shape),)

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        old, new = x.aval.shape, self.shape
        for at in range(len(new) + 1):  # the mapped axis keeps its place if the axes before it keep their size
            if prod(new[:at]) == prod(old[:dim]) and prod(new[at:]) == prod(old[dim + 1 :]):
                return emit_reshape(emit, x, insert_entry(new, at, old[dim])), at
        return emit_reshape(emit, move_axis(emit, x, dim, 0), (old[dim], *new)), 0

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit_reshape(emit, ct, x.shape)


@final
@primitive
class Transpose(AxisMove):
    """Axis k of the result is axis `perm[k]` of the operand.

    Type: x of any dtype; `perm` a permutation of its axes.
    Rule: transpose is transpose by the inverse permutation.
    Source: stablehlo.transpose
    """

    name: ClassVar[str] = "transpose"
    hlo_name: ClassVar[str] = "stablehlo.transpose"
    perm: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        if sorted(self.perm) != list(range(len(x.shape))):
            raise ParameterError(f"transpose: perm {self.perm} is not a permutation of the {x.ndim} axes of {x}")
        return (Aval(tuple([x.shape[a] for a in self.perm]), x.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (args[0].transpose(self.perm),)

    def places(self, ndim: int) -> tuple[int | None, ...]:
        return tuple([self.perm.index(a) for a in range(ndim)])

    def attributes(self) -> dict[str, str]:
        return {"permutation": i64_array(self.perm)}

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        # the mapped axis keeps its place, so one permutation suffices for every `dim`
        return emit.one(Transpose(insert_entry(axes_after_insert(self.perm, dim), dim, dim)), x), dim

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(Transpose(tuple(sorted(range(x.ndim), key=self.perm.__getitem__))), ct)


@final
@primitive
class Squeeze(AxisMove):
    """Drop `axes` of size 1.

    Type: x of any dtype; `axes` increasing axes of x.
    Rule: transpose is expand_dims.
    Source: stablehlo.reshape
    """

    name: ClassVar[str] = "squeeze"
    hlo_name: ClassVar[str] = "stablehlo.reshape"
    axes: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_axes("squeeze", self.axes, x.ndim)
        for a in self.axes:
            if x.shape[a] != 1:
                raise ShapeError(f"squeeze: axis {a} of {x} has size {x.shape[a]}, not 1")
        return (Aval(remove_axes(x.shape, self.axes), x.dtype),)

    def places(self, ndim: int) -> tuple[int | None, ...]:
        return tuple([None if a in self.axes else a - sum([b < a for b in self.axes]) for a in range(ndim)])

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (args[0].reshape(remove_axes(args[0].shape, self.axes)),)

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        axes = axes_after_insert(self.axes, dim)
        return emit.one(Squeeze(axes), x), axis_after_remove(dim, axes)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit_expand_dims(emit, ct, self.axes)


@final
@primitive
class ExpandDims(AxisMove):
    """Insert axes of size 1, which are `axes` of the result.

    Type: x of any dtype; `axes` increasing axes of the result.
    Rule: transpose is squeeze.
    Source: stablehlo.reshape
    """

    name: ClassVar[str] = "expand_dims"
    hlo_name: ClassVar[str] = "stablehlo.reshape"
    axes: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_axes("expand_dims", self.axes, x.ndim + len(self.axes))
        return (Aval(self.result_shape(x.shape), x.dtype),)

    def places(self, ndim: int) -> tuple[int | None, ...]:
        return other_axes(self.axes, ndim + len(self.axes))

    def result_shape(self, shape: Shape) -> Shape:
        """Return the shape of the result, for an operand of this shape."""
        sizes = iter(shape)
        return tuple([1 if a in self.axes else next(sizes) for a in range(len(shape) + len(self.axes))])

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (args[0].reshape(self.result_shape(args[0].shape)),)

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        ndim = x.aval.ndim - 1 + len(self.axes)
        old = other_axes(self.axes, ndim)
        at = old[dim] if dim < len(old) else ndim
        return emit.one(ExpandDims(axes_after_insert(self.axes, at)), x), at

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return ct.with_shape(x.shape) if isinstance(ct, Lit) else emit.one(Squeeze(self.axes), ct)


@final
@primitive
class Rev(Permutation):
    """Reverse the order of elements along `axes`.

    Type: x of any dtype; `axes` increasing.
    Rule: transpose is rev.
    Source: stablehlo.reverse
    """

    name: ClassVar[str] = "rev"
    hlo_name: ClassVar[str] = "stablehlo.reverse"
    axes: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_axes("rev", self.axes, x.ndim)
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (np.flip(args[0], self.axes),)

    def attributes(self) -> dict[str, str]:
        return {"dimensions": i64_array(self.axes)}

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        return emit.one(Rev(axes_after_insert(self.axes, dim)), x), dim

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(self, ct)


_WIDE_INTEGERS: Final = frozenset({dtypes.int32, dtypes.uint32})  # narrower ones count modulo their range


@final
@primitive
class Iota(WithoutTangent):
    """0, 1, 2, ... along `axis`, repeated along the others. No operands.

    Type: result of `shape` and `dtype`, any but bool. 32 bits must hold the greatest number.
    Source: stablehlo.iota
    """

    name: ClassVar[str] = "iota"
    shape: Shape
    dtype: DType
    axis: int

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_count(self, avals, 0)
        out = Aval(self.shape, self.dtype)
        check_axis("iota", self.axis, out.ndim)
        if out.dtype == dtypes.bool_:
            raise DTypeError("iota: bool cannot count", remedy="use an integer dtype and compare")
        n = out.shape[self.axis]
        if out.dtype in _WIDE_INTEGERS and type(n) is int and n - 1 > dtypes.RANGES[out.dtype][1]:
            raise DTypeError(
                f"iota: {dtypes.short(out.dtype)} cannot count the {n} elements of axis {self.axis}",
                remedy="give dtype='int64'",
            )
        return (out,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        line = np.arange(self.shape[self.axis]).astype(self.dtype)
        return (np.broadcast_to(line.reshape([-1] + [1] * (len(self.shape) - self.axis - 1)), self.shape),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.iota", (), outs, {"iota_dimension": i64_attribute(self.axis)})

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return ctx(self), (None,)


SHAPE: Final = (BroadcastInDim, ReduceSum, Reshape, Transpose, Squeeze, ExpandDims, Rev, Iota)
