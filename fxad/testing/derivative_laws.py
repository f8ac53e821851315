"""The laws of differentiation, for one program and its operands. See `fxad.testing.transform_laws`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.flags import leading, select_by_flags
from fxad.core.interpreter import run
from fxad.ir import Atom, Aval, HigherOrder, Jaxpr, NDArray, distinct_jaxprs
from fxad.primitives.control.kept_values import split_at_kept
from fxad.primitives.custom import rules_of
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.trigonometric import SIN
from fxad.primitives.linearity import is_linear
from fxad.primitives.shape import ReduceSum
from fxad.testing.compare import (
    HostArrays,
    differ,
    fail,
    inner_product_error,
    instantiate_tangents,
    program_tangent_error,
    program_tolerance,
    random_cotangents,
    random_tangents,
    step_along,
    tangent_error,
    to_dtype,
    to_widest_dtype,
    xla,
)
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.transform_laws import check_same_function, check_transform
from fxad.transforms import dce, grad, jacfwd, jacrev, jvp, linearize, remat, transpose, vjp, vjp_fused


def differentiable_flags(case: Case) -> tuple[bool, ...]:
    """Return a mask of the operands that have tangents."""
    return tuple([a.inexact for a in case.program.in_avals])


def random_directions(case: Case) -> tuple[NDArray, ...]:
    """Return random tangents of the operands that `differentiable_flags` marks."""
    return random_tangents(select_by_flags(case.program.in_avals, differentiable_flags(case)), case.seed)


def _tangents(program: Jaxpr, args: HostArrays, flags: tuple[bool, ...], directions: HostArrays) -> list[NDArray]:
    """Return the tangents of all results along `directions`; zeros for those that have none."""
    forward, nonzero = jvp(program, flags)
    return instantiate_tangents(run(forward, [*args, *directions])[len(program.outs) :], nonzero, program.out_avals)


@law
def check_program_jvp(case: Case) -> None:
    """Check that the results are those of the program. The tangents equal central differences and are linear in the
    direction."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    directions, n, tolerance = random_directions(case), len(program.outs), program_tolerance(program, args)
    nonzero = jvp(program, flags)[1]
    forward = check_transform(lambda f: jvp(f, flags)[0], program)
    forward_outs = run(forward, [*args, *directions])
    if problem := differ(forward_outs[:n], run(program, args), slack=tolerance):
        fail(f"jvp changed the results: {problem}", program, args, forward)
    tangents = instantiate_tangents(forward_outs[n:], nonzero, program.out_avals)
    if case.smooth and (problem := program_tangent_error(program, args, flags, directions, tangents, 1e4 * tolerance)):
        fail(f"jvp: {problem}", program, args, forward)
    twice = run(forward, [*args, *[2 * d for d in directions]])[n:]
    if problem := differ(twice, [2 * t for t in forward_outs[n:]], slack=tolerance):
        fail(f"jvp is not linear in the tangents: {problem}", program, args, forward)


