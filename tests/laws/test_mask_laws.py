"""The laws of mask, on generated programs of symbolic shape, alone and in stacks of depth 4 with mask in any place."""

from __future__ import annotations

import pytest
from hypothesis import given

from fxad.testing import MASK_STEPS, RaggedCase, check_mask, check_mask_stack, mask_stacks, ragged_cases
from tests.laws.budget import share


@given(ragged_cases())
def test_mask(case: RaggedCase) -> None:
    check_mask(case)


@share(5)
@given(ragged_cases(size=5, depth=1))
def test_mask_in_xla(case: RaggedCase) -> None:
    check_mask(case, compiled=True)


@given(ragged_cases(differentiable=True, size=6, depth=1), mask_stacks())
def test_stacks(case: RaggedCase, stack: tuple[str, ...]) -> None:
    check_mask_stack(stack, case)


@share(5)
@given(ragged_cases(differentiable=True, size=4, depth=1), mask_stacks(2))
def test_stacks_in_xla(case: RaggedCase, stack: tuple[str, ...]) -> None:
    check_mask_stack(stack, case, compiled=True)


@pytest.mark.law
@pytest.mark.parametrize("name", MASK_STEPS)
def test_each_transformation(name: str) -> None:
    @share(5)
    @given(ragged_cases(differentiable=True, size=6, depth=1))
    def law(case: RaggedCase) -> None:
        check_mask_stack((name,), case)

    law()
