"""Normalization of axis arguments: negative axes count from the end, None means all axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from fxad.errors import ArgumentError, AxisError, FxadError, remedy_of, shown
from fxad.operations.arguments import one_or_more
from fxad.operations.aval_attributes import Typed

# The type of an `axis` argument, and of one that needs at least one axis.
AxisLike = int | Sequence[int] | None

COUNTED: Final = "axes are counted from 0, or from -1 backwards"


def normalize_axis_index(op: str, axis: int, ndim: int) -> int:
    """Return one axis, counted from the front. Raises: AxisError, ArgumentError for a value that is not an int."""
    try:
        k = axis.__index__()
    except (AttributeError, TypeError) as e:
        raise ArgumentError(
            f"{op}: axis must be an integer, got {type(axis).__qualname__} {shown(axis)}", remedy=remedy_of(e)
        ) from None
    if not -ndim <= k < ndim:
        raise AxisError(f"{op}: axis {k} is out of range for an array with {ndim} axes", remedy=COUNTED)
    return k % ndim


def normalize_axes(op: str, axis: AxisLike, ndim: int) -> tuple[int, ...]:
    """Return axes in increasing order, each counted from the front. Raises: AxisError for a repeated axis."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(normalize_axis_tuple(op, axis, ndim)))


def normalize_axis_tuple(op: str, axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return axes in the given order, each counted from the front. Raises: AxisError for a repeated axis."""
    several = isinstance(axis, tuple | list) or (isinstance(axis, np.ndarray | Typed) and axis.ndim)
    axes_in = tuple(cast("Sequence[int]", axis)) if several else (cast("int", axis),)
    axes = tuple([normalize_axis_index(op, a, ndim) for a in axes_in])
    if len(set(axes)) != len(axes):
        raise AxisError(
            f"{op}: axes {axes_in} of an array with {ndim} axes name one axis twice",
            remedy="name each axis once; -1 is the last one",
        )
    return axes


def hashable_axis(axis: AxisLike) -> int | tuple[int, ...] | None:
    """Return an `axis` argument as a static, hashable value. The operation refuses invalid axes."""
    if axis is None or type(axis) is int:
        return axis
    if type(axis) is tuple and all([type(a) is int for a in axis]):
        return axis
    try:
        return one_or_more("axis", "axis", axis)
    except FxadError:
        return tuple(axis) if isinstance(axis, list) else axis  # type: ignore[return-value]  # a tuple is hashable
