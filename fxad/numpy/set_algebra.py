"""Set operations on vectors. Results are ascending and without repetition.

Their sizes depend on values. In a traced function each function takes a `size`: further elements are dropped, and
missing ones are `fill_value` (None: the first element, or 0 if there is none).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import NDArray
from fxad.lax.placement import place_like_operands
from fxad.numpy.apply import as_array
from fxad.numpy.binary import minimum, where
from fxad.numpy.composites import jit_composite, jit_composite_all
from fxad.numpy.creation import full
from fxad.numpy.indexing import nonzero
from fxad.numpy.sets import distinct_values, isin
from fxad.numpy.shapes import concat
from fxad.numpy.sorting import argsort, searchsorted
from fxad.numpy.types import result_type
from fxad.numpy.value_dependent import as_indices, concrete_value
from fxad.operations.arguments import flag, to_int
from fxad.tracing.array import Array, ArrayLike, asarray

_SIZED: Final = "say size=: the result then has so many elements"


def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Return the elements that are in `ar1` or in `ar2`."""
    if size is None:
        one, other, dtype = _concrete_pair("union1d", ar1, ar2)
        return place_like_operands("union1d", (ar1, ar2), asarray(np.union1d(one, other).astype(dtype, copy=False)))
    a, b = _flatten_pair("union1d", ar1, ar2)
    return _padded_set(concat([a, b]), None, None, "all", size, fill_value)[0]


def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Return the elements of `ar1` that are not in `ar2`; in their original order with `assume_unique`."""
    assume_unique = flag("setdiff1d", "assume_unique", assume_unique)
    if size is None:
        own = concrete_value("setdiff1d", ar1, _SIZED).reshape(-1)
        if not assume_unique:
            own = distinct_values(own)[0]
        values, others, dtype = _concrete_pair("setdiff1d", own, ar2)
        if own.dtype in dtypes.INTEGER and dtype not in dtypes.INTEGER:  # int64 and uint64
            absent = np.asarray(isin(own, ar2, invert=True))
        else:
            absent = np.isin(values, others, invert=True)
        return place_like_operands("setdiff1d", (ar1, ar2), asarray(own[absent]))
    x, other = as_array("setdiff1d", ar1).reshape(-1), as_array("setdiff1d", ar2, 1).reshape(-1)
    return _padded_set(x, None, other, "outside", size, fill_value)[0]


def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Return the elements that are in exactly one of `ar1` and `ar2`."""
    assume_unique = flag("setxor1d", "assume_unique", assume_unique)
    a, b = as_array("setxor1d", ar1).reshape(-1), as_array("setxor1d", ar2, 1).reshape(-1)
    if _is_mixed(a, b):
        return _exact_setxor1d(a, b, size, fill_value)
    if size is None:
        one, other, dtype = _concrete_pair("setxor1d", ar1, ar2)
        either = np.setxor1d(one, other, assume_unique)
        return place_like_operands("setxor1d", (ar1, ar2), asarray(either.astype(dtype, copy=False)))
    a, b = _flatten_pair("setxor1d", ar1, ar2)
    return _padded_set(concat([a, b]), a, b, "one", size, fill_value)[0]


def _exact_setxor1d(a: Array, b: Array, size: int | None, fill_value: ArrayLike | None) -> Array:
    """Return setxor1d of int64 and uint64: elements are compared before they are rounded."""
    alone = concat([isin(a, b, invert=True), isin(b, a, invert=True)])
    rounded = where(alone, concat([a.astype(dtypes.float32), b.astype(dtypes.float32)]), np.inf)
    if size is None:
        size = np.unique(concrete_value("setxor1d", rounded, _SIZED)[np.asarray(alone)]).size
    return _padded_set(rounded, None, full((1,), np.inf, dtypes.float32), "outside", size, fill_value)[0]


