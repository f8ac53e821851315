"""NumPy's rules for `x[index]`, in full.

`plan` reads the index once, for the shape of x, and returns a value: the primitives in order, and the parts of the
index that are known only at run time. Ints and slices become one slice, ints that are arrays one dynamic_slice, integer
arrays one gather. Whole axes cost nothing. `fxad.operations.indexing` emits the plan.

Three plans, for an x of shape (4, 6, 5):

    x[1:3, ::-1]       before: slice of rows 1 and 2, rev of axis 1
    x[2, None, :, i]   take: one Index of row 2 and of column i, an operand; after: expand_dims of axis 0
    x[[0, 3], 1:]      before: slice of axis 1; take: a Gather of 2 rows; the operand is [[0], [3]], its index vectors
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.lru import LRUCache
from fxad.core.numbers import IntArgument
from fxad.core.sizes.size import Size, dimension, maximum, minimum
from fxad.dtypes import DType
from fxad.errors import ArgumentError, AxisError, DTypeError, TracerError, shown
from fxad.ir import Aval, NDArray, Primitive, Shape
from fxad.operations.aval_attributes import Typed
from fxad.operations.promotion import common_shape
from fxad.primitives.gather_scatter import Gather
from fxad.primitives.index import Index, IndexVectors, index_dtype
from fxad.primitives.shape import ExpandDims, Reshape, Rev, Squeeze
from fxad.primitives.slicing import Slice


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The primitives of an index in order: `before`, `take`, which reads elements, and `after`."""

    shape: Shape  # of the result
    before: tuple[Primitive, ...] = ()  # slice, rev
    take: Index | Gather | None = None
    vectors: IndexVectors | None = None  # makes the index vectors of a Gather; None: the operand is one
    after: tuple[Primitive, ...] = ()  # rev, squeeze, expand_dims, or a reshape for both
    empty: bool = False  # the result has no elements: nothing is read


@dataclass(frozen=True, slots=True)
class _IndexArray:
    """An integer array in an index. A mask gives one for each of its axes: the places of its True elements."""

    shape: Shape
    dtype: DType
    value: object
    masked: int | None = None  # the size of this axis of the mask
    mask: object = None
    nonnegative: bool = False  # no element is negative, which is known while tracing


@dataclass(frozen=True, slots=True)
class _ScalarMask:
    """A bool in an index: an axis of size 1 or 0 that broadcasts with the arrays."""

    size: int


_IndexEntry: TypeAlias = "int | slice | None | EllipsisType | _IndexArray | _ScalarMask"

_NO_WRAPPING: Final = "with wrap_negative_indices=False static indices run from 0"
_KEY_OF_NONE: Final = "None"
_DROP_FIRST_AXIS: Final = Squeeze((0,))
# plans of static indices are cached
_plans: Final[LRUCache[Hashable, tuple[IndexPlan, tuple[object, ...]]]] = LRUCache(2048)
_BASIC_INDEX_TYPES: Final = frozenset({int, Size, slice})
_REMEDY: Final = "an index is made of ints, slices, None, ..., integer arrays and boolean masks"


# --------------------------------------------------------------------------------------------------- reading an index


def plan(
    shape: Shape, index: object, *, checked: bool = True, wraps: bool = True
) -> tuple[IndexPlan, tuple[object, ...]]:
    """Return the plan of `x[index]` for an `x` of `shape`, and the parts of the index that are operands of `getitem`.

    Not `checked`: static indices may be out of range, as run-time ones. Not `wraps`: negative indices are out of range;
    bounds of slices still count from the end.

    Raises: AxisError for too many indices or a static one out of range; DTypeError, ArgumentError for an invalid index;
            TracerError for a mask or a bound that is not known while tracing.
    """
    index_key = hashable_index(index)
    if index_key is None:
        return _build_plan(shape, index, checked, wraps)
    key = shape, index_key, checked, wraps
    cached = _plans.get(key)
    if cached is None:
        cached = _build_plan(shape, index, checked, wraps)
        _plans.put(key, cached)
    return cached


