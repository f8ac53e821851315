"""A predicate that runs in a process of its own: a crash, a hang or a lack of memory there is a reason here.

A server process imports fxad and the predicate once, and starts no thread. For each call it forks a process, which runs
the predicate. So a call costs milliseconds, and every call begins in the same state.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection
from typing import Any, Final, TypeAlias, final

import numpy as np

import fxad.api.jit  # noqa: F401  # the server imports this module, and with it what most predicates need
from fxad.errors import ArgumentError, ExecutionError, exception_text, shown
from fxad.operations.arguments import function, number
from fxad.tracing.program import Program

# An answer of the server: a kind and its value.
_Answer: TypeAlias = tuple[str, Any]

_LOADED: Final = b"+"  # no pickle begins so
_POLL: Final = 0.01  # seconds between two looks at the memory of a process
_EXTRA: Final = 60.0  # seconds for the start of the server, and beyond the limit for its answer


def in_child(fails: Callable[..., Hashable], seconds: float = 10.0, memory: int | None = None) -> ChildPredicate:
    """Return a predicate for `fx.reduce_program` that calls `fails(program, args)` in a process of its own.

    Its reasons are those of `fails`, and further "signal SIGSEGV" (or another signal) for a process that ends so,
    "exit 1" for one that ends itself, "no result within 10 s" for one that takes longer than `seconds`, and "more than
    1000000 bytes" for one that holds more than `memory` bytes beyond those at its start.

    `fails` must be a function at the top of a module, because the process imports it.

    Raises: ArgumentError for a `fails` that another process cannot import, for limits that are no positive numbers, and
            on a system without fork; ExecutionError, at a call, for a `fails` that raises.
    """
    function("in_child", "fails", fails)
    limit = number("in_child", "seconds", seconds)
    if not limit > 0 or (memory is not None and not (type(memory) is int and memory > 0)):
        raise ArgumentError(
            f"in_child: seconds is {shown(seconds)} and memory is {shown(memory)}",
            remedy="give a positive number of seconds, and a positive int of bytes or None",
        )
    if not hasattr(os, "fork") or (memory is not None and not os.path.exists("/proc/self/statm")):
        raise ArgumentError(
            f"in_child: the system {sys.platform} has no fork, or none of its files on memory",
            remedy="call the predicate in this process, or run the reduction on Linux",
        )
    try:
        pickle.dumps(fails)
    except Exception as e:  # noqa: BLE001  pickling runs code of the user
        raise ArgumentError(
            f"in_child: another process cannot import {shown(fails)}: {exception_text(e)[:200]}",
            remedy="define it with `def` at the top of a module",
        ) from None
    return ChildPredicate(fails, limit, memory)


@final
class ChildPredicate:
    """A predicate that runs in a process of its own: see `in_child`."""

    __slots__ = ("_connection", "_process", "fails", "memory", "seconds")

    def __init__(self, fails: Callable[..., Hashable], seconds: float, memory: int | None) -> None:
        self.fails, self.seconds, self.memory = fails, seconds, memory
        self._connection: Connection | None = None
        self._process: Any = None

    def __call__(self, program: Program[..., Any], args: object = None) -> Hashable:
        connection = self._connection or self._start()
        bound = tuple([np.asarray(x) for x in program.bound])
        parts = (program.jaxpr, program.in_tree, program.out_tree, bound, tuple(map(str, program.names)), program.name)
        try:
            connection.send_bytes(pickle.dumps((parts, args), pickle.HIGHEST_PROTOCOL))
            if not connection.poll(self.seconds + _EXTRA):
                raise EOFError
            kind, value = pickle.loads(connection.recv_bytes())  # of our own process
        except (EOFError, OSError):
            self.close()
            raise ExecutionError(
                f"in_child: the process that calls {shown(self.fails)} has ended",
                remedy="guard the main module: if __name__ == '__main__'; it is imported by that process",
            ) from None
        except BaseException:
            self.close()
            raise
        if kind == "raised":
            raise ExecutionError(f"in_child: the predicate raised {value}", remedy="return a reason, or None")
        reason: Hashable = value
        return reason

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self.fails, self.seconds, self.memory), daemon=True
        )
        self._process.start()
        theirs.close()
        self._connection = ours
        return ours

    def close(self) -> None:
        """End the server; the next call starts one."""
        if self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process.close()
        self._connection = self._process = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


# ---------------------------------------------------------------------------------------------------- in the server


def _serve(connection: Connection, fails: Callable[..., Hashable], seconds: float, memory: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the end of the pipe says enough
    while True:
        try:
            request = connection.recv_bytes()
        except (EOFError, OSError):
            return
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads: those of NumPy's BLAS, which stops them for a fork
            pid = os.fork()
        if pid == 0:
            os.close(reading)
            connection.close()  # else the pipe would not end with the server
            _run(fails, request, writing, memory)
        os.close(writing)
        answer = _wait(connection, pid, reading, seconds, memory)
        os.close(reading)
        if answer is None:
            return
        connection.send_bytes(pickle.dumps(answer))


def _run(fails: Callable[..., Hashable], request: bytes, writing: int, memory: int | None) -> None:
    """Call the predicate, write the answer, and end the process. First it writes what it holds with the operands,
    which are no memory of the predicate."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        parts, args = pickle.loads(request)  # of our own process
        start, loaded = (0, 0) if memory is None else (_allocated("self"), _most_allocated())
        os.write(writing, _LOADED + start.to_bytes(8, "little"))
        answer: _Answer = ("reason", fails(Program(*parts), args))
        if memory is not None and _most_allocated() > max(start + memory, loaded):  # between two looks of the server
            answer = ("reason", f"more than {memory} bytes")
        data = pickle.dumps(answer)
    except MemoryError:
        data = pickle.dumps(("reason", "MemoryError"))
    except SystemExit as e:
        os._exit(e.code if type(e.code) is int else 1)
    except BaseException as e:  # noqa: BLE001  all of it is an answer
        data = pickle.dumps(("raised", exception_text(e)[:1000]))
    with os.fdopen(writing, "wb") as file:
        file.write(data)
    os._exit(0)


