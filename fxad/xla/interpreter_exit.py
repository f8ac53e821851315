"""Running compilations and computations, at interpreter exit and in forked children.

The process must not exit while XLA computes: its threads would run unloaded code. So the exit handler waits
- for all live results;
- for all executions of the exiting thread, also those without live results. XLA runs the executions of one thread on a
  device in order, so a small program runs last (7 ms to compile, for each CPU device in use);
- for executions of other threads: the destructor of the client does that, after the last array and program are freed.
  Some reference may keep those alive (a frame of a daemon thread, an extension), so this alone does not suffice.
Python kills a daemon thread inside XLA at exit, which aborts the process. So the exit handler also waits for running
compilations, and for host functions that XLA has called, which it interrupts after a while. A thread that later begins
or finishes one of these, or calls a program, sleeps until the process exits, like daemon threads do.
A forked child has none of XLA's threads, and would wait for them forever.
Exit does not wait if Ctrl-C has ended the program, or the wait for a computation, or if a signal handler raises at
exit. Then the process ends without the destructors of XLA.
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
from fxad.errors import PACKAGE
from fxad.ir import Aval
from fxad.lowering.jaxlib import _jax
from fxad.xla.client import (
    Device,
    check_not_forked,
    is_computing,
    keep_clients,
    register_after_fork,
    wait_for_live_arrays,
)
from fxad.xla.compat import result_handler
from fxad.xla.interruptible import waits
from fxad.xla.jaxlib_types import Buffer
from fxad.xla.options import options_of_one_device

P = ParamSpec("P")
R = TypeVar("R")

_POLL_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 1.0  # exit waits so long for host functions, before and after interrupting them
_CALL_SECONDS: Final = 10.0  # exit waits so long for threads in XLA
_SLEEP_SECONDS: Final = 3600.0
# Files whose functions call XLA for the user's computations.
_CALLERS: Final = tuple(
    [os.path.join(PACKAGE, *name.split("/")) for name in ("xla/", "execution/", "tracing/array.py", "numpy/apply.py")]
)


class ProcessState:
    """The object that each call and each transfer reads before it uses XLA.

    `any_committed` is True if some array of this process is committed to a device: the user has put it on a device, or
    it was computed from a committed array (`fxad.tracing.placement`). Each buffer knows if it is. If none is, calls
    skip the check of each operand, which takes 0.1 us: most processes have one device, and commit nothing.

    At interpreter exit, the class of the object changes to `_StateAtExit`, which blocks the thread that reads it. So
    exit costs a call nothing before.
    """

    __slots__ = ("any_committed",)

    def __init__(self) -> None:
        self.any_committed = False

    def note_committed(self) -> None:
        """Note that an array is committed. Who commits one calls this first."""
        self.any_committed = True

    def block_at_exit(self) -> None:
        """Block at interpreter exit. Each wait for XLA and each transfer to it calls this first. At interpreter exit,
        it blocks; before, it does nothing."""


process_state: Final = ProcessState()


@final
class _Work:
    """The running work for which interpreter exit waits, and a flag that stops new work."""

    __slots__ = ("__weakref__", "_calling", "_devices", "_on_host", "_exiting", "_blocked")

    def __init__(self) -> None:
        self._exiting = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget all work: the threads of the parent do not exist in a forked child."""
        self._devices: set[Device] = set()  # that were compiled for
        # Both list the threads in a call, with `run` and `threads`: here no thread waits for the work of another
        self._calling = SingleFlight()  # executions that call the host
        self._on_host = SingleFlight()  # functions of the host, which may run in other threads
        self._blocked: set[int] = set()

    def begin_compilation(self, what: str, device: Device) -> None:
        """Note a compilation before it begins, in a call of `FLIGHTS`. Raises: ExecutionError in a forked child."""
        check_not_forked(what)
        self._devices.add(device)
        self.block_at_exit()

    def execute_with_host_calls(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Execute a program that calls the host."""
        self.block_at_exit()
        try:
            return self._calling.run(fn, *args, **kwargs)
        finally:
            self.block_at_exit()

    def call_host_function(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function of the host, from XLA."""
        return self._on_host.run(fn, *args, **kwargs)

    def block_at_exit(self) -> None:
        """At interpreter exit, block every thread except the main thread."""
        if self._exiting and threading.get_ident() != threading.main_thread().ident:
            self._blocked.add(threading.get_ident())
            while True:
                time.sleep(_SLEEP_SECONDS)

    def end(self) -> None:
        """Stop new work, and wait for running compilations and computations."""
        self._exiting, idle = True, False
        try:
            while others := self._others(FLIGHTS):
                FLIGHTS.wait_for_one(others)
            self._end_host_functions()
            process_state.__class__ = _StateAtExit
            if self._may_wait():
                self._wait_for_computations()
                idle = True
        except KeyboardInterrupt:
            pass
        finally:  # Python prints the exceptions of other signal handlers
            if not idle:
                end_while_xla_runs()

    def _may_wait(self) -> bool:
        """Return True if exit waits for running computations: after Ctrl-C only for those that end soon."""
        ctrl_c = waits.interrupted or getattr(sys, "last_type", None) is KeyboardInterrupt
        return not ctrl_c or (not waits.unbounded and self._computations_end_soon())

    def _computations_end_soon(self) -> bool:
        """Return True if all running computations end within half of `_PATIENCE_SECONDS`."""
        last = self._last_results()
        deadline = time.monotonic() + _PATIENCE_SECONDS / 2
        while is_computing() or not all([result.is_ready() for result in last]):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _wait_for_computations(self) -> None:
        """Wait for running computations, until no thread is in XLA."""
        self._wait_for_calls()  # that start computations: then their results are live arrays
        wait_for_live_arrays()
        self._wait_for_calls()  # that waited for these arrays
        for result in self._last_results():
            with suppress(_jax.JaxRuntimeError):  # at exit, nothing can report the error
                result.block_until_ready()

    def _last_results(self) -> list[Buffer]:
        """Return for each CPU device, a result that is ready when the device has finished all executions of this
        thread."""
        # a GPU runs only host functions in this process, which have ended
        devices = [device for device in self._devices.copy() if device.platform == "cpu"]
        return [result for device in devices for result in _last_result(device)]

    def _end_host_functions(self) -> None:
        """Wait for executions that call the host, and interrupt their functions after a while. A function that is
        blocked forever runs no more Python, so it is harmless."""
        begin = time.monotonic()
        while self._others(self._calling) and (waited := time.monotonic() - begin) < 2 * _PATIENCE_SECONDS:
            if waited > _PATIENCE_SECONDS or waits.interrupted:
                for thread in self._others(self._on_host):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
            time.sleep(_POLL_SECONDS)

    def _wait_for_calls(self) -> None:
        """Wait, for at most `_CALL_SECONDS` seconds, until threads in calls of programs return from XLA."""
        deadline = time.monotonic() + _CALL_SECONDS
        while time.monotonic() < deadline:
            frames = sys._current_frames().items()
            inside = {thread for thread, frame in frames if frame.f_code.co_filename.startswith(_CALLERS)}
            if not inside - self._blocked - {threading.get_ident()}:
                return
            time.sleep(_POLL_SECONDS)

    def _others(self, calls: SingleFlight) -> set[int]:
        """Return threads with running calls, without this one and those blocked by `block_at_exit`."""
        return (calls.threads() & sys._current_frames().keys()) - self._blocked - {threading.get_ident()}


def end_while_xla_runs() -> None:
    """End the process after Python has ended, with its exit status, and without the exit handlers and destructors of
    libraries, since threads of XLA run. Without glibc, end it now, with status 1."""
    libc = ctypes.CDLL(None) if os.name == "posix" else None
    if libc is not None and hasattr(libc, "on_exit"):
        keep_clients()
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()
    os._exit(1)


_NOTHING: Final = """module @end {
  func.func @main() -> tensor<i1> {
    %0 = stablehlo.constant dense<true> : tensor<i1>
    return %0 : tensor<i1>
  }
}"""


def _last_result(device: Device) -> list[Buffer]:
    """Return the result of a program that the device runs after all executions of this thread; none if that fails."""
    handler = result_handler(Aval((), np.dtype(np.bool_)), device.sharding, True, None)
    with suppress(_jax.JaxRuntimeError):  # at exit, nothing can report the error
        last = device.client.compile_and_load(_NOTHING, device.raw_list, options_of_one_device(device))
        return last.execute_sharded([]).consume_with_handlers([handler])
    return []


_work: Final = _Work()


@final
class _StateAtExit(ProcessState):
    """The class of `process_state` at interpreter exit. Every call reads it before it calls XLA, and blocks there."""

    __slots__ = ()

    def _block(self) -> bool:
        """Block every thread except the main thread, for which True is the safe answer."""
        _work.block_at_exit()
        return True

    def _ignore(self, value: bool) -> None:
        pass

    any_committed = property(_block, _ignore)

    def block_at_exit(self) -> None:
        _work.block_at_exit()


atexit.register(_work.end)
register_after_fork(_work)

begin_compilation: Final = _work.begin_compilation
execute_with_host_calls: Final = _work.execute_with_host_calls
call_host_function: Final = _work.call_host_function
