"""Primitives with bodies from outside fxad obey every law of every transformation, and no transformation knows them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.ir import Atom, Aval, Lit, NDArray
from fxad.primitives.elementwise import ADD, COS, LT, MUL, SIN
from fxad.testing import (
    Application,
    Case,
    cases,
    check_layout,
    check_partial_eval,
    check_plan,
    check_policy,
    check_segments,
    some_policies,
)
from fxad.testing.effect_laws import check_effects
from fxad.testing.memory_laws import work
from fxad.testing.unit_laws import check_units
from fxad.transforms import partial_eval
from fxad.transforms.memory import policies
from fxad.transforms.memory.policies import Policy
from tests.laws.budget import share
from tests.laws.own_bodies import OWN, Until
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


@given(cases(steps=OWN, size=5))
def test_layouts(case: Case) -> None:
    """The results of an equation are those of its bodies, run as its layout says."""
    env: dict[Atom, NDArray] = dict(zip(case.program.ins, case.args, strict=True))
    for eqn in case.program.eqns:
        ins = tuple([a.array if isinstance(a, Lit) else env[a] for a in eqn.ins])
        application = Application(eqn.prim, ins)
        check_layout(application)
        env.update(zip(eqn.outs, run(application.program, ins), strict=True))


def _loop_whose_predicate_reads_the_step(limit: float) -> Case:
    """A loop with one body: the predicate, a carry and the sum in the other carry contain the same sine."""
    b, x = Builder(), Aval((), dtypes.float64)
    ins = bound, constant, known, unknown = b.inputs((x, x, x, x))
    s = b.one(SIN, known)
    cosine = b.one(COS, constant)
    body = b.build((b.one(LT, s, bound), s, b.one(ADD, unknown, b.one(MUL, s, cosine)), unknown, s), "until")
    args = tuple([np.asarray(v) for v in (limit, 0.3, 2.0, 0.7)])
    b = Builder()
    ins = b.inputs([v.aval for v in ins])
    return Case(b.build(b(Until(body, 4, 2), *ins), "main"), args, 0, smooth=True)


@pytest.mark.parametrize("limit", [0.8, 1.0, 0.0])  # some steps, all, one
@pytest.mark.parametrize("known", list(product([False, True], repeat=4)))
def test_a_predicate_in_the_step(limit: float, known: tuple[bool, ...]) -> None:
    """Partial evaluation computes what the predicate shares with the step once, and the step as often as the loop
    runs."""
    case = _loop_whose_predicate_reads_the_step(limit)
    check_partial_eval(case, known)
    halves = partial_eval(case.program, known)
    split = known[0] and known[2] and not all(known)
    assert [e.prim.name for e in halves.unknown.eqns if e.prim.name in {"until", "scan"}] == (
        ["scan"] if split else [] if all(known) else ["until"]
    )
    assert work(halves.known)["sin"] == (4 if split or all(known) else 0)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_the_step_of_a_loop_that_never_runs_stores_nothing(most: int) -> None:
    """A loop without slices reads the stored values of a step by the index of the step. A loop without steps has no
    index."""
    b, x = Builder(), Aval((), dtypes.float64)
    (carry,) = b.inputs((x,))
    sine = b.one(SIN, b.one(COS, carry))
    body = b.build((b.one(LT, sine, Lit.of(2, x)), sine, sine), "until")
    b = Builder()
    (start,) = b.inputs((x,))
    case = Case(b.build(b(Until(body, most, 0), start)[:1], "main"), (np.asarray(0.5),), 0, smooth=True)
    for policy in (policies.everything, policies.where(lambda eqn: eqn.prim.name == "cos", "cosines")):
        check_policy(case, policy)


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
