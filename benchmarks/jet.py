"""Differential operators and Taylor series beside folx, and beside `jax.experimental.jet` and `jax.hessian`.

    python -m benchmarks.jet                needs folx and jax in the environment
    python -m benchmarks.jet waves series   some of: mlp waves losses biharmonics series

XLA on CPUs since jaxlib 0.11 puts products and the equations around them into one call of YNNPACK. XLA does not count
the buffers of such a call, so temporaries say how much was fused. This setting counts all buffers:

    XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= python -m benchmarks.jet
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
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


# ------------------------------------------------------------------------------------------------------ wave functions

ELECTRONS: Final = 8
FEATURES: Final = 32
SAMPLES: Final = 64


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.sum(e, axis=-1, keepdims=True)


def transformer(xp: Any, params: Any, x: Any) -> Any:
    """The logarithm of a wave function: two blocks of attention over electrons, and a determinant."""
    embed, blocks, last = params
    h = xp.tanh(x @ embed)
    for q, k, v, w in blocks:
        h = h + softmax(xp, (h @ q) @ (h @ k).T / FEATURES**0.5) @ (h @ v)
        h = h + xp.tanh(h @ w)
    return xp.linalg.slogdet(h @ last)[1]


def slater(xp: Any, params: Any, x: Any) -> Any:
    """The logarithm of a Slater determinant of orbitals, times a Jastrow factor of the distances."""
    first, last = params
    r = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    orbitals = (xp.tanh(x @ first) @ last) * xp.exp(-r)
    apart = x[:, None] - x[None]
    distance = xp.sqrt(xp.sum(apart * apart, axis=-1) + xp.eye(ELECTRONS, dtype=x.dtype))
    return xp.linalg.slogdet(orbitals)[1] + xp.sum(xp.triu(distance / (1 + distance), 1))


def drawn(*shape: int) -> Any:
    return (RNG.normal(size=shape) / shape[0] ** 0.5).astype(np.float32)


def waves() -> list[Row]:
    """Returns the Laplacian of two wave functions at samples, beside folx, dense and sparse."""
    m, n = FEATURES, ELECTRONS
    blocks = [[drawn(m, m) for _ in range(4)] for _ in range(2)]
    cases = {
        "transformer": (transformer, [drawn(3, m), blocks, drawn(m, n)]),
        "Slater determinant": (slater, [drawn(3, m), drawn(m, n)]),
    }
    xs = RNG.normal(size=(SAMPLES, n, 3)).astype(np.float32)
    rows: list[Row] = []
    for name, (f, params) in cases.items():

        def ours(params: Any, xs: Any, f: Any = f) -> Any:
            return fx.vmap(fx.laplacian(lambda x: f(fnp, params, x)))(xs)

        def peer(params: Any, xs: Any, f: Any = f, sparsity: int = 0) -> Any:
            return jax.vmap(lambda x: folx.forward_laplacian(lambda x: f(jnp, params, x), sparsity)(x).laplacian)(xs)

        args = fx.tree.map(fnp.asarray, params), fnp.asarray(xs)
        peer_args = jax.tree.map(jnp.asarray, params), jnp.asarray(xs)
        rows += rows_of(f"{name}, folx", ours, peer, args, peer_args)
        rows += rows_of(f"{name}, sparse folx", ours, partial(peer, sparsity=6), args, peer_args)
    return rows


# ------------------------------------------------------------------------------------------- networks for equations


def losses() -> list[Row]:
    """Returns the gradient of a loss of u_xx + u_yy in the parameters, beside folx and `jax.hessian`."""
    sizes = (2, 64, 64, 64, 1)
    params = [drawn(a, b) for a, b in pairwise(sizes)]
    points = RNG.normal(size=(256, 2)).astype(np.float32)

    def loss(of_point: Callable[[Any], Any], vmap: Any, points: Any) -> Any:
        return (vmap(of_point)(points) ** 2).mean()

    def ours(params: Any, points: Any) -> Any:
        terms = {(2, 0): 1.0, (0, 2): 1.0}
        gradient = fx.grad(lambda p: loss(fx.operator(lambda x: mlp(fnp, p, x), terms), fx.vmap, points))(params)
        return gradient[1]

    def of_folx(params: Any, points: Any) -> Any:
        def at(p: Any) -> Callable[[Any], Any]:
            return lambda x: folx.forward_laplacian(lambda x: mlp(jnp, p, x))(x).laplacian

        return jax.grad(lambda p: loss(at(p), jax.vmap, points))(params)[1]

    def of_hessian(params: Any, points: Any) -> Any:
        def at(p: Any) -> Callable[[Any], Any]:
            return lambda x: jnp.trace(jax.hessian(lambda x: mlp(jnp, p, x))(x))

        return jax.grad(lambda p: loss(at(p), jax.vmap, points))(params)[1]

    args = [fnp.asarray(w) for w in params], fnp.asarray(points)
    peer_args = [jnp.asarray(w) for w in params], jnp.asarray(points)
    peers = {"folx": of_folx, "Hessian in JAX": of_hessian}
    return [row for name, peer in peers.items() for row in rows_of(f"PINN loss, {name}", ours, peer, args, peer_args)]


def biharmonics() -> list[Row]:
    """Returns the biharmonic of a network of five variables, beside the Laplacian of folx, twice."""
    params = [drawn(a, b) for a, b in pairwise((5, 64, 64, 1))]
    points = RNG.normal(size=(64, 5)).astype(np.float32)

    def ours(params: Any, xs: Any) -> Any:
        return fx.vmap(fx.biharmonic(lambda x: mlp(fnp, params, x)))(xs)

    def peer(params: Any, xs: Any) -> Any:
        def once(f: Any) -> Any:
            return lambda x: folx.forward_laplacian(f)(x).laplacian

        return jax.vmap(once(once(lambda x: mlp(jnp, params, x))))(xs)

    args = [fnp.asarray(w) for w in params], fnp.asarray(points)
    peer_args = [jnp.asarray(w) for w in params], jnp.asarray(points)
    return rows_of("biharmonic, folx twice", ours, peer, args, peer_args)


# --------------------------------------------------------------------------------------------------------------- series


def series(order: int) -> list[Row]:
    """Returns the Taylor coefficients of a right-hand side, of some order, beside JAX's jet."""
    w = (RNG.normal(size=(32, 32)) / 6).astype(np.float32)
    x, v = RNG.normal(size=(2, 1024, 32)).astype(np.float32)

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


def all_series() -> list[Row]:
    """Returns the rows of series, of three orders."""
    return [row for order in (4, 8, 16) for row in series(order)]


PARTS: Final = {"mlp": laplacians, "waves": waves, "losses": losses, "biharmonics": biharmonics, "series": all_series}


def main() -> None:
    """Prints the table."""
    for name in sys.argv[1:] or PARTS:
        show(f"Operators and series, beside folx and JAX: {name}", PARTS[name]())


if __name__ == "__main__":
    main()
