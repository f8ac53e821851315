"""Normal form for inversion: no dead equations, no duplicate equations.

`normal_form` also changes the bodies. `shallow_normal_form` leaves bodies as they are, and gives the original equation
of each value, for messages: a program that is not inverted is solved once more in this form.

Both do two more things, for the sake of choices:

- `y = call[softplus] x; z = select_n m, x, y` becomes `y = ...` with the equations of softplus. Only some elements of y
  are known from z. Elementwise equations are inverted for these elements, a call is not.
- `s = stop_gradient x; z = select_n m, s, x` becomes x. All cases have the same value. A batched `cond` writes such
  choices, so that a branch that is not taken has no derivative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fxad.core.builder import Builder, rewrite, substitute
from fxad.core.dce import dce, live_eqns
from fxad.ir import Atom, Atoms, Eqn, Jaxpr, Primitive, Var
from fxad.primitives.barrier import OPTIMIZATION_BARRIER
from fxad.primitives.check import Check, has_check
from fxad.primitives.control.call import callee
from fxad.primitives.control.effects import eqn_without_effects_and_checks
from fxad.primitives.elementwise.convert import StopGradient
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.select import SelectN
from fxad.transforms.cleanup.cse import cse
from fxad.transforms.locate import EqnOrigin, body_label

POINTWISE: Final[tuple[type[Primitive], ...]] = (Unary, Binary, Compare, SelectN)
NO_ORIGINS: Final[Mapping[Atom, EqnOrigin]] = MappingProxyType({})


def backward_form(jaxpr: Jaxpr, located: bool) -> tuple[Jaxpr, Mapping[Atom, EqnOrigin]]:
    """Returns the form of a program that is run backwards: its normal form, without effects and checks.

    If `located`, bodies stay as they are, and the origins of all values in the program are returned too.
    """
    normal, origins = shallow_normal_form(jaxpr) if located else (normal_form(jaxpr), NO_ORIGINS)
    return without_effects_and_checks(normal), origins


def normal_form(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program without dead and duplicate equations, and with elementwise calls inlined where a choice reads
    them.

    Rule: a call of an elementwise function whose result a choice reads is inlined. Only the chosen elements of its
          result are known, so it is inverted for these elements. A choice between a value and itself, which a batched
          `cond` makes for its derivatives, is the value.
    """
    return cse(dce(_with_choices_inlined(_without_equal_choices(jaxpr))))


def _without_equal_choices(jaxpr: Jaxpr) -> Jaxpr:
    stopped = _stopped(jaxpr.eqns)
    if not any([_is_equal_choice(e, e.ins, stopped) for e in jaxpr.eqns]):
        return jaxpr
    return rewrite(jaxpr, lambda _, e, ins: ins[2:] if _is_equal_choice(e, e.ins, stopped) else None)


def _stopped(eqns: Sequence[Eqn]) -> dict[Atom, Atom]:
    """Returns the operand of each `stop_gradient`, by its result."""
    return {e.outs[0]: e.ins[0] for e in eqns if isinstance(e.prim, StopGradient)}


def _is_equal_choice(eqn: Eqn, ins: Sequence[Atom], stopped: Mapping[Atom, Atom]) -> bool:
    return isinstance(eqn.prim, SelectN) and len(ins) == 3 and stopped.get(ins[1]) == ins[2]


def without_effects_and_checks(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program, in the same variables, without effects and checks. It is not run but inverted.

    The effects and checks occurred in the forward run. A check of a reconstruction could fail because of a rounding
    error.
    """
    if not jaxpr.effects and not has_check(jaxpr):
        return jaxpr
    eqns = []
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, Check):
            eqns.append(Eqn(OPTIMIZATION_BARRIER, eqn.ins[1 + eqn.prim.n_fields :], eqn.outs, eqn.source))
        elif eqn.outs:
            eqns.append(eqn_without_effects_and_checks(eqn))
    return Jaxpr(jaxpr.ins, tuple(eqns), jaxpr.outs, jaxpr.name)


def _with_choices_inlined(jaxpr: Jaxpr) -> Jaxpr:
    selected = {a for e in jaxpr.eqns if isinstance(e.prim, SelectN) for a in e.ins[1:]}
    if not selected or not any([_inlined_body(e, selected) for e in jaxpr.eqns]):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        body = _inlined_body(eqn, selected)
        return None if body is None else b.inline(body, ins)

    return rewrite(jaxpr, rule)


def _inlined_body(eqn: Eqn, selected: set[Atom]) -> Jaxpr | None:
    """Returns the body of a call of an elementwise function whose result a choice reads; None for other equations."""
    body = None if selected.isdisjoint(eqn.outs) else callee(eqn)
    elementwise = body is not None and all([isinstance(prim, POINTWISE) for prim in body.prims])
    return body if elementwise else None


# ------------------------------------------------------------------------------------------------- origins of equations


def shallow_normal_form(jaxpr: Jaxpr) -> tuple[Jaxpr, dict[Atom, EqnOrigin]]:
    """Returns the normal form of the equations of a program, but not of its bodies, and the origin of each value.

    It does not use `dce` and `cse`. They change bodies too, and do not say from which equation a new equation was made.

    Example: `z = exp x * w + exp x * w` is computed by two equal products. The normal form has one of them, and refuses
    `add %1 %1`. The origin of this equation is `add %1 %3`, which the user wrote.
    """
    live = live_eqns(jaxpr.eqns, jaxpr.outs, effects=True)
    selected = {a for e in live if isinstance(e.prim, SelectN) for a in e.ins[1:]}
    stopped = _stopped(live)
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    seen: dict[tuple[Primitive, Atoms], tuple[Var, ...]] = {}
    origins: dict[Atom, EqnOrigin] = {}

    def add(eqn: Eqn, ins: Atoms, origin: EqnOrigin) -> tuple[Var, ...]:
        outs = None if eqn.prim.effects else seen.get((eqn.prim, ins))
        if outs is None:
            outs = seen[eqn.prim, ins] = b.copy(eqn, ins)
            origins.update(dict.fromkeys(outs, origin))
        return outs

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        if _is_equal_choice(eqn, eqn.ins, stopped):
            return ins[2:]
        body = _inlined_body(eqn, selected)
        if body is None:
            return add(eqn, ins, EqnOrigin(eqn))
        label = body_label(eqn, body)
        return b.inline(body, ins, lambda _, e, operands: add(e, operands, EqnOrigin(e, (label,))))

    b.extend(live, env, rule)
    return b.build(substitute(jaxpr.outs, env), jaxpr.name), origins
