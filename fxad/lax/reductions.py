"""Reductions and contractions as functions."""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.errors import ParameterError
from fxad.operations import contractions
from fxad.operations.arguments import to_ints, to_tuple
from fxad.operations.methods import sizes_argument
from fxad.operations.precision import PrecisionLike, precise, to_precision
from fxad.operations.promotion import optional_dtype
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.dot import DotGeneral
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceXor
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum
from fxad.tracing.array import Array, ArrayLike, binder

Axes = Sequence[int]
DotDimensionNumbers = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]


def _reduction_axes(axes: Axes) -> tuple[int, ...]:
    return tuple(sorted(sizes_argument((axes,))))


def reduce_sum(operand: ArrayLike, axes: Axes) -> Array:
    """The sum over axes, which are removed; the dtype is kept."""
    return binder().bind(ReduceSum(_reduction_axes(axes)), (operand,))[0]


def reduce_prod(operand: ArrayLike, axes: Axes) -> Array:
    """The product over axes, which are removed; the dtype is kept."""
    return binder().bind(ReduceProd(_reduction_axes(axes)), (operand,))[0]


def reduce_max(operand: ArrayLike, axes: Axes) -> Array:
    """The greatest element over axes, which are removed."""
    return binder().bind(ReduceMax(_reduction_axes(axes)), (operand,))[0]


def reduce_min(operand: ArrayLike, axes: Axes) -> Array:
    """The least element over axes, which are removed."""
    return binder().bind(ReduceMin(_reduction_axes(axes)), (operand,))[0]


def reduce_and(operand: ArrayLike, axes: Axes) -> Array:
    """The bitwise and of all elements over axes, which are removed."""
    return binder().bind(ReduceAnd(_reduction_axes(axes)), (operand,))[0]


def reduce_or(operand: ArrayLike, axes: Axes) -> Array:
    """The bitwise or of all elements over axes, which are removed."""
    return binder().bind(ReduceOr(_reduction_axes(axes)), (operand,))[0]


def reduce_xor(operand: ArrayLike, axes: Axes) -> Array:
    """The bitwise exclusive or of all elements over axes, which are removed."""
    return binder().bind(ReduceXor(_reduction_axes(axes)), (operand,))[0]


def argmax(operand: ArrayLike, axis: int, index_dtype: object) -> Array:
    """The index of the greatest element along an axis; of equal ones the first."""
    return binder().bind(ArgMax(axis, dtypes.as_dtype(index_dtype)), (operand,))[0]


def argmin(operand: ArrayLike, axis: int, index_dtype: object) -> Array:
    """The index of the least element along an axis; of equal ones the first."""
    return binder().bind(ArgMin(axis, dtypes.as_dtype(index_dtype)), (operand,))[0]


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """The sum of products over contracting axes, for each index of the batch axes.

    Type: `dimension_numbers` is ((lhs contracting, rhs contracting), (lhs batch, rhs batch)). The result has the batch
          axes, then the free axes of lhs, then those of rhs.
    """
    op, what = "dot_general", "dimension_numbers"
    pairs = [to_tuple(op, what, p) for p in to_tuple(op, what, dimension_numbers)]
    if [len(p) for p in pairs] != [2, 2]:
        raise ParameterError(
            f"dot_general: dimension_numbers {dimension_numbers!r:.60} is not a pair of pairs",
            remedy="write ((lhs contracting, rhs contracting), (lhs batch, rhs batch))",
        )
    axes = [to_ints(op, what, a) for pair in pairs for a in pair]
    preferred = optional_dtype(preferred_element_type)
    return binder().bind(
        DotGeneral(axes[0], axes[1], axes[2], axes[3], preferred, to_precision(op, precision)), (lhs, rhs)
    )[0]


def dot(
    lhs: ArrayLike, rhs: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: object = None
) -> Array:
    """Vectors and matrices: the sum over the last axis of lhs and the first of rhs."""
    return _matmul("dot", lhs, rhs, precision, optional_dtype(preferred_element_type))


def _matmul(op: str, lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike, preferred: dtypes.DType | None) -> Array:
    how = to_precision(op, precision)
    if not how:
        return binder().apply(contractions.matmul, (lhs, rhs), (preferred,))[0]
    return binder().apply(precise, (lhs, rhs), (contractions.matmul, how, preferred))[0]


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """The matrix product over the last two axes; all axes before them are batch axes."""
    return _matmul("batch_matmul", lhs, rhs, precision, None)
