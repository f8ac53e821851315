"""Measures what a mechanism gains: a program with the mechanism, and with it switched off.

    python -m benchmarks.ablation                          all mechanisms, each on its programs
    python -m benchmarks.ablation recompute merge_bodies   some mechanisms
    python -m benchmarks.ablation --turns 5 recompute      more pairs of processes

Each measurement is a process of its own, which compiles the program with an empty cache and runs it. The two processes
take turns, and the rows have medians. Equations, units and bytes are counts, the same in every run. Times are those of
the processor: they hold on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import Any, Final

import numpy as np

import fxad as fx
import fxad.numpy as fnp
import fxad.passes
import fxad.units.plan
from benchmarks.models.adbench import bundle, lstm, mixture
from benchmarks.models.blocks import (
    Network,
    Way,
    mlp as mlp_blocks,
    recurrent,
    reversible,
    transformer as transformer_blocks,
)
from benchmarks.models.dynamics import bodies
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import mlp, residual, rnn, transformer, transformer_block
from fxad import nn
from fxad.api import lift
from fxad.primitives import dot
from fxad.primitives.control import loop_derivatives
from fxad.transforms.inversion import derivatives_from_results, invertible as inversion, solver
from fxad.transforms.inversion.rules import products
from fxad.transforms.outlining import incomplete_match, outline, shared_body

STEPS: Final = 15

# A function or program to lower and compile, and its arguments.
Runnable = tuple[Callable[..., Any], list[Any]]

# ------------------------------------------------------------------------------------------------------------ programs


def _gradient(make: Callable[[], Model], *, traced: bool = False) -> Runnable:
    """Returns the gradient of a model, as a function or of its program."""
    model = make()
    args = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]

    def loss(params: Any, x: Any, y: Any) -> Any:
        return model.loss(OURS, params, x, y)

    if traced:
        return fx.value_and_grad(fx.trace(loss, *args)), args
    return fx.jit(fx.value_and_grad(loss), units="auto"), args


def _network(make: Callable[[], Network], way: Way) -> Runnable:
    """The gradient of a network, whose blocks are differentiated as `way` says."""
    network = make()
    args = [fx.tree.map(fx.asarray, a) for a in (network.layers, network.start, network.xs)]
    return fx.jit(fx.value_and_grad(lambda *xs: network.loss(OURS, way, *xs)), units="auto"), args


def _chain(f: Any) -> Any:
    return fx.invertible(f, keep="layers")


def _block(f: Any) -> Any:
    return fx.invertible(f, keep="params")


def _training() -> Runnable:
    """A step that donates its parameters: the gradients of 12 layers, then the updates with momentum."""
    model = transformer()
    params, x, y = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]

    def step(state: Any, x: Any, y: Any) -> Any:
        params, momentum = state
        grads = fx.grad(lambda p: model.loss(OURS, p, x, y))(params)
        momentum = fx.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return fx.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum

    return fx.jit(step, units="auto", donate="state"), [(params, fx.tree.map(fnp.zeros_like, params)), x, y]


def _masked() -> Runnable:
    """The gradient of couplings by masks, reconstructed."""
    mask = fx.asarray((np.arange(256) % 2).astype(np.float32))

    def layers(x: Any, ws: Any) -> Any:
        for k, w in enumerate(ws):
            m = mask if k % 2 else 1 - mask
            h = fnp.tanh((m * x) @ w)
            x = m * x + (1 - m) * (x * fnp.exp(0.1 * h) + h)
        return x

    run = fx.invertible(layers, keep="ws")
    ws = [fx.asarray(np.full((256, 256), 0.01, np.float32))] * 16
    return fx.jit(fx.value_and_grad(lambda x, ws: fnp.sum(run(x, ws) ** 2))), [fx.asarray(np.ones((512, 256), "f")), ws]


def _coupled() -> Runnable:
    """The gradient of couplings without products, reconstructed. XLA fuses all of their layers."""

    def layers(a: Any, b: Any) -> Any:
        for _ in range(16):
            a = a + fnp.tanh(b)
            b = b + fnp.sin(a)
        return a, b

    run = fx.invertible(layers)

    def loss(a: Any, b: Any) -> Any:
        return fnp.sum(fnp.multiply(*run(a, b)))

    x = fx.asarray(np.full((128, 128), 0.1, np.float32))
    return fx.jit(fx.grad(loss, argnums=(0, 1))), [x, x]


def _rotary() -> Runnable:
    """The gradient of four layers of attention with rotary positions, whose angles are an argument."""
    length, width = 256, 64
    rng = np.random.default_rng(0)
    layers = [[fnp.asarray(rng.normal(size=(width, width)).astype("f") / 8) for _ in range(3)] for _ in range(4)]
    x = fnp.asarray(rng.normal(size=(length, width)).astype("f"))
    angles = fnp.asarray(np.outer(np.arange(length), 10_000.0 ** (-np.arange(width // 2) / (width // 2))).astype("f"))

    def turned(v: Any, angles: Any) -> Any:
        a, b = v[:, : width // 2], v[:, width // 2 :]
        sine, cosine = fnp.sin(angles), fnp.cos(angles)
        return fnp.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=1)

    def loss(layers: Any, x: Any, angles: Any) -> Any:
        for q, k, v in layers:
            scores = turned(x @ q, angles) @ turned(x @ k, angles).T
            x = x + nn.softmax(scores / width**0.5, axis=-1) @ (x @ v)
        return fnp.mean(x * x)

    return fx.jit(fx.grad(loss)), [layers, x, angles]


def _triangular() -> Runnable:
    """Products with triangular matrices, inverted, with the log-determinant."""

    def layers(x: Any, ws: Any) -> Any:
        for w in ws:
            x = x @ (fnp.tril(w) + 2.0 * fnp.eye(256, dtype="float32"))
            x = x @ (fnp.triu(w) + 2.0 * fnp.eye(256, dtype="float32"))
        return x

    back = fx.inverse(layers, argnums=0, log_det=True)
    ws = [fx.asarray(np.random.default_rng(k).normal(size=(256, 256)).astype(np.float32) / 16) for k in range(4)]
    return fx.jit(back), [fx.asarray(np.ones((256,), np.float32)), ws]


def _two_kinds() -> Runnable:
    """The gradient of a program: 4 layers of attention, 4 gated ones, and 4 of attention again."""

    def norm(x: Any, scale: Any) -> Any:
        mean = fnp.mean(x, axis=-1, keepdims=True)
        return (x - mean) / fnp.sqrt(fnp.mean((x - mean) ** 2, axis=-1, keepdims=True) + 1e-5) * scale

    def attention(w: Any, x: Any) -> Any:
        y = norm(x, w["scale"])
        q, k, v = [y @ w[n] for n in "qkv"]
        x = x + nn.softmax(q @ k.T / 16.0, axis=-1) @ v
        return x + fx.nn.gelu(norm(x, w["scale"]) @ w["up"]) @ w["down"]

    def gated(w: Any, x: Any) -> Any:
        return x + fnp.tanh(norm(x, w["scale"]) @ w["q"]) * fx.nn.sigmoid(x @ w["k"])

    def loss(ws: Any, x: Any) -> Any:
        for k, w in enumerate(ws):
            x = gated(w, x) if 4 <= k < 8 else attention(w, x)
        return fnp.mean(x**2)

    square, x = fx.asarray(np.full((256, 256), 0.01, np.float32)), fx.asarray(np.ones((128, 256), np.float32))
    w = {"up": fnp.tile(square, (1, 4)), "down": fnp.tile(square, (4, 1)), "scale": fnp.ones(256, np.float32)}
    w |= dict.fromkeys("qkv", square)
    return fx.value_and_grad(fx.trace(loss, [w] * 12, x)), [[w] * 12, x]


PROGRAMS: Final[Mapping[str, Callable[[], Runnable]]] = MappingProxyType(
    {
        "transformer": partial(_gradient, transformer),
        "transformer, traced": partial(_gradient, transformer, traced=True),
        "mlp": partial(_gradient, mlp),
        "rnn": partial(_gradient, rnn),
        "conv": partial(_gradient, residual),
        "mixture": partial(_gradient, mixture),
        "bundle": partial(_gradient, bundle),
        "block": partial(_gradient, transformer_block),
        "lstm": partial(_gradient, lstm),
        "bodies": partial(_gradient, bodies),
        "gru": partial(_network, recurrent, Way()),
        "remat": partial(_network, mlp_blocks, Way(block=fx.remat)),
        "attention": partial(_network, transformer_blocks, Way()),
        "revnet": partial(_network, reversible, Way(chain=_chain)),
        "revnet, by block": partial(_network, reversible, Way(block=_block)),
        "training": _training,
        "masks": _masked,
        "couplings": _coupled,
        "triangular": _triangular,
        "rotary": _rotary,
        "two kinds": _two_kinds,
    }
)

# ---------------------------------------------------------------------------------------------------------- mechanisms


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way to switch a mechanism off, and the programs that it is for."""

    off: Callable[[], None]
    programs: tuple[str, ...]


