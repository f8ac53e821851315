"""Marks of a budget of bytes: `with_budget` adds them, and `without_budgets` removes them from a program that is
compiled."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr
from fxad.primitives.marks import Budget, least_budget


@by_value
def with_budget(jaxpr: Jaxpr, limit: int) -> Jaxpr:
    """Return the program with marks on its results: the executable that it becomes part of, or that a derivative or a
    map of it becomes part of, has at most `limit` bytes of temporaries."""
    b = Builder.resume(jaxpr)
    return b.build([b.one(Budget(limit), a) for a in jaxpr.outs], jaxpr.name)


@by_value
def without_budgets(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without marks of a budget, also in bodies; the program itself if there are none."""
    if least_budget(jaxpr) is None:
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if isinstance(prim, Budget):
            return ins
        if isinstance(prim, HigherOrder) and any([least_budget(body) is not None for body in prim.bodies]):
            return b.copy(eqn, ins, prim.with_bodies(tuple(map(without_budgets, prim.bodies))))
        return None

    return rewrite(jaxpr, rule)
