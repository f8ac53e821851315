"""Systems of linear equations, inverses, determinants and powers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import NamedTuple, TypeVar

from fxad.errors import ArgumentError, ParameterError, ShapeError, described
from fxad.numpy.apply import apply_op, apply_op_all, as_array
from fxad.numpy.products import matmul
from fxad.operations import linalg, linear_systems
from fxad.operations.axes import normalize_axis_index, to_int, to_tuple
from fxad.tracing.array import Array, ArrayLike

A = TypeVar("A")
B = TypeVar("B")


class SlogdetResult(NamedTuple):
    """The determinant as sign and logarithm of its absolute value."""

    sign: Array
    logabsdet: Array


class LstsqResult(NamedTuple):
    """A least squares solution, the sums of squares that are left, the rank, and the singular values."""

    x: Array
    residuals: Array
    rank: Array
    singular_values: Array


def solve(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The x with x1 @ x = x2; an `x2` of one axis is a vector, else matrices.

    Rule: one LU decomposition, which derivatives use again. Where x1 has no inverse, infinities and nan.
    """
    return apply_op("solve", linear_systems.solve, (x1, x2))


def inv(x: ArrayLike, /) -> Array:
    """The inverse; infinities and nan where there is none."""
    return apply_op("inv", linear_systems.inv, (x,))


def det(x: ArrayLike, /) -> Array:
    """The determinant.

    Rule: its derivative is det(x) trace(x^-1 x_dot), for which x must have an inverse; up to 3 by 3 the determinant is
          a polynomial of the elements, with derivatives everywhere.
    """
    return apply_op("det", linear_systems.det, (x,))


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """Sign and logarithm of the absolute value of the determinant; 0 and -inf where x has no inverse."""
    return SlogdetResult(*apply_op_all("slogdet", linear_systems.slogdet, (x,)))


def pinv(x: ArrayLike, /, *, rtol: ArrayLike | None = None, hermitian: bool = False) -> Array:
    """The pseudo-inverse: singular values up to `rtol` times the largest count as zero.

    `rtol` is one number, or one for each matrix; without, it is the larger size of the matrices times the spacing of
    floats at 1. `hermitian` says that x is, and its eigenvalues do.

    Rule: the derivative is that of tangents which keep the rank.
    """
    if rtol is None:
        return apply_op("pinv", linalg.pinv, (x,), hermitian)
    return apply_op("pinv", linalg.pinv_above, (x, rtol), hermitian)


def lstsq(a: ArrayLike, b: ArrayLike, rcond: float | None = None) -> LstsqResult:
    """The x of least norm for which the sum of squares of b - a @ x is least.

    The sums of squares that are left are always given, one for each column of b; NumPy leaves them out by the rank.
    """
    if rcond is None:
        return LstsqResult(*apply_op_all("lstsq", linalg.lstsq_default, (a, b)))
    return LstsqResult(*apply_op_all("lstsq", linalg.lstsq, (a, b, rcond)))


def matrix_power(x: ArrayLike, n: int, /) -> Array:
    """x multiplied by itself n times, in about log2(n) products; a negative n takes the inverse."""
    try:
        times = n.__index__()
    except (AttributeError, TypeError):
        raise ArgumentError(f"matrix_power: n must be an integer, got {type(n).__qualname__} {n!r}") from None
    return apply_op("matrix_power", linalg.matrix_power, (x,), times)


def expm(x: ArrayLike, /) -> Array:
    """The exponential of matrices, I + x + x @ x / 2 + ...."""
    return apply_op("expm", linalg.expm, (x,))


def multi_dot(arrays: Sequence[ArrayLike]) -> Array:
    """The matrix product of two or more arrays, in the order of fewest multiplications."""
    given = [as_array("multi_dot", a, k) for k, a in enumerate(to_tuple("multi_dot", "arrays", arrays))]
    if len(given) < 2:
        raise ArgumentError(f"multi_dot: takes at least two arrays, got {len(given)}")
    for k, a in enumerate(given):
        if a.ndim != 2 and not (a.ndim == 1 and k in (0, len(given) - 1)):
            raise ShapeError(f"multi_dot: array {k} must be a matrix, and may be a vector first and last; got {a.aval}")
    first = [1, *given[0].shape] if given[0].ndim == 1 else [*given[0].shape]
    sizes = [*first, *[a.shape[1] if a.ndim == 2 else 1 for a in given[1:]]]
    return _multiplied(given, _splits(sizes), 0, len(given) - 1)