def _replace(module: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(module, name, value)


def _without_pass(name: str) -> None:
    for stage in ("BEFORE_DIFFERENTIATION", "BEFORE_COMPILATION"):
        kept = tuple([p for p in getattr(fxad.passes, stage) if p.name != name])
        _replace(fxad.passes, **{stage: kept})
    _replace(lift, BEFORE_DIFFERENTIATION=fxad.passes.BEFORE_DIFFERENTIATION)


def _no_merge_bodies() -> None:
    _without_pass("merge_bodies")
    _replace(outline, merge_bodies=lambda jaxpr, *_: jaxpr)


def _no_kernel_model() -> None:
    _replace(fxad.passes, saves_compile_time=lambda *_: True)
    _replace(fxad.units.cost_rule, takes_at_least=lambda *_: True)


def _no_parametrise() -> None:
    _replace(shared_body, DYNAMIC_FORMS={})
    _replace(incomplete_match, DYNAMIC_FORMS={})


def _no_known_matrices() -> None:
    _replace(products, triangles_of=lambda *_: frozenset[str]())


def _no_checks() -> None:
    _replace(derivatives_from_results, compared=lambda _: False)


def _no_stored_values() -> None:
    _replace(sys.modules["fxad.lower"], stored_values=lambda _: frozenset())  # `fxad.lower` is the function


def _no_segments() -> None:
    for module in (inversion, derivatives_from_results):
        _replace(module, in_segments=lambda jaxpr, *_: jaxpr)


UNITS: Final = ("transformer", "rnn", "conv", "attention")
MECHANISMS: Final[Mapping[str, Mechanism]] = MappingProxyType(
    {
        "approximate_match": Mechanism(
            lambda: _replace(outline._RepeatSearch, incomplete_uses=lambda _, found: [[] for _ in found]),
            ("transformer, traced", *UNITS),
        ),
        "merge_bodies": Mechanism(_no_merge_bodies, UNITS),
        "outline_before_ad": Mechanism(lambda: _without_pass("outline_before_ad"), UNITS),
        "parametrise": Mechanism(_no_parametrise, ("rnn",)),
        "grouping": Mechanism(lambda: _replace(fxad.passes, GROUP_MICROSECONDS=0.0), ("rnn",)),
        "equal_places": Mechanism(
            lambda: _replace(outline._RepeatSearch, _with_equal_places=lambda _, starts, *__: starts), ("two kinds",)
        ),
        "phase": Mechanism(lambda: _replace(outline._RepeatSearch, _phase=lambda *_: 0), ("transformer, traced",)),
        "recompute": Mechanism(lambda: _replace(fxad.units.plan, _with_recompute=lambda _, plan: plan), UNITS),
        "kernel_model": Mechanism(_no_kernel_model, ("mlp", "mixture")),
        "units": Mechanism(lambda: _replace(fxad.passes, large_enough=lambda *_: False), UNITS),
        "scan_residuals": Mechanism(
            lambda: _replace(loop_derivatives, drop_cheap_residuals=lambda split, *_: split), ("lstm", "bodies", "gru")
        ),
        "masks": Mechanism(lambda: _replace(solver, sums_as_choices=lambda *_: None), ("masks",)),
        "known_matrices": Mechanism(_no_known_matrices, ("triangular",)),
        "merge_invertible": Mechanism(lambda: _without_pass("merge_invertible"), ("revnet, by block",)),
        "segments": Mechanism(_no_segments, ("couplings", "revnet")),
        "matrices": Mechanism(lambda: _replace(dot.Matrices, of=lambda *_: None), ("block", "mixture")),
        "reconstruction_check": Mechanism(_no_checks, ("revnet",)),
        "stored_values": Mechanism(_no_stored_values, ("rotary",)),
    }
)

# Programs that import a module, with the mechanism and without it.
STANDARD: Final = """
import sys, types, dataclasses
def standard(**options):
    def declare(cls):
        frozen = all([b.__dataclass_params__.frozen for b in cls.__mro__[1:] if "__dataclass_params__" in vars(b)])
        return dataclasses.dataclass(**{**options, "frozen": options.get("frozen", False) and frozen})(cls)
    return declare
module = types.ModuleType("fxad.core.dataclasses")
module.dataclass = standard
sys.modules["fxad.core.dataclasses"] = module
import fxad
"""
EVERYTHING: Final = """
import fxad, fxad.numpy, fxad.transforms
for m in (fxad, fxad.transforms, fxad.numpy, fxad.lax, fxad.random, fxad.nn):
    [getattr(m, name) for name in dir(m)]
"""
IMPORTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"dataclasses": ("import fxad", STANDARD), "lazy_exports": ("import fxad, fxad.numpy", EVERYTHING)}
)

