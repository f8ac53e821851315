"""Relations between the elements of two arrays: which result elements may depend on which operand elements.

Elements are numbered in row-major order, so a reshape changes nothing. A relation is a union of

- boxes: (out0 + sum s_k p_k, in0 + sum t_k p_k) for all 0 <= p_k < n_k, written `Box(out0, in0, ((n, s, t), ...))`.
  The identity of n elements is Box(0, 0, ((n, 1, 1),)), a dense block of m x n Box(0, 0, ((m, 1, 0), (n, 0, 1))), the
  diagonal of a band (i, i + 1) Box(0, 1, ((n - 1, 1, 1),)). A stencil on a grid is a box for each of its places.
- tables, which are pairs of integer arrays, where indices are data.

Too many boxes become a table, and a table with too many pairs a dense block that contains it. So a relation may contain
too much, and never too little. `composition` composes relations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

StridedDim: TypeAlias = tuple[int, int, int]  # count, stride of the result, stride of the operand
StridedDims: TypeAlias = tuple[StridedDim, ...]
Ints: TypeAlias = NDArray[np.integer[Any]]  # int32 or int64: sums and products of numbers are made in int64

MAX_PAIRS: Final = 1 << 25  # more pairs become a dense block
_MAX_BOXES: Final = 4096  # more boxes become pairs
_FEW_TABLES: Final = 8  # so many tables stay as they are
_MOST_TABLES: Final = 16  # more tables are merged into one
_MOST_RUNS: Final = 32  # of constant stride in a table that becomes boxes, and diagonals of a band


class Box(NamedTuple):
    """A strided set of pairs; see the module."""

    out0: int
    in0: int
    dims: StridedDims

    @property
    def pairs(self) -> int:
        """The number of its pairs; some may be equal."""
        return prod([n for n, _, _ in self.dims])

    @property
    def out_bounds(self) -> tuple[int, int]:
        """The least and the greatest number of a result in it."""
        return bounds(self.out0, [(n, s) for n, s, _ in self.dims])

    @property
    def in_bounds(self) -> tuple[int, int]:
        """The least and the greatest number of an operand in it."""
        return bounds(self.in0, [(n, t) for n, _, t in self.dims])


class Relation(NamedTuple):
    """A union of boxes and of tables (results, operands)."""

    boxes: frozenset[Box]
    tables: tuple[tuple[Ints, Ints], ...] = ()

    @property
    def empty(self) -> bool:
        """Return True if there is no pair."""
        return not self.boxes and not self.tables

    @property
    def pairs(self) -> int:
        """An upper bound of the number of pairs."""
        return sum([b.pairs for b in self.boxes]) + sum([len(o) for o, _ in self.tables])


EMPTY: Final = Relation(frozenset())


def box(out0: int, in0: int, dims: Iterable[StridedDim]) -> Box | None:
    """Return a box in canonical form; None if it is empty."""
    nontrivial: list[StridedDim] = []
    for n, s, t in dims:
        if n <= 0:
            return None
        if n == 1 or (s == 0 and t == 0):
            continue
        if s < 0 or (s == 0 and t < 0):
            out0, in0, s, t = out0 + s * (n - 1), in0 + t * (n - 1), -s, -t
        nontrivial.append((n, s, t))
    nontrivial.sort(key=lambda d: (-d[1], -abs(d[2]), d[0], d[2]))
    merged: list[StridedDim] = []
    for n, s, t in nontrivial:
        if merged and merged[-1][1] == s * n and merged[-1][2] == t * n:
            merged[-1] = (merged[-1][0] * n, s, t)
        else:
            merged.append((n, s, t))
    return Box(out0, in0, tuple(merged))


def relation(*boxes: Box | None) -> Relation:
    """Return a union of boxes."""
    return Relation(frozenset([b for b in boxes if b is not None]))


def strided(shape: Sequence[int], out: Sequence[int], ins: Sequence[int], out0: int = 0, in0: int = 0) -> Relation:
    """Return one box over the indices of `shape`."""
    return relation(box(out0, in0, zip(shape, out, ins, strict=True)))


def identity(n: int) -> Relation:
    """Return the relation of equal elements."""
    return relation(box(0, 0, ((n, 1, 1),))) if n else EMPTY


def dense(m: int, n: int) -> Relation:
    """Return all pairs."""
    return relation(box(0, 0, ((m, 1, 0), (n, 0, 1))))


def as_numbers(a: NDArray[Any]) -> Ints:
    """Return an array of integers as one of int32 or int64: int32 is kept, it is half of the memory."""
    return a if a.dtype == np.int32 else np.asarray(a, np.int64)


def table(out: NDArray[Any], ins: NDArray[Any]) -> Relation:
    """Return a relation of given pairs: boxes if they are few runs of a constant stride.

    Example: results 0 1 2 3 9 of operands 0 2 4 6 1 are Box(0, 0, ((4, 1, 2),)) and Box(9, 1, ()).
    """
    if not len(out):
        return EMPTY
    out, ins = as_numbers(out), as_numbers(ins)
    few = min(len(out), 1024)  # most tables of data have many runs at once
    if few < len(out) and np.count_nonzero(np.diff(ins[:few], n=2) | np.diff(out[:few], n=2)) > 2 * _MOST_RUNS:
        return Relation(frozenset(), ((out, ins),))
    do, di = np.diff(out), np.diff(ins)
    changes = np.flatnonzero((do[1:] != do[:-1]) | (di[1:] != di[:-1]))  # k: the strides before and after k + 1 differ
    if len(changes) > _MOST_RUNS:
        return Relation(frozenset(), ((out, ins),))
    boxes: list[Box | None] = []
    start = 0
    while start < len(out):
        later = changes[np.searchsorted(changes, start) :]
        end = int(later[0]) + 2 if len(later) else len(out)
        stride = (int(do[start]), int(di[start])) if end > start + 1 else (0, 0)
        boxes.append(box(int(out[start]), int(ins[start]), ((end - start, *stride),)))
        start = end
    return relation(*boxes)


def union(*relations: Relation) -> Relation:
    """Return the union; too many boxes become pairs, or a dense block."""
    nonempty = [r for r in relations if not r.empty]
    if not nonempty:
        return EMPTY
    if len(nonempty) == 1:
        return nonempty[0]
    boxes = frozenset().union(*[r.boxes for r in nonempty])
    tables = {(id(t[0]), id(t[1])): t for r in nonempty for t in r.tables}
    joined = Relation(boxes, tuple(tables.values()))
    if len(boxes) > _MAX_BOXES:
        return Relation(frozenset(), (pairs(joined),)) if joined.pairs <= MAX_PAIRS else bounding(joined)
    if len(tables) > _FEW_TABLES:
        only_tables = Relation(frozenset(), tuple(tables.values()))
        if only_tables.pairs > 4 * MAX_PAIRS:
            return bounding(joined)
        if len(tables) > _MOST_TABLES or only_tables.pairs > MAX_PAIRS:
            one = merged(only_tables.tables)
            return Relation(boxes, (one,)) if len(one[0]) <= MAX_PAIRS else bounding(joined)
    return joined


def transposed(r: Relation) -> Relation:
    """Return the pairs with the sides exchanged."""
    return Relation(
        relation(*[box(b.in0, b.out0, [(n, t, s) for n, s, t in b.dims]) for b in r.boxes]).boxes,
        tuple([(i, o) for o, i in r.tables]),
    )


def shifted(r: Relation, out: int, ins: int) -> Relation:
    """Return the pairs with both sides moved."""
    if not out and not ins:
        return r
    return Relation(
        frozenset([Box(b.out0 + out, b.in0 + ins, b.dims) for b in r.boxes]),
        tuple([(_offset(o, out), _offset(i, ins)) for o, i in r.tables]),
    )


def _offset(numbers: Ints, by: int) -> Ints:
    return np.add(numbers, by, dtype=np.int64) if by else numbers


def repeated(r: Relation, *dims: StridedDim) -> Relation:
    """Return the pairs of `r` at each index of further dims."""
    out = relation(*[box(b.out0, b.in0, (*b.dims, *dims)) for b in r.boxes])
    for o, i in r.tables:
        if len(o) * prod([n for n, _, _ in dims]) > MAX_PAIRS:
            out = union(out, repeated(bounding(Relation(frozenset(), ((o, i),))), *dims))
            continue
        for n, s, t in dims:
            k = np.arange(n)
            o, i = (o + s * k[:, None]).ravel(), (i + t * k[:, None]).ravel()
        out = union(out, Relation(frozenset(), ((o, i),)))
    return out


def bounding(r: Relation) -> Relation:
    """Return a dense block that contains a relation."""
    ends = [(*b.out_bounds, *b.in_bounds) for b in r.boxes]
    ends += [(int(o.min()), int(o.max()), int(i.min()), int(i.max())) for o, i in r.tables]
    if not ends:
        return EMPTY
    o0, o1, i0, i1 = [limit(k) for limit, k in zip((min, max, min, max), zip(*ends, strict=True), strict=True)]
    return relation(box(o0, i0, ((o1 - o0 + 1, 1, 0), (i1 - i0 + 1, 0, 1))))


def triangle(
    n: int, s: int, t: int, *, reverse: bool = False, strict: bool = False
) -> list[tuple[int, int, StridedDims]]:
    """Return the lower triangle i >= j of n x n (`reverse`: i <= j) as boxes: a diagonal, and for each power of two the
    blocks below it. So n (n + 1) / 2 pairs are about 2 log n boxes."""
    blocks: list[tuple[int, int, StridedDims]] = [] if strict else [(0, 0, ((n, s, t),))]
    size = 1
    while size < n:
        n_blocks = n // (2 * size)
        if n_blocks:
            blocks.append((s * size, 0, ((n_blocks, 2 * size * s, 2 * size * t), (size, s, 0), (size, 0, t))))
        first = (2 * n_blocks + 1) * size
        if first < n:
            blocks.append((s * first, t * (first - size), ((n - first, s, 0), (size, 0, t))))
        size *= 2
    if not reverse:
        return blocks
    return [(s * (n - 1) - o, t * (n - 1) - i, tuple([(m, -a, -b) for m, a, b in dims])) for o, i, dims in blocks]


def bounds(start: int, dims: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the least and the greatest value of start + sum stride * index."""
    ends = [s * (n - 1) for n, s in dims]
    return start + sum([min(0, e) for e in ends]), start + sum([max(0, e) for e in ends])


