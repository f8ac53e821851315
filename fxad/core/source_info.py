"""The place in the user's program where an equation was written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from types import CodeType
from typing import TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, described


@final
@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the user's program. `scope` are the names of `named_scope` around it: "encoder/layer 3".

    `callers` are the lines that called its function, from the inside out, and `digest` is that of the text of the
    file when the program was saved, and empty if the program was traced in this process. Neither is compared.
    """

    file: str
    line: int
    function: str
    scope: str = ""
    callers: tuple[SourceLocation, ...] = field(default=(), compare=False, repr=False)
    digest: str = field(default="", compare=False, repr=False)

    @property
    def short(self) -> str:
        """The name of the file, without its folder, and the line."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}{f', {self.scope}' if self.scope else ''}"


# Calls of functions, from the inside out: of each caller its code object and the offset of its call.
Calls: TypeAlias = tuple[tuple[CodeType, int], ...]
# Tracing records a code object and an instruction offset, which is cheap, and the scope and the calls if there are
# some. `source_location` resolves them to lines.
Source: TypeAlias = tuple[CodeType, int] | tuple[CodeType, int, str, Calls] | SourceLocation | None


def source_location(source: Source) -> SourceLocation | None:
    """Return the line of the user's program at which an equation was traced, or an equal one of an equal program before
    it.

    Raises: ArgumentError for what is not the source of an equation.
    """
    if source is None or isinstance(source, SourceLocation):
        return source
    if not isinstance(source, tuple):
        raise ArgumentError(
            f"source_location: takes the source of an equation, got {described(source)}", remedy="eqn.source"
        )
    return source_locations([source])[0]


def source_locations(sources: Sequence[Source]) -> list[SourceLocation | None]:
    """Return `source_location` of many sources: one sweep over each line table instead of one for each source."""
    lines = _Lines()
    for source in sources:
        if isinstance(source, tuple):
            for code, offset in (source[:2], *(source[3] if len(source) == 4 else ())):
                lines.want(code, offset)
    lines.sweep()
    out: list[SourceLocation | None] = []
    for source in sources:
        if not isinstance(source, tuple):
            out.append(source)
            continue
        code, offset = source[:2]
        scope, calls = source[2:] if len(source) == 4 else ("", ())
        out.append(
            SourceLocation(
                code.co_filename,
                lines.at(code, offset),
                code.co_qualname,
                scope,
                tuple([SourceLocation(c.co_filename, lines.at(c, k), c.co_qualname) for c, k in calls]),
            )
        )
    return out


@final
class _Lines:
    """The lines of offsets in code objects, which are known by their ids: their hash walks their constants."""

    __slots__ = ("_codes", "_found", "_wanted")

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}
        self._wanted: dict[int, set[int]] = {}
        self._found: dict[tuple[int, int], int] = {}

    def want(self, code: CodeType, offset: int) -> None:
        """Note an offset that `sweep` looks up."""
        self._codes[id(code)] = code
        self._wanted.setdefault(id(code), set()).add(offset)

    def sweep(self) -> None:
        """Look up all offsets, in one sweep over the table of each code object."""
        for key, code in self._codes.items():
            offsets = iter(sorted(self._wanted[key]))
            offset = next(offsets)
            for _, end, line in code.co_lines():
                while offset < end:
                    self._found[key, offset] = line or code.co_firstlineno
                    offset = next(offsets, 1 << 62)

    def at(self, code: CodeType, offset: int) -> int:
        """Return the line of an offset."""
        return self._found.get((id(code), offset), code.co_firstlineno)


def source_text(source: Source) -> str:
    """Return the line of `source_location` as text, for messages; empty if there is none."""
    return str(source_location(source) or "")
