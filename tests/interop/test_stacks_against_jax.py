"""Random programs under random stacks of three transformations have the values of JAX.

`FXAD_SEEDS=1000:1400 python -m pytest -m deep tests/interop/test_stacks_against_jax.py` selects the programs.
`FXAD_STACKS=5` is the number of stacks for each.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.nn
import fxad.numpy as fnp

jax: Any = pytest.importorskip("jax")

FIRST, LAST = map(int, os.environ.get("FXAD_SEEDS", "0:60").split(":"))
STACKS: Final = int(os.environ.get("FXAD_STACKS", "2"))
N: Final = 3
X: Final = np.array([0.3, -0.7, 1.1])
Y: Final = np.array([0.9, 0.2, -0.4])
QUICK: Final = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
Fn = Callable[[Any, Any], Any]  # functions from two vectors of N numbers to one


class Library:
    """Names that differ between the two libraries."""

    def __init__(self, m: Any, xp: ModuleType) -> None:
        self.m, self.xp, self.lax, self.nn = m, xp, m.lax, m.nn
        self.remat = m.remat if hasattr(m, "remat") else m.checkpoint

    def loop(self, goes_on: Any, step: Any, init: Any, most: int) -> Any:
        """A while loop. In JAX a scan with a branch, which has reverse mode."""
        if self.m is fx:
            return self.lax.while_loop(goes_on, step, init, max_steps=most)

        def guarded(s: Any, _: Any) -> Any:
            return self.lax.cond(goes_on(s), step, lambda s: s, s), None

        return self.lax.scan(guarded, init, None, length=most)[0]


# Each step makes a function of two vectors from two others and a number.
Step = Callable[[Library, Fn, Fn, int], Fn]


def _custom(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    h = lib.m.custom_jvp(lambda x, y: f(x, y))
    h.defjvp(lambda p, t: (f(*p), lib.xp.cos(p[0]) * t[0] + g(*p) * t[1] * 0.5))
    return lambda x, y: h(x, y)


def _custom_vjp(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    h = lib.m.custom_vjp(lambda x, y: f(x, y))
    h.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (ct * lib.xp.sin(r[0]), ct * g(*r)))
    return lambda x, y: h(x, y)


def _scan(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    def run(x: Any, y: Any) -> Any:
        def step(c: Any, a: Any) -> Any:
            new = f(c, y * a)
            return lib.xp.tanh(new), new.sum() * a

        last, rows = lib.lax.scan(step, g(x, y), x, reverse=bool(k % 2))
        return last + rows

    return run


def _while(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    def run(x: Any, y: Any) -> Any:
        def step(s: Any) -> Any:
            return s[0] + 1, lib.xp.sin(f(s[1], y)) + x * 0.5

        return lib.loop(lambda s: (s[0] < k + 1) & (s[1][0] < 2.0), step, (0, g(x, y)), k + 1)[1]

    return run


def _cond(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    return lambda x, y: lib.lax.cond(x[k] > y[k], f, g, x, y)


def _switch(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    def run(x: Any, y: Any) -> Any:
        return lib.lax.switch((x[0] * 3).astype("int32"), [f, g, lambda x, y: f(y, x)], x, y)

    return run


def _fori(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    def step(i: Any, c: Any) -> Any:
        return lib.xp.cos(f(*c)) + i * 0.1, c[0]

    return lambda x, y: lib.lax.fori_loop(0, k + 1, step, (x, g(x, y)))[0]


def _vmapped(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    def run(x: Any, y: Any) -> Any:
        rows = lib.m.vmap(f, (0, None), out_axes=k % 2)(lib.xp.stack([x, y, g(x, y)]), y)
        return lib.xp.tanh(rows).sum(0)

    return run


def _solve(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    def run(x: Any, y: Any) -> Any:
        a = lib.xp.outer(lib.xp.sin(f(x, y)), y) * 0.1 + 2 * lib.xp.eye(N)
        return lib.xp.linalg.solve(a, g(x, y))

    return run


def _inner_grad(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    return lambda x, y: lib.m.grad(lambda x: f(x, y).sum())(lib.xp.sin(x)) + g(x, y)


def _push(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    return lambda x, y: lib.m.jvp(f, (x, y), (g(x, y), x))[1]


def _at(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    return lambda x, y: g(x, y).at[(x[0] > y[0]) * 1 + k % 2].multiply(f(x, y)[k])


def _window(lib: Library, f: Fn, g: Fn, k: int) -> Fn:
    def run(x: Any, y: Any) -> Any:
        both = lib.xp.concatenate([f(x, y), g(x, y)])
        return lib.lax.dynamic_slice(both, ((y[k] > 0) * 1 + k,), (N,))

    return run


STEPS: Final[dict[str, Step]] = {
    "custom_jvp": _custom, "custom_vjp": _custom_vjp, "scan": _scan, "while": _while, "cond": _cond, "switch": _switch,
    "fori": _fori, "vmapped": _vmapped, "solve": _solve, "grad": _inner_grad, "push": _push, "at": _at,
    "window": _window,
    "jit": lambda lib, f, g, k: lib.m.jit(lambda x, y: f(x, y) + g(y, x)),
    "static": lambda lib, f, g, k: partial(
        lib.m.jit(lambda n, x, y: f(x, y) if n % 2 else g(x, y) * n, static_argnums=0), k
    ),
    "remat": lambda lib, f, g, k: lib.remat(lambda x, y: lib.xp.sin(f(x, g(x, y)))),
    "stop": lambda lib, f, g, k: lambda x, y: f(x, y) * lib.lax.stop_gradient(g(x, y)),
    "where": lambda lib, f, g, k: lambda x, y: lib.xp.where(f(x, y) > g(x, y), f(x, y), x * g(x, y)),
    "sort": lambda lib, f, g, k: lambda x, y: lib.xp.sort(f(x, y)) + lib.xp.cumsum(g(x, y)),
    "softmax": lambda lib, f, g, k: lambda x, y: lib.nn.softmax(f(x, y)) * lib.xp.max(g(x, y)),
    "matmul": lambda lib, f, g, k: lambda x, y: lib.xp.outer(f(x, y), y) @ g(x, y),
    "einsum": lambda lib, f, g, k: lambda x, y: lib.xp.einsum("i,j->j", f(x, y), g(x, y)),
    "prod": lambda lib, f, g, k: lambda x, y: f(x, y) * lib.xp.prod(lib.xp.cos(g(x, y))),
    "add": lambda lib, f, g, k: lambda x, y: f(x, y) + g(x, y),
    "compose": lambda lib, f, g, k: lambda x, y: f(g(x, y), y),
}  # fmt: skip
LEAVES: Final[dict[str, Callable[[Library], Fn]]] = {
    "sin": lambda lib: lambda x, y: lib.xp.sin(x) * y,
    "exp": lambda lib: lambda x, y: lib.xp.exp(-x * x) + y,
    "tanh": lambda lib: lambda x, y: lib.xp.tanh(x + 2 * y),
    "sqrt": lambda lib: lambda x, y: lib.xp.sqrt(1 + x * x) / (2 + y * y),
    "log": lambda lib: lambda x, y: lib.xp.log1p(x * x) - y,
}
Stackable = Callable[[Library, Fn], Fn]
TRANSFORMATIONS: Final[dict[str, Stackable]] = {
    "jit": lambda lib, f: lib.m.jit(lambda x, y: f(x, y)),
    "remat": lambda lib, f: lib.remat(lambda x, y: f(x, y)),
    "grad": lambda lib, f: lib.m.grad(lambda x, y: f(x, y).sum()),
    "grad of y": lambda lib, f: lib.m.grad(lambda x, y: (f(x, y) * x).sum(), argnums=1),
    "value_and_grad": lambda lib, f: lambda x, y: sum(lib.m.value_and_grad(lambda x: f(x, y)[0])(x)),
    "jvp": lambda lib, f: lambda x, y: lib.m.jvp(f, (x, y), (y, lib.xp.cos(x)))[1],
    "linearize": lambda lib, f: lambda x, y: lib.m.linearize(f, x, y)[1](y, x),
    "vjp": lambda lib, f: lambda x, y: sum(lib.m.vjp(f, x, y)[1](lib.xp.sin(x))),
    "jacfwd": lambda lib, f: lambda x, y: lib.m.jacfwd(f)(x, y) @ y,
    "jacrev": lambda lib, f: lambda x, y: x @ lib.m.jacrev(f, argnums=1)(x, y),
    "hessian": lambda lib, f: lambda x, y: lib.m.hessian(lambda x: f(x, y).sum())(x) @ y,
    "vmap": lambda lib, f: lambda x, y: lib.m.vmap(f, (0, None))(lib.xp.stack([x, y]), y).sum(0),
    "vmap of both": lambda lib, f: lambda x, y: lib.m.vmap(f, 1, 1)(lib.xp.outer(x, y), lib.xp.outer(y, x)).sum(1),
}


def drawn(lib: Library, seed: int) -> tuple[str, Fn]:
    """Returns the program of a seed, and its name."""
    draw = random.Random(seed)

    def grow(depth: int) -> tuple[str, Fn]:
        if depth == 0 or draw.random() < 0.15:
            name = draw.choice(sorted(LEAVES))
            return name, LEAVES[name](lib)
        step, k = draw.choice(sorted(STEPS)), draw.randrange(N)
        (a, f), (b, g) = grow(depth - 1), grow(max(depth - 2, 0))
        return f"{step}{k}({a}, {b})", STEPS[step](lib, f, g, k)

    return grow(draw.choice([1, 1, 2]))


def stack_of(seed: int, k: int) -> tuple[str, ...]:
    draw = random.Random(1_000_003 * seed + k)
    return tuple([draw.choice(sorted(TRANSFORMATIONS)) for _ in range(3)])


OURS: Final = Library(fx, fnp)
THEIRS: Final = Library(jax, jax.numpy)


def difference(seed: int, k: int) -> str:
    """Return the difference from JAX under a stack of transformations; empty if there is none."""
    stack = stack_of(seed, k)
    name, f = drawn(OURS, seed)
    _, g = drawn(THEIRS, seed)
    for t in stack:
        f, g = TRANSFORMATIONS[t](OURS, f), TRANSFORMATIONS[t](THEIRS, g)
    what = f"{' of '.join(reversed(stack))} of {name}"
    try:
        want = np.asarray(jax.jit(g).lower(X, Y).compile(QUICK)(X, Y))
    except Exception as e:
        return f"(jax refuses {what}: {type(e).__name__})"
    try:
        have = fx.interpret(fx.trace(f, X, Y), X, Y)
    except Exception as e:
        return f"{what}: {type(e).__name__}: {e}"
    scale = max(1.0, float(np.max(np.abs(want)))) if np.isfinite(want).all() else 1.0
    if not np.allclose(have, want, rtol=1e-6, atol=1e-7 * scale, equal_nan=True):
        return f"{what}: {np.asarray(have)}, jax {want}"
    return ""


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_a_stack_of_three_transformations_gives_what_jax_gives(seed: int) -> None:
    with jax.enable_x64(True):
        found = [d for d in [difference(seed, k) for k in range(STACKS)] if d and not d.startswith("(")]
    assert not found, "\n".join(found)
