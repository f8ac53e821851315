"""Functions whose results have sizes that depend on values: at once, or with a size that the caller states.

A traced program has fixed sizes. So in a traced function each of these needs its `size` (what is missing at the end is
filled in, what is too much is left out), or an array that has a value while the function is traced.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from fxad import dtypes
from fxad.array import Array, ArrayLike, asarray, aval_of
from fxad.errors import ParameterError, ShapeError, TracerError
from fxad.ir import NDArray
from fxad.numpy.calls import as_array, call
from fxad.numpy.shapes import take
from fxad.operations import shapes
from fxad.operations.axes import axis_of
from fxad.trace import Tracer

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


def known(name: str, x: ArrayLike, remedy: str, k: int = 0) -> NDArray:
    """The value of an argument that decides on sizes. Raises: TracerError, which names the alternative."""
    if isinstance(x, Tracer):
        raise TracerError(
            f"{name}: the size of the result depends on the values of {x!r}, which a traced function does not have",
            remedy=remedy,
        )
    aval = aval_of(x, f"{name}: argument {k}")
    return np.asarray(x if isinstance(x, Array | np.ndarray | np.generic) else asarray(x)).astype(aval.dtype)


def _places(values: NDArray) -> Array:
    return asarray(values.astype(dtypes.int32))


def nonzero(x: ArrayLike, /) -> tuple[Array, ...]:
    """Where the elements are that are not zero: an int32 array of indices for each axis, in row-major order."""
    value = known("nonzero", x, "use where(condition, x, y) to choose, or count_nonzero")
    if not value.ndim:
        raise ShapeError("nonzero: takes an array with at least one axis", remedy="use x != 0")
    return tuple([_places(i) for i in np.nonzero(value)])


def repeat(x: ArrayLike, repeats: ArrayLike, /, axis: int | None = None) -> Array:
    """Each element so many times in a row along an axis, flattened first for None: all as often, or each its own count.

    Cost: counts in an array are waited for, because the size of the result depends on them.
    """
    if isinstance(repeats, int | np.integer):
        return call("repeat", shapes.repeat, (x,), int(repeats), axis)
    array = as_array("repeat", x)
    if axis is None:
        array, axis = array.ravel(), 0
    k = axis_of("repeat", axis, array.ndim)
    n = array.shape[k]
    counts = known("repeat", repeats, "use a Python int, or counts that have a value outside the function", 1)
    if (
        counts.dtype not in dtypes.INTEGER
        or counts.shape not in {(), (1,), (n,)}
        or np.any(counts.astype(np.int64) < 0)
    ):
        raise ParameterError(f"repeat: counts {counts!r:.60} must be integers >= 0, one or {n} of them")
    return take(array, _places(np.repeat(np.arange(n), np.broadcast_to(counts, (n,)))), axis=k)


def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct elements in increasing order, where each is first, which one each element is, how many there are.

    Rule: nans are distinct from each other; -0.0 is 0.0.
    """
    value = known("unique_all", x, _SIZED)
    distinct, first, inverse, counts = np.unique(
        value, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return UniqueAll(asarray(distinct), _places(first), _places(inverse.reshape(value.shape)), _places(counts))


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements in increasing order, and how many there are of each; nans are distinct from each other."""
    distinct, counts = np.unique(known("unique_counts", x, _SIZED), return_counts=True, equal_nan=False)
    return UniqueCounts(asarray(distinct), _places(counts))


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements in increasing order, and which one each element is; nans are distinct from each other."""
    value = known("unique_inverse", x, _SIZED)
    distinct, inverse = np.unique(value, return_inverse=True, equal_nan=False)
    return UniqueInverse(asarray(distinct), _places(inverse.reshape(value.shape)))


def unique_values(x: ArrayLike, /) -> Array:
    """The distinct elements in increasing order; nans are distinct from each other."""
    return asarray(np.unique(known("unique_values", x, _SIZED), equal_nan=False))
