"""The law of implicit functions: the derivatives of a solution do not depend on the solver."""

from __future__ import annotations

from typing import Final

from fxad.core.interpreter import run
from fxad.testing.batching_laws import mapped_dims
from fxad.testing.compare import differ, fail
from fxad.testing.derivative_laws import check_same_derivatives, check_vjp
from fxad.testing.programs import Case
from fxad.testing.solutions import Solution
from fxad.testing.values import examples, stack
from fxad.transforms.vmap import vmap

RTOL: Final = 1e-7


def check_implicit(solution: Solution, *, rtol: float = RTOL) -> None:
    """Check that the solution, its tangents, its gradient and their derivatives equal those of the reference within
    `rtol`, for one example and batched. Its vjp is the adjoint of its jvp."""
    program, reference, args = solution.program, solution.reference, solution.args
    if problem := differ(run(program, args), run(reference, args), slack=rtol):
        fail(f"not the solution: {problem}", program, args, reference)
    check_vjp(solution.case)
    check_same_derivatives(Case(reference, args, solution.seed, True), program, rtol)
    dims = mapped_dims(solution.case)
    if all([d is None for d in dims]):
        return
    stacks = stack(examples(args, dims), dims)
    ends = (0,) * len(program.outs)
    batched, plain = [vmap(f, 2, dims, ends)[0] for f in (program, reference)]
    if problem := differ(run(batched, stacks), run(plain, stacks), slack=rtol):
        fail(f"batched, not the solution: {problem}", program, stacks, batched)
    check_same_derivatives(Case(plain, stacks, solution.seed, True), batched, rtol)
