"""Draws applications of the primitives that rearrange, slice and concatenate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Aval, Primitive, Shape
from fxad.primitives.shape import (
    BroadcastInDim,
    ExpandDims,
    Iota,
    ReduceSum,
    Reshape,
    Rev,
    Squeeze,
    Transpose,
)
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.testing.applications import ANY, DrawnOperands, DrawOperands, dtype_of, some_axes
from fxad.testing.values import ORDINARY, SPECIAL, any_values, shapes


def _rearrangement(
    params: Callable[[st.DrawFn, Shape], tuple[Shape, Primitive]], takes: frozenset[DType] = ANY
) -> DrawOperands:
    """Draw one operand of any dtype. `params` may change the drawn shape and returns the primitive."""

    def specs(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
        shape, prim = params(draw, draw(shapes()))
        return prim, [(Aval(shape, dtype_of(draw, takes, smooth)), ORDINARY if smooth or takes != ANY else SPECIAL)]

    return specs


def _broadcast_in_dim(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    kept = [draw(st.booleans()) for _ in shape]  # axes of the result that the operand has
    stretched = [n if draw(st.booleans()) else 1 for n in shape]
    dims = tuple([a for a, k in enumerate(kept) if k])
    return tuple([stretched[a] for a in dims]), BroadcastInDim(shape, dims)


def _reshape(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    size = Aval(shape, "bool").size
    splits = [(size,), (1, size), (size, 1), shape[::-1], (*shape, 1)]
    splits += [(k, size // k) for k in (2, 3, 4) if size % k == 0]
    if size == 1:
        splits.append(())
    return shape, Reshape(draw(st.sampled_from(splits)))


def _transpose(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    return shape, Transpose(tuple(draw(st.permutations(range(len(shape))))))


def _squeeze(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    axes = some_axes(draw, len(shape))
    return tuple([1 if a in axes else n for a, n in enumerate(shape)]), Squeeze(axes)


def _expand_dims(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    axes = sorted(draw(st.sets(st.integers(0, len(shape)), max_size=2)))
    return shape, ExpandDims(tuple(axes))


def _rev(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    return shape, Rev(some_axes(draw, len(shape)))


def _slice(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    starts = [draw(st.integers(0, n)) for n in shape]
    limits = [draw(st.integers(s, n)) for s, n in zip(starts, shape, strict=True)]
    return shape, Slice(tuple(starts), tuple(limits), tuple([draw(st.integers(1, 3)) for _ in shape]))


def _reduce_sum(draw: st.DrawFn, shape: Shape) -> tuple[Shape, Primitive]:
    return shape, ReduceSum(some_axes(draw, len(shape)))


def _iota(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    shape = draw(shapes(min_rank=1))
    return Iota(shape, dtype_of(draw, dtypes.NUMERIC, smooth), draw(st.integers(0, len(shape) - 1))), []


def _pad(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    shape, dtype = draw(shapes()), dtype_of(draw, ANY, smooth)
    interior = [draw(st.integers(0, 2)) for _ in shape]
    low = [draw(st.integers(-1, 2)) for _ in shape]
    spaced = [n + max(n - 1, 0) * i for n, i in zip(shape, interior, strict=True)]
    high = [draw(st.integers(max(-1, -lo - n), 2)) for lo, n in zip(low, spaced, strict=True)]
    domain = any_values(smooth)
    return Pad(tuple(low), tuple(high), tuple(interior)), [(Aval(shape, dtype), domain), (Aval((), dtype), domain)]


def _concatenate(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    shape, dtype = draw(shapes(min_rank=1)), dtype_of(draw, ANY, smooth)
    axis = draw(st.integers(0, len(shape) - 1))
    parts = [(*shape[:axis], n, *shape[axis + 1 :]) for n in draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))]
    return Concatenate(axis), [(Aval(s, dtype), any_values(smooth)) for s in parts]


OWN: Final[Mapping[type[Primitive], DrawOperands]] = MappingProxyType(
    {
        BroadcastInDim: _rearrangement(_broadcast_in_dim),
        ReduceSum: _rearrangement(_reduce_sum, dtypes.NUMERIC - dtypes.FLOAT8),
        Reshape: _rearrangement(_reshape),
        Transpose: _rearrangement(_transpose),
        Squeeze: _rearrangement(_squeeze),
        ExpandDims: _rearrangement(_expand_dims),
        Rev: _rearrangement(_rev),
        Iota: _iota,
        Slice: _rearrangement(_slice),
        Pad: _pad,
        Concatenate: _concatenate,
    }
)
