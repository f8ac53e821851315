"""Axes as users give them: negative ones count from the end, None stands for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Final, SupportsIndex, TypeVar

from fxad.errors import ArgumentError, AxisError, described

T = TypeVar("T")

# What a function with an `axis` argument takes, and what a function takes that needs at least one axis.
Axes = int | Sequence[int] | None

COUNTED: Final = "axes are counted from 0, or from -1 backwards"


def integer(op: str, what: str, value: SupportsIndex) -> int:
    """A size or a count as a plain int. Raises: ArgumentError for what has no index."""
    try:
        return index(value)
    except TypeError:
        raise ArgumentError(f"{op}: {what} must be an integer, got {described(value)}: {value!r:.60}") from None


def items(op: str, what: str, values: Iterable[T]) -> tuple[T, ...]:
    """What a sequence holds, in order. Raises: ArgumentError for what is none."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | dict | set | frozenset):
        return tuple(values)
    raise ArgumentError(f"{op}: {what} must be a sequence, got {described(values)}: {values!r:.60}")


def integers(op: str, what: str, values: Iterable[int]) -> tuple[int, ...]:
    """Sizes or axes as plain ints. Raises: ArgumentError for what is not a sequence of them."""
    return tuple([integer(op, f"{what}[{k}]", v) for k, v in enumerate(items(op, what, values))])


def axis_of(op: str, axis: int, ndim: int) -> int:
    """One axis, counted from the front. Raises: AxisError, ArgumentError for what is not an int."""
    try:
        k = axis.__index__()
    except (AttributeError, TypeError):
        raise ArgumentError(f"{op}: axis must be an integer, got {type(axis).__qualname__} {axis!r}") from None
    if not -ndim <= k < ndim:
        raise AxisError(f"{op}: axis {k} is out of range for an array with {ndim} axes", remedy=COUNTED)
    return k % ndim


def axes_of(op: str, axis: Axes, ndim: int) -> tuple[int, ...]:
    """Axes in increasing order, each counted from the front. Raises: AxisError when one is there twice."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(distinct(op, axis, ndim)))


def distinct(op: str, axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Axes in the order given, each counted from the front. Raises: AxisError when one is there twice."""
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple([axis_of(op, a, ndim) for a in given])
    if len(set(axes)) != len(axes):
        raise AxisError(
            f"{op}: axes {tuple(given)} of an array with {ndim} axes name one axis twice",
            remedy="name each axis once; -1 is the last one",
        )
    return axes


def frozen(axis: Axes) -> int | tuple[int, ...] | None:
    """An `axis` argument as a static value: hashable."""
    return tuple(axis) if isinstance(axis, list) else axis  # type: ignore[return-value]
