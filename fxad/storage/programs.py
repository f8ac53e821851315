"""Programs in files: `save` and `load`.

A file holds the program as text, the trees of its arguments and results, its names, and the arrays that it closes
over. It holds no code of the user's and no pickle: reading one runs nothing, except that classes of its trees are put
together by what they were registered with, and, where the user says `trusted`, that their modules are imported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Final, ParamSpec, Protocol, TypeVar, runtime_checkable

from fxad.core.atomic_file import FOLLOWING, write_whole
from fxad.errors import ArgumentError, FileFormatError, described
from fxad.ir import Primitive
from fxad.storage.decoding import decode
from fxad.storage.encoding import encode
from fxad.storage.file_format import has_header, pack, unpack
from fxad.text import PRIMITIVES
from fxad.tracing.program import Program

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

KIND: Final = "fxad program"
VERSION: Final = 1  # a change of what is written is a new one, with a reader for each old one


@runtime_checkable
class Compiled(Protocol[P, R_co]):
    """An executable, of which `save` writes the program."""

    @property
    def program(self) -> Program[P, R_co]:
        """The program that was compiled."""


def save(program: Program[P, R] | Compiled[P, R], path: str | os.PathLike[str]) -> None:
    """Write a program to a file, whole or not at all; of an executable, its program: what XLA made is the cache's.

    Law:    `load(path) == program`, but for the arrays it closes over, which are others with the same bits.
    Raises: ArgumentError for what is no program or no path, for a program that closes over tracers or calls Python
            functions, and for trees that no file can hold; OSError.
    """
    given = program.program if isinstance(program, Compiled) else program
    if not isinstance(given, Program):
        raise ArgumentError(
            f"save: {described(program)} is not a program: {program!r:.60}",
            remedy="trace the function first: save(trace(f, *examples), path); for arrays, fxad.tree.save(path, tree)",
        )
    where = absolute_path("save", path)
    write_whole(where, pack(KIND, VERSION, encode("save", given, {})), 0o666)


def load(
    path: str | os.PathLike[str],
    *,
    trusted: bool = False,
    primitives: Mapping[str, type[Primitive]] = PRIMITIVES,
) -> Program[..., Any]:
    """The program of a file; it can be called, transformed and lowered like any other.

    Classes of its trees must be registered, in modules that are imported; `trusted` imports the modules that the file
    names, which runs them. `primitives` are those its text may use, for primitives of one's own.

    Law:    `load(path) == program`, but for the arrays it closes over; `load(path).jaxpr is program.jaxpr`.
    Raises: FileFormatError for a file that is damaged, of a later version, or not what it should be, with the place,
            whoever wrote it; ArgumentError for what is no path; OSError for a file that cannot be opened or read.
    Cost:   linear in the file.
    """
    where = absolute_path("load", path)
    what = f"load: {where}"
    _, sections = unpack(what, _read(what, where), KIND, VERSION)
    return decode(what, sections, trusted, primitives)[0]


def absolute_path(operation: str, path: object) -> str:
    """The absolute path. Raises: ArgumentError if `path` is not a path."""
    try:
        given = os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        given = ""
    if not given or "\0" in given:
        raise ArgumentError(f"{operation}: {path!r:.60} is not the path of a file", remedy="name a file")
    return os.path.abspath(given)


def _read(what: str, path: str) -> bytes:
    """The bytes of a file. It is not waited for the other end of a pipe. Raises: FileFormatError; OSError."""
    descriptor = os.open(path, FOLLOWING)
    s = os.fstat(descriptor)
    if not stat.S_ISREG(s.st_mode):
        os.close(descriptor)
        raise FileFormatError(f"{what} is not a regular file", remedy=_WROTE)
    with open(descriptor, "rb") as file:
        found = file.read(len(KIND) + 1)
        if not has_header(found, KIND):  # a large file of another kind is not read
            return found
        try:
            return found + file.read()
        except MemoryError:
            raise FileFormatError(
                f"{what} has {s.st_size} bytes, and there is no memory for them",
                remedy=_WROTE,
            ) from None


_WROTE: Final = "name a file that fxad.save wrote"
