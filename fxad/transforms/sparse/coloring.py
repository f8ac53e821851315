"""Colourings of sparsity patterns: which columns and rows of a Jacobian one product computes together.

Kinds
-----
A product of a Jacobian with the sum of several unit vectors gives the sum of several columns. It gives each entry of
these columns if they share no row. The kinds differ in what they ask of the columns (and rows) of one colour:

- "columns": two columns of one colour share no row. Each colour is one jvp.
- "rows": two rows of one colour share no column. Each colour is one vjp.
- "both": some columns and some rows have colours. An entry is read from a jvp or from a vjp.
- "star", for a symmetric matrix: neighbours differ in colour, and each path of four columns has three colours. An entry
  is read from the jvp of its column, or from that of its row.
- "acyclic", for a symmetric matrix: neighbours differ in colour, and each cycle has three colours. The entries of two
  colours form trees, which are solved from the leaves.

A pattern is a pair of CSR arrays: `indices[indptr[i]:indptr[i + 1]]` are the columns of row i, sorted, each once.

Source: A. H. Gebremedhin, F. Manne, A. Pothen, What Color Is Your Jacobian? SIAM Review 47 (2005), for the kinds and
their conditions; T. F. Coleman, A. Verma, The efficient computation of sparse Jacobian matrices using automatic
differentiation, SIAM J. Sci. Comput. 19 (1998), for "both"; J. C. Culberson, Iterated greedy graph coloring, UVic CS
(1992), for the repetitions. The greedy colouring of columns is SciPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from fxad.errors import ParameterError, shown
from fxad.transforms.sparse.csr import Colors, Csr, Ints, MatrixShape, frozen
from fxad.transforms.sparse.decompression import KINDS, SYMMETRIC, Coloring, one_sided
from fxad.transforms.sparse.greedy import greedy_columns
from fxad.transforms.sparse.shifts import (
    Stencil,
    best_stencil_coloring,
    color_shifts,
    color_stencil,
    fewest_needed,
    fewest_of_stencil,
    stencil_pattern,
)
from fxad.transforms.sparse.symmetric import color_symmetric, dense_lines

_SMALL: Final = 10_000  # entries of a pattern for which each kind is tried
_LARGE: Final = 2_000_000  # entries of a stencil that is not searched


def color(
    indptr: Ints,
    indices: Ints,
    shape: MatrixShape,
    kind: str | None = None,
    *,
    offsets: tuple[int, ...] | None = None,
    stencil: Stencil | None = None,
    symmetric: bool = False,
) -> Coloring:
    """Return a colouring of a pattern.

    Without a `kind` it is the one of fewest products: columns before rows before both; for a `symmetric` pattern,
    columns before star, and no acyclic one, because its entries are not independent of each other. `offsets` says that
    the pattern is a band: its entries are all (i, i + k) for k in offsets; `stencil`, that it is a part of this one.

    Law:    deterministic; `is_valid`. A band gets the fewest colours possible where i mod K is a colouring for them.
    Raises: ParameterError for an unknown kind, or for "star" or "acyclic" of a pattern that is not symmetric.
    Cost:   some passes of compiled code over the entries for each colour.
    """
    if kind is None:
        return _fewest_products(indptr, indices, shape, offsets, stencil, symmetric)
    if kind not in KINDS:
        raise ParameterError(f"color: unknown kind {shown(kind)}", remedy=f"one of {', '.join(KINDS)}, or None")
    pattern = Csr(indptr, indices, shape)
    if kind in SYMMETRIC and not symmetric:
        pattern.check_symmetric(kind)
    return _color(pattern, kind, offsets, stencil)


def color_grid(
    offsets: Sequence[tuple[int, ...]],
    grid: tuple[int, ...],
    kind: str = "columns",
    *,
    periodic: Sequence[bool] | None = None,
) -> Coloring:
    """Return a colouring of the matrix of a stencil on a grid: its entries are (x, x + k) for points x of the grid, in
    C order, and k in offsets. Points outside are left out, or wrap around along the `periodic` axes.

    Law:  the colour of x is a . x mod K, for the smallest K that has such an a, which is searched among the shifts; it
          is optimal where K is the number of offsets. If it is not, a greedy colouring may be better, and is taken.
    Cost: none that grows with the grid, but for the arrays of colours, if the first K is valid.
    """
    periodic_axes = tuple(periodic) if periodic is not None else (False,) * len(grid)
    best = color_stencil(offsets, grid, periodic_axes, kind)
    size = int(np.prod(grid))
    if best is not None and best.products <= fewest_of_stencil(offsets, grid, periodic_axes, kind):
        return best
    greedy = _GREEDY[kind](Csr(*stencil_pattern(offsets, grid, periodic_axes), (size, size)))
    return best if best is not None and best.products <= greedy.products else greedy


def _color(pattern: Csr, kind: str, offsets: tuple[int, ...] | None = None, stencil: Stencil | None = None) -> Coloring:
    """Return a colouring from the shifts of a pattern, or a greedy one if that may be better.

    A large stencil with a colouring of at most twice the fewest colours is not searched: for a five-point stencil on a
    torus of 10^6 points, the greedy colouring has 9 colours of columns, and that of its shifts 5 or 8.
    """
    least = fewest_needed(pattern, kind)
    best = None if stencil is None or kind == "both" else best_stencil_coloring(stencil, kind)
    if best is not None and best.products <= (2 * least if len(pattern.indices) > _LARGE else least):
        return best
    candidate = None if kind == "both" else color_shifts(pattern, kind, offsets)
    best = min([c for c in (best, candidate) if c is not None], key=lambda c: c.products, default=None)
    if best is not None and best.products <= least:
        return best
    candidate = _GREEDY[kind](pattern)
    return best if best is not None and best.products <= candidate.products else candidate


def _fewest_products(
    indptr: Ints,
    indices: Ints,
    shape: MatrixShape,
    offsets: tuple[int, ...] | None,
    stencil: Stencil | None,
    symmetric: bool,
) -> Coloring:
    """Return the best of several colourings: of columns; of rows, or the star colouring of a symmetric pattern; and, if
    the pattern is small or has few dense lines, of both."""
    pattern = Csr(indptr, indices, shape)
    best = _color(pattern, "columns", offsets, stencil)
    if not symmetric and fewest_needed(pattern, "rows") < best.products:
        candidate = _color(pattern, "rows", offsets, stencil)
        best = min(best, candidate, key=lambda c: c.products)
    if symmetric and best.products > 3:
        candidate = _color(pattern, "star", offsets, stencil)
        best = min(best, candidate, key=lambda c: c.products)
    promised = [dense_lines(c) for c in (pattern.counts(), pattern.column_counts())]
    if len(indices) <= _SMALL or any([lines and products < best.products for lines, products in promised]):
        best = min(best, _color_both(pattern, best), key=lambda c: c.products)
    return best


def _columns_of(pattern: Csr) -> Colors:
    """Return the colours of the columns. Columns without entries have none."""
    return np.where(pattern.column_counts() > 0, _color(pattern, "columns").columns, np.int32(-1))


def _color_both(pattern: Csr, best: Coloring | None = None) -> Coloring:
    """Return a colouring of the rows with many entries, and one of the columns without those rows; or the other way.

    How many lines are taken out is tried for the numbers that promise the fewest products.
    """
    m, n = pattern.shape
    if best is None:
        best = min([_color(pattern, "columns"), _color(pattern, "rows")], key=lambda c: c.products)
    fewest = best.products
    fewest_coloring = Coloring("both", pattern.shape, best.columns, best.rows)
    for flipped in (False, True):
        matrix = pattern.transposed if flipped else pattern
        counts = matrix.counts()
        order = np.argsort(-counts, kind="stable")
        falling = np.concatenate([counts[order], [0]])
        promised = np.arange(len(falling)) + falling
        # only where the number of entries falls, or a line of equal length is left
        (steps,) = np.nonzero(np.diff(falling, prepend=falling[0] + 1) < 0)
        for k in sorted(steps[np.argsort(promised[steps], kind="stable")][:4]):
            if k == 0 or falling[k] + 1 >= fewest or k > len(counts) // 8 + 8:
                continue  # most lines have as many entries: they are not few dense ones
            dense_lines_mask = np.zeros(matrix.shape[0], np.bool_)
            dense_lines_mask[order[:k]] = True
            every = np.ones(matrix.shape[1], np.bool_)
            columns = _columns_of(matrix.part(~dense_lines_mask, every))
            if columns.max(initial=-1) + 1 >= fewest:
                continue
            rows = _columns_of(matrix.part(dense_lines_mask, every).transposed)
            products = int(columns.max(initial=-1) + rows.max(initial=-1)) + 2
            if products < fewest:
                fewest = products
                pair = (rows, columns) if flipped else (columns, rows)
                fewest_coloring = Coloring("both", (m, n), frozen(pair[0]), frozen(pair[1]))
    return fewest_coloring


def _color_columns(pattern: Csr) -> Coloring:
    return one_sided("columns", pattern.shape, greedy_columns(pattern))


def _color_rows(pattern: Csr) -> Coloring:
    return one_sided("rows", pattern.shape, greedy_columns(pattern.transposed))


_GREEDY: Final[Mapping[str, Callable[[Csr], Coloring]]] = MappingProxyType(
    {
        "columns": _color_columns,
        "rows": _color_rows,
        "both": _color_both,
        "star": partial(color_symmetric, kind="star"),
        "acyclic": partial(color_symmetric, kind="acyclic"),
    }
)
