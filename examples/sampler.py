"""Eight schools, sampled by Hamiltonian Monte Carlo with `grad`, `scan` and `vmap`.

    python examples/sampler.py

Eight schools coached their pupils for a test; each reports an effect and its standard error. How large was the effect
of coaching at each, if schools are similar? The model is hierarchical:

    effect_j ~ Normal(mu, tau),  reported_j ~ Normal(effect_j, error_j),  mu ~ Normal(0, 5),  tau ~ HalfCauchy(0, 5)

The sampler needs only the logarithm of the density, up to a constant: a function of any tree of arrays, which `grad`
differentiates. A chain is a `scan` over keys, chains are `vmap` over keys, and the whole sampler, with the adaptation
of the step size, is one compiled program. Given tau the model is Gaussian, so posterior means can be computed by
numerical integration over tau alone. The script compares the sampler with these.

Source: Rubin, Estimation in parallel randomized experiments, 1981; Gelman et al., Bayesian Data Analysis, 5.5;
        Hoffman and Gelman, The No-U-Turn Sampler, https://arxiv.org/abs/1111.4246, for the step size;
        Gelman et al. and Geyer for convergence, as in https://mc-stan.org/docs/reference-manual/analysis.html
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, random

REPORTED = np.array([28, 8, -3, 7, -1, 1, 18, 12], np.float32)
ERROR = np.array([15, 10, 16, 11, 9, 11, 10, 18], np.float32)
PRIOR = 5.0  # scale of mu and tau

LEAPS = 12  # steps of a trajectory
ACCEPT = 0.85  # the acceptance rate that the step size is adapted to

T = TypeVar("T")
Density = Callable[[T], fx.Array]  # logarithm of the density, up to a constant
# State, accumulated error of the acceptance rate, averaged logarithm of the step size.
Warming = tuple[T, fx.Array, fx.Array]


@fx.tree.dataclass
class Schools:
    """The sampled variables. All have a scale of about 1, so that one step size fits all."""

    mean: fx.Array  # mu = PRIOR * mean
    log_spread: fx.Array  # tau = PRIOR * exp(log_spread)
    offsets: fx.Array  # effects = mu + tau * offsets


def effects(s: Schools) -> fx.Array:
    """Return mu, tau and the eight effects of a sample."""
    mu, tau = PRIOR * s.mean, PRIOR * fnp.exp(s.log_spread)
    return fnp.concat([fnp.stack([mu, tau]), mu + tau * s.offsets])


def log_posterior(s: Schools) -> fx.Array:
    """Log density of the sampled variables, given the reports."""
    apart = (REPORTED - effects(s)[2:]) / ERROR
    prior = -0.5 * (s.mean**2 + fnp.sum(s.offsets**2)) - fnp.log1p(fnp.exp(2 * s.log_spread)) + s.log_spread
    return prior - 0.5 * fnp.sum(apart**2)


def normal_like(key: fx.Array, x: T) -> T:
    """Return standard normal numbers in the shape of a tree."""
    leaves = fx.tree.leaves(x)
    keys = random.split(key, len(leaves))
    drawn = [random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    tree: T = fx.tree.unflatten(fx.tree.structure(x), drawn)
    return tree


def transition(density: Density[T], x: T, size: fx.Array, key: fx.Array) -> tuple[T, fx.Array]:
    """One trajectory of leapfrog steps, accepted or rejected. Returns the next state and the acceptance probability."""
    at_momentum, at_size, at_accept = random.split(key, 3)
    # the length varies, so that no trajectory is a whole period
    size = size * random.uniform(at_size, (), minval=0.8, maxval=1.2)

    def kick(x: T, p: T, size: fx.Array) -> T:
        return fx.tree.map(lambda a, slope: a + size * slope, p, fx.grad(density)(x))

    def leap(_: fx.Array, state: tuple[T, T]) -> tuple[T, T]:
        x, p = state
        x = fx.tree.map(lambda a, b: a + size * b, x, p)
        return x, kick(x, p, size)

    def energy(x: T, p: T) -> fx.Array:
        return 0.5 * sum([fnp.sum(a * a) for a in fx.tree.leaves(p)], fnp.asarray(0.0)) - density(x)

    p = normal_like(at_momentum, x)
    y, q = lax.fori_loop(0, LEAPS, leap, (x, kick(x, p, size / 2)))
    q = kick(y, q, -size / 2)  # the last kick was twice too long
    gain = energy(x, p) - energy(y, q)
    gain = fnp.where(fnp.isnan(gain), -fnp.inf, gain)
    accepted = fnp.log(random.uniform(at_accept)) < gain
    return fx.tree.map(lambda a, b: fnp.where(accepted, b, a), x, y), fnp.minimum(1, fnp.exp(gain))


def adapt(density: Density[T], x: T, keys: fx.Array) -> tuple[T, fx.Array]:
    """Warm-up: transitions, and dual averaging of the step size."""

    def step(state: Warming[T], at: tuple[fx.Array, fx.Array]) -> tuple[Warming[T], None]:
        x, short, averaged = state
        k, key = at
        log_size = -fnp.sqrt(k) / 0.05 * short  # the first is 1
        x, probability = transition(density, x, fnp.exp(log_size), key)
        short = short + (ACCEPT - probability - short) / (k + 10)
        weight = k**-0.75
        return (x, short, weight * log_size + (1 - weight) * averaged), None

    zero = fnp.asarray(0.0)
    steps = fnp.arange(1, len(keys) + 1, dtype=np.float32)
    (x, _, averaged), _ = lax.scan(step, (x, zero, zero), (steps, keys))
    return x, fnp.exp(averaged)


def chain(density: Density[T], like: T, key: fx.Array, *, warm_up: int, draws: int) -> tuple[T, fx.Array]:
    """Return a chain of trees like `like`. Return draws along axis 0 of each leaf, and the acceptance probability of
    each."""
    at_start, at_warm_up, at_draws = random.split(key, 3)
    x, size = adapt(density, normal_like(at_start, like), random.split(at_warm_up, warm_up))

    def step(x: T, key: fx.Array) -> tuple[T, tuple[T, fx.Array]]:
        x, probability = transition(density, x, size, key)
        return x, (x, probability)

    return lax.scan(step, x, random.split(at_draws, draws))[1]


def diagnose(draws: fx.Array) -> tuple[fx.Array, fx.Array, fx.Array]:
    """Return means of draws [chain, draw, quantity], effective sample sizes, and split R-hat."""
    chains, n, quantities = draws.shape
    halves = draws[:, : n // 2 * 2].reshape(2 * chains, n // 2, quantities)
    m, n = halves.shape[:2]
    within = fnp.mean(fnp.var(halves, axis=1, correction=1), axis=0)
    total = (n - 1) / n * within + fnp.var(fnp.mean(halves, axis=1), axis=0, correction=1)
    spectrum = fnp.fft.rfft(halves - fnp.mean(halves, axis=1, keepdims=True), 2 * n, axis=1)
    covariance = fnp.mean(fnp.fft.irfft(fnp.abs(spectrum) ** 2, 2 * n, axis=1)[:, :n], axis=0) / n
    correlation = 1 - (within - covariance) / total
    # Geyer: sums of neighbouring autocorrelations are positive and decrease; after the first violation all is noise
    pairs = correlation[0 : n // 2 * 2 : 2] + correlation[1 : n // 2 * 2 : 2]
    pairs = fnp.where(lax.cummin(pairs) > 0, lax.cummin(pairs), 0)
    size = m * n / (2 * fnp.sum(pairs, axis=0) - 1)
    return fnp.mean(draws, axis=(0, 1)), size, fnp.sqrt(total / within)


def exact() -> npt.NDArray[np.float64]:
    """Posterior means of `effects`, by integration over log tau: given tau, the rest is Gaussian."""
    log_tau = np.linspace(-12, 7, 20_001)[:, None]
    tau2, error2, y = np.exp(2 * log_tau), ERROR.astype(np.float64) ** 2, REPORTED.astype(np.float64)
    precision = 1 / (error2 + tau2)
    of_mu = PRIOR**-2 + precision.sum(axis=1)
    mu = (y * precision).sum(axis=1) / of_mu
    log_p = -np.log1p(tau2[:, 0] / PRIOR**2) + log_tau[:, 0] - 0.5 * np.log(of_mu) + 0.5 * mu**2 * of_mu
    log_p += 0.5 * np.sum(np.log(precision) - y**2 * precision, axis=1)
    weight = np.exp(log_p - log_p.max())
    given_tau = np.column_stack([mu, np.exp(log_tau), (tau2 * y + error2 * mu[:, None]) * precision])
    means: npt.NDArray[np.float64] = weight @ given_tau / weight.sum()
    return means


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Sample and compare; returns the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    start = time.perf_counter()

    like = Schools(fnp.asarray(0.0), fnp.asarray(0.0), fnp.zeros(len(REPORTED)))

    def run(key: fx.Array) -> tuple[fx.Array, fx.Array]:
        draws, probability = chain(log_posterior, like, key, warm_up=options.warm_up, draws=options.draws)
        return fx.vmap(effects)(draws), fnp.mean(probability)

    keys = random.split(random.key(options.seed), options.chains)
    sample = fx.jit(fx.trace(fx.vmap(run), keys))
    kib = sample.memory().temp_bytes / 1024
    compiled = time.perf_counter()
    draws, probability = sample(keys)
    mean, size, r_hat = [np.asarray(x, np.float64) for x in fx.jit(diagnose)(draws)]
    error = np.std(np.asarray(draws, np.float64), axis=(0, 1)) / np.sqrt(size)
    print(f"{options.chains} chains of {options.draws} draws after {options.warm_up}; {kib:,.0f} KiB of temporaries")
    print(f"mean acceptance {float(fnp.mean(probability)):.2f}; aimed at {ACCEPT}")

    print("             mean   exact   off by, in standard errors   worth draws   R-hat")
    right = exact()
    for k, name in enumerate(["mu", "tau", *[f"effect {j}" for j in range(1, 9)]]):
        off = (mean[k] - right[k]) / error[k]
        print(f"{name:10} {mean[k]:6.2f}  {right[k]:6.2f}   {off:+26.1f}   {size[k]:11,.0f}   {r_hat[k]:.3f}")
    print(f"compiled after {compiled - start:.1f} s, {time.perf_counter() - start:.1f} s in all")
    return {
        "off": float(np.max(np.abs(mean - right) / error)),
        "size": float(size.min()),
        "r_hat": float(r_hat.max()),
        "mu": float(mean[0]),
        "tau": float(mean[1]),
    }


if __name__ == "__main__":
    main()
