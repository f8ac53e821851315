"""Laws of implicit functions over generated problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.testing import Solution, check_implicit, check_stack, solutions, stacks
from tests.laws.budget import share


@share(4)
@given(solutions())
def test_solutions(solution: Solution) -> None:
    check_implicit(solution)


@share(8)
@given(solutions(), stacks(2))
def test_stacks(solution: Solution, stack: tuple[str, ...]) -> None:
    check_stack(stack, solution.case)


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
