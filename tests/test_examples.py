"""The examples do what they say, in a quick mode."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str) -> ModuleType:
    """An example as a module; its `main(argv)` returns the figure it is about."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up the names in their annotations
    spec.loader.exec_module(module)
    return module


def test_digits_learns(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = load("digits").main(["--steps", "600"])
    assert accuracy > 0.9, "600 steps give 95 %, the full run 98 %"
    out = capsys.readouterr().out
    assert "residual bytes" in out
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


def test_every_example_is_tested() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert [p.stem for p in EXAMPLES.glob("*.py") if f'load("{p.stem}")' not in here] == []
