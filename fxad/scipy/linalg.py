"""Linear algebra, as in `scipy.linalg`: its names, argument orders and defaults.

`overwrite_a`, `overwrite_b`, `check_finite`, `debug`, `lapack_driver` and `lwork` say how SciPy computes. They are
accepted and change no result: nothing is overwritten, and a matrix with nan gives nan.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NoReturn, overload

import numpy as np
import numpy.typing as npt

from fxad import dtypes, numpy as fnp
from fxad.api.directional import jvp
from fxad.errors import DTypeError, ParameterError, ShapeError, shown
from fxad.ir import NDArray
from fxad.numpy import linalg
from fxad.numpy.apply import as_array, as_inexact_array
from fxad.numpy.composites import promote_arguments
from fxad.numpy.linalg import block_diag
from fxad.numpy.linalg.decompositions import pivoted_qr
from fxad.operations.arguments import check_flags, flag, to_int, to_ints, word
from fxad.scipy.arguments import floats
from fxad.scipy.matrix_functions import funm, hessenberg, rsf2csf, schur, solve_sylvester, sqrtm
from fxad.support.absent import absent
from fxad.tracing.array import Array, ArrayLike

_TRANS: Final = MappingProxyType({"N": 0, "T": 1, "C": 2})


def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the Cholesky factor of a Hermitian matrix: by default the upper one, U with a = U^H U."""
    check_flags("cholesky", overwrite_a=overwrite_a, check_finite=check_finite)
    return linalg.cholesky(a, upper=not flag("cholesky", "lower", lower), symmetrize_input=False)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """Return the Cholesky factor and a flag that it is the lower one, for `cho_solve`."""
    check_flags("cho_factor", overwrite_a=overwrite_a, check_finite=check_finite)
    return linalg.cho_factor(a, lower)


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """Return the x with a @ x = b, from `cho_factor(a)`."""
    check_flags("cho_solve", overwrite_b=overwrite_b, check_finite=check_finite)
    return linalg.cho_solve(c_and_lower, b)


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the determinant."""
    check_flags("det", overwrite_a=overwrite_a, check_finite=check_finite)
    return linalg.det(a)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the inverse."""
    check_flags("inv", overwrite_a=overwrite_a, check_finite=check_finite)
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
            "eigh: the generalised problem of two matrices is not supported",
            remedy="reduce it: with L = cholesky(b, lower=True), take eigh of L^-1 a L^-H",
        )
    uplo = "L" if flag("eigh", "lower", lower) else "U"
    if flag("eigh", "eigvals_only", eigvals_only):
        return linalg.eigvalsh(a, uplo, symmetrize_input=False)
    w, v = linalg.eigh(a, uplo, symmetrize_input=False)
    return w, v


def expm(A: ArrayLike, *, upper_triangular: bool = False) -> Array:
    """Return the matrix exponential. With `upper_triangular` the elements below the diagonal count as 0."""
    upper = flag("expm", "upper_triangular", upper_triangular)
    return linalg.expm(fnp.triu(A) if upper else A)


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
    check_flags("lu", overwrite_a=overwrite_a, check_finite=check_finite)
    return linalg.lu(a, True) if flag("lu", "permute_l", permute_l) else linalg.lu(a, False)


