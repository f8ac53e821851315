"""`outline` and `reroll` on programs in which stretches of equations repeat, before and after other transformations."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fxad.testing import Case, check_outline, check_outline_before_ad, check_reroll, check_stack, repeated_cases, stacks
from fxad.testing.outline_laws import check_merge_bodies
from fxad.testing.repeated import part_and_whole_cases
from tests.laws.budget import share


@given(repeated_cases())
def test_outline(case: Case) -> None:
    check_outline(case)


@share(2)
@given(repeated_cases(size=5))
def test_outline_of_groups(case: Case) -> None:
    """A body contains several repetitions that are too short for calls of their own."""
    check_outline(case, 0.01)


@given(repeated_cases())
def test_outline_of_stretches_that_lack_equations(case: Case) -> None:
    """For any limit on equations that are computed without need."""
    check_outline(case, 0.0, 1.0)


@share(2)
@given(repeated_cases(differentiable=True, size=5), stacks(2))
def test_outline_after_other_transformations(case: Case, stack: tuple[str, ...]) -> None:
    check_stack((*stack, "outline"), case)


@share(2)
@given(repeated_cases(differentiable=True, size=5), stacks(2))
def test_outline_before_other_transformations(case: Case, stack: tuple[str, ...]) -> None:
    check_stack(("outline", *stack), case)


@share(5)
@given(repeated_cases(differentiable=True, size=5))
def test_outline_in_xla(case: Case) -> None:
    check_stack(("outline",), case, compiled=True)


@given(repeated_cases(), st.sampled_from((0.0, 1e-4, 1e-3, 1e-2)))
def test_outline_before_differentiation(case: Case, lasts: float) -> None:
    """Some of the bodies are inlined again."""
    check_outline_before_ad(case, lasts)


@share(2)
@given(part_and_whole_cases())
def test_merge_of_bodies_with_inner_calls(case: Case) -> None:
    check_merge_bodies(case)


@given(repeated_cases())
def test_reroll(case: Case) -> None:
    check_reroll(case)


@share(2)
@given(repeated_cases(differentiable=True, size=5), stacks(2))
def test_reroll_after_and_before_other_transformations(case: Case, stack: tuple[str, ...]) -> None:
    check_stack((*stack[:1], "reroll", *stack[1:]), case)
