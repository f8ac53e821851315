"""Every transformation on generated programs: any well-typed program for rewriting passes, float64 programs for
derivatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fxad import testing
from fxad.core.builder import Builder
from fxad.ir import Aval
from fxad.primitives.elementwise.trigonometric import SIN
from fxad.primitives.marks import Keep
from fxad.testing import Case, cases, check_lower, check_remat
from fxad.testing.control_steps import while_step
from fxad.testing.steps import GROWTH_STEPS
from tests.laws.budget import share

ANY = (
    testing.check_dce,
    testing.check_cse,
    testing.check_simplify,
    testing.check_inline,
    testing.check_outline,
    testing.check_remat,
    testing.check_vmap,
    testing.check_vmap_identity,
    testing.check_vmap_nested,
    testing.check_vmap_commutes,
    testing.check_program_jvp,
    testing.check_linearize,
    testing.check_program_transpose,
    testing.check_tangents_transpose,
    testing.check_vjp,
)
DIFFERENTIABLE = (
    testing.check_program_jvp,
    testing.check_linearize,
    testing.check_program_transpose,
    testing.check_tangents_transpose,
    testing.check_vjp,
    testing.check_grad,
    testing.check_jacobian,
    testing.check_second_order,
    testing.check_vmap,
    testing.check_vmap_commutes,
    testing.check_remat,
)


@pytest.mark.law
@pytest.mark.parametrize("check", ANY, ids=lambda check: check.__name__)
def test_any_program(check: Callable[[Case], None]) -> None:
    @given(cases())
    def law(case: Case) -> None:
        check(case)

    law()


@pytest.mark.law
@pytest.mark.parametrize("check", DIFFERENTIABLE, ids=lambda check: check.__name__)
def test_differentiable_programs(check: Callable[[Case], None]) -> None:
    @given(cases(differentiable=True))
    def law(case: Case) -> None:
        check(case)

    law()


FORWARD = (
    testing.check_program_jvp,
    testing.check_linearize,
    testing.check_vmap,
    testing.check_vmap_nested,
)


@pytest.mark.law
@pytest.mark.parametrize("check", FORWARD, ids=lambda check: check.__name__)
def test_programs_with_forward_mode_only(check: Callable[[Case], None]) -> None:
    """Loops may have no bound. The laws are those of forward mode, its linear program, and batching of both."""

    @given(cases(differentiable=True, unbounded=True, steps=(*GROWTH_STEPS, while_step, while_step)))
    def law(case: Case) -> None:
        check(case)

    law()


@share(2)
@given(cases())
def test_lowering(case: Case) -> None:
    check_lower(case)


@share(2)
@given(cases(differentiable=True))
def test_lowering_of_differentiable_programs(case: Case) -> None:
    check_lower(case)


LONG = st.sampled_from([1, 100, 1000, 16_385, 20_000, 40_000, 100_000])


@pytest.mark.as_users_compile
@share(4)
@given(st.data(), LONG, st.integers(5, 40), st.booleans())
def test_lowering_of_long_programs_over_long_arrays(data: st.DataObject, long: int, size: int, smooth: bool) -> None:
    """XLA divides the work on long arrays among threads, and fuses long programs in other ways than short ones."""
    check_lower(data.draw(cases(differentiable=smooth, size=size, depth=1, long=long)))


@share(4)
@given(cases(differentiable=True, size=5))
def test_remat_in_xla(case: Case) -> None:
    """Gradients are the same with and without recomputation, in compiled code too."""
    check_remat(case, compiled=True)


def test_remat_may_store_what_the_program_marks() -> None:
    b = Builder()
    x = b.input(Aval((3,), "float64"))
    kept = b.one(Keep("a", ()), b.one(SIN, x))
    check_remat(Case(b.build([b.one(SIN, kept)]), (np.linspace(0.1, 1.0, 3),), 0, True))
