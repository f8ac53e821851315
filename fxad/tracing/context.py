"""What is around a function while it is traced, for what is traced differently there.

A program has its shapes when it is traced, so what depends on the number of examples (a rule for stacks) is traced for
the sizes of the axes that are known then; a rule that calls functions with rules is traced as deep as derivatives are
taken around. Whoever keeps what was traced finds out whether that was asked: `watching`.
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
    """What was asked for: the sizes or the orders around; and whether it stands in a rule that it refers to."""

    asked: bool = False
    inside: bool = False


_sizes: Final[Scoped[tuple[int, ...]]] = Scoped("fxad_mapped_sizes", ())
_orders: Final = Scoped("fxad_orders", 0)
_watch: Final[Scoped[Watch | None]] = Scoped("fxad_watch", None)


def mapped_over(size: int) -> AbstractContextManager[None]:
    """What is traced within is mapped over an axis of this size."""
    return _sizes((*_sizes.get(), size))


def differentiated(times: int = 1) -> AbstractContextManager[None]:
    """What is traced within is differentiated, so often."""
    return _orders(_orders.get() + times)


def surroundings() -> Surroundings:
    """The sizes of all axes around, outermost first, and how often what is traced is differentiated."""
    return _sizes.get(), _orders.get()


def ask() -> None:
    """What is traced is so for its surroundings: whoever keeps the trace has to know."""
    watch = _watch.get()
    if watch is not None:
        watch.asked = True


def ask_sizes() -> tuple[int, ...]:
    """The sizes of all axes around, for what is traced differently for other sizes."""
    ask()
    return _sizes.get()


def ask_orders() -> int:
    """How often what is traced is differentiated, for what is traced deeper then."""
    ask()
    return _orders.get()


def inside_rule() -> None:
    """What is traced has its meaning in a rule that is being traced around it: nobody may keep it."""
    watch = _watch.get()
    if watch is not None:
        watch.inside = True


def watching(mine: Watch) -> AbstractContextManager[None]:
    """Find out what is asked for by what is traced within; `told` says it to who watches around."""
    return _watch(mine)


def told(mine: Watch) -> None:
    """What was asked for is asked for around, too."""
    if mine.asked:
        ask()
    if mine.inside:
        inside_rule()


# -------------------------------------------------------------------------------------------------- traced once more


@final
@dataclass(slots=True)
class Tape:
    """What a trace made anew, in order: a function that is traced once more is given the same."""

    made: list[tuple[object, object]]
    at: int = 0

    def taken(self, key: object, make: Callable[[], T]) -> T:
        """What was made here the last time, where it was made for the same key."""
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
    """A block in which the same function is traced several times, and what is called before each time."""
    outer = _tape.get()
    tape = Tape([]) if outer is None else outer
    start = tape.at

    def rewind() -> None:
        tape.at = start

    return _tape(tape), rewind


def same_again(key: object, make: Callable[[], T]) -> T:
    """What `make` gives, or gave when what is traced was traced before. The `key` says what it is made for."""
    tape = _tape.get()
    return make() if tape is None else tape.taken(key, make)
