"""The structure of sparse systems, read from the pattern of the matrix: bands and independent blocks."""

from __future__ import annotations

import hashlib
import importlib
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.integer[Any]]

_LARGEST_BLOCK: Final = 32
_MOST_DIAGONALS: Final = 16


class Blocks(NamedTuple):
    """Groups of rows and columns that share no entry with those of another group, as blocks of one size.

    The matrix [[a, ., b], [., c, .], [d, ., e]] has the blocks [[a, b], [d, e]] and [[c, .], [., 1]]: a smaller block is
    continued by the identity. With the entries a b c d e, which are followed by 0 (5) and 1 (6):

        entries          [[[0, 1], [3, 4]], [[2, 5], [5, 6]]]
        rows             [[0, 2], [1, 3]]       3: no row, its right-hand side is 0
        places           [0, 2, 1]              of x0 x1 x2 in the solutions of all blocks
    """

    entries: Ints  # (blocks, size, size)
    rows: Ints  # (blocks, size)
    places: Ints  # (n,)


@final
class SparseStructure:
    """The places of the entries of a matrix, and what they say about the solution of systems with it."""

    __slots__ = ("_digest", "indices", "indptr", "shape")

    def __init__(self, indptr: Ints, indices: Ints, shape: tuple[int, int]) -> None:
        self.indptr, self.indices, self.shape = np.asarray(indptr), np.asarray(indices), shape
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """A hash of the pattern."""
        if self._digest is None:
            parts = [np.asarray(x, np.int64).tobytes() for x in (self.shape, self.indptr, self.indices)]
            self._digest = hashlib.sha256(b"".join(parts)).digest()
        return self._digest

    def entries(self) -> tuple[Ints, Ints]:
        """Return row and column of each entry."""
        rows = np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.indptr))
        return rows, self.indices.astype(np.int32)

    def bandwidth(self) -> int:
        """Return the greatest distance of an entry from the diagonal."""
        rows, columns = self.entries()
        return int(np.abs(rows - columns).max(initial=0))

    def is_band(self) -> bool:
        """Return True if most of the diagonals near to the main one are full."""
        return (2 * self.bandwidth() + 1) * self.shape[0] <= 3 * len(self.indices)

    def widths(self) -> tuple[int, int]:
        """Return the numbers of diagonals below and above the main one."""
        rows, columns = self.entries()
        return int((rows - columns).max(initial=0)), int((columns - rows).max(initial=0))

    def is_narrow_band(self) -> bool:
        """Return True for a band that is eliminated in XLA."""
        below, above = self.widths()
        return self.is_band() and max(below, above) <= _MOST_DIAGONALS and 2 * (below + above + 1) <= self.shape[0]

    def band(self, transposed: bool) -> Ints:
        """Return the entry at each place (row, diagonal) of the band; the number of entries where there is none."""
        rows, columns = self.entries()
        if transposed:
            rows, columns = columns, rows
        below, above = self.widths()[:: -1 if transposed else 1]
        entries = np.full((self.shape[0], below + above + 1), len(rows), np.int32)
        entries[rows, columns - rows + below] = np.arange(len(rows))
        return entries

    def diagonals(self) -> Ints:
        """Return the entries of a tridiagonal matrix below, on and above its diagonal; as `band`, a row for each
        diagonal."""
        rows, columns = self.entries()
        entries = np.full((3, self.shape[0]), len(rows), np.int32)
        entries[columns - rows + 1, rows] = np.arange(len(rows))
        return entries

    def blocks(self) -> Blocks | None:
        """Return the independent blocks; None if a block is large, or most of the elements of all blocks are zeros."""
        rows, columns = self.entries()
        n = self.shape[0]
        # rows and columns are the nodes of a graph, entries its edges; its components are the blocks
        graph = importlib.import_module("scipy.sparse").coo_array(
            (np.ones(len(rows), np.int8), (rows, columns + n)), shape=(2 * n, 2 * n)
        )
        number, label = importlib.import_module("scipy.sparse.csgraph").connected_components(graph, directed=False)
        row_block, column_block = label[:n], label[n:]
        heights = np.bincount(row_block, minlength=number)
        if heights.max() > _LARGEST_BLOCK or np.any(heights != np.bincount(column_block, minlength=number)):
            return None
        size = int(heights.max())
        if number == 1 or number * size**2 > 8 * len(rows) + 1024:
            return None
        row_rank, column_rank = [_rank_in_block(block_of, heights) for block_of in (row_block, column_block)]
        zero, one = len(rows), len(rows) + 1  # the two constants that follow the entries
        entries = np.full((number, size, size), zero, np.int32)
        is_padding = np.arange(size) >= heights[:, None]
        entries[:, np.arange(size), np.arange(size)] = np.where(is_padding, one, zero)
        entries[row_block[rows], row_rank[rows], column_rank[columns]] = np.arange(len(rows))
        block_rows = np.full((number, size), n, np.int32)
        block_rows[row_block, row_rank] = np.arange(n)
        return Blocks(entries, block_rows, (column_block * size + column_rank).astype(np.int32))


def _rank_in_block(block_of: Ints, heights: Ints) -> Ints:
    """Return for each row (or column) its number among those of its block."""
    order = np.argsort(block_of, kind="stable")
    starts = np.cumsum(heights) - heights
    rank = np.empty(len(block_of), np.int64)
    rank[order] = np.arange(len(block_of)) - starts[block_of[order]]
    return rank
