"""Linear systems with sparse matrices: `sparse_solve` and `factorize`.

The pattern is known when a program is traced, so it chooses the method (times: float64, one core of an x86 CPU, 200,000
unknowns, beside SuperLU):

- blocks: rows and columns fall into small groups that share no entry (a diagonal is blocks of 1): dense solves of all
  groups at once, in XLA; 6 ms against 20 ms for blocks of 3;
- tridiagonal: LAPACK's gtsv, in XLA; 6 ms against 89 ms;
- band of up to 16 diagonals on each side: elimination with pivoting by a `scan`, in XLA; 70 ms against 420 ms for 5
  diagonals and 1.6 s for 9 (two shared cores; LAPACK's gbsv takes 231 ms for 9 where SuperLU takes 84);
- all others: SuperLU on the host, by SciPy; a band keeps its order of columns, which takes two thirds of the time of
  COLAMD.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Final, Protocol, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError, ShapeError, TracerError, described
from fxad.ir import NDArray
from fxad.lax.binary import select
from fxad.lax.control.host import pure_callback
from fxad.lax.control.scanning import scan
from fxad.lax.creation import full, full_like
from fxad.lax.implicit.systems import linear_solve
from fxad.lax.linalg import tridiagonal_solve
from fxad.lax.reductions import argmax
from fxad.lax.shapes import broadcast_in_dim, concatenate
from fxad.operations import linear_systems
from fxad.tracing.array import Array, ArrayLike, asarray, binder
from fxad.tracing.spec import Spec
from fxad.tracing.tracer import Tracer

Ints: TypeAlias = npt.NDArray[np.integer[Any]]

_MOST_IN_BLOCK: Final = 32
_MOST_DIAGONALS: Final = 16


class PatternLike(Protocol):
    """The positions of the entries of a matrix, in compressed rows with sorted columns."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def indptr(self) -> Ints: ...
    @property
    def indices(self) -> Ints: ...


class SparseLike(Protocol):
    """A sparse matrix: its entries in the order of its pattern."""

    @property
    def data(self) -> Array: ...
    @property
    def pattern(self) -> PatternLike: ...


def sparse_solve(matrix: SparseLike, b: ArrayLike) -> Array:
    """Return the x with `matrix @ x = b`, for a square sparse matrix, such as the result of `sparse_jacobian`.

    `b` is a vector (n,) or has columns (n, k): the matrix is factorised once for all columns. Elimination with pivoting:
    in XLA for small independent blocks, tridiagonal matrices and narrow bands, else by SuperLU on the host.

    Type:   data and b of one dtype: float32, float64, complex64, complex128.
    Rule:   linear in b; derivatives are those of the solution, of any order, in both modes; they use the factors of the
            solve. Under vmap, a matrix that is not mapped is factorised once for the whole stack.
    Raises: ShapeError for a matrix that is not square, or a b of another length; DTypeError. x is nan if the matrix is
            singular, or has elements that are not finite; from blocks and bands in XLA it may be infinite.
    """
    pattern = pattern_of("sparse_solve", matrix)
    return solve_csr("sparse_solve", matrix.data, pattern.indptr, pattern.indices, pattern.shape, b)


def solve_csr(what: str, data: ArrayLike, indptr: Ints, indices: Ints, shape: tuple[int, int], b: ArrayLike) -> Array:
    """Return `sparse_solve` for the matrix with these CSR arrays."""
    system = System(indptr, indices, shape)
    values, rhs = _checked(what, system, data, b)
    method = system.method()
    if method is not None:
        columns = rhs if rhs.ndim == 2 else rhs[:, None]
        return method(values, columns).reshape(rhs.shape)
    if system.is_narrow():
        return _implicit(what, system, values, rhs, partial(_solve_band, system, values))
    factors = _Factors(system)
    return _solve_on_host(what, system, values, rhs, factors, True)


def factorize(matrix: SparseLike) -> Factorization:
    """Return the LU factors of a square sparse matrix, for several systems with it: `factorize(A).solve(b)`.

    Raises: ShapeError for a matrix that is not square; TracerError for entries that are not known yet, inside a traced
            function: there, `sparse_solve` of all right-hand sides at once factorises once.
    """
    pattern = pattern_of("factorize", matrix)
    return Factorization(matrix.data, pattern.indptr, pattern.indices, pattern.shape)


