"""Random stacks of transforms, up to depth 4: every law at every step."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fxad.testing import STEPS, Case, cases, check_stack, stacks
from fxad.testing.control_steps import while_step
from fxad.testing.steps import GROWTH_STEPS
from tests.laws.budget import share


@given(cases(differentiable=True, size=6, depth=1), stacks())
def test_stacks(case: Case, stack: tuple[str, ...]) -> None:
    check_stack(stack, case)


@share(5)
@given(cases(differentiable=True, size=4, depth=1), stacks(3))
def test_stacks_in_xla(case: Case, stack: tuple[str, ...]) -> None:
    check_stack(stack, case, compiled=True)


FORWARD = ("jvp", "vmap", "linearize", "call", "dce", "cse", "simplify", "inline", "outline")


@given(
    cases(differentiable=True, size=5, depth=1, unbounded=True, steps=(*GROWTH_STEPS, while_step, while_step)),
    st.lists(st.sampled_from(FORWARD), min_size=2, max_size=3).map(tuple),
)
def test_stacks_of_forward_mode(case: Case, stack: tuple[str, ...]) -> None:
    """Loops may have no bound."""
    check_stack(stack, case)


@pytest.mark.law
@pytest.mark.parametrize("first", STEPS)
def test_pairs(first: str) -> None:
    """Each pair of transforms, one after the other."""

    @share(8)
    @given(cases(differentiable=True, size=5, depth=1))
    def law(case: Case) -> None:
        for second in STEPS:
            check_stack((first, second), case)

    law()
