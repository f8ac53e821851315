"""Relations between the elements of two arrays: which result elements may depend on which operand elements.

Elements are numbered in row-major order, so a reshape changes nothing. A relation is a union of

- boxes: (out0 + sum s_k p_k, in0 + sum t_k p_k) for all 0 <= p_k < n_k, written `Box(out0, in0, ((n, s, t), ...))`.
  The identity of n elements is Box(0, 0, ((n, 1, 1),)), a dense block of m x n Box(0, 0, ((m, 1, 0), (n, 0, 1))), the
  diagonal of a band (i, i + 1) Box(0, 1, ((n - 1, 1, 1),)). A stencil on a grid is a box for each of its places.
- pairs of integer arrays, where indices are data.

The composition of two boxes is again boxes if the strides at the array between them fit (each divides the next one, at
most one on each side); otherwise of their pairs, and if these are too many, of a dense block that contains it. So a
composition may contain too much, and never too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, prod
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
_MOST_ENUMERATED: Final = 16  # values of an index, where strides do not fit


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
    kept: list[StridedDim] = []
    for n, s, t in dims:
        if n <= 0:
            return None
        if n == 1 or (s == 0 and t == 0):
            continue
        if s < 0 or (s == 0 and t < 0):
            out0, in0, s, t = out0 + s * (n - 1), in0 + t * (n - 1), -s, -t
        kept.append((n, s, t))
    kept.sort(key=lambda d: (-d[1], -abs(d[2]), d[0], d[2]))
    merged: list[StridedDim] = []
    for n, s, t in kept:
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
    whole = Relation(boxes, tuple(tables.values()))
    if len(boxes) > _MAX_BOXES:
        return Relation(frozenset(), (pairs(whole),)) if whole.pairs <= MAX_PAIRS else bounding(whole)
    if len(tables) > _FEW_TABLES:
        together = Relation(frozenset(), tuple(tables.values()))
        if together.pairs > 4 * MAX_PAIRS:
            return bounding(whole)
        if len(tables) > _MOST_TABLES or together.pairs > MAX_PAIRS:
            one = merged(together.tables)
            return Relation(boxes, (one,)) if len(one[0]) <= MAX_PAIRS else bounding(whole)
    return whole


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
    parts: list[tuple[int, int, StridedDims]] = [] if strict else [(0, 0, ((n, s, t),))]
    size = 1
    while size < n:
        whole = n // (2 * size)
        if whole:
            parts.append((s * size, 0, ((whole, 2 * size * s, 2 * size * t), (size, s, 0), (size, 0, t))))
        first = (2 * whole + 1) * size
        if first < n:
            parts.append((s * first, t * (first - size), ((n - first, s, 0), (size, 0, t))))
        size *= 2
    if not reverse:
        return parts
    return [(s * (n - 1) - o, t * (n - 1) - i, tuple([(m, -a, -b) for m, a, b in dims])) for o, i, dims in parts]


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


def _sorted_pair_numbers(parts: Sequence[tuple[Ints, Ints]], width: int) -> NDArray[np.int64]:
    """Return the numbers o width + i of all pairs, in order, each once. Large arrays are written once: most of the time
    is that of new memory."""
    keys = np.empty(sum([len(o) for o, _ in parts]), np.int64)
    start = 0
    for o, i in parts:
        own = keys[start : start + len(o)]
        np.multiply(o, width, out=own, dtype=np.int64)
        own += i
        start += len(o)
    if np.any(keys[1:] <= keys[:-1]):
        keys.sort()
        kept = np.empty(len(keys), np.bool_)
        kept[0] = True
        np.not_equal(keys[1:], keys[:-1], out=kept[1:])
        if not kept.all():
            keys = keys[kept]
    return keys


def merged(tables: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Return the pairs of several tables as one, each once."""
    width = max([int(i.max(initial=0)) for _, i in tables]) + 1
    keys = _sorted_pair_numbers(tables, width)
    o = keys // width
    keys -= o * width
    return o, keys


