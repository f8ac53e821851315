"""`plan_memory`, and the budgets of `remat`: the fastest plan whose compiled gradient fits into a number of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias

from fxad import transforms
from fxad.api.lift import before_differentiation, check_program
from fxad.core import tree
from fxad.dtypes import FLOATING
from fxad.errors import AxisNameError, ParameterError, SizeError
from fxad.execution.executable import lower
from fxad.ir import source_location
from fxad.operations.arguments import function, parse_bytes
from fxad.support.constants import LEAST_SHARE
from fxad.tracing.program import Program
from fxad.transforms.ad.linearize import operands_without_derivative
from fxad.transforms.ad.vjp import vjp_fused
from fxad.transforms.memory_plans.frontier import frontier
from fxad.transforms.memory_plans.peak import peak
from fxad.transforms.memory_plans.plans import MemoryPlan, apply_plan

# A parameter `Program[..., object]` would be the context of a lambda in `f(trace(lambda ...))`, which mypy cannot infer.
P = ParamSpec("P")

# From the program that `remat` returns to the program whose executable must fit.
Within: TypeAlias = Callable[[Program[..., Any]], Program[..., object]]


def plan_memory(
    program: Program[P, object], *, budget: int | str, within: Within | None = None, reconstruct: bool = False
) -> MemoryPlan:
    """Return the plan of `remat(program, budget=budget)`, as a value to print and to edit.

    With `reconstruct`, values of functions that have an inverse may be reconstructed from their results, as by
    `invertible`: gradients are then equal within the error of the reconstruction.

    Law:    the executable of the gradient of `remat(program, plan=plan_memory(program, budget=b))` has at most b bytes
            of temporaries; a smaller budget never gives more.
    Raises: as `remat`; ArgumentError for a value that is not a Program; AxisNameError for collectives over an axis of a
            map around it.
    """
    check_program("plan_memory", program, ", budget=...")
    limit = parse_bytes("remat", budget)
    if within is not None:
        function("plan_memory", "within", within)
    if program.jaxpr.free_axes:
        names = ", ".join([repr(name) for name, _ in sorted(program.jaxpr.free_axes)])
        raise AxisNameError(
            f"remat: {program.name} has collectives over the axes {names} of a map around it: it has no memory of its"
            " own to fit into a budget",
            remedy="give the budget around the map, as in remat(pmap(f), budget=...), or a policy inside it",
        )
    if program.jaxpr.symbolic:
        raise SizeError(
            f"plan_memory: {program.name} is of symbolic shape: its bytes are not known",
            remedy="give its sizes: specialize(program, n=...)",
        )
    avals, n = program.jaxpr.in_avals, len(program.bound)
    fixed = operands_without_derivative(program.jaxpr, tuple([k < n for k in range(len(avals))]))
    wrt = tuple([a.inexact and not f and k >= n for k, (a, f) in enumerate(zip(avals, fixed, strict=True))])
    if not any(wrt):
        return MemoryPlan(program.jaxpr, wrt)
    program_that_fits = within or (lambda p: gradient_of(p, wrt))
    plain = MemoryPlan(program.jaxpr, wrt)
    measured = [(_temporaries(program_that_fits(program)), plain)]
    if measured[0][0] <= limit:
        return plain
    plans = frontier(program.jaxpr, wrt, reconstruct)[1:]
    share = LEAST_SHARE * min(1.0, measured[0][0] / max(1, plain.bytes))
    likely = [plan for plan in plans if share * plan.bytes <= limit]
    # the others last: the error names the least bytes of all plans
    for plan in (*likely, *reversed([plan for plan in plans if plan not in likely])):
        if share * plan.bytes > min([temporaries for temporaries, _ in measured]):
            break
        measured.append((_temporaries(program_that_fits(program.replace(apply_plan(plan)))), plan))
        if measured[-1][0] <= limit:
            return plan
    least, best = min(measured, key=lambda row: row[0])
    raise ParameterError(
        f"remat: no plan of {program.name} fits into {limit:,} bytes: the least budget that fits is {least:,} bytes",
        remedy=f"give a larger budget, or make these values smaller: {_largest(best)}",
    )


def gradient_of(program: Program[..., object], wrt: tuple[bool, ...]) -> Program[..., object]:
    """Return the gradient of all floating arguments, as `grad` gives it: of a scalar, or the cotangents of other
    results."""
    program = before_differentiation(program)
    outs = program.out_avals
    scalar = len(outs) == 1 and not outs[0].shape and outs[0].dtype in FLOATING
    jaxpr = transforms.grad(program.jaxpr, wrt) if scalar else vjp_fused(program.jaxpr, wrt)
    ins, results = tuple(range(len(jaxpr.ins))), tuple(range(len(jaxpr.outs)))
    # closed-over arrays are arguments here
    return Program(jaxpr, tree.structure((ins, {})), tree.structure(results), name=f"gradient_{program.name}")


def _temporaries(program: Program[..., object]) -> int:
    return lower(program).compile().memory().temp_bytes


def _largest(plan: MemoryPlan) -> str:
    """Describe the largest values at the peak of a plan."""
    values = []
    for live in peak(vjp_fused(apply_plan(plan), plan.wrt)).values[:3]:
        line = source_location(live.eqn.source)
        values.append(f"{live.eqn.prim.name} {live.aval}{f' ({line})' if line else ''}")
    return ", ".join(values) or "none is known"
