"""Compilations under way in this process, its end, and what a fork leaves of both.

The process must not end while XLA computes either: its threads would run code that is gone. So its end waits
- for results that are held;
- for what the thread that ends has begun, held or not: XLA computes on a device what one thread asks for in its order,
  so a program of one number is the last of it (7 ms to compile, for each CPU device in use);
- for what other threads have begun in the end of the client, which comes after the last array and program. Something
  may keep those for ever (a frame of a daemon thread, an extension), so this alone would not do.
A daemon thread that is inside XLA when the interpreter ends is ended there, and the process aborts. So the end waits
for what is being compiled, and for functions of the host that XLA has called, which it interrupts after a while. A
thread that then begins or finishes one of these, or calls a program, stays where it is, as daemon threads do.
A forked child has none of XLA's threads, and would wait for them for ever.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar, final

import numpy as np

from fxad.core.single_flight import FLIGHTS, SingleFlight
from fxad.ir import Aval
from fxad.lowering.door import _jax
from fxad.xla.buffers import Commitments, commitments
from fxad.xla.client import Device, check_process, settle, tell_forked
from fxad.xla.compat import compile_options, result_handler

P = ParamSpec("P")
R = TypeVar("R")

_LOOK: Final = 0.05  # seconds
_PATIENCE: Final = 1.0  # seconds that the end gives to functions of the host, and again when it has interrupted them
_LEAVE: Final = 10.0  # seconds that it gives to threads that are in XLA
_LONG: Final = 3600.0
# Files of which functions call XLA with what the user computes.
_ROOT: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_CALLERS: Final = tuple([_ROOT + name for name in ("xla", "array.py", "calling.py", "placement.py", "numpy/calls.py")])


@final
class _Work:
    """Whether more may begin, and what the end of the interpreter waits for."""

    __slots__ = ("__weakref__", "_calling", "_devices", "_on_host", "_over", "_staying")

    def __init__(self) -> None:
        self._over = False
        self.after_fork()

    def after_fork(self) -> None:
        """In a child: the threads that were at work are not there."""
        self._devices: set[Device] = set()  # that were compiled for
        self._calling = SingleFlight()  # executions that call the host
        self._on_host = SingleFlight()  # functions of the host, which may run in other threads
        self._staying: set[int] = set()

    def begin(self, what: str, device: Device) -> None:
        """Before what XLA compiles in a call of `FLIGHTS`. Raises: ExecutionError in a forked child."""
        check_process(what)
        self._devices.add(device)
        self.stay()

    def executing(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Execute a program that calls the host."""
        self.stay()
        try:
            return self._calling.run(fn, *args, **kwargs)
        finally:
            self.stay()

    def on_host(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function of the host, from XLA."""
        return self._on_host.run(fn, *args, **kwargs)

    def stay(self) -> None:
        """At the end: go no further, unless this is the thread that ends."""
        if self._over and threading.get_ident() != threading.main_thread().ident:
            self._staying.add(threading.get_ident())
            while True:
                time.sleep(_LONG)

    def end(self) -> None:
        """Begin nothing new, and wait for what runs: compilations and computations."""
        self._over = True
        while others := self._others(FLIGHTS):
            FLIGHTS.wait_for_one(others)
        self._end_host_functions()
        commitments.__class__ = _Closed
        self._leave()
        settle()
        self._leave()
        for device in self._devices.copy():
            if device.platform == "cpu":  # what an accelerator runs is none of the process's code
                _wait_for(device)

    def _end_host_functions(self) -> None:
        """Wait for executions that call the host; after a while interrupt the functions. One that is blocked for ever
        runs no more Python, and so does no harm."""
        begin = time.monotonic()
        while self._others(self._calling) and (waited := time.monotonic() - begin) < 2 * _PATIENCE:
            if waited > _PATIENCE:
                for thread in self._others(self._on_host):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
            time.sleep(_LOOK)

    def _leave(self) -> None:
        """Wait a while for threads that are in calls of programs to come out of XLA."""
        give_up = time.monotonic() + _LEAVE
        while time.monotonic() < give_up:
            there = sys._current_frames().items()
            inside = {thread for thread, frame in there if frame.f_code.co_filename.startswith(_CALLERS)}
            if not inside - self._staying - {threading.get_ident()}:
                return
            time.sleep(_LOOK)

    def _others(self, calls: SingleFlight) -> set[int]:
        """Threads that are at work, without this one and those that stay where they are."""
        return (calls.threads() & sys._current_frames().keys()) - self._staying - {threading.get_ident()}


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


@final
class _Closed(Commitments):
    """What every call asks before it goes on to XLA, when the interpreter ends."""

    __slots__ = ()

    def _ask(self) -> bool:
        """Only the thread that ends learns that it must look at each operand."""
        _work.stay()
        return True

    def _set(self, value: bool) -> None:
        pass

    any = property(_ask, _set)

    def enter(self) -> None:
        _work.stay()


atexit.register(_work.end)
tell_forked(_work)

begin: Final = _work.begin
executing: Final = _work.executing
on_host: Final = _work.on_host
