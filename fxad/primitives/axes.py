"""The numbers of axes, and parameters with an entry for each axis, when axes are inserted or removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from fxad.ir import Shape

Axes: TypeAlias = tuple[int, ...]  # numbers of axes, or a parameter with an entry for each axis

T = TypeVar("T")


def axis_after_insert(axis: int, at: int) -> int:
    """Return the number of an axis after another one is inserted at `at`."""
    return axis + (axis >= at)


def axes_after_insert(axes: Iterable[int], at: int) -> Axes:
    """Return the numbers of `axes` after another one is inserted at `at`."""
    return tuple([a + (a >= at) for a in axes])


def axis_after_remove(axis: int, removed: Iterable[int]) -> int:
    """Return the number of an axis after the axes in `removed`, which do not contain it, are removed."""
    return axis - sum([a < axis for a in removed])


def other_axes(axes: Sequence[int], ndim: int) -> Axes:
    """Return the axes that are not in `axes`, of an array of `ndim` axes."""
    return tuple([a for a in range(ndim) if a not in axes])


def remove_axes(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return a shape without `axes`."""
    return tuple([n for a, n in enumerate(shape) if a not in axes])


def insert_entry(values: Sequence[T], at: int, value: T) -> tuple[T, ...]:
    """Return a shape, or another parameter with an entry for each axis, with an entry inserted at `at`."""
    return (*values[:at], value, *values[at:])


def replace_entry(values: Sequence[T], at: int, value: T) -> tuple[T, ...]:
    """Return a shape, or another parameter with an entry for each axis, with the entry at `at` replaced."""
    return (*values[:at], value, *values[at + 1 :])
