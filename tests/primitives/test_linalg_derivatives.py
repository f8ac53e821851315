"""First and second derivatives of linear algebra, by differences. For results that are determined up to a sign or a
phase, functions that do not depend on it are differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import NotDifferentiableError
from fxad.numpy import linalg as L
from fxad.primitives.linalg.eig import Eig
from fxad.testing.applications import Application
from fxad.testing.derivative_laws import check_grad, check_program_jvp, check_second_order
from fxad.testing.primitive_laws import check_batch, check_jvp, check_text, check_transpose, check_types
from fxad.testing.programs import Case

lax: Any = fx.lax.linalg


def _definite(x: Any) -> Any:
    return x @ fnp.matrix_transpose(x).conj() + 5 * fnp.eye(x.shape[-1], dtype=x.dtype)


def _spaces(v: Any) -> Any:
    """The products v_i v_j^*, which no phase changes."""
    return (v[..., :, None, :] * v.conj()[..., None, :, :]).real


def _eigh(a: Any, *how: Any) -> Any:
    w, v = L.eigh(a, *how)
    return w, _spaces(v)


def _eig(a: Any) -> Any:
    w, left, right = lax.eig(a)
    return w.real, w.imag, _spaces(left), _spaces(right), fnp.abs(fnp.vecdot(left, right, axis=-2))


def _svd(a: Any) -> Any:
    u, s, vh = L.svd(a, full_matrices=False)
    return s, _spaces(u), u @ vh


def _unit(a: Any) -> Any:
    return fnp.eye(a.shape[-1], dtype=a.dtype)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "cholesky": (lambda a: L.cholesky(_definite(a)), [(3, 3)]),
    "cholesky of a triangle": (lambda a: L.cholesky(a + 8 * _unit(a), symmetrize_input=False), [(3, 3)]),
    "solve": (L.solve, [(3, 3), (3, 2)]),
    "solve of vectors": (L.solve, [(2, 3, 3), (3,)]),
    "inv": (L.inv, [(3, 3)]),
    "det of 2": (L.det, [(2, 2)]),
    "det of 3": (L.det, [(3, 3)]),
    "det of 4": (L.det, [(4, 4)]),
    "slogdet": (L.slogdet, [(3, 3)]),
    "qr": (L.qr, [(3, 3)]),
    "qr, tall": (L.qr, [(4, 3)]),
    "qr, wide": (L.qr, [(2, 3)]),
    "qr, pivoted": (lambda a: lax.qr(a, pivoting=True, full_matrices=False)[:2], [(4, 3)]),
    "qr, pivoted, wide": (lambda a: lax.qr(a, pivoting=True)[:2], [(2, 3)]),
    "eigh": (_eigh, [(3, 3)]),
    "eigh of a triangle": (lambda a: _eigh(a, "U", False), [(3, 3)]),
    "eigvalsh": (L.eigvalsh, [(3, 3)]),
    "eig": (_eig, [(3, 3)]),
    "svd": (_svd, [(3, 3)]),
    "svd, tall": (_svd, [(4, 3)]),
    "svd, wide": (_svd, [(2, 3)]),
    "svdvals": (L.svdvals, [(3, 2)]),
    "pinv, tall": (L.pinv, [(3, 2)]),
    "pinv, wide": (L.pinv, [(2, 3)]),
    "lstsq": (lambda a, b: L.lstsq(a, b)[:2], [(4, 2), (4,)]),
    "expm": (L.expm, [(3, 3)]),
    "expm, squared": (lambda a: L.expm(a * 4), [(2, 2)]),
    "lu": (lambda a: L.lu_factor(a)[0], [(3, 3)]),
    "lu, tall": (lambda a: L.lu_factor(a)[0], [(3, 2)]),
    "lu, wide": (lambda a: L.lu_factor(a)[0], [(2, 4)]),
    "lu_solve": (lambda a, b: L.lu_solve(L.lu_factor(a), b, 2), [(3, 3), (3,)]),
    "householder_product": (lax.householder_product, [(4, 3), (2,)]),
    "ormqr": (lax.ormqr, [(4, 3), (2,), (4, 2)]),
    "ormqr, from the right, adjoint": (
        lambda a, taus, c: lax.ormqr(a, taus, c, left=False, transpose=True),
        [(3, 3), (3,), (2, 3)],
    ),
    "tridiagonal_solve": (lambda a, b, c, d: lax.tridiagonal_solve(a, b + 6, c, d), [(3,), (3,), (3,), (3, 2)]),
    "triangular_solve": (
        lambda a, b: lax.triangular_solve(a + 4 * _unit(a), b, lower=True, transpose_a=True, conjugate_a=True),
        [(3, 3), (2, 3)],
    ),
    "matrix_power": (lambda a: L.matrix_power(a, -3), [(2, 2)]),
    "cho_solve": (lambda a, b: L.cho_solve(L.cho_factor(_definite(a)), b), [(3, 3), (3,)]),
    "norms": (lambda a: (L.matrix_norm(a, ord="nuc"), L.matrix_norm(a, ord=2), L.cond(a)), [(3, 3)]),
}


def _case(name: str, dtype: str) -> Case:
    f, shapes = CASES[name]
    rng = np.random.default_rng(1)
    args: list[Any] = [rng.standard_normal(s).astype(dtype) for s in shapes]
    if dtype == "complex128":
        args = [a + 1j * rng.standard_normal(a.shape) for a in args]
    program = fx.trace(f, *[fx.Spec(a.shape, a.dtype) for a in args]).jaxpr
    return Case(program, tuple(args), 0, smooth=True)


@pytest.mark.parametrize("name", CASES)
def test_real(name: str) -> None:
    check_second_order(_case(name, "float64"))


@pytest.mark.parametrize("name", CASES)
def test_complex(name: str) -> None:
    case = _case(name, "complex128")
    check_program_jvp(case)
    check_grad(case)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 2), (0, 0)])
def test_laws_of_eigenvectors(dtype: Any, shape: tuple[int, ...]) -> None:
    """All laws except those that compare with differences and with LAPACK, because phases and signs are conventions."""
    x = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    for left, right in ((True, True), (True, False), (False, True)):
        application = Application(Eig(left, right), (x,))
        for law in (check_types, check_text, check_jvp, check_transpose, check_batch):
            law(application)


def test_refusals() -> None:
    x = np.ones((3, 2))
    for f, message in (
        (lambda x: L.svd(x)[0], "svd: the last 1 vectors of full matrices are any basis and have no derivative"),
        (
            lambda x: L.qr(x, mode="complete")[0],
            "qr: the last 1 columns of a full Q are any basis and have no derivative",
        ),
        (lambda x: lax.geqrf(x)[0], "geqrf: packed reflectors have no derivative rule"),
        (lambda x: lax.tridiagonal(x[:2])[0], "tridiagonalize: packed reflectors have no derivative rule"),
    ):
        with pytest.raises(NotDifferentiableError) as e:
            fx.jvp(f, (x,), (x,))
        assert e.value.message == message


def _cofactors(a: Any) -> Any:
    n = len(a)
    minors = [[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)] for i in range(n)]
    return np.array(minors) * (-1.0) ** np.add.outer(np.arange(n), np.arange(n))


SINGULAR: list[Any] = [
    np.ones((4, 4)),
    np.zeros((5, 5)),
    np.diag([0.0, 2, 3, 4]),
    np.diag([1.0, 2, 0, 4, 5]),
    np.arange(16.0).reshape(4, 4),
    np.array([[1.0, 0, 2, 3], [4, 0, 5, 6], [7, 0, 8, 1], [1, 0, 1, 5]]),
    np.array([[1.0, 3, 2, 3], [0, 0, 0, 0], [7, 0, 8, 1], [1, 0, 1, 5]]),
    np.array([[2.0, 1, 0, 1], [4, 2, 0, 2], [1, 1, 1, 1], [0, 1, 3, 1]]),
]


def test_the_derivative_of_det_is_the_cofactor_matrix() -> None:
    """Of singular matrices too, in a batch, and its derivative where the rank is n - 1."""
    for a in SINGULAR:
        np.testing.assert_allclose(np.asarray(fx.grad(L.det)(a)), _cofactors(a), atol=1e-12, rtol=1e-12)
    batch = np.stack([a for a in SINGULAR if a.shape == (4, 4)])
    want = np.stack([_cofactors(a) for a in batch])
    np.testing.assert_allclose(np.asarray(fx.jit(fx.vmap(fx.grad(L.det)))(batch)), want, atol=1e-12)
    turned = SINGULAR[2] * (1 + 1j)
    np.testing.assert_allclose(np.asarray(fx.grad(L.det, holomorphic=True)(turned)), _cofactors(turned), atol=1e-12)
    for a in (SINGULAR[2], SINGULAR[5], SINGULAR[6]):
        second = np.asarray(fx.jit(fx.hessian(L.det))(a))
        rest = np.delete(np.delete(a, 0, 0), 1, 1)
        np.testing.assert_allclose(np.delete(np.delete(second[0, 1], 0, 0), 1, 1), -_cofactors(rest), atol=1e-12)
    assert np.isnan(np.asarray(fx.hessian(L.det)(fnp.asarray(np.zeros((4, 4)))))).any()  # several pivots 0


def test_second_derivatives_of_det_in_reverse_mode() -> None:
    """As forward over reverse. A singular matrix in a batch leaves those of the others."""
    a = np.random.default_rng(0).standard_normal((3, 4, 4))
    a[1] = 0

    def total(x: Any) -> Any:
        return L.det(x).sum()

    want = np.asarray(fx.jit(fx.hessian(total))(a))
    for how in (fx.jacrev(fx.grad(total)), fx.jacrev(fx.jacfwd(total))):
        second = np.asarray(fx.jit(how)(a))
        for k in (0, 2):
            np.testing.assert_allclose(second[k, :, :, k], want[k, :, :, k], atol=1e-10)
        assert np.isnan(second[1]).any()
    assert np.isfinite(want[0, :, :, 0]).all()


@pytest.mark.parametrize(("dtype", "scales"), [(np.float64, (1e-200, 1e200)), (np.float32, (1e-25, 1e25))])
def test_second_derivatives_at_any_scale(dtype: Any, scales: Any) -> None:
    """Singular values, Hermitian eigenvalues and norms are homogeneous: second derivatives scale with 1 / size."""
    a = np.random.default_rng(0).standard_normal((3, 3))

    def functions(x: Any) -> Any:
        s = L.svd(x, compute_uv=False)
        return (
            s[0],
            s.sum(),
            L.eigvalsh(x)[0],
            L.norm(x),
            L.norm(x[0], 3),
            fnp.hypot(x[0, 0], x[1, 1]),
        )

    second = fx.jit(fx.hessian(functions))
    want = second(a)
    for scale in scales:
        for have, exact in zip(second((a * scale).astype(dtype)), want, strict=True):
            np.testing.assert_allclose(
                np.asarray(have).astype(float) * scale,
                np.asarray(exact),
                rtol=2e-4,
                atol=1e-5 if dtype == np.float32 else 1e-12,
            )
