"""Equations as maps of slices: which equations treat all slices along an axis of their result alike.

`collapse` moves sums over an axis before such equations, and `sparse_directions` carries nonzero slices through them.
`apply_to_stack` is the other way round: it adds an equation for a stack of slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Aval, Eqn, Flags, Lit, Primitive, Var
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.families import of_family
from fxad.primitives.index import Index
from fxad.primitives.linalg.family import LinearSystem
from fxad.primitives.shape import BroadcastInDim, ExpandDims, ReduceSum, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.transforms.vmap import over_stack


@final
@dataclass(frozen=True, slots=True)
class Along:
    """An equation as a map of slices: `prim` maps one slice of the operands to one slice of the result. `axes` are the
    axes of the operands that are sliced; None for an operand that all slices share."""

    prim: Primitive
    axes: tuple[int | None, ...]


# (primitive, types of the operands, axis of the result) -> the map of slices, or None.
_Row: TypeAlias = Callable[[Primitive, Sequence[Aval], int], Along | None]


def after_removal(axes: Sequence[int], axis: int | None) -> tuple[int, ...]:
    """Return axes without one of them, numbered as in an array without it. None: all stay."""
    if axis is None:
        return tuple(axes)
    return tuple([a - (a > axis) for a in axes if a != axis])


def without(values: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return values without that of an axis."""
    return (*values[:axis], *values[axis + 1 :])


