"""The file of a recorded call, in the file format of fxad (`fxad.storage.file_format`).

Its sections are `call`, a description in JSON; the parts of the call that no earlier file of the folder has (the
program, its text, the user's lines, arrays); and `results`, a description of the results, once the call has ended. The
description lists all parts by their SHA-256. Equal arrays are one part, and a part of another file of the same folder
is named with that file. No part is code, and nothing is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final, NoReturn, final

from fxad.core.dataclasses import dataclass
from fxad.errors import FileFormatError
from fxad.storage.file_format import FileSection, has_header, pack, raise_damaged, unpack
from fxad.storage.paths import open_regular

KIND: Final = "fxad call"
VERSION: Final = 2
# Its lines are a table of texts, without digests of the files of the user. It is read for recordings that are attached
# to reports of faults: they stay as they are.
FIRST_VERSION: Final = 1
SUFFIX: Final = ".fxcall"

_CALL: Final = "call"
_RESULTS: Final = "results"
_WROTE: Final = "name a file or a folder of fxad.record"


@final
class CallWriter:
    """Collects the parts of a call. `written` maps the digests of parts to the files of the folder that have them."""

    def __init__(self, written: Mapping[str, str]) -> None:
        self._written = written
        self._parts: list[dict[str, str | int]] = []
        self._index: dict[str, int] = {}
        self._contents: list[FileSection] = []

    def add(self, name: str, content: bytes) -> int:
        """Return the index of a part with this content."""
        digest = hashlib.sha256(content).hexdigest()
        index = self._index.get(digest)
        if index is None:
            index = self._index[digest] = len(self._parts)
            file = self._written.get(digest, "")
            self._parts.append({"name": name, "bytes": len(content), "sha256": digest, "file": file})
            if not file:
                self._contents.append(FileSection(name, content))
        return index

    def file(self, description: Mapping[str, object], results: Mapping[str, object] | None) -> list[bytes]:
        """Return the bytes of the file, in parts."""
        head: dict[str, object] = {**description, "parts": list(self._parts)}
        sections = [FileSection(_CALL, _json(head)), *self._contents]
        return pack(KIND, VERSION, sections if results is None else [*sections, FileSection(_RESULTS, _json(results))])

    def note_written(self, file: str, written: MutableMapping[str, str]) -> None:
        """Note the parts that the file has, whose name is `file`."""
        for part in self._parts:
            if not part["file"]:
                written[str(part["sha256"])] = file


@final
@dataclass(frozen=True, slots=True, eq=False)
class CallFile:
    """The contents of a file: its description, the contents of its parts, and its results, if the call has ended."""

    what: str  # the operation and the file, for messages
    description: Mapping[str, Any]
    parts: tuple[FileSection, ...]
    results: Mapping[str, Any] | None
    start: int  # offset of the description
    version: int

    def damaged(self, problem: str) -> NoReturn:
        """Raise FileFormatError for a description that contradicts itself."""
        raise_damaged(self.what, self.start, problem)


def read_call(what: str, path: str) -> CallFile:
    """Return the contents of a file, with the parts that other files of its folder have.

    Raises: FileFormatError for a file that is damaged, forged, of a later version or of another kind, and for one whose
            parts are in files that are not there; OSError.
    """
    version, sections = _sections(what, path)
    if not sections or sections[0].name != _CALL:
        raise_damaged(what, 0, "it does not begin with the description of a call")
    first, rest = sections[0], list(sections[1:])
    results = _described(what, rest.pop()) if rest and rest[-1].name == _RESULTS else None
    description = _described(what, first)
    own = {hashlib.sha256(s.content).hexdigest(): s for s in rest}
    others: dict[str, dict[str, FileSection]] = {}
    parts = []
    entries = description.get("parts")
    if not isinstance(entries, list) or not all([_is_entry(e) for e in entries]):
        raise_damaged(what, first.start, "the description does not list the parts of the call")
    for entry in entries:
        found, file = own, entry["file"]
        if file:
            if file not in others:
                others[file] = _parts_of(what, os.path.join(os.path.dirname(path), file))
            found = others[file]
        section = found.get(entry["sha256"])
        if section is None or section.name != entry["name"]:
            raise_damaged(what, first.start, f"{file or 'the file'} does not have the part {entry['name']}")
        parts.append(section)
    return CallFile(what, description, tuple(parts), results, first.start, version)


def written_parts(folder: str) -> tuple[int, dict[str, str]]:
    """Return the number of the next file of a folder, and the digests of the parts that its files have. A file that is
    damaged has none."""
    names = recorded_names(folder)
    written: dict[str, str] = {}
    for name in names:
        try:
            found = _parts_of("record", os.path.join(folder, name))
        except (FileFormatError, OSError):
            continue
        for digest in found:
            written.setdefault(digest, name)
    return (int(names[-1].removesuffix(SUFFIX)) + 1 if names else 0), written


def recorded_names(folder: str) -> list[str]:
    """Return the names of the files of recorded calls of a folder, in the order of the calls."""
    names = [n for n in os.listdir(folder) if n.endswith(SUFFIX) and n.removesuffix(SUFFIX).isdecimal()]
    return sorted(names, key=lambda n: int(n.removesuffix(SUFFIX)))


def _parts_of(what: str, path: str) -> dict[str, FileSection]:
    if not os.path.exists(path):
        raise FileFormatError(
            f"{what}: the call shares arrays with that of {os.path.basename(path)}, which does not exist",
            remedy="put both files into one folder; `call.save(file)` writes a file that stands alone",
        )
    named = [s for s in _sections(what, path)[1] if s.name not in (_CALL, _RESULTS)]
    return {hashlib.sha256(s.content).hexdigest(): s for s in named}


def _sections(what: str, path: str) -> tuple[int, list[FileSection]]:
    """Return the version and the sections of a file."""
    with open_regular(what, path, _WROTE) as file:
        head = file.read(len(KIND) + 1)
        data = head + file.readall() if has_header(head, KIND) else head
    if not has_header(data, KIND):
        raise FileFormatError(f"{what} is no recorded call: it does not begin with {KIND!r}", remedy=_WROTE)
    return unpack(what, data, KIND, VERSION)


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not all([isinstance(entry.get(k), str) for k in ("name", "sha256", "file")]):
        return False
    return bool(os.path.basename(entry["file"]) == entry["file"])  # a file of the same folder


def _described(what: str, section: FileSection) -> dict[str, Any]:
    try:
        description = json.loads(section.content)
    except (ValueError, RecursionError) as e:
        raise_damaged(what, section.start, f"section {section.name} is not JSON: {e}")
    if not isinstance(description, dict):
        raise_damaged(what, section.start, f"section {section.name} is not an object of JSON")
    return description


def _json(description: Mapping[str, object]) -> bytes:
    lines = ",\n".join([f" {json.dumps(key)}: {json.dumps(value)}" for key, value in description.items()])
    return f"{{\n{lines}\n}}".encode()


def sequence(value: object) -> Sequence[Any]:
    """Return a list of JSON; an empty one in place of another value."""
    return value if isinstance(value, list) else []
