"""The value of a colouring, what it has to fulfil, and how the entries are read from its products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from fxad.core.dataclasses import dataclass
from fxad.errors import ParameterError, ShapeError
from fxad.transforms.sparse.csr import (
    BoolArray,
    Colors,
    Csr,
    Ints,
    MatrixShape,
    alone_in_line,
    components,
    frozen,
    no_colors,
)

KINDS: Final = ("columns", "rows", "both", "star", "acyclic")
SYMMETRIC: Final = ("star", "acyclic")


@final
@dataclass(frozen=True, slots=True)
class Coloring:
    """The colours of the columns and of the rows of a matrix. A colour is one product; -1 is none.

    Law: equal if kind, shape and colours are equal. The arrays are read-only.
    """

    kind: str
    shape: MatrixShape
    columns: Colors
    rows: Colors

    @property
    def jvps(self) -> int:
        """The number of colours of columns."""
        return int(self.columns.max(initial=-1)) + 1

    @property
    def vjps(self) -> int:
        """The number of colours of rows."""
        return int(self.rows.max(initial=-1)) + 1

    @property
    def products(self) -> int:
        """The number of jvps and vjps."""
        return self.jvps + self.vjps

    def _key(self) -> tuple[object, ...]:
        return self.kind, self.shape, self.columns.tobytes(), self.rows.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coloring) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        parts = [f"{n} {name}" for n, name in ((self.jvps, "jvps"), (self.vjps, "vjps")) if n]
        return f"Coloring({self.kind!r}, {self.shape[0]}x{self.shape[1]}: {' and '.join(parts) or 'no products'})"


@final
@dataclass(frozen=True, slots=True)
class Decompression:
    """Where the entries of a matrix, in CSR order, stand in the products of its colouring.

    Entry k is `products[color[k], position[k]]`, of the jvps (of shape (jvps, m)), or of the vjps (of shape (vjps, n))
    where `from_rows[k]`. After an "acyclic" colouring, `data[target] -= data[source]` follows for each level in turn
    (a target may occur several times in its level), then `data = data[final]`.
    """

    color: Colors
    position: Colors
    from_rows: BoolArray
    levels: tuple[tuple[Colors, Colors], ...]
    final: Colors | None

    def apply(self, jvps: npt.NDArray[Any], vjps: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the entries, from products that are NumPy arrays."""
        data: npt.NDArray[Any]
        if vjps is None or not vjps.size:
            data = jvps[self.color, self.position]
        else:
            data = np.empty(len(self.color), np.result_type(jvps, vjps))
            for rows, products in ((False, jvps), (True, vjps)):
                (k,) = np.nonzero(self.from_rows == rows)
                data[k] = products[self.color[k], self.position[k]]
        for target, source in self.levels:
            np.subtract.at(data, target, data[source])
        return data if self.final is None else data[self.final]


def one_sided(kind: str, shape: MatrixShape, colors: Colors) -> Coloring:
    """Return the colouring of the rows for "rows", and of the columns for the other kinds."""
    m, n = shape
    columns, rows = (no_colors(n), colors) if kind == "rows" else (colors, no_colors(m))
    return Coloring(kind, shape, frozen(columns), frozen(rows))


def is_valid(coloring: Coloring, indptr: Ints, indices: Ints) -> bool:
    """Return True if each entry of a pattern is determined by the products of a colouring, as its kind says.

    Raises: ShapeError if the colouring is one of another shape.
    """
    pattern = Csr(indptr, indices, coloring.shape)
    _check_shape(coloring, indptr)
    rows, columns = pattern.entries()
    if coloring.kind in SYMMETRIC:
        colors = coloring.columns
        if np.any(colors[columns] < 0) or np.any(colors[rows] < 0):
            return False
        edge = rows != columns
        v, w = rows[edge], columns[edge]
        if np.any(colors[v] == colors[w]):
            return False
        repeated = ~alone_in_line(v, colors[w], coloring.jvps)
        if coloring.kind == "star":
            # a path of two colours through the edge (v, w): v has another neighbour like w, and w another like v
            mirrored = pattern.transposed_entry()[edge]
            is_repeated = np.zeros(len(rows), np.bool_)
            is_repeated[edge] = repeated
            return not np.any(repeated & is_repeated[mirrored])
        return trees_of(v, w, colors, coloring.jvps) is not None
    readable = np.zeros(len(rows), np.bool_)
    if coloring.kind in ("columns", "both"):
        (k,) = np.nonzero(coloring.columns[columns] >= 0)
        readable[k] = alone_in_line(rows[k], coloring.columns[columns[k]], coloring.jvps)
    if coloring.kind in ("rows", "both"):
        (k,) = np.nonzero(coloring.rows[rows] >= 0)
        readable[k] |= alone_in_line(columns[k], coloring.rows[rows[k]], coloring.vjps)
    return bool(np.all(readable))


