"""Laws of the memory planner: plans change no result, bit for bit, and budgets hold for executables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.api.budget import plan_memory
from fxad.core.interpreter import run
from fxad.core.trees import tree
from fxad.core.typecheck import typecheck
from fxad.errors import BudgetError
from fxad.execution.executable import lower
from fxad.ir import Jaxpr
from fxad.testing.compare import HostArrays, differ, fail
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.tracing.program import Program
from fxad.transforms import vjp_fused
from fxad.transforms.memory_plans.flat_program import flat_program
from fxad.transforms.memory_plans.plan import MemoryPlan
from fxad.transforms.memory_plans.search import recomputations


def _programs(case: Case) -> list[tuple[Jaxpr, HostArrays]]:
    """Return the program and its gradient, if it has one, with operands."""
    flags = differentiable_flags(case)
    programs: list[tuple[Jaxpr, HostArrays]] = [(case.program, case.args)]
    if any(flags):
        gradient = vjp_fused(case.program, flags)
        cotangents = [np.ones(a.shape, a.dtype) for a in gradient.in_avals[len(case.args) :]]
        programs.append((gradient, (*case.args, *cotangents)))
    return programs


@law
def check_recomputations(case: Case, choose: Sequence[bool] = ()) -> None:
    """Check that every recomputation that a budget may choose, of a program and of its gradient, keeps all results bit
    for bit; also if rows of the plan are edited: `choose` says for each row whether it is computed again."""
    for program, args in _programs(case):
        flat = flat_program(program)
        typecheck(flat)
        results = run(program, args)
        lean = [flat]
        for r in recomputations(flat):
            lean.append(r.program(flat))
            plan = MemoryPlan(program, r)
            rows = list(enumerate(plan.rows))
            again = [k for k, row in rows if k < len(choose) and choose[k] and not row.fixed]
            lean.append(plan.without(*again).keep(*[k for k, _ in rows[: len(choose)] if k not in again]).program)
        for other in lean:
            typecheck(other)
            if problem := differ(run(other, args), results, exact=True):
                fail(f"a recomputation changed the results: {problem}", program, args, other)


@law
def check_budgets(case: Case, shares: Sequence[float] = (0.9, 0.6, 0.3)) -> None:
    """Check that the executable of a gradient keeps to a budget, under the plan of the budget too, or that the error
    names the least that is reached. A smaller budget never needs more memory. Results are those without a budget. The
    plan of a budget of the plain bytes computes nothing again."""
    jaxpr, args = _programs(case)[-1]
    ins, outs = tuple(range(len(jaxpr.ins))), tuple(range(len(jaxpr.outs)))
    program: Program[..., object] = Program(jaxpr, tree.structure((ins, {})), tree.structure(outs))

    def bytes_under(plan: MemoryPlan) -> int:
        return lower(program, passes=plan.passes).compile().memory().temp_bytes

    plain = lower(program).compile().memory().temp_bytes
    if plan_memory(program, budget=plain).program is not jaxpr:
        fail("a budget of the plain bytes changes the program", jaxpr, args)
    results, before = run(jaxpr, args), plain
    for share in shares:
        budget = int(share * plain)
        try:
            plan = plan_memory(program, budget=budget)
        except BudgetError as e:
            if e.least <= budget or e.least > before:
                fail(f"the least budget is said to be {e.least}, {before} bytes were reached", jaxpr, args)
            if bytes_under(plan_memory(program, budget=e.least)) > e.least:
                fail(f"the least budget is said to be {e.least} and is not reached", jaxpr, args)
            return
        used = bytes_under(plan)
        if used > min(budget, before):
            fail(f"{used} bytes with a budget of {budget}, {before} before", jaxpr, args, plan.program)
        if used != lower(program).compile(budget=budget).memory().temp_bytes:
            fail(f"a budget of {budget} is not compiled by its plan", jaxpr, args, plan.program)
        before = used
        if problem := differ(run(plan.program, args), results, exact=True):
            fail(f"a budget changed the results: {problem}", jaxpr, args, plan.program)
