"""The place in the user's program where an equation was written."""

from __future__ import annotations

import os
from types import CodeType
from typing import TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, described


@final
@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the user's program. `scope` are the names of `named_scope` around it: "encoder/layer 3"."""

    file: str
    line: int
    function: str
    scope: str = ""

    @property
    def short(self) -> str:
        """The name of the file, without its folder, and the line."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}{f', {self.scope}' if self.scope else ''}"


# Tracing records a code object and an instruction offset, which is cheap, and the scope if there is one.
# `source_location` resolves them to a line.
Source: TypeAlias = tuple[CodeType, int] | tuple[CodeType, int, str] | SourceLocation | None


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
    code, offset, *scope = source
    line = code.co_firstlineno
    for start, end, at in code.co_lines():
        if start <= offset < end:
            line = at or line
            break
    return SourceLocation(code.co_filename, line, code.co_qualname, "".join(map(str, scope)))


def source_text(source: Source) -> str:
    """Return the line of `source_location` as text, for messages; empty if there is none."""
    return str(source_location(source) or "")
