"""Implicit functions against JAX: values, derivatives in both modes, second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from tests.implicit.test_systems import interpreted
from tests.interop.jax_laws import jit_of_jax

jax: Any = pytest.importorskip("jax")

RNG = np.random.default_rng(5)
A = (RNG.normal(size=(3, 3)) * 0.3 + 2 * np.eye(3)).astype(np.float32)
B = RNG.normal(size=3).astype(np.float32)


def krylov(m: Any, name: str) -> Any:
    return getattr(m.lax if m is fx else m.scipy.sparse.linalg, name)


def linear(m: Any, xp: Any, a: Any, b: Any) -> Any:
    """The linear map x / 2 plus a matrix, solved by a dense solver."""

    def solve(mv: Any, b: Any) -> Any:
        return xp.linalg.solve(a, b)

    def back(mv: Any, b: Any) -> Any:
        return xp.linalg.solve(a.T, b)

    return m.lax.custom_linear_solve(lambda x: a @ x, b, solve, back)


def root(m: Any, xp: Any, a: Any, b: Any) -> Any:
    def f(x: Any) -> Any:
        return x + a @ xp.sin(x) / 3 - b

    def solve(f: Any, x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            return x - xp.linalg.solve(m.jacfwd(f)(x), f(x))

        return m.lax.fori_loop(0, 12, step, x)

    def tangents(g: Any, y: Any) -> Any:
        return xp.linalg.solve(m.jacfwd(g)(y), y)

    return m.lax.custom_root(f, xp.zeros_like(b), solve, tangents)


def solved(name: str, definite: bool) -> Callable[..., Any]:
    def f(m: Any, xp: Any, a: Any, b: Any) -> Any:
        return krylov(m, name)(a @ a.T if definite else a, b, tol=1e-7)[0]

    return f


WAYS: dict[str, Callable[..., Any]] = {
    "custom_linear_solve": linear,
    "custom_root": root,
    "cg": solved("cg", True),
    "bicgstab": solved("bicgstab", False),
    "gmres": solved("gmres", False),
}
USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value": lambda m, xp, f: f,
    "jacrev": lambda m, xp, f: m.jacrev(f, argnums=(0, 1)),
    "vmap of jvp": lambda m, xp, f: (
        lambda a, b: m.vmap(lambda b: m.jvp(f, (a, b), (a, b * b))[1])(xp.stack([b, 2 * b]))
    ),
    "second order": lambda m, xp, f: m.jacfwd(m.grad(lambda a, b: xp.sum(xp.sin(f(a, b))), argnums=1), argnums=1),
}


# Cases that JAX compiles for seconds run in `make deep` only; for variants of one solver, only the value runs always.
SHORT = {
    "custom_linear_solve": ("jacrev", "vmap of jvp", "second order"),
    "custom_root": ("jacrev",),
    "cg": ("vmap of jvp",),
    "bicgstab": ("value",),
    "gmres": ("value",),
}
PAIRS = [
    pytest.param(way, use, marks=() if use in SHORT[way] else pytest.mark.deep, id=f"{way}-{use}")
    for way in WAYS
    for use in USES
]


@pytest.mark.parametrize(("way", "use"), PAIRS)
def test_results_are_those_of_jax(way: str, use: str) -> None:
    f = WAYS[way]
    have = interpreted(USES[use](fx, fnp, lambda a, b: f(fx, fnp, a, b)), A, B)
    theirs = USES[use](jax, jax.numpy, lambda a, b: f(jax, jax.numpy, a, b))
    want = jit_of_jax(theirs)(A, B)
    for x, y in zip(fx.tree.leaves(have), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-4, atol=2e-5)
