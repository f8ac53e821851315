"""The transformations around a function while it is traced: sizes of mapped axes, and the order of differentiation.

Shapes are static, so a function that depends on the batch size (a custom batching rule) is traced for the sizes of the
enclosing mapped axes. A rule that calls functions with rules is traced to the depth of the enclosing derivatives. A
cache of traces uses `watching` to find out if a trace depends on these transformations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, cast, final

from fxad.core.frames import Scoped

T = TypeVar("T")

Surroundings: TypeAlias = tuple[tuple[int, ...], int]


@final
@dataclass(slots=True)
class Watch:
    """`asked`: the trace read the sizes or the order. `inside`: the trace belongs to an enclosing rule."""

    asked: bool = False
    inside: bool = False


_sizes: Final[Scoped[tuple[int, ...]]] = Scoped("fxad_mapped_sizes", ())
_orders: Final = Scoped("fxad_orders", 0)
_watch: Final[Scoped[Watch | None]] = Scoped("fxad_watch", None)


def mapped_over(size: int) -> AbstractContextManager[None]:
    """A block whose traces are mapped over an axis of this size."""
    return _sizes((*_sizes.get(), size))


def differentiated(times: int = 1) -> AbstractContextManager[None]:
    """A block whose traces are differentiated `times` times."""
    return _orders(_orders.get() + times)


def surroundings() -> Surroundings:
    """The sizes of all enclosing mapped axes, outermost first, and the order of differentiation."""
    return _sizes.get(), _orders.get()


def ask() -> None:
    """Record that the trace depends on the enclosing transformations, for caches of traces."""
    watch = _watch.get()
    if watch is not None:
        watch.asked = True


def ask_sizes() -> tuple[int, ...]:
    """The sizes of all enclosing mapped axes. Records that the trace depends on them."""
    ask()
    return _sizes.get()


def ask_orders() -> int:
    """The order of differentiation. Records that the trace depends on it."""
    ask()
    return _orders.get()


def inside_rule() -> None:
    """Record that the trace is valid only inside the enclosing trace of a rule, so that it must not be cached."""
    watch = _watch.get()
    if watch is not None:
        watch.inside = True


def watching(mine: Watch) -> AbstractContextManager[None]:
    """A block whose traces record their dependencies in `mine`. `told` passes them on to the enclosing watch."""
    return _watch(mine)


def told(mine: Watch) -> None:
    """Record the dependencies of a watch in the enclosing one, too."""
    if mine.asked:
        ask()
    if mine.inside:
        inside_rule()


# -------------------------------------------------------------------------------------------------- traced once more


@final
@dataclass(slots=True)
class Tape:
    """The objects that a trace made, in order. A repeated trace of the same function gets the same objects."""

    made: list[tuple[object, object]]
    at: int = 0

    def taken(self, key: object, make: Callable[[], T]) -> T:
        """The object made at this point of the previous trace, if its key is equal; else a new one."""
        if self.at == len(self.made) or self.made[self.at][0] != key:
            self.made[self.at :] = [(key, make())]
        found = self.made[self.at][1]
        self.at += 1
        return cast("T", found)


_tape: Final[Scoped[Tape | None]] = Scoped("fxad_tape", None)


def place_on_tape() -> int:
    """How much was made so far by what is traced once more; 0 where nothing is."""
    tape = _tape.get()
    return 0 if tape is None else tape.at


def skip(start: int, end: int) -> None:
    """What was made from `start` to `end` is not made here, as what it was made for is kept."""
    tape = _tape.get()
    if tape is not None and tape.at == start:
        tape.at = end


def traced_again() -> tuple[AbstractContextManager[None], Callable[[], None]]:
    """A block in which the same function is traced several times, and a function to call before each trace."""
    outer = _tape.get()
    tape = Tape([]) if outer is None else outer
    start = tape.at

    def rewind() -> None:
        tape.at = start

    return _tape(tape), rewind


def same_again(key: object, make: Callable[[], T]) -> T:
    """The result of `make`, or its result in the previous trace of the same function if that had an equal `key`."""
    tape = _tape.get()
    return make() if tape is None else tape.taken(key, make)
