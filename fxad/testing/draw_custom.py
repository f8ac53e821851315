"""Draws applications of functions with custom rules: correct rules of each kind, for one function."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.flags import leading
from fxad.ir import Atom, Aval, Jaxpr, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.control.bodies import instantiate_outs
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import BatchRule, Derivative, Function, Refusal, Rules
from fxad.primitives.elementwise.family import FLOAT32_OR_64
from fxad.primitives.linear_call import LinearCall, has_adjoint
from fxad.primitives.named_calls import NamedCall
from fxad.testing.applications import Spec, Specs, dtype_of
from fxad.testing.values import ORDINARY, Domain, shapes
from fxad.transforms import linearize, transpose
from fxad.transforms.vmap import vmap

_COUNT: Final = Aval((), dtypes.int32)


def _linear_call(draw: st.DrawFn, smooth: bool) -> Spec:
    """Return (x, y; c) -> (x * sin(c) - y, one of them, or zero)."""
    dtype = dtypes.float64 if smooth else draw(st.sampled_from([dtypes.float64, dtypes.complex128]))
    aval = Aval(draw(shapes(2)), dtype)
    b = Builder()
    x, y, c = b.inputs((aval, aval, aval))
    first = b.one(ew.SUB, b.one(ew.MUL, x, b.one(ew.SIN, c)), y)
    seconds: list[Atom] = [x, y, Lit.of(0, aval)]
    body = b.build((first, draw(st.sampled_from(seconds))), "map")
    adjoint = transpose(body, (True, True, False))
    return LinearCall(body, adjoint, 2), [(aval, ORDINARY)] * 3


def _call_with_rules(draw: st.DrawFn, smooth: bool) -> Spec:
    """Draw (c; x, y, n) -> (sin(x) * y, x, n). c is captured, and no rule of derivatives reads it."""
    aval = Aval(draw(shapes(2)), dtype_of(draw, FLOAT32_OR_64, smooth))
    body = _function_body(aval)
    forward, push = _derivative(aval)
    pull, of_first = transpose(push, leading(2, len(push.ins))), push.with_outs(push.outs[:1])
    alone = Derivative(
        (False, True, True, False),
        forward,
        of_first,
        transpose(of_first, leading(2, len(push.ins))),
        (True, False, True),
    )
    kinds = draw(st.lists(st.sampled_from(["jvp", "plain", "vjp", "vmap"]), unique=True, max_size=3))
    plain = forward.with_outs(forward.outs[: len(body.outs)])
    stacked, _ = vmap(body, 2, (None, 0, 0, 0), (0, 0, 0))
    moving = (False, True, True, False)
    raised = not kinds and draw(st.booleans())
    rules = Rules(
        jvp=(Derivative(moving, forward, push),) if "jvp" in kinds else (_RAISED,) if raised else (),
        vjp=(alone, Derivative(moving, forward, push, pull)) if "vjp" in kinds else (),
        batch=(BatchRule(2, stacked),) if "vmap" in kinds else (),
        derivative_of=plain if "plain" in kinds and not {"jvp", "vjp"} & {*kinds} else None,
    )
    return CallWithRules(Function(body, 1, rules)), [(aval, ORDINARY)] * 3 + [(_COUNT, Domain(whole=(-1, 3)))]


def _named_call(draw: st.DrawFn, smooth: bool) -> Spec:
    """Return (c; x, y, n), as in `_call_with_rules`: alone, a named call is the plain function."""
    aval = Aval(draw(shapes(2)), dtype_of(draw, FLOAT32_OR_64, smooth))
    return NamedCall(_function_body(aval), 0), [(aval, ORDINARY)] * 3 + [(_COUNT, Domain(whole=(-1, 3)))]


_RAISED: Final = Refusal((False, True, True, False), "the rule of f raised an error", "use another")


def _function_body(aval: Aval) -> Jaxpr:
    b = Builder()
    c, x, y, n = b.inputs((aval, aval, aval, _COUNT))
    same = b.one(ew.SUB, b.one(ew.ADD, x, b.one(ew.COS, c)), b.one(ew.COS, c))
    return b.build((b.one(ew.MUL, b.one(ew.SIN, same), y), same, n), "f")


def _derivative(aval: Aval) -> tuple[Jaxpr, Jaxpr]:
    b = Builder()
    _, x, y, n = b.inputs((aval, aval, aval, _COUNT))
    sin = b.one(ew.SIN, x)
    outs: tuple[Atom, ...] = (b.one(ew.MUL, sin, y), x, n)
    forward = b.build((*outs, sin, b.one(ew.MUL, b.one(ew.COS, x), y)), "forward")
    b = Builder()
    dx, dy, of_y, of_x = b.inputs((aval,) * 4)
    return forward, b.build((b.one(ew.ADD, b.one(ew.MUL, dx, of_x), b.one(ew.MUL, dy, of_y)), dx), "push")


def call_with_rule(body: Jaxpr, kind: str, *, again: bool = False) -> CallWithRules:
    """Return a call of a program with a rule: its own derivative, for tangents ("jvp") or cotangents ("vjp"). Tangents
    of a loop without a bound have no transpose, so a body with such a loop gets the rule for tangents.

    `again`: the residuals are the operands, and the maps of the rule recompute the values that they read."""
    moving, inexact = [tuple([a.inexact for a in avals]) for avals in (body.in_avals, body.out_avals)]
    split = linearize(body, moving)
    forward, n = split.primal, len(body.outs)
    b = Builder()
    directions = b.inputs([v.aval for v in split.linear.ins[: sum(moving)]])
    if again:
        known = b.inline(forward, b.inputs(body.in_avals))[n:]
        forward = Jaxpr(body.ins, body.eqns, (*body.outs, *body.ins), "forward")
    else:
        known = b.inputs(forward.out_avals[n:])
    push = b.build(
        instantiate_outs(b.inline(split.linear, [*directions, *known]), split.out_nonzero, body.out_avals, inexact),
        "push",
    )
    if kind == "jvp" or not has_adjoint(push):
        return CallWithRules(Function(body, rules=Rules(jvp=(Derivative(moving, forward, push),))))
    pull = transpose(push, leading(len(directions), len(push.ins)))
    return CallWithRules(Function(body, rules=Rules(vjp=(Derivative(moving, forward, push, pull),))))


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {CallWithRules: _call_with_rules, NamedCall: _named_call, LinearCall: _linear_call}
)
