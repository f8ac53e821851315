"""fxad.numpy.linalg and fxad.lax.linalg, against NumPy and SciPy: values, edges, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import fxad as fx
from fxad.numpy import linalg as L
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.svd import Svd

lax: Any = fx.lax.linalg
RNG = np.random.default_rng(0)
DTYPES = [np.float32, np.complex128]  # the laws of the primitives draw other dtypes


def values_of(x: Any) -> Any:
    return np.asarray(x)


def drawn(*shape: int, dtype: Any = np.float64) -> Any:
    x = RNG.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * RNG.standard_normal(shape)
    return x.astype(dtype)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(values_of(x), -1, -2))


def definite(x: Any) -> Any:
    return x @ adjoint(x) + np.eye(x.shape[-1], dtype=x.dtype)


def same(have: Any, want: Any) -> None:
    have, want = values_of(have), values_of(want)
    assert (have.shape, have.dtype) == (want.shape, want.dtype)
    tol = 3e-3 if have.dtype in (np.float32, np.complex64) else 1e-8
    np.testing.assert_allclose(have, want, tol, tol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems(dtype: Any) -> None:
    a, b, v = drawn(2, 4, 4, dtype=dtype), drawn(2, 4, 3, dtype=dtype), drawn(4, dtype=dtype)
    same(L.solve(a, b), np.linalg.solve(a, b))
    same(L.solve(a[0], v), np.linalg.solve(a[0], v))
    same(L.solve(a, v), np.stack([np.linalg.solve(m, v) for m in a]))
    same(L.solve(a[0], b), np.stack([np.linalg.solve(a[0], m) for m in b]))
    same(L.inv(a), np.linalg.inv(a))
    for n in (1, 2, 3, 4):
        same(L.det(a[:, :n, :n]), np.linalg.det(a[:, :n, :n]))
    for have, want in zip(L.slogdet(a), np.linalg.slogdet(a), strict=True):
        same(have, want)
    for n in (-2, -1, 0, 1, 2, 3, 5):
        same(L.matrix_power(a / 2, n), np.linalg.matrix_power(a / 2, n))
    t = drawn(2, 3, 6, dtype=dtype)
    same(L.tensorsolve(t, b[0][:2, :3]), np.linalg.tensorsolve(t, b[0][:2, :3]))
    same(L.tensorsolve(t.transpose(2, 0, 1), b[0][:2, :3], (0,)), np.linalg.tensorsolve(t, b[0][:2, :3]))
    same(L.tensorinv(t), np.linalg.tensorinv(t))
    ones = np.ones(3, dtype)
    same(L.multi_dot([v, a[0], b[0], ones]), np.linalg.multi_dot([v, a[0], b[0], ones]))
    same(L.block_diag(a[0], b[0], v), scipy.linalg.block_diag(a[0], b[0], v))
    same(L.cross(b, b[:, ::-1].copy()), np.linalg.cross(b, b[:, ::-1]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_by_factors(dtype: Any) -> None:
    a, v = drawn(4, 4, dtype=dtype), drawn(4, dtype=dtype)
    factors, pivots = L.lu_factor(a)
    want = scipy.linalg.lu_factor(a)
    same(factors, want[0])
    same(pivots, want[1])
    tall = a + 4 * np.eye(4, dtype=dtype)
    for trans in (0, 1, 2):
        same(L.lu_solve((factors, pivots), v, trans), scipy.linalg.lu_solve(want, v, trans))
        same(L.solve_triangular(tall, v, trans), scipy.linalg.solve_triangular(tall, v, trans))
    for lower in (True, False):
        same(L.cho_solve(L.cho_factor(definite(a), lower), v), np.linalg.solve(definite(a), v))
    for shape in ((4, 4), (5, 3), (3, 5)):
        x = drawn(*shape, dtype=dtype)
        p, low, up = [values_of(m) for m in L.lu(x)]
        same(p.astype(dtype) @ low @ up, x)
        same(values_of(L.lu(x, permute_l=True)[0]), p.astype(dtype) @ low)
        packed, _, order = lax.lu(x)
        same(np.tril(packed, -1)[:, : min(shape)], np.tril(low, -1))
        same(x[values_of(order)], low @ up)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(4, 4), (5, 3), (3, 5)])
def test_decompositions(dtype: Any, m: int, n: int) -> None:
    x, k = drawn(2, m, n, dtype=dtype), min(m, n)
    for mode, size in (("reduced", k), ("complete", m)):
        q, r = L.qr(x) if mode == "reduced" else L.qr(x, mode="complete")
        same(values_of(q) @ values_of(r), x)
        same(adjoint(q) @ values_of(q), np.broadcast_to(np.eye(size, dtype=dtype), (2, size, size)))
    same(L.qr(x, mode="r"), L.qr(x).R)
    u, s, vh = L.svd(x, full_matrices=False)
    same((values_of(u) * values_of(s)[:, None, :]) @ values_of(vh), x)
    same(s, np.linalg.svdvals(x))
    assert [f.shape for f in L.svd(x)] == [(2, m, m), (2, k), (2, n, n)]
    same(L.svd(x, compute_uv=False), L.svdvals(x))
    same(lax.svd(x, compute_uv=False), L.svdvals(x))
    same(L.pinv(x), np.linalg.pinv(x))
    same(L.pinv(x, rtol=np.array([0.5, 0.1])), np.linalg.pinv(x, rtol=np.array([0.5, 0.1])))
    same(L.matrix_rank(x), np.linalg.matrix_rank(x).astype(np.int32))
    same(L.matrix_rank(x, rtol=0.5), np.linalg.matrix_rank(x, rtol=0.5).astype(np.int32))
    b = drawn(m, 2, dtype=dtype)
    found, left, rank, values = L.lstsq(x[0], b)
    want = np.linalg.lstsq(x[0], b)
    same(found, want[0])
    same(left, np.sum(np.abs(b - x[0] @ want[0]) ** 2, axis=0))
    assert int(rank) == want[2]
    same(values, want[3])
    packed, taus = lax.geqrf(x)
    reflected = lax.householder_product(values_of(packed)[..., :, :k].copy(), taus)
    same(reflected, L.qr(x).Q)
    q = values_of(L.qr(x, mode="complete").Q)
    c = drawn(*x.shape[:-1], 3, dtype=dtype)
    same(lax.ormqr(packed, taus, c), q @ c)
    same(lax.ormqr(packed, taus, c, transpose=True), adjoint(q) @ c)
    same(lax.ormqr(packed, taus, adjoint(c), left=False), adjoint(c) @ q)
    same(lax.ormqr(packed, taus, adjoint(c), left=False, transpose=True), adjoint(c) @ adjoint(q))


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_of_a_pivoted_qr_are_taken_by_their_size(dtype: Any) -> None:
    x = drawn(2, 5, 4, dtype=dtype)
    for a in (x, adjoint(x), x[..., :4, :], x * np.array([1, 4, 2, 8], x.real.dtype)):
        for full in (True, False):
            q, r, order = map(values_of, lax.qr(a, pivoting=True, full_matrices=full))
            assert order.dtype == np.int32
            same(q @ r, np.take_along_axis(a, order[..., None, :], -1))
            sizes = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
            assert np.all(sizes[..., 1:] <= sizes[..., :-1] * (1 + 1e-5))
            for k, want in enumerate(scipy.linalg.qr(one, pivoting=True)[2] for one in a):
                assert np.array_equal(order[k], want)
    rank_one = np.outer(np.arange(1, 4), np.arange(4)).astype(dtype)
    assert np.all(np.abs(values_of(lax.qr(rank_one, pivoting=True)[1])[1:]) < 1e-5)
    assert [y.shape for y in lax.qr(x[:, :0], pivoting=True)] == [(2, 0, 0), (2, 0, 4), (2, 4)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [True, False])
def test_tridiagonal_form(dtype: Any, lower: bool) -> None:
    h = definite(drawn(2, 5, 5, dtype=dtype))
    other = np.triu(h, 1) if lower else np.tril(h, -1)
    packed, diagonal, beside, taus = map(values_of, lax.tridiagonal(h - other, lower=lower))  # one triangle is read
    assert (taus.shape, taus.dtype, diagonal.dtype) == ((2, 4), h.dtype, h.real.dtype)
    assert beside.shape == (2, 4)
    same(np.diagonal(packed, axis1=-2, axis2=-1), diagonal.astype(h.dtype))
    t = np.zeros_like(h)
    for k in range(5):
        t[:, k, k] = diagonal[:, k]
    for k in range(4):
        t[:, k, k + 1] = t[:, k + 1, k] = beside[:, k]
    # Q = H(0) H(1) ... below the first row and column, or ... H(1) H(0) before the last
    if lower:
        q = np.broadcast_to(np.eye(5, dtype=h.dtype), h.shape).copy()
        q[:, 1:, 1:] = values_of(lax.householder_product(packed[:, 1:, :-1].copy(), taus))
    else:
        q = np.broadcast_to(np.eye(5, dtype=h.dtype), h.shape).copy()
        for i in range(4):
            v = np.zeros((2, 5, 1), h.dtype)
            v[:, :i, 0], v[:, i] = packed[:, :i, i + 1], 1
            q = (np.eye(5) - taus[:, i, None, None] * v @ adjoint(v)) @ q
    same((q @ t @ adjoint(q)).astype(h.dtype), h)
    assert [y.shape for y in lax.tridiagonal(h[:, :0, :0])] == [(2, 0, 0), (2, 0), (2, 0), (2, 0)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues(dtype: Any) -> None:
    a = drawn(2, 4, 4, dtype=dtype)
    h = definite(a)
    same(L.cholesky(h), np.linalg.cholesky(h))
    same(L.cholesky(h, upper=True), adjoint(np.linalg.cholesky(h)))
    same(L.cholesky(np.tril(h), symmetrize_input=False), np.linalg.cholesky(h))
    for w, v in (L.eigh(h), L.eigh(h, "U"), L.eigh(np.triu(h), "U", False)):
        same(w, np.linalg.eigvalsh(h))
        same(h @ values_of(v), values_of(v) * values_of(w)[:, None, :])
    same(L.eigvalsh(h), np.linalg.eigvalsh(h))
    same(L.pinv(h, hermitian=True), np.linalg.inv(h))
    v, w = lax.eigh(h)
    same(h @ values_of(v), values_of(v) * values_of(w)[:, None, :])
    wide = a.astype(np.result_type(dtype, np.complex64))
    values, right = L.eig(a)
    same(wide @ values_of(right), values_of(right) * values_of(values)[:, None, :])
    for have, matrix in zip(values_of(L.eigvals(a)), wide, strict=True):
        same(np.poly(have).astype(wide.dtype), np.poly(matrix).astype(wide.dtype))
    values, left, right = lax.eig(a)
    same(adjoint(left) @ wide, values_of(values)[..., None] * adjoint(left))
    same(np.linalg.norm(values_of(left), axis=-2), np.ones((2, 4), values.real.dtype))
    assert len(lax.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(dtype: Any) -> None:
    x = drawn(2, 3, 4, dtype=dtype)
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        same(L.matrix_norm(x, ord=order), np.linalg.norm(x, order, axis=(-2, -1)))
        same(L.norm(x, order, (2, 0), True), np.linalg.norm(x, order, (2, 0), True))
    a = drawn(2, 3, 3, dtype=dtype)
    for p in (None, 2, -2, "fro", 1, -1, np.inf):
        same(L.cond(a, p), np.linalg.cond(a, p))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0.01, 1.0, 20.0])
def test_expm(dtype: Any, size: float) -> None:
    a = drawn(2, 3, 3, dtype=dtype) * dtype(size / 4)
    want = scipy.linalg.expm(a.astype(np.result_type(dtype, np.float64)))
    np.testing.assert_allclose(values_of(L.expm(a)), want, rtol=1e-3 if dtype == np.float32 else 1e-9, atol=1e-3)


def test_expm_of_matrices_that_are_not_finite() -> None:
    """Each matrix of a batch is squared as often as it needs. A matrix that is not finite does not slow the others
    down."""
    batch = np.stack([np.diag([1.0, 2.0]), np.full((2, 2), np.nan), np.diag([800.0, -800.0]), np.zeros((2, 2))])
    out = values_of(L.expm(batch))
    same(out[0], np.diag(np.exp([1.0, 2.0])))
    assert np.isnan(out[1]).all()
    assert np.isinf(out[2, 0, 0])
    same(out[3], np.eye(2))


@pytest.mark.parametrize(
    "a", [[[1, 1e6], [1e-6, -1]], [[1, 1e6], [0, -1]], [[1, 0], [1e6, -1]], [[0, 1e3], [1e-3, 0]], [[0, 1e10], [0, 0]]]
)
def test_expm_of_badly_scaled_matrices(a: list[list[float]]) -> None:
    """Each element is right in itself, in float32 too: the matrix is balanced by exact scales."""
    x = np.array(a, np.float32)
    want = scipy.linalg.expm(x.astype(np.float64))
    for have in (L.expm(x), fx.interpret(fx.trace(L.expm, x), x)):
        np.testing.assert_allclose(np.asarray(have), want, rtol=1e-5, atol=0 if x.all() else 1e-6)
    tangent = np.asarray(fx.jvp(L.expm, (x,), (x,))[1])
    np.testing.assert_allclose(tangent, want @ x.astype(np.float64), rtol=1e-5, atol=0 if x.all() else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_squarings_of_expm_keep_a_one(dtype: Any) -> None:
    """A large norm needs many squarings, of which each doubles the rounding error of a 1."""
    a = np.diag(np.array([-1e30, 0.0], dtype))
    want = np.diag(np.array([0.0, 1.0], dtype))
    for have in (L.expm(a), fx.interpret(fx.trace(L.expm, a), a)):
        np.testing.assert_array_equal(np.asarray(have), want)
    np.testing.assert_array_equal(np.asarray(fx.jvp(L.expm, (a,), (np.diag(np.diag(a) == 0).astype(dtype),))[1]), want)


def test_tridiagonal_solve() -> None:
    for dtype in DTYPES:
        d, dl, du, b = (
            drawn(2, 4, dtype=dtype) + 5,
            *[drawn(2, 4, dtype=dtype) for _ in range(2)],
            drawn(2, 4, 3, dtype=dtype),
        )
        a = np.stack([np.diag(d[i]) + np.diag(dl[i, 1:], -1) + np.diag(du[i, :-1], 1) for i in range(2)])
        same(a @ values_of(lax.tridiagonal_solve(dl, d, du, b)), b)


def test_triangular_solve() -> None:
    a, b = drawn(3, 3, dtype=np.complex128) + 3 * np.eye(3), drawn(3, 2, dtype=np.complex128)
    same(lax.triangular_solve(a, b, left_side=True), np.linalg.solve(np.triu(a), b))
    same(lax.triangular_solve(a, b.T, lower=True, transpose_a=True), np.linalg.solve(np.tril(a), b).T)
    same(lax.triangular_solve(a, b, left_side=True, conjugate_a=True), np.linalg.solve(np.triu(a).conj(), b))
    unit = np.tril(a, -1) + np.eye(3)
    same(
        lax.triangular_solve(a, b[:, 0], left_side=True, lower=True, unit_diagonal=True), np.linalg.solve(unit, b[:, 0])
    )
    same(lax.triangular_solve(a, b[:, 0]), np.linalg.solve(np.triu(a).T, b[:, 0]))


def test_integers_are_float32() -> None:
    a = np.array([[2, 1], [1, 3]], np.int32)
    for name in ("inv", "det", "cholesky", "eigvalsh", "svdvals", "expm", "pinv"):
        assert getattr(L, name)(a).dtype == np.float32
    same(L.solve(a, np.array([1, 2])), np.linalg.solve(a, np.array([1, 2])).astype(np.float32))
    same(L.det(a.astype(bool)), np.float32(0))
    assert L.matrix_power(a, 3).dtype == np.int32


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_empty_squares(shape: tuple[int, ...]) -> None:
    z = np.zeros(shape)
    for name in ("inv", "det", "cholesky", "eigvalsh", "pinv", "svdvals"):
        same(getattr(L, name)(z), values_of(getattr(np.linalg, name)(z)))
    same(L.expm(z), z)
    same(L.solve(z, np.zeros((*shape[:-1], 2))), np.zeros((*shape[:-1], 2)))
    assert [x.shape for x in (*L.slogdet(z), *L.eigh(z), *L.eig(z), *L.lu_factor(z))] == [
        *[shape[:-2]] * 2,
        *[shape[:-1], shape] * 2,
        *[shape, shape[:-1]],
    ]


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 3, 0)])
def test_empty_matrices(shape: tuple[int, ...]) -> None:
    z = np.zeros(shape)
    for have, want in zip(
        (*L.qr(z), *L.qr(z, mode="complete")), (*np.linalg.qr(z), *np.linalg.qr(z, "complete")), strict=True
    ):
        same(have, want)
    for full in (True, False):
        for have, want in zip(L.svd(z, full_matrices=full), np.linalg.svd(z, full), strict=True):
            same(have, want)
    same(L.pinv(z), np.linalg.pinv(z))
    same(L.matrix_rank(z), np.zeros(shape[:-2], np.int32))
    same(lax.lu(z)[2], np.broadcast_to(np.arange(shape[-2], dtype=np.int32), shape[:-1]))


def test_failed_decompositions_are_nan() -> None:
    """Only its own matrix of the batch is nan."""
    good, nan = np.diag([4.0, 9.0]), np.full((2, 2), np.nan)
    factor = values_of(L.cholesky(np.stack([good, -good, nan])))
    same(factor[0], np.diag([2.0, 3.0]))
    assert np.isnan(factor[1]).all()
    assert np.isnan(factor[2]).any()
    for f in (L.eigh, L.eig, L.svd, L.qr):
        for part in f(np.stack([good, nan])):
            assert np.isfinite(values_of(part)[0]).all()
            assert np.isnan(values_of(part)[1]).any()
    zero = np.zeros((2, 2))
    assert not np.isfinite(values_of(L.solve(zero, np.ones(2)))).any()
    assert not np.isfinite(values_of(L.inv(zero))).any()
    same(L.slogdet(zero).sign, 0.0)
    same(L.slogdet(zero).logabsdet, -np.inf)
    same(L.det(np.zeros((4, 4))), 0.0)
    line = np.zeros(3)
    assert np.isnan(values_of(lax.tridiagonal_solve(line, line, line, np.ones((3, 1))))).all()


def test_mapped_right_hand_sides_are_factored_once() -> None:
    """vmap over b alone adds columns to one system, and makes no batch of systems."""
    a, b = drawn(3, 3), drawn(5, 3)
    mapped = fx.vmap(lambda y: L.solve(a, y))
    same(mapped(b), np.linalg.solve(a, b.T).T)
    text = fx.trace(mapped, b).text()
    assert "f64[5,3,3]" not in text
    same(
        fx.vmap(L.solve)(np.stack([a, a + 1]), b[:2]),
        np.stack([np.linalg.solve(a, b[0]), np.linalg.solve(a + 1, b[1])]),
    )
    same(
        fx.vmap(L.solve, in_axes=(0, None))(np.stack([a, a + 1]), b[0]),
        np.stack([np.linalg.solve(m, b[0]) for m in (a, a + 1)]),
    )


def test_derivatives_factor_once() -> None:
    """The gradient of a solve uses the factors of the solve."""
    for f in (lambda a, b: L.solve(a, b).sum(), lambda a, b: L.slogdet(a)[1] + b.sum()):
        program = fx.trace(fx.grad(f, argnums=(0, 1)), drawn(3, 3), drawn(3))
        assert program.text().count(" = lu ") == 1


def test_small_determinants_have_derivatives_everywhere() -> None:
    rank_one = np.outer([1.0, 2.0, 3.0], [1.0, 1.0, 2.0])
    same(fx.grad(L.det)(rank_one[:2, :2]), np.array([[2.0, -2.0], [-1.0, 1.0]]))
    assert np.isfinite(values_of(fx.grad(L.det)(rank_one))).all()
    same(fx.grad(lambda x: L.eigvalsh(x)[0])(np.eye(2)).sum(), 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("n", [2, 3])
def test_a_matrix_that_is_not_finite_has_no_decomposition(n: int, bad: float, dtype: type[np.generic]) -> None:
    """LAPACK alone does not end for svd of 3 by 3 matrices with an infinity, and gives finite eigvalsh of a nan."""
    good = np.eye(n, dtype=dtype)
    broken = good.copy()
    broken[0, 0] = bad
    x = np.stack([good, broken])
    results = [*lax.svd(x), lax.svd(x, compute_uv=False), L.eigvalsh(x)]
    for out in [np.asarray(r) for r in [*results, *lax.eigh(x, symmetrize_input=False)]]:
        assert np.isfinite(out[0]).all()
        assert np.isnan(out[1]).all()
    above = good.copy()
    above[0, 1] = bad  # in the triangle that is not read
    assert np.isfinite(np.asarray(lax.eigh(above, symmetrize_input=False)[1])).all()
    for prim in (Svd(True, True), Eigh(True, True)):
        assert all([np.isnan(out.astype(np.complex128)).all() for out in prim.impl(broken)])
