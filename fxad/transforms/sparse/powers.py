"""Powers of a relation of some elements to themselves: what a loop makes of the relation of one step."""

from __future__ import annotations

from typing import Final

import numpy as np

from fxad.transforms.sparse.composition import compose
from fxad.transforms.sparse.relation import (
    EMPTY,
    Ints,
    Relation,
    box,
    dense,
    identity,
    pairs,
    relation,
    table,
    union,
)

_SMALL: Final = 512  # a relation of so many elements has a boolean matrix, whose powers are exact
_ROUNDS: Final = 12
_FEW_BOXES: Final = 64
_MOST_SHIFTS: Final = 2048


def powers(step: Relation, n: int, steps: int | None) -> tuple[Relation, Relation]:
    """Return (step^steps, the union of step^t for t < steps) of a relation on n elements; None: the union of all.

    Example: if a step makes element i from i + 1, then 3 steps make it from i + 3, and the states before them depend on
    i, i + 1 and i + 2.
    """
    one = identity(n)
    if steps is not None and steps <= 1:
        return (step, one) if steps == 1 else (one, EMPTY)
    if n <= _SMALL:
        return _dense_powers(step, n, steps)
    power, total, count = one, one, 0
    while steps is None or count < steps:
        if count > _ROUNDS or len(total.boxes) > _FEW_BOXES or total.tables:
            return _powers_of_shifts(step, n, steps) or (dense(n, n), dense(n, n))
        following = compose(step, power, n)
        count += 1
        if not following.tables and following.boxes <= total.boxes:
            # every later power is in the union
            return (following if following == power or count == steps else total), total
        power = following
        if count != steps:
            total = union(total, power)
    return power, total


def _powers_of_shifts(step: Relation, n: int, steps: int | None) -> tuple[Relation, Relation] | None:
    """Return whole diagonals that contain the powers of a stencil; None if `step` is none, or they are too many.

    All pairs of a box with equal strides have one shift i - o. The shifts of step^t are the sums of t of them.
    """
    if step.tables or steps is None or any([s != t for b in step.boxes for _, s, t in b.dims]):
        return None
    shifts = np.unique([b.in0 - b.out0 for b in step.boxes])
    power, total = _sums(shifts, steps, n), _sums(np.union1d(shifts, 0), steps - 1, n)
    if power is None or total is None:
        return None
    return _diagonals(power, n), _diagonals(total, n)


def _sums(shifts: Ints, count: int, n: int) -> Ints | None:
    """Return the sums of `count` shifts: those smaller than n, or the only one; None if there are too many."""
    total = np.zeros(1, np.int64)
    for bit in f"{count:b}":
        for other in (total, shifts) if bit == "1" else (total,):
            total = np.unique(total[:, None] + other)
            total = total[abs(total) < n] if total.size > 1 else total
            if len(total) > _MOST_SHIFTS:
                return None
    return total


def _diagonals(shifts: Ints, n: int) -> Relation:
    return relation(*[box(max(0, -k), max(0, k), ((n - abs(k), 1, 1),)) for k in shifts.tolist()])


def _dense_powers(step: Relation, n: int, steps: int | None) -> tuple[Relation, Relation]:
    """Return the powers by products of matrices of zeros and ones; a product counts paths, and the minimum with 1 says
    whether there is one.

    With P the power of k steps, and S the union of the powers below k: of 2 k steps they are P P and S + P S, of k + 1
    steps M P and S + P. For 5 steps, 101 in binary, k becomes 1, 2, 4, 5. Without an end (`steps` None), the squares of
    1 + M grow until they stay the same.
    """
    matrix = np.zeros((n, n), np.float32)
    o, i = pairs(step)
    matrix[o, i] = 1
    one = np.eye(n, dtype=np.float32)
    if steps is None:
        total = np.minimum(matrix + one, 1)
        while True:
            larger = np.minimum(total @ total, 1)
            if (larger == total).all():
                return _of_matrix(total), _of_matrix(total)
            total = larger
    power, total = one, np.zeros_like(one)
    for bit in f"{steps:b}":
        power, total = np.minimum(power @ power, 1), np.minimum(total + power @ total, 1)
        if bit == "1":
            power, total = np.minimum(matrix @ power, 1), np.minimum(total + power, 1)
    return _of_matrix(power), _of_matrix(total)


def _of_matrix(matrix: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Relation:
    if matrix.all():
        return dense(*matrix.shape)
    o, i = np.nonzero(matrix)
    return table(o, i)
