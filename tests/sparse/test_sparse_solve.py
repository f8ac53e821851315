"""`sparse_solve` and `factorize` give what a dense solve gives, and so do their derivatives, batches and dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import DTypeError, ShapeError, TracerError
from fxad.transforms.sparse.csr import csr_of

Dense = npt.NDArray[Any]


@dataclass(frozen=True)
class Pattern:
    shape: tuple[int, int]
    indptr: Dense
    indices: Dense


@dataclass(frozen=True)
class Matrix:
    data: Any
    pattern: Pattern

    def to_dense(self) -> Any:
        rows = np.repeat(np.arange(self.pattern.shape[0]), np.diff(self.pattern.indptr))
        return fnp.zeros(self.pattern.shape, self.data.dtype).at[rows, self.pattern.indices].set(self.data)


def pattern_of(a: Dense) -> Pattern:
    i, j = np.nonzero(a)
    return Pattern(a.shape, *csr_of(i, j, a.shape))


N = 12
I, J = np.indices((N, N))
SHUFFLED = np.random.default_rng(1).permutation(N)
PATTERNS = {
    "diagonal": I == J,
    "tridiagonal": abs(I - J) <= 1,
    "band": abs(I - J) <= 2,
    "blocks": I // 3 == J // 3,
    "uneven blocks": np.where(I < 8, I // 4, I // 2) == np.where(J < 8, J // 4, J // 2),
    "scattered blocks": (I // 3 == J // 3)[SHUFFLED][:, SHUFFLED[::-1]],
    "arrow": (I == J) | (I == 0) | (J == 0),
    "random": (np.random.default_rng(0).random((N, N)) < 0.2) | (I == J),
    "full": I >= 0,
}


def system(name: str, dtype: str, columns: int = 0) -> tuple[Pattern, Dense, Dense]:
    pattern = pattern_of(PATTERNS[name])
    rng = np.random.default_rng(2)
    shapes = [pattern.indices.shape, (N, columns) if columns else (N,)]
    data, b = [rng.normal(size=s) + (1j * rng.normal(size=s) if "complex" in dtype else 0) for s in shapes]
    rows = np.repeat(np.arange(N), np.diff(pattern.indptr))
    data[rows == pattern.indices] += 4
    return pattern, data.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", PATTERNS)
def test_it_equals_the_dense_solve(name: str, dtype: str) -> None:
    for columns in (0, 3):
        pattern, data, b = system(name, dtype, columns)
        dense = np.asarray(Matrix(data, pattern).to_dense())
        expected = np.linalg.solve(dense.astype("complex128"), b)
        tolerance = 2e-5 if dtype in ("float32", "complex64") else 1e-12
        assert np.allclose(lax.sparse_solve(Matrix(data, pattern), b), expected, atol=tolerance)
        run = fx.jit(lambda data, b, pattern=pattern: lax.sparse_solve(Matrix(data, pattern), b))
        assert np.allclose(run(data, b), expected, atol=tolerance)
        factors = lax.factorize(Matrix(data, pattern))
        assert np.allclose(factors.solve(b), expected, atol=tolerance)
        assert np.allclose(fx.jit(factors.solve)(b), expected, atol=tolerance)
        transposed = np.linalg.solve(dense.T.astype("complex128"), b)
        assert np.allclose(factors.solve(b, transpose=True), transposed, atol=tolerance)


@pytest.mark.parametrize("name", PATTERNS)
def test_derivatives_equal_those_of_the_dense_solve(name: str) -> None:
    pattern, data, b = system(name, "float64")
    weights = np.random.default_rng(3).normal(size=N)

    def sparse(data: Any, b: Any) -> Any:
        return fnp.sum(weights * lax.sparse_solve(Matrix(data, pattern), b) ** 2)

    def dense(data: Any, b: Any) -> Any:
        return fnp.sum(weights * fnp.linalg.solve(Matrix(data, pattern).to_dense(), b) ** 2)

    derivatives: list[Any] = [
        lambda f: fx.grad(f, argnums=(0, 1)),
        lambda f: lambda data, b: fx.jvp(f, (data, b), (data * 0.5 + 1, b + 2))[1],
        lambda f: lambda data, b: fx.jvp(fx.grad(f), (data, b), (data * 0.5 + 1, b + 2))[1],
        lambda f: fx.grad(lambda data, b: fnp.sum(fx.grad(f)(data, b) ** 2)),
    ]
    found = fx.jit(lambda data, b: [of(sparse)(data, b) for of in derivatives])(data, b)
    expected = fx.interpret(fx.trace(lambda data, b: [of(dense)(data, b) for of in derivatives], data, b), data, b)
    for x, y in zip(fx.tree.leaves(found), fx.tree.leaves(expected), strict=True):
        assert np.allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())


@pytest.mark.parametrize("name", ["tridiagonal", "blocks", "random"])
@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)])
def test_vmap_equals_a_loop(name: str, axes: tuple[int | None, int | None]) -> None:
    pattern, data, b = system(name, "float64")
    scale = np.linspace(1, 2, 3)[:, None]
    args = [x * scale if axis == 0 else x for x, axis in zip((data, b), axes, strict=True)]

    def run(data: Any, b: Any) -> Any:
        return lax.sparse_solve(Matrix(data, pattern), b)

    expected = [
        run(*[x[k] if axis == 0 else x for x, axis in zip(args, axes, strict=True)]) for k in range(3)
    ]  # fmt: skip
    assert np.allclose(fx.jit(fx.vmap(run, in_axes=axes))(*args), expected, atol=1e-13)
    twice = fx.vmap(fx.vmap(run, in_axes=(None, 0)), in_axes=(0, None))
    found = twice(data * scale, b * scale)
    assert np.allclose(found[1][2], run(data * scale[1], b * scale[2]), atol=1e-13)


def test_a_matrix_is_factorised_once_for_its_derivatives_and_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    linalg = pytest.importorskip("scipy.sparse.linalg")
    made: list[int] = []
    splu = linalg.splu

    def counted(a: object, **options: object) -> object:
        made.append(1)
        return splu(a, **options)

    monkeypatch.setattr(linalg, "splu", counted)
    pattern, data, b = system("random", "float64")
    gradient = fx.jit(fx.grad(lambda data, b: fnp.sum(lax.sparse_solve(Matrix(data, pattern), b) ** 2)))
    np.asarray(gradient(data, b))
    assert len(made) == 1
    np.asarray(gradient(data, 2 * b))
    assert len(made) == 1, "the same entries again"
    np.asarray(gradient(2 * data, b))
    assert len(made) == 2
    many = fx.jit(fx.vmap(lambda b: lax.sparse_solve(Matrix(data, pattern), b)))
    np.asarray(many(np.stack([b, 2 * b, 3 * b])))
    assert len(made) == 3
    factors = lax.factorize(Matrix(data, pattern))
    for k in range(3):
        np.asarray(factors.solve(k * b))
    assert len(made) == 4


@pytest.mark.parametrize("name", ["tridiagonal", "blocks", "random"])
def test_a_singular_matrix_gives_no_finite_solution(name: str) -> None:
    pattern, data, b = system(name, "float64")
    data[pattern.indptr[3] : pattern.indptr[4]] = 0
    assert not np.all(np.isfinite(lax.sparse_solve(Matrix(data, pattern), b)))
    data[0] = np.nan
    assert not np.all(np.isfinite(lax.sparse_solve(Matrix(data, pattern), b)))


def test_structurally_singular_and_empty_matrices() -> None:
    pattern = pattern_of(np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0]], np.bool_))
    assert np.all(np.isnan(lax.sparse_solve(Matrix(np.arange(1.0, 7.0), pattern), np.ones(3))))
    none = pattern_of(np.zeros((2, 2), np.bool_))
    assert np.all(np.isnan(lax.sparse_solve(Matrix(np.zeros(0), none), np.ones(2))))
    empty = pattern_of(np.zeros((0, 0), np.bool_))
    assert lax.sparse_solve(Matrix(np.zeros(0), empty), np.zeros(0)).shape == (0,)


def test_refusals() -> None:
    pattern, data, b = system("random", "float64")
    wide = pattern_of(np.ones((2, 3), np.bool_))
    n, short = len(data), b.astype("float32")
    shape, dtype = ShapeError, DTypeError
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: lax.sparse_solve(Matrix(np.ones(6), wide), b), shape, "the matrix has shape (2, 3) and is not square"),
        (lambda: lax.sparse_solve(Matrix(data, pattern), b[:5]), shape, "b is f64[5], the matrix has shape (12, 12)"),
        (
            lambda: lax.sparse_solve(Matrix(data[1:], pattern), b),
            shape,
            f"the data is f64[{n - 1}], the pattern has {n}",
        ),
        (lambda: lax.sparse_solve(Matrix(data, pattern), short), dtype, f"the data is f64[{n}] and b is f32[12]"),
        (lambda: lax.sparse_solve(Matrix(data.astype("int32"), pattern), b), dtype, f"the data is i32[{n}]"),
    ]
    for call, kind, message in refused:
        with pytest.raises(kind) as e:
            call()
        assert str(e.value).startswith(f"sparse_solve: {message}")
    with pytest.raises(TracerError) as traced:
        fx.jit(lambda d: lax.factorize(Matrix(d, pattern)).solve(b))(data)
    message = f"factorize: the entries of the matrix are traced, f64[{n}], and have no values yet"
    assert str(traced.value).startswith(message)
