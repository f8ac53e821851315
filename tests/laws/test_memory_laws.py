"""Policies, plans and partial evaluation on generated programs: they change only the stored values."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fxad.testing import (
    Case,
    cases,
    check_partial_eval,
    check_plan,
    check_policy,
    check_segments,
    repeated_cases,
    some_policies,
)
from fxad.transforms.memory.policies import Policy
from tests.laws.budget import share

MASKS = st.lists(st.booleans(), max_size=12)


@share(2)
@given(cases(differentiable=True), some_policies(), st.none() | some_policies())
def test_policies(case: Case, policy: Policy, inner: Policy | None) -> None:
    check_policy(case, policy, inner)


@share(2)
@given(cases(differentiable=True) | repeated_cases(differentiable=True), st.integers(0, 1 << 16))
def test_segments(case: Case, seed: int) -> None:
    check_segments(case, seed)


@share(2)
@given(cases(differentiable=True), MASKS)
def test_plans(case: Case, choose: list[bool]) -> None:
    check_plan(case, choose)


@share(2)
@given(cases(), MASKS)
def test_partial_evaluation(case: Case, known: list[bool]) -> None:
    check_partial_eval(case, known)
