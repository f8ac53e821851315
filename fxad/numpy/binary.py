"""Functions of two arrays, element by element, and choosing between arrays."""

from __future__ import annotations

from typing import Final, cast

from fxad.array import Array, ArrayLike
from fxad.lax import full
from fxad.numpy.calls import as_array, call
from fxad.operations import arithmetic, elementwise
from fxad.primitives.elementwise import (
    AND,
    ATAN2,
    EQ,
    GE,
    GT,
    LE,
    LT,
    MAX,
    MIN,
    NE,
    NEXTAFTER,
    OR,
    REM,
    SHIFT_LEFT,
    SUB,
    XOR,
)

_KINDS: Final = (bool, int, float, complex)


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """x + y; logical or for bools."""
    return call("add", arithmetic.add, (x, y))


def subtract(x: ArrayLike, y: ArrayLike) -> Array:
    """x - y."""
    return call("subtract", arithmetic.binary, (x, y), SUB)


def multiply(x: ArrayLike, y: ArrayLike) -> Array:
    """x * y; logical and for bools."""
    return call("multiply", arithmetic.multiply, (x, y))


def divide(x: ArrayLike, y: ArrayLike) -> Array:
    """x / y; floating for integers."""
    return call("divide", arithmetic.true_divide, (x, y))


def floor_divide(x: ArrayLike, y: ArrayLike) -> Array:
    """floor(x / y)."""
    return call("floor_divide", arithmetic.floor_divide, (x, y))


def remainder(x: ArrayLike, y: ArrayLike) -> Array:
    """x - y * floor(x / y): what is left, with the sign of y."""
    return call("remainder", arithmetic.remainder, (x, y))


def fmod(x: ArrayLike, y: ArrayLike) -> Array:
    """What is left of x / y, with the sign of x."""
    return call("fmod", arithmetic.binary, (x, y), REM)


def divmod(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """floor(x / y) and what is left."""
    return floor_divide(x, y), remainder(x, y)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """x to the power y; by repeated multiplication where y is a Python int."""
    if type(y) is int and not isinstance(x, bool | int | float | complex):
        return call("pow", arithmetic.integer_power, (x,), y)
    return call("pow", arithmetic.power, (x, y))


def maximum(x: ArrayLike, y: ArrayLike) -> Array:
    """The greater of x and y; nan where one is nan."""
    return call("maximum", arithmetic.binary, (x, y), MAX)


def minimum(x: ArrayLike, y: ArrayLike) -> Array:
    """The lesser of x and y; nan where one is nan."""
    return call("minimum", arithmetic.binary, (x, y), MIN)


def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """The angle of the point (y, x): the arc tangent of x / y in its quadrant."""
    return call("atan2", elementwise.floating_binary, (x, y), ATAN2)


def nextafter(x: ArrayLike, y: ArrayLike) -> Array:
    """The next number after x in the direction of y."""
    return call("nextafter", elementwise.floating_binary, (x, y), NEXTAFTER)


def hypot(x: ArrayLike, y: ArrayLike) -> Array:
    """sqrt(x**2 + y**2), without overflow."""
    return call("hypot", elementwise.hypot, (x, y))


def logaddexp(x: ArrayLike, y: ArrayLike) -> Array:
    """log(exp(x) + exp(y)), without overflow."""
    return call("logaddexp", elementwise.logaddexp, (x, y))


def copysign(x: ArrayLike, y: ArrayLike) -> Array:
    """abs(x) with the sign of y."""
    return call("copysign", elementwise.copysign, (x, y))


def heaviside(x: ArrayLike, y: ArrayLike) -> Array:
    """0 below zero, 1 above, y at zero."""
    return call("heaviside", elementwise.heaviside, (x, y))


# ------------------------------------------------------------------------------------------- comparisons, logic


def equal(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x equals y."""
    return call("equal", arithmetic.binary, (x, y), EQ)


def not_equal(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x differs from y."""
    return call("not_equal", arithmetic.binary, (x, y), NE)


def less(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x < y."""
    return call("less", arithmetic.binary, (x, y), LT)


def less_equal(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x <= y."""
    return call("less_equal", arithmetic.binary, (x, y), LE)


def greater(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x > y."""
    return call("greater", arithmetic.binary, (x, y), GT)


def greater_equal(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x >= y."""
    return call("greater_equal", arithmetic.binary, (x, y), GE)


def logical_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether both are not zero."""
    return call("logical_and", elementwise.truth_binary, (x, y), AND)


def logical_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether one is not zero."""
    return call("logical_or", elementwise.truth_binary, (x, y), OR)


def logical_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether exactly one is not zero."""
    return call("logical_xor", elementwise.truth_binary, (x, y), XOR)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in x and y."""
    return call("bitwise_and", arithmetic.logical, (x, y), AND)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in x or y."""
    return call("bitwise_or", arithmetic.logical, (x, y), OR)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in one of x and y."""
    return call("bitwise_xor", arithmetic.logical, (x, y), XOR)


def bitwise_left_shift(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x moved up by y."""
    return call("bitwise_left_shift", arithmetic.logical, (x, y), SHIFT_LEFT)


def bitwise_right_shift(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x moved down by y; copies of the sign come in."""
    return call("bitwise_right_shift", arithmetic.shift_right, (x, y))


def isclose(x: ArrayLike, y: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether x and y differ by at most atol + rtol * abs(y)."""
    return call("isclose", elementwise.isclose, (x, y), rtol, atol, equal_nan)


def allclose(x: ArrayLike, y: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether `isclose` holds everywhere."""
    return isclose(x, y, rtol, atol, equal_nan).all()


def array_equal(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x and y have one shape and equal elements."""
    a, b = as_array("array_equal", x), as_array("array_equal", y, 1)
    return (a == b).all() if a.shape == b.shape else full((), False)


# --------------------------------------------------------------------------------------------------------- choosing


def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Array:
    """x where the condition holds, else y; all three broadcast."""
    if type(x) in _KINDS and type(y) in _KINDS:  # two scalars alone: one kind, the higher one
        kind = _KINDS[max(_KINDS.index(type(x)), _KINDS.index(type(y)))]
        x, y = kind(cast(float, x)), kind(cast(float, y))
    return call("where", elementwise.where, (x, y, condition))


def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """x, not below min and then not above max; None is no bound."""
    if min is not None and max is not None:
        return call("clip", elementwise.clip, (x, min, max))
    if min is not None:
        return call("clip", elementwise.at_least, (x, min))
    return call("clip", elementwise.identity, (x,)) if max is None else call("clip", elementwise.at_most, (x, max))


# NumPy's other names.
true_divide = divide
mod = remainder
power = pow
arctan2 = atan2
left_shift = bitwise_left_shift
right_shift = bitwise_right_shift
