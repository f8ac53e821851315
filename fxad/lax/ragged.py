"""Contractions whose groups have sizes that are data: the rows of each group meet a matrix of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fxad import dtypes
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.lax.binary import bitwise_and, ge, lt, select
from fxad.lax.contractions import DotDimensionNumbers, dot_general
from fxad.lax.creation import broadcasted_iota, full_like
from fxad.lax.cumulative import cumsum
from fxad.lax.shapes import broadcast_in_dim, transpose
from fxad.operations.precision import PrecisionLike
from fxad.tracing.array import Array, ArrayLike, asarray


class RaggedDotDimensionNumbers(NamedTuple):
    """The axes of `ragged_dot_general`: those of a `dot_general`, the axis of lhs that groups divide, and the axis of
    rhs that counts groups, if there is one."""

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int] = ()


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
    group_offset: None = None,
) -> Array:
    """Multiply consecutive rows of lhs (m, k), in groups of these sizes, by the matrices of rhs (g, k, n).

    Rows beyond the last group give 0. For the cost see `ragged_dot_general`.
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset)


def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
    group_offset: None = None,
) -> Array:
    """Return `dot_general` in groups.

    Where a free axis of lhs is ragged, rhs has a matrix for each group. Where the contracted axis is ragged, the result
    has an axis of groups in front.

    Type:   `group_sizes` has the batch axes, and then an axis of groups.
    Cost:   that of one `dot_general` of all rows for each group: rows of other groups are zeros.
    Raises: ArgumentError for other dimension numbers; ParameterError for `group_offset`; ShapeError for other
            `group_sizes`.
    """
    if group_offset is not None:
        raise ParameterError("ragged_dot: group_offset is not supported", remedy="slice rhs and group_sizes")
    x, y, sizes = [
        asarray(v, what=f"ragged_dot: {name}") for name, v in (("lhs", lhs), ("rhs", rhs), ("group_sizes", group_sizes))
    ]
    if sizes.dtype.itemsize < 4:  # int8 has no sum of 100 and 100
        sizes = sizes.astype(dtypes.int32)
    try:
        dot, (ragged,), group = ragged_dot_dimension_numbers
        (contract, other), (batch, other_batch) = [[[k.__index__() for k in axes] for axes in pair] for pair in dot]
        ragged, group = ragged.__index__(), [k.__index__() for k in group]
    except (AttributeError, TypeError, ValueError):
        raise ArgumentError(
            f"ragged_dot: ragged_dot_dimension_numbers is {described(ragged_dot_dimension_numbers)}: "
            f"{shown(ragged_dot_dimension_numbers)}",
            remedy="give RaggedDotDimensionNumbers(((contracted of lhs, of rhs), (batch of lhs, of rhs)), (ragged axis "
            "of lhs,), (axis of groups of rhs,))",
        ) from None
    if ragged in batch:
        return dot_general(x, y, dot, precision, preferred_element_type)
    if sizes.ndim != 1 + len(batch):
        raise ShapeError(
            f"ragged_dot: group_sizes has shape {sizes.shape}, with {len(batch)} batch axes",
            remedy="give a size for each group, after the batch axes",
        )

    def grouped(array: Array, axis: int, along: list[int]) -> Array:
        """Return a stack of the array, one for each group, with 0 outside of the group's part of an axis.

        For rows [a, b, c] in groups of sizes 2 and 1 it is [[a, b, 0], [0, 0, c]]. `along` are the batch axes of the
        array, in the order of those of `group_sizes`.
        """
        shape = (sizes.shape[-1], *array.shape)
        order = sorted(range(len(along)), key=along.__getitem__)
        ends = transpose(cumsum(sizes, len(along)), (len(along), *order))
        starts = ends - transpose(sizes, (len(along), *order))
        start, end = [broadcast_in_dim(b, shape, (0, *[1 + along[k] for k in order])) for b in (starts, ends)]
        at = broadcasted_iota(sizes.dtype, shape, 1 + axis)
        stack = broadcast_in_dim(array, shape, range(1, len(shape)))
        return select(bitwise_and(ge(at, start), lt(at, end)), stack, full_like(stack, 0))

    # the axes of a stack: the axis of groups is in front
    after, after_batch = [1 + k for k in contract], [1 + k for k in batch]
    if ragged in contract:
        pair = other[contract.index(ragged)]
        numbers = ((after, [1 + k for k in other]), ([0, *after_batch], [0, *[1 + k for k in other_batch]]))
        stacks = grouped(x, ragged, batch), grouped(y, pair, other_batch)
        return dot_general(*stacks, numbers, precision, preferred_element_type)
    numbers = (([0, *after], [group[0], *other]), (after_batch, other_batch))
    return dot_general(grouped(x, ragged, batch), y, numbers, precision, preferred_element_type)
