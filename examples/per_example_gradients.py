"""Finds mislabelled data by the gradient of each example, with `vmap(grad)`.

    python examples/per_example_gradients.py

A classifier is trained on digits, some of which have a wrong label. The norm of the gradient of one example's loss
measures its influence on the model. `fx.vmap(fx.grad(loss))` computes it for a thousand examples in one program. The
examples with the largest influence are the mislabelled ones.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import fxad as fx
import fxad.numpy as fnp

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
EXAMPLES = 1000
WRONG = 50


@fx.tree.dataclass
class Params:
    """A linear classifier."""

    w: fx.Array
    b: fx.Array


def loss(params: Params, x: fx.Array, y: fx.Array) -> fx.Array:
    """Cross entropy of one example: an image of 64 pixels and its label."""
    z = x @ params.w + params.b
    z = z - fnp.max(z)
    return fnp.log(fnp.sum(fnp.exp(z))) - z[y]


def mean_loss(params: Params, xs: fx.Array, ys: fx.Array) -> fx.Array:
    """Return the mean loss of many examples: the same function, mapped."""
    return fnp.mean(fx.vmap(loss, in_axes=(None, 0, 0))(params, xs, ys))


def squared_norm(grads: Params) -> fx.Array:
    """Squared norm of a gradient."""
    return fnp.sum(grads.w * grads.w) + fnp.sum(grads.b * grads.b)


def pull(params: Params, x: fx.Array, y: fx.Array) -> fx.Array:
    """Return the influence of one example on the parameters."""
    return squared_norm(fx.grad(loss)(params, x, y))


def main(argv: Sequence[str] | None = None) -> float:
    """Trains on labels that are partly wrong. Returns their share among the examples with the largest influence."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=300, help="steps of gradient descent")
    options = parser.parse_args(argv)

    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)[:EXAMPLES]
    rng = np.random.default_rng(0)
    labels = table[:, -1].astype(np.int32)
    wrong = rng.choice(EXAMPLES, WRONG, replace=False)
    labels[wrong] = (labels[wrong] + rng.integers(1, 10, WRONG)) % 10
    xs, ys = fnp.asarray(table[:, :-1] / 16), fnp.asarray(labels)

    params = Params(fnp.zeros((64, 10)), fnp.zeros(10))
    descend = fx.lower(fx.trace(fx.grad(mean_loss), params, xs, ys)).compile()
    for _ in range(options.steps):
        params = fx.tree.map(lambda p, g: p - 0.5 * g, params, descend(params, xs, ys))

    pulls = fx.jit(fx.vmap(pull, in_axes=(None, 0, 0)))(params, xs, ys)
    hardest = np.argsort(np.asarray(pulls))[-WRONG:]
    found = float(np.isin(hardest, wrong).mean())
    print(f"{EXAMPLES} examples, {WRONG} of them with a wrong label")
    print(f"of the {WRONG} that pull hardest, {found:.0%} are mislabelled (by chance: {WRONG / EXAMPLES:.0%})")
    return found


if __name__ == "__main__":
    main()
