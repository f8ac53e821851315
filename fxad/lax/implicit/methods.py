"""Krylov methods over vectors: conjugate gradients, BiCGSTAB, and one cycle of GMRES.

All solve A d = r from d = 0, for an r whose greatest element is about 1. They stop when the norm of the residual is at
most `target` or after `limit` steps. They return d, the number of steps, and the reason of an early end (a
`Breakdown`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fxad import dtypes
from fxad.core.sizes.size import maximum, minimum
from fxad.lax.contractions import dot
from fxad.lax.control import while_loop
from fxad.lax.creation import convert, full, full_like, iota
from fxad.lax.elementwise import abs as absolute, is_finite, sqrt
from fxad.lax.implicit.convergence import Breakdown
from fxad.lax.implicit.vectors import (
    VectorMap,
    epsilon,
    first_case,
    inner_product,
    real_part,
    safe_ratio,
    select_value,
    unscaled_norm,
)
from fxad.lax.linalg import triangular_solve
from fxad.lax.shapes import broadcast_in_dim, dynamic_index_in_dim, dynamic_update_index_in_dim
from fxad.tracing.array import Array

MethodResult: TypeAlias = tuple[Array, Array, Array]  # d, the number of steps, the breakdown
Method: TypeAlias = Callable[[VectorMap, VectorMap, Array, Array, Array], MethodResult]

_NONE = int(Breakdown.NONE)


def conjugate_gradients(
    apply: VectorMap, precondition: VectorMap, r: Array, target: Array, limit: Array
) -> MethodResult:
    """Solve a system with a Hermitian definite matrix and a Hermitian definite preconditioner.

    Source: Hestenes, Stiefel, Methods of Conjugate Gradients for Solving Linear Systems (1952)
    """
    z = precondition(r)
    zero = full((), 0, dtypes.int32)

    def going(state: tuple[Array, ...]) -> Array:
        k, _, r, _, _, breakdown = state
        return (unscaled_norm(r) > target) & (k < limit) & (breakdown == _NONE)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        k, d, r, p, rz, _ = state
        image = apply(p)
        curvature = real_part(inner_product(p, image))
        alpha = safe_ratio(rz, curvature)
        breakdown = first_case(
            (~is_finite(curvature), Breakdown.NOT_FINITE),
            (rz == 0, Breakdown.ORTHOGONAL),
            (curvature == 0, Breakdown.SINGULAR),
        )
        d, r = d + alpha * p, r - alpha * image
        z = precondition(r)
        after = real_part(inner_product(r, z))
        return k + 1, d, r, z + safe_ratio(after, rz) * p, after, breakdown

    start: tuple[Array, ...] = (zero, full_like(r, 0), r, z, real_part(inner_product(r, z)), zero)
    k, d, _, _, _, breakdown = while_loop(going, step, start)
    return d, k, breakdown


def bicgstab(apply: VectorMap, precondition: VectorMap, r: Array, target: Array, limit: Array) -> MethodResult:
    """Solve a system with any matrix; a step takes two products with it.

    Source: van der Vorst, Bi-CGSTAB: A Fast and Smoothly Converging Variant of Bi-CG (1992)
    """
    shadow = r
    tiny = epsilon(r.dtype) ** 2
    zero, one = full((), 0, dtypes.int32), full((), 1, r.dtype)

    def going(state: tuple[Array, ...]) -> Array:
        k, _, r, *_, breakdown = state
        return (unscaled_norm(r) > target) & (k < limit) & (breakdown == _NONE)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        k, d, r, p, v, rho, alpha, omega, _ = state
        rho_next = inner_product(shadow, r)
        orthogonal = absolute(rho_next) <= tiny * unscaled_norm(shadow) * unscaled_norm(r)
        p = r + safe_ratio(rho_next, rho) * safe_ratio(alpha, omega) * (p - omega * v)
        p_hat = precondition(p)
        v = apply(p_hat)
        shadow_v = inner_product(shadow, v)
        alpha = select_value(orthogonal, 0, safe_ratio(rho_next, shadow_v))
        s = r - alpha * v
        s_hat = precondition(s)
        t = apply(s_hat)
        omega = select_value(orthogonal, 0, safe_ratio(inner_product(t, s), inner_product(t, t)))
        d, r = d + alpha * p_hat + omega * s_hat, s - omega * t
        breakdown = first_case(
            (~is_finite(unscaled_norm(r)), Breakdown.NOT_FINITE),
            (orthogonal, Breakdown.ORTHOGONAL),
            ((shadow_v == 0) | ((omega == 0) & (unscaled_norm(s) > target)), Breakdown.SINGULAR),
        )
        return k + 1, d, r, p, v, rho_next, alpha, omega, breakdown

    start: tuple[Array, ...] = (zero, full_like(r, 0), r, full_like(r, 0), full_like(r, 0), one, one, one, zero)
    k, d, *_, breakdown = while_loop(going, step, start)
    return d, k, breakdown


def gmres_cycle(length: int) -> Method:
    """GMRES for any matrix, of at most `length` steps: the least residual over the Krylov space, with right
    preconditioning, so the residual is that of the system. One Givens rotation per step gives its norm, and ends the
    cycle early.

    Cost:   `length` + 1 vectors, and two passes over all of them per step: those of later steps are zeros.
    Source: Saad, Schultz, GMRES: A Generalized Minimal Residual Algorithm for Solving Nonsymmetric Linear Systems
            (1986); orthogonalised twice: Giraud, Langou, Rozloznik (2005)
    """

    def method(apply: VectorMap, precondition: VectorMap, r: Array, target: Array, limit: Array) -> MethodResult:
        n, dtype, eps = r.shape[0], r.dtype, epsilon(r.dtype)
        m = maximum(minimum(length, n), 1)
        beta = unscaled_norm(r)
        zero = full((), 0, dtypes.int32)
        basis = full((m + 1, n), 0, dtype)
        basis = dynamic_update_index_in_dim(basis, safe_ratio(full((), 1, beta.dtype), beta) * r, 0, 0)

        def going(state: tuple[Array, ...]) -> Array:
            j, _, _, _, residual_norm, breakdown = state
            return (residual_norm > target) & (j < m) & (j < limit) & (breakdown == _NONE)

        def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
            j, basis, upper_triangle, rotations, _, _ = state
            image = apply(precondition(dynamic_index_in_dim(basis, j, 0, keepdims=False)))
            size = unscaled_norm(image)
            coefficients = dot(basis.conj(), image)  # classical Gram-Schmidt, twice
            rest = image - dot(coefficients, basis)
            correction = dot(basis.conj(), rest)
            rest = rest - dot(correction, basis)
            after = unscaled_norm(rest)
            after = select_value(after > eps * size, after, 0)
            below = convert(after, dtype) * convert(iota(dtypes.int32, m + 1) == j + 1, dtype)
            column = dot(rotations, coefficients + correction + below)
            a = dynamic_index_in_dim(column, j, 0, keepdims=False)
            pivot_norm = sqrt(absolute(a) * absolute(a) + after * after)
            singular = ~(pivot_norm > eps * size)
            cos, sin = safe_ratio(a.conj(), convert(pivot_norm, dtype)), convert(safe_ratio(after, pivot_norm), dtype)
            upper = dynamic_index_in_dim(rotations, j, 0, keepdims=False)
            lower = dynamic_index_in_dim(rotations, j + 1, 0, keepdims=False)
            rotated = dynamic_update_index_in_dim(rotations, cos * upper + sin * lower, j, 0)
            rotated = dynamic_update_index_in_dim(rotated, cos.conj() * lower - sin * upper, j + 1, 0)
            column = dynamic_update_index_in_dim(column[:m], convert(pivot_norm, dtype).reshape(1), j, 0)
            filled = dynamic_update_index_in_dim(upper_triangle, column, j, 1)
            rotations = select_value(singular, rotations, rotated)
            upper_triangle = select_value(singular, upper_triangle, filled)
            normalized = safe_ratio(full((), 1, after.dtype), after) * rest
            basis = dynamic_update_index_in_dim(basis, normalized, j + 1, 0)
            residual_norm = beta * absolute(dynamic_index_in_dim(rotated, j + 1, 0, keepdims=False)[0])
            breakdown = first_case((~is_finite(size), Breakdown.NOT_FINITE), (singular, Breakdown.SINGULAR))
            return j + 1, basis, upper_triangle, rotations, select_value(singular, state[4], residual_norm), breakdown

        start: tuple[Array, ...] = (zero, basis, _identity_matrix(m, dtype), _identity_matrix(m + 1, dtype), beta, zero)
        j, basis, upper_triangle, rotations, _, breakdown = while_loop(going, step, start)
        used = j - convert(breakdown == int(Breakdown.SINGULAR), dtypes.int32)
        rhs = convert(beta, dtype) * rotations[:m, 0] * convert(iota(dtypes.int32, m) < used, dtype)
        weights = triangular_solve(upper_triangle, rhs, left_side=True, lower=False)
        return precondition(dot(weights, basis[:m])), j, breakdown

    return method


def _identity_matrix(n: int, dtype: dtypes.DType) -> Array:
    rows = broadcast_in_dim(iota(dtypes.int32, n), (n, n), (0,))
    return convert(rows == broadcast_in_dim(iota(dtypes.int32, n), (n, n), (1,)), dtype)
