"""Programs that may never end: the main thread can be interrupted while it waits for them.

Python runs signal handlers in the main thread, between two bytecodes. A thread inside XLA runs none, and XLA runs small
programs on the calling thread. So the main thread starts a program with an unbounded loop in another thread, and waits
for a lock, which a signal interrupts. A program that returned quickly a few times is started directly. If it then does
not return, it cannot be interrupted. XLA runs larger programs in its own threads, and jaxlib handles signals while it
waits for them. A program that waits for other processes is always started in another thread.

Cost: 50 us for a start in another thread; 0.2 us for a direct one, of the 8 us that a small loop takes. So a small loop
is not always started in another thread.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from contextvars import copy_context
from time import perf_counter
from typing import Final, TypeVar, final

from fxad.ir import HigherOrder, Jaxpr, all_prims
from fxad.xla.jaxlib_types import Buffer, Start, XlaResults

T = TypeVar("T")

_QUICK: Final = 1e-3  # seconds
_TRIES: Final = 3  # quick starts, after which a program is started directly


@final
class Waits:
    """Waits that signals interrupt, and what interpreter exit must know of them: `unbounded` is True if there is a
    program that may never end, `interrupted` if the exception of a signal handler has ended the wait for a
    computation."""

    __slots__ = ("interrupted", "unbounded")

    def __init__(self) -> None:
        self.unbounded = self.interrupted = False

    def note_interruption(self) -> None:
        """Note that the exception of a signal handler has ended a wait."""
        self.interrupted = True

    def call(self, fn: Callable[[], T], timeout: float = -1) -> T:
        """Return the result of a function, which another thread calls. A signal interrupts the wait for it.

        Raises: what `fn` raises; TimeoutError after `timeout` seconds.
        """
        ended, values, errors = allocate_lock(), list[T](), list[BaseException]()
        ended.acquire()

        def run() -> None:
            try:
                values.append(fn())
            except BaseException as e:  # noqa: BLE001  the waiting thread raises it
                errors.append(e)
            finally:
                ended.release()

        try:
            try:
                start_new_thread(copy_context().run, (run,))
            except RuntimeError:  # Python 3.12 starts no thread at exit; nothing limits the wait then
                return fn()
            in_time = ended.acquire(timeout=timeout)
        except BaseException:
            self.note_interruption()
            raise
        if not in_time:
            raise TimeoutError
        if errors:
            raise errors.pop()
        return values.pop()


waits: Final = Waits()


def may_not_end(jaxpr: Jaxpr) -> bool:
    """Return True if a program has a loop whose number of runs has no bound."""
    loops = [prim for prim in all_prims(jaxpr) if isinstance(prim, HigherOrder)]
    return any([loop.layout.unbounded for loop in loops])


def in_main_thread() -> bool:
    """Return True in the thread that runs signal handlers."""
    return threading.get_ident() == threading.main_thread().ident


def started_in_thread(start: Start) -> Start:
    """Return the start of a program that may never end, such that a signal interrupts it."""
    waits.unbounded = True

    def begin(buffers: Sequence[Buffer]) -> XlaResults:
        return waits.call(lambda: start(buffers)) if in_main_thread() else start(buffers)

    return begin


def interruptible(start: Start) -> Start:
    """Return `started_in_thread` until a few starts were quick."""
    in_thread = started_in_thread(start)
    quick_starts_left = [None] * _TRIES  # a list: threads remove elements without a lock

    def begin(buffers: Sequence[Buffer]) -> XlaResults:
        if not quick_starts_left or not in_main_thread():
            return start(buffers)
        begun = perf_counter()
        results = in_thread(buffers)
        if perf_counter() - begun > _QUICK:
            quick_starts_left[:] = [None] * _TRIES
        else:
            del quick_starts_left[-1:]
        return results

    return begin