def pairs_of_box(b: Box) -> tuple[Ints, Ints]:
    """Return the pairs of a box."""
    o, i = np.full(1, b.out0, np.int64), np.full(1, b.in0, np.int64)
    for n, s, t in b.dims:
        k = np.arange(n, dtype=np.int64)
        o, i = (o[:, None] + s * k).ravel(), (i[:, None] + t * k).ravel()
    return o, i


def pairs(r: Relation) -> tuple[Ints, Ints]:
    """Return all pairs; some may occur twice."""
    parts = [*[pairs_of_box(b) for b in sorted(r.boxes)], *r.tables]
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([o for o, _ in parts]), np.concatenate([i for _, i in parts])


def sorted_pair_numbers(parts: Sequence[tuple[Ints, Ints]], width: int) -> NDArray[np.int64]:
    """Return the numbers o width + i of all pairs, in order, each once. Large arrays are written once: most of the time
    is that of new memory."""
    keys = np.empty(sum([len(o) for o, _ in parts]), np.int64)
    start = 0
    for o, i in parts:
        numbers = keys[start : start + len(o)]
        np.multiply(o, width, out=numbers, dtype=np.int64)
        numbers += i
        start += len(o)
    if np.any(keys[1:] <= keys[:-1]):
        keys.sort()
        is_new = np.empty(len(keys), np.bool_)
        is_new[0] = True
        np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
        if not is_new.all():
            keys = keys[is_new]
    return keys


