"""The file format of fxad: a line with kind and version, then sections, each with its own length and checksum.

    fxad program 1
    text 231 9f86d081884c7d65...
    main @f(%arg0: f32[3]) -> (f32[3]) {
    ...

A heading contains the name of a section, its length in bytes, and its SHA-256. Nothing follows the last section. So
damage is detected, and reported with its section and byte offset. A checksum does not authenticate the writer: readers
also check the contents of the sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn, final

from fxad.core.dataclasses import dataclass
from fxad.errors import FileFormatError
from fxad.support.atomic_file import checksum

_LONGEST: Final = 200  # greatest number of bytes of a heading


@final
@dataclass(frozen=True, slots=True)
class FileSection:
    """A named part of a file. `start` is the offset of its content in the bytes that were read (else 0)."""

    name: str
    content: bytes
    start: int = 0


def pack(kind: str, version: int, sections: Sequence[FileSection]) -> list[bytes]:
    """Return the bytes of sections, in parts."""
    parts = [f"{kind} {version}\n".encode()]
    for s in sections:
        parts += [f"{s.name} {len(s.content)} {checksum([s.content]).hex()}\n".encode(), s.content, b"\n"]
    return parts


def has_header(data: bytes, kind: str) -> bool:
    """Return True if bytes begin with the header of a kind."""
    return data.startswith(f"{kind} ".encode())


def unpack(what: str, data: bytes, kind: str, newest: int) -> tuple[int, list[FileSection]]:
    """Return the version and the sections of bytes. `what` names the operation and the bytes, for messages.

    Raises: FileFormatError if the bytes are of another kind or of a version after `newest`, or are damaged, with the
            byte offset.
    """
    end = data.find(b"\n", 0, _LONGEST)
    number = data[len(kind) + 1 : max(end, 0)].decode("ascii", "replace")
    if not has_header(data, kind) or not number.isdecimal() or number.startswith("0"):
        raise FileFormatError(
            f"{what} is not what fxad wrote: it does not begin with {kind!r} and a version",
            remedy=_WRITTEN,
        )
    if int(number) > newest:
        raise FileFormatError(
            f"{what} is of version {number}, this fxad reads versions up to {newest}",
            remedy="install a newer fxad, or save the program again with this one",
        )
    sections, at = [], end + 1
    while at < len(data):
        section = _section(what, data, at)
        sections.append(section)
        at = section.start + len(section.content) + 1
    return int(number), sections


def _section(what: str, data: bytes, at: int) -> FileSection:
    """Return the section whose header begins at a byte offset."""
    end = data.find(b"\n", at, at + _LONGEST)
    words = data[at : max(end, at)].decode("ascii", "replace").split(" ")
    if len(words) != 3 or not words[1].isdecimal() or len(words[1]) > 18:
        raise_damaged(what, at, "the heading of a section is malformed")
    name, start, size = words[0], end + 1, int(words[1])
    if start + size >= len(data):
        raise_damaged(what, start, f"section {name} has {size} bytes, the file ends after {max(len(data) - start, 0)}")
    content = data[start : start + size]
    if checksum([content]).hex() != words[2]:
        raise_damaged(what, start, f"section {name} does not have the checksum of its heading")
    if data[start + size : start + size + 1] != b"\n":
        raise_damaged(what, start + size, f"section {name} is not ended by a line break")
    return FileSection(name, content, start)


def raise_damaged(what: str, at: int, problem: str) -> NoReturn:
    """Raise FileFormatError."""
    raise FileFormatError(f"{what} is damaged: byte {at}: {problem}", remedy=SAVE_AGAIN)


SAVE_AGAIN: Final = "take another copy of the file, or save the program again"
_WRITTEN: Final = "load reads what fxad.save wrote, load_exported what export wrote"
