"""Steps of generated invertible programs that have custom rules: inverses, gradients and derivatives."""

from __future__ import annotations

import fxad.numpy as fnp
from fxad.api.custom_function import CustomFunction, custom_jvp, custom_vjp
from fxad.api.inverse import custom_inverse, custom_ivjp
from fxad.lax import stop_gradient
from fxad.testing.inverse_state import HeldArrays, Move, State, cast_like, factor_from, has_tangent, on_complex_parts
from fxad.tracing.array import Array


def _cubic_root(x: Array) -> Array:
    """Return the t with t + t^3 / 4 = x, by the hyperbolic form of the root, which no inverse rule knows. Numbers stay
    bounded when this step is repeated."""
    size: float = 2.0 / 3.0**0.5
    return 2.0 * size * fnp.sinh(fnp.arcsinh(x * (1.5 / size)) / 3.0)


def _power(t: Array) -> Array:
    return t + t * t * t * 0.25


def custom_inverse_step(x: Array, held: HeldArrays, move: Move) -> Array:
    """Apply a function with a custom inverse, which may use held arrays."""
    if move.j % 2:
        function: CustomFunction[[Array], Array] = custom_inverse(_cubic_root, _power)
        return on_complex_parts(function)(x)
    shift = fnp.real(held.w)
    shifted: CustomFunction[[Array, Array], Array] = custom_inverse(
        lambda x, w: _cubic_root(x) + w, lambda y, w: _power(y - w), keep=1
    )
    return on_complex_parts(lambda x: shifted(x, cast_like(shift, x)))(x)


def custom_ivjp_step(x: Array, *_: object) -> Array:
    """Apply a function with a custom inverse and gradient in one rule."""

    def both(y: Array, ct: Array) -> tuple[Array, tuple[Array]]:
        return _power(y), (ct / (1.0 + 0.75 * y * y),)

    function: CustomFunction[[Array], Array] = custom_ivjp(_cubic_root, both)
    return on_complex_parts(function)(x)


def custom_inverse_of_state_step(state: State, held: HeldArrays, _: Move) -> State:
    """Apply one function with a custom inverse to all arrays of the state, including integers."""
    inverted = tuple([has_tangent(x) for x in state])

    def ahead(before: State, w: Array) -> State:
        return tuple(
            [
                on_complex_parts(_cubic_root)(x) * factor_from(cast_like(w, x)) if inverts else x
                for inverts, x in zip(inverted, before, strict=True)
            ]
        )

    def back(results: State, w: Array) -> State:
        return tuple(
            [
                on_complex_parts(_power)(y / factor_from(cast_like(w, y))) if inverts else y
                for inverts, y in zip(inverted, results, strict=True)
            ]
        )

    function: CustomFunction[[State, Array], State] = custom_inverse(ahead, back, keep=1)
    return function(state, held.w)


def custom_derivative_step(x: Array, held: HeldArrays, move: Move) -> Array:
    """Apply a function with a custom derivative that differs from its own: that of another function, scaled by a held
    array, or the operand's; or stop the derivatives of some elements."""
    if move.j % 4 == 3:
        chosen = fnp.arange(x.size).reshape(x.shape) % 2 == 0
        cases = [x, stop_gradient(x)][:: -1 if move.i % 2 else 1]
        return fnp.where(chosen if move.i % 3 else chosen & held.flag, *cases) * 2
    if move.j % 3 == 2:
        passed = custom_vjp(_cubic_root)
        passed.defvjp(lambda x: (passed(x), x), lambda x, ct: (ct * fnp.cos(x),))
        return on_complex_parts(passed)(x)
    if move.j % 3:
        own = custom_jvp(_cubic_root)
        own.defjvp(lambda primals, tangents: (own(*primals), tangents[0] * own(*primals)))
        return on_complex_parts(own)(x)
    scaled = custom_jvp(lambda x, w: _cubic_root(x) + w)
    scaled.defjvp(
        lambda primals, tangents: (_cubic_root(primals[0]) + primals[1], tangents[0] * primals[1] - tangents[1])
    )
    shift = fnp.real(held.w)
    return on_complex_parts(lambda x: scaled(x, cast_like(shift, x)))(x)