def csr(r: Relation, rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row pointers and sorted column indices without duplicates."""
    found = _csr_of_band(r, rows)
    if found is not None:
        return found
    keys = _sorted_pair_numbers([*[pairs_of_box(b) for b in sorted(r.boxes)], *r.tables], columns)
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


# ----------------------------------------------------------------------------------------------------- composition


def compose(a: Relation, d: Relation, middle: int) -> Relation:
    """Return the pairs (i, j) with (i, m) in `a` and (m, j) in `d` for an element m of `middle` elements."""
    if a.empty or d.empty:
        return EMPTY
    whole = identity(middle)
    if a == whole or not middle:
        return d
    if not d.tables and d.boxes == whole.boxes:
        return a
    parts: list[Relation] = []
    for x in a.boxes:
        for y in d.boxes:
            made = compose_boxes(x, y)
            parts.append(_of_pairs(x, y) if made is None else Relation(frozenset(made)))
    for o, m in a.tables:
        for y in d.boxes:
            found = _look_up(m, y.out0, y.in0, list(y.dims))
            alone = Relation(frozenset(), ((o, m),))
            parts.append(
                _compose_by_pairs(alone, relation(y), middle) if found is None else table(o[found.met], found.others)
            )
        parts += [_compose_tables(o, m, k, i, middle) for k, i in d.tables]
    for m, i in d.tables:
        for x in a.boxes:
            found = _look_up(m, x.in0, x.out0, [(n, t, s) for n, s, t in x.dims])
            alone = Relation(frozenset(), ((m, i),))
            parts.append(
                _compose_by_pairs(relation(x), alone, middle) if found is None else table(found.others, i[found.met])
            )
    return union(*parts)


class _LookedUp(NamedTuple):
    """Which numbers a box has at one side, as a mask, and its numbers at the other side for these."""

    met: NDArray[np.bool_]
    others: Ints


def _look_up(m: Ints, start: int, other: int, dims: list[StridedDim]) -> _LookedUp | None:
    """Look up the numbers m at one side of a box: which are start + sum s k, and other + sum t k for these. None if the
    digits k of a number are not unique."""
    signs: list[StridedDim] = []
    for n, s, t in dims:
        if s < 0:
            start, other = start + s * (n - 1), other + t * (n - 1)
        signs.append((n, -s, -t) if s < 0 else (n, s, t))
    signs.sort(key=lambda u: -u[1])
    if any([s == 0 for _, s, _ in signs]) or any([
        sum([s * (n - 1) for n, s, _ in signs[k + 1 :]]) >= s for k, (_, s, _) in enumerate(signs)
    ]):  # fmt: skip
        return None
    rest, value = np.subtract(m, start, dtype=np.int64), np.full(len(m), other, np.int64)
    kept = np.ones(len(m), np.bool_)
    for n, s, t in signs:
        digit = rest if s == 1 else rest // s
        kept &= (digit >= 0) & (digit < n)
        value += t * digit
        rest = rest - s * digit if s != 1 else np.zeros((), np.int64)
    kept &= rest == 0
    return _LookedUp(kept, value[kept])


def _of_pairs(x: Box, y: Box) -> Relation:
    """Compose two boxes by their pairs."""
    lo, hi = max(x.in_bounds[0], y.out_bounds[0]), min(x.in_bounds[1], y.out_bounds[1])
    return _compose_by_pairs(relation(x), relation(y), hi + 1) if lo <= hi else EMPTY


def bounds(start: int, dims: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the least and the greatest value of start + sum stride * index."""
    ends = [s * (n - 1) for n, s in dims]
    return start + sum([min(0, e) for e in ends]), start + sum([max(0, e) for e in ends])


def _compose_tables(o: Ints, m: Ints, k: Ints, i: Ints, middle: int) -> Relation:
    """Compose two tables. A gather and a scatter number one side in order: there the other table reads its places."""
    if _are_consecutive(k):
        if m is k:  # the numbers of the results of a gather, which a scatter adds
            return _distinct(o, i)
        o, m = _pairs_in_range(o, m, k[0], k[-1])
        return _distinct(o, i[m - k[0] if k[0] else m])
    if _are_consecutive(m):
        i, k = _pairs_in_range(i, k, m[0], m[-1])
        return _distinct(o[k - m[0] if m[0] else k], i)
    return _compose_by_pairs(Relation(frozenset(), ((o, m),)), Relation(frozenset(), ((k, i),)), middle)


def _pairs_in_range(ends: Ints, numbers: Ints, first: int, last: int) -> tuple[Ints, Ints]:
    """Return the pairs (end, number) with first <= number <= last."""
    if not len(numbers) or (numbers.min() >= first and numbers.max() <= last):
        return ends, numbers
    inside = (numbers >= first) & (numbers <= last)
    return ends[inside], numbers[inside]


def _are_consecutive(numbers: Ints) -> bool:
    """Return True for consecutive numbers."""
    return (
        len(numbers) > 0
        and int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1
        and bool((numbers[1:] > numbers[:-1]).all())
    )


def _distinct(o: Ints, i: Ints) -> Relation:
    """Return a table; pairs of equal numbers only once, which is what a gather followed by its scatter gives."""
    if len(o) and np.array_equal(o[:64], i[:64]) and np.array_equal(o, i):
        marks = np.zeros(int(o.max()) + 1, np.bool_)
        marks[o] = True
        o = i = np.flatnonzero(marks)
    return table(o, i)


def _compose_by_pairs(a: Relation, d: Relation, middle: int) -> Relation:
    """Compose by pairs; a dense block if they are too many."""
    if a.pairs <= MAX_PAIRS and d.pairs <= MAX_PAIRS:
        (o, m), (k, i) = pairs(a), pairs(d)
        inside = m < middle
        o, m = o[inside], m[inside]
        if np.any(k[1:] < k[:-1]):
            order = np.argsort(k, kind="stable")
            k, i = k[order], i[order]
        size = int(max(k.max(initial=0), m.max(initial=0))) + 1
        starts = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(k, minlength=size), out=starts[1:])
        first, counts = starts[m], (starts[1:] - starts[:-1])[m]
        total = int(counts.sum())
        if total <= MAX_PAIRS:
            at = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(total)
            return table(np.repeat(o, counts), i[at]) if total else EMPTY
    x, y = next(iter(bounding(a).boxes)), next(iter(bounding(d).boxes))
    return relation(box(x.out0, y.in0, [*[(n, s, 0) for n, s, _ in x.dims], *[(n, 0, t) for n, _, t in y.dims]]))


