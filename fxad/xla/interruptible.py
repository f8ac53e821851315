"""Programs with a loop that may never end: the main thread can be interrupted while it waits for them.

Python runs signal handlers in the main thread, between two bytecodes. A thread inside XLA runs none, and XLA runs small
programs on the calling thread. So the main thread starts a program with an unbounded loop in another thread, and waits
for a lock, which a signal interrupts. A program that returned quickly a few times is started directly. If it then does
not return, it cannot be interrupted. XLA runs larger programs in its own threads, and jaxlib handles signals while it
waits for them.

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

from fxad.lowering.jaxlib import _jax

T = TypeVar("T")

_QUICK: Final = 1e-3  # seconds
_TRIES: Final = 3  # quick starts, after which a program is started directly


@final
class Waits:
    """State that exit reads: `unbounded` is True if there is a program with an unbounded loop, `interrupted` if the
    exception of a signal handler has ended the wait for a computation."""

    __slots__ = ("interrupted", "unbounded")

    def __init__(self) -> None:
        self.unbounded = self.interrupted = False

    def call(self, fn: Callable[[], T]) -> T:
        """The result of a function, which another thread calls. A signal interrupts the wait for it."""
        ended, values, errors = allocate_lock(), list[T](), list[BaseException]()
        ended.acquire()

        def run() -> None:
            try:
                values.append(fn())
            except BaseException as e:  # noqa: BLE001  the waiting thread raises it
                errors.append(e)
            finally:
                ended.release()

        start_new_thread(copy_context().run, (run,))
        try:
            ended.acquire()
        except BaseException:
            self.interrupted = True
            raise
        if errors:
            raise errors.pop()
        return values.pop()


waits: Final = Waits()


def in_main_thread() -> bool:
    """Returns True in the thread that runs signal handlers."""
    return threading.get_ident() == threading.main_thread().ident


def interruptible(start: Callable[[Sequence[_jax.ArrayImpl]], T]) -> Callable[[Sequence[_jax.ArrayImpl]], T]:
    """The start of a program with an unbounded loop, such that a signal interrupts it."""
    waits.unbounded = True
    quick_starts_left = [None] * _TRIES  # a list: threads remove elements without a lock

    def begin(buffers: Sequence[_jax.ArrayImpl]) -> T:
        if not quick_starts_left:
            return start(buffers)
        return start_in_thread(buffers)

    def start_in_thread(buffers: Sequence[_jax.ArrayImpl]) -> T:
        if not in_main_thread():
            return start(buffers)
        begun = perf_counter()
        results = waits.call(lambda: start(buffers))
        if perf_counter() - begun > _QUICK:
            quick_starts_left[:] = [None] * _TRIES
        else:
            del quick_starts_left[-1:]
        return results

    return begin
