"""Optimal control by an interior-point method, whose Newton steps use one sparse Hessian.

    python examples/optimal_control.py

A cart moves from 0 to 1 in unit time and stands still at both ends. It has a bounded acceleration |a| <= 5 and a drag
that grows with the square of its speed; it is to use little fuel, the integral of a^2. Positions, speeds and
accelerations at all times are the unknowns x, and the dynamics are equations c(x) = 0. The bounds are a logarithmic
barrier with a weight mu that falls to zero. A step of Newton's method for

    L(x, y) = cost(x) - mu sum(log(5 - a) + log(5 + a)) + y . c(x)

is one system with the Hessian of L in (x, y), whose entries stay near to the diagonal of each block.

The picture. Left: the cart accelerates at its bound, then ever less, and brakes at its bound. Right: the entries of the
Hessian that are not zero, a few thousand of two millions.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from pictures import BLUE, GREEN, INK, ORANGE, add_option, drawing

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

BOUND, DRAG = 5.0, 0.3


def parts(x: fx.Array) -> tuple[fx.Array, fx.Array, fx.Array]:
    """Positions and speeds at n + 1 times, and accelerations in the n intervals between."""
    n = (x.shape[0] - 2) // 3
    return x[: n + 1], x[n + 1 : 2 * n + 2], x[2 * n + 2 :]


def defects(x: fx.Array) -> fx.Array:
    """The equations: the dynamics by the midpoint rule, and the four values at the ends."""
    position, speed, a = parts(x)
    h = 1 / a.shape[0]
    middle = (speed[1:] + speed[:-1]) / 2
    ends = fnp.stack([position[0], position[-1] - 1, speed[0], speed[-1]])
    moved = position[1:] - position[:-1] - h * middle
    sped = speed[1:] - speed[:-1] - h * (a - DRAG * middle * abs(middle))
    return fnp.concatenate([moved, sped, ends])


def lagrangian(z: fx.Array, mu: fx.Array) -> fx.Array:
    """The function L of the unknowns and the multipliers, as one vector."""
    n = (z.shape[0] - 6) // 5
    x, y = z[: 3 * n + 2], z[3 * n + 2 :]
    a = parts(x)[2]
    barrier = fnp.sum(fnp.log(BOUND - a) + fnp.log(BOUND + a))
    return fnp.sum(a**2) / n - mu * barrier + y @ defects(x)


def plot(file: str, x: fx.Array, pattern: fx.Pattern) -> None:
    """Draws the motion of the cart, and where the Hessian of L has entries."""
    position, speed, a = map(np.asarray, parts(x))
    time = np.linspace(0, 1, len(position))
    with drawing(file) as (motion, entries):
        for values, at, color, name in (
            (position, time, BLUE, "position"),
            (speed, time, GREEN, "speed"),
            (a, (time[1:] + time[:-1]) / 2, ORANGE, "acceleration"),
        ):
            motion.plot(at, values, color=color, label=name)
        for bound in (-BOUND, BOUND):
            motion.axhline(bound, color=INK, linestyle=":", linewidth=1)
        motion.set(xlabel="time", title=f"the cart, |a| <= {BOUND:g}")
        motion.legend()
        found = pattern.to_scipy().tocoo()
        entries.plot(found.col, found.row, ".", color=BLUE, markersize=0.7, rasterized=True)
        entries.set(aspect="equal", title=f"Hessian of L: {pattern.nnz:,} of {pattern.shape[0]:,}² entries")
        entries.invert_yaxis()


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Solves, and returns cost, violation of the equations, and the largest acceleration."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--intervals", type=int, default=1000)
    add_option(parser)
    options = parser.parse_args(argv)
    n = options.intervals

    time = np.linspace(0, 1, n + 1)
    start = np.concatenate([time, np.ones(n + 1), np.zeros(n), np.zeros(2 * n + 4)])
    z, mu = fnp.asarray(start), fnp.asarray(np.float64(1.0))
    traced = fx.trace(lagrangian, z, mu)
    gradient, hessian = fx.grad(traced), fx.sparse_hessian(traced)

    @fx.jit
    def step(z: fx.Array, mu: fx.Array) -> tuple[fx.Array, fx.Array]:
        direction = lax.sparse_solve(hessian(z, mu), gradient(z, mu))
        a, da = z[2 * n + 2 : 3 * n + 2], direction[2 * n + 2 : 3 * n + 2]
        # the longest step, at most 1, that goes 0.95 of the way to the bounds
        room = fnp.where(da < 0, (BOUND - a) / -da, fnp.where(da > 0, (BOUND + a) / da, fnp.inf))
        z = z - fnp.minimum(1.0, 0.95 * room.min()) * direction
        return z, fnp.abs(gradient(z, mu)).max()

    print("weight    steps   |gradient|   cost       largest acceleration")
    while float(mu) > 1e-9:
        steps, size = 0, fnp.asarray(np.inf)
        while float(size) > max(1e-8, float(mu)) and steps < 30:
            z, size = step(z, mu)
            steps += 1
        a = np.asarray(parts(z[: 3 * n + 2])[2])
        print(f"{float(mu):.1e}   {steps:5d}   {float(size):10.1e}   {np.mean(a**2):.6f}   {np.abs(a).max():.6f}")
        mu = mu * 0.2
    x = z[: 3 * n + 2]
    if options.plot:
        plot(options.plot, x, fx.sparsity(gradient))
    a = np.asarray(parts(x)[2])
    violation = float(fnp.abs(defects(x)).max())
    return {"cost": float(np.mean(a**2)), "violation": violation, "largest": float(np.abs(a).max())}


if __name__ == "__main__":
    main()
