"""Memory against time: bytes and time of each way to store less, beside jax.

    python -m benchmarks.memory                 measure everything, write docs/memory.json and docs/memory.md
    python -m benchmarks.memory mlp loops       measure some parts; earlier results of the others stay
    python -m benchmarks.memory --bytes         bytes only, which are reproducible; earlier times stay
    python docs/plots.py                        the plots, from docs/memory.json

Both files are saved after each part, so a run that is stopped loses only the current part.

Each network of `benchmarks/models/blocks.py` is written once and compiled by both libraries: plain, and with every
block under `remat` (`jax.checkpoint`) with the same policy. The compiled function is the gradient with respect to all
parameters. All contestants take turns in one process; times are written as ratios.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import fxad as fx
import fxad.numpy as fnp
from benchmarks.bench_models import agree
from benchmarks.memory_page import read, replaced, write
from benchmarks.models.blocks import NETWORKS, Network, Way, Wrap, reversible
from benchmarks.models.couplings import LAYERS, SLOW
from benchmarks.models.library import OURS
from benchmarks.models.theirs import THEIRS
from benchmarks.page import taken
from fxad import lax, policies

DOCS: Final = Path(__file__).parents[1] / "docs"
_JAX: Final = jax.checkpoint_policies
POLICIES: Final = {
    "nothing": (policies.nothing, _JAX.nothing_saveable),
    "names": (policies.names("kept"), _JAX.save_only_these_names("kept")),
    "dots_without_batch_dims": (policies.dots_without_batch_dims, _JAX.dots_with_no_batch_dims_saveable),
    "dots": (policies.dots, _JAX.dots_saveable),
    "everything": (policies.everything, _JAX.everything_saveable),
}
# The number of carries that a loop of n steps may store.
BUDGETS: Final[dict[str, Callable[[int], int]]] = {
    "2 sqrt(n)": lambda n: 2 * (isqrt(n - 1) + 1),
    "2 log2(n)": lambda n: 2 * (n - 1).bit_length(),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to differentiate, and the same in jax (None if jax has none)."""

    name: str
    ours: Way
    theirs: Way | None = None


def invertible(chain: Callable[..., Any]) -> Callable[..., Any]:
    """The chain of blocks, reconstructed from its last state. The parameters are kept."""
    return fx.invertible(chain, keep="layers")


def variants(network: Network) -> list[Variant]:
    """Returns the ways to differentiate a network."""
    out = [Variant("plain", Way(), Way())]
    for name, (mine, peer) in POLICIES.items():
        mine_too: Wrap = partial(_remat, policy=mine)
        out.append(Variant(f"remat: {name}", Way(mine_too), Way(partial(jax.checkpoint, policy=peer))))
    steps = len(network.layers) if network.xs is None else len(network.xs)
    for k, name in {budget(steps): name for name, budget in BUDGETS.items()}.items():  # equal budgets: one row
        scan = partial(lax.checkpointed_scan, budget=k)
        out.append(Variant(f"checkpointed_scan, {name}", Way(scan=scan)))
    if network.name.startswith("RevNet"):
        out.append(Variant("invertible", Way(chain=invertible)))
    return out


def _remat(f: Callable[..., Any], policy: policies.Policy) -> Callable[..., Any]:
    return fx.remat(f, policy=policy)


# -------------------------------------------------------------------------------------------------------- measurement


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled gradient: bytes of its temporaries, its value, and a step to time."""

    temp_bytes: int
    value: Any
    step: Callable[[], object]


def ours(network: Network, v: Variant) -> Compiled:
    """Compiles with fxad."""
    args = [fx.tree.map(fx.asarray, a) for a in (network.layers, network.start, network.xs)]
    program = fx.trace(lambda layers, start, xs: network.loss(OURS, v.ours, layers, start, xs), *args)
    run: fx.Executable[..., Any] = fx.lower(fx.grad(program)).compile()

    def step() -> None:
        for a in fx.tree.leaves(run(*args)):
            a.block_until_ready()

    return Compiled(run.memory().temp_bytes, run(*args), step)


def theirs(network: Network, v: Variant) -> Compiled:
    """Compiles with jax."""
    args = [jax.tree.map(jnp.asarray, a) for a in (network.layers, network.start, network.xs)]
    grad = jax.grad(lambda layers, start, xs: network.loss(THEIRS, v.theirs or Way(), layers, start, xs))
    run = jax.jit(grad).lower(*args).compile()
    held = run.memory_analysis().temp_size_in_bytes
    return Compiled(held, run(*args), lambda: jax.block_until_ready(run(*args)))


def turns(steps: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Returns seconds of each contestant, the best of turns taken one by one."""
    best = [float("inf")] * len(steps)
    end = time.perf_counter() + seconds
    gc.disable()
    while time.perf_counter() < end:
        for k, step in enumerate(steps):
            start = time.perf_counter()
            step()
            best[k] = min(best[k], time.perf_counter() - start)
    gc.enable()
    return best


def measure(network: Network, seconds: float) -> dict[str, Any]:
    """Returns bytes of every variant, and times relative to jax's plain gradient if `seconds` are given."""
    rows: dict[str, Any] = {}
    steps: list[tuple[str, int, Callable[[], object]]] = []
    first: Any = None
    for v in variants(network):
        contestants = [ours(network, v), *([theirs(network, v)] if v.theirs else [])]
        first = contestants[0].value if first is None else first
        for c in contestants:
            agree(first, c.value)
        steps += [(v.name, k, c.step) for k, c in enumerate(contestants)]
        rows[v.name] = {"bytes": [c.temp_bytes for c in contestants]}
    if seconds:
        took = turns([step for *_, step in steps], seconds)
        unit = next(t for t, (name, k, _) in zip(took, steps, strict=True) if name == "plain" and k == 1)
        for name, row in rows.items():
            row["time"] = [round(t / unit, 3) for t, (n, *_) in zip(took, steps, strict=True) if n == name]
    return {"name": network.name, "rows": rows}


