"""Programs without their effects or checks, and programs whose checks are for examples that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fxad.core.builder import Builder, renamed, rewrite
from fxad.core.layout import Constant
from fxad.core.liveness import over
from fxad.core.memo import by_value
from fxad.dtypes import bool_
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Primitive
from fxad.primitives.checking import Check, checking, checks
from fxad.primitives.elementwise import AND
from fxad.primitives.shape import spread

LIVE: Final = Aval((), bool_)
_NEW: Final = -1  # the further operand of `with_guard`, among the places of operands

# ------------------------------------------------------------------------------------------------------- without them


@by_value
def silent(jaxpr: Jaxpr) -> Jaxpr:
    """The same results without effects: for a program that is applied once more, to find out something about it.

    What an effect gave and a result needs is still asked for: there is no result without it.
    """
    if not jaxpr.effects:
        return jaxpr
    live: set[Atom] = set(jaxpr.outs)
    kept: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        if not live.isdisjoint(eqn.outs):
            kept.append(silenced(eqn))
            live.update(eqn.ins)
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    b.extend(reversed(kept), env)
    return b.build(renamed(jaxpr.outs, env), jaxpr.name)


@by_value
def unchecked(jaxpr: Jaxpr) -> Jaxpr:
    """The same results without checks: for a program applied to what its user did not give, such as unit vectors."""
    return rewrite(jaxpr, _unchecked) if checks(jaxpr) else jaxpr


def _unchecked(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
    prim = eqn.prim
    if isinstance(prim, Check):
        return ins[1 + prim.n_fields :]
    if isinstance(prim, HigherOrder) and checking(prim):
        return b(prim.with_bodies(tuple([unchecked(body) for body in prim.bodies])), *ins)
    return None


def quiet(eqn: Eqn) -> Eqn:
    """The equation with bodies that are silent and check nothing. What its rules do is theirs."""
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not (prim.effects or checking(prim)):
        return eqn
    return _in_running_bodies(eqn, prim, lambda jaxpr: unchecked(silent(jaxpr)))


def silenced(eqn: Eqn) -> Eqn:
    """The equation with bodies that are silent. What the rules of one do is not done where it stands."""
    prim = eqn.prim
    return _in_running_bodies(eqn, prim, silent) if isinstance(prim, HigherOrder) and prim.effects else eqn


def _in_running_bodies(eqn: Eqn, prim: HigherOrder, change: Callable[[Jaxpr], Jaxpr]) -> Eqn:
    running = prim.layout.running
    bodies = [change(body) if k in running else body for k, body in enumerate(prim.bodies)]
    return Eqn(prim.with_bodies(tuple(bodies)), eqn.ins, eqn.outs, eqn.source)


# ---------------------------------------------------------------------------------------- checks behind a condition

# Under vmap a branch runs for examples that did not choose it, and a step for examples that have stopped. What it
# computes for them is dropped; what it checks must not be reported.


@by_value
def guarded(jaxpr: Jaxpr) -> Jaxpr | None:
    """(whether the example is there, operands) -> results, where checks fail for an example that is there only; None
    where a check stands in a body that takes no further operand."""
    b = Builder()
    live = b.input(LIVE)
    possible = True

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        nonlocal possible
        prim = eqn.prim
        if isinstance(prim, Check):
            return b(prim, b.one(AND, ins[0], spread(b, live, prim.sizes, ())), *ins[1:])
        if isinstance(prim, HigherOrder) and checking(prim):
            inner = with_guard(prim)
            if inner is not None:
                wider, at = inner
                return b(wider, *ins[:at], live, *ins[at:])
            possible = False
        return None

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build(outs, jaxpr.name) if possible else None


def with_guard(prim: HigherOrder) -> tuple[Primitive, int] | None:
    """The equation with one operand more, and its place: a bool, whether what its bodies check is to be reported.

    It is a constant of the bodies that check something. None where these do not take the same constants, or programs
    of rules take them too.
    """
    layout = prim.layout
    groups = {layout.group_of(k, Constant) for k in layout.running if checks(layout.bodies[k].jaxpr)}
    if len(groups) != 1 or layout.has_rules:
        return None
    (group,) = groups
    if group is None:
        return None
    operands = [list(layout.operands_of(g)) for g in range(len(layout.operands))]
    operands[group].insert(0, _NEW)
    bodies = []
    for k, body in enumerate(layout.bodies):
        takes, jaxpr = layout.takes(k), body.jaxpr
        if checks(jaxpr):
            guard = guarded(jaxpr)
            if guard is None:
                return None
            jaxpr, takes = guard, (_NEW, *takes)
        bodies.append(over(jaxpr, takes, body.operands, operands, types={_NEW: LIVE}))
    sizes = tuple([g.size for g in layout.results])
    return prim.rebuild(tuple(bodies), tuple(map(len, operands)), sizes), layout.operands_of(group).start