def _wait(connection: Connection, pid: int, reading: int, seconds: float, memory: int | None) -> _Answer | None:
    """Return the answer of a process, which has ended then. None if nobody waits for it any more."""
    deadline = time.monotonic() + seconds
    start: int | None = None
    parts: list[bytes] = []
    refused = ""
    while not refused:
        left = deadline - time.monotonic()
        waiting: list[int | Connection] = [reading, connection]
        ready, _, _ = select.select(waiting, [], [], max(0.0, min(left, _POLL) if memory else left))
        if connection in ready:  # only its end comes now
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        if reading in ready:
            part = os.read(reading, 1 << 20)
            if not part:
                break
            if part.startswith(_LOADED) and start is None:
                start, part = int.from_bytes(part[1:9], "little"), part[9:]
            parts.append(part)
        elif time.monotonic() >= deadline:
            refused = f"no result within {seconds:g} s"
        if memory is not None and start is not None and _allocated(pid) > start + memory:
            refused = f"more than {memory} bytes"
    if refused:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if refused:
        return "reason", refused
    if os.WIFSIGNALED(status):
        return "reason", f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    if not any(parts):
        return "reason", f"exit {os.waitstatus_to_exitcode(status)}"
    answer: _Answer = pickle.loads(b"".join(parts))  # of our own process
    return answer


def _allocated(pid: int | str) -> int:
    """Return the bytes that a process holds in memory, without those of files, such as code, which a process that was
    forked loads again; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            resident, of_files = map(int, file.read().split()[1:3])
            return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _most_allocated() -> int:
    """Return a lower bound of the most bytes that this process has held at once, without those of files."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        fields = dict([line.split(":", 1) for line in file if ":" in line])
    peak, *of_files = [int(fields[name].split()[0]) for name in ("VmHWM", "RssFile", "RssShmem")]
    return 1024 * (peak - sum(of_files))
