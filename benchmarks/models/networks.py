"""Networks: layers, a transformer block, a recurrent network unrolled and in `scan`, residual convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.library import Library, Model, Tree, normal


def mlp(layers: int = 50, width: int = 256, batch: int = 256) -> Model:
    """Layers of tanh, squared error."""

    def loss(library: Library, params: Tree, x: Any, y: Any) -> Any:
        for w, b in params:
            x = library.np.tanh(x @ w + b)
        return library.np.mean((x - y) ** 2)

    rng = np.random.default_rng(0)
    params = [(normal(rng, width, width), np.zeros(width, np.float32)) for _ in range(layers)]
    return Model(f"MLP, {layers} layers", loss, params, normal(rng, batch, width), normal(rng, batch, width))


def transformer(layers: int = 12, d: int = 256, heads: int = 4, length: int = 128, batch: int = 4) -> Model:
    """Blocks of attention and of a gelu network, each behind a layer norm, in a Python loop."""

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
    name = "transformer block" if layers == 1 else f"transformer, {layers} layers"
    return Model(name, loss, params, *data)


def transformer_block() -> Model:
    """A transformer of one layer."""
    return transformer(layers=1)


def rnn(steps: int = 200, hidden: int = 64, batch: int = 16, scanned: bool = False) -> Model:
    """A recurrent network, unrolled or in `scan`."""

    def step(library: Library, params: Tree, h: Any, x: Any) -> Any:
        return library.np.tanh(x @ params["w"] + h @ params["u"] + params["b"])

    def loss(library: Library, params: Tree, x: Any, y: Any) -> Any:
        h = library.np.zeros((batch, hidden), "float32")
        if scanned:
            h, _ = library.lax.scan(lambda h, x: (step(library, params, h, x), None), h, x)
        else:
            for t in range(steps):
                h = step(library, params, h, x[t])
        return library.np.mean((h - y) ** 2)

    rng = np.random.default_rng(0)
    params = {"w": normal(rng, hidden, hidden), "u": normal(rng, hidden, hidden), "b": np.zeros(hidden, np.float32)}
    how = "in scan" if scanned else "unrolled"
    data = normal(rng, steps, batch, hidden), normal(rng, batch, hidden)
    return Model(f"RNN, {steps} steps {how}", loss, params, *data)


def residual(blocks: int = 8, channels: int = 16, size: int = 16, batch: int = 8) -> Model:
    """Blocks of two 3 x 3 convolutions, each behind a norm over the batch, with a residual connection."""

    def convolve(library: Library, x: Any, w: Any) -> Any:
        return library.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def norm(library: Library, x: Any, scale: Any, shift: Any) -> Any:
        mean = library.np.mean(x, axis=(0, 1, 2))
        var = library.np.mean((x - mean) ** 2, axis=(0, 1, 2))
        return (x - mean) / library.np.sqrt(var + 1e-5) * scale + shift

    def loss(library: Library, params: Tree, x: Any, y: Any) -> Any:
        x = convolve(library, x, params["in"])
        for block in params["blocks"]:
            out = x
            for p in block:
                out = convolve(library, library.nn.relu(norm(library, out, p["scale"], p["shift"])), p["w"])
            x = x + out
        logits = library.np.mean(x, axis=(1, 2)) @ params["out"]
        return -library.np.mean(library.np.sum(y * library.nn.log_softmax(logits, axis=-1), axis=-1))

    rng = np.random.default_rng(0)

    def layer() -> Tree:
        w = (rng.standard_normal((3, 3, channels, channels)) / (9 * channels) ** 0.5).astype(np.float32)
        return {"w": w, "scale": np.ones(channels, np.float32), "shift": np.zeros(channels, np.float32)}

    params = {
        "in": normal(rng, 3, 3, 3, channels),
        "blocks": [(layer(), layer()) for _ in range(blocks)],
        "out": normal(rng, channels, 10),
    }
    labels = np.eye(10, dtype=np.float32)[rng.integers(10, size=batch)]
    images = rng.standard_normal((batch, size, size, 3)).astype(np.float32)
    return Model(f"residual conv net, {blocks} blocks", loss, params, images, labels)
