"""Sets of elements: the distinct ones, and which are among others."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from fxad import dtypes
from fxad.ir import NDArray
from fxad.lax.placement import place_like_operands
from fxad.numpy.apply import as_array
from fxad.numpy.binary import equal, minimum, where
from fxad.numpy.creation import arange, full
from fxad.numpy.cumulative import cumulative_sum
from fxad.numpy.shapes import concat
from fxad.numpy.sorting import argsort, searchsorted, sort
from fxad.numpy.types import result_type
from fxad.numpy.value_dependent import concrete_value, index_dtype_array
from fxad.tracing.array import Array, ArrayLike, asarray

_SIZED: Final = "use unique(x, size=...), whose result has a size that you state"


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Array
    inverse_indices: Array


def _unique(value: NDArray, equal_nan: bool) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """`np.unique` with all that it gives; of small floats in float32: NumPy does not sort the nans of all of them."""
    wide = value.astype(dtypes.accumulated(value.dtype), copy=False)
    distinct, first, inverse, counts = np.unique(wide, True, True, True, equal_nan=equal_nan)
    return distinct.astype(value.dtype, copy=False), first, inverse, counts


def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct elements in increasing order, where each is first, which one each element is, how many there are.

    Rule: nans are distinct from each other; -0.0 is 0.0.
    """
    value = concrete_value("unique_all", x, _SIZED)
    distinct, first, inverse, counts = _unique(value, False)
    outs = UniqueAll(
        asarray(distinct),
        index_dtype_array(first),
        index_dtype_array(inverse.reshape(value.shape)),
        index_dtype_array(counts),
    )
    return place_like_operands("unique_all", (x,), outs)


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements in increasing order, and how many there are of each; nans are distinct from each other."""
    distinct, _, _, counts = _unique(concrete_value("unique_counts", x, _SIZED), False)
    return place_like_operands("unique_counts", (x,), UniqueCounts(asarray(distinct), index_dtype_array(counts)))


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements in increasing order, and which one each element is; nans are distinct from each other."""
    value = concrete_value("unique_inverse", x, _SIZED)
    distinct, _, inverse, _ = _unique(value, False)
    return place_like_operands(
        "unique_inverse", (x,), UniqueInverse(asarray(distinct), index_dtype_array(inverse.reshape(value.shape)))
    )


def unique_values(x: ArrayLike, /) -> Array:
    """The distinct elements in increasing order; nans are distinct from each other."""
    return place_like_operands(
        "unique_values", (x,), asarray(_unique(concrete_value("unique_values", x, _SIZED), False)[0])
    )


def unique(
    x: ArrayLike,
    /,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, ...]:
    """The distinct elements in increasing order; then, asked for, where each is first, which one each element is, and
    how many there are of each.

    Rule: with a `size`, so many: the first ones, or all of them and then `fill_value` (None: the least element again),
          with count 0. Without, the size depends on the values, so not in a traced function.
    """
    if size is None:
        value = concrete_value("unique", x, _SIZED)
        distinct, *rest = _unique(value, equal_nan)
        first, inverse, counts = [index_dtype_array(r) for r in rest]
        outs = place_like_operands("unique", (x,), (asarray(distinct), first, inverse.reshape(value.shape), counts))
    else:
        outs = _sized(as_array("unique", x), size, fill_value, equal_nan)
    wanted = (True, return_index, return_inverse, return_counts)
    kept = tuple([out for out, want in zip(outs, wanted, strict=True) if want])
    return kept if len(kept) > 1 else kept[0]


def _sized(x: Array, size: int, fill_value: ArrayLike | None, equal_nan: bool) -> tuple[Array, Array, Array, Array]:
    flat, n = x.ravel(), x.size
    if not n:
        none = full((size,), 0)
        return full((size,), 0 if fill_value is None else fill_value, x.dtype), none, none[:0].reshape(x.shape), none
    order = argsort(flat)
    ordered = flat[order]
    new = ordered[1:] != ordered[:-1]
    if equal_nan and x.dtype in dtypes.INEXACT:
        new = new & ~((ordered[1:] != ordered[1:]) & (ordered[:-1] != ordered[:-1]))
    number = cumulative_sum(concat([full((1,), False), new]), dtype=dtypes.int32)
    wanted = arange(size)
    start, end = searchsorted(number, wanted), searchsorted(number, wanted, side="right")
    there, at = wanted <= number[-1], minimum(start, n - 1)
    values = where(there, ordered[at], ordered[0] if fill_value is None else fill_value)
    inverse = number[argsort(order)].reshape(x.shape)
    return values, where(there, order[at], 0), inverse, end - start


# Beside how many elements it pays to sort them.
_MANY: Final = 64


def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: bool = False) -> Array:
    """Whether each element of x1 is equal to one of x2; whether to none, if `invert`.

    Cost: the product of the sizes, or for a large x2 sorting it.
    """
    array, among = as_array("isin", x1), as_array("isin", x2, 1).ravel()
    if among.size <= _MANY or among.dtype in dtypes.COMPLEX or array.dtype in dtypes.COMPLEX:
        found = equal(array[..., None], among).any(-1)
    else:
        dtype = result_type(array, among)
        ordered, array = sort(among.astype(dtype)), array.astype(dtype)
        found = ordered[minimum(searchsorted(ordered, array), among.size - 1)] == array
    return ~found if invert else found
