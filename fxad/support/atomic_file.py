"""Atomic file writes: write a temporary file in the same directory, sync it, rename it."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO
from typing import Final

# The suffix of temporary files. A writer that is killed leaves one, which `remove_abandoned` removes.
UNFINISHED: Final = ".unfinished"
_MAX_NAME_BYTES: Final = 200  # of the name of a file that a temporary one begins with


def _flag(name: str) -> int:
    return int(getattr(os, name, 0))  # some systems lack some flags


# O_NONBLOCK: opening a named pipe must not block.
FOLLOWING: Final = os.O_RDONLY | _flag("O_CLOEXEC") | _flag("O_NONBLOCK") | _flag("O_BINARY")
READING: Final = FOLLOWING | _flag("O_NOFOLLOW")


def open_file(path: str, flags: int) -> FileIO:
    """Return a file to read, opened with flags of `os.open`. Raises: OSError, IsADirectoryError.

    The descriptor gets its owner in C: an asynchronous exception leaks none.
    """
    if stat.S_ISDIR(os.stat(path).st_mode):  # FileIO refuses its descriptor, and does not close it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return next(map(FileIO, map(os.open, (path,), (flags,))))


def write_whole(path: str, parts: Sequence[bytes | memoryview], mode: int) -> None:
    """Write a file of these parts with `replace_file`."""
    replace_file(path, partial(_write_parts, parts=parts, mode=mode))


def write_new(path: str, parts: Sequence[bytes | memoryview], mode: int) -> None:
    """Write a file of these parts as `write_whole` does, if no file has its name: one of two writers at once succeeds.

    Raises: FileExistsError, OSError.
    """
    _write_beside(path, partial(_write_parts, parts=parts, mode=mode), _link)


def replace_file(path: str, write: Callable[[str], None]) -> None:
    """Write a file atomically: readers see the old content or the new, also after a crash. `write(name)` writes and
    syncs a new file, in the same directory, which is then renamed.

    Raises: OSError, and what `write` raises; the temporary file is removed.
    """
    _write_beside(path, write, os.replace)


def _link(beside: str, path: str) -> None:
    """Give a file its name, if no other file has it."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.replace(beside, path)
    else:
        os.unlink(beside)


def _write_beside(path: str, write: Callable[[str], None], publish: Callable[[str, str], None]) -> None:
    beside = f"{_shortened(path)}.{os.getpid()}.{_machine()}{os.urandom(4).hex()}{UNFINISHED}"
    try:
        write(beside)
        publish(beside, path)
    except BaseException as e:
        with suppress(OSError):
            os.unlink(beside)
        if isinstance(e, OSError) and e.filename in (beside, None):  # None: of a write
            e.filename, e.filename2 = path, None
        raise
    _sync_directory(os.path.dirname(path))


def _machine() -> str:
    """Return eight digits for this machine, or container: the numbers of processes are unique on it."""
    text = platform.node()
    with suppress(OSError):
        text += str(os.stat("/proc/self/ns/pid").st_ino)
    return checksum([text.encode(errors="surrogateescape")]).hex()[:8]


def remove_abandoned(folder: str) -> None:
    """Remove the temporary files in a folder whose writers were killed: their process has ended, or they are old."""
    with suppress(OSError), os.scandir(folder) as items:
        for item in items:
            match = _TEMPORARY.fullmatch(item.name)
            if match is not None and _is_abandoned(item, int(match[1]), match[2]):
                with suppress(OSError):
                    os.unlink(item.path)


_TEMPORARY: Final = re.compile(rf".+\.([0-9]+)\.([0-9a-f]{{8}})[0-9a-f]{{8}}{re.escape(UNFINISHED)}")
STALE: Final = 3600.0  # seconds after which a temporary file counts as abandoned


def _is_abandoned(item: os.DirEntry[str], process: int, machine: str) -> bool:
    try:
        if time.time() - item.stat(follow_symlinks=False).st_mtime > STALE:
            return True
        if os.name == "posix" and machine == _machine():
            os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is the process of another user, or the file is gone
        pass
    return False


def _shortened(path: str) -> str:
    """Return a path whose last part leaves room for the suffix of a temporary file: file systems allow names of 255
    bytes."""
    folder, name = os.path.split(path)
    while len(os.fsencode(name)) > _MAX_NAME_BYTES:
        name = name[:-1]
    return os.path.join(folder, name)


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
    """Return SHA-256 of the concatenation of the parts."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha.digest()
