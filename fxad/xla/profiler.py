"""Traces of what runs, by XLA's own profiler: threads of the host, and the operations of programs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Final

from fxad.errors import ExecutionError, ParameterError
from fxad.lowering.door import _jax, _profiler
from fxad.xla.compat import reason

_running: Final = threading.Lock()


@contextmanager
def profile(path: str | PathLike[str]) -> Iterator[None]:
    """Write a trace of what runs meanwhile under a directory: `plugins/profile/<time>/`, as TensorBoard and XProf read
    it, with a `trace.json.gz` that Perfetto (ui.perfetto.dev) and chrome://tracing open.

    Rule:   wait inside for what is to be seen: `block_until_ready`. One profile at a time in a process.
    Raises: ParameterError when another one is running; ExecutionError when the trace cannot be written.
    """
    if not _running.acquire(blocking=False):
        raise ParameterError("profile: another profile is running in this process", remedy="end that one first")
    try:
        session = _profiler.ProfilerSession()
        try:
            yield
        finally:
            data = session.stop()
        try:
            session.export(data, fspath(path))
        except (_jax.JaxRuntimeError, RuntimeError) as e:
            raise ExecutionError(
                f"profile: the trace was not written to {fspath(path)}: {reason(e)}",
                remedy="name a directory that you may make and write to",
            ) from e
    finally:
        _running.release()
