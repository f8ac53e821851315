"""The equations of a program, numbered, with the user's line of each, the number of its runs, and its readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final, overload

from fxad.core import printing
from fxad.core.dataclasses import dataclass
from fxad.core.layout import InParallel, Times, Unknown, UpTo
from fxad.ir import (
    Atom,
    Aval,
    Eqn,
    HigherOrder,
    Jaxpr,
    Primitive,
    SourceLocation,
    Var,
    distinct_jaxprs,
    source_locations,
)
from fxad.primitives.control.remat import Remat
from fxad.primitives.marks import Keep, Mark
from fxad.transforms.costs import number_of_runs

_LONGEST: Final = 160  # greatest number of characters of an equation in a table
_AGAIN: Final = "again_"  # the names of programs that compute values of a `remat` again have this


@final
@dataclass(frozen=True, slots=True, eq=False)
class ExplainedEquation:
    """An equation of a body. `line` is that of the equation, or of the nearest one that has a line: one that computes
    an operand, one that reads the result, or the call of the body. `runs` counts the runs in one call of the program,
    `again` those among them that compute a value again, in a recomputation. `in_loop` is the line of the innermost loop
    around it. `unbounded`: it is in a loop whose runs are not known, and which counts as one run. `text` is the
    equation as in program text.
    """

    number: int
    body: Jaxpr
    eqn: Eqn
    line: SourceLocation | None
    runs: int
    again: int
    in_loop: SourceLocation | None
    unbounded: bool
    text: str


@final
class Equations(Sequence[ExplainedEquation]):
    """All equations of some programs, each distinct body once, the outermost first."""

    __slots__ = ("_alike", "_by_line", "_by_name", "_policies", "_producers", "_rows", "_runs", "bodies", "labels")

    def __init__(self, programs: Sequence[tuple[Jaxpr, int]]) -> None:
        """Number the equations of programs, each of which runs a number of times."""
        bodies = _bodies([p for p, _ in programs])
        self.bodies = tuple(bodies)
        self.labels = printing.labels(bodies[::-1])
        walk = self._runs = _Runs(bodies, programs)
        self._rows: list[ExplainedEquation] = []
        self._by_line: dict[tuple[str, str, int], list[ExplainedEquation]] = {}
        self._alike: dict[tuple[str, str, int], dict[tuple[Aval, ...], list[ExplainedEquation]]] = {}
        self._by_name: dict[tuple[str, str], list[ExplainedEquation]] = {}
        self._producers: dict[tuple[Jaxpr, Atom], ExplainedEquation] = {}
        self._policies: dict[Jaxpr, dict[Atom, str]] = {}
        for body in bodies:
            for eqn, line in zip(body.eqns, walk.lines[body], strict=True):
                self._add(body, eqn, line, walk)

    def _add(self, body: Jaxpr, eqn: Eqn, line: SourceLocation | None, walk: _Runs) -> None:
        text = printing.equation(eqn, self.labels)
        row = ExplainedEquation(
            len(self._rows),
            body,
            eqn,
            line,
            walk.runs[body],
            walk.again[body],
            walk.in_loop.get(body),
            body in walk.unbounded,
            text,
        )
        self._rows.append(row)
        self._producers.update(dict.fromkeys([(body, v) for v in eqn.outs], row))
        self._by_name.setdefault((body.name, eqn.prim.name), []).append(row)
        if line is not None:
            self._by_line.setdefault((eqn.prim.name, line.file, line.line), []).append(row)

    @overload
    def __getitem__(self, k: int) -> ExplainedEquation: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[ExplainedEquation]: ...
    def __getitem__(self, k: int | slice) -> ExplainedEquation | Sequence[ExplainedEquation]:
        return self._rows[k]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ExplainedEquation]:
        return iter(self._rows)

    def producer(self, body: Jaxpr, value: Atom) -> ExplainedEquation | None:
        """Return the equation that computes a value of a body; None for an operand and a literal."""
        return self._producers.get((body, value))

    def policy_of(self, e: ExplainedEquation) -> str:
        """Return the policy of `remat` that keeps a result of an equation; empty if there is none."""
        if e.body not in self._policies:
            self._policies[e.body] = _policies(e.body)
        kept = self._policies[e.body]
        return next((kept[v] for v in e.eqn.outs if v in kept), "")

    def callers(self, e: ExplainedEquation) -> Mapping[SourceLocation, float]:
        """Return the lines that call the function, or the body, of the line of an equation, each with its share of the
        runs; without the line itself."""
        if e.line is None:
            return {}
        if e.line.callers:
            return {e.line.callers[0]: 1.0}
        sites = self._runs.sites.get(e.body, {})
        total = sum(sites.values())
        return {line: n / total for line, n in sites.items() if n and line != e.line}

    def lines_on_the_way(self, e: ExplainedEquation) -> Mapping[SourceLocation, float]:
        """Return all lines on the way to an equation, its own included, each with the share of the runs that pass
        it."""
        own = () if e.line is None else (e.line, *e.line.callers)
        return {**self._runs.ways[e.body], **dict.fromkeys(own, 1.0)}

    def alike(self, e: ExplainedEquation) -> Sequence[ExplainedEquation]:
        """Return the equations of a line with one primitive and one type, which XLA's names do not tell apart."""
        if e.line is None:
            return (e,)
        key = e.eqn.prim.name, e.line.file, e.line.line
        if key not in self._alike:
            groups = self._alike[key] = {}
            for x in self._by_line[key]:
                groups.setdefault(tuple([v.aval for v in x.eqn.outs]), []).append(x)
        return self._alike[key][tuple([v.aval for v in e.eqn.outs])]

    def find(self, operation: str, line: SourceLocation | None, kind: str) -> ExplainedEquation | None:
        """Return the equation that an operation of XLA comes from: `operation` is the path of functions and the
        primitive, `kind` the type of the result."""
        *functions, prim = operation.split("/")
        found: Sequence[ExplainedEquation] = ()
        if line is not None:
            found = self._by_line.get((prim, line.file, line.line), ())
        if not found and functions:
            found = self._by_name.get((functions[-1], prim), ())
        return next((e for e in found if kind in [str(v.aval) for v in e.eqn.outs]), found[0] if found else None)