def _elementwise(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    return Along(prim, (axis,) * len(ins))


def _convert(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, ConvertElementType)
    # sums in a narrower dtype would lose digits
    wide = ins[0].inexact and ins[0].dtype.itemsize >= prim.dtype.itemsize
    same = (ins[0].dtype in dtypes.COMPLEX) == (prim.dtype in dtypes.COMPLEX)
    return Along(prim, (axis,)) if wide and same else None


def _broadcast(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, BroadcastInDim)
    shape = without(prim.shape, axis)
    if axis not in prim.dims:
        return Along(BroadcastInDim(shape, after_removal(prim.dims, axis)), (None,))
    operand_axis = prim.dims.index(axis)
    if ins[0].shape[operand_axis] != prim.shape[axis]:
        return None
    return Along(BroadcastInDim(shape, after_removal(prim.dims, axis)), (operand_axis,))


def _reduce_sum(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, ReduceSum)
    operand_axis = [a for a in range(ins[0].ndim) if a not in prim.axes][axis]
    return Along(ReduceSum(after_removal(prim.axes, operand_axis)), (operand_axis,))


def _reshape(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Reshape)
    if ins[0].symbolic or any([not isinstance(n, int) for n in prim.shape]):
        return None
    before, size, shape = prod(prim.shape[:axis]), prim.shape[axis], ins[0].shape
    operand_axis = next((k for k, n in enumerate(shape) if n == size and prod(shape[:k]) == before), None)
    if operand_axis is None or not before or size == 0:
        return None
    return Along(Reshape(without(prim.shape, axis)), (operand_axis,))


def _transpose(prim: Primitive, _: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Transpose)
    operand_axis = prim.perm[axis]
    return Along(Transpose(after_removal(prim.perm, operand_axis)), (operand_axis,))


def _squeeze(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Squeeze)
    removed = [a % ins[0].ndim for a in prim.axes]
    operand_axis = [a for a in range(ins[0].ndim) if a not in removed][axis]
    return Along(Squeeze(after_removal(removed, operand_axis)), (operand_axis,))


def _expand_dims(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, ExpandDims)
    ndim = ins[0].ndim + len(prim.axes)
    added = [a % ndim for a in prim.axes]
    if axis in added:
        return None
    operand_axis = [a for a in range(ndim) if a not in added].index(axis)
    return Along(ExpandDims(after_removal(added, axis)), (operand_axis,))


def _rev(prim: Primitive, _: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Rev)
    return None if axis in prim.axes else Along(Rev(after_removal(prim.axes, axis)), (axis,))


def _slice(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Slice)
    if (prim.starts[axis], prim.limits[axis], prim.strides[axis]) != (0, ins[0].shape[axis], 1):
        return None
    return Along(Slice(*[without(values, axis) for values in (prim.starts, prim.limits, prim.strides)]), (axis,))


def _index(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Index)
    operand_axis = [a for a in range(ins[0].ndim) if a not in prim.dropped][axis]
    if operand_axis in prim.dynamic or (
        prim.starts[operand_axis],
        prim.sizes[operand_axis],
        prim.strides[operand_axis],
    ) != (0, ins[0].shape[operand_axis], 1):
        return None
    starts, sizes, strides = [without(values, operand_axis) for values in (prim.starts, prim.sizes, prim.strides)]
    dropped, dynamic = after_removal(prim.dropped, operand_axis), after_removal(prim.dynamic, operand_axis)
    return Along(Index(starts, sizes, strides, dropped, dynamic), (operand_axis, *[None] * len(dynamic)))


def _pad(prim: Primitive, _: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Pad)
    if prim.low[axis] or prim.high[axis] or prim.interior[axis]:
        return None
    return Along(Pad(*[without(values, axis) for values in (prim.low, prim.high, prim.interior)]), (axis, None))


def _concatenate(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    assert isinstance(prim, Concatenate)
    if axis == prim.axis:
        return None
    return Along(Concatenate(prim.axis - (prim.axis > axis)), (axis,) * len(ins))


def _dot_general(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    """Return a product of slices. The axes of the result are the batch, those that the left operand keeps, and those
    that the right one keeps: along a batch axis both operands are sliced, along another one only the operand that has
    it. Example: f32[8, 3, 4] times f32[8, 4, 5] is f32[8, 3, 5]. Along axis 0 a slice is the product of f32[3, 4] and
    f32[4, 5], along axis 2 that of the whole left operand and f32[8, 4]."""
    assert isinstance(prim, DotGeneral)
    lhs, rhs = ins
    if prim.preferred is not None and prim.preferred.itemsize > lhs.dtype.itemsize:
        return None  # sums in the narrower dtype of the operands would lose digits
    n_batch = len(prim.lhs_batch)
    lhs_free, rhs_free = [
        [k for k in range(x.ndim) if k not in (*batch, *contract)]
        for x, batch, contract in (
            (lhs, prim.lhs_batch, prim.lhs_contract),
            (rhs, prim.rhs_batch, prim.rhs_contract),
        )
    ]
    axes: tuple[int | None, int | None]
    if axis < n_batch:
        axes = prim.lhs_batch[axis], prim.rhs_batch[axis]
    elif axis < n_batch + len(lhs_free):
        axes = lhs_free[axis - n_batch], None
    else:
        axes = None, rhs_free[axis - n_batch - len(lhs_free)]
    lhs_axis, rhs_axis = axes
    return Along(
        replace(
            prim,
            lhs_contract=after_removal(prim.lhs_contract, lhs_axis),
            lhs_batch=after_removal(prim.lhs_batch, lhs_axis),
            rhs_contract=after_removal(prim.rhs_contract, rhs_axis),
            rhs_batch=after_removal(prim.rhs_batch, rhs_axis),
        ),
        axes,
    )


def _linear_system(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    return Along(prim, (axis,) * len(ins)) if axis < ins[-1].ndim - 2 else None


AXIS_RULES: Final[Mapping[type[Primitive], _Row]] = MappingProxyType(
    {
        Unary: _elementwise,
        Binary: _elementwise,
        SelectN: _elementwise,
        ConvertElementType: _convert,
        BroadcastInDim: _broadcast,
        ReduceSum: _reduce_sum,
        Reshape: _reshape,
        Transpose: _transpose,
        Squeeze: _squeeze,
        ExpandDims: _expand_dims,
        Rev: _rev,
        Slice: _slice,
        Index: _index,
        Pad: _pad,
        Concatenate: _concatenate,
        DotGeneral: _dot_general,
        LinearSystem: _linear_system,
    }
)


def along(prim: Primitive, ins: Sequence[Aval], axis: int) -> Along | None:
    """Return an equation as a map of slices along an axis of its result; None if it is none, or no row says so."""
    row = of_family(AXIS_RULES, type(prim))
    return None if row is None else row(prim, ins, axis)


# ------------------------------------------------------------------------------------- values with equal slices


def is_constant(defs: Mapping[Atom, Eqn], a: Atom, axis: int) -> bool:
    """Return True if all slices of a value along an axis are the same, and `slice_of` gives one of them. `defs` are the
    equations that compute values."""
    if isinstance(a, Lit):
        return True
    eqn = defs.get(a)
    if eqn is None or not isinstance(eqn.prim, BroadcastInDim | Transpose | Reshape | ExpandDims | Squeeze):
        return False
    slice_map = along(eqn.prim, [x.aval for x in eqn.ins], axis)
    return slice_map is not None and (slice_map.axes[0] is None or is_constant(defs, eqn.ins[0], slice_map.axes[0]))


def slice_of(b: Builder, defs: Mapping[Atom, Eqn], value_of: Callable[[Atom], Atom], a: Atom, axis: int) -> Atom:
    """Return one slice of a value that is constant along an axis. `value_of` gives the values of the new program."""
    if isinstance(a, Lit):
        return a.with_shape(without(a.aval.shape, axis))
    eqn = defs[a]
    slice_map = along(eqn.prim, [x.aval for x in eqn.ins], axis)
    assert slice_map is not None
    (x,) = eqn.ins
    source = value_of(x) if slice_map.axes[0] is None else slice_of(b, defs, value_of, x, slice_map.axes[0])
    if source.aval.shape == without(a.aval.shape, axis):
        is_identity = isinstance(slice_map.prim, BroadcastInDim) and slice_map.prim.dims == tuple(
            range(source.aval.ndim)
        )
        if is_identity or isinstance(slice_map.prim, Reshape):
            return source
    return b.one(slice_map.prim, source)


def weights_along(defs: Mapping[Atom, Eqn], a: Atom, axis: int) -> Atom | None:
    """Return the numbers of a value that varies along one axis only; None if it varies along others."""
    if a.aval.ndim == 1:
        return a if isinstance(a, Var) else None
    eqn = defs.get(a)
    if eqn is None or not isinstance(eqn.prim, BroadcastInDim) or axis not in eqn.prim.dims:
        return None
    (x,) = eqn.ins
    size = a.aval.shape[axis]
    return x if x.aval.size == size == x.aval.shape[eqn.prim.dims.index(axis)] else None


def apply_to_stack(b: Builder, prim: Primitive, operands: Sequence[Atom], stacked: Flags, size: int) -> Sequence[Atom]:
    """Add an equation for each of `size` slices: of the operands marked in `stacked`, which have an axis for them in
    front. Return stacks of the results."""
    inner = Builder()
    slices: list[Atom] = []
    for a, m in zip(operands, stacked, strict=True):
        aval = Aval(a.aval.shape[1:], a.aval.dtype) if m else a.aval
        slices.append(a if isinstance(a, Lit) and not m else inner.input(aval))  # other literals stay literals
    body = inner.build(inner(prim, *slices), prim.name)
    inputs = [k for k, a in enumerate(slices) if not isinstance(a, Lit)]
    dims = tuple([0 if stacked[k] else None for k in inputs])
    return b.inline(over_stack(body, size, dims, (0,) * len(body.outs)), [operands[k] for k in inputs])
