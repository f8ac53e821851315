"""Tracing and transforming, per equation of the function. `python -m benchmarks.bench_trace`.

fxad stores results on the program that it transforms, so each round starts from a program without memo and drops the
results. jax stores them by function object, so each round makes a new function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.lax
import fxad.numpy as fnp
from benchmarks.harness import Contest, Row, compare_once, show
from fxad import transforms
from fxad.transforms.vmap import vmap as vmap_jaxpr

N = 4000
X = fx.Spec((4,), "float32")
Z = jnp.ones(4, np.float32)

Step = Callable[[Any, Any], Any]


def chain(step: Step, times: int) -> Callable[[Any, Any], Any]:
    """Returns a new function that repeats `step`."""

    def f(x: Any, y: Any) -> Any:
        for _ in range(times):
            x = step(x, y)
        return x

    return f


def total(step: Step, times: int, add_up: Step) -> Callable[[Any, Any], Any]:
    """Returns `chain`, summed to a scalar."""
    f = chain(step, times)
    return lambda x, y: add_up(f(x, y), y)


def ours(x: Any, y: Any) -> Any:
    return fnp.sin(x) * y


def theirs(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


def fnp_sum(x: Any, _: Any) -> Any:
    return fnp.sum(x)


def jnp_sum(x: Any, _: Any) -> Any:
    return jnp.sum(x)


def tracing(name: str, ours: Step, theirs: Step, equations: int) -> Row:
    """A chain of `N` equations, in steps of `equations`."""

    def mine() -> Contest:
        return lambda: fx.trace(chain(ours, N // equations), X, X)

    def peer() -> Contest:
        return lambda: jax.make_jaxpr(chain(theirs, N // equations))(Z, Z)

    return compare_once(f"trace: {name}, per equation", mine, peer, per=N, budget=0.25)


def long_tracing() -> Row:
    """The time for an equation must not grow with the program. Both columns are fxad's."""

    def of(n: int) -> Callable[[], Contest]:
        return lambda: lambda: fx.trace(chain(fxad.lax.add, n), X, X)

    row = compare_once("trace: 100,000 equations beside 1,000", of(100_000), of(1000), per=100_000, per_peer=1000)
    return Row(row.name, row.ours, row.jax, 1.3)


def value_and_grad() -> list[Row]:
    """Reverse mode of sin(x) * y, summed: of the function, and of the traced program."""
    n = 500

    def mine() -> Contest:
        return lambda: fx.value_and_grad(fx.trace(total(ours, n, fnp_sum), X, X))

    def peer() -> Contest:
        return lambda: jax.make_jaxpr(jax.value_and_grad(total(theirs, n, jnp_sum)))(Z, Z)

    def mine_traced() -> Contest:
        jaxpr = fx.trace(total(ours, n, fnp_sum), X, X).jaxpr
        return lambda: transforms.value_and_grad(jaxpr, (True, False))

    def peer_traced() -> Contest:
        closed = jax.make_jaxpr(total(theirs, n, jnp_sum))(Z, Z)

        def run(x: Any, y: Any) -> Any:
            return jax.extend.core.jaxpr_as_fun(closed)(x, y)[0]

        return lambda: jax.make_jaxpr(jax.value_and_grad(run))(Z, Z)

    return [
        compare_once(
            "trace and value_and_grad: sin(x)*y, per equation", mine, peer, per=2 * n, budget=0.125, rounds=30
        ),
        compare_once("value_and_grad of what is traced", mine_traced, peer_traced, per=2 * n, budget=0.125, rounds=30),
    ]


def vmap() -> list[Row]:
    """Batching of sin(x) * y: of the function, and of the traced program; and with y unmapped."""
    n, stacked = 500, jnp.ones((8, 4), np.float32)

    def mine() -> Contest:
        return lambda: fx.vmap(fx.trace(chain(ours, n), X, X), axis_size=8)

    def peer() -> Contest:
        return lambda: jax.make_jaxpr(jax.vmap(chain(theirs, n)))(stacked, stacked)

    def mine_traced(in_axes: tuple[int, int | None]) -> Callable[[], Contest]:
        def prepare() -> Contest:
            jaxpr = fx.trace(chain(ours, n), X, X).jaxpr
            return lambda: vmap_jaxpr(jaxpr, 8, in_axes)

        return prepare

    def peer_traced(in_axes: tuple[int, int | None]) -> Callable[[], Contest]:
        def prepare() -> Contest:
            closed = jax.make_jaxpr(chain(theirs, n))(Z, Z)
            mapped = jax.vmap(jax.extend.core.jaxpr_as_fun(closed), in_axes)
            return lambda: jax.make_jaxpr(mapped)(stacked, stacked if in_axes[1] == 0 else Z)

        return prepare

    both, one = (0, 0), (0, None)
    return [
        compare_once("trace and vmap: sin(x)*y, per equation", mine, peer, per=2 * n, budget=1 / 6, rounds=30),
        compare_once(
            "vmap of what is traced", mine_traced(both), peer_traced(both), per=2 * n, budget=1 / 6, rounds=30
        ),
        compare_once(
            "vmap of what is traced, y unmapped", mine_traced(one), peer_traced(one), per=2 * n, budget=1 / 6, rounds=30
        ),
    ]


def rows() -> list[Row]:
    """All measurements."""
    return [
        tracing("lax.add", fxad.lax.add, jax.lax.add, 1),
        tracing("x + y", lambda x, y: x + y, lambda x, y: x + y, 1),
        tracing("sin(x) * y", ours, theirs, 2),
        long_tracing(),
        *value_and_grad(),
        *vmap(),
    ]


if __name__ == "__main__":
    show("Tracing and transforming", rows())
