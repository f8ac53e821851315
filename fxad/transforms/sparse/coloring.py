"""Colourings of sparsity patterns: which columns and rows of a Jacobian one product computes together.

Kinds
-----
A product of a Jacobian with the sum of several unit vectors gives the sum of several columns. It gives each entry of
these columns if they share no row. The kinds differ in what they ask of the columns (and rows) of one colour:

- "columns": two columns of one colour share no row. Each colour is one jvp.
- "rows": two rows of one colour share no column. Each colour is one vjp.
- "both": some columns and some rows have colours. An entry is read from a jvp or from a vjp.
- "star", for a symmetric matrix: neighbours differ in colour, and each path of four columns has three colours. An entry
  is read from the jvp of its column, or from that of its row.
- "acyclic", for a symmetric matrix: neighbours differ in colour, and each cycle has three colours. The entries of two
  colours form trees, which are solved from the leaves.

A pattern is a pair of CSR arrays: `indices[indptr[i]:indptr[i + 1]]` are the columns of row i, sorted, each once.

Source: A. H. Gebremedhin, F. Manne, A. Pothen, What Color Is Your Jacobian? SIAM Review 47 (2005), for the kinds and
their conditions; T. F. Coleman, A. Verma, The efficient computation of sparse Jacobian matrices using automatic
differentiation, SIAM J. Sci. Comput. 19 (1998), for "both"; J. C. Culberson, Iterated greedy graph coloring, UVic CS
(1992), for the repetitions. The greedy colouring of columns is SciPy's.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad.core.dataclasses import dataclass
from fxad.errors import ParameterError, ShapeError, shown

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Colors: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Shape: TypeAlias = tuple[int, int]
Test: TypeAlias = Callable[[Ints, int], Mask]  # of rows of residues, and their modulus

KINDS: Final = ("columns", "rows", "both", "star", "acyclic")
SYMMETRIC: Final = ("star", "acyclic")


@final
@dataclass(frozen=True, slots=True)
class Coloring:
    """The colours of the columns and of the rows of a matrix. A colour is one product; -1 is none.

    Law: equal if kind, shape and colours are equal. The arrays are read-only.
    """

    kind: str
    shape: Shape
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
    from_rows: Mask
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


# -------------------------------------------------------------------------------------------------------- interface


def color(
    indptr: Ints,
    indices: Ints,
    shape: Shape,
    kind: str | None = None,
    *,
    offsets: tuple[int, ...] | None = None,
    symmetric: bool = False,
) -> Coloring:
    """Return a colouring of a pattern.

    Without a `kind` it is the one of fewest products: columns before rows before both; for a `symmetric` pattern,
    columns before star, and no acyclic one, because its entries are not independent of each other. `offsets` says that
    the pattern is a band: its entries are all (i, i + k) for k in offsets.

    Law:    deterministic; `is_valid`. A band gets the fewest colours possible where i mod K is a colouring for them.
    Raises: ParameterError for an unknown kind, or for "star" or "acyclic" of a pattern that is not symmetric.
    Cost:   some passes of compiled code over the entries for each colour.
    """
    if kind is None:
        return _fewest_products(indptr, indices, shape, offsets, symmetric)
    if kind not in KINDS:
        raise ParameterError(f"color: unknown kind {shown(kind)}", remedy=f"one of {', '.join(KINDS)}, or None")
    pattern = _Pattern(indptr, indices, shape)
    if kind in SYMMETRIC and not symmetric:
        pattern.check_symmetric(kind)
    return _color(pattern, kind, offsets)


def color_band(offsets: Sequence[int], shape: Shape, kind: str) -> Coloring | None:
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
        found = _smallest_modulus(steps, np.ones(1, np.int64), 1 if present else 0, test)
    else:
        pairs = itertools.permutations(present, 2)
        met = {a - b for a, b in pairs if max(0, -a, -b) < min(m, n - a, n - b)} if kind != "rows" else {
            a - b for a, b in pairs if max(0, a, b) < min(n, m + a, m + b)
        }  # fmt: skip
        steps = np.array(sorted(met), np.int64).reshape(-1, 1)
        found = _smallest_modulus(steps, np.ones(1, np.int64), 1 if present else 0, _apart)
    if found is None:
        return None
    modulus, _ = found
    rows = kind == "rows"
    colors = np.arange(m if rows else n, dtype=np.int32) % max(modulus, 1) if modulus else _none(m if rows else n)
    return _one_sided(kind, shape, colors.astype(np.int32))


def color_grid(
    offsets: Sequence[tuple[int, ...]],
    grid: tuple[int, ...],
    kind: str = "columns",
    *,
    periodic: Sequence[bool] | None = None,
) -> Coloring:
    """Return a colouring of the matrix of a stencil on a grid: its entries are (x, x + k) for points x of the grid, in
    C order, and k in offsets. Points outside are left out, or wrap around along the `periodic` axes.

    Law:  the colour of x is a . x mod K, for the smallest K that has such an a, which is searched among the shifts; it
          is optimal where K is the number of offsets. If it is not, a greedy colouring may be better, and is taken.
    Cost: none that grows with the grid, but for the arrays of colours, if the first K is valid.
    """
    around = tuple(periodic) if periodic is not None else (False,) * len(grid)
    best = _color_stencil(offsets, grid, around, kind)
    size = int(np.prod(grid))
    if best is not None and best.products <= _fewest_of_stencil(offsets, grid, around, kind):
        return best
    greedy = _GREEDY[kind](_Pattern(*stencil_pattern(offsets, grid, around), (size, size)))
    return best if best is not None and best.products <= greedy.products else greedy


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


def csr_of(rows: Ints, columns: Ints, shape: Shape) -> tuple[Ints, Ints]:
    """Return the CSR arrays of a set of positions: sorted, each once."""
    matrix = _sparse().coo_array((np.ones(len(rows), np.bool_), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix.indptr, matrix.indices


def is_valid(coloring: Coloring, indptr: Ints, indices: Ints) -> bool:
    """Return True if each entry of a pattern is determined by the products of a colouring, as its kind says.

    Raises: ShapeError if the colouring is one of another shape.
    """
    pattern = _Pattern(indptr, indices, coloring.shape)
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
        repeated = ~_alone(v, colors[w], coloring.jvps)
        if coloring.kind == "star":
            # a path of two colours through the edge (v, w): v has another neighbour like w, and w another like v
            back = pattern.transposed_entry()[edge]
            again = np.zeros(len(rows), np.bool_)
            again[edge] = repeated
            return not np.any(repeated & again[back])
        return _trees(v, w, colors, coloring.jvps) is not None
    readable = np.zeros(len(rows), np.bool_)
    if coloring.kind in ("columns", "both"):
        (k,) = np.nonzero(coloring.columns[columns] >= 0)
        readable[k] = _alone(rows[k], coloring.columns[columns[k]], coloring.jvps)
    if coloring.kind in ("rows", "both"):
        (k,) = np.nonzero(coloring.rows[rows] >= 0)
        readable[k] |= _alone(columns[k], coloring.rows[rows[k]], coloring.vjps)
    return bool(np.all(readable))


def decompression(coloring: Coloring, indptr: Ints, indices: Ints) -> Decompression:
    """Return where each entry of a pattern stands in the products of a colouring of it.

    Raises: ParameterError if the products do not determine an entry: the colouring is one of another pattern.
    Cost:   some passes over the entries; for "acyclic", one for each level of the deepest tree.
    """
    _check_shape(coloring, indptr)
    pattern = _Pattern(indptr, indices, coloring.shape)
    rows, columns = pattern.entries()
    if coloring.kind == "acyclic":
        return _by_substitution(coloring, pattern)
    count = len(rows)
    chosen, position = np.full(count, -1, np.int32), np.zeros(count, np.int32)
    from_rows = np.zeros(count, np.bool_)
    (k,) = np.nonzero(coloring.columns[columns] >= 0)
    k = k[_alone(rows[k], coloring.columns[columns[k]], coloring.jvps)]
    chosen[k], position[k] = coloring.columns[columns[k]], rows[k]
    if coloring.kind == "star":
        (left,) = np.nonzero(chosen < 0)
        other = pattern.transposed_entry()[left]
        chosen[left], position[left] = chosen[other], position[other]
    elif coloring.vjps:
        (k,) = np.nonzero((chosen < 0) & (coloring.rows[rows] >= 0))
        (all_of,) = np.nonzero(coloring.rows[rows] >= 0)
        alone = np.zeros(count, np.bool_)
        alone[all_of] = _alone(columns[all_of], coloring.rows[rows[all_of]], coloring.vjps)
        k = k[alone[k]]
        chosen[k], position[k], from_rows[k] = coloring.rows[rows[k]], columns[k], True
    _check_determined(coloring, rows, columns, chosen < 0)
    return Decompression(_frozen(chosen), _frozen(position), _frozen(from_rows), (), None)


# ---------------------------------------------------------------------------------------------------------- patterns


def _sparse() -> Any:
    """SciPy is imported when the first pattern is coloured: its import takes longer than that of fxad."""
    return importlib.import_module("scipy.sparse")


class _Pattern:
    """A pattern, with the matrix of SciPy that its algorithms take."""

    def __init__(self, indptr: Ints, indices: Ints, shape: Shape) -> None:
        self.indptr, self.indices, self.shape = np.asarray(indptr), np.asarray(indices), shape
        if len(self.indptr) != shape[0] + 1:
            raise ShapeError(
                f"color: indptr has {len(self.indptr)} elements, a matrix of {shape[0]} rows has {shape[0] + 1}"
            )

    @property
    def transposed(self) -> _Pattern:
        m, n = self.shape
        csc = self.matrix().tocsc()
        return _Pattern(csc.indptr, csc.indices, (n, m))

    def matrix(self) -> Any:
        """Return the CSR matrix of the numbers of the entries."""
        numbers = np.arange(len(self.indices), dtype=np.int64)
        return _sparse().csr_array((numbers, self.indices, self.indptr), shape=self.shape)

    def counts(self) -> Ints:
        """Return the number of entries of each row."""
        return np.diff(self.indptr)

    def column_counts(self) -> Ints:
        return np.bincount(self.indices, minlength=self.shape[1])

    def entries(self) -> tuple[Ints, Ints]:
        """Return row and column of each entry."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), self.counts()), self.indices

    def transposed_entry(self) -> Ints:
        """Return, for each entry (i, j) of a symmetric pattern, the number of the entry (j, i)."""
        numbers: Ints = self.matrix().tocsc().data
        return numbers

    def is_symmetric(self) -> bool:
        if self.shape[0] != self.shape[1]:
            return False
        other = self.transposed
        return np.array_equal(other.indptr, self.indptr) and np.array_equal(other.indices, self.indices)

    def check_symmetric(self, kind: str) -> None:
        if not self.is_symmetric():
            raise ParameterError(
                f"color: a {kind} colouring is one of a symmetric pattern, and this one of shape {self.shape} is not",
                remedy='"columns", "rows" or "both"',
            )

    def without_diagonal(self) -> _Pattern:
        rows, columns = self.entries()
        kept = rows != columns
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=self.shape[0]))])
        return _Pattern(indptr, columns[kept], self.shape)

    def part(self, rows: Mask, columns: Mask) -> _Pattern:
        """Return the pattern of the same shape with the entries in some rows and columns."""
        i, j = self.entries()
        kept = rows[i] & columns[j]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(i[kept], minlength=self.shape[0]))])
        return _Pattern(indptr, j[kept], self.shape)

    def neighbours(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return the neighbours of some nodes: the place of the node in `nodes`, and the neighbour."""
        start = self.indptr[nodes]
        count = self.indptr[nodes + 1] - start
        ends = np.cumsum(count)
        owner = np.repeat(np.arange(len(nodes)), count)
        place = np.arange(len(owner)) + np.repeat(start - ends + count, count)
        return owner, self.indices[place]


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def _none(count: int) -> Colors:
    return np.full(count, -1, np.int32)


def _renumbered(colors: Colors) -> Colors:
    """Return the same classes with the numbers 0, 1, ..., in the order of the old ones; -1 is kept."""
    used = np.unique(colors[colors >= 0])
    return np.where(colors < 0, np.int32(-1), np.searchsorted(used, colors).astype(np.int32))


def _one_sided(kind: str, shape: Shape, colors: Colors) -> Coloring:
    m, n = shape
    columns, rows = (_none(n), colors) if kind == "rows" else (colors, _none(m))
    return Coloring(kind, shape, _frozen(columns), _frozen(rows))


def _check_shape(coloring: Coloring, indptr: Ints) -> None:
    if len(indptr) != coloring.shape[0] + 1:
        raise ShapeError(
            f"coloring: it is one of a matrix of shape {coloring.shape}, and the pattern has {len(indptr) - 1} rows",
            remedy="color the pattern that is decompressed",
        )


def _check_determined(coloring: Coloring, rows: Ints, columns: Ints, missing: Mask) -> None:
    if np.any(missing):
        k = int(np.argmax(missing))
        raise ParameterError(
            f"coloring: {coloring!r} does not determine the entry ({rows[k]}, {columns[k]}) of this pattern",
            remedy="color the pattern that is decompressed",
        )


def _alone(lines: Ints, colors: Colors, number: int) -> Mask:
    """Return, for entries in `lines` with colours, True where no other entry of the line has the colour."""
    if not len(lines):
        return np.zeros(0, np.bool_)
    key = lines.astype(np.int64) * max(number, 1) + colors
    if int(lines.max() + 1) * number <= 8 * len(lines) + 1_000_000:
        alone: Mask = np.bincount(key)[key] == 1
        return alone
    _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
    return np.equal(count, 1)[inverse]


def _fewest(pattern: _Pattern, kind: str) -> int:
    """Return a number of products with which a search for fewer ends."""
    fullest = int(pattern.counts().max(initial=0))
    if kind in SYMMETRIC:
        # Not a bound, but what stencils need: almost all rows are full, and greedy colourings of a grid are not better.
        least = fullest if kind == "star" else 1 + fullest // 2
        return least if 2 * len(pattern.indices) > fullest * pattern.shape[0] else min(2, fullest)
    return int((pattern.column_counts() if kind == "rows" else pattern.counts()).max(initial=0))


def _color(pattern: _Pattern, kind: str, offsets: tuple[int, ...] | None = None) -> Coloring:
    """Return a colouring from the shifts of a pattern, or a greedy one if that may be better."""
    found = None if kind == "both" else _color_shifts(pattern, kind, offsets)
    if found is not None and found.products <= _fewest(pattern, kind):
        return found
    other = _GREEDY[kind](pattern)
    return found if found is not None and found.products <= other.products else other


def _fewest_products(
    indptr: Ints, indices: Ints, shape: Shape, offsets: tuple[int, ...] | None, symmetric: bool
) -> Coloring:
    pattern = _Pattern(indptr, indices, shape)
    best = color(indptr, indices, shape, "columns", offsets=offsets)
    if not symmetric and _fewest(pattern, "rows") < best.products:
        other = color(indptr, indices, shape, "rows", offsets=offsets)
        best = min(best, other, key=lambda c: c.products)
    if symmetric and best.products > 3:
        other = color(indptr, indices, shape, "star", offsets=offsets, symmetric=True)
        best = min(best, other, key=lambda c: c.products)
    if _dense_lines(pattern.counts())[1] < best.products or _dense_lines(pattern.column_counts())[1] < best.products:
        best = min(best, _color_both(pattern, best), key=lambda c: c.products)
    return best


# ------------------------------------------------------------------------------------------- bands and stencils


def _color_stencil(
    offsets: Iterable[tuple[int, ...]], grid: tuple[int, ...], around: Sequence[bool], kind: str
) -> Coloring | None:
    """Return the colouring a . x mod K of the smallest K, or None."""
    size, zero = int(np.prod(grid)), (0,) * len(grid)
    present = _present(offsets, grid, around)
    if kind == "star" and present:  # neighbours differ, also where the diagonal is zero
        present = sorted({*present, zero})
    if not present:
        return _one_sided(kind, (size, size), _none(size))
    if kind == "acyclic":
        steps = {k for k in present if k != zero}
    else:
        differences = [tuple([x - y for x, y in zip(a, b, strict=True)]) for a, b in itertools.permutations(present, 2)]
        steps = {*_present(differences, grid, around)} - {zero}
    periods = [(axis, grid[axis]) for axis in range(len(grid)) if around[axis]]
    array = np.array(sorted(steps), np.int64).reshape(-1, len(grid))
    least = _fewest_of_stencil(offsets, grid, around, kind)
    test: Test = _apart
    if kind == "acyclic":
        straight = [axis for axis in range(len(grid)) if not around[axis]]
        closed = np.all(array[:, None, straight] == array[None, :, straight], axis=2)
        test = _in_trees(closed & ~np.eye(len(array), dtype=np.bool_))
    found = _linear_coloring(array, len(grid), least, periods, test)
    if found is None:
        return None
    modulus, weights = found
    total: npt.NDArray[Any] = np.zeros(grid, np.int32)
    for axis, extent in enumerate(grid):
        along = (int(weights[axis]) * np.arange(extent) % modulus).astype(np.int32)
        total = total + along.reshape([-1 if i == axis else 1 for i in range(len(grid))])
    return _one_sided(kind, (size, size), _renumbered((total % modulus).astype(np.int32).reshape(-1)))


def _present(
    offsets: Iterable[tuple[int, ...]], grid: tuple[int, ...], around: Sequence[bool]
) -> list[tuple[int, ...]]:
    """Return the different shifts that lead from some point of a grid to another of its points."""
    wrapped = {_wrap(k, grid, around) for k in offsets}
    return sorted(k for k in wrapped if all(abs(e) < s for e, s in zip(k, grid, strict=True)))


def _fewest_of_stencil(
    offsets: Iterable[tuple[int, ...]], grid: tuple[int, ...], around: Sequence[bool], kind: str
) -> int:
    """Return a number of colours that the linear colourings of a stencil do not fall below."""
    present = _present(offsets, grid, around)
    if kind == "acyclic":
        return 1 + len([k for k in present if any(k)]) // 2 if present else 0
    return _most_at_once(present, grid, around)


_MOST_SHIFTS: Final = 64


def _color_shifts(pattern: _Pattern, kind: str, offsets: tuple[int, ...] | None) -> Coloring | None:
    """Return a colouring of a band, or of a stencil on a grid that the shifts suggest, or None."""
    if offsets is None:
        rows, columns = pattern.entries()
        some = np.unique(columns[:1000].astype(np.int64) - rows[:1000])
        if len(some) > _MOST_SHIFTS or not len(some):
            return None
        found = np.nonzero(np.bincount(columns.astype(np.int64) - rows + pattern.shape[0]))[0] - pattern.shape[0]
        if len(found) > _MOST_SHIFTS:
            return None
        offsets = tuple(found.tolist())
    best = color_band(offsets, pattern.shape, kind)
    if best is not None and best.products <= _fewest(pattern, kind):
        return best
    strides = _strides(offsets)
    m, n = pattern.shape
    if m != n or len(strides) < 2 or any(b % a for a, b in itertools.pairwise(strides)):
        return best
    inner = [b // a for a, b in itertools.pairwise(strides)]
    grid = (-(-n // strides[-1]), *inner[::-1])
    shifts = []
    for k in offsets:
        shift = []
        for stride in strides[::-1]:
            steps = round(k / stride)
            k -= steps * stride
            shift.append(steps)
        shifts.append(tuple(shift))
    found_on_grid = _color_stencil(shifts, grid, (False,) * len(grid), kind)
    if found_on_grid is None or (best is not None and best.products <= found_on_grid.products):
        return best
    other = _one_sided(kind, (n, n), _renumbered((found_on_grid.rows if kind == "rows" else found_on_grid.columns)[:n]))
    return other if is_valid(other, pattern.indptr, pattern.indices) else best


def _strides(offsets: Sequence[int]) -> list[int]:
    """Return the strides of the grid whose stencil has these shifts: 1, and the middle of each cluster of them."""
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


def _wrap(k: tuple[int, ...], grid: tuple[int, ...], around: Sequence[bool]) -> tuple[int, ...]:
    """Return a shift with its entries along periodic axes in -s/2 < e <= s/2."""
    return tuple((e + (s - 1) // 2) % s - (s - 1) // 2 if p else e for e, s, p in zip(k, grid, around, strict=True))


def _most_at_once(offsets: Sequence[tuple[int, ...]], grid: tuple[int, ...], around: Sequence[bool]) -> int:
    """Return the largest number of offsets that one point of a grid has inside of it."""
    best = 0
    reach = [max([abs(k[axis]) for k in offsets], default=0) for axis in range(len(grid))]
    # points farther from the edge than any offset reaches have all of them
    places = [
        [0] if p else sorted({*range(min(s, r + 1)), *range(max(0, s - r - 1), s)})
        for s, r, p in zip(grid, reach, around, strict=True)
    ]
    if np.prod([len(p) for p in places]) > 4096:
        return len(offsets)
    for point in itertools.product(*places):
        inside = [all(p or 0 <= x + e < s for x, e, s, p in zip(point, k, grid, around, strict=True)) for k in offsets]
        best = max(best, sum(inside))
    return best


def _apart(steps: Ints, _modulus: int) -> Mask:
    """Return True for the rows of residues without a zero: columns that share a row differ in colour."""
    apart: Mask = np.all(steps != 0, axis=1)
    return apart


def _in_trees(closed: Mask) -> Test:
    """Return the test for the rows of residues that give an acyclic colouring.

    Neighbours differ in colour if no residue is zero. The entries between two colours that differ by s are the shifts
    with residue s. One shift gives pairs. Two, a and b, give paths of the steps a - b, which do not return, unless the
    pair is `closed`: all axes in which they differ are periodic. Three close a cycle: a - b + c - a + b - c.
    """

    def test(residues: Ints, modulus: int) -> Mask:
        proper: Mask = np.all(residues != 0, axis=1)
        most = np.zeros(len(residues), np.int64)
        for s in range(1, modulus):
            most = np.maximum(most, np.count_nonzero(residues == s, axis=1))
        cyclic = np.any((residues[:, :, None] == residues[:, None, :]) & closed, axis=(1, 2))
        return proper & (most <= 2) & ~cyclic

    return test


def _smallest_modulus(steps: Ints, weights: Ints, least: int, test: Test) -> tuple[int, Ints] | None:
    """Return the smallest K for which the colours (weights . x) mod K pass the test."""
    if least == 0:
        return 0, weights
    for modulus in range(least, 4 * len(steps) + 8):
        if test((steps @ weights)[None] % modulus, modulus)[0]:
            return modulus, weights
    return None


_CANDIDATES: Final = 200_000  # weights that are tried for one modulus


def _linear_coloring(
    steps: Ints, ndim: int, least: int, periods: Sequence[tuple[int, int]], test: Test
) -> tuple[int, Ints] | None:
    """Return the smallest K, and the weights a, for which the colours a . x mod K pass the test and are periodic."""
    for modulus in range(max(least, 1), 2 * least + 8):
        if modulus**ndim > _CANDIDATES:
            return None
        weights = np.indices((modulus,) * ndim).reshape(ndim, -1).T
        for axis, extent in periods:
            weights = weights[weights[:, axis] * extent % modulus == 0]
        if not len(steps):
            return modulus, weights[0]
        for at in range(0, len(weights), 4096):
            some = weights[at : at + 4096]
            (good,) = np.nonzero(test(some @ steps.T % modulus, modulus))
            if len(good):
                return modulus, some[good[0]]
    return None


# ------------------------------------------------------------------------------------------------- columns and rows

_MOST_WORK: Final = 1_000_000_000  # comparisons of a greedy colouring, about twenty seconds


def _greedy_columns(pattern: _Pattern) -> Colors:
    """Return a colouring of the columns: those of one colour share no row. Columns without entries have none.

    Each greedy colouring takes the columns in an order, and gives each the first colour that is free. The orders are
    the natural one, most entries first, and then the classes of the best colouring so far: with each class together
    the number of colours does not grow.
    """
    m, n = pattern.shape
    matrix = pattern.matrix().tocsc()
    count = np.diff(matrix.indptr)
    least = int(pattern.counts().max(initial=0))
    (used,) = np.nonzero(count)
    colors = _none(n)
    if least <= 1:
        colors[used] = 0
        return colors
    if least * (len(used) + m) > _MOST_WORK or least == len(used):
        colors[used] = np.arange(len(used))  # a dense row: hardly any two columns share a product
        return colors
    group = importlib.import_module("scipy.optimize._numdiff").group_columns
    matrix = _sparse().csc_array(
        (np.ones(len(matrix.indices), np.int8), matrix.indices, matrix.indptr), shape=pattern.shape
    )[:, used]
    weight = _crowding(pattern)[used]
    best = np.asarray(group(matrix, np.arange(len(used))), np.int32)
    repetitions = int(np.clip(30_000_000 // ((least + 1) * (len(used) + m)), 2, 60))
    for k in range(2 + repetitions):
        if int(best.max()) + 1 == least:
            break
        order: Ints
        if k == 0:
            order = np.argsort(-weight, kind="stable")
        elif k == 1:
            if weight.sum() > _MOST_ENTRIES:
                continue
            order = _smallest_last(_meeting(matrix))
        else:
            order = _class_order(best, weight, k)
        other = np.asarray(group(matrix, order), np.int32)
        best = other if other.max() <= best.max() else best
    colors[used] = best
    return colors


def _crowding(pattern: _Pattern) -> npt.NDArray[np.float64]:
    """Return, for each column, the number of other entries in its rows: its degree, with repetitions."""
    i, j = pattern.entries()
    weights = (pattern.counts() - 1)[i].astype(np.float64)
    return np.bincount(j, weights, pattern.shape[1]).astype(np.float64)


_MOST_ENTRIES: Final = 5_000_000  # of the graph of columns that share a row, if it is made


def _meeting(matrix: Any) -> _Pattern:
    """Return the graph of the columns that share a row."""
    ones = matrix.astype(np.int32)
    product = (ones.T @ ones).tocsr()
    product.sort_indices()
    return _Pattern(product.indptr, product.indices, product.shape).without_diagonal()


def _smallest_last(graph: _Pattern) -> Ints:
    """Return the nodes in the order in which each has few neighbours before it: those of smallest degree come last.

    In a large graph, all nodes of the smallest degree among the rest are taken off at once.
    """
    at_once = len(graph.indptr) if len(graph.indptr) > _ONE_BY_ONE else 1
    degree = graph.counts().astype(np.int64)
    taken: list[Ints] = []
    rest = np.arange(len(degree))
    while len(rest):
        low = np.nonzero(degree[rest] == degree[rest].min())[0][:at_once]
        some = rest[low]
        taken.append(some[::-1])
        degree[some] = -1
        _, w = graph.neighbours(some)
        degree -= np.bincount(w, minlength=len(degree))
        rest = np.delete(rest, low)
    return np.concatenate([*taken, np.zeros(0, np.int64)])[::-1].astype(np.int64)


def _class_order(colors: Colors, weight: npt.NDArray[Any], k: int) -> Ints:
    """Return an order in which the classes of a colouring stay together: reversed, the largest first, or shuffled."""
    number = int(colors.max()) + 1
    sizes = np.bincount(colors, minlength=number)
    if k % 3 == 1:
        rank = np.arange(number)[::-1]
    elif k % 3 == 2:
        rank = np.argsort(np.argsort(sizes, kind="stable"), kind="stable")
    else:
        rank = np.random.default_rng(k).permutation(number)
    return np.lexsort((-weight, rank[colors]))


def _color_columns(pattern: _Pattern) -> Coloring:
    return _one_sided("columns", pattern.shape, _greedy_columns(pattern))


def _color_rows(pattern: _Pattern) -> Coloring:
    return _one_sided("rows", pattern.shape, _greedy_columns(pattern.transposed))


# --------------------------------------------------------------------------------------------------------------- both


def _dense_lines(counts: Ints) -> tuple[int, int]:
    """Return how many of the fullest lines to take out, and the products if each takes one and the rest its fullest."""
    falling = np.sort(counts)[::-1]
    products = np.arange(len(counts) + 1) + np.concatenate([falling, [0]])
    k = int(np.argmin(products))
    return k, int(products[k])


def _columns_of(pattern: _Pattern) -> Colors:
    """Return the colours of the columns. Columns without entries have none."""
    return np.where(pattern.column_counts() > 0, _color(pattern, "columns").columns, np.int32(-1))


def _color_both(pattern: _Pattern, best: Coloring | None = None) -> Coloring:
    """Return a colouring of the rows with many entries, and one of the columns without those rows; or the other way.

    How many lines are taken out is tried for the numbers that promise the fewest products.
    """
    m, n = pattern.shape
    if best is None:
        best = min([_color(pattern, "columns"), _color(pattern, "rows")], key=lambda c: c.products)
    fewest = best.products
    found = Coloring("both", pattern.shape, best.columns, best.rows)
    for flipped in (False, True):
        this = pattern.transposed if flipped else pattern
        counts = this.counts()
        order = np.argsort(-counts, kind="stable")
        falling = np.concatenate([counts[order], [0]])
        promised = np.arange(len(falling)) + falling
        # only where the number of entries falls, or a line of equal length is left
        (steps,) = np.nonzero(np.diff(falling, prepend=falling[0] + 1) < 0)
        for k in sorted(steps[np.argsort(promised[steps], kind="stable")][:4]):
            if k == 0 or falling[k] + 1 >= fewest:
                continue
            taken = np.zeros(this.shape[0], np.bool_)
            taken[order[:k]] = True
            every = np.ones(this.shape[1], np.bool_)
            columns = _columns_of(this.part(~taken, every))
            if columns.max(initial=-1) + 1 >= fewest:
                continue
            rows = _columns_of(this.part(taken, every).transposed)
            products = int(columns.max(initial=-1) + rows.max(initial=-1)) + 2
            if products < fewest:
                fewest = products
                pair = (rows, columns) if flipped else (columns, rows)
                found = Coloring("both", (m, n), _frozen(pair[0]), _frozen(pair[1]))
    return found


# -------------------------------------------------------------------------------------------------- star and acyclic


def _paths(counts: Ints) -> int:
    return int(np.square(counts, dtype=np.int64).sum())


def _color_symmetric(pattern: _Pattern, kind: str) -> Coloring:
    """Return a star or an acyclic colouring.

    The columns with many entries are taken out if this promises fewer colours. They have colours of their own, such
    that no column has two neighbours of one of these colours; so no path and no cycle of two colours goes through
    them. The rest is coloured in batches, see `_in_batches`. A colouring of the columns is a star colouring too, and a
    star colouring is acyclic; the fewest colours are taken.
    """
    n = pattern.shape[0]
    # with the diagonal, neighbours share a row, so that they differ in each of the colourings below
    i, j = pattern.entries()
    used = np.unique(i)
    pattern = _Pattern(*csr_of(np.concatenate([i, used]), np.concatenate([j, used]), pattern.shape), pattern.shape)
    counts = pattern.counts()
    every = np.ones(n, np.bool_)
    best: Colors | None = None
    promised, _ = _dense_lines(counts)
    for k in sorted({0, promised}):
        hub = np.zeros(n, np.bool_)
        hub[np.argsort(-counts, kind="stable")[:k]] = True
        if k == 0 and promised and _paths(counts) > _MOST_PATHS:
            continue
        rest = pattern.part(~hub, ~hub)
        separate = _greedy_columns(rest)
        options = [separate, *_in_batches(rest, separate, kind)]
        colors = min(options, key=lambda c: int(c.max(initial=-1)))
        if k:
            hubs = _greedy_columns(pattern.part(every, hub))
            colors = np.where(hubs >= 0, hubs + (int(colors.max(initial=-1)) + 1), colors)
        # a column without entries among the rest may have some in rows that were taken out
        (bare,) = np.nonzero((colors < 0) & (counts > 0))
        colors[bare] = 0
        colors = _renumbered(colors.astype(np.int32))
        if best is None or colors.max() < best.max():
            best = colors
    assert best is not None
    return _one_sided(kind, pattern.shape, best)


_MOST_PATHS: Final = 100_000_000  # pairs of neighbours of a column, about ten seconds
_MOST_COUNTS: Final = 400_000_000  # elements of the table of colours of neighbours


def _in_batches(pattern: _Pattern, separate: Colors, kind: str) -> list[Colors]:
    """Return greedy star or acyclic colourings that take many columns at once.

    A batch is a class of a colouring of the columns: two of its members have distance three or more, so their colours
    seldom exclude each other. The orders of the batches are: most neighbours first, by columns and by classes, and the
    classes of the best colouring so far. A small graph is coloured one column at a time as well, in natural order, most
    neighbours first, and smallest degree last.
    """
    graph = pattern.without_diagonal()
    paths = _paths(graph.counts())
    if not paths or paths > _MOST_PATHS or len(separate) * (int(separate.max()) + 2) > _MOST_COUNTS:
        return []
    degree = graph.counts().astype(np.int64)
    number = int(separate.max()) + 1
    (used,) = np.nonzero(separate >= 0)
    largest = np.zeros(number, np.int64)
    np.maximum.at(largest, separate[used], degree[used])
    keys = [(int(degree.max()) - degree) * number + separate, _rank(-largest)[separate]]
    if paths > _MOST_PATHS // 10:
        keys = keys[:1] if kind == "star" else keys[1:]
    if len(used) <= _ONE_BY_ONE:
        keys += [np.arange(len(degree)), _rank(-degree), np.argsort(_smallest_last(graph))]
    repetitions = int(np.clip(20_000_000 // paths, 2 if kind == "star" else 0, 12))
    results: list[Colors] = []
    for k in range(len(keys) + repetitions):
        if k < len(keys):
            key = keys[k]
        else:  # classes of the best so far, each split so that a batch keeps its distances
            best = min(results, key=lambda c: int(c.max()))
            classes = int(best.max()) + 1
            sizes = np.bincount(best[used], minlength=classes)
            order = [np.arange(classes)[::-1], -sizes, np.random.default_rng(k).permutation(classes)][k % 3]
            key = _rank(order)[best] * np.int64(number) + separate
        batches = (used[np.argsort(key[used], kind="stable")], np.sort(key[used]))
        results.append(_star_batches(graph, *batches) if kind == "star" else _acyclic_batches(graph, *batches))
    return results


_ONE_BY_ONE: Final = 1_500


def _rank(values: Ints) -> Ints:
    """Return the place of each value in ascending order; equal values keep their order."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def _batches(nodes: Ints, keys: Ints) -> Iterable[Ints]:
    starts = np.concatenate([[0], np.nonzero(np.diff(keys))[0] + 1, [len(keys)]])
    return [nodes[first:last] for first, last in itertools.pairwise(starts)]


def _star_batches(graph: _Pattern, nodes: Ints, keys: Ints) -> Colors:
    """Return the greedy star colouring that takes the nodes of equal key together, in order.

    Two nodes of a batch are in the way of each other only at the ends of a path v - a - b - w, with equal colours of v
    and b, and of w and a. Then the later one is coloured again.
    """
    n = graph.shape[0]
    colors = _none(n)
    seen = np.zeros((n, 8), np.int32)  # how many neighbours have each colour
    mate = np.full(n, -1, np.int64)  # the node of the batch beside a node
    number = 0
    for batch in _batches(nodes, keys):
        while len(batch):
            owner, w = graph.neighbours(batch)
            known = colors[w] >= 0
            taken = np.zeros((len(batch), number + 1), np.bool_)
            taken[owner[known], colors[w[known]]] = True
            # paths v - a - b, where b has a colour
            middle, b = graph.neighbours(w[known])
            v, a = owner[known][middle], w[known][middle]
            kept = colors[b] >= 0
            v, a, b = v[kept], a[kept], b[kept]
            closing = (seen[batch[v], colors[a]] >= 2) | (seen[b, colors[a]] >= 2)
            taken[v[closing], colors[b[closing]]] = True
            chosen = np.argmin(taken, axis=1).astype(np.int32)
            if int(chosen.max()) == number:
                number += 1
                if number >= seen.shape[1]:
                    seen = np.concatenate([seen, np.zeros_like(seen)], axis=1)
            colors[batch] = chosen
            seen[w, chosen[owner]] += 1
            mate[w] = batch[owner]
            other = mate[b]
            (k,) = np.nonzero((other >= 0) & (colors[b] == chosen[v]) & (other != batch[v]))
            k = k[colors[other[k]] == colors[a[k]]]
            late = np.unique(np.maximum(batch[v[k]], other[k]))
            mate[w] = -1
            undone, w = graph.neighbours(late)
            seen[w, colors[late][undone]] -= 1
            colors[late] = -1
            batch = late
    return colors


def _acyclic_batches(graph: _Pattern, nodes: Ints, keys: Ints) -> Colors:
    """Return the greedy acyclic colouring that takes the nodes of equal key together, in order.

    A node may not have a colour for which two of its neighbours of one colour are in one tree. The trees are sets of
    ends, see `_trees`, kept as a forest of parents. Where the nodes of a batch close a cycle together, all but the
    first of each component are coloured again.
    """
    n = graph.shape[0]
    colors = _none(n)
    width = 8
    parent = np.arange(n * width)  # of the end (column, colour of the other column), at column * width + colour
    number = 0
    for batch in _batches(nodes, keys):
        while len(batch):
            owner, w = graph.neighbours(batch)
            known = colors[w] >= 0
            owner, w = owner[known], w[known]
            q = colors[w].astype(np.int64)
            taken = np.zeros((len(batch), number + 1), np.bool_)
            taken[owner, q] = True
            group = owner * np.int64(max(number, 1)) + q
            (r,) = np.nonzero(~_alone(owner, colors[w], max(number, 1)))
            if len(r) and number:
                # the trees of neighbours of one colour, for each further colour
                tree = _roots(parent, w[r, None] * np.int64(width) + np.arange(number))
                key = np.stack([np.broadcast_to(group[r, None], tree.shape).reshape(-1), tree.reshape(-1)])
                order = np.lexsort(key)
                same = np.all(key[:, order[1:]] == key[:, order[:-1]], axis=0)
                twice = order[1:][same]
                taken[owner[r[twice // number]], twice % number] = True
            chosen = np.argmin(taken, axis=1).astype(np.int64)
            if int(chosen.max()) == number:
                number += 1
                if number >= width:
                    grown = np.arange(n * width * 2).reshape(n, 2 * width)
                    grown[:, :width] = (parent // width * 2 * width + parent % width).reshape(n, width)
                    parent, width = grown.reshape(-1), 2 * width
            # the new entries join the ends of their batch with trees
            own = batch[owner] * np.int64(width) + q
            tree = _roots(parent, w * np.int64(width) + chosen[owner])
            ends, inverse = np.unique(np.concatenate([own, tree]), return_inverse=True)
            x, y = inverse[: len(own)], inverse[len(own) :]
            label = _components(x, y, len(ends))
            cyclic = (np.bincount(label[x], minlength=len(ends)) >= np.bincount(label, minlength=len(ends)))[label[x]]
            late = np.zeros(len(batch), np.bool_)
            if np.any(cyclic):
                first = np.full(len(ends), len(batch))
                np.minimum.at(first, label[x[cyclic]], owner[cyclic])
                late[owner[cyclic][owner[cyclic] != first[label[x[cyclic]]]]] = True
                stays = ~late[owner]
                label = _components(x[stays], y[stays], len(ends))
            if len(ends):
                least = np.full(len(ends), ends[-1])
                np.minimum.at(least, label, ends)
                parent[ends] = least[label]
            colors[batch] = np.where(late, -1, chosen)
            batch = batch[late]
    return colors


def _components(a: Ints, b: Ints, count: int) -> Ints:
    """Return the number of the component of each of some nodes, which are joined in pairs."""
    matrix = _sparse().coo_array((np.ones(len(a), np.int8), (a, b)), shape=(count, count))
    label: Ints = importlib.import_module("scipy.sparse.csgraph").connected_components(matrix, directed=False)[1]
    return label


def _roots(parent: Ints, nodes: Ints) -> Ints:
    """Return the roots of some nodes of a forest, and let the nodes point at them."""
    root = parent[nodes]
    while True:
        above = parent[root]
        if np.array_equal(above, root):
            parent[nodes] = root
            return root
        root = above


def _color_star(pattern: _Pattern) -> Coloring:
    return _color_symmetric(pattern, "star")


def _color_acyclic(pattern: _Pattern) -> Coloring:
    return _color_symmetric(pattern, "acyclic")


_GREEDY: Final = {
    "columns": _color_columns,
    "rows": _color_rows,
    "both": _color_both,
    "star": _color_star,
    "acyclic": _color_acyclic,
}


# -------------------------------------------------------------------------------------------------------- substitution


def _trees(v: Ints, w: Ints, colors: Colors, number: int) -> tuple[Ints, Ints] | None:
    """Return the two ends of each entry (v, w) in its tree, or None if two colours have a cycle.

    An end is a column together with the colour of the other column: a column belongs to one tree for each colour that
    its neighbours have.
    """
    key = np.concatenate([v.astype(np.int64) * number + colors[w], w.astype(np.int64) * number + colors[v]])
    ends, inverse = np.unique(key, return_inverse=True)
    a, b = inverse[: len(v)], inverse[len(v) :]
    upper = v < w
    matrix = _sparse().coo_array((np.ones(int(upper.sum())), (a[upper], b[upper])), shape=(len(ends), len(ends)))
    parts = importlib.import_module("scipy.sparse.csgraph").connected_components(matrix, False, return_labels=False)
    return (a, b) if len(ends) - parts == int(upper.sum()) else None


def _by_substitution(coloring: Coloring, pattern: _Pattern) -> Decompression:
    """Return the decompression after an acyclic colouring: each tree is taken apart from its leaves."""
    colors = coloring.columns
    rows, columns = pattern.entries()
    if np.any(colors[columns] < 0) or not pattern.is_symmetric():
        _check_determined(coloring, rows, columns, np.ones(len(rows), np.bool_))
    (edge,) = np.nonzero(rows != columns)
    v, w = rows[edge], columns[edge]
    trees = None if np.any(colors[v] == colors[w]) else _trees(v, w, colors, coloring.jvps)
    if trees is None:
        _check_determined(coloring, rows, columns, rows != columns)
        return _direct_diagonal(colors, rows, columns)
    a, b = trees
    # entry (v, w) is read at row v, from the jvp of the colour of w, less the entries of the same end before it
    back = pattern.transposed_entry()
    degree = np.bincount(a, minlength=int(a.max(initial=-1)) + 1)
    final = np.arange(len(rows))
    alive = np.ones(len(edge), np.bool_)
    place = np.full(len(rows), -1)
    place[edge] = np.arange(len(edge))
    reverse = place[back[edge]]
    levels: list[tuple[Colors, Colors]] = []
    # the entries that were found at an end: pairs (end, entry), of all levels so far
    found_end: list[Ints] = []
    found_entry: list[Ints] = []
    remaining = np.arange(len(edge))
    while len(remaining):
        leaf = remaining[degree[a[remaining]] == 1]
        # both ends of the last entry of a tree are leaves: it is read at the first
        leaf = leaf[(degree[b[leaf]] != 1) | (v[leaf] < w[leaf])]
        final[edge[reverse[leaf]]] = edge[leaf]
        if found_end:
            ends, entries = np.concatenate(found_end), np.concatenate(found_entry)
            at = np.full(len(degree), -1)
            at[a[leaf]] = edge[leaf]
            here = at[ends] >= 0
            if np.any(here):
                levels.append((_frozen(at[ends[here]].astype(np.int32)), _frozen(entries[here].astype(np.int32))))
            found_end, found_entry = [ends[~here]], [entries[~here]]
        found_end.append(b[leaf])
        found_entry.append(edge[leaf])
        np.subtract.at(degree, a[leaf], 1)
        np.subtract.at(degree, b[leaf], 1)
        alive[leaf] = False
        alive[reverse[leaf]] = False
        remaining = remaining[alive[remaining]]
    return Decompression(
        _frozen(colors[columns]), _frozen(rows.astype(np.int32)), _frozen(np.zeros(len(rows), np.bool_)),
        tuple(levels), _frozen(final.astype(np.int32)),
    )  # fmt: skip


def _direct_diagonal(colors: Colors, rows: Ints, columns: Ints) -> Decompression:
    zeros = np.zeros(len(rows), np.bool_)
    return Decompression(_frozen(colors[columns]), _frozen(rows.astype(np.int32)), _frozen(zeros), (), None)
