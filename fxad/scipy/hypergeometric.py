"""The confluent and Gauss' hypergeometric functions of real arguments.

All series are summed with a bound of their rounding errors: a result of which fewer than half of the digits are certain
is nan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from fxad import dtypes, lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.api.symbolic_zeros import SymbolicZero
from fxad.errors import NotDifferentiableError
from fxad.scipy.arguments import broadcast_floats, reals
from fxad.tracing.array import Array, ArrayLike

_LIMIT: Final = 20_000  # terms of a series
# of a Taylor series: the index, the two last terms, the sum, its moment, that of absolute values, which ones go on
_Terms: TypeAlias = tuple[Array, Array, Array, Array, Array, Array, Array]
_FAR: Final = 40.0  # from here on, the asymptotic series of 1F1 is tried


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return Kummer's confluent hypergeometric function 1F1(a; b; x).

    It is inf where b is 0 or a negative integer, unless a is one too that is not below b. A result is nan where
    rounding leaves fewer than half of its digits (for a and b within 10, this is next to its zeros), and for an
    infinite x.

    Type:   real numbers; float16 and bfloat16 are computed in float32.
    Rule:   d/dx = a / b 1F1(a + 1; b + 1; x); a and b have no derivative.
    Raises: NotDifferentiableError for the derivative in a or b.
    Source: DLMF 13.2.2, 13.2.39 (Kummer's transformation: terms of one sign), 13.7.1 for large x.
    """
    args = broadcast_floats("hyp1f1", *reals("hyp1f1", a, b, x))
    wide = dtypes.accumulated(args[0].dtype)
    return _hyp1f1(*[v.astype(wide) for v in args]).astype(args[0].dtype)


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Return Gauss' hypergeometric function 2F1(a, b; c; x).

    It is inf where c is 0 or a negative integer, unless a or b is one too that is not below c. Above 1 it is real, and
    computed, if a or b is 0 or a negative integer; elsewhere it is complex there, and the result is nan. So it is where
    rounding leaves fewer than half of its digits (for a, b and c within 10, this is next to its zeros), and for an
    infinite x.

    Type:   real numbers; float16 and bfloat16 are computed in float32.
    Rule:   d/dx = a b / c 2F1(a + 1, b + 1; c + 1; x); a, b and c have no derivative.
    Raises: NotDifferentiableError for the derivative in a, b or c.
    Source: DLMF 15.2.1, 15.8.1 (Pfaff's and Euler's transformations), 15.4.20 to 15.4.23 at 1; beyond 1/2, Taylor
            series of the differential equation 15.10.1, each of which halves the distance to 1.
    """
    args = broadcast_floats("hyp2f1", *reals("hyp2f1", a, b, c, x))
    wide = dtypes.accumulated(args[0].dtype)
    return _hyp2f1(*[v.astype(wide) for v in args]).astype(args[0].dtype)


# ---------------------------------------------------------------------------------------------------------------- sums


class _SeriesSum(NamedTuple):
    """A sum of terms: `total`, `moment` is the sum of each term times its index, `size` the sum of absolute values, and
    `left` bounds what was left out."""

    total: Array
    moment: Array
    size: Array
    left: Array


def _hypergeometric_sum(
    ratio: Callable[[Array], Array], start: Array, decay: Array, *, diverges: bool = False
) -> _SeriesSum:
    """Return the sum of 1, ratio(0), ratio(0) ratio(1), ...

    It ends behind the term number `start`, at a term that is nothing beside the sum and is followed by smaller ones, at
    least by the factor `decay`; or at a term that is 0. `diverges`: it ends also before the terms grow.
    """
    eps, one = float(fnp.finfo(start.dtype).eps), fnp.ones_like(start)

    def more(state: tuple[Array, Array, _SeriesSum, Array]) -> Array:
        k, _, _, active = state
        return fnp.any(active) & (k < _LIMIT)

    def step(state: tuple[Array, Array, _SeriesSum, Array]) -> tuple[Array, Array, _SeriesSum, Array]:
        k, term, so_far, active = state
        factor = ratio(k)
        grows = active & diverges & (fnp.abs(factor) >= 1)
        term = fnp.where(active & ~grows, term * factor, term)
        added = fnp.where(active & ~grows, term, 0)
        size = so_far.size + fnp.abs(added)
        ends = (k >= start) & (fnp.abs(factor) <= decay) & (fnp.abs(term) <= eps / 16 * size)
        stays = active & ~grows & ~ends & (factor != 0) & fnp.isfinite(size)
        left = fnp.where(active, fnp.abs(term), so_far.left)
        return k + 1, term, _SeriesSum(so_far.total + added, so_far.moment + (k + 1) * added, size, left), stays

    zero = fnp.zeros_like(start)
    state = (fnp.zeros((), start.dtype), one, _SeriesSum(one, zero, one, zero), fnp.ones(start.shape, bool))
    _, _, found, active = lax.while_loop(more, step, state)
    return found._replace(left=fnp.where(active | ~fnp.isfinite(found.size), fnp.inf, found.left))


def _certain(value: Array, total: Array, error: Array) -> Array:
    """Return `value`, which is computed from `total`; nan where the error of this leaves fewer than half of the
    digits."""
    most = float(fnp.finfo(total.dtype).eps) ** 0.5
    return fnp.where((error <= most * fnp.abs(total)) & fnp.isfinite(total), value, fnp.nan)


def _is_pole(x: Array) -> Array:
    """Return True where gamma(x) is infinite."""
    return (x <= 0) & (x == fnp.floor(x))


def _ends_first(a: Array, b: Array) -> Array:
    """Return True where (a)_k is 0 before (b)_k is."""
    return _is_pole(a) & ~(_is_pole(b) & (b > a))


def _sign_of_gamma(x: Array) -> Array:
    """Return the sign of gamma(x), 0 at a pole."""
    negative = (x < 0) & (fnp.remainder(fnp.floor(x), 2) == 1)
    return fnp.where(_is_pole(x), 0, fnp.where(negative, -1, 1)).astype(x.dtype)


def _log_gamma(x: Array) -> Array:
    """Return log|gamma(x)|; 0 at a pole."""
    return fnp.where(_is_pole(x), 0, lax.lgamma(fnp.where(_is_pole(x), 1, x)))


# ----------------------------------------------------------------------------------------------------------------- 1F1


@custom_jvp
def _hyp1f1(a: Array, b: Array, x: Array) -> Array:
    eps = float(fnp.finfo(x.dtype).eps)
    pole = _is_pole(b) & ~_ends_first(a, b)
    polynomial = _ends_first(a, b) & ~pole
    finite = fnp.isfinite(a) & fnp.isfinite(b) & fnp.isfinite(x)
    proper = finite & ~pole
    a, b, x = fnp.where(proper, a, 1), fnp.where(proper, b, 1), fnp.where(proper, x, 0)
    # exp(x) 1F1(b - a; b; -x) has terms of one sign for x < 0
    kummer = ~polynomial & ((x < 0) | _is_pole(b - a))
    first, z = fnp.where(kummer, b - a, a), fnp.where(kummer, -x, x)
    series = _series_1f1(first, b, z, kummer | (x >= 0))
    total = fnp.where(kummer, fnp.exp(fnp.where(kummer, x, 0)) * series.total, series.total)
    near = _certain(total, series.total, 4 * eps * series.size + 2 * series.left)
    large = (z >= _FAR) & ~_is_pole(first)
    p, q, v = fnp.where(large, first, 1), fnp.where(large, b, 1), fnp.where(large, z, _FAR)
    tail = _hypergeometric_sum(
        lambda k: (q - p + k) * (1 - p + k) / ((k + 1) * v), fnp.zeros_like(v), fnp.full_like(v, 0.5), diverges=True
    )
    log = _log_gamma(q) - _log_gamma(p) + (p - q) * fnp.log(v) + fnp.where(kummer, 0, v)
    far = _sign_of_gamma(q) * _sign_of_gamma(p) * fnp.exp(log) * tail.total
    use_far = large & (tail.left <= 4 * eps * fnp.abs(tail.total)) & (4 * tail.size <= 100 * fnp.abs(tail.total))
    value = fnp.where(use_far, far, near)
    return fnp.where(finite, fnp.where(pole, fnp.inf, value), fnp.nan).astype(x.dtype)


def _series_1f1(a: Array, b: Array, x: Array, wanted: Array) -> _SeriesSum:
    """Return the power series, of x = 0 where it is not wanted or too long."""
    wanted = wanted | _is_pole(a)
    x = fnp.where(wanted & (fnp.abs(x) < 3000), x, fnp.where(_is_pole(a), x, 0))

    def ratio(k: Array) -> Array:
        ends = a + k == 0
        return fnp.where(ends, 0, (a + k) * x / (fnp.where(ends, 1, b + k) * (k + 1)))

    return _hypergeometric_sum(ratio, 4 * fnp.maximum(fnp.abs(a), fnp.abs(b)) + 2, fnp.full_like(x, 0.5))


def _hyp1f1_slope(a: Array, b: Array, x: Array) -> Array:
    return a / b * _hyp1f1(a + 1, b + 1, x)


# ----------------------------------------------------------------------------------------------------------------- 2F1


@custom_jvp
def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    eps = float(fnp.finfo(x.dtype).eps)
    pole = _is_pole(c) & ~(_ends_first(a, c) | _ends_first(b, c))
    polynomial = (_ends_first(a, c) | _ends_first(b, c)) & ~pole
    finite = fnp.isfinite(a) & fnp.isfinite(b) & fnp.isfinite(c) & fnp.isfinite(x)
    inside = finite & ~pole & (x < 1) & ~polynomial
    by_powers = _sum_2f1(a, b, c, fnp.where(polynomial & finite, x, 0), fnp.zeros_like(x))
    power_error = 4 * eps * by_powers.size + 2 * by_powers.left
    sum_of_powers = _certain(by_powers.total, by_powers.total, power_error)
    # inside: z = x and w = 1 - x, or after Pfaff's transformation z = x / (x - 1) and w = 1 / (1 - x)
    p, q, r = [fnp.where(inside, v, 1) for v in (fnp.maximum(a, b), fnp.minimum(a, b), c)]
    v = fnp.where(inside, x, 0)
    pfaff = v < 0
    z, w = fnp.where(pfaff, v / (v - 1), v), fnp.where(pfaff, 1 / (1 - v), 1 - v)
    exponent = fnp.where(pfaff, p, 0)
    q = fnp.where(pfaff, r - q, q)
    # Euler's transformation where it makes more parameters positive, or the series finite
    other_p, other_q = r - p, r - q
    terminates = _is_pole(p) | _is_pole(q)
    euler = ~terminates & (
        _is_pole(other_p) | _is_pole(other_q) | (fnp.minimum(other_p, other_q) > fnp.maximum(fnp.minimum(p, q), 0))
    )
    exponent = exponent + fnp.where(euler, r - p - q, 0)
    p, q = fnp.where(euler, other_p, p), fnp.where(euler, other_q, q)
    y, size = _continued(p, q, r, z, w)
    factor = w**exponent
    by_logs = fnp.sign(y) * fnp.exp(exponent * fnp.log(w) + fnp.log(fnp.where(y == 0, 1, fnp.abs(y))))
    ordinary = (factor > float(fnp.finfo(x.dtype).tiny)) & (factor < fnp.inf)
    value = _certain(fnp.where(ordinary, factor * y, by_logs), y, 16 * eps * size)
    value = fnp.where(polynomial, sum_of_powers, fnp.where(x < 1, value, fnp.nan))
    value = fnp.where((x == 1) & ~polynomial, _hyp2f1_at_1(a, b, c), value)
    return fnp.where(finite, fnp.where(pole, fnp.inf, value), fnp.nan).astype(x.dtype)


def _sum_2f1(a: Array, b: Array, c: Array, x: Array, decay: Array) -> _SeriesSum:
    def ratio(k: Array) -> Array:
        ends = (a + k == 0) | (b + k == 0) | (x == 0)
        return fnp.where(ends, 0, (a + k) * (b + k) * x / (fnp.where(ends, 1, c + k) * (k + 1)))

    start = 4 * fnp.maximum(fnp.maximum(fnp.abs(a), fnp.abs(b)), fnp.abs(c)) + 2
    return _hypergeometric_sum(ratio, start, decay)


def _hyp2f1_at_1(a: Array, b: Array, c: Array) -> Array:
    """Return the value at 1, which is infinite if c <= a + b."""
    excess = c - a - b
    converges = excess > 0
    log = _log_gamma(c) + _log_gamma(excess) - _log_gamma(c - a) - _log_gamma(c - b)
    sign = _sign_of_gamma(c) * _sign_of_gamma(c - a) * _sign_of_gamma(c - b)
    growth = _sign_of_gamma(c) * _sign_of_gamma(a) * _sign_of_gamma(b)
    return fnp.where(converges, sign * fnp.exp(fnp.where(converges, log, 0)), growth * fnp.inf)


def _continued(a: Array, b: Array, c: Array, z: Array, w: Array) -> tuple[Array, Array]:
    """Return 2F1(a, b; c; z) for 0 <= z < 1, where w is 1 - z, and a bound of its rounding errors, in units of the last
    place of 1.

    The state of the steps is the distance to 1, solutions of the equation, the distance times their derivatives, and
    the bound. The first solution is the function. The other one is arbitrary: earlier errors grow as it does.
    """
    finite = _is_pole(a) | _is_pole(b)
    first = fnp.where(finite, z, fnp.minimum(z, 0.5))
    base = _sum_2f1(a, b, c, first, fnp.full_like(z, 0.75))
    at = fnp.where(finite, w, fnp.maximum(w, 0.5))
    slope = fnp.where(first > 0, base.moment / fnp.where(first > 0, first, 1), a * b / c)
    start = 2 * fnp.maximum(fnp.maximum(fnp.abs(a), fnp.abs(b)), fnp.abs(c)) + 2
    eps = float(fnp.finfo(z.dtype).eps)

    def more(state: tuple[Array, Array, Array, Array]) -> Array:
        return fnp.any(state[0] > w)

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        at, y, v, error = state
        after, moves = fnp.maximum(w, at / 2), at > w
        # term k is the derivative of order k, over k!, times the power k of the step; h is the step over the distance
        h, s = (at - after) / at, 1 - at
        size = fnp.abs(y) + fnp.abs(v * h)
        terms = (fnp.zeros((), z.dtype), y, v * h, y + v * h, v * h, size, fnp.ones_like(y) > 0)

        def unfinished(terms: _Terms) -> Array:
            return fnp.any(terms[-1]) & (terms[0] < _LIMIT)

        def add_term(terms: _Terms) -> _Terms:
            k, before, last, total, moment, size, active = terms
            middle = (2 * at - 1) * k + (c - a - b - 1) + (a + b + 1) * at
            term = ((k + a) * (k + b) * h * h * at * before - (k + 1) * h * middle * last) / (s * (k + 1) * (k + 2))
            added = fnp.where(active, term, 0)
            total, size = total + added, size + fnp.abs(added)
            small = fnp.maximum(fnp.abs(term), fnp.abs(last)) <= eps / 16 * size
            active = active & ~(small & (k > start)) & fnp.isfinite(size)
            return k + 1, last, term, total, moment + (k + 2) * added, size, active

        _, _, _, total, moment, sums, active = lax.while_loop(unfinished, add_term, terms)
        total = fnp.where(moves, total, y)
        scaled = fnp.where(moves, moment * (after / fnp.where(moves, at - after, 1)), v)
        growth = (fnp.abs(total[1]) + fnp.abs(scaled[1])) / (fnp.abs(y[1]) + fnp.abs(v[1]))
        sums = fnp.where(active[0] | ~fnp.isfinite(sums[0]), fnp.inf, sums[0])
        return after, total, scaled, fnp.where(moves, error * growth + sums, error)

    error = base.size + fnp.where(base.left == fnp.inf, fnp.inf, 0)
    y, v = fnp.stack([base.total, fnp.zeros_like(z)]), fnp.stack([at * slope, fnp.ones_like(z)])
    _, y, _, error = lax.while_loop(more, step, (at, y, v, error))
    return y[0], error


def _hyp2f1_slope(a: Array, b: Array, c: Array, x: Array) -> Array:
    return a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x)


# ---------------------------------------------------------------------------------------------------------- derivatives


def _tangent_rule(name: str, f: Callable[..., Array], slope: Callable[..., Array]) -> Callable[..., object]:
    """Return the rule of tangents of f, whose derivative in the last argument is `slope`, and which has no others."""

    def tangent(primals: tuple[Array, ...], tangents: tuple[Array | SymbolicZero, ...]) -> tuple[Array, object]:
        *others, dot = tangents
        if not all([isinstance(t, SymbolicZero) for t in others]):
            raise NotDifferentiableError(
                f"{name}: the derivative in its parameters is not known",
                remedy="apply stop_gradient to all arguments but the last",
            )
        out = f(*primals)
        return out, dot if isinstance(dot, SymbolicZero) else slope(*primals) * dot

    return tangent


_hyp1f1.defjvp(_tangent_rule("hyp1f1", _hyp1f1, _hyp1f1_slope), symbolic_zeros=True)
_hyp2f1.defjvp(_tangent_rule("hyp2f1", _hyp2f1, _hyp2f1_slope), symbolic_zeros=True)
