"""Elementwise functions of two arrays, and selection."""

from __future__ import annotations

from typing import Final, cast

from fxad.core.numbers import IntArgument
from fxad.dtypes import bool_
from fxad.lax import full
from fxad.numpy.apply import apply_op, as_array, number_or_array
from fxad.numpy.creation import Nested, nested_array
from fxad.operations import arithmetic, elementwise
from fxad.operations.arguments import flag
from fxad.operations.arithmetic import ordered
from fxad.primitives.elementwise.arithmetic import MAX, MIN, SUB
from fxad.primitives.elementwise.logic import AND, EQ, GE, GT, LE, LT, NE, OR, SHIFT_LEFT, XOR
from fxad.primitives.elementwise.select import NEXTAFTER
from fxad.primitives.elementwise.trigonometric import ATAN2
from fxad.tracing.array import Array, ArrayLike

_KINDS: Final = (bool, int, float, complex)


def add(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 + x2; logical or for bools."""
    return apply_op("add", arithmetic.add, (x1, x2))


def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 - x2."""
    return apply_op("subtract", arithmetic.binary, (x1, x2), SUB)


def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 * x2; logical and for bools."""
    return apply_op("multiply", arithmetic.multiply, (x1, x2))


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 / x2; floating for integers."""
    return apply_op("divide", arithmetic.true_divide, (x1, x2))


def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return floor(x1 / x2)."""
    return apply_op("floor_divide", arithmetic.floor_divide, (x1, x2))


def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 - x2 * floor(x1 / x2): the remainder, with the sign of x2."""
    return apply_op("remainder", arithmetic.remainder, (x1, x2))


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the remainder of x1 / x2, with the sign of x1."""
    return apply_op("fmod", arithmetic.fmod, (x1, x2))


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """Return floor(x1 / x2) and the remainder."""
    return floor_divide(x1, x2), remainder(x1, x2)


def pow(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 to the power x2; by repeated multiplication if x2 is a Python int."""
    if (type(x2) is int or type(x2) is IntArgument) and not isinstance(x1, bool | int | float | complex):
        return apply_op("pow", arithmetic.integer_power, (x1,), int(x2))
    return apply_op("pow", arithmetic.power, (x1, x2))


def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the greater of x1 and x2; nan if one is nan."""
    return apply_op("maximum", ordered, (x1, x2), MAX)


def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the lesser of x1 and x2; nan if one is nan."""
    return apply_op("minimum", ordered, (x1, x2), MIN)


def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the angle of the point (x2, x1): the arc tangent of x1 / x2 in its quadrant."""
    return apply_op("atan2", elementwise.inexact_binary, (x1, x2), ATAN2)


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the next float after x1 in the direction of x2."""
    return apply_op("nextafter", elementwise.inexact_binary, (x1, x2), NEXTAFTER)


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return sqrt(x1**2 + x2**2), without overflow."""
    return apply_op("hypot", elementwise.hypot, (x1, x2))


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return log(exp(x1) + exp(x2)), without overflow."""
    return apply_op("logaddexp", elementwise.logaddexp, (x1, x2))


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return abs(x1) with the sign of x2."""
    return apply_op("copysign", elementwise.copysign, (x1, x2))


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return 0 below zero, 1 above, x2 at zero."""
    return apply_op("heaviside", elementwise.heaviside, (x1, x2))


# ------------------------------------------------------------------------------------------- comparisons, logic


def equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where x1 equals x2."""
    return apply_op("equal", arithmetic.binary, (x1, x2), EQ)


def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where x1 differs from x2."""
    return apply_op("not_equal", arithmetic.binary, (x1, x2), NE)


def less(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where x1 < x2."""
    return apply_op("less", ordered, (x1, x2), LT)


def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where x1 <= x2."""
    return apply_op("less_equal", ordered, (x1, x2), LE)


def greater(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where x1 > x2."""
    return apply_op("greater", ordered, (x1, x2), GT)


def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where x1 >= x2."""
    return apply_op("greater_equal", ordered, (x1, x2), GE)


def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where both are not zero."""
    return apply_op("logical_and", elementwise.logical_binary, (x1, x2), AND)


def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where at least one is not zero."""
    return apply_op("logical_or", elementwise.logical_binary, (x1, x2), OR)


def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return True where exactly one is not zero."""
    return apply_op("logical_xor", elementwise.logical_binary, (x1, x2), XOR)


def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return bitwise and."""
    return apply_op("bitwise_and", arithmetic.bitwise_operator, (x1, x2), AND)


def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return bitwise or."""
    return apply_op("bitwise_or", arithmetic.bitwise_operator, (x1, x2), OR)


def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return bitwise exclusive or."""
    return apply_op("bitwise_xor", arithmetic.bitwise_operator, (x1, x2), XOR)


def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Shift the bits of x1 left by x2."""
    return apply_op("bitwise_left_shift", arithmetic.bitwise_operator, (x1, x2), SHIFT_LEFT)


def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Shift the bits of x1 right by x2; copies of the sign bit are shifted in."""
    return apply_op("bitwise_right_shift", arithmetic.shift_right, (x1, x2))


def isclose(
    a: ArrayLike, b: ArrayLike, rtol: float | Array = 1e-5, atol: float | Array = 1e-8, equal_nan: bool = False
) -> Array:
    """Return True where a and b differ by at most atol + rtol * abs(b). The tolerances may be traced."""
    return _is_close("isclose", a, b, rtol, atol, equal_nan)


def allclose(
    a: ArrayLike, b: ArrayLike, rtol: float | Array = 1e-5, atol: float | Array = 1e-8, equal_nan: bool = False
) -> Array:
    """Return True if `isclose` is True everywhere."""
    return _is_close("allclose", a, b, rtol, atol, equal_nan).all()


def _is_close(
    name: str, a: ArrayLike, b: ArrayLike, rtol: float | Array, atol: float | Array, equal_nan: bool
) -> Array:
    tolerances = number_or_array(name, "rtol", rtol), number_or_array(name, "atol", atol)
    arrays = tuple([t for t in tolerances if isinstance(t, Array)])
    static = [None if isinstance(t, Array) else t for t in tolerances]
    return apply_op(name, elementwise.isclose, (a, b, *arrays), *static, flag(name, "equal_nan", equal_nan))


def array_equal(a1: Nested, a2: Nested, equal_nan: bool = False) -> Array:
    """Return True if `a1` and `a2` have one shape and equal elements; with `equal_nan`, a nan equals a nan."""
    equal_nan = flag("array_equal", "equal_nan", equal_nan)
    a, b = nested_array("array_equal", a1), nested_array("array_equal", a2, 1)
    if a.shape != b.shape:
        return full((), False)
    same = (a == b) | ((a != a) & (b != b)) if equal_nan else a == b
    return same.all()


# --------------------------------------------------------------------------------------------------------- choosing


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 where the condition holds, else x2; all three broadcast."""
    if type(condition) in _KINDS:  # it does not take the dtype of the arrays, where 300 may not fit
        condition = bool(condition)
    if type(x1) in _KINDS and type(x2) in _KINDS:  # two scalars alone: one kind, the higher one
        kind = _KINDS[max(_KINDS.index(type(x1)), _KINDS.index(type(x2)))]
        x1, x2 = kind(cast(float, x1)), kind(cast(float, x2))
        if type(condition) is not bool:  # as bool: two scalars do not take the dtype of the condition
            condition = as_array("where", condition).astype(bool_)
    return apply_op("where", elementwise.where, (x1, x2, condition))


def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Return x limited to at least min, then to at most max; None is no bound."""
    if min is not None and max is not None:
        return apply_op("clip", elementwise.clip, (x, min, max))
    if min is not None:
        return apply_op("clip", elementwise.clip_below, (x, min))
    return (
        apply_op("clip", elementwise.identity, (x,))
        if max is None
        else apply_op("clip", elementwise.clip_above, (x, max))
    )


# NumPy's other names.
true_divide = divide
mod = remainder
power = pow
arctan2 = atan2
left_shift = bitwise_left_shift
right_shift = bitwise_right_shift
