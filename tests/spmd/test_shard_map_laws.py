"""Maps over devices, interpreted, equal vmap, on generated programs with collectives; and tests on 8 devices, in
processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
from fxad import lax
from fxad.primitives.meshes import MeshAxes
from fxad.testing import Case, cases
from fxad.testing.collective_steps import collective_steps
from fxad.testing.draw_collectives import MESHES
from fxad.testing.spmd_laws import check_devices
from tests.laws.budget import share

HERE = Path(__file__).parent


on_meshes = pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: "x".join([str(n) for _, n in mesh]))


@pytest.mark.law
@on_meshes
@pytest.mark.parametrize("smooth", [False, True], ids=["values", "gradients"])
def test_generated_programs(mesh: MeshAxes, smooth: bool) -> None:
    @share(10)
    @given(cases(differentiable=smooth, steps=collective_steps(mesh), size=6))
    def law(case: Case) -> None:
        check_devices(case, mesh)

    law()


def test_a_map_inside_of_a_map_that_waits() -> None:
    """Regression: the interpreter mistook the end of the inner map for a missing partner in the collective of the outer
    map."""
    x = np.arange(8.0).reshape(2, 4)
    f = fx.pmap(lambda row: lax.psum(fx.pmap(lambda v: 2 * v, "b")(row), "a"), "a")
    program = fx.trace(f, x)
    for _ in range(10):
        np.testing.assert_array_equal(fx.interpret(program, x), np.stack([2 * x.sum(0)] * 2))


def on_eight_devices(file: str) -> None:
    """Runs the tests of a file in a process with 8 CPU devices."""
    env = {**os.environ, "FXAD_CPU_DEVICES": "8", "FXAD_PLATFORM": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)],
        env=env, capture_output=True, text=True, check=False, timeout=900, cwd=HERE.parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.smoke
@pytest.mark.skipif(
    version("jaxlib").startswith("0.11."), reason="its XLA refuses the layout of a divided fft's operand"
)
def test_on_eight_devices() -> None:
    on_eight_devices("on_devices.py")


def test_combinations() -> None:
    on_eight_devices("combinations_on_devices.py")


def test_from_jax() -> None:
    pytest.importorskip("jax")
    on_eight_devices("from_jax_on_devices.py")
