"""`Pattern`: which entries of a matrix may differ from zero, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from math import prod
from typing import Any, Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.core.weak import WeakTable
from fxad.errors import ArgumentError, ShapeError, described, shown
from fxad.ir import Flags, Jaxpr, Shape
from fxad.support.tables import headed, preformatted
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.sparse.coloring import color
from fxad.transforms.sparse.composition import compose
from fxad.transforms.sparse.csr import Csr, Ints
from fxad.transforms.sparse.decompression import SYMMETRIC, Coloring, Decompression, decompression
from fxad.transforms.sparse.propagate import dependence
from fxad.transforms.sparse.relation import (
    Box,
    Relation,
    bounding,
    box,
    csr,
    relation,
    shifted,
    table,
    transposed,
    union,
)  # fmt: skip
from fxad.transforms.sparse.same_pairs import same_pairs
from fxad.transforms.sparse.shifts import stencil_of
from fxad.transforms.sparse.values import ComputeConcrete, ConcreteValues, not_concrete

Key: TypeAlias = tuple[Any, ...]
MAX_ENTRIES: Final = 1 << 28
_WIDTH, _HEIGHT = 48, 24  # of a picture, in characters


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Pattern:
    """The entries of a matrix that may differ from zero.

    Rows are the elements of the results, columns those of the arguments, in row-major order, leaf after leaf.
    `row_shapes` and `column_shapes` are the shapes of the leaves. `notes` say which indices depend on data; they are
    not part of the value.

    Law: patterns are equal if they have the same shapes and the same entries, whether or not these can be listed.
    """

    key: Key  # shapes, boxes, pairs: what a file holds
    notes: tuple[str, ...]
    _memo: dict[object, Any]

    @classmethod
    def of(
        cls, entries: Relation, row_shapes: Sequence[Shape], column_shapes: Sequence[Shape], notes: Sequence[str] = ()
    ) -> Pattern:
        """Return the pattern of a relation."""
        tables: tuple[bytes, ...] = ()
        if entries.tables:
            m, n = sum(map(prod, row_shapes)), sum(map(prod, column_shapes))
            indptr, indices = csr(Relation(frozenset(), entries.tables), m, n)
            tables = (
                np.diff(indptr).astype("<u4").tobytes(),
                indices.astype(_dtype_of_columns(n)).tobytes(),
            )
        boxes = tuple([tuple(b) for b in sorted(entries.boxes)])
        return cls.of_key((tuple(row_shapes), tuple(column_shapes), boxes, tables), tuple(notes))

    @classmethod
    def of_key(cls, key: Key, notes: tuple[str, ...] = ()) -> Pattern:
        """Return the pattern with this `key` and these notes: one object while it lives."""
        return _patterns.get((key, notes)) or _patterns.put((key, notes), cls(key, notes, {}))

    @classmethod
    def from_scipy(cls, matrix: Any) -> Pattern:
        """Return the pattern of the stored entries of a matrix of `scipy.sparse`, or of the nonzeros of an array."""
        if hasattr(matrix, "tocoo"):
            coo = matrix.tocoo()
            o, i = np.asarray(coo.row), np.asarray(coo.col)
        else:
            matrix = np.asarray(matrix)
            if matrix.ndim != 2:
                raise ShapeError(
                    f"Pattern.from_scipy: takes a matrix, got shape {matrix.shape}", remedy="give an array of two axes"
                )
            o, i = np.nonzero(matrix)
        m, n = matrix.shape
        order = np.lexsort((i, o))
        return cls.of(table(o[order], i[order]), [(int(m),)], [(int(n),)])

    @property
    def row_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the results."""
        shapes: tuple[Shape, ...] = self.key[0]
        return shapes

    @property
    def column_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the arguments."""
        shapes: tuple[Shape, ...] = self.key[1]
        return shapes

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return sum(map(prod, self.row_shapes)), sum(map(prod, self.column_shapes))

    @property
    def entries(self) -> Relation:
        """The entries as boxes and pairs."""
        boxes = frozenset([Box(*b) for b in self.key[2]])
        if not self.key[3]:
            return Relation(boxes)
        counts, indices = self._listed()
        return Relation(boxes, ((np.repeat(np.arange(len(counts)), counts), indices),))

    def _listed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of listed entries of each row, and their columns."""
        counts, indices = self.key[3]
        columns = np.frombuffer(indices, _dtype_of_columns(self.shape[1]))
        return np.frombuffer(counts, "<u4").astype(np.int64), columns.astype(np.int64)

    def _csr(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if "csr" not in self._memo:
            entries = self.entries
            if entries.pairs > MAX_ENTRIES:
                raise ArgumentError(
                    f"Pattern: {self.shape[0]} x {self.shape[1]} with up to {entries.pairs:,} entries is too large to"
                    " be listed",
                    remedy="the matrix is nearly dense: use jvp or vjp products in place of its entries",
                )
            if self.key[3] and not self.key[2]:
                counts, indices = self._listed()
                arrays = np.concatenate([[0], np.cumsum(counts)]), indices
            else:
                arrays = csr(entries, *self.shape)
            for a in arrays:
                a.flags.writeable = False
            self._memo["csr"] = arrays
        result: tuple[NDArray[np.int64], NDArray[np.int64]] = self._memo["csr"]
        return result

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Row pointers of the CSR form."""
        return self._csr()[0]

    @property
    def indices(self) -> NDArray[np.int64]:
        """Column indices of the CSR form, in increasing order in each row."""
        return self._csr()[1]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each entry in CSR order."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return len(self.indices)

    @property
    def offsets(self) -> tuple[int, ...] | None:
        """The shifts k of a band with entries (i, i + k); None if the pattern is no union of pieces of diagonals."""
        if self.key[3] or not self.key[2]:
            return None
        if any([len(dims) > 1 or any([(s, t) != (1, 1) for _, s, t in dims]) for _, _, dims in self.key[2]]):
            return None
        return tuple(sorted({i - o for o, i, _ in self.key[2]}))

    @property
    def symmetric(self) -> bool:
        """Return True if (j, i) is an entry for each entry (i, j)."""
        if "symmetric" not in self._memo:
            entries, (m, n) = self.entries, self.shape
            same = m == n and not entries.tables and transposed(entries) == entries
            self._memo["symmetric"] = same or (m == n and Csr(self.indptr, self.indices, (m, n)).is_symmetric())
        is_symmetric: bool = self._memo["symmetric"]
        return is_symmetric

    @property
    def T(self) -> Pattern:  # noqa: N802
        """The transposed pattern."""
        return Pattern.of(transposed(self.entries), self.column_shapes, self.row_shapes, self.notes)

    def block(self, result: int, argument: int) -> Pattern:
        """Return the pattern of one leaf of the results with respect to one leaf of the arguments, by their numbers.

        Raises: ArgumentError for a number out of range.
        """
        for name, k, shapes in (("result", result, self.row_shapes), ("argument", argument, self.column_shapes)):
            if not 0 <= k < len(shapes):
                raise ArgumentError(
                    f"Pattern.block: {name} {shown(k)} of a pattern with {len(shapes)} leaves of {name}s",
                    remedy=f"give a number from 0 to {len(shapes) - 1}",
                )
        rows, columns = [prod(s) for s in self.row_shapes], [prod(s) for s in self.column_shapes]
        top, left = sum(rows[:result]), sum(columns[:argument])
        entries = compose(relation(box(0, top, ((rows[result], 1, 1),))), self.entries, self.shape[0])
        entries = compose(entries, relation(box(left, 0, ((columns[argument], 1, 1),))), self.shape[1])
        return Pattern.of(entries, [self.row_shapes[result]], [self.column_shapes[argument]], self.notes)

    @property
    def blocks(self) -> tuple[tuple[Pattern, ...], ...]:
        """The blocks of all leaves of the results (rows) with respect to all leaves of the arguments (columns)."""
        return tuple([
            tuple([self.block(i, j) for j in range(len(self.column_shapes))]) for i in range(len(self.row_shapes))
        ])  # fmt: skip

    def to_scipy(self) -> Any:
        """Return a boolean `scipy.sparse.csr_array`."""
        sparse = import_module("scipy.sparse")
        return sparse.csr_array((np.ones(self.nnz, np.bool_), self.indices, self.indptr), shape=self.shape)

    def color(self, kind: str | None = None, *, symmetric: bool = False) -> Coloring:
        """Return a colouring; without `kind` the one that needs the fewest products."""
        request = ("color", kind, symmetric)
        if request not in self._memo:
            m, n = self.shape
            stencil = stencil_of(self.key[2], n) if m == n and self.key[2] and not self.key[3] else None
            self._memo[request] = color(
                self.indptr,
                self.indices,
                self.shape,
                kind,
                offsets=self.offsets,
                stencil=stencil,
                symmetric=symmetric or (kind in SYMMETRIC and self.symmetric),
            )
        coloring: Coloring = self._memo[request]
        return coloring

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Pattern) or self.key[:2] != other.key[:2] or self._bounding != other._bounding:
            return False
        if self.key == other.key:
            return True
        if max(self.entries.pairs, other.entries.pairs) > MAX_ENTRIES:
            return same_pairs(self.entries, other.entries, *self.shape)
        return np.array_equal(self.indptr, other.indptr) and np.array_equal(self.indices, other.indices)

    def __hash__(self) -> int:
        # not of the boxes and tables: equal patterns may list the same entries as different ones
        return hash((*self.key[:2], self._bounding))

    @property
    def _bounding(self) -> Relation:
        """The block of all rows and columns from the first to the last that has an entry."""
        if "bounding" not in self._memo:
            self._memo["bounding"] = bounding(self.entries)
        block: Relation = self._memo["bounding"]
        return block

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return Pattern.of_key, (self.key, self.notes)

    def picture(self) -> str:
        """Return a spy plot in braille characters: a dot for each cell of rows and columns with an entry."""
        m, n = self.shape
        if not m or not n:
            return ""
        scale = max(m / (4 * _HEIGHT), n / (2 * _WIDTH), 1.0)
        height, width = int((m - 1) / scale) + 1, int((n - 1) / scale) + 1
        cells = np.zeros((-(-height // 4) * 4, -(-width // 2) * 2), np.uint32)
        if self.entries.pairs > MAX_ENTRIES:
            cells[:height, :width] = 1
        else:
            cells[(self.rows / scale).astype(np.int64), (self.indices / scale).astype(np.int64)] = 1
        tiles = cells.reshape(cells.shape[0] // 4, 4, cells.shape[1] // 2, 2)
        bits = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint32)
        codes = 0x2800 + np.einsum("iajb,ab->ij", tiles, bits)
        return "\n".join(["".join(map(chr, line)) for line in codes.tolist()])

    def __repr__(self) -> str:
        count = self.nnz if self.entries.pairs <= MAX_ENTRIES else f"up to {self.entries.pairs}"
        return f"<Pattern {self.shape[0]} x {self.shape[1]}, {count} entries>"

    def __str__(self) -> str:
        return "\n".join([repr(self)[1:-1], self.picture(), *self.notes])

    def _repr_html_(self) -> str:
        return headed(repr(self)[1:-1], preformatted("\n".join([self.picture(), *self.notes])))

    def plot(self) -> Any:
        """Return the axes of a spy plot. Raises: ImportError without matplotlib."""
        axes = import_module("matplotlib.pyplot").figure().add_subplot()
        axes.spy(self.to_scipy(), markersize=1)
        return axes


def _dtype_of_columns(n: int) -> str:
    """Return the dtype of the listed columns of a pattern with n columns, as a file holds them."""
    return "<u4" if n < 1 << 32 else "<u8"


_patterns: Final[WeakTable[tuple[Key, tuple[str, ...]], Pattern]] = WeakTable()


def check_pattern(what: str, pattern: object, shape: tuple[int, int]) -> Pattern:
    """Return a pattern given by a user. Raises: ArgumentError, ShapeError that name both shapes."""
    if not isinstance(pattern, Pattern):
        if hasattr(pattern, "tocoo"):
            pattern = Pattern.from_scipy(pattern)
        else:
            raise ArgumentError(
                f"{what}: pattern is {described(pattern)}: {shown(pattern)}",
                remedy="give what sparsity returns, or a matrix of scipy.sparse",
            )
    if pattern.shape != shape:
        raise ShapeError(
            f"{what}: the pattern has shape {pattern.shape}, the derivative has shape {shape}",
            remedy="give the pattern of this function: sparsity(f)",
        )
    return pattern


@by_value
def pattern_of(jaxpr: Jaxpr, wrt: Flags) -> Pattern:
    """Return the pattern of a program with respect to the marked operands, for all values."""
    return pattern_with_values(jaxpr, wrt, [not_concrete] * len(jaxpr.ins))


def places_in_products(pattern: Pattern, coloring: Coloring) -> tuple[Ints, Decompression]:
    """Return the place of each entry in the products of a colouring, one after the other, and how they are
    decompressed. Both are kept on the pattern."""
    key = ("places", coloring)
    if key not in pattern._memo:
        where = decompression(coloring, pattern.indptr, pattern.indices)
        m, n = pattern.shape
        end = np.int64(coloring.jvps) * m
        places = np.where(where.from_rows, end, 0) + where.color * np.where(where.from_rows, n, m) + where.position
        small = end + coloring.vjps * n < 2**31
        pattern._memo[key] = places.astype(np.int32) if small else places, where
    places_and_decompression: tuple[Ints, Decompression] = pattern._memo[key]
    return places_and_decompression


def pattern_with_values(jaxpr: Jaxpr, wrt: Flags, operand_values: Sequence[ComputeConcrete]) -> Pattern:
    """Return the pattern of the Jacobian, read from the linear program. `operand_values` are those that are
    concrete."""
    linearized = linearize(jaxpr, wrt)
    linear, n = linearized.linear, linearized.n_tangents
    primal = ConcreteValues(linearized.primal, operand_values)
    residuals = linearized.primal.outs[len(jaxpr.outs) :]
    operands: list[ComputeConcrete] = [not_concrete] * n + [partial(primal.get, a) for a in residuals]
    dependence_of_linear = dependence(
        linear, (True,) * n + (False,) * linearized.n_res, ConcreteValues(linear, operands)
    )
    columns = [a.aval.shape for a in linear.ins[:n]]
    lefts = np.cumsum([0, *[prod(s) for s in columns]]).tolist()
    blocks = iter(dependence_of_linear.results)
    relations: list[Relation] = []
    top = 0
    for a, nonzero in zip(jaxpr.outs, linearized.out_nonzero, strict=True):
        if nonzero:
            relations += [shifted(r, top, lefts[k]) for k, r in next(blocks).items()]
        top += a.aval.size
    entries = union(*relations)
    return Pattern.of(entries, [a.aval.shape for a in jaxpr.outs], columns, dependence_of_linear.notes)


__all__ = [
    "Pattern",
    "check_pattern",
    "pattern_of",
    "pattern_with_values",
    "places_in_products",
]