# --------------------------------------------------------------------------------------------------------- measurement


def measured(runnable: Runnable) -> dict[str, float]:
    """Returns counts, and milliseconds of processor time for the first result and for a step."""
    f, args = runnable

    def step(args: list[Any]) -> float:
        start = time.process_time()
        for a in fx.tree.leaves(compiled(*args)):
            a.block_until_ready()
        return 1e3 * (time.process_time() - start)

    def fresh() -> list[Any]:  # new arguments, because a step may donate them
        return [fx.tree.map(lambda a: fx.asarray(np.array(a)), a) for a in args]

    start = time.process_time()
    lowered: Any = fx.lower(f) if isinstance(f, fx.Program) else f.lower(*args)  # type: ignore[attr-defined]
    compiled = lowered.compile()
    first = 1e3 * (time.process_time() - start)
    counts = {
        "equations": lowered.units.equations,
        "units": len(lowered.units.units),
        "temp": compiled.memory().temp_bytes,
        "peak": lowered.units.peak_bytes,
    }
    return {**counts, "compile": first, "step": float(np.median([step(fresh()) for _ in range(STEPS)]))}


def _process(program: str, off: str) -> dict[str, float] | None:
    command = [sys.executable, "-m", "benchmarks.ablation", "--one", program, "--off", off]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr[-300:])
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(name: str, program: str, turns: int) -> str:
    """Returns a row: figures with the mechanism and without it."""
    pairs = [(_process(program, ""), _process(program, name)) for _ in range(turns)]
    cells = [f"{name} | {program}"]
    with_it = [on for on, _ in pairs if on]
    without = [off for _, off in pairs if off]
    if not without:
        return f"{cells[0]} | fails without it"
    for key in with_it[0]:
        on, off = median([r[key] for r in with_it]), median([r[key] for r in without])
        cells.append(f"{key} {on:,.0f} -> {off:,.0f}" + (f" ({on / off:.2f})" if off and on != off else ""))
    return " | ".join(cells)


