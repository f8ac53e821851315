"""Paths of the user, and the regular files that `load` reads."""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from typing import cast

from fxad.errors import ArgumentError, FileFormatError, shown
from fxad.support.atomic_file import FOLLOWING, open_file, remove_abandoned


def absolute_path(operation: str, path: object, of: str = "file") -> str:
    """Return the absolute path of a file or a folder, with `~` and `~name` written out. Raises: ArgumentError if `path`
    is not a path."""
    try:
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        os.fsencode(name)
    except (TypeError, UnicodeEncodeError):  # a `__fspath__` that returns no name; a surrogate alone is no character
        name = ""
    if not name or "\0" in name:
        raise ArgumentError(f"{operation}: {shown(path)} is not the path of a {of}", remedy=f"name a {of}")
    return os.path.abspath(os.path.expanduser(name))


def path_to_write(operation: str, path: object) -> str:
    """Return the absolute path of a file to write, that of the file itself if `path` is a link. Removes the temporary
    files in its folder that killed processes have left.

    Raises: ArgumentError if `path` is not a path; FileFormatError for a folder, a device or a pipe; FileNotFoundError
            and NotADirectoryError for a folder that does not exist.
    """
    absolute = os.path.realpath(absolute_path(operation, path))
    name = os.fsdecode(cast("str", path))  # `absolute_path` has checked it
    if os.path.islink(absolute):  # `realpath` follows no circle
        raise OSError(errno.ELOOP, f"{operation}: {os.strerror(errno.ELOOP)}", absolute)
    if os.path.isdir(absolute) or name.endswith((os.sep, os.altsep or os.sep)):
        raise FileFormatError(f"{operation}: {absolute} is a folder", remedy="name a file in it")
    if os.path.exists(absolute) and not os.path.isfile(absolute):  # a device or a pipe would be replaced by a file
        raise FileFormatError(f"{operation}: {absolute} is not a regular file", remedy="name a file")
    folder = os.path.dirname(absolute)
    if not os.path.isdir(folder):
        number = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
        raise OSError(number, f"{operation}: {os.strerror(number)}", folder)
    remove_abandoned(folder)
    return absolute


def open_regular(what: str, path: str, remedy: str) -> FileIO:
    """Return a regular file to read. A pipe does not block.

    Raises: FileFormatError for a folder, a device or a pipe; OSError.
    """
    try:
        file = open_file(path, FOLLOWING)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    except IsADirectoryError:
        pass
    raise FileFormatError(f"{what} is not a regular file", remedy=remedy)
