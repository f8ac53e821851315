"""Runs `names_on_devices.py` in a process with 8 CPU devices; and the split of an axis, interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from fxad.testing import Case, cases
from fxad.testing.collective_steps import COLLECTIVE_STEPS
from fxad.testing.spmd_laws import check_split_axis
from tests.laws.budget import share

HERE = Path(__file__).parent


@share(2)
@given(cases(differentiable=True, steps=COLLECTIVE_STEPS, size=5))
def test_an_axis_split_in_two_equals_vmap(case: Case) -> None:
    check_split_axis(case)


@pytest.mark.smoke
def test_on_eight_devices() -> None:
    env = {**os.environ, "FXAD_CPU_DEVICES": "8", "FXAD_PLATFORM": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "names_on_devices.py")],
        env=env, capture_output=True, text=True, check=False, timeout=900, cwd=HERE.parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
