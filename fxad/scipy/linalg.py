"""Linear algebra, as in `scipy.linalg`: its names, argument orders and defaults.

`overwrite_a`, `overwrite_b`, `check_finite`, `debug` and `lapack_driver` say how SciPy computes. They are accepted and
change no result: nothing is overwritten, and a matrix with nan gives nan.
"""

from __future__ import annotations

from typing import Final, Literal, overload

from fxad import numpy as fnp
from fxad.errors import ParameterError
from fxad.numpy import linalg
from fxad.numpy.linalg import block_diag
from fxad.tracing.array import Array, ArrayLike

_TRANS: Final = {"N": 0, "T": 1, "C": 2}.items()


def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the Cholesky factor of a Hermitian matrix: by default the upper one, U with a = U^H U."""
    return linalg.cholesky(a, upper=not lower)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """Return the Cholesky factor and a flag that it is the lower one, for `cho_solve`."""
    return linalg.cho_factor(a, lower)


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """Return the x with a @ x = b, from `cho_factor(a)`."""
    return linalg.cho_solve(c_and_lower, b)


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the determinant."""
    return linalg.det(a)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the inverse."""
    return linalg.inv(a)


@overload
def eigh(
    a: ArrayLike, b: None = None, lower: bool = True, eigvals_only: Literal[False] = False
) -> tuple[Array, Array]: ...
@overload
def eigh(a: ArrayLike, b: None = None, lower: bool = True, *, eigvals_only: Literal[True]) -> Array: ...
def eigh(
    a: ArrayLike, b: ArrayLike | None = None, lower: bool = True, eigvals_only: bool = False
) -> Array | tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of a Hermitian matrix. Raises: ParameterError for a second matrix."""
    if b is not None:
        raise ParameterError(
            "eigh: the generalised problem of two matrices is not there",
            remedy="reduce it: with L = cholesky(b, lower=True), take eigh of L^-1 a L^-H",
        )
    uplo = "L" if lower else "U"
    if eigvals_only:
        return linalg.eigvalsh(a, uplo)
    w, v = linalg.eigh(a, uplo)
    return w, v


def expm(A: ArrayLike) -> Array:
    """Return the matrix exponential."""
    return linalg.expm(A)


@overload
def lu(
    a: ArrayLike, permute_l: Literal[False] = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array, Array]: ...
@overload
def lu(
    a: ArrayLike, permute_l: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]: ...
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, ...]:
    """Return P, L and U with a = P @ L @ U; with `permute_l` P @ L and U."""
    return linalg.lu(a, True) if permute_l else linalg.lu(a, False)


def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """Return the packed LU factors and the row exchanges, for `lu_solve`."""
    return linalg.lu_factor(a)


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Return the x with op(a) @ x = b, from `lu_factor(a)`; op: 0 nothing, 1 transpose, 2 conjugate transpose."""
    return linalg.lu_solve(lu_and_piv, b, trans)


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: int | None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """Return Q and R with a = Q @ R; for the mode "r", R alone in a tuple.

    Raises: ParameterError for another mode than "full", "economic" or "r", and for `pivoting`.
    """
    if pivoting:
        raise ParameterError("qr: pivoting is not there", remedy="use svd to find the rank")
    if mode == "r":
        return (linalg.qr(a, mode="r"),)
    if mode not in ("full", "economic"):
        raise ParameterError(f"qr: mode {mode!r}", remedy='use "full", "economic" or "r"')
    q, r = linalg.qr(a, mode="complete" if mode == "full" else "reduced")
    return q, r


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """Return the x with a @ x = b. With assume_a="pos" by Cholesky's method, for a Hermitian positive definite a.

    Raises: ParameterError for another `assume_a` than "gen", "sym", "her" or "pos".
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ParameterError(f"solve: assume_a {assume_a!r}", remedy='use "gen", "sym", "her" or "pos"')
    if assume_a == "pos":
        return linalg.cho_solve(linalg.cho_factor(a, lower), b)
    return linalg.solve(a, b)


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: object = None,
    check_finite: bool = True,
) -> Array:
    """Return the x with op(a) @ x = b for triangular a; op: 0 or "N" nothing, 1 or "T" transpose, 2 or "C" conjugate
    transpose."""
    number = dict(_TRANS).get(trans, trans) if isinstance(trans, str) else trans
    if isinstance(number, str):
        raise ParameterError(f"solve_triangular: trans is {trans!r}", remedy='use "N", "T" or "C", or 0, 1 or 2')
    return linalg.solve_triangular(a, b, number, lower, unit_diagonal)


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> tuple[Array, Array, Array]: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array: ...
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, Array, Array]:
    """Return U, the singular values and V^H; the singular values alone without `compute_uv`."""
    if not compute_uv:
        return linalg.svdvals(a)
    u, s, vh = linalg.svd(a, full_matrices=full_matrices)
    return u, s, vh


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Return the matrix with constant diagonals whose first column is c and whose first row is r (default: conj(c))."""
    column = fnp.ravel(fnp.asarray(c))
    row = fnp.conj(column) if r is None else fnp.ravel(fnp.asarray(r))
    n, m = column.shape[0], row.shape[0]
    values = fnp.concatenate([fnp.flip(column), row[1:]])
    return values[fnp.arange(n - 1, -1, -1)[:, None] + fnp.arange(m)[None, :]]


def hilbert(n: int) -> Array:
    """Return the matrix 1 / (i + j + 1)."""
    k = fnp.arange(n)
    return 1.0 / (k[:, None] + k[None, :] + 1)


__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "det", "eigh", "expm", "hilbert", "inv", "lu", "lu_factor",
    "lu_solve", "qr", "solve", "solve_triangular", "svd", "toeplitz",
]  # fmt: skip
