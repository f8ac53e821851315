"""Estimates masses of planets from their positions: an N-body model fitted through `lax.scan`.

    python examples/orbits.py

A star and three heavy planets are simulated by leapfrog, and observed every few weeks with small errors. The
Gauss-Newton method recovers masses and velocities from the observations, with error bars. Its Jacobian is forward mode
through the loop over 2,400 steps (`jacfwd`). Reverse mode through the same loop gives the same gradient; this script
prints what it stores, with and without `remat`.

The fitted steps are those that made the observations: this tests the derivatives, not the integrator. The energy shows
the accuracy of the integrator.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, random

# Astronomical units, years, solar masses: the earth would have a period of one year.
GRAVITY = 4 * np.pi**2
MASS = (1.0, 0.010, 0.030, 0.015)
RADIUS = (0.0, 1.0, 1.9, 3.3)
ANGLE = (0.0, 0.4, 2.6, 4.4)
TILT = (0.0, 0.05, -0.02, 0.08)

STEP = 1 / 200  # years
SEEN = 120  # times
BETWEEN = 20  # steps between two observations
NOISE = 1e-4  # au: standard deviation of each observed coordinate
BODIES = len(MASS)
# Standard deviations of the prior guess: log masses, velocities.
GUESS = np.array([0.1, *[0.5] * (BODIES - 1), *[0.05] * 3 * BODIES])


@fx.tree.dataclass
class System:
    """Masses [n], positions and velocities [n, 3] of bodies."""

    mass: fx.Array
    position: fx.Array
    velocity: fx.Array


@fx.tree.dataclass
class Evidence:
    """The data: the prior guess, initial positions, and the observations `until` a time."""

    guess: fx.Array
    position: fx.Array
    seen: fx.Array
    until: fx.Array


def planets() -> System:
    """Return the true system: planets on tilted circles, with the star at rest."""
    radius, angle, tilt, mass = [np.array(x) for x in (RADIUS, ANGLE, TILT, MASS)]
    out = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    along = np.stack([-np.sin(angle) * np.cos(tilt), np.cos(angle) * np.cos(tilt), np.sin(tilt)], axis=1)
    speed = np.sqrt(GRAVITY * mass[0] / np.maximum(radius, 0.5)) * (radius > 0)
    return System(*[fnp.asarray(x) for x in (mass, out * radius[:, None], along * speed[:, None])])


def acceleration(mass: fx.Array, position: fx.Array) -> fx.Array:
    """Newton's law: the sum over all other bodies."""
    apart = position[None] - position[:, None]
    # a distance of 1 instead of 0 to itself, so that the power has a derivative
    squared = fnp.sum(apart * apart, axis=-1) + fnp.eye(BODIES, dtype=np.float64)
    return GRAVITY * fnp.einsum("j,ijk,ij->ik", mass, apart, squared**-1.5)


def leapfrog(_: fx.Array, s: System) -> System:
    """Half a kick, a drift, half a kick: second order, and symplectic."""
    velocity = s.velocity + STEP / 2 * acceleration(s.mass, s.position)
    position = s.position + STEP * velocity
    return System(s.mass, position, velocity + STEP / 2 * acceleration(s.mass, position))


def interval(s: System, _: None) -> tuple[System, System]:
    """Simulate from one observation to the next."""
    s = lax.fori_loop(0, BETWEEN, leapfrog, s)
    return s, s


def simulate(start: System, *, lean: bool = False) -> System:
    """Return the system at each observation. With `lean`, reverse mode recomputes each interval."""
    return lax.scan(fx.remat(interval) if lean else interval, start, length=SEEN)[1]


def energy(s: System) -> fx.Array:
    """Kinetic and potential energy of all bodies."""
    apart = s.position[None] - s.position[:, None]
    distance = fnp.sqrt(fnp.sum(apart * apart, axis=-1) + fnp.eye(BODIES, dtype=np.float64))
    pairs = fnp.triu(s.mass[:, None] * s.mass / distance, 1)
    return fnp.sum(s.mass[:, None] * s.velocity**2) / 2 - GRAVITY * fnp.sum(pairs)


def unknowns(s: System) -> fx.Array:
    """Return the unknowns as a vector: logarithms of the masses, which keep them positive, and velocities."""
    return fnp.concat([fnp.log(s.mass), s.velocity.ravel()])


def residuals(x: fx.Array, known: Evidence, *, lean: bool = False) -> fx.Array:
    """Return the residuals of unknowns `x` in standard deviations: of the prior guess, and of the observations."""
    start = System(fnp.exp(x[:BODIES]), known.position, x[BODIES:].reshape(BODIES, 3))
    apart = (simulate(start, lean=lean).position - known.seen) / NOISE
    apart = fnp.where(fnp.arange(SEEN)[:, None, None] < known.until, apart, 0)
    return fnp.concat([(x - known.guess) / GUESS, apart.ravel()])


