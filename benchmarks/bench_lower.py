"""Lowering to StableHLO, per equation. `python -m benchmarks.bench_lower`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.harness import Contest, Row, compare_once, show
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr, Var
from fxad.lower import lower_jaxpr
from fxad.lowering import mlir
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, MUL, SIN

N = 2000
F4 = Aval((4,), "float32")

Step = Callable[[Builder, Var, Var], Var]


def ours(step: Step) -> Jaxpr:
    """A chain of `N` equations. `step` adds one or more of them."""
    b = Builder()
    b.source = (ours.__code__, 0)
    x, y = b.inputs([F4, F4])
    while len(b.eqns) < N:
        x = step(b, x, y)
    return b.build([x])


def lowering(step: Step, verify: bool = False) -> Callable[[], Contest]:
    """Lowers a new program each time, so no memo has it. `verify` adds MLIR's parser and verifier."""

    def prepare() -> Contest:
        jaxpr = ours(step)
        jaxpr._memo.clear()
        if verify:
            return lambda: mlir.verify(lower_jaxpr(jaxpr).source())
        return lambda: lower_jaxpr(jaxpr)

    return prepare


def peer(step: Callable[[jax.Array, jax.Array], jax.Array], equations: int) -> Callable[[], Contest]:
    """jax lowers a traced function once, so a new one is traced each time."""
    x = jnp.ones(4, np.float32)

    def prepare() -> Contest:
        def f(x: jax.Array, y: jax.Array) -> jax.Array:
            for _ in range(N // equations):
                x = step(x, y)
            return x

        return cast(Contest, jax.jit(f).trace(x, x).lower)

    return prepare


def add(b: Builder, x: Var, y: Var) -> Var:
    return b.one(ADD, x, y)


def sin_mul(b: Builder, x: Var, y: Var) -> Var:
    return b.one(MUL, b.one(SIN, x), y)


def layer() -> Jaxpr:
    b = Builder()
    x, y = b.inputs([F4, F4])
    for _ in range(20):
        x = sin_mul(b, x, y)
    return b.build([x], "layer")


def call(b: Builder, x: Var, y: Var) -> Var:
    return b.one(Call(layer()), x, y)


def jax_layer() -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The same layer, which is a function of its own in jax's module too."""

    def layer(x: jax.Array, y: jax.Array) -> jax.Array:
        for _ in range(20):
            x = jax.lax.mul(jax.lax.sin(x), y)
        return x

    return cast(Callable[[jax.Array, jax.Array], jax.Array], jax.jit(layer))


def text_of_gradient() -> Row:
    """The text of a gradient of about 6,000 equations, as a user requests it, beside jax's `lower()` without text."""
    x = np.ones((8, 8), np.float32)
    lengths, peer_lengths = count(1000), count(1000)  # each round uses programs that are new to both

    def chain(numpy: Any, n: int) -> Callable[[Any, Any], Any]:
        def f(x: Any, y: Any) -> Any:
            for k in range(n):
                x = numpy.sin(x) * y + float(k)
            return x.sum()

        return f

    def prepare() -> Contest:
        program = fx.trace(fx.grad(chain(fnp, next(lengths))), x, x)
        return lambda: fx.lower(program).text()

    def prepare_peer() -> Contest:
        return cast(Contest, jax.jit(jax.grad(chain(jnp, next(peer_lengths)))).trace(x, x).lower)

    row = compare_once("lower(gradient).text(), beside jax's lower()", prepare, prepare_peer, budget=0.25)
    return replace(row, ours=row.ours / 1e3, jax=row.jax / 1e3, unit="ms")


def rows() -> list[Row]:
    """All measurements."""
    chain, pairs = peer(jax.lax.add, 1), peer(lambda x, y: jax.lax.mul(jax.lax.sin(x), y), 2)
    return [
        compare_once("lower: add, per equation", lowering(add), chain, per=N, budget=0.25),
        compare_once("lower: sin(x)*y, per equation", lowering(sin_mul), pairs, per=N, budget=0.25),
        compare_once("lower, parse and verify: add, per equation", lowering(add, verify=True), chain, per=N),
        compare_once("lower: call of a 40-equation layer", lowering(call), peer(jax_layer(), 1), per=N),
        text_of_gradient(),
    ]


if __name__ == "__main__":
    show("Lowering", rows())
