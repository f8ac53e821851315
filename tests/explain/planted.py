"""A training step of a small network, in which one problem can be planted.

The page must name the problem and its line. Each planted line ends with a comment `# planted: NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn

WIDTH: Final = 32
TOKENS: Final = 16
BATCH: Final = 4
CLASSES: Final = 8
LAYERS: Final = 1
STEPS: Final = 10

Params = dict[str, Any]


def line_of(problem: str) -> int:
    """The number of the line where a problem is planted."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(k for k, line in enumerate(lines, 1) if line.endswith(f"# planted: {problem}"))


# ---------------------------------------------------------------------------------------------------------- parameters


def normal(rng: np.random.Generator, *shape: int) -> Any:
    """Weights with the variance that keeps that of their inputs."""
    return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def layer_params(rng: np.random.Generator) -> Params:
    """The weights of a layer."""
    return {
        "query": normal(rng, WIDTH, WIDTH),
        "key": normal(rng, WIDTH, WIDTH),
        "value": normal(rng, WIDTH, WIDTH),
        "up": normal(rng, WIDTH, 2 * WIDTH),
        "down": normal(rng, 2 * WIDTH, WIDTH),
        "scale": np.ones(WIDTH, np.float32),
    }


def all_params() -> Params:
    """The weights of the network."""
    rng = np.random.default_rng(0)
    return {
        "embed": normal(rng, CLASSES, WIDTH),
        "layers": [layer_params(rng) for _ in range(LAYERS)],
        "head": normal(rng, WIDTH, CLASSES),
    }


def batch(size: int = BATCH) -> tuple[Any, Any]:
    """Tokens, and the tokens that follow them."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, CLASSES, (size, TOKENS + 1)).astype(np.int32)
    return tokens[:, :-1], tokens[:, 1:]


# ------------------------------------------------------------------------------------------------------------- network


def normalized(x: Any, scale: Any) -> Any:
    """RMS normalization."""
    mean_square = fnp.mean(x * x, axis=-1, keepdims=True)
    return x * lax.rsqrt(mean_square + 1e-6) * scale


def attention(p: Params, x: Any) -> Any:
    """One head, over all tokens before each one."""
    query, key, value = x @ p["query"], x @ p["key"], x @ p["value"]
    scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(WIDTH))
    mask = np.tril(np.ones((TOKENS, TOKENS), bool))
    return nn.softmax(fnp.where(mask, scores, -1e9)) @ value


def feed_forward(p: Params, x: Any) -> Any:
    """Two products with a sigmoid unit between."""
    return nn.silu(x @ p["up"]) @ p["down"]


def layer(p: Params, x: Any) -> Any:
    """A layer with two residual connections."""
    x = x + attention(p, normalized(x, p["scale"]))
    return x + feed_forward(p, normalized(x, p["scale"]))


def hidden(params: Params, tokens: Any) -> Any:
    """The features before the last product."""
    x = params["embed"][tokens]
    for p in params["layers"]:
        x = layer(p, x)
    return x


def cross_entropy(logits: Any, targets: Any) -> Any:
    """The mean of the negative logarithms of the probabilities of the targets."""
    shifted = logits - fnp.max(logits, axis=-1, keepdims=True)
    total = fnp.log(fnp.sum(fnp.exp(shifted), axis=-1))
    chosen = fnp.sum(shifted * (targets[..., None] == fnp.arange(CLASSES)), axis=-1)
    return fnp.mean(total - chosen)


def loss(params: Params, tokens: Any, targets: Any) -> Any:
    """The loss of a batch."""
    return cross_entropy(hidden(params, tokens) @ params["head"], targets)


# ---------------------------------------------------------------------------------------------------------------- step


def updated(params: Params, gradient: Params, rate: Any) -> Params:
    """One step of gradient descent."""
    new: Params = fx.tree.map(lambda w, g: w - rate * g, params, gradient)
    return new


def step(params: Params, tokens: Any, targets: Any) -> tuple[Params, Any]:
    """New weights, and the loss."""
    value, gradient = fx.value_and_grad(loss)(params, tokens, targets)
    return updated(params, gradient, 0.1), value


def lower_step(f: Callable[..., Any] = step, donate: bool = True) -> Any:
    """The lowered step. The weights are donated."""
    jitted = fx.jit(f, donate_argnums=(0,)) if donate else fx.jit(f)
    return jitted.lower(all_params(), *batch())


# ----------------------------------------------------------------------------------------------------- planted problems


def retrace() -> Any:
    """The learning rate is a Python number, so it is a constant of the program: each step is a new one."""
    params = all_params()
    programs = []
    for k in range(2):
        rate = 0.1 / (k + 1)

        def decayed(params: Params, tokens: Any, targets: Any) -> tuple[Params, Any]:
            value, gradient = fx.value_and_grad(loss)(params, tokens, targets)
            scaled = fx.tree.map(lambda g: g * rate, gradient)  # planted: retrace
            return updated(params, scaled, 1.0), value

        jitted = fx.jit(decayed)
        programs.append(jitted.lower(params, *batch()))
        programs[-1].compile()
    return programs[-1]


def float64_leak() -> Any:
    """A table of NumPy's default dtype makes the features 64-bit."""
    weights = np.linspace(0.5, 1.5, WIDTH)

    def leaking(params: Params, tokens: Any, targets: Any) -> Any:
        features = hidden(params, tokens) * weights  # planted: float64
        return cross_entropy(features @ params["head"], targets)

    def leaking_step(params: Params, tokens: Any, targets: Any) -> tuple[Params, Any]:
        value, gradient = fx.value_and_grad(leaking)(params, tokens, targets)
        return updated(params, gradient, 0.1), value

    return lower_step(leaking_step)


