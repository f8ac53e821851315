"""Files that are there whole, or not at all: written beside their place, synced, and moved there."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

# What a writer that was killed leaves behind ends so.
UNFINISHED: Final = ".unfinished"


def _flag(name: str) -> int:
    return int(getattr(os, name, 0))  # some are not there on every system


# Not to wait for the other end of a pipe that stands in a file's place.
FOLLOWING: Final = os.O_RDONLY | _flag("O_CLOEXEC") | _flag("O_NONBLOCK") | _flag("O_BINARY")
READING: Final = FOLLOWING | _flag("O_NOFOLLOW")
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flag("O_CLOEXEC") | _flag("O_BINARY")


def write_whole(path: str, parts: Sequence[bytes | memoryview], mode: int) -> None:
    """Write a file. A reader, another process, and whoever comes after a crash see all of it, or what was there before.

    Raises: OSError; what was begun is removed.
    """
    beside = f"{path}.{os.getpid()}.{secrets.token_hex(4)}{UNFINISHED}"
    descriptor = os.open(beside, _WRITING, mode)
    try:
        try:
            for part in parts:
                left = memoryview(part).cast("B")
                while left:
                    left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Make renames in a directory last, where the system can."""
    try:
        descriptor = os.open(path or ".", os.O_RDONLY)
    except OSError:
        return
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def checksum(parts: Sequence[bytes | memoryview]) -> bytes:
    """SHA-256 of parts put together."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha.digest()
