"""Descriptions of equations for error messages."""

from __future__ import annotations

from fxad.core.layout import OneOf
from fxad.ir import Eqn, HigherOrder, Jaxpr


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