def _splits(sizes: Sequence[int]) -> list[list[int]]:
    """Where to split a chain of products between i and j (Cormen et al., Introduction to algorithms, 15.2)."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    at = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            found = [(cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i][j], at[i][j] = min(found)
    return at


def _multiplied(arrays: Sequence[Array], at: list[list[int]], i: int, j: int) -> Array:
    if i == j:
        return arrays[i]
    return matmul(_multiplied(arrays, at, i, at[i][j]), _multiplied(arrays, at, at[i][j] + 1, j))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to its end first."""
    left, right = as_array("tensorsolve", a), as_array("tensorsolve", b, 1)
    if axes is not None:
        last = [normalize_axis_index("tensorsolve", k, left.ndim) for k in axes]
        left = left.transpose([k for k in range(left.ndim) if k not in last] + last)
    shape = left.shape[right.ndim :]
    if left.shape[: right.ndim] != right.shape or prod(shape) != right.size:
        raise ShapeError(f"tensorsolve: {left.aval} does not map as many elements as {right.aval} has to it")
    return solve(left.reshape(right.size, right.size), right.ravel()).reshape(shape)


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse of what tensordot(a, ., ...) does, where the first `ind` axes of a are those of its results."""
    array = as_array("tensorinv", a)
    ind = to_int("tensorinv", "ind", ind)
    if ind <= 0:
        raise ParameterError(f"tensorinv: ind must be positive, got {ind}")
    rows, columns = array.shape[:ind], array.shape[ind:]
    if prod(rows) != prod(columns):
        raise ShapeError(f"tensorinv: {prod(rows)} elements before axis {ind} of {array.aval}, {prod(columns)} after")
    return inv(array.reshape(prod(rows), -1)).reshape(*columns, *rows)


# ------------------------------------------------------------------------------------- by factors, as scipy.linalg has


def cho_factor(a: ArrayLike, lower: bool = False) -> tuple[Array, bool]:
    """The Cholesky factor, and whether it is the lower one: for `cho_solve`."""
    return apply_op("cho_factor", linalg.factor, (a,), not lower, False), lower


def cho_solve(c_and_lower: tuple[ArrayLike, bool], b: ArrayLike) -> Array:
    """The x with a @ x = b, by what `cho_factor(a)` gave."""
    c, lower = _pair("cho_solve", "c_and_lower", c_and_lower)
    return apply_op("cho_solve", linear_systems.cho_solve, (c, b), bool(lower))


def _pair(name: str, what: str, given: tuple[A, B]) -> tuple[A, B]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ArgumentError(f"{name}: {what} must be the pair that the factorisation gave, got {described(given)}")
    return given[0], given[1]


def lu_factor(a: ArrayLike) -> tuple[Array, Array]:
    """L and U in one matrix, and the exchanges of rows: for `lu_solve`."""
    factors, pivots = apply_op_all("lu_factor", linalg.packed_lu, (a,))
    return factors, pivots


def lu_solve(lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0) -> Array:
    """The x with op(a) @ x = b, by what `lu_factor(a)` gave; op: 0 nothing, 1 transpose, 2 conjugate transpose."""
    if to_int("lu_solve", "trans", trans) not in (0, 1, 2):
        raise ParameterError(f"lu_solve: trans must be 0, 1 or 2, got {trans!r}")
    return apply_op("lu_solve", linear_systems.lu_solve, (*_pair("lu_solve", "lu_and_piv", lu_and_piv), b), trans)


def solve_triangular(
    a: ArrayLike, b: ArrayLike, trans: int = 0, lower: bool = False, unit_diagonal: bool = False
) -> Array:
    """The x with op(a) @ x = b, where a is triangular; op: 0 nothing, 1 transpose, 2 conjugate transpose."""
    if trans not in (0, 1, 2):
        raise ParameterError(f"solve_triangular: trans must be 0, 1 or 2, got {trans!r}")
    return apply_op("solve_triangular", linear_systems.solve_triangular, (a, b), trans, lower, unit_diagonal)


def block_diag(*arrays: ArrayLike) -> Array:
    """Matrices along the diagonal, zeros elsewhere; a vector is a row."""
    if not arrays:
        raise ArgumentError("block_diag: takes at least one array")
    return reduce(_below, [_rows(as_array("block_diag", a, k)) for k, a in enumerate(arrays)])


def _rows(x: Array) -> Array:
    if x.ndim > 2:
        raise ShapeError(f"block_diag: takes matrices, got {x.aval}")
    return x if x.ndim == 2 else x.reshape(1, -1)


def _below(x: Array, y: Array) -> Array:
    return apply_op("block_diag", linalg.block_diagonal, (x, y))