@law
def check_linearize(case: Case) -> None:
    """Check that `linearize` equals `jvp`. Every equation of the linear program is linear. The primal program equals
    the program."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    directions, n, tolerance = random_directions(case), len(program.outs), program_tolerance(program, args)
    split = linearize(program, flags)
    check_transform(lambda f: linearize(f, flags).primal, program)
    linear = check_transform(lambda f: linearize(f, flags).linear, program)
    if not is_linear(linear, leading(len(directions), len(linear.ins))):
        fail("the linear program is not linear", program, (), linear)
    results = run(split.primal, args)
    if problem := differ(results[:n], run(program, args), slack=tolerance):
        fail(f"the primal program has other results: {problem}", program, args, split.primal)
    nonzero = jvp(program, flags)[1]
    if nonzero != split.out_nonzero and not _has_both_rules(program):
        fail(f"jvp has tangents for {nonzero}, linearize for {split.out_nonzero}", program)
    expected = _tangents(program, args, flags, directions)
    actual = instantiate_tangents(run(linear, [*directions, *results[n:]]), split.out_nonzero, program.out_avals)
    if problem := differ(actual, expected, slack=tolerance):
        fail(f"linearize differs from jvp: {problem}", program, args, linear)


def _has_both_rules(program: Jaxpr) -> bool:
    """Return True if a function has rules for tangents and for cotangents: only one of them may use that a value is
    zero."""
    all_rules = [rules_of(eqn.prim) for body in distinct_jaxprs(program) for eqn in body.eqns]
    return any([rules.jvp and rules.vjp for rules in all_rules])


@law
def check_program_transpose(case: Case) -> None:
    """Check that `<y_bar, A x_dot> = <A^T y_bar, x_dot>` for the linear part A of the program, and transposing twice
    gives A."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    split = linearize(program, flags)
    directions, residuals = random_directions(case), run(split.primal, args)[len(program.outs) :]
    tangent_flags = leading(len(directions), len(split.linear.ins))
    adjoint = check_transform(lambda f: transpose(f, tangent_flags), split.linear)
    outs = run(split.linear, [*directions, *residuals])
    cts = random_tangents(split.linear.out_avals, 1)
    bars = run(adjoint, [*cts, *residuals])
    tolerance = program_tolerance(split.linear, [*directions, *residuals]) + program_tolerance(
        adjoint, [*cts, *residuals]
    )
    if problem := inner_product_error(cts, outs, bars, directions, tolerance):
        fail(f"not the adjoint: {problem}", split.linear, [*directions, *residuals], adjoint)
    cotangent_flags = leading(len(cts), len(adjoint.ins))
    if not is_linear(adjoint, cotangent_flags):
        fail("the transposed program is not linear", split.linear, (), adjoint)
    twice = check_transform(lambda f: transpose(f, cotangent_flags), adjoint)
    check_same_function("transposing twice changed the meaning", twice, split.linear, (*directions, *residuals))


@law
def check_tangents_transpose(case: Case) -> None:
    """Check that the tangents of forward mode are linear in those of the operands, and transpose. One equation, such as
    a call, a branch or a loop, may compute values and tangents together."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    if _has_unknown_runs(program):
        return
    forward, _ = jvp(program, flags)
    n, directions = len(program.outs), random_directions(case)
    tangents = dce(Jaxpr(forward.ins, forward.eqns, forward.outs[n:]))
    tangent_flags = (*[False] * len(args), *[True] * len(directions))
    adjoint = check_transform(lambda f: transpose(f, tangent_flags), tangents)
    outs = run(tangents, [*args, *directions])
    cts = random_tangents(tangents.out_avals, case.seed + 2)
    tolerance = program_tolerance(tangents, [*args, *directions]) + program_tolerance(adjoint, [*cts, *args])
    if problem := inner_product_error(cts, outs, run(adjoint, [*cts, *args]), directions, tolerance):
        fail(f"not the adjoint of the tangents: {problem}", tangents, [*args, *directions], adjoint)


def _has_unknown_runs(program: Jaxpr) -> bool:
    """Return True for a loop without a bound and with floating results: forward mode computes values and tangents in
    one loop, and they are not separated."""
    eqns = [eqn for body in distinct_jaxprs(program) for eqn in body.eqns]
    loops = [eqn for eqn in eqns if isinstance(eqn.prim, HigherOrder) and eqn.prim.layout.unbounded]
    return any([v.aval.inexact for eqn in loops for v in eqn.outs])


@law
def check_vjp(case: Case) -> None:
    """Check that `<y_bar, J x_dot> = <backward(y_bar), x_dot>`, as two programs and as one; the results are those of
    the program."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    directions, n, tolerance = random_directions(case), len(program.outs), program_tolerance(program, args)
    tangents = _tangents(program, args, flags, directions)
    inexact = [k for k, a in enumerate(program.out_avals) if a.inexact]
    cts = random_cotangents(program, 1)
    halves = vjp(program, flags)
    check_transform(lambda f: vjp(f, flags).backward, program)
    results = run(halves.forward, args)
    bars = run(halves.backward, [*cts, *results[n:]])
    if problem := inner_product_error(cts, [tangents[k] for k in inexact], bars, directions, tolerance):
        fail(f"vjp is not the adjoint of jvp: {problem}", program, args, halves.backward)
    fused = check_transform(lambda f: vjp_fused(f, flags), program)
    if problem := differ(run(fused, [*args, *cts]), [*results[:n], *bars], slack=tolerance):
        fail(f"vjp_fused differs from vjp: {problem}", program, args, fused)


