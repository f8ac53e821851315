"""The composition of two boxes, as boxes: an equation between two sums of strided indices, solved digit by digit.

The boxes (out0 + sum s p, a + sum s' p) and (d + sum t' q, in0 + sum t q) are composed by the solutions of

    a + sum s' p = d + sum t' q,       0 <= p_k < n_k,  0 <= q_k < m_k.

With one index on each side this is a linear Diophantine equation, whose solutions are one progression (`_solve_two`).
With more, both sides are written in a mixed radix, the strides, and digits are compared (`_solve`). Strides of which
none divides the other have no such digits: then one index is enumerated, if it is short.
"""

from __future__ import annotations

from math import gcd
from typing import Final, NamedTuple, TypeAlias

from fxad.transforms.sparse.relation import Box, StridedDim, StridedDims, bounds, box

_MOST_ENUMERATED: Final = 16  # values of an index, where strides do not fit

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
    free: list[StridedDim] = []  # the indices that are not at the middle
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
    solutions = _solve(a0, left, d0, right)
    if solutions is None:
        return None
    boxes = [box(out0 + o, in0 + i, (*free, *dims)) for o, i, dims in solutions]
    return [b for b in boxes if b is not None]


def _solve(a: int, left: _Side, d: int, right: _Side) -> list[_Solution] | None:
    """Return the solutions of a + sum s p = d + sum t q, as offsets and dims of the two other ends.

    Numbers with several indices are written as high * radix + low, where the radix is the greatest stride. As long as
    0 <= low < radix, numbers are equal if and only if both digits are. Strides that the radix divides belong to the
    high digit, smaller ones to the low digit, so the digits have different indices: the equation becomes one for the
    high digits and one for the low digits, and each pair of their solutions is a solution. `_digits_of` cuts a side
    into parts in which the low digit stays in its bounds, and each pair of parts is solved alone.

    Example: the slice m = 3 + p of 12 elements, for p < 10, of a transposed matrix, where m = 4 h + l is element
    h + 10 l, for h < 3 and l < 4. To the radix 4, the slice has three parts (see `_digits_of`), the matrix one, (h, l):

        digits of the slice     solutions                          boxes (p, h + 10 l)
        (0, 3)                  h = 0, l = 3; p = 0                Box(0, 30, ())
        (1 + i, j)              h = 1 + i, l = j; p = 1 + 4 i + j  Box(1, 1, ((2, 4, 1), (4, 1, 10)))
        (3, 0)                  none: h < 3

    >>> from fxad.transforms.sparse.box_composition import Box, compose_boxes
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
        left_parts, right_parts = _digits_of(a, left, radix), _digits_of(d, right, radix)
        if left_parts is not None and right_parts is not None:
            solutions: list[_Solution] = []
            for x in left_parts:
                for y in right_parts:  # numbers are equal if both of their digits are
                    high = _solve_high_digit(x.high, x.high_side, y.high, y.high_side)
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


def _solve_high_digit(a: int, left: _Side, d: int, right: _Side) -> list[_Solution] | None:
    """Solve for the high digit, whose strides are all 1, as the radix is the greatest stride: there is no other
    radix."""
    if len(left) <= 1 and len(right) <= 1:
        return _solve_two(a, left, d, right)
    return _enumerate(a, left, d, right)


def _enumerate(a: int, left: _Side, d: int, right: _Side) -> list[_Solution] | None:
    """Solve for each value of the index with the smallest count, if it is small."""
    indices = [*[(n, 0, k) for k, (n, _, _) in enumerate(left)], *[(n, 1, k) for k, (n, _, _) in enumerate(right)]]
    n, side, k = min(indices)
    if n > _MOST_ENUMERATED:
        return None
    solutions: list[_Solution] = []
    _, stride, other = (left, right)[side][k]
    for value in range(n):
        step = stride * value
        of_value = (
            _solve(a + step, [*left[:k], *left[k + 1 :]], d, right)
            if side == 0
            else _solve(a, left, d + step, [*right[:k], *right[k + 1 :]])
        )
        if of_value is None:
            return None
        solutions += [(o + other * value * (side == 0), i + other * value * (side == 1), u) for o, i, u in of_value]
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


def _digits_of(start: int, side: _Side, radix: int) -> list[_Digits] | None:
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
        with_rounds: _Side = [*high_side, (rounds, 1, other * in_round)]
        parts.append(_Digits(high, with_rounds, below, [(in_round, s, other), *rest], other * done))
        done, high = done + rounds * in_round, high + rounds
    if done < n:  # the start of a round
        parts.append(_Digits(high, high_side, below, [(n - done, s, other), *rest], other * done))
    return parts
