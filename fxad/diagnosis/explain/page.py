"""The page: sections of tables, pictures and listings, as one HTML file, and as text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib import import_module
from textwrap import fill
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.memory_rows import MemoryRow
from fxad.diagnosis.explain.problems import PageProblem
from fxad.diagnosis.explain.time_rows import TimeRow
from fxad.errors import ArgumentError, described, shown
from fxad.support.atomic_file import write_whole
from fxad.support.tables import WIDE, ConsoleOptions, Table

ROWS: Final = 60  # greatest number of rows of a table in HTML; the page says how many more there are
TEXT_ROWS: Final = 12  # greatest number of rows of a table in text
_CELL: Final = 72  # greatest number of characters of a cell in text
_LAST_CELL: Final = 240  # greatest number of characters of a cell in the last column
LISTED: Final = 3000  # greatest number of equations that a page lists


@final
@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG picture, and what it says in words."""

    svg: str
    words: str


@final
@dataclass(frozen=True, slots=True)
class PreformattedLines:
    """Preformatted lines. `marks` has "+", "-" or " " for each line of a diff."""

    lines: tuple[str, ...]
    marks: str = ""


@final
@dataclass(frozen=True, slots=True)
class Listing:
    """Equations with their numbers, lines and readers. An equation links to those that compute its operands, and to
    those that read its results: `operands` and `readers` are their numbers."""

    entries: tuple[tuple[int, str, str, tuple[int, ...], tuple[int, ...]], ...]  # number, text, line, operands, readers
    heads: tuple[tuple[int, str], ...]  # the first equation of each body, and the name of the body
    left_out: int


@final
@dataclass(frozen=True, slots=True)
class SourceLines:
    """Lines of a file of the user: a table whose last two columns are the number of the line and its text, with its
    indentation. `numbers` are those of the first equation of each line, or None."""

    file: str
    table: Table
    numbers: tuple[int | None, ...]


@final
@dataclass(frozen=True, slots=True)
class EquationRows:
    """A table whose column `number_at` has numbers of equations, or nothing. They link to the listing."""

    table: Table
    number_at: int


PageBlock: TypeAlias = str | Table | Picture | PreformattedLines | Listing | SourceLines | EquationRows


@final
@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page. `folded`: HTML shows it when it is opened; text leaves it out."""

    id: str
    title: str
    blocks: tuple[PageBlock, ...]
    folded: bool = False


@final
@dataclass(frozen=True, slots=True)
class Findings:
    """A line of the verdict: a subject, and what was found about it."""

    subject: str
    found: tuple[str, ...]

    @property
    def part(self) -> str:
        """The part of the page that shows it. That with what is wasted has the arguments and results: "identity"."""
        return {"again": "program", "waste": "identity"}.get(self.subject, self.subject)

    def __str__(self) -> str:
        return f"{self.subject}: {'; '.join(self.found)}"


@final
@dataclass(frozen=True, slots=True)
class Page:
    """The cost of a program, by lines of the user. `html()`, `text()` and `save(path)` show it.

    `memory` are the values at the peak, which sum to `executable.memory().temp_bytes`; `time` are the equations, the
    longest first. `problems` are the problems, the worst first. `findings` are about five subjects: memory, time, what
    is computed or compiled again, what is wasted, digits. `verdict` are their lines.

    Law: equal programs, options and caches give equal bytes.
    """

    name: str
    findings: tuple[Findings, ...]
    memory: tuple[MemoryRow, ...]
    time: tuple[TimeRow, ...]
    sections: tuple[PageSection, ...]
    problems: tuple[PageProblem, ...] = ()

    @property
    def verdict(self) -> tuple[str, ...]:
        """The findings as lines."""
        return tuple(map(str, self.findings))

    def text(self) -> str:
        """Return the page as plain text, for terminals. Its sentences are wrapped, its tables are not."""
        parts = [f"explain {self.name}", "", *_problems_text(self.problems), ""]
        parts += [*map(_findings_text, self.findings), ""]
        for section in self.sections:
            if not section.folded:
                parts += [f"{section.title}", "=" * len(section.title), *map(_block_text, section.blocks), ""]
        return "\n".join(parts)

    def html(self) -> str:
        """Return the page as one HTML file. It needs no network and no JavaScript, which only sorts tables."""
        links = _Links(self.sections)
        body = [f"<header><h1>{_escaped(self.name)}</h1>", _problems_html(self.problems, links)]
        body += [_verdict_html(self.findings, links), "</header><nav>"]
        body += [f'<a href="#{s.id}">{_escaped(s.title)}</a>' for s in self.sections]
        body.append("</nav><main>")
        for s in self.sections:
            inner = "".join([_block_html(block, links) for block in s.blocks])
            opened = "" if s.folded else " open"
            body.append(
                f'<section id="{s.id}"><details{opened}><summary><h2>{_escaped(s.title)}</h2></summary>'
                f"{inner}</details></section>"
            )
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>explain {_escaped(self.name)}</title><style>{_STYLE}</style></head><body>"
            f"{''.join(body)}</main><script>{_SCRIPT}</script></body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page as an HTML file. An existing file is replaced as a whole.

        Raises: ArgumentError if `path` is not a path; OSError if the file cannot be written.
        """
        if not isinstance(path, str | os.PathLike):
            raise ArgumentError(
                f"Page.save: {described(path)} is not a path: {shown(path)}",
                remedy='name a file: page.save("page.html")',
            )
        write_whole(os.fsdecode(path), [self.html().encode()], 0o666)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:640px;border:0"></iframe>'

    def __str__(self) -> str:
        return self.text()

    def __rich_console__(self, _console: object, options: ConsoleOptions) -> Iterator[object]:
        text = import_module("rich.text").Text  # a string would be read as markup: f32[3] as f32
        bold, tables = "bold", options.max_width >= WIDE
        yield text(f"explain {self.name}\n", bold)
        yield from [text(part) for part in _problems_text(self.problems)]
        yield text("")
        for about in self.findings:
            yield text(about.subject, bold)
            yield from [text(f"  - {found}") for found in about.found]
        for section in self.sections:
            if not section.folded:
                yield text(f"\n{section.title}", bold)
                for block in section.blocks:
                    yield (_block_rich(block) if tables else None) or text(_block_text(block))

    def __repr__(self) -> str:
        return f"<Page of {self.name}: {len(self.memory)} values in memory, {len(self.time)} equations>"


