"""Chooses the penalty of each feature of a ridge regression, by gradients through the fit.

    python examples/ridge.py

The weights w minimise
X w - y
^2 + sum exp(l) w^2 on one part of the data. The logarithms l of the penalties, one for each feature, minimise the error
on another part. The weights are found by conjugate gradients, and their derivative with respect to l by the implicit
function theorem: one more linear system, for any solver of the first. The gradient is compared with central
differences, and the result with equal penalties.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

SAMPLES, FEATURES, USEFUL = 60, 40, 5
NOISE = 0.5

Data = tuple[fx.Array, fx.Array]


def draw(seed: int) -> tuple[Data, Data, Data]:
    """Return data to fit, to choose penalties, and to test: of 40 features, five have an effect."""
    rng = np.random.default_rng(seed)
    w = np.zeros(FEATURES)
    w[:USEFUL] = rng.normal(0, 1, USEFUL)

    def part(n: int) -> Data:
        x = rng.normal(size=(n, FEATURES))
        return fnp.asarray(x), fnp.asarray(x @ w + NOISE * rng.normal(size=n))

    return part(SAMPLES), part(SAMPLES), part(5000)


def fit(log_penalty: fx.Array, data: Data) -> fx.Array:
    """Return the weights: the solution of (X^T X + exp(l)) w = X^T y."""
    x, y = data

    def normal(w: fx.Array) -> fx.Array:
        return x.T @ (x @ w) + fnp.exp(log_penalty) * w

    w, _ = lax.cg(normal, x.T @ y, tol=1e-12)
    found: fx.Array = w
    return found


def error(w: fx.Array, data: Data) -> fx.Array:
    """Mean squared error of a prediction."""
    x, y = data
    return fnp.mean((x @ w - y) ** 2)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Chooses penalties. Returns errors, and the difference of the gradient from central differences."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=300, help="steps of gradient descent")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    console = Console()
    train, valid, test = draw(options.seed)

    def validation(log_penalty: Any) -> fx.Array:
        return error(fit(log_penalty, train), valid)

    value_and_grad = fx.jit(fx.value_and_grad(validation))
    value = fx.jit(validation)
    judged = fx.jit(lambda log_penalty: error(fit(log_penalty, train), test))

    # the best single penalty for all features, from a grid
    grid = np.linspace(-4, 6, 41)
    shared = min(grid, key=lambda c: float(value(np.full(FEATURES, c))))
    penalty = np.full(FEATURES, shared)

    slope = np.asarray(value_and_grad(penalty)[1])
    h = 1e-4
    differences = [float(value(penalty + h * e) - value(penalty - h * e)) / (2 * h) for e in np.eye(FEATURES)]
    off = float(np.max(np.abs(slope - differences)) / np.max(np.abs(slope)))

    before, judged_before = float(value(penalty)), float(judged(penalty))
    velocity = np.zeros(FEATURES)
    for _ in range(options.steps):
        velocity = 0.9 * velocity - 1.0 * np.asarray(value_and_grad(penalty)[1])
        penalty = penalty + velocity
    after, judged_after = float(value(penalty)), float(judged(penalty))

    console.print(f"gradient against central differences: {off:.1e} of its greatest element")
    console.print(
        f"one penalty for all, {np.exp(shared):.3g}: {before:.3f} on validation, {judged_before:.3f} on new data"
    )
    console.print(f"one for each feature: {after:.3f} on validation, {judged_after:.3f} on new data")
    console.print(
        f"median penalty of the {USEFUL} useful features {np.exp(np.median(penalty[:USEFUL])):.3g}, "
        f"of the others {np.exp(np.median(penalty[USEFUL:])):.3g}; the noise alone is {NOISE**2}"
    )
    return {"off": off, "before": before, "after": after, "test before": judged_before, "test after": judged_after}


if __name__ == "__main__":
    main()
