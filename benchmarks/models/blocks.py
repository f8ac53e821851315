"""Networks of equal blocks. A segment of `remat` starts from the values between two blocks.

A block names one of its values "kept". `Network.loss` runs the blocks one after the other, or, for a recurrent network,
one block over a sequence. Each block is under `wrap`, for example `remat` with a policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.ad_checkpoint
import numpy as np

import fxad as fx
from benchmarks.models.library import OURS, Library, Tree, normal

Block = Callable[[Library, Tree, Any, Any], Any]
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def named(library: Library, x: Any) -> Any:
    """The value, with the name "kept"."""
    return fx.checkpoint_name(x, "kept") if library is OURS else jax.ad_checkpoint.checkpoint_name(x, "kept")


def _same(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


@dataclass(frozen=True, slots=True)
class Way:
    """A way to differentiate a network: a wrapper of each block, a wrapper of the whole chain, and a replacement of the
    scan."""

    block: Wrap | None = None
    chain: Wrap | None = None
    scan: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """`block(library, params, state, x) -> state`. `layers` are the parameters of each block, or of the only block if
    `xs` is given, the sequence that it is scanned over. The loss is the mean square of the last state."""

    name: str
    block: Block
    layers: Tree
    start: Tree
    xs: Any = None

    def loss(self, library: Library, how: Way, layers: Tree, start: Tree, xs: Any) -> Any:
        """The loss."""
        wrap, scan = how.block or _same, how.scan
        if self.xs is None and scan is not None:
            # the same blocks as a loop over their parameters, which are stacked here; the copies count as temporaries
            stacked = fx.tree.map(lambda *leaves: library.np.stack(leaves), *layers)
            state, _ = scan(lambda state, p: (wrap(partial(self.block, library))(p, state, None), None), start, stacked)
        elif self.xs is None:

            def chain(layers: Tree, state: Tree) -> Tree:
                for params in layers:
                    state = wrap(lambda params, state: self.block(library, params, state, None))(params, state)
                return state

            state = (how.chain or _same)(chain)(layers, start)
        else:
            step = wrap(lambda params, state, x: self.block(library, params, state, x))
            state, _ = (scan or library.lax.scan)(lambda state, x: (step(layers, state, x), None), start, xs)
        parts = state if isinstance(state, tuple) else (state,)
        return sum([library.np.mean(part**2) for part in parts])


def mlp(depth: int = 24, width: int = 128, batch: int = 1024) -> Network:
    """Blocks of two products and a tanh."""

    def block(library: Library, p: Tree, x: Any, _: Any) -> Any:
        return named(library, library.np.tanh(x @ p["w"] + p["b"])) @ p["v"]

    rng = np.random.default_rng(0)
    layers = [
        {"w": normal(rng, width, width), "b": np.zeros(width, np.float32), "v": normal(rng, width, width)}
        for _ in range(depth)
    ]
    return Network(f"MLP, {depth} blocks", block, layers, normal(rng, batch, width))


def transformer(depth: int = 6, d: int = 128, heads: int = 4, length: int = 64, batch: int = 8) -> Network:
    """Attention and a gelu network, each behind a layer norm."""

    def norm(library: Library, x: Any, scale: Any) -> Any:
        mean = library.np.mean(x, axis=-1, keepdims=True)
        var = library.np.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) / library.np.sqrt(var + 1e-5) * scale

    def split(library: Library, x: Any) -> Any:
        return library.np.transpose(x.reshape(batch, length, heads, d // heads), (0, 2, 1, 3))

    def block(library: Library, p: Tree, x: Any, _: Any) -> Any:
        h = norm(library, x, p["s1"])
        q, k, v = (split(library, h @ p[name]) for name in ("q", "k", "v"))
        scores = library.nn.softmax(q @ library.np.transpose(k, (0, 1, 3, 2)) / (d // heads) ** 0.5, axis=-1)
        mixed = library.np.transpose(scores @ v, (0, 2, 1, 3)).reshape(batch, length, d)
        x = x + named(library, mixed @ p["o"])
        return x + library.nn.gelu(norm(library, x, p["s2"]) @ p["up"]) @ p["down"]

    rng = np.random.default_rng(0)

    def layer() -> Tree:
        square: Tree = {name: normal(rng, d, d) for name in ("q", "k", "v", "o")}
        wide = {"up": normal(rng, d, 4 * d), "down": normal(rng, 4 * d, d)}
        return square | wide | {name: np.ones(d, np.float32) for name in ("s1", "s2")}

    return Network(
        f"transformer, {depth} blocks", block, [layer() for _ in range(depth)], normal(rng, batch, length, d)
    )


def convolutional(depth: int = 8, channels: int = 16, size: int = 24, batch: int = 16) -> Network:
    """Residual blocks: two convolutions, each behind a norm and a relu."""

    def half(library: Library, x: Any, w: Any, scale: Any) -> Any:
        mean = library.np.mean(x, axis=(0, 1, 2))
        var = library.np.mean((x - mean) ** 2, axis=(0, 1, 2))
        h = library.nn.relu((x - mean) / library.np.sqrt(var + 1e-5) * scale)
        return library.lax.conv_general_dilated(h, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def block(library: Library, p: Tree, x: Any, _: Any) -> Any:
        return x + half(library, named(library, half(library, x, p["w1"], p["s1"])), p["w2"], p["s2"])

    rng = np.random.default_rng(0)

    def layer() -> Tree:
        ws = {k: normal(rng, 3, 3, channels, channels) * np.float32((3 / (9 * channels)) ** 0.5) for k in ("w1", "w2")}
        return ws | {k: np.ones(channels, np.float32) for k in ("s1", "s2")}

    images = rng.standard_normal((batch, size, size, channels)).astype(np.float32)
    return Network(f"conv net, {depth} blocks", block, [layer() for _ in range(depth)], images)


def recurrent(steps: int = 256, width: int = 64, batch: int = 64) -> Network:
    """A gated unit, scanned over a sequence."""

    def block(library: Library, p: Tree, h: Any, x: Any) -> Any:
        z = library.nn.sigmoid(x @ p["wz"] + h @ p["uz"])
        new = named(library, library.np.tanh(x @ p["w"] + (z * h) @ p["u"]))
        return (1 - z) * h + z * new

    rng = np.random.default_rng(0)
    params = {name: normal(rng, width, width) for name in ("wz", "uz", "w", "u")}
    start = np.zeros((batch, width), np.float32)
    return Network(
        f"RNN, {steps} steps", block, params, start, normal(rng, steps, batch, width) * np.float32(steps**0.5)
    )


def reversible(depth: int = 24, width: int = 64, batch: int = 1024) -> Network:
    """Additive couplings: `y1 = x1 + f(x2)`, `y2 = x2 + g(y1)`, where f and g are two products and a tanh."""

    def block(library: Library, p: Tree, state: Any, _: Any) -> Any:
        a, b = state
        a = a + named(library, library.np.tanh(b @ p["w1"])) @ p["v1"]
        return a, b + library.np.tanh(a @ p["w2"]) @ p["v2"]

    rng = np.random.default_rng(0)
    # steps are small, as between layers of a deep network: reconstruction rounds, and large steps would amplify it
    scale = np.float32(0.25)
    layers = [{k: scale * normal(rng, width, width) for k in ("w1", "v1", "w2", "v2")} for _ in range(depth)]
    return Network(f"RevNet, {depth} blocks", block, layers, (normal(rng, batch, width), normal(rng, batch, width)))


NETWORKS: tuple[Callable[[], Network], ...] = (mlp, transformer, convolutional, recurrent, reversible)
