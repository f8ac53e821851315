"""Compiled gradients: time of a step, and memory. `python -m benchmarks.bench_models`.

Each model is written once, over a `Library`, so that both libraries run the same source.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
from benchmarks.harness import Row, show
from benchmarks.models.adbench import bundle, lstm, mixture
from benchmarks.models.dynamics import bodies
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import mlp, residual, rnn, transformer_block
from benchmarks.models.theirs import THEIRS
from fxad.runtime import default_platform


def small_mixture() -> Model:
    """A mixture with a short step: 0.3 ms."""
    return mixture(1000, 2, 5)


def wide_mixture() -> Model:
    """A mixture with more dimensions."""
    return mixture(1000, 20, 25)


def large_mixture() -> Model:
    """A mixture with matrices of 128 by 128."""
    return mixture(2500, 128, 5)


MODELS: tuple[Callable[[], Model], ...] = (
    mlp,
    transformer_block,
    rnn,
    mixture,
    small_mixture,
    wide_mixture,
    large_mixture,
    bundle,
    lstm,
    bodies,
    residual,
)


def best_of(ours: Callable[[], object], theirs: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Returns milliseconds of a step, the best of turns taken one by one."""
    best = [float("inf")] * 2
    for step in (ours, theirs):
        step()
    end = time.perf_counter() + seconds
    gc.disable()
    while time.perf_counter() < end:
        for k, step in enumerate((ours, theirs)):
            start = time.perf_counter()
            step()
            best[k] = min(best[k], time.perf_counter() - start)
    gc.enable()
    return 1e3 * best[0], 1e3 * best[1]


def agree(ours: Any, theirs: Any) -> None:
    """Raises: AssertionError if values differ by more than rounding, relative to the largest of their array.

    GPUs round the operands of products to 10 bits (TF32).
    """
    rtol, part = (1e-3, 1e-4) if default_platform() == "cpu" else (2e-2, 2e-2)
    for a, b in zip(fx.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        x, y = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-5 + part * float(np.max(np.abs(y), initial=0)))


def measure(model: Model, seconds: float = 5.0) -> list[Row]:
    """Measures the time of a step and the bytes of temporaries of the compiled gradient, and checks that the results
    agree."""
    ours_in = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]
    theirs_in = [jax.tree.map(jnp.asarray, a) for a in (model.params, model.x, model.y)]
    program = fx.trace(lambda p, x, y: model.loss(OURS, p, x, y), *ours_in)
    ours: fx.Executable[..., Any] = fx.lower(fx.value_and_grad(program)).compile()
    theirs = jax.jit(jax.value_and_grad(lambda p, x, y: model.loss(THEIRS, p, x, y))).lower(*theirs_in).compile()
    agree(ours(*ours_in), theirs(*theirs_in))

    def our_step() -> None:
        for a in fx.tree.leaves(ours(*ours_in)):
            a.block_until_ready()

    def their_step() -> None:
        jax.block_until_ready(theirs(*theirs_in))

    ms = best_of(our_step, their_step, seconds)
    held = ours.memory().temp_bytes, theirs.memory_analysis().temp_size_in_bytes
    return [
        Row(f"run: value_and_grad of {model.name}", *ms, 1.05, unit="ms"),
        Row(f"temporaries: value_and_grad of {model.name}", *held, 1.0, unit="bytes"),
    ]


def rows(names: tuple[str, ...] = (), seconds: float = 5.0) -> list[Row]:
    """All measurements, or those of the models named."""
    return [row for make in MODELS if not names or make.__name__ in names for row in measure(make(), seconds)]


if __name__ == "__main__":
    show("Compiled models", rows(tuple(sys.argv[1:]), 3.0 if sys.argv[1:] else 5.0))
