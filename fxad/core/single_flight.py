"""Single flight: one thread does the work of a key while other threads wait for its result, without a lock.

A lock may never be released: a signal handler (Ctrl-C) may raise between any two bytecodes, and a process may fork
while another thread holds the lock. Here nothing has to be released. An object represents the running call. The only
reference to it is on the interpreter's stack, which drops it, in C, when the call returns or raises:

    _MarkedCall(running, key, fn)() makes the object, and runs `fn` with a weak reference to it (`_RunningCall`)
    running[key] = reference        `fn` enters the reference; while it is alive, other threads wait for `ended`
    return, or an exception         the object dies, and the cleanup of the reference removes the entry and wakes one

The references are:

    the stack -> the object -> `fn`, and until the call begins a list -> the reference
    running[key] -> the reference -> its cleanup -> running, key, the lock `ended`
    the reference -> the object     weakly, and neither `fn` nor the cleanup refers to it: only the stack keeps it alive
    a reference not entered         dies with the frame of `fn`, before the object: its cleanup is not called, rightly

No thread calls the reference, which would return the object: it would then outlive its run for a moment, and its thread
would take its next call for one inside of it. `remove_dead` removes the entry of a dead object without that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from operator import methodcaller
from threading import Lock, get_ident
from typing import Final, ParamSpec, Self, TypeVar, final

from fxad.core.weak import CLEANUP, RefWithCleanup, remove_dead

P = ParamSpec("P")
T = TypeVar("T")

_CALL: Final = methodcaller("__call__")
_POLL_SECONDS: Final = 0.1  # seconds after which a waiting thread checks again, even without a notification


@final
class _RunningCall(RefWithCleanup[object]):
    """A weak reference to a running call; dead when the call has ended. Waiting threads acquire `ended`."""

    __slots__ = ("ended", "thread")

    ended: Lock
    thread: int


@final
class _MarkedCall(partial[T]):
    """A call whose lifetime is that of its run: `_MarkedCall(...)()`, never stored in a variable.

    `fn` gets the weak reference, which can only be made after the call. So the call is made with an empty list, the
    reference is put into it, and `_call_with_marker` takes it out: the call does not hold its own reference.

        the frame of `do` or `run`   refers to  the call, as long as it runs: no variable does, and nothing else
        the call                                `fn`, and the list, which is empty from its first step on
        `running`, the table                    the marker, by its key
        the marker                              its cleanup, and the call weakly

    So the call is freed when it returns or raises, and then the cleanup removes the marker from the table.
    """

    __slots__ = ()

    def __new__(cls, running: dict[Hashable, _RunningCall], key: Hashable, fn: Callable[[_RunningCall], T]) -> Self:
        markers: list[_RunningCall] = []
        self = super().__new__(cls, _call_with_marker, fn, markers)
        ended, thread = Lock(), get_ident()
        ended.acquire()
        # remove_dead(running, key); ended.release(), in C, so that no signal comes between the two: `any` goes on while
        # they return None. A thread that waited finds the key gone. `map` is an iterator: this can be called once.
        cleanup = partial(any, map(_CALL, (partial(remove_dead, running, key), ended.release)))
        marker = _RunningCall(self, CLEANUP)
        marker.cleanup, marker.ended, marker.thread = cleanup, ended, thread
        markers.append(marker)
        return self


def _call_with_marker(fn: Callable[[_RunningCall], T], markers: list[_RunningCall]) -> T:
    return fn(markers.pop())


@final
class SingleFlight:
    """Running calls, by key: at most one thread does the work of a key, and the others wait for its result.

    A thread with a running call never waits. If a finaliser or a signal handler in that thread needs another key, the
    thread does that work itself, so there is no deadlock.
    """

    __slots__ = ("__weakref__", "_running")

    def __init__(self) -> None:
        self._running: dict[Hashable, _RunningCall] = {}

    def after_fork(self) -> None:
        """Forget all calls: the threads of the parent do not exist in a forked child."""
        self._running.clear()

    def do(self, key: Hashable, find: Callable[[], T | None], make: Callable[[], T]) -> T:
        """Return the result of `find`, or that of `make` if `find` returns None. If a call fails, the next thread
        tries.

        Rule: `make` stores its result so that `find` returns it.
        """
        while True:
            result = find()
            if result is None:
                result = _MarkedCall(self._running, key, partial(self._attempt, key, find, make))()
            if result is not None:
                return result
            running = self._running.get(key)
            if running is None:  # it has ended meanwhile
                continue
            if get_ident() in self.threads():  # it may wait for this thread, or be a call of this thread
                return make()
            _wait_for_end(running)

    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function, and list this thread in `threads` while it runs."""
        key = object()
        return _MarkedCall(self._running, key, partial(self._enter, key, partial(fn, *args, **kwargs)))()

    def _enter(self, key: Hashable, fn: Callable[[], T], marker: _RunningCall) -> T:
        self._running[key] = marker
        return fn()

    def _attempt(
        self, key: Hashable, find: Callable[[], T | None], make: Callable[[], T], marker: _RunningCall
    ) -> T | None:
        """Do the work of a key; return None if another call is doing it.

        `setdefault` finds              `get` after `remove_dead` finds
        no entry: it enters `marker`                                        do the work
        another call                    the same one: it runs               return None
        a call that has just ended      no entry: it was removed            again
        a call that has just ended      an entry that a third thread made   again
        """
        while (running := self._running.setdefault(key, marker)) is not marker:
            remove_dead(self._running, key)
            if self._running.get(key) is running:
                return None
        result = find()  # another thread may have just finished it
        return make() if result is None else result

    def threads(self) -> set[int]:
        """Return the threads with a running call."""
        return {r.thread for r in self._alive()}

    def wait_for_one(self, threads: set[int]) -> None:
        """Wait for one of these threads, at most `_POLL_SECONDS` seconds."""
        for r in self._alive():
            if r.thread in threads:
                _wait_for_end(r)
                return

    def _alive(self) -> list[_RunningCall]:
        for key in self._running.copy():
            remove_dead(self._running, key)
        return list(self._running.copy().values())


def _wait_for_end(running: _RunningCall) -> None:
    """Wait for the end of a call, at most `_POLL_SECONDS` seconds."""
    if running.ended.acquire(timeout=_POLL_SECONDS):
        running.ended.release()  # wakes the next waiting thread; if interrupted before, that thread's timeout wakes it


FLIGHTS: Final = SingleFlight()

__all__ = ["FLIGHTS", "SingleFlight"]
