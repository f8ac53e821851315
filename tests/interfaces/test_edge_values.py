"""Edge values of dtypes and domains: narrow floats, subnormals, signed zeros, empty arrays, large arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.errors import DTypeError, ParameterError
from fxad.scipy import special as special_of_fxad

fnp_: Any = fnp
np_: Any = np
special_: Any = special
HALVES = [np.float16, ml_dtypes.bfloat16]
TINY = {np.float32: 1e-40, np.float64: 5e-320, ml_dtypes.bfloat16: 1e-40, np.float16: 6e-8}


def both(f: Callable[..., Any], *args: Any) -> list[Any]:
    """Returns the results of a function compiled and by the interpreter."""
    return [fx.tree.map(np.asarray, out) for out in (fx.jit(f)(*args), fx.interpret(fx.trace(f, *args), *args))]


def bits(x: Any) -> Any:
    return np.asarray(x).view(f"u{np.asarray(x).itemsize}")


# ------------------------------------------------------------------------------------------------------ narrow floats


@pytest.mark.parametrize("name", ["mean", "nanmean", "average"])
def test_a_mean_is_in_range_where_its_sum_is_not(name: str) -> None:
    mean = getattr(fnp_, name)
    assert float(mean(np.ones(70_000, np.float16))) == 1
    assert float(mean(np.full(100_000, 1e-5, np.float16))) == np.float16(1e-5)
    assert mean(np.ones(3, np.float16)).dtype == np.float16


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_a_variance_is_in_range_where_its_sums_are_not(name: str) -> None:
    x = np.resize(np.array([0, 2], np.float16), 80_000)
    assert float(getattr(fnp_, name)(x)) == 1
    assert float(getattr(fnp_, name)(x, where=np.ones(80_000, bool))) == 1


@given(
    st.integers(0, 2**32 - 1), st.sampled_from(HALVES), st.sampled_from(["sum", "prod", "mean", "nansum", "nanmean"])
)
def test_reductions_of_narrow_floats_round_once(seed: int, dtype: Any, name: str) -> None:
    """LAW: a compiled reduction of narrow floats equals that of float64 within 0.51 units in the last place."""
    rng = np.random.default_rng(seed)
    x = np.exp(rng.normal(0, 0.02, (3, int(rng.integers(1, 700))))).astype(dtype)
    have = np.asarray(getattr(fnp_, name)(x, axis=1)).astype(np.float64)
    want = getattr(np, name)(x.astype(np.float64), axis=1)
    assert np.all(
        np.abs(have - want)
        <= 0.51 * np.spacing(want.astype(np.float16)).astype(float) * (8 if dtype is ml_dtypes.bfloat16 else 1)
    )


def test_a_correlation_is_in_range_where_the_covariance_is_not() -> None:
    x = np.array([[0, 1000, 2000], [0, 1000, 2500]], np.float16)
    np.testing.assert_allclose(np.asarray(fnp.corrcoef(x)), np.corrcoef(x.astype(float)), atol=1e-3)
    assert fnp.corrcoef(x).dtype == np.float16


def test_the_integral_of_narrow_floats() -> None:
    assert float(fnp.trapezoid(np.full(1000, 60_000, np.float16), dx=1e-3)) == pytest.approx(59_940, rel=1e-3)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16])
def test_unique_merges_nans_and_sorts_them_last(dtype: Any) -> None:
    x = np.array([np.nan, 2, np.nan, -1, 2], dtype)
    values, first, inverse, counts = fnp.unique(x, True, True, True)
    assert values.dtype == dtype
    np.testing.assert_array_equal(np.asarray(values).astype(float), [-1, 2, np.nan])
    assert [np.asarray(v).tolist() for v in (first, inverse, counts)] == [[3, 1, 0], [2, 1, 2, 0, 1], [1, 2, 2]]
    np.testing.assert_array_equal(np.asarray(fnp.unique_values(x)).astype(float), [-1, 2, np.nan, np.nan])
    assert np.asarray(fnp.unique_counts(x).counts).tolist() == [1, 2, 1, 1]


B16, E4 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
PAIRS: list[tuple[Any, Any]] = [
    (np.int32, np.float32), (np.float32, np.int32), (B16, B16), (np.float16, B16), (B16, np.int32), (E4, B16), (E4, E4),
    (np.float32, np.complex64), (np.bool_, np.float32), (np.bool_, np.bool_), (np.complex64, np.complex64),
]  # fmt: skip


def _members(dtype: Any) -> Any:
    return np.array([3, 1, 1, 0, 2] if np.dtype(dtype).kind in "iub" else [3, np.nan, 1, np.nan, -0.0, 0, -1], dtype)


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("name", ["union1d", "setdiff1d", "setxor1d", "intersect1d"])
@np.errstate(all="ignore")
def test_a_set_is_the_same_with_a_size_and_without(name: str, one: Any, other: Any) -> None:
    """NumPy promotes int32 with float32 to float64, has no promotion for bfloat16 with float16, and does not sort nans
    of bfloat16."""
    x, y = _members(one), _members(other)[1:4]
    f = getattr(fnp_, name)
    have = np.asarray(f(x, y))
    sized = np.asarray(f(x, y, size=have.size))
    assert have.dtype == sized.dtype == (one if name == "setdiff1d" else fnp.result_type(x, y))
    wide = [v.astype(np.complex128) for v in (have, sized)]
    np.testing.assert_array_equal(wide[0], wide[1])
    narrow = [v.astype(np.complex64).astype(np.complex128) for v in (x, y)]
    np.testing.assert_array_equal(wide[0], getattr(np, name)(*narrow))


# --------------------------------------------------------------------------------------------------------- subnormals


@pytest.mark.parametrize("dtype", TINY)
@pytest.mark.parametrize("size", [1, 5, 300])
def test_subnormals_are_not_zero(dtype: Any, size: int) -> None:
    x = np.resize(np.array([TINY[dtype], -TINY[dtype], TINY[dtype]], dtype), size)
    tests: list[Callable[[Any], Any]] = [
        fnp.any, fnp.all, fnp.count_nonzero, lambda x: x.astype(bool), lambda x: fnp.where(x, 1, 2), fnp.logical_not,
        fnp.sign, lax.sign,
    ]  # fmt: skip
    for f in tests:
        compiled, meant = both(f, x)
        np.testing.assert_array_equal(compiled.astype(float), meant.astype(float))
    assert bool(fnp.all(x))
    assert bool(fnp.any(x))


@pytest.mark.as_users_compile
@pytest.mark.parametrize(("dtype", "tiny"), [(np.complex64, 1e-45), (np.complex128, 5e-324)])
def test_a_number_with_a_subnormal_part_is_not_zero(dtype: Any, tiny: float) -> None:
    parts = [0.0, -0.0, tiny, -tiny, 1.0]
    x = np.array([complex(re, im) for re in parts for im in parts], dtype)
    for f in (lambda x: x.astype(bool), fnp.logical_not, lambda x: fnp.nonzero(x, size=len(x))[0]):
        compiled, meant = both(f, x)
        np.testing.assert_array_equal(compiled, meant)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@np.errstate(all="ignore")
def test_frexp_spacing_and_sign_of_all_kinds_of_numbers(dtype: Any) -> None:
    word = f"u{np.dtype(dtype).itemsize}"
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    x = rng.integers(0, np.iinfo(word).max, 2000, dtype=word, endpoint=True).view(dtype)
    ends = [0.0, info.smallest_subnormal, info.smallest_normal, info.max, np.inf, info.smallest_normal * 3]
    x = np.concatenate([x, x[:500] * info.smallest_normal, np.array([*ends, *[-e for e in ends], np.nan], dtype)])
    x = x.astype(dtype)
    for have in both(fnp.frexp, x):
        for h, w in zip(have, np.frexp(x), strict=True):
            np.testing.assert_array_equal(h, w)
    step = np.abs(np.spacing(x.astype(np.float64 if dtype is np.float16 else dtype)))
    for have in both(fnp.spacing, x):
        if dtype is not np.float16:  # NumPy gives no sign there
            inner = np.abs(x) < info.max  # NumPy's next value is infinite
            np.testing.assert_array_equal(have[inner], np.spacing(x)[inner])
        assert np.all(np.signbit(have) == (np.signbit(x) & (x != 0)), where=np.isfinite(x))
        assert np.all((np.abs(have) >= step) | ~(np.abs(x) < info.max))
    for have in both(fnp.sign, x):
        np.testing.assert_array_equal(bits(have)[~np.isnan(x)], bits(np.sign(x))[~np.isnan(x)])
        assert np.all(np.isnan(have[np.isnan(x)]))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
@np.errstate(all="ignore")
def test_spacing_of_dtypes_that_numpy_lacks(dtype: Any) -> None:
    n = np.dtype(dtype).itemsize
    x = np.arange(2 ** (8 * n)).astype(f"u{n}").view(dtype)
    most = float(fnp.finfo(dtype).max)
    x = x[np.abs(x.astype(np.float64)) < most]
    away = np.where(np.signbit(x) & (x != 0), -most, most).astype(dtype)
    want = np.nextafter(x, away).astype(np.float64) - x.astype(np.float64)
    np.testing.assert_array_equal(np.asarray(fnp.spacing(x)).astype(np.float64), want)


@pytest.mark.parametrize("gap", [5e-39, 1e-44, 0.0])
def test_the_slope_of_interp_at_nearly_equal_points(gap: float) -> None:
    xp = np.array([2e-38, 2e-38 + gap, 1.0], np.float32)

    def f(x: Any, xp: Any) -> Any:
        return fnp.interp(x, xp, np.array([0.0, 1.0, 2.0], np.float32))

    for arg in (0, 1):
        assert np.all(np.isfinite(np.asarray(fx.grad(f, arg)(np.float32(2e-38), xp))))


# ------------------------------------------------------------------------------------------------------- zeros, signs


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_the_sign_of_minus_zero_is_zero(dtype: Any) -> None:
    for f in (fnp.sign, lax.sign):
        for y in both(f, np.array([-0.0, 0.0, -2.0], dtype)):
            assert not np.any(np.signbit(y)[:2])
            assert float(y[2]) == -1


def test_lcm_and_gcd_wrap_as_in_numpy() -> None:
    a, b = np.meshgrid(*[np.arange(-128, 128, 3).astype(np.int8)] * 2)
    np.testing.assert_array_equal(np.asarray(fnp.lcm(a, b)), np.lcm(a, b))
    np.testing.assert_array_equal(np.asarray(fnp.gcd(a, b)), np.gcd(a, b))


# --------------------------------------------------------------------------------------------- domains, large arguments


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_betainc_at_zero_and_infinite_parameters(dtype: Any) -> None:
    grid = [
        np.array(v, dtype) for v in zip(*product([0, -0.0, 1, np.inf, -1], [0, 2, np.inf], [0, 0.5, 1, 2]), strict=True)
    ]
    for y in both(lax.betainc, *grid):
        np.testing.assert_allclose(y, special_.betainc(*grid), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 37), (np.float64, 300)])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_polygamma_of_large_arguments(n: int, dtype: Any, most: int) -> None:
    x = np.array([10.0**k for k in range(1, most // n)], dtype)
    for y in both(lambda x: lax.polygamma(fnp.full(x.shape, n, dtype), x), x):
        np.testing.assert_allclose(y, special.polygamma(n, x.astype(float)), rtol=2e-5)
    if n == 1:
        np.testing.assert_allclose(np.asarray(fx.vmap(fx.grad(lax.digamma))(x)), special.polygamma(1, x), rtol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_polygamma_below_zero(n: int, dtype: Any) -> None:
    """Also at large negative arguments, where a sum of all terms would not end."""
    x = np.array([-0.5, -1.25, -9.5, -10.3, -100.25, -12345.75, -1e30, -20.0, -np.inf], dtype)
    want = special.polygamma(n, x.astype(float))
    want[-3:] = np.inf if n % 2 else -np.inf  # whole numbers: the limit from above, as in SciPy
    for y in both(lambda x: lax.polygamma(fnp.full(x.shape, n, dtype), x), x):
        np.testing.assert_allclose(y, want, rtol=1e-3 if dtype == np.float32 else 1e-9)
    if n == 1:
        np.testing.assert_allclose(np.asarray(fx.vmap(fx.grad(lax.digamma))(x)), want, rtol=1e-4)


_EDGES: Any = [0.0, -0.0, -1.0, -2.0, -0.5, -1.5, 1.0, 2.0, np.inf, -np.inf, np.nan]


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["digamma", "gammaln", "gamma", "polygamma", "zeta", "gammainc", "gammaincc"])
def test_the_gamma_family_at_poles_zeros_and_infinities(name: str, dtype: Any) -> None:
    """Versions of jaxlib differ there; SciPy's values hold on all. A nan among the operands gives nan."""
    ours, theirs = getattr(special_of_fxad, name), getattr(special_, name)
    first = {"polygamma": [0, 1, 2, 3], "zeta": [1, 1.5, 2, 3, 0.5, 0, -1, np.nan]}
    operands = [_EDGES] if name in ("digamma", "gammaln", "gamma") else [first.get(name, _EDGES), _EDGES]
    grid = [v.ravel().astype(dtype) for v in np.meshgrid(*[np.array(v) for v in operands])]
    has_nan = np.any(np.isnan(grid), axis=0)
    want = np.where(has_nan, np.nan, theirs(*[v.astype(float) for v in grid]))
    if name == "gammaln":
        want[grid[0] == -np.inf] = np.inf  # as in C; SciPy has -inf, though inf at whole numbers
    for y in both(ours, *grid):
        np.testing.assert_allclose(y.astype(float), want, rtol={2: 3e-3, 4: 1e-5, 8: 1e-12}[y.itemsize], atol=1e-5)
        np.testing.assert_array_equal(np.isinf(y), np.isinf(want))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeta_of_large_operands(dtype: Any) -> None:
    x = np.array([np.inf, 1e30, np.inf, 1e30, 2e4, 1.5, 3, 2, np.inf], dtype)
    q = np.array([1, 1, 0.5, 3, 1.001, 1e20, 1e6, np.inf, -0.5], dtype)
    want = [1, 1, np.inf, 0, q[4].astype(float) ** -2e4, 2e-10, 5.000005e-13, 0, np.inf]
    for y in both(lax.zeta, x, q)[:1]:  # SciPy has nan for some of them
        np.testing.assert_allclose(y, want, rtol=1e-2 if dtype == np.float32 else 1e-10)


