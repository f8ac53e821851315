"""Laws with parts of the programs compiled apart: arbitrary parts, and those that the cost rule chooses.

`FXAD_UNITS=random` or `auto` does this for every law (`make units-laws`). The laws here do it in every run. The cost
rule compiles small programs whole, so the programs here are large.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given, strategies as st

from fxad import dtypes
from fxad.ir import Aval, Jaxpr
from fxad.passes import plan_of
from fxad.primitives import elementwise as ew
from fxad.testing import Case, cases, check_lower, compare, repeated_cases
from fxad.testing.programs import operands
from fxad.testing.unit_laws import arbitrary_units, check_linkage, split_into_calls
from fxad.units.plan import UnitsChoice
from tests.laws.budget import share
from tests.laws.words import program

LARGE = Aval((1 << 16,), dtypes.float32)
BOUNDED = (ew.SIN, ew.COS, ew.TANH, ew.NEG, ew.ABS)


@contextmanager
def any_units() -> Iterator[None]:
    def choose(jaxpr: Jaxpr) -> UnitsChoice:
        return arbitrary_units(jaxpr, int(jaxpr.digest[:4], 16))

    token = compare.units.set(choose)
    try:
        yield
    finally:
        compare.units.reset(token)


@contextmanager
def chosen_units() -> Iterator[None]:
    token = compare.units.set(lambda _: "auto")
    try:
        yield
    finally:
        compare.units.reset(token)


@share(4)
@given(cases())
def test_any_program_with_arbitrary_units(case: Case) -> None:
    with any_units():
        check_lower(Case(split_into_calls(case.program, case.seed), case.args, case.seed, case.smooth))


@share(4)
@given(repeated_cases(size=5))
def test_repetitions_with_arbitrary_units(case: Case) -> None:
    with any_units():
        check_lower(case)


@st.composite
def repeating(draw: st.DrawFn) -> list[int]:
    """Words in which a piece occurs many times in a row, with letters before and after. The piece starts with letters
    that repeat nothing, because smaller repetitions would not be worth a unit."""
    tail = st.lists(st.integers(0, len(BOUNDED) - 1), min_size=4, max_size=8)
    layer = [0, 1, 2, 3, 4, 0, 2, 4, 1, 3, 0, 3, 1, 4, 2, 2, 0, 4, 3, 1, *draw(tail)]
    own = st.lists(st.integers(0, len(BOUNDED) - 1), max_size=3)
    return [*draw(own), *layer * draw(st.integers(26, 28)), *draw(own)]


@share(4)
@given(repeating(), st.integers(0, 99))
def test_large_programs_with_the_units_of_the_rule(word: list[int], seed: int) -> None:
    """The test asserts that the rule chooses units; otherwise the law could not fail."""
    jaxpr = program(word, LARGE, BOUNDED)
    plan = plan_of(jaxpr, "auto")
    assert len(plan.steps) > 1
    assert plan.equations < len(jaxpr.eqns)
    check_linkage(plan, jaxpr)
    with chosen_units():
        check_lower(Case(jaxpr, operands(jaxpr, seed)))


@share(4)
@given(cases(), repeated_cases())
def test_small_programs_are_one_unit(case: Case, other: Case) -> None:
    """Programs of the other laws are compiled whole, so `FXAD_UNITS=auto` tests little in those laws."""
    for c in (case, other):
        assert len(plan_of(c.program, "auto").units) == 1
