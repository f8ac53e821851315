"""Slices, padding and concatenation at static places.

Duals: slice and pad, concatenate and the slices of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import maximum
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError
from fxad.ir import (
    BOOL_SCALAR,
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
    LinearMap,
    Lit,
    NDArray,
    Operands,
    Shape,
    TransposeCtx,
    primitive,
)
from fxad.primitives.axes import axis_after_insert, insert_entry, remove_axes, replace_entry
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import only_cotangent
from fxad.primitives.linearity import is_zero
from fxad.primitives.operand_checks import check_axis, check_count, check_ranks
from fxad.primitives.shape import Rearrange, ReduceSum, align_to_first, broadcast_to_axis, emit_broadcast
from fxad.primitives.stablehlo import i64_array, i64_attribute


@final
@primitive
class Slice(Rearrange):
    """Elements `starts`, `starts + strides`, ... below `limits` along each axis.

    Type: x of any dtype; 0 <= start <= limit <= size and stride >= 1, one of each per axis.
    Rule: transpose is pad with zeros.
    Source: stablehlo.slice
    """

    name: ClassVar[str] = "slice"
    hlo_name: ClassVar[str] = "stablehlo.slice"
    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_ranks("slice", x, starts=self.starts, limits=self.limits, strides=self.strides)
        shape = []
        for a, (start, limit, stride, n) in enumerate(
            zip(self.starts, self.limits, self.strides, x.shape, strict=True)
        ):
            if not 0 <= start <= limit <= n:
                raise ShapeError(f"slice: {start}:{limit} does not lie in axis {a} of {x}, of size {n}")
            if stride < 1:
                raise ParameterError(f"slice: stride {stride} of axis {a} is not positive", remedy="use rev as well")
            shape.append((limit - start + stride - 1) // stride)
        return (Aval(tuple(shape), x.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (args[0][tuple(map(slice, self.starts, self.limits, self.strides))],)

    def attributes(self) -> dict[str, str]:
        starts, limits, strides = i64_array(self.starts), i64_array(self.limits), i64_array(self.strides)
        return {"start_indices": starts, "limit_indices": limits, "strides": strides}

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        n = x.aval.shape[dim]
        return emit.one(
            Slice(
                insert_entry(self.starts, dim, 0), insert_entry(self.limits, dim, n), insert_entry(self.strides, dim, 1)
            ),
            x,
        ), dim

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        # the result ends at its last element; the operand may be longer
        places = zip(x.shape, self.starts, self.strides, ct.aval.shape, strict=True)
        high = tuple([n - start - m - maximum(m - 1, 0) * (stride - 1) for n, start, stride, m in places])
        pad = Pad(self.starts, high, tuple([stride - 1 for stride in self.strides]))
        return emit.one(pad, ct, Lit.zero(x.with_shape(())))


def tight_slice(prim: Slice, single: Sequence[int]) -> Slice:
    """Return the slice as `x[a:b:c]` gives it. The axes `single` keep one element, and have stride 1."""
    if all([prim.strides[k] == 1 for k in single]):
        return prim
    limits, strides = list(prim.limits), list(prim.strides)
    for k in single:
        limits[k], strides[k] = prim.starts[k] + 1, 1
    return Slice(prim.starts, tuple(limits), tuple(strides))


def slice_along_axis(shape: Shape, axis: int, start: int, limit: int) -> Slice:
    """Return the slice `x[start:limit]` along `axis` of an array of this shape."""
    none = (0,) * len(shape)
    return Slice(replace_entry(none, axis, start), replace_entry(shape, axis, limit), (1,) * len(shape))


def emit_slice(emit: Emit, x: Atom, axis: int, start: int, limit: int) -> Atom:
    """Return `x[start:limit]` along `axis`; emits nothing for a literal."""
    shape = x.aval.shape
    if isinstance(x, Lit):
        return x.with_shape(replace_entry(shape, axis, limit - start))
    return emit.one(slice_along_axis(shape, axis, start, limit), x)


@final
@primitive
class Pad(LinearMap):
    """Insert a value before (`low`), after (`high`) and between (`interior`) the elements of each axis.

    Negative `low` and `high` drop elements, after the interior values are inserted.

    Type: x of any dtype, the value 0-d of the same; one entry per axis, interior >= 0.
    Rule: linear in both operands together; the cotangent of x is the slice that it fills, that of the value the sum of
          the rest.
    Source: stablehlo.pad
    """

    name: ClassVar[str] = "pad"
    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        x, value = check_count(self, avals, 2)
        check_ranks("pad", x, low=self.low, high=self.high, interior=self.interior)
        if value.shape:
            raise ShapeError(f"pad: the value must be 0-d, got {value}")
        if value.dtype != x.dtype:
            raise DTypeError(f"pad: dtypes differ: operand {x}, value {value}")
        shape = []
        for a, (low, high, interior, n) in enumerate(zip(self.low, self.high, self.interior, x.shape, strict=True)):
            if interior < 0:
                raise ParameterError(f"pad: interior {interior} of axis {a} is negative")
            m = low + n + maximum(n - 1, 0) * interior + high
            if m < 0:
                raise ShapeError(f"pad: low {low} and high {high} drop more than axis {a} of {x} has")
            shape.append(m)
        return (Aval(tuple(shape), x.dtype),)

    def kept_elements(self, x: Shape, y: Shape) -> list[range]:
        """Return the elements along each axis of an operand of shape `x` that the result, of shape `y`, has. Negative
        `low` and `high` drop the others."""
        kept: list[range] = []
        for low, interior, n, m in zip(self.low, self.interior, x, y, strict=True):
            step = interior + 1
            first, last = max(0, -(low // step)), min(n - 1, (m - 1 - low) // step)
            kept.append(range(first, last + 1) if first <= last else range(0))
        return kept

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, value = args
        spaced = [n + max(n - 1, 0) * i for n, i in zip(x.shape, self.interior, strict=True)]
        wide = [max(lo, 0) + n + max(hi, 0) for lo, n, hi in zip(self.low, spaced, self.high, strict=True)]
        out = np.full(wide, value, x.dtype)
        at = [
            slice(max(lo, 0), max(lo, 0) + n, i + 1) for lo, n, i in zip(self.low, spaced, self.interior, strict=True)
        ]
        out[tuple(at)] = x
        crop = [slice(max(-lo, 0), n - max(-hi, 0)) for lo, n, hi in zip(self.low, wide, self.high, strict=True)]
        return (out[tuple(crop)],)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        attrs = {
            "edge_padding_low": i64_array(self.low),
            "edge_padding_high": i64_array(self.high),
            "interior_padding": i64_array(self.interior),
        }
        return hlo.op("stablehlo.pad", args, outs, attrs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x, value), (dim, value_dim) = args, dims
        pad = (
            self
            if dim is None
            else Pad(
                insert_entry(self.low, dim, 0), insert_entry(self.high, dim, 0), insert_entry(self.interior, dim, 0)
            )
        )
        if value_dim is None:
            return ctx(pad, x, value), (dim,)
        # each example has its own value: pad with zero, then select
        at = 0 if dim is None else dim
        example = x.aval if dim is None else x.aval.with_shape(remove_axes(x.aval.shape, (dim,)))
        inside = self._operand_flags(ctx, example)
        shape = insert_entry(inside.aval.shape, at, ctx.size)
        zero = Lit.zero(x.aval.with_shape(shape))
        # keep the literal zero: `pad` of it and a tangent is linear, `select_n` of another constant is not
        padded: Atom = zero
        if not is_zero(x):
            padded = broadcast_to_axis(ctx, ctx.one(pad, x, zero.with_shape(())), dim, ctx.size, at)
        inside = broadcast_to_axis(ctx, inside, None, ctx.size, at)
        return (emit_where(ctx, inside, padded, emit_broadcast(ctx, value, shape, (at,))),), (at,)

    def _operand_flags(self, emit: Emit, x: Aval) -> Atom:
        """Return a mask of the result elements that are elements of `x`."""
        true = Lit.of(True, x.with_dtype(dtypes.bool_))
        return emit.one(self, true, Lit.of(False, BOOL_SCALAR))

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, value) = only_cotangent(cts), args
        x_bar = self._elements_of_operand(ctx, ct, x.aval) if isinstance(x, Hole) else None
        if not isinstance(value, Hole):
            return x_bar, None
        inside = self._operand_flags(ctx, x.aval)
        rest = emit_where(ctx, inside, Lit.zero(ct.aval), ct)
        return x_bar, ctx.one(ReduceSum(tuple(range(ct.aval.ndim))), rest)

    def _elements_of_operand(self, emit: Emit, ct: Atom, x: Aval) -> Atom:
        """Return the elements of `ct` at the places of the elements of `x`; zero for dropped elements."""
        low, high = self.low, self.high
        # an axis that may be empty has a further interior, so that the slice has its size
        added_interior = [
            0 if at_least(n, 1) or type(n) is int else i for n, i in zip(x.shape, self.interior, strict=True)
        ]
        if any(added_interior) or any([not at_least(n, 0) for n in (*low, *high)]):
            zero = Lit.zero(x.with_shape(()))
            ends = tuple([maximum(-n, 0) + i for n, i in zip(high, added_interior, strict=True)])
            grow = Pad(tuple([maximum(-n, 0) for n in low]), ends, (0,) * len(low))
            ct, low = emit.one(grow, ct, zero), tuple([maximum(n, 0) for n in low])
        limits = [
            lo + (n * (i + 1) if m != 0 else n + maximum(n - 1, 0) * i)
            for lo, n, i, m in zip(low, x.shape, self.interior, added_interior, strict=True)
        ]
        return emit.one(Slice(low, tuple(limits), tuple([i + 1 for i in self.interior])), ct)


def pad_along_axis(ndim: int, axis: int, *, low: int = 0, high: int = 0) -> Pad:
    """Return the padding of one axis of an array. A negative number drops elements."""
    none = (0,) * ndim
    return Pad(replace_entry(none, axis, low), replace_entry(none, axis, high), none)


@final
@primitive
class Concatenate(LinearMap):
    """Join operands along `axis`.

    Type: one or more operands of one dtype, their shapes equal but for `axis`.
    Rule: linear in all operands together; the cotangent of each is its slice.
    Source: stablehlo.concatenate
    """

    name: ClassVar[str] = "concatenate"
    axis: int

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if not avals:
            raise ArgumentError("concatenate: takes at least one operand")
        first, axis = avals[0], self.axis
        check_axis("concatenate", axis, first.ndim)
        before, after, total = first.shape[:axis], first.shape[axis + 1 :], 0
        for k, x in enumerate(avals):
            if x.ndim != first.ndim or x.shape[:axis] != before or x.shape[axis + 1 :] != after:
                raise ShapeError(
                    f"concatenate: shapes differ beside axis {axis}: operand 0 {first}, operand {k} {x}",
                    remedy="all sizes must be equal, except along the axis that is joined",
                )
            if x.dtype != first.dtype:
                raise DTypeError(f"concatenate: dtypes differ: operand 0 {first}, operand {k} {x}")
            total += x.shape[axis]
        return (Aval((*before, total, *after), first.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (np.concatenate(args, self.axis),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.concatenate", args, outs, {"dimension": i64_attribute(self.axis)})

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args, at = align_to_first(ctx, args, dims)
        return ctx(Concatenate(axis_after_insert(self.axis, at)), *args), (at,)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, start = only_cotangent(cts), 0
        bars: list[Cotangent | None] = []
        for x in args:
            limit = start + x.aval.shape[self.axis]
            bars.append(emit_slice(ctx, ct, self.axis, start, limit) if isinstance(x, Hole) else None)
            start = limit
        return tuple(bars)


SLICING: Final = (Slice, Pad, Concatenate)
