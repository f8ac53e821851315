"""Functions of matrices: `schur`, `rsf2csf`, `hessenberg`, `solve_sylvester`, `sqrtm`, `funm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import NotDifferentiableError, ParameterError, ShapeError
from fxad.scipy import linalg

them: Any = scipy.linalg  # its types are narrower than the values that it accepts
DTYPES = ("float32", "float64", "complex64", "complex128")


def matrices(dtype: str, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def close(ours: Any, theirs: Any) -> None:
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.shape == b.shape
    tolerance = 2e4 * max(float(np.finfo(x.dtype).eps) for x in (a, b))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1, np.abs(b).max(initial=0)))


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", DTYPES)
def test_against_scipy(dtype: str) -> None:
    a, b, q = matrices(dtype, 2, 5, 5), matrices(dtype, 3, 3, seed=1), matrices(dtype, 2, 5, 3, seed=2)

    @fx.jit
    def ours(a: Any, b: Any, q: Any) -> Any:
        form = linalg.schur(a)
        return (
            form,
            linalg.schur(a, "complex"),
            linalg.rsf2csf(*form),
            linalg.hessenberg(a, calc_q=True),
            linalg.solve_sylvester(a, b, q),
            linalg.solve_sylvester(a, b, q, method="eigen"),
            linalg.sqrtm(a),
            linalg.funm(a, fnp.sin, disp=False),
        )

    schur, triangular, converted, hessenberg, x, by_eigenvectors, root, (sine, error) = ours(a, b, q)
    for k in range(2):
        form = them.schur(a[k])
        for found, wanted in (
            (schur, form),
            (triangular, them.schur(a[k], output="complex")),
            (converted, them.rsf2csf(*form)),
            (hessenberg, them.hessenberg(a[k], calc_q=True)),
        ):
            for one, other in zip(found, wanted, strict=True):
                close(one[k], other)
        for solution in (x, by_eigenvectors):
            close(solution[k], them.solve_sylvester(a[k], b, q[k]))
        close(root[k], them.sqrtm(a[k]))
        close(sine[k], them.sinm(a[k]))
        close(error[k], them.funm(a[k], np.sin, disp=False)[1])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_small_matrices(n: int) -> None:
    """Also where no step of an iteration is made."""
    for dtype in ("float64", "complex128"):
        a = matrices(dtype, n, n)
        for name in ("schur", "hessenberg"):
            options = {"calc_q": True} if name == "hessenberg" else {}
            t, z = [np.asarray(x) for x in getattr(linalg, name)(a, **options)]
            close(z @ t @ z.conj().T, a)
            close(z @ z.conj().T, np.eye(n))
        root = linalg.sqrtm(a)
        close(root @ root, a)
        close(linalg.funm(a, fnp.exp), them.expm(a))
        close(linalg.solve_sylvester(a, a, a), np.eye(n) / 2)
        triangular, _ = linalg.rsf2csf(*linalg.schur(a))
        close(np.tril(np.asarray(triangular), -1), np.zeros((n, n)))


def test_roots_of_singular_and_negative_matrices() -> None:
    zeros = np.diag([0.0, 0, 9, 0, 0, 4])
    close(linalg.sqrtm(zeros), np.sqrt(zeros))
    close(linalg.sqrtm(-np.eye(2)), 1j * np.eye(2))
    rotation = np.array([[0.0, -1], [1, 0]])
    close(np.imag(linalg.sqrtm(rotation)), np.zeros((2, 2)))


def test_a_hessenberg_form_of_a_hermitian_matrix_is_tridiagonal() -> None:
    a = matrices("float64", 5, 5)
    h = np.asarray(linalg.hessenberg(a + a.T))
    close(np.triu(h, 2), np.zeros((5, 5)))


def test_hessenberg_does_not_overflow() -> None:
    a = matrices("float32", 4, 4)
    close(linalg.hessenberg(a * np.float32(1e30)) / 1e30, them.hessenberg(a.astype(np.float64)).astype(np.float32))


DIFFERENTIABLE: dict[str, Callable[[Any], Any]] = {
    "sqrtm": linalg.sqrtm,
    "funm": lambda x: linalg.funm(x, lambda z: z * fnp.sin(z)),
    "hessenberg": lambda x: linalg.hessenberg(x, calc_q=True)[1],
    "sylvester": lambda x: linalg.solve_sylvester(x, x @ x, fnp.sin(x)),
    "eigen": lambda x: linalg.solve_sylvester(x, x @ x, fnp.sin(x), method="eigen"),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives(name: str, dtype: str) -> None:
    """Both modes against central differences, and the second derivative against differences of the first."""
    f, a, d = DIFFERENTIABLE[name], matrices(dtype, 3, 3), matrices(dtype, 3, 3, seed=1)
    weights = matrices("complex128", 3, 3, seed=2)

    @fx.jit
    def value(x: Any) -> fx.Array:
        return fnp.sum(fnp.real(f(x) * weights))

    slope = fx.jit(lambda x: fx.jvp(value, (x,), (d,))[1])
    step = 1e-5
    np.testing.assert_allclose(slope(a), (value(a + step * d) - value(a - step * d)) / (2 * step), rtol=1e-6)
    gradient = np.asarray(fx.jit(fx.grad(value))(a))
    close(np.sum(gradient * d).real, slope(a))
    second = fx.jit(lambda x: fx.jvp(slope, (x,), (d,))[1])
    np.testing.assert_allclose(second(a), (slope(a + step * d) - slope(a - step * d)) / (2 * step), rtol=1e-6)


def test_maps_and_stacks() -> None:
    a = matrices("float64", 3, 4, 4)
    for f in (linalg.sqrtm, linalg.schur, lambda x: linalg.solve_sylvester(x, a[0], a[1])):
        for mapped, stacked in zip(fx.tree.leaves(fx.vmap(f)(a)), fx.tree.leaves(f(a)), strict=True):
            close(mapped, stacked)


def test_a_singular_equation_has_no_solution() -> None:
    a = np.diag([1.0, 2.0])
    for method in ("schur", "eigen"):
        assert np.all(np.isnan(linalg.solve_sylvester(a, -a, np.eye(2), method=method, tol=1e-6)))
        close(linalg.solve_sylvester(a, a, a, method=method, tol=1e-6), np.eye(2) / 2)


def test_dtypes() -> None:
    whole = np.array([[2, 1], [1, 3]])
    half = whole.astype(np.float16)
    for x in (whole, half):
        assert [y.dtype.name for y in linalg.schur(x)] == ["float32", "float32"]
        assert linalg.sqrtm(x).dtype.name == "complex64"
        assert linalg.solve_sylvester(x, x, x).dtype.name == "float32"


def test_refusals() -> None:
    a = np.eye(2)
    loose: Any = linalg
    for call, error, message, remedy in (
        (
            lambda: linalg.schur(a, "triangular"),
            ParameterError,
            "schur: output 'triangular'",
            'use "real", "complex", "r" or "c"',
        ),
        (
            lambda: loose.schur(a, sort="lhp"),
            ParameterError,
            "schur: sort 'lhp': eigenvalues are not ordered",
            "leave it out",
        ),
        (
            lambda: linalg.sqrtm(np.ones((2, 3))),
            ShapeError,
            "sqrtm: argument 0 must be square matrices, got f64[2,3]",
            "give an array of (..., n, n)",
        ),
        (
            lambda: linalg.rsf2csf(a, np.eye(3)),
            ShapeError,
            "rsf2csf: T and Z are of different sizes: f64[2,2], f64[3,3]",
            "give the results of schur",
        ),
        (
            lambda: linalg.solve_sylvester(a, a, a, method="lu"),
            ParameterError,
            "solve_sylvester: method 'lu'",
            'use "schur" or "eigen"',
        ),
        (
            lambda: linalg.solve_sylvester(a, a, np.ones(2)),
            ShapeError,
            "solve_sylvester: C has the shape (2,)",
            "for matrices of 2 and 2 rows it ends with (2, 2)",
        ),
        (
            lambda: fx.jacfwd(lambda x: linalg.schur(x)[0])(a),
            NotDifferentiableError,
            "schur: the factors have no derivative: the order of eigenvalues and the phases of vectors are free",
            None,
        ),
    ):
        with pytest.raises(error) as caught:
            call()
        assert caught.value.message == message
        assert caught.value.remedy == remedy if remedy else caught.value.remedy
