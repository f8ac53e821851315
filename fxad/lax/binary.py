"""Elementwise primitives of two operands, and of more, as functions.

Operands have one rank, or no axes; axes of size 1 are repeated. Another rank is an error: `fxad.numpy` broadcasts.
"""

from __future__ import annotations

from typing import Final

from fxad.core.numbers import NUMBER_TYPES
from fxad.errors import ShapeError
from fxad.ir import Primitive
from fxad.lax.documented import F, binary, documented
from fxad.lax.elementwise import convert_element_type
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
from fxad.tracing.traced_numbers import TracedNumber

SCALAR_TYPES: Final = NUMBER_TYPES | {TracedNumber}


def apply_with_scalar(prim: Primitive, x: ArrayLike, y: ArrayLike) -> Array:
    """Apply `prim` to an array and a Python scalar, which becomes a literal of the array's type."""
    return binder().apply(elementwise.same_type, (x, y), (prim,))[0]


def apply_broadcast(prim: Primitive, operands: tuple[ArrayLike, ...], error: ShapeError) -> Array:
    """Apply `prim` to arrays of one rank, whose axes of size 1 are repeated, and to arrays without axes.

    Raises: `error` for other arrays."""
    shapes = [shape for x in operands if (shape := aval_of(x).shape)]
    sizes = [{n for n in axis if n != 1} for axis in zip(*shapes, strict=False)]
    if len({len(shape) for shape in shapes}) != 1 or any([len(n) > 1 for n in sizes]):
        raise error
    return binder().apply(elementwise.broadcast_ones, operands, (prim,))[0]


def apply_binary(prim: Primitive, x: ArrayLike, y: ArrayLike) -> Array:
    """Apply `prim` to two arrays of one rank, or to an array and a scalar."""
    scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
    try:
        return apply_with_scalar(prim, x, y) if scalar else binder().bind(prim, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(prim, (x, y), e)


def _binary(signature: F, prim: Primitive, name: str = "") -> F:
    """Return the function of a primitive, with its docstring, and with its name unless another one is given."""

    def function(x: ArrayLike, y: ArrayLike) -> Array:
        # as `apply_binary`, with a frame less on the hot path
        scalar = type(x) in SCALAR_TYPES or type(y) in SCALAR_TYPES
        try:
            return apply_with_scalar(prim, x, y) if scalar else binder().bind(prim, (x, y))[0]
        except ShapeError as e:
            return apply_broadcast(prim, (x, y), e)

    return documented(function, signature, prim, name)


add = _binary(binary, ADD)
sub = _binary(binary, SUB)
div = _binary(binary, DIV)
rem = _binary(binary, REM)
max = _binary(binary, MAX)
min = _binary(binary, MIN)
pow = _binary(binary, POW)
atan2 = _binary(binary, ATAN2)
complex = _binary(binary, COMPLEX)
eq = _binary(binary, EQ)
ne = _binary(binary, NE)
lt = _binary(binary, LT)
le = _binary(binary, LE)
gt = _binary(binary, GT)
ge = _binary(binary, GE)
bitwise_and = _binary(binary, AND, "bitwise_and")
bitwise_or = _binary(binary, OR, "bitwise_or")
bitwise_xor = _binary(binary, XOR, "bitwise_xor")
shift_left = _binary(binary, SHIFT_LEFT)
shift_right_logical = _binary(binary, SHIFT_RIGHT_LOGICAL)
shift_right_arithmetic = _binary(binary, SHIFT_RIGHT_ARITHMETIC)


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: object = None) -> Array:
    """Return x * y.

    Type:   two numeric operands of one type, which are first converted to `out_dtype` if it is given; integers wrap.
    Rule:   linear in one of them, the other held fixed; complex numbers are not conjugated.
    Source: stablehlo.multiply
    """
    scalars = type(x) in SCALAR_TYPES, type(y) in SCALAR_TYPES
    try:
        if out_dtype is not None and (any(scalars) or aval_of(x).dtype == aval_of(y).dtype):
            # a Python number has no dtype until it meets the array
            x = x if scalars == (True, False) else convert_element_type(x, out_dtype)
            y = y if scalars[1] else convert_element_type(y, out_dtype)
        return apply_with_scalar(MUL, x, y) if any(scalars) else binder().bind(MUL, (x, y))[0]
    except ShapeError as e:
        return apply_broadcast(MUL, (x, y), e)


def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the upper half of the bits of the product of two integer arrays.

    Type:   integers of one dtype, of shapes that broadcast, or an array and a number -> that dtype.
    Law:    x * y = mulhi(x, y) * 2**n + the lower n bits, for n bits; rounded down, also below 0.
    Raises: DTypeError, ShapeError.
    Source: Knuth, The Art of Computer Programming 2, 4.3.1, for 64 bits.
    """
    return binder().apply(elementwise.mulhi, (x, y), ())[0]


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the next number after x1 in the direction of x2."""
    return apply_binary(NEXTAFTER, x1, x2)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """Return the m-th derivative of digamma at x."""
    return apply_binary(POLYGAMMA, m, x)


# --------------------------------------------------------------------------------------------------------- choosing


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Select, element by element, the case at index `which`: False or 0 the first, True or 1 the second, and so on. A
    `which` without axes selects one whole case."""
    try:
        return binder().bind(SELECT_N, (which, *cases))[0]
    except ShapeError as e:
        return _select_by_scalar(which, cases, e)


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Return `on_true` where `pred` holds, else `on_false`; all of one shape, and `pred` may have no axes."""
    return select_n(pred, on_false, on_true)


def _select_by_scalar(which: ArrayLike, cases: tuple[ArrayLike, ...], error: ShapeError) -> Array:
    """Return `select_n` by one number. Raises: `error` for a selector with axes, and for cases of different shapes."""
    if aval_of(which).ndim or len({aval_of(x).shape for x in cases}) > 1:
        raise error
    return binder().apply(elementwise.select_by_scalar, (which, *cases), ())[0]


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Return x limited to two bounds, which may be scalars."""
    return binder().apply(elementwise.clamp, (x, min, max), ())[0]
