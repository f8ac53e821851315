"""Programs without effects or checks, programs that report checks only under a condition, and what may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.core.builder import Builder, rewrite, subprogram
from fxad.core.dce import live_eqns
from fxad.core.layout import Constant
from fxad.core.memo import by_value
from fxad.ir import BOOL_SCALAR, Atom, Atoms, Eqn, HigherOrder, Jaxpr, Primitive, all_prims
from fxad.primitives.check import Check, has_check, prim_calls_host, prim_has_check
from fxad.primitives.control.bodies import with_operands
from fxad.primitives.elementwise.logic import AND
from fxad.primitives.shape import emit_broadcast

# ----------------------------------------------------------------------------------------- without effects or checks


@by_value
def without_effects(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without effects. Used where a program is applied a second time, for analysis.

    An effect whose value a result needs is kept.
    """
    if not jaxpr.effects:
        return jaxpr
    kept = live_eqns(jaxpr.eqns, jaxpr.outs, effects=False)
    return subprogram(map(eqn_without_effects, kept), jaxpr.ins, jaxpr.outs, jaxpr.name)


@by_value
def without_checks(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without checks. Used where a program is applied to values that the user did not give, such as
    unit vectors."""
    return rewrite(jaxpr, _drop_checks) if has_check(jaxpr) else jaxpr


def _drop_checks(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
    prim = eqn.prim
    if isinstance(prim, Check):
        return ins[1 + prim.n_fields :]
    if isinstance(prim, HigherOrder) and prim_has_check(prim):
        return b(prim.with_bodies(tuple([without_checks(body) for body in prim.bodies])), *ins)
    return None


def eqn_without_effects_and_checks(eqn: Eqn) -> Eqn:
    """Return the equation with bodies that have no effects and no checks. The bodies of its rules are unchanged."""
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not (prim.effects or prim_has_check(prim)):
        return eqn
    return _in_running_bodies(eqn, prim, lambda jaxpr: without_checks(without_effects(jaxpr)))


def eqn_without_effects(eqn: Eqn) -> Eqn:
    """Return the equation with bodies that have no effects. The effects of its rules are not removed: they do not
    happen at this equation."""
    prim = eqn.prim
    return _in_running_bodies(eqn, prim, without_effects) if isinstance(prim, HigherOrder) and prim.effects else eqn


def _in_running_bodies(eqn: Eqn, prim: HigherOrder, change: Callable[[Jaxpr], Jaxpr]) -> Eqn:
    running = prim.layout.running
    bodies = [change(body) if k in running else body for k, body in enumerate(prim.bodies)]
    return Eqn(prim.with_bodies(tuple(bodies)), eqn.ins, eqn.outs, eqn.source)


# ---------------------------------------------------------------------------------------- checks behind a condition

# Under vmap a branch runs for examples that did not choose it, and a step runs for examples that have stopped. Their
# results are dropped, and failed checks of theirs must not be reported.


@by_value
def guard_checks(jaxpr: Jaxpr) -> Jaxpr | None:
    """Return the program (active, operands) -> results, in which checks fail only where `active` is true. Return None
    if a check is in a body that cannot take a further operand."""
    b = Builder()
    active = b.input(BOOL_SCALAR)
    possible = True

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        nonlocal possible
        prim = eqn.prim
        if isinstance(prim, Check):
            return b(prim, b.one(AND, ins[0], emit_broadcast(b, active, prim.sizes, ())), *ins[1:])
        if isinstance(prim, HigherOrder) and prim_has_check(prim):
            inner = guard_checks_in_bodies(prim)
            if inner is not None:
                guarded, place = inner
                return b(guarded, *ins[:place], active, *ins[place:])
            possible = False
        return None

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build(outs, jaxpr.name) if possible else None


def guard_checks_in_bodies(prim: HigherOrder) -> tuple[Primitive, int] | None:
    """Return the equation with one more operand, and the place of that operand: a bool that enables the checks in its
    bodies.

    The operand is a constant of the bodies that have checks. Return None if these bodies do not take the same
    constants, or if rules also take them.
    """
    layout = prim.layout
    groups = {layout.growable_group(k, Constant) for k in layout.running if has_check(layout.bodies[k].jaxpr)}
    if len(groups) != 1 or layout.has_rules:
        return None
    (group,) = groups
    if group is None:
        return None
    new_groups, active = layout.operand_groups, layout.n_operands
    new_groups[group].insert(0, active)
    guarded_bodies = {}
    for k, body in enumerate(layout.bodies):
        if has_check(body.jaxpr):
            guard = guard_checks(body.jaxpr)
            if guard is None:
                return None
            guarded_bodies[k] = guard, (active, *layout.operand_indices(k))
    return with_operands(prim, new_groups, {active: BOOL_SCALAR}, guarded_bodies), layout.operands_of(group).start


# ----------------------------------------------------------------------------------------------------- what may fail


def may_fail(prim: Primitive) -> bool:
    """Return True if an operation may fail or may not terminate on arbitrary operands. Passes do not compute such an
    operation where nothing needs its results."""
    if not isinstance(prim, HigherOrder):
        return prim_calls_host(prim)
    inner = {p for body in prim.bodies for p in all_prims(body)}
    carriers = [p for p in (prim, *inner) if isinstance(p, HigherOrder)]
    return prim_calls_host(prim) or any([p.layout.has_predicate for p in carriers])


def prim_may_not_end(prim: Primitive) -> bool:
    """Return True if an operation is, or has in a body, a loop whose number of steps has no bound."""
    if not isinstance(prim, HigherOrder):
        return False
    inner = {p for body in prim.bodies for p in all_prims(body)}
    return any([p.layout.unbounded for p in (prim, *inner) if isinstance(p, HigherOrder)])