def merged(tables: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Return the pairs of several tables as one, each once."""
    width = max([int(i.max(initial=0)) for _, i in tables]) + 1
    keys = sorted_pair_numbers(tables, width)
    o = keys // width
    keys -= o * width
    return o, keys


def csr(r: Relation, rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row pointers and sorted column indices without duplicates."""
    of_band = _csr_of_band(r, rows)
    if of_band is not None:
        return of_band
    keys = sorted_pair_numbers([*[pairs_of_box(b) for b in sorted(r.boxes)], *r.tables], columns)
    o = keys // max(columns, 1)
    indptr = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(o, minlength=rows), out=indptr[1:])
    o *= columns
    keys -= o
    return indptr, keys


def _csr_of_band(r: Relation, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the CSR arrays of pieces of few diagonals, without sorting; None for others."""
    if r.tables or not rows or any([len(b.dims) > 1 or any([d[1:] != (1, 1) for d in b.dims]) for b in r.boxes]):
        return None
    offsets = sorted({b.in0 - b.out0 for b in r.boxes})
    if not 0 < len(offsets) <= _MOST_RUNS:
        return None
    present = np.zeros((rows, len(offsets)), np.bool_)
    for b in r.boxes:
        present[b.out0 : b.out0 + b.pairs, offsets.index(b.in0 - b.out0)] = True
    indptr = np.zeros(rows + 1, np.int64)
    np.cumsum(np.count_nonzero(present, axis=1), out=indptr[1:])
    columns = np.arange(rows, dtype=np.int64)[:, None] + np.array(offsets)
    return indptr, columns.reshape(-1) if present.all() else columns[present]
