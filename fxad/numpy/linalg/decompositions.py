"""Decompositions of matrices, and functions of eigenvalues and singular values."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, overload

from fxad.dtypes import int32
from fxad.numpy.apply import apply_op, apply_op_all, as_array
from fxad.numpy.binary import where
from fxad.numpy.linalg.norms import norm
from fxad.numpy.linalg.systems import inv
from fxad.numpy.unary import isnan
from fxad.operations import linalg, linear_systems
from fxad.operations.arguments import flag, number, word
from fxad.tracing.array import Array, ArrayLike, aval_of


class QRResult(NamedTuple):
    """The factors of x = Q R."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """The factors of x = U diag(S) Vh."""

    U: Array
    S: Array
    Vh: Array


class EighResult(NamedTuple):
    """Ascending eigenvalues, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns; both complex."""

    eigenvalues: Array
    eigenvectors: Array


def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Return the Cholesky factor of positive definite matrices: L with L L^H = a, or for `upper` U with U^H U = a.

    Rule:   with `symmetrize_input` `a` is replaced by (a + a^H) / 2, so its gradient is Hermitian; otherwise the lower
            triangle is read, for `upper` the upper one. The factor is nan if `a` is not positive definite.
    """
    symmetrize_input = flag("cholesky", "symmetrize_input", symmetrize_input)
    upper = flag("cholesky", "upper", upper)
    return apply_op("cholesky", linalg.promoted_cholesky, (a,), upper, symmetrize_input)


@overload
def qr(a: ArrayLike, mode: Literal["reduced", "complete"] = "reduced") -> QRResult: ...
@overload
def qr(a: ArrayLike, mode: Literal["r"]) -> Array: ...


def qr(a: ArrayLike, mode: str = "reduced") -> QRResult | Array:
    """Return Q with orthonormal columns and upper triangular R; all columns of Q for "complete", only R for "r"."""
    word("qr", "mode", mode, ("reduced", "complete", "r"))
    q, r = apply_op_all("qr", linalg.qr, (a,), mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def pivoted_qr(a: ArrayLike, full: bool) -> tuple[Array, Array, Array]:
    """Return Q, R and the order of the columns p, with a[:, p] = Q R."""
    q, r, order = apply_op_all("qr", linalg.promoted_pivoted_qr, (a,), full)
    return q, r, order


@overload
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: Literal[True] = True, hermitian: bool = False
) -> SVDResult: ...
@overload
def svd(a: ArrayLike, full_matrices: bool = True, *, compute_uv: Literal[False], hermitian: bool = False) -> Array: ...


def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> SVDResult | Array:
    """Return singular vectors and descending singular values; without `compute_uv` only the singular values.

    Rule:   full matrices have a derivative only for square `a`. `hermitian` says that `a` is Hermitian, which changes
            nothing here.
    """
    compute_uv = flag("svd", "compute_uv", compute_uv)
    flag("svd", "hermitian", hermitian)
    return SVDResult(*apply_op_all("svd", linalg.svd, (a,), full_matrices)) if compute_uv else svdvals(a)


def svdvals(x: ArrayLike, /) -> Array:
    """Return the singular values, descending."""
    return apply_op("svdvals", linalg.svdvals, (x,))


def eigh(a: ArrayLike, UPLO: str = "L", symmetrize_input: bool = True) -> EighResult:
    """Return eigenvalues and eigenvectors of Hermitian matrices.

    Rule:   `a` is symmetrized as in `cholesky`; otherwise the triangle `UPLO` is read. The derivative of eigenvectors is
            not finite if eigenvalues are equal.
    """
    symmetrize_input = flag("eigh", "symmetrize_input", symmetrize_input)
    static = _is_lower("eigh", UPLO), symmetrize_input, True
    return EighResult(*apply_op_all("eigh", linalg.promoted_eigh, (a,), *static))


def eigvalsh(a: ArrayLike, UPLO: str = "L", symmetrize_input: bool = True) -> Array:
    """Return the eigenvalues of Hermitian matrices, ascending; see `eigh`."""
    symmetrize_input = flag("eigvalsh", "symmetrize_input", symmetrize_input)
    return apply_op("eigvalsh", linalg.promoted_eigh, (a,), _is_lower("eigvalsh", UPLO), symmetrize_input, False)


def _is_lower(name: str, uplo: str) -> bool:
    return word(name, "UPLO", uplo, ("L", "U", "l", "u")) in "Ll"


def eig(a: ArrayLike) -> EigResult:
    """Return eigenvalues and right eigenvectors of square matrices."""
    return EigResult(*apply_op_all("eig", linalg.eig, (a,), True))


def eigvals(a: ArrayLike) -> Array:
    """Return the eigenvalues of square matrices."""
    return apply_op("eigvals", linalg.eig, (a,), False)


@overload
def lu(a: ArrayLike, permute_l: Literal[False] = False) -> tuple[Array, Array, Array]: ...
@overload
def lu(a: ArrayLike, permute_l: Literal[True]) -> tuple[Array, Array]: ...


def lu(a: ArrayLike, permute_l: bool = False) -> tuple[Array, ...]:
    """Return P, L and U with a = P @ L @ U; with `permute_l` P @ L and U (scipy.linalg.lu)."""
    permute_l = flag("lu", "permute_l", permute_l)
    return apply_op_all("lu", linear_systems.lu_parts, (a,), permute_l)


def matrix_rank(M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False) -> Array:
    """Return the number of singular values that exceed `rtol` times the largest, as int32. `rtol` and `hermitian` are as
    in `pinv`. A vector or a number has rank 1, or 0 if all elements are 0."""
    hermitian = flag("matrix_rank", "hermitian", hermitian)
    if aval_of(M, "matrix_rank: argument 0").ndim < 2:
        return (as_array("matrix_rank", M) != 0).any().astype(int32)
    if rtol is not None:
        return apply_op("matrix_rank", linalg.matrix_rank, (M, rtol), hermitian)
    return apply_op("matrix_rank", linalg.matrix_rank_default, (M,), hermitian)


def cond(x: ArrayLike, p: str | float | None = None) -> Array:
    """Return the condition number in a norm; for the 2-norm (None, 2) and its inverse (-2) from the singular values.

    Rule:   infinite where it is undefined, such as for a zero matrix, if no element is nan.
    """
    p = p if p is None or isinstance(p, str) else number("cond", "p", p)
    array = as_array("cond", x)
    if p is not None and p not in (2, -2):
        condition = norm(array, p, axis=(-2, -1)) * norm(inv(array), p, axis=(-2, -1))
    else:
        s = svdvals(array)
        condition = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return where(isnan(condition) & ~isnan(array).any((-2, -1)), math.inf, condition)
