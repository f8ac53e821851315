"""Samplers at extreme parameters, in every dtype: quantiles, moments and support against SciPy.

Each test is of fixed draws, so it passes always or never. Thresholds are 5 to 6 deviations: a Kolmogorov-Smirnov
statistic above 2.6 / sqrt(n) has a probability of 3e-6. To it comes the largest probability of one number of the dtype:
draws are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import random
from fxad.errors import DTypeError

stats = pytest.importorskip("scipy.stats")

KEY: Final = random.key(35)
N: Final = 20_000
HALF: Final = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
INF: Final = float("inf")


def array(value: float, dtype: str) -> Any:
    return np.asarray(value, HALF.get(dtype, dtype))


def wide(x: Any) -> Any:
    return np.asarray(x).astype(np.float64)


def check_distribution(x: Any, cdf: Callable[[Any], Any]) -> None:
    """The empirical distribution, with equal draws as steps."""
    values, counts = np.unique(wide(x), return_counts=True)
    ends = np.cumsum(counts) / len(x)
    want = cdf(values)
    above, below = np.abs(ends - want), np.abs(ends - counts / len(x) - want)
    # a number of the dtype stands for those that are rounded to it
    step = np.max(counts) / len(x)
    assert np.max(np.minimum(above, below)) < 2.6 / np.sqrt(len(x)) + step / 2


def truncated_normal(a: float, b: float) -> Callable[[str], Any]:
    return lambda d: random.truncated_normal(KEY, array(a, d), array(b, d), (N,))


def wald(m: float) -> Callable[[str], Any]:
    return lambda d: random.wald(KEY, array(m, d), (N,))


def generalized_normal(p: float) -> Callable[[str], Any]:
    return lambda d: random.generalized_normal(KEY, array(p, d), (N,))


CONTINUOUS: Final[dict[str, tuple[Callable[[str], Any], Any]]] = {
    **{
        f"truncated_normal {a} {b}": (truncated_normal(a, b), stats.truncnorm(a, b))
        for a, b in ((-1, 2), (2, INF), (-INF, 1), (3, 4), (10, INF), (-31, -30), (-INF, -8), (100, INF))
    },
    **{f"wald {m}": (wald(m), stats.invgauss(m)) for m in (0.125, 8.0, 128.0)},
    "wald inf": (wald(INF), stats.levy()),
    "t inf": (lambda d: random.t(KEY, array(INF, d), (N,)), stats.norm()),
    "t 1024": (lambda d: random.t(KEY, array(1024.0, d), (N,)), stats.t(1024)),
    "rayleigh": (lambda d: random.rayleigh(KEY, array(1.0, d), (N,)), stats.rayleigh()),
    "gumbel high": (lambda d: random.gumbel(KEY, (N,), d, "high"), stats.gumbel_r()),
    **{f"generalized_normal {p}": (generalized_normal(p), stats.gennorm(p)) for p in (0.5, 16.0, 128.0)},
    "ball": (lambda d: random.ball(KEY, 1, array(128.0, d), (N,))[:, 0], stats.uniform(-1, 2)),
    "uniform": (lambda d: random.uniform(KEY, (N,), d, array(-5, d), array(-1, d)), stats.uniform(-5, 4)),
    "normal": (lambda d: random.normal(KEY, (N,), d), stats.norm()),
    "exponential": (lambda d: random.exponential(KEY, (N,), d), stats.expon()),
    "logistic": (lambda d: random.logistic(KEY, (N,), d), stats.logistic()),
    "laplace": (lambda d: random.laplace(KEY, (N,), d), stats.laplace()),
    "beta": (lambda d: random.beta(KEY, array(0.125, d), array(0.125, d), (N,)), stats.beta(0.125, 0.125)),
    "gamma": (lambda d: random.gamma(KEY, array(512.0, d), (N,)), stats.gamma(512)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
def test_continuous(name: str) -> None:
    """In float32, and rounded in bfloat16, where its numbers are distinct enough."""
    sampler, law = CONTINUOUS[name]
    coarse = name.startswith(("gamma", "wald", "t ")) or any([k in name for k in ("10 inf", "100", "-31", "3 4")])
    for dtype in ("float32", *([] if coarse else ["bfloat16"])):
        x = sampler(dtype)
        assert x.dtype.name == dtype
        assert np.isfinite(wide(x)).all()
        low, high = law.support()
        assert wide(x).min() >= low
        assert wide(x).max() <= high
        assert law.cdf(wide(x).min()) > 0 or np.isfinite(low)
        assert law.sf(wide(x).max()) > 0 or np.isfinite(high)
        check_distribution(x, law.cdf)
        if np.isfinite(law.stats("k")):  # a few numbers far out, which the distribution does not show
            assert 0.6 < wide(x).var() / law.var() < 1.25, dtype  # tails end early in 16 bits


def moments(x: Any, mean: float, variance: float) -> None:
    x = wide(x)
    assert abs(x.mean() - mean) < 6 * np.sqrt(variance / len(x))
    assert abs(x.var() / variance - 1) < 6 * np.sqrt(2 / len(x)) + 1 / variance


@pytest.mark.parametrize("lam", [3.0, 50.0, 4000.0, 5000.0, 1e6, 1e8])
def test_poisson(lam: float) -> None:
    lam = float(np.float32(lam))
    moments(random.poisson(KEY, np.float32(lam), (N,)), lam, lam)


def test_poisson_beyond_the_integers() -> None:
    for dtype in ("int8", "int32", "int64", "uint8"):
        assert random.poisson(KEY, np.float32(INF), (3,), dtype).tolist() == [np.iinfo(dtype).max] * 3


@pytest.mark.parametrize(("n", "p"), [(1e3, 0.5), (5e3, 0.25), (1e9, 0.5), (1e9, 1e-3), (1e7, 0.99), (1e6, 1e-6)])
def test_binomial(n: float, p: float) -> None:
    p = float(np.float32(p))
    x = random.binomial(KEY, np.float32(n), np.float32(p), (N,))
    moments(x, n * p, n * p * (1 - p))
    assert wide(x).min() >= 0
    assert wide(x).max() <= n


RANGES: Final = [
    ("int32", 0, 3 * 2**29), ("int32", -(2**31), 2**31), ("int32", -(2**31), 2**30), ("int32", 0, 2**31),
    ("uint32", 0, 3 * 2**30), ("uint32", 5, 2**32), ("int64", 0, 3 * 2**61), ("int64", -(2**63), 2**63),
    ("int64", 7, 2**33), ("uint64", 0, 2**64), ("uint64", 0, 3 * 2**62), ("int8", -128, 128), ("int16", 0, 3 * 2**13),
    ("uint8", 0, 256), ("int32", 3, 70_000),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "low", "high"), RANGES)
def test_randint(dtype: str, low: int, high: int) -> None:
    """Twelve parts of the range are equally likely."""
    x = np.asarray(random.randint(KEY, (N,), low, high, dtype))
    assert x.dtype == dtype
    part = (high - low) // 12 or 1
    counts = np.bincount([min((int(v) - low) // part, 11) for v in x], minlength=12)
    sizes = np.array([part] * 11 + [high - low - 11 * part], np.float64) / (high - low)
    assert int(x.min()) >= low
    assert int(x.max()) < high
    assert stats.chisquare(counts, sizes * N).pvalue > 1e-6


def test_randint_of_the_last_integers() -> None:
    last = 2**64 - 1
    x = np.asarray(random.randint(KEY, (100,), last - 1, 2**64, "uint64"))
    assert set(x.tolist()) == {last - 1, last}
    assert random.randint(KEY, (3,), last, 2**64, "uint64").tolist() == [last] * 3
    assert random.randint(KEY, (3,), 5, 5).tolist() == [5] * 3


@pytest.mark.parametrize(
    ("dtype", "low", "high", "which", "bound"),
    [
        ("int32", 0, 2**33, "maxval", 2**33),
        ("int32", -(2**31) - 1, 4, "minval", -(2**31) - 1),
        ("int8", 0, 256, "maxval", 256),
        ("uint64", 0, 2**64 + 1, "maxval", 2**64 + 1),
        ("uint8", -1, 4, "minval", -1),
    ],
)
def test_bounds_that_do_not_fit_are_refused(dtype: str, low: int, high: int, which: str, bound: int) -> None:
    with pytest.raises(DTypeError) as e:
        random.randint(KEY, (3,), low, high, dtype)
    info = np.iinfo(dtype)
    assert str(e.value).startswith(f"random.randint: {which} is {bound}, {dtype} holds {info.min} to {info.max}")
    assert "give a wider dtype, or a bound that fits" in str(e.value)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_probabilities_of_any_dtype(dtype: str) -> None:
    """Of 2,048 equal categories each is as likely as the others, also in 16 bits."""
    among = 2048
    draws = {
        "categorical": random.categorical(KEY, fnp.zeros(among, dtype), shape=(N,)),
        "choice": random.choice(KEY, among, (N,), p=fnp.full(among, 1 / among, dtype)),
    }
    for name, x in draws.items():
        counts = np.bincount(np.asarray(x) // (among // 8), minlength=8)
        assert stats.chisquare(counts).pvalue > 1e-6, name
    distinct = {
        "categorical": random.categorical(KEY, fnp.zeros(among, dtype), shape=(among // 2,), replace=False),
        "choice": random.choice(KEY, among, (among // 2,), replace=False, p=fnp.full(among, 1 / among, dtype)),
    }
    for name, x in distinct.items():
        assert len(set(x.tolist())) == among // 2, name
        counts = np.bincount(np.asarray(x) // (among // 8), minlength=8)
        assert stats.chisquare(counts).pvalue > 1e-6, name
    for p in (1 / 1024, 0.25):  # numbers of every dtype
        for mode in ("low", "high"):
            hits = int(np.asarray(random.bernoulli(KEY, array(p, dtype), (N,), mode)).sum())
            assert abs(hits - N * p) < 6 * np.sqrt(N * p * (1 - p)), (p, mode)
    moments(random.geometric(KEY, array(1 / 1024, dtype), (N,)), 1024, (1 - 1 / 1024) * 1024**2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_uniform_does_not_reach_its_upper_bound(dtype: str) -> None:
    for low, high in ((0.0, 3.0), (1.0, 1.0 + 2 * float(fnp.finfo(dtype).eps)), (-5.0, -1.0), (256.0, 259.0)):
        a, b = array(low, dtype), array(high, dtype)
        x = np.asarray(random.uniform(KEY, (N,), dtype, a, b))
        assert (x >= a).all()
        assert (x < b).all()
    assert (np.asarray(random.uniform(KEY, (9,), dtype, 2.0, 2.0)) == 2).all()
    slopes = fx.grad(
        lambda b: fnp.sum(random.uniform(KEY, (N,), "bfloat16", fnp.zeros((), "bfloat16"), b).astype("float32"))
    )
    u = wide(random.uniform(KEY, (N,), "bfloat16"))
    np.testing.assert_allclose(wide(slopes(array(3.0, "bfloat16"))), u.sum(), rtol=0.02)


def test_slopes_of_draws_from_a_tail() -> None:
    def total(a: Any) -> Any:
        return fnp.sum(random.truncated_normal(KEY, a, np.float64(INF), (100,)))

    for a in (1.0, 8.0, -INF):
        slope, e = fx.grad(total)(np.float64(a)).item(), 1e-5
        assert np.isfinite(slope)
        if np.isfinite(a):
            step = (total(np.float64(a + e)).item() - total(np.float64(a - e)).item()) / (2 * e)
            np.testing.assert_allclose(slope, step, rtol=1e-5)
    slopes = fx.grad(lambda m: fnp.sum(random.wald(KEY, m, (100,))))
    assert np.isfinite([slopes(np.float64(m)).item() for m in (0.1, 10.0, 1e20)]).all()