def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, Array, Array]:
    """Return the elements that are in `ar1` and in `ar2`; with `return_indices` also their first indices in both.

    Type:   of int64 and uint64 the elements fit in both, and have the dtype of `ar1`.
    Rule:   the indices of missing elements are the sizes of `ar1` and `ar2`.
    """
    return_indices = flag("intersect1d", "return_indices", return_indices)
    assume_unique = flag("intersect1d", "assume_unique", assume_unique)
    a, b = as_array("intersect1d", ar1).reshape(-1), as_array("intersect1d", ar2, 1).reshape(-1)
    if size is None and _is_mixed(a, b):
        size = np.unique(concrete_value("intersect1d", a, _SIZED)[np.asarray(isin(a, b))]).size
    if size is None:
        one, other, dtype = _concrete_pair("intersect1d", ar1, ar2)
        both, *at = np.intersect1d(one, other, assume_unique, return_indices=True)
        common = asarray(both.astype(dtype, copy=False))
        places = as_indices(at[0], one.size), as_indices(at[1], other.size)
        outs = place_like_operands("intersect1d", (ar1, ar2), (common, *places))
        return outs if return_indices else outs[0]
    if not _is_mixed(a, b):
        a, b = _flatten_pair("intersect1d", ar1, ar2)
    common, exists, first = _padded_set(a, None, b, "inside", size, fill_value)
    return (common, first, jit_composite(_first_index, b, common, exists)) if return_indices else common


def _is_mixed(a: Array, b: Array) -> bool:
    """Return True for int64 and uint64, whose common dtype is a float and loses digits."""
    return a.dtype in dtypes.INTEGER and b.dtype in dtypes.INTEGER and result_type(a, b) not in dtypes.INTEGER


def _flatten_pair(name: str, x1: ArrayLike, x2: ArrayLike) -> tuple[Array, Array]:
    a, b = as_array(name, x1).reshape(-1), as_array(name, x2, 1).reshape(-1)
    dtype = result_type(a, b)
    return a.astype(dtype), b.astype(dtype)


def _concrete_pair(name: str, x1: ArrayLike, x2: ArrayLike) -> tuple[NDArray, NDArray, DType]:
    """Return the values of both arguments for NumPy, and the dtype that they have together by fxad's rules. Small
    floats are given in float32, because NumPy does not sort the nans of all of them."""
    a, b = concrete_value(name, x1, _SIZED).reshape(-1), concrete_value(name, x2, _SIZED, 1).reshape(-1)
    dtype = result_type(a, b)
    wide = dtypes.accumulated(dtype)
    return a.astype(dtype).astype(wide, copy=False), b.astype(dtype).astype(wide, copy=False), dtype


def _padded_set(
    x: Array, one: Array | None, other: Array | None, which: str, size: int, fill_value: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return the distinct elements of x that are selected, in an array of `size`; a mask of those that exist; and their
    first indices in x.

    Rule:   `which` selects "all" elements, those "inside" or "outside" `other`, or those in exactly "one" of `one` and
            `other`, of which x is the concatenation.
    """
    fill = None if fill_value is None else asarray(fill_value, x.dtype)
    size = to_int("size", "size", size)
    if x.size == 0:
        return full((size,), 0 if fill is None else fill, x.dtype), full((size,), False), full((size,), 0)
    distinct, exists, first = jit_composite_all(_select_distinct, x, one, other, which, size, fill)
    return distinct, exists, first


def _select_distinct(
    x: Array, one: Array | None, other: Array | None, which: str, size: int, fill: Array | None
) -> tuple[Array, Array, Array]:
    """Return `_padded_set` of an x that is not empty."""
    order = argsort(x)
    ordered = x[order]
    new = ordered[1:] != ordered[:-1]
    if x.dtype in dtypes.INEXACT:  # nans are one element, of the symmetric difference one element of each operand
        same = (ordered[1:] != ordered[1:]) & (ordered[:-1] != ordered[:-1])
        if one is not None:
            same = same & ((order[1:] < one.size) == (order[:-1] < one.size))
        new = new & ~same
    keep = concat([full((1,), True), new])
    if which == "one" and one is not None and other is not None:
        keep = keep & ~(isin(ordered, one) & isin(ordered, other))  # a nan is in neither
    elif other is not None:
        keep = keep & isin(ordered, other, invert=which == "outside")
    (at,) = nonzero(keep, size=size, fill_value=x.size)
    exists, at = at < x.size, minimum(at, x.size - 1)
    if fill is None:
        none = full((), 0, x.dtype)
        fill = where(exists[0], ordered[at[0]], none) if size != 0 else none
    return where(exists, ordered[at], fill), exists, where(exists, order[at], x.size)


def _first_index(x: Array, wanted: Array, exists: Array) -> Array:
    """Return the first index in x of each of the wanted elements."""
    if x.size == 0:
        return full(wanted.shape, 0)
    order = argsort(x)
    at = minimum(searchsorted(x[order], wanted), x.size - 1)
    return where(exists, order[at], x.size)


__all__ = ["intersect1d", "setdiff1d", "setxor1d", "union1d"]
