"""Two programs side by side: their equations aligned, with a mark for each that only one of them has.

Equations are aligned in four rounds, each inside the gaps that the one before leaves: equations that compute the same
expression of the operands; equal operations with results of equal types; operations of one name; equal types of result.
An aligned pair is unchanged if the operations are equal and the operands correspond. So a changed equation is shown,
and those that read its result are not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final, Literal, TypeAlias, final

from fxad.core import printing
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Eqn, Jaxpr, Lit, distinct_jaxprs, jaxprs_in_params, source_text

LineMark: TypeAlias = Literal[" ", "-", "+"]
# The numbers of two aligned equations; None if there is no partner.
_LinePair: TypeAlias = tuple[int | None, int | None]

_CONTEXT: Final = 2  # unchanged equations that are shown before and after a change
_DEEPEST: Final = 40  # bodies in bodies that are written
_LARGEST_GAP: Final = 1 << 20  # the product of the lengths of two parts that repeat keys; longer ones are not aligned


@final
@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff: "-" for the first program, "+" for the second, " " for both. `depth` counts the bodies around
    it; `where` is the line of the user."""

    mark: LineMark
    text: str
    where: str = ""
    depth: int = 0

    def __str__(self) -> str:
        text = f"{self.mark} {'  ' * self.depth}{self.text}"
        return f"{text}  # {self.where}" if self.where else text.rstrip()


def aligned(a: Jaxpr, b: Jaxpr) -> tuple[DiffLine, ...]:
    """Return the lines of a diff of two programs; none if they are equal. Bodies that differ stand below their
    equation, each pair of bodies once.

    Cost: near linear in the equations, for programs that share most of them.
    """
    if a is b:
        return ()
    writer = _Writer({**printing.labels(distinct_jaxprs(a)), **printing.labels(distinct_jaxprs(b))})
    writer.write(a, b, 0)
    return tuple(writer.lines)


@final
class _Writer:
    """Writes the lines of a diff. `written` are the pairs of bodies that have their lines."""

    __slots__ = ("lines", "names", "written")

    def __init__(self, names: printing.Labels) -> None:
        self.names = names
        self.lines: list[DiffLine] = []
        self.written: set[tuple[Jaxpr, Jaxpr]] = set()

    def write(self, a: Jaxpr, b: Jaxpr, depth: int) -> None:
        """Write the lines of two programs that differ, with those of their bodies."""
        if a.in_avals != b.in_avals:
            self._both("operands", a.in_avals, b.in_avals, depth)
        partner: dict[Atom, Atom] = dict(zip(a.ins, b.ins, strict=False))  # of values of the first, those of the second

        def correspond(left: Sequence[Atom], right: Sequence[Atom]) -> bool:
            return [x if isinstance(x, Lit) else partner.get(x) for x in left] == [*right]

        unchanged: list[DiffLine] = []
        begun = False
        for i, j in _align(a.eqns, b.eqns):
            e, f = None if i is None else a.eqns[i], None if j is None else b.eqns[j]
            if e is not None and f is not None:
                same = e.prim == f.prim and correspond(e.ins, f.ins)
                partner.update(zip(e.outs, f.outs, strict=False))
                if same:
                    unchanged.append(DiffLine(" ", printing.equation(f, self.names), "", depth))
                    continue
            self._context(unchanged, depth, _CONTEXT if begun else 0, _CONTEXT)
            begun = True
            self._equation("-", e, depth)
            self._equation("+", f, depth)
            if e is not None and f is not None:
                self._bodies(e, f, depth + 1)
        same_results = correspond(a.outs, b.outs)
        self._context(unchanged, depth, _CONTEXT if begun else 0, 0 if same_results else _CONTEXT)
        if not same_results:
            self._both("return", a.outs, b.outs, depth)

    def _both(self, what: str, a: Sequence[object], b: Sequence[object], depth: int) -> None:
        self.lines.append(DiffLine("-", f"{what} {', '.join(map(str, a))}", "", depth))
        self.lines.append(DiffLine("+", f"{what} {', '.join(map(str, b))}", "", depth))

    def _equation(self, mark: LineMark, eqn: Eqn | None, depth: int) -> None:
        if eqn is not None:
            self.lines.append(DiffLine(mark, printing.equation(eqn, self.names), source_text(eqn.source), depth))

    def _context(self, unchanged: list[DiffLine], depth: int, head: int, tail: int) -> None:
        """Write unchanged equations: `head` after the last change, `tail` before the next, and the number of the
        others."""
        left_out = len(unchanged) - head - tail
        if left_out > 1:
            counted = DiffLine(" ", f"... {left_out} equal equations", "", depth)
            unchanged[head : head + left_out] = [counted]
        self.lines += unchanged
        unchanged.clear()

    def _bodies(self, a: Eqn, b: Eqn, depth: int) -> None:
        """Write the bodies of two equations that differ."""
        if type(a.prim) is not type(b.prim):
            return
        bodies_a, bodies_b = [jaxprs_in_params(e.prim) for e in (a, b)]
        for left, right in zip(bodies_a, bodies_b, strict=False):
            if left is not right and (left, right) not in self.written:
                self.written.add((left, right))
                self.lines.append(DiffLine(" ", f"in {self.names[left]}:", "", depth))
                if depth < _DEEPEST:
                    self.write(left, right, depth + 1)
                else:
                    self.lines.append(DiffLine(" ", "...", "", depth + 1))


