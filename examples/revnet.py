"""A reversible residual network on handwritten digits: its gradient needs the same memory at any depth.

    python examples/revnet.py

An image is mapped to two halves of features. Blocks of additive couplings change one half by a function of the other,
so they are invertible. Reverse mode reconstructs the features from the last ones, instead of storing those of all
blocks.

Gomez, Ren, Urtasun and Grosse, The Reversible Residual Network: Backpropagation Without Storing Activations (2017).
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn

DIGITS = Path(__file__).parent / "data" / "digits.csv.gz"
WIDTH = 32
DEPTHS = (8, 64, 256)
Halves = tuple[fx.Array, fx.Array]
Params = dict[str, Any]


def block(halves: Halves, w: Params) -> Halves:
    """Change each half by a function of the other."""
    a, b = halves
    a = a + nn.relu(b @ w["f"]) @ w["p"]
    return a, b + nn.relu(a @ w["g"]) @ w["q"]


def scanned(halves: Halves, blocks: Params) -> Halves:
    """All blocks, as a loop over stacked weights."""
    out: Halves = lax.scan(lambda h, w: (block(h, w), None), halves, blocks)[0]
    return out


def loss(blocks: Callable[[Halves, Params], Halves], params: Params, images: fx.Array, labels: fx.Array) -> fx.Array:
    """Cross entropy of the network with these blocks."""
    a, b = blocks((images @ params["in_a"], images @ params["in_b"]), params["blocks"])
    scores = fnp.concatenate([a, b], -1) @ params["out"]
    return -fnp.mean(fnp.sum(nn.log_softmax(scores) * labels, -1))


def initial(depth: int, seed: int = 0) -> Params:
    """Return weights, smaller ones for more blocks."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float) -> np.ndarray[Any, Any]:
        return (scale * rng.normal(size=shape)).astype(np.float32)

    scale = 1 / np.sqrt(WIDTH)
    blocks = {k: normal(depth, WIDTH, WIDTH, scale=scale if k in "fg" else scale / depth) for k in "fgpq"}
    ends = {k: normal(64, WIDTH, scale=0.02) for k in ("in_a", "in_b")}
    return {"blocks": blocks, **ends, "out": normal(2 * WIDTH, 10, scale=scale)}


def digits() -> tuple[Any, Any]:
    """Return images of 8 x 8 pixels, and their digits, one-hot."""
    with gzip.open(DIGITS, "rt") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return rows[:, :64] / 16 - 0.5, np.eye(10, dtype=np.float32)[rows[:, 64].astype(int)]


def figures_of(depth: int, images: Any, labels: Any) -> dict[str, float]:
    """Return temporaries stored and reconstructed, the difference of the gradients, and the error of the
    reconstruction."""
    params, lean = initial(depth), fx.invertible(scanned, keep="blocks")
    programs = [fx.trace(partial(loss, f), params, images, labels) for f in (scanned, lean)]
    runs: list[Any] = [fx.lower(fx.grad(program)).compile() for program in programs]
    stored, kept = [run.memory().temp_bytes / 1024 for run in runs]
    want, found = [[np.asarray(x) for x in fx.tree.leaves(run(params, images, labels))] for run in runs]
    apart = max([float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in zip(want, found, strict=True)])
    halves = images @ params["in_a"], images @ params["in_b"]
    error = fx.reconstruction_error(scanned, halves, params["blocks"], keep="blocks")
    print(f"{depth:6}  {stored:9,.0f}  {kept:16,.0f}  {apart:19.1e}  {error:20.1e}")
    return {"stored KB": stored, f"KB, {depth} blocks": kept, "apart": apart, "error": error}


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Print memory by depth, then trains. Return the figures and the accuracy on held-out digits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args(argv).steps
    images, labels = digits()
    print("blocks  stored KB  reconstructed KB  gradients differ by  reconstruction error")
    figures: dict[str, float] = {}
    for depth in DEPTHS:
        figures |= figures_of(depth, images[:256], labels[:256])

    lean = fx.invertible(scanned, keep="blocks")

    @fx.jit
    def step(params: Params, momentum: Params, x: fx.Array, y: fx.Array) -> tuple[Params, Params]:
        slope = fx.grad(lambda p: loss(lean, p, x, y))(params)
        momentum = fx.tree.map(lambda m, g: 0.9 * m + g, momentum, slope)
        return fx.tree.map(lambda p, m: p - 0.02 * m, params, momentum), momentum

    params: Params = initial(DEPTHS[0])
    momentum = fx.tree.map(np.zeros_like, params)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        rows = rng.choice(1400, 128, replace=False)
        params, momentum = step(params, momentum, images[rows], labels[rows])
    a, b = scanned((images[1400:] @ params["in_a"], images[1400:] @ params["in_b"]), params["blocks"])
    guess = np.argmax(np.asarray(fnp.concatenate([a, b], -1) @ params["out"]), -1)
    figures["accuracy"] = float(np.mean(guess == np.argmax(labels[1400:], -1)))
    print(f"held out: {100 * figures['accuracy']:.1f} % right after {steps} steps with {DEPTHS[0]} blocks")
    return figures


if __name__ == "__main__":
    main()
