"""Inlining: calls are replaced by their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.errors import ParameterError
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit
from fxad.primitives.control.call import callee
from fxad.transforms.start_indices import static_starts

MAX_EQUATIONS: Final = 1 << 22  # the largest number of equations of a program with its calls inlined: some GB


@by_value
def inlined_length(jaxpr: Jaxpr) -> int:
    """Return the number of equations of a program with its calls inlined."""
    return sum([1 if body is None else inlined_length(body) for body in map(callee, jaxpr.eqns)])


@by_value
def inline(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without `call` equations, at any depth. Bodies of other higher-order primitives are inlined
    too.

    `remat` is not inlined, because that would lose its effect on memory. If a call passes a literal as the start of a
    slice, the literal becomes a parameter: `x[i]` of the body at i = 3 is `x[3]`.

    Law:    same value; idempotent; no `call` is left; undoes `outline`, except for the order of equations.
    Raises: ParameterError for a program that would have more than `MAX_EQUATIONS` equations.
    Cost:   the number of equations counted with multiplicity.
    """
    if not any([isinstance(prim, HigherOrder) for prim in jaxpr.prims]):
        return jaxpr
    length = inlined_length(jaxpr)
    if length > MAX_EQUATIONS:
        raise ParameterError(
            f"inline: {jaxpr.name} has {length:,} equations with its calls opened, more than {MAX_EQUATIONS:,}",
            remedy="leave the calls: every transformation looks at a body once, however often it is called",
        )

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        prim = eqn.prim
        if isinstance(prim, HigherOrder):
            return b(prim.with_bodies(tuple([inline(body) for body in prim.bodies])), *ins)
        if any([isinstance(a, Lit) and a is not was for a, was in zip(ins, eqn.ins, strict=True)]):
            prim, ins = static_starts(prim, ins)  # a start index that is now a literal becomes a parameter
            eqn = Eqn(prim, ins, eqn.outs, eqn.source)
        return b.copy(eqn, ins)

    b = Builder.like(jaxpr)
    return b.build(b.inline_calls(jaxpr, jaxpr.ins, lambda eqn, _: callee(eqn), rule), jaxpr.name)
