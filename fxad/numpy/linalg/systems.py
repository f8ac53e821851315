"""Linear systems, inverses, determinants and powers of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import NamedTuple, TypeVar

from fxad.core.atoms import nominal
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.numpy.apply import apply_op, apply_op_all, as_array
from fxad.numpy.binary import where
from fxad.numpy.products import matmul
from fxad.numpy.types import finfo, result_type
from fxad.operations import linalg, linear_systems
from fxad.operations.arguments import flag, to_int, to_tuple, word
from fxad.operations.axes import normalize_axis_index
from fxad.operations.precision import PrecisionLike
from fxad.operations.promotion import to_inexact_dtype
from fxad.tracing.array import Array, ArrayLike

A = TypeVar("A")
B = TypeVar("B")


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Array
    logabsdet: Array


class LstsqResult(NamedTuple):
    """A least-squares solution, the sums of squared residuals, the rank, and the singular values."""

    x: Array
    residuals: Array
    rank: Array
    singular_values: Array


def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the x with a @ x = b. A `b` with one axis is a vector, otherwise matrices.

    Rule:   one LU decomposition, which derivatives reuse. The result has infinities and nan if `a` is singular.
    """
    return apply_op("solve", linear_systems.solve, (as_array("solve", a), as_array("solve", b, 1)))


def inv(a: ArrayLike) -> Array:
    """Return the inverse; infinities and nan for a singular matrix."""
    return apply_op("inv", linear_systems.inv, (a,))


def det(a: ArrayLike) -> Array:
    """Return the determinant.

    Rule:   the derivative is det(a) trace(a^-1 a_dot), which needs an inverse of `a`. Up to 3 by 3 the determinant is
            computed as a polynomial of the elements, whose derivatives always exist.
    """
    return apply_op("det", linear_systems.det, (a,))


def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Return the sign and the logarithm of the absolute value of the determinant; 0 and -inf for a singular matrix.

    `method`, "lu" or "qr", is JAX's argument; both have one algorithm, "lu".
    Raises: ParameterError for another method.
    """
    word("slogdet", "method", method, ("lu", "qr", None))
    return SlogdetResult(*apply_op_all("slogdet", linear_systems.slogdet, (a,)))


def pinv(
    a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *, rcond: ArrayLike | None = None
) -> Array:
    """Return the pseudo-inverse. Singular values up to `rtol` times the largest count as zero.

    `rtol` is one number, or one for each matrix; by default the larger size of the matrices times the spacing of floats
    at 1; `rcond` is NumPy's other name for it. `hermitian`: `a` is Hermitian, and its eigenvalues are used.
    Rule:   the derivative is that for tangents that keep the rank.
    """
    hermitian = flag("pinv", "hermitian", hermitian)
    if rcond is not None and rtol is not None:
        raise ParameterError("pinv: rtol and rcond are two names of one argument", remedy="give one of them")
    rtol = rcond if rtol is None else rtol
    if rtol is None:
        return apply_op("pinv", linalg.pinv, (a,), hermitian)
    return apply_op("pinv", linalg.pinv_above, (a, rtol), hermitian)


def lstsq(a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None, *, numpy_resid: bool = False) -> LstsqResult:
    """Return the x of least norm that minimizes the sum of squares of b - a @ x. The sums of squared residuals are
    returned, one for each column of b. With `numpy_resid` they are left out where NumPy leaves them out (a vector
    without elements): if the rank is below the number of columns of `a`, or if `a` has no more rows than columns.

    Raises: ShapeError, DTypeError; TracerError for `numpy_resid` in a traced function, where the rank is not known.
    """
    left, right = as_array("lstsq", a), as_array("lstsq", b, 1)
    if rcond is not None:  # NumPy: a negative one stands for the spacing of floats at 1
        eps = float(finfo(to_inexact_dtype(result_type(left, right))).eps)
        if isinstance(rcond, int | float):
            rcond = eps if rcond < 0 else rcond
        else:
            cutoff = as_array("lstsq", rcond, 2).real
            rcond = where(cutoff < 0, eps, cutoff)
    if rcond is None:
        result = LstsqResult(*apply_op_all("lstsq", linalg.lstsq_default, (left, right)))
    else:
        result = LstsqResult(*apply_op_all("lstsq", linalg.lstsq, (left, right, rcond)))
    if not flag("lstsq", "numpy_resid", numpy_resid):
        return result
    rows, columns = left.shape
    if rows <= columns or int(result.rank) < columns:
        return result._replace(residuals=result.residuals.reshape(-1)[:0])
    return result


def matrix_power(a: ArrayLike, n: int) -> Array:
    """Return `a` multiplied by itself n times, in about log2(n) products; for negative n the power of the inverse."""
    try:
        times = n.__index__()
    except (AttributeError, TypeError):
        raise ArgumentError(f"matrix_power: n must be an integer, got {type(n).__qualname__} {shown(n)}") from None
    return apply_op("matrix_power", linalg.matrix_power, (a,), times)


def expm(x: ArrayLike, /) -> Array:
    """Return the exponential of matrices, I + x + x @ x / 2 + ...."""
    return apply_op("expm", linalg.expm, (x,))


def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """Return the matrix product of two or more arrays, in the order of fewest multiplications; named sizes count as
    64. `precision` is that of `matmul`."""
    matrices = [as_array("multi_dot", a, k) for k, a in enumerate(to_tuple("multi_dot", "arrays", arrays))]
    if len(matrices) < 2:
        raise ArgumentError(f"multi_dot: takes at least two arrays, got {len(matrices)}")
    for k, a in enumerate(matrices):
        if a.ndim != 2 and not (a.ndim == 1 and k in (0, len(matrices) - 1)):
            raise ShapeError(f"multi_dot: array {k} must be a matrix, and may be a vector first and last; got {a.aval}")
    first = [1, *matrices[0].shape] if matrices[0].ndim == 1 else [*matrices[0].shape]
    sizes = [*first, *[a.shape[1] if a.ndim == 2 else 1 for a in matrices[1:]]]
    splits = _optimal_splits([nominal(n) for n in sizes])
    return _multiply_chain(matrices, splits, 0, len(matrices) - 1, precision)


def _optimal_splits(sizes: Sequence[int]) -> list[list[int]]:
    """Return where to split a chain of products between i and j (Cormen et al., Introduction to algorithms, 15.2)."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    at = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            candidates = [
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            ]
            cost[i][j], at[i][j] = min(candidates)
    return at


