"""Planted faults in programs of hundreds to thousands of equations are reduced to a few equations.

python -m pytest -m deep tests/reduce/test_planted.py      100 faults, with a line for each; some minutes
"""

from __future__ import annotations

import time

import pytest

import fxad as fx
from fxad.diagnosis.reduce.reduced import Reduced
from fxad.ir import distinct_jaxprs
from tests.reduce.planted import Fault, fault

FAULTS = 100
LEAST = 95  # of them are reduced to `MOST` equations in `SECONDS`
MOST = 6
SECONDS = 60.0


def reduce(planted: Fault) -> Reduced[..., object]:
    return fx.reduce_program(planted.program, planted.fails, planted.args, budget_s=SECONDS)


def is_planted(planted: Fault, small: Reduced[..., object]) -> bool:
    """It fails for the planted reason, at the planted primitive."""
    names = {e.prim.name for body in distinct_jaxprs(small.jaxpr) for e in body.eqns}
    return small.reason == planted.reason and not names.isdisjoint(planted.needs)


@pytest.mark.parametrize("kind", ["jvp", "transpose", "batch", "links", "nan", "loop", "distant"])
def test_a_planted_fault_is_reduced(kind: str) -> None:
    planted = fault(7, kind, least=300, most=400)
    small = reduce(planted)
    assert small.minimal
    assert small.equations <= MOST < 300 <= small.before
    assert is_planted(planted, small), small
    assert planted.fails(small, small.args) == planted.reason


@pytest.mark.deep
def test_planted_faults_are_reduced() -> None:
    failed = []
    seconds = []
    for seed in range(FAULTS):
        planted = fault(seed)
        start = time.perf_counter()
        small = reduce(planted)
        seconds.append(time.perf_counter() - start)
        good = small.equations <= MOST and is_planted(planted, small) and seconds[-1] <= SECONDS
        line = f"{'reduced' if good else 'NOT'} {planted.kind} {seed}: {small.before} to {small.equations} equations"
        print(f"{line}, {small.attempts} attempts, {seconds[-1]:.1f} s, {small.stopped}")  # noqa: T201
        if not good:
            failed.append(f"{planted.kind} {seed}\n{small}")
    print(f"{FAULTS - len(failed)} of {FAULTS} faults; at most {max(seconds):.1f} s, {sum(seconds):.0f} s in all")  # noqa: T201
    assert len(failed) <= FAULTS - LEAST, "\n".join(failed)
