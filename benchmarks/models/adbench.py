"""The objectives of ADBench: a Gaussian mixture, bundle adjustment, an LSTM.

Srajer, Kukelova, Fitzgibbon: A benchmark of selected algorithmic differentiation tools for some problems in computer
vision and machine learning. Optimization Methods and Software 33, 2018. The data are drawn here, in sizes of theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import multigammaln

from benchmarks.models.library import Library, Model, Tree, normal


def mixture(points: int = 1000, dims: int = 10, parts: int = 25, gamma: float = 1.0, m: int = 0) -> Model:
    """The log-likelihood of points under a mixture of Gaussians, with a Wishart prior on their inverse covariances.

    The root of an inverse covariance is lower triangular, with exp(q) on the diagonal and l below it.
    """
    rows, cols = np.tril_indices(dims, -1)
    diagonal = np.arange(dims)
    freedom = dims + m + 1
    prior = freedom * dims * (np.log(gamma) - 0.5 * np.log(2)) - multigammaln(0.5 * freedom, dims)
    constant = float(-points * dims * 0.5 * np.log(2 * np.pi) - parts * prior)

    def loss(library: Library, params: Tree, x: Any, y: Any) -> Any:
        alpha, means, q, below = params["alpha"], params["means"], params["q"], params["l"]
        exp_q = library.np.exp(q)
        roots = library.np.zeros((parts, dims, dims), "float32")
        roots = roots.at[:, rows, cols].set(below).at[:, diagonal, diagonal].set(exp_q)
        off = library.np.einsum("kij,nkj->nki", roots, x[:, None] - means)
        inner = alpha + library.np.sum(q, axis=1) - 0.5 * library.np.sum(off**2, axis=2)
        likelihood = library.np.sum(library.nn.logsumexp(inner, axis=1)) - points * library.nn.logsumexp(alpha)
        spread = 0.5 * gamma**2 * (library.np.sum(exp_q**2) + library.np.sum(below**2)) - m * library.np.sum(q)
        return (constant + likelihood + spread) * y

    rng = np.random.default_rng(0)
    params = {
        "alpha": rng.standard_normal(parts).astype(np.float32),
        "means": rng.standard_normal((parts, dims)).astype(np.float32),
        "q": rng.standard_normal((parts, dims)).astype(np.float32) / 4,
        "l": rng.standard_normal((parts, len(rows))).astype(np.float32) / 4,
    }
    x = rng.standard_normal((points, dims)).astype(np.float32)
    return Model(f"ADBench GMM, {points} x {dims}, {parts} parts", loss, params, x, np.float32(1 / points))


def _cross(library: Library, a: Any, b: Any) -> Any:
    pairs = (1, 2), (2, 0), (0, 1)
    return library.np.stack([a[i] * b[j] - a[j] * b[i] for i, j in pairs])


def _rotated(library: Library, rotation: Any, x: Any) -> Any:
    """Rodrigues: x turned about an axis, by the axis' length."""
    square = library.np.sum(rotation**2)
    small = square == 0
    theta = library.np.sqrt(library.np.where(small, 1, square))
    cos, sin, axis = library.np.cos(theta), library.np.sin(theta), rotation / theta
    turned = x * cos + _cross(library, axis, x) * sin + axis * (axis @ x) * (1 - cos)
    return library.np.where(small, x + _cross(library, rotation, x), turned)


def _projected(library: Library, camera: Any, x: Any) -> Any:
    """Where a camera sees a point: rotation, center, focal length, principal point, two radial distortions."""
    seen = _rotated(library, camera[:3], x - camera[3:6])
    plane = seen[:2] / seen[2]
    square = library.np.sum(plane**2)
    distortion = 1 + camera[9] * square + camera[10] * square**2
    return plane * distortion * camera[6] + camera[7:9]


def bundle(cameras: int = 49, points: int = 7776, observations: int = 31843) -> Model:
    """Half the squares of weighted reprojection errors, and of what weights lack of 1."""

    def loss(library: Library, params: Tree, x: Any, y: Any) -> Any:
        def error(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
            return weight * (_projected(library, camera, point) - feature)

        seen = library.vmap(error)(params["cameras"][x["camera"]], params["points"][x["point"]], params["weights"], y)
        return 0.5 * (library.np.sum(seen**2) + library.np.sum((1 - params["weights"] ** 2) ** 2)) / observations

    rng = np.random.default_rng(0)
    camera = np.array([0, 0, 0, 0, 0, -5, 1, 0, 0, 0, 0], np.float32)
    params = {
        "cameras": camera + 0.1 * rng.standard_normal((cameras, 11)).astype(np.float32),
        "points": rng.standard_normal((points, 3)).astype(np.float32) / 2,
        "weights": 1 + 0.1 * rng.standard_normal(observations).astype(np.float32),
    }
    x = {
        "camera": rng.integers(cameras, size=observations).astype(np.int32),
        "point": rng.integers(points, size=observations).astype(np.int32),
    }
    y = normal(rng, observations, 2)
    return Model(f"ADBench BA, {cameras} cameras, {observations:,} observations", loss, params, x, y)


def lstm(layers: int = 2, steps: int = 1024, width: int = 14) -> Model:
    """The log-probability of a sequence under an LSTM with diagonal weights, in `scan`."""

    def cell(library: Library, weight: Any, bias: Any, hidden: Any, memory: Any, x: Any) -> tuple[Any, Any]:
        forget = library.nn.sigmoid(x * weight[0] + bias[0])
        take = library.nn.sigmoid(hidden * weight[1] + bias[1])
        give = library.nn.sigmoid(x * weight[2] + bias[2])
        change = library.np.tanh(hidden * weight[3] + bias[3])
        memory = memory * forget + take * change
        return give * library.np.tanh(memory), memory

    def loss(library: Library, params: Tree, x: Any, y: Any) -> Any:
        scale_in, scale_out, bias_out = params["ends"]

        def step(state: Any, pair: Any) -> tuple[Any, Any]:
            x, gold = pair
            x, after = x * scale_in, []
            for (weight, bias), (hidden, memory) in zip(params["layers"], state, strict=True):
                x, memory = cell(library, weight, bias, hidden, memory, x)
                after.append((x, memory))
            guess = x * scale_out + bias_out
            return after, library.np.sum(gold * (guess - library.np.log(2 + library.np.sum(library.np.exp(guess)))))

        _, totals = library.lax.scan(step, x["state"], (x["sequence"], y))
        return -library.np.sum(totals) / (steps * width)

    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    sequence = np.eye(width, dtype=np.float32)[rng.integers(width, size=steps + 1)]
    params = {
        "layers": [(drawn(4, width), drawn(4, width)) for _ in range(layers)],
        "ends": [drawn(width) for _ in range(3)],
    }
    x = {"state": [(drawn(width), drawn(width)) for _ in range(layers)], "sequence": sequence[:-1]}
    return Model(f"ADBench LSTM, {layers} layers, {steps} steps", loss, params, x, sequence[1:])
