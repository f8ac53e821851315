"""Functions that sort and search: nans last, -0.0 equal to 0.0, equal elements in the order they had."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.errors import ArgumentError, AxisError
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.shapes import take, unstack
from fxad.operations import sorting
from fxad.operations.axes import normalize_axis_index, to_ints
from fxad.tracing.array import Array, ArrayLike


def sort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along an axis; all of them on one axis for None.

    Rule: nans come last, and first when descending. Complex numbers go by their real, then by their imaginary parts.
    """
    del stable  # it always is
    return apply_op("sort", sorting.sort, (x,), axis, bool(descending))


def argsort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """Where the elements stand, in their order along an axis, as int32: a sort is `take_along_axis` of these places.

    Law: equal elements keep their order, descending too, `stable` or not.
    """
    del stable  # it always is
    return apply_op("argsort", sorting.argsort, (x,), axis, bool(descending))


def lexsort(keys: ArrayLike | tuple[ArrayLike, ...] | list[ArrayLike], axis: int = -1) -> Array:
    """The places in the order of the last key, ties by the key before it, and so on; the rows of an array are keys."""
    if isinstance(keys, tuple | list):
        given = tuple(keys)
    else:
        array = as_array("lexsort", keys)
        given = unstack(array) if array.ndim else ()
    if not given:
        raise ArgumentError("lexsort: takes at least one key")
    return apply_op("lexsort", sorting.lexsort, given, axis)


def partition(x: ArrayLike, kth: int | Sequence[int], axis: int | None = -1) -> Array:
    """The elements with those of places `kth` where a sort puts them, smaller ones before, greater ones behind.

    Rule: the order of the rest is that of a sort as well.
    """
    _check_places("partition", x, kth, axis)
    return sort(x, axis)


def argpartition(x: ArrayLike, kth: int | Sequence[int], axis: int | None = -1) -> Array:
    """The places that `partition` takes its elements from."""
    _check_places("argpartition", x, kth, axis)
    return argsort(x, axis)


def _check_places(name: str, x: ArrayLike, kth: int | Sequence[int], axis: int | None) -> None:
    array = as_array(name, x)
    n = array.size if axis is None else array.shape[normalize_axis_index(name, axis, array.ndim)]
    for k in to_ints(name, "kth", kth if isinstance(kth, Sequence) else (kth,)):
        if not -n <= k < n:
            raise AxisError(f"{name}: place {k} is out of range for an axis of {n} elements")


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, side: str = "left", sorter: ArrayLike | None = None, *, method: str = "scan"
) -> Array:
    """For each element of x2 the place in the sorted x1 at which it keeps x1 sorted: before equal ones, or for `side`
    "right" after them.

    Type:  x1 of one axis, in order, or in the order of `sorter`; the result has the shape of x2 and dtype int32.
    Cost:  `method` "scan": log2 of the size of x1 rounds of looking up, "scan_unrolled" the same without a loop;
           "sort": both sorted together; "compare_all": every element with every other, best for small x1.
    """
    given = x1 if sorter is None else take(x1, sorter)
    return apply_op("searchsorted", sorting.searchsorted, (given, x2), side, method)
