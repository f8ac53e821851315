"""Programs on 8 CPU devices, beside jax's `shard_map`, `pmap` and global view. `python -m benchmarks.bench_devices`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.harness import Contest, Row, compare_once, show
from fxad import lax

DEVICES: Final = 8
FIRST, STEP = 0.9, 1.05
LAYERS, WIDTH, BATCH = 8, 64, 256

Params = dict[str, Any]


def parameters() -> Params:
    rng = np.random.default_rng(0)
    return {f"w{k}": (rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32) for k in range(LAYERS)}


def batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return (rng.normal(size=(BATCH, WIDTH)).astype(np.float32), rng.normal(size=(BATCH, WIDTH)).astype(np.float32))


def loss(xp: Any, params: Params, x: Any, y: Any) -> Any:
    for k in range(LAYERS):
        x = xp.tanh(x @ params[f"w{k}"])
    return xp.mean((x - y) ** 2)


def updated(params: Params, grads: Params) -> Params:
    return {name: w - 0.1 * grads[name] for name, w in params.items()}


# ------------------------------------------------------------------------------------- steps, and their arguments


def fx_mesh() -> Any:
    return fx.make_mesh((DEVICES,), ("i",))


def jax_mesh() -> Any:
    return jax.make_mesh((DEVICES,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))


def fx_step(params: Params, x: Any, y: Any) -> Any:
    """Data-parallel training: each device has a part of the batch."""
    value, grads = fx.value_and_grad(partial(loss, fnp))(params, x, y)
    return updated(params, lax.pmean(grads, "i")), lax.pmean(value, "i")


def jax_step(params: Params, x: Any, y: Any) -> Any:
    value, grads = jax.value_and_grad(partial(loss, jnp))(params, x, y)
    return updated(params, jax.lax.pmean(grads, "i")), jax.lax.pmean(value, "i")


def jax_varying_step(params: Params, x: Any, y: Any) -> Any:
    """The same with whole parameters on each device. Gradients with respect to varying copies are those of one
    device."""
    copies = jax.tree.map(lambda w: jax.lax.pcast(w, "i", to="varying"), params)
    value, grads = jax.value_and_grad(partial(loss, jnp))(copies, x, y)
    return updated(params, jax.lax.pmean(grads, "i")), jax.lax.pmean(value, "i")


def fx_shard_map() -> Callable[..., Any]:
    rows, whole = fx.P("i"), fx.P()
    return fx.jit(fx.shard_map(fx_step, fx_mesh(), (whole, rows, rows), (whole, whole)))


def jax_shard_map() -> Any:
    rows, whole = jax.P("i"), jax.P()
    mapped = jax.shard_map(jax_varying_step, mesh=jax_mesh(), in_specs=(whole, rows, rows), out_specs=(whole, whole))
    return jax.jit(mapped)


def fx_pmap() -> Callable[..., Any]:
    return fx.jit(fx.pmap(fx_step, "i"))


def jax_pmap() -> Any:
    return jax.pmap(jax_step, "i")


def fx_global() -> Callable[..., Any]:
    def step(params: Params, x: Any, y: Any) -> Any:
        value, grads = fx.value_and_grad(partial(loss, fnp))(params, x, y)
        return updated(params, grads), value

    mesh = fx_mesh()
    rows, whole = [fx.NamedSharding(mesh, s) for s in (fx.P("i"), fx.P())]
    return fx.jit(step, in_shardings=(whole, rows, rows), out_shardings=whole)


def jax_global() -> Any:
    def step(params: Params, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(partial(loss, jnp))(params, x, y)
        return updated(params, grads), value

    mesh = jax_mesh()
    rows, whole = [jax.NamedSharding(mesh, s) for s in (jax.P("i"), jax.P())]
    return jax.jit(step, in_shardings=(whole, rows, rows), out_shardings=whole)


KINDS: Final = {
    "shard_map": (fx_shard_map, jax_shard_map),
    "pmap": (fx_pmap, jax_pmap),
    "global view": (fx_global, jax_global),
}


def arguments(kind: str) -> tuple[Any, Any, Any]:
    params, (x, y) = parameters(), batch()
    if kind == "pmap":
        params = {name: np.stack([w] * DEVICES) for name, w in params.items()}
        x, y = [a.reshape(DEVICES, -1, WIDTH) for a in (x, y)]
    return params, x, y


def placed_fx(kind: str) -> tuple[Any, Any, Any]:
    mesh = fx_mesh()
    rows, whole = [fx.NamedSharding(mesh, s) for s in (fx.P("i"), fx.P())]
    params, x, y = arguments(kind)
    return fx.device_put(params, rows if kind == "pmap" else whole), fx.device_put(x, rows), fx.device_put(y, rows)


def placed_jax(kind: str) -> tuple[Any, Any, Any]:
    mesh = jax_mesh()
    rows, whole = [jax.NamedSharding(mesh, s) for s in (jax.P("i"), jax.P())]
    params, x, y = arguments(kind)
    return jax.device_put(params, rows if kind == "pmap" else whole), jax.device_put(x, rows), jax.device_put(y, rows)


# ----------------------------------------------------------------------------------------------------------- rows


def first_steps(kind: str) -> Row:
    """Time from the function to the first result: trace, differentiate, lower, compile and run."""
    ours, theirs = KINDS[kind]
    args, peer_args = placed_fx(kind), placed_jax(kind)

    def prepare() -> Contest:
        fx.cache.clear()
        f = ours()
        return lambda: fx.block_until_ready(f(*args))

    def prepare_peer() -> Contest:
        jax.clear_caches()
        f = theirs()
        return lambda: jax.block_until_ready(f(*peer_args))

    row = compare_once(f"first step: {kind}", prepare, prepare_peer, budget=FIRST, rounds=60)
    return replace(row, ours=row.ours / 1e3, jax=row.jax / 1e3, unit="ms")


def _block(f: Any, state: list[Any], rest: tuple[Any, ...], wait: Callable[[Any], object], calls: int) -> None:
    for _ in range(calls):
        state[0], _value = f(state[0], *rest)
    wait(state[0])


def steps(kind: str, rounds: int = 40, calls: int = 10) -> Row:
    """A step on arrays that are divided as the program needs them; its results are the arguments of the next step.

    Each round runs a block of calls of one library, then of the other, because two XLA clients in a process disturb
    each other.
    """
    ours, theirs = [make() for make in KINDS[kind]]
    blocks: list[Contest] = []
    for f, args, wait in (
        (ours, placed_fx(kind), fx.block_until_ready),
        (theirs, placed_jax(kind), jax.block_until_ready),
    ):
        state = [args[0]]
        blocks.append(partial(_block, f, state, args[1:], wait, calls))
        blocks[-1]()
    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, block in enumerate(blocks):
            start = time.perf_counter()
            block()
            best[k] = min(best[k], (time.perf_counter() - start) / calls)
    return Row(f"step: {kind}", 1e6 * best[0], 1e6 * best[1], STEP)


def scaling() -> Row:
    """Tracing, differentiating and lowering for 512 devices beside 8, without compiling. Both columns are fxad's."""

    def prepare(n: int) -> Callable[[], Contest]:
        rows, whole = fx.P("i"), fx.P()
        x = fx.Spec((32 * n, WIDTH))
        params = parameters()

        def contest() -> object:
            mapped = fx.shard_map(fx_step, {"i": n}, (whole, rows, rows), (whole, whole))
            return fx.lower(fx.trace(mapped, params, x, x)).text()

        return lambda: contest

    row = compare_once("lower: a step for 512 devices beside 8", prepare(512), prepare(8), budget=1.25, rounds=15)
    return replace(row, ours=row.ours / 1e3, jax=row.jax / 1e3, unit="ms")


def rows() -> list[Row]:
    """All measurements."""
    fx.set_cpu_devices(DEVICES)
    jax.config.update("jax_num_cpu_devices", DEVICES)
    return [scaling(), *[make(kind) for make in (first_steps, steps) for kind in KINDS]]


if __name__ == "__main__":
    show("Devices", rows())