def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """Return the packed LU factors and the row exchanges, for `lu_solve`."""
    check_flags("lu_factor", overwrite_a=overwrite_a, check_finite=check_finite)
    return linalg.lu_factor(a)


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Return the x with op(a) @ x = b, from `lu_factor(a)`; op: 0 nothing, 1 transpose, 2 conjugate transpose."""
    check_flags("lu_solve", overwrite_b=overwrite_b, check_finite=check_finite)
    return linalg.lu_solve(lu_and_piv, b, trans)


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: int | None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """Return Q and R with a = Q @ R; for the mode "r", R alone in a tuple. With `pivoting` also the int32 order p of
    the columns with a[:, p] = Q @ R, in which the diagonal of R has descending absolute values.

    Raises: ParameterError for another mode than "full", "economic" or "r".
    """
    check_flags("qr", overwrite_a=overwrite_a, check_finite=check_finite)
    if lwork is not None:
        to_int("qr", "lwork", lwork)
    pivoting = flag("qr", "pivoting", pivoting)
    word("qr", "mode", mode, ("full", "economic", "r"))
    if pivoting:
        parts = pivoted_qr(a, mode == "full" or mode == "r")
        return parts[1:] if mode == "r" else parts
    if mode == "r":
        return (linalg.qr(a, mode="complete")[1],)  # with all its rows, as in SciPy
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

    Of a matrix that is said to be symmetric ("sym"), Hermitian ("her") or positive definite, one triangle is read: the
    upper one, or with `lower` the lower one.

    Raises: ParameterError for another `assume_a` than "gen", "sym", "her" or "pos".
    """
    check_flags("solve", overwrite_a=overwrite_a, overwrite_b=overwrite_b, debug=debug, check_finite=check_finite)
    word("solve", "assume_a", assume_a, ("gen", "sym", "her", "pos"))
    lower = flag("solve", "lower", lower)
    if assume_a == "pos":
        return linalg.cho_solve(linalg.cho_factor(a, lower), b)
    if assume_a in ("sym", "her"):
        part = fnp.tril(a) if lower else fnp.triu(a)
        other = fnp.matrix_transpose(fnp.tril(a, -1) if lower else fnp.triu(a, 1))
        a = part + (fnp.conj(other) if assume_a == "her" else other)
        if assume_a == "her" and a.dtype in dtypes.COMPLEX:  # as in LAPACK, the diagonal is taken for real
            a = fnp.where(fnp.eye(a.shape[-1], dtype=dtypes.bool_), a.real, a)
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
    check_flags("solve_triangular", overwrite_b=overwrite_b, check_finite=check_finite)
    number = _TRANS.get(trans, trans) if isinstance(trans, str) else trans
    if isinstance(number, str):
        raise ParameterError(f"solve_triangular: trans is {shown(trans)}", remedy='use "N", "T" or "C", or 0, 1 or 2')
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
    check_flags("svd", overwrite_a=overwrite_a, check_finite=check_finite)
    if not flag("svd", "compute_uv", compute_uv):
        return linalg.svdvals(a)
    u, s, vh = linalg.svd(a, full_matrices=full_matrices)
    return u, s, vh


def _vectors(name: str, x: ArrayLike) -> Array:
    """Return an array whose last axis is that of vectors; a number is a vector of one."""
    array = as_array(name, x)
    return array if array.ndim else array.reshape(1)


def _same_batch(x: Array, y: Array) -> tuple[Array, Array]:
    """Return two arrays with the common shape of their axes before the last one."""
    shape = fnp.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    return fnp.broadcast_to(x, (*shape, x.shape[-1])), fnp.broadcast_to(y, (*shape, y.shape[-1]))


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Return the matrix with constant diagonals whose first column is c and whose first row is r (default: conj(c)).
    The axes before the last one are batch axes, as in SciPy from 1.17 on."""
    column = _vectors("toeplitz", c)
    column, row = _same_batch(column, fnp.conj(column) if r is None else _vectors("toeplitz", r))
    n, m = column.shape[-1], row.shape[-1]
    values = fnp.concatenate([fnp.flip(column, -1), row[..., 1:]], -1)
    return values[..., fnp.arange(n - 1, -1, -1)[:, None] + fnp.arange(m)[None, :]]


def hilbert(n: int) -> Array:
    """Return the matrix 1 / (i + j + 1)."""
    k = fnp.arange(to_int("hilbert", "n", n))
    return 1.0 / (k[:, None] + k[None, :] + 1)


def circulant(c: ArrayLike) -> Array:
    """Return the matrix whose columns are the turns of c. The axes before the last one are batch axes."""
    column = _vectors("circulant", c)
    k = fnp.arange(column.shape[-1])
    return column[..., (k[:, None] - k[None, :]) % column.shape[-1]]


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Return the matrix with constant antidiagonals whose first column is c and whose last row is r (default: 0). The
    axes before the last one are batch axes."""
    column = _vectors("hankel", c)
    column, row = _same_batch(column, fnp.zeros_like(column) if r is None else _vectors("hankel", r))
    values = fnp.concatenate([column, row[..., 1:]], -1)
    return values[..., fnp.arange(column.shape[-1])[:, None] + fnp.arange(row.shape[-1])[None, :]]


def companion(a: ArrayLike) -> Array:
    """Return the companion matrix of the polynomial whose coefficients are a, the highest first. The axes before the
    last one are batch axes."""
    monic = _monic("companion", a)
    n = monic.shape[-1]
    below = fnp.broadcast_to(fnp.eye(n - 1, n, dtype=monic.dtype), (*monic.shape[:-1], n - 1, n))
    return fnp.concatenate([-monic[..., None, :], below], -2)


