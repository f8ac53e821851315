"""The ground state of helium by variational Monte Carlo, with a small network as wave function.

    python examples/helium.py

For a wave function psi, the mean of the local energy (H psi) / psi over |psi|^2 is at least the energy of the ground
state, -2.9037 Hartree. With f = log|psi|, the local energy is

    -(laplacian of f + |gradient of f|^2) / 2 - 2 / r_1 - 2 / r_2 + 1 / r_12.

`value_and_laplacian` gives the second derivatives in the six coordinates. Walkers are drawn from |psi|^2 by the method
of Metropolis, and the parameters follow the natural gradient of the mean energy (stochastic reconfiguration).

The wave function has the cusps of the exact one where two particles meet: f = -2 r_1 - 2 r_2 + r_12 / (2 + 2 r_12) plus
a network of smooth functions of the distances, which is symmetric in the electrons.

Source: Kato, On the eigenfunctions of many-particle systems in quantum mechanics, 1957, for the cusps;
        Sorella, Generalized Lanczos algorithm for variational quantum Monte Carlo, 2001, for the natural gradient;
        Pekeris, Ground state of two-electron atoms, Physical Review 112, 1958, for the energy: -2.903724.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, random

EXACT = -2.903724
WIDTH = 16
MOVE = 0.3  # the standard deviation of a proposed move, in Bohr
DAMPING = 1e-3
LARGEST = 5.0  # local energies further than this from the mean count as that far in gradients
Params = tuple[fx.Array, fx.Array, fx.Array]


def initial(seed: int) -> Params:
    """Return the weights of the network, of which the last are zero."""
    rng = np.random.default_rng(seed)
    inner = rng.normal(size=(3, WIDTH)), rng.normal(size=WIDTH)
    return fnp.asarray(inner[0]), fnp.asarray(inner[1]), fnp.zeros(WIDTH, np.float64)


def log_psi(params: Params, x: fx.Array) -> fx.Array:
    """Return the logarithm of the wave function at the positions of both electrons, [2, 3]."""
    first, bias, last = params
    r1, r2 = fnp.sqrt(fnp.sum(x * x, axis=1))
    apart = fnp.sqrt(fnp.sum((x[0] - x[1]) ** 2))
    # r^2 / (1 + r) has no cusp
    a, b, c = [r * r / (1 + r) for r in (r1, r2, apart)]
    hidden = fnp.tanh(fnp.stack([a + b, (a - b) ** 2, c]) @ first + bias)
    return -2 * (r1 + r2) + apart / (2 + 2 * apart) + hidden @ last


def local_energy(params: Params, x: fx.Array) -> fx.Array:
    """Return (H psi) / psi at the positions of both electrons."""
    slope = fx.grad(log_psi, 1)(params, x)
    curvature = fx.laplacian(log_psi, 1)(params, x)
    r1, r2 = fnp.sqrt(fnp.sum(x * x, axis=1))
    potential = -2 / r1 - 2 / r2 + 1 / fnp.sqrt(fnp.sum((x[0] - x[1]) ** 2))
    return -0.5 * (curvature + fnp.sum(slope * slope)) + potential


def walk(params: Params, walkers: fx.Array, key: fx.Array, moves: int) -> fx.Array:
    """Return the walkers after some moves, each accepted with the probability of Metropolis."""
    density = fx.vmap(lambda x: 2 * log_psi(params, x))

    def move(state: tuple[fx.Array, fx.Array], key: fx.Array) -> tuple[tuple[fx.Array, fx.Array], None]:
        x, log_density = state
        at_move, at_accept = random.split(key)
        proposed = x + MOVE * random.normal(at_move, x.shape, x.dtype)
        log_proposed = density(proposed)
        uniform = random.uniform(at_accept, log_density.shape, x.dtype)
        accepted = fnp.log(uniform) < log_proposed - log_density
        x = fnp.where(accepted[:, None, None], proposed, x)
        return (x, fnp.where(accepted, log_proposed, log_density)), None

    (walkers, _), _ = lax.scan(move, (walkers, density(walkers)), random.split(key, moves))
    return walkers


def improve(params: Params, walkers: fx.Array, key: fx.Array) -> tuple[Params, fx.Array, fx.Array]:
    """Return parameters after a step along the natural gradient, the walkers, and the mean of the local energy."""
    walkers = walk(params, walkers, key, 20)
    energies = fx.vmap(local_energy, (None, 0))(params, walkers)
    flat, unflatten = fx.flatten_util.ravel_pytree(params)
    slopes = fx.vmap(fx.grad(lambda flat, x: log_psi(unflatten(flat), x)), (None, 0))(flat, walkers)
    slopes = slopes - fnp.mean(slopes, axis=0)
    mean = fnp.mean(energies)
    off = fnp.clip(energies - mean, -LARGEST, LARGEST)
    count = walkers.shape[0]
    metric = slopes.T @ slopes / count + DAMPING * fnp.eye(flat.size, dtype=flat.dtype)
    flat = flat - 0.2 * fnp.linalg.solve(metric, 2 * slopes.T @ off / count)
    return unflatten(flat), walkers, mean


def measure(params: Params, walkers: fx.Array, key: fx.Array, rounds: int) -> tuple[fx.Array, fx.Array]:
    """Return the mean and the variance of the local energy in each round."""

    def one(walkers: fx.Array, key: fx.Array) -> tuple[fx.Array, tuple[fx.Array, fx.Array]]:
        walkers = walk(params, walkers, key, 10)
        energies = fx.vmap(local_energy, (None, 0))(params, walkers)
        return walkers, (fnp.mean(energies), fnp.var(energies))

    return lax.scan(one, walkers, random.split(key, rounds))[1]


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Optimises and measures; returns the energy, its standard error, and the variance of the local energy."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--walkers", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args(argv)

    begun = time.perf_counter()
    at_start, at_steps, at_end = random.split(random.key(0), 3)
    params, walkers = initial(0), random.normal(at_start, (options.walkers, 2, 3), np.float64)
    step = fx.lower(fx.trace(improve, params, walkers, at_steps)).compile()
    print("step   mean of the local energy   seconds")
    for k, key in enumerate(random.split(at_steps, options.steps)):
        params, walkers, mean = step(params, walkers, key)
        if k % 25 == 0 or k == options.steps - 1:
            print(f"{k:4d}   {float(mean):24.4f}   {time.perf_counter() - begun:7.1f}")
    means, variances = fx.jit(lambda p, w, k: measure(p, w, k, options.rounds))(params, walkers, at_end)
    energy = float(fnp.mean(means))
    # rounds follow each other: blocks of ten are nearly independent
    blocks = np.asarray(means)[: len(means) // 10 * 10].reshape(-1, 10).mean(1)
    error = float(blocks.std(ddof=1) / np.sqrt(len(blocks)))
    variance = float(fnp.mean(variances))
    print(
        f"energy {energy:.5f} +- {error:.5f} Hartree, {energy - EXACT:+.5f} from the exact one; variance {variance:.4f}"
    )
    print(f"{time.perf_counter() - begun:.1f} seconds")
    return {"energy": energy, "error": error, "variance": variance}


if __name__ == "__main__":
    main()
