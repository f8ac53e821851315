"""Decompositions of matrices, and what is read off them."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, overload

from fxad.errors import ParameterError
from fxad.numpy.apply import apply_op, apply_op_all, as_array
from fxad.numpy.binary import where
from fxad.numpy.linalg.norms import norm
from fxad.numpy.linalg.systems import inv
from fxad.numpy.unary import isnan
from fxad.operations import linalg, linear_systems
from fxad.tracing.array import Array, ArrayLike


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


def cholesky(x: ArrayLike, /, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The triangular factor of positive definite matrices: L with L L^H = x, or `upper` U with U^H U = x.

    Rule: x is made Hermitian, (x + x^H) / 2, so that the gradient is too; without, its lower triangle is taken. The
          factor is nan where x is not positive definite.
    """
    return apply_op("cholesky", linalg.factor, (x,), upper, symmetrize_input)


@overload
def qr(x: ArrayLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult: ...
@overload
def qr(x: ArrayLike, /, *, mode: Literal["r"]) -> Array: ...


def qr(x: ArrayLike, /, *, mode: str = "reduced") -> QRResult | Array:
    """Q with orthonormal columns and upper triangular R; all columns of Q for "complete", R alone for "r"."""
    if mode not in ("reduced", "complete", "r"):
        raise ParameterError(f"qr: mode {mode!r} is not one of 'reduced', 'complete', 'r'")
    q, r = apply_op_all("qr", linalg.qr, (x,), mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@overload
def svd(x: ArrayLike, /, *, full_matrices: bool = True, compute_uv: Literal[True] = True) -> SVDResult: ...
@overload
def svd(x: ArrayLike, /, *, full_matrices: bool = True, compute_uv: Literal[False]) -> Array: ...


def svd(x: ArrayLike, /, *, full_matrices: bool = True, compute_uv: bool = True) -> SVDResult | Array:
    """Singular vectors and descending singular values; without `compute_uv` the singular values alone.

    Rule: full matrices have a derivative only where x is square.
    """
    return SVDResult(*apply_op_all("svd", linalg.svd, (x,), full_matrices)) if compute_uv else svdvals(x)


def svdvals(x: ArrayLike, /) -> Array:
    """The singular values, descending."""
    return apply_op("svdvals", linalg.svdvals, (x,))


def eigh(x: ArrayLike, /, UPLO: str = "L", symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices.

    Rule: x is made Hermitian, as in `cholesky`; without, the triangle that `UPLO` names is taken. Eigenvectors have no
          derivative where eigenvalues are equal: it is not finite.
    """
    static = _is_lower("eigh", UPLO), symmetrize_input, True
    return EighResult(*apply_op_all("eigh", linalg.hermitian_eig, (x,), *static))


def eigvalsh(x: ArrayLike, /, UPLO: str = "L", symmetrize_input: bool = True) -> Array:
    """Eigenvalues of Hermitian matrices, ascending; see `eigh`."""
    return apply_op("eigvalsh", linalg.hermitian_eig, (x,), _is_lower("eigvalsh", UPLO), symmetrize_input, False)


def _is_lower(name: str, uplo: str) -> bool:
    if uplo not in ("L", "U", "l", "u"):
        raise ParameterError(f"{name}: UPLO {uplo!r} is not one of 'L', 'U'")
    return uplo in "Ll"


def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues and right eigenvectors of square matrices."""
    return EigResult(*apply_op_all("eig", linalg.eig, (x,), True))


def eigvals(x: ArrayLike, /) -> Array:
    """Eigenvalues of square matrices."""
    return apply_op("eigvals", linalg.eig, (x,), False)


@overload
def lu(a: ArrayLike, permute_l: Literal[False] = False) -> tuple[Array, Array, Array]: ...
@overload
def lu(a: ArrayLike, permute_l: Literal[True]) -> tuple[Array, Array]: ...


def lu(a: ArrayLike, permute_l: bool = False) -> tuple[Array, ...]:
    """P, L and U with a = P @ L @ U; with `permute_l` P @ L and U (scipy.linalg.lu)."""
    return apply_op_all("lu", linear_systems.lu_parts, (a,), permute_l)


def matrix_rank(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Array:
    """How many singular values exceed `rtol` times the largest, as int32.

    `rtol` is as in `pinv`.
    """
    if rtol is not None:
        return apply_op("matrix_rank", linalg.matrix_rank, (x, rtol))
    return apply_op("matrix_rank", linalg.matrix_rank_default, (x,))


def cond(x: ArrayLike, p: str | float | None = None) -> Array:
    """The condition number in a norm; in the 2-norm (None, 2) and its inverse (-2) by the singular values.

    Rule: infinite where it is undefined, as for zeros, and no element is nan.
    """
    array = as_array("cond", x)
    if p is not None and p not in (2, -2):
        found = norm(array, p, axis=(-2, -1)) * norm(inv(array), p, axis=(-2, -1))
    else:
        s = svdvals(array)
        found = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return where(isnan(found) & ~isnan(array).any((-2, -1)), math.inf, found)