def _multiply_chain(arrays: Sequence[Array], at: list[list[int]], i: int, j: int, precision: PrecisionLike) -> Array:
    if i == j:
        return arrays[i]
    left = _multiply_chain(arrays, at, i, at[i][j], precision)
    return matmul(left, _multiply_chain(arrays, at, at[i][j] + 1, j, precision), precision=precision)


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Return the x with tensordot(a, x, x.ndim) = b; `axes` of a are first moved to its end."""
    left, right = as_array("tensorsolve", a), as_array("tensorsolve", b, 1)
    if axes is not None:
        last = [normalize_axis_index("tensorsolve", k, left.ndim) for k in to_tuple("tensorsolve", "axes", axes)]
        left = left.transpose([k for k in range(left.ndim) if k not in last] + last)
    shape = left.shape[right.ndim :]
    if left.shape[: right.ndim] != right.shape or prod(shape) != right.size:
        raise ShapeError(f"tensorsolve: {left.aval} does not map as many elements as {right.aval} has to it")
    return solve(left.reshape(right.size, right.size), right.ravel()).reshape(shape)


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """Return the inverse of the linear map x -> tensordot(a, x), whose results have the first `ind` axes of a."""
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
    """Return the Cholesky factor and a flag that it is the lower one, for `cho_solve`."""
    lower = flag("cho_factor", "lower", lower)
    return apply_op("cho_factor", linalg.promoted_cholesky, (a,), not lower, False), lower


def cho_solve(c_and_lower: tuple[ArrayLike, bool], b: ArrayLike) -> Array:
    """Return the x with a @ x = b, from `cho_factor(a)`."""
    c, lower = _check_pair("cho_solve", "c_and_lower", c_and_lower)
    arrays = as_array("cho_solve", c), as_array("cho_solve", b, 1)
    return apply_op("cho_solve", linear_systems.cho_solve, arrays, flag("cho_solve", "lower", lower))


def _check_pair(op: str, what: str, given: tuple[A, B]) -> tuple[A, B]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ArgumentError(f"{op}: {what} must be the pair that the factorisation gave, got {described(given)}")
    return given[0], given[1]


def lu_factor(a: ArrayLike) -> tuple[Array, Array]:
    """Return the packed LU factors and the row exchanges, for `lu_solve`."""
    factors, pivots = apply_op_all("lu_factor", linalg.promoted_lu, (a,))
    return factors, pivots


def lu_solve(lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0) -> Array:
    """Return the x with op(a) @ x = b, from `lu_factor(a)`; op: 0 nothing, 1 transpose, 2 conjugate transpose."""
    trans = to_int("lu_solve", "trans", trans)
    if trans not in (0, 1, 2):
        raise ParameterError(f"lu_solve: trans must be 0, 1 or 2, got {shown(trans)}")
    return apply_op("lu_solve", linear_systems.lu_solve, (*_check_pair("lu_solve", "lu_and_piv", lu_and_piv), b), trans)


def solve_triangular(
    a: ArrayLike, b: ArrayLike, trans: int = 0, lower: bool = False, unit_diagonal: bool = False
) -> Array:
    """Return the x with op(a) @ x = b for triangular a; op: 0 nothing, 1 transpose, 2 conjugate transpose."""
    trans = to_int("solve_triangular", "trans", trans)
    if trans not in (0, 1, 2):
        raise ParameterError(f"solve_triangular: trans must be 0, 1 or 2, got {shown(trans)}")
    arrays = as_array("solve_triangular", a), as_array("solve_triangular", b, 1)
    return apply_op("solve_triangular", linear_systems.solve_triangular, arrays, trans, lower, unit_diagonal)


def block_diag(*arrays: ArrayLike) -> Array:
    """Return a matrix with the given matrices along its diagonal, zeros elsewhere; a vector is a row."""
    if not arrays:
        raise ArgumentError("block_diag: takes at least one array")
    return reduce(_append_block, [_as_matrix(as_array("block_diag", a, k)) for k, a in enumerate(arrays)])


def _as_matrix(x: Array) -> Array:
    if x.ndim > 2:
        raise ShapeError(f"block_diag: takes matrices, got {x.aval}")
    return x if x.ndim == 2 else x.reshape(1, -1)


def _append_block(x: Array, y: Array) -> Array:
    return apply_op("block_diag", linalg.block_diagonal, (x, y))