def _build_plan(shape: Shape, index: object, checked: bool, wraps: bool) -> tuple[IndexPlan, tuple[object, ...]]:
    # a fast path for x[i]
    if type(index) is int and wraps and shape and -shape[0] <= index < shape[0] and 0 not in shape:
        n, *rest = shape
        if n == 1:
            return IndexPlan(tuple(rest), after=(_DROP_FIRST_AXIS,)), ()
        take = Index((index % n, *(0,) * len(rest)), (1, *rest), (1,) * len(shape), (0,), ())
        return IndexPlan(tuple(rest), take=take), ()
    entries = [e for item in (index if type(index) is tuple else (index,)) for e in _to_entries(item)]
    builder = _PlanBuilder(shape, checked, wraps)
    for e in _expand_ellipsis(shape, entries):
        builder.add(e)
    return builder.plan()


def with_dynamic_starts(p: IndexPlan, shape: Shape) -> tuple[IndexPlan, tuple[int, ...]]:
    """Return the plan with the starts of its window as its first operands, and these starts. Indices that differ only
    in the starts then share one program."""
    take, later_steps = p.take, p.before[1:]
    dropped: tuple[int, ...] = ()
    window = p.before[0] if p.before and take is None else take
    if isinstance(window, Slice):
        sizes = window.abstract_eval(Aval(shape, dtypes.bool_))[0].shape
    elif isinstance(window, Index) and not window.dynamic:
        sizes, dropped = window.sizes, window.dropped
    else:
        return p, ()
    starts, strides = window.starts, window.strides
    axes = tuple([a for a, n in enumerate(shape) if strides[a] == 1 and sizes[a] < n])
    static_starts = tuple([0 if a in axes else start for a, start in enumerate(starts)])
    take = Index(static_starts, sizes, strides, dropped, axes)
    return IndexPlan(p.shape, take=take, after=(*later_steps, *p.after)), tuple([starts[a] for a in axes])


def hashable_index(index: object) -> Hashable:
    """Return a hashable key for an index of ints, slices, None and `...`, equal for equal indices; None for any other
    index."""
    kind = type(index)
    if kind is int or index is Ellipsis:
        return index
    if isinstance(index, slice):
        bounds = index.start, index.stop, index.step
        # 1 == True == 1.0, so only plain ints may share a key
        return ("slice", *bounds) if all([b is None or type(b) is int for b in bounds]) else None
    if isinstance(index, tuple):
        parts = tuple([_KEY_OF_NONE if e is None else hashable_index(e) for e in index])
        return None if None in parts else parts
    return None


def promise_unique_indices(p: IndexPlan, operands: tuple[object, ...]) -> IndexPlan:
    """Return the plan with the promise that no element is read twice, if this is known now and true."""
    if not isinstance(p.take, Gather) or p.vectors is not None or p.take.unique_indices:
        return p
    rows = np.asarray(cast("npt.ArrayLike", operands[0])).reshape(-1, len(p.take.start_index_map))
    if len(np.unique(rows, axis=0)) < len(rows):
        return p
    return replace(p, take=replace(p.take, unique_indices=True))


def _to_entries(entry: object) -> tuple[_IndexEntry, ...]:
    """Return one entry of an index in normal form; a mask becomes an array for each of its axes."""
    if entry is None or entry is Ellipsis or type(entry) in _BASIC_INDEX_TYPES or type(entry) is IntArgument:
        return (cast("_IndexEntry", entry),)
    if isinstance(entry, bool | np.bool_):
        return (_ScalarMask(int(entry)),)
    if isinstance(entry, list | tuple):
        entry = _array_entry(entry)
    aval = getattr(entry, "aval", None)
    if isinstance(aval, Aval):  # an fxad array, seen by its aval only in this layer
        entry = cast("Typed", entry).settled()
        return (
            _mask_entries(entry) if aval.dtype is dtypes.bool_ else (_check_index_array(aval.shape, aval.dtype, entry),)
        )
    if hasattr(entry, "__dlpack__") and not isinstance(entry, np.ndarray | np.generic):  # an array of another library
        entry = np.asarray(entry)
    if isinstance(entry, np.ndarray):
        if entry.dtype == np.bool_:
            return _mask_entries(entry)
        if entry.ndim or entry.dtype.kind not in "iu":
            return (_check_index_array(entry.shape, entry.dtype, entry),)
    try:
        return (entry.__index__(),)  # type: ignore[attr-defined]  # tested by the except clause
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"getitem: {shown(entry)} ({type(entry).__qualname__}) is not an index", remedy=_REMEDY
        ) from None


