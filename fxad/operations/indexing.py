"""`x[index]` in equations: what `fxad.operations.index_plan` has read out of an index, and windows at dynamic places.

Indices that are known when the program runs count from the end when negative, and are moved to the nearest element
when they are out of range, as in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import AxisError, DTypeError, ShapeError
from fxad.ir import Atom, Aval, Emit, Lit, Shape
from fxad.operations.axes import axis_of
from fxad.operations.index_plan import INT32_MAX, Column, Plan
from fxad.operations.promotion import broadcast, common_shape, convert
from fxad.operations.shapes import moved
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice
from fxad.primitives.elementwise import ADD, LT, SELECT_N
from fxad.primitives.indexing import Gather
from fxad.primitives.shape import reshaped
from fxad.primitives.slicing import Concatenate


def getitem(emit: Emit, x: Atom, *rest: object) -> tuple[Atom, ...]:
    """`x[index]`: the operands that `plan` found, then the plan."""
    *given, todo = rest
    indices, p = cast("list[Atom]", given), cast(Plan, todo)
    if p.empty is not None:
        return (Lit(bytes(x.aval.dtype.itemsize), x.aval.with_shape(p.empty)),)
    for prim in p.before:
        x = moved(emit, prim, x)
    if p.take is not None and not p.columns:
        x = emit.one(p.take, x, indices[0])
    elif p.take is not None:
        dtype = _index_dtype([i.aval.dtype for i in indices], x.aval.shape)
        columns = [_from_start(emit, convert(emit, i, dtype), c) for i, c in zip(indices, p.columns, strict=True)]
        if isinstance(p.take, DynamicSlice):
            starts: list[Atom] = [Lit.of(k, Aval((), dtype)) for k in p.starts]
            for c, column in zip(p.columns, columns, strict=True):
                starts[c.axis] = column
            x = emit.one(p.take, x, *starts)
        else:
            x = emit.one(p.take, x, _index_vectors(emit, columns, p.batch))
    for prim in p.after:
        x = moved(emit, prim, x)
    return (x,)


def _index_dtype(given: Sequence[DType], shape: Shape) -> DType:
    """A dtype that holds all indices and every position of an array of `shape`."""
    wide = {d if d.itemsize >= 4 else dtypes.int32 for d in given}
    if len(wide) == 1 and max(shape, default=0) <= INT32_MAX:
        return wide.pop()
    return dtypes.int64


def _from_start(emit: Emit, i: Atom, c: Column) -> Atom:
    """Negative indices count from the end."""
    if not c.signed or i.aval.dtype in dtypes.UNSIGNED:
        return i
    if isinstance(i, Lit):
        value = int(i.value)
        return Lit.of(value + c.size, i.aval) if value < 0 else i
    negative = emit.one(LT, i, Lit.of(0, i.aval))
    return emit.one(SELECT_N, negative, i, emit.one(ADD, i, Lit.of(c.size, i.aval)))


def dynamic_slice(emit: Emit, x: Atom, *rest: object) -> tuple[Atom, ...]:
    """A window of x: the start indices that are atoms, then all of them (None: the next atom), then the sizes."""
    *given, fixed, sizes = rest
    atoms, window = cast("list[Atom]", given), DynamicSlice(cast(Shape, sizes))
    starts = start_indices(emit, x.aval.shape, atoms, cast("tuple[int | None, ...]", fixed))
    return emit(window, x, *starts)


def dynamic_update_slice(emit: Emit, x: Atom, update: Atom, *rest: object) -> tuple[Atom, ...]:
    """x with a window replaced: the start indices as in `dynamic_slice`."""
    *given, fixed = rest
    starts = start_indices(emit, x.aval.shape, cast("list[Atom]", given), cast("tuple[int | None, ...]", fixed))
    return emit(DYNAMIC_UPDATE_SLICE, x, update, *starts)


def take_along_axis(emit: Emit, x: Atom, indices: Atom, axis: int) -> tuple[Atom, ...]:
    """`x[..., indices[..., i, ...], ...]` for each i along an axis; the other axes are gone through together."""
    k = axis_of("take_along_axis", axis, x.aval.ndim)
    if indices.aval.dtype not in dtypes.INTEGER or indices.aval.ndim != x.aval.ndim:
        raise DTypeError(f"take_along_axis: indices must be integers with {x.aval.ndim} axes, got {indices.aval}")
    ours, theirs = x.aval.shape, indices.aval.shape
    shape = common_shape("take_along_axis", ours[:k] + (1,) + ours[k + 1 :], theirs[:k] + (1,) + theirs[k + 1 :])
    x = broadcast(emit, x, (*shape[:k], ours[k], *shape[k + 1 :]))
    at = _from_start(
        emit, convert(emit, indices, _index_dtype([indices.aval.dtype], ours)), Column(k, ours[k], signed=True)
    )
    at = broadcast(emit, at, (*shape[:k], theirs[k], *shape[k + 1 :]))
    if 0 in at.aval.shape:
        return (Lit(bytes(x.aval.dtype.itemsize), x.aval.with_shape(at.aval.shape)),)
    if not ours[k]:
        raise AxisError(f"take_along_axis: axis {k} has size 0 and no elements")
    others = tuple([a for a in range(len(shape)) if a != k])
    gather = Gather(
        offset_dims=(),
        collapsed_slice_dims=(k,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
        start_index_map=(k,),
        slice_sizes=(1,) * len(shape),
        mode="clip",
        indices_sorted=False,
        unique_indices=False,
    )
    return emit(gather, x, reshaped(emit, at, (*at.aval.shape, 1)))


def start_indices(emit: Emit, shape: Shape, atoms: Sequence[Atom], fixed: tuple[int | None, ...]) -> list[Atom]:
    """One start index for each axis, in one dtype, counted from the start."""
    if len(fixed) != len(shape):
        raise ShapeError(f"dynamic_slice: {len(fixed)} start indices for the {len(shape)} axes of shape {shape}")
    for a in atoms:
        if a.aval.dtype not in dtypes.INTEGER or a.aval.shape:
            raise DTypeError(f"dynamic_slice: a start index must be an integer without axes, got {a.aval}")
    dtype = _index_dtype([a.aval.dtype for a in atoms] or [dtypes.int32], shape)
    rest = iter(atoms)
    return [
        _from_start(
            emit,
            convert(emit, next(rest), dtype) if k is None else Lit.of(k, Aval((), dtype)),
            Column(axis, shape[axis], signed=True),
        )
        for axis, k in enumerate(fixed)
    ]


def _index_vectors(emit: Emit, columns: Sequence[Atom], batch: Shape) -> Atom:
    """The indices as one array, an index vector on its last axis."""
    rows = [reshaped(emit, broadcast(emit, c, batch), (*batch, 1)) for c in columns]
    return rows[0] if len(rows) == 1 else emit.one(Concatenate(len(batch)), *rows)
