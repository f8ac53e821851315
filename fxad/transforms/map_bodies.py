"""A transformation of the bodies of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fxad.core.builder import Builder, rewrite
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, carried
from fxad.primitives.linearity import is_linear


def inside(jaxpr: Jaxpr, transform: Callable[[Jaxpr], Jaxpr]) -> Jaxpr:
    """The program with its bodies transformed; the program itself when that changes none.

    A body that an equation takes for a linear map stays as it is where equations of the transformed one are not linear
    any more, as that cannot be transposed: a chain of products has known factors and a tangent in one place.
    """
    made = {body: transform(body) for body in carried(jaxpr)}
    if all([after is body for body, after in made.items()]):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        prim = eqn.prim
        return b.copy(eqn, ins, prim.with_bodies(_transformed(prim, made))) if isinstance(prim, HigherOrder) else None

    return rewrite(jaxpr, rule)


def _transformed(prim: HigherOrder, made: Mapping[Jaxpr, Jaxpr]) -> tuple[Jaxpr, ...]:
    bodies = [(body.jaxpr, made[body.jaxpr], body.linear) for body in prim.layout.bodies]
    return tuple([body if _is_map(body, n) and not _is_map(after, n) else after for body, after, n in bodies])


def _is_map(body: Jaxpr, n: int) -> bool:
    """Whether all its equations are linear in the first `n` operands, if any."""
    return n > 0 and is_linear(body, (True,) * n + (False,) * (len(body.ins) - n))
