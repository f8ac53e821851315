"""A transformation applied to the bodies of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.flags import leading
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, subjaxprs
from fxad.primitives.linearity import is_linear


def map_bodies(jaxpr: Jaxpr, transform: Callable[[Jaxpr], Jaxpr]) -> Jaxpr:
    """Return the program with its bodies transformed, or the same program if no body changes.

    Some equations require a body that is a linear map. Such a body is left unchanged if its transformed form has
    nonlinear equations, because these cannot be transposed. For example, in a chain of products the same operand may be
    a known factor in one step and a tangent in another.
    """
    transformed = {body: transform(body) for body in subjaxprs(jaxpr)}
    if all([after is body for body, after in transformed.items()]):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        if not isinstance(eqn.prim, HigherOrder):
            return None
        return b.copy(eqn, ins, eqn.prim.with_bodies(_transformed(eqn.prim, transformed)))

    return rewrite(jaxpr, rule)


def _transformed(prim: HigherOrder, transformed: Mapping[Jaxpr, Jaxpr]) -> tuple[Jaxpr, ...]:
    bodies = [(body.jaxpr, transformed[body.jaxpr], body.linear) for body in prim.layout.bodies]
    return tuple(
        [body if _is_linear_map(body, n) and not _is_linear_map(after, n) else after for body, after, n in bodies]
    )


def _is_linear_map(body: Jaxpr, n: int) -> bool:
    """Return True if n > 0 and all equations are linear in the first `n` operands."""
    return n > 0 and is_linear(body, leading(n, len(body.ins)))
