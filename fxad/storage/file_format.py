"""The file format of fxad: a line with kind and version, then sections, each with its own length and checksum.

    fxad program 1
    text 231 9f86d081884c7d65...
    main @f(%arg0: f32[3]) -> (f32[3]) {
    ...

A heading gives the name of a section, its bytes, and their SHA-256. Nothing is after the last section. So whatever is
damaged is found, and named by its section and its place; and the sections that are text can be read. A checksum finds
damage. It does not say who wrote the bytes: readers check what the sections hold, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn, final

from fxad.core.atomic_file import checksum
from fxad.core.dataclasses import dataclass
from fxad.errors import FileFormatError

_LONGEST: Final = 200  # bytes of a heading


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A named piece, and where its bytes begin in what was read (0: not read)."""

    name: str
    content: bytes
    start: int = 0


def pack(kind: str, version: int, sections: Sequence[Section]) -> list[bytes]:
    """The bytes of sections, in parts."""
    parts = [f"{kind} {version}\n".encode()]
    for s in sections:
        parts += [f"{s.name} {len(s.content)} {checksum([s.content]).hex()}\n".encode(), s.content, b"\n"]
    return parts


def has_header(found: bytes, kind: str) -> bool:
    """Returns True if bytes begin with the header of a kind."""
    return found.startswith(f"{kind} ".encode())


def unpack(what: str, found: bytes, kind: str, newest: int) -> tuple[int, list[Section]]:
    """The version and the sections of bytes. `what` names the operation and the bytes, for messages.

    Raises: FileFormatError for what is not of the kind, is of a version after `newest`, or is damaged, with the place.
    """
    end = found.find(b"\n", 0, _LONGEST)
    number = found[len(kind) + 1 : max(end, 0)].decode("ascii", "replace")
    if not has_header(found, kind) or not number.isdecimal() or number.startswith("0"):
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
    while at < len(found):
        section = _section(what, found, at)
        sections.append(section)
        at = section.start + len(section.content) + 1
    return int(number), sections


def _section(what: str, found: bytes, at: int) -> Section:
    """The section whose header begins at a byte offset."""
    end = found.find(b"\n", at, at + _LONGEST)
    words = found[at : max(end, at)].decode("ascii", "replace").split(" ")
    if len(words) != 3 or not words[1].isdecimal() or len(words[1]) > 18:
        raise_damaged(what, at, "the heading of a section is malformed")
    name, start, size = words[0], end + 1, int(words[1])
    if start + size >= len(found):
        raise_damaged(what, start, f"section {name} has {size} bytes, the file ends after {max(len(found) - start, 0)}")
    content = found[start : start + size]
    if checksum([content]).hex() != words[2]:
        raise_damaged(what, start, f"section {name} does not have the checksum of its heading")
    if found[start + size : start + size + 1] != b"\n":
        raise_damaged(what, start + size, f"section {name} is not ended by a line break")
    return Section(name, content, start)


def raise_damaged(what: str, at: int, problem: str) -> NoReturn:
    """Raises: FileFormatError."""
    raise FileFormatError(f"{what} is damaged: byte {at}: {problem}", remedy=SAVE_AGAIN)


SAVE_AGAIN: Final = "take another copy of the file, or save the program again"
_WRITTEN: Final = "load reads what fxad.save wrote, load_exported what export wrote"