def test_the_slopes_of_gammaln_and_digamma_at_zero() -> None:
    x = np.array([0.0, -0.0], np.float64)
    np.testing.assert_array_equal(np.asarray(fx.vmap(fx.grad(lax.lgamma))(x)), [-np.inf, np.inf])
    np.testing.assert_array_equal(np.asarray(fx.vmap(fx.grad(lax.digamma))(x)), [np.inf, np.inf])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_the_logarithm_of_a_sum_that_the_dtype_cannot_hold(dtype: Any) -> None:
    x = np.ones(70_000, dtype)
    for y in both(nn.logsumexp, x):
        assert float(y) == pytest.approx(1 + math.log(70_000), rel=5e-3)
    for y in both(nn.log_softmax, x):
        np.testing.assert_allclose(y.astype(float), -math.log(70_000), rtol=5e-3)
    assert nn.logsumexp(fnp.asarray(x)).dtype == dtype


@pytest.mark.parametrize("x", [1e-30, 0.5, 1.0, 3.0, 1e5, 1e10, -1e5, -1e10, -0.25])
def test_the_slope_of_soft_sign(x: float) -> None:
    assert float(nn.soft_sign(np.float32(x))) == pytest.approx(x / (1 + abs(x)))
    slope: Any = fx.grad(nn.soft_sign)(np.float32(x))
    assert float(slope) == pytest.approx((1 + abs(x)) ** -2, rel=1e-6)
    assert float(nn.soft_sign(np.float32(math.copysign(np.inf, x)))) == math.copysign(1, x)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_the_logarithm_of_a_complex_number_near_one(dtype: Any) -> None:
    for z in (1e-8, 1e-8j, 1e-9 - 3e-9j, -1e-30, 0.5 + 1j, 1e20 - 1e20j):
        for y in both(fnp.log1p, dtype(z)):
            a, b = np.real(dtype(z)).astype(float), np.imag(dtype(z)).astype(float)
            size = np.log1p(a) if b == 0 else 0.5 * np.log1p(2 * a + (a * a + b * b)) if abs(a) < 1 else np.log(abs(z))
            np.testing.assert_allclose([y.real, y.imag], [size, np.arctan2(b, 1 + a)], rtol=1e-6)


