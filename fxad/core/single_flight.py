"""Work that one thread does while others wait for it, without a lock.

A lock can be left taken: an exception of a signal handler (Ctrl-C) may come between any two steps of Python, and a
child is forked while another thread has it. Here nothing is released. A thread is at work as long as an object lives
that stands for the call. The only reference to it is on the interpreter's stack, which drops it, in C, when the call
returns or raises.
"""

from __future__ import annotations

from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]  # compare and delete
from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock, get_ident
from typing import Final, ParamSpec, Self, TypeVar, final
from weakref import ref

P = ParamSpec("P")
T = TypeVar("T")

_LOOK: Final = 0.1  # seconds after which a thread that waits looks again, whatever it was told


@final
class _Call(partial[T]):
    """A call that stands for itself while it runs: `_Call(...)()`, never in a variable."""

    __slots__ = ()

    def __new__(cls, running: dict[Hashable, _Running], key: Hashable, fn: Callable[[_Running], T]) -> Self:
        marks: list[_Running] = []
        self = super().__new__(cls, _marked, fn, marks)
        marks.append(_Running(self, running, key))
        return self


def _marked(fn: Callable[[_Running], T], marks: list[_Running]) -> T:
    return fn(marks.pop())


@final
class _Running(ref[object]):
    """A reference to a call that runs; dead when the call has ended. Who waits for the end takes `ended`."""

    __slots__ = ("ended", "thread")

    ended: Lock
    thread: int

    def __new__(cls, call: object, running: dict[Hashable, _Running], key: Hashable) -> Self:
        ended = Lock()
        ended.acquire()
        self = super().__new__(cls, call, partial(_end, running, key, ended))
        self.ended, self.thread = ended, get_ident()
        return self

    def __init__(self, call: object, running: dict[Hashable, _Running], key: Hashable) -> None:
        pass  # `__new__` has done it


def _end(running: dict[Hashable, _Running], key: Hashable, ended: Lock, _: object) -> None:
    _remove_dead_weakref(running, key)
    ended.release()


@final
class SingleFlight:
    """Calls that run, by key: at most one thread does the work of a key, and the others wait for what it makes.

    A thread that is at work waits for nobody: what it comes upon in a finaliser or a signal handler it does itself, so
    no two threads wait for each other.
    """

    __slots__ = ("__weakref__", "_running")

    def __init__(self) -> None:
        self._running: dict[Hashable, _Running] = {}

    def after_fork(self) -> None:
        """In a child: the threads that were at work are not there."""
        self._running.clear()

    def do(self, key: Hashable, find: Callable[[], T | None], make: Callable[[], T]) -> T:
        """What `find` finds, else what `make` makes. A call that fails leaves the work to the next thread.

        Rule: `make` puts what it makes where `find` finds it.
        """
        while True:
            made = find()
            if made is None:
                made = _Call(self._running, key, partial(self._attempt, key, find, make))()
            if made is not None:
                return made
            if not self._wait(key):
                return make()

    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function, as work that `threads` tells of."""
        key = object()
        return _Call(self._running, key, partial(self._enter, key, partial(fn, *args, **kwargs)))()

    def _enter(self, key: Hashable, fn: Callable[[], T], mine: _Running) -> T:
        self._running[key] = mine
        return fn()

    def _attempt(self, key: Hashable, find: Callable[[], T | None], make: Callable[[], T], mine: _Running) -> T | None:
        """The work of a key; None while another thread does it."""
        while (there := self._running.setdefault(key, mine)) is not mine:
            if there() is not None:
                return make() if there.thread == mine.thread else None
            _remove_dead_weakref(self._running, key)
        made = find()  # perhaps by a thread that ended just now
        return make() if made is None else made

    def _wait(self, key: Hashable) -> bool:
        """Wait for the thread that does the work of a key; whether this thread may."""
        there = self._running.get(key)
        if there is None:
            return True
        if get_ident() in self.threads():
            return False
        _pause(there)
        return True

    def threads(self) -> set[int]:
        """The threads that are at work."""
        return {r.thread for r in self._alive()}

    def wait_for_one(self, threads: set[int]) -> None:
        """Wait a moment for one of these threads."""
        for r in self._alive():
            if r.thread in threads:
                _pause(r)
                return

    def _alive(self) -> list[_Running]:
        return [r for r in self._running.copy().values() if r() is not None]


def _pause(running: _Running) -> None:
    """Wait for the end of a call, or a moment."""
    if running.ended.acquire(timeout=_LOOK):
        running.ended.release()  # for the next one that waits; where it is not reached, that one looks again


FLIGHTS: Final = SingleFlight()

__all__ = ["FLIGHTS", "SingleFlight"]
