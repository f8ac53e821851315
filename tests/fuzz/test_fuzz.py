"""Random programs in processes of their own: `tests/fuzz/children.py`. A few in each run; `make fuzz` runs more."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import settings

from tests.fuzz.children import survey
from tests.fuzz.forms import FORMS, case, program

PROGRAMS = int(os.environ.get("FXAD_FUZZ_PROGRAMS", "3000"))


def first_seed() -> int:
    """With CI=1 the programs are the same in each run."""
    return 0 if settings().derandomize else random.randrange(1 << 40)


def test_a_few_random_programs() -> None:
    assert survey(first_seed(), 8) == []


@pytest.mark.fuzz
def test_many_random_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert survey(first_seed(), PROGRAMS) == []


def test_a_seed_is_one_program_and_all_forms_occur() -> None:
    for seed in (3, 4):
        assert program(case(seed))[0].jaxpr is program(case(seed))[0].jaxpr
    assert {form for seed in range(150) for form in case(seed).forms} == {*FORMS}


def test_a_process_that_ends_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs after it run in another process."""
    monkeypatch.setenv("FXAD_FUZZ_ABORT", "5")
    (found,) = survey(5, 2)
    assert found.startswith(f"seed 5: the process ended (-6): {case(5)}")
