"""Hurwitz's zeta function with both derivatives."""

from __future__ import annotations

from fxad import lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.api.directional import jvp
from fxad.tracing.array import Array

_SHIFT = 12
# Bernoulli's numbers B_2k over (2k)!
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
)  # fmt: skip


@custom_jvp
def hurwitz_zeta(x: Array, q: Array) -> Array:
    """Return zeta(x, q).

    Rule:   d/dq = -x zeta(x + 1, q); d/dx of the sum below, for x > 1 and q > 0, nan elsewhere.
    Source: DLMF 25.11.5, 25.11.7 (the Euler-Maclaurin sum).
    """
    return lax.zeta(x, q)


@hurwitz_zeta.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, q), (x_dot, q_dot) = primals, tangents
    known = (x > 1) & (q > 0)
    safe_x, safe_q = fnp.where(known, x, 2), fnp.where(known, q, 1)
    _, slope = jvp(lambda x: _sum(x, safe_q), (safe_x,), (fnp.ones_like(x),))
    return hurwitz_zeta(x, q), fnp.where(known, slope, fnp.nan) * x_dot - x * hurwitz_zeta(x + 1, q) * q_dot


def _sum(x: Array, q: Array) -> Array:
    total = fnp.zeros_like(x)
    for k in range(_SHIFT):
        total = total + (q + k) ** -x
    end = q + _SHIFT
    total = total + end ** (1 - x) / (x - 1) + end**-x / 2
    factor = x * end ** (-x - 1)
    for k, b in enumerate(_BERNOULLI):
        total = total + b * factor
        factor = factor * (x + 2 * k + 1) * (x + 2 * k + 2) / (end * end)
    return total