# ----------------------------------------------------------------------------------------------------------- alignment


def _align(a: Sequence[Eqn], b: Sequence[Eqn]) -> list[_LinePair]:
    """Return the pairs of two lists of equations, in an order that keeps that of both lists."""
    pairs = _pairs(_expressions(a), _expressions(b), (0, len(a)), (0, len(b)))
    for key in _WEAKER_KEYS:
        pairs += _pairs_in_gaps([key(e) for e in a], [key(e) for e in b], sorted(pairs))
    return _with_unpaired(sorted(pairs), len(a), len(b))


_WEAKER_KEYS: Final[tuple[Callable[[Eqn], Hashable], ...]] = (
    lambda e: (e.prim, *[v.aval for v in e.outs]),
    lambda e: e.prim.name,
    lambda e: tuple([v.aval for v in e.outs]),
)


def _expressions(eqns: Sequence[Eqn]) -> list[Hashable]:
    """Return a key for each equation: the hash of its expression over operands of the program, and how often it has
    occurred.

    Hashes of variables that no equation here computes are those of their positions, so they agree in two programs.
    """
    computed: dict[Atom, int] = {}
    counts: dict[int, int] = {}
    keys: list[Hashable] = []
    for eqn in eqns:
        key = hash((eqn.prim, *[x if isinstance(x, Lit) else computed.get(x, hash(x)) for x in eqn.ins]))
        counts[key] = counts.get(key, -1) + 1
        for k, v in enumerate(eqn.outs):
            computed[v] = hash((key, counts[key] if eqn.prim.effects else 0, k))
        keys.append((key, counts[key]))
    return keys


def _pairs(
    a: Sequence[Hashable], b: Sequence[Hashable], range_a: tuple[int, int], range_b: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the positions of a long common subsequence of two parts of lists: what they begin and end with, and
    between that, unless it is too long, the blocks of difflib."""
    (i, m), (j, n) = range_a, range_b
    pairs: list[tuple[int, int]] = []
    while i < m and j < n and a[i] == b[j]:
        pairs.append((i, j))
        i, j = i + 1, j + 1
    while i < m and j < n and a[m - 1] == b[n - 1]:
        m, n = m - 1, n - 1
        pairs.append((m, n))
    left, right = a[i:m], b[j:n]
    if left and right and (len(left) * len(right) <= _LARGEST_GAP or len({*right}) == len(right)):
        blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
        pairs += [(i + block.a + k, j + block.b + k) for block in blocks for k in range(block.size)]
    return pairs


def _pairs_in_gaps(a: Sequence[Hashable], b: Sequence[Hashable], pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs between consecutive `pairs`."""
    ends = [(-1, -1), *pairs, (len(a), len(b))]
    return [pair for (i, j), (m, n) in pairwise(ends) for pair in _pairs(a, b, (i + 1, m), (j + 1, n))]


def _with_unpaired(pairs: list[tuple[int, int]], n_a: int, n_b: int) -> list[_LinePair]:
    out: list[_LinePair] = []
    i = j = 0
    for m, n in [*pairs, (n_a, n_b)]:
        out += [(k, None) for k in range(i, m)]
        out += [(None, k) for k in range(j, n)]
        if m < n_a or n < n_b:
            out.append((m, n))
        i, j = m + 1, n + 1
    return out
