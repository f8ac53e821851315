"""A set model on point clouds of different sizes: is a cloud a ring or a disc? One compilation for all sizes.

Each cloud is a set of points in the plane. The model maps each point, takes mean and maximum over the cloud, and
classifies. `mask` makes it a model of padded clouds; the order of points and the padding do not matter.

python examples/point_clouds.py --steps 300
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, random

WIDTH, PADDED = 24, 32


class Params(TypedDict):
    """The trained arrays."""

    point: fx.Array
    bias: fx.Array
    out: fx.Array


def init(key: fx.Array) -> Params:
    a, b = random.split(key)
    return {
        "point": random.normal(a, (3, WIDTH)),
        "bias": fnp.zeros(WIDTH),
        "out": random.normal(b, (2 * WIDTH, 2)) / WIDTH,
    }


def loss(params: Params, cloud: fx.Array, label: fx.Array) -> fx.Array:
    """Return the cross entropy of one cloud, of shape (n, 2)."""
    radius = fnp.sqrt((cloud * cloud).sum(-1, keepdims=True) + 1e-6)
    seen = nn.gelu(fnp.concatenate([cloud, radius], axis=-1) @ params["point"] + params["bias"])
    both = fnp.concatenate([seen.mean(0), seen.max(0)])
    return -nn.log_softmax(both @ params["out"])[label]


masked = fx.mask(loss, (None, "(n>=1, _)", None))


def batch_loss(params: Params, clouds: fx.Array, labels: fx.Array, sizes: fx.Array) -> fx.Array:
    """Return the mean loss of padded clouds."""

    def one(cloud: fx.Array, label: fx.Array, n: fx.Array) -> fx.Array:
        found: fx.Array = masked(params, cloud, label, sizes={"n": n})
        return found

    return fx.vmap(one)(clouds, labels, sizes).mean()


@fx.jit
def step(params: Params, clouds: fx.Array, labels: fx.Array, sizes: fx.Array) -> tuple[fx.Array, Params]:
    value, slope = fx.value_and_grad(batch_loss)(params, clouds, labels, sizes)
    return value, fx.tree.map(lambda p, g: p - 0.2 * g, params, slope)


def clouds(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return padded clouds (the padding is nan), labels, and numbers of points from 3 to `PADDED`."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, PADDED + 1, count).astype(np.int32)
    labels = rng.integers(0, 2, count).astype(np.int32)
    out = np.full((count, PADDED, 2), np.nan, np.float32)
    for k, (n, ring) in enumerate(zip(sizes, labels, strict=True)):
        angle = rng.uniform(0, 2 * np.pi, n)
        radius = 1 + 0.1 * rng.normal(size=n) if ring else np.sqrt(rng.uniform(size=n)) * 1.2
        out[k, :n] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return out, labels, sizes


def difference(params: Params) -> float:
    """Return the largest difference between the gradient of a padded batch and that of a loop over its clouds."""
    given, labels, sizes = clouds(4, 7)
    padded = fx.grad(batch_loss)(params, fnp.asarray(given), fnp.asarray(labels), fnp.asarray(sizes))

    def loop(p: Params) -> fx.Array:
        each = [loss(p, fnp.asarray(x[:n]), fnp.asarray(y)) for x, y, n in zip(given, labels, sizes, strict=True)]
        return fnp.stack(each).mean()

    return max(
        [float(abs(a - b).max()) for a, b in zip(*map(fx.tree.leaves, (padded, fx.grad(loop)(params))), strict=True)]
    )


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    steps: int = parser.parse_args(argv).steps
    params = init(random.key(0))
    gap = difference(params)
    print(f"gradient of padded clouds against a loop over them: {gap:.1e}")
    losses: list[float] = []
    for k in range(steps):
        value, params = step(params, *map(fnp.asarray, clouds(32, k)))
        losses.append(float(value))
    first, last = float(np.mean(losses[:10])), float(np.mean(losses[-10:]))
    print(f"loss {first:.3f} -> {last:.3f} in {steps} steps, 1 compilation for {PADDED - 2} sizes")
    return {"difference": gap, "first": first, "last": last}


if __name__ == "__main__":
    main()
