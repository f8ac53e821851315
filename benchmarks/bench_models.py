"""Compiled gradients: time of a step, and memory. `python -m benchmarks.bench_models`.

Each model is written once, over a `Face`, so that both libraries run the same source.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.nn
import fxad.numpy as fnp
from benchmarks.harness import Row, show

Tree = Any


@dataclass(frozen=True, slots=True)
class Face:
    """What a model is written against."""

    np: ModuleType
    nn: ModuleType


OURS = Face(fnp, fxad.nn)
THEIRS = Face(jnp, jax.nn)

Loss = Callable[[Face, Tree, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A loss over parameters and two batches, with values to start from."""

    name: str
    loss: Loss
    params: Tree
    x: Any
    y: Any


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)


def mlp(layers: int = 50, width: int = 256, batch: int = 256) -> Model:
    """Layers of tanh, squared error."""

    def loss(face: Face, params: Tree, x: Any, y: Any) -> Any:
        for w, b in params:
            x = face.np.tanh(x @ w + b)
        return face.np.mean((x - y) ** 2)

    rng = np.random.default_rng(0)
    params = [(_normal(rng, width, width), np.zeros(width, np.float32)) for _ in range(layers)]
    return Model(f"MLP, {layers} layers", loss, params, _normal(rng, batch, width), _normal(rng, batch, width))


def transformer(d: int = 256, heads: int = 4, length: int = 128, batch: int = 4) -> Model:
    """A block: attention and a gelu network, each behind a layer norm."""

    def norm(face: Face, x: Any, scale: Any, shift: Any) -> Any:
        mean = face.np.mean(x, axis=-1, keepdims=True)
        var = face.np.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) / face.np.sqrt(var + 1e-5) * scale + shift

    def split(face: Face, x: Any) -> Any:
        return face.np.transpose(x.reshape(batch, length, heads, d // heads), (0, 2, 1, 3))

    def attention(face: Face, p: Tree, x: Any) -> Any:
        q, k, v = (split(face, x @ p[name]) for name in ("q", "k", "v"))
        scores = q @ face.np.transpose(k, (0, 1, 3, 2)) / (d // heads) ** 0.5
        mixed = face.np.transpose(face.nn.softmax(scores, axis=-1) @ v, (0, 2, 1, 3))
        return mixed.reshape(batch, length, d) @ p["o"]

    def loss(face: Face, p: Tree, x: Any, y: Any) -> Any:
        x = x + attention(face, p, norm(face, x, p["scale1"], p["shift1"]))
        x = x + face.nn.gelu(norm(face, x, p["scale2"], p["shift2"]) @ p["up"] + p["b"]) @ p["down"]
        return face.np.mean((x - y) ** 2)

    rng = np.random.default_rng(0)
    params: Tree = {name: _normal(rng, d, d) for name in ("q", "k", "v", "o")}
    params |= {"up": _normal(rng, d, 4 * d), "b": np.zeros(4 * d, np.float32), "down": _normal(rng, 4 * d, d)}
    params |= {
        name: np.full(d, name.startswith("scale"), np.float32) for name in ("scale1", "shift1", "scale2", "shift2")
    }
    return Model("transformer block", loss, params, _normal(rng, batch, length, d), _normal(rng, batch, length, d))


def rnn(steps: int = 200, hidden: int = 64, batch: int = 16) -> Model:
    """A recurrent network, unrolled."""

    def loss(face: Face, params: Tree, x: Any, y: Any) -> Any:
        h = face.np.zeros((batch, hidden), "float32")
        for t in range(steps):
            h = face.np.tanh(x[t] @ params["w"] + h @ params["u"] + params["b"])
        return face.np.mean((h - y) ** 2)

    rng = np.random.default_rng(0)
    params = {"w": _normal(rng, hidden, hidden), "u": _normal(rng, hidden, hidden), "b": np.zeros(hidden, np.float32)}
    return Model(
        f"RNN, {steps} steps unrolled", loss, params, _normal(rng, steps, batch, hidden), _normal(rng, batch, hidden)
    )


def best_of(ours: Callable[[], object], theirs: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Milliseconds of a step, the best of turns taken one by one."""
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


def measure(model: Model, seconds: float = 8.0) -> list[Row]:
    """Time of a step and bytes of temporaries of the compiled gradient, which is checked to be the same."""
    ours_in = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]
    theirs_in = [jax.tree.map(jnp.asarray, a) for a in (model.params, model.x, model.y)]
    program = fx.trace(lambda p, x, y: model.loss(OURS, p, x, y), *ours_in)
    ours: fx.Executable[..., Any] = fx.lower(fx.value_and_grad(program)).compile()
    theirs = jax.jit(jax.value_and_grad(lambda p, x, y: model.loss(THEIRS, p, x, y))).lower(*theirs_in).compile()

    for a, b in zip(fx.tree.leaves(ours(*ours_in)), jax.tree.leaves(theirs(*theirs_in)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-5)

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


def rows() -> list[Row]:
    """All measurements."""
    return [row for model in (mlp(), transformer(), rnn()) for row in measure(model)]


if __name__ == "__main__":
    show("Compiled models", rows())
