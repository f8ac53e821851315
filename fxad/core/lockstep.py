"""Runs a function for every index of named axes at the same time, with exchanges between the runs.

This is the meaning of collectives for the interpreter: a thread for each index, and an exchange in which each thread
waits for the threads of its group. It needs no knowledge of control flow: a collective in a loop or a branch waits
there. Runs that wait for each other forever are found, and give an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from itertools import product
from math import prod
from typing import Final, TypeVar, cast, final

from fxad.errors import AxisNameError, ExecutionError

T = TypeVar("T")


@final
class _World:
    """The runs of all maps that are nested in one another, and the exchanges in which some of them wait."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.exchanges: dict[object, dict[int, object]] = {}
        self.taken: dict[object, int] = {}
        self.running = 0  # threads that run; those that wait for an inner map or for an exchange do not
        self.failed = False

    def exchange(self, key: object, at: int, size: int, value: object) -> list[object]:
        with self.changed:
            slots = self.exchanges.setdefault(key, {})
            slots[at] = value
            self.running -= 1
            if len(slots) == size:
                self.running += size  # all of them go on
                self.changed.notify_all()
            elif self.running == 0:
                self.fail()
            while len(slots) < size and not self.failed:
                self.changed.wait()
            if len(slots) < size:
                raise ExecutionError(
                    "interpret: the runs of a map wait for different collectives",
                    remedy="let all indices of the axis take the same branches and make the same number of steps",
                )
            self.taken[key] = self.taken.get(key, 0) + 1
            if self.taken[key] == size:
                del self.taken[key], self.exchanges[key]
        return [slots[k] for k in range(size)]

    def fail(self) -> None:
        self.failed = True
        self.changed.notify_all()


@final
class _Position:
    """The index of one run along each named axis, and the number of its exchanges and inner maps so far."""

    def __init__(self, world: _World, index: Mapping[str, tuple[int, int]], path: tuple[int, ...]) -> None:
        self.world = world
        self.index = index  # by name: the index and the size
        self.path = path  # which map this is, among the maps that the runs around it make
        self.counts: dict[tuple[str, ...], int] = {}
        self.maps = 0


_position: Final[ContextVar[_Position | None]] = ContextVar("fxad_position", default=None)


def _coordinates(names: Sequence[str], sizes: Sequence[int]) -> _Position:
    here = _position.get()
    for name, size in zip(names, sizes, strict=True):
        known = None if here is None else here.index.get(name)
        if known is None or known[1] != size:
            raise AxisNameError(
                f"interpret: axis {name!r} of size {size} is not bound",
                remedy=f"map over it: vmap(program, axis_name={name!r}, axis_size={size})",
            )
    return cast(_Position, here)


def index_of(names: Sequence[str], sizes: Sequence[int]) -> int:
    """The index of this run along several axes, the first one slowest. Raises: AxisNameError."""
    here, at = _coordinates(names, sizes), 0
    for name, size in zip(names, sizes, strict=True):
        at = at * size + here.index[name][0]
    return at


def exchanged(names: Sequence[str], sizes: Sequence[int], value: T) -> list[T]:
    """The values of all runs along several axes, the first axis slowest. Raises: AxisNameError, ExecutionError."""
    here = _coordinates(names, sizes)
    count = here.counts[tuple(names)] = here.counts.get(tuple(names), 0) + 1
    others = tuple([(name, k) for name, (k, _) in here.index.items() if name not in names])
    key = (tuple(names), others, here.path, count)
    found = here.world.exchange(key, index_of(names, sizes), prod(sizes), value)
    return cast("list[T]", found)


def mapped(names: Sequence[str], sizes: Sequence[int], run: Callable[[tuple[int, ...]], T]) -> list[T]:
    """`run(index)` for every index of the axes, the first one slowest, all at the same time."""
    outer = _position.get()
    world, path = _World(), cast(tuple[int, ...], ())
    if outer is not None:
        world, path = outer.world, (*outer.path, outer.maps)
        outer.maps += 1
    indices = list(product(*map(range, sizes)))
    results: dict[tuple[int, ...], T] = {}
    errors: list[BaseException] = []

    def one(index: tuple[int, ...]) -> None:
        around = {} if outer is None else outer.index
        here = {name: (k, n) for name, k, n in zip(names, index, sizes, strict=True)}
        _position.set(_Position(world, {**around, **here}, path))
        try:
            results[index] = run(index)
        except BaseException as e:  # noqa: BLE001  the waiting thread raises it
            errors.append(e)
            with world.changed:
                world.fail()
        with world.changed:
            world.running -= 1
            if world.running == 0 and world.exchanges:
                world.fail()

    threads = [threading.Thread(target=copy_context().run, args=(one, index)) for index in indices]
    with world.changed:
        world.running += len(threads) - (outer is not None)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with world.changed:
        world.running += outer is not None
    if errors:
        own = [e for e in errors if not isinstance(e, ExecutionError)]
        raise (own or errors)[0]
    return [results[index] for index in indices]
