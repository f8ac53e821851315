"""Small functions under JAX's names: the values of NumPy and of Python's integers, and refusals."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import fxad as fx
from fxad import dtypes, lax, numpy as fnp, random
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError, TracerError
from fxad.scipy import stats as fxad_stats

X = np.arange(3, dtype=np.float32)


def test_platform_dependent_calls_the_function_of_the_platform_alone() -> None:
    def not_here(x: fx.Array) -> fx.Array:
        raise AssertionError("this platform does not call it")

    def f(x: fx.Array) -> fx.Array:
        platform = fx.default_backend()
        return lax.platform_dependent(x, **{platform: fnp.sin, "other": not_here}, default=not_here)

    np.testing.assert_array_equal(f(fnp.asarray(X)), fnp.sin(X))
    assert fx.trace(f, X).jaxpr is fx.trace(fnp.sin, X).jaxpr
    np.testing.assert_array_equal(fx.vmap(fx.grad(f))(fnp.asarray(X)), fnp.cos(X))
    assert lax.platform_dependent(other=lambda: 1, default=lambda: 2) == 2


def test_platform_dependent_names_what_is_missing() -> None:
    with pytest.raises(ParameterError, match=r"platform_dependent: there is no function for \w+, only for other\n"):
        lax.platform_dependent(X, other=fnp.sin)
    with pytest.raises(ArgumentError, match="platform_dependent: cpu is an int, not a function"):
        lax.platform_dependent(X, cpu=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", sorted(dtypes.INTEGER, key=str))
def test_mulhi_is_the_upper_half_of_the_product(dtype: dtypes.DType) -> None:
    low, high = dtypes.RANGES[dtype]
    rng = np.random.default_rng(0)
    x, y = [rng.integers(low, high, 200, dtype=dtype, endpoint=True) for _ in range(2)]
    x[:6], y[:6] = [low, low, high, high, 0, 1], [low, high, low, high, low, low]
    bits = 8 * dtype.itemsize
    want = np.array([(int(a) * int(b)) >> bits for a, b in zip(x, y, strict=True)], dtype)
    np.testing.assert_array_equal(lax.mulhi(x, y), want)
    assert lax.mulhi(x, y).dtype == dtype
    np.testing.assert_array_equal(fx.vmap(lax.mulhi, in_axes=(0, None))(x, int(high)), lax.mulhi(x, int(high)))
    np.testing.assert_array_equal(
        lax.mulhi(x[:, None], y[None, :3]), lax.mulhi(x[:, None].repeat(3, 1), y[None, :3].repeat(200, 0))
    )


def test_mul_converts_its_factors_first() -> None:
    x = np.array([100, 3], np.int8)
    pairs: list[tuple[Any, list[int]]] = [(x, [10000, 9]), (300, [30000, 900])]
    for y, want in pairs:
        for product in (lax.mul(x, y, out_dtype="int32"), lax.mul(y, x, out_dtype="int32")):
            assert product.dtype == np.int32
            assert product.tolist() == want
    assert lax.mul(x, x).tolist() == [16, 9]
    assert lax.mul(3, 4, out_dtype="float16") == np.float16(12)
    gradient = fx.grad(lambda x: fnp.sum(lax.mul(x, x, out_dtype="float64")))(X)
    assert gradient.dtype == np.float32
    with pytest.raises(DTypeError, match=r"mul: dtypes differ: lhs i8\[2\], rhs f32\[2\]"):
        lax.mul(x, x.astype(np.float32), out_dtype="float32")


def test_mulhi_refuses_floats_and_mixed_dtypes() -> None:
    with pytest.raises(DTypeError, match=r"mulhi: takes integers of one dtype, got f32\[3\] and f32\[3\]"):
        lax.mulhi(X, X)
    with pytest.raises(DTypeError, match=r"mulhi: takes integers of one dtype, got i32\[3\] and u8\[3\]"):
        lax.mulhi(X.astype(np.int32), X.astype(np.uint8))


def test_stack_and_unstack_are_inverse_and_do_not_promote() -> None:
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axis in (0, 1, -1):
        parts = lax.unstack(m, axis)
        np.testing.assert_array_equal(lax.stack(parts, axis), m)
        for part, want in zip(parts, np.moveaxis(m, axis, 0), strict=True):
            np.testing.assert_array_equal(part, want)
    with pytest.raises(ShapeError, match=r"stack: shapes differ: operands\[0\] is f32\[3\], operands\[1\] is f32\[2\]"):
        lax.stack([X, X[:2]])
    with pytest.raises(DTypeError):
        lax.stack([X, X.astype(np.float64)])
    with pytest.raises(ArgumentError, match="stack: there is no array"):
        lax.stack([])


def test_empty_and_rounding_methods() -> None:
    assert str(lax.empty((2, 1), "int8").aval) == "i8[2,1]"
    ties = np.array([-2.5, -1.5, 0.5, 1.5], np.float32)
    np.testing.assert_array_equal(lax.round(ties, lax.RoundingMethod.AWAY_FROM_ZERO), [-3, -2, 1, 2])
    np.testing.assert_array_equal(lax.round(ties, lax.RoundingMethod.TO_NEAREST_EVEN), [-2, -2, 0, 2])
    by_text = fx.trace(lambda x: lax.round(x, "to_nearest_even"), ties)
    assert fx.trace(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), ties).jaxpr is by_text.jaxpr


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("axis", [0, -1])
def test_top_k_of_both_ends(dtype: str, axis: int) -> None:
    x = (np.random.default_rng(0).permutation(20).reshape(4, 5) % 7).astype(dtype)
    for mode, order in (("smallest", x), ("largest", ~x if dtype in ("bool", "uint8") else -x)):
        want = np.take(np.argsort(order, axis, kind="stable"), range(3), axis)
        values, places = fnp.top_k(x, 3, axis=axis, mode=mode)
        np.testing.assert_array_equal(places, want)
        np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))
        assert values.dtype == x.dtype
        assert places.dtype == np.dtype(np.int32)


def test_top_k_treats_nan_as_the_greatest_and_has_a_gradient() -> None:
    x = np.array([3, np.nan, 1], np.float32)
    np.testing.assert_array_equal(fnp.top_k(x, 3, mode="smallest")[1], [2, 0, 1])
    np.testing.assert_array_equal(fnp.top_k(x, 3)[1], [1, 0, 2])
    np.testing.assert_array_equal(fx.grad(lambda x: fnp.top_k(x, 2, mode="smallest")[0].sum())(x), [1, 0, 1])
    with pytest.raises(ParameterError, match="top_k: mode is 'least'"):
        fnp.top_k(x, 1, mode="least")
    with pytest.raises(ParameterError, match="top_k: k is 4, axis -1 has 3 elements"):
        fnp.top_k(x, 4, mode="smallest")


def test_place_repeats_the_values_in_their_order() -> None:
    rng = np.random.default_rng(0)
    x, values = rng.standard_normal((3, 4)).astype(np.float32), np.array([7, 8, 9], np.float32)
    for mask in (x > 0, x > 9, x == x):
        want = x.copy()
        np.place(want, mask, values)
        np.testing.assert_array_equal(fnp.place(x, mask, values), want)
        np.testing.assert_array_equal(fx.jit(fnp.place)(x, mask, values), want)
        np.testing.assert_array_equal(fx.grad(lambda x, m=mask: fnp.place(x, m, values).sum())(x), ~mask)
    counts = fx.grad(lambda v: fnp.place(x, x == x, v).sum())(values)
    np.testing.assert_array_equal(counts, [4, 4, 4])
    with pytest.raises(ParameterError, match="place: inplace is True, and arrays are immutable"):
        fnp.place(x, x > 0, values, inplace=True)
    with pytest.raises(ShapeError, match="place: the mask has 3 elements, the array 12"):
        fnp.place(x, X, values)
    with pytest.raises(ShapeError, match="place: there are no values"):
        fnp.place(x, x > 0, values[:0])


def test_samplers_have_the_exact_method_alone() -> None:
    key = random.key(0)
    samplers = (random.gamma, random.loggamma, random.chisquare, random.poisson)
    for sampler in samplers:
        np.testing.assert_array_equal(sampler(key, 2.0, method="exact"), sampler(key, 2.0))
        with pytest.raises(ParameterError, match=rf"random.{sampler.__name__}: there is no approximate method"):
            sampler(key, 2.0, method="approximate")
        with pytest.raises(ParameterError, match=rf"random.{sampler.__name__}: method is 'fast'"):
            sampler(key, 2.0, method="fast")
    np.testing.assert_array_equal(random.beta(key, 2.0, 3.0, method="exact"), random.beta(key, 2.0, 3.0))
    with pytest.raises(ParameterError, match=r"random.beta: there is no approximate method"):
        random.beta(key, 2.0, 3.0, method="approximate")


def test_the_error_of_promotion_has_the_name_of_jax() -> None:
    assert dtypes.TypePromotionError is DTypeError


@pytest.mark.parametrize(("rows", "columns", "rank"), [(5, 3, 3), (5, 3, 2), (3, 3, 3), (2, 4, 2), (3, 2, 0)])
def test_lstsq_leaves_out_the_residuals_that_numpy_leaves_out(rows: int, columns: int, rank: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    for b in (rng.standard_normal(rows), rng.standard_normal((rows, 2))):
        got, want = fnp.linalg.lstsq(a, b, numpy_resid=True), np.linalg.lstsq(a, b)
        assert got.residuals.shape == want[1].shape
        for have, value in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(have), np.asarray(value), rtol=1e-9, atol=1e-12)
    with pytest.raises(TracerError):
        fx.jit(lambda a: fnp.linalg.lstsq(a, np.ones(5), numpy_resid=True).x)(np.ones((5, 2)))


def test_the_rank_of_a_vector() -> None:
    for x in (np.zeros(3), X, np.float32(0), np.float32(2)):
        assert int(fnp.linalg.matrix_rank(x)) == np.linalg.matrix_rank(x)
    assert fx.vmap(fnp.linalg.matrix_rank)(np.eye(2)).dtype == np.int32


def test_einsum_takes_a_path_of_einsum_path() -> None:
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = fnp.einsum_path("ij,kj,kl->il", m, m, m)[0]
    np.testing.assert_allclose(fnp.einsum("ij,kj,kl->il", m, m, m, optimize=path), m @ m.T @ m)
    for wrong, shown in (((0, 1, 2), r"\(0, 1, 2\)"), ("greedy", "'greedy'")):
        with pytest.raises(ParameterError, match=f"einsum: optimize has the step {shown}, not one or two operands"):
            fnp.einsum("ij,kj,kl->il", m, m, m, optimize=[wrong])


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sem_leaves_nan_out(axis: int | None) -> None:
    stats = pytest.importorskip("scipy.stats")
    x = np.random.default_rng(0).standard_normal((4, 5))
    x[1, 2] = x[3, 0] = np.nan
    for policy in ("propagate", "omit"):
        for keepdims in (False, True):
            want = stats.sem(x, axis, nan_policy=policy, keepdims=keepdims)
            np.testing.assert_allclose(fxad_stats.sem(x, axis, nan_policy=policy, keepdims=keepdims), want, rtol=1e-12)
    slope = fx.grad(lambda x: fxad_stats.sem(x, None, nan_policy="omit"))(x)
    assert np.isfinite(np.asarray(slope)[~np.isnan(x)]).all()
    with pytest.raises(ParameterError, match="sem: nan_policy is 'raise'"):
        fxad_stats.sem(x, nan_policy="raise")


def test_the_entropy_of_poisson_is_that_of_its_probabilities() -> None:
    def entropy(mu: mpmath.mpf) -> mpmath.mpf:
        total, log = mpmath.mpf(0), -mu
        for k in range(int(mu + 40 * mpmath.sqrt(mu) + 60)):
            log = log + mpmath.log(mu / k) if k else log
            total -= mpmath.exp(log) * log
        return total

    with mpmath.workdps(30):
        for dtype, rtol in ((np.float32, 4e-6), (np.float64, 2e-11)):
            mu = np.array([1e-8, 1e-3, 0.1, 2, 50, 99.9, 100, 500], dtype)
            want = [float(entropy(mpmath.mpf(float(m)))) for m in mu]
            np.testing.assert_allclose(fxad_stats.poisson.entropy(mu), want, rtol=rtol)
        mu = np.array([0.5, 2, 50, 120])
        slopes = [float(mpmath.diff(entropy, float(m))) for m in mu]
        np.testing.assert_allclose(np.asarray(fx.vmap(fx.grad(fxad_stats.poisson.entropy))(mu)), slopes, rtol=1e-8)
    ends = fxad_stats.poisson.entropy(np.array([-1.0, 0.0, np.nan, np.inf]), loc=2)
    np.testing.assert_array_equal(ends, [np.nan, 0, np.nan, np.inf])
