"""Programs in files: `save` and `load`.

A file contains the program as text, the trees of its arguments and results, its names, the arrays that it closes over,
and the user's lines of its equations. It contains no user code and no pickle. Reading a file runs no code except the
registered functions that rebuild the classes of its trees and, if the user passes `trusted`, the import of their
modules.
"""

from __future__ import annotations

import os
from typing import Any, Final, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np

from fxad.core.trees import classes as tree_classes, tree
from fxad.errors import ArgumentError, FileFormatError, described, shown
from fxad.storage import arrays
from fxad.storage.decoding import decode, raise_other_sections
from fxad.storage.encoding import encode
from fxad.storage.file_format import has_header, pack, unpack
from fxad.storage.paths import absolute_path, open_regular, path_to_write
from fxad.storage.source_lines import LINES, check_number_of_lines, has_lines, lines_section, sources_of_section
from fxad.support.atomic_file import write_whole
from fxad.text import OwnPrimitives, vocabulary
from fxad.tracing.array import Array
from fxad.tracing.program import Program

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

KIND: Final = "fxad program"
VERSION: Final = 2  # a change of the format increments it; there is a reader for each old version
_WITHOUT_LINES: Final = 1  # the version of a file without lines of the user, which older readers know


@runtime_checkable
class HasProgram(Protocol[P, R_co]):
    """An executable. `save` writes its program."""

    @property
    def program(self) -> Program[P, R_co]:
        """The program that was compiled."""


def save(
    program: Program[P, R] | HasProgram[P, R] | object, path: str | os.PathLike[str], *, lines: bool = True
) -> None:
    """Write a program to a file, atomically. Of an executable, only its program is written.

    The file names the user's lines of the equations, with the paths of their files, unless `lines` is False. They are
    no part of the program: `jaxpr.digest` is the same.

    An instance of a registered class, such as a `Sparse` matrix or a `Pattern`, is written by `fxad.tree.save`.

    Law:    `load(path) == program`, except that the arrays it closes over are copies with the same bits.
    Raises: ArgumentError if `program` is not a program or `path` not a path, for a program that closes over tracers or
            calls Python functions, and for trees that a file cannot hold; FileFormatError for a folder; OSError.
    """
    traced: object = program.program if isinstance(program, HasProgram) else program
    if not isinstance(traced, Program) and tree_classes.registered(type(traced)):
        arrays.save(path, traced)
        return
    if isinstance(traced, Array | np.ndarray) or tree.structure(traced).num_nodes > 1:
        raise ArgumentError(
            f"save: {described(program)} is a tree of arrays, not a program",
            remedy="fxad.tree.save(path, tree) writes trees of arrays, fxad.tree.load(path) reads them",
        )
    if not isinstance(traced, Program):
        raise ArgumentError(
            f"save: {described(program)} is not a program: {shown(program)}",
            remedy="trace the function first: save(trace(f, *examples), path); for arrays, fxad.tree.save(path, tree)",
        )
    absolute = path_to_write("save", path)
    sections = encode("save", traced, {})
    if lines and has_lines(traced.jaxpr):
        write_whole(absolute, pack(KIND, VERSION, [*sections, lines_section(traced.jaxpr)]), 0o666)
    else:
        write_whole(absolute, pack(KIND, _WITHOUT_LINES, sections), 0o666)


def load(
    path: str | os.PathLike[str],
    *,
    trusted: bool = False,
    primitives: OwnPrimitives = (),
) -> Any:
    """Return the program of a file. It can be called, transformed and lowered like any other.

    Of a file that `save` made of another value, return the value.

    The classes of its trees must be registered, in imported modules. `trusted` imports the modules that the file names,
    which runs their code. `primitives` are classes of primitives from outside fxad that the program may use, too.

    Law:    `load(path) == program`, except for the arrays it closes over; `load(path).jaxpr is program.jaxpr`.
    Raises: FileFormatError with the byte offset for a file that is damaged, forged, of a later version or of another
            kind; ArgumentError if `path` is not a path; OSError if the file cannot be opened or read.
    Cost:   linear in the file.
    """
    absolute = absolute_path("load", path)
    what = f"load: {absolute}"
    content = _read(what, absolute)
    if not has_header(content, KIND) and arrays.is_instance(absolute):
        return arrays.load(absolute, trusted=trusted)
    version, sections = unpack(what, content, KIND, VERSION)
    known = vocabulary("load", primitives)
    if version == _WITHOUT_LINES:
        return decode(what, sections, trusted, known)[0]
    if not sections or sections[-1].name != LINES:
        raise_other_sections(what, sections)
    of_lines = sections[-1]
    sources = sources_of_section(what, of_lines)
    program = decode(what, sections[:-1], trusted, known, sources)[0]
    check_number_of_lines(what, of_lines, sources, program.jaxpr)
    return program


def _read(what: str, path: str) -> bytes:
    """Return the bytes of a file. Raises: FileFormatError; OSError."""
    with open_regular(what, path, _WROTE) as file:
        head = file.read(len(KIND) + 1)
        if not has_header(head, KIND):  # a large file of another kind is not read
            return head
        try:
            return head + file.readall()
        except MemoryError:
            raise FileFormatError(
                f"{what} has {os.fstat(file.fileno()).st_size} bytes, and there is no memory for them",
                remedy=_WROTE,
            ) from None


_WROTE: Final = "name a file that fxad.save wrote"
