"""Draws have the distribution that their function states.

Each test is a Kolmogorov-Smirnov or chi-square test of one fixed draw, so it passes always or never. Its threshold is p
> 1e-4: for a key chosen blindly, correct samplers fail one of the 40 tests with a probability of 0.4%.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fxad import Array, random

stats = pytest.importorskip("scipy.stats")

LEAST = 1e-4
COUNT = 5000
KEY = random.key(2026)

CONTINUOUS: dict[str, tuple[Callable[[], Array], Any]] = {
    "uniform": (lambda: random.uniform(KEY, (COUNT,), minval=-1.0, maxval=3.0), stats.uniform(-1, 4)),
    "normal": (lambda: random.normal(KEY, (COUNT,)), stats.norm()),
    "normal-f64": (lambda: random.normal(KEY, (COUNT,), "float64"), stats.norm()),
    "truncated_normal": (lambda: random.truncated_normal(KEY, -1.0, 2.0, (COUNT,)), stats.truncnorm(-1, 2)),
    "lognormal": (lambda: random.lognormal(KEY, 0.5, (COUNT,)), stats.lognorm(0.5)),
    "maxwell": (lambda: random.maxwell(KEY, (COUNT,)), stats.maxwell()),
    "wald": (lambda: random.wald(KEY, 2.0, (COUNT,)), stats.invgauss(2)),
    "exponential": (lambda: random.exponential(KEY, (COUNT,)), stats.expon()),
    "gumbel": (lambda: random.gumbel(KEY, (COUNT,)), stats.gumbel_r()),
    "gumbel-high": (lambda: random.gumbel(KEY, (COUNT,), mode="high"), stats.gumbel_r()),
    "laplace": (lambda: random.laplace(KEY, (COUNT,)), stats.laplace()),
    "logistic": (lambda: random.logistic(KEY, (COUNT,)), stats.logistic()),
    "cauchy": (lambda: random.cauchy(KEY, (COUNT,)), stats.cauchy()),
    "pareto": (lambda: random.pareto(KEY, 2.5, (COUNT,)), stats.pareto(2.5)),
    "rayleigh": (lambda: random.rayleigh(KEY, 2.0, (COUNT,)), stats.rayleigh(scale=2)),
    "weibull_min": (lambda: random.weibull_min(KEY, 2.0, 1.5, (COUNT,)), stats.weibull_min(1.5, scale=2)),
    "triangular": (lambda: random.triangular(KEY, -1.0, 0.0, 3.0, (COUNT,)), stats.triang(0.25, -1, 4)),
    "gamma-small": (lambda: random.gamma(KEY, 0.2, (COUNT,), "float64"), stats.gamma(0.2)),
    "gamma": (lambda: random.gamma(KEY, 3.0, (COUNT,)), stats.gamma(3)),
    "gamma-large": (lambda: random.gamma(KEY, 1e4, (COUNT,), "float64"), stats.gamma(1e4)),
    "loggamma": (lambda: random.loggamma(KEY, 0.5, (COUNT,)), stats.loggamma(0.5)),
    "beta": (lambda: random.beta(KEY, 0.5, 2.0, (COUNT,)), stats.beta(0.5, 2)),
    "dirichlet": (lambda: random.dirichlet(KEY, np.array([1.0, 2, 3]), (COUNT,))[:, 1], stats.beta(2, 4)),
    "chisquare": (lambda: random.chisquare(KEY, 3.0, (COUNT,)), stats.chi2(3)),
    "f": (lambda: random.f(KEY, 3.0, 5.0, (COUNT,)), stats.f(3, 5)),
    "t": (lambda: random.t(KEY, 3.0, (COUNT,)), stats.t(3)),
    "generalized_normal": (lambda: random.generalized_normal(KEY, 1.5, (COUNT,)), stats.gennorm(1.5)),
    "ball": (lambda: (random.ball(KEY, 3, 2.0, (COUNT,)) ** 2).sum(-1) ** 1.5, stats.uniform()),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    sampler, law = CONTINUOUS[name]
    drawn = np.asarray(sampler(), np.float64)
    assert stats.kstest(drawn, law.cdf).pvalue > LEAST


DISCRETE: dict[str, tuple[Callable[[], Array], Any]] = {
    "bernoulli": (lambda: random.bernoulli(KEY, 0.3, (COUNT,)), stats.bernoulli(0.3)),
    "bernoulli-high": (lambda: random.bernoulli(KEY, 0.3, (COUNT,), "high"), stats.bernoulli(0.3)),
    "randint": (lambda: random.randint(KEY, (COUNT,), -3, 4), stats.randint(-3, 4)),
    "bits": (lambda: random.bits(KEY, (COUNT,), "uint8"), stats.randint(0, 256)),
    "categorical": (
        lambda: random.categorical(KEY, np.log(np.array([0.1, 0.2, 0.7])), shape=(COUNT,)),
        stats.rv_discrete(values=([0, 1, 2], [0.1, 0.2, 0.7])),
    ),
    "choice": (
        lambda: random.choice(KEY, 3, (COUNT,), p=np.array([0.1, 0.2, 0.7])),
        stats.rv_discrete(values=([0, 1, 2], [0.1, 0.2, 0.7])),
    ),
    "geometric": (lambda: random.geometric(KEY, 0.3, (COUNT,)), stats.geom(0.3)),
    "poisson-small": (lambda: random.poisson(KEY, 2.5, (COUNT,)), stats.poisson(2.5)),
    "poisson-large": (lambda: random.poisson(KEY, 40.0, (COUNT,)), stats.poisson(40)),
    "binomial-small": (lambda: random.binomial(KEY, 20, 0.1, (COUNT,)), stats.binom(20, 0.1)),
    "binomial-large": (lambda: random.binomial(KEY, 100, 0.6, (COUNT,)), stats.binom(100, 0.6)),
    "multinomial": (
        lambda: random.multinomial(KEY, 10, np.array([0.2, 0.3, 0.5]), shape=(COUNT, 3))[:, 1],
        stats.binom(10, 0.3),
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    sampler, law = DISCRETE[name]
    drawn = np.asarray(sampler()).astype(np.int64)
    values, counts = np.unique(drawn, return_counts=True)
    expected = law.pmf(values) * COUNT
    assert np.all(expected > 0)
    # rare values form one class, together with values that were not drawn
    often = expected >= 5
    rest = COUNT - expected[often].sum()
    seen, wanted = counts[often].astype(float), expected[often]
    if rest > 1:
        seen, wanted = np.append(seen, counts[~often].sum()), np.append(wanted, rest)
    assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > LEAST


def test_orders_are_equally_likely() -> None:
    keys = random.split(KEY, 600)
    seen = [tuple(np.asarray(random.permutation(k, 3)).tolist()) for k in keys]
    counts = np.unique(seen, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > LEAST


def test_split_keys_and_their_draws_are_not_correlated() -> None:
    keys = (KEY, *random.split(KEY), random.fold_in(KEY, 2))
    rows = np.stack([np.asarray(random.normal(k, (COUNT,)), np.float64) for k in keys])
    off = (rows @ rows.T / COUNT)[~np.eye(4, dtype=bool)]
    assert np.all(np.abs(off) < 4 / np.sqrt(COUNT))  # 4 deviations: 6 pairs, p < 4e-4


def test_orthogonal_matrices_are() -> None:
    for shape, dtype in (((2, 3), "float64"), ((), "complex64")):
        q = np.asarray(random.orthogonal(KEY, 4, shape, dtype), np.complex128)
        np.testing.assert_allclose(q @ np.conj(np.swapaxes(q, -1, -2)), np.broadcast_to(np.eye(4), q.shape), atol=1e-5)


def test_multivariate_normal_has_its_covariance() -> None:
    cov = np.array([[2, 0.5], [0.5, 1]])
    for method in ("cholesky", "eigh", "svd"):
        x = np.asarray(random.multivariate_normal(KEY, np.array([1.0, -1]), cov, (20000,), method=method), np.float64)
        np.testing.assert_allclose(np.cov(x.T), cov, atol=0.06)
        np.testing.assert_allclose(x.mean(0), [1, -1], atol=0.05)