def pattern_of(what: str, matrix: object) -> PatternLike:
    """Return the pattern of a sparse matrix. Raises: ArgumentError for what is none."""
    pattern: PatternLike | None = getattr(matrix, "pattern", None)
    if pattern is None:
        raise ArgumentError(
            f"{what}: the matrix is {described(matrix)}, not a sparse one", remedy="give what sparse_jacobian returns"
        )
    return pattern


@final
class Factorization:
    """The LU factors of a sparse matrix, which SuperLU has made on the host.

    `solve` works inside of traced functions too: the factors are a constant of the program.
    """

    __slots__ = ("_data", "_factors", "_system")

    def __init__(self, data: ArrayLike, indptr: Ints, indices: Ints, shape: tuple[int, int]) -> None:
        if isinstance(data, Tracer):
            raise TracerError(
                f"factorize: the entries of the matrix are traced, {data.aval}, and have no values yet",
                remedy="call sparse_solve, with the right-hand sides as columns of one array",
            )
        self._system = System(indptr, indices, shape)
        self._data = _entries("factorize", self._system, data)
        self._factors = _Factors(self._system)
        self._factors.of(np.asarray(self._data))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return self._system.shape

    def solve(self, b: ArrayLike, *, transpose: bool = False) -> Array:
        """Return the x with A x = b, or with A^T x = b; as `sparse_solve`."""
        values, rhs = _checked("factorize", self._system, self._data, b)
        return _solve_on_host("factorize", self._system, values, rhs, self._factors, not transpose)

    def __repr__(self) -> str:
        return f"Factorization({self.shape[0]}x{self.shape[1]}, {len(self._system.indices)} entries)"


def _entries(what: str, system: System, data: ArrayLike) -> Array:
    values = asarray(data)
    if values.shape != system.indices.shape:
        raise ShapeError(
            f"{what}: the data is {values.aval}, the pattern has {len(system.indices)} entries",
            remedy="give one element for each entry; use vmap for a batch",
        )
    if values.dtype not in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128):
        raise DTypeError(
            f"{what}: the data is {values.aval}",
            remedy="convert it to float32, float64, complex64 or complex128 with astype",
        )
    return values


