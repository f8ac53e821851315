"""Transformations keep the meaning of programs: proved, without tolerances, for programs that are drawn.

The default run takes a few programs of each law. The sweep of 2,000 programs for each:

    python -m pytest -m deep tests/equal/test_equality_laws.py -s

It prints how many programs were decided. `tests.equal.sweep` runs over any number of programs.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fxad.core.builder import Builder
from fxad.diagnosis.equality.decide import Proof
from fxad.ir import Aval
from fxad.primitives.elementwise import COS, MUL, SIN, SQUARE, Square
from fxad.testing import EQUAL_PAIRS, Case, check_equal_pairs
from fxad.testing.equality_laws import verdict
from tests.equal.sweep import LAWS, judge, mutants_portion, twins_portion


@pytest.mark.parametrize("law", LAWS)
def test_transformations_are_proved(law: str) -> None:
    counts = judge(law, 8)
    assert counts[Proof.__name__] >= 0.85 * sum(counts.values()) > 0, counts


@pytest.mark.deep
@pytest.mark.parametrize("law", LAWS)
def test_nearly_all_programs_are_decided(law: str) -> None:
    counts = judge(law, 2_000, 1)
    print(f"\n{law}:", *[f"\n  {n} {x}" for x, n in Counter(counts).most_common(8)])  # noqa: T201 -- the figures
    assert counts[Proof.__name__] >= 0.95 * sum(counts.values())


def test_equal_programs_are_not_found_different() -> None:
    counts = twins_portion(0, 200)
    assert counts["Proof"] >= 150
    assert not counts["Counterexample"] + counts["Counterexample beyond the fields"], counts


def test_planted_faults_are_not_proved() -> None:
    counts = mutants_portion(0, 40)
    assert counts["faults that floats show"] >= 15
    assert counts["Counterexample of what floats show"] == counts["faults that floats show"], counts


def test_a_wrong_tangent_differs_from_exact_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    (x,) = b.inputs([Aval((3,), "float64")])
    program = b.build([b.one(MUL, b.one(SQUARE, x), x)], "cube")
    case = Case(program, (np.zeros(3),), 0, True)
    assert len(list(EQUAL_PAIRS["differences"](case))) == 1
    assert check_equal_pairs("differences", case) == 0
    program._memo.clear()
    monkeypatch.setattr(Square, "tangent", lambda self, ctx, x, y, t: ctx.lin_one(MUL, t, x))
    with pytest.raises(AssertionError, match="the programs are not equal: different: result 0"):
        check_equal_pairs("differences", case)


def test_the_law_of_users_counts_what_is_not_decided() -> None:
    a, b = Builder(), Builder()
    x, y = [builder.inputs([Aval((3,), "float64")])[0] for builder in (a, b)]
    program = a.build([a.one(SIN, x)], "f")
    assert check_equal_pairs("rewrites", Case(program, (np.zeros(3),))) == 0
    with pytest.raises(AssertionError, match="the programs are not equal: different: result 0"):
        verdict(program, b.build([b.one(COS, y)], "g"), [None])
