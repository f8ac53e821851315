"""Calls of a compiled program, and transfers of values. `python -m benchmarks.bench_call`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
from benchmarks.harness import Row, compare, show
from fxad import runtime
from fxad.core.builder import Builder
from fxad.ir import Aval
from fxad.primitives.elementwise import ADD

F4 = Aval((4,), "float32")


def executing() -> Row:
    """The runtime below the interfaces: buffers in, buffers out."""
    b = Builder()
    x, y = b.inputs([F4, F4])
    program = runtime.compile_jaxpr(b.build([b.one(ADD, x, y)]))
    buffers = [runtime.to_buffer(np.ones(4, np.float32), F4) for _ in range(2)]
    f, z = jax.jit(jax.lax.add), jnp.ones(4, np.float32)
    return compare("execute: x + y, buffers", lambda: program.execute(buffers), lambda: f(z, z), budget=0.9, rounds=300)


def calling() -> Row:
    """An executable, called with arrays."""
    x = fx.asarray(np.ones(4, np.float32))
    run = fx.lower(fx.trace(lambda x, y: x + y, x, x)).compile()
    f, z = jax.jit(lambda x, y: x + y), jnp.ones(4, np.float32)
    return compare("call: x + y, positional", lambda: run(x, x), lambda: f(z, z), budget=1.0, rounds=300)


def calling_jit() -> Row:
    """A jitted function, called with arrays."""
    x = fx.asarray(np.ones(4, np.float32))
    run = fx.jit(lambda x, y: x + y)
    f, z = jax.jit(lambda x, y: x + y), jnp.ones(4, np.float32)
    return compare("jit: x + y, positional", lambda: run(x, x), lambda: f(z, z), budget=1.0, rounds=300)


def calling_tree() -> Row:
    """A call with one pytree of 100 leaves, which returns another."""

    def bump(tree: dict[str, list[object]]) -> object:
        return {k: [v + 1 for v in vs] for k, vs in tree.items()}  # type: ignore[operator]

    def leaves(one: object) -> dict[str, list[object]]:
        return {f"layer{k}": [one] * 10 for k in range(10)}

    ours = leaves(fx.asarray(np.ones(4, np.float32)))
    run = fx.lower(fx.trace(bump, ours)).compile()
    f, theirs = jax.jit(bump), leaves(jnp.ones(4, np.float32))
    return compare(
        "call: pytree of 100 leaves in and out", lambda: run(ours), lambda: f(theirs), budget=1.0, rounds=300
    )


def moving() -> list[Row]:
    """NumPy arrays to the device and back."""
    out = []
    for n in (4, 1 << 20):
        aval, x = Aval((n,), "float32"), np.ones(n, np.float32)
        ours, theirs = runtime.to_buffer(x, aval), jnp.asarray(x)
        out += [
            compare(
                f"to the device, done: {n} x f32",
                lambda x=x, aval=aval: runtime.to_buffer(x, aval),
                lambda x=x: jax.device_put(x).block_until_ready(),
            ),
            compare(f"to NumPy: {n} x f32", lambda b=ours: runtime.to_numpy(b), lambda a=theirs: np.asarray(a).flags),
        ]
    return out


def rows() -> list[Row]:
    """All measurements."""
    return [executing(), calling(), calling_jit(), calling_tree(), *moving()]


if __name__ == "__main__":
    show("Calls", rows())
