"""Series of order 8 of functions of matrices, beside the identities that define them.

The series of a decomposition is that whose product, coefficient by coefficient, is the series of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest

import fxad as fx
from fxad import lax, numpy as fnp

Series: TypeAlias = list[np.ndarray]
ORDER = 8
RNG = np.random.default_rng(11)


def drawn(n: int = 3, symmetric: bool = False) -> Series:
    """The coefficients of a curve of degree 2, whose eigenvalues and singular values stay apart."""
    first = np.diag(np.arange(1.0, n + 1)) * 3 + 0.3 * RNG.normal(size=(n, n))
    curve = [first, RNG.normal(size=(n, n)), RNG.normal(size=(n, n)), *[np.zeros((n, n))] * (ORDER - 2)]
    return [a + a.T for a in curve] if symmetric else curve


def series(f: Callable[..., Any], *curves: Series) -> list[Series]:
    """The coefficients of each result of f."""
    program = fx.trace(f, *[c[0] for c in curves])
    jet = fx.jet(program, order=ORDER)
    value, higher = fx.interpret(jet, tuple([c[0] for c in curves]), tuple(zip(*[c[1:] for c in curves], strict=True)))
    values = [fx.tree.leaves(v) for v in (value, *higher)]
    return [[np.asarray(v[k]) for v in values] for k in range(len(values[0]))]


def product(x: Series, y: Series) -> Series:
    return [np.asarray(sum(x[j] @ y[k - j] for j in range(k + 1))) for k in range(ORDER + 1)]


def diagonal(x: Series) -> Series:
    return [np.diag(c) for c in x]


def transposed(x: Series) -> Series:
    return [c.T for c in x]


IDENTITY: Series = [np.eye(3), *[np.zeros((3, 3))] * ORDER]


def assert_equal(found: Series, want: Sequence[np.ndarray], scale: Series) -> None:
    """Relative to the largest coefficient of its order in the factors."""
    for k, (a, b) in enumerate(zip(found, want, strict=True)):
        size = max(1.0, *[float(abs(c).max()) for c in scale[: k + 1]])
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * size * size, err_msg=f"coefficient {k}")


def test_cholesky() -> None:
    a = product(x := drawn(), transposed(x))
    (low,) = series(fnp.linalg.cholesky, a)
    assert_equal(product(low, transposed(low)), a, low)
    assert not any([np.triu(c, 1).any() for c in low])


def test_eigh() -> None:
    a = drawn(symmetric=True)
    w, v = series(fnp.linalg.eigh, a)
    assert_equal(product(a, v), product(v, diagonal(w)), v)
    assert_equal(product(transposed(v), v), IDENTITY, v)


def test_svd() -> None:
    a = drawn()
    u, s, vh = series(lambda a: fnp.linalg.svd(a, full_matrices=False), a)
    assert_equal(product(product(u, diagonal(s)), vh), a, u + s + vh)
    assert_equal(product(transposed(u), u), IDENTITY, u)
    (alone,) = series(lambda a: fnp.linalg.svd(a, compute_uv=False), a)
    assert_equal(alone, s, s)


def test_qr() -> None:
    a = drawn()
    q, r = series(fnp.linalg.qr, a)
    assert_equal(product(q, r), a, q + r)
    assert_equal(product(transposed(q), q), IDENTITY, q)


def test_lu() -> None:
    a = drawn()
    (lu,) = series(lambda a: lax.linalg.lu(a)[0], a)
    permutation = np.asarray(fx.interpret(fx.trace(lambda a: lax.linalg.lu(a)[2], a[0]), a[0]))
    low = [np.tril(c, -1) + (np.eye(3) if k == 0 else 0) for k, c in enumerate(lu)]
    assert_equal(product(low, [np.triu(c) for c in lu]), [c[permutation] for c in a], lu)


@pytest.mark.parametrize("solve", [fnp.linalg.solve, lambda a, b: fnp.linalg.inv(a) @ b])
def test_solve(solve: Callable[..., Any]) -> None:
    a, b = drawn(), drawn()
    (x,) = series(solve, a, b)
    assert_equal(product(a, x), b, x)


def test_triangular_solve() -> None:
    a, b = drawn(), drawn()
    (x,) = series(lambda a, b: fx.scipy.linalg.solve_triangular(a, b, lower=True), a, b)
    assert_equal(product([np.tril(c) for c in a], x), b, x)


def test_determinants() -> None:
    """d' = d tr(A^-1 A'), and log|det| has the series of the logarithm."""
    a = drawn()
    (det,) = series(fnp.linalg.det, a)
    (log,) = series(lambda a: fnp.linalg.slogdet(a)[1], a)
    (inverse,) = series(fnp.linalg.inv, a)
    slope = [(k + 1) * a[k + 1] if k < ORDER else np.zeros((3, 3)) for k in range(ORDER + 1)]
    traces = [np.trace(c) for c in product(inverse, slope)]
    for k in range(ORDER):
        scale = max(abs(np.array(traces[: k + 1])))
        assert abs((k + 1) * log[k + 1] - traces[k]) < 1e-12 * (1 + scale)
        terms = [det[j] * traces[k - j] for j in range(k + 1)]
        assert abs((k + 1) * det[k + 1] - sum(terms)) < 1e-12 * (1 + sum(map(abs, terms)))


def test_expm_along_its_own_matrix() -> None:
    """exp((1 + t) A) = exp(A) (1 + A t + A^2 t^2 / 2 + ...)."""
    a = drawn()[0] / 5
    (found,) = series(fx.scipy.linalg.expm, [a, a, *[np.zeros((3, 3))] * (ORDER - 1)])
    term = found[0]
    want = [term]
    for k in range(1, ORDER + 1):
        term = term @ a / k
        want.append(term)
    assert_equal(found, want, want)


BINOMIAL: dict[str, tuple[Callable[[Any], Any], int]] = {
    "prod": (lambda x: fnp.prod(x * fnp.ones(4)), 4),
    "cumprod": (lambda x: fnp.cumprod(x * fnp.ones(4))[2], 3),
    "dot_general": (lambda x: (x * fnp.ones((2, 2)) @ (x * fnp.ones((2, 2))) / 2)[0, 1], 2),
    "conv": (lambda x: fnp.convolve(x * fnp.ones(1), x * fnp.ones(3), "valid")[0], 2),
    "scan": (lambda x: lax.scan(lambda c, _: (c * x, None), x, None, length=4)[0], 5),
    "while_loop": (lambda x: lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * x), (0, x))[1], 5),
    "cond": (lambda x: lax.cond(x > 0, lambda x: x**6, lambda x: x, x), 6),
    "reduce_max": (lambda x: fnp.max(fnp.stack([x, x - 1]) ** 2), 2),
    "logsumexp": (lambda x: fnp.exp(fx.nn.logsumexp(fnp.log(x * fnp.ones(3)))) / 3, 1),
    "sort": (lambda x: fnp.sort(fnp.stack([x, -x]) ** 3)[1], 3),
    "gather": (lambda x: (x * fnp.arange(3.0))[fnp.array([1])][0] ** 3, 3),
    "scatter": (lambda x: fnp.zeros(3).at[1].set(x * x)[1], 2),
    "scatter_mul": (lambda x: (x * fnp.ones(3)).at[1].multiply(x * x)[1], 3),
    "fft": (lambda x: fnp.fft.ifft(fnp.fft.fft(x * fnp.ones(4)) ** 2).real[0] / 4, 2),
    "integer_pow": (lambda x: x**8, 8),
    "pow": (lambda x: x**2.0, 2),
}


@pytest.mark.parametrize("name", BINOMIAL)
def test_powers(name: str) -> None:
    """(1 + t)^n, by the primitive in the name."""
    f, n = BINOMIAL[name]
    curve: Series = [np.ones(()), np.ones(()), *[np.zeros(())] * (ORDER - 1)]
    (found,) = series(f, curve)
    want = [float(np.prod([(n - j) / (j + 1) for j in range(k)])) for k in range(ORDER + 1)]
    np.testing.assert_allclose(np.array(found, np.float64), want, atol=1e-11)