def scalarized(program: Jaxpr) -> Jaxpr:
    """Return a program whose first result is a float64 scalar that depends on all inexact results; then the results."""
    b = Builder.like(program)
    outs = b.inline(program, program.ins)
    total: Atom | None = None
    for a in outs:
        if a.aval.inexact:
            real = b.one(REAL, a) if a.aval.dtype in dtypes.COMPLEX else a
            real = real if real.aval.dtype == dtypes.float64 else b.one(ConvertElementType(dtypes.float64), real)
            term = b.one(ReduceSum(tuple(range(a.aval.ndim))), b.one(SIN, real))
            total = term if total is None else b.one(ADD, total, term)
    return b.build([*([] if total is None else [total]), *outs], program.name)


def has_gradient(program: Jaxpr, flags: tuple[bool, ...]) -> bool:
    """Return True if the first result is a float64 scalar and an operand is marked."""
    return any(flags) and program.out_avals[:1] == (Aval((), dtypes.float64),)


@law
def check_grad(case: Case) -> None:
    """Check that the gradient equals finite differences in random directions."""
    program, args, flags = scalarized(case.program), case.args, differentiable_flags(case)
    if not case.smooth or not has_gradient(program, flags):
        return
    gradient = check_transform(lambda f: grad(f, flags), program)
    bars = run(gradient, args)[len(program.outs) - 1 :]
    directions, tolerance = random_directions(case), program_tolerance(program, args)
    slope = np.asarray(
        sum([np.sum(np.real(to_widest_dtype(g) * to_widest_dtype(d))) for g, d in zip(bars, directions, strict=True)]),
        np.float64,
    )
    if problem := tangent_error(
        lambda t: run(program, step_along(args, directions, flags, t))[:1], [slope], 1e4 * tolerance
    ):
        fail(f"grad: {problem}", program, args, gradient)


@law
def check_jacobian(case: Case) -> None:
    """Forward and reverse mode give the same Jacobian, and its product with a direction is the tangent in that
    direction."""
    program, args = case.program, case.args
    mask = tuple([a.dtype == dtypes.float64 for a in program.in_avals])
    outs = tuple([a for a in program.outs if a.aval.dtype == dtypes.float64])
    if not outs or not any(mask):
        return
    program = Jaxpr(program.ins, program.eqns, outs)
    n, directions = len(outs), random_tangents(select_by_flags(program.in_avals, mask), case.seed)
    forward = run(check_transform(lambda f: jacfwd(f, mask, n), program), args)
    reverse = run(check_transform(lambda f: jacrev(f, mask, n), program), args)
    tolerance = program_tolerance(program, args)
    if problem := differ(reverse, forward, slack=tolerance):
        fail(f"jacrev differs from jacfwd: {problem}", program, args)
    for k, t in enumerate(_tangents(program, args, mask, directions)):
        blocks = forward[n + k * len(directions) : n + (k + 1) * len(directions)]
        actual = [
            np.tensordot(to_widest_dtype(block), to_widest_dtype(d), d.ndim)
            for block, d in zip(blocks, directions, strict=True)
        ]
        if problem := differ([to_dtype(np.asarray(sum(actual)), t.dtype)], [t], slack=tolerance):
            fail(f"the Jacobian of result {k} times a direction is not its tangent: {problem}", program, args)


@law
def check_second_order(case: Case) -> None:
    """Forward over reverse = reverse over forward = the difference of gradients, along a direction."""
    program, args = scalarized(case.program), case.args
    mask = tuple([a.dtype == dtypes.float64 for a in program.in_avals])
    if not case.smooth or not has_gradient(program, mask):
        return
    program = Jaxpr(program.ins, program.eqns, program.outs[:1])
    directions = random_tangents(select_by_flags(program.in_avals, mask), 3)
    n, zeros = len(directions), (False,) * len(directions)
    gradient = grad(program, mask)
    over_reverse, nonzero = jvp(gradient, mask)
    tolerance = 1e9 * program_tolerance(over_reverse, [*args, *directions]) ** 2
    second = instantiate_tangents(run(over_reverse, [*args, *directions])[n:], nonzero, gradient.out_avals)
    forward, nonzero = jvp(program, mask)
    if any(nonzero):
        slope = Jaxpr(forward.ins, forward.eqns, forward.outs[1:])
        over_forward = grad(slope, (*mask, *zeros))
        if problem := differ(second, run(over_forward, [*args, *directions]), slack=tolerance):
            fail(f"forward over reverse is not reverse over forward: {problem}", program, args)
    if problem := tangent_error(
        lambda t: run(gradient, step_along(args, directions, mask, t)), second, 1e4 * tolerance
    ):
        fail(f"the derivative of the gradient: {problem}", program, args, over_reverse)


