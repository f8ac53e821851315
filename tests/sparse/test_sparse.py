"""`sparsity`, `sparse_jacobian`, `sparse_hessian` and `Sparse`: values, transformations, files, errors."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.api.sparse import sparsity as sparsity_module
from fxad.errors import ArgumentError, FileFormatError, NotDifferentiableError, ShapeError
from fxad.testing import check_sparsity
from fxad.testing.sparse_laws import as_mask, check_covers
from fxad.transforms.sparse import pattern as pattern_module, same_pairs as same_pairs_file
from fxad.transforms.sparse.relation import Box, Relation, pairs, relation

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
    check_covers(fx.sparsity(f, at=(x,)), dense)
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


def test_a_matrix_without_entries_has_the_dtype_of_the_results() -> None:
    for dtype in ("float32", "complex128"):
        assert fx.sparse_jacobian(lambda x, d=dtype: fnp.ones(2, d))(fnp.asarray(X)).dtype == dtype


def test_complex_derivatives_are_those_of_jacfwd() -> None:
    """Of a holomorphic function by rows too; complex results of real arguments by columns, though rows are fewer."""
    anything: Any = fx
    z = fnp.asarray(X + 0.5j)
    square = fx.trace(lambda z: z * z[::-1], z)
    want = fx.interpret(anything.jacfwd(square, holomorphic=True), z)
    for kind in ("columns", "rows"):
        derivative = fx.sparse_jacobian(square, coloring=fx.sparsity(square).color(kind), holomorphic=True)
        np.testing.assert_allclose(fx.interpret(derivative, z).to_dense(), want, rtol=1e-12)
    cubic = fx.trace(lambda z: fnp.sum(z**2 * z[::-1]), z)
    hessian = fx.interpret(fx.sparse_hessian(cubic, holomorphic=True), z)
    np.testing.assert_allclose(
        hessian.to_dense(), fx.interpret(anything.hessian(cubic, holomorphic=True), z), rtol=1e-12
    )
    rows = fx.trace(lambda x: fnp.sum(x.reshape(2, 3) ** 2 * (1 + 2j), 1), fnp.asarray(X))
    assert fx.sparsity(rows).color().vjps
    matrix = fx.interpret(fx.sparse_jacobian(rows), X)
    np.testing.assert_allclose(matrix.to_dense(), fx.interpret(fx.jacfwd(rows), X), rtol=1e-12)


def test_a_batch_of_loops_is_block_diagonal() -> None:
    """Carries that no dependent operand reaches, and a predicate for each member, do not make it dense."""
    step = lambda s: (s[0] * 2, fnp.roll(s[1], 1) * 2)  # noqa: E731
    f = lambda x: lax.while_loop(lambda s: s[0] < 9, step, (fnp.abs(x[0]) + 1, x))[1]  # noqa: E731
    pattern = fx.sparsity(fx.trace(fx.vmap(f), fx.Spec((4, 5), "float64")))
    np.testing.assert_array_equal(as_mask(pattern), np.kron(np.eye(4), np.ones((5, 5))))


def test_sparse_under_transformations(tmp_path: Path) -> None:
    x = fnp.asarray(X)
    f = lambda x: fnp.sin(x[1:] * x[:-1])  # noqa: E731
    jacobian = fx.sparse_jacobian(f)
    matrix, dense = jacobian(x), np.asarray(fx.jacfwd(f)(x))
    np.testing.assert_allclose(fx.jit(jacobian)(x).to_dense(), dense, rtol=1e-12)
    np.testing.assert_allclose(fx.vmap(jacobian)(fnp.stack([x, x])).to_dense()[1], dense, rtol=1e-12)
    np.testing.assert_allclose(matrix @ x, dense @ X, rtol=1e-12)
    np.testing.assert_allclose(matrix.T @ np.eye(5), dense.T, rtol=1e-12)
    np.testing.assert_allclose(X[1:] @ matrix, X[1:] @ dense, rtol=1e-12)
    np.testing.assert_allclose(np.ones((2, 5)) @ matrix, np.ones((2, 5)) @ dense, rtol=1e-12)
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


def test_a_second_derivative_program_is_the_first_one() -> None:
    x = fnp.asarray(X)
    places = fnp.asarray([0, 2])
    program = fx.trace(lambda x: x[places] ** 2, x)
    first = fx.sparse_jacobian(program, at=(x,))
    assert fx.sparse_jacobian(program, at=(x,)).jaxpr is first.jaxpr
    assert fx.sparse_jacobian(program, at=(x,), check=True).jaxpr is not first.jaxpr
    rows = fx.sparsity(program, at=(x,)).color("rows")
    assert fx.sparse_jacobian(program, coloring=rows, at=(x,)).jaxpr is not first.jaxpr


INDICES = np.array([2, 0, 2, 5])
SCALES = fnp.asarray(X)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: fx.sparse_hessian(rosenbrock)(x),
        lambda x: fx.sparse_jacobian(fx.grad(rosenbrock), at=(x,))(x),
        lambda x: fx.sparse_jacobian(lambda x, t: x[::-1] * t)(x, 3.0),
        lambda x: fx.sparse_jacobian(lambda x: x * SCALES)(x),
        lambda x: fx.sparse_jacobian(lambda x: fnp.cumsum(x[INDICES] ** 2))(x),
    ],
)
def test_a_function_that_is_called_again_has_its_pattern(
    call: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program is traced again. Regression: the equal one was gone, and with it the pattern and the coloring."""
    x = fnp.asarray(X)
    call(x)
    gc.collect()
    made: list[str] = []

    def counted(name: str, was: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            made.append(name)
            return was(*args, **kwargs)

        return call

    for name in ("pattern_with_values", "color", "decompression"):
        was = getattr(pattern_module, name)
        monkeypatch.setattr(pattern_module, name, counted(name, was))
    monkeypatch.setattr(sparsity_module, "pattern_with_values", pattern_module.pattern_with_values)
    call(x)
    assert not made


def test_closed_over_indices_that_change_are_read_again() -> None:
    places = np.array([2, 0])
    f = lambda x: x[places] ** 2  # noqa: E731
    x = fnp.asarray(X)
    assert fx.sparse_jacobian(f)(x).pattern.indices.tolist() == [2, 0]
    places[:] = [1, 5]
    assert fx.sparse_jacobian(f)(x).pattern.indices.tolist() == [1, 5]
    np.testing.assert_array_equal(fx.sparse_jacobian(f)(x).to_dense(), fx.jacfwd(f)(x))


def test_arguments_that_are_no_arrays() -> None:
    """Static ones and those that the function asks for, as `jacfwd` takes them."""
    x = fnp.asarray(X)
    power = fx.jit(lambda x, n: x[n:] ** n, static_argnums=1)
    for matrix in (fx.sparse_jacobian(power)(x, 2), fx.sparse_jacobian(power, at=(x, 2))(x, 2)):
        np.testing.assert_array_equal(matrix.to_dense(), fx.jacfwd(power)(x, 2))
    assert fx.sparsity(power, at=(x, 2)).shape == (4, 6)
    assert fx.sparse_hessian(lambda x, n: fnp.sum(x[n:] ** n))(x, 3).nnz == 3
    assert fx.sparse_jacobian(lambda x, mode: x[::-1] if mode == "reversed" else x)(x, mode="reversed").nnz == 6


def test_a_coloring_for_symmetric_values_is_checked() -> None:
    """Of a matrix whose pattern alone is symmetric, it would read entries of the other triangle."""
    x = fnp.asarray(X)

    def arrow(x: Any) -> Any:
        return fnp.concatenate([(x[0] + 3 * fnp.sum(x[1:]))[None], 2 * x[0] + x[1:]])

    def cubic(x: Any) -> Any:
        return x[0] ** 2 * fnp.sum(x[1:]) + fnp.sum(x**3)

    for kind in ("star", "acyclic"):
        coloring = fx.sparsity(arrow, at=(x,)).color(kind)
        assert np.isnan(fx.sparse_jacobian(arrow, coloring=coloring)(x).data).all()
        symmetric = fx.sparse_jacobian(fx.grad(cubic), coloring=coloring)(x)
        np.testing.assert_allclose(symmetric.to_dense(), fx.hessian(cubic)(x), rtol=1e-5)


def test_a_wrong_pattern_is_found_at_run_time() -> None:
    x = fnp.asarray(X)
    wrong = fx.Pattern.from_scipy(np.eye(6))
    assert np.isnan(fx.sparse_jacobian(fnp.cumsum, wrong, check=True)(x).data).all()
    right = fx.sparse_jacobian(fnp.cumsum, check=True)(x)
    assert not np.isnan(right.data).any()
    for dtype in ("float16", "bfloat16"):
        half = fx.trace(fnp.cumsum, fx.Spec((6,), dtype))
        found = [fx.interpret(fx.sparse_jacobian(half, p, check=True), x.astype(dtype)).data for p in (wrong, None)]
        assert [bool(fnp.isnan(d).any()) for d in found] == [True, False]
    with pytest.raises(AssertionError, match="misses 15 nonzeros of the Jacobian"):
        check_covers(wrong, np.tril(np.ones((6, 6))))


def test_a_wrong_pattern_is_found_at_random_points() -> None:
    program = fx.trace(lambda x, i: fnp.cumsum(x)[i], fx.Spec((4,), "float64"), fx.Spec((2,), "int32"))
    check_sparsity(program)
    check_sparsity(lambda x: fnp.log(x) * x[::-1], at=(X,))
    with pytest.raises(
        AssertionError,
        match=r"check_sparsity: the pattern of shape \(6, 6\) misses 15 nonzeros of the Jacobian: \(row, column\)",
    ):
        check_sparsity(fnp.cumsum, fx.Pattern.from_scipy(np.eye(6)), at=(X,))
    # at the given point the derivative is zero, around it it is not
    with pytest.raises(AssertionError, match="misses 1 nonzeros"):
        check_sparsity(lambda x: x**3, fx.Pattern.from_scipy(np.zeros((1, 1))), at=(np.zeros(1),))
    with pytest.raises(ShapeError, match=r"check_sparsity: the pattern has shape \(2, 2\), the derivative has shape"):
        check_sparsity(fnp.cumsum, fx.Pattern.from_scipy(np.eye(2)), at=(X,))


def test_blocks_of_trees() -> None:
    def f(p: dict[str, fx.Array]) -> dict[str, fx.Array]:
        return {"u": p["a"] * 2.0, "v": fnp.cumsum(p["b"]) + p["a"][0]}

    p = {"a": fnp.ones(2, np.float64), "b": fnp.asarray(X[:3])}
    pattern = fx.sparsity(f, at=(p,))
    assert (pattern.row_shapes, pattern.column_shapes) == (((2,), (3,)), ((2,), (3,)))
    dense = fx.jacfwd(f)(p)
    matrix = fx.sparse_jacobian(f)(p)
    for i, u in enumerate("uv"):
        for j, v in enumerate("ab"):
            np.testing.assert_array_equal(as_mask(pattern.blocks[i][j]), np.asarray(dense[u][v]) != 0)
            np.testing.assert_array_equal(matrix.block(i, j).to_dense(), dense[u][v])
    with pytest.raises(ArgumentError, match=r"Pattern\.block: argument 2 of a pattern with 2 leaves of arguments"):
        pattern.block(0, 2)


def test_a_pattern_and_a_matrix_are_saved(tmp_path: Path) -> None:
    f = lambda x: x[np.array([0, 3, 1, 0])] * x[:4]  # noqa: E731
    band = fx.sparsity(fx.trace(lambda x: x[1:] * x[:-1], fx.Spec((4,), "float64")))
    noted = fx.sparsity(fx.trace(lambda x, i: x[i], fx.Spec((3,), "float64"), fx.Spec((2,), "int32")))
    for k, pattern in enumerate((band, fx.sparsity(f, at=(X,)), noted)):
        fx.save(pattern, tmp_path / str(k))
        loaded = fx.load(tmp_path / str(k))
        assert loaded is pattern
        assert loaded.notes == pattern.notes
    assert noted.notes
    assert fx.Pattern.from_scipy(np.ones((2, 3))) == noted, "notes are not part of the value"
    matrix = fx.sparse_jacobian(f)(fnp.asarray(X))
    fx.save(matrix, tmp_path / "m")
    loaded = fx.load(tmp_path / "m")
    assert loaded.pattern == matrix.pattern
    np.testing.assert_array_equal(loaded.data, matrix.data)
    fx.tree.save(tmp_path / "t", [fnp.ones(2)])  # a tree of Python's containers
    with pytest.raises(FileFormatError, match="is not what fxad wrote"):
        fx.load(tmp_path / "t")


def test_pictures() -> None:
    pattern = fx.Pattern.from_scipy(np.eye(300))
    lines = pattern.picture().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 48
    assert set("".join(lines)) <= {chr(c) for c in range(0x2800, 0x2900)}
    assert fx.Pattern.from_scipy(np.zeros((0, 3))).picture() == ""
    assert "<pre" in pattern._repr_html_()
    warned = fx.sparsity(fx.trace(lambda x, i: x[i], fx.Spec((3,), "float64"), fx.Spec((2,), "int32")))
    assert "warning: " in str(warned)
    assert "warning: " in warned._repr_html_()
    pytest.importorskip("matplotlib").use("Agg")
    assert pattern.plot().get_lines()


def test_patterns_too_large_to_be_listed_are_compared() -> None:
    def of(f: Callable[[fx.Array], fx.Array]) -> fx.Pattern:
        return fx.sparsity(fx.trace(f, fx.Spec((20_000,), "float32")))

    product, total, single = of(lambda x: x * fnp.sum(x)), of(lambda x: x + fnp.sum(x)), of(fnp.sin)
    block = of(lambda x: fnp.broadcast_to(fnp.sum(x), x.shape))
    shorter = of(lambda x: fnp.sin(x) + fnp.pad(fnp.broadcast_to(fnp.sum(x[1:]), (19_999,)), (0, 1)))
    shifted = of(lambda x: fnp.sin(x) + fnp.pad(fnp.broadcast_to(fnp.sum(x[:-1]), (19_999,)), (1, 0)))
    with pytest.raises(fx.errors.ArgumentError, match="too large to be listed"):
        _ = block.indices
    assert product == total == block, "a dense block has the entries of its diagonal"
    assert hash(product) == hash(block)
    assert len({product, block, single, shorter, shifted}) == 4
    assert [p == block for p in (single, shorter, shifted)] == [False] * 3
    assert shorter != shifted
    assert shorter.T.T == shorter != shorter.T


@pytest.mark.parametrize("most_listed", [8, 40])
def test_relations_are_compared_in_windows(monkeypatch: pytest.MonkeyPatch, most_listed: int) -> None:
    """The comparison without a list of all pairs gives what the sets of all pairs do."""
    monkeypatch.setattr(same_pairs_file, "_MOST_LISTED", most_listed)
    rng = random.Random(most_listed)

    def drawn(rows: int, columns: int) -> Relation:
        boxes: list[Box] = []
        for _ in range(rng.randint(0, 4)):
            dims = [(rng.randint(1, 4), rng.randint(-4, 4), rng.randint(-4, 4)) for _ in range(rng.randint(0, 3))]
            (o0, o1), (i0, i1) = Box(0, 0, tuple(dims)).out_bounds, Box(0, 0, tuple(dims)).in_bounds
            if o1 - o0 < rows and i1 - i0 < columns:
                start, first = rng.randint(-o0, rows - 1 - o1), rng.randint(-i0, columns - 1 - i1)
                boxes.append(Box(start, first, tuple(dims)))
        return relation(*boxes)

    def listed(r: Relation) -> set[tuple[int, int]]:
        return set(zip(*[numbers.tolist() for numbers in pairs(r)], strict=True))

    def as_pairs(places: list[tuple[int, int]]) -> Relation:
        boxes, tables = places[: len(places) // 2], np.array(places[len(places) // 2 :], np.int64).reshape(-1, 2)
        return Relation(
            frozenset([Box(o, i, ()) for o, i in boxes]), ((tables[:, 0], tables[:, 1]),) if len(tables) else ()
        )

    n_equal = 0
    for _ in range(400):
        rows, columns = rng.randint(1, 20), rng.randint(1, 20)
        a = drawn(rows, columns)
        places = rng.sample(sorted(listed(a)), len(listed(a)))
        others = [drawn(rows, columns), as_pairs(places), as_pairs(places[1:])]
        for b in others:
            equal = listed(a) == listed(b)
            n_equal += equal
            assert same_pairs_file.same_pairs(a, b, rows, columns) == equal, (a, b)
    assert n_equal > 400


def test_a_hessian_has_a_star_coloring_if_it_is_symmetric() -> None:
    edges = np.array([[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [4, 5]])

    def energy(x: fx.Array) -> fx.Array:
        return fnp.sum((x[edges[:, 0]] - x[edges[:, 1]]) ** 4)

    x = fnp.asarray(X)
    pattern = fx.sparsity(fx.grad(fx.trace(energy, x)))
    assert pattern.symmetric
    assert pattern.color().products > pattern.color(symmetric=True).products == 3
    dense = np.asarray(fx.hessian(energy)(x))
    np.testing.assert_allclose(fx.sparse_hessian(energy)(x).to_dense(), dense, rtol=1e-12)
    np.testing.assert_allclose(fx.sparse_hessian(fx.trace(energy, x))(x).to_dense(), dense, rtol=1e-12)

    @fx.custom_jvp
    def rotated(x: fx.Array) -> fx.Array:
        return energy(x)

    # the derivative of its rule is not symmetric
    rotated.defjvp(lambda primals, tangents: (rotated(*primals), fnp.sum(fnp.cumsum(primals[0] ** 2) * tangents[0])))
    dense = np.asarray(fx.hessian(rotated)(x))
    assert not np.array_equal(dense, dense.T)
    np.testing.assert_allclose(fx.sparse_hessian(rotated)(x).to_dense(), dense, rtol=1e-12)


@pytest.mark.parametrize("colours", [1, 3, 17])
def test_few_and_many_colours(colours: int) -> None:
    """Few products are computed apart, many in a stack; those of columns and of rows."""
    n = 2 * colours
    f = lambda x: fnp.convolve(x**2, fnp.ones(colours, np.float64))  # noqa: E731
    x = fnp.linspace(1, 2, n, dtype=np.float64)
    dense = np.asarray(fx.jacfwd(f)(x))
    pattern = fx.sparsity(f, at=(x,))
    for kind in ("columns", "rows", "both"):
        found = fx.sparse_jacobian(f, coloring=pattern.color(kind))(x)
        np.testing.assert_allclose(found.to_dense(), dense, rtol=1e-12)


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


def test_a_pattern_at_values_that_are_gone_is_not_that_without_values() -> None:
    w = fnp.ones(3)
    program: Any = fx.trace(lambda x, i: (w * x)[i], fx.Spec((3,)), fx.Spec((2,), "int32"))
    at = [fnp.ones(3), fnp.asarray([2, 0])]
    assert fx.sparsity(program, at=tuple(at)).nnz == 2
    at.clear()
    gc.collect()
    assert fx.sparsity(program).nnz == 6


def test_patterns_hold_no_arrays() -> None:
    """Regression: the program held the arrays that a pattern was computed from, and the cache holds the program. A
    sparse derivative lives as long as its pattern: programs held one for each pattern at other values."""

    def scaled_by_large() -> tuple[Any, Any]:
        large = fnp.ones(64)
        program = fx.trace(lambda x: x * large, fx.Spec((64,)))
        assert fx.sparsity(program) is fx.sparsity(program)
        fx.lower(program).compile()
        return program.jaxpr, weakref.ref(large)

    _held, large = scaled_by_large()  # as the cache holds it
    gc.collect()
    assert large() is None

    gather: Any = fx.trace(lambda x, i: x[i], fx.Spec((3,)), fx.Spec((3,), "int32"))

    def derivative_at(i: list[int]) -> Any:
        at = (fnp.ones(3), fnp.asarray(i))
        assert fx.sparse_jacobian(gather, at=at) == fx.sparse_jacobian(gather, at=at)
        return weakref.ref(fx.sparse_jacobian(gather, at=at).jaxpr)

    first, second = derivative_at([0, 1, 1]), derivative_at([2, 1, 0])
    gc.collect()
    assert first() is None
    assert second() is not None
