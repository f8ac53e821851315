"""Normal form for inversion: no dead equations, no duplicate equations, and choices whose cases can be inverted.

There are two such forms. `backward_form` returns one of them, also without effects and checks.

- `normal_form` is the form that `inverse` and `invertible` solve. The passes `dce` and `cse` make it, also in bodies.
  They do not record from which equation of the program an equation was made.
- `located_normal_form` is for error messages only. If a program is not inverted, it is solved once more in this form,
  which has the original equation of each value (`EqnOrigin`). It leaves bodies unchanged, so an error in a body names
  an equation of this body too. It is not the form of inverse programs, which would compute the dead and the duplicate
  equations of these bodies.

Both change the cases of choices: `y = call[softplus] x; z = select_n m, x, y` becomes `y = ...` with the equations of
softplus. Only some elements of y are known from z. Elementwise equations are inverted for these elements, and a call is
not.

Both have the derivatives of the program: it is this form that is linearized.
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
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.select import SelectN
from fxad.transforms.cleanup.cse import cse
from fxad.transforms.locate import EqnOrigin, body_label

POINTWISE: Final[tuple[type[Primitive], ...]] = (Unary, Binary, Compare, SelectN)
NO_ORIGINS: Final[Mapping[Atom, EqnOrigin]] = MappingProxyType({})


def backward_form(jaxpr: Jaxpr, located: bool) -> tuple[Jaxpr, Mapping[Atom, EqnOrigin]]:
    """Return the form of a program that is run backwards, without effects and checks, and the origins of its values.

    This is the normal form, without origins. If `located`, it is the located normal form.
    """
    normal, origins = located_normal_form(jaxpr) if located else (normal_form(jaxpr), NO_ORIGINS)
    return _without_effects_and_checks(normal), origins


def normal_form(jaxpr: Jaxpr) -> Jaxpr:
    """Return the normal form of a program. Its bodies have no dead and no duplicate equations either."""
    return cse(dce(_with_cases_inlined(jaxpr)))


def _with_cases_inlined(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with the equations of elementwise functions in place of the calls that a choice reads."""
    cases = _cases_of_choices(jaxpr.eqns)
    if not cases or not any([_inlined_body(e, cases) for e in jaxpr.eqns]):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        body = _inlined_body(eqn, cases)
        return None if body is None else b.inline(body, ins)

    return rewrite(jaxpr, rule)


def _cases_of_choices(eqns: Sequence[Eqn]) -> set[Atom]:
    return {a for e in eqns if isinstance(e.prim, SelectN) for a in e.ins[1:]}


def _inlined_body(eqn: Eqn, cases: set[Atom]) -> Jaxpr | None:
    """Return the body of a call of an elementwise function with a result in `cases`; None for other equations."""
    body = None if cases.isdisjoint(eqn.outs) else callee(eqn)
    elementwise = body is not None and all([isinstance(prim, POINTWISE) for prim in body.prims])
    return body if elementwise else None


def _without_effects_and_checks(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program, in the same variables, without effects and checks. It is not run but inverted.

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


# ------------------------------------------------------------------------------------------------- origins of equations


def located_normal_form(jaxpr: Jaxpr) -> tuple[Jaxpr, dict[Atom, EqnOrigin]]:
    """Return the normal form of a program, with unchanged bodies, and the origin of each value.

    Example: `z = exp x * w + exp x * w` is computed by two equal products. The normal form has one of them, and refuses
    `add %1 %1`. The origin of this equation is `add %1 %3`, which the user wrote.
    """
    live = live_eqns(jaxpr.eqns, jaxpr.outs, effects=True)
    cases = _cases_of_choices(live)
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    results: dict[tuple[Primitive, Atoms], tuple[Var, ...]] = {}
    origins: dict[Atom, EqnOrigin] = {}

    def add(eqn: Eqn, ins: Atoms, origin: EqnOrigin) -> tuple[Var, ...]:
        outs = None if eqn.prim.effects else results.get((eqn.prim, ins))
        if outs is None:
            outs = results[eqn.prim, ins] = b.copy(eqn, ins)
            origins.update(dict.fromkeys(outs, origin))
        return outs

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        body = _inlined_body(eqn, cases)
        if body is None:
            return add(eqn, ins, EqnOrigin(eqn))
        label = body_label(eqn, body)
        return b.inline(body, ins, lambda _, e, operands: add(e, operands, EqnOrigin(e, (label,))))

    b.extend(live, env, rule)
    return b.build(substitute(jaxpr.outs, env), jaxpr.name), origins
