"""Laws of implicit functions on generated problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.testing import STEPS, Case, Solution, check_implicit, check_stack, solutions, stacks
from fxad.testing.compare import step_along, to_widest_dtype
from tests.laws.budget import share

NEXT, MOST = 1e-9, 200.0  # the relative change of operands, and the largest amplification in the results


@share(4)
@given(solutions())
def test_solutions(solution: Solution) -> None:
    check_implicit(solution)


@share(8)
@given(solutions(), stacks(2))
def test_stacks(solution: Solution, stack: tuple[str, ...]) -> None:
    case: Case | None = solution.case
    for name in stack:  # a matrix in the residuals of `linearize` may be singular when it is mapped over
        assume(case is None or well_conditioned(case))
        case = case and STEPS[name].apply(case)
    check_stack(stack, solution.case)


def well_conditioned(case: Case) -> bool:
    """Returns True if small changes of the operands change the results little, at the drawn operands and at those of
    the laws of batching."""
    mask = [v.inexact for v in case.program.in_avals]
    with np.errstate(all="ignore"):
        for args in (case.args, [np.roll(a, 1) for a in case.args]):
            here = [to_widest_dtype(y) for y in run(case.program, args)]
            dots = [a for a, m in zip(args, mask, strict=True) if m]
            there = [to_widest_dtype(y) for y in run(case.program, step_along(args, dots, mask, NEXT))]
            size = max([1.0, *[float(np.max(np.abs(y), initial=0)) for y in here]])
            moves = [float(np.max(np.abs(b - a), initial=0)) for a, b in zip(here, there, strict=True)]
            if not all([m <= MOST * NEXT * size for m in moves]) or size > MOST:
                return False
    return True


@pytest.mark.parametrize(("turned", "well"), [(1.0, True), (0.1, True), (1e-4, False), (0.0, False)])
def test_a_nearly_singular_system_is_not_well_conditioned(turned: float, well: bool) -> None:
    x, y = np.array([[1.0, 1.0], [1.0, 1.0 + turned]]), np.array([1.0, 2.0])
    case = Case(fx.trace(fnp.linalg.solve, x, y).jaxpr, (x, y))
    assert well_conditioned(case) == well


def test_a_wrong_tangent_solver_is_found() -> None:
    def solved(tangents: Any) -> Any:
        def f(c: Any) -> Any:
            return lax.custom_root(lambda x: fnp.sinh(x) - c, c, lambda _, x: fnp.arcsinh(c), tangents)

        return f

    c = np.array([0.5, -1.0])
    reference = fx.trace(fnp.arcsinh, c).jaxpr
    right = fx.trace(solved(lambda g, y: y / g(fnp.ones_like(y))), c).jaxpr
    check_implicit(Solution(right, reference, (c,)))
    wrong = fx.trace(solved(lambda g, y: y), c).jaxpr
    with pytest.raises(AssertionError, match="another gradient"):
        check_implicit(Solution(wrong, reference, (c,)))
    with pytest.raises(AssertionError, match="not the solution"):
        check_implicit(Solution(fx.trace(fnp.sinh, c).jaxpr, reference, (c,)))
