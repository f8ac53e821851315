"""Models of other packages, translated by `from_jax`: `fxad.optim` trains them as optax does in JAX; they are saved,
and run in a process that cannot import jax."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
from tests.interop.jax_laws import close, jax, package

from_jax = pytest.importorskip("fxad.interop.jax").from_jax
optax = package("optax")
jnp = jax.numpy
draw = np.random.default_rng(0)

RUN = """
import sys
sys.modules["jax"] = None
import numpy as np
import fxad as fx
folder = sys.argv[1]
params, data = fx.tree.load(folder + "/params.safetensors"), fx.tree.load(folder + "/data.safetensors")
value, gradient = fx.load(folder + "/loss.fxad")(params, *data)
step, *_ = fx.tree.leaves(fx.optim.sgd(1.0).update(gradient, fx.optim.sgd(1.0).init(params), params)[0])
fx.tree.save(folder + "/found.safetensors", {"value": value, "gradient": gradient})
assert sys.modules["jax"] is None and not [m for m in sys.modules if m.startswith("jax.")]
"""


def trained_like_jax(
    loss: Callable[..., Any], params: Any, data: tuple[Any, ...], folder: Path, steps: int = 5
) -> None:
    """Training steps of fxad and of JAX agree. The trained program is saved and runs in a process without jax."""
    program = from_jax(loss, params, *data)
    with_gradient = fx.value_and_grad(program)
    # with the default eps, Adam amplifies gradients that are zero up to rounding
    ours, theirs = [o.adamw(3e-2, eps=1e-4, weight_decay=1e-3) for o in (fx.optim, optax)]

    @fx.jit
    def step(p: Any, state: Any) -> Any:
        value, gradient = with_gradient(p, *data)
        updates, state = ours.update(gradient, state, p)
        return value, fx.optim.apply_updates(p, updates), state

    def jax_step(p: Any, state: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, *data)
        updates, state = theirs.update(gradient, state, p)
        return value, optax.apply_updates(p, updates), state

    compiled = jax.jit(jax_step)
    mine, other = params, params
    state, other_state = ours.init(params), theirs.init(params)
    values = []
    for k in range(5):
        value, mine, state = step(mine, state)
        wanted, other, other_state = compiled(other, other_state)
        np.testing.assert_allclose(float(value), float(wanted), rtol=1e-4, err_msg=f"step {k}")
        values.append(float(value))
    assert values[-1] < values[0]
    for a, b in zip(fx.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-4)

    fx.save(with_gradient, folder / "loss.fxad")
    fx.tree.save(folder / "params.safetensors", mine)
    fx.tree.save(folder / "data.safetensors", data)
    subprocess.run([sys.executable, "-c", RUN, str(folder)], check=True, timeout=300)
    found: Any = fx.tree.load(folder / "found.safetensors")
    value, gradient = with_gradient(mine, *data)
    close(found, {"value": np.asarray(value), "gradient": fx.tree.map(np.asarray, gradient)}, "without jax")


def test_a_transformer_of_flax(tmp_path: Path) -> None:
    nn = package("flax.linen")
    size, width = 11, 8
    attention = nn.MultiHeadDotProductAttention(num_heads=2)
    norms, embed = [nn.LayerNorm(), nn.LayerNorm()], nn.Embed(size, width)
    up, down, head = nn.Dense(16), nn.Dense(width), nn.Dense(size)
    tokens = draw.integers(0, size, (2, 6)).astype(np.int32)
    x, key = np.ones((2, 6, width), np.float32), jax.random.key(0)
    made = {
        "embed": embed.init(key, tokens), "attention": attention.init(key, x), "norm0": norms[0].init(key, x),
        "norm1": norms[1].init(key, x), "up": up.init(key, x), "down": down.init(key, np.ones((2, 6, 16), np.float32)),
        "head": head.init(key, x),
    }  # fmt: skip
    params = jax.tree.map(np.asarray, made)

    def loss(p: Any, tokens: Any) -> Any:
        x = embed.apply(p["embed"], tokens)
        mask = nn.make_causal_mask(tokens)

        @jax.checkpoint
        def block(p: Any, x: Any) -> Any:
            x = x + attention.apply(p["attention"], norms[0].apply(p["norm0"], x), mask=mask)
            return x + down.apply(p["down"], nn.gelu(up.apply(p["up"], norms[1].apply(p["norm1"], x))))

        for _ in range(2):
            x = block(p, x)
        logits = head.apply(p["head"], x)[:, :-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    trained_like_jax(loss, params, (tokens,), tmp_path)


def test_a_gaussian_process(tmp_path: Path) -> None:
    x = np.sort(draw.uniform(-3, 3, 20)).astype(np.float32)
    y = (np.sin(x) + 0.1 * draw.normal(size=20)).astype(np.float32)
    params = {"amplitude": np.float32(0.0), "scale": np.float32(0.3), "noise": np.float32(-1.0)}
    tinygp = package("tinygp")

    def loss(p: Any, x: Any, y: Any) -> Any:
        kernel = jnp.exp(p["amplitude"]) * tinygp.kernels.Matern52(scale=jnp.exp(p["scale"]))
        return -tinygp.GaussianProcess(kernel, x, diag=jnp.exp(2 * p["noise"])).log_probability(y)

    trained_like_jax(loss, params, (x, y), tmp_path)


def test_a_gaussian_process_written_on_jax(tmp_path: Path) -> None:
    x = np.sort(draw.uniform(-3, 3, 20)).astype(np.float32)
    y = (np.sin(x) + 0.1 * draw.normal(size=20)).astype(np.float32)
    params = {"amplitude": np.float32(0.0), "scale": np.float32(0.3), "noise": np.float32(-1.0)}

    def loss(p: Any, x: Any, y: Any) -> Any:
        d = (x[:, None] - x[None, :]) / jnp.exp(p["scale"])
        k = jnp.exp(p["amplitude"] - 0.5 * d**2) + jnp.exp(2 * p["noise"]) * jnp.eye(len(x))
        factor = jax.scipy.linalg.cho_factor(k, lower=True)
        return 0.5 * y @ jax.scipy.linalg.cho_solve(factor, y) + jnp.log(jnp.diagonal(factor[0])).sum()

    trained_like_jax(loss, params, (x, y), tmp_path)
