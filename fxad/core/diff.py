"""The first difference of two programs, and the programs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple, final

from fxad.core import printing
from fxad.core.alignment import DiffLine, aligned
from fxad.core.dataclasses import dataclass
from fxad.ir import Eqn, Jaxpr, Param, Record, SourceLocation, jaxprs_in, params, source_location
from fxad.support.tables import LINES, cut, escaped, first_lines


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """A path to a difference of two programs, and the text of both sides.

    Prints as `equation 3 / body / equation 1 / operand 0: %2:f32[3] vs %1:f32[3]`. `line` is the user's line of the
    innermost equation of the first program. `operand` is the number of the operand of the program whose types differ.
    """

    path: tuple[str, ...]
    left: str
    right: str
    line: SourceLocation | None = field(default=None, compare=False)
    operand: int | None = field(default=None, compare=False)

    @property
    def where(self) -> str:
        """The user's line as text; empty if there is none."""
        return "" if self.line is None else str(self.line)

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
        more_lines = [escaped(line) for line in first_lines([""] * len(self.lines))[LINES:]]
        return f"<pre>{escaped(cut(str(self.first)))}\n" + "\n".join([*rows, *more_lines]) + "</pre>"


def side_by_side(a: Jaxpr, b: Jaxpr) -> Diff | None:
    """Return the difference of two programs; None exactly when `a is b`."""
    first = diff(a, b)
    return None if first is None else Diff(first, aligned(a, b))


class _Sides(NamedTuple):
    """A path, and its two sides: programs, which are compared next, or texts. `equation` is the number of the equation
    that differs, `operand` that of the operand of the program; None if it is something else."""

    path: tuple[str, ...]
    left: Jaxpr | str
    right: Jaxpr | str
    equation: int | None = None
    operand: int | None = None


def diff(a: Jaxpr, b: Jaxpr) -> Difference | None:
    """Return the first difference, in the order of the text: operands, equations (with their bodies), results.

    Law:  None exactly when `a is b`.
    Cost: linear in the size of the equal part before the difference.
    """
    path: tuple[str, ...] = ()
    line: SourceLocation | None = None
    while (difference := next(_differences(a, b), None)) is not None:
        operand = None if path else difference.operand  # of the whole program, not of a body
        path += difference.path
        if difference.equation is not None:
            line = source_location(a.eqns[difference.equation].source) or line
        if isinstance(difference.left, str) or isinstance(difference.right, str):
            return Difference(path, str(difference.left), str(difference.right), line, operand)
        a, b = difference.left, difference.right
    return None


def _differences(a: Jaxpr, b: Jaxpr) -> Iterator[_Sides]:
    """Yield all differences, in order."""
    for k, sides in _each("operand", list(map(str, a.in_avals)), list(map(str, b.in_avals))):
        yield sides._replace(operand=k)
    for i, (e, f) in enumerate(zip(a.eqns, b.eqns, strict=False)):
        for sides in _in_equation(e, f):
            yield sides._replace(path=(f"equation {i}", *sides.path), equation=i)
    if len(a.eqns) != len(b.eqns):
        yield _Sides(("equations",), str(len(a.eqns)), str(len(b.eqns)))
    for _, sides in _each("result", list(map(repr, a.outs)), list(map(repr, b.outs))):
        yield sides


def _in_equation(a: Eqn, b: Eqn) -> Iterator[_Sides]:
    if type(a.prim) is not type(b.prim):
        yield _Sides(("operation",), a.prim.name, b.prim.name)
        return
    if a.prim != b.prim:
        for (name, left), (_, right) in zip(params(a.prim), params(b.prim), strict=True):
            yield from _in_parameter((name,), left, right)
    for what, left_atoms, right_atoms in (("operand", a.ins, b.ins), ("result", a.outs, b.outs)):
        for _, sides in _each(what, list(map(repr, left_atoms)), list(map(repr, right_atoms))):
            yield sides


def _in_parameter(path: tuple[str, ...], a: Param, b: Param) -> Iterator[_Sides]:
    if a == b and type(a) is type(b):
        return
    if isinstance(a, Jaxpr) and isinstance(b, Jaxpr):
        yield _Sides(path, a, b)
    elif isinstance(a, Record) and type(a) is type(b):
        for (name, left), (_, right) in zip(params(a), params(b), strict=True):
            yield from _in_parameter((*path, name), left, right)
    elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and jaxprs_in(a):
        for k, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _in_parameter((*path, str(k)), left, right)
    else:
        yield _Sides(path, _shown(a), _shown(b))


def _shown(value: Param) -> str:
    return printing.parameter(value, printing.labels(jaxprs_in(value)))


def _each(what: str, a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int | None, _Sides]]:
    """Yield the differences of two lists of printed values, each with the number of the value; None: their lengths."""
    for k, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            yield k, _Sides((f"{what} {k}",), left, right)
    if len(a) != len(b):
        yield None, _Sides((f"{what}s",), str(len(a)), str(len(b)))
