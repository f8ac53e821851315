"""Units: time to the first gradient, time of a step, and the cost of linking.

`python -m benchmarks.bench_units [PART ...]`, parts as in `rows`. 2 to 5 minutes on two quiet cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.bench_models import agree, best_of
from benchmarks.harness import Row, race, show
from benchmarks.models.adbench import bundle, mixture
from benchmarks.models.dynamics import bodies
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import residual, rnn, transformer, transformer_block
from benchmarks.models.theirs import THEIRS
from fxad.ir import Jaxpr


def ours_of(model: Model) -> tuple[Any, list[Any]]:
    """Returns a new function of fxad for the gradient, which is neither traced nor compiled, and its arguments."""
    given = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]
    return fx.jit(fx.value_and_grad(lambda p, x, y: model.loss(OURS, p, x, y)), units="auto"), given


def theirs_of(model: Model) -> tuple[Any, list[Any]]:
    """The same for jax."""
    given = [jax.tree.map(jnp.asarray, a) for a in (model.params, model.x, model.y)]
    return jax.jit(jax.value_and_grad(lambda p, x, y: model.loss(THEIRS, p, x, y))), given


def waited(result: Any) -> Any:
    """Waits for fxad's result."""
    for a in fx.tree.leaves(result):
        a.block_until_ready()
    return result


def first(call: Callable[[], object]) -> float:
    """Returns the milliseconds of processor time of a call, which is measured once because it is the first. Compilers
    of both libraries use all cores, and processor time holds on a shared machine."""
    start = time.process_time()
    call()
    return 1e3 * (time.process_time() - start)


def ours_first(model: Model) -> tuple[float, Any, list[Any]]:
    """Returns the time to fxad's first gradient with an empty cache, the function, and its arguments."""
    fx.cache.clear()
    f, given = ours_of(model)
    return first(lambda: waited(f(*given))), f, given


def theirs_first(model: Model) -> tuple[float, Any, list[Any]]:
    """Time to jax's first gradient."""
    jax.clear_caches()
    f, given = theirs_of(model)
    return first(lambda: jax.block_until_ready(f(*given))), f, given


def measure(make: Callable[[], Model], budget: float, *, rounds: int = 3, seconds: float = 4.0) -> list[Row]:
    """Measures the time to the first gradient (best of rounds, in turn) and of a step, and checks that the results
    agree."""
    model = make()
    ours_ms, f, ours_in = ours_first(model)
    jax_ms, g, jax_in = theirs_first(model)
    for _ in range(rounds - 1):
        ours_ms, jax_ms = min(ours_ms, ours_first(model)[0]), min(jax_ms, theirs_first(model)[0])
    agree(f(*ours_in), g(*jax_in))
    steps = best_of(lambda: waited(f(*ours_in)), lambda: jax.block_until_ready(g(*jax_in)), seconds)
    return [
        Row(f"first gradient: {model.name}", ours_ms, jax_ms, budget, unit="ms"),
        Row(f"step: {model.name}", steps[0], steps[1], 1.0, unit="ms"),
    ]


def until_ready(model: Model) -> list[float]:
    """Returns milliseconds of processor time until the gradient could run (traced, transformed, lowered, compiled), and
    until the first gradient is there. For a process that has compiled nothing before."""
    touch_pages(1 << 29)
    f, given = ours_of(model)
    start = time.process_time()
    compiled = f.lower(*given).compile()
    ready = time.process_time() - start
    waited(compiled(*given))
    return [1e3 * ready, 1e3 * (time.process_time() - start)]


def touch_pages(nbytes: int) -> None:
    """Touches and frees memory. On a virtual machine the first touch of a page since the start takes the host about 10
    us, which is 1 s for the gradients of 96 layers."""
    np.ones(nbytes, np.uint8)


FRESH: Final = (
    "import json; from benchmarks.bench_units import until_ready, transformer;"
    " print(json.dumps(until_ready(transformer({layers}, **{size}))))"
)


def depth(deep: int = 48, shallow: int = 12, turns: int = 3) -> list[Row]:
    """Many layers beside few, each in a process of its own, in turn, the best of each. Both columns are fxad's.

    The first gradient is linear in depth: even on one short sequence it reads the weights of all layers and writes
    their gradients. On a short sequence the rest is the compiler's time; on a long one the run takes most of the time.
    """
    out = []
    sizes: dict[str, tuple[dict[str, int], float | None]] = {
        "a sequence of 8": ({"length": 8, "batch": 1}, 1.5),
        "4 sequences of 128": ({}, None),
    }
    for name, (size, budget) in sizes.items():
        times = [[_fresh(layers, size) for layers in (deep, shallow)] for _ in range(turns)]
        what = f"transformer, {deep} layers beside {shallow}, {name}"
        for k, (row, limit) in enumerate((("until it runs", 1.5), ("first gradient", budget))):
            most, least = [min([turn[at][k] for turn in times]) for at in range(2)]
            out.append(Row(f"{row}: {what}", most, least, limit, unit="ms"))
    return out


def _fresh(layers: int, size: dict[str, int]) -> list[float]:
    command = [sys.executable, "-c", FRESH.format(layers=layers, size=size)]
    times: list[float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return times


@fx.jit
def small(x: Any) -> Any:
    """A small unit."""
    return fnp.sin(x) + 1.0


def linking(calls: int = 100) -> list[Row]:
    """The cost of each unit in a linked run of many small units: beside jax calling a compiled function as often; and
    beside jaxlib's own part, the calls of the executable and the handlers of their results in a bare loop."""

    def chain(x: Any) -> Any:
        for _ in range(calls):
            x = small(x)
        return x

    def every(_: Jaxpr) -> bool:
        return True

    x, y = fx.asarray(np.ones(4, np.float32)), jnp.ones(4)
    linked = fx.lower(fx.trace(chain, x), units=every).compile()
    loaded: Any = linked._loaded
    (unit,) = loaded.executables
    theirs = jax.jit(lambda x: jnp.sin(x) + 1.0)

    def in_turn() -> Any:
        out = y
        for _ in range(calls):
            out = theirs(out)
        return out

    def bare() -> Any:
        out = [x._buffer]
        for _ in range(calls):
            out = unit.start(out).consume_with_handlers(unit.handlers)
        return out[0]

    ours_us, jax_us, least_us = race(
        lambda: linked(x).block_until_ready(),
        lambda: in_turn().block_until_ready(),
        lambda: bare().block_until_ready(),
        per=calls,
    )
    return [
        Row("a unit of a linked run", ours_us, jax_us, at_most=8.0),
        Row("a unit of a linked run beside the calls of jaxlib alone", ours_us, least_us),
    ]


def rows(names: tuple[str, ...] = ()) -> list[Row]:
    """All measurements, or those named."""
    parts: dict[str, Callable[[], list[Row]]] = {
        "linking": linking,
        "transformer": lambda: measure(transformer, 0.25),
        "rnn": lambda: measure(rnn, 0.2),
        "block": lambda: measure(transformer_block, 0.7, seconds=2.0),
        "mixture": lambda: measure(mixture, 0.7, seconds=2.0),
        "bundle": lambda: measure(bundle, 0.7, seconds=2.0),
        "bodies": lambda: measure(bodies, 0.7, seconds=2.0),
        "residual": lambda: measure(residual, 0.7, seconds=2.0),
        "depth": depth,
    }
    return [row for name, part in parts.items() if not names or name in names for row in part()]


if __name__ == "__main__":
    show("What is compiled, and how often", rows(tuple(sys.argv[1:])))
