"""Reordering of a program's operands."""

from __future__ import annotations

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Jaxpr


@by_value
def reorder_operands(jaxpr: Jaxpr, order: tuple[int, ...]) -> Jaxpr:
    """Returns the program with reordered operands: operand k of the result is operand `order[k]` of `jaxpr`."""
    if order == tuple(range(len(order))):
        return jaxpr
    b = Builder()
    env = {k: b.input(jaxpr.ins[k].aval) for k in order}
    return b.build(b.inline(jaxpr, [env[k] for k in range(len(jaxpr.ins))]), jaxpr.name)
