"""Normalization of axis arguments: negative axes count from the end, None means all axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Final, SupportsIndex, TypeVar

from fxad.core.sizes import Size
from fxad.errors import ArgumentError, AxisError, described

T = TypeVar("T")

# The type of an `axis` argument, and of one that needs at least one axis.
Axes = int | Sequence[int] | None

COUNTED: Final = "axes are counted from 0, or from -1 backwards"


def to_int(op: str, what: str, value: SupportsIndex) -> int:
    """Return a size or a count as an int. Raises: ArgumentError for a value without `__index__`."""
    try:
        return value if type(value) is Size else index(value)
    except TypeError:
        raise ArgumentError(f"{op}: {what} must be an integer, got {described(value)}: {value!r:.60}") from None


def to_tuple(op: str, what: str, values: Iterable[T]) -> tuple[T, ...]:
    """Return the items of a sequence, in order. Raises: ArgumentError for another value."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | dict | set | frozenset):
        return tuple(values)
    raise ArgumentError(f"{op}: {what} must be a sequence, got {described(values)}: {values!r:.60}")


def to_ints(op: str, what: str, values: Iterable[int]) -> tuple[int, ...]:
    """Return sizes or axes as ints. Raises: ArgumentError for a value that is not a sequence of them."""
    return tuple([to_int(op, f"{what}[{k}]", v) for k, v in enumerate(to_tuple(op, what, values))])


def normalize_axis_index(op: str, axis: int, ndim: int) -> int:
    """Return one axis, counted from the front. Raises: AxisError, ArgumentError for a value that is not an int."""
    try:
        k = axis.__index__()
    except (AttributeError, TypeError):
        raise ArgumentError(f"{op}: axis must be an integer, got {type(axis).__qualname__} {axis!r}") from None
    if not -ndim <= k < ndim:
        raise AxisError(f"{op}: axis {k} is out of range for an array with {ndim} axes", remedy=COUNTED)
    return k % ndim


def normalize_axes(op: str, axis: Axes, ndim: int) -> tuple[int, ...]:
    """Return axes in increasing order, each counted from the front. Raises: AxisError for a repeated axis."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(normalize_axis_tuple(op, axis, ndim)))


def normalize_axis_tuple(op: str, axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return axes in the given order, each counted from the front. Raises: AxisError for a repeated axis."""
    axes_in = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple([normalize_axis_index(op, a, ndim) for a in axes_in])
    if len(set(axes)) != len(axes):
        raise AxisError(
            f"{op}: axes {tuple(axes_in)} of an array with {ndim} axes name one axis twice",
            remedy="name each axis once; -1 is the last one",
        )
    return axes


def hashable_axis(axis: Axes) -> int | tuple[int, ...] | None:
    """An `axis` argument as a static value: hashable."""
    return tuple(axis) if isinstance(axis, list) else axis  # type: ignore[return-value]  # a tuple is hashable
