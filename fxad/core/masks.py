"""Masks: tuples of bools that mark operands, results or carries.

>>> select_by_mask("abc", (True, False, True))
('a', 'c')
>>> split_by_mask("abc", (True, False, True))
(('a', 'c'), ('b',))
>>> merge_by_mask((True, False, True), "ac", "b")
('a', 'b', 'c')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")

Mask: TypeAlias = tuple[bool, ...]


def select_by_mask(values: Sequence[T], mask: Sequence[bool]) -> tuple[T, ...]:
    """Return the values that the mask marks."""
    return tuple([x for x, marked in zip(values, mask, strict=True) if marked])


def split_by_mask(values: Sequence[T], mask: Sequence[bool]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the values that the mask marks, and the others."""
    return select_by_mask(values, mask), tuple([x for x, marked in zip(values, mask, strict=True) if not marked])


def merge_by_mask(mask: Sequence[bool], marked: Iterable[T], others: Iterable[U]) -> tuple[T | U, ...]:
    """Return the inverse of `split_by_mask`: the next of `marked` at each marked place, the next of `others`
    elsewhere."""
    of_marked, of_others = iter(marked), iter(others)
    return tuple([next(of_marked) if is_marked else next(of_others) for is_marked in mask])


def leading(n: int, total: int) -> Mask:
    """Return the mask of `total` places that marks the first `n`."""
    return (True,) * n + (False,) * (total - n)


def mask_or(*masks: Sequence[bool]) -> Mask:
    """Return the elementwise `or` of masks, at least one."""
    return tuple([any(marks) for marks in zip(*masks, strict=True)])
