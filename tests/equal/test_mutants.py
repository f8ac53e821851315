"""Planted algebraic faults are found, each with operands that show it, and no proof is given of a program that differs.

The sweep over more programs: `python -m pytest -m deep tests/equal/test_mutants.py -s`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, seed

from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.diagnosis.equality.decide import decide
from fxad.diagnosis.equality.verdict import Counterexample, Proof, Question
from fxad.errors import FxadError
from fxad.ir import NDArray
from fxad.testing import Case, cases
from tests.equal.mutants import mutants
from tests.laws.budget import sweep_of


def difference(left: list[NDArray], right: list[NDArray]) -> float:
    """The largest difference of results, relative to each element."""
    most = 0.0
    for a, b in zip(left, right, strict=True):
        if a.dtype.kind not in "fcV":
            most = max(most, float(not np.array_equal(a, b)))
            continue
        x, y = a.astype(np.complex128), b.astype(np.complex128)
        with np.errstate(all="ignore"):
            ratio = np.abs(x - y) / (np.abs(x) + 1e-3)
        most = max(most, float(ratio[np.isfinite(ratio)].max(initial=0.0)))
    return most


def found_mutants(programs: int, start: int) -> tuple[Counter[str], list[str]]:
    """Plant faults in drawn programs, two in each. Those that change a result by more than rounding must be found."""
    counts, missed = Counter[str](), list[str]()

    @seed(start)
    @sweep_of(programs)
    @given(cases(differentiable=True))
    def sweep(case: Case) -> None:
        program, want = case.program, run(case.program, case.args)
        known = [None if v.aval.inexact else x for v, x in zip(program.ins, case.args, strict=True)]
        planted = mutants(program)
        order = np.random.default_rng(case.seed).permutation(len(planted))
        for what, mutant in [planted[k] for k in order[:2]]:
            try:
                typecheck(mutant)
                have = run(mutant, case.args)
            except FxadError:
                continue
            found = decide(Question((program, mutant), ((), ()), known))
            size = difference(list(want), list(have))
            constant = "constant" in what
            if size > (1e-13 if constant else 1e-3):
                counts["planted", "constant" if constant else "operation"] += 1  # type: ignore[index]
                if not isinstance(found, Counterexample):
                    missed.append(f"{what}: {found}\n{program}")
                assert not isinstance(found, Proof), f"{what}: {found}\n{program}"

    sweep()
    return counts, missed


def test_planted_faults_are_found() -> None:
    counts, missed = found_mutants(15, 1)
    assert counts.total() >= 5
    assert not missed, missed[0]


@pytest.mark.deep
def test_hundreds_of_planted_faults_are_found() -> None:
    counts, missed = found_mutants(1500, 2)
    print(f"\n{dict(counts)}, {len(missed)} missed", *missed)  # noqa: T201 -- the figures of the sweep
    assert counts.total() >= 500
    assert len(missed) <= 0.005 * counts.total()
