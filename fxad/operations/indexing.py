"""`x[index]` in equations, by the plan of `fxad.operations.index_plan`, and windows at dynamic places.

Run-time indices count from the end if negative, and are clamped if out of range, as in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.core.sizes.size import maximum, minimum
from fxad.errors import AxisError, DTypeError, ShapeError
from fxad.ir import Atom, Aval, Emit, Lit, Shape, Zero
from fxad.operations.arguments import with_atoms
from fxad.operations.axes import normalize_axis_index
from fxad.operations.index_plan import IndexPlan
from fxad.operations.promotion import broadcast, common_shape
from fxad.operations.shapes import emit_rearrange
from fxad.primitives.axes import other_axes, replace_entry
from fxad.primitives.dimension_numbers import windows_in_range
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.gather_scatter import Gather, gather_along_axis
from fxad.primitives.index import IndexVectors, index_dtype, normalize_index
from fxad.primitives.shape import Squeeze, emit_broadcast


def getitem(emit: Emit, x: Atom, *args: *tuple[*tuple[Atom, ...], IndexPlan]) -> tuple[Atom, ...]:
    """Return `x[index]`. Arguments: the operands that `plan` returned, then the plan."""
    *indices, plan = args
    if plan.empty or isinstance(x, Lit):
        zero = x if isinstance(x, Lit) else Zero(x.aval).instantiate()
        return (zero.with_shape(plan.shape),)
    for prim in plan.before:
        x = emit_rearrange(emit, prim, x)
    if plan.take is not None:
        if plan.vectors is not None:
            indices = [emit.one(plan.vectors, *indices)]
        x = emit.one(plan.take, x, *indices)
    for prim in plan.after:
        x = emit_rearrange(emit, prim, x)
    return (x,)


def gather(emit: Emit, x: Atom, vectors: Atom, prim: Gather, fill: Lit) -> tuple[Atom, ...]:
    """Return windows of x; windows out of range are `fill`."""
    out = emit.one(prim, x, vectors)
    last = tuple([x.aval.shape[a] - prim.slice_sizes[a] for a in prim.start_index_map])
    batch = other_axes(prim.offset_dims, out.aval.ndim)
    in_range = emit_broadcast(emit, windows_in_range(emit, vectors, last), out.aval.shape, batch)
    return (emit_where(emit, in_range, out, fill.with_shape(out.aval.shape)),)


def dynamic_slice(
    emit: Emit, x: Atom, *args: *tuple[*tuple[Atom, ...], tuple[int | None, ...], Shape, Shape]
) -> tuple[Atom, ...]:
    """Return a window of x. Arguments: the start indices that are atoms, then all of them (None: the next atom), then
    the sizes, and the axes of size 1 that are dropped."""
    *atoms, static_starts, sizes, dropped = args
    window = DynamicSlice(sizes)
    starts = start_indices(emit, x.aval.shape, atoms, static_starts)
    window_values = emit(window, x, *starts)
    return emit(Squeeze(dropped), *window_values) if dropped else window_values


def dynamic_update_slice(
    emit: Emit, x: Atom, update: Atom, *args: *tuple[*tuple[Atom, ...], tuple[int | None, ...]]
) -> tuple[Atom, ...]:
    """Return x with a window replaced: the start indices as in `dynamic_slice`."""
    *atoms, static_starts = args
    starts = start_indices(emit, x.aval.shape, atoms, static_starts)
    return emit(DYNAMIC_UPDATE_SLICE, x, update, *starts)


def take_along_axis(emit: Emit, x: Atom, indices: Atom, axis: int) -> tuple[Atom, ...]:
    """Return `x[..., indices[..., i, ...], ...]` for each i along an axis; the other axes are batch axes."""
    k = normalize_axis_index("take_along_axis", axis, x.aval.ndim)
    if indices.aval.dtype not in dtypes.INTEGER or indices.aval.ndim != x.aval.ndim:
        raise DTypeError(f"take_along_axis: indices must be integers with {x.aval.ndim} axes, got {indices.aval}")
    x_shape, index_shape = x.aval.shape, indices.aval.shape
    shape = common_shape("take_along_axis", replace_entry(x_shape, k, 1), replace_entry(index_shape, k, 1))
    x = broadcast(emit, x, replace_entry(shape, k, x_shape[k]))
    places = broadcast(emit, indices, replace_entry(shape, k, index_shape[k]))
    if 0 in places.aval.shape:
        return (Lit.zero(x.aval.with_shape(places.aval.shape)),)
    if x_shape[k] == 0:
        raise AxisError(f"take_along_axis: axis {k} has size 0 and no elements")
    # the axis may be empty if there are no indices
    prim = gather_along_axis(replace_entry(shape, k, places.aval.size), k, mode="clip")
    return emit(prim, x, emit.one(IndexVectors((x_shape[k],)), places))


def start_indices(emit: Emit, shape: Shape, atoms: Sequence[Atom], static_starts: tuple[int | None, ...]) -> list[Atom]:
    """Return one start index for each axis, in one dtype, counted from the start."""
    if len(static_starts) != len(shape):
        raise ShapeError(
            f"dynamic_slice: {len(static_starts)} start indices for the {len(shape)} axes of shape {shape}"
        )
    for a in atoms:
        if a.aval.dtype not in dtypes.INTEGER or a.aval.shape:
            raise DTypeError(f"dynamic_slice: a start index must be an integer without axes, got {a.aval}")
    dtype = index_dtype(shape)
    scalar = Aval((), dtype)
    return [
        normalize_index(emit, start, n, dtype)
        if isinstance(start, Atom)
        else Lit.of(maximum(minimum(start, n), -n - 1) + (n if start < 0 else 0), scalar)
        for start, n in zip(with_atoms(static_starts, atoms), shape, strict=True)
    ]
