"""Primitives with bodies from outside fxad obey every law of every transformation, and no transformation knows them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxad.testing import Case, cases, check_partial_eval, check_plan, check_policy, check_segments, some_policies
from fxad.testing.effect_laws import check_effects
from fxad.testing.unit_laws import check_units
from fxad.transforms.memory.policies import Policy
from tests.laws.budget import share
from tests.laws.own_bodies import OWN
from tests.laws.test_transform_laws import ANY, DIFFERENTIABLE

SEEDS = st.integers(0, 99)
MASKS = st.lists(st.booleans(), max_size=12)


@pytest.mark.law
@pytest.mark.parametrize("check", ANY, ids=lambda check: check.__name__)
def test_any_program(check: Callable[[Case], None]) -> None:
    @share(2)
    @given(cases(steps=OWN, size=5))
    def law(case: Case) -> None:
        check(case)

    law()


@pytest.mark.law
@pytest.mark.parametrize("check", DIFFERENTIABLE, ids=lambda check: check.__name__)
def test_differentiable_programs(check: Callable[[Case], None]) -> None:
    @share(2)
    @given(cases(differentiable=True, steps=OWN, size=5))
    def law(case: Case) -> None:
        check(case)

    law()


@share(2)
@given(cases(differentiable=True, steps=OWN, size=5), some_policies(), st.none() | some_policies())
def test_policies(case: Case, policy: Policy, inner: Policy | None) -> None:
    check_policy(case, policy, inner)


@share(2)
@given(cases(differentiable=True, steps=OWN, size=5), st.integers(0, 1 << 16))
def test_segments(case: Case, seed: int) -> None:
    check_segments(case, seed)


@share(2)
@given(cases(differentiable=True, steps=OWN, size=5), MASKS)
def test_plans(case: Case, choose: list[bool]) -> None:
    check_plan(case, choose)


@given(cases(steps=OWN, size=5), MASKS)
def test_partial_evaluation(case: Case, known: list[bool]) -> None:
    check_partial_eval(case, known)


@given(cases(differentiable=True, steps=OWN, size=5), SEEDS)
def test_effects_and_checks(case: Case, seed: int) -> None:
    check_effects(case, seed)


@share(8)
@given(cases(differentiable=True, steps=OWN, size=5, depth=1), SEEDS)
def test_effects_and_checks_compiled(case: Case, seed: int) -> None:
    check_effects(case, seed, compiled=True)


@share(4)
@given(cases(steps=OWN, size=5), SEEDS)
def test_units(case: Case, seed: int) -> None:
    check_units(case, seed)
