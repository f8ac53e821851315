"""The form of fxad's files: a line with kind and version, then sections, each with its own length and checksum.

    fxad program 1
    text 231 9f86d081884c7d65...
    main @f(%arg0: f32[3]) -> (f32[3]) {
    ...

A heading gives the name of a section, its bytes, and their SHA-256. Nothing is after the last section. So whatever is
damaged is found, and named by its section and its place in the file; and the sections that are text can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn, final

from fxad.core.atomic_file import checksum, write_whole
from fxad.core.dataclasses import dataclass
from fxad.errors import FileFormatError

_KIND: Final = "fxad program"
_LONGEST: Final = 200  # bytes of a heading


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A named piece of a file, and where in it its bytes begin (0: not read from one)."""

    name: str
    content: bytes
    start: int = 0


def write(path: str, version: int, sections: Sequence[Section]) -> None:
    """Write a file, whole or not at all. Raises: OSError."""
    parts = [f"{_KIND} {version}\n".encode()]
    for s in sections:
        parts += [f"{s.name} {len(s.content)} {checksum([s.content]).hex()}\n".encode(), s.content, b"\n"]
    write_whole(path, parts, 0o666)


def read(path: str, newest: int) -> tuple[int, list[Section]]:
    """The version and the sections of a file.

    Raises: FileFormatError for what is not such a file, is of a version after `newest`, or is damaged, with the place;
            OSError.
    """
    with open(path, "rb") as file:
        found = file.read()
    end = found.find(b"\n", 0, _LONGEST)
    kind, _, number = found[: max(end, 0)].decode("ascii", "replace").rpartition(" ")
    if kind != _KIND or not number.isdecimal():
        raise FileFormatError(
            f"load: {path} is not a file of fxad: it does not begin with {_KIND!r} and a version",
            remedy="load reads what fxad.save wrote",
        )
    if int(number) > newest:
        raise FileFormatError(
            f"load: {path} is of version {int(number)}, this fxad reads versions up to {newest}",
            remedy="install a newer fxad, or save the program again with this one",
        )
    sections, at = [], end + 1
    while at < len(found):
        section = _section(path, found, at)
        sections.append(section)
        at = section.start + len(section.content) + 1
    return int(number), sections


def _section(path: str, found: bytes, at: int) -> Section:
    """The section whose heading begins at a byte."""
    end = found.find(b"\n", at, at + _LONGEST)
    words = found[at : max(end, at)].decode("ascii", "replace").split(" ")
    if len(words) != 3 or not words[1].isdecimal() or len(words[1]) > 18:
        broken(path, at, "the heading of a section is malformed")
    name, start, size = words[0], end + 1, int(words[1])
    if start + size >= len(found):
        broken(path, start, f"section {name} has {size} bytes, the file ends after {max(len(found) - start, 0)}")
    content = found[start : start + size]
    if checksum([content]).hex() != words[2]:
        broken(path, start, f"section {name} does not have the checksum of its heading")
    if found[start + size : start + size + 1] != b"\n":
        broken(path, start + size, f"section {name} is not ended by a line break")
    return Section(name, content, start)


def broken(path: str, at: int, problem: str) -> NoReturn:
    """Raises: FileFormatError."""
    raise FileFormatError(f"load: {path} is damaged: byte {at}: {problem}", remedy=AGAIN)


AGAIN: Final = "take another copy of the file, or save the program again"
