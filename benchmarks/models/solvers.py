"""Small iterative solvers in `while_loop`: systems of 2 to 10 unknowns, as in optimisation and ODE packages.

A step computes residuals, a Jacobian by forward mode, and the solution of a small system, and accepts or rejects the
step. `while_loop` has no reverse mode, so these models are only run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.lax
import fxad.numpy as fnp

# a function from a library, its modules `numpy` and `lax`, to a function of two operands
Solver: TypeAlias = Callable[..., Callable[[Any, Any], Any]]

TABLEAU: Final = (  # Dormand and Prince, 5(4): the nodes, and the weights of each stage
    (0.2, (0.2,)),
    (0.3, (3 / 40, 9 / 40)),
    (0.8, (44 / 45, -56 / 15, 32 / 9)),
    (8 / 9, (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)),
    (1.0, (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)),
    (1.0, (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)),
)
ERROR: Final = (
    71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40,
)  # fmt: skip


def _exponentials(np_: Any, p: Any, t: Any) -> Any:
    """Sums of decaying exponentials: amplitudes and rates by turns."""
    return np_.sum(p[0::2, None] * np_.exp(-(p[1::2, None] ** 2) * t), axis=0)


def levenberg_marquardt(lib: Any, np_: Any, lax: Any, steps: int = 50) -> Callable[[Any, Any], Any]:
    """A fit of exponentials to 64 points, damped by the diagonal of the normal equations."""

    def fit(p: Any, y: Any) -> Any:
        t = np_.linspace(0.0, 4.0, 64)

        def residual(p: Any) -> Any:
            return _exponentials(np_, p, t) - y

        def step(state: Any) -> Any:
            k, p, damping, cost = state
            r, jacobian = residual(p), lib.jacfwd(residual)(p)
            normal, gradient = jacobian.T @ jacobian, jacobian.T @ r
            delta = np_.linalg.solve(normal + damping * np_.diag(np_.diag(normal) + 1e-6), gradient)
            after = 0.5 * np_.sum(residual(p - delta) ** 2)
            better = after < cost
            damping = np_.where(better, damping * 0.3, damping * 2.0)
            return k + 1, np_.where(better, p - delta, p), damping, np_.where(better, after, cost)

        start = (np_.asarray(0, "int32"), p, np_.asarray(1.0, "float32"), 0.5 * np_.sum(residual(p) ** 2))
        return lax.while_loop(lambda s: (s[0] < steps) & (s[2] > 1e-30), step, start)[1]

    return fit


def newton(lib: Any, np_: Any, lax: Any, steps: int = 50) -> Callable[[Any, Any], Any]:
    """A root of `a @ tanh(x) + x - b`. Steps are halved, so that all are accepted."""

    def root(a: Any, b: Any) -> Any:
        def f(x: Any) -> Any:
            return a @ np_.tanh(x) + x - b

        def step(state: Any) -> Any:
            k, x, _ = state
            value, jacobian = f(x), lib.jacfwd(f)(x)
            x = x - 0.5 * np_.linalg.solve(jacobian, value)
            return k + 1, x, np_.max(np_.abs(value))

        start = (np_.asarray(0, "int32"), np_.zeros_like(b), np_.asarray(1.0, "float32"))
        return lax.while_loop(lambda s: (s[0] < steps) & (s[2] > 0), step, start)[1]

    return root


def runge_kutta(_lib: Any, np_: Any, lax: Any, end: float = 8.0) -> Callable[[Any, Any], Any]:
    """Coupled oscillators by Dormand-Prince steps whose size follows the error."""

    def integrate(y: Any, w: Any) -> Any:
        def f(t: Any, y: Any) -> Any:
            return np_.tanh(w @ y) - y * np_.cos(3.0 * t)

        def step(state: Any) -> Any:
            t, y, h, first = state
            slopes = [first]
            for node, row in TABLEAU:
                slopes.append(f(t + node * h, y + h * sum([c * k for c, k in zip(row, slopes, strict=True) if c])))
            row = TABLEAU[-1][1]
            after = y + h * sum([c * k for c, k in zip(row, slopes, strict=False) if c])
            error = h * sum([c * k for c, k in zip(ERROR, slopes, strict=True) if c])
            ratio = np_.sqrt(np_.mean((error / (1e-6 + 1e-5 * np_.maximum(np_.abs(y), np_.abs(after)))) ** 2))
            taken = ratio <= 1.0
            factor = np_.clip(0.9 * np_.maximum(ratio, 1e-10) ** -0.2, 0.2, 10.0)
            return (
                np_.where(taken, t + h, t),
                np_.where(taken, after, y),
                np_.minimum(h * factor, 0.05),
                np_.where(taken, slopes[-1], first),
            )

        start = (np_.asarray(0.0, "float32"), y, np_.asarray(0.01, "float32"), f(0.0, y))
        return lax.while_loop(lambda s: s[0] < end, step, start)[1]

    return integrate


@dataclass(frozen=True, slots=True)
class Problem:
    """A solver, the operands of a problem, and its solution."""

    name: str
    make: Solver
    operands: tuple[Any, Any]


def problems() -> list[Problem]:
    """Problems of 2, 4 and 10 unknowns."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    t = np.linspace(0, 4, 64, dtype=np.float32)
    out = []
    for n in (2, 4, 10):
        p = np.abs(drawn(n)) + 0.5
        fit = (p + 0.3 * drawn(n), _exponentials(np, p, t) + 0.01 * drawn(64))
        out.append(Problem(f"Levenberg-Marquardt, {n} unknowns", levenberg_marquardt, fit))
        out.append(Problem(f"Newton, {n} unknowns", newton, (0.3 * drawn(n, n), drawn(n))))
        out.append(Problem(f"Runge-Kutta, {n} unknowns", runge_kutta, (drawn(n), drawn(n, n))))
    return out


OURS: Final = (fx, fnp, fxad.lax)
THEIRS: Final = (jax, jnp, jax.lax)
