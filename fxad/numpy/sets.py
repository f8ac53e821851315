"""Distinct elements, and membership."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.errors import ShapeError
from fxad.ir import NDArray
from fxad.lax.placement import place_like_operands
from fxad.numpy.apply import as_array
from fxad.numpy.binary import equal, minimum, where
from fxad.numpy.creation import arange, full
from fxad.numpy.cumulative import cumulative_sum
from fxad.numpy.shapes import concat, flip, moveaxis
from fxad.numpy.sorting import argsort, lexsort, searchsorted, sort
from fxad.numpy.types import result_type
from fxad.numpy.value_dependent import as_indices, concrete_value
from fxad.operations.arguments import flag, word
from fxad.operations.axes import normalize_axis_index
from fxad.tracing.array import Array, ArrayLike, asarray, aval_of

_SIZED: Final = "use unique(x, size=...), whose result has a size that you state"


class UniqueAll(NamedTuple):
    """The results of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The results of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The results of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def distinct_values(
    value: NDArray, equal_nan: bool = True, axis: int | None = None
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return `np.unique` with all its results. Small floats are computed in float32: NumPy does not sort the nans of
    all of them."""
    wide = value.astype(dtypes.accumulated(value.dtype), copy=False)
    distinct, first, inverse, counts = np.unique(wide, True, True, True, axis, equal_nan=equal_nan)
    return distinct.astype(value.dtype, copy=False), first, inverse, counts


def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueAll:
    """Return the distinct elements in ascending order, their first indices, the index of each element of x among them,
    and their counts. `size` and `fill_value` are those of `unique`.

    Rule:   nans are distinct from each other; -0.0 equals 0.0.
    """
    if size is not None:
        return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))
    value = concrete_value("unique_all", x, _SIZED)
    distinct, first, inverse, counts = distinct_values(value, False)
    outs = UniqueAll(
        asarray(distinct),
        as_indices(first, value.size),
        as_indices(inverse.reshape(value.shape), value.size),
        as_indices(counts, value.size),
    )
    return place_like_operands("unique_all", (x,), outs)


def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueCounts:
    """Return the distinct elements in ascending order, and their counts; nans are distinct from each other. `size` and
    `fill_value` are those of `unique`."""
    if size is not None:
        return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))
    value = concrete_value("unique_counts", x, _SIZED)
    distinct, _, _, counts = distinct_values(value, False)
    return place_like_operands("unique_counts", (x,), UniqueCounts(asarray(distinct), as_indices(counts, value.size)))


def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueInverse:
    """Return the distinct elements in ascending order, and the index of each element of x among them; nans are distinct
    from each other. `size` and `fill_value` are those of `unique`."""
    if size is not None:
        return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))
    value = concrete_value("unique_inverse", x, _SIZED)
    distinct, _, inverse, _ = distinct_values(value, False)
    return place_like_operands(
        "unique_inverse", (x,), UniqueInverse(asarray(distinct), as_indices(inverse.reshape(value.shape), value.size))
    )


def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Return the distinct elements in ascending order; nans are distinct from each other. `size` and `fill_value` are
    those of `unique`."""
    if size is not None:
        return cast("Array", unique(x, equal_nan=False, size=size, fill_value=fill_value))
    return place_like_operands(
        "unique_values", (x,), asarray(distinct_values(concrete_value("unique_values", x, _SIZED), False)[0])
    )


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array | tuple[Array, ...]:
    """Return the distinct elements in ascending order; on request also their first indices, the index of each element
    of the array among them, and their counts. With an `axis`, the distinct slices along it. They are `sorted` anyway.

    Rule:   with `size` further elements are dropped, and missing ones are `fill_value` (None: the least element) with
            count 0 and the index of the least element. Without it the size depends on the values, so the function
            cannot be traced.
    """
    equal_nan = flag("unique", "equal_nan", equal_nan)
    return_counts = flag("unique", "return_counts", return_counts)
    return_inverse = flag("unique", "return_inverse", return_inverse)
    return_index = flag("unique", "return_index", return_index)
    flag("unique", "sorted", sorted)
    k = None if axis is None else normalize_axis_index("unique", axis, aval_of(ar, "unique: argument 0").ndim)
    if size is None:
        value = concrete_value("unique", ar, _SIZED)
        distinct, *rest = distinct_values(value, equal_nan, k)
        first, inverse, counts = [as_indices(r, value.size) for r in rest]
        shape = value.shape if k is None else (-1,)
        outs = place_like_operands("unique", (ar,), (asarray(distinct), first, inverse.reshape(shape), counts))
    elif k is None:
        outs = _pad_results(as_array("unique", ar), size, fill_value, equal_nan)
    else:
        outs = _pad_slices(as_array("unique", ar), k, size, fill_value, equal_nan)
    wanted = (True, return_index, return_inverse, return_counts)
    kept = tuple([out for out, want in zip(outs, wanted, strict=True) if want])
    return kept if len(kept) > 1 else kept[0]


def _differ_from_previous(ordered: Array, equal_nan: bool = True) -> Array:
    """Return True where an element of sorted rows differs from that of the row before, beginning with the second row.
    With `equal_nan` two nans are equal."""
    new = ordered[1:] != ordered[:-1]
    if equal_nan and ordered.dtype in dtypes.INEXACT:
        new = new & ~((ordered[1:] != ordered[1:]) & (ordered[:-1] != ordered[:-1]))
    return new


class _Distinct(NamedTuple):
    """The first `size` distinct rows of n sorted ones. A row that is missing has count 0."""

    at: Array  # the place of the first of equal rows in the sorted order; that of the last row for a missing one
    exists: Array  # False for a missing row
    number: Array  # of each sorted row, its number among the distinct ones
    counts: Array


def _distinct_rows(new: Array, n: int, size: int) -> _Distinct:
    """Number the distinct ones of n sorted rows; `new` is True for each row, after the first, that differs from
    the row before."""
    number = cumulative_sum(concat([full((1,), False), new]), dtype=dtypes.int32)
    wanted = arange(size)
    start, end = searchsorted(number, wanted), searchsorted(number, wanted, side="right")
    return _Distinct(minimum(start, n - 1), wanted <= number[-1], number, end - start)


def _pad_results(
    x: Array, size: int, fill_value: ArrayLike | None, equal_nan: bool
) -> tuple[Array, Array, Array, Array]:
    """Return the results of `unique` with a size."""
    flat, n = x.ravel(), x.size
    if n == 0:
        none = full((size,), 0)
        return full((size,), 0 if fill_value is None else fill_value, x.dtype), none, none[:0].reshape(x.shape), none
    order = argsort(flat)
    ordered = flat[order]
    at, exists, number, counts = _distinct_rows(_differ_from_previous(ordered, equal_nan), n, size)
    values = where(exists, ordered[at], ordered[0] if fill_value is None else fill_value)
    return values, where(exists, order[at], order[0]), number[argsort(order)].reshape(x.shape), counts


def _pad_slices(
    x: Array, axis: int, size: int, fill_value: ArrayLike | None, equal_nan: bool
) -> tuple[Array, Array, Array, Array]:
    """Return the results of `unique` along an axis with a size."""
    n = x.shape[axis]
    if x.size == 0:
        raise ShapeError(f"unique: takes slices along axis {axis} of {x.aval}", remedy="give slices that are not empty")
    slices = moveaxis(x, axis, 0)
    rows = slices.reshape(n, -1)
    order = lexsort(flip(rows.T, 0))
    ordered = rows[order]
    at, exists, number, counts = _distinct_rows(_differ_from_previous(ordered, equal_nan).any(1), n, size)
    values = where(exists[:, None], ordered[at], ordered[0] if fill_value is None else fill_value)
    distinct = moveaxis(values.reshape(size, *slices.shape[1:]), 0, axis)
    return distinct, where(exists, order[at], order[0]), number[argsort(order)], counts


# Beside how many elements it pays to sort them.
_MANY: Final = 64


def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """Return True for each element that is among the test elements; False for these if `invert`.

    Rule:   `assume_unique` is a promise that changes nothing.
    Cost:   "compare_all": the product of the sizes; "sort" or "binary_search": a sort of the test elements; "auto": the
            first for few test elements. Complex numbers are compared.
    Raises: ParameterError for another method.
    """
    word("isin", "method", method, ("auto", "compare_all", "binary_search", "sort"))
    invert = flag("isin", "invert", invert)
    flag("isin", "assume_unique", assume_unique)
    array, among = as_array("isin", element), as_array("isin", test_elements, 1).ravel()
    few = method == "compare_all" or (method == "auto" and type(among.size) is int and among.size <= _MANY)
    if few or among.dtype in dtypes.COMPLEX or array.dtype in dtypes.COMPLEX:
        member = equal(array[..., None], among).any(-1)
    else:
        dtype = result_type(array, among)
        if array.dtype not in dtypes.INTEGER or among.dtype not in dtypes.INTEGER:
            array, among = array.astype(dtype), among.astype(dtype)
        ordered = sort(among)  # integers of two dtypes are compared exactly, int64 and uint64 too
        at = searchsorted(ordered, array)
        if at_least(among.size, 1):
            member = ordered[minimum(at, among.size - 1)] == array
        else:  # it may be 0
            member = (concat([ordered, full((1,), 0, ordered.dtype)])[at] == array) & (at < among.size)
    return ~member if invert else member
