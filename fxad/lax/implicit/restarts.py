"""Shared by iterative methods: scaling, tolerances, restarts from the true residual, and the report."""

from __future__ import annotations

from typing import final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.lax.binary import max as maximum
from fxad.lax.control import while_loop
from fxad.lax.creation import full, full_like
from fxad.lax.elementwise import is_finite
from fxad.lax.implicit.convergence import Breakdown, Convergence
from fxad.lax.implicit.methods import Method
from fxad.lax.implicit.vectors import VectorMap, first_case, norm, safe_divisor, select_value
from fxad.tracing.array import Array

_NONE, _STAGNATED = int(Breakdown.NONE), int(Breakdown.STAGNATED)


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a solve: one that has not converged ends at the first limit that it reaches."""

    steps: int  # of all rounds together
    rounds: int
    progress: float  # stop after a round that did not reduce the residual to this fraction of its norm


def solve_with_restarts(
    method: Method,
    apply: VectorMap,
    precondition: VectorMap,
    b: Array,
    x0: Array | None,
    tol: Array,
    atol: Array,
    limits: Limits,
) -> tuple[Array, Convergence]:
    """Solve A x = b by rounds of `method`, each for a correction to the residual, until the norm of b - A x is at most
    max(tol |b|, atol).

    A method updates its residual by recurrence, which differs from the true residual by rounding, or entirely if the
    method diverged. So each round starts from the true residual, scaled to ordinary size. Another round follows within
    the `limits`.
    """
    size = norm(b)
    target = maximum(tol * size, atol)
    start = full_like(b, 0) if x0 is None else select_value(size > 0, x0, 0)
    r = b if x0 is None else b - apply(start)
    residual_norm = norm(r)
    zero = full((), 0, dtypes.int32)
    breakdown = first_case((~is_finite(residual_norm), Breakdown.NOT_FINITE))
    state: tuple[Array, ...] = (zero, zero, start, r, residual_norm, breakdown)

    def going(state: tuple[Array, ...]) -> Array:
        rounds, steps, _, _, residual_norm, breakdown = state
        return (residual_norm > target) & (steps < limits.steps) & (rounds < limits.rounds) & (breakdown == _NONE)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        rounds, steps, x, r, residual_norm, _ = state
        scale = safe_divisor(r)
        unit = 1 / scale
        d, k, breakdown = method(apply, precondition, unit * r, unit * target, limits.steps - steps)
        x = x + scale * d
        r = b - apply(x)
        new_norm = norm(r)
        moved = (new_norm <= target) | (new_norm <= limits.progress * residual_norm)
        spent = steps + k >= limits.steps
        stuck = select_value(
            breakdown != _NONE, breakdown, select_value(spent, _NONE, full((), _STAGNATED, dtypes.int32))
        )
        breakdown = select_value(is_finite(new_norm), select_value(moved, _NONE, stuck), int(Breakdown.NOT_FINITE))
        return rounds + 1, steps + k, x, r, new_norm, breakdown

    _, steps, x, _, residual_norm, breakdown = while_loop(going, step, state)
    x = select_value(breakdown == int(Breakdown.NOT_FINITE), float("nan"), x)
    return x, Convergence(steps, residual_norm, residual_norm <= target, breakdown)
