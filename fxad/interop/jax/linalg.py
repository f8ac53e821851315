"""Linear algebra of JAX."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from fxad import lax
from fxad.interop.jax.equations import Equation, JaxValue, Rows, with_params
from fxad.lax import linalg
from fxad.numpy.products import matmul, outer
from fxad.numpy.shapes import matrix_transpose
from fxad.tracing.array import Array


def _refuse_algorithm(eqn: Equation, *names: str) -> None:
    """Raise TranslationError for parameters that select another algorithm or another form of the result."""
    for name in names:
        if eqn.params.get(name):
            raise eqn.refuse(f"{name} is {eqn.params[name]}", f"leave {name} out")


def _refuse_subset(eqn: Equation, x: JaxValue) -> None:
    """Raise TranslationError if only some of the eigenvalues or singular values are wanted."""
    part = eqn.params["subset_by_index"]
    if part is not None and tuple(part) != (0, min(x.shape[-2:])):
        raise eqn.refuse(f"subset_by_index is {part}", "take the part of the whole result")


def _eigh(eqn: Equation, x: JaxValue) -> tuple[Array, Array]:
    _refuse_subset(eqn, x)
    return linalg.eigh(x, lower=eqn.params["lower"], symmetrize_input=False)


def _svd(eqn: Equation, x: JaxValue) -> object:
    _refuse_subset(eqn, x)
    p = eqn.params
    if not p["compute_uv"]:
        return [linalg.svd(x, full_matrices=p["full_matrices"], compute_uv=False)]
    u, s, vh = linalg.svd(x, full_matrices=p["full_matrices"])
    return s, u, vh


def _qr(eqn: Equation, x: JaxValue) -> tuple[Array, ...]:
    _refuse_algorithm(eqn, "use_magma")
    full: bool = eqn.params["full_matrices"]
    if eqn.params["pivoting"]:
        return linalg.qr(x, pivoting=True, full_matrices=full)
    return linalg.qr(x, full_matrices=full)


def _cholesky_update(eqn: Equation, r: JaxValue, w: JaxValue) -> Array:
    """Return the upper factor of r^T r + w w^T."""
    return matrix_transpose(linalg.cholesky(lax.add(matmul(matrix_transpose(r), r), outer(w, w))))


def _symmetric_product(eqn: Equation, a: JaxValue, c: JaxValue) -> Array:
    product = matmul(a, matrix_transpose(a))
    alpha, beta = [lax.full(eqn.shape, eqn.params[name], eqn.dtype) for name in ("alpha", "beta")]
    return lax.add(lax.mul(alpha, product), lax.mul(beta, c))


def _tridiagonal_solve(eqn: Equation, dl: JaxValue, d: JaxValue, du: JaxValue, b: JaxValue) -> Array:
    _refuse_algorithm(eqn, "perturb_singular")
    return linalg.tridiagonal_solve(dl, d, du, b)


LINALG: Final[Rows] = MappingProxyType({
    # reads one triangle; its derivative is JAX's for symmetric tangents
    "cholesky": with_params(linalg.cholesky, symmetrize_input=False),
    "cholesky_update": _cholesky_update,
    "schur": with_params(linalg.schur, "compute_schur_vectors", "sort_eig_vals"),
    "eig": with_params(linalg.eig, "compute_left_eigenvectors", "compute_right_eigenvectors"),
    "eigh": _eigh,
    "geqrf": with_params(linalg.geqrf),
    "householder_product": with_params(linalg.householder_product),
    "lu": with_params(linalg.lu),
    "lu_pivots_to_permutation": with_params(linalg.lu_pivots_to_permutation, "permutation_size"),
    "ormqr": with_params(linalg.ormqr, "left", "transpose"),
    "qr": _qr,
    "svd": _svd,
    "symmetric_product": _symmetric_product,
    "triangular_solve": with_params(
        linalg.triangular_solve, "left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal"
    ),
    "tridiagonal": with_params(linalg.tridiagonal, "lower"),
    "tridiagonal_solve": _tridiagonal_solve,
})  # fmt: skip
