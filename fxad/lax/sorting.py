"""Sorting as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from fxad.operations import sorting
from fxad.operations.arguments import flag
from fxad.operations.axes import normalize_axis_index
from fxad.primitives.sort import Sort
from fxad.tracing.array import Array, ArrayLike, aval_of, binder


def _sorted(operands: Sequence[ArrayLike], dimension: int, num_keys: int) -> tuple[Array, ...]:
    ndim = aval_of(operands[0], "sort: argument 0").ndim if operands else 0
    return binder().bind(Sort(normalize_axis_index("sort", dimension, ndim), num_keys), tuple(operands))


@overload
def sort(
    operand: tuple[ArrayLike, ...] | list[ArrayLike], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> tuple[Array, ...]: ...
@overload
def sort(operand: ArrayLike, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Array: ...
def sort(
    operand: ArrayLike | tuple[ArrayLike, ...] | list[ArrayLike],
    dimension: int = -1,
    is_stable: bool = True,
    num_keys: int = 1,
) -> Array | tuple[Array, ...]:
    """Sort arrays by the first `num_keys` of them along an axis; return an array for an array, a tuple for several.

    Rule:   nans are last, -0.0 equals 0.0, complex numbers are sorted by real, then by imaginary parts.
    Law:    equal elements keep their order, whatever `is_stable` is.
    """
    is_stable = flag("sort", "is_stable", is_stable)
    del is_stable  # an unstable sort would not be faster
    if isinstance(operand, tuple | list):
        return _sorted(operand, dimension, num_keys)
    return _sorted((operand,), dimension, num_keys)[0]


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """Sort keys along an axis, and permute values in the same way."""
    is_stable = flag("sort_key_val", "is_stable", is_stable)
    del is_stable
    k, v = _sorted((keys, values), dimension, 1)
    return k, v


def top_k(operand: ArrayLike, k: int, *, axis: int = -1, is_stable: bool = True) -> tuple[Array, Array]:
    """Return the k greatest elements along an axis in descending order, and their indices. Of equal elements the first
    comes first, whatever `is_stable` is; nan is the greatest."""
    flag("top_k", "is_stable", is_stable)
    values, places = binder().apply(sorting.top_k, (operand,), (k, axis))
    return values, places
