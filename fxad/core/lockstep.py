"""Runs a function for every index of named axes at the same time, with exchanges between the runs.

The interpreter runs collectives in this way. Each index has a thread, and an exchange makes each thread wait for the
threads of its group. Control flow needs no special case: a collective in a loop or a branch waits there. If all threads
wait, they would wait forever; this is detected and raises an error.
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
class _Exchanges:
    """The exchanges of an outermost map and of the maps nested in it, and the number of their running threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.values: dict[object, dict[int, object]] = {}  # of each exchange that is open, by its key and the index
        self.readers: dict[object, int] = {}  # the number of threads that have read the values of an exchange
        # The number of threads that can go on: they have not ended, and wait neither for an inner map (in `join`) nor
        # for an exchange that is not complete. If it is 0 and an exchange is open, nobody can complete it: they fail.
        #
        #     a map of 2 starts                          2
        #     index 0 calls an inner map of 3            4      3 more, and index 0 waits for them: `run_mapped`
        #     two threads of the inner map end           2      `run_one`
        #     the last one ends                          2      index 0 goes on in its place
        #     index 0 comes to an exchange               1      `exchange`
        #     index 1 comes to it, and it is complete    2      0, and all that waited go on
        #     both end                                   0      no exchange is open
        self.running = 0
        self.failed = False

    def exchange(self, key: object, index: int, size: int, value: object) -> list[object]:
        with self.changed:
            slots = self.values.setdefault(key, {})
            slots[index] = value
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
            self.readers[key] = self.readers.get(key, 0) + 1
            if self.readers[key] == size:
                del self.readers[key], self.values[key]
        return [slots[k] for k in range(size)]

    def fail(self) -> None:
        self.failed = True
        self.changed.notify_all()


@final
class _Position:
    """One run: its index along each named axis, and the numbers of its exchanges and of its inner maps so far."""

    def __init__(self, exchanges: _Exchanges, index: Mapping[str, tuple[int, int]], path: tuple[int, ...]) -> None:
        self.exchanges = exchanges
        self.index = index  # by name: the index and the size
        # Which map this is: after the path of the enclosing run, the number of this map in that run, and the indices of
        # that run along names that this map binds again. So the second map inside of index 3 of "i", if it binds "i"
        # too, has the path (1, 3): its exchanges are not those of the first one, or of index 2.
        self.path = path
        self.counts: dict[tuple[str, ...], int] = {}  # the number of exchanges so far, by axes
        self.maps = 0  # the number of inner maps so far


_position: Final[ContextVar[_Position | None]] = ContextVar("fxad_position", default=None)


def _coordinates(names: Sequence[str], sizes: Sequence[int]) -> _Position:
    position = _position.get()
    for name, size in zip(names, sizes, strict=True):
        bound = None if position is None else position.index.get(name)
        if bound is None or bound[1] != size:
            raise AxisNameError(
                f"interpret: axis {name!r} of size {size} is not bound",
                remedy=f"map over it: vmap(program, axis_name={name!r}, axis_size={size})",
            )
    return cast(_Position, position)  # it binds a name, or there are no names


def index_of(names: Sequence[str], sizes: Sequence[int]) -> int:
    """Return the index of this run along several axes, the first one slowest. Raises: AxisNameError."""
    position, flat_index = _coordinates(names, sizes), 0
    for name, size in zip(names, sizes, strict=True):
        flat_index = flat_index * size + position.index[name][0]
    return flat_index


def gather_from_runs(names: Sequence[str], sizes: Sequence[int], value: T) -> list[T]:
    """Return the values of all runs along several axes, the first axis slowest. Raises: AxisNameError,
    ExecutionError."""
    position = _coordinates(names, sizes)
    count = position.counts[tuple(names)] = position.counts.get(tuple(names), 0) + 1
    other_axes = tuple([(name, k) for name, (k, _) in position.index.items() if name not in names])
    key = (tuple(names), other_axes, position.path, count)
    values = position.exchanges.exchange(key, index_of(names, sizes), prod(sizes), value)
    return cast("list[T]", values)  # all runs exchange values of one type


def run_mapped(names: Sequence[str], sizes: Sequence[int], run: Callable[[tuple[int, ...]], T]) -> list[T]:
    """Return `run(index)` for every index of the axes, the first one slowest, all at the same time."""
    outer = _position.get()
    exchanges = _Exchanges() if outer is None else outer.exchanges
    path: tuple[int, ...] = ()
    if outer is not None:
        path = (*outer.path, outer.maps, *[outer.index[name][0] for name in names if name in outer.index])
        outer.maps += 1
    indices = list(product(*map(range, sizes)))
    results: dict[tuple[int, ...], T] = {}
    errors: list[BaseException] = []
    n_unfinished = len(indices)

    def run_one(index: tuple[int, ...]) -> None:
        nonlocal n_unfinished
        outer_index = {} if outer is None else outer.index
        new_index = {name: (k, n) for name, k, n in zip(names, index, sizes, strict=True)}
        _position.set(_Position(exchanges, {**outer_index, **new_index}, path))
        try:
            results[index] = run(index)
        except BaseException as e:  # noqa: BLE001  the waiting thread raises it
            errors.append(e)
            with exchanges.changed:
                exchanges.fail()
        with exchanges.changed:
            n_unfinished -= 1
            if n_unfinished or outer is None:  # after the last thread of an inner map, the outer one goes on
                exchanges.running -= 1
            if exchanges.running == 0 and exchanges.values:
                exchanges.fail()

    threads = [threading.Thread(target=copy_context().run, args=(run_one, index)) for index in indices]
    with exchanges.changed:
        exchanges.running += len(threads) - (outer is not None)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        first_causes = [e for e in errors if not isinstance(e, ExecutionError)]
        raise (first_causes or errors)[0]
    return [results[index] for index in indices]
