"""Linear algebra with JAX's names and argument orders: matrices on the last two axes, all other axes are batch axes.

Dtypes are float32, float64, complex64 and complex128; there is no promotion or broadcasting. `fxad.numpy.linalg` has
NumPy's rules and the composite functions: `solve`, `inv`, `det`, `pinv`, `expm`, ....
"""

from __future__ import annotations

from typing import Literal, overload

from fxad.errors import ParameterError, shown
from fxad.operations import linalg, linear_systems
from fxad.operations.arguments import flag, to_int, to_ints
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.lu import LuPivotsToPermutation
from fxad.primitives.linalg.qr import GEQRF, HOUSEHOLDER_PRODUCT, Ormqr, Qr
from fxad.primitives.linalg.reduction import Tridiagonalize
from fxad.primitives.linalg.schur import Schur
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.tridiagonal import TRIDIAGONAL_SOLVE
from fxad.tracing.array import Array, ArrayLike, binder


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Return the lower triangular L with L L^H = x; nan if x is not positive definite.

    Rule:   with `symmetrize_input` x is replaced by (x + x^H) / 2, so its gradient is Hermitian; otherwise the lower
            triangle is read.
    """
    symmetrize_input = flag("cholesky", "symmetrize_input", symmetrize_input)
    return binder().apply(linear_systems.cholesky, (x,), (symmetrize_input, False))[0]


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = True,
) -> tuple[Array, ...]:
    """Return the eigenvalues, then the selected matrices of left and of right eigenvectors; all complex. They always
    have derivatives: `enable_eigvec_derivs` changes nothing."""
    flag("eig", "enable_eigvec_derivs", enable_eigvec_derivs)
    left = flag("eig", "compute_left_eigenvectors", compute_left_eigenvectors)
    right = flag("eig", "compute_right_eigenvectors", compute_right_eigenvectors)
    return binder().bind(Eig(left, right), (x,))


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
) -> tuple[Array, Array]:
    """Return the eigenvectors, as columns, and the ascending eigenvalues of a Hermitian matrix; those from the first to
    before the second of `subset_by_index`. They are ascending also without `sort_eigenvalues`.

    Rule:   x is symmetrized as in `cholesky`; otherwise the triangle that `lower` names is read.
    Raises: ParameterError for a subset that is not in order, or outside of the eigenvalues.
    """
    flag("eigh", "sort_eigenvalues", sort_eigenvalues)
    static = (flag("eigh", "lower", lower), flag("eigh", "symmetrize_input", symmetrize_input), True)
    w, v = binder().apply(linalg.eigh, (x,), static)
    if subset_by_index is None:
        return v, w
    subset = to_ints("eigh", "subset_by_index", subset_by_index)
    first, last = subset if len(subset) == 2 else (0, 0)
    if not 0 <= first < last <= w.shape[-1]:
        raise ParameterError(
            f"eigh: subset_by_index {shown(subset)} of {w.shape[-1]} eigenvalues",
            remedy="give the first index, and the one after the last",
        )
    return v[..., first:last], w[..., first:last]


def geqrf(a: ArrayLike) -> tuple[Array, Array]:
    """Return the QR decomposition in LAPACK's form: R, with the reflectors below it, and their scalar factors."""
    packed, taus = binder().bind(GEQRF, (a,))
    return packed, taus


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """Return the first columns of the product of the reflections below the diagonal of a."""
    return binder().bind(HOUSEHOLDER_PRODUCT, (a, taus))[0]


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    """Return Q c, or c Q without `left`; Q is the square product of the reflections below the diagonal of a, as `geqrf`
    gives them. `transpose` multiplies by Q^T, of complex matrices by Q^H. Q is not formed."""
    return binder().bind(Ormqr(flag("ormqr", "left", left), flag("ormqr", "transpose", transpose)), (a, taus, c))[0]


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """Return L and U in one matrix, the row exchanges, and the row permutation that they give: x[permutation] = L U."""
    factors, pivots, permutation = binder().apply(linear_systems.lu, (x,), ())
    return factors, pivots, permutation


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """Return the row permutation that row exchanges give."""
    size = to_int("lu_pivots_to_permutation", "permutation_size", permutation_size)
    return binder().bind(LuPivotsToPermutation(size, False), (pivots,))[0]


@overload
def qr(
    x: ArrayLike, *, pivoting: Literal[False] = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, Array]: ...
