"""Source locations of equations as MLIR locations. XLA keeps them as metadata (`op_name`, file and line).

Operations refer to locations by alias (`loc(#L3)`), and the aliases are defined at the end of the module. So the line
table of a code object is read once for all its lines.
"""

from __future__ import annotations

from typing import final

from fxad.ir import Source, SourceLocation, source_locations
from fxad.lowering.mlir_text import string_literal


@final
class Locations:
    """The locations of one module under construction."""

    __slots__ = ("_alias", "_rows")

    def __init__(self) -> None:
        # Keyed by the id of the code object, whose own hash walks its constants; `_rows` keeps it alive.
        self._alias: dict[tuple[str, str, object, int, str], str] = {}
        # For each alias in the order of its number: the operation name, and the source, which is resolved later.
        self._rows: dict[str, tuple[str, Source]] = {}

    def alias(self, function: str, prim: str, source: Source) -> str:
        """Return the text after an operation that refers to its location: ` loc(#L3)`."""
        if source is None:
            key: tuple[str, str, object, int, str] = (function, prim, None, 0, "")
        elif isinstance(source, SourceLocation):
            key = (function, prim, source, 0, source.scope)
        else:
            key = (function, prim, id(source[0]), source[1], source[2] if len(source) == 4 else "")
        text = self._alias.get(key)
        if text is None:
            text = self._alias[key] = f" loc(#L{len(self._rows)})"
            self._rows[text] = "/".join([part for part in (function, key[4], prim) if part]), source
        return text

    def source(self, alias: str) -> Source:
        """Return the source of the operation that refers to `alias`."""
        return self._rows[alias][1]

    def definitions(self) -> str:
        """Return all locations, one a line: operation name, then the user's function, then file and line."""
        rows = self._rows.values()
        places = source_locations([source for _, source in rows])
        lines = []
        for k, ((name, _), at) in enumerate(zip(rows, places, strict=True)):
            inner = "" if at is None else f"({string_literal(at.function)}({string_literal(at.file)}:{at.line}:0))"
            lines.append(f"#L{k} = loc({string_literal(name)}{inner})\n")
        return "".join(lines)
