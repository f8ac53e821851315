"""Tables and texts for people: as plain text, and as HTML for notebooks."""

from __future__ import annotations

from typing import Final, final

from fxad.core.dataclasses import dataclass

ROWS: Final = 50  # of a table, in HTML
LINES: Final = 60  # of a text, in HTML
_NAMES: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;"))
_RIGHT: Final = ' style="text-align: right"'


@final
@dataclass(frozen=True, slots=True)
class Table:
    """Cells in rows under a head. `right` are the columns that are aligned to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()

    def text(self) -> str:
        """Return the table in columns."""
        rows = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        cells = [
            [c.rjust(w) if k in self.right else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
            for row in rows
        ]
        return "\n".join(["  ".join(row).rstrip() for row in cells])

    def html(self) -> str:
        """Return the table as HTML, with the first `ROWS` rows."""
        left_out = len(self.rows) - ROWS
        rows = [self._row(row, "td") for row in self.rows[:ROWS]]
        more = [f'<tr><td colspan="{len(self.head)}">{left_out:,} more rows</td></tr>'] if left_out > 0 else []
        return f"<table><thead>{self._row(self.head, 'th')}</thead><tbody>{''.join([*rows, *more])}</tbody></table>"

    def _row(self, cells: tuple[str, ...], tag: str) -> str:
        row = [f"<{tag}{_RIGHT if k in self.right else ''}>{escaped(c)}</{tag}>" for k, c in enumerate(cells)]
        return f"<tr>{''.join(row)}</tr>"


def escaped(text: str) -> str:
    """Return a text as HTML."""
    for character, name in _NAMES:
        text = text.replace(character, name)
    return text


def preformatted(text: str) -> str:
    """Return a text of many lines as HTML, with its first `LINES` lines."""
    lines = text.splitlines()
    more = [f"... {len(lines) - LINES:,} more lines"] if len(lines) > LINES else []
    return f"<pre>{escaped(chr(10).join([*lines[:LINES], *more]))}</pre>"


def headed(head: str, *parts: str) -> str:
    """Return a heading, which is a text, above parts, which are HTML."""
    return f"<div><div><code>{escaped(head)}</code></div>{''.join(parts)}</div>"