def _checked(what: str, system: System, data: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    m, n = system.shape
    if m != n:
        raise ShapeError(f"{what}: the matrix has shape ({m}, {n}) and is not square", remedy="least squares: A^T A")
    values = _entries(what, system, data)
    rhs = asarray(b)
    if rhs.ndim not in (1, 2) or rhs.shape[0] != n:
        raise ShapeError(
            f"{what}: b is {rhs.aval}, the matrix has shape ({m}, {n})", remedy=f"b has shape ({n},) or ({n}, k)"
        )
    if rhs.dtype != values.dtype:
        raise DTypeError(
            f"{what}: the data is {values.aval} and b is {rhs.aval}", remedy="convert one of them with astype"
        )
    return values, rhs


def _solve_on_host(what: str, system: System, data: Array, b: Array, factors: _Factors, forward: bool) -> Array:
    """Return A^-1 b (`forward`) or A^-T b by SuperLU, with the derivatives of the solution."""

    def solve(transposed: bool, y: Array) -> Array:
        call = _HostSolve(factors, transposed)
        return pure_callback(call, Spec(y.shape, y.dtype), data, y, vmap_method="broadcast_all")

    return _implicit(what, system, data, b, solve, forward)


def _implicit(
    what: str, system: System, data: Array, b: Array, solver: Callable[[bool, Array], Array], forward: bool = True
) -> Array:
    """Return the solution by a solver of the matrix, or of its transpose, with the derivatives of the solution."""
    rows, columns = system.entries()
    if not forward:
        rows, columns = columns, rows

    def product(x: Array) -> Array:
        return product_of_entries(data, rows, columns, x.shape[0], x)

    def solve(transposed: bool, _: Callable[[Array], Array], y: Array) -> Array:
        return solver(transposed, y)

    solution: Array = linear_solve(
        what, "A", product, b, partial(solve, not forward), partial(solve, forward), symmetric=False, has_aux=False
    )
    return solution


def product_of_entries(data: Array, rows: Ints, columns: Ints, m: int, x: Array) -> Array:
    """Return the product of a matrix of m rows, given by its entries, with a vector or with the columns of a matrix."""
    terms = (data if x.ndim == 1 else data[:, None]) * x[columns]
    total: Array = full((m, *x.shape[1:]), 0, terms.dtype).at[rows].add(terms)
    return total


# ------------------------------------------------------------------------------------------------------- on the host


@final
class _HostSolve:
    """The function of the host that solves with the factors of a matrix, or of its transpose.

    Equal for equal patterns, so that a rule that is traced again finds the function that it has called before.
    """

    __name__ = "sparse_solve"
    __slots__ = ("_factors", "_transposed")

    def __init__(self, factors: _Factors, transposed: bool) -> None:
        self._factors, self._transposed = factors, transposed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HostSolve) and (self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[bytes, bool]:
        return self._factors.system.digest, self._transposed

    def __call__(self, data: NDArray, b: NDArray) -> NDArray:
        """Return the solutions for stacks of matrices (..., nnz) and right-hand sides (..., n) or (..., n, k)."""
        batch = data.shape[:-1]
        columns = b.reshape(*batch, self._factors.system.shape[0], prod(b.shape[len(batch) + 1 :]))
        if prod(batch) > 1 and not any(data.strides[:-1]):  # one matrix for the whole stack
            count, n, k = prod(batch), *columns.shape[-2:]
            side_by_side = columns.reshape(count, n, k).transpose(1, 0, 2).reshape(n, count * k)
            x = self._factors.of(data[(0,) * len(batch)])(side_by_side, self._transposed)
            return np.ascontiguousarray(x.reshape(n, count, k).transpose(1, 0, 2)).reshape(b.shape)
        out = np.empty(columns.shape, b.dtype)
        for at in np.ndindex(*batch):
            out[at] = self._factors.of(data[at])(columns[at], self._transposed)
        return out.reshape(b.shape)


FactorSolve: TypeAlias = Callable[[NDArray, bool], NDArray]


@final
class _Factors:
    """The factors of the last matrix of a pattern. A solve, its derivatives, and a next call with equal entries share
    them."""

    __slots__ = ("_last", "system")

    def __init__(self, system: System) -> None:
        self.system = system
        self._last: tuple[NDArray, FactorSolve] | None = None

    def of(self, data: NDArray) -> FactorSolve:
        """Return the function that solves with a matrix; of the transpose, where its second argument is True."""
        if not self.system.shape[0]:
            return lambda b, _transposed: np.array(b)
        last = self._last
        if last is not None and last[0].dtype == data.dtype and np.array_equal(last[0], data):
            return last[1]
        solve = self._factorised(data)
        self._last = (np.array(data), solve)  # one assignment: other threads see either pair
        return solve

    def _order(self, transpose: Any) -> str:
        """Return an order of columns: for a symmetric pattern that of minimum degree, with half the fill of COLAMD."""
        other = transpose.tocsr()
        same = np.array_equal(other.indptr, transpose.indptr) and np.array_equal(other.indices, transpose.indices)
        return "MMD_AT_PLUS_A" if same else "COLAMD"

    def _factorised(self, data: NDArray) -> FactorSolve:
        def singular(b: NDArray, _transposed: bool) -> NDArray:
            return np.full_like(b, np.nan)

        if not np.all(np.isfinite(data)):
            return singular
        n = self.system.shape[0]
        indices, indptr = [x.astype(np.intc) for x in (self.system.indices, self.system.indptr)]
        # the CSR arrays of A are the CSC arrays of its transpose
        transpose = importlib.import_module("scipy.sparse").csc_array((data, indices, indptr), shape=(n, n))
        order = "NATURAL" if self.system.is_band() else self._order(transpose)
        try:
            lu = importlib.import_module("scipy.sparse.linalg").splu(transpose, permc_spec=order)
        except RuntimeError:  # "Factor is exactly singular"
            return singular

        def solve(b: NDArray, transposed: bool) -> NDArray:
            x: NDArray = lu.solve(b, "N" if transposed else "T")
            return x

        return solve


# --------------------------------------------------------------------------------------------------------- in XLA


@final
class System:
    """The pattern of a matrix, and the method of solution that it allows."""

    __slots__ = ("_digest", "indices", "indptr", "shape")

    def __init__(self, indptr: Ints, indices: Ints, shape: tuple[int, int]) -> None:
        self.indptr, self.indices, self.shape = np.asarray(indptr), np.asarray(indices), shape
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """A hash of the pattern."""
        if self._digest is None:
            parts = [np.asarray(x, np.int64).tobytes() for x in (self.shape, self.indptr, self.indices)]
            self._digest = hashlib.sha256(b"".join(parts)).digest()
        return self._digest

    def entries(self) -> tuple[Ints, Ints]:
        """Return row and column of each entry."""
        rows = np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.indptr))
        return rows, self.indices.astype(np.int32)

    def bandwidth(self) -> int:
        """Return the greatest distance of an entry from the diagonal."""
        rows, columns = self.entries()
        return int(np.abs(rows - columns).max(initial=0))

    def is_band(self) -> bool:
        """Return True if most of the diagonals near to the main one are full."""
        return (2 * self.bandwidth() + 1) * self.shape[0] <= 3 * len(self.indices)

    def widths(self) -> tuple[int, int]:
        """Return the numbers of diagonals below and above the main one."""
        rows, columns = self.entries()
        return int((rows - columns).max(initial=0)), int((columns - rows).max(initial=0))

    def is_narrow(self) -> bool:
        """Return True for a band that is eliminated in XLA."""
        below, above = self.widths()
        return self.is_band() and max(below, above) <= _MOST_DIAGONALS and 2 * (below + above + 1) <= self.shape[0]

    def band(self, transposed: bool) -> Ints:
        """Return the entry at each place (row, diagonal) of the band; the number of entries where there is none."""
        rows, columns = self.entries()
        if transposed:
            rows, columns = columns, rows
        below, above = self.widths()[:: -1 if transposed else 1]
        at = np.full((self.shape[0], below + above + 1), len(rows), np.int32)
        at[rows, columns - rows + below] = np.arange(len(rows))
        return at

    def method(self) -> Callable[[Array, Array], Array] | None:
        """Return the function of entries and right-hand sides that solves in XLA, or None."""
        if not len(self.indices):
            return None
        blocks = self._blocks()
        if blocks is not None:
            return blocks
        return self._tridiagonal if self.bandwidth() == 1 else None

    def _tridiagonal(self, data: Array, b: Array) -> Array:
        rows, columns = self.entries()
        n = self.shape[0]
        at = np.full((3, n), len(data), np.int32)  # of the zero behind the entries
        at[columns - rows + 1, rows] = np.arange(len(rows))
        lower, main, upper = [_with_constant_rows(data, 0)[k] for k in at]
        return tridiagonal_solve(lower, main, upper, b)

    def _blocks(self) -> Callable[[Array, Array], Array] | None:
        """Return the method of small blocks, if no group of rows and columns that share entries is large."""
        rows, columns = self.entries()
        n = self.shape[0]
        graph = importlib.import_module("scipy.sparse").coo_array(
            (np.ones(len(rows), np.int8), (rows, columns + n)), shape=(2 * n, 2 * n)
        )
        number, label = importlib.import_module("scipy.sparse.csgraph").connected_components(graph, directed=False)
        heights = np.bincount(label[:n], minlength=number)
        if heights.max() > _MOST_IN_BLOCK or np.any(heights != np.bincount(label[n:], minlength=number)):
            return None
        size = int(heights.max())
        if number == 1 or number * size**2 > 8 * len(rows) + 1024:
            return None
        order = [np.argsort(part, kind="stable") for part in (label[:n], label[n:])]
        starts = np.cumsum(heights) - heights
        inside = []
        for part, places in zip((label[:n], label[n:]), order, strict=True):
            local = np.empty(n, np.int64)
            local[places] = np.arange(n) - starts[part[places]]
            inside.append(local)
        # behind the entries stand a zero, and a one for the diagonal of blocks that are smaller
        entry = np.full((number, size, size), len(rows), np.int32)
        padding = np.arange(size) >= heights[:, None]
        entry[:, np.arange(size), np.arange(size)] = np.where(padding, len(rows) + 1, len(rows))
        entry[label[rows], inside[0][rows], inside[1][columns]] = np.arange(len(rows))
        row = np.full((number, size), n, np.int32)
        row[label[:n], inside[0]] = np.arange(n)
        place = (label[n:] * size + inside[1]).astype(np.int32)

        def solve(data: Array, b: Array) -> Array:
            matrices = _with_constant_rows(data, 0, 1)[entry]
            sides = _with_constant_rows(b, 0)[row]
            (x,) = binder().apply(linear_systems.solve, (matrices, sides), ())
            return x.reshape(number * size, b.shape[1])[place]

        return solve