def loops() -> dict[str, Any]:
    """Returns the temporaries of the gradient through a loop without slices, in states, for lengths and budgets."""
    lengths = (64, 256, 1024, 4096)
    x, w = np.full((32, 64), 0.1, np.float32), np.full((64, 64), 0.01, np.float32)
    curves: dict[str, list[float]] = {"lax.scan": [], "sqrt(n) segments": [], "2 log2(n) carries": []}

    def held(scan: Callable[..., Any]) -> float:
        def loss(x: fx.Array) -> fx.Array:
            last: fx.Array = scan(lambda h, _: (fnp.sin(fnp.tanh(h @ w)) + h, None), x)[0]
            return fnp.sum(last)

        return round(fx.lower(fx.grad(fx.trace(loss, x))).compile().memory().temp_bytes / x.nbytes, 1)

    for n in lengths:
        budgets = {"sqrt(n) segments": BUDGETS["2 sqrt(n)"](n), "2 log2(n) carries": BUDGETS["2 log2(n)"](n)}
        curves["lax.scan"].append(held(lambda f, x, n=n: lax.scan(f, x, None, length=n)))
        for key, k in budgets.items():
            curves[key].append(held(lambda f, x, n=n, k=k: lax.checkpointed_scan(f, x, None, length=n, budget=k)))
    return {"steps": lengths, "states": curves}


def depths() -> dict[str, Any]:
    """Returns the temporaries of the gradient of couplings, in states, for depths."""
    depths = (4, 8, 16, 32, 64)
    ways = {
        "plain": Way(),
        "remat of each block": Way(partial(_remat, policy=policies.nothing)),
        "invertible": Way(chain=invertible),
    }
    curves: dict[str, list[float]] = {name: [] for name in ways}
    for depth in depths:
        network = reversible(depth, 16, 512)
        state = sum([a.nbytes for a in network.start])
        for name, way in ways.items():
            curves[name].append(round(ours(network, Variant(name, way)).temp_bytes / state, 1))
    return {"blocks": depths, "states": curves}


def couplings() -> dict[str, Any]:
    """Returns the temporaries of the gradient of unrolled couplings, in arrays, for depths: stored, reconstructed, and
    by jax with and without `jax.checkpoint` of each layer."""
    depths = (4, 16, 64)
    a, b = np.full((2, 128, 128), 0.1, np.float32)
    w = np.full((128, 128), 0.01, np.float32)

    def loss(f: Callable[..., Any], np: Any) -> Callable[..., Any]:
        def number(x: Any, w: Any) -> Any:
            a, b = f(x, w)
            return np.sum(a * b)

        return number

    def chain(layer: Callable[..., Any], depth: int) -> Callable[..., Any]:
        def unrolled(x: Any, w: Any) -> Any:
            for _ in range(depth):
                x = layer(*x, w)
            return x

        return unrolled

    def mine(f: Callable[..., Any]) -> float:
        program = fx.trace(fx.grad(loss(f, fnp), (0, 1)), (a, b), w)
        return round(fx.lower(program).compile().memory().temp_bytes / a.nbytes, 1)

    def theirs(f: Callable[..., Any]) -> float:
        run = jax.jit(jax.grad(loss(f, jnp), (0, 1))).lower((a, b), w).compile()
        return round(float(run.memory_analysis().temp_size_in_bytes) / a.nbytes, 1)

    rows: dict[str, dict[str, list[float]]] = {}
    for name, layer in LAYERS.items():
        ours_too, peer = partial(layer, fnp), partial(layer, jnp)
        stored = depths[:2] if layer in SLOW else depths
        rows[name] = {
            "invertible": [mine(fx.invertible(chain(ours_too, d), keep="w")) for d in depths],
            "plain": [mine(chain(ours_too, d)) for d in stored],
            "jax": [theirs(chain(peer, d)) for d in stored],
            "jax.checkpoint": [theirs(chain(jax.checkpoint(peer), d)) for d in stored],
        }
    return {"layers": depths, "arrays": rows}


CURVES: Final[dict[str, Callable[[], dict[str, Any]]]] = {"loops": loops, "depths": depths, "couplings": couplings}

# --------------------------------------------------------------------------------------------------------------- parts


def parts(argv: Sequence[str] | None) -> tuple[list[str], float]:
    """Returns the parts to measure, with the seconds for each network."""
    everything = [*[make.__name__ for make in NETWORKS], *CURVES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(everything)}; all by default")
    parser.add_argument("--bytes", action="store_true", help="leave times as they are")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the times of each network")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.parts if name not in everything]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(everything)}")
    return args.parts or everything, 0.0 if args.bytes else args.seconds


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and writes after each part."""
    chosen, seconds = parts(argv)
    makers = {make.__name__: make for make in NETWORKS}
    for name in track(chosen, "measuring"):
        when = taken()
        if name in CURVES:
            new = {**read(DOCS), name: {"taken": when, **CURVES[name]()}}
        else:
            found = measure(makers[name](), seconds)
            new = replaced(read(DOCS), {**found, "taken": dict.fromkeys(("bytes", "time")[: 1 + bool(seconds)], when)})
        write(DOCS, new)


if __name__ == "__main__":
    main()
