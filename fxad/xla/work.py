"""Compilations under way in this process, its end, and what a fork leaves of both.

The process must not end while XLA computes either: its threads would run code that is gone.
A client of XLA waits in its own end, after the last array and program, for what it computes; results that are held are
waited for before. A daemon thread that is inside XLA when the interpreter ends is ended there, and the process aborts.
So the end waits for what is being compiled; a thread that then begins or finishes a compilation stays where it is, as
daemon threads do.
A forked child has none of XLA's threads, and would wait for them for ever.
"""

from __future__ import annotations

import atexit
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from fxad.xla.client import check_process, settle, tell_forked


@final
class _Work:
    """The compilations that run, by thread, and whether more may begin."""

    __slots__ = ("__weakref__", "_changed", "_over", "_running")

    def __init__(self) -> None:
        self._over = False
        self.after_fork()

    def after_fork(self) -> None:
        """In a child: the threads that were at work are not there."""
        self._changed = threading.Condition(threading.RLock())
        self._running: Counter[int] = Counter()

    @contextmanager
    def under_way(self, what: str) -> Iterator[None]:
        check_process(what)
        me = threading.get_ident()
        with self._changed:
            self._stay(me)
            self._running[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running[me] -= 1
                self._running += Counter()  # without those at 0
                self._changed.notify_all()
                self._stay(me)

    def _stay(self, me: int) -> None:
        """At the end: go no further, unless this is the thread that ends, or it is in the middle of a compilation."""
        while self._over and me not in self._running and me != threading.main_thread().ident:
            self._changed.wait()

    def end(self) -> None:
        """Begin nothing new, and wait for what runs: compilations, and computations whose results are held."""
        with self._changed:
            self._over = True
            while self._running:
                self._changed.wait()
        settle()


_work: Final = _Work()
atexit.register(_work.end)
tell_forked(_work)

# `with under_way("compile"):` around what XLA does in a thread of the caller.
# Raises: ExecutionError in a forked child.
under_way: Final = _work.under_way