def decompression(coloring: Coloring, indptr: Ints, indices: Ints) -> Decompression:
    """Return where each entry of a pattern stands in the products of a colouring of it.

    Raises: ParameterError if the products do not determine an entry: the colouring is one of another pattern.
    Cost:   some passes over the entries; for "acyclic", one for each level of the deepest tree.
    """
    _check_shape(coloring, indptr)
    pattern = Csr(indptr, indices, coloring.shape)
    rows, columns = pattern.entries()
    if coloring.kind == "acyclic":
        return _by_substitution(coloring, pattern)
    count = len(rows)
    color, position = np.full(count, -1, np.int32), np.zeros(count, np.int32)
    from_rows = np.zeros(count, np.bool_)
    (k,) = np.nonzero(coloring.columns[columns] >= 0)
    k = k[alone_in_line(rows[k], coloring.columns[columns[k]], coloring.jvps)]
    color[k], position[k] = coloring.columns[columns[k]], rows[k]
    if coloring.kind == "star":
        pattern.check_symmetric("star")
        (undetermined,) = np.nonzero(color < 0)
        mirrored = pattern.transposed_entry()[undetermined]
        color[undetermined], position[undetermined] = color[mirrored], position[mirrored]
    elif coloring.vjps:
        (k,) = np.nonzero((color < 0) & (coloring.rows[rows] >= 0))
        (all_of,) = np.nonzero(coloring.rows[rows] >= 0)
        is_alone = np.zeros(count, np.bool_)
        is_alone[all_of] = alone_in_line(columns[all_of], coloring.rows[rows[all_of]], coloring.vjps)
        k = k[is_alone[k]]
        color[k], position[k], from_rows[k] = coloring.rows[rows[k]], columns[k], True
    _check_determined(coloring, rows, columns, color < 0)
    return Decompression(frozen(color), frozen(position), frozen(from_rows), (), None)


def _check_shape(coloring: Coloring, indptr: Ints) -> None:
    if len(indptr) != coloring.shape[0] + 1:
        raise ShapeError(
            f"coloring: it is one of a matrix of shape {coloring.shape}, and the pattern has {len(indptr) - 1} rows",
            remedy="color the pattern that is decompressed",
        )


def _check_determined(coloring: Coloring, rows: Ints, columns: Ints, missing: BoolArray) -> None:
    if np.any(missing):
        k = int(np.argmax(missing))
        raise ParameterError(
            f"coloring: {coloring!r} does not determine the entry ({rows[k]}, {columns[k]}) of this pattern",
            remedy="color the pattern that is decompressed",
        )


def trees_of(v: Ints, w: Ints, colors: Colors, number: int) -> tuple[Ints, Ints] | None:
    """Return the two ends of each entry (v, w) in its tree, or None if two colours have a cycle.

    An end is a column together with the colour of the other column: a column belongs to one tree for each colour that
    its neighbours have.
    """
    key = np.concatenate([v.astype(np.int64) * number + colors[w], w.astype(np.int64) * number + colors[v]])
    ends, inverse = np.unique(key, return_inverse=True)
    a, b = inverse[: len(v)], inverse[len(v) :]
    upper = v < w
    n_trees = int(components(a[upper], b[upper], len(ends)).max(initial=-1)) + 1
    return (a, b) if len(ends) - n_trees == int(upper.sum()) else None  # a forest has an edge less per tree than ends


