"""Samplers under jit, vmap, scan and grad."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import Array, lax, random
from fxad.errors import NotDifferentiableError
from fxad.ir import Jaxpr
from fxad.primitives.random import THREEFRY2X32

KEY = random.key(7)


def test_the_cipher_gives_the_published_answers() -> None:
    # the known-answer tests of the Random123 library, threefry2x32 with 20 rounds
    for words, want in (
        ((0, 0, 0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 4, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ):
        found = THREEFRY2X32.impl(*[np.asarray(w, np.uint32) for w in words])
        assert [int(x) for x in found] == list(want)


def test_values_do_not_change_between_versions() -> None:
    np.testing.assert_array_equal(random.key(1234567890123), [287, 1912276171])
    np.testing.assert_array_equal(random.split(random.key(0)), [[1797259609, 2579123966], [928981903, 3453687069]])
    np.testing.assert_array_equal(random.bits(random.key(0), (3,)), [4070199207, 4202968722, 1427181096])
    # the bits of jax.random
    np.testing.assert_array_equal(random.fold_in(random.key(0), 7), [2716826189, 292468403])
    uniform, normal = [np.asarray(draw(random.key(0), (3,))) for draw in (random.uniform, random.normal)]
    np.testing.assert_array_equal(uniform.view(np.uint32), [1064475214, 1064993846, 1051337244])
    np.testing.assert_array_equal(normal.view(np.uint32), [1070576317, 1073847792, 3202220055])


def test_a_seed_means_the_same_in_a_traced_function() -> None:
    for seed in (-1, -(2**31), 7, np.int8(-3), np.int64(-1)):
        key = np.asarray(random.key(seed))
        np.testing.assert_array_equal(fx.jit(random.key)(seed), key)
        np.testing.assert_array_equal(fx.trace(random.key, seed)(seed), key)
        np.testing.assert_array_equal(fx.vmap(random.key)(np.array([seed]))[0], random.key(np.array([seed])[0]))


def test_fold_in_is_one_of_the_keys_of_split() -> None:
    np.testing.assert_array_equal(random.fold_in(KEY, 2), random.split(KEY, 4)[2])


def test_equal_draws_are_one_program() -> None:
    def two(key: Array) -> Array:
        a, b = random.split(key)
        return random.normal(a, (3,)) + random.normal(b, (3,))

    program = fx.trace(two, fx.Spec((2,), "uint32")).jaxpr
    assert isinstance(program, Jaxpr)
    assert fx.trace(two, fx.Spec((2,), "uint32")).jaxpr is program
    assert len({e.prim for e in program.eqns if e.prim.name == "call"}) == 2  # split, and one normal for both


SAMPLERS: dict[str, Callable[[Array], Array]] = {
    "normal": lambda k: random.normal(k, (3,)),
    "complex": lambda k: random.normal(k, (3,), "complex64"),
    "randint": lambda k: random.randint(k, (2, 2), 0, 10),
    "gamma": lambda k: random.gamma(k, 0.7, (3,)),
    "poisson": lambda k: random.poisson(k, np.array([3.0, 30.0], np.float32)),
    "permutation": lambda k: random.permutation(k, 5),
    "categorical": lambda k: random.categorical(k, np.zeros((2, 4), np.float32)),
    "choice": lambda k: random.choice(k, 5, (2,), replace=False),
    "split": lambda k: random.split(random.fold_in(k, 3), (2, 2)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_mapped_over_keys_each_draw_is_its_own(name: str) -> None:
    sampler = SAMPLERS[name]
    keys = random.split(KEY, 3)
    stacked, want = fx.vmap(sampler)(keys), np.stack([np.asarray(sampler(k)) for k in keys])
    assert (stacked.shape, stacked.dtype) == (want.shape, want.dtype)
    # the bits are the same; kernels of other sizes round logarithms and powers differently
    _close(stacked, want, 1e-6 if want.dtype.kind in "fc" else 0)


def _close(have: Array, want: object, rtol: float) -> None:
    np.testing.assert_allclose(np.asarray(have, np.complex128), np.asarray(want, np.complex128), rtol=rtol)


def test_mapped_over_parameters() -> None:
    a = np.array([0.3, 1.0, 5.0], np.float32)
    found = fx.vmap(lambda a: random.gamma(KEY, a, (2,)))(a)
    _close(found, np.stack([np.asarray(random.gamma(KEY, x, (2,))) for x in a]), 1e-6)


def test_jit_changes_nothing() -> None:
    np.testing.assert_array_equal(fx.jit(lambda k: random.normal(k, (5,)))(KEY), random.normal(KEY, (5,)))


def test_keys_are_carried_by_loops() -> None:
    def step(key: Array, _: None) -> tuple[Array, Array]:
        key, sub = random.split(key)
        return key, random.uniform(sub, ())

    _, drawn = lax.scan(step, KEY, None, length=3)
    key, want = KEY, []
    for _ in range(3):
        key, x = step(key, None)
        want.append(float(x))
    np.testing.assert_array_equal(drawn, np.asarray(want, np.float32))


def test_interpreted_is_compiled() -> None:
    program = fx.trace(lambda k: random.bits(k, (4,)), fx.Spec((2,), "uint32"))
    np.testing.assert_array_equal(fx.interpret(program, np.asarray(KEY)), random.bits(KEY, (4,)))


def test_grad_of_what_is_linear_in_its_parameters() -> None:
    def total(low: Array, high: Array) -> Array:
        return random.uniform(KEY, (50,), "float64", low, high).sum()

    u = np.asarray(random.uniform(KEY, (50,), "float64"), np.float64)
    low, high = fx.grad(total, (0, 1))(fx.asarray(-1.0, "float64"), fx.asarray(2.0, "float64"))
    np.testing.assert_allclose([float(low), float(high)], [(1 - u).sum(), u.sum()])


def _slope(f: Callable[[float], float], x: float) -> float:
    return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5


@pytest.mark.parametrize("a", [0.3, 0.9, 2.0, 40.0])
def test_grad_of_gamma_keeps_the_quantile(a: float) -> None:
    special = pytest.importorskip("scipy.special")
    drawn, moved = fx.value_and_grad(lambda a: random.gamma(KEY, a))(np.float64(a))
    place = special.gammainc(a, float(drawn))
    want = _slope(lambda b: float(special.gammaincinv(b, place)), a)
    np.testing.assert_allclose(float(moved), want, rtol=1e-5)
    log_moved = fx.grad(lambda a: random.loggamma(KEY, a))(np.float64(a))
    np.testing.assert_allclose(float(log_moved), want / float(drawn), rtol=1e-5)


def test_grad_of_loggamma_where_gamma_underflows() -> None:
    a = np.float32(1e-3)
    drawn, moved = fx.value_and_grad(lambda a: random.loggamma(KEY, a))(a)
    assert float(drawn) < -100
    # log x = (log place + lgamma(a + 1)) / a there
    np.testing.assert_allclose(moved, (-0.5772 - float(drawn)) / a, rtol=1e-3)


def test_grad_of_the_mean_of_beta_and_dirichlet() -> None:
    a, b, count = 2.0, 3.0, 4000

    def mean(a: Array, b: Array) -> Array:
        return random.beta(KEY, a, b, (count,)).mean()

    found = fx.grad(mean, (0, 1))(fx.asarray(a, "float64"), fx.asarray(b, "float64"))
    np.testing.assert_allclose([float(x) for x in found], [b / (a + b) ** 2, -a / (a + b) ** 2], atol=0.01)
    alpha = np.array([1.0, 2.0, 3.0])
    moved = fx.grad(lambda alpha: random.dirichlet(KEY, alpha, (count,))[:, 0].mean())(alpha)
    np.testing.assert_allclose(moved, [5 / 36, -1 / 36, -1 / 36], atol=0.01)


def test_grad_of_chisquare_and_student_t() -> None:
    moved = fx.grad(lambda df: random.chisquare(KEY, df, (4000,)).mean())(np.float64(5))
    np.testing.assert_allclose(moved, 1, atol=0.05)
    # E t^2 = df / (df - 2)
    moved = fx.grad(lambda df: (random.student_t(KEY, df, (4000,)) ** 2).mean())(np.float64(12))
    np.testing.assert_allclose(moved, -2 / 100, atol=0.01)


def test_the_second_derivative_of_gamma_is_refused() -> None:
    with pytest.raises(NotDifferentiableError, match="second derivative in the shape parameter a is not known"):
        fx.grad(fx.grad(lambda a: random.gamma(KEY, a)))(np.float32(2))


def test_grad_of_counts_is_zero() -> None:
    assert float(fx.grad(lambda p: random.binomial(KEY, 10.0, p))(np.float32(0.4))) == 0
    assert float(fx.grad(lambda p: fnp.where(random.bernoulli(KEY, p), 2.0, 3.0))(np.float32(0.4))) == 0


def test_grad_of_multivariate_normal() -> None:
    cov = np.array([[2, 0.5], [0.5, 1]])
    moved = fx.grad(lambda m: random.multivariate_normal(KEY, m, cov, (3,)).sum())(np.zeros(2))
    np.testing.assert_allclose(moved, [3, 3])
    # E |x|^2 = trace cov
    moved = fx.grad(lambda c: (random.multivariate_normal(KEY, np.zeros(2), c, (20000,)) ** 2).sum(-1).mean())(cov)
    np.testing.assert_allclose(moved, np.eye(2), atol=0.05)
