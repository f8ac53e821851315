"""Sorting and searching. nan is greater than all others, -0.0 equals 0.0, and sorts are stable."""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.errors import ArgumentError, ParameterError, ShapeError, shown
from fxad.numpy.apply import apply_op, apply_op_all, as_array
from fxad.numpy.shapes import take, take_along_axis, unstack
from fxad.operations import sorting
from fxad.operations.arguments import check_flags, flag, text, to_int
from fxad.operations.axes import normalize_axis_index
from fxad.tracing.array import Array, ArrayLike


def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: str | None = None,
    order: None = None,
    descending: bool = False,
    stable: bool = True,
) -> Array:
    """Return the elements sorted along an axis; None flattens the array.

    Rule:   nans are last, or first when descending. Complex numbers are sorted by real, then by imaginary parts.
    """
    _check_kind("sort", kind, order, stable)
    return apply_op("sort", sorting.sort, (a,), axis, flag("sort", "descending", descending))


def top_k(
    a: ArrayLike, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True
) -> tuple[Array, Array]:
    """Return the k greatest elements along an axis, the greatest first, and their indices (int32). With `mode`
    "smallest" the k smallest, the smallest first.

    Rule:   of equal elements the first comes first, whatever `sorted` is; nan is the greatest.
    Raises: ParameterError for a mode, and for a k below 0 or above the size of the axis; AxisError.
    """
    flag("top_k", "sorted", sorted)
    array = as_array("top_k", a)
    if text("top_k", "mode", mode) not in ("largest", "smallest"):
        raise ParameterError(f"top_k: mode is {shown(mode)}", remedy='use "largest" or "smallest"')
    if mode == "largest":
        values, places = apply_op_all("top_k", sorting.top_k, (array,), k, axis)
        return values, places
    count, at = to_int("top_k", "k", k), normalize_axis_index("top_k", axis, array.ndim)
    if not 0 <= count <= array.shape[at]:
        raise ParameterError(f"top_k: k is {count}, axis {axis} has {array.shape[at]} elements")
    places = argsort(array, at)[(*[slice(None)] * at, slice(0, count))]
    return take_along_axis(array, places, at, mode="promise_in_bounds"), places


def sort_complex(a: ArrayLike) -> Array:
    """Return the elements as complex numbers, sorted by real and then by imaginary parts."""
    array = as_array("sort_complex", a)
    wide = dtypes.float64 if array.dtype is dtypes.float64 else dtypes.float32
    return sort(array if array.dtype in dtypes.COMPLEX else array.astype(dtypes.complex_of(wide)))


def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: str | None = None,
    order: None = None,
    descending: bool = False,
    stable: bool = True,
    dtype: object = None,
) -> Array:
    """Return the indices that sort the elements along an axis, as int32 or `dtype`, for `take_along_axis`.

    Law:    equal elements keep their order, also when descending, whatever `stable` is.
    """
    _check_kind("argsort", kind, order, stable)
    places = apply_op("argsort", sorting.argsort, (a,), axis, flag("argsort", "descending", descending))
    return places if dtype is None else places.astype(dtype)


def _check_kind(name: str, kind: object, order: object, stable: bool) -> None:
    """Raise ParameterError for a method of sorting other than "stable", and for fields of a structured dtype;
    ArgumentError for a `stable` that is not a flag. Every sort is stable, so it changes no result."""
    if kind is not None and not (isinstance(kind, str) and kind == "stable"):
        raise ParameterError(f"{name}: kind {shown(kind)}", remedy="leave it out: sorting is stable")
    if order is not None:
        raise ParameterError(f"{name}: order {shown(order)}; arrays have no fields", remedy="sort the columns: lexsort")
    check_flags(name, stable=stable)


def lexsort(keys: ArrayLike | tuple[ArrayLike, ...] | list[ArrayLike], axis: int = -1) -> Array:
    """Return the indices that sort by the last key, ties by the key before it, and so on. The rows of an array are
    keys."""
    if isinstance(keys, tuple | list):
        arrays = tuple(keys)
    else:
        array = as_array("lexsort", keys)
        arrays = unstack(array) if array.ndim else ()
    if not arrays:
        raise ArgumentError("lexsort: takes at least one key")
    return apply_op("lexsort", sorting.lexsort, arrays, axis)


def partition(a: ArrayLike, kth: int | Sequence[int], axis: int | None = -1) -> Array:
    """Return the elements with those at indices `kth` in their sorted place, smaller ones before them and greater ones
    behind.

    Rule:   the result is fully sorted.
    """
    sorting.check_places("partition", as_array("partition", a).aval, kth, axis)
    return sort(a, axis)


def argpartition(a: ArrayLike, kth: int | Sequence[int], axis: int | None = -1) -> Array:
    """Return the indices of the elements that `partition` returns."""
    sorting.check_places("argpartition", as_array("argpartition", a).aval, kth, axis)
    return argsort(a, axis)


def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *, method: str = "scan"
) -> Array:
    """Return the index at which each element of `v` keeps the sorted `a` sorted: before equal elements, or after them
    for `side` "right".

    Type:   `a` is a vector, sorted, or sorted by `sorter`. The result has the shape of `v` and dtype int32.
    Cost:   `method` "scan": log2(a.size) lookups in a loop; "scan_unrolled": the same without a loop; "sort": sorts
            both together; "compare_all": compares all pairs, best for a small `a`.
    """
    method = text("searchsorted", "method", method)
    side = text("searchsorted", "side", side)
    ordered = a
    if sorter is not None:
        order, array = as_array("searchsorted", sorter, 3), as_array("searchsorted", a)
        if order.shape != array.shape:
            raise ShapeError(f"searchsorted: sorter {order.aval} for {array.aval}", remedy="give argsort(a)")
        ordered = take(array, order)
    return apply_op("searchsorted", sorting.searchsorted, (ordered, v), side, method)