def misfit(x: fx.Array, known: Evidence, *, lean: bool = False) -> fx.Array:
    """Half the sum of squares."""
    r = residuals(x, known, lean=lean)
    return r @ r / 2


def newton(x: fx.Array, known: Evidence, damping: fx.Array) -> tuple[fx.Array, fx.Array, fx.Array]:
    """Return a Gauss-Newton step, damped as by Levenberg and Marquardt. Return the gradient and the curvature at `x`
    too."""
    jacobian = fx.jacfwd(residuals)(x, known)
    gradient, curvature = jacobian.T @ residuals(x, known), jacobian.T @ jacobian
    damped = curvature + damping * fnp.diag(fnp.diagonal(curvature))
    return x - fnp.linalg.solve(damped, gradient), gradient, curvature


def milliseconds(gradient: Callable[[fx.Array, Evidence], fx.Array], x: fx.Array, known: Evidence) -> float:
    """Return the time of a call, the least of five."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        np.asarray(gradient(x, known))
        taken.append(time.perf_counter() - start)
    return 1000 * min(taken)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Simulate, observes and fits, and returns the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    start = time.perf_counter()

    true = planets()
    at_noise, at_guess = random.split(random.key(options.seed))
    orbits = fx.jit(simulate)(true)
    energies = np.asarray(fx.jit(fx.vmap(energy))(orbits))
    drift = float(np.ptp(energies) / np.abs(energies[0]))
    years = SEEN * BETWEEN * STEP
    print(f"{BODIES} bodies, {SEEN * BETWEEN:,} steps, {years:.0f} years; energy constant to {drift:.1e}")

    seen = orbits.position + NOISE * random.normal(at_noise, orbits.position.shape, np.float64)
    truth = unknowns(true)
    x = guess = truth + GUESS * random.normal(at_guess, truth.shape, np.float64)
    known = Evidence(guess, true.position, seen, fnp.asarray(SEEN))

    value, step = fx.jit(misfit), fx.jit(newton)
    gradients = [fx.jit(fx.grad(fx.trace(partial(misfit, lean=lean), x, known))) for lean in (False, True)]
    kib = [run.memory().temp_bytes / 1024 for run in gradients]
    for name, run, size in zip(("without", "with"), gradients, kib, strict=True):
        taken = milliseconds(run, x, known)
        print(f"gradient {name} remat of each interval: {size:,.0f} KiB of temporaries, {taken:.0f} ms")

    # Far from the solution, the misfit of many revolutions has many minima: start with a few observations, then add
    # more.
    print("times   steps   misfit of each coordinate (expected: 1)")
    now = np.inf
    for until in (3, 6, 12, 24, 60, SEEN):
        part = replace(known, until=fnp.asarray(until))
        now, damping, steps, gain = float(value(x, part)), 1e-3, 0, 1.0
        while gain > 1e-6 and steps < 30:
            moved = step(x, part, fnp.asarray(damping))[0]
            then, steps = float(value(moved, part)), steps + 1
            if then < now:
                x, gain, now, damping = moved, 1 - then / now, then, damping / 10
            else:
                damping *= 10
        print(f"{until:5d}   {steps:5d}   {2 * now / (until * BODIES * 3):.3f}")

    _, forward, curvature = step(x, known, fnp.asarray(0.0))
    reverse = [np.asarray(run(x, known)) for run in gradients]
    off = np.asarray(x - truth)
    bars = np.sqrt(np.diag(np.linalg.inv(np.asarray(curvature))))
    print("mass in suns   found      error bar  off by, in error bars")
    for k in range(BODIES):
        mass = float(np.exp(x[k]))
        print(f"{MASS[k]:<12}   {mass:<8.6f}   {mass * bars[k]:.6f}   {off[k] / bars[k]:+.1f}")
    distance = float(off @ np.asarray(curvature) @ off)
    print(f"all {len(off)} unknowns: chi squared {distance:.1f}, expected {len(off)} +- {(2 * len(off)) ** 0.5:.0f}")
    scale = np.sqrt(np.diag(np.asarray(curvature)))  # the expected size of each component of the gradient
    between = max(float(np.max(np.abs(g - np.asarray(forward)) / scale)) for g in reverse)
    print(f"forward and reverse mode differ by {between:.1e} of the gradient's standard deviation")
    print(f"{time.perf_counter() - start:.1f} s in all")
    return {
        "drift": drift,
        "misfit": 2 * now / (SEEN * BODIES * 3),
        "chi squared": distance,
        "worst": float(np.max(np.abs(off[:BODIES]))),
        "between modes": between,
        "plain": kib[0],
        "remat": kib[1],
    }


if __name__ == "__main__":
    main()
