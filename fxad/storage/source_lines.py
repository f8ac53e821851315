"""The user's lines of a program, as a section of a file.

A program in text has no lines, and its digest does not depend on them. So they stand in a section of their own: for
each equation, in the order of the text, its line with those that called it. Each file of the user is named with a
digest of its text, so a reader knows whether the text is that of the program.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Final, final

from fxad.errors import shown
from fxad.ir import Jaxpr, Source, SourceLocation, distinct_jaxprs, source_locations
from fxad.storage.file_format import FileSection, raise_damaged

LINES: Final = "lines"
_UNKNOWN: Final = "unknown"  # the digest of a text that was not there when the program was saved: it fits no text
_MOST: Final = 2**31  # the number of a line is smaller


def has_lines(jaxpr: Jaxpr) -> bool:
    """Return True if an equation of a program has a line of the user."""
    return any([eqn.source is not None for body in distinct_jaxprs(jaxpr) for eqn in body.eqns])


def lines_section(jaxpr: Jaxpr, name_of: Callable[[str], str] = str) -> FileSection:
    """Return the section of a program. `name_of` gives the name of a file of the user that the section has."""
    sources = [eqn.source for body in distinct_jaxprs(jaxpr) for eqn in body.eqns]
    table = _LineTable(name_of)
    numbers = list(map(table.number_of, source_locations(sources)))
    parts = {"files": table.files, "lines": table.lines, "equations": numbers}
    rows = ",\n".join([f" {json.dumps(key)}: {json.dumps(value)}" for key, value in parts.items()])
    return FileSection(LINES, f"{{\n{rows}\n}}".encode())


@final
class _LineTable:
    """The distinct lines and files of a program. A line has the numbers of its file, of itself, its function, its
    scope, and the positions in the table of the lines that called it."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self.files: list[tuple[str, str]] = []
        self.lines: list[tuple[int, int, str, str, tuple[int, ...]]] = []
        self._name_of = name_of
        self._number_of_file: dict[tuple[str, str], int] = {}
        self._number_of_line: dict[tuple[SourceLocation, tuple[SourceLocation, ...]], int] = {}

    def number_of(self, at: SourceLocation | None) -> int:
        """Return the position of a line in the table; -1 for none."""
        if at is None:
            return -1
        key = at, at.callers
        number = self._number_of_line.get(key)
        if number is None:
            callers = tuple(map(self.number_of, at.callers))  # they stand before it
            number = self._number_of_line[key] = len(self.lines)
            self.lines.append((self._file(at), at.line, at.function, at.scope, callers))
        return number

    def _file(self, at: SourceLocation) -> int:
        key = at.file, at.digest
        if key not in self._number_of_file:
            self._number_of_file[key] = len(self.files)
            self.files.append((self._name_of(at.file), at.digest or text_digest(linecache.getlines(at.file))))
        return self._number_of_file[key]


def text_digest(lines: Sequence[str]) -> str:
    """Return the digest of the text of a file, as tracebacks show it; of no text, one that fits none."""
    return hashlib.sha256("".join(lines).encode(errors="surrogatepass")).hexdigest()[:16] if lines else _UNKNOWN


def text_of(file: str, digest: str) -> list[str]:
    """Return the lines of a file of the user if its text is here and has the digest; empty if not. A name without
    a folder is looked for in those of `sys.path`. Without a digest, the text is that of tracebacks: the program was
    traced in this process."""
    if not digest:
        return linecache.getlines(file)
    # a file of a saved program may name anything: what is no file of the disk, a device or a pipe, is not read
    folders = [""] if os.path.basename(file) != file else ["", *sys.path]
    for path in dict.fromkeys([os.path.join(folder, file) for folder in folders]):
        if path in linecache.cache or (path and "\0" not in path and os.path.isfile(path)):
            lines = linecache.getlines(path)
            if text_digest(lines) == digest:
                return lines
    return []


def sources_of_section(what: str, section: FileSection) -> list[Source]:
    """Return the sources of the equations, in the order of the text.

    Raises: FileFormatError for a section that has another form.
    """
    try:
        parts = json.loads(section.content)
        files = list(starmap(_file, parts["files"]))
        lines: list[Source] = []
        for row in parts["lines"]:
            lines.append(_line(files, lines, *row))
        lines.append(None)
        return [lines[_index(k, len(lines) - 1, -1)] for k in parts["equations"]]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as e:
        raise_damaged(what, section.start, f"section {section.name} does not list lines: {shown(e)}")


def check_number_of_lines(what: str, section: FileSection, sources: Sequence[Source], jaxpr: Jaxpr) -> None:
    """Raise FileFormatError if a program does not have as many equations as its section has lines."""
    equations = sum([len(body.eqns) for body in distinct_jaxprs(jaxpr)])
    if len(sources) != equations:
        raise_damaged(
            what, section.start, f"section {section.name} has {len(sources)} lines, the program {equations} equations"
        )


def _file(name: object, digest: object) -> tuple[str, str]:
    return _text(name), _text(digest) or _UNKNOWN


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{shown(value)} is no text")
    return value


def _index(value: object, size: int, least: int = 0) -> int:
    if type(value) is not int or not least <= value < size:
        raise ValueError(f"{shown(value)} is no number from {least} to {size - 1}")
    return value


def _line(
    files: Sequence[tuple[str, str]],
    before: Sequence[Source],
    file: object,
    line: object,
    function: object,
    scope: object,
    callers: Sequence[object],
) -> SourceLocation:
    name, digest = files[_index(file, len(files))]
    called = [before[_index(k, len(before))] for k in callers]
    calls = tuple([at for at in called if isinstance(at, SourceLocation)])
    return SourceLocation(name, _index(line, _MOST), _text(function), _text(scope), calls, digest)
