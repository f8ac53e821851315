"""Rules that differ from the derivative, which shows where a rule is taken: fxad and JAX take the same rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp

jax: Any = pytest.importorskip("jax")

X = np.array([0.3, -1.2, 2.0], np.float32)
Y = np.array([1.5, 0.4, -0.7], np.float32)


def by_cotangents(m: Any, xp: Any) -> Any:
    @m.custom_vjp  # type: ignore[untyped-decorator]
    def f(x: Any, y: Any) -> Any:
        return xp.sin(x) * y

    def fwd(x: Any, y: Any) -> Any:
        return f(x, y), (xp.cos(x), xp.sin(x), y)

    def bwd(residuals: Any, ct: Any) -> Any:
        cos, sin, y = residuals
        return 3 * cos * ct * y, 5 * sin * ct

    f.defvjp(fwd, bwd)
    return f


def by_tangents(m: Any, xp: Any) -> Any:
    @m.custom_jvp  # type: ignore[untyped-decorator]
    def f(x: Any, y: Any) -> Any:
        return xp.sin(x) * y

    @f.defjvp  # type: ignore[untyped-decorator]
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), 3 * xp.cos(x) * y * dx + 5 * f(x, dy)

    return f


def argument_by_argument(m: Any, xp: Any) -> Any:
    @m.custom_jvp  # type: ignore[untyped-decorator]
    def f(x: Any, y: Any) -> Any:
        return xp.sin(x) * y

    f.defjvps(lambda dx, out, x, y: 3 * out * dx, None)
    return f


USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda m, xp, f: m.grad(lambda x, y: xp.sum(f(x, xp.cos(y) * x))),
    "hessian": lambda m, xp, f: m.jacrev(m.grad(lambda x, y: xp.sum(f(x, y) * f(y, x)))),
    "third order": lambda m, xp, f: m.vmap(m.grad(m.grad(m.grad(lambda x, y: f(x, y * x))))),
    "vmap of grad": lambda m, xp, f: m.vmap(m.grad(lambda x, y: f(x, y * x))),
    "grad of vmap": lambda m, xp, f: m.grad(lambda x, y: xp.sum(m.vmap(f, in_axes=(0, None))(x, y[0]))),
    "vjp": lambda m, xp, f: lambda x, y: m.vjp(f, x, y)[1](xp.cos(x)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("rule", [by_cotangents, by_tangents, argument_by_argument])
def test_fxad_and_jax_take_the_same_rules(rule: Callable[[Any, Any], Any], use: str) -> None:
    have = USES[use](fx, fnp, rule(fx, fnp))(X, Y)
    want = USES[use](jax, jax.numpy, rule(jax, jax.numpy))(X, Y)
    for a, b in zip(fx.tree.leaves(have), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)
