"""Steps of programs that XLA compiles whole: mixtures, bundle adjustment, loops, small iterative solvers.

`python -m benchmarks.bench_steps [NAME ...]` selects by parts of names. Times are processor times of a step over all
threads: the best of blocks of steps that fxad and jax take in turns. In alternating calls the clients of two libraries
in one process would disturb each other. Set `MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_MMAP_THRESHOLD_=33554432`, as
`benchmarks.run` does: otherwise memory that a step frees returns to the system, and each step faults it in again.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import fxad as fx
from benchmarks.bench_models import agree
from benchmarks.harness import Row, show
from benchmarks.models import solvers
from benchmarks.models.adbench import bundle, mixture
from benchmarks.models.dynamics import bodies
from benchmarks.models.library import OURS, Model
from benchmarks.models.theirs import THEIRS

BLOCKS, SECONDS = 25, 0.1
BUDGET = 1.05  # equal within noise

MODELS: tuple[Model, ...] = (
    mixture(1000, 2, 5),
    mixture(1000, 20, 25),
    mixture(10_000, 2, 200),
    mixture(10_000, 64, 25),
    bundle(4, 372, 100),
    bundle(21, 11315, 3000),
    bodies(),
    bodies(1000, 16),
)


def in_blocks(*steps: Callable[[], object]) -> list[float]:
    """Returns microseconds of processor time of each step, over all threads: the best of blocks, which steps take in
    turns."""
    repeats = []
    for step in steps:
        step()
        start = time.perf_counter()
        step()
        repeats.append(max(1, int(SECONDS / (time.perf_counter() - start))))
    blocks: list[list[float]] = [[] for _ in steps]
    gc.disable()
    for _ in range(BLOCKS):
        for step, n, times in zip(steps, repeats, blocks, strict=True):
            step()  # the first step after another library's block
            start = time.process_time()
            for _ in range(n):
                step()
            times.append(1e6 * (time.process_time() - start) / n)
    gc.enable()
    return list(map(min, blocks))


def compared(name: str, ours: fx.Executable[..., Any], theirs: Any, ours_in: Any, theirs_in: Any) -> list[Row]:
    """Compares time and temporaries of two executables, and checks that the results agree."""
    agree(ours(*ours_in), theirs(*theirs_in))
    ours_us, jax_us = in_blocks(
        lambda: fx.block_until_ready(ours(*ours_in)), lambda: jax.block_until_ready(theirs(*theirs_in))
    )
    held = ours.memory().temp_bytes, theirs.memory_analysis().temp_size_in_bytes
    return [
        Row(f"processor time of a step: {name}", ours_us, jax_us, BUDGET),
        Row(f"temporaries: {name}", *held, 1.0, unit="bytes"),
    ]


def gradient(model: Model) -> list[Row]:
    """The value and gradient of a model."""
    ours_in = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]
    theirs_in = [jax.tree.map(jnp.asarray, a) for a in (model.params, model.x, model.y)]
    program = fx.trace(lambda p, x, y: model.loss(OURS, p, x, y), *ours_in)
    theirs = jax.jit(jax.value_and_grad(lambda p, x, y: model.loss(THEIRS, p, x, y))).lower(*theirs_in).compile()
    return compared(model.name, fx.lower(fx.value_and_grad(program)).compile(), theirs, ours_in, theirs_in)


def solved(problem: solvers.Problem) -> list[Row]:
    """A solver, without a derivative."""
    ours_in, theirs_in = list(map(fx.asarray, problem.operands)), list(map(jnp.asarray, problem.operands))
    ours = fx.lower(fx.trace(problem.make(*solvers.OURS), *ours_in)).compile()
    theirs = jax.jit(problem.make(*solvers.THEIRS)).lower(*theirs_in).compile()
    return compared(problem.name, ours, theirs, ours_in, theirs_in)


def rows(names: tuple[str, ...] = ()) -> list[Row]:
    """Returns all measurements, or those of models and solvers with these parts in their names."""

    def chosen(name: str) -> bool:
        return not names or any([n in name for n in names])

    gradients = [row for model in MODELS if chosen(model.name) for row in gradient(model)]
    return gradients + [row for problem in solvers.problems() if chosen(problem.name) for row in solved(problem)]


if __name__ == "__main__":
    show("Steps", rows(tuple(sys.argv[1:])))