def recomputes(prim: Primitive) -> bool:
    """Return True for an equation that computes values again, for the derivative. In a loop, it is not opaque."""
    return isinstance(prim, Remat) and (prim.opaque or _AGAIN in prim.body.name)


def shortened(text: str) -> str:
    """Return the text of an equation for a table."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def _bodies(programs: Sequence[Jaxpr]) -> list[Jaxpr]:
    """Return the distinct bodies of programs, each before the bodies that it runs."""
    # Bodies that are first seen in a later program are not run by an earlier one, so the reverse order is right.
    return list(dict.fromkeys([b for p in programs for b in distinct_jaxprs(p)]))[::-1]


def _policies(body: Jaxpr) -> dict[Atom, str]:
    """Return, for the values of a body that a policy keeps, also through other marks, the first such policy."""
    kept: dict[Atom, str] = {}
    for eqn in reversed(body.eqns):
        if isinstance(eqn.prim, Mark):
            of_results = next((kept[v] for v in eqn.outs if v in kept), "")
            if by := f"policy {eqn.prim.by}" if isinstance(eqn.prim, Keep) else of_results:
                kept.update(dict.fromkeys(eqn.ins, by))
    return kept


@final
class _Runs:
    """How often bodies run, and the lines of their equations. `sites` are the lines that call a body, each with the
    runs that it causes; `ways` all lines on the way to it, each with the share of the runs that pass it."""

    __slots__ = ("again", "in_loop", "lines", "runs", "sites", "unbounded", "ways")

    def __init__(self, bodies: Sequence[Jaxpr], programs: Sequence[tuple[Jaxpr, int]]) -> None:
        self.runs = dict.fromkeys(bodies, 0)
        self.again = dict.fromkeys(bodies, 0)
        self.in_loop: dict[Jaxpr, SourceLocation | None] = {}
        self.unbounded: set[Jaxpr] = set()
        self.lines: dict[Jaxpr, list[SourceLocation | None]] = {}
        self.sites: dict[Jaxpr, dict[SourceLocation, float]] = {}
        self.ways: dict[Jaxpr, dict[SourceLocation, float]] = {body: {} for body in bodies}
        callers: dict[Jaxpr, SourceLocation | None] = {}
        for program, n in programs:
            self.runs[program] += n
        for body in bodies:
            ways, runs = self.ways[body], self.runs[body]
            for at in ways:
                ways[at] /= max(1, runs)
            lines = self.lines[body] = _lines(body, callers.get(body))
            for eqn, line in zip(body.eqns, lines, strict=True):
                if isinstance(eqn.prim, HigherOrder):
                    self._enter(body, eqn.prim, line)
                    for inner in eqn.prim.bodies:
                        callers[inner] = callers.get(inner) or line

    def _enter(self, body: Jaxpr, prim: HigherOrder, line: SourceLocation | None) -> None:
        """Count the runs of the bodies of an equation."""
        layout = prim.layout
        again = recomputes(prim)
        for k in layout.running:
            inner, runs = layout.bodies[k].jaxpr, layout.bodies[k].runs
            n = number_of_runs(runs)
            if inner not in self.runs:
                continue
            self.runs[inner] += n * self.runs[body]
            self.again[inner] += n * (self.runs[body] if again else self.again[body])
            self._note_way(body, inner, line, n * self.runs[body])
            loops = isinstance(runs, Times | UpTo | Unknown | InParallel) or n > 1
            if isinstance(runs, Unknown) or body in self.unbounded:
                self.unbounded.add(inner)
            if loops or body in self.in_loop:
                self.in_loop.setdefault(inner, line if loops else self.in_loop[body])

    def _note_way(self, body: Jaxpr, inner: Jaxpr, line: SourceLocation | None, runs: int) -> None:
        """Note that runs of a body pass a line of the body around it, and the lines on the way to that."""
        own = () if line is None else (line, *line.callers)
        for at in own[:1]:
            sites = self.sites.setdefault(inner, {})
            sites[at] = sites.get(at, 0) + runs
        passed = {**self.ways[body], **dict.fromkeys(own, 1.0)}
        ways = self.ways[inner]
        for at, share in passed.items():
            ways[at] = ways.get(at, 0.0) + share * runs


def _lines(body: Jaxpr, caller: SourceLocation | None) -> list[SourceLocation | None]:
    """Return the line of each equation; of one without a line that of the nearest one."""
    lines = source_locations([e.source for e in body.eqns])
    if None not in lines:
        return lines
    of: dict[Atom, SourceLocation | None] = {}
    for k, eqn in enumerate(body.eqns):
        if lines[k] is None:
            lines[k] = next((line for a in eqn.ins if isinstance(a, Var) and (line := of.get(a))), None)
        of.update(dict.fromkeys(eqn.outs, lines[k]))
    readers: dict[Atom, SourceLocation | None] = {}
    for k in reversed(range(len(lines))):
        eqn = body.eqns[k]
        if lines[k] is None:
            lines[k] = next((line for v in eqn.outs if (line := readers.get(v))), caller)
        readers.update(dict.fromkeys(eqn.ins, lines[k]))
    return lines
