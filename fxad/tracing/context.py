"""The transformations around a function while it is traced: mapped axes, and the order of differentiation.

Shapes are static, so a function that depends on the batch size (a custom batching rule) is traced for the sizes of the
enclosing mapped axes, and a collective needs the size of its axis. A rule that calls functions with rules is traced to
the depth of the enclosing derivatives. A cache of traces uses `watching` to find out if a trace depends on these
transformations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, cast, final

from fxad.core.frames import Scoped
from fxad.errors import ArgumentError, AxisNameError, described

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class MappedAxis:
    """An axis of a map around a trace. `name` is that of collectives, or None; `stacked`: `vmap` makes it an axis of
    arrays, as opposed to an axis of devices."""

    size: int
    name: str | None = None
    stacked: bool = True


Surroundings: TypeAlias = tuple[tuple[MappedAxis, ...], int]


@final
@dataclass(slots=True)
class Watch:
    """`asked`: the trace read the axes or the order. `inside`: the trace belongs to an enclosing rule."""

    asked: bool = False
    inside: bool = False


_axes: Final[Scoped[tuple[MappedAxis, ...]]] = Scoped("fxad_mapped_axes", ())
_orders: Final = Scoped("fxad_orders", 0)
_watch: Final[Scoped[Watch | None]] = Scoped("fxad_watch", None)


def mapped_over(*axes: MappedAxis) -> AbstractContextManager[None]:
    """A block whose traces are mapped over these axes, besides those around it."""
    return _axes((*_axes.get(), *axes))


def new_axis(what: str, name: object, size: int, *, stacked: bool = True) -> MappedAxis:
    """The axis of a map. Raises: ArgumentError for a name that is not a string, AxisNameError for one in use."""
    if name is None:
        return MappedAxis(size, None, stacked)
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{what}: axis_name is {described(name)}: {name!r:.60}", remedy="name the axis by a string")
    if name in [axis.name for axis in _axes.get()]:
        raise AxisNameError(
            f"{what}: axis name {name!r} is in use by a map around it", remedy="give each of nested maps its own name"
        )
    return MappedAxis(size, str.__str__(name), stacked)


def in_scope() -> int:
    """The number of axes of maps around."""
    return len(_axes.get())


def size_of_axis(what: str, name: object) -> int:
    """The size of a named axis in scope. Records that the trace depends on it.

    Raises: AxisNameError for an axis that no map around binds, ArgumentError for a name that is not a string.
    """
    if not isinstance(name, str):
        raise ArgumentError(
            f"{what}: an axis name is a string, got {described(name)}: {name!r:.60}",
            remedy="give a name, or a tuple of names",
        )
    ask()
    known = {axis.name: axis.size for axis in _axes.get() if axis.name is not None}
    if name not in known:
        bound = ", ".join(map(repr, known)) or "none"
        raise AxisNameError(
            f"{what}: no map around binds axis {name!r}; axes in scope: {bound}",
            remedy=f"name the axis of a map: vmap(f, axis_name={name!r}), or give its size to trace: "
            f"trace(f, x, axis_env={{{name!r}: 8}})",
        )
    return known[name]


def differentiated(times: int = 1) -> AbstractContextManager[None]:
    """A block whose traces are differentiated `times` times."""
    return _orders(_orders.get() + times)


def surroundings() -> Surroundings:
    """The enclosing mapped axes, outermost first, and the order of differentiation."""
    return _axes.get(), _orders.get()


def ask() -> None:
    """Record that the trace depends on the enclosing transformations, for caches of traces."""
    watch = _watch.get()
    if watch is not None:
        watch.asked = True


def ask_sizes() -> tuple[int, ...]:
    """The sizes of all enclosing axes of `vmap`. Records that the trace depends on them."""
    ask()
    return tuple([axis.size for axis in _axes.get() if axis.stacked])


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
        value = self.made[self.at][1]
        self.at += 1
        return cast("T", value)


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
