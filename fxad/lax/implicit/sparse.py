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

from collections.abc import Callable
from functools import partial
from typing import Protocol, final

import numpy as np

from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError, ShapeError, TracerError, described
from fxad.lax.control.host import pure_callback
from fxad.lax.creation import full
from fxad.lax.implicit.sparse_elimination import direct_solver, solve_band
from fxad.lax.implicit.sparse_structure import Ints, SparseStructure
from fxad.lax.implicit.superlu import Factors, HostSolve
from fxad.lax.implicit.systems import linear_solve
from fxad.tracing.array import Array, ArrayLike, asarray
from fxad.tracing.spec import Spec
from fxad.tracing.tracer import Tracer


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
    structure = SparseStructure(indptr, indices, shape)
    values, rhs = _checked(what, structure, data, b)
    direct = direct_solver(structure)
    if direct is not None:
        columns = rhs if rhs.ndim == 2 else rhs[:, None]
        return direct(values, columns).reshape(rhs.shape)
    if structure.is_narrow_band():
        return _implicit(what, structure, values, rhs, partial(solve_band, structure, values))
    return _solve_on_host(what, structure, values, rhs, Factors(structure), True)


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

    __slots__ = ("_data", "_factors", "_structure")

    def __init__(self, data: ArrayLike, indptr: Ints, indices: Ints, shape: tuple[int, int]) -> None:
        if isinstance(data, Tracer):
            raise TracerError(
                f"factorize: the entries of the matrix are traced, {data.aval}, and have no values yet",
                remedy="call sparse_solve, with the right-hand sides as columns of one array",
            )
        self._structure = SparseStructure(indptr, indices, shape)
        self._data = _entries("factorize", self._structure, data)
        self._factors = Factors(self._structure)
        self._factors.of(np.asarray(self._data))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return self._structure.shape

    def solve(self, b: ArrayLike, *, transpose: bool = False) -> Array:
        """Return the x with A x = b, or with A^T x = b; as `sparse_solve`."""
        values, rhs = _checked("factorize", self._structure, self._data, b)
        return _solve_on_host("factorize", self._structure, values, rhs, self._factors, not transpose)

    def __repr__(self) -> str:
        return f"Factorization({self.shape[0]}x{self.shape[1]}, {len(self._structure.indices)} entries)"


def _entries(what: str, structure: SparseStructure, data: ArrayLike) -> Array:
    values = asarray(data, what=f"{what}: data")
    if values.shape != structure.indices.shape:
        raise ShapeError(
            f"{what}: the data is {values.aval}, the pattern has {len(structure.indices)} entries",
            remedy="give one element for each entry; use vmap for a batch",
        )
    if values.dtype not in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128):
        raise DTypeError(
            f"{what}: the data is {values.aval}",
            remedy="convert it to float32, float64, complex64 or complex128 with astype",
        )
    return values


def _checked(what: str, structure: SparseStructure, data: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    m, n = structure.shape
    if m != n:
        raise ShapeError(f"{what}: the matrix has shape ({m}, {n}) and is not square", remedy="least squares: A^T A")
    values = _entries(what, structure, data)
    rhs = asarray(b, what=f"{what}: b")
    if rhs.ndim not in (1, 2) or rhs.shape[0] != n:
        raise ShapeError(
            f"{what}: b is {rhs.aval}, the matrix has shape ({m}, {n})", remedy=f"b has shape ({n},) or ({n}, k)"
        )
    if rhs.dtype != values.dtype:
        raise DTypeError(
            f"{what}: the data is {values.aval} and b is {rhs.aval}", remedy="convert one of them with astype"
        )
    return values, rhs


def _solve_on_host(
    what: str, structure: SparseStructure, data: Array, b: Array, factors: Factors, forward: bool
) -> Array:
    """Return A^-1 b (`forward`) or A^-T b by SuperLU, with the derivatives of the solution."""

    def solve(transposed: bool, y: Array) -> Array:
        call = HostSolve(factors, transposed)
        return pure_callback(call, Spec(y.shape, y.dtype), data, y, vmap_method="broadcast_all")

    return _implicit(what, structure, data, b, solve, forward)


def _implicit(
    what: str,
    structure: SparseStructure,
    data: Array,
    b: Array,
    solver: Callable[[bool, Array], Array],
    forward: bool = True,
) -> Array:
    """Return the solution by a solver of the matrix, or of its transpose, with the derivatives of the solution."""
    rows, columns = structure.entries()
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
