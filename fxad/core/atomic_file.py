"""Atomic file writes: write a temporary file in the same directory, sync it, rename it."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO
from typing import Final

# The suffix of temporary files. A writer that is killed leaves one.
UNFINISHED: Final = ".unfinished"
_LONGEST: Final = 200  # bytes of a name that gets this suffix


def _flag(name: str) -> int:
    return int(getattr(os, name, 0))  # some systems lack some flags


# O_NONBLOCK: opening a named pipe must not block.
FOLLOWING: Final = os.O_RDONLY | _flag("O_CLOEXEC") | _flag("O_NONBLOCK") | _flag("O_BINARY")
READING: Final = FOLLOWING | _flag("O_NOFOLLOW")


def open_file(path: str, flags: int) -> FileIO:
    """A file to read, opened with flags of `os.open`. Raises: OSError, IsADirectoryError.

    The descriptor gets its owner in C: an asynchronous exception leaks none.
    """
    if stat.S_ISDIR(os.stat(path).st_mode):  # FileIO refuses its descriptor, and does not close it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return next(map(FileIO, map(os.open, (path,), (flags,))))


def write_whole(path: str, parts: Sequence[bytes | memoryview], mode: int) -> None:
    """Write a file of these parts with `replace_file`."""
    replace_file(path, partial(_write_parts, parts=parts, mode=mode))


def replace_file(path: str, write: Callable[[str], None]) -> None:
    """Write a file atomically: readers see the old content or the new, also after a crash. `write(name)` writes and
    syncs a new file, in the same directory, which is then renamed.

    Raises: OSError, and what `write` raises; the temporary file is removed.
    """
    directory, name = os.path.split(path)
    while len(os.fsencode(name)) > _LONGEST:  # the suffix would make the name longer than systems allow
        name = name[:-1]
    beside = os.path.join(directory, f"{name}.{os.getpid()}.{os.urandom(4).hex()}{UNFINISHED}")
    try:
        write(beside)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    _sync_directory(os.path.dirname(path))


def _write_parts(path: str, parts: Sequence[bytes | memoryview], mode: int) -> None:
    # FileIO opens the file in C: an asynchronous exception leaks no descriptor
    with FileIO(path, "xb", opener=partial(os.open, mode=mode)) as file:
        for part in parts:
            left = memoryview(part).cast("B")
            while left:
                left = left[os.write(file.fileno(), left) :]
        os.fsync(file.fileno())


def _sync_directory(path: str) -> None:
    """Make renames in a directory durable, if the system supports it."""
    try:
        descriptor = os.open(path or ".", os.O_RDONLY)
    except OSError:
        return
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def checksum(parts: Sequence[bytes | memoryview]) -> bytes:
    """SHA-256 of the concatenation of the parts."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha.digest()
