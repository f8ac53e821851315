"""`x.at[index].add(value)` in equations: the plan of `fxad.operations.index_plan`, used for writes.

Ints and slices index each element once: their window is read if needed, combined with the value, and written back.
Integer arrays, and run-time ints, become one scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, cast

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.size import maximum
from fxad.errors import DTypeError, ParameterError, ShapeError, shown
from fxad.ir import Atom, Atoms, Aval, Emit, Lit, Primitive, Shape, Zero
from fxad.operations import arithmetic
from fxad.operations.index_plan import IndexPlan
from fxad.operations.indexing import gather, getitem
from fxad.operations.promotion import broadcast, common_shape, convert, dtype_kind
from fxad.operations.shapes import emit_rearrange
from fxad.primitives.axes import insert_entry, remove_axes
from fxad.primitives.dimension_numbers import DimensionNumbers, GatherScatterMode
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE
from fxad.primitives.elementwise.arithmetic import DIV, MAX, MIN, NEG, SUB
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterAdd, ScatterMax, ScatterMin, ScatterMul
from fxad.primitives.index import IndexVectors, index_dtype
from fxad.primitives.shape import ExpandDims, Rev, Squeeze, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Pad, Slice

CombineUpdates: TypeAlias = Callable[[Emit, Atom, Atom], Atoms]
ScatterType: TypeAlias = type[Scatter | ScatterAdd | ScatterMul | ScatterMin | ScatterMax]

MODES: Final = ("drop", "fill", "clip", "promise_in_bounds")


@dataclass(frozen=True, slots=True)
class IndexMode:
    """The treatment of run-time indices: the mode for indices out of range, and the promises."""

    mode: GatherScatterMode
    indices_sorted: bool
    unique_indices: bool


def checked_mode(name: str, mode: str | None, default: GatherScatterMode) -> GatherScatterMode:
    """Return the user's mode as named by gather and scatter. Raises: ParameterError."""
    if mode is None:
        return default
    if not isinstance(mode, str) or mode not in MODES:
        raise ParameterError(f"{name}: mode {shown(mode)} is not one of {', '.join(MODES)}", remedy="leave `mode` out")
    return "drop" if mode == "fill" else cast("GatherScatterMode", mode)


# ----------------------------------------------------------------------------------------------------- combinations


def _take_value(_: Emit, x: Atom, value: Atom) -> Atoms:  # noqa: ARG001  `set` ignores x
    return (value,)


def _combine_with(prim: Primitive) -> CombineUpdates:
    return lambda emit, x, value: emit(prim, x, value)


def _divide(emit: Emit, x: Atom, value: Atom) -> Atoms:
    if x.aval.dtype not in dtypes.INEXACT:
        raise DTypeError(
            f"at.divide: division in {x.aval.dtype.name} gives floats", remedy="convert the array with astype first"
        )
    return emit(DIV, x, value)


COMBINE: Final[Mapping[str, CombineUpdates]] = MappingProxyType(
    {
        "set": _take_value,
        "add": arithmetic.add,
        "subtract": _combine_with(SUB),
        "multiply": arithmetic.multiply,
        "divide": _divide,
        "power": arithmetic.power,
        "min": _combine_with(MIN),
        "max": _combine_with(MAX),
    }
)
# Operations with a scatter primitive, which combines repeated updates of one element.
_SCATTER: Final[Mapping[str, ScatterType]] = MappingProxyType(
    {"set": Scatter, "add": ScatterAdd, "multiply": ScatterMul, "min": ScatterMin, "max": ScatterMax}
)
# Operations whose derivative has a factor that depends on the operands.
_OF_PRODUCTS: Final = ("multiply", "divide", "power")
# + is or, * is and
_OF_BOOLS: Final = MappingProxyType({"add": "max", "multiply": "min"})


def fit_update(name: str, emit: Emit, value: Atom, x: Aval, shape: Shape) -> Atom:
    """Return the value in the dtype of x and the shape of the indexed elements.

    Raises: DTypeError if a kind would be lost (complex, floating, integer, bool; the sign); ShapeError.
    """
    value_dtype = value.aval.dtype
    loses_sign = x.dtype in dtypes.UNSIGNED and value_dtype in dtypes.INTEGER - dtypes.UNSIGNED
    if dtype_kind(value_dtype) > dtype_kind(x.dtype) or loses_sign:
        raise DTypeError(
            f"{name}: a value of {value_dtype.name} does not go into {x} without loss",
            remedy=f"convert the value with astype({x.dtype.name}), or the array",
        )
    if common_shape(name, value.aval.shape, shape) != shape:
        raise ShapeError(
            f"{name}: a value of shape {value.aval.shape} does not broadcast to the shape {shape} the index picks",
            remedy="give the value that shape, or one with sizes of 1",
        )
    return broadcast(emit, convert(emit, value, x.dtype), shape)


