"""Equations in messages: their text, their lines in the user's program, and the bodies that contain them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import final

from fxad.core.dataclasses import dataclass
from fxad.core.layout import OneOf
from fxad.errors import FxadError, TypecheckError, name_equation
from fxad.ir import Eqn, HigherOrder, Jaxpr, SourceLocation, source_location, source_text


@final
@dataclass(frozen=True, slots=True, eq=False)
class EqnOrigin:
    """The equation of the user's program from which an equation of another form of it was made.

    `inside` names the bodies that contain it, outermost first. `name` is the primitive of the equation in the other
    form, if it differs: the cosine of the derivative of a sine.
    """

    eqn: Eqn
    inside: tuple[str, ...] = ()
    name: str = ""


def describe(eqn: Eqn) -> str:
    """Return the equation in one line, for messages."""
    prim = eqn.prim
    name = (isinstance(prim, HigherOrder) and prim.layout.label) or prim.name
    return f"{', '.join(map(repr, eqn.outs))} = {name} {' '.join(map(repr, eqn.ins))}"


def locate(e: Exception, eqn: Eqn) -> None:
    """Name an equation and the user's line in an exception that a rule raised for the equation."""
    name_equation(e, describe(eqn), source_text(eqn.source))
    if isinstance(e, FxadError):
        e.path = (eqn, *e.path)


def check_counts(eqn: Eqn, rule: str, expected: int, **returned: int) -> None:
    """Raise TypecheckError if a rule of a primitive returned another number of values. `returned` are the numbers, by
    what the values are."""
    for what, n in returned.items():
        if n != expected:
            raise TypecheckError(
                f"{eqn.prim.name}: the rule `{rule}` returns {n} {what}, not {expected}",
                remedy="correct the rule; testing.check_primitive checks the rules of a primitive",
            )


def body_label(eqn: Eqn, body: Jaxpr) -> str:
    """Return the name of a body of an equation in messages: `call of f`, `branch 1 of cond`."""
    prim = eqn.prim
    assert isinstance(prim, HigherOrder), "an equation with bodies"
    layout = prim.layout
    branches = [branch.jaxpr for branch in layout.bodies if type(branch.runs) is OneOf]
    if body in branches:
        return f"branch {branches.index(body)} of {prim.name}"
    return f"{layout.label or prim.name} of {body.name}"


def bodies_around(e: FxadError) -> tuple[str, ...]:
    """Return the names of the bodies around the equation of an error, outermost first, as far as passes recurred into
    them."""
    path: Sequence[object] = e.path
    return tuple(
        [
            body_label(eqn, body)
            for eqn, inner in pairwise(path)
            if isinstance(eqn, Eqn) and isinstance(eqn.prim, HigherOrder)
            for body in [b for b in eqn.prim.bodies if inner in b.eqns][:1]
        ]
    )


def innermost(lines: Sequence[SourceLocation]) -> SourceLocation | None:
    """Return the line of the equation itself, of `lines_of` it and the equations around it; None if it has no line."""
    return lines[-1] if lines else None


def lines_of(eqns: Iterable[Eqn]) -> tuple[SourceLocation, ...]:
    """Return the user's lines of equations, each in a body of the one before: the outermost line first. Of adjacent
    equations on one line, the inner one counts.

    Equal bodies are one program, with the lines of the function that was traced first. So the line of an equation in a
    body may be that of an equal function. The lines around it tell two uses of that function apart.
    """
    lines: list[SourceLocation] = []
    for line in [source_location(e.source) for e in eqns]:
        if line is not None:
            same = bool(lines) and (lines[-1].file, lines[-1].line) == (line.file, line.line)
            lines[-1 if same else len(lines) :] = [line]
    return tuple(lines)
