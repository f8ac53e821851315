"""Measures the constants of `fxad.core.constants` on this machine, and prints each beside its value there.

    python -m benchmarks.constants

Run time is wall-clock time, the best of some turns. Compile time is processor time; slopes between two sizes of a
program leave out what does not grow. Thresholds are not measured directly: `benchmarks.ablation` and `make bench` show
what a program gains or loses with another value.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, random
from fxad.core import constants

TURNS: Final = 5
N: Final = 64


def run_microseconds(f: Callable[..., Any], *args: Any) -> float:
    """The best time of a run."""
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
    """The least processor time to compile a program as a whole."""
    best = np.inf
    for _ in range(TURNS):
        fx.cache.clear()
        lowered = fx.lower(fx.trace(f, *specs), units="none")
        start = time.process_time()
        lowered.compile()
        best = min(best, time.process_time() - start)
    return 1e3 * best


def slope(f: Callable[[int], float], few: int, many: int) -> float:
    """What one more costs."""
    return (f(many) - f(few)) / (many - few)


def chain(g: Callable[[Any], Any]) -> Callable[[int], float]:
    """Compile time of a chain of elementwise functions of one array: one kernel."""

    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = g(x)
        return x

    return lambda n: compile_ms(lambda x: f(x, n), fx.Spec((4096,)))


def layers(widths: Callable[[int], int], g: Callable[[Any], Any]) -> Callable[[int], float]:
    """Compile time of products, each followed by a function; `widths` gives the width behind layer k."""

    def f(x: Any, ws: Sequence[Any]) -> Any:
        for w in ws:
            x = g(x @ w)
        return x

    def ms(n: int) -> float:
        sizes = [widths(k) for k in range(n + 1)]
        return compile_ms(f, fx.Spec((N, sizes[0])), [fx.Spec((a, b)) for a, b in pairwise(sizes)])

    return ms


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
    "Sort": lax.sort,
    "TopK": lambda x: lax.top_k(x, 5)[0],
    "Cumulative": lax.cumsum,
    "ScatterFamily": lambda x: x.at[fnp.arange(9)].add(1.0),
    "Softmax": nn.softmax,
}


def rows() -> list[tuple[str, float, float]]:
    """Name, measured value, value in the file."""
    a = np.ones((512, 512), np.float32)
    x = np.ones(1 << 22, np.float32)
    empty = compile_ms(lambda x: x + 1.0, fx.Spec((4,))) - constants.KERNEL_MS
    library = slope(layers(lambda k: 16 * (k + 1), lambda x: x), 2, 12)
    kernel = slope(layers(lambda k: 16 * (k + 1), fnp.tanh), 2, 12) - library
    found = {
        "FLOPS_PER_MICROSECOND": 2 * 512**3 / run_microseconds(lambda a: a @ a, a),
        "BYTES_PER_MICROSECOND": x.nbytes / run_microseconds(lambda x: x + 1.0, x),
        "PROGRAM_MS": max(empty, 0.0),
        "EQUATION_MS": slope(layers(lambda _: N, fnp.tanh), 10, 60) / 2,
        "KERNEL_MS": kernel,
        "LIBRARY_MS": library,
        "OPERATION_MS": slope(chain(lambda x: x * 1.5 + 2.0), 10, 60) / 2,
        "FUNCTION_MS": slope(chain(fnp.tanh), 4, 24),
    }
    out = [(name, value, float(getattr(constants, name))) for name, value in found.items()]
    for name, g in EXPANDED.items():
        ms = compile_ms(g, fx.Spec((4096,))) - found["PROGRAM_MS"] - kernel
        out.append((f"EXPANDED_MS[{name}]", max(ms, 0.0), constants.EXPANDED_MS[name]))
    return out


if __name__ == "__main__":
    for name, measured, there in rows():
        sys.stdout.write(f"{name:<42} {measured:>12,.2f} {there:>12,.2f}\n")
        sys.stdout.flush()