def _array_entry(values: Sequence[object]) -> NDArray:
    try:
        array: NDArray = np.asarray(values)
    except TracerError as e:
        raise TracerError(
            "getitem: a list of tracers is not an index",
            remedy="make it one array: fxad.numpy.stack(list)",
            where=e.where,
        ) from None
    except ValueError:
        raise ArgumentError(
            f"getitem: {shown(values)} is not an index: its rows differ in length", remedy=_REMEDY
        ) from None
    return array if array.size else array.astype(np.int32)


def _check_index_array(shape: Shape, dtype: DType, value: object) -> _IndexArray:
    if dtype.kind not in "iu":
        raise DTypeError(f"getitem: an index array must be integer or bool, got {dtype.name}", remedy="use astype")
    return _IndexArray(shape, dtype, value)


def _mask_entries(values: object) -> tuple[_IndexEntry, ...]:
    try:
        mask = np.asarray(cast("npt.ArrayLike", values))
    except TracerError as e:
        raise TracerError(
            f"getitem: {values!r} is a mask, and how many elements it picks is not known while the function is traced",
            remedy="use fxad.numpy.where(mask, x, other), which keeps the shape, or extract(mask, x, size=...)",
            where=e.where,
        ) from None
    if not mask.ndim:
        return (_ScalarMask(int(mask)),)
    picked = zip(np.nonzero(mask), mask.shape, strict=True)
    return tuple([_IndexArray(a.shape, dtypes.int32, a, n, mask) for a, n in picked])


def _expand_ellipsis(shape: Shape, entries: list[_IndexEntry]) -> list[_IndexEntry]:
    """Return the entries with whole axes in place of `...`, or at the end."""
    dots = [k for k, e in enumerate(entries) if e is Ellipsis]
    if len(dots) > 1:
        raise AxisError(f"getitem: an index has at most one ellipsis, got {len(dots)}", remedy="write : for the others")
    count = len([e for e in entries if e is not None and e is not Ellipsis and type(e) is not _ScalarMask])
    if count > len(shape):
        raise AxisError(
            f"getitem: too many indices: {count} for the {len(shape)} axes of shape {shape}",
            remedy="give at most one index an axis; None adds an axis",
        )
    whole: list[_IndexEntry] = [slice(None)] * (len(shape) - count)
    if not dots:
        return [*entries, *whole]
    # an ellipsis for no axes still separates arrays, as in NumPy
    k = dots[0]
    return [*entries[:k], *(whole or [Ellipsis]), *entries[k + 1 :]]


# ------------------------------------------------------------------------------------------------- making the plan


_NEW_AXIS: Final = -1  # in the place of a size: an axis of size 1 that the operand does not have


