"""Deep networks as users write them: a Python loop over layers with the same code and their own parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.library import Library, Model, Tree, normal


def transformer(layers: int = 12, d: int = 256, heads: int = 4, length: int = 128, batch: int = 4) -> Model:
    """Blocks of attention and of a gelu network, each behind a layer norm, unrolled."""

    def norm(library: Library, x: Any, scale: Any, shift: Any) -> Any:
        mean = library.np.mean(x, axis=-1, keepdims=True)
        var = library.np.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) / library.np.sqrt(var + 1e-5) * scale + shift

    def split(library: Library, x: Any) -> Any:
        return library.np.transpose(x.reshape(batch, length, heads, d // heads), (0, 2, 1, 3))

    def attention(library: Library, p: Tree, x: Any) -> Any:
        q, k, v = (split(library, x @ p[name]) for name in ("q", "k", "v"))
        scores = q @ library.np.transpose(k, (0, 1, 3, 2)) / (d // heads) ** 0.5
        mixed = library.np.transpose(library.nn.softmax(scores, axis=-1) @ v, (0, 2, 1, 3))
        return mixed.reshape(batch, length, d) @ p["o"]

    def block(library: Library, p: Tree, x: Any) -> Any:
        x = x + attention(library, p, norm(library, x, p["scale1"], p["shift1"]))
        return x + library.nn.gelu(norm(library, x, p["scale2"], p["shift2"]) @ p["up"] + p["b"]) @ p["down"]

    def loss(library: Library, params: Any, x: Any, y: Any) -> Any:
        for p in params:
            x = block(library, p, x)
        return library.np.mean((x - y) ** 2)

    rng = np.random.default_rng(0)

    def layer() -> Tree:
        p: Tree = {name: normal(rng, d, d) for name in ("q", "k", "v", "o")}
        p |= {"up": normal(rng, d, 4 * d), "b": np.zeros(4 * d, np.float32), "down": normal(rng, 4 * d, d)}
        names = ("scale1", "shift1", "scale2", "shift2")
        return p | {name: np.full(d, name.startswith("scale"), np.float32) for name in names}

    params: Any = [layer() for _ in range(layers)]
    data = normal(rng, batch, length, d), normal(rng, batch, length, d)
    return Model(f"transformer, {layers} layers", loss, params, *data)