@overload
def qr(
    x: ArrayLike, *, pivoting: Literal[True], full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, Array, Array]: ...


def qr(
    x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, ...]:
    """Return Q and R with x = Q R. With `pivoting` also the int32 order p of the columns with x[:, p] = Q R, in which
    the diagonal of R has descending absolute values. `use_magma` names a library of JAX on GPUs, and changes nothing.

    Rule:   the order has no derivative; those of Q and R are the derivatives of the decomposition of x[:, p].
    Cost:   with `pivoting`, x is decomposed twice: for the order, and in it.
    """
    if use_magma is not None:
        flag("qr", "use_magma", use_magma)
    full = flag("qr", "full_matrices", full_matrices)
    if flag("qr", "pivoting", pivoting):
        return tuple(binder().apply(linalg.pivoted_qr, (x,), (full,)))
    q, r = binder().bind(Qr(full), (x,))
    return q, r


@overload
def svd(
    x: ArrayLike, *, full_matrices: bool = True, compute_uv: Literal[True] = True
) -> tuple[Array, Array, Array]: ...
@overload
def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: Literal[False]) -> Array: ...


def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True) -> tuple[Array, Array, Array] | Array:
    """Return U, the descending singular values and V^H; without `compute_uv` the singular values alone."""
    full_matrices = flag("svd", "full_matrices", full_matrices)
    if not flag("svd", "compute_uv", compute_uv):
        return binder().bind(Svd(False, False), (x,))[0]
    s, u, vh = binder().bind(Svd(True, full_matrices), (x,))
    return u, s, vh


@overload
def schur(
    x: ArrayLike, *, compute_schur_vectors: Literal[True] = True, sort_eig_vals: bool = False
) -> tuple[Array, Array]: ...
@overload
def schur(x: ArrayLike, *, compute_schur_vectors: Literal[False], sort_eig_vals: bool = False) -> tuple[Array]: ...
def schur(
    x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False
) -> tuple[Array, Array] | tuple[Array]:
    """Return T, and with `compute_schur_vectors` the unitary Z with x = Z T Z^H; for real x, T has blocks of 2 x 2.

    Raises: ParameterError for `sort_eig_vals`: LAPACK's order is kept; NotDifferentiableError.
    """
    if flag("schur", "sort_eig_vals", sort_eig_vals):
        raise ParameterError("schur: eigenvalues are not ordered", remedy="leave out sort_eig_vals")
    outs = binder().bind(Schur(flag("schur", "compute_schur_vectors", compute_schur_vectors)), (x,))
    return (outs[0], outs[1]) if len(outs) == 2 else (outs[0],)


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Return the x with op(a) x = b (`left_side`) or x op(a) = b, where a is triangular; a b with one axis less is a
    batch of vectors."""
    named = {"left_side": left_side, "lower": lower, "transpose_a": transpose_a, "conjugate_a": conjugate_a}
    flags = {**named, "unit_diagonal": unit_diagonal}
    static = tuple([flag("triangular_solve", name, value) for name, value in flags.items()])
    return binder().apply(linear_systems.triangular_solve, (a, b), static)[0]


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Return the tridiagonal form T = Q^H a Q of Hermitian matrices as LAPACK stores it: T and the reflectors, the
    diagonal of T, the diagonal beside it, and the scalar factors of the reflectors.

    The lower triangle is read, otherwise the upper one; T and the reflectors take its place in the first result.
    Raises: NotDifferentiableError: differentiate `eigh`.
    """
    packed, diagonal, beside, taus = binder().bind(Tridiagonalize(flag("tridiagonal", "lower", lower)), (a,))
    return packed, diagonal, beside, taus


def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """Return the x with a x = b, where a has the diagonals dl, d and du; dl[0] and du[-1] are ignored. It is nan for a
    singular a. Raises: ParameterError for `perturb_singular`."""
    if flag("tridiagonal_solve", "perturb_singular", perturb_singular):
        raise ParameterError("tridiagonal_solve: pivots are not perturbed", remedy="add a small number to d")
    return binder().bind(TRIDIAGONAL_SOLVE, (dl, d, du, b))[0]


__all__ = [
    "cholesky",
    "eig",
    "eigh",
    "geqrf",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "ormqr",
    "qr",
    "schur",
    "svd",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
]


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
