"""A directory of entries by key: checked, bounded, and shared by processes.

An entry is one file: a magic line, the SHA-256 of the rest, the length of a header, the header in JSON (which contains
the whole key), the payload. A file of another form, or with another key, is a miss and a warning.

An executable is machine code. Anyone who can write to the directory could run code as the user who reads it. So the
directory and each file must belong to the user, and no other user may have write permission.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, final

from fxad.core.dataclasses import dataclass
from fxad.errors import CacheError, CacheWarning, ParameterError, shown, warn
from fxad.support.atomic_file import READING, STALE, UNFINISHED, checksum, open_file, write_whole

MAGIC: Final = b"fxad executable\n"
SUFFIX: Final = ".fxad"
_DIGEST: Final = 32
_LENGTH: Final = 8
_BEGIN: Final = len(MAGIC) + _DIGEST + _LENGTH
# The names of entries and of their temporary files. Other files with the suffix, such as saved programs, are not ours.
_OURS: Final = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}(?:\.[0-9]+\.[0-9a-f]+{re.escape(UNFINISHED)})?")
_MAX_ENTRY_BYTES: Final = 2**32  # bytes of an entry: serialized executables have less than 2**31


@final
@dataclass(frozen=True, slots=True)
class DiskEntry:
    """The contents of an entry: the fields of its header without the key, and the payload."""

    header: Mapping[str, Any]
    payload: bytes


class _DamagedError(Exception):
    """An entry is damaged; the text says how."""


@final
class Directory:
    """Entries by key. The least recently used ones are removed beyond `max_bytes`.

    Writers in several processes may exceed the bound, by a sixteenth each.

    Rule:   `read` and `write` never fail: what goes wrong is a warning, once for each kind, and a miss.
    Raises: CacheError, when it is made, for a directory that others could write to, that cannot be made, or that is in
            the home of nobody; ParameterError for what is no path.
    """

    __slots__ = ("_warned", "_written", "max_bytes", "path")

    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        self.path = _absolute(_checked(path))
        self.max_bytes = max_bytes
        self._written: list[int] | None = None  # bytes of each entry since the last scan of the directory
        self._warned: dict[str, object] = {}
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            problem = _unsafe(os.stat(self.path))
        except OSError as e:
            raise CacheError(
                f"cache: {self.path} cannot be used: {e.strerror}",
                remedy="name a directory that you may make and write to",
            ) from e
        if problem:
            raise CacheError(f"cache: {self.path} {problem}", remedy=_REMEDY)

    def file(self, key: str) -> str:
        """Return the path of the entry of a key."""
        return os.path.join(self.path, hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest() + SUFFIX)

    def read(self, key: str) -> DiskEntry | None:
        """Return the contents of the entry of a key; None if there is none or it is damaged."""
        path = self.file(key)
        try:
            data = _read(path)
            if data is None:
                return None
            stored = _parse_entry(data, key)
            _touch(path)
            return stored
        except _DamagedError as e:
            self.warn_once(str(e), f"cache: {path} {e}; it is compiled again")
        except OSError as e:
            self.warn_once(f"read {e.errno}", f"cache: {path} cannot be read: {e.strerror}; it is compiled again")
        return None

    def write(self, key: str, stored: DiskEntry) -> bool:
        """Store or replace the entry of a key. Return True on success."""
        head = json.dumps({"key": key, **stored.header}, sort_keys=True).encode()
        body = [len(head).to_bytes(_LENGTH, "little"), head, stored.payload]
        size = _BEGIN + len(head) + len(stored.payload)
        if size > self.max_bytes:
            return False
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)  # somebody may have removed it
            problem = _unsafe(os.stat(self.path))
            if problem:
                self.warn_once("unsafe", f"cache: {self.path} {problem}; nothing is stored. {_REMEDY}")
                return False
            self._evict_for(size)
            with suppress(FileNotFoundError):  # another process has cleared the directory, with the temporary file
                write_whole(self.file(key), [MAGIC, checksum(body), *body], 0o600)
                return True
        except OSError as e:
            self.warn_once(f"write {e.errno}", f"cache: {self.path} cannot be written: {e.strerror}; nothing is stored")
        return False

    def warn_once(self, kind: str, message: str) -> None:
        """Warn, once for each kind of failure."""
        marker = object()
        if self._warned.setdefault(kind, marker) is marker:  # atomic, so one thread warns
            warn(message, CacheWarning)

    # ---------------------------------------------------------------------------------------------------- bound

    def _evict_for(self, size: int) -> None:
        """Remove the least recently used entries, if a sixteenth of the bound was written since the last scan."""
        written = self._written
        if written is not None and sum(written) + size <= self.max_bytes // 16:
            written.append(size)
            return
        self._written = []
        entries = sorted(self._files())
        allowed = self.max_bytes - size - self.max_bytes // 16
        total = sum([n for _, n, _ in entries])
        for used, n, path in entries:
            removes = time.time() - used > STALE if path.endswith(UNFINISHED) else total > allowed
            if removes:
                total -= n
                _remove(path)

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Yield the time of last use, the bytes and the path of each file."""
        with os.scandir(self.path) as items:
            for item in items:
                if _OURS.fullmatch(item.name):
                    try:
                        s = item.stat(follow_symlinks=False)
                    except OSError:  # removed by another process meanwhile
                        continue
                    yield s.st_mtime, s.st_size, item.path

    def stats(self) -> tuple[int, int]:
        """Return number and bytes of the entries."""
        try:
            sizes = [n for _, n, path in self._files() if path.endswith(SUFFIX)]
        except OSError:
            return 0, 0
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Remove all entries. Other files stay."""
        with suppress(OSError):
            for _, _, path in list(self._files()):
                _remove(path)


_REMEDY: Final = "use a directory of your own that nobody else can write to: chmod 700"


def _checked(path: object) -> str:
    """Check a path. An empty one is rejected: it would mean the current directory of the process."""
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or not name or "\0" in name:
        raise ParameterError(
            f"cache: dir must be the path of a directory, got {shown(path)}",
            remedy="name one of your own, or give None for none",
        )
    return name


def _absolute(path: str) -> str:
    """Return a path with homes, `~` and `~name`, written out. Raises: CacheError for the home of nobody."""
    whole = os.path.expanduser(path)
    if whole.startswith("~"):
        raise CacheError(
            f"cache: {path} cannot be used: there is no home directory of {path.partition(os.sep)[0]}",
            remedy=f"name a directory that you may make and write to; one in the working directory is .{os.sep}{path}",
        )
    return os.path.abspath(whole)


def _unsafe(s: os.stat_result) -> str:
    """Return the problem with the owner or the mode of a directory or a file; empty if there is none."""
    if hasattr(os, "geteuid") and s.st_uid != os.geteuid():
        return f"belongs to user {s.st_uid}"
    if os.name == "posix" and s.st_mode & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(s.st_mode):o})"
    return ""


def _read(path: str) -> bytes | None:
    """Return the bytes of a file; None if it does not exist.

    Raises: _DamagedError if it is not a file of the user, or is larger than any entry.
    """
    try:
        with open_file(path, READING) as file:
            s = os.fstat(file.fileno())
            problem = _unsafe(s) if stat.S_ISREG(s.st_mode) else "is not a file"
            if problem:
                raise _DamagedError(problem)
            if s.st_size > _MAX_ENTRY_BYTES:
                raise _DamagedError(f"has {s.st_size} bytes, more than an entry can have")
            begin = file.read(len(MAGIC))  # a large file of another kind is not read
            return begin + file.readall() if begin == MAGIC else begin
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise _DamagedError("is not a file") from None
    except MemoryError:
        raise _DamagedError("is larger than the memory that is left") from None


def _parse_entry(data: bytes, key: str) -> DiskEntry:
    """Return the parts of an entry. Raises: _DamagedError."""
    if not data.startswith(MAGIC):
        raise _DamagedError("is not an entry of the cache")
    if len(data) < _BEGIN or checksum([memoryview(data)[len(MAGIC) + _DIGEST :]]) != _digest(data):
        raise _DamagedError("is damaged")
    end = _BEGIN + int.from_bytes(data[_BEGIN - _LENGTH : _BEGIN], "little")
    try:
        header = json.loads(data[_BEGIN:end])
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or "key" not in header:
        raise _DamagedError("is not an entry that this version of fxad reads")
    if header.pop("key") != key:
        raise _DamagedError("is the entry of another program")
    return DiskEntry(header, data[end:])


def _digest(data: bytes) -> bytes:
    return data[len(MAGIC) : len(MAGIC) + _DIGEST]


def _touch(path: str) -> None:
    """Mark an entry as the most recently used one."""
    with suppress(OSError):  # read-only, or removed meanwhile
        os.utime(path)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