# -------------------------------------------------------------------------------------------------------- the update


@dataclass(frozen=True, slots=True)
class _IndexedWindows:
    """Elements at index vectors: the dimension numbers, the primitive that makes the vectors, and the windows."""

    windows: DimensionNumbers
    vectors: IndexVectors | None
    sizes: Shape
    unique_and_sorted: bool  # the indices are unique and sorted

    def promises(self, index_mode: IndexMode) -> tuple[bool, bool]:
        """Return whether the indices are sorted, and whether they are unique: by the plan, or by the user's promise."""
        return index_mode.indices_sorted or self.unique_and_sorted, index_mode.unique_indices or self.unique_and_sorted


def update(emit: Emit, x: Atom, value: Atom, *args: *tuple[*tuple[Atom, ...], IndexPlan, str, IndexMode]) -> Atoms:
    """Return x with `value` combined into the indexed elements. Arguments: the operands of `plan`, the plan, the
    operation, an `IndexMode`."""
    *indices, plan, name, index_mode = args
    if name == "subtract" and x.aval.dtype == dtypes.bool_:
        raise DTypeError(f"at.subtract: bools have no difference, got {x.aval}", remedy="convert the array with astype")
    value = fit_update(f"at.{name}", emit, value, x.aval, plan.shape)
    if plan.empty:
        return (x,)
    before, indexed, after = _split_plan(plan, x.aval.shape)
    view: Atom = x
    if indexed is not None or name != "set":
        view = _apply_all(emit, view, before)
    view_shape = _shape_after(x.aval, before) if view is x else view.aval.shape
    for prim in reversed(after):
        value = _undo_axes_change(emit, prim, value, view_shape)
    if indexed is None:
        (new,) = COMBINE[name](emit, view, value)
    else:
        new = _scatter(emit, name, view, value, _index_vectors(emit, indexed, indices), indexed, index_mode)
    for prim in reversed(before):
        new = (
            _write_window(emit, x, new, prim)
            if isinstance(prim, Slice)
            else _undo_axes_change(emit, prim, new, x.aval.shape)
        )
    return (new,)


def get(emit: Emit, x: Atom, *args: *tuple[*tuple[Atom, ...], IndexPlan, IndexMode, Lit | None]) -> Atoms:
    """Return the indexed elements, with `fill` for those out of range; None: by the `IndexMode`."""
    *indices, plan, index_mode, fill = args
    before, indexed, after = _split_plan(plan, x.aval.shape)
    if plan.empty or indexed is None:
        return getitem(emit, x, *indices, plan)
    x, vectors = _apply_all(emit, x, before), _index_vectors(emit, indexed, indices)
    prim = Gather(*indexed.windows.numbers, indexed.sizes, index_mode.mode, *indexed.promises(index_mode))
    (out,) = emit(prim, x, vectors) if fill is None else gather(emit, x, vectors, prim, fill)
    return (_apply_all(emit, out, after),)


def masked_update(emit: Emit, x: Atom, value: Atom, mask: Atom, name: str) -> Atoms:
    """Return x with a 0-d `value` combined into the elements where `mask` is True; the mask may be a run-time value."""
    ndim = mask.aval.ndim
    mask_shape, sizes = mask.aval.shape, x.aval.shape[:ndim]
    # NumPy takes a mask without elements for axes of any size
    if len(sizes) < ndim or any([m not in (0, n) for m, n in zip(mask_shape, sizes, strict=True)]):
        raise ShapeError(
            f"at.{name}: a mask of shape {mask_shape} does not fit an array of shape {x.aval.shape}",
            remedy="a mask has the sizes of the axes it indexes",
        )
    value = fit_update(f"at.{name}", emit, value, x.aval, x.aval.shape)
    if mask_shape != sizes:
        return (x,)
    if ndim < x.aval.ndim:
        mask = emit_broadcast(emit, mask, x.aval.shape, tuple(range(ndim)))
    chosen: Atom = x
    if name in _OF_PRODUCTS:  # ones elsewhere: derivatives there are multiplied by 0, and 0 times infinity is nan
        one = Lit.of(1, x.aval)
        chosen, value = emit_where(emit, mask, x, one), emit_where(emit, mask, value, one)
    (new,) = COMBINE[name](emit, chosen, value)
    return (emit_where(emit, mask, new, x),)


