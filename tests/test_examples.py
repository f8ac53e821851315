"""Each example, in a quick mode, returns the figures that it claims."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import random

pytestmark = [pytest.mark.examples, pytest.mark.as_users_compile]  # they compute more than they compile

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str) -> ModuleType:
    """Returns an example as a module. Its `main(argv)` returns the figures that the example is about."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up the names in their annotations in `sys.modules`
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plot(tmp_path: Path) -> Iterator[list[str]]:
    """The arguments with which an example draws, where matplotlib is installed. Its picture is read at the end."""
    if importlib.util.find_spec("matplotlib") is None:
        yield []
        return
    file = tmp_path / "picture.svg"
    yield ["--plot", str(file)]
    assert ET.parse(file).getroot().tag.endswith("svg")
    assert 4_000 < file.stat().st_size < 400_000


def test_an_example_that_cannot_draw_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    pictures, parser = load("pictures"), argparse.ArgumentParser()
    pictures.add_option(parser)
    assert parser.parse_args([]).plot is None
    with pytest.raises(SystemExit, match="pip install 'fxad\\[examples\\]'"), pictures.drawing(tmp_path / "p.svg"):
        pass


def test_digits_learns(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = load("digits").main(["--steps", "600"])
    assert accuracy > 0.9, "600 steps give 95 %, the full run 98 %"
    out = capsys.readouterr().out
    grad, lean = [row.split("│")[-2] for row in out.splitlines() if "value_and_grad" in row]
    assert int(lean.replace(",", "")) <= 66 * 1024 < int(grad.replace(",", "")) / 3
    assert "traced again: the same value, 0 compilations" in out
    assert "held out" in out


def test_per_example_gradients_find_wrong_labels() -> None:
    assert load("per_example_gradients").main(["--steps", "100"]) > 0.5, "by chance: 5 %"


def test_newton_converges_quadratically() -> None:
    newton = load("newton")
    norms = [newton.main(["--steps", str(n)]) for n in (0, 5, 10)]
    assert norms[0] > 1e-2
    assert norms[1] < norms[0]
    assert norms[2] < 1e-12


def test_characters_learns_more_than_frequencies(capsys: pytest.CaptureFixture[str]) -> None:
    figures = load("characters").main(["--steps", "100", "--length", "40"])
    assert figures["held out"] < figures["unigram"] - 0.6, "100 steps give 2.2 nats against 3.1, the full run 2.0"
    assert figures["remat"] < figures["plain"] / 2, "temporaries of a step, whose layers are rematerialised"
    assert "|" in capsys.readouterr().out, "prompt and continuation"


def test_orbits_finds_masses_within_their_error_bars() -> None:
    figures = load("orbits").main([])
    assert figures["drift"] < 1e-4, "relative, of the energy"
    assert 0.9 < figures["misfit"] < 1.1, "1,440 coordinates: 1 +- 0.04"
    assert figures["chi squared"] < 40, "of 16 unknowns: above 40 once in 1,300 times"
    assert figures["worst"] < 1e-3, "relative, of all masses"
    assert figures["between modes"] < 1e-9
    assert figures["remat"] < figures["plain"] / 20, "temporaries of the gradient: 120 intervals of 20 steps"


def test_sampler_agrees_with_integration() -> None:
    figures = load("sampler").main([])
    assert figures["off"] < 4.5, "standard errors, the greatest of ten"
    assert figures["size"] > 4000, "of 24,000 draws"
    assert figures["r_hat"] < 1.01
    assert figures["mu"] == pytest.approx(4.4, abs=0.2), "as published, with these priors"
    assert figures["tau"] == pytest.approx(3.6, abs=0.2)


def test_sampler_agrees_with_a_conjugate_model() -> None:
    """Regression with normal priors and noise: the posterior is a normal distribution known in closed form."""
    sampler = load("sampler")
    rng = np.random.default_rng(0)
    design = np.column_stack([rng.normal(size=(20, 3)), np.ones(20)])
    y = design @ [1.0, -0.5, 0.0, 2.0] + rng.normal(size=20)
    covariance = np.linalg.inv(design.T @ design + np.eye(4))

    def log_density(x: dict[str, fx.Array]) -> fx.Array:
        error = design[:, :3].astype(np.float32) @ x["slopes"] + x["offset"] - y.astype(np.float32)
        return -0.5 * (fnp.sum(error**2) + fnp.sum(x["slopes"] ** 2) + x["offset"] ** 2)

    like = {"offset": fnp.asarray(0.0), "slopes": fnp.zeros(3)}
    run = fx.vmap(lambda key: sampler.chain(log_density, like, key, warm_up=300, draws=1000)[0])
    drawn = fx.jit(run)(random.split(random.key(0), 8))
    draws = fnp.concat([drawn["slopes"], drawn["offset"][..., None]], axis=-1)
    mean, size, r_hat = [np.asarray(x, np.float64) for x in sampler.diagnose(draws)]
    assert np.all(r_hat < 1.01)
    assert np.all(np.abs(mean - covariance @ design.T @ y) < 4.5 * np.sqrt(np.diag(covariance) / size))
    found = np.cov(np.asarray(draws, np.float64).reshape(-1, 4).T)
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert np.max(np.abs(found - covariance) / scale) < 0.1


def test_sampler_estimates_the_number_of_independent_draws() -> None:
    """Draws with an autocorrelation of one half are worth a third of independent ones."""
    noise = np.random.default_rng(0).normal(size=(8, 2000, 1))
    draws = np.zeros_like(noise)
    for k in range(1, 2000):
        draws[:, k] = 0.5 * draws[:, k - 1] + noise[:, k]
    diagnose = fx.jit(load("sampler").diagnose)
    _, size, r_hat = diagnose(fnp.asarray(draws))
    assert float(size[0]) == pytest.approx(16000 / 3, rel=0.1)
    assert float(r_hat[0]) < 1.01
    _, size, r_hat = diagnose(fnp.asarray(draws + np.arange(8)[:, None, None]))
    assert float(r_hat[0]) > 1.5, "chains that do not mix"
    assert float(size[0]) < 50


def test_leapfrog_needs_the_same_memory_for_all_steps() -> None:
    figures = load("leapfrog").main(["--pendulums", "64"])
    assert figures["KB, 8 steps"] == figures["KB, 256 steps"] < figures["stored KB"] / 10
    assert figures["apart"] < 1e-4
    assert figures["error"] < 1e-4


def test_revnet_needs_the_same_memory_at_all_depths() -> None:
    figures = load("revnet").main(["--steps", "150"])
    assert figures["KB, 8 blocks"] == figures["KB, 256 blocks"] < figures["stored KB"] / 10
    assert figures["apart"] < 1e-3
    assert figures["error"] < 1e-3
    assert figures["accuracy"] > 0.8


def test_a_simulator_is_fitted_under_a_limit(plot: list[str]) -> None:
    figures = load("limited_simulator").main(["--fits", "3", *plot])
    assert figures["KiB"] <= 1024 < figures["plain KiB"] / 20
    assert figures["last"] < figures["first"]


def test_a_transformer_is_trained_under_a_limit() -> None:
    figures = load("limited_transformer").main(["--steps", "12"])
    assert figures["KiB"] <= 8192 < figures["plain KiB"]
    assert figures["last"] < figures["first"]


def test_every_example_is_tested() -> None:
    # tests/spmd/test_processes.py runs the example of two processes, tests/interop/test_packages.py that of flax;
    # side_by_side is a module of the parallel ones
    here = Path(__file__).read_text(encoding="utf-8")
    untested = {p.stem for p in EXAMPLES.glob("*.py") if f'load("{p.stem}")' not in here}
    assert untested - {f"{kind}_parallel" for kind in PARALLEL} == {"flax_model", "side_by_side", "two_processes"}


PARALLEL = {
    # the bytes of collectives that a device sends in a step
    "data": "psum        data=8     9           425,992",
    "tensor": "psum        model=4            8           524,288",
    "pipeline": "ppermute    stage=8    30           491,520",
}


@pytest.mark.parametrize("kind", PARALLEL)
def test_parallel_training_equals_that_on_one_device(kind: str, plot: list[str]) -> None:
    """The example asserts that the parameters agree. It needs 8 devices, so it runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{kind}_parallel.py"), "--steps", "3", *plot],
        env={**os.environ, "FXAD_PLATFORM": "cpu"}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert PARALLEL[kind] in done.stdout
    losses = [line.split()[-2:] for line in done.stdout.splitlines() if "loss" in line or "on one device" in line]
    (first, last), alone = [[float(x.strip(",")) for x in pair] for pair in losses]
    assert last < first - 0.3
    assert (first, last) == pytest.approx(alone, abs=2e-4)


def test_checkpointing_keeps_to_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    figures = load("checkpointing").main(["--steps", "256"])
    assert figures["2 sqrt(n)"] < figures["n"] / 4 < figures["scan"] / 4
    assert figures["2 log2(n)"] < figures["2 sqrt(n)"]
    assert figures["off"] < 1e-5
    assert figures["uneven"] == 0, "binomial segments: the gradient of lax.scan, bit for bit"
    assert figures["beyond"] == 0, "steps computed, as in the closed formula"
    out = capsys.readouterr().out
    assert "     3        266       266      too few states" in out, "a budget of scans has to be larger"


def test_binomial_checkpointing_computes_the_fewest_possible_steps() -> None:
    """The reference is dynamic programming over all ways to split, without the closed formula."""
    checkpointing = load("checkpointing")
    step = fx.jit(lambda waves, _: ((fnp.sin(waves[0]) ** 2, waves[0]), waves[1][0]))
    x = np.linspace(0.1, 1, 3).astype(np.float32)
    best: dict[tuple[int, int], int] = {(1, s): 0 for s in range(12)}
    for n in range(2, 12):
        best[n, 1] = n * (n - 1) // 2  # from the start each time
        for s in range(2, 12):
            best[n, s] = min([m + best[m, s] + best[n - m, s - 1] for m in range(1, n)])
    for (n, s), least in best.items():
        if s == 0:
            continue
        assert checkpointing.advances(n, s) == least
        run = checkpointing.binomial(step, n, s)
        grad = fx.value_and_grad(fx.trace(lambda x, run=run: fnp.sum(run((x, x))[0][0]), x))
        assert checkpointing.steps_computed(grad.jaxpr) == n + least
    assert [checkpointing.advances(n, 3) for n in (56, 84)] == [210, 378]


def test_binomial_checkpointing_holds_a_state_for_each_snapshot() -> None:
    binomial = load("checkpointing").binomial
    w, x = np.full((64, 64), 0.01, np.float32), np.full((64, 64), 0.1, np.float32)
    step = fx.jit(lambda state, _: (fnp.tanh(fnp.sin(state @ w) @ w), fnp.sum(state)))

    def states(steps: int, snapshots: int) -> float:
        grad = fx.grad(fx.trace(lambda x: fnp.sum(binomial(step, steps, snapshots)(x)[0]), x))
        return float(fx.lower(grad).compile().memory().temp_bytes / x.nbytes)

    assert states(20, 20) > 20
    assert states(20, 6) < 6 + 6
    assert max(states(20, 3), states(35, 3)) < 3 + 6


def test_penalties_by_gradients_through_the_fit() -> None:
    figures = load("ridge").main(["--steps", "60"])
    assert figures["off"] < 1e-5, "of the gradient, from central differences"
    assert figures["after"] < 0.8 * figures["before"], "the validation error"
    assert figures["test after"] < figures["test before"], "and that on new data"


def test_an_equilibrium_layer_learns() -> None:
    figures = load("equilibrium").main(["--steps", "100"])
    assert figures["accuracy"] > 0.9, "100 steps give 94 %, the full run 97 %"
    assert figures["off"] < 1e-2, "of the gradient, from that through thirty steps"
    assert figures["implicit"] < figures["unrolled"] / 2, "temporary bytes"


def test_sentences_of_every_length_share_a_few_compilations(
    capsys: pytest.CaptureFixture[str], plot: list[str]
) -> None:
    figures = load("sentences").main(["--steps", "20", *plot])
    assert figures["difference"] < 1e-5, "the gradient of a ragged batch is that of its sentences"
    assert figures["compilations"] <= 3, "8, 16, 32"
    assert "19 lengths" in capsys.readouterr().out


def test_point_clouds_of_every_size_share_one_compilation() -> None:
    figures = load("point_clouds").main(["--steps", "20"])
    assert figures["difference"] < 1e-5
    assert figures["last"] < figures["first"]


def test_a_reaction_diffusion_equation_is_stepped_implicitly() -> None:
    figures = load("reaction_diffusion").main(["--size", "64"])
    assert figures["nnz"] == 5 * 64**2
    assert figures["products"] <= 8
    assert figures["residual"] < 1e-8
    assert figures["largest"] < 1


def test_a_cart_is_controlled_within_its_bounds(plot: list[str]) -> None:
    figures = load("optimal_control").main(["--intervals", "300", *plot])
    assert figures["violation"] < 1e-10
    assert 4.99 < figures["largest"] < 5


def test_bundles_are_adjusted_to_the_noise() -> None:
    figures = load("bundle_adjustment").main(["--points", "80"])
    assert figures["products"] == 8
    assert figures["after"] < 1 < figures["before"]


def test_reduced_fault_finds_the_two_equations(plot: list[str]) -> None:
    figures = load("reduced_fault").main(plot)
    assert figures["before"] > 400
    assert figures["after"] == 2
    assert figures["minimal"]
    assert figures["test"].startswith("it fails: 'the pass changes a result'")


def test_a_page_explains_a_transformer(plot: list[str], tmp_path: Path) -> None:
    figures = load("explained_transformer").main(["--page", str(tmp_path / "page.html"), *plot])
    assert figures["missing"] == 0, "the lines sum to the temporaries of the executables"
    assert figures["lean"] < figures["plain"] / 2
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_network_solves_the_helmholtz_equation(plot: list[str]) -> None:
    figures = load("helmholtz").main(["--steps", "40", "--points", "200", *plot])
    assert figures["error"] < 0.2, "40 steps give 5 %, the full run 0.02 %"
    assert figures["last"] < 1e-2 * figures["first"]


def test_planets_follow_their_taylor_series() -> None:
    figures = load("planets_taylor").main(["--years", "20", "--order", "10"])
    assert figures["Taylor 10: error"] < 1e-7
    assert figures["Taylor 10: energy"] < 1e-9
    assert figures["Runge-Kutta 4: error"] < 1e-7
    assert figures["equations 10"] < 4 * figures["equations 5"], "the square of the order"


def test_the_energy_of_helium() -> None:
    helium = load("helium")
    figures = helium.main(["--walkers", "2000", "--steps", "50", "--rounds", "50"])
    assert figures["error"] < 1e-3
    assert abs(figures["energy"] - helium.EXACT) < 2e-3 + 4 * figures["error"], "the full run: within 3e-4"
    assert figures["variance"] < 0.03, "it is zero for the exact wave function"
