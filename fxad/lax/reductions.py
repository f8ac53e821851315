"""Reductions as functions."""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.operations.methods import sizes_argument
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceXor
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum
from fxad.tracing.array import Array, ArrayLike, binder


def _reduction_axes(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(sizes_argument((axes,))))


def reduce_sum(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The sum over axes, which are removed; the dtype is kept."""
    return binder().bind(ReduceSum(_reduction_axes(axes)), (operand,))[0]


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The product over axes, which are removed; the dtype is kept."""
    return binder().bind(ReduceProd(_reduction_axes(axes)), (operand,))[0]


def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The greatest element over axes, which are removed."""
    return binder().bind(ReduceMax(_reduction_axes(axes)), (operand,))[0]


def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The least element over axes, which are removed."""
    return binder().bind(ReduceMin(_reduction_axes(axes)), (operand,))[0]


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The bitwise and of all elements over axes, which are removed."""
    return binder().bind(ReduceAnd(_reduction_axes(axes)), (operand,))[0]


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The bitwise or of all elements over axes, which are removed."""
    return binder().bind(ReduceOr(_reduction_axes(axes)), (operand,))[0]


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The bitwise exclusive or of all elements over axes, which are removed."""
    return binder().bind(ReduceXor(_reduction_axes(axes)), (operand,))[0]


def argmax(operand: ArrayLike, axis: int, index_dtype: object) -> Array:
    """The index of the greatest element along an axis; of equal ones the first."""
    return binder().bind(ArgMax(axis, dtypes.as_dtype(index_dtype)), (operand,))[0]


def argmin(operand: ArrayLike, axis: int, index_dtype: object) -> Array:
    """The index of the least element along an axis; of equal ones the first."""
    return binder().bind(ArgMin(axis, dtypes.as_dtype(index_dtype)), (operand,))[0]
