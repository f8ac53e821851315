"""Descriptions of equations for error messages."""

from __future__ import annotations

from collections.abc import Iterable

from fxad.core.layout import OneOf
from fxad.ir import Eqn, HigherOrder, Jaxpr, SourceLocation, source_location


def describe(eqn: Eqn) -> str:
    """Returns the equation in one line, for messages."""
    return f"{', '.join(map(repr, eqn.outs))} = {eqn.prim.name} {' '.join(map(repr, eqn.ins))}"


def primitive_name_in(equation: str) -> str:
    """Returns the name of the primitive in a description that `describe` returned."""
    return (*equation.partition(" = ")[2].split(" "), "")[0]


def body_label(eqn: Eqn, body: Jaxpr) -> str:
    """Returns the name of a body of an equation in messages: `call of f`, `branch 1 of cond`."""
    prim = eqn.prim
    assert isinstance(prim, HigherOrder), "an equation with bodies"
    layout = prim.layout
    branches = [own.jaxpr for own in layout.bodies if type(own.runs) is OneOf]
    if body in branches:
        return f"branch {branches.index(body)} of {prim.name}"
    return f"{layout.label or prim.name} of {body.name}"


def lines_of(eqns: Iterable[Eqn]) -> tuple[SourceLocation, ...]:
    """Returns the user's lines of equations, each in a body of the one before: the outermost line first. Of adjacent
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
