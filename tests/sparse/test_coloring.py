"""Colourings: valid by the definitions of their kinds, exact decompression, and few colours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ParameterError, ShapeError
from fxad.transforms.sparse.coloring import color, color_grid
from fxad.transforms.sparse.csr import csr_of
from fxad.transforms.sparse.decompression import KINDS, SYMMETRIC, Coloring, decompression, is_valid
from fxad.transforms.sparse.shifts import best_stencil_coloring, color_band, stencil_of, stencil_pattern

Dense = npt.NDArray[Any]


def csr(a: Dense) -> tuple[Dense, Dense]:
    i, j = np.nonzero(a)
    return csr_of(i, j, a.shape)


@st.composite
def patterns(draw: st.DrawFn, symmetric: bool = False) -> Dense:
    """Random patterns: any density, with and without diagonals, dense lines, bands and blocks."""
    n = draw(st.integers(0, 12))
    m = n if symmetric else draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    a = rng.random((m, n)) < draw(st.sampled_from([0, 0.1, 0.2, 0.5, 0.9, 1]))
    i, j = np.indices((m, n))
    for what in draw(st.sets(st.sampled_from(["diagonal", "row", "column", "band", "blocks"]))):
        a |= {
            "diagonal": i == j,
            "row": i == draw(st.integers(0, 3)),
            "column": j == draw(st.integers(0, 3)),
            "band": abs(i - j) <= draw(st.integers(1, 3)),
            "blocks": i // 3 == j // 3,
        }[what]
    return a | a.T if symmetric else a


def is_valid_by_definition(c: Coloring, a: Dense) -> bool:
    """The definitions of the docstring of the module, by enumeration."""
    m, n = a.shape

    def readable_in_column(i: int, j: int) -> bool:
        return c.columns[j] >= 0 and not any(a[i, k] and k != j and c.columns[k] == c.columns[j] for k in range(n))

    def readable_in_row(i: int, j: int) -> bool:
        return c.rows[i] >= 0 and not any(a[k, j] and k != i and c.rows[k] == c.rows[i] for k in range(m))

    if c.kind not in SYMMETRIC:
        return all(readable_in_column(i, j) or readable_in_row(i, j) for i, j in zip(*np.nonzero(a), strict=True))
    near = [[w for w in range(n) if a[v, w] and w != v] for v in range(n)]
    if any(c.columns[v] < 0 or any(c.columns[v] == c.columns[w] for w in near[v]) for v in range(n) if a[v].any()):
        return False
    if c.kind == "star":
        return not any(
            c.columns[v] == c.columns[x] and c.columns[w] == c.columns[y]
            for v in range(n) for w in near[v] for x in near[w] for y in near[x]
            if len({v, w, x, y}) == 4
        )  # fmt: skip
    for p, q in itertools.combinations(range(c.products), 2):
        inside = [v for v in range(n) if c.columns[v] in (p, q)]
        rest = set(inside)
        while True:  # leaves are taken off; a cycle stays
            leaf = next((v for v in rest if len(rest & set(near[v])) <= 1), None)
            if leaf is None:
                break
            rest.discard(leaf)
        if rest:
            return False
    return True


def products(c: Coloring, a: Dense) -> tuple[Dense, Dense]:
    jvps = np.array([a[:, c.columns == k].sum(axis=1) for k in range(c.jvps)]).reshape(c.jvps, a.shape[0])
    vjps = np.array([a[c.rows == k].sum(axis=0) for k in range(c.vjps)]).reshape(c.vjps, a.shape[1])
    return jvps, vjps


def check(c: Coloring, a: Dense) -> None:
    """The colouring is valid, and its products give each entry: exactly, because they are sums of integers."""
    indptr, indices = csr(a)
    assert is_valid_by_definition(c, a)
    assert is_valid(c, indptr, indices)
    values = np.where(a, np.random.default_rng(0).integers(1, 1000, a.shape), 0)
    if c.kind in SYMMETRIC:
        values = np.triu(values) + np.triu(values, 1).T
    found = decompression(c, indptr, indices).apply(*products(c, values))
    assert np.array_equal(found, values[np.nonzero(a)])


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_colorings_are_valid_and_determine_each_entry(kind: str, data: st.DataObject) -> None:
    a = data.draw(patterns(symmetric=kind in SYMMETRIC))
    c = color(*csr(a), a.shape, kind)
    check(c, a)
    assert c == color(*csr(a), a.shape, kind)
    assert hash(c) == hash(color(*csr(a), a.shape, kind))


@given(patterns())
def test_without_a_kind_no_kind_has_fewer_products(a: Dense) -> None:
    c = color(*csr(a), a.shape)
    check(c, a)
    assert all(c.products <= color(*csr(a), a.shape, kind).products for kind in ("columns", "rows", "both"))


@given(patterns(symmetric=True))
def test_a_symmetric_pattern_may_have_a_star_coloring(a: Dense) -> None:
    c = color(*csr(a), a.shape, symmetric=True)
    check(c, a)
    assert all(c.products <= color(*csr(a), a.shape, kind).products for kind in ("columns", "star"))


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_is_valid_follows_the_definitions(kind: str, data: st.DataObject) -> None:
    """Of arbitrary colours, most of which are not valid."""
    a = data.draw(patterns(symmetric=kind in SYMMETRIC))
    m, n = a.shape
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    number = data.draw(st.integers(1, 6))
    columns = rng.integers(0 if kind in SYMMETRIC else -1, number, n).astype(np.int32)
    rows = rng.integers(-1, number, m).astype(np.int32)
    if kind != "both":
        rows, columns = (np.full_like(rows, -1), columns) if kind != "rows" else (rows, np.full_like(columns, -1))
    c = Coloring(kind, (m, n), columns, rows)
    assert is_valid(c, *csr(a)) == is_valid_by_definition(c, a)
    if is_valid(c, *csr(a)):
        check(c, a)
    elif kind not in SYMMETRIC:
        with pytest.raises(ParameterError, match="does not determine the entry"):
            decompression(c, *csr(a))


# ------------------------------------------------------------------------------------------------- bands and stencils


@given(
    st.sets(st.integers(-4, 4)), st.integers(1, 14), st.integers(1, 14), st.sampled_from(["columns", "rows"])
)  # fmt: skip
def test_bands_are_colored_from_their_shifts(offsets: set[int], m: int, n: int, kind: str) -> None:
    i, j = np.indices((m, n))
    a = np.isin(j - i, sorted(offsets))
    c = color_band(sorted(offsets), (m, n), kind)
    assert c is not None
    assert is_valid(c, *csr(a))
    best = color(*csr(a), (m, n), kind, offsets=tuple(sorted(offsets)))
    check(best, a)
    assert best.products <= c.products


@pytest.mark.parametrize("half", [0, 1, 2, 3, 5])
def test_a_full_band_needs_as_many_colors_as_it_has_diagonals(half: int) -> None:
    n = 60
    i, j = np.indices((n, n))
    a = abs(i - j) <= half
    offsets = tuple(range(-half, half + 1))
    for kind, number in {
        "columns": 2 * half + 1,
        "rows": 2 * half + 1,
        "star": 2 * half + 1,
        "acyclic": half + 1,
    }.items():
        for given_offsets in (offsets, None):
            c = color(*csr(a), a.shape, kind, offsets=given_offsets)
            check_quickly(c, a)
            assert c.products == number
    assert color_band(offsets, (10**6, 10**6), "columns") is not None, "no elements are needed"


def check_quickly(c: Coloring, a: Dense) -> None:
    """Checks as `check` does, without the enumeration."""
    indptr, indices = csr(a)
    assert is_valid(c, indptr, indices)
    values = np.where(a, np.random.default_rng(0).integers(1, 1000, a.shape), 0)
    if c.kind in SYMMETRIC:
        values = np.triu(values) + np.triu(values, 1).T
    assert np.array_equal(decompression(c, indptr, indices).apply(*products(c, values)), values[np.nonzero(a)])


FIVE = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
NINE = list(itertools.product([-1, 0, 1], repeat=2))
SEVEN = [(0, 0, 0), *[tuple(s * e for e in row) for row in np.eye(3, dtype=int).tolist() for s in (1, -1)]]
# species, then the two axes: each species on its five points, and on the other one at its point
BRUSSELATOR = [(0, *k) for k in FIVE] + [(1, 0, 0), (-1, 0, 0)]


@pytest.mark.parametrize(
    ("offsets", "grid", "periodic", "kind", "number"),
    [
        (FIVE, (20, 13), (False, False), "columns", 5),
        (FIVE, (20, 13), (False, False), "rows", 5),
        (FIVE, (20, 13), (False, False), "star", 5),
        (FIVE, (20, 13), (False, False), "acyclic", 3),
        (FIVE, (20, 15), (True, True), "columns", 5),
        (FIVE, (16, 16), (True, True), "columns", 8),
        (NINE, (20, 13), (False, False), "columns", 9),
        (NINE, (20, 13), (False, False), "acyclic", 5),
        (SEVEN, (6, 5, 7), (False, False, False), "columns", 7),
        (SEVEN, (6, 5, 7), (False, False, False), "acyclic", 4),
        (BRUSSELATOR, (2, 9, 8), (False, False, False), "columns", 6),
        (BRUSSELATOR, (2, 12, 6), (False, True, True), "columns", 6),
        ([(-1,), (0,), (1,)], (40,), (True,), "columns", 4),
        ([(-1,), (0,), (1,)], (42,), (True,), "columns", 3),
    ],
)
def test_stencils_are_colored_from_their_shifts(
    offsets: Sequence[tuple[int, ...]], grid: tuple[int, ...], periodic: tuple[bool, ...], kind: str, number: int
) -> None:
    c = color_grid(offsets, grid, kind, periodic=periodic)
    indptr, indices = stencil_pattern(offsets, grid, periodic)
    a = np.zeros(c.shape, np.bool_)
    a[np.repeat(np.arange(len(a)), np.diff(indptr)), indices] = True
    check_quickly(c, a)
    assert c.products <= number
    if not any(periodic):
        assert c.products == number
        assert color(indptr, indices, c.shape, kind).products == number, "the shifts are found in the elements"


@given(st.data())
@settings(deadline=None)
def test_any_stencil_has_a_valid_coloring(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    grid = tuple(data.draw(st.lists(st.integers(1, 5), min_size=ndim, max_size=ndim)))
    periodic = tuple(data.draw(st.lists(st.booleans(), min_size=ndim, max_size=ndim)))
    kind = data.draw(st.sampled_from(["columns", "rows", "star", "acyclic"]))
    shift = st.tuples(*[st.integers(-2, 2) for _ in grid])
    offsets = data.draw(st.lists(shift, max_size=5))
    if kind in SYMMETRIC:
        offsets = [*offsets, *[tuple([-e for e in k]) for k in offsets]]
    c = color_grid(offsets, grid, kind, periodic=periodic)
    indptr, indices = stencil_pattern(offsets, grid, periodic)
    a = np.zeros(c.shape, np.bool_)
    a[np.repeat(np.arange(len(a)), np.diff(indptr)), indices] = True
    check_quickly(c, a)


@given(st.data())
@settings(deadline=None)
def test_the_stencil_of_a_program_is_found_in_its_boxes(data: st.DataObject) -> None:
    """It contains the pattern, and its colourings are valid, also for several species and closed axes."""
    grid = tuple(data.draw(st.lists(st.sampled_from([2, 3, 4, 5, 8]), min_size=1, max_size=3)))
    closed = data.draw(st.lists(st.booleans(), min_size=len(grid), max_size=len(grid)))
    shifts = data.draw(st.lists(st.tuples(*[st.integers(-1, 1) for _ in grid]), min_size=1, max_size=4, unique=True))

    def moved(u: Any, shift: tuple[int, ...]) -> Any:
        for axis, k in enumerate(shift):
            if closed[axis]:
                u = fnp.roll(u, k, axis)
            elif k:
                there = fnp.pad(u, [(1, 1) if a == axis else (0, 0) for a in range(u.ndim)])
                u = fnp.take(there, np.arange(1 + k, 1 + k + grid[axis]), axis)
        return u

    def f(x: Any) -> Any:
        return sum([moved(x.reshape(grid), k) for k in shifts]).reshape(-1)

    pattern = fx.sparsity(fx.trace(f, fx.Spec((int(np.prod(grid)),), "float64")))
    rows, columns = pattern.rows, pattern.indices
    found = stencil_of(pattern.key[2], pattern.shape[0]) if not pattern.key[3] else None
    if found is not None:
        steps = np.subtract(np.unravel_index(columns, found.grid), np.unravel_index(rows, found.grid))
        assert {tuple(k) for k in steps.T.tolist()} == set(found.shifts)
    for kind in ("columns", "rows", "star") if pattern.symmetric else ("columns", "rows"):
        assert is_valid(pattern.color(kind), pattern.indptr, pattern.indices)
        if found is not None and (c := best_stencil_coloring(found, kind)) is not None:
            assert is_valid(c, pattern.indptr, pattern.indices)


# 512 x 512 points of two species: five points, closed, and each species at its point
@pytest.mark.parametrize(("grid", "number"), [((2, 512, 512), 8), ((1000, 1000), 5), ((512, 512), 8)])
def test_large_closed_stencils_are_colored_without_a_search(grid: tuple[int, ...], number: int) -> None:
    def f(x: Any) -> Any:
        u = x.reshape(grid)
        near = sum([fnp.roll(u, s, a) for s in (1, -1) for a in (-1, -2)]) + u
        return (near + u[::-1] if len(grid) == 3 else near).reshape(-1)

    pattern = fx.sparsity(fx.trace(f, fx.Spec((int(np.prod(grid)),), "float64")))
    found = stencil_of(pattern.key[2], pattern.shape[0])
    assert found is not None
    assert found.grid == grid
    c = best_stencil_coloring(found, "columns")
    assert c is not None
    assert c.products == number


# --------------------------------------------------------------------------------------------------- numbers of colors


def greedy(near: list[list[int]], order: Sequence[int], forbidden: Any) -> int:
    colors = [-1] * len(near)
    for v in order:
        taken = forbidden(near, colors, v)
        colors[v] = next(k for k in itertools.count() if k not in taken)
    return max(colors) + 1


def near_column(near: list[list[int]], colors: list[int], v: int) -> set[int]:
    return {colors[x] for w in near[v] for x in [w, *near[w]] if x != v}


def near_star(near: list[list[int]], colors: list[int], v: int) -> set[int]:
    """Algorithm 4.1 of Gebremedhin, Tarafdar, Manne, Pothen, New acyclic and star coloring algorithms (2007)."""
    taken = {colors[w] for w in near[v]}
    for w in near[v]:
        for x in near[w]:
            if colors[w] < 0 or x == v or colors[x] < 0:
                continue
            twice = [y for u in (x, v) for y in near[u] if y != w and colors[y] == colors[w]]
            if twice:
                taken.add(colors[x])
    return taken


@pytest.mark.parametrize("seed", range(4))
def test_as_few_colors_as_sequential_greedy_colorings(seed: int) -> None:
    """SparseMatrixColorings.jl colours greedily in one order: natural, or most neighbours first. Here columns are
    coloured in these orders and in further ones, so there are never more colours."""
    n = 120
    rng = np.random.default_rng(seed)
    a = rng.random((n, n)) < [0.02, 0.03, 0.05, 0.01][seed]
    a = a | a.T | np.eye(n, dtype=np.bool_)
    near = [[w for w in np.nonzero(a[v])[0].tolist() if w != v] for v in range(n)]
    orders = [list(range(n)), sorted(range(n), key=lambda v: -len(near[v]))]
    for kind, forbidden in (("columns", near_column), ("star", near_star)):
        c = color(*csr(a), a.shape, kind)
        check_quickly(c, a)
        assert c.products <= min(greedy(near, order, forbidden) for order in orders)


# Figures 4.1 and 6.1 of What Color Is Your Jacobian? The second graph is that of figures 1 and 4 of Gebremedhin,
# Tarafdar, Pothen, Walther, Efficient computation of sparse Hessians (2009). Columns, edges, and colours.
FIGURES = {
    "4.1": (6, "01 12 14 15 23 35", 3, 3),
    "6.1": (10, "01 06 12 14 23 25 39 45 47 58 67 78 89", 5, 3),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_the_figures_of_the_literature_need_no_more_colors(figure: str) -> None:
    n, edges, star, acyclic = FIGURES[figure]
    a = np.eye(n, dtype=np.bool_)
    for edge in edges.split():
        v, w = int(edge[0]), int(edge[1])
        a[v, w] = a[w, v] = True
    for kind, number in (("star", star), ("acyclic", acyclic)):
        c = color(*csr(a), a.shape, kind)
        check(c, a)
        assert c.products <= number


def test_dense_lines_are_taken_out() -> None:
    n = 40
    i, j = np.indices((n, n))
    arrow = (i == j) | (i == 0) | (j == 0)
    expected = {"columns": n, "rows": n, "both": 3, "star": 2, "acyclic": 2}
    for kind, number in expected.items():
        c = color(*csr(arrow), arrow.shape, kind)
        check_quickly(c, arrow)
        assert c.products == number
    frame = np.zeros((10, 20), np.bool_)  # test/small.jl of SparseMatrixColorings.jl: 4 is optimal
    frame[[0, -1]] = frame[:, [0, -1]] = True
    c = color(*csr(frame), frame.shape)
    check(c, frame)
    assert (c.kind, c.products) == ("both", 4)
    banded = (abs(i - j) <= 1) | (i == 7) | (j == 9)
    c = color(*csr(banded), banded.shape)
    check_quickly(c, banded)
    assert repr(c) == "Coloring('both', 40x40: 4 jvps and 1 vjps)"


def test_small_patterns_have_their_least_number() -> None:
    """Triangle and anti-diagonal of test/small.jl of SparseMatrixColorings.jl; no entries; a dense matrix."""
    triangle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], np.bool_)
    anti = np.eye(4, dtype=np.bool_)[::-1]
    none, full = np.zeros((3, 5), np.bool_), np.ones((3, 5), np.bool_)
    for a, number in ((triangle, 3), (anti, 1), (none, 0), (full, 3)):
        c = color(*csr(a), a.shape)
        check(c, a)
        assert c.products == number


# ------------------------------------------------------------------------------------------------------------- refusals


def test_refusals() -> None:
    a = np.triu(np.ones((3, 3), np.bool_))
    with pytest.raises(ParameterError) as e:
        color(*csr(a), a.shape, "star")
    assert str(e.value).startswith(
        "color: a star colouring is one of a symmetric pattern, and this one of shape (3, 3) is not"
    )
    with pytest.raises(ParameterError) as e:
        color(*csr(a), a.shape, "stars")
    assert str(e.value).startswith("color: unknown kind 'stars'")
    with pytest.raises(ShapeError) as shape_error:
        color(*csr(a), (4, 3))
    assert str(shape_error.value).startswith("color: indptr has 4 elements, a matrix of 4 rows has 5")
    c = color(*csr(np.eye(3, dtype=np.bool_)), a.shape, "columns")
    with pytest.raises(ParameterError) as e:
        decompression(c, *csr(a))
    assert str(e.value).startswith(
        "coloring: Coloring('columns', 3x3: 1 jvps) does not determine the entry (0, 0) of this pattern"
    )
    with pytest.raises(ShapeError) as shape_error:
        decompression(c, *csr(np.ones((4, 3), np.bool_)))
    assert str(shape_error.value).startswith(
        "coloring: it is one of a matrix of shape (3, 3), and the pattern has 4 rows"
    )
    cyclic = Coloring("acyclic", (4, 4), np.array([0, 1, 0, 1], np.int32), np.full(4, -1, np.int32))
    square = np.eye(4, dtype=np.bool_) | np.eye(4, k=1, dtype=np.bool_) | np.eye(4, k=-1, dtype=np.bool_)
    square[0, 3] = square[3, 0] = True
    with pytest.raises(ParameterError, match=r"does not determine the entry \(0, 1\)"):
        decompression(cyclic, *csr(square))
