"""Colourings: columns (rows) of one colour are computed by one product. This file has one product for each column."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from fxad.core.dataclasses import dataclass
from fxad.errors import ParameterError


@final
@dataclass(frozen=True, slots=True, eq=False)
class Coloring:
    """The colours of rows and columns; -1: not computed by a product."""

    kind: str
    shape: tuple[int, int]
    columns: NDArray[np.int32]
    rows: NDArray[np.int32]

    def _key(self) -> tuple[object, ...]:
        return self.kind, self.shape, self.columns.tobytes(), self.rows.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coloring) and (self is other or self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def products(self) -> int:
        """The number of products."""
        return sum([int(c.max(initial=-1)) + 1 for c in (self.columns, self.rows)])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decompression:
    """For each entry in CSR order: its source (0: jvp, 1: vjp), its colour, and its place in that product."""

    source: NDArray[np.int64]
    colour: NDArray[np.int64]
    position: NDArray[np.int64]


def color(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    shape: tuple[int, int],
    kind: str | None = None,
    *,
    offsets: tuple[int, ...] | None = None,
    symmetric: bool = False,
) -> Coloring:
    """Return a colouring of a pattern in CSR form."""
    m, n = shape
    if kind == "rows":
        columns, rows = np.full(n, -1, np.int32), np.arange(m, dtype=np.int32)
    elif kind in (None, "columns", "both", "star", "acyclic"):
        columns, rows = np.arange(n, dtype=np.int32), np.full(m, -1, np.int32)
        if offsets:
            columns %= np.int32(max(offsets) - min(offsets) + 1)
    else:
        raise ParameterError(f"color: kind is {kind!r}", remedy='"columns", "rows", "both", "star" or "acyclic"')
    for a in (columns, rows):
        a.flags.writeable = False
    return Coloring(kind or "columns", shape, columns, rows)


def decompression(coloring: Coloring, indptr: NDArray[np.int64], indices: NDArray[np.int64]) -> Decompression:
    """Return where the entries of the matrix stand in the products."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    by_column = coloring.columns[indices] >= 0
    return Decompression(
        np.where(by_column, 0, 1),
        np.where(by_column, coloring.columns[indices], coloring.rows[rows]).astype(np.int64),
        np.where(by_column, rows, indices),
    )