class _PlanBuilder:
    """Builds the plan of an index: it takes the entries of the index from left to right."""

    def __init__(self, shape: Shape, checked: bool, wraps: bool) -> None:
        self.shape = shape
        self.checked = checked
        self.wraps = wraps
        self.axis = 0
        # the static window: one entry for each axis of the array
        self.starts: list[int] = []
        self.limits: list[int] = []
        self.strides: list[int] = []
        self.sizes: list[int] = []
        self.reversed: list[int] = []
        self.int_axes: list[int] = []  # axes indexed by an int, which are removed
        self.arrays: list[tuple[int, _IndexArray]] = []
        self.scalar_masks: list[int] = []  # their sizes, 1 or 0
        # the axes of the result, entry by entry; None for an int or an array
        self.result: list[tuple[int, ...] | None] = []

    def add(self, e: _IndexEntry) -> None:
        """Take the next entry of the index."""
        if type(e) is int or type(e) is Size:
            self._add_int(e)
        elif type(e) is IntArgument:
            self._add_known_int(int(e))
        elif type(e) is slice:
            self._add_slice(e)
        elif type(e) is _IndexArray:
            self._add_array(e)
        elif type(e) is _ScalarMask:
            self.scalar_masks.append(e.size)
            self.result.append(None)
        else:
            self.result.append((_NEW_AXIS,) if e is None else ())

    def _add_window(self, start: int, limit: int, stride: int, size: int) -> None:
        self.starts.append(start)
        self.limits.append(limit)
        self.strides.append(stride)
        self.sizes.append(size)
        self.axis += 1

    def _add_int(self, i: int) -> None:
        n = self.shape[self.axis]
        if not (-n if self.wraps else 0) <= i < n:
            if not self.checked:  # as an index that is known at run time; -n - 1 and n are out of range too
                place = min(max(i, -n - 1), n)
                self._add_array(_IndexArray((), dtypes.int32, np.asarray(place, index_dtype((n,)))))
                return
            raise AxisError(
                f"getitem: index {i} is out of range for axis {self.axis} with size {n}",
                remedy=_range(n) if self.wraps else _NO_WRAPPING,
            )
        i = i + n if i < 0 else i
        self.int_axes.append(self.axis)
        self.result.append(None)
        self._add_window(i, i + 1, 1, 1)

    def _add_known_int(self, i: int) -> None:
        """Take an int that is an argument of a traced function: it is checked, and then an operand."""
        n = self.shape[self.axis]
        if type(n) is Size or not (-n if self.wraps else 0) <= i < n:
            self._add_int(i)
        else:
            dtype = index_dtype((n,))
            self._add_array(_IndexArray((), dtype, np.asarray(i % n, dtype), nonnegative=True))

    def _add_slice(self, s: slice) -> None:
        n = self.shape[self.axis]
        if Size in (type(n), type(s.start), type(s.stop), type(s.step)):
            self._add_symbolic_slice(n, s)
            return
        try:
            start, stop, step = s.indices(n)
        except TracerError as e:
            raise TracerError(
                f"getitem: a bound of {s} has no value while the function is traced",
                remedy="sizes are static: use fxad.lax.dynamic_slice_in_dim(x, start, size, axis)",
                where=e.where,
            ) from None
        except (TypeError, ValueError) as e:
            raise ArgumentError(
                f"getitem: {s} of axis {self.axis}: {e}", remedy="bounds of a slice are ints or None"
            ) from None
        count = len(range(start, stop, step))
        self.result.append((count,))
        if count == 0:
            self._add_window(0, 0, 1, 0)
            return
        if step < 0:
            self.reversed.append(self.axis)
            start, step = start + (count - 1) * step, -step
        self._add_window(start, start + (count - 1) * step + 1, step if count > 1 else 1, count)

    def _add_symbolic_slice(self, n: int, s: slice) -> None:
        """Take a slice of an axis of symbolic size, or with symbolic bounds. Its window is an expression in the sizes,
        by the rules of `slice.indices`."""
        step = 1 if s.step is None else s.step
        if type(step) is not Size:
            step = step.__index__()
        if step == 0:
            raise ArgumentError(f"getitem: {s} of axis {self.axis}: slice step cannot be zero")
        forward, stride = step > 0, abs(step)
        least, greatest = (0, n) if forward else (-1, n - 1)  # of a bound
        first, end = (least, greatest) if forward else (greatest, least)
        start = first if s.start is None else _clamped(s.start, n, least, greatest)
        stop = end if s.stop is None else _clamped(s.stop, n, least, greatest)
        length = stop - start if forward else start - stop
        # the place of the last element is no simple expression if the step is a size: then the window ends at `stop`
        ends_at_stop = forward and type(stride) is Size
        if ends_at_stop:
            span = maximum(length, 0)
        else:
            last = maximum(0, (length + stride - 1) // stride) - 1
            span = maximum(last * stride + 1, 0)  # from the first element to the last one
        count = (span + stride - 1) // stride  # in the form that `Slice` gives to the size of its result
        if not ends_at_stop and count == 1:
            stride = 1
        if not forward:
            self.reversed.append(self.axis)
            start = start + 1 - span
        self.result.append((count,))
        self._add_window(start, start + span, stride, count)

    def _add_array(self, e: _IndexArray) -> None:
        n = self.shape[self.axis]
        if e.masked is not None and e.masked != n and e.masked != 0:  # NumPy takes a mask of no elements
            raise AxisError(
                f"getitem: a mask of size {e.masked} does not fit axis {self.axis} with size {n}",
                remedy="a mask has the sizes of the axes it indexes",
            )
        if not self.wraps and e.mask is None and not e.nonnegative and e.dtype not in dtypes.UNSIGNED:
            if self.checked and isinstance(e.value, np.ndarray) and e.value.size and e.value.min() < 0:
                raise AxisError(
                    f"getitem: index {e.value.min()} is out of range for axis {self.axis} with size {n}",
                    remedy=_NO_WRAPPING,
                )
            e = _without_wrapping(e, n)
        if isinstance(e.value, np.ndarray) and (self.checked or e.mask is not None):
            e = _static_normalize_index(e, e.value, self.axis, n)
        self.arrays.append((self.axis, e))
        if not e.shape:
            self.int_axes.append(self.axis)
        self.result.append(None)
        self._add_window(0, n, 1, n)

    # ------------------------------------------------------------------------------------------------------- plans

    def plan(self) -> tuple[IndexPlan, tuple[object, ...]]:
        """Return the plan, and the operands."""
        batch: Shape = ()
        for shape in [*[a.shape for _, a in self.arrays], *[(n,) for n in self.scalar_masks]]:
            batch = common_shape("getitem: index arrays", batch, shape)
        advanced = bool(self.scalar_masks) or any([a.shape for _, a in self.arrays])
        split = self._place_of_arrays() if advanced else 0
        before = [n for axes in self.result[:split] if axes for n in axes]
        behind = [n for axes in self.result[split:] if axes for n in axes]
        result = [*before, *batch, *behind]
        if 0 in result:
            return IndexPlan(_shape_of(result), empty=True), ()
        for axis, a in self.arrays:
            if self.shape[axis] == 0:
                raise AxisError(
                    f"getitem: index {a.value!r} is out of range for axis {axis} with size 0",
                    remedy="an empty axis has no element to pick; a slice of it is empty",
                )
        values = tuple([a.value for _, a in self.arrays])
        if not any([a.shape for _, a in self.arrays]):
            return self._basic([*before, *[_NEW_AXIS for _ in batch], *behind]), values
        p = self._gather(batch, len([n for n in before if n != _NEW_AXIS]), result)
        static = [a.value for _, a in self.arrays if a.nonnegative and isinstance(a.value, np.ndarray)]
        if len(static) == len(values):
            return replace(p, vectors=None), (np.stack([np.broadcast_to(a, batch) for a in static], -1),)
        return p, values

    def _place_of_arrays(self) -> int:
        """Return the place of the axes of the arrays: NumPy puts them at the arrays' place if the arrays are adjacent,
        else first."""
        at = [k for k, axes in enumerate(self.result) if axes is None]
        return at[0] if at[-1] - at[0] == len(at) - 1 else 0

    def _slices(self) -> tuple[Slice, ...]:
        if tuple(self.sizes) == self.shape:
            return ()
        return (Slice(tuple(self.starts), tuple(self.limits), tuple(self.strides)),)

    def _basic(self, result: list[int]) -> IndexPlan:
        """Plan ints and slices: one equation, and further ones for reversed and new axes."""
        shape, dropped = _shape_of(result), tuple(sorted(self.int_axes))
        dynamic = tuple([axis for axis, _ in self.arrays])
        for a in dynamic:
            self.sizes[a] = 1
        remaining = [a for a in range(len(self.sizes)) if a not in dropped]
        revs, new = self._reverse(remaining), _new_axes(result)
        sizes = tuple(self.sizes)
        if dynamic or (dropped and sizes not in (self.shape, shape)):
            take = Index(tuple(self.starts), sizes, tuple(self.strides), dropped, dynamic)
            return IndexPlan(shape, take=take, after=(*revs, *_replace_axes((), new, shape)))
        if not revs:
            return IndexPlan(shape, before=self._slices(), after=_replace_axes(dropped, new, shape))
        return IndexPlan(
            shape,
            before=(*self._slices(), *_replace_axes(dropped, (), shape), *revs),
            after=_replace_axes((), new, shape),
        )

    def _gather(self, batch: Shape, place: int, result: list[int]) -> IndexPlan:
        """Plan integer arrays; `place` is the place of their axes among the remaining axes."""
        picked = tuple([axis for axis, _ in self.arrays])
        collapsed = tuple(sorted({*picked, *self.int_axes}))
        remaining = len(self.sizes) - len(collapsed)
        from_one_mask = len({id(a.mask) for _, a in self.arrays}) == 1 and self.arrays[0][1].mask is not None
        gather = Gather(
            offset_dims=(*range(place), *range(place + len(batch), remaining + len(batch))),
            collapsed_slice_dims=collapsed,
            operand_batching_dims=(),
            start_indices_batching_dims=(),
            start_index_map=picked,
            slice_sizes=tuple([1 if a in collapsed else n for a, n in enumerate(self.sizes)]),
            mode="clip",
            indices_sorted=from_one_mask,
            unique_indices=from_one_mask,
        )
        vectors = IndexVectors(tuple([self.shape[a] for a in picked]))
        before = (*self._slices(), *self._reverse(range(len(self.sizes))))
        shape = _shape_of(result)
        return IndexPlan(shape, before, gather, vectors, _replace_axes((), _new_axes(result), shape))

    def _reverse(self, axes: Sequence[int]) -> tuple[Rev, ...]:
        """Reverse the axes with a negative step, of a window that has these axes of the array."""
        dims = tuple([k for k, a in enumerate(axes) if a in self.reversed and _may_have_several(self.sizes[a])])
        return (Rev(dims),) if dims else ()


def _shape_of(result: Sequence[int]) -> Shape:
    """Return the shape of a result from its sizes, in which `_NEW_AXIS` stands for an axis of size 1."""
    return tuple([1 if n == _NEW_AXIS else n for n in result])


def _new_axes(result: Sequence[int]) -> tuple[int, ...]:
    return tuple([k for k, n in enumerate(result) if n == _NEW_AXIS])


def _clamped(bound: object, n: int, first: int, last: int) -> int:
    """Return a bound of a slice of an axis of size `n`, counted from the front, between `first` and `last`."""
    b = dimension(bound)
    return minimum(maximum(b + n if b < 0 else b, first), last)


def _may_have_several(n: int) -> bool:
    """Return True if an axis may have more than one element."""
    return type(n) is Size or n > 1


def _without_wrapping(e: _IndexArray, n: int) -> _IndexArray:
    """Return an index array whose negative elements are out of range: -n - 1."""
    value = cast("npt.NDArray[np.int64]", e.value)  # of any integer dtype; a tracer has the same operators
    if e.dtype.itemsize < 4:
        value = value.astype(dtypes.int32)
    inside = value >= 0
    return replace(e, dtype=value.dtype, value=value * inside - (n + 1) * ~inside)


def _range(n: int) -> str:
    """Return the remedy for a static index out of range on an axis of size n."""
    where = "an axis of size 0 has no indices" if n == 0 else f"static indices run from {-n} to {n - 1}"
    return f"{where}; where an index is a tracer, reads clip and updates drop"


def _static_normalize_index(e: _IndexArray, value: NDArray, axis: int, n: int) -> _IndexArray:
    """Return a static index array, checked, in the dtype of indices, without negative indices."""
    if value.size and (value.min() < -n or value.max() >= n):
        worst = value.min() if value.min() < -n else value.max()
        raise AxisError(f"getitem: index {worst} is out of range for axis {axis} with size {n}", remedy=_range(n))
    dtype = index_dtype((n,))
    places = value.astype(np.int64)
    if type(n) is Size and (places < 0).any():  # the plan counts them from the end, when the size has a value
        return replace(e, dtype=dtype, value=places.astype(dtype))
    places[places < 0] += 0 if type(n) is Size else n
    return replace(e, dtype=dtype, value=places.astype(dtype), nonnegative=True)


def _replace_axes(dropped: tuple[int, ...], new: tuple[int, ...], shape: Shape) -> tuple[Primitive, ...]:
    """Drop the axes `dropped` and insert the axes `new` of `shape`."""
    if dropped and new:
        return (Reshape(shape),)
    if dropped:
        return (Squeeze(dropped),)
    return (ExpandDims(new),) if new else ()