def _by_substitution(coloring: Coloring, pattern: Csr) -> Decompression:
    """Return the decompression after an acyclic colouring: each tree is taken apart from its leaves.

    Example: red nodes 0 and 2 are neighbours of the blue node 1, so the entries (0, 1) and (1, 2) are one tree. The jvp
    of blue gives (0, 1) at row 0, and (2, 1) at row 2: both are leaves, and read at once. A path of three entries,
    0 - 1 - 2 - 3, has the leaves (0, 1) and (3, 2). The jvp of red gives (1, 0) + (1, 2) at row 1: (1, 2) is on the
    next level, less (1, 0). With the ends (row, colour of the jvp):

        level    leaf      read at its end                  a term of the sum at its other end
        0        (0, 1)    (0, blue)                        (1, red)
        0        (3, 2)    (3, red)                         (2, blue)
        1        (1, 2)    (1, red), less the leaf (0, 1)   (2, blue)
    """
    colors = coloring.columns
    rows, columns = pattern.entries()
    if np.any(colors[columns] < 0) or not pattern.is_symmetric():
        _check_determined(coloring, rows, columns, np.ones(len(rows), np.bool_))
    (edge,) = np.nonzero(rows != columns)
    v, w = rows[edge], columns[edge]
    trees = None if np.any(colors[v] == colors[w]) else trees_of(v, w, colors, coloring.jvps)
    if trees is None:
        _check_determined(coloring, rows, columns, rows != columns)
        return _from_columns(colors, rows, columns)
    end, other_end = trees
    # entry (v, w) is read at row v, from the jvp of the colour of w, less the entries of the same end before it
    mirrored = pattern.transposed_entry()
    degree = np.bincount(end, minlength=int(end.max(initial=-1)) + 1)
    final = np.arange(len(rows))
    alive = np.ones(len(edge), np.bool_)
    number_of = np.full(len(rows), -1)
    number_of[edge] = np.arange(len(edge))
    reverse = number_of[mirrored[edge]]
    levels: list[tuple[Colors, Colors]] = []
    # pairs (end, entry): the sum at this end has the entry, which is found, as a term. It is subtracted when
    # the last entry of this end is read there
    found_end: list[Ints] = []
    found_entry: list[Ints] = []
    remaining = np.arange(len(edge))
    while len(remaining):
        leaf = remaining[degree[end[remaining]] == 1]
        # both ends of the last entry of a tree are leaves: it is read at the first
        leaf = leaf[(degree[other_end[leaf]] != 1) | (v[leaf] < w[leaf])]
        final[edge[reverse[leaf]]] = edge[leaf]
        if found_end:
            ends, entries = np.concatenate(found_end), np.concatenate(found_entry)
            entry_of_end = np.full(len(degree), -1)
            entry_of_end[end[leaf]] = edge[leaf]
            is_read = entry_of_end[ends] >= 0
            if np.any(is_read):
                levels.append(
                    (frozen(entry_of_end[ends[is_read]].astype(np.int32)), frozen(entries[is_read].astype(np.int32)))
                )
            found_end, found_entry = [ends[~is_read]], [entries[~is_read]]
        found_end.append(other_end[leaf])  # a leaf (v, w) is a term of the sum at row w, the jvp of the colour of v
        found_entry.append(edge[leaf])
        np.subtract.at(degree, end[leaf], 1)
        np.subtract.at(degree, other_end[leaf], 1)
        alive[leaf] = False
        alive[reverse[leaf]] = False
        remaining = remaining[alive[remaining]]
    return replace(_from_columns(colors, rows, columns), levels=tuple(levels), final=frozen(final.astype(np.int32)))


def _from_columns(colors: Colors, rows: Ints, columns: Ints) -> Decompression:
    """Return the decompression that reads each entry from the jvp of its column."""
    from_rows = np.zeros(len(rows), np.bool_)
    return Decompression(frozen(colors[columns]), frozen(rows.astype(np.int32)), frozen(from_rows), (), None)
