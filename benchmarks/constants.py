"""Measures the constants of `fxad.support.constants` on this machine, and prints each beside its value in that file.

    python -m benchmarks.constants

Run time is wall-clock time, the best of several turns. Compile time is processor time; a slope between two sizes of a
program removes constant parts. Bytes are reproducible. Thresholds are not measured directly: `benchmarks.ablation` and
`make bench` show the effect of another value on programs.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import mlp, residual, transformer
from fxad import lax, nn, random
from fxad.runtime import compile_jaxpr
from fxad.support import constants
from fxad.xla.disk_tier import serialized

TURNS: Final = 5
N: Final = 64


def run_microseconds(f: Callable[..., Any], *args: Any) -> float:
    """Returns the best time of a run in microseconds."""
    run = fx.jit(f)
    given = [fx.asarray(a) for a in args]
    run(*given).block_until_ready()
    best = np.inf
    for _ in range(20):
        start = time.perf_counter()
        run(*given).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best


def compile_ms(f: Callable[..., Any], *specs: Any) -> float:
    """Returns the least processor time to compile a program as a whole."""
    best = np.inf
    for _ in range(TURNS):
        fx.cache.clear()
        lowered = fx.lower(fx.trace(f, *specs), units="none")
        start = time.process_time()
        lowered.compile()
        best = min(best, time.process_time() - start)
    return 1e3 * best


def slope(f: Callable[[int], float], few: int, many: int) -> float:
    """Returns the cost of one more."""
    return (f(many) - f(few)) / (many - few)


def chain(g: Callable[[Any], Any]) -> Callable[[int], float]:
    """Returns the time to compile a chain of elementwise functions of one array: one kernel."""

    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = g(x)
        return x

    return lambda n: compile_ms(lambda x: f(x, n), fx.Spec((4096,)))


def layers(widths: Callable[[int], int], g: Callable[[Any], Any]) -> Callable[[int], float]:
    """Returns the time to compile products, each followed by a function. `widths` gives the width after layer k."""

    def f(x: Any, ws: Sequence[Any]) -> Any:
        for w in ws:
            x = g(x @ w)
        return x

    def ms(n: int) -> float:
        sizes = [widths(k) for k in range(n + 1)]
        return compile_ms(f, fx.Spec((N, sizes[0])), [fx.Spec((a, b)) for a, b in pairwise(sizes)])

    return ms


def executable_bytes() -> tuple[float, float]:
    """Returns the bytes of an executable: a constant, and for each character of its StableHLO. Resident memory is 64
    KiB and about three times the serialized bytes, which are reproducible."""

    def sizes(f: Callable[..., Any], *args: Any) -> tuple[int, int]:
        program = fx.trace(f, *args)
        module = fx.lower(program).module
        return 3 * len(serialized(compile_jaxpr(program.jaxpr))), len(module.body) + len(module.locations)

    def gradient(model: Model) -> tuple[int, int]:
        def loss(params: Any, x: Any, y: Any) -> Any:
            return model.loss(OURS, params, x, y)

        return sizes(fx.value_and_grad(loss), *[fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)])

    totals = [gradient(model) for model in (mlp(), residual())]
    per_character = sum([size for size, _ in totals]) / sum([text for _, text in totals])
    size, text = sizes(lambda x: x + 1.0, fx.Spec((4,)))
    return 64 * 2**10 + size - per_character * text, per_character


def planned_equation_bytes() -> float:
    """Returns the bytes of Python objects for each equation of a gradient, with its memo: the outlined program and the
    plan."""
    model = transformer()
    args = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]

    def loss(params: Any, x: Any, y: Any) -> Any:
        return model.loss(OURS, params, x, y)

    tracemalloc.start()
    program = fx.value_and_grad(fx.trace(loss, *args))
    fx.lower(program).units.table()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / len(program.jaxpr.eqns)


EXPANDED: Final[dict[str, Callable[[Any], Any]]] = {
    "Lgamma": lax.lgamma,
    "Digamma": lax.digamma,
    "Erfc": lax.erfc,
    "ErfInv": lax.erf_inv,
    "BesselI0e": lax.bessel_i0e,
    "BesselI1e": lax.bessel_i1e,
    "Polygamma": lambda x: lax.polygamma(fnp.ones_like(x), x),
    "Zeta": lambda x: lax.zeta(x + 2.0, x),
    "Threefry2x32": lambda x: x + random.uniform(random.key(0), x.shape),
    "Incomplete": lambda x: lax.igamma(x, x),
    "RegularizedIncompleteBeta": lambda x: lax.betainc(x, x, x),
    "SortLike": lax.sort,
    "TopK": lambda x: lax.top_k(x, 5)[0],
    "Cumulative": lax.cumsum,
    "ScatterFamily": lambda x: x.at[fnp.arange(9)].add(1.0),
    "Softmax": nn.softmax,
    "LogSoftmax": nn.log_softmax,
}


def rows() -> list[tuple[str, float, float]]:
    """Returns name, measured value, and value in the file."""
    a = np.ones((512, 512), np.float32)
    x = np.ones(1 << 22, np.float32)
    empty = compile_ms(lambda x: x + 1.0, fx.Spec((4,))) - constants.KERNEL_MS
    library = slope(layers(lambda k: 16 * (k + 1), lambda x: x), 2, 12)
    kernel = slope(layers(lambda k: 16 * (k + 1), fnp.tanh), 2, 12) - library
    measured = {
        "FLOPS_PER_MICROSECOND": 2 * 512**3 / run_microseconds(lambda a: a @ a, a),
        "BYTES_PER_MICROSECOND": x.nbytes / run_microseconds(lambda x: x + 1.0, x),
        "PROGRAM_MS": max(empty, 0.0),
        "EQUATION_MS": slope(layers(lambda _: N, fnp.tanh), 10, 60) / 2,
        "KERNEL_MS": kernel,
        "LIBRARY_MS": library,
        "OPERATION_MS": slope(chain(lambda x: x * 1.5 + 2.0), 10, 60) / 2,
        "FUNCTION_MS": slope(chain(fnp.tanh), 4, 24),
    }
    measured["EXECUTABLE_BYTES"], measured["CHARACTER_BYTES"] = executable_bytes()
    measured["PLANNED_EQUATION_BYTES"] = planned_equation_bytes()
    out = [(name, value, float(getattr(constants, name))) for name, value in measured.items()]
    for name, g in EXPANDED.items():
        ms = compile_ms(g, fx.Spec((4096,))) - measured["PROGRAM_MS"] - kernel
        out.append((f"EXPANDED_MS[{name}]", max(ms, 0.0), constants.EXPANDED_MS[name]))
    return out


if __name__ == "__main__":
    for name, value, in_file in rows():
        sys.stdout.write(f"{name:<42} {value:>12,.2f} {in_file:>12,.2f}\n")
        sys.stdout.flush()
