"""Effects under every transformation: the log of a program's effects is that of the interpreter."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fxad.testing import Case, cases
from fxad.testing.effect_laws import check_effects
from tests.laws.budget import share

SEEDS = st.integers(0, 99)


@given(cases(), SEEDS)
def test_any_program(case: Case, seed: int) -> None:
    check_effects(case, seed)


@given(cases(differentiable=True), SEEDS)
def test_differentiable_programs(case: Case, seed: int) -> None:
    check_effects(case, seed)


@share(8)
@given(cases(differentiable=True, size=5, depth=1), SEEDS)
def test_compiled(case: Case, seed: int) -> None:
    """Also with units: FXAD_UNITS=random, FXAD_UNITS=auto."""
    check_effects(case, seed, compiled=True)
