"""Linear algebra of JAX."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from fxad import lax
from fxad.interop.jax.equations import Equation, Rows, Value
from fxad.lax import linalg
from fxad.numpy.products import matmul, outer
from fxad.numpy.shapes import matrix_transpose
from fxad.tracing.array import Array


def _whole(eqn: Equation, *names: str) -> None:
    """Refuses parameters that select a part of the result, or another algorithm."""
    for name in names:
        if eqn.params.get(name):
            raise eqn.refuse(f"{name} is {eqn.params[name]}", f"leave {name} out")


def _eigh(eqn: Equation, x: Value) -> tuple[Array, Array]:
    part = eqn.params["subset_by_index"]
    if part is not None and tuple(part) != (0, x.shape[-1]):
        raise eqn.refuse(f"subset_by_index is {part}", "take the part of the whole result")
    return linalg.eigh(x, lower=eqn.params["lower"], symmetrize_input=False)


def _svd(eqn: Equation, x: Value) -> object:
    part, p = eqn.params["subset_by_index"], eqn.params
    if part is not None and tuple(part) != (0, min(x.shape[-2:])):
        raise eqn.refuse(f"subset_by_index is {part}", "take the part of the whole result")
    if not p["compute_uv"]:
        return [linalg.svd(x, full_matrices=p["full_matrices"], compute_uv=False)]
    u, s, vh = linalg.svd(x, full_matrices=p["full_matrices"])
    return s, u, vh


def _qr(eqn: Equation, x: Value) -> tuple[Array, Array]:
    _whole(eqn, "pivoting", "use_magma")
    return linalg.qr(x, full_matrices=eqn.params["full_matrices"])


def _eig(eqn: Equation, x: Value) -> tuple[Array, ...]:
    p = eqn.params
    return linalg.eig(
        x,
        compute_left_eigenvectors=p["compute_left_eigenvectors"],
        compute_right_eigenvectors=p["compute_right_eigenvectors"],
    )


def _cholesky_update(eqn: Equation, r: Value, w: Value) -> Array:
    """The upper factor of r^T r + w w^T."""
    return matrix_transpose(linalg.cholesky(lax.add(matmul(matrix_transpose(r), r), outer(w, w))))


def _symmetric_product(eqn: Equation, a: Value, c: Value) -> Array:
    product = matmul(a, matrix_transpose(a))
    alpha, beta = [lax.full(eqn.shape, eqn.params[name], eqn.dtype) for name in ("alpha", "beta")]
    return lax.add(lax.mul(alpha, product), lax.mul(beta, c))


def _tridiagonal_solve(eqn: Equation, dl: Value, d: Value, du: Value, b: Value) -> Array:
    _whole(eqn, "perturb_singular")
    return linalg.tridiagonal_solve(dl, d, du, b)


def _triangular_solve(eqn: Equation, a: Value, b: Value) -> Array:
    p = eqn.params
    return linalg.triangular_solve(
        a,
        b,
        left_side=p["left_side"],
        lower=p["lower"],
        transpose_a=p["transpose_a"],
        conjugate_a=p["conjugate_a"],
        unit_diagonal=p["unit_diagonal"],
    )


LINALG: Final[Rows] = MappingProxyType({
    # reads one triangle; its derivative is JAX's for symmetric tangents
    "cholesky": lambda eqn, x: linalg.cholesky(x, symmetrize_input=False),
    "cholesky_update": _cholesky_update,
    "eig": _eig,
    "eigh": _eigh,
    "geqrf": lambda eqn, x: linalg.geqrf(x),
    "householder_product": lambda eqn, a, taus: linalg.householder_product(a, taus),
    "lu": lambda eqn, x: linalg.lu(x),
    "lu_pivots_to_permutation": lambda eqn, pivots: linalg.lu_pivots_to_permutation(
        pivots, eqn.params["permutation_size"]
    ),
    "ormqr": lambda eqn, a, taus, c: linalg.ormqr(
        a, taus, c, left=eqn.params["left"], transpose=eqn.params["transpose"]
    ),
    "qr": _qr,
    "svd": _svd,
    "symmetric_product": _symmetric_product,
    "triangular_solve": _triangular_solve,
    "tridiagonal_solve": _tridiagonal_solve,
})  # fmt: skip
