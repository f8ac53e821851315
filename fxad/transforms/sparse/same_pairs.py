"""Equality of two relations, as sets of pairs, where there are too many pairs to be listed.

The parts of both in a window of results and operands are compared: first all, then halves of the longer side. For
example, x * sum(x) of four elements has the pairs of a dense block and of a diagonal, sin(x) those of the diagonal:

    d d d d    . . . .     all: the boxes differ, and both reach from the first to the last result and operand
    d d d d    .
    d d d d      .         results 0 and 1, operands 2 and 3: one part is a dense block, the other has no pair. So the
    d d d d        .       relations differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from fxad.transforms.sparse.relation import (
    Box,
    Relation,
    bounding,
    bounds,
    box,
    dense,
    pairs,
    relation,
    shifted,
    sorted_pair_numbers,
    transposed,
)  # fmt: skip

_MOST_LISTED: Final = 1 << 22  # pairs of a relation that are compared one by one


class _Window(NamedTuple):
    """The pairs of two relations in a window of so many results and operands. They are numbered from 0 in it."""

    n_results: int
    n_operands: int
    a: Relation
    b: Relation


def same_pairs(a: Relation, b: Relation, rows: int, columns: int) -> bool:
    """Return True if two relations of so many results (rows) and operands (columns) contain the same pairs.

    Cost: memory for `_MOST_LISTED` pairs. No time for windows in which both have the same boxes, one is empty, or
    their least or greatest numbers differ; where the boxes differ and the pairs do not, that of sorting the pairs.
    """
    waiting = [_Window(rows, columns, a, b)]
    while waiting:
        window = waiting.pop()
        same = _compared(window)
        if same is False:
            return False
        if same is None:
            waiting += _halves(window)
    return True


def _compared(window: _Window) -> bool | None:
    """Return True if the relations are equal in a window, False if they differ; None if its halves will tell."""
    a, b = _filled(window.a, window), _filled(window.b, window)
    if a.boxes == b.boxes and not a.tables and not b.tables:
        return True
    if bounding(a) != bounding(b):
        return False
    if max(a.pairs, b.pairs) > _MOST_LISTED:
        return None
    numbers_a, numbers_b = [sorted_pair_numbers([pairs(r)], window.n_operands) for r in (a, b)]
    return np.array_equal(numbers_a, numbers_b)


def _filled(r: Relation, window: _Window) -> Relation:
    """Return a dense block for a relation that contains it, beside other boxes of the same pairs."""
    block = dense(window.n_results, window.n_operands)
    return block if block.boxes <= r.boxes else r


def _halves(window: _Window) -> Iterator[_Window]:
    """Yield the two halves of a window, along its longer side."""
    n, m, a, b = window
    if n >= m:
        for start, end in ((0, n // 2), (n // 2, n)):
            yield _Window(end - start, m, _of_results(a, start, end), _of_results(b, start, end))
    else:
        for start, end in ((0, m // 2), (m // 2, m)):
            yield _Window(n, end - start, _of_operands(a, start, end), _of_operands(b, start, end))


def _of_operands(r: Relation, start: int, end: int) -> Relation:
    """Return the pairs of the operands from `start` to `end`, numbered from 0."""
    return transposed(_of_results(transposed(r), start, end))


def _of_results(r: Relation, start: int, end: int) -> Relation:
    """Return the pairs of the results from `start` to `end`, numbered from 0."""
    boxes = [part for b in r.boxes for part in _parts_of_box(b, start, end)]
    inside = [(start <= o) & (o < end) for o, _ in r.tables]
    tables = [(o[is_in], i[is_in]) for (o, i), is_in in zip(r.tables, inside, strict=True) if is_in.any()]
    return shifted(Relation(relation(*boxes).boxes, tuple(tables)), -start, 0)


def _parts_of_box(b: Box | None, start: int, end: int) -> Iterator[Box | None]:
    """Yield boxes of the pairs of a box whose results are from `start` to `end`.

    The outermost index numbers layers of the box. Layers that lie inside are one box; those that reach over an end are
    boxes whose parts are taken. Example: the results 10 p + q of 0 <= p < 5, 0 <= q < 3, from 11 to 32:

        p   0          1           2           3           4
            0 1 2      10 11 12    20 21 22    30 31 32    40 41 42
                       cut         inside      cut
    """
    b = None if b is None else box(*b)  # in canonical form: strides of results are not negative, the largest first
    if b is None:
        return
    first, last = b.out_bounds
    if last < start or end <= first:
        return
    if start <= first and last < end:
        yield b
        return
    (n, s, t), *inner = b.dims
    extent = bounds(0, [(m, stride) for m, stride, _ in inner])[1]  # of a layer, whose results are from out0 + s p on
    layers = range(n)
    touching = layers[max(0, _ceil_div(start - extent - b.out0, s)) : max(0, _ceil_div(end - b.out0, s))]
    inside = layers[max(0, _ceil_div(start - b.out0, s)) : max(0, _ceil_div(end - extent - b.out0, s))]
    if inside:
        p = inside[0]
        yield box(b.out0 + s * p, b.in0 + t * p, ((len(inside), s, t), *inner))
    for p in touching:
        if p not in inside:
            yield from _parts_of_box(box(b.out0 + s * p, b.in0 + t * p, inner), start, end)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
