"""`fxad.scipy` against SciPy: values, defaults, promotion, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, ParameterError
from fxad.scipy import linalg, sparse, special, stats
from tests.api.refusals import check_refused

X = np.array([0.1, 0.35, 0.8, 0.95])
POSITIVE = np.array([0.3, 1.0, 2.5, 7.0])
BROAD = np.array([-2.5, -0.4, 0.3, 3.0])
UNARY = {
    "digamma": POSITIVE, "erf": BROAD, "erfc": BROAD, "erfinv": X, "gammaln": POSITIVE, "i0": BROAD, "i0e": BROAD,
    "i1": BROAD, "i1e": BROAD, "ndtr": BROAD, "log_ndtr": BROAD, "ndtri": X, "expit": BROAD, "logit": X, "entr": X,
    "psi": POSITIVE, "gammasgn": np.array([-1.5, -0.5, 0.5, -2.5]), "gamma": BROAD, "factorial": POSITIVE,
}  # fmt: skip
BINARY = {
    "gammainc": (POSITIVE, POSITIVE[::-1].copy()), "gammaincc": (POSITIVE, POSITIVE[::-1].copy()),
    "betaln": (POSITIVE, POSITIVE + 1), "beta": (POSITIVE, POSITIVE + 1),
    "xlogy": (np.array([0.0, 1, 2, 0]), POSITIVE * 0.5),
    "xlog1py": (np.array([0.0, 1, 2, 0]), POSITIVE), "poch": (POSITIVE, POSITIVE[::-1].copy()),
    "kl_div": (np.array([0.0, 0.5, 1, 2]), POSITIVE),
    "rel_entr": (np.array([0.0, 0.5, -1, 2]), np.array([1, 0.5, 2, 0.0])),
    "zeta": (POSITIVE + 1.5, POSITIVE), "polygamma": (np.array([0.0, 1, 2, 1]), POSITIVE),
}  # fmt: skip


def close(ours: Any, theirs: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name: str) -> None:
    x = UNARY[name]
    close(getattr(special, name)(x), getattr(scipy.special, name)(x), 1e-9)
    narrow = getattr(special, name)(x.astype(np.float32))
    assert narrow.dtype == np.float32
    assert fx.jit(getattr(special, name))(2).dtype == np.float32  # an integer


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name: str) -> None:
    x, y = BINARY[name]
    close(getattr(special, name)(x, y), getattr(scipy.special, name)(x, y), 1e-8)
    # broadcasting, promotion, numbers
    out = getattr(special, name)(x[:, None].astype(np.float32), fnp.asarray(y))
    assert (out.shape, out.dtype) == ((4, 4), np.float64)
    assert getattr(special, name)(2, y.astype(np.float32)).dtype == np.float32


LARGE = [0.3, 1.0, 2.5, 9.0, 11.0, 300.0, 1e5, 1e8, 1e20]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["betaln", "beta", "poch"])
def test_differences_of_log_gamma_do_not_cancel(name: str, dtype: type[np.floating]) -> None:
    """log gamma(1e8) is 1.7e9, and that of 1e8 + 0.5 differs by 9: in float32 the difference would have no digit."""
    a, b = [v.astype(dtype).ravel() for v in np.meshgrid(LARGE, LARGE)]
    with np.errstate(all="ignore"):
        want = getattr(scipy.special, name)(a.astype(float), b.astype(float)).astype(dtype)
        rtol = 2e-4 if dtype == np.float32 else 1e-9
        atol = 1e-2 * rtol if name == "betaln" else 1e-37  # betaln(1, 1) is 0; XLA flushes subnormal numbers
        np.testing.assert_allclose(np.asarray(getattr(special, name)(a, b)), want, rtol=rtol, atol=atol)


def test_derivatives_of_betaln_do_not_cancel() -> None:
    a, b = np.array([1e8, 1e5, 2000, 9.5, 1, 0.3]), np.array([0.5, 0.1, 2001, 20, 1, 0.2])
    in_a, in_b = fx.vmap(fx.grad(special.betaln, argnums=(0, 1)))(a, b)
    total = scipy.special.digamma(a + b)
    want = scipy.special.digamma(a) - total
    want[0] = -0.5 / a[0]  # the difference of two digamma functions of 1e8 has half of the digits
    close(in_a, want, 1e-8)
    close(in_b, scipy.special.digamma(b) - total, 1e-8)
    narrow = fx.vmap(fx.grad(special.betaln))(a.astype(np.float32), b.astype(np.float32))
    close(narrow, want, 1e-5)


@pytest.mark.parametrize(
    ("name", "x", "parameters"),
    [
        ("gamma", 1.001e6, (1e6,)),
        ("gamma", 0.0, (1.0,)),
        ("chi2", 2.002e6, (2e6,)),
        ("t", 3.0, (1e8,)),
        ("beta", 0.501, (1e5, 1e5)),
        ("beta", 0.99999, (1e5, 2.0)),
        ("beta", 1.0, (3.0, 1.0)),
        ("poisson", 990_000, (1e6,)),
        ("poisson", 0, (0.0,)),
        ("binom", 301_000, (1e6, 0.3)),
        ("binom", 5, (5.0, 1.0)),
        ("nbinom", 1_001_000, (1e6, 0.5)),
        ("nbinom", 0, (0.5, 0.3)),
        ("betabinom", 51_000, (1e5, 1e4, 1e4)),
    ],
)
def test_densities_have_their_digits_at_large_parameters(name: str, x: float, parameters: tuple[float, ...]) -> None:
    method = "logpdf" if hasattr(getattr(stats, name), "logpdf") else "logpmf"
    for dtype, tolerance in ((np.float32, 2e-5), (np.float64, 1e-9)):
        rounded = [float(dtype(v)) for v in (x, *parameters)]
        ours = getattr(getattr(stats, name), method)(*[dtype(v) for v in rounded])
        want = getattr(getattr(scipy.stats, name), method)(*rounded)
        np.testing.assert_allclose(float(ours), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("boxcox", (0.0, 0.0)),
        ("boxcox1p", (-1.0, 0.0)),
        ("gammasgn", (np.nan,)),
        ("rel_entr", (np.nan, 1.0)),
        ("kl_div", (np.inf, 0.0)),
        ("betaln", (0.0, 2.0)),
        ("betaln", (np.inf, 2.0)),
        ("comb", (1e6, 2.0)),
        ("comb", (2.5, 1.5)),
        ("gammainc", (10.0, 1e-10)),
        ("betainc", (1e-10, 3.0, 0.1)),
        ("betainc", (10.0, 10.0, 1e-10)),
    ],
)
def test_ends_of_domains(name: str, args: tuple[float, ...]) -> None:
    want = getattr(scipy.special, name)(*args)
    close(getattr(special, name)(*[np.float64(v) for v in args]), want, 1e-10)
    with np.errstate(under="ignore"):
        close(getattr(special, name)(*[np.float32(v) for v in args]), np.float32(want), 1e-5)


def test_an_order_of_more_than_31_bits_gives_nan() -> None:
    assert np.isnan(special.expn(np.array([np.nan, 1e20, -1, 2**32]), 1.0)).all()
    close(special.expn(np.array([0, 1, 2, 2**31 - 1]), 1.0), scipy.special.expn([0, 1, 2, 2**31 - 1], 1.0), 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_incomplete_beta_function_of_huge_parameters(dtype: type[np.floating]) -> None:
    """The continued fraction has too few rounds from about 1e11 on; squares of a parameter overflow in float32."""
    deviations = np.array([-3, -1, -0.1, 0, 0.1, 1, 3.0])
    for a in (1e10, 1e12, 1e100):
        if dtype == np.float64 or a < 1e30:
            x = (0.5 + deviations * np.sqrt(0.125 / a)).astype(dtype)
            given = (x.astype(float) - 0.5) / np.sqrt(0.125 / a)
            ours = special.betainc(dtype(a), dtype(a), x)
            np.testing.assert_allclose(
                np.asarray(ours), scipy.special.ndtr(given), atol=0.02 if dtype == np.float32 else 1e-9
            )
    for a in (1e15, 1e25, 1e37):
        assert float(special.betainc(dtype(a), dtype(a), dtype(0.5))) == 0.5
        assert float(special.betainc(dtype(5), dtype(a), dtype(0.4))) == 1
        assert float(special.betainc(dtype(a), dtype(5), dtype(0.4))) == 0
        close(special.betainc(dtype(5), dtype(a), dtype(5 / a)), scipy.special.gammainc(5, 5), 5e-5)


@pytest.mark.parametrize(
    ("name", "method", "x", "shapes"),
    [
        ("expon", "logcdf", 30.0, ()),
        ("cauchy", "logcdf", 1e4, ()),
        ("gamma", "logcdf", 30.0, (0.5,)),
        ("chi2", "logsf", 0.1, (30.0,)),
        ("beta", "sf", 1e-8, (0.01, 5.0)),
        ("gennorm", "sf", 8.0, (2.0,)),
        ("gennorm", "logcdf", -8.0, (2.0,)),
        ("gennorm", "logsf", 30.0, (1.5,)),
        ("gumbel_r", "logsf", 100.0, ()),
        ("gumbel_l", "logcdf", -100.0, ()),
        ("laplace", "logcdf", -100.0, ()),
        ("laplace", "logsf", -30.0, ()),
        ("logistic", "pdf", -np.inf, ()),
        ("pareto", "logcdf", 500.0, (3.0,)),
        ("t", "cdf", 1e-3, (3.0,)),
        ("t", "sf", 8.0, (1000.0,)),
        ("t", "logsf", -1e-3, (0.5,)),
        ("truncnorm", "cdf", -np.inf, (-np.inf, 1.0)),
        ("uniform", "logsf", 1e-8, ()),
    ],
)
def test_small_probabilities_have_their_digits(name: str, method: str, x: float, shapes: tuple[float, ...]) -> None:
    for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-9)):
        rounded = [float(dtype(v)) for v in (x, *shapes)]
        want = getattr(getattr(scipy.stats, name), method)(*rounded)
        ours = getattr(getattr(stats, name), method)(*[dtype(v) for v in rounded])
        np.testing.assert_allclose(float(ours), want, rtol=tolerance, atol=1e-37)
        if name == "t" and method == "cdf":  # its distance from 1/2 too
            np.testing.assert_allclose(float(ours) - 0.5, want - 0.5, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("t", (3.0,)), ("gennorm", (2.0,)), ("laplace", ()), ("cauchy", ()), ("gamma", (2.5,)), ("norm", ())],
)
def test_the_derivative_of_a_probability_is_the_density(name: str, shapes: tuple[float, ...]) -> None:
    """Also at 0, where formulas of |x| or of x**2 have none, and outside of the support."""
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    x = np.array([-2.0, 0.0, 0.3])
    density, below, above = [getattr(theirs, m)(x, *shapes) for m in ("pdf", "cdf", "sf")]
    log_slope = np.divide(density, below, out=np.zeros(3), where=below > 0)
    for method, want in (("cdf", density), ("sf", -density), ("logcdf", log_slope), ("logsf", -density / above)):
        close(fx.vmap(fx.grad(lambda x: getattr(ours, method)(x, *shapes)))(x), want, 1e-8)

    def probability(x: fx.Array) -> fx.Array:
        return cast("fx.Array", ours.cdf(x, *shapes))

    def slope_of_density(x: fx.Array) -> fx.Array:
        return fx.jvp(lambda x: cast("fx.Array", ours.pdf(x, *shapes)), (x,), (fnp.ones_like(x),))[1]

    points = fnp.asarray(x)
    close(fx.vmap(fx.grad(fx.grad(probability)))(points), slope_of_density(points), 1e-8)


def test_derivatives_of_probabilities_in_parameters() -> None:
    def of_scale(x: fx.Array, scale: fx.Array) -> fx.Array:
        return stats.norm.cdf(x, 1.0, scale)

    by_x, by_scale = fx.grad(of_scale, argnums=(0, 1))(fnp.asarray(np.float64(0.3)), fnp.asarray(2.0))
    density = scipy.stats.norm.pdf(-0.35)
    close([by_x, by_scale], [density / 2, -density * -0.35 / 2], 1e-6)  # the scale is a float32
    step = 1e-5

    def of_both(a: fx.Array) -> fx.Array:
        return stats.gamma.cdf(a, a)

    together = fx.grad(of_both)(fnp.asarray(np.float64(2)))
    want = (scipy.stats.gamma.cdf(2 + step, 2 + step) - scipy.stats.gamma.cdf(2 - step, 2 - step)) / (2 * step)
    close(together, want, 1e-6)


@pytest.mark.parametrize("a", [1.5, 50.0])
def test_second_derivatives_at_equal_parameters(a: float) -> None:
    """The derivative of a minimum of two equal numbers is the average of both sides: no formula may use it."""
    (aa, ab), (_, bb) = fx.hessian(special.betaln, (0, 1))(fnp.asarray(np.float64(a)), fnp.asarray(np.float64(a)))
    both, one = scipy.special.polygamma(1, 2 * a), scipy.special.polygamma(1, a)
    close([aa, ab, bb], [one - both, -both, one - both], 1e-8)


def test_the_second_derivative_of_a_density_at_its_centre() -> None:
    def log_density(x: fx.Array) -> fx.Array:
        return stats.logistic.logpdf(x)

    close(fx.grad(fx.grad(log_density))(fnp.asarray(np.float64(0))), -0.5)


def test_combinations_of_nothing() -> None:
    assert float(special.comb(0.0, 0.0, repetition=True)) == scipy.special.comb(0, 0, repetition=True) == 1


def test_slopes_at_the_ends() -> None:
    """A power of 0 with the exponent 0 is 1: the density of these distributions at an end is a number."""
    ends = fx.vmap(fx.grad(special.gammainc, argnums=1))(fnp.asarray([1.0, 2.0, 0.5]), fnp.zeros(3))
    close(ends, [1.0, 0.0, np.inf])
    a, b, x = fnp.asarray([1.0, 1, 2, 1]), fnp.asarray([1.0, 2, 1, 30]), fnp.asarray([0.0, 0, 1, 0])
    close(fx.vmap(fx.grad(special.betainc, argnums=2))(a, b, x), [1, 2, 2, 30], 2e-6)


def test_more_functions() -> None:
    close(special.betainc(POSITIVE, 2.0, X), scipy.special.betainc(POSITIVE, 2.0, X))
    close(special.multigammaln(POSITIVE + 2, 3), [scipy.special.multigammaln(v + 2, 3) for v in POSITIVE])
    close(special.zeta(3.0), scipy.special.zeta(3.0))
    m = BROAD.reshape(2, 2)
    close(special.logsumexp(m, axis=1), scipy.special.logsumexp(m, axis=1))
    close(special.logsumexp(m, b=np.array([[1.0, 2], [3, 4]])), scipy.special.logsumexp(m, b=[[1.0, 2], [3, 4]]))
    value, sign = special.logsumexp(m, b=-np.ones((2, 2)), return_sign=True)
    close([value, sign], scipy.special.logsumexp(m, b=-np.ones((2, 2)), return_sign=True))
    close(special.softmax(m), scipy.special.softmax(m))
    close(special.log_softmax(m, axis=0), scipy.special.log_softmax(m, axis=0))
    with pytest.raises(ParameterError, match="factorial: exact=True has no result of a floating dtype") as e:
        special.factorial(3, exact=True)
    assert e.value.remedy == "use math.factorial"


A = np.array([[4.0, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]])
B = np.array([[1.0, 2], [0, 1], [3, 1]])


def test_linear_algebra() -> None:
    close(linalg.cholesky(A), scipy.linalg.cholesky(A))  # the upper triangle: SciPy's default
    close(linalg.cholesky(A, lower=True), scipy.linalg.cholesky(A, lower=True))
    close(linalg.cho_solve(linalg.cho_factor(A), B), np.linalg.solve(A, B))
    close(linalg.cho_solve(linalg.cho_factor(A, lower=True), B), np.linalg.solve(A, B))
    close(linalg.lu_solve(linalg.lu_factor(A), B, trans=1), np.linalg.solve(A.T, B))
    close(linalg.det(A), scipy.linalg.det(A))
    close(linalg.inv(A), scipy.linalg.inv(A))
    close(linalg.expm(A), scipy.linalg.expm(A))
    for assume in ("gen", "pos", "sym"):
        close(linalg.solve(A, B, assume_a=assume), np.linalg.solve(A, B))
    for lower, triangle in ((False, np.triu(A)), (True, np.tril(A))):  # the other one is not read
        for assume in ("pos", "sym", "her"):
            close(linalg.solve(triangle, B, bool(lower), assume_a=assume), np.linalg.solve(A, B))
    hermitian = A + 1j * (np.triu(A, 1) - np.tril(A, -1))
    close(linalg.solve(np.triu(hermitian), B, assume_a="her"), np.linalg.solve(hermitian, B))
    for trans in (0, "T", "C", "N"):
        for lower in (False, True):
            theirs = scipy.linalg.solve_triangular(A, B, trans, lower)
            close(linalg.solve_triangular(A, B, trans, lower), theirs)
    for k, part in enumerate(linalg.lu(A)):
        close(part, scipy.linalg.lu(A)[k])
    close(linalg.lu(A, permute_l=True)[0], scipy.linalg.lu(A, permute_l=True)[0])
    w, v = linalg.eigh(A)
    close(v @ fnp.diag(w) @ v.T, A)
    close(linalg.eigh(A, eigvals_only=True), scipy.linalg.eigh(A, eigvals_only=True))
    u, s, vh = linalg.svd(B)
    assert (u.shape, vh.shape) == ((3, 3), (2, 2))
    close(linalg.svd(B, compute_uv=False), s)
    for mode in ("full", "economic"):
        q, r = linalg.qr(B, mode=mode)
        assert q.shape == scipy.linalg.qr(B, mode=mode)[0].shape
        close(q @ r, B)
    assert len(linalg.qr(B, mode="r")) == 1
    close(linalg.toeplitz(np.array([1, 2, 3]), np.array([1, 5, 6, 7])), scipy.linalg.toeplitz([1, 2, 3], [1, 5, 6, 7]))
    close(linalg.toeplitz(POSITIVE), scipy.linalg.toeplitz(POSITIVE))
    close(linalg.hilbert(3), scipy.linalg.hilbert(3))
    close(linalg.block_diag(A, B), scipy.linalg.block_diag(A, B))
    x, report = sparse.linalg.cg(A, B[:, 0], tol=1e-10)
    close(x, np.linalg.solve(A, B[:, 0]), 1e-6)
    assert bool(report.converged)


REFUSED: list[tuple[Callable[[], object], str, str]] = [
    (lambda: linalg.eigh(A, A), "eigh: the generalised problem of two matrices is not supported",  # type: ignore[call-overload]
     "reduce it: with L = cholesky(b, lower=True), take eigh of L^-1 a L^-H"),
    (lambda: linalg.qr(A, mode="raw"), "qr: mode 'raw'", 'use "full", "economic" or "r"'),
    (lambda: linalg.solve(A, B, assume_a="banded"), "solve: assume_a 'banded'", 'use "gen", "sym", "her" or "pos"'),
    (lambda: linalg.solve_triangular(A, B, "H"), "solve_triangular: trans is 'H'",
     'use "N", "T" or "C", or 0, 1 or 2'),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    call, message, remedy = REFUSED[k]
    check_refused(call, ParameterError, message, remedy)


V = np.array([-0.5, 0.2, 0.7, 2.0])
STATS: list[tuple[str, str, tuple[Any, ...]]] = [
    *[("norm", f, (V, 0.3, 1.5)) for f in ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf")],
    ("norm", "ppf", (X, 0.3, 1.5)),
    *[("uniform", f, (V, -0.2, 1.5)) for f in ("logpdf", "pdf")],
    *[("expon", f, (V, -0.2, 1.5)) for f in ("logpdf", "pdf")],
    *[("laplace", f, (V, -0.2, 1.5)) for f in ("logpdf", "pdf")],
    *[("gamma", f, (V, 2.5, -0.2, 1.5)) for f in ("logpdf", "pdf", "cdf")],
    *[("beta", f, (V, 2.5, 1.5, 0.0, 1.5)) for f in ("logpdf", "pdf")],
    *[("t", f, (V, 2.5, -0.2, 1.5)) for f in ("logpdf", "pdf")],
    *[("poisson", f, (np.array([-1, 0, 2, 5]), 2.5)) for f in ("logpmf", "pmf")],
    *[("bernoulli", f, (np.array([-1, 0, 1, 5]), 0.25)) for f in ("logpmf", "pmf")],
]


@pytest.mark.parametrize(("name", "method", "args"), STATS)
def test_distributions(name: str, method: str, args: tuple[Any, ...]) -> None:
    want = getattr(getattr(scipy.stats, name), method)(*args)
    close(getattr(getattr(stats, name), method)(*[np.float64(a) for a in args]), want, 1e-8)
    assert getattr(getattr(stats, name), method)(*[np.float32(a) for a in args]).dtype == np.float32


def test_normal_vectors() -> None:
    theirs = scipy.stats.multivariate_normal
    x, mean = np.arange(6.0).reshape(2, 3), np.ones(3)
    close(stats.multivariate_normal.logpdf(x, mean, A), theirs.logpdf(x, mean, A))
    close(stats.multivariate_normal.pdf(x[0], mean, A), theirs.pdf(x[0], mean, A))


def test_derivatives() -> None:
    close(fx.grad(lambda x: stats.norm.logpdf(x, 1.0, 2.0))(3.0), -0.5)
    close(fx.vmap(fx.grad(special.gammaln))(fnp.asarray(POSITIVE)), scipy.special.digamma(POSITIVE), 1e-6)
    close(fx.grad(lambda x: special.xlogy(x, 2.0))(0.0), np.log(2.0))
    with pytest.raises(ArgumentError):
        special.erf("a")  # type: ignore[arg-type]
