"""Linear systems with a Jacobian, which may be sparse: those of Newton's method, and the normal equations."""

from __future__ import annotations

import importlib
from typing import Final, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, ShapeError, described
from fxad.lax.creation import full
from fxad.lax.implicit.sparse import PatternLike, SparseLike, pattern_of, solve_csr
from fxad.lax.implicit.sparse_structure import Ints
from fxad.operations import linear_systems
from fxad.tracing.array import Array, binder

_SHAPE_OF_JACOBIAN: Final = "jac has a row for each residual and a column for each unknown"


def solve_with_jacobian(what: str, matrix: Array | SparseLike, b: Array) -> Array:
    """Return the x with `matrix @ x = b`. Raises: ShapeError for a Jacobian that is not square."""
    if isinstance(matrix, Array):
        if matrix.shape != (b.shape[0], b.shape[0]):
            raise ShapeError(
                f"{what}: jac returned {matrix.aval}, f has {b.shape[0]} elements", remedy=_SHAPE_OF_JACOBIAN
            )
        return binder().apply(linear_systems.solve, (matrix, b), ())[0]
    pattern = _pattern(what, matrix)
    return solve_csr(what, matrix.data, pattern.indptr, pattern.indices, pattern.shape, b)


def _pattern(what: str, jacobian: SparseLike) -> PatternLike:
    """Return the pattern of a sparse Jacobian. Raises: ArgumentError for what is neither an array nor sparse."""
    if getattr(jacobian, "pattern", None) is None:
        raise ArgumentError(
            f"{what}: jac returned {described(jacobian)}, neither an Array nor a sparse matrix",
            remedy="return fxad.numpy.asarray(...) of a matrix, or what sparse_jacobian returns",
        )
    return pattern_of(what, jacobian)


@final
@dataclass(frozen=True, slots=True, eq=False)
class NormalEquations:
    """J^T J, as a matrix or as entries of a pattern, its diagonal, and J^T f."""

    matrix: Array
    pattern: tuple[Ints, Ints, Ints] | None  # CSR arrays, and the entries of the diagonal
    gradient: Array

    def solve(self, what: str, damping: Array) -> Array:
        """Return the negative step."""
        n = self.gradient.shape[0]
        diagonal = np.arange(n)
        if self.pattern is None:
            matrix = self.matrix.at[diagonal, diagonal].add(damping * self.matrix[diagonal, diagonal])
            return solve_with_jacobian(what, matrix, self.gradient)
        indptr, indices, entries = self.pattern
        data = self.matrix.at[entries].add(damping * self.matrix[entries])
        return solve_csr(what, data, indptr, indices, (n, n), self.gradient)


def normal_equations(what: str, jacobian: Array | SparseLike, value: Array) -> NormalEquations:
    """Return the normal equations of a Jacobian and the residuals f(x). Raises: ShapeError if they do not fit."""
    if isinstance(jacobian, Array):
        if jacobian.ndim != 2 or jacobian.shape[0] != value.shape[0]:
            raise ShapeError(
                f"{what}: jac returned {jacobian.aval}, f has {value.shape[0]} elements", remedy=_SHAPE_OF_JACOBIAN
            )
        return NormalEquations(jacobian.T @ jacobian, None, value @ jacobian)
    pattern, data = _pattern(what, jacobian), jacobian.data
    m, n = pattern.shape
    if m != value.shape[0]:
        raise ShapeError(
            f"{what}: jac returned a sparse matrix of shape ({m}, {n}), f has {value.shape[0]} elements",
            remedy=_SHAPE_OF_JACOBIAN,
        )
    rows = np.repeat(np.arange(m), np.diff(pattern.indptr))
    # Each pair of entries of one row is a term of an entry of J^T J. For the rows (a, b) and (c), as entries 0, 1, 2:
    #     first     0  0  1  1  2      terms  aa  ab  ba  bb  cc
    #     second    0  1  0  1  2
    pairs_of_entry = np.diff(pattern.indptr)[rows]
    first = np.repeat(np.arange(len(rows)), pairs_of_entry)
    ends = np.cumsum(pairs_of_entry)
    number_in_row = np.arange(len(first)) - np.repeat(ends - pairs_of_entry, pairs_of_entry)
    second = number_in_row + np.repeat(pattern.indptr[rows], pairs_of_entry)
    sparse = importlib.import_module("scipy.sparse")
    i, j = pattern.indices[first].astype(np.int64), pattern.indices[second].astype(np.int64)
    # the places of the terms in J^T J, row by row, and the diagonal, which may have no term
    keys, place = np.unique(np.concatenate([i * n + j, np.arange(n) * (n + 1)]), return_inverse=True)
    matrix = sparse.csr_array((np.ones(len(keys), np.int8), (keys // n, keys % n)), shape=(n, n))
    terms = data[first.astype(np.int32)] * data[second.astype(np.int32)]
    entries = full((len(keys),), 0, data.dtype).at[place[: len(first)].astype(np.int32)].add(terms)
    products = data * value[rows.astype(np.int32)]
    gradient = full((n,), 0, data.dtype).at[pattern.indices.astype(np.int32)].add(products)
    return NormalEquations(entries, (matrix.indptr, matrix.indices, place[len(first) :].astype(np.int32)), gradient)