# ---------------------------------------------------------------------------------------------------------------- text


_WORST_FIRST: Final = "What to change, the worst first"
_NO_PROBLEM: Final = "no problem was found"


def _problems_text(problems: Sequence[PageProblem]) -> list[str]:
    """Return the problems in lines of a terminal."""
    lines = [f"{_WORST_FIRST}:"]
    for k, p in enumerate(problems, 1):
        head = f"  {k}. "
        lines.append(_wrapped(p.sentence, head, "     "))
        lines += [_wrapped(f"{name}: {text}", "     ", "       ") for name, text in _details(p)]
    return lines if problems else [f"{_WORST_FIRST}: {_NO_PROBLEM}"]


def _details(p: PageProblem) -> tuple[tuple[str, str], ...]:
    return ("cost", p.cost), ("remedy", p.remedy)


def _findings_text(about: Findings) -> str:
    """Return a subject and what was found, each finding in lines of its own."""
    head = f"  {about.subject}: "
    below = " " * len(head)
    return "\n".join([_wrapped(found, below if k else head, f"{below}  ") for k, found in enumerate(about.found)])


def _block_text(block: PageBlock) -> str:
    match block:
        case str():
            return block
        case SourceLines():
            return block.table.text()
        case EquationRows():
            return _block_text(block.table)
        case Table():
            more = len(block.rows) - TEXT_ROWS
            text = Table(block.head, tuple([_cut(r) for r in block.rows[:TEXT_ROWS]]), block.right).text()
            return f"{text}\n... {more:,} more rows" if more > 0 else text
        case Picture():
            return block.words
        case PreformattedLines():
            return "\n".join(block.lines)
        case Listing():
            return "\n".join([f"{n:5d}  {text}  # {line}" for n, text, line, _, _ in block.entries])


def _block_rich(block: PageBlock) -> object:
    """Return a table as one of rich; None for another block."""
    table = block.table if isinstance(block, EquationRows | SourceLines) else block
    if not isinstance(table, Table):
        return None
    if isinstance(block, SourceLines):
        return table.rich()
    more = len(table.rows) - TEXT_ROWS
    left_out = [(*[""] * (len(table.head) - 1), f"... {more:,} more rows")] if more > 0 else []
    return Table(table.head, (*map(_cut, table.rows[:TEXT_ROWS]), *left_out), table.right).rich()