def missed_donation() -> Any:
    """The weights are not donated: old and new ones are in memory."""
    return lower_step(donate=False)


def nested_remat() -> Any:
    """The feed-forward network is in a remat, and the layer around it too: it runs three times."""

    def inner(p: Params, x: Any) -> Any:
        return feed_forward(p, normalized(x, p["scale"]))

    def outer(p: Params, x: Any) -> Any:
        x = x + attention(p, normalized(x, p["scale"]))
        x = x + fx.remat(inner)(p, x)  # planted: inner remat
        return normalized(x, p["scale"])

    def deep(params: Params, tokens: Any, targets: Any) -> Any:
        x = params["embed"][tokens]
        for p in params["layers"]:
            x = fx.remat(outer)(p, x)  # planted: outer remat
        return cross_entropy(x @ params["head"], targets)

    def deep_step(params: Params, tokens: Any, targets: Any) -> tuple[Params, Any]:
        value, gradient = fx.value_and_grad(deep)(params, tokens, targets)
        return updated(params, gradient, 0.1), value

    return lower_step(deep_step)


def large_residual() -> Any:
    """An iteration on the features: the value of each of its steps is stored for the derivative."""

    def iterated(params: Params, tokens: Any, targets: Any) -> Any:
        x = hidden(params, tokens)

        def iteration(h: Any, _: Any) -> tuple[Any, None]:
            return x + fnp.sin(h), None  # planted: residual

        h, _ = lax.scan(iteration, x, None, length=4 * STEPS)
        return cross_entropy(h @ params["head"], targets)

    def iterated_step(params: Params, tokens: Any, targets: Any) -> tuple[Params, Any]:
        value, gradient = fx.value_and_grad(iterated)(params, tokens, targets)
        return updated(params, gradient, 0.1), value

    return lower_step(iterated_step)


def host_call() -> Any:
    """A loop of steps prints the loss of each."""

    def many(params: Params, tokens: Any, targets: Any) -> tuple[Params, Any]:
        def one(params: Params, _: Any) -> tuple[Params, Any]:
            value, gradient = fx.value_and_grad(loss)(params, tokens, targets)
            fx.debug_print("loss {}", value)  # planted: host call
            return updated(params, gradient, 0.1), value

        return lax.scan(one, params, None, length=STEPS)

    return lower_step(many)


def cancellation() -> Any:
    """The variance as a difference of two large numbers."""

    def variance(x: Any) -> Any:
        mean_of_squares = fnp.mean(x * x)
        square_of_mean = fnp.mean(x) ** 2
        return mean_of_squares - square_of_mean  # planted: cancellation

    return fx.lower(fx.trace(variance, fx.Spec((64,), np.float32)))


def far_from_zero() -> Any:
    """Numbers whose mean is a hundred times their standard deviation."""
    return (100 + np.random.default_rng(0).normal(size=64)).astype(np.float32)
