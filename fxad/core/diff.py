"""The first difference of two programs, and the programs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TypeAlias, final

from fxad.core import printing
from fxad.core.alignment import DiffLine, aligned, programs_in
from fxad.core.dataclasses import dataclass
from fxad.ir import Eqn, Jaxpr, Param, Record, params, source_text
from fxad.support.tables import LINES, cut, escaped, first_lines


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """A path to a difference of two programs, and the text of both sides.

    Prints as `equation 3 / body / equation 1 / operand 0: %2:f32[3] vs %1:f32[3]`.
    """

    path: tuple[str, ...]
    left: str
    right: str
    where: str = field(default="", compare=False)  # the user's line of the innermost equation of the first program

    def __str__(self) -> str:
        return f"{' / '.join(self.path)}: {self.left} vs {self.right}"


@final
@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two programs.

    It prints as the path of the first difference, and the equations of both side by side, with the lines of the user:
    "-" before those of the first program, "+" before those of the second, " " before those of both.

    `first` is the first difference, in the order of the text. `lines` are empty if only the trees of arguments or
    results differ.
    """

    first: Difference
    lines: tuple[DiffLine, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.first), *map(str, self.lines)])

    def _repr_html_(self) -> str:
        colors = {"-": "#d64f45", "+": "#27925a", " ": "inherit"}  # on white and on black
        shown = [(colors[line.mark], escaped(cut(str(line)))) for line in self.lines[:LINES]]
        rows = [f'<span style="color:{color}">{text}</span>' for color, text in shown]
        more = [escaped(line) for line in first_lines([""] * len(self.lines))[LINES:]]
        return f"<pre>{escaped(cut(str(self.first)))}\n" + "\n".join([*rows, *more]) + "</pre>"


def side_by_side(a: Jaxpr, b: Jaxpr) -> Diff | None:
    """Return the difference of two programs; None exactly when `a is b`."""
    first = diff(a, b)
    return None if first is None else Diff(first, aligned(a, b))


# A path, and its two sides: programs, which are compared next, or texts.
_Sides: TypeAlias = tuple[tuple[str, ...], Jaxpr | str, Jaxpr | str]


def diff(a: Jaxpr, b: Jaxpr) -> Difference | None:
    """Return the first difference, in the order of the text: operands, equations (with their bodies), results.

    Law:  None exactly when `a is b`.
    Cost: linear in the size of the equal part before the difference.
    """
    path: tuple[str, ...] = ()
    where = ""
    while (difference := next(_differences(a, b), None)) is not None:
        steps, left, right = difference
        path += steps
        kind, _, number = steps[0].partition(" ")
        if kind == "equation":
            where = source_text(a.eqns[int(number)].source) or where
        if isinstance(left, str) or isinstance(right, str):
            return Difference(path, str(left), str(right), where)
        a, b = left, right
    return None


def _differences(a: Jaxpr, b: Jaxpr) -> Iterator[_Sides]:
    """Yield all differences, in order."""
    yield from _each("operand", list(map(str, a.in_avals)), list(map(str, b.in_avals)))
    for i, (e, f) in enumerate(zip(a.eqns, b.eqns, strict=False)):
        for steps, left, right in _in_equation(e, f):
            yield (f"equation {i}", *steps), left, right
    if len(a.eqns) != len(b.eqns):
        yield ("equations",), str(len(a.eqns)), str(len(b.eqns))
    yield from _each("result", list(map(repr, a.outs)), list(map(repr, b.outs)))


def _in_equation(a: Eqn, b: Eqn) -> Iterator[_Sides]:
    if type(a.prim) is not type(b.prim):
        yield ("operation",), a.prim.name, b.prim.name
        return
    if a.prim != b.prim:
        for (name, left), (_, right) in zip(params(a.prim), params(b.prim), strict=True):
            yield from _in_parameter((name,), left, right)
    yield from _each("operand", list(map(repr, a.ins)), list(map(repr, b.ins)))
    yield from _each("result", list(map(repr, a.outs)), list(map(repr, b.outs)))


def _in_parameter(path: tuple[str, ...], a: Param, b: Param) -> Iterator[_Sides]:
    if a == b and type(a) is type(b):
        return
    if isinstance(a, Jaxpr) and isinstance(b, Jaxpr):
        yield path, a, b
    elif isinstance(a, Record) and type(a) is type(b):
        for (name, left), (_, right) in zip(params(a), params(b), strict=True):
            yield from _in_parameter((*path, name), left, right)
    elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and programs_in(a):
        for k, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _in_parameter((*path, str(k)), left, right)
    else:
        yield path, _shown(a), _shown(b)


def _shown(value: Param) -> str:
    return printing.parameter(value, printing.labels(programs_in(value)))


def _each(what: str, a: Sequence[str], b: Sequence[str]) -> Iterator[_Sides]:
    """Return differences of two lists of printed values."""
    for k, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            yield (f"{what} {k}",), left, right
    if len(a) != len(b):
        yield (f"{what}s",), str(len(a)), str(len(b))
