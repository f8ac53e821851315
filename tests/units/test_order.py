"""What a training loop holds that donates its state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import runtime

pytestmark = pytest.mark.as_users_compile

D = 512
LAYERS = (8, 16, 24)


# ------------------------------------------------------------------------------------------------------------ a loop


def loss(params: Any, x: Any) -> Any:
    for p in params:
        h = fnp.tanh(x @ p["w"] + p["b"])
        x = x + fnp.tanh(h @ p["v"])
    return (x * x).mean()


def step(state: Any, x: Any) -> Any:
    """Momentum, as it is written: all slopes first, then all moments, then all weights."""
    value, slopes = fx.value_and_grad(loss)(state["p"], x)
    moments = fx.tree.map(lambda m, g: 0.9 * m + g, state["m"], slopes)
    return {"p": fx.tree.map(lambda p, m: p - 0.01 * m, state["p"], moments), "m": moments}, value


def start(n: int) -> Any:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((2 * n, D, D)).astype("f") / D
    p = [{"w": w[2 * k], "v": w[2 * k + 1], "b": np.zeros(D, "f")} for k in range(n)]
    return {"p": p, "m": fx.tree.map(np.zeros_like, p)}


@pytest.mark.parametrize("n", LAYERS)
def test_a_training_loop_holds_one_copy_of_the_state(n: int) -> None:
    """At any depth: the state, and what two layers need."""
    state, x = start(n), np.ones((16, D), "f")
    size = sum(a.nbytes for a in fx.tree.leaves(state))
    lowered = fx.lower(fx.trace(step, state, x))
    given = lowered.compile(donate="state")
    assert isinstance(given._loaded, runtime.LinkedExecutable)
    assert given.memory().alias_bytes == size
    if n == LAYERS[0]:  # beside it, for once: compiling takes the time of this test
        assert lowered.compile().memory().peak_bytes >= 2 * size
    assert given.memory().peak_bytes <= size + 2 * size // n


def test_a_training_loop_gives_the_values_of_one_without_donation_and_units() -> None:
    x = np.ones((16, D), "f")
    found = []
    every: tuple[dict[str, Any], ...] = ({}, {"donate": "state"}, {"donate": "state", "units": "none"})
    for options in every:
        run = fx.jit(step, **options)
        state, value = fx.device_put(start(LAYERS[0])), None
        for _ in range(3):
            before, (state, value) = state, run(state, x)
            gone = all(a._buffer.is_deleted() for a in fx.tree.leaves(before))
            assert gone == ("donate" in options)
        found.append([*map(np.asarray, fx.tree.leaves(state)), np.asarray(value)])
    for a, b, c in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-6)