def _split_plan(
    plan: IndexPlan, shape: Shape
) -> tuple[tuple[Primitive, ...], _IndexedWindows | None, tuple[Primitive, ...]]:
    """Split a plan into primitives that take a view of x, the windows at index vectors in the view, and primitives that
    change the axes."""
    take = plan.take
    if take is None:
        return plan.before, None, plan.after
    if isinstance(take, Gather):
        indexed = _IndexedWindows(take.windows, plan.vectors, take.slice_sizes, take.unique_indices)
        return plan.before, indexed, plan.after
    part_shape = take.reachable_shape(shape)
    before = (take.reachable_slice(shape),) if part_shape != shape else ()
    if not take.dynamic:
        return before, None, (*((Squeeze(take.dropped),) if take.dropped else ()), *plan.after)
    stay = tuple(range(len(part_shape) - len(take.dropped)))
    windows = DimensionNumbers(stay, take.dropped, (), (), take.dynamic)
    vectors = IndexVectors(tuple([part_shape[a] for a in take.dynamic]))
    return before, _IndexedWindows(windows, vectors, take.sizes, unique_and_sorted=True), plan.after


def _apply_all(emit: Emit, x: Atom, prims: Sequence[Primitive]) -> Atom:
    for prim in prims:
        x = emit_rearrange(emit, prim, x)
    return x


def _shape_after(x: Aval, prims: Sequence[Primitive]) -> Shape:
    """Return the shape of the result of `_apply_all`."""
    for prim in prims:
        (x,) = prim.abstract_eval(x)
    return x.shape


def _index_vectors(emit: Emit, indexed: _IndexedWindows, indices: list[Atom]) -> Atom:
    return indices[0] if indexed.vectors is None else emit.one(indexed.vectors, *indices)


def _undo_axes_change(emit: Emit, prim: Primitive, value: Atom, view: Shape) -> Atom:
    """Return the value before `prim` changes the axes of the indexed elements."""
    shape = value.aval.shape
    if isinstance(prim, ExpandDims):
        return emit_reshape(emit, value, remove_axes(shape, prim.axes))
    if isinstance(prim, Squeeze):
        for a in prim.axes:
            shape = insert_entry(shape, a, 1)
        return emit_reshape(emit, value, shape)
    return emit_rearrange(emit, prim, value) if isinstance(prim, Rev) else emit_reshape(emit, value, view)


def _write_window(emit: Emit, x: Atom, new: Atom, window: Slice) -> Atom:
    """Return x with a window replaced."""
    if all([n == 1 for n in window.strides]):
        dtype = index_dtype(x.aval.shape)
        starts = [Lit.of(n, Aval((), dtype)) for n in window.starts]
        return emit.one(DYNAMIC_UPDATE_SLICE, x, new, *starts)
    places = zip(x.aval.shape, window.starts, window.strides, new.aval.shape, strict=True)
    high = tuple([n - start - m - maximum(m - 1, 0) * (stride - 1) for n, start, stride, m in places])
    pad = Pad(window.starts, high, tuple([n - 1 for n in window.strides]))
    yes = Lit.of(True, new.aval.with_dtype(dtypes.bool_))
    mask = emit.one(pad, yes, Lit.of(False, Aval((), dtypes.bool_)))
    zero = Zero(x.aval.with_shape(())).instantiate()
    spread = new.with_shape(x.aval.shape) if isinstance(new, Lit) else emit.one(pad, new, zero)
    return emit_where(emit, mask, spread, x)


def _scatter(
    emit: Emit, name: str, x: Atom, value: Atom, at: Atom, indexed: _IndexedWindows, index_mode: IndexMode
) -> Atom:
    """Return x with `value` combined into the elements at index vectors; repeated updates of one element are combined
    in sequence; of a quotient or a power, the product of the values is taken first."""
    promises = indexed.promises(index_mode)
    if x.aval.dtype is dtypes.bool_:
        name = _OF_BOOLS.get(name, name)

    def scatter(prim: ScatterType, x: Atom, value: Atom) -> Atom:
        return emit.one(prim(*indexed.windows.numbers, index_mode.mode, *promises), x, at, value)

    if name == "subtract":
        return scatter(ScatterAdd, x, emit.one(NEG, value))
    if name in _SCATTER:
        return scatter(_SCATTER[name], x, value)

    # combine all updates of an element first: then repeated updates write the same value
    def read(a: Atom) -> Atom:
        return emit.one(Gather(*indexed.windows.numbers, indexed.sizes, index_mode.mode, *promises), a, at)

    _, unique = promises
    if not unique:
        value = read(scatter(ScatterMul, Lit.of(1, x.aval), value))
    (new,) = COMBINE[name](emit, read(x), value)
    return scatter(Scatter, x, new)
