"""Traces of what runs, by XLA's own profiler: threads of the host, and the operations of programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST, ENOTEMPTY
from itertools import count
from os import W_OK, X_OK, PathLike, access, fsdecode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

from fxad.core.weak import WeakTable
from fxad.errors import ArgumentError, ExecutionError, ParameterError, described
from fxad.lowering.door import _jax, _profiler
from fxad.xla.compat import reason


@final
class _Running:
    """Stands for the profile that is running, as long as the block of it lives."""

    __slots__ = ("__weakref__",)


_running: Final[WeakTable[str, _Running]] = WeakTable()


@contextmanager
def profile(path: str | bytes | PathLike[str] | PathLike[bytes]) -> Iterator[None]:
    """Write a trace of what runs meanwhile under a directory: `plugins/profile/<time>/`, as TensorBoard and XProf read
    it, with a `trace.json.gz` that Perfetto (ui.perfetto.dev) and chrome://tracing open. Profiles of one second are
    `<time>`, `<time>_1` and so on.

    Rule:   wait inside for what is to be seen: `block_until_ready`. One profile at a time in a process.
    Raises: ParameterError when another one is running; ArgumentError for what is not a path; ExecutionError when the
            trace cannot be written, before what is to be seen has run where that is known.
    """
    try:
        folder = fsdecode(path)
    except TypeError:
        raise ArgumentError(
            f"profile: {described(path)} is not a path: {path!r:.60}", remedy="name a directory to write the trace to"
        ) from None
    mine = _Running()
    if _running.put("profile", mine) is not mine:
        raise ParameterError("profile: another profile is running in this process", remedy="end that one first")
    try:
        _check_place(folder)
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
        del mine  # not when the traceback of an error is let go


def _write(session: _profiler.ProfilerSession, data: bytes, folder: Path) -> None:
    """Write a trace under a name of its own. XLA names it by the second, and writes over what has the name."""
    runs = folder / "plugins" / "profile"
    runs.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".profile-") as apart:
        session.export(data, apart)
        for written in (Path(apart) / "plugins" / "profile").iterdir():
            _move(written, runs)


def _move(written: Path, runs: Path) -> None:
    """Move a directory to others: `name`, `name_1` where there is one, and so on."""
    for k in count():
        try:
            written.rename(runs / (f"{written.name}_{k}" if k else written.name))
            return
        except OSError as e:
            if e.errno not in (EEXIST, ENOTEMPTY):
                raise


def _check_place(folder: str) -> None:
    """Raises: ExecutionError where no directory can be made, or written to. It makes none itself."""
    whole = Path(folder).absolute()
    there = next(p for p in (whole, *whole.parents) if p.exists() or p == p.parent)
    if not there.is_dir():
        raise _not_written(folder, f"{there} is not a directory")
    if not access(there, W_OK | X_OK):
        raise _not_written(folder, f"{there} is not writable")


def _not_written(folder: str, why: str) -> ExecutionError:
    return ExecutionError(
        f"profile: the trace was not written to {folder}: {why}",
        remedy="name a directory that you may make and write to",
    )
