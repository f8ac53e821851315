"""`invertible`: a program whose backward pass reconstructs values from the results instead of storing them.

The result is one `call_with_rules`. Its rules are:

    forward mode       the plain linearized program (`second_order.forward_rule`)
    reverse, forward   operands -> results, residuals       `_forward`: residuals are results, kept operands, sketches
    reverse, pull      cotangents, residuals -> cotangents  `pull_from_results`
    reverse, push      tangents, residuals -> tangents      `push_from_results`; its transpose is the pull
    inverse            results, kept -> other operands      `solver.partial_inverse`, for an `invertible` around it
    ivjp               the same with cotangents             `ivjp`

An example: w is kept, and exp x, which the derivative needs, is reconstructed as y - w. (A tolerance of infinity leaves
out the sketches.)

    >>> import math
    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> from fxad.transforms.inversion.invertible import invertible
    >>> def f(x, w):
    ...     return fnp.exp(x) + w
    >>> aval = fx.Spec((43,), "float32")
    >>> call = invertible(fx.trace(f, aval, aval).jaxpr, kept=(False, True), tolerance=math.inf)
    >>> rules = call.eqns[0].prim.rules
    >>> (reverse,) = rules.vjp

The forward program returns the result, then the residuals: the result again, and w. The pull and the push read them
after the cotangent or the tangents.

    >>> print(reverse.forward, reverse.pull, reverse.push, sep="", end="")
    main @f(%arg0: f32[43], %arg1: f32[43]) -> (f32[43], f32[43], f32[43]) {
      %0: f32[43] = exp %arg0
      %1: f32[43] = add %0, %arg1
      return %1, %1, %arg1
    }
    main @ivjp_f(%arg0: f32[43], %arg1: f32[43], %arg2: f32[43]) -> (f32[43], f32[43]) {
      %0: f32[43] = sub %arg1, %arg2
      %1: f32[43] = mul %arg0, %0
      return %1, %arg0
    }
    main @push_f(%arg0: f32[43], %arg1: f32[43], %arg2: f32[43], %arg3: f32[43]) -> (f32[43]) {
      %0: f32[43] = sub %arg2, %arg3
      %1: f32[43] = mul %arg0, %0
      %2: f32[43] = add %1, %arg1
      return %2
    }

If another `invertible` contains this call, it uses the rules of the inverse. They take the result and w; the ivjp also
takes the cotangent. They return x, and the ivjp also returns the cotangents of x and w.

    >>> from fxad.transforms.inversion.call_rules import inverse_of_call
    >>> inverse = inverse_of_call(call.eqns[0].prim)
    >>> print(inverse.inverse, inverse.ivjp, sep="", end="")
    main @inverse_f(%arg0: f32[43], %arg1: f32[43]) -> (f32[43]) {
      %0: f32[43] = sub %arg0, %arg1
      %1: f32[43] = log %0
      %2: bool[43] = is_finite %1
      %3: f32[43] = select_n %2, nan:f32[43], %1
      return %3
    }
    main @ivjp_f(%arg0: f32[43], %arg1: f32[43], %arg2: f32[43]) -> (f32[43], f32[43], f32[43]) {
      %0: f32[43] = sub %arg0, %arg1
      %1: f32[43] = mul %arg2, %0
      %2: f32[43] = log %0
      %3: bool[43] = is_finite %2
      %4: f32[43] = select_n %3, nan:f32[43], %2
      return %4, %1, %arg2
    }
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from fxad import dtypes
from fxad.core.builder import Builder, rebind_operands, single_equation
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.errors import FxadError, NotDifferentiableError, NotInvertibleError
from fxad.ir import Aval, Flags, Jaxpr, LinearizedBody, Lit, Var
from fxad.primitives.barrier import OPTIMIZATION_BARRIER
from fxad.primitives.check import Check, has_check
from fxad.primitives.control.bodies import reorder_operands
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, Rules, TransformRule
from fxad.transforms.ad.linearize import linearize, operands_without_derivative
from fxad.transforms.inversion.call_rules import inverse_rule, invertible_rule
from fxad.transforms.inversion.derivatives_from_results import (
    BackwardProgram,
    BackwardRequest,
    ivjp,
    pull_from_results,
    push_from_results,
)
from fxad.transforms.inversion.normal_form import normal_form
from fxad.transforms.inversion.reconstruction_check import sketch, sketched
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.rules.contract import InverseTable
from fxad.transforms.inversion.second_order import (
    ReverseRule,
    forward_rule,
    has_custom_derivatives,
    with_derivatives_of,
)
from fxad.transforms.inversion.solver import partial_inverse
from fxad.transforms.locate import bodies_around
from fxad.transforms.memory.segments import in_segments

T = TypeVar("T")


@by_value
def invertible(
    jaxpr: Jaxpr,
    kept: Flags,
    labels: tuple[str, ...] = (),
    tolerance: float = 0.0,
    rules: InverseTable = INVERSE_RULES,
) -> Jaxpr:
    """Return the program as one `call_with_rules`. Its residuals are its results and the operands marked in `kept`.

    Integers and bools that the results do not determine are kept too. `labels` are the names of the operands in
    messages. Sketches of the values that are reconstructed last are further residuals. Derivatives are nan if the error
    of such a value, relative to its largest magnitude, exceeds `tolerance`. The tolerance 0 means the default of
    `reconstruction_check.tolerated`; infinity means no sketches.

    Law:    same value; the gradient of the plain program, within the error of the reconstruction.
    Raises: NotInvertibleError that names the equation, for a value that the gradient needs and the results do not
            determine; NotDifferentiableError that names the equation, for an equation without a derivative.
    """
    try:
        captured = operands_without_derivative(jaxpr, kept)
    except NotDifferentiableError as e:
        e.inside = bodies_around(e)
        raise
    request = BackwardRequest(
        known_outs=(True,) * len(jaxpr.outs),
        known_ins=_with_integers(jaxpr, kept, rules),
        perturbed=tuple([a.inexact and not c for a, c in zip(jaxpr.in_avals, captured, strict=True)]),
        rules=rules,
        labels=labels or tuple([f"operand {k} of {jaxpr.name}" for k in range(len(jaxpr.ins))]),
        tolerance=tolerance,
    )
    # operands without a derivative come first: rules capture them
    order = tuple(sorted(range(len(captured)), key=lambda k: not captured[k]))
    reordered = replace(
        request,
        known_ins=_permuted(request.known_ins, order),
        perturbed=_permuted(request.perturbed, order),
        labels=_permuted(request.labels, order),
    )
    try:
        call = _with_rules(reorder_operands(jaxpr, order), sum(captured), reordered)
    except (NotDifferentiableError, NotInvertibleError) as e:
        raise _located_error(e, jaxpr, request) from None
    return reorder_operands(call, tuple([order.index(k) for k in range(len(order))]))


def _with_integers(jaxpr: Jaxpr, kept: Flags, rules: InverseTable) -> Flags:
    """Mark the operands to keep: those marked in `kept`, and integers and bools that the results do not determine."""
    solved = partial_inverse(jaxpr, kept, (True,) * len(jaxpr.outs), rules).solved
    return tuple([k or not (s or a.inexact) for k, s, a in zip(kept, solved, jaxpr.in_avals, strict=True)])


def _permuted(values: tuple[T, ...], order: tuple[int, ...]) -> tuple[T, ...]:
    return tuple([values[k] for k in order])


def _located_error(e: FxadError, jaxpr: Jaxpr, request: BackwardRequest) -> FxadError:
    """Return the error of a program that is not inverted, about an equation of the program itself. Inverts it once
    more, in a form in which the origin of each equation is known."""
    located = replace(request, located=True)
    try:
        pull_from_results(jaxpr, located)
        push_from_results(jaxpr, located)
    except (NotDifferentiableError, NotInvertibleError) as of_program:
        return of_program
    return e


# ---------------------------------------------------------------------------------------------------------- the rules


def _with_rules(jaxpr: Jaxpr, n_captured: int, request: BackwardRequest) -> Jaxpr:
    """Return the call of a program with the rules of `invertible`. The first `n_captured` operands have no
    derivative."""
    linearized = linearize(jaxpr, request.perturbed)
    inverse = _inverse_rule(jaxpr, request)
    rules = Rules(
        jvp=(Derivative(request.perturbed, *forward_rule(jaxpr, request.perturbed, linearized)),),
        vjp=(Derivative(request.perturbed, *_reverse_rule(jaxpr, request, linearized)),),
        of_body=True,
        further=(invertible_rule(request.tolerance), *([inverse] if inverse else [])),
    )
    prim = CallWithRules(Function(jaxpr, n_captured, rules))
    return single_equation(prim, jaxpr.in_avals, f"invertible_{jaxpr.name}")


def _reverse_rule(jaxpr: Jaxpr, request: BackwardRequest, linearized: LinearizedBody) -> ReverseRule:
    """Return the rule of reverse mode."""
    pull, push = pull_from_results(jaxpr, request), push_from_results(jaxpr, request)
    # both programs take the sketches of the values that either of them compares
    compared = tuple(sorted({*pull.compared, *push.compared}, key=attrgetter("index")))
    rule = (
        _forward(jaxpr, request.known_ins, compared),
        _with_sketches(push, compared),
        _with_sketches(pull, compared),
    )
    rule = _after_checks(rule, len(jaxpr.outs)) if has_check(jaxpr) else rule
    if has_custom_derivatives(jaxpr) or push.moves_differently or pull.moves_differently:
        rule = with_derivatives_of(jaxpr, linearized, rule)
    return rule


def _forward(jaxpr: Jaxpr, kept: Flags, compared: tuple[Var, ...]) -> Jaxpr:
    """Return the forward program: results, then residuals, which are the results again, kept operands and sketches.
    The values `compared` are those of the normal form."""
    n, program = len(jaxpr.outs), normal_form(jaxpr) if compared else jaxpr
    all_results = Jaxpr(program.ins, program.eqns, (*program.outs, *compared), jaxpr.name)
    segments = in_segments(all_results, tuple([not k for k in kept]))
    b = Builder.resume(segments)
    results, sketches = segments.outs[:n], [sketch(b, a) for a in segments.outs[n:]]
    return b.build([*results, *results, *select_by_flags(segments.ins, kept), *sketches], jaxpr.name)


def _with_sketches(backward: BackwardProgram, compared: tuple[Var, ...]) -> Jaxpr:
    """Return a program whose last operands are sketches of the values `compared`. They contain those that the program
    compares itself."""
    program, compared_here = backward.program, backward.compared
    n = len(program.ins) - len(compared_here)
    types: dict[int | Var, Aval] = {a: sketched(a.aval) for a in compared}
    return rebind_operands(program, (*range(n), *compared), has=(*range(n), *compared_here), types=types)


def _after_checks(rule: ReverseRule, n: int) -> ReverseRule:
    """Order the derivatives after the checks of a program with `n` results.

    The forward program performs the checks. Without this, derivatives that read none of its values could run before it.
    For example, the derivative of `check(x > 0); 2 * x` is 2 * t, which reads nothing of the forward program.

    Rule: the forward program also stores a bool that is False. It is the predicate of a check of the derivatives.
    """
    forward, push, pull = rule
    b = Builder()
    results = b.inline(forward, b.inputs(forward.in_avals))
    *_, failed = b(OPTIMIZATION_BARRIER, *results[:n], Lit.of(False, Aval((), dtypes.bool_)))
    return b.build([*results, failed], forward.name), _with_check_of_forward(push), _with_check_of_forward(pull)


def _with_check_of_forward(jaxpr: Jaxpr) -> Jaxpr:
    b = Builder()
    results = b.inline(jaxpr, b.inputs(jaxpr.in_avals))
    check = Check(f"a check in {jaxpr.name}", "", "")
    return b.build(b(check, b.input(Aval((), dtypes.bool_)), *results), jaxpr.name)


def _inverse_rule(jaxpr: Jaxpr, request: BackwardRequest) -> TransformRule | None:
    """Return the rule of the inverse; None if the results do not determine all operands. `invertible` determines only
    those that the gradient needs."""
    kept = request.known_ins
    inverse = partial_inverse(jaxpr, kept, request.known_outs, request.rules)
    if not all([k or s for k, s in zip(kept, inverse.solved, strict=True)]):
        return None
    return inverse_rule(jaxpr, kept, inverse.program, ivjp(jaxpr, request).program, request.perturbed)