def _solve_band(system: System, data: Array, transposed: bool, b: Array) -> Array:
    """Return A^-1 b or A^-T b for a band, by Gaussian elimination with the pivot of greatest absolute value.

    A step has the rows that can have an entry in its column, from that column on: it takes out the pivot row, and lets
    in the next row of the matrix. So its arrays have the size of the band.
    """
    below, above = system.widths()[:: -1 if transposed else 1]
    width = below + above + 1
    rows = _with_constant_rows(_with_constant_rows(data, 0)[system.band(transposed)], *[0] * (below + 1))
    sides = _with_constant_rows(b if b.ndim == 2 else b[:, None], *[0] * (below + 1))
    at = np.arange(width) + below - np.arange(below + 1)[:, None]  # row i of the matrix begins at column i - below
    first = _with_constant_rows(rows[: below + 1].reshape(-1), 0)[
        np.where(at < width, at + width * np.arange(below + 1)[:, None], (below + 1) * width)
    ]
    places = np.arange(below + 1, dtype=np.int32)

    def eliminate(
        held: tuple[Array, Array], new: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        matrix, right = held
        pivot = argmax(abs(matrix[:, 0]), 0, dtypes.int32)
        chosen: Array = asarray(places) == pivot
        row, side = [_rows_where(chosen, x, full_like(x[0], 0)).sum(0) for x in (matrix, right)]
        # the first row takes the place of the pivot row
        matrix, right = [_rows_where(~chosen[1:], x[1:], x[0]) for x in (matrix, right)]
        factor = matrix[:, :1] / row[0]
        matrix = (matrix - factor * row)[:, 1:]
        right = right - factor * side
        column = full((below, 1), 0, data.dtype)
        matrix = concatenate([concatenate([matrix, column], 1), new[0][None]], 0)
        return (matrix, concatenate([right, new[1][None]], 0)), (row, side)

    def substitute(after: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        row, side = step
        x = (side - row[1:] @ after) / row[0]
        return concatenate([x[None], after], 0)[: width - 1], x

    _, steps = scan(eliminate, (first, sides[: below + 1]), (rows[below + 1 :], sides[below + 1 :]))
    none = full((width - 1, sides.shape[1]), 0, data.dtype)
    x: Array = scan(substitute, none, steps, reverse=True)[1]
    return x.reshape(b.shape)


def _rows_where(chosen: Array, rows: Array, other: Array) -> Array:
    """Return the rows that are chosen, and another row in place of the rest."""
    shape = rows.shape
    return select(broadcast_in_dim(chosen, shape, (0,)), rows, broadcast_in_dim(other, shape, (1,)))


def _with_constant_rows(x: Array, *values: float) -> Array:
    """Return an array with constant rows behind its own."""
    tail = np.broadcast_to(np.reshape(values, (-1,) + (1,) * (x.ndim - 1)), (len(values), *x.shape[1:]))
    extended: Array = concatenate([x, asarray(tail.astype(x.dtype))], 0)
    return extended
