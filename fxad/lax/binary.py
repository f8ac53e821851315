"""Elementwise primitives of two operands, and of more, as functions."""

from __future__ import annotations

from typing import Final

from fxad.array import Array, ArrayLike, binder
from fxad.ir import Primitive
from fxad.operations import elementwise
from fxad.primitives.elementwise import (
    ADD,
    AND,
    ATAN2,
    COMPLEX,
    DIV,
    EQ,
    GE,
    GT,
    LE,
    LT,
    MAX,
    MIN,
    MUL,
    NE,
    NEXTAFTER,
    OR,
    POLYGAMMA,
    POW,
    REM,
    SELECT_N,
    SHIFT_LEFT,
    SHIFT_RIGHT_ARITHMETIC,
    SHIFT_RIGHT_LOGICAL,
    SUB,
    XOR,
)

_SCALARS: Final = frozenset({bool, int, float, complex})


def _binary(prim: Primitive, x: ArrayLike, y: ArrayLike) -> Array:
    """`prim` of arrays of one type; a Python scalar is a literal of the type of the array it meets."""
    if type(x) in _SCALARS or type(y) in _SCALARS:
        return binder().apply(elementwise.same_type, (x, y), (prim,))[0]
    return binder().bind(prim, (x, y))[0]


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """x + y."""
    return _binary(ADD, x, y)


def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """x - y."""
    return _binary(SUB, x, y)


def mul(x: ArrayLike, y: ArrayLike) -> Array:
    """x * y."""
    return _binary(MUL, x, y)


def div(x: ArrayLike, y: ArrayLike) -> Array:
    """x / y; integers towards zero."""
    return _binary(DIV, x, y)


def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """What is left of x / y, with the sign of x."""
    return _binary(REM, x, y)


def max(x: ArrayLike, y: ArrayLike) -> Array:
    """The greater of x and y; nan where one is nan."""
    return _binary(MAX, x, y)


def min(x: ArrayLike, y: ArrayLike) -> Array:
    """The lesser of x and y; nan where one is nan."""
    return _binary(MIN, x, y)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """x to the power y."""
    return _binary(POW, x, y)


def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """The angle of the point (y, x): the arc tangent of x / y in its quadrant."""
    return _binary(ATAN2, x, y)


def nextafter(x: ArrayLike, y: ArrayLike) -> Array:
    """The next number after x in the direction of y."""
    return _binary(NEXTAFTER, x, y)


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """x + iy."""
    return _binary(COMPLEX, x, y)


def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x equals y."""
    return _binary(EQ, x, y)


def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x differs from y."""
    return _binary(NE, x, y)


def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x < y."""
    return _binary(LT, x, y)


def le(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x <= y."""
    return _binary(LE, x, y)


def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x > y."""
    return _binary(GT, x, y)


def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether x >= y."""
    return _binary(GE, x, y)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in x and y."""
    return _binary(AND, x, y)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in x or y."""
    return _binary(OR, x, y)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in one of x and y."""
    return _binary(XOR, x, y)


def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x moved up by y."""
    return _binary(SHIFT_LEFT, x, y)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x moved down by y, zeros coming in."""
    return _binary(SHIFT_RIGHT_LOGICAL, x, y)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x moved down by y, copies of the sign coming in."""
    return _binary(SHIFT_RIGHT_ARITHMETIC, x, y)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The m-th derivative of digamma at x."""
    return _binary(POLYGAMMA, m, x)


# --------------------------------------------------------------------------------------------------------- choosing


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Element by element, the case that `which` names: False or 0 the first, True or 1 the second, and so on."""
    return binder().bind(SELECT_N, (which, *cases))[0]


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """`on_true` where `pred` holds, else `on_false`; all of one shape."""
    return binder().bind(SELECT_N, (pred, on_false, on_true))[0]


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """x held between two bounds, which may be scalars."""
    return binder().apply(elementwise.clamp, (x, min, max), ())[0]
