"""Profiles by XLA's profiler: host threads, and the operations of programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST, ENOTEMPTY
from itertools import count
from os import W_OK, X_OK, PathLike, access, fsdecode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

from jaxlib import _profiler

from fxad.core.weak import WeakTable
from fxad.errors import ArgumentError, ExecutionError, ParameterError, described, shown
from fxad.lowering.jaxlib import _jax
from fxad.xla.compat import reason


@final
class _RunningProfile:
    """A marker of the running profile; it has the lifetime of the block."""

    __slots__ = ("__weakref__",)


_running: Final[WeakTable[str, _RunningProfile]] = WeakTable()


@contextmanager
def profile(path: str | bytes | PathLike[str] | PathLike[bytes]) -> Iterator[None]:
    """Write a trace of the block to `plugins/profile/<time>/` under a directory, for TensorBoard and XProf,
    with a `trace.json.gz` that Perfetto (ui.perfetto.dev) and chrome://tracing open. Profiles of one second are
    `<time>`, `<time>_1` and so on.

    Rule:   wait for results inside the block with `block_until_ready`. One profile at a time in a process.
    Raises: ParameterError if another one is running; ArgumentError if `path` is not a path; ExecutionError if the trace
            cannot be written, before the block runs if that is known.
    """
    folder = fsdecode(path) if isinstance(path, str | bytes | PathLike) else ""
    if not isinstance(path, str | bytes | PathLike) or "\0" in folder:
        raise ArgumentError(
            f"profile: {described(path)} is not a path: {shown(path)}", remedy="name a directory to write the trace to"
        )
    marker = _RunningProfile()
    if _running.put("profile", marker) is not marker:
        raise ParameterError("profile: another profile is running in this process", remedy="end that one first")
    try:
        try:
            _check_place(folder)
        except OSError as e:
            raise _not_written(folder, e.strerror or str(e)) from e
        session = _profiler.ProfilerSession()
        try:
            yield
        finally:
            data = session.stop()
        try:
            _write(session, data, Path(folder))
        except (_jax.JaxRuntimeError, RuntimeError) as e:
            raise _not_written(folder, reason(e)) from e
        except OSError as e:
            raise _not_written(folder, e.strerror or str(e)) from e
    finally:
        del marker  # the traceback of an error would keep it alive


def _write(session: _profiler.ProfilerSession, data: bytes, folder: Path) -> None:
    """Write a trace under a unique name. XLA names it by the second, and overwrites a trace with that name."""
    runs = folder / "plugins" / "profile"
    runs.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".profile-") as temporary:
        session.export(data, temporary)
        for written in (Path(temporary) / "plugins" / "profile").iterdir():
            _move(written, runs)


def _move(written: Path, runs: Path) -> None:
    """Move a directory under `runs`, as `name`, or `name_1` if that exists, and so on."""
    for k in count():
        try:
            written.rename(runs / (f"{written.name}_{k}" if k else written.name))
            return
        except OSError as e:
            if e.errno not in (EEXIST, ENOTEMPTY):
                raise


def _check_place(folder: str) -> None:
    """Check that the directory can be made and written to, without making it. Raises: ExecutionError."""
    whole = Path(folder).absolute()
    existing = next(p for p in (whole, *whole.parents) if p.exists() or p == p.parent)
    if not existing.is_dir():
        raise _not_written(folder, f"{existing} is not a directory")
    if not access(existing, W_OK | X_OK):
        raise _not_written(folder, f"{existing} is not writable")


def _not_written(folder: str, why: str) -> ExecutionError:
    return ExecutionError(
        f"profile: the trace was not written to {folder}: {why}",
        remedy="name a directory that you may make and write to",
    )