def _monic(name: str, a: ArrayLike) -> Array:
    """Return the coefficients of polynomials after the highest, divided by it."""
    coefficients = as_inexact_array(name, _vectors(name, a))
    n = coefficients.shape[-1]
    if n < 2:
        raise ShapeError(f"{name}: takes two coefficients or more, got {n}", remedy="give a polynomial of degree 1")
    return coefficients[..., 1:] / coefficients[..., :1]


def fiedler_companion(a: ArrayLike) -> Array:
    """Return Fiedler's companion matrix of the polynomial whose coefficients are a, the highest first: it has five
    diagonals, and the eigenvalues of `companion(a)`. The axes before the last one are batch axes.

    Raises: ShapeError for less than two coefficients.
    Source: M. Fiedler, A note on companion matrices, Linear Algebra and its Applications 372 (2003)
    """
    monic = _monic("fiedler_companion", a)
    n = monic.shape[-1]
    if n == 1:
        return -monic[..., None]
    out = fnp.zeros((*monic.shape[:-1], n, n), monic.dtype)
    # of the 2 x 2 blocks on the diagonal of the factors; see the matrix of degree 5 in the source
    k = np.arange(n)
    out = out.at[..., k[:-2:2], k[2::2]].set(1)
    out = out.at[..., k[2::2], k[1:-1:2]].set(-monic[..., 2::2])
    out = out.at[..., k[:-1:2], k[1::2]].set(-monic[..., 1::2])
    out = out.at[..., k[3::2], k[1:-2:2]].set(1)
    return out.at[..., 0, 0].set(-monic[..., 0]).at[..., 1, 0].set(1)


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """Return the matrix that convolves a vector of n elements with a: `convolution_matrix(a, n) @ v`."""
    vector = _vector("convolution_matrix", a)
    if not fnp.ndim(a):
        raise ShapeError("convolution_matrix: a is a number", remedy="give a vector, such as [a]")
    word("convolution_matrix", "mode", mode, ("full", "same", "valid"))
    size = to_int("convolution_matrix", "n", n)
    m = vector.shape[0]
    if size < 1 or not m:
        raise ParameterError(f"convolution_matrix: n is {size}, and a has {m} elements", remedy="both are 1 or more")
    zeros = fnp.zeros(size - 1, vector.dtype)
    full = toeplitz(fnp.concatenate([vector, zeros]), fnp.concatenate([vector[:1], zeros]))
    if mode == "full":
        return full
    cut = (min(m, size) - 1) if mode == "valid" else (min(m, size) - 1) // 2
    rows = abs(m - size) + 1 if mode == "valid" else max(m, size)
    return full[cut : cut + rows]


def dft(n: int, scale: str | None = None, *, dtype: object = None) -> Array:
    """Return the matrix of the Fourier transform of n elements; `scale` is "sqrtn" or "n" to divide by these."""
    size = to_int("dft", "n", n)
    word("dft", "scale", scale, ("sqrtn", "n", None))
    kind = dtypes.complex64 if dtype is None else dtypes.as_dtype(dtype)
    if kind not in dtypes.COMPLEX:
        raise DTypeError(f"dft: dtype {kind}", remedy="the matrix is complex: use complex64 or complex128")
    if size == 0:
        return fnp.zeros((0, 0), kind)
    matrix = fnp.fft.fft(fnp.eye(size, dtype=kind))
    return matrix / {None: 1.0, "sqrtn": math.sqrt(size), "n": float(size)}[scale]


def fiedler(a: ArrayLike) -> Array:
    """Return the matrix of distances |a_i - a_j|. The axes before the last one are batch axes."""
    vector = _vectors("fiedler", a)
    return fnp.abs(vector[..., :, None] - vector[..., None, :])


def hadamard(n: int, dtype: object = int) -> Array:
    """Return Hadamard's matrix of a size that is a power of 2."""
    size = to_int("hadamard", "n", n)
    if size < 1 or size & (size - 1):
        raise ParameterError(f"hadamard: n is {size}, not a power of 2", remedy="give 1, 2, 4, 8, ...")
    matrix = fnp.ones((1, 1), dtypes.as_dtype(dtype))
    while matrix.shape[0] < size:
        matrix = fnp.concatenate([fnp.hstack([matrix, matrix]), fnp.hstack([matrix, -matrix])])
    return matrix


