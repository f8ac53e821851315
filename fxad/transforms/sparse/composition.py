"""The composition of two relations: the pairs (i, j) with (i, m) in one and (m, j) in the other, for some m.

Each box or table of one relation is composed with each of the other:

- two boxes give boxes again, if their strides fit (`box_composition`);
- of a table and a box, each number of the table is looked up in the box;
- of two tables, one is sorted by its numbers at the middle, and those of the other are looked up in it.

Other relations are composed as two tables. If there are too many pairs, the result is the product of the two dense
blocks that contain them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fxad.transforms.sparse.box_composition import compose_boxes
from fxad.transforms.sparse.relation import (
    EMPTY,
    MAX_PAIRS,
    Box,
    Ints,
    Relation,
    StridedDim,
    bounding,
    box,
    identity,
    pairs,
    relation,
    table,
    union,
)


def compose(a: Relation, d: Relation, middle: int) -> Relation:
    """Return the pairs (i, j) with (i, m) in `a` and (m, j) in `d` for an element m of `middle` elements."""
    if a.empty or d.empty:
        return EMPTY
    equal_elements = identity(middle)
    if a == equal_elements or not middle:
        return d
    if not d.tables and d.boxes == equal_elements.boxes:
        return a
    parts: list[Relation] = []
    for x in a.boxes:
        for y in d.boxes:
            boxes = compose_boxes(x, y)
            parts.append(_compose_pairs_of(x, y) if boxes is None else Relation(frozenset(boxes)))
    for o, m in a.tables:
        for y in d.boxes:
            met = _look_up(m, y.out0, y.in0, list(y.dims))
            one_table = Relation(frozenset(), ((o, m),))
            parts.append(
                _compose_by_pairs(one_table, relation(y), middle) if met is None else table(o[met.present], met.others)
            )
        parts += [_compose_tables(o, m, k, i, middle) for k, i in d.tables]
    for m, i in d.tables:
        for x in a.boxes:
            met = _look_up(m, x.in0, x.out0, [(n, t, s) for n, s, t in x.dims])
            one_table = Relation(frozenset(), ((m, i),))
            parts.append(
                _compose_by_pairs(relation(x), one_table, middle) if met is None else table(met.others, i[met.present])
            )
    return union(*parts)


class _LookedUp(NamedTuple):
    """Which numbers a box has at one side, as a mask, and its numbers at the other side for these."""

    present: NDArray[np.bool_]
    others: Ints


def _look_up(m: Ints, start: int, other: int, dims: list[StridedDim]) -> _LookedUp | None:
    """Look up the numbers m at one side of a box: which are start + sum s k, and other + sum t k for these. None if the
    digits k of a number are not unique."""
    positive: list[StridedDim] = []  # the dims with positive strides
    for n, s, t in dims:
        if s < 0:
            start, other = start + s * (n - 1), other + t * (n - 1)
        positive.append((n, -s, -t) if s < 0 else (n, s, t))
    positive.sort(key=lambda u: -u[1])
    # the digits are unique if all smaller digits together are less than the stride of each digit
    for k, (_, s, _) in enumerate(positive):
        greatest_rest = sum([stride * (n - 1) for n, stride, _ in positive[k + 1 :]])
        if s == 0 or greatest_rest >= s:
            return None
    rest, value = np.subtract(m, start, dtype=np.int64), np.full(len(m), other, np.int64)
    present = np.ones(len(m), np.bool_)
    for n, s, t in positive:
        digit = rest if s == 1 else rest // s
        present &= (digit >= 0) & (digit < n)
        value += t * digit
        rest = rest - s * digit if s != 1 else np.zeros((), np.int64)
    present &= rest == 0
    return _LookedUp(present, value[present])


def _compose_pairs_of(x: Box, y: Box) -> Relation:
    """Compose two boxes by their pairs."""
    lo, hi = max(x.in_bounds[0], y.out_bounds[0]), min(x.in_bounds[1], y.out_bounds[1])
    return _compose_by_pairs(relation(x), relation(y), hi + 1) if lo <= hi else EMPTY


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
            matches = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(total)
            return table(np.repeat(o, counts), i[matches]) if total else EMPTY
    x, y = next(iter(bounding(a).boxes)), next(iter(bounding(d).boxes))
    return relation(box(x.out0, y.in0, [*[(n, s, 0) for n, s, _ in x.dims], *[(n, 0, t) for n, _, t in y.dims]]))
