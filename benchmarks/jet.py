"""Differential operators and Taylor series beside folx, and beside `jax.experimental.jet` and `jax.hessian`.

python -m benchmarks.jet        needs folx and jax in the environment
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import folx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.jet import jet as jax_jet

import fxad as fx
import fxad.numpy as fnp
from benchmarks.harness import Row, race, show

SIZES: Final = (50, 256, 256, 256, 256, 1)
BATCH: Final = 64
ROUNDS: Final = 40
RNG: Final = np.random.default_rng(0)
WEIGHTS: Final = [(RNG.normal(size=(a, b)) / a**0.5).astype(np.float32) for a, b in pairwise(SIZES)]
POINTS: Final = RNG.normal(size=(BATCH, SIZES[0])).astype(np.float32)


def mlp(xp: Any, params: Any, x: Any) -> Any:
    """A network of tanh layers, at one point."""
    for w in params[:-1]:
        x = xp.tanh(x @ w)
    return (x @ params[-1])[0]


def first_result(make: Callable[[], Callable[..., Any]], *args: Any) -> tuple[Callable[..., Any], float]:
    """Returns an executable, and the milliseconds to its first result."""
    start = time.perf_counter()
    executable = make()
    np.asarray(executable(*args))
    return executable, 1e3 * (time.perf_counter() - start)


def rows_of(name: str, ours: Callable[..., Any], peer: Callable[..., Any], args: Any, peer_args: Any) -> list[Row]:
    """Returns run time, temporary bytes and time to the first result of two functions."""
    fx.cache.clear()
    mine, my_ms = first_result(lambda: fx.lower(fx.trace(ours, *args)).compile(), *args)
    theirs, their_ms = first_result(lambda: jax.jit(peer).lower(*peer_args).compile(), *peer_args)
    np.testing.assert_allclose(np.asarray(mine(*args)), np.asarray(theirs(*peer_args)), rtol=2e-3, atol=1e-3)
    a, b = race(lambda: np.asarray(mine(*args)), lambda: np.asarray(theirs(*peer_args)), rounds=ROUNDS)
    bytes_of_peer = theirs.memory_analysis().temp_size_in_bytes  # type: ignore[attr-defined]
    return [
        Row(f"{name}: run", a, b),
        Row(f"{name}: temporaries", mine.memory().temp_bytes, bytes_of_peer, unit="bytes"),  # type: ignore[attr-defined]
        Row(f"{name}: first result", my_ms, their_ms, unit="ms"),
    ]


def laplacians() -> list[Row]:
    """Returns the Laplacian of a network at a batch of points, beside three ways of JAX."""

    def ours(params: Any, xs: Any) -> Any:
        return fx.vmap(fx.laplacian(lambda x: mlp(fnp, params, x)))(xs)

    def of_folx(params: Any, xs: Any) -> Any:
        return jax.vmap(lambda x: folx.forward_laplacian(lambda x: mlp(jnp, params, x))(x).laplacian)(xs)

    def of_jet(params: Any, xs: Any) -> Any:
        def along(x: Any, v: Any) -> Any:
            return jax_jet(lambda x: mlp(jnp, params, x), (x,), ((v, jnp.zeros_like(v)),))[1][1]

        unit = jnp.eye(SIZES[0])
        return jax.vmap(lambda x: jax.vmap(lambda v: along(x, v))(unit).sum(0))(xs)

    def of_hessian(params: Any, xs: Any) -> Any:
        return jax.vmap(lambda x: jnp.trace(jax.hessian(lambda x: mlp(jnp, params, x))(x)))(xs)

    args = [fnp.asarray(w) for w in WEIGHTS], fnp.asarray(POINTS)
    peer_args = [jnp.asarray(w) for w in WEIGHTS], jnp.asarray(POINTS)
    peers = {"folx": of_folx, "vmapped jet of JAX": of_jet, "trace of the Hessian in JAX": of_hessian}
    return [row for name, peer in peers.items() for row in rows_of(f"Laplacian, {name}", ours, peer, args, peer_args)]


def series(order: int) -> list[Row]:
    """Returns the Taylor coefficients of a right-hand side, of some order, beside JAX's jet."""
    w = (RNG.normal(size=(32, 32)) / 6).astype(np.float32)
    x, v = RNG.normal(size=(2, 32)).astype(np.float32)

    def field(xp: Any, w: Any, x: Any) -> Any:
        return xp.tanh(x @ w) * xp.exp(-x * x) + xp.sin(x) / (1.0 + x * x)

    def ours(w: Any, x: Any, v: Any) -> Any:
        return fnp.stack(fx.jet(lambda x: field(fnp, w, x), (x,), ((v,),), order=order)[1])

    def peer(w: Any, x: Any, v: Any) -> Any:
        zeros = [jnp.zeros_like(v)] * (order - 1)
        terms = jax_jet(lambda x: field(jnp, w, x), (x,), ((v, *zeros),))[1]
        return jnp.stack([t / _factorial(k) for k, t in enumerate(terms, 1)])

    args = [fnp.asarray(a) for a in (w, x, v)]
    return rows_of(f"series of order {order}", ours, peer, args, [jnp.asarray(a) for a in (w, x, v)])


def _factorial(k: int) -> float:
    return float(np.prod(np.arange(1.0, k + 1)))


def main() -> None:
    """Prints the table."""
    show("Operators and series, beside folx and JAX", [*laplacians(), *series(4), *series(8)])


if __name__ == "__main__":
    main()