def test_the_condition_of_zeros_is_infinite() -> None:
    x = np.array([np.zeros((2, 2)), np.eye(2), np.full((2, 2), np.nan)], np.float32)
    for p in (None, 2, -2, "fro", 1, np.inf):
        found = np.asarray(fnp.linalg.cond(x, p))
        assert found[0] == np.inf
        assert np.isfinite(found[1])
        assert np.isnan(found[2])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3)])
def test_norms_of_empty_arrays(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    orders: list[Any] = [1, 2, np.inf, "fro", "nuc"]
    for o in orders:
        want = np.linalg.matrix_norm(x, ord=o)
        np.testing.assert_array_equal(np.asarray(fnp.linalg.matrix_norm(x, ord=o)), want)
    for o in (0, 1, 2, 3, np.inf):
        np.testing.assert_array_equal(np.asarray(fnp.linalg.vector_norm(x, ord=o)), np.linalg.vector_norm(x, ord=o))


# ---------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(("y", "dx", "axis"), [
    ((4, 3), (3,), 0), ((4, 3), (3, 1), 0), ((4, 3), (2,), 1), ((2, 4, 3), (2, 1, 3), 1), ((4, 3), (), -2),
])  # fmt: skip
def test_trapezoid_broadcasts_distances(y: tuple[int, ...], dx: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(0)
    a, d = rng.normal(size=y), rng.normal(size=dx)
    np.testing.assert_allclose(np.asarray(fnp.trapezoid(a, dx=d, axis=axis)), np_.trapezoid(a, dx=d, axis=axis))


@pytest.mark.parametrize(
    ("y", "x", "axis"), [((4, 3), (4,), 0), ((4, 3), (4, 3), 0), ((2, 4, 3), (4, 3), -2), ((2, 3), (3,), 1)]
)
def test_trapezoid_broadcasts_coordinates(y: tuple[int, ...], x: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(0)
    a, at = rng.normal(size=y), rng.normal(size=x)
    np.testing.assert_allclose(np.asarray(fnp.trapezoid(a, at, axis=axis)), np_.trapezoid(a, at, axis=axis))


X = np.array([1.0, 2.0, 4.0], np.float32)


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_correction_and_ddof_are_one_argument(name: str) -> None:
    f = getattr(fnp_, name)
    calls: list[Callable[..., Any]] = [f]
    if not name.startswith("nan"):
        calls.append(lambda x, **k: getattr(fnp.asarray(x), name)(**k))
    for call in calls:
        assert float(call(X, ddof=1)) == float(call(X, correction=1)) == pytest.approx(getattr(np, name)(X, ddof=1))
        assert float(call(X, ddof=1, correction=None)) == float(call(X, ddof=0, correction=1)) == float(call(X, ddof=1))
        with pytest.raises(ParameterError) as e:
            call(X, ddof=2, correction=0)
        assert e.value.message == f"{name}: correction 0 and ddof 2 are two names of one argument"
        assert e.value.remedy == "give one of them"


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
def test_integers_do_not_hold_covariances(name: str) -> None:
    with pytest.raises(DTypeError) as e:
        getattr(fnp_, name)(X, dtype="int32")
    assert e.value.message == f"{name}: dtype must be floating or complex, got int32"
    assert e.value.remedy == "leave it out: of integers the result is float32"


@pytest.mark.parametrize("dtype", ["int16", "uint8", "bool"])
def test_a_mean_has_the_dtype_that_is_asked_for(dtype: str) -> None:
    halves, kept = np.array([0.5, 1.5, 3.9, 4.0], np.float32), np.array([True, False, True, True])
    want, among = np.mean(halves, dtype=dtype), np.mean(halves, dtype=dtype, where=kept)
    for f in (fnp_.mean, fnp_.nanmean, fx.jit(fnp_.mean, static_argnames="dtype")):
        assert f(halves, dtype=dtype).dtype == want.dtype
        assert f(halves, dtype=dtype) == want
    for f in (fnp_.mean, fnp_.nanmean):
        assert f(halves, dtype=dtype, where=kept) == among
    for name in ("var", "nanvar", "std", "nanstd"):
        with pytest.raises(DTypeError) as e:
            getattr(fnp_, name)(X, dtype=dtype)
        assert e.value.message == f"{name.replace('nanstd', 'nanvar')}: dtype must be floating or complex, got {dtype}"
        assert e.value.remedy == "convert the result with astype"


def test_a_period_is_one_number() -> None:
    want = np_.interp(X, X, X, period=2.0)
    for period in (2, np.float64(2), np.array(-2), fnp.asarray(2.0)):
        np.testing.assert_allclose(np.asarray(fnp.interp(X, X, X, period=period)), want)
    for wrong, said in (
        (X[:2], "an ndarray: array([1., 2.], dtype=float32)"),
        ("2", "a str: '2'"),
        (1j, "a complex: 1j"),
    ):
        with pytest.raises(ParameterError) as e:
            fnp_.interp(X, X, X, period=wrong)
        assert e.value.message == f"interp: period must be one real number, got {said}"


@pytest.mark.parametrize(("mode", "argument", "modes"), [
    ("constant", {"stat_length": 3}, "maximum mean median minimum"),
    ("mean", {"constant_values": 1}, "constant"),
    ("edge", {"reflect_type": "even"}, "reflect symmetric"),
    ("wrap", {"end_values": 0}, "linear_ramp"),
])  # fmt: skip
def test_pad_refuses_arguments_of_other_modes(mode: str, argument: dict[str, Any], modes: str) -> None:
    with pytest.raises(ValueError, match="unsupported keyword"):
        np.pad(X, 1, mode, **argument)  # type: ignore[call-overload]
    with pytest.raises(ParameterError) as e:
        fnp_.pad(X, 1, mode, **argument)
    assert e.value.message == f"pad: mode {mode!r} takes no {next(iter(argument))}"
    assert e.value.remedy == f"leave it out: it is for {modes}"


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_a_python_type_and_its_name_are_one_dtype(kind: type) -> None:
    assert fnp.zeros(2, kind).dtype == fnp.zeros(2, kind.__name__).dtype == fx.Spec((), kind.__name__).dtype
    assert fnp.ones(2).astype(kind).dtype == fnp.ones(2).astype(kind.__name__).dtype


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_that_half_precision_cannot_hold(dtype: Any) -> None:
    x = np.ones(70_000, dtype)
    for f, wanted in (
        (nn.softmax, 1 / 70_000),
        (fnp.linalg.norm, math.sqrt(70_000)),
        (lambda x: fnp.linalg.matrix_norm(x.reshape(700, 100)), math.sqrt(70_000)),
        (lambda x: fnp.linalg.vector_norm(x, ord=3), 70_000 ** (1 / 3)),
        (lambda x: nn.logsumexp(x, b=x), 1 + math.log(70_000)),
        (nn.logmeanexp, 1.0),
    ):
        for y in both(f, x):
            assert y.dtype == dtype
            np.testing.assert_allclose(y.astype(float), wanted, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sinc_at_infinity(dtype: str) -> None:
    """The limit is 0, with its derivatives; NumPy gives nan."""
    x = np.array([-np.inf, np.inf], dtype)
    sinc: Any = fnp.sinc
    for f in (sinc, fx.grad(sinc), fx.grad(fx.grad(sinc))):
        np.testing.assert_array_equal(np.abs(np.asarray(fx.vmap(f)(x))), [0, 0])
    assert np.isnan(fnp.sinc(x.dtype.type(np.nan)))


def test_sinc_of_complex_numbers() -> None:
    z = np.array([0, 1e-9 + 1e-9j, 0.3 - 0.2j, 0.6 + 0.1j, 1 + 2j, 100.25 + 1j, -3.5])
    np.testing.assert_allclose(fnp.sinc(z), np.sinc(z), rtol=1e-12, atol=1e-14)
    infinite = np.array([-np.inf + 0j, np.inf - 2j])
    np.testing.assert_array_equal(np.abs(fnp.sinc(infinite)), [0, 0])
    step = 1e-6
    slopes = fx.vmap(lambda z: fx.jvp(fnp.sinc, (z,), (1 + 0j,))[1])(z)
    np.testing.assert_allclose(slopes, (np.sinc(z + step) - np.sinc(z - step)) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_squares_keep_both_parts(dtype: str) -> None:
    """a^2 - b^2 loses all digits where a is close to b; (a - b)(a + b) does not."""
    size = float(np.finfo(dtype).eps)
    a = np.array([88550680.0, 4.517187e-08, 3.0]).astype(np.zeros(0, dtype).real.dtype)
    z = (a + 1j * a * (1 + 3 * size)).astype(dtype)
    exact = np.array(
        [
            complex(
                float((Fraction(p) - Fraction(q)) * (Fraction(p) + Fraction(q))), float(2 * Fraction(p) * Fraction(q))
            )
            for p, q in zip(z.real.tolist(), z.imag.tolist(), strict=True)
        ]
    )
    for found in (fnp.square(z), fx.jit(fnp.square)(z), fx.interpret(fx.trace(fnp.square, z), z)):
        np.testing.assert_allclose(np.real(found), exact.real, rtol=4 * size)
        np.testing.assert_allclose(np.imag(found), exact.imag, rtol=4 * size)


def test_complex_squares_of_the_largest_numbers() -> None:
    most = np.finfo(np.float32).max
    for z in (np.complex64(complex(most, most)), np.complex64(complex(-most, most))):
        for found in (fnp.square(z), fx.interpret(fx.trace(fnp.square, z), z)):
            assert float(np.real(found)) == 0
            assert np.isinf(np.imag(found))
    infinite = fnp.square(np.complex64(complex(np.inf, 1)))
    assert float(np.real(infinite)) == np.inf


def test_a_distinct_value_that_is_missing_has_the_index_of_its_value() -> None:
    x = np.array([3, 1, 3, 2])
    values, first, _, counts = fnp.unique(x, True, True, True, size=5)
    np.testing.assert_array_equal(values, [1, 2, 3, 1, 1])
    np.testing.assert_array_equal(x[np.asarray(first)], values)
    np.testing.assert_array_equal(counts, [1, 1, 2, 0, 0])
    rows, places = fnp.unique(np.array([[3, 3], [1, 1]]), return_index=True, axis=0, size=3)
    np.testing.assert_array_equal(rows, [[1, 1], [3, 3], [1, 1]])
    np.testing.assert_array_equal(places, [1, 0, 1])