# One side of a composition: (count, stride at the middle, stride at the other end).
_Side: TypeAlias = "list[tuple[int, int, int]]"
# Some solutions of a composition: the offsets of the two other ends, and their common dims.
_Solution: TypeAlias = tuple[int, int, StridedDims]


class _Digits(NamedTuple):
    """A part of one side, whose numbers at the middle are written as high * radix + low: the two digits, each a start
    with its indices, and the offset of the part at the other end."""

    high: int
    high_side: _Side
    low: int
    low_side: _Side
    other: int


def compose_boxes(x: Box, y: Box) -> list[Box] | None:
    """Return the composition of two boxes as boxes; None if their strides do not fit."""
    out0, in0, a0, d0 = x.out0, y.in0, x.in0, y.out0
    free: list[StridedDim] = []
    left: _Side = []
    right: _Side = []
    for n, s, t in x.dims:
        if t == 0:
            free.append((n, s, 0))
        elif t < 0:
            a0, out0 = a0 + t * (n - 1), out0 + s * (n - 1)
            left.append((n, -t, -s))
        else:
            left.append((n, t, s))
    for n, s, t in y.dims:
        if s == 0:
            free.append((n, 0, t))
        elif s < 0:
            d0, in0 = d0 + s * (n - 1), in0 + t * (n - 1)
            right.append((n, -s, -t))
        else:
            right.append((n, s, t))
    solved = _solve(a0, left, d0, right)
    if solved is None:
        return None
    made = [box(out0 + o, in0 + i, (*free, *dims)) for o, i, dims in solved]
    return [b for b in made if b is not None]


def _solve(a: int, left: _Side, d: int, right: _Side) -> list[_Solution] | None:
    """Return the solutions of a + sum s p = d + sum t q, as offsets and dims of the two other ends.

    Numbers with several indices are written as high * radix + low, where the radix is the greatest stride. As long as
    0 <= low < radix, numbers are equal if and only if both digits are. Strides that the radix divides belong to the
    high digit, smaller ones to the low digit, so the digits have different indices: the equation becomes one for the
    high digits and one for the low digits, and each pair of their solutions is a solution. `_split` cuts a side into
    parts in which the low digit stays in its bounds, and each pair of parts is solved alone.

    Example: the slice m = 3 + p of 12 elements, for p < 10, of a transposed matrix, where m = 4 h + l is element
    h + 10 l, for h < 3 and l < 4. To the radix 4, the slice has three parts (see `_split`), the matrix one, (h, l):

        digits of the slice     solutions                          boxes (p, h + 10 l)
        (0, 3)                  h = 0, l = 3; p = 0                Box(0, 30, ())
        (1 + i, j)              h = 1 + i, l = j; p = 1 + 4 i + j  Box(1, 1, ((2, 4, 1), (4, 1, 10)))
        (3, 0)                  none: h < 3

    >>> from fxad.transforms.sparse.relation import Box, compose_boxes
    >>> compose_boxes(Box(0, 3, ((10, 1, 1),)), Box(0, 0, ((3, 4, 1), (4, 1, 10))))
    [Box(out0=0, in0=30, dims=()), Box(out0=1, in0=1, dims=((2, 4, 1), (4, 1, 10)))]
    """
    if not left and not right:
        return [(0, 0, ())] if a == d else []
    lo = max(a, d)
    hi = min(bounds(a, [(n, s) for n, s, _ in left])[1], bounds(d, [(n, s) for n, s, _ in right])[1])
    if lo > hi:
        return []
    if len(left) <= 1 and len(right) <= 1:
        return _solve_two(a, left, d, right)
    radix = max([s for _, s, _ in (*left, *right)])
    if radix > 1:
        lefts, rights = _split(a, left, radix), _split(d, right, radix)
        if lefts is not None and rights is not None:
            solutions: list[_Solution] = []
            for x in lefts:
                for y in rights:  # numbers are equal if both of their digits are
                    high = _solve_level(x.high, x.high_side, y.high, y.high_side)
                    if high is None:
                        return _enumerate(a, left, d, right)
                    if not high:
                        continue
                    low = _solve(x.low, x.low_side, y.low, y.low_side)
                    if low is None:
                        return _enumerate(a, left, d, right)
                    solutions += [(x.other + o + p, y.other + i + q, (*u, *v)) for o, i, u in high for p, q, v in low]
            return solutions
    return _enumerate(a, left, d, right)


