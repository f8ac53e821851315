"""`fxad.scipy` against SciPy: values, defaults, promotion, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, ParameterError
from fxad.scipy import linalg, sparse, special, stats

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
    (lambda: linalg.eigh(A, A), "eigh: the generalised problem of two matrices is not there",  # type: ignore[call-overload]
     "reduce it: with L = cholesky(b, lower=True), take eigh of L^-1 a L^-H"),
    (lambda: linalg.qr(A, pivoting=True), "qr: pivoting is not there", "use svd to find the rank"),
    (lambda: linalg.qr(A, mode="raw"), "qr: mode 'raw'", 'use "full", "economic" or "r"'),
    (lambda: linalg.solve(A, B, assume_a="banded"), "solve: assume_a 'banded'", 'use "gen", "sym", "her" or "pos"'),
    (lambda: linalg.solve_triangular(A, B, "H"), "solve_triangular: trans is 'H'",
     'use "N", "T" or "C", or 0, 1 or 2'),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    call, message, remedy = REFUSED[k]
    with pytest.raises(ParameterError) as e:
        call()
    assert (e.value.message, e.value.remedy) == (message, remedy)


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
