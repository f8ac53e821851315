"""Trains a deep equilibrium layer on handwritten digits: a layer that is applied until convergence.

    python examples/equilibrium.py

The hidden state z of an image x is the fixed point of z = tanh(z W + x U + b): a network of infinite depth with the
weights of one layer. It is found by iteration, and differentiated by the implicit function theorem: the backward pass
is one linear system, solved by GMRES, and stores no step of the iteration. For comparison the script compiles the
gradient of an unrolled loop of thirty steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
WIDTH = 64
BATCH = 64
HELD_OUT = 360
UNROLLED = 30
RATE = 2e-3

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


@fx.tree.dataclass
class Params:
    """The layer, and a linear readout of its fixed point."""

    w: fx.Array
    u: fx.Array
    b: fx.Array
    out: fx.Array


def initial(rng: np.random.Generator) -> Params:
    """Return weights for which the layer is a contraction, also after some training."""

    def normal(n: int, m: int, scale: float) -> fx.Array:
        return fnp.asarray(rng.normal(0, scale * n**-0.5, (n, m)).astype(np.float32))

    return Params(normal(WIDTH, WIDTH, 0.3), normal(64, WIDTH, 1), fnp.zeros(WIDTH), normal(WIDTH, 10, 1))


def layer(params: Params, x: fx.Array, z: fx.Array) -> fx.Array:
    """Apply the layer once."""
    return fnp.tanh(z @ params.w + x @ params.u + params.b)


def equilibrium(params: Params, x: fx.Array) -> tuple[fx.Array, lax.Convergence]:
    """Return the fixed point, and the report of its iteration."""

    def solve(f: Any, z: Any) -> Any:
        return lax.fixed_point_iteration(f, z, tol=1e-4, maxiter=100)

    def tangents(g: Any, y: Any) -> Any:
        return lax.gmres(g, y, tol=1e-3, restart=8, maxiter=4)[0]

    z, report = lax.custom_fixed_point(
        lambda z: layer(params, x, z), fnp.zeros((x.shape[0], WIDTH)), solve, tangents, has_aux=True
    )
    return z, report


def unrolled(params: Params, x: fx.Array) -> tuple[fx.Array, None]:
    """Return the same by a fixed number of steps, which are differentiated one by one."""
    step = lax.fori_loop(0, UNROLLED, lambda _, z: layer(params, x, z), fnp.zeros((x.shape[0], WIDTH)))
    return step, None


def cross_entropy(params: Params, z: fx.Array, y: fx.Array) -> fx.Array:
    """Mean cross entropy of the readout."""
    log_p = nn.log_softmax(z @ params.out)
    return -fnp.mean(log_p[fnp.arange(y.shape[0]), y])


def load(seed: int) -> tuple[Images, Labels, Images, Labels]:
    """Return images and labels for training, and held-out ones."""
    table = np.loadtxt(DATA, delimiter=",", dtype=np.float32)
    table = np.random.default_rng(seed).permutation(table)
    x: Images = (table[:, :-1] / 8 - 1).astype(np.float32)
    y: Labels = table[:, -1].astype(np.int32)
    return x[HELD_OUT:], y[HELD_OUT:], x[:HELD_OUT], y[:HELD_OUT]


def batches(x: Images, y: Labels, steps: int, rng: np.random.Generator) -> Iterator[tuple[fx.Array, fx.Array]]:
    """Return minibatches, drawn independently."""
    for _ in range(steps):
        chosen = rng.choice(len(x), BATCH, replace=False)
        yield fnp.asarray(x[chosen]), fnp.asarray(y[chosen])


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains. Returns the accuracy on held-out images, and the temporary bytes of both gradients."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=400, help="minibatches to train on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    console = Console()
    start = time.perf_counter()
    x, y, x_test, y_test = load(options.seed)
    rng = np.random.default_rng(options.seed)
    params = initial(rng)

    def loss(params: Params, x: fx.Array, y: fx.Array) -> fx.Array:
        return cross_entropy(params, equilibrium(params, x)[0], y)

    def deep(params: Params, x: fx.Array, y: fx.Array) -> fx.Array:
        return cross_entropy(params, unrolled(params, x)[0], y)

    spec = params, fx.Spec((BATCH, 64), np.float32), fx.Spec((BATCH,), np.int32)
    grad, deep_grad = [fx.value_and_grad(fx.trace(f, *spec)) for f in (loss, deep)]
    temporary = [fx.lower(g).compile().memory().temp_bytes for g in (grad, deep_grad)]
    console.print(f"temporary bytes of the gradient: {temporary[0]:,}; through {UNROLLED} steps: {temporary[1]:,}")

    first = fnp.asarray(x[:BATCH]), fnp.asarray(y[:BATCH])
    pairs = zip(*[fx.tree.leaves(fx.jit(g)(params, *first)[1]) for g in (grad, deep_grad)], strict=True)
    off = max(float(fnp.max(fnp.abs(a - b)) / fnp.max(fnp.abs(b))) for a, b in pairs)
    console.print(f"the two differ by at most {off:.1e} of the greatest element")

    def step(params: Params, moments: Params, x: fx.Array, y: fx.Array) -> tuple[Params, Params, fx.Array]:
        value, slopes = grad(params, x, y)
        moments = fx.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, slopes)
        return fx.tree.map(lambda p, m: p - RATE * fnp.sign(m), params, moments), moments, value

    train = fx.jit(step)
    moments = fx.tree.map(fnp.zeros_like, params)
    for k, (xs, ys) in enumerate(batches(x, y, options.steps, rng)):
        params, moments, value = train(params, moments, xs, ys)
        if k % 100 == 0:
            console.print(f"step {k}: loss {float(value):.3f}")

    z, report = fx.jit(equilibrium)(params, fnp.asarray(x_test))
    accuracy = float(np.mean(np.asarray(z @ params.out).argmax(axis=1) == y_test))
    console.print(
        f"held out: {accuracy:.2%} of {len(y_test)} images right; a fixed point takes {int(report.iterations)} "
        f"iterations; {time.perf_counter() - start:.1f} s in all"
    )
    return {"accuracy": accuracy, "implicit": temporary[0], "unrolled": temporary[1], "off": off}


if __name__ == "__main__":
    main()