@law
def check_remat(case: Case, *, compiled: bool = False) -> None:
    """Check that the results and gradients are equal bit for bit, except for signs of zero cotangents. Only operands
    are stored for the backward program, and values that the program itself marks with `keep`.

    `compiled` compares in XLA too, within rounding. XLA contracts a product and a sum of one fusion into one operation,
    and recomputation changes where fusions end.
    """
    program, flags = case.program, differentiable_flags(case)
    rematerialized = check_transform(remat, program)
    check_same_bits("remat", case, rematerialized)
    if compiled:
        check_same_within_rounding("remat", case, rematerialized, xla)
    if any(flags):
        split = linearize(rematerialized, flags)
        stored = {a for a in split.primal.outs[len(program.outs) :] if a not in split.primal.ins}
        if len(stored) > len(split_at_kept(program)[0].outs) - len(program.outs):
            fail(f"remat stores {stored}, which are not operands", program, (), split.primal)


def check_same_bits(what: str, case: Case, other: Jaxpr) -> None:
    """Check that another program has the same results and gradients bit for bit, except for signs of zero cotangents.
    `what` made the program, for messages."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    if problem := differ(run(other, args), run(program, args), exact=True):
        fail(f"{what} changed the results: {problem}", program, args, other)
    if any(flags):
        operands = [*args, *random_cotangents(program, 1)]
        plain, again = vjp_fused(program, flags), vjp_fused(other, flags)
        actual, expected, n = run(again, operands), run(plain, operands), len(program.outs)
        problem = differ(actual[:n], expected[:n], exact=True)
        if problem := problem or differ(actual, expected, exact=True, signs=False):
            fail(f"{what} changed the gradient: {problem}", program, args, again)


def check_same_within_rounding(
    what: str, case: Case, other: Jaxpr, runner: Callable[[Jaxpr, HostArrays], tuple[NDArray, ...]] = run
) -> None:
    """Check that another program, run by `runner`, has the same results and gradients within rounding."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    if problem := differ(runner(other, args), runner(program, args), slack=program_tolerance(program, args)):
        fail(f"{what} changed the results ({runner.__name__}): {problem}", program, args, other)
    if any(flags):
        operands = [*args, *random_cotangents(program, 1)]
        plain, again = vjp_fused(program, flags), vjp_fused(other, flags)
        if problem := differ(
            runner(again, operands), runner(plain, operands), slack=program_tolerance(plain, operands)
        ):
            fail(f"{what} changed the gradient ({runner.__name__}): {problem}", program, args, again)


def check_same_derivatives(case: Case, other: Jaxpr, rtol: float) -> None:
    """Check that another program with the same results has the same gradient, tangents and second derivatives (forward
    over reverse and reverse over reverse), within `rtol`."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    directions, cts = random_directions(case), random_cotangents(program, case.seed + 1)
    backward = [vjp_fused(f, flags) for f in (program, other)]
    tolerance = max(rtol, 1e3 * program_tolerance(backward[0], [*args, *cts]))
    plain, others = [run(f, [*args, *cts]) for f in backward]
    if problem := differ(others, plain, slack=tolerance):
        fail(f"another gradient: {problem}", program, args, backward[1])
    tangents = _tangents(program, args, flags, directions)
    if problem := differ(_tangents(other, args, flags, directions), tangents, slack=tolerance):
        fail(f"other tangents: {problem}", program, args, other)
    second: list[list[NDArray]] = []
    for f in (program, other) if has_gradient(scalarized(program), flags) else ():
        slope = grad(scalarized(f), flags)
        backward_again = run(vjp_fused(slope, flags), [*args, *random_cotangents(slope, case.seed + 2)])
        second.append([*_tangents(slope, args, flags, directions), *backward_again])
    if second and (problem := differ(second[1], second[0], slack=100 * tolerance)):
        fail(f"another second derivative: {problem}", program, args, other)
