"""Elementwise primitives of two operands, and of more, as functions.

Operands have one rank; axes of size 1 are repeated. Another rank is an error: `fxad.numpy` broadcasts.
"""

from __future__ import annotations

from typing import Final

from fxad.core.numbers import NUMBER_TYPES
from fxad.errors import ShapeError
from fxad.ir import Primitive
from fxad.operations import elementwise
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, REM, SUB
from fxad.primitives.elementwise.complex_parts import COMPLEX
from fxad.primitives.elementwise.logic import (
    AND,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    OR,
    SHIFT_LEFT,
    SHIFT_RIGHT_ARITHMETIC,
    SHIFT_RIGHT_LOGICAL,
    XOR,
)
from fxad.primitives.elementwise.powers import POW
from fxad.primitives.elementwise.select import NEXTAFTER, SELECT_N
from fxad.primitives.elementwise.special import POLYGAMMA
from fxad.primitives.elementwise.trigonometric import ATAN2
from fxad.tracing.array import Array, ArrayLike, aval_of, binder
from fxad.tracing.tracer import TracedNumber

SCALAR_TYPES: Final = NUMBER_TYPES | {TracedNumber}


def apply_with_scalar(prim: Primitive, x: ArrayLike, y: ArrayLike) -> Array:
    """Apply `prim` to an array and a Python scalar, which becomes a literal of the array's type."""
    return binder().apply(elementwise.same_type, (x, y), (prim,))[0]


def apply_broadcast(prim: Primitive, operands: tuple[ArrayLike, ...], error: ShapeError) -> Array:
    """Apply `prim` to arrays of one rank, whose axes of size 1 are repeated. Raises: `error` for other arrays."""
    avals = [aval_of(x) for x in operands]
    sizes = [{n for n in axis if n != 1} for axis in zip(*[a.shape for a in avals], strict=False)]
    if len({a.ndim for a in avals}) > 1 or not avals[0].ndim or any([len(n) > 1 for n in sizes]):
        raise error
    return binder().apply(elementwise.broadcast_ones, operands, (prim,))[0]


# Each function binds its primitive itself: a frame less on the hot path of tracing.


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """x + y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(ADD, x, y) if scalar else binder().bind(ADD, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(ADD, (x, y), e)


def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """x - y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(SUB, x, y) if scalar else binder().bind(SUB, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(SUB, (x, y), e)


def mul(x: ArrayLike, y: ArrayLike) -> Array:
    """x * y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(MUL, x, y) if scalar else binder().bind(MUL, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(MUL, (x, y), e)


def div(x: ArrayLike, y: ArrayLike) -> Array:
    """x / y; integers towards zero."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(DIV, x, y) if scalar else binder().bind(DIV, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(DIV, (x, y), e)


def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """The remainder of x / y, with the sign of x."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(REM, x, y) if scalar else binder().bind(REM, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(REM, (x, y), e)


def max(x: ArrayLike, y: ArrayLike) -> Array:
    """The greater of x and y; nan where one is nan."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(MAX, x, y) if scalar else binder().bind(MAX, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(MAX, (x, y), e)


def min(x: ArrayLike, y: ArrayLike) -> Array:
    """The lesser of x and y; nan where one is nan."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(MIN, x, y) if scalar else binder().bind(MIN, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(MIN, (x, y), e)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """x to the power y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(POW, x, y) if scalar else binder().bind(POW, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(POW, (x, y), e)


def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """The angle of the point with the ordinate x and the abscissa y: the arc tangent of x / y in its quadrant."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(ATAN2, x, y) if scalar else binder().bind(ATAN2, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(ATAN2, (x, y), e)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The next number after x1 in the direction of x2."""
    scalar = type(x1) in SCALAR_TYPES or type(x2) in SCALAR_TYPES
    try:
        return apply_with_scalar(NEXTAFTER, x1, x2) if scalar else binder().bind(NEXTAFTER, (x1, x2))[0]
    except ShapeError as e:
        return apply_broadcast(NEXTAFTER, (x1, x2), e)


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """x + iy."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(COMPLEX, x, y) if scalar else binder().bind(COMPLEX, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(COMPLEX, (x, y), e)


def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """True where x equals y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(EQ, x, y) if scalar else binder().bind(EQ, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(EQ, (x, y), e)


def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """True where x differs from y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(NE, x, y) if scalar else binder().bind(NE, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(NE, (x, y), e)


def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """True where x < y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(LT, x, y) if scalar else binder().bind(LT, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(LT, (x, y), e)


def le(x: ArrayLike, y: ArrayLike) -> Array:
    """True where x <= y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(LE, x, y) if scalar else binder().bind(LE, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(LE, (x, y), e)


def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """True where x > y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(GT, x, y) if scalar else binder().bind(GT, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(GT, (x, y), e)


def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """True where x >= y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(GE, x, y) if scalar else binder().bind(GE, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(GE, (x, y), e)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in x and y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(AND, x, y) if scalar else binder().bind(AND, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(AND, (x, y), e)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in x or y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(OR, x, y) if scalar else binder().bind(OR, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(OR, (x, y), e)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits set in one of x and y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(XOR, x, y) if scalar else binder().bind(XOR, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(XOR, (x, y), e)


def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x shifted left by y."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(SHIFT_LEFT, x, y) if scalar else binder().bind(SHIFT_LEFT, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(SHIFT_LEFT, (x, y), e)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x shifted right by y, filled with zeros."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(SHIFT_RIGHT_LOGICAL, x, y) if scalar else binder().bind(SHIFT_RIGHT_LOGICAL, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(SHIFT_RIGHT_LOGICAL, (x, y), e)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of x shifted right by y, filled with copies of the sign bit."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    prim = SHIFT_RIGHT_ARITHMETIC
    try:
        return apply_with_scalar(prim, x, y) if scalar else binder().bind(prim, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(prim, (x, y), e)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The m-th derivative of digamma at x."""
    scalar = type(m) in SCALAR_TYPES or type(x) in SCALAR_TYPES
    try:
        return apply_with_scalar(POLYGAMMA, m, x) if scalar else binder().bind(POLYGAMMA, (m, x))[0]
    except ShapeError as e:
        return apply_broadcast(POLYGAMMA, (m, x), e)


# --------------------------------------------------------------------------------------------------------- choosing


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Select, element by element, the case at index `which`: False or 0 the first, True or 1 the second, and so on. A
    `which` without axes selects one whole case."""
    try:
        return binder().bind(SELECT_N, (which, *cases))[0]
    except ShapeError as e:
        return _select_whole(which, cases, e)


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """`on_true` where `pred` holds, else `on_false`; all of one shape, and `pred` may have no axes."""
    return select_n(pred, on_false, on_true)


def _select_whole(which: ArrayLike, cases: tuple[ArrayLike, ...], error: ShapeError) -> Array:
    """`select_n` by one number. Raises: `error` for a selector with axes, and for cases of different shapes."""
    if aval_of(which).ndim or len({aval_of(x).shape for x in cases}) > 1:
        raise error
    return binder().apply(elementwise.select_whole, (which, *cases), ())[0]


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """x limited to two bounds, which may be scalars."""
    return binder().apply(elementwise.clamp, (x, min, max), ())[0]
