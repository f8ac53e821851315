"""Second derivatives of programs that reconstruct values, if functions in them have custom derivatives.

A reconstruction inverts the function itself, so differentiating the reconstruction gives the derivative of the inverse
function. A custom derivative (a straight-through or a scaled one) differs from the derivative of the function. Then the
tangent of a reconstructed operand would differ from the tangent of the operand. In this case the reconstructing program
gets a custom derivative: that of the plain program, at the operands. The operands are residuals, which only this
derivative reads.

Example: f(x) = 2 x has the custom derivative 1 (straight through). If x moves by t, then y = f(x) moves by t, by this
rule. The reconstruction x = y / 2, differentiated, moves by t / 2. A gradient that reads the reconstructed x would get
this tangent in place of t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fxad.core.builder import Builder, rebind_operands, single_equation
from fxad.core.dce import dce
from fxad.core.flags import leading, select_by_flags
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Eqn, Flags, HigherOrder, Jaxpr, LinearizedBody, Primitive
from fxad.primitives.control.bodies import instantiate_linear_outs, instantiate_outs
from fxad.primitives.control.effects import without_effects
from fxad.primitives.custom import CallWithRules, has_derived_rules, rules_of
from fxad.primitives.custom_rules import Function, Rules
from fxad.primitives.elementwise.convert import StopGradient
from fxad.primitives.linear_call import LinearCall
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linear_as_whole import as_linear_call
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.inversion.call_rules import inverse_of_call

# The programs (forward, push, pull) of a `Derivative`.
ReverseRule: TypeAlias = tuple[Jaxpr, Jaxpr, Jaxpr]


def has_custom_derivatives(jaxpr: Jaxpr) -> bool:
    """Return True if a program, or a body in it, calls a function with a custom derivative.

    The rules that `invertible` makes do not count: they compute the derivative of the function.
    """
    return _contains(jaxpr, _has_custom_derivative)


def may_move_differently(eqn: Eqn) -> bool:
    """Return True if an equation has a custom derivative or a custom inverse. Then the tangents of the operands that
    its inverse reconstructs may differ from the tangents of the operands."""
    return _satisfies(eqn, _has_custom_inverse)


def _satisfies(eqn: Eqn, condition: Callable[[Primitive], bool]) -> bool:
    prim = eqn.prim
    if has_derived_rules(prim):
        return _contains(prim.body, condition)
    return condition(prim) or (
        isinstance(prim, HigherOrder) and any([_contains(body, condition) for body in prim.bodies])
    )


@by_value
def _contains(jaxpr: Jaxpr, condition: Callable[[Primitive], bool]) -> bool:
    return any([_satisfies(eqn, condition) for eqn in jaxpr.eqns])


def _has_custom_derivative(prim: Primitive) -> bool:
    return rules_of(prim).has_derivative


def _has_custom_inverse(prim: Primitive) -> bool:
    # the derivative of a linear call or of `stop_gradient` is stated, too: it need not be that of a function
    return (
        inverse_of_call(prim) is not None or _has_custom_derivative(prim) or isinstance(prim, LinearCall | StopGradient)
    )


def forward_rule(jaxpr: Jaxpr, perturbed: Flags, linearized: LinearizedBody) -> tuple[Jaxpr, Jaxpr]:
    """Return the rule (forward, push) of forward mode: the program linearized in the marked operands.

    If a function has a rule for tangents and a rule for cotangents, forward mode uses the rule for tangents. Then the
    operands are the residuals, and the compiler merges the equations that both programs compute.
    """
    inexact = tuple([a.inexact for a in jaxpr.out_avals])
    if not _contains(jaxpr, _has_both_rules):
        return linearized.primal, instantiate_linear_outs(linearized, inexact)
    n, ins = len(jaxpr.outs), jaxpr.in_avals
    fused, nonzero = jvp(without_effects(jaxpr), perturbed)
    b = Builder()
    tangents, primals = b.inputs(select_by_flags(ins, perturbed)), b.inputs(ins)
    out_tangents = b.inline(fused, [*primals, *tangents])[n:]
    push = dce(b.build(instantiate_outs(out_tangents, nonzero, jaxpr.out_avals, inexact), f"push_{jaxpr.name}"))
    return jaxpr.with_outs((*jaxpr.outs, *jaxpr.ins)), push


def _has_both_rules(prim: Primitive) -> bool:
    return bool(rules_of(prim).jvp and rules_of(prim).vjp)


def with_derivatives_of(jaxpr: Jaxpr, linearized: LinearizedBody, rule: ReverseRule) -> ReverseRule:
    """Return a rule with the values of `rule` and the derivatives of the linearized program.

    Rule: the operands are additional residuals, which only derivatives read. `drop_derivative_rules` removes them.
    """
    forward, push, pull = rule
    n, residuals = len(jaxpr.outs), forward.out_avals[len(jaxpr.outs) :]  # first the results, again
    inexact = tuple([a.inexact for a in jaxpr.out_avals])
    linear = instantiate_linear_outs(linearized, inexact)
    adjoint = transpose(linear, leading(linearized.n_tangents, len(linear.ins)))
    primal = without_effects(linearized.primal)
    push = _with_plain_derivative(push, _at_operands(linear, primal, n, residuals))
    pull = _with_plain_derivative(pull, _at_operands(adjoint, primal, n, residuals))
    return (
        _forward_with_operands(jaxpr, linearized, forward),
        as_linear_call(push, pull, linearized.n_tangents),
        as_linear_call(pull, push, sum(inexact)),
    )


def _forward_with_operands(jaxpr: Jaxpr, linearized: LinearizedBody, forward: Jaxpr) -> Jaxpr:
    """Return the forward program with the operands as further residuals. The tangents of its results, and of these
    results as residuals, are those of the linearized program."""
    n, ins = len(jaxpr.outs), jaxpr.in_avals
    b = Builder()
    operands = b.inputs(ins)
    values = b.inline(forward, operands)
    results = b(_differentiable_results(linearized, values[:n], ins), *values[:n], *operands)
    return b.build([*results, *results, *values[2 * n :], *operands], forward.name)


def _differentiable_results(linearized: LinearizedBody, outs: Sequence[Atom], ins: tuple[Aval, ...]) -> CallWithRules:
    """Return the identity (results, operands) -> results. Its tangents are those of the linearized program.

    As programs of results r and operands x, `identity` is (r, x) -> r, and `plain` is (r, x) -> f(x).
    """
    n, primal = len(outs), without_effects(linearized.primal)
    b = Builder()
    results, _ = b.inputs([a.aval for a in outs]), b.inputs(ins)
    identity = b.build(results, primal.name)
    every, operands = range(n + len(ins)), range(n, n + len(ins))
    f = primal.with_outs(primal.outs[:n])  # without residuals
    plain = rebind_operands(f, every, has=operands, types=dict(enumerate(identity.in_avals)))
    return _with_derivative_of(identity, plain)


def _at_operands(linear: Jaxpr, primal: Jaxpr, n: int, residuals: tuple[Aval, ...]) -> Jaxpr:
    """Return the program (tangents or cotangents, residuals, operands) -> results of a linear program.

    It does not read `residuals`, which are those of a reconstructing program. Those of the linear program, its last
    operands, are computed from the operands, by the primal program: operands -> `n` results, residuals.
    """
    n_residuals = len(primal.outs) - n
    b = Builder()
    lins = b.inputs(linear.in_avals[: len(linear.ins) - n_residuals])
    b.inputs(residuals)
    computed = b.inline(primal, b.inputs(primal.in_avals))[n:]
    return b.build(b.inline(linear, [*lins, *computed]), linear.name)


def _with_plain_derivative(program: Jaxpr, plain: Jaxpr) -> Jaxpr:
    """Return a program of (tangents or cotangents, residuals) with the operands as further operands, and with the
    derivatives of `plain`."""
    body = rebind_operands(program, range(len(plain.ins)), types=dict(enumerate(plain.in_avals)))
    prim = _with_derivative_of(body, plain)
    return single_equation(prim, plain.in_avals, program.name)


def _with_derivative_of(body: Jaxpr, plain: Jaxpr) -> CallWithRules:
    """Return a call of `body` with the derivatives of `plain`. `body` itself need not have derivatives."""
    return CallWithRules(Function(body, rules=Rules(derivative_of=plain)))
