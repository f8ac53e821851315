"""Rules that are linear as a whole: they apply a loop without a bound or a host function to tangents or cotangents.

No equation of such a rule need be linear, so its linearity cannot be checked, and is assumed. `linear_rule` uses these
functions, in this order, where it cannot linearize a rule:

    reaches_unchecked_eqn  tells if a rule is such a rule, or has an error
    split_by_dependence    splits a jvp rule into a primal and a linear program, in place of `linearize`
    as_linear_call         stores the linear program as one equation, with its transpose

The transpose is computed by `transpose_by_unit_vectors`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, single_equation, subprogram
from fxad.core.dce import dce, dependent_values
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, Flags, HigherOrder, Jaxpr, Lit, Primitive, Var, all_prims, jaxprs_in_params
from fxad.primitives.control.call import Call
from fxad.primitives.control.effects import eqn_without_effects
from fxad.primitives.host_call import HostCall
from fxad.primitives.linear_call import LinearCall


def reaches_unchecked_eqn(jaxpr: Jaxpr, flags: Flags) -> bool:
    """Return True if a loop without a bound or a host function takes a value that depends on the marked operands."""
    dependent = dependent_values(jaxpr.eqns, select_by_flags(jaxpr.ins, flags))
    return any([_is_unchecked(e.prim) for e in jaxpr.eqns if not dependent.isdisjoint(e.ins)])


def _is_unchecked(prim: Primitive) -> bool:
    """Return True for a loop without a bound, for a host call, and for an equation with one of them in a body."""
    inner = [p for body in jaxprs_in_params(prim) for p in all_prims(body)]
    return any([isinstance(p, HostCall) or (isinstance(p, HigherOrder) and p.layout.unbounded) for p in (prim, *inner)])


@by_value
def split_by_dependence(rule: Jaxpr, n_out: int, n_tangents: int) -> tuple[Jaxpr, Jaxpr]:
    """Split a rule (operands, then `n_tangents` tangents) -> (`n_out` results, then tangents of results) in two.

    forward: operands -> results, then residuals. push: (tangents, residuals) -> tangents of results. The results do not
    depend on the tangents. `push` has the equations that depend on the tangents. For example,

        rule(x, x_dot)   = let c = cos(x), y = sin(x), y_dot = host_call(c * x_dot) in (y, y_dot)
        forward(x)       = (sin(x), cos(x))
        push(x_dot, c)   = host_call(c * x_dot)

    An equation that computes results and tangents together is in both programs; in `forward`, its tangents are zero
    and it has no effects.

    `partial_eval` differs in two points: it puts an equation that computes both into the second program alone, and an
    effect that follows an effect of the second program too. Here `forward` has all results, and all effects that the
    tangents do not reach.
    """
    n_in = len(rule.ins) - n_tangents
    flat = _inline_nonlinear_calls(dce(rule), (False,) * n_in + (True,) * n_tangents)
    tangents, out_tangents = flat.ins[n_in:], flat.outs[n_out:]
    dependent = dependent_values(flat.eqns, tangents)
    push_eqns = [eqn for eqn in flat.eqns if not dependent.isdisjoint(eqn.ins)]
    read = dict.fromkeys([*[a for eqn in push_eqns for a in eqn.ins], *out_tangents])
    residuals = [a for a in read if isinstance(a, Var) and a not in dependent]
    push = subprogram(push_eqns, (*tangents, *residuals), out_tangents, f"push_{rule.name}")
    return _at_zero_tangents(flat, dependent, (*flat.outs[:n_out], *residuals), n_in), push


def _inline_nonlinear_calls(jaxpr: Jaxpr, flags: Flags) -> Jaxpr:
    """Inline the calls that take values which depend on the marked operands, and that are not linear in them."""
    b = Builder.like(jaxpr)
    dependent: set[Atom] = set(select_by_flags(jaxpr.ins, flags))

    def marks_of(ins: tuple[Atom, ...]) -> Flags:
        return tuple([a in dependent for a in ins])

    def body_to_inline(eqn: Eqn, ins: tuple[Atom, ...]) -> Jaxpr | None:
        marks = marks_of(ins)
        # only a plain call can be inlined
        return eqn.prim.body if any(marks) and isinstance(eqn.prim, Call) and not eqn.prim.linear_in(marks) else None

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        outs = b.copy(eqn, ins)
        dependent.update(outs if any(marks_of(ins)) else ())
        return outs

    return b.build(b.inline_calls(jaxpr, jaxpr.ins, body_to_inline, rule), jaxpr.name)


def _at_zero_tangents(flat: Jaxpr, dependent: set[Atom], outs: tuple[Atom, ...], n_in: int) -> Jaxpr:
    """Return the program first `n_in` operands -> `outs`, with zeros for the other operands, the tangents. `dependent`
    are the values that depend on the tangents."""
    live: set[Atom] = set(outs)
    live_eqns: list[Eqn] = []
    for eqn in reversed(flat.eqns):
        takes_tangents = not dependent.isdisjoint(eqn.ins)
        if not live.isdisjoint(eqn.outs) or (eqn.prim.effects and not takes_tangents):
            live_eqns.append(eqn_without_effects(eqn) if takes_tangents else eqn)
            live.update(eqn.ins)
    with_tangents = subprogram(reversed(live_eqns), flat.ins, outs, flat.name)
    b = Builder()
    args: list[Atom] = [*b.inputs(flat.in_avals[:n_in]), *[Lit.zero(a) for a in flat.in_avals[n_in:]]]
    return dce(b.build(b.inline(with_tangents, args), flat.name))


def as_linear_call(body: Jaxpr, adjoint: Jaxpr, n: int) -> Jaxpr:
    """Return a program of one `linear_call`: a map that is linear in its first `n` operands, with its transpose. The
    body itself if it has no such operands."""
    if n == 0:
        return body
    return single_equation(LinearCall(body, adjoint, n), body.in_avals, body.name)
