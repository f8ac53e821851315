"""Objects that are the same in repeated traces of one function.

A rule that calls the function that it belongs to is traced several times, until its programs do not change any more.
An object that a trace makes must not be another one in each trace. If the rule calls `pure_callback(f, ...)`, for
example, each trace would give `f` another number, and no two of its programs would be equal:

    block, rewind = tracing_repeatedly()
    with block:
        rewind(); trace the rule       reuse_in_replay(key, make) makes a number
        rewind(); trace it again       reuse_in_replay(key, make) returns this number
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar, cast, final

from fxad.core.frames import Scoped

T = TypeVar("T")


@final
class Replay:
    """The objects that a trace made, in order. A repeated trace of the same function gets the same objects."""

    __slots__ = ("at", "values")

    def __init__(self) -> None:
        self.values: list[tuple[object, object]] = []
        self.at = 0

    def get_or_make(self, key: object, make: Callable[[], T]) -> T:
        """The object made at this point of the previous trace, if its key is equal; else a new one."""
        if self.at == len(self.values) or self.values[self.at][0] != key:
            self.values[self.at :] = [(key, make())]
        value = self.values[self.at][1]
        self.at += 1
        return cast("T", value)  # an object of an equal key was made by the same code


_replay: Final[Scoped[Replay | None]] = Scoped("fxad_replay", None)


def replay_position() -> int:
    """The number of objects that the repeated trace has made so far; 0 outside of a repeated trace."""
    replay = _replay.get()
    return 0 if replay is None else replay.at


def skip_in_replay(start: int, end: int) -> None:
    """Skip the objects from `start` to `end`: the cached trace that made them is used again."""
    replay = _replay.get()
    if replay is not None and replay.at == start:
        replay.at = end


def tracing_repeatedly() -> tuple[AbstractContextManager[None], Callable[[], None]]:
    """A block in which the same function is traced several times, and a function to call before each trace."""
    outer = _replay.get()
    replay = Replay() if outer is None else outer
    start = replay.at

    def rewind() -> None:
        replay.at = start

    return _replay(replay), rewind


def reuse_in_replay(key: object, make: Callable[[], T]) -> T:
    """The result of `make`, or its result in the previous trace of the same function if that had an equal `key`."""
    replay = _replay.get()
    return make() if replay is None else replay.get_or_make(key, make)