def _solve_level(a: int, left: _Side, d: int, right: _Side) -> list[_Solution] | None:
    """Solve for the high digit, whose strides are all 1, as the radix is the greatest stride: there is no other
    radix."""
    if len(left) <= 1 and len(right) <= 1:
        return _solve_two(a, left, d, right)
    return _enumerate(a, left, d, right)


def _enumerate(a: int, left: _Side, d: int, right: _Side) -> list[_Solution] | None:
    """Solve for each value of the index with the smallest count, if it is small."""
    several = [*[(n, 0, k) for k, (n, _, _) in enumerate(left)], *[(n, 1, k) for k, (n, _, _) in enumerate(right)]]
    n, side, k = min(several)
    if n > _MOST_ENUMERATED:
        return None
    solutions: list[_Solution] = []
    _, stride, other = (left, right)[side][k]
    for value in range(n):
        step = stride * value
        found = (
            _solve(a + step, [*left[:k], *left[k + 1 :]], d, right)
            if side == 0
            else _solve(a, left, d + step, [*right[:k], *right[k + 1 :]])
        )
        if found is None:
            return None
        solutions += [(o + other * value * (side == 0), i + other * value * (side == 1), u) for o, i, u in found]
    return solutions


def _solve_two(a: int, left: _Side, d: int, right: _Side) -> list[_Solution]:
    """Return the solutions of a + s p = d + t q with at most one index on each side."""
    if not left and not right:
        return [(0, 0, ())] if a == d else []
    if not left or not right:
        ((n, s, other),) = left or right
        p, rest = divmod(d - a if left else a - d, s)
        if rest or not 0 <= p < n:
            return []
        return [(other * p, 0, ())] if left else [(0, other * p, ())]
    ((n, s, so),), ((m, t, to),) = left, right
    c, g = d - a, gcd(s, t)
    if c % g:
        return []
    s, t, c = s // g, t // g, c // g
    q0 = (-c * pow(t, -1, s)) % s if s > 1 else 0
    p0 = (c + t * q0) // s
    # p = p0 + t r, q = q0 + s r
    lo = max(-(p0 // t), -(q0 // s))
    hi = min((n - 1 - p0) // t, (m - 1 - q0) // s)
    if lo > hi:
        return []
    return [(so * (p0 + t * lo), to * (q0 + s * lo), ((hi - lo + 1, so * t, to * s),))]


def _split(start: int, side: _Side, radix: int) -> list[_Digits] | None:
    """Split start + sum s p into digits to a radix: into parts in which the low digit stays in [0, radix). None if
    strides do not divide.

    Example: 3 + p for p < 10, to the radix 4, is 3 | 4 5 6 7  8 9 10 11 | 12. So there are three parts, with the digits
    (0, 3), (1 + i, j) for i < 2 and j < 4, and (3, 0).
    """
    high_side: _Side = []
    low_side: _Side = []
    for n, s, other in side:
        if s % radix == 0:
            high_side.append((n, s // radix, other))
        elif s < radix:
            low_side.append((n, s, other))
        else:
            return None
    high, low = divmod(start, radix)
    if low + sum([s * (n - 1) for n, s, _ in low_side]) < radix:
        return [_Digits(high, high_side, low, low_side, 0)]
    # the low digit is s p + (less than s), for the index p of the largest stride, and starts again after each round
    (n, s, other), *rest = sorted(low_side, key=lambda u: -u[1])
    first, below = divmod(low, s)
    if radix % s or below + sum([t * (m - 1) for m, t, _ in rest]) >= s:
        return None
    in_round = radix // s
    parts: list[_Digits] = []
    done = 0  # how many values of p the parts have
    if first:  # the end of a round
        done = min(n, in_round - first)
        parts.append(_Digits(high, high_side, low, [(done, s, other), *rest], 0))
        high += 1
    rounds = (n - done) // in_round
    if rounds:
        whole: _Side = [*high_side, (rounds, 1, other * in_round)]
        parts.append(_Digits(high, whole, below, [(in_round, s, other), *rest], other * done))
        done, high = done + rounds * in_round, high + rounds
    if done < n:  # the start of a round
        parts.append(_Digits(high, high_side, below, [(n - done, s, other), *rest], other * done))
    return parts
