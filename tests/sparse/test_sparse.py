"""`sparsity`, `sparse_jacobian`, `sparse_hessian` and `Sparse`: values, transformations, files, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, NotDifferentiableError, ShapeError
from fxad.testing.sparse_laws import as_mask, check_sparsity

X = np.linspace(0.3, 1.7, 6)


def rosenbrock(x: fx.Array) -> fx.Array:
    return fnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def pattern_text(f: Callable[..., object], *specs: object) -> list[list[int]]:
    rows: list[list[int]] = as_mask(fx.sparsity(fx.trace(f, *specs))).astype(int).tolist()
    return rows


def test_the_hessian_of_rosenbrock_is_a_band() -> None:
    pattern = fx.sparsity(fx.grad(fx.trace(rosenbrock, fx.Spec((6,), "float64"))))
    assert pattern.offsets == (-1, 0, 1)
    assert pattern.nnz == 16
    assert not pattern.entries.tables
    got = fx.sparse_hessian(rosenbrock)(fnp.asarray(X))
    np.testing.assert_allclose(got.to_dense(), fx.hessian(rosenbrock)(fnp.asarray(X)), rtol=1e-12)
    assert (got.to_scipy() != got.T.to_scipy()).nnz == 0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fnp.cumsum(x) * x,
        lambda x: fnp.roll(x, 2) * x[::-1],
        lambda x: fnp.sort(x),
        lambda x: x.reshape(2, 3).T.ravel()[1:] ** 2,
        lambda x: fnp.convolve(x, fnp.asarray([1.0, 2.0, 3.0])),
        lambda x: x[np.array([0, 5, -1, 2, 2])] ** 2,
        lambda x: x.at[np.array([0, 0, 4])].add(x[:3]),
        lambda x: x.at[np.array([9, 1])].set(x[:2] ** 2, mode="drop"),
        lambda x: lax.scan(lambda c, a: (c * a, c + a), x[0], x)[1],
        lambda x: lax.scan(lambda c, a: (c * a, c + a), x[0], x, reverse=True)[1],
        lambda x: lax.while_loop(lambda c: c.sum() < 50, lambda c: c.at[1:].add(c[:-1]), x),
        lambda x: lax.cond(x[0] > 0, lambda x: x[::-1] ** 2, lambda x: x * 2, x),
        lambda x: fx.jit(lambda x: fnp.where(np.arange(6) < 3, x * x, 0.0))(x),
        lambda x: fnp.max(x.reshape(2, 3), 1),
        lambda x: fnp.linalg.solve(fnp.eye(6) * 3 + fnp.ones((6, 6)), x),
    ],
)
def test_the_pattern_and_the_matrix_of_a_function(f: Callable[..., fx.Array]) -> None:
    x = fnp.asarray(X)
    dense = np.asarray(fx.jacfwd(f)(x))
    check_sparsity(fx.sparsity(f, at=(x,)), dense)
    for g in (f, fx.trace(f, x)):
        np.testing.assert_allclose(fx.sparse_jacobian(g)(x).to_dense(), dense, rtol=1e-12)


def test_exact_patterns() -> None:
    x = fx.Spec((3,), "float64")
    assert pattern_text(fnp.cumsum, x) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert pattern_text(lambda x: lax.stop_gradient(x) + x[0], x) == [[1, 0, 0]] * 3
    assert pattern_text(lambda x: fnp.where(np.array([True, False, True]), x, 0.0), x) == [
        [1, 0, 0],
        [0, 0, 0],
        [0, 0, 1],
    ]

    @fx.custom_jvp
    def rounded(x: fx.Array) -> fx.Array:
        return fnp.round(x)

    rounded.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0]))
    assert pattern_text(rounded, x) == np.eye(3, dtype=int).tolist()


def test_the_pattern_of_a_batch_is_block_diagonal_and_that_of_a_transpose_the_transpose() -> None:
    program = fx.trace(lambda x: fnp.cumsum(x)[1:], fx.Spec((3,), "float64"))
    one = as_mask(fx.sparsity(program))
    batched = fx.trace(fx.vmap(lambda x: fnp.cumsum(x)[1:]), fx.Spec((2, 3), "float64"))
    assert (as_mask(fx.sparsity(batched)) == np.kron(np.eye(2, dtype=np.bool_), one)).all()
    pulled = fx.trace(
        lambda c: fx.vjp(lambda x: fnp.cumsum(x)[1:], fnp.ones(3, np.float64))[1](c)[0], fx.Spec((2,), "float64")
    )
    assert (as_mask(fx.sparsity(pulled)) == one.T).all()


def test_a_pattern_is_a_value() -> None:
    program = fx.trace(lambda x: x[1:] * x[:-1], fx.Spec((4,), "float64"))
    pattern = fx.sparsity(program)
    assert fx.sparsity(program) is pattern
    assert fx.Pattern.from_scipy(pattern.to_scipy()) == pattern
    assert hash(fx.Pattern.from_scipy(pattern.to_scipy())) == hash(pattern)
    assert pattern.T.T == pattern != pattern.T
    assert str(pattern).startswith("Pattern 3 x 4, 6 entries\n⠙⠦")
    assert "3 x 4" in pattern._repr_html_()


def test_a_data_dependent_index_is_dense_and_noted() -> None:
    pattern = fx.sparsity(fx.trace(lambda x, i: x[i], fx.Spec((3,), "float64"), fx.Spec((2,), "int32")))
    assert as_mask(pattern).all()
    assert "an index depends on data" in str(pattern)
    assert "test_sparse.py" in str(pattern)
    at = fx.sparsity(lambda x, i: x[i], at=(fnp.asarray(X), fnp.asarray([1, 0])))
    assert as_mask(at)[:, :2].tolist() == [[False, True], [True, False]]


def test_sparse_under_transformations(tmp_path: Path) -> None:
    x = fnp.asarray(X)
    f = lambda x: fnp.sin(x[1:] * x[:-1])  # noqa: E731
    jacobian = fx.sparse_jacobian(f)
    matrix, dense = jacobian(x), np.asarray(fx.jacfwd(f)(x))
    np.testing.assert_allclose(fx.jit(jacobian)(x).to_dense(), dense, rtol=1e-12)
    np.testing.assert_allclose(fx.vmap(jacobian)(fnp.stack([x, x])).to_dense()[1], dense, rtol=1e-12)
    np.testing.assert_allclose(matrix @ x, dense @ X, rtol=1e-12)
    np.testing.assert_allclose(matrix.T @ np.eye(5), dense.T, rtol=1e-12)
    np.testing.assert_allclose((2 * matrix).sum(0), 2 * dense.sum(0), rtol=1e-12)
    np.testing.assert_allclose((-matrix).sum(1), -dense.sum(1), rtol=1e-12)
    gradient = fx.grad(lambda m: fnp.sum((m @ x) ** 2))(matrix)
    want = np.outer(2 * dense @ X, X)[matrix.pattern.rows, matrix.pattern.indices]
    np.testing.assert_allclose(gradient.data, want, rtol=1e-12)
    fx.tree.save(tmp_path / "m", matrix)
    loaded = fx.tree.load(tmp_path / "m")
    assert loaded.pattern is matrix.pattern
    np.testing.assert_array_equal(loaded.data, matrix.data)
    rows = fx.sparse_jacobian(f, coloring=matrix.pattern.color("rows"))(x)
    np.testing.assert_allclose(rows.to_dense(), dense, rtol=1e-12)


def test_a_wrong_pattern_is_found_at_run_time() -> None:
    x = fnp.asarray(X)
    wrong = fx.Pattern.from_scipy(np.eye(6))
    assert np.isnan(fx.sparse_jacobian(fnp.cumsum, wrong, check=True)(x).data).all()
    right = fx.sparse_jacobian(fnp.cumsum, check=True)(x)
    assert not np.isnan(right.data).any()
    with pytest.raises(AssertionError, match="misses 15 nonzeros"):
        check_sparsity(wrong, np.tril(np.ones((6, 6))))


def test_bad_input() -> None:
    x = fnp.asarray(X)
    wrong = fx.Pattern.from_scipy(np.eye(4))
    with pytest.raises(ShapeError, match=r"the pattern has shape \(4, 4\), the derivative has shape \(6, 6\)"):
        fx.sparse_jacobian(fnp.sin, wrong)(x)
    with pytest.raises(ArgumentError, match=r"the coloring is of \(4, 4\), the pattern has shape \(6, 6\)"):
        fx.sparse_jacobian(fnp.sin, coloring=wrong.color())(x)
    with pytest.raises(NotDifferentiableError, match=r"result 0 of .* has type i32\[6\]"):
        fx.sparsity(fx.trace(lambda x: x.astype(np.int32), x))
    with pytest.raises(NotDifferentiableError, match=r"argument x of .* has type i32"):
        fx.sparsity(fx.trace(lambda x: x * 1.0, fx.Spec((2,), "int32")))
    with pytest.raises(ArgumentError, match="a function has no types of arguments"):
        fx.sparsity(fnp.sin)
    with pytest.raises(ArgumentError, match="pattern is"):
        fx.sparse_jacobian(fnp.sin, [1])(x)  # type: ignore[call-overload]
    with pytest.raises(ShapeError, match=r"shapes \(6, 6\) and \(5,\) do not fit"):
        fx.sparse_jacobian(fnp.sin)(x) @ x[1:]
    with pytest.raises(ShapeError, match="data has shape"):
        fx.Sparse(x, wrong)
    with pytest.raises((ArgumentError, TypeError), match="Sparse"):
        fnp.sin(fx.sparse_jacobian(fnp.sin)(x))  # type: ignore[arg-type]
