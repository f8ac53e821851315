"""Sparsity patterns as arrays in compressed rows, for the algorithms on them."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fxad.errors import ParameterError, ShapeError

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Colors: TypeAlias = npt.NDArray[np.int32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
MatrixShape: TypeAlias = tuple[int, int]


def scipy_sparse() -> Any:
    """Return SciPy, imported when the first pattern is coloured: its import takes longer than that of fxad."""
    return importlib.import_module("scipy.sparse")


class Csr:
    """A pattern, with the matrix of SciPy that its algorithms take."""

    def __init__(self, indptr: Ints, indices: Ints, shape: MatrixShape) -> None:
        self.indptr, self.indices, self.shape = np.asarray(indptr), np.asarray(indices), shape
        if len(self.indptr) != shape[0] + 1:
            raise ShapeError(
                f"color: indptr has {len(self.indptr)} elements, a matrix of {shape[0]} rows has {shape[0] + 1}",
                remedy="give the row pointers of a CSR matrix of this shape",
            )

    @property
    def transposed(self) -> Csr:
        m, n = self.shape
        csc = self.matrix().tocsc()
        return Csr(csc.indptr, csc.indices, (n, m))

    def matrix(self) -> Any:
        """Return the CSR matrix of the numbers of the entries."""
        numbers = np.arange(len(self.indices), dtype=np.int64)
        return scipy_sparse().csr_array((numbers, self.indices, self.indptr), shape=self.shape)

    def counts(self) -> Ints:
        """Return the number of entries of each row."""
        return np.diff(self.indptr)

    def column_counts(self) -> Ints:
        return np.bincount(self.indices, minlength=self.shape[1])

    def entries(self) -> tuple[Ints, Ints]:
        """Return row and column of each entry."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), self.counts()), self.indices

    def transposed_entry(self) -> Ints:
        """Return, for each entry (i, j) of a symmetric pattern, the number of the entry (j, i)."""
        numbers: Ints = self.matrix().tocsc().data
        return numbers

    def is_symmetric(self) -> bool:
        if self.shape[0] != self.shape[1]:
            return False
        other = self.transposed
        return np.array_equal(other.indptr, self.indptr) and np.array_equal(other.indices, self.indices)

    def check_symmetric(self, kind: str) -> None:
        if not self.is_symmetric():
            raise ParameterError(
                f"color: a {kind} colouring is one of a symmetric pattern, and this one of shape {self.shape} is not",
                remedy='"columns", "rows" or "both"',
            )

    def without_diagonal(self) -> Csr:
        rows, columns = self.entries()
        return self._with_entries(rows != columns)

    def part(self, rows: BoolArray, columns: BoolArray) -> Csr:
        """Return the pattern of the same shape with the entries in some rows and columns."""
        i, j = self.entries()
        return self._with_entries(rows[i] & columns[j])

    def _with_entries(self, kept: BoolArray) -> Csr:
        """Return the pattern of the same shape with some entries."""
        rows, columns = self.entries()
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=self.shape[0]))])
        return Csr(indptr, columns[kept], self.shape)

    def neighbours(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return the neighbours of some nodes: the place of the node in `nodes`, and the neighbour."""
        start = self.indptr[nodes]
        count = self.indptr[nodes + 1] - start
        ends = np.cumsum(count)
        owner = np.repeat(np.arange(len(nodes)), count)
        place = np.arange(len(owner)) + np.repeat(start - ends + count, count)
        return owner, self.indices[place]


def csr_of(rows: Ints, columns: Ints, shape: MatrixShape) -> tuple[Ints, Ints]:
    """Return the CSR arrays of a set of positions: sorted, each once."""
    matrix = scipy_sparse().coo_array((np.ones(len(rows), np.bool_), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix.indptr, matrix.indices


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array, made read-only."""
    array.flags.writeable = False
    return array


def no_colors(count: int) -> Colors:
    """Return -1 for each of some lines."""
    return np.full(count, -1, np.int32)


def renumbered(colors: Colors) -> Colors:
    """Return the same classes with the numbers 0, 1, ..., in the order of the old ones; -1 is kept."""
    used = np.unique(colors[colors >= 0])
    return np.where(colors < 0, np.int32(-1), np.searchsorted(used, colors).astype(np.int32))


def alone_in_line(lines: Ints, colors: Ints, number: int) -> BoolArray:
    """Return, for entries in `lines` with colours, True where no other entry of the line has the colour."""
    if not len(lines):
        return np.zeros(0, np.bool_)
    key = lines.astype(np.int64) * max(number, 1) + colors
    if int(lines.max() + 1) * number <= 8 * len(lines) + 1_000_000:
        alone: BoolArray = np.bincount(key)[key] == 1
        return alone
    _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
    single: BoolArray = count == 1
    return single[inverse]


def components(a: Ints, b: Ints, count: int) -> Ints:
    """Return the number of the component of each of some nodes, which are joined in pairs."""
    matrix = scipy_sparse().coo_array((np.ones(len(a), np.int8), (a, b)), shape=(count, count))
    label: Ints = importlib.import_module("scipy.sparse.csgraph").connected_components(matrix, directed=False)[1]
    return label
