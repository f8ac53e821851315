"""The laws of mask, on generated programs of symbolic shape, alone and in stacks of depth 4 with mask in any place, and
on applications of each primitive."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from fxad.core.sizes.size import Size
from fxad.errors import NotDifferentiableError
from fxad.ir import Primitive
from fxad.primitives import ALL
from fxad.primitives.collectives import COLLECTIVES
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.gather_scatter import Scatter
from fxad.primitives.host_call import HostCall
from fxad.testing import (
    MASK_STEPS,
    RaggedCase,
    check_mask,
    check_mask_stack,
    mask_stacks,
    ragged_applications,
    ragged_cases,
)
from fxad.text import parse
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


def test_a_transformation_may_remove_a_size() -> None:
    program = parse("""main @f(%arg0: f32[]) -> (f32[]) {
  %0: i32[n] = iota[shape=({n},), dtype=i32, axis=0]
  %1: f32[] = mul %arg0, %arg0
  return %1
}
""")
    assert check_mask_stack(("dce",), RaggedCase(program, (("n", 4),), {"n": 3}))


# ---------------------------------------------------------------------------------------------------- every primitive

# a map has to bind the axes of collectives: tests/mask/test_named_axes.py
APPLIED = [k for k in ALL if k not in (*COLLECTIVES, ShardMap)]
every = pytest.mark.parametrize("kind", APPLIED, ids=lambda kind: kind.name)


@pytest.mark.law
@every
def test_each_primitive(kind: type[Primitive]) -> None:
    @share(10)
    @given(ragged_applications(kind))
    def law(case: RaggedCase) -> None:
        assert check_mask(case) or kind is HostCall, f"{kind.name} is refused: {case}"

    law()


@pytest.mark.law
@every
def test_derivatives_of_each_primitive(kind: type[Primitive]) -> None:
    @share(10)
    @given(ragged_applications(kind, smooth=True), st.sampled_from(["grad", "jvp", "linearize", "vjp"]))
    def law(case: RaggedCase, step: str) -> None:
        with suppress(NotDifferentiableError):
            check_mask_stack((step,), case)

    law()


@every
def test_each_operand_and_result_has_a_masked_axis_in_some_case(kind: type[Primitive]) -> None:
    arrays: set[int] = set()
    masked: set[int] = set()
    results = False

    @settings(
        max_examples=15,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(ragged_applications(kind, literals=False))
    def reach(case: RaggedCase) -> None:
        nonlocal results
        for k, a in enumerate(case.program.in_avals):
            arrays.update([k] if a.shape else [])
            masked.update([k] if any([type(n) is Size for n in a.shape]) else [])
        results = results or any([type(n) is Size for a in case.program.out_avals for n in a.shape])

    reach()
    assert arrays <= masked
    assert results


@share(5)
@given(ragged_applications(Scatter, examples=False))
def test_unique_and_sorted_indices_are_promised_of_one_window_at_most(case: RaggedCase) -> None:
    """Regression: a case had two windows at one place and promised unique indices. One in some thousand cases was
    so."""
    for eqn in case.program.eqns:
        if isinstance(eqn.prim, Scatter) and (eqn.prim.unique_indices or eqn.prim.indices_sorted):
            assert all([n in (0, 1) for n in eqn.ins[1].aval.shape[:-1]])
