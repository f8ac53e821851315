"""Flags: tuples of bools that mark operands, results or carries.

>>> select_by_flags("abc", (True, False, True))
('a', 'c')
>>> split_by_flags("abc", (True, False, True))
(('a', 'c'), ('b',))
>>> merge_by_flags((True, False, True), "ac", "b")
('a', 'b', 'c')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")

Flags: TypeAlias = tuple[bool, ...]


def select_by_flags(values: Sequence[T], flags: Sequence[bool]) -> tuple[T, ...]:
    """Return the values that the flags mark."""
    return tuple([x for x, marked in zip(values, flags, strict=True) if marked])


def split_by_flags(values: Sequence[T], flags: Sequence[bool]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the values that the flags mark, and the others."""
    return select_by_flags(values, flags), tuple([x for x, marked in zip(values, flags, strict=True) if not marked])


def merge_by_flags(flags: Sequence[bool], marked: Iterable[T], others: Iterable[U]) -> tuple[T | U, ...]:
    """Return the inverse of `split_by_flags`: the next of `marked` at each marked place, the next of `others`
    elsewhere."""
    marked_values, other_values = iter(marked), iter(others)
    return tuple([next(marked_values) if is_marked else next(other_values) for is_marked in flags])


def leading(n: int, total: int) -> Flags:
    """Return the flags of `total` places that marks the first `n`."""
    return (True,) * n + (False,) * (total - n)


def flags_or(*tuples: Sequence[bool]) -> Flags:
    """Return the elementwise `or` of tuples of flags, at least one."""
    return tuple([any(flags) for flags in zip(*tuples, strict=True)])
