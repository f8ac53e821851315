"""How messages of transformations name an equation."""

from __future__ import annotations

from fxad.ir import Eqn


def describe(eqn: Eqn) -> str:
    """The equation in one line, for messages."""
    return f"{', '.join(map(repr, eqn.outs))} = {eqn.prim.name} {' '.join(map(repr, eqn.ins))}"


def named_in(equation: str) -> str:
    """The name of the primitive in an equation described."""
    return (*equation.partition(" = ")[2].split(" "), "")[0]
