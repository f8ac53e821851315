"""Linear algebra with JAX's names and argument orders: matrices on the last two axes, all other axes are batch axes.

Dtypes are float32, float64, complex64 and complex128; there is no promotion or broadcasting. `fxad.numpy.linalg` has
NumPy's rules and the composite functions: `solve`, `inv`, `det`, `pinv`, `expm`, ....
"""

from __future__ import annotations

from typing import Literal, overload

from fxad.operations import linalg, linear_systems
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.lu import LuPivotsToPermutation
from fxad.primitives.linalg.qr import GEQRF, HOUSEHOLDER_PRODUCT, Ormqr, Qr
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.tridiagonal import TRIDIAGONAL_SOLVE
from fxad.tracing.array import Array, ArrayLike, binder


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Return the lower triangular L with L L^H = x; nan if x is not positive definite.

    Rule:   with `symmetrize_input` x is replaced by (x + x^H) / 2, so its gradient is Hermitian; otherwise the lower
            triangle is read.
    """
    return binder().apply(linear_systems.cholesky, (x,), (symmetrize_input, False))[0]


def eig(
    x: ArrayLike, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True
) -> tuple[Array, ...]:
    """The eigenvalues, then the selected matrices of left and of right eigenvectors; all complex."""
    return binder().bind(Eig(compute_left_eigenvectors, compute_right_eigenvectors), (x,))


def eigh(x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True) -> tuple[Array, Array]:
    """Return the eigenvectors, as columns, and the ascending eigenvalues of a Hermitian matrix.

    Rule:   x is symmetrized as in `cholesky`; otherwise the triangle that `lower` names is read.
    """
    w, v = binder().apply(linalg.eigh, (x,), (lower, symmetrize_input, True))
    return v, w


def geqrf(a: ArrayLike) -> tuple[Array, Array]:
    """The QR decomposition in LAPACK's form: R, with the reflectors below it, and their scalar factors."""
    packed, taus = binder().bind(GEQRF, (a,))
    return packed, taus


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The first columns of the product of the reflections below the diagonal of a."""
    return binder().bind(HOUSEHOLDER_PRODUCT, (a, taus))[0]


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    """Q c, or c Q without `left`; Q is the square product of the reflections below the diagonal of a, as `geqrf` gives
    them. `transpose` multiplies by Q^T, of complex matrices by Q^H. Q is not formed."""
    return binder().bind(Ormqr(left, transpose), (a, taus, c))[0]


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """L and U in one matrix, the row exchanges, and the row permutation that they give: x[permutation] = L U."""
    factors, pivots, permutation = binder().apply(linear_systems.lu, (x,), ())
    return factors, pivots, permutation


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The row permutation that row exchanges give."""
    return binder().bind(LuPivotsToPermutation(permutation_size, False), (pivots,))[0]


def qr(x: ArrayLike, *, full_matrices: bool = True) -> tuple[Array, Array]:
    """Q and R with x = Q R."""
    q, r = binder().bind(Qr(full_matrices), (x,))
    return q, r


@overload
def svd(
    x: ArrayLike, *, full_matrices: bool = True, compute_uv: Literal[True] = True
) -> tuple[Array, Array, Array]: ...
@overload
def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: Literal[False]) -> Array: ...


def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True) -> tuple[Array, Array, Array] | Array:
    """U, the descending singular values and V^H; without `compute_uv` the singular values alone."""
    if not compute_uv:
        return binder().bind(Svd(False, False), (x,))[0]
    s, u, vh = binder().bind(Svd(True, full_matrices), (x,))
    return u, s, vh


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
    """The x with op(a) x = b (`left_side`) or x op(a) = b, where a is triangular; a b with one axis less is a batch of
    vectors."""
    static = (left_side, lower, transpose_a, conjugate_a, unit_diagonal)
    return binder().apply(linear_systems.triangular_solve, (a, b), static)[0]


def tridiagonal_solve(dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike) -> Array:
    """The x with a x = b, where a has the diagonals dl, d and du; dl[0] and du[-1] are ignored."""
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
    "svd",
    "triangular_solve",
    "tridiagonal_solve",
]


def __dir__() -> list[str]:
    """The names of the module, without those that it imports."""
    return sorted(__all__)
