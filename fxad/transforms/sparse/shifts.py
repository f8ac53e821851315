"""Colourings of bands and stencils, from their shifts.

The colour of a point x is a . x mod K. It is valid if no shift between two columns that have to differ is a multiple of
K, so no element of the matrix is looked at. Where no row has more than K entries, K is the optimum.

Example: the five-point stencil of a grid has the shifts (0, 0), (+-1, 0) and (0, +-1). Its columns have the colours
x_1 + 2 x_2 mod 5: the residues of the shifts are 0, +-1 and +-2, which differ mod 5.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fxad.transforms.sparse.csr import BoolArray, Csr, Ints, MatrixShape, csr_of, no_colors, renumbered
from fxad.transforms.sparse.decompression import SYMMETRIC, Coloring, is_valid, one_sided
from fxad.transforms.sparse.greedy import greedy_columns

# A pattern with more than these is searched like any other, and not read as a band or stencil.
_MOST_PIECES: Final = 256  # boxes
_MOST_SHIFTS: Final = 64  # diagonals
# A colouring of a tile is repeated over the grid, for tiles of at most these extents along each axis.
_TILES: Final = (4, 5, 6, 7, 8, 12, 16)
_MOST_TILE_POINTS: Final = 20_000
# How many weights a (vectors of residues) are tried for one modulus K, and how many of them at once.
_MOST_WEIGHTS: Final = 200_000
_WEIGHTS_AT_ONCE: Final = 4096
# How many points near the edges of a grid are looked at for the one that has most shifts inside.
_MOST_PLACES: Final = 4096

Test: TypeAlias = Callable[[Ints, int], BoolArray]  # of rows of residues, and their modulus


def color_band(offsets: Sequence[int], shape: MatrixShape, kind: str) -> Coloring | None:
    """Return the colouring i mod K, for the smallest K that is valid for the band of the entries (i, i + k).

    Cost: none that grows with the size of the matrix, but for the arrays of colours.
    """
    m, n = shape
    present = [k for k in offsets if max(0, -k) < min(m, n - k)]
    if kind == "star" and present:  # neighbours differ, also where the diagonal is zero
        present = sorted({*present, 0})
    if kind == "acyclic":
        steps = np.array([[k] for k in present if k], np.int64).reshape(-1, 1)
        test = _in_trees(np.zeros((len(steps), len(steps)), np.bool_))
        coloring = _smallest_modulus(steps, np.ones(1, np.int64), 1 if present else 0, test)
    else:
        pairs = itertools.permutations(present, 2)
        if kind == "rows":
            met = {a - b for a, b in pairs if max(0, a, b) < min(n, m + a, m + b)}  # some column has both entries
        else:
            met = {a - b for a, b in pairs if max(0, -a, -b) < min(m, n - a, n - b)}  # some row has both entries
        steps = np.array(sorted(met), np.int64).reshape(-1, 1)
        coloring = _smallest_modulus(steps, np.ones(1, np.int64), 1 if present else 0, _differ_in_color)
    if coloring is None:
        return None
    modulus, _ = coloring
    rows = kind == "rows"
    colors = np.arange(m if rows else n, dtype=np.int32) % max(modulus, 1) if modulus else no_colors(m if rows else n)
    return one_sided(kind, shape, colors.astype(np.int32))


def color_stencil(
    offsets: Iterable[tuple[int, ...]], grid: tuple[int, ...], periodic: Sequence[bool], kind: str
) -> Coloring | None:
    """Return the colouring a . x mod K of the smallest K, or None."""
    size, zero = int(np.prod(grid)), (0,) * len(grid)
    present = _present(offsets, grid, periodic)
    if kind == "star" and present:  # neighbours differ, also where the diagonal is zero
        present = sorted({*present, zero})
    if not present:
        return one_sided(kind, (size, size), no_colors(size))
    if kind == "acyclic":
        steps = {k for k in present if k != zero}
    else:
        differences = [tuple([x - y for x, y in zip(a, b, strict=True)]) for a, b in itertools.permutations(present, 2)]
        steps = {*_present(differences, grid, periodic)} - {zero}
    periods = [(axis, grid[axis]) for axis in range(len(grid)) if periodic[axis]]
    array = np.array(sorted(steps), np.int64).reshape(-1, len(grid))
    least = fewest_of_stencil(offsets, grid, periodic, kind)
    test: Test = _differ_in_color
    if kind == "acyclic":
        straight = [axis for axis in range(len(grid)) if not periodic[axis]]
        closed = np.all(array[:, None, straight] == array[None, :, straight], axis=2)
        test = _in_trees(closed & ~np.eye(len(array), dtype=np.bool_))
    coloring = _linear_coloring(array, len(grid), least, periods, test)
    if coloring is None:
        return None
    modulus, weights = coloring
    total: npt.NDArray[Any] = np.zeros(grid, np.int32)
    for axis, extent in enumerate(grid):
        along = (int(weights[axis]) * np.arange(extent) % modulus).astype(np.int32)
        total = total + along.reshape([-1 if i == axis else 1 for i in range(len(grid))])
    return one_sided(kind, (size, size), renumbered((total % modulus).astype(np.int32).reshape(-1)))


def _present(
    offsets: Iterable[tuple[int, ...]], grid: tuple[int, ...], periodic: Sequence[bool]
) -> list[tuple[int, ...]]:
    """Return the different shifts that lead from some point of a grid to another of its points."""
    wrapped = {_wrap(k, grid, periodic) for k in offsets}
    return sorted(k for k in wrapped if all(abs(e) < s for e, s in zip(k, grid, strict=True)))


def fewest_of_stencil(
    offsets: Iterable[tuple[int, ...]], grid: tuple[int, ...], periodic: Sequence[bool], kind: str
) -> int:
    """Return a number of colours that the linear colourings of a stencil do not fall below."""
    present = _present(offsets, grid, periodic)
    if kind == "acyclic":
        return 1 + len([k for k in present if any(k)]) // 2 if present else 0
    return _most_at_once(present, grid, periodic)


def stencil_pattern(
    offsets: Iterable[tuple[int, ...]], grid: tuple[int, ...], periodic: Sequence[bool]
) -> tuple[Ints, Ints]:
    """Return the CSR arrays of the stencil of `color_grid`."""
    size = int(np.prod(grid))
    points = np.indices(grid, np.int64).reshape(len(grid), -1)
    rows, columns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for k in {_wrap(k, grid, periodic) for k in offsets}:
        to = points + np.array(k, np.int64)[:, None]
        inside = np.ones(size, np.bool_)
        for axis, extent in enumerate(grid):
            if periodic[axis]:
                to[axis] %= extent
            else:
                inside &= (to[axis] >= 0) & (to[axis] < extent)
        (x,) = np.nonzero(inside)
        rows.append(x)
        columns.append(np.ravel_multi_index(tuple(to[:, x]), grid))
    return csr_of(np.concatenate(rows), np.concatenate(columns), (size, size))


_Piece: TypeAlias = tuple[int, int, Sequence[tuple[int, int, int]]]  # a box of the module `relation`, as a tuple


class Stencil(NamedTuple):
    """A matrix of the entries (x, x + k), for shifts k, at points x of a grid."""

    shifts: tuple[tuple[int, ...], ...]
    grid: tuple[int, ...]

    @property
    def periodic(self) -> tuple[bool, ...]:
        """The axes along which some shift is that of an edge to the opposite edge."""
        return tuple([any([2 * abs(k[a]) > s for k in self.shifts]) for a, s in enumerate(self.grid)])


def stencil_of(boxes: Iterable[_Piece], size: int) -> Stencil | None:
    """Return the stencil that contains the entries (out0 + sum s p, in0 + sum t p) of some boxes of a square matrix.

    The grid has the strides of the boxes. A shift that is a multiple of them and divides the size is one of the grid
    too: it leads from one species to the next. None if the strides are not those of one grid, or a box has entries of
    several shifts.
    """
    pieces: list[_Piece] = []
    for out0, in0, dims in boxes:
        several = [(n, s, t) for n, s, t in dims if s != t]  # of species that depend on each other
        if len(pieces) + math.prod([n for n, _, _ in several]) > _MOST_PIECES:
            return None
        for at in itertools.product(*[range(n) for n, _, _ in several]):
            o, i = [sum([d[side] * k for d, k in zip(several, at, strict=True)]) for side in (1, 2)]
            pieces.append((out0 + o, in0 + i, [d for d in dims if d[1] == d[2]]))
    if not size:
        return None
    strides = {1, *[s for _, _, dims in pieces for _, s, _ in dims]}
    between = {abs(i - o) for o, i, _ in pieces} - {0}
    to_next_species = {k for k in between if not size % k and not k % max(strides)}
    return _on_grid(pieces, sorted(strides | to_next_species), size) or _on_grid(pieces, sorted(strides), size)


def _on_grid(pieces: Sequence[_Piece], strides: Sequence[int], size: int) -> Stencil | None:
    """Return the stencil of pieces on the grid whose axes have the strides; None if a piece is no block of it.

    Each dim (n, s, s) of a piece is a run of n points along the axis of stride s. A longer one than the axis goes on in
    the next line of the grid. Example: the strides 1 and 4, and size 12, are a grid of 3 lines of 4 points.

        piece                      points     covers
        (0, 1, [(3, 1, 1)])        0 to 2     axis 1: its entries (x, x + 1) have the shift (0, 1)
        (0, 4, [(8, 1, 1)])        0 to 7     8 = 2 * 4: the axis 1, and 2 lines along axis 0; the shift (1, 0)
        (1, 5, [(8, 1, 1)])        1 to 8     no block: it begins and ends within a line
        (0, 4, [(6, 1, 1)])        0 to 5     no block: one and a half lines
    """
    if any([b % a for a, b in itertools.pairwise((*strides, size))]) or len(strides) == 1:
        return None
    grid = tuple([b // a for a, b in itertools.pairwise((*strides, size))][::-1])
    shifts: set[tuple[int, ...]] = set()
    for out0, in0, dims in pieces:
        start, end = _coordinates(out0, grid), _coordinates(in0, grid)
        covered: list[int] = []  # the axes along which the piece extends, each by one dim
        for n, s, _ in dims:
            axis = len(strides) - 1 - strides.index(s)
            while n > grid[axis]:
                if n % grid[axis] or start[axis] or end[axis] or not axis:
                    return None  # these are no whole lines, or the grid ends
                covered.append(axis)
                n //= grid[axis]
                axis -= 1
            covered.append(axis)
            if max(start[axis], end[axis]) + n > grid[axis] or len(set(covered)) < len(covered):
                return None
        shifts.add(tuple([b - a for a, b in zip(start, end, strict=True)]))
    return Stencil(tuple(sorted(shifts)), grid)


def _coordinates(number: int, grid: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([int(k) for k in np.unravel_index(number, grid)])


def best_stencil_coloring(stencil: Stencil, kind: str) -> Coloring | None:
    """Return the colouring of fewest colours of these: a . x mod K with shifts around the grid, the same with those as
    long shifts, and a greedy colouring of a small torus repeated over the grid."""
    shifts, grid, periodic = stencil.shifts, stencil.grid, stencil.periodic
    colorings = [color_stencil(shifts, grid, a, kind) for a in sorted({periodic, (False,) * len(grid)})[::-1]]
    best = min([c for c in colorings if c is not None], key=lambda c: c.products, default=None)
    if kind in SYMMETRIC or (best is not None and best.products <= fewest_of_stencil(shifts, grid, periodic, kind)):
        return best
    return min([*([] if best is None else [best]), *_tiled(stencil, kind)], key=lambda c: c.products, default=None)


def _tiled(stencil: Stencil, kind: str) -> list[Coloring]:
    """Return colourings of columns or rows that repeat those of a small grid, a tile.

    A colouring of the tile is one of the grid if shifts that differ on the grid differ on the tile, and an axis that is
    closed on the grid has a multiple of its extent on the tile.
    """
    grid, periodic = stencil.grid, stencil.periodic
    present = {_wrap(k, grid, periodic) for k in stencil.shifts}
    colorings: list[Coloring] = []
    for most in _TILES:
        tile: list[int] = []
        closed: list[bool] = []
        for extent, wraps in zip(grid, periodic, strict=True):
            closed.append(wraps or extent > most)
            if closed[-1]:
                tile.append(max([d for d in range(1, most + 1) if not wraps or extent % d == 0]))
            else:
                tile.append(extent)
        shape, size = tuple(tile), int(np.prod(tile))
        if len({_wrap(k, shape, closed) for k in present}) < len(present) or size > _MOST_TILE_POINTS:
            continue
        pattern = Csr(*stencil_pattern(tuple(present), shape, closed), (size, size))
        colors = greedy_columns(pattern.transposed if kind == "rows" else pattern)
        places = np.ix_(*[np.arange(extent) % d for extent, d in zip(grid, tile, strict=True)])
        n_points = int(np.prod(grid))
        colorings.append(one_sided(kind, (n_points, n_points), renumbered(colors.reshape(shape)[places].reshape(-1))))
    return colorings


def color_shifts(pattern: Csr, kind: str, offsets: tuple[int, ...] | None) -> Coloring | None:
    """Return a colouring of a band, or of a stencil on a grid that the shifts suggest, or None."""
    if offsets is None:
        rows, columns = pattern.entries()
        some = np.unique(columns[:1000].astype(np.int64) - rows[:1000])
        if len(some) > _MOST_SHIFTS or not len(some):
            return None
        diagonals = np.nonzero(np.bincount(columns.astype(np.int64) - rows + pattern.shape[0]))[0] - pattern.shape[0]
        if len(diagonals) > _MOST_SHIFTS:
            return None
        offsets = tuple(diagonals.tolist())
    best = color_band(offsets, pattern.shape, kind)
    if best is not None and best.products <= fewest_needed(pattern, kind):
        return best
    strides = _strides(offsets)
    m, n = pattern.shape
    if m != n or len(strides) < 2 or any(b % a for a, b in itertools.pairwise(strides)):
        return best
    inner = [b // a for a, b in itertools.pairwise(strides)]
    grid = (-(-n // strides[-1]), *inner[::-1])
    shifts = [_shift_on_grid(k, strides) for k in offsets]
    found_on_grid = color_stencil(shifts, grid, (False,) * len(grid), kind)
    if found_on_grid is None or (best is not None and best.products <= found_on_grid.products):
        return best
    other = one_sided(kind, (n, n), renumbered((found_on_grid.rows if kind == "rows" else found_on_grid.columns)[:n]))
    return other if is_valid(other, pattern.indptr, pattern.indices) else best


def _shift_on_grid(k: int, strides: Sequence[int]) -> tuple[int, ...]:
    """Return the steps along the axes of a grid that make a shift of elements; -99 is (-1, 1) for strides (1, 100)."""
    shift: list[int] = []
    for stride in strides[::-1]:
        steps = round(k / stride)
        k -= steps * stride
        shift.append(steps)
    return tuple(shift)


def _strides(offsets: Sequence[int]) -> list[int]:
    """Return the strides of the grid whose stencil has these shifts: 1, and the middle of each cluster of them.

    The shifts along the inner axes reach from -r to r. One step along the next axis, of stride s, adds the shifts from
    s - r to s + r: a cluster is at most 2 r wide. A shift of up to 3 r is not the start of a cluster: so near, it
    belongs to a wide stencil of the inner axes.

    Example: the nine-point stencil of rows of 100 has the shifts -101 -100 -99, -1 0 1 and 99 100 101. The strides are
    1 and 100.
    """
    strides, reach = [1], 0
    positive = sorted({abs(k) for k in offsets if k})
    while positive:
        first = positive[0]
        cluster = [k for k in positive if k <= first + 2 * reach]
        if first > max(3 * reach, 1) and first > strides[-1]:
            middle = (cluster[0] + cluster[-1]) // 2
            strides.append(middle)
        else:
            cluster = [first]
        reach = cluster[-1]
        positive = [k for k in positive if k > reach]
    return strides


def _wrap(k: tuple[int, ...], grid: tuple[int, ...], periodic: Sequence[bool]) -> tuple[int, ...]:
    """Return a shift with its entries along periodic axes in -s/2 < e <= s/2."""
    return tuple((e + (s - 1) // 2) % s - (s - 1) // 2 if p else e for e, s, p in zip(k, grid, periodic, strict=True))


def _most_at_once(offsets: Sequence[tuple[int, ...]], grid: tuple[int, ...], periodic: Sequence[bool]) -> int:
    """Return the largest number of offsets that one point of a grid has inside of it."""
    best = 0
    reach = [max([abs(k[axis]) for k in offsets], default=0) for axis in range(len(grid))]
    # points farther from the edge than any offset reaches have all of them
    places = [
        [0] if p else sorted({*range(min(s, r + 1)), *range(max(0, s - r - 1), s)})
        for s, r, p in zip(grid, reach, periodic, strict=True)
    ]
    if np.prod([len(p) for p in places]) > _MOST_PLACES:
        return len(offsets)
    for point in itertools.product(*places):
        inside = [
            all(p or 0 <= x + e < s for x, e, s, p in zip(point, k, grid, periodic, strict=True)) for k in offsets
        ]
        best = max(best, sum(inside))
    return best


def _differ_in_color(steps: Ints, _modulus: int) -> BoolArray:
    """Return True for the rows of residues without a zero: columns that share a row differ in colour."""
    differ: BoolArray = np.all(steps != 0, axis=1)
    return differ


def _in_trees(closed: BoolArray) -> Test:
    """Return the test for the rows of residues that give an acyclic colouring.

    Neighbours differ in colour if no residue is zero. The entries between two colours that differ by s are the shifts
    with residue s. One shift gives pairs. Two, a and b, give paths of the steps a - b, which do not return, unless the
    pair is `closed`: all axes in which they differ are periodic. Three close a cycle: a - b + c - a + b - c.
    """

    def test(residues: Ints, modulus: int) -> BoolArray:
        proper: BoolArray = np.all(residues != 0, axis=1)
        most = np.zeros(len(residues), np.int64)
        for s in range(1, modulus):
            most = np.maximum(most, np.count_nonzero(residues == s, axis=1))
        cyclic = np.any((residues[:, :, None] == residues[:, None, :]) & closed, axis=(1, 2))
        proper &= (most <= 2) & ~cyclic
        return proper

    return test


def _smallest_modulus(steps: Ints, weights: Ints, least: int, test: Test) -> tuple[int, Ints] | None:
    """Return the smallest K for which the colours (weights . x) mod K pass the test."""
    if least == 0:
        return 0, weights
    for modulus in range(least, 4 * len(steps) + 8):
        if test((steps @ weights)[None] % modulus, modulus)[0]:
            return modulus, weights
    return None


def _linear_coloring(
    steps: Ints, ndim: int, least: int, periods: Sequence[tuple[int, int]], test: Test
) -> tuple[int, Ints] | None:
    """Return the smallest K, and the weights a, for which the colours a . x mod K pass the test and are periodic."""
    for modulus in range(max(least, 1), 2 * least + 8):
        if modulus**ndim > _MOST_WEIGHTS:
            return None
        weights = np.indices((modulus,) * ndim).reshape(ndim, -1).T
        for axis, extent in periods:
            weights = weights[weights[:, axis] * extent % modulus == 0]
        if not len(steps):
            return modulus, weights[0]
        for start in range(0, len(weights), _WEIGHTS_AT_ONCE):
            batch = weights[start : start + _WEIGHTS_AT_ONCE]
            (good,) = np.nonzero(test(batch @ steps.T % modulus, modulus))
            if len(good):
                return modulus, batch[good[0]]
    return None


def fewest_needed(pattern: Csr, kind: str) -> int:
    """Return a number of products with which a search for fewer ends."""
    fullest = int(pattern.counts().max(initial=0))
    if kind in SYMMETRIC:
        # Not a bound, but what stencils need: almost all rows are full, and greedy colourings of a grid are not better.
        least = fullest if kind == "star" else 1 + fullest // 2
        return least if 2 * len(pattern.indices) > fullest * pattern.shape[0] else min(2, fullest)
    return int((pattern.column_counts() if kind == "rows" else pattern.counts()).max(initial=0))
