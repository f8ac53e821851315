"""Tables and texts for people: as plain text, as HTML for notebooks, and as tables of rich for wide terminals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib import import_module
from operator import index
from typing import Final, Protocol, SupportsIndex, TypeVar, cast, final, overload

from fxad.core.dataclasses import dataclass
from fxad.errors import FxadError

Row = TypeVar("Row", covariant=True)

ROWS: Final = 50  # of a table, in HTML
LINES: Final = 60  # of a text, in HTML
CHARACTERS: Final = 400  # of a cell, of a heading, and of a line of a text, in HTML
WIDE: Final = 100  # characters of a terminal: rich shows tables from here on, and plain text below
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
        row = [f"<{tag}{_RIGHT if k in self.right else ''}>{escaped(cut(c))}</{tag}>" for k, c in enumerate(cells)]
        return f"<tr>{''.join(row)}</tr>"

    def rich(self) -> object:
        """Return the table as one of rich."""
        text = import_module("rich.text").Text  # a string would be read as markup: f32[3] as f32
        table = import_module("rich.table").Table(box=import_module("rich.box").SIMPLE_HEAD)
        for k, name in enumerate(self.head):
            table.add_column(text(name), justify="right" if k in self.right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*map(text, row))
        return table


class ConsoleOptions(Protocol):
    """The options that rich passes: `max_width` is the number of characters of a line."""

    max_width: int


class Shown(ABC):
    """A value that is a heading and tables. Notebooks show it as HTML; `rich.print` shows its tables where a terminal
    is wide, and its text elsewhere."""

    __slots__ = ()

    @abstractmethod
    def _shown(self) -> tuple[str, Sequence[Table]]:
        """Return the heading, which may be empty, and the tables."""

    def _repr_html_(self) -> str:
        head, tables = self._shown()
        return headed(head, *[table.html() for table in tables])

    def __rich_console__(self, _console: object, options: ConsoleOptions) -> Iterator[object]:
        text = import_module("rich.text").Text
        if options.max_width < WIDE:
            yield text(str(self))
            return
        head, tables = self._shown()
        if head:
            yield text(head)
        yield from [table.rich() for table in tables]


class ShownRows(Shown, Sequence[Row]):
    """A value with rows: the sequence of these, shown as a table."""

    __slots__ = ()

    rows: tuple[Row, ...]

    @overload
    def __getitem__(self, k: int) -> Row: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[Row]: ...
    def __getitem__(self, k: int | slice) -> Row | Sequence[Row]:
        return self.rows[k]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


class ShownSummary(ShownRows[Row]):
    """Rows that are shown as one table, with a line that sums them up."""

    __slots__ = ()

    @property
    @abstractmethod
    def _title(self) -> str:
        """The title: the kind of the table, and the program."""

    @property
    @abstractmethod
    def _total(self) -> str:
        """The line that sums the rows up."""

    @property
    @abstractmethod
    def _table(self) -> Table:
        """The rows."""

    def __str__(self) -> str:
        return f"{self._table.text()}\n{self._total}"

    def _shown(self) -> tuple[str, Sequence[Table]]:
        return f"{self._title}: {self._total}", [self._table]


def as_row_number(k: object) -> int | None:
    """Return the int of an integer; None for another value, also for a bool."""
    try:
        return index(cast("SupportsIndex", None if isinstance(k, bool) else k))
    except (TypeError, FxadError):  # an array may have `__index__`, and not be an integer
        return None


def cut(text: str) -> str:
    """Return the first `CHARACTERS` characters of a text."""
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]} ... {len(text) - CHARACTERS:,} more characters"


def escaped(text: str) -> str:
    """Return a text as HTML."""
    for character, name in _NAMES:
        text = text.replace(character, name)
    return text


def preformatted(text: str) -> str:
    """Return a text of many lines as HTML, with its first `LINES` lines."""
    return f"<pre>{escaped(chr(10).join(first_lines(text.splitlines())))}</pre>"


def first_lines(lines: Sequence[str]) -> list[str]:
    """Return the first `LINES` lines, each cut, and how many are left out."""
    more = [f"... {len(lines) - LINES:,} more lines"] if len(lines) > LINES else []
    return [*map(cut, lines[:LINES]), *more]


def headed(head: str, *parts: str) -> str:
    """Return a heading, which is a text, above parts, which are HTML."""
    heads = [f"<div><code>{escaped(line)}</code></div>" for line in first_lines(head.splitlines())]
    return f"<div>{''.join([*heads, *parts])}</div>"
