"""Windows of an array at start indices known at run time. dynamic_slice and dynamic_update_slice are duals."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError, ShapeError
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
    HloValue,
    HloValues,
    Hole,
    JvpCtx,
    Linear,
    Lit,
    NDArray,
    Operands,
    Shape,
    Tangents,
    TransposeCtx,
    primitive,
)
from fxad.primitives.axes import axes_after_insert, insert_entry
from fxad.primitives.families import LinearInFirst, only_cotangent
from fxad.primitives.gather_scatter import Scatter, gather_window_per_example
from fxad.primitives.operand_checks import check_ranks, check_window
from fxad.primitives.shape import Squeeze, broadcast_to_axis, emit_expand_dims, emit_reshape
from fxad.primitives.slicing import Concatenate
from fxad.primitives.stablehlo import i64_array


def _check_starts(name: str, x: Aval, starts: tuple[Aval, ...], sizes: Shape) -> None:
    if len(starts) != x.ndim:
        raise ArgumentError(f"{name}: takes one start index per axis: {x} has {x.ndim}, got {len(starts)}")
    for k, s in enumerate(starts):
        if s.shape:
            raise ShapeError(f"{name}: start index {k} must be 0-d, got {s}")
        if not dtypes.is_integer(s.dtype):
            raise DTypeError(f"{name}: start index {k} must be an integer, got {s}")
        if s is not starts[0]:
            raise DTypeError(f"{name}: dtypes of start indices differ: index 0 {starts[0]}, index {k} {s}")
    check_window(name, x, sizes)


def _clamped_window(x: NDArray, starts: tuple[NDArray, ...], sizes: Shape) -> tuple[slice, ...]:
    """Return the window, with start indices clamped so that it lies inside `x`."""
    firsts = [min(max(int(s), 0), n - m) for s, n, m in zip(starts, x.shape, sizes, strict=True)]
    return tuple([slice(first, first + m) for first, m in zip(firsts, sizes, strict=True)])


def _clamped_starts(hlo: Hlo, starts: HloValues, avals: Avals, shape: Shape, sizes: Shape) -> HloValues:
    """Return start indices in the range of the window.

    The operations of StableHLO clamp them too. But before 0.12, XLA merges a `dynamic_slice` of a `dynamic_slice`, and
    adds the start indices before it clamps them: `docs/known-faults.md`.
    """
    outs: list[HloValue] = []
    for start, aval, n, m in zip(starts, avals, shape, sizes, strict=True):
        wide = aval if aval.dtype.itemsize >= 4 else aval.with_dtype(dtypes.int32)  # it has to hold the bound
        zero = hlo.constant(Lit.zero(wide))
        if n == m:
            outs.append(zero)
            continue
        value = start if wide is aval else hlo.op("stablehlo.convert", (start,), (wide,))[0]
        outs += hlo.op("stablehlo.clamp", (zero, value, hlo.constant(Lit.of(n - m, wide))), (wide,))
    return outs


def _stack_starts(ctx: BatchCtx, starts: Atoms, dims: Dims) -> Atom:
    """Return start indices as one array [mapped axis, index]."""
    rows = [
        emit_reshape(ctx, broadcast_to_axis(ctx, s, d, ctx.size, 0), (ctx.size, 1))
        for s, d in zip(starts, dims, strict=True)
    ]
    return ctx.one(Concatenate(1), *rows)


def _with_zero(starts: Atoms, at: int) -> Atoms:
    """Return start indices with a zero put in for the mapped axis at `at`."""
    return insert_entry(starts, at, Lit.zero(starts[0].aval if starts else INT32_SCALAR))


@final
@primitive
class DynamicSlice(LinearInFirst):
    """The window of `sizes` at start indices known at run time. Start indices are clamped so that the window lies
    inside x.

    Type: x of any dtype, then one 0-d integer per axis, all of one dtype.
    Rule: linear in x; transpose is dynamic_update_slice into zeros.
    Source: stablehlo.dynamic_slice
    """

    name: ClassVar[str] = "dynamic_slice"
    sizes: Shape

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if not avals:
            raise ArgumentError("dynamic_slice: takes an operand and its start indices, got none")
        x, *starts = avals
        check_ranks("dynamic_slice", x, sizes=self.sizes)
        _check_starts("dynamic_slice", x, tuple(starts), self.sizes)
        return (Aval(self.sizes, x.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, *starts = args
        return (x[_clamped_window(x, tuple(starts), self.sizes)],)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        starts = _clamped_starts(hlo, args[1:], ins[1:], ins[0].shape, self.sizes)
        return hlo.op("stablehlo.dynamic_slice", (args[0], *starts), outs, {"slice_sizes": i64_array(self.sizes)})

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x, *starts), (dim, *start_dims) = args, dims
        ndim = len(self.sizes)
        if dim is not None and start_dims.count(None) == ndim:
            sizes = insert_entry(self.sizes, dim, x.aval.shape[dim])
            return ctx(DynamicSlice(sizes), x, *_with_zero(tuple(starts), dim)), (dim,)
        indices = _stack_starts(ctx, tuple(starts), tuple(start_dims))
        gather = gather_window_per_example(self.sizes, (), tuple(range(ndim)), dim, ctx.size)
        return ctx(gather, x, indices), (0,)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(DYNAMIC_UPDATE_SLICE, Lit.zero(x), ct, *others)


@final
@primitive
class DynamicUpdateSlice(Linear):
    """x with the window at start indices known at run time replaced. Start indices are clamped so that the window lies
    inside x.

    Type: x of any dtype, the update of the same dtype and rank and no larger, then one 0-d integer per axis.
    Rule: linear in x and the update together; the cotangent of the update is the window, that of x is the rest.
    Source: stablehlo.dynamic_update_slice
    """

    name: ClassVar[str] = "dynamic_update_slice"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) < 2:
            raise ArgumentError(
                f"dynamic_update_slice: takes an operand, an update and start indices, got {len(avals)}"
            )
        x, update, *starts = avals
        if update.ndim != x.ndim:
            raise ShapeError(f"dynamic_update_slice: ranks differ: operand {x}, update {update}")
        if update.dtype != x.dtype:
            raise DTypeError(f"dynamic_update_slice: dtypes differ: operand {x}, update {update}")
        _check_starts("dynamic_update_slice", x, tuple(starts), update.shape)
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, update, *starts = args
        out = np.array(x)
        out[_clamped_window(x, tuple(starts), update.shape)] = update
        return (out,)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        starts = _clamped_starts(hlo, args[2:], ins[2:], ins[0].shape, ins[1].shape)
        return hlo.op("stablehlo.dynamic_update_slice", (*args[:2], *starts), outs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x, update, *starts), (dim, update_dim, *start_dims) = args, dims
        at = next((d for d in (dim, update_dim) if d is not None), 0)
        x = broadcast_to_axis(ctx, x, dim, ctx.size, at)
        if start_dims.count(None) == len(starts):
            update = broadcast_to_axis(ctx, update, update_dim, ctx.size, at)
            return ctx(self, x, update, *_with_zero(tuple(starts), at)), (at,)
        # one window per example, so updates do not overlap
        ndim = len(starts)
        update = broadcast_to_axis(ctx, update, update_dim, ctx.size, 0)
        scatter = Scatter(
            update_window_dims=tuple(range(1, ndim + 1)),
            inserted_window_dims=(),
            operand_batching_dims=(at,),
            scatter_indices_batching_dims=(0,),
            scatter_dims_to_operand_dims=axes_after_insert(range(ndim), at),
            mode="clip",
            indices_sorted=False,
            unique_indices=True,
        )
        return ctx(scatter, x, _stack_starts(ctx, tuple(starts), tuple(start_dims)), update), (at,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(self, *tangents[:2], *primals[2:])

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return all(flags[:2]) and not any(flags[2:])

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, update, *starts) = only_cotangent(cts), args
        indices = [s for s in starts if not isinstance(s, Hole)]
        hole = Lit.zero(update.aval)
        x_bar = ctx.one(self, ct, hole, *indices) if isinstance(x, Hole) else None
        update_bar = ctx.one(DynamicSlice(update.aval.shape), ct, *indices) if isinstance(update, Hole) else None
        return x_bar, update_bar, *[None] * len(starts)


DYNAMIC_UPDATE_SLICE: Final = DynamicUpdateSlice()


def read_row(emit: Emit, stack: Atom, k: Atom) -> Atom:
    """Return `stack[k]`: row `k` of a stack along axis 0."""
    row = emit.one(DynamicSlice((1, *stack.aval.shape[1:])), stack, *_row_start(stack.aval, k))
    return emit.one(Squeeze((0,)), row)


def write_row(emit: Emit, stack: Atom, k: Atom, row: Atom) -> Atom:
    """Return the stack with row `k` replaced."""
    return emit.one(DYNAMIC_UPDATE_SLICE, stack, emit_expand_dims(emit, row, (0,)), *_row_start(stack.aval, k))


def _row_start(stack: Aval, k: Atom) -> Atoms:
    return k, *[Lit.of(0, k.aval)] * (stack.ndim - 1)


DYNAMIC_SLICING: Final = (DynamicSlice, DynamicUpdateSlice)
