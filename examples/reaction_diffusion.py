"""Implicit Euler steps of a reaction-diffusion equation, with a sparse Jacobian.

    python examples/reaction_diffusion.py

The Allen-Cahn equation u_t = D (u_xx + u_yy) + u - u^3 separates into regions of u = 1 and u = -1. On a grid of 256 x
256 a step solves 65,536 equations. Their Jacobian has 4.3e9 elements, and 327,680 of them are not zero. The pattern is
read from the program, a few products with the Jacobian give all elements, and Newton's method solves sparse systems.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

DIFFUSION, STEP = 1e-3, 0.8


def residual(u: fx.Array, before: fx.Array) -> fx.Array:
    """The defect of an implicit Euler step on the periodic unit square, for the new values as a vector."""
    n = int(np.sqrt(u.shape[0]))
    grid = u.reshape(n, n)
    neighbours = sum([fnp.roll(grid, shift, axis) for shift in (1, -1) for axis in (0, 1)])
    change = DIFFUSION * n**2 * (neighbours - 4 * grid) + grid - grid**3
    return u - before - STEP * change.reshape(-1)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Steps, and returns the figures: products for a Jacobian, Newton steps, residual, largest value."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args(argv)
    size = options.size

    u = fnp.asarray(0.1 * np.random.default_rng(0).normal(size=size * size))
    traced = fx.trace(residual, u, u)
    pattern = fx.sparsity(traced)
    products = pattern.color().products
    print(f"{size} x {size} points; {pattern.nnz:,} of {size**4:,} elements, by {products} products")
    jacobian = fx.sparse_jacobian(traced)

    @fx.jit
    def step(before: fx.Array) -> tuple[fx.Array, lax.Convergence]:
        f = lambda u: residual(u, before)  # noqa: E731
        return lax.newton(f, before, lambda u: jacobian(u, before), tol=1e-9)

    print("step   Newton steps   |residual|   share |u| > 0.5   seconds")
    report = None
    for k in range(options.steps):
        start = time.perf_counter()
        u, report = step(u)
        settled = float(np.mean(np.abs(np.asarray(u)) > 0.5))
        seconds = time.perf_counter() - start
        norm = float(report.residual_norm)
        print(f"{k:4d}   {int(report.iterations):12d}   {norm:10.1e}   {settled:15.1%}   {seconds:7.2f}")
    assert report is not None
    figures = {"products": products, "nnz": pattern.nnz, "Newton steps": int(report.iterations)}
    return figures | {"residual": float(report.residual_norm), "largest": float(np.abs(np.asarray(u)).max())}


if __name__ == "__main__":
    main()
