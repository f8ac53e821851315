"""Solutions of sparse systems in XLA: independent blocks, tridiagonal matrices and narrow bands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from fxad import dtypes
from fxad.lax.binary import select
from fxad.lax.control.scanning import scan
from fxad.lax.creation import full, full_like
from fxad.lax.implicit.sparse_structure import Blocks, SparseStructure
from fxad.lax.linalg import tridiagonal_solve
from fxad.lax.reductions import argmax
from fxad.lax.shapes import broadcast_in_dim, concatenate
from fxad.operations import linear_systems
from fxad.tracing.array import Array, asarray, binder

DirectSolver: TypeAlias = Callable[[Array, Array], Array]


def direct_solver(structure: SparseStructure) -> DirectSolver | None:
    """Return the function of (data, columns of b) that solves by a primitive for linear systems, which has derivatives;
    None if there is none for this structure."""
    if not len(structure.indices):
        return None
    blocks = structure.blocks()
    if blocks is not None:
        return partial(_solve_blocks, blocks)
    return partial(_solve_tridiagonal, structure) if structure.bandwidth() == 1 else None


def _solve_blocks(blocks: Blocks, data: Array, b: Array) -> Array:
    matrices = _with_constant_rows(data, 0, 1)[blocks.entries]
    sides = _with_constant_rows(b, 0)[blocks.rows]
    (x,) = binder().apply(linear_systems.solve, (matrices, sides), ())
    return x.reshape(blocks.rows.size, b.shape[1])[blocks.places]


def _solve_tridiagonal(structure: SparseStructure, data: Array, b: Array) -> Array:
    lower, main, upper = [_with_constant_rows(data, 0)[diagonal] for diagonal in structure.diagonals()]
    return tridiagonal_solve(lower, main, upper, b)


def solve_band(structure: SparseStructure, data: Array, transposed: bool, b: Array) -> Array:
    """Return A^-1 b or A^-T b for a band, by Gaussian elimination with the pivot of greatest absolute value.

    A step has the rows that can have an entry in its column, from that column on: it takes out the pivot row, and lets
    in the next row of the matrix. So its arrays have the size of the band.
    """
    below, above = structure.widths()[:: -1 if transposed else 1]
    height, width = below + 1, below + above + 1
    rows = _with_constant_rows(_with_constant_rows(data, 0)[structure.band(transposed)], *[0] * height)
    sides = _with_constant_rows(b if b.ndim == 2 else b[:, None], *[0] * height)
    # Row i of the band begins at column i - below. The first rows are shifted so that all of them begin at column 0.
    diagonal = np.arange(width) + below - np.arange(height)[:, None]
    place = np.where(diagonal < width, diagonal + width * np.arange(height)[:, None], height * width)
    first_rows = _with_constant_rows(rows[:height].reshape(-1), 0)[place]
    row_numbers = np.arange(height, dtype=np.int32)

    def eliminate(
        carry: tuple[Array, Array], next_row: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        matrix, right = carry
        pivot = argmax(abs(matrix[:, 0]), 0, dtypes.int32)
        is_pivot: Array = asarray(row_numbers) == pivot
        row, side = [_rows_where(is_pivot, x, full_like(x[0], 0)).sum(0) for x in (matrix, right)]
        # the first row takes the place of the pivot row
        matrix, right = [_rows_where(~is_pivot[1:], x[1:], x[0]) for x in (matrix, right)]
        factor = matrix[:, :1] / row[0]
        matrix = (matrix - factor * row)[:, 1:]
        right = right - factor * side
        column = full((below, 1), 0, data.dtype)
        matrix = concatenate([concatenate([matrix, column], 1), next_row[0][None]], 0)
        return (matrix, concatenate([right, next_row[1][None]], 0)), (row, side)

    def substitute(next_unknowns: Array, pivot_row: tuple[Array, Array]) -> tuple[Array, Array]:
        row, side = pivot_row
        x = (side - row[1:] @ next_unknowns) / row[0]
        return concatenate([x[None], next_unknowns], 0)[: width - 1], x

    _, pivot_rows = scan(eliminate, (first_rows, sides[:height]), (rows[height:], sides[height:]))
    zeros = full((width - 1, sides.shape[1]), 0, data.dtype)
    x: Array = scan(substitute, zeros, pivot_rows, reverse=True)[1]
    return x.reshape(b.shape)


def _rows_where(mask: Array, rows: Array, other: Array) -> Array:
    """Return the rows where a mask is True, and another row in place of the rest."""
    shape = rows.shape
    return select(broadcast_in_dim(mask, shape, (0,)), rows, broadcast_in_dim(other, shape, (1,)))


def _with_constant_rows(x: Array, *values: float) -> Array:
    """Return an array with constant rows behind its own."""
    tail = np.broadcast_to(np.reshape(values, (-1,) + (1,) * (x.ndim - 1)), (len(values), *x.shape[1:]))
    extended: Array = concatenate([x, asarray(tail.astype(x.dtype))], 0)
    return extended
