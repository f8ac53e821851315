"""The sizes of the axes that a function is mapped over, known while it is traced: a program has its shapes when it is
traced, so what depends on the number of examples (a rule for stacks) is traced for the numbers that are known then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_sizes: Final[ContextVar[tuple[int, ...]]] = ContextVar("fxad_mapped_sizes", default=())
_asked: Final[ContextVar[list[bool] | None]] = ContextVar("fxad_mapped_asked", default=None)


@contextmanager
def mapped_over(size: int) -> Iterator[None]:
    """What is traced within is mapped over an axis of this size."""
    token = _sizes.set((*_sizes.get(), size))
    try:
        yield
    finally:
        _sizes.reset(token)


def sizes_around() -> tuple[int, ...]:
    """The sizes of all axes around, outermost first."""
    return _sizes.get()


def ask_sizes() -> tuple[int, ...]:
    """`sizes_around`, for what is traced differently for other sizes: whoever keeps the trace has to know."""
    asked = _asked.get()
    if asked is not None:
        asked[0] = True
    return _sizes.get()


@contextmanager
def watching() -> Iterator[list[bool]]:
    """Find out whether what is traced within asks for the sizes: the one entry of the list, true in the end if so."""
    outer, mine = _asked.get(), [False]
    token = _asked.set(mine)
    try:
        yield mine
    finally:
        _asked.reset(token)
        if outer is not None and mine[0]:
            outer[0] = True
