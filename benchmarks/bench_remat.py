"""Memory that `remat` saves: 64 tanh layers in 8 segments. `python -m benchmarks.bench_remat`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.bench_models import best_of
from benchmarks.harness import Row, show

LAYERS, SEGMENTS, WIDTH = 64, 8, 256
ARRAY = 4 * WIDTH * WIDTH


def loss(xp: Any, checkpoint: Any, ws: Any, x: Any) -> Any:
    """Layers `tanh(x @ w)`, with `checkpoint` around each segment of them."""

    def segment(ws: Any, x: Any) -> Any:
        for w in ws:
            x = xp.tanh(x @ w)
        return x

    for k in range(0, LAYERS, LAYERS // SEGMENTS):
        x = checkpoint(segment)(ws[k : k + LAYERS // SEGMENTS], x)
    return xp.sum(x)


def same(f: Any) -> Any:
    """No checkpoint: returns the function."""
    return f


def processor_time(*steps: Callable[[], object]) -> list[float]:
    """Returns milliseconds of processor time of each step, over all threads: the best of blocks of four, taken in
    turns.

    The first step of a block, after another library's, does not count.
    """
    best = [float("inf")] * len(steps)
    for _ in range(25):
        for k, step in enumerate(steps):
            step()
            start = time.process_time()
            for _ in range(3):
                step()
            best[k] = min(best[k], 1e3 * (time.process_time() - start) / 3)
    return best


def rows() -> list[Row]:
    """Temporaries in units of one layer's value, and the time. Gradients must be bitwise those without remat.

    The gradient is that of x: gradients of weights are results, whose memory XLA would use for temporaries.
    """
    rng = np.random.default_rng(0)
    ws = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16 for _ in range(LAYERS)]
    x = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    ours_in, theirs_in = (fx.asarray(x), fx.tree.map(fx.asarray, ws)), (jnp.asarray(x), jax.tree.map(jnp.asarray, ws))

    def ours(checkpoint: Any) -> Any:
        return fx.lower(fx.grad(fx.trace(lambda x, ws: loss(fnp, checkpoint, ws, x), *ours_in))).compile()

    def theirs(checkpoint: Any) -> Any:
        return jax.jit(jax.grad(lambda x, ws: loss(jnp, checkpoint, ws, x))).lower(*theirs_in).compile()

    plain, saving, peer_plain, peer_saving = ours(same), ours(fx.remat), theirs(same), theirs(jax.checkpoint)
    np.testing.assert_array_equal(
        np.asarray(saving(*ours_in)).view(np.uint32), np.asarray(plain(*ours_in)).view(np.uint32)
    )

    def held(run: Any) -> float:
        bytes_held = run.memory().temp_bytes if hasattr(run, "memory") else run.memory_analysis().temp_size_in_bytes
        return float(bytes_held) / ARRAY

    ms = best_of(
        lambda: saving(*ours_in).block_until_ready(), lambda: peer_saving(*theirs_in).block_until_ready(), seconds=6
    )
    processor = processor_time(
        lambda: saving(*ours_in).block_until_ready(), lambda: peer_saving(*theirs_in).block_until_ready()
    )
    name = f"{LAYERS} layers in {SEGMENTS} segments"
    whole: fx.Executable[..., Any] = fx.lower(saving.program, units="none").compile()
    products = whole.text().count(" dot("), peer_saving.as_text().count(" dot(")
    return [
        Row(f"remat: temporaries of {name}", held(saving), held(peer_saving), at_most=18, unit="arrays"),
        Row("without remat", held(plain), held(peer_plain), unit="arrays"),
        Row(f"remat: products of {name}", products[0], products[1], 1.4, unit="products"),
        Row(f"remat: processor time of a step of {name}", processor[0], processor[1], 1.4, unit="ms"),
        Row(f"remat: step of {name}", *ms, unit="ms"),
    ]


if __name__ == "__main__":
    show("Recomputation", rows())
