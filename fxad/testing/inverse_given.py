"""Steps with rules of their own: inverses, gradients and derivatives that are given."""

from __future__ import annotations

import fxad.numpy as fnp
from fxad.api.custom import CustomFunction, custom_jvp, custom_vjp
from fxad.api.inverse import custom_inverse, custom_ivjp
from fxad.testing.inverse_state import Held, Move, State, alike, by_parts, moving, slope
from fxad.tracing.array import Array


def _root(x: Array) -> Array:
    """The t for which t + t^3 / 4 is x, by the hyperbolic form of its root: no rule knows the way back. In this
    direction numbers do not grow, however often the step is taken."""
    size: float = 2.0 / 3.0**0.5
    return 2.0 * size * fnp.sinh(fnp.arcsinh(x * (1.5 / size)) / 3.0)


def _power(t: Array) -> Array:
    return t + t * t * t * 0.25


def cubic(x: Array, held: Held, move: Move) -> Array:
    """An inverse that is given; beside what is held, too."""
    if move.j % 2:
        function: CustomFunction[[Array], Array] = custom_inverse(_root, _power)
        return by_parts(function)(x)
    shift = fnp.real(held.w)
    shifted: CustomFunction[[Array, Array], Array] = custom_inverse(
        lambda x, w: _root(x) + w, lambda y, w: _power(y - w), keep=1
    )
    return by_parts(lambda x: shifted(x, alike(shift, x)))(x)


def fused(x: Array, *_: object) -> Array:
    """Inverse and gradient at once."""

    def both(y: Array, ct: Array) -> tuple[Array, tuple[Array]]:
        return _power(y), (ct / (1.0 + 0.75 * y * y),)

    function: CustomFunction[[Array], Array] = custom_ivjp(_root, both)
    return by_parts(function)(x)


def ruled(state: State, held: Held, _: Move) -> State:
    """All arrays of the state as the arguments of one function with an inverse of its own, integers among them."""
    turns = tuple([moving(x) for x in state])

    def ahead(given: State, w: Array) -> State:
        return tuple([by_parts(_root)(x) * slope(alike(w, x)) if m else x for m, x in zip(turns, given, strict=True)])

    def back(results: State, w: Array) -> State:
        return tuple(
            [by_parts(_power)(y / slope(alike(w, y))) if m else y for m, y in zip(turns, results, strict=True)]
        )

    function: CustomFunction[[State, Array], State] = custom_inverse(ahead, back, keep=1)
    return function(state, held.w)


def bent(x: Array, held: Held, move: Move) -> Array:
    """A derivative that is not the function's: of another function, scaled by what is held, or the operand's own."""
    if move.j % 3 == 2:
        passed = custom_vjp(_root)
        passed.defvjp(lambda x: (passed(x), x), lambda x, ct: (ct * fnp.cos(x),))
        return by_parts(passed)(x)
    if move.j % 3:
        own = custom_jvp(_root)
        own.defjvp(lambda primals, tangents: (own(*primals), tangents[0] * own(*primals)))
        return by_parts(own)(x)
    scaled = custom_jvp(lambda x, w: _root(x) + w)
    scaled.defjvp(lambda primals, tangents: (_root(primals[0]) + primals[1], tangents[0] * primals[1] - tangents[1]))
    shift = fnp.real(held.w)
    return by_parts(lambda x: scaled(x, alike(shift, x)))(x)
