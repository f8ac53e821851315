"""Users' rules for tangents and cotangents: checks that they are linear, and splits them into linear programs.

    entry point       called for                    takes                            returns
    ----------------  ----------------------------  -------------------------------  ---------------------------------
    split_tangents    `custom_jvp`                  (x, x_dot) -> (y, y_dot)         forward: x -> (y, residuals)
                                                                                     push: (x_dot, residuals) -> y_dot
    cotangent_maps    `custom_vjp`,                 bwd: (y_bar, residuals)          push: (x_dot, residuals) -> y_dot
                      `custom_inverse`                   -> x_bar                    pull: bwd in linear form
                      `lax.linear_call`             (x, residuals) -> y              push: its transpose
    linear_form       `lax.custom_linear_solve`,    (x, residuals) -> y              the same map in linear form
                      `lax.cg`, `lax.gmres`, ...
    refuse_nonlinear  `lax.linear_call`, with a     (x, residuals) -> y              None
                      transpose

The callers are `fxad/api/custom/traced_rules.py`, `fxad/lax/linear.py` and `fxad/lax/implicit/maps.py`. All four raise
NotLinearError if the equations show that a map is not linear.

A program is in linear form if every equation that depends on the linear operands is linear in them. A rule that is
linear may have other equations: a `jit` of the user may compute `sin(x)` and `cos(x) * x_dot` in one call. `linearize`
separates the two, because it computes a linear program. So these functions linearize a rule that is not in linear form,
if none of its equations is a nonlinear operation on tangents. A loop without a bound and a host function cannot be
linearized: see `linear_as_whole`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.core.builder import Builder, single_equation
from fxad.core.dce import dce, read_operands, remove_dead_eqns
from fxad.core.flags import leading, select_by_flags
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError, NotLinearError
from fxad.ir import Atom, Eqn, Flags, HigherOrder, Jaxpr, LinearizedBody, Lit, source_text
from fxad.primitives.control.bodies import instantiate_outs
from fxad.primitives.control.call import Call
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.custom import CallWithRules
from fxad.primitives.host_call import HostCall
from fxad.primitives.linear_call import has_adjoint
from fxad.primitives.linearity import is_linear, is_linear_eqn, vanishes, zero_mask, zero_results
from fxad.primitives.named_calls import NamedCall
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linear_as_whole import as_linear_call, reaches_unchecked_eqn, split_by_dependence
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.ad.transpose_by_basis import transpose_by_unit_vectors
from fxad.transforms.locate import describe


@by_value
def split_tangents(rule: Jaxpr, n_out: int, n_tangents: int, what: str) -> tuple[Jaxpr, Jaxpr]:
    """Split a rule (operands, then `n_tangents` tangents) -> (`n_out` results, then tangents of results) in two.

    forward: operands -> results, then residuals. push: (tangents, residuals) -> tangents of results. Effects that the
    rule applies to tangents are in `push`, so they occur when tangents are pushed forward.

    Raises: NotLinearError that names the equation, when the result tangents are not linear in the tangents, or the
            results depend on the tangents.
    """
    n_in = len(rule.ins) - n_tangents
    flags = (False,) * n_in + (True,) * n_tangents
    for k, out in enumerate(rule.outs[:n_out]):
        if any(read_operands(dce(without_effects(rule.with_outs([out]))))[n_in:]):
            raise NotLinearError(
                f"{what}: result {k} depends on the tangents",
                remedy="return (results, tangents of the results), in this order",
            )
    live_rule = dce(rule)
    linearized: LinearizedBody | None = None
    try:
        linearized = _linearize_rule(live_rule, flags, n_out, f"{what} is not linear in the tangents")
    except (NotLinearError, NotDifferentiableError):
        if not reaches_unchecked_eqn(live_rule, flags):
            raise
    # no adjoint: the rule applies a loop without a bound or a host function to the tangents, as one `linear_call`
    if linearized is None or not has_adjoint(linearized.linear):
        forward, push = split_by_dependence(live_rule, n_out, n_tangents)
        _, linear_push = cotangent_maps(push, n_tangents, what, "the tangents")
        return forward, linear_push
    linear = linearized.linear
    tangents = _instantiate_tangents(linearized, linear.outs, rule)[n_out:]
    return linearized.primal, Jaxpr(linear.ins, linear.eqns, tuple(tangents), f"push_{rule.name}")


@by_value
def cotangent_maps(rule: Jaxpr, n: int, what: str, of: str = "the cotangents") -> tuple[Jaxpr, Jaxpr]:
    """Return the pair (push, pull) of a rule (`n` cotangents, then residuals) -> cotangents of operands.

    pull: the rule in linear form. It has the effects and checks of the rule.
    push: its transpose, (tangents of operands, then residuals) -> tangents, without effects and checks.

    If the rule applies a loop without a bound or a host function to the cotangents, its linearity cannot be checked and
    is assumed. Then `pull` is one `linear_call` of the whole rule, and `push` applies it to unit vectors.

    Raises: NotLinearError that names the equation, when the rule is not linear in the cotangents. Its message is that
            `what` is not linear in `of`.
    """
    live_rule, problem = dce(rule), f"{what} is not linear in {of}"
    pure, flags = dce(without_effects(live_rule)), leading(n, len(rule.ins))
    if not is_linear(pure, flags):  # checks of cotangents are not part of the map
        pure = dce(without_checks(pure))
    try:
        pull = linear_form(pure, n, problem)
        push = dce(transpose(pull, flags))
    except (NotLinearError, NotDifferentiableError):
        if not reaches_unchecked_eqn(pure, flags):
            raise
        _check_linear_results(pure, flags, problem)
        push = transpose_by_unit_vectors(pure, n)
        return push, as_linear_call(live_rule, push, n)
    return push, pull if pure is live_rule else as_linear_call(live_rule, push, n)


def _check_linear_results(rule: Jaxpr, flags: Flags, problem: str) -> None:
    """Check the results that do not depend on a loop without a bound or a host function. Raises: NotLinearError if the
    equations of one show that it is not linear."""
    for k in range(len(rule.outs)):
        one_result = dce(rule.with_outs(rule.outs[k : k + 1]))
        if not reaches_unchecked_eqn(one_result, flags):
            linear_form(one_result, sum(flags), problem)


@by_value
def linear_form(rule: Jaxpr, n: int, problem: str) -> Jaxpr:
    """Return the same map in linear form: every equation that depends on the first `n` operands is linear in them.

    Raises: NotLinearError with the message `problem` that names the equation, when the map is not linear in these
            operands.
    """
    flags = leading(n, len(rule.ins))
    live_rule = dce(rule)
    if is_linear(live_rule, flags):
        return live_rule
    linearized = _linearize_rule(live_rule, flags, 0, problem)
    b = Builder()
    linear, others = b.inputs(rule.in_avals[:n]), b.inputs(rule.in_avals[n:])
    known = b.inline(linearized.primal, others)
    return dce(
        b.build(_instantiate_tangents(linearized, b.inline(linearized.linear, [*linear, *known]), rule), rule.name)
    )


@by_value
def refuse_nonlinear(rule: Jaxpr, n: int, problem: str, remedy: str) -> None:
    """Refuse a program whose equations show that it is not linear in its first `n` operands.

    A program that applies a loop, a branch or a host function to these operands is accepted. It may be linear as a
    whole, as a solver is.

    Raises: NotLinearError that names the equation.
    """
    flags = leading(n, len(rule.ins))
    flat = dce(_without_custom_rules(dce(rule), flags))
    first_nonlinear: Eqn | int | None = None
    dependent: set[Atom] = set(flat.ins[:n])
    for eqn in flat.eqns:
        marks = tuple([a in dependent for a in eqn.ins])
        if not any(marks):
            continue
        dependent.update(eqn.outs)
        if not is_linear_eqn(eqn, marks):
            if isinstance(eqn.prim, HigherOrder | HostCall):
                return
            first_nonlinear = eqn if first_nonlinear is None else first_nonlinear
    if first_nonlinear is None:
        first_nonlinear = next((k for k, a in enumerate(flat.outs) if a not in dependent and not vanishes(a)), None)
    if first_nonlinear is not None:
        raise _not_linear(problem, first_nonlinear, remedy)


def _instantiate_tangents(linearized: LinearizedBody, tangents: tuple[Atom, ...], rule: Jaxpr) -> list[Atom]:
    """Return the tangents of all results of a rule, from those that are not zero."""
    return instantiate_outs(tangents, linearized.out_nonzero, rule.out_avals, (True,) * len(rule.outs))


def _linearize_rule(rule: Jaxpr, flags: Flags, n_out: int, problem: str) -> LinearizedBody:
    """Linearize a rule in the marked operands. The primal program does not depend on them and does not take them: it
    maps the other operands to the first `n_out` results, then residuals."""
    flat = dce(_without_custom_rules(rule, flags))
    first_nonlinear = _first_nonlinear(flat, flags, n_out)
    if first_nonlinear is not None:
        raise _not_linear(problem, first_nonlinear, _AS_WHOLE)
    linearized = linearize(flat, flags)
    outs = (*linearized.primal.outs[:n_out], *linearized.primal.outs[len(flat.outs) :])
    primal = remove_dead_eqns(linearized.primal.with_outs(outs))
    if any(select_by_flags(read_operands(dce(primal)), flags)):
        raise NotLinearError(
            problem,
            remedy="a body here is not linear in its direction: leave out what is not, or use lax.linear_call with "
            "as_whole=True",
        )
    b = Builder()
    args: list[Atom] = [Lit.zero(v.aval) if m else b.input(v.aval) for v, m in zip(primal.ins, flags, strict=True)]
    return LinearizedBody(
        dce(b.build(b.inline(primal, args), rule.name)), linearized.linear, linearized.n_res, linearized.out_nonzero
    )


_AS_WHOLE: Final = (
    "a derivative is linear in its direction; for a map that is so only as a whole, or that is to be taken for one, "
    "use lax.linear_call with as_whole=True"
)


def _not_linear(problem: str, culprit: Eqn | int, remedy: str) -> NotLinearError:
    """Return the error for an equation that is not linear, or for the number of a result that is constant and not
    zero."""
    if isinstance(culprit, Eqn):
        where = source_text(culprit.source)
        return NotLinearError(problem, equation=describe(culprit), where=where, remedy=remedy)
    return NotLinearError(
        f"{problem}: result {culprit} is constant in them and not zero",
        remedy="return zeros where nothing depends on the direction",
    )


def _first_nonlinear(jaxpr: Jaxpr, flags: Flags, n_out: int) -> Eqn | int | None:
    """Return the first equation that is not linear in the marked operands, or the number of the first result after
    `n_out` that is constant and not zero, or None. Equations with bodies are accepted here, because a body may compute
    primal values and tangents together."""
    dependent: set[Atom] = set(select_by_flags(jaxpr.ins, flags))
    zeros: set[Atom] = set()  # results of linear equations applied to zeros, such as an instantiated symbolic zero
    for eqn in jaxpr.eqns:
        marks = tuple([a in dependent for a in eqn.ins])
        if not any(marks):
            zeros.update(select_by_flags(eqn.outs, zero_results(eqn, eqn.ins, zeros)))
            continue
        if not (is_linear_eqn(eqn, marks, zeros) or isinstance(eqn.prim, HigherOrder)):
            return eqn
        dependent.update(_dependent_results(eqn, marks, eqn.outs))
    for k, a in enumerate(jaxpr.outs[n_out:]):
        if a not in dependent and a not in zeros and not vanishes(a):
            return k
    return None


@by_value
def _without_custom_rules(jaxpr: Jaxpr, flags: Flags) -> Jaxpr:
    """Return the program with the plain bodies of functions with custom rules where these take a marked operand. Calls
    that are not linear in operands that are marked or zero are inlined.

    A rule already computes a derivative, so the functions that it applies to tangents do not use their custom rules
    again. A linear function may be its own rule: `f_jvp = lambda primals, tangents: (f(*primals), f(*tangents))`.
    """
    b = Builder.like(jaxpr)
    dependent: set[Atom] = set(select_by_flags(jaxpr.ins, flags))
    zeros: set[Atom] = set()

    def body_to_inline(eqn: Eqn, ins: tuple[Atom, ...]) -> Jaxpr | None:
        prim, marks, zero_operands = eqn.prim, tuple([a in dependent for a in ins]), zero_mask(ins, zeros)
        # linearity is a property of the function, not of its rules
        if any(marks) and isinstance(prim, CallWithRules | NamedCall):
            return prim.body
        if not any([*marks, *zero_operands]) or not isinstance(prim, Call):
            return None
        stays_zero = not any(marks) and all(zero_results(eqn, ins, zeros))
        return None if stays_zero or is_linear_eqn(eqn, marks) else prim.body

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        marks = tuple([a in dependent for a in ins])
        outs = b.copy(eqn, ins)
        if any(marks):
            dependent.update(_dependent_results(eqn, marks, outs))
        else:
            zeros.update(select_by_flags(outs, zero_results(eqn, ins, zeros)))
        return outs

    return b.build(b.inline_calls(jaxpr, jaxpr.ins, body_to_inline, rule), jaxpr.name)


def _dependent_results(eqn: Eqn, flags: Flags, outs: Sequence[Atom]) -> list[Atom]:
    """Return the results of an equation that depend on the marked operands: those whose tangent is no symbolic zero, by
    the jvp of the equation alone. A body may have other results too."""
    if not isinstance(eqn.prim, HigherOrder) or is_linear_eqn(eqn, flags):
        return list(outs)
    program = single_equation(eqn.prim, [a.aval for a in eqn.ins])
    return list(select_by_flags(outs, jvp(program, flags)[1]))