def helmert(n: int, full: bool = False) -> Array:
    """Return the orthogonal matrix of Helmert's contrasts; without its first row, which is constant, unless `full`."""
    size = to_int("helmert", "n", n)
    if size < 1:
        raise ParameterError(f"helmert: n is {size}", remedy="give the size of the matrix, 1 or more")
    k = fnp.arange(size).astype(dtypes.float32)
    rows = fnp.where(k[:, None] > k[None, :], 1.0, 0.0) - fnp.diag(k)
    rows = fnp.where(k[:, None] == 0, 1.0, rows)
    matrix = rows / fnp.sqrt(fnp.where(k == 0, float(size), k * (k + 1)))[:, None]
    return matrix if flag("helmert", "full", full) else matrix[1:]


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Return Leslie's matrix of a population: fecundities f in the first row, survival rates s below the diagonal."""
    births, rates = promote_arguments("leslie", _vector("leslie", f), _vector("leslie", s))
    if births.shape[0] != rates.shape[0] + 1 or births.shape[0] < 2:
        raise ShapeError(
            f"leslie: {births.shape[0]} fecundities and {rates.shape[0]} survival rates",
            remedy="give one rate less than fecundities",
        )
    return fnp.diag(rates, -1).at[0].set(births)


def pascal(n: int, kind: str | None = None) -> Array:
    """Return the matrix of binomial coefficients: "symmetric" (None), "lower" or "upper"."""
    size = _size_on_host("pascal", n, 4096)
    word("pascal", "kind", kind, ("symmetric", "lower", "upper", None))
    if kind in ("lower", "upper"):
        lower = _binomials(size)
        return _to_float32(lower if kind == "lower" else lower.T)
    values = np.ones((size, size))
    for k in range(1, size):
        values[k] = np.minimum(np.cumsum(values[k - 1]), _BEYOND_FLOAT32)
    return _to_float32(values)


_BEYOND_FLOAT32: Final = 1e100  # of numbers up to this one, sums and products are finite in float64


def _binomials(size: int) -> npt.NDArray[np.float64]:
    """Return the lower triangular matrix of binomial coefficients. Those beyond float32 are at least 3.5e38."""
    values = np.zeros((size, size))
    values[:, :1] = 1
    for k in range(1, size):
        values[k, 1:] = np.minimum(values[k - 1, 1:] + values[k - 1, :-1], _BEYOND_FLOAT32)
    return values


def _to_float32(values: NDArray) -> Array:
    """Return numbers as float32; those beyond its range are infinite."""
    with np.errstate(over="ignore"):
        return fnp.asarray(values.astype(np.float32))


def invpascal(n: int, kind: str | None = None) -> Array:
    """Return the inverse of `pascal(n, kind)`, whose elements are whole numbers."""
    size = _size_on_host("invpascal", n, 4096)
    word("invpascal", "kind", kind, ("symmetric", "lower", "upper", None))
    k = np.arange(size)
    signs = np.where((k[:, None] + k[None, :]) % 2 == 0, 1.0, -1.0)
    lower = _binomials(size)
    return _to_float32(signs * (lower if kind == "lower" else lower.T if kind == "upper" else lower.T @ lower))


def invhilbert(n: int) -> Array:
    """Return the inverse of `hilbert(n)`, whose elements are whole numbers."""
    size, c = _size_on_host("invhilbert", n, 128), math.comb

    def element(i: int, j: int) -> int:
        whole = (i + j + 1) * c(size + i, size - j - 1) * c(size + j, size - i - 1) * c(i + j, i) ** 2
        return -whole if (i + j) % 2 else whole

    values = [[float(element(i, j)) for j in range(size)] for i in range(size)]
    return _to_float32(np.array(values).reshape(size, size))


def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, ...]:
    """Return c @ Q ("right") or Q @ c ("left"), and R, with a = Q @ R; of the conjugate of Q with `conjugate`. With
    `pivoting` also the order p of the columns with a[:, p] = Q @ R.

    Raises: ParameterError for another mode.
    """
    check_flags("qr_multiply", overwrite_a=overwrite_a, overwrite_c=overwrite_c)
    pivoting = flag("qr_multiply", "pivoting", pivoting)
    word("qr_multiply", "mode", mode, ("right", "left"))
    q, *rest = pivoted_qr(a, False) if pivoting else linalg.qr(a)
    q = fnp.conj(q) if flag("qr_multiply", "conjugate", conjugate) else q
    return (fnp.matmul(q, c) if mode == "left" else fnp.matmul(c, q)), *rest


