"""`plan_memory`: the fastest plan whose executable fits into a number of bytes."""

from __future__ import annotations

from typing import ParamSpec

from fxad.api.lift import check_program
from fxad.errors import AxisNameError, SizeError
from fxad.execution.donation import Donate, donated_operands, donates_any
from fxad.execution.executable import load_with_passes
from fxad.operations.arguments import parse_bytes
from fxad.primitives.marks import with_budget, without_budgets
from fxad.runtime import DEFAULT_OPTIONS, CompileOptions, default_device
from fxad.tracing.program import Program
from fxad.transforms.memory_plans.plan import MemoryPlan
from fxad.transforms.memory_plans.search import Recomputation

P = ParamSpec("P")


def plan_memory(program: Program[P, object], *, budget: int | str, donate: Donate = ()) -> MemoryPlan:
    """Return the plan of `lower(program).compile(budget=budget, donate=donate)`, as a value to print and to edit.

    `program` is what is run: a gradient, or a training step with its optimiser. `lower(program,
    passes=plan.passes)` compiles it under the plan, or under an edited one.

    Law:    the executable under the plan has at most so many bytes of temporaries; a smaller budget never gives more.
    Cost:   plans are compiled until one fits.
    Raises: BudgetError for a budget into which nothing fits, with the least bytes that were reached; ArgumentError
            for a budget that is no number of bytes, and for a value that is not a Program; SizeError for symbolic shapes;
            AxisNameError for collectives over an axis of a map around it.
    """
    check_program("plan_memory", program, ", budget=...")
    limit = parse_bytes("plan_memory", budget)
    if program.jaxpr.free_axes:
        names = ", ".join([repr(name) for name, _ in sorted(program.jaxpr.free_axes)])
        raise AxisNameError(
            f"plan_memory: {program.name} has collectives over the axes {names} of a map around it: it has no memory of"
            " its own to fit into a budget",
            remedy="plan the map around it: plan_memory(trace(pmap(f), ...), budget=...)",
        )
    if program.jaxpr.symbolic:
        raise SizeError(
            f"plan_memory: {program.name} is of symbolic shape: its bytes are not known",
            remedy="give its sizes: specialize(program, n=...)",
        )
    jaxpr = without_budgets(program.jaxpr)
    operands = donated_operands(program, donate) if donates_any(donate) else ()
    options = CompileOptions(donate=operands) if operands else DEFAULT_OPTIONS
    _, passes = load_with_passes(with_budget(jaxpr, limit), "auto", None, options, default_device())
    chosen = passes[-1].function if passes else Recomputation()
    assert isinstance(chosen, Recomputation), chosen
    return MemoryPlan(jaxpr, chosen)
