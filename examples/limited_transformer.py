"""A transformer, trained under a stated limit of memory.

    python examples/limited_transformer.py

The task is to sort eight digits. The four layers are unrolled, so reverse mode would store all their values.
`remat(loss, budget="8 MiB")` chooses the values to recompute. The compiled training step, with the update of the
optimiser, keeps to the limit.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, optim, random

LAYERS, WIDTH, HEADS, DIGITS, LENGTH, BATCH = 4, 64, 4, 10, 8, 64
LIMIT = "8 MiB"
Params = dict[str, Any]


def initial(key: fx.Array) -> Params:
    """Random parameters."""
    normal = nn.initializers.lecun_normal()
    first, last, place, *keys = random.split(key, 3 + LAYERS)

    def layer(key: fx.Array) -> dict[str, fx.Array]:
        k = random.split(key, 4)
        return {
            "qkv": normal(k[0], (WIDTH, 3 * WIDTH)),
            "out": 0.3 * normal(k[1], (WIDTH, WIDTH)),
            "up": normal(k[2], (WIDTH, 4 * WIDTH)),
            "down": 0.3 * normal(k[3], (4 * WIDTH, WIDTH)),
        }

    return {
        "digits": random.normal(first, (DIGITS, WIDTH)),
        "places": random.normal(place, (LENGTH, WIDTH)),
        "layers": [layer(key) for key in keys],
        "head": normal(last, (WIDTH, DIGITS)),
    }


def norm(x: fx.Array) -> fx.Array:
    """Normalises to zero mean and unit variance."""
    x = x - fnp.mean(x, axis=-1, keepdims=True)
    return x / fnp.sqrt(fnp.mean(x**2, axis=-1, keepdims=True) + 1e-5)


def layer(p: dict[str, fx.Array], x: fx.Array) -> fx.Array:
    """Attention, then a network at each position."""
    heads = (norm(x) @ p["qkv"]).reshape(BATCH, LENGTH, HEADS, 3 * WIDTH // HEADS)
    q, k, v = fnp.split(fnp.transpose(heads, (0, 2, 1, 3)), 3, axis=-1)
    scores = nn.softmax(q @ fnp.transpose(k, (0, 1, 3, 2)) / (WIDTH // HEADS) ** 0.5, axis=-1)
    x = x + fnp.transpose(scores @ v, (0, 2, 1, 3)).reshape(BATCH, LENGTH, WIDTH) @ p["out"]
    return x + nn.gelu(norm(x) @ p["up"]) @ p["down"]


def loss(params: Params, text: fx.Array) -> fx.Array:
    """Return the mean of -log p of the sorted digits."""
    x = params["digits"][text] + params["places"]
    for p in params["layers"]:
        x = layer(p, x)
    logs = nn.log_softmax(norm(x) @ params["head"], axis=-1)
    return -fnp.mean(fnp.take_along_axis(logs, fnp.sort(text, axis=-1)[..., None], axis=-1))


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains a transformer under a limit."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--limit", default=LIMIT, help="of the temporaries of a training step")
    options = parser.parse_args(argv)
    rule = optim.adam(2e-3)
    params = initial(random.key(0))
    state = rule.init(params)
    text = random.randint(random.key(1), (BATCH, LENGTH), 0, DIGITS)

    def training(program: fx.Program[..., Any]) -> fx.Program[..., Any]:
        """Return a step of the optimiser, with the gradient of a program."""

        def step(params: Params, state: Any, text: fx.Array) -> tuple[Params, Any, fx.Array]:
            error, gradient = fx.value_and_grad(program)(params, text)
            updates, state = rule.update(gradient, state, params)
            return optim.apply_updates(params, updates), state, error

        return fx.trace(step, params, state, text)

    program = fx.trace(loss, params, text)
    lean = fx.remat(program, budget=options.limit)
    run = fx.lower(training(lean)).compile()
    held = run.memory().temp_bytes / 1024
    plain = fx.lower(training(program)).compile().memory().temp_bytes / 1024
    print(f"temporaries of a training step: {held:,.0f} KiB of {options.limit}; {plain:,.0f} KiB without a limit")

    errors = []
    for n in range(options.steps):
        text = random.randint(random.fold_in(random.key(2), n), (BATCH, LENGTH), 0, DIGITS)
        params, state, error = run(params, state, text)
        errors.append(error)
    first, last = float(errors[0]), float(sum(errors[-10:]) / 10)
    print(f"loss: {first:.2f} at first, {last:.2f} after {options.steps} steps; guessing gives 2.30")
    return {"KiB": held, "plain KiB": plain, "first": first, "last": last}


if __name__ == "__main__":
    main()
