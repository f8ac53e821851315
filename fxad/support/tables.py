"""What people look at: tables and texts, as plain text and as HTML for notebooks, and bars of progress on terminals."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import TracebackType
from typing import Final, Protocol, final

from fxad.core.dataclasses import dataclass

BAR_SECONDS: Final = 1.5  # without a bar

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


class _Bar(Protocol):
    """A bar of `tqdm`."""

    def set_description(self, desc: str, refresh: bool) -> None: ...

    def update(self) -> object: ...

    def close(self) -> None: ...


@final
class Progress:
    """A bar of progress on standard error, if that is a terminal, once the work takes `BAR_SECONDS`. It disappears at
    the end.

    what:  a text beside the bar, which may change. total: the number of steps, or None if it is not known.
    """

    __slots__ = ("_bar", "_is_terminal", "_n", "_start", "_total", "_unit", "what")

    def __init__(self, what: str, total: int | None = None, unit: str = "unit") -> None:
        self.what, self._total, self._unit = what, total, unit
        self._start, self._n = time.perf_counter(), 0
        self._bar: _Bar | None = None
        try:
            self._is_terminal = sys.stderr.isatty()
        except (AttributeError, ValueError):  # there is no standard error, or it is closed
            self._is_terminal = False

    def step(self) -> None:
        """Count a step."""
        if not self._is_terminal:
            return
        self._n += 1
        if self._bar is not None:
            self._bar.set_description(self.what, refresh=False)
            self._bar.update()
        elif self._n != self._total and time.perf_counter() - self._start > BAR_SECONDS:
            # importing it takes 40 ms, a quarter of what importing fxad takes
            self._bar = import_module("tqdm").tqdm(
                desc=self.what, total=self._total, initial=self._n, unit=self._unit, leave=False
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
