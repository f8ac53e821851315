"""A network that solves the 2-D Helmholtz equation: `operator` in the loss of a least-squares fit.

    python examples/helmholtz.py

The equation u_xx + u_yy + k^2 u = q on the square [-1, 1]^2, with u = 0 on its boundary. The right-hand side is chosen
so that the solution is sin(pi x) sin(2 pi y). The unknown is (1 - x^2)(1 - y^2) times a network, which is zero on the
boundary, so that the residual at points inside is the whole loss.

`fx.operator` applies the differential operator to the network, in one pass with Taylor series; reverse mode through it
gives the gradient of each residual in the parameters. The Gauss-Newton method, damped as by Levenberg and Marquardt,
needs a few dozen steps where gradient descent needs ten thousands.

The picture. Left: the network after the fit. Right: what it differs by from the solution, on a scale of its own.

Source: Raissi, Perdikaris, Karniadakis, Physics-informed neural networks, https://arxiv.org/abs/1711.10561;
        Wang, Teng, Perdikaris, Understanding and mitigating gradient pathologies in physics-informed neural networks,
        https://arxiv.org/abs/2001.04536, for the equation;
        Mueller and Zeinhofer, Achieving high accuracy with PINNs via energy natural gradients,
        https://arxiv.org/abs/2302.13163, for the method.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from pictures import add_option, drawing

import fxad as fx
import fxad.numpy as fnp

WAVE_NUMBER = 1.0
WIDTH = 24
Layer = tuple[fx.Array, fx.Array]
Params = tuple[Layer, Layer, Layer]


def initial(seed: int) -> Params:
    """Return weights and biases of three layers."""
    rng = np.random.default_rng(seed)
    sizes = ((2, WIDTH), (WIDTH, WIDTH), (WIDTH, 1))
    layers = [(fnp.asarray(rng.normal(size=s) / s[0] ** 0.5), fnp.asarray(rng.normal(size=s[1]) / 4)) for s in sizes]
    return layers[0], layers[1], layers[2]


def u(params: Params, x: fx.Array) -> fx.Array:
    """Return the approximate solution at one point."""
    h = x
    for w, b in params[:-1]:
        h = fnp.tanh(h @ w + b)
    w, b = params[-1]
    return fnp.prod(1 - x * x) * (h @ w + b)[0]


def solution(x: fx.Array) -> fx.Array:
    """Return the exact solution at points, [..., 2]."""
    return fnp.sin(np.pi * x[..., 0]) * fnp.sin(2 * np.pi * x[..., 1])


def residual(params: Params, x: fx.Array) -> fx.Array:
    """Return u_xx + u_yy + k^2 u - q at one point."""
    helmholtz = fx.operator(u, {(2, 0): 1.0, (0, 2): 1.0, (0, 0): WAVE_NUMBER**2}, argnums=1)
    return helmholtz(params, x) - (WAVE_NUMBER**2 - 5 * np.pi**2) * solution(x)


def gauss_newton(params: Params, points: fx.Array, damping: fx.Array) -> tuple[Params, fx.Array, fx.Array]:
    """Return the parameters after a step, if the loss is smaller there; the damping of the next step; the loss."""
    flat, unflatten = fx.flatten_util.ravel_pytree(params)

    def at(flat: fx.Array, x: fx.Array) -> fx.Array:
        return residual(unflatten(flat), x)

    errors, jacobian = fx.vmap(fx.value_and_grad(at), (None, 0))(flat, points)
    curvature = jacobian.T @ jacobian + damping * fnp.eye(flat.size, dtype=flat.dtype)
    moved = flat - fnp.linalg.solve(curvature, jacobian.T @ errors)
    before, after = errors @ errors, fnp.sum(fx.vmap(at, (None, 0))(moved, points) ** 2)
    better = after < before
    damping = fnp.where(better, damping / 3, damping * 4)
    return unflatten(fnp.where(better, moved, flat)), damping, fnp.minimum(before, after) / len(points)


def relative_error(params: Params) -> float:
    """Return the L2 error on a grid, relative to the norm of the solution."""
    axis = np.linspace(-1, 1, 101)
    grid = fnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    found, exact = fx.vmap(u, (None, 0))(params, grid), solution(grid)
    return float(fnp.linalg.norm(found - exact) / fnp.linalg.norm(exact))


def plot(file: str, params: Params) -> None:
    """Draws the solution that the network has found, and its error."""
    axis = np.linspace(-1, 1, 101)
    grid = fnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1))
    found = np.asarray(fx.vmap(fx.vmap(u, (None, 0)), (None, 0))(params, grid))
    error = found - np.asarray(solution(grid))
    with drawing(file) as axes:
        for ax, values, title in zip(axes, (found, error), ("the network", "its error"), strict=True):
            size = np.abs(values).max()
            shown = ax.imshow(values, extent=(-1, 1, -1, 1), origin="lower", cmap="RdBu", vmin=-size, vmax=size)
            ax.set(title=title, xlabel="x", ylabel="y")
            ax.figure.colorbar(shown, ax=ax, format="%.2g")


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains, and returns the relative error of the solution, the first loss and the last one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--points", type=int, default=600)
    add_option(parser)
    options = parser.parse_args(argv)

    begun = time.perf_counter()
    points = fnp.asarray(np.random.default_rng(1).uniform(-1, 1, (options.points, 2)))
    params, damping = initial(0), fnp.asarray(np.float64(10.0))
    step = fx.lower(fx.trace(gauss_newton, params, points, damping)).compile()
    print(f"{sum([x.size for x in fx.tree.leaves(params)])} parameters, {options.points} points")
    print("step        loss   relative error   seconds")
    losses: list[float] = []
    for k in range(1, options.steps + 1):
        params, damping, loss = step(params, points, damping)
        losses.append(float(loss))
        if k % 20 == 0 or k == options.steps:
            print(f"{k:4d}   {losses[-1]:9.1e}   {relative_error(params):14.1e}   {time.perf_counter() - begun:7.1f}")
    if options.plot:
        plot(options.plot, params)
    return {"error": relative_error(params), "first": losses[0], "last": losses[-1]}


if __name__ == "__main__":
    main()