def polar(a: ArrayLike, side: str = "right", *, method: str = "svd") -> tuple[Array, Array]:
    """Return U and P with a = U @ P ("right") or a = P @ U ("left"): U has orthonormal columns or rows, P is positive
    semidefinite.

    Type:   `method` is "svd" or "qdwh", of which the results are the same: both are computed by the singular values.
    Raises: ParameterError for another side or method.
    """
    word("polar", "method", method, ("svd", "qdwh"))
    word("polar", "side", side, ("right", "left"))
    u, s, vh = linalg.svd(a, full_matrices=False)
    if side == "right":
        positive = fnp.conj(fnp.matrix_transpose(vh)) * s[..., None, :] @ vh
    else:
        positive = u * s[..., None, :] @ fnp.conj(fnp.matrix_transpose(u))
    return u @ vh, positive


@overload
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: Literal[True] = True
) -> tuple[Array, Array]: ...
@overload
def expm_frechet(A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: Literal[False]) -> Array: ...
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, Array]:
    """Return expm(A), and its derivative in the direction E; the derivative alone without `compute_expm`.

    Raises: ParameterError for a method: the derivative is that of the program.
    """
    if method is not None:
        raise ParameterError(f"expm_frechet: method {shown(method, 40)}", remedy="leave it out")
    x, e = floats("expm_frechet", A, E)
    value, slope = jvp(linalg.expm, (x,), (e,))
    return (value, slope) if flag("expm_frechet", "compute_expm", compute_expm) else slope


@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: Literal[False] = False,
    select: str = "a",
    select_range: tuple[int, int] | None = None,
) -> tuple[Array, Array]: ...
@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: Literal[True],
    select: str = "a",
    select_range: tuple[int, int] | None = None,
) -> Array: ...
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[int, int] | None = None,
) -> Array | tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of the Hermitian matrix with diagonal d, e above it and conj(e) below.

    With `select` "i" those whose numbers, of the ascending ones, are from the first to the last of `select_range`.

    Cost:   that of the dense matrix.
    Raises: ParameterError for a selection by value, whose size depends on values; ShapeError.
    """
    word("eigh_tridiagonal", "select", select, ("a", "i"))
    if (select == "i") != (select_range is not None):
        raise ParameterError('eigh_tridiagonal: select_range goes with select="i"', remedy="give both")
    middle, beside = floats("eigh_tridiagonal", _vector("eigh_tridiagonal", d), _vector("eigh_tridiagonal", e))
    if middle.shape[0] != beside.shape[0] + 1:
        raise ShapeError(
            f"eigh_tridiagonal: {middle.shape[0]} elements on the diagonal, {beside.shape[0]} beside it",
            remedy="give one element less beside the diagonal",
        )
    n = middle.shape[0]
    limits = (0, n - 1) if select_range is None else to_ints("eigh_tridiagonal", "select_range", select_range)
    if len(limits) != 2:
        raise ParameterError(
            f"eigh_tridiagonal: select_range has {len(limits)} numbers, not two: {shown(select_range)}",
            remedy="give the first number and the last, from 0",
        )
    first, last = limits
    if select_range is not None and not 0 <= first <= last < n:
        raise ParameterError(
            f"eigh_tridiagonal: select_range {shown(select_range)} of {n} eigenvalues",
            remedy="give the first number and the last, from 0",
        )
    chosen = slice(first, last + 1)
    matrix = fnp.diag(middle) + fnp.diag(beside, 1) + fnp.diag(fnp.conj(beside), -1)
    if flag("eigh_tridiagonal", "eigvals_only", eigvals_only):
        return linalg.eigvalsh(matrix)[chosen]
    values, vectors = linalg.eigh(matrix)
    return values[chosen], vectors[:, chosen]


def _size_on_host(name: str, n: int, most: int) -> int:
    """Return the size of a matrix whose elements Python or NumPy computes. Raises: ParameterError."""
    size = to_int(name, "n", n)
    if not 0 <= size <= most:
        raise ParameterError(
            f"{name}: n is {size}, and the matrix is computed on the host", remedy=f"give 0 to {most:,}"
        )
    return size


def _vector(name: str, x: ArrayLike) -> Array:
    return fnp.ravel(as_array(name, x))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(absent(__name__, name), name=name)


__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion", "convolution_matrix", "det", "dft",
    "eigh", "eigh_tridiagonal", "expm", "expm_frechet", "fiedler", "fiedler_companion", "funm", "hadamard", "hankel",
    "helmert", "hessenberg", "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve",
    "pascal", "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester", "solve_triangular",
    "sqrtm", "svd", "toeplitz",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
