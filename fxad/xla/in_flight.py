"""Compilations under way in this process, its end, and what a fork leaves of both.

The process must not end while XLA computes either: its threads would run code that is gone. So its end waits
- for results that are held;
- for what the thread that ends has begun, held or not: XLA computes on a device what one thread asks for in its order,
  so a program of one number is the last of it (7 ms to compile, for each CPU device in use);
- for what other threads have begun in the end of the client, which comes after the last array and program. Something
  may keep those for ever (a frame of a daemon thread, an extension), so this alone would not do.
A daemon thread that is inside XLA when the interpreter ends is ended there, and the process aborts. So the end waits
for what is being compiled; a thread that then begins or finishes a compilation stays where it is, as daemon threads do.
A forked child has none of XLA's threads, and would wait for them for ever.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, final

import numpy as np

from fxad.ir import Aval
from fxad.lowering.door import _jax
from fxad.xla.client import Device, check_process, settle, tell_forked
from fxad.xla.compat import compile_options, result_handler


@final
class _Work:
    """The compilations that run, by thread, whether more may begin, and the devices that were compiled for."""

    __slots__ = ("__weakref__", "_changed", "_devices", "_over", "_running")

    def __init__(self) -> None:
        self._over = False
        self.after_fork()

    def after_fork(self) -> None:
        """In a child: the threads that were at work are not there."""
        self._changed = threading.Condition(threading.RLock())
        self._running: Counter[int] = Counter()
        self._devices: set[Device] = set()

    @contextmanager
    def under_way(self, what: str, device: Device) -> Iterator[None]:
        check_process(what)
        me = threading.get_ident()
        with self._changed:
            self._stay(me)
            self._devices.add(device)
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
        """Begin nothing new, and wait for what runs: compilations and computations."""
        with self._changed:
            self._over = True
            while self._others():
                self._changed.wait(_LOOKS)
        settle()
        for device in self._devices:
            if device.platform == "cpu":  # what an accelerator runs is none of the process's code
                _wait_for(device)

    def _others(self) -> set[int]:
        """Threads that compile. An interrupt (Ctrl-C, twice) may come where a thread says that it is done: what it left
        behind is nobody's when it ends, or has gone on to the end itself."""
        return self._running.keys() & sys._current_frames().keys() - {threading.get_ident()}


_LOOKS: Final = 0.1  # seconds after which threads are counted again
_NOTHING: Final = """module @end {
  func.func @main() -> tensor<i1> {
    %0 = stablehlo.constant dense<true> : tensor<i1>
    return %0 : tensor<i1>
  }
}"""


def _wait_for(device: Device) -> None:
    """Wait until the device has computed what this thread has asked it for."""
    handler = result_handler(Aval((), np.dtype(np.bool_)), device.sharding, True, None)
    with suppress(_jax.JaxRuntimeError):  # nobody is left to be told
        last = device.client.compile_and_load(_NOTHING, device.raw_list, compile_options(device.id))
        (made,) = last.execute_sharded([]).consume_with_handlers([handler])
        made.block_until_ready()


_work: Final = _Work()
atexit.register(_work.end)
tell_forked(_work)

# `with under_way("compile", device):` around what XLA does in a thread of the caller.
# Raises: ExecutionError in a forked child.
under_way: Final = _work.under_way