def compare_import(name: str, turns: int) -> str:
    """Returns a row: milliseconds of processor time of an import."""

    def took(code: str) -> float:
        timed = f"import time\n{code}\nprint(1e3 * time.process_time())"
        out = subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True).stdout
        return float(out)

    pairs = [[took(code) for code in IMPORTS[name]] for _ in range(3 * turns)]
    on, off = [median(column) for column in zip(*pairs, strict=True)]
    return f"{name} | import | {on:,.0f} -> {off:,.0f} ms"


def main() -> None:
    """Measures the mechanisms that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mechanisms", nargs="*", metavar="MECHANISM", help=", ".join([*MECHANISMS, *IMPORTS]))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--off", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        if args.off:
            MECHANISMS[args.off].off()
        sys.stdout.write(json.dumps(measured(PROGRAMS[args.one]())) + "\n")
        return
    for name in args.mechanisms or [*MECHANISMS, *IMPORTS]:
        rows = [compare_import(name, args.turns)] if name in IMPORTS else None
        for program in () if rows else MECHANISMS[name].programs:
            sys.stdout.write(compare(name, program, args.turns) + "\n")
            sys.stdout.flush()
        sys.stdout.write("".join([row + "\n" for row in rows or ()]))


if __name__ == "__main__":
    main()