def _cut(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return the cells of a row for a terminal."""
    widths = [*[_CELL] * (len(row) - 1), _LAST_CELL]
    return tuple([c if len(c) <= w else f"{c[: w - 3]}..." for c, w in zip(row, widths, strict=True)])


def _wrapped(line: str, begins: str, continues: str) -> str:
    """Return a line of the verdict in lines of a terminal."""
    return fill(
        line, WIDE, initial_indent=begins, subsequent_indent=continues, break_long_words=False, break_on_hyphens=False
    )


# ---------------------------------------------------------------------------------------------------------------- HTML


_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def _escaped(text: str) -> str:
    """Return a text as HTML. Characters that a page cannot have are shown as question marks."""
    return escape(_CONTROL.sub("?", text))


@final
class _Links:
    """Links into a page: from lines of the user to their source text, or to their first equation, and to equations."""

    def __init__(self, sections: Sequence[PageSection]) -> None:
        blocks = [block for section in sections for block in section.blocks]
        self.parts = {section.id: section.title for section in sections}
        self.listed = {n for block in blocks if isinstance(block, Listing) for n, *_ in block.entries}
        self._of_line: dict[str, str] = {}
        self._file_number: dict[str, int] = {}
        files: dict[str, set[str]] = {}
        for block in blocks:
            if isinstance(block, SourceLines):
                self._file_number.setdefault(block.file, len(self._file_number))
                files.setdefault(os.path.basename(block.file), set()).add(block.file)
        for block in blocks:
            if isinstance(block, Listing):
                for n, _, line, _, _ in block.entries:
                    self._of_line.setdefault(line, f"e{n}")
        for block in blocks:
            if isinstance(block, SourceLines) and len(files[os.path.basename(block.file)]) == 1:
                for row in block.table.rows:
                    if row[-2]:
                        self._of_line[f"{os.path.basename(block.file)}:{row[-2]}"] = self.source_id(block, row[-2])

    def source_id(self, block: SourceLines, line: str) -> str:
        """Return the id of a line of source text."""
        return f"s{self._file_number[block.file]}-{line}"

    def linked(self, text: str) -> str:
        """Return a text as HTML, in which lines of the user are links."""
        return _LINE.sub(self._link, _escaped(text))

    def _link(self, found: re.Match[str]) -> str:
        to = self._of_line.get(found[0])
        return f'<a href="#{to}">{found[0]}</a>' if to is not None else found[0]


_LINE: Final = re.compile(r"[^\s,;:()<>&]+:\d+")


def _problems_html(problems: Sequence[PageProblem], links: _Links) -> str:
    rows = []
    for p in problems:
        shown = [f'<a href="#{p.part}">{_escaped(links.parts[p.part])}</a>'] if p.part in links.parts else []
        if p.number in links.listed:
            shown.append(f'<a href="#e{p.number}">equation {p.number}</a>')
        details = "".join([f"<br><b>{name}</b> {links.linked(text)}" for name, text in _details(p)])
        rows.append(f"<li>{links.linked(p.sentence)}{details}<br><small>{' '.join(shown)}</small></li>")
    inner = f"<ol>{''.join(rows)}</ol>" if problems else f"<p>{_NO_PROBLEM}</p>"
    return f'<div class="problems"><h2>{_WORST_FIRST}</h2>{inner}</div>'


def _verdict_html(findings: Sequence[Findings], links: _Links) -> str:
    rows = []
    for about in findings:
        found = "".join([f"<li>{links.linked(part)}</li>" for part in about.found])
        head = _escaped(about.subject)
        if about.part in links.parts:
            head = f'<a href="#{about.part}">{head}</a>'
        rows.append(f"<dt>{head}</dt><dd><ul>{found}</ul></dd>")
    return f'<dl class="verdict">{"".join(rows)}</dl>'


def _block_html(block: PageBlock, links: _Links) -> str:
    match block:
        case str():
            return f"<p>{_escaped(block)}</p>"
        case SourceLines():
            return _source_html(block, links)
        case EquationRows():
            return _table_html(block.table, links, number_at=block.number_at)
        case Table():
            return _table_html(block, links)
        case Picture():
            return (
                f'<figure><div class="wide">{block.svg}</div><figcaption>{_escaped(block.words)}</figcaption></figure>'
            )
        case PreformattedLines():
            return _lines_html(block)
        case Listing():
            return _listing_html(block)


def _table_html(table: Table, links: _Links, *, number_at: int | None = None) -> str:
    """Return a table. It is sorted by a click on a head, if it has heads. On narrow screens a row is a block, and each
    cell has the name of its column before it."""
    named = any(table.head)

    def cell(k: int, text: str, tag: str) -> str:
        inner = links.linked(text) if tag == "td" and "line" in table.head else _escaped(text)
        if k == number_at and text and tag == "td" and int(text) in links.listed:
            inner = f'<a href="#e{text}">{text}</a>'
        label = f' data-h="{_escaped(table.head[k])}"' if named and tag == "td" and text else ""
        return f"<{tag}{' class=n' if k in table.right else ''}{label}>{inner}</{tag}>"

    more = len(table.rows) - ROWS
    cells = ["".join([cell(k, c, "td") for k, c in enumerate(row)]) for row in table.rows[:ROWS]]
    if more > 0:
        cells.append(f'<td colspan="{len(table.head)}">{more:,} more rows</td>')
    head = "".join([cell(k, c, "th") for k, c in enumerate(table.head)])
    head = f"<thead><tr>{head}</tr></thead>" if named else ""
    rows = "".join([f"<tr>{row}</tr>" for row in cells])
    of_kind = ' class="sorts"' if head else ""
    return f'<div class="wide"><table{of_kind}>{head}<tbody>{rows}</tbody></table></div>'


def _source_html(block: SourceLines, links: _Links) -> str:
    """Return source text with costs in its margin. On narrow screens the text stands above its costs."""
    table, last = block.table, len(block.table.head) - 1
    heads = "".join([f"<th{' class=n' if k < last else ''}>{_escaped(h)}</th>" for k, h in enumerate(table.head)])
    rows = []
    for row, number in zip(table.rows, block.numbers, strict=True):
        line = _escaped(row[-2])
        link = f'<a href="#e{number}">{line}</a>' if number in links.listed else line
        costs = "".join(
            [
                f'<td class=n data-h="{_escaped(h)}">{_escaped(c)}</td>' if c else "<td></td>"
                for h, c in zip(table.head[:-2], row, strict=False)
            ]
        )
        at = f' id="{links.source_id(block, row[-2])}"' if row[-2] else ""
        rows.append(f"<tr{at}>{costs}<td class=n>{link}</td><td>{_escaped(row[-1])}</td></tr>")
    return (
        f'<div class="wide"><table class="source"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _lines_html(block: PreformattedLines) -> str:
    kinds = {"+": "plus", "-": "minus"}
    out = []
    for k, line in enumerate(block.lines):
        kind = kinds.get(block.marks[k : k + 1])
        out.append(f'<span class="{kind}">{_escaped(line)}</span>' if kind else _escaped(line))
    return f'<pre class="wide">{chr(10).join(out)}</pre>'


def _listing_html(listing: Listing) -> str:
    heads, shown_numbers = dict(listing.heads), {n for n, *_ in listing.entries}
    out = []
    for n, text, line, operands, readers in listing.entries:
        if n in heads:
            out.append(f"<b>{_escaped(heads[n])}</b>")
        links = [_links("reads", operands, shown_numbers), _links("read by", readers, shown_numbers)]
        out.append(f'<span id="e{n}">{n} {_escaped(text)} <i>{_escaped(line)}</i>{"".join(links)}</span>')
    if listing.left_out:
        out.append(f"{listing.left_out:,} more equations: print the program")
    return f'<pre class="wide">{chr(10).join(out)}</pre>'


def _links(what: str, numbers: Sequence[int], known: set[int]) -> str:
    links = [f'<a href="#e{n}">{n}</a>' if n in known else str(n) for n in numbers[:3]]
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return f" {what} {' '.join(links)}{more}" if links else ""


_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2126;--soft:#5c6670;--page:#fff;--card:#f5f7f9;--line:#dce1e6;--mark:#2563a8;
--area:#7fabdb;--bar:#a9c8e8;--peak:#b4530f;--plus:#12703a;--minus:#b3261e}
@media (prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#9aa5b0;--page:#14181c;--card:#1d2328;--line:#353d45;
--mark:#7db4ee;--area:#3f76b0;--bar:#35608c;--peak:#f0a35e;--plus:#6fce93;--minus:#f2918a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:16px;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.2rem 0 1rem}h2{font-size:1.15rem;display:inline;margin:0}
a{color:var(--mark)}
.problems,.verdict{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:1rem;margin:0 0 1rem}
.problems h2{display:block}.problems ol{margin:.5rem 0 0;padding-left:1.4rem}.problems li{margin:.5rem 0}
.problems b{color:var(--soft);font-weight:600}small a{margin-right:1rem}tr:target{background:var(--bar)}
.verdict{display:grid;grid-template-columns:5.5rem 1fr;gap:.5rem .8rem}
dt{font-weight:600;color:var(--mark)}dd{margin:0}dd ul{margin:0;padding-left:1.1rem}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1rem;margin:1rem 0}
section{border-top:1px solid var(--line);padding:.8rem 0}summary{cursor:pointer;margin-bottom:.6rem}
.wide+.wide{margin-top:1rem}.wide{overflow-x:auto;overflow-wrap:normal;max-width:100%}
table{border-collapse:collapse;font-size:.88rem;min-width:100%}
th{text-align:left;color:var(--soft);font-weight:600;white-space:nowrap}
th,td{padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td{min-width:3.5rem;max-width:30rem}td:last-child{overflow-wrap:anywhere;min-width:9rem}.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
th[aria-sort],thead.s th{cursor:pointer}
.source td:last-child{white-space:pre;max-width:none;font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace}
.source td{border:0;padding-top:0;padding-bottom:0}
pre{font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace;background:var(--card);border:1px solid var(--line);
border-radius:8px;padding:.8rem;margin:.6rem 0}
pre i{color:var(--soft);font-style:normal}pre span:target{background:var(--bar)}
.plus{color:var(--plus)}.minus{color:var(--minus)}
figure{margin:0}figcaption{color:var(--soft);font-size:.88rem}
svg{width:100%;max-width:900px;height:auto;font:11px system-ui,"DejaVu Sans",sans-serif}
svg text{fill:var(--ink)}.end{text-anchor:end}.start{text-anchor:start}
.grid{stroke:var(--line)}.area{fill:var(--area)}.peak{stroke:var(--peak);stroke-width:1.5}.bar{fill:var(--bar)}
@media (max-width:560px){body{padding:10px;font-size:14px}.verdict{grid-template-columns:1fr;gap:.1rem;padding:.7rem}
dd{margin-bottom:.5rem}svg{font-size:15px}
table,tbody{display:block}thead{display:none}tr{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 .7rem;
border-bottom:1px solid var(--line);padding:.3rem 0}
td,.n{border:0;padding:0;min-width:0;max-width:100%;text-align:left;white-space:normal;overflow-wrap:anywhere}
td:last-child{min-width:0}td:empty{display:none}td[data-h]::before{content:attr(data-h) " ";color:var(--soft)}
.source tr{gap:0 .6rem}.source td:nth-last-child(2){order:-2;min-width:1.6rem;color:var(--soft)}
.source td:last-child{order:-1;flex:1 1 80%;white-space:pre-wrap}
.source td[data-h]{font-size:.8rem}pre{white-space:pre-wrap;overflow-wrap:anywhere}pre span{display:block}}
"""

# Sorts a table by the column whose head is clicked: amounts by value, other cells by text, empty ones last.
_SCRIPT: Final = """
const units={ns:1e-9,us:1e-6,ms:1e-3,KiB:2**10,MiB:2**20,GiB:2**30,TiB:2**40};
const amount=text=>{const m=/^([-+]?[\\d.,]+(?:e[-+]?\\d+)?)(?: (ns|us|ms|s|bytes|KiB|MiB|GiB|TiB|%))?$/.exec(text);
return m?parseFloat(m[1].replace(/,/g,""))*(units[m[2]]||1):NaN};
for(const table of document.querySelectorAll("table.sorts")){table.tHead.className="s";
[...table.tHead.rows[0].cells].forEach((head,k)=>head.onclick=()=>{
const value=row=>(row.cells[k]||{textContent:""}).textContent.trim();
const up=head.getAttribute("aria-sort")!=="descending";
const rows=[...table.tBodies[0].rows].sort((a,b)=>{const s=value(a),t=value(b);if(!s||!t)return!s-!t;
const x=amount(s),y=amount(t);
return(isNaN(x)||isNaN(y)?isNaN(x)-isNaN(y)||s.localeCompare(t,undefined,{numeric:true}):x-y)*(up?-1:1)});
for(const other of table.tHead.rows[0].cells)other.removeAttribute("aria-sort");
head.setAttribute("aria-sort",up?"descending":"ascending");table.tBodies[0].append(...rows)})}
"""
