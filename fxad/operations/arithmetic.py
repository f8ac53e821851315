"""Operators on two arrays: promotion, then one primitive."""

from __future__ import annotations

from fxad import dtypes
from fxad.errors import DTypeError
from fxad.ir import Atom, Atoms, Emit, Lit, Primitive, literal_number
from fxad.operations.promotion import convert, promote_and_broadcast, to_inexact_dtype
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, NEG, REM, SUB
from fxad.primitives.elementwise.complex_parts import COMPLEX, IMAG, REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.elementwise.logic import (
    AND,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    NOT,
    OR,
    SHIFT_RIGHT_ARITHMETIC,
    SHIFT_RIGHT_LOGICAL,
)
from fxad.primitives.elementwise.powers import ABS, POW, IntegerPow
from fxad.primitives.elementwise.select import TO_NEAREST_EVEN, Round, emit_where


def binary(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atoms:
    """Return `prim` over the operands in their common dtype and shape."""
    if x.aval.dtype is not y.aval.dtype and isinstance(prim, Compare):
        return _compare(emit, x, y, prim)
    return emit(prim, *promote_and_broadcast(prim.name, emit, x, y))


def _compare(emit: Emit, x: Atom, y: Atom, prim: Compare) -> Atoms:
    """Return a comparison of two dtypes. No dtype holds all values of uint64 and of signed integers: these are compared
    as uint64 where they are not negative, and are less than all others where they are."""
    dtypes_of_both = x.aval.dtype, y.aval.dtype
    if dtypes.uint64 not in dtypes_of_both or not dtypes.SIGNED.intersection(dtypes_of_both):
        return emit(prim, *promote_and_broadcast(prim.name, emit, x, y))
    signed_first = x.aval.dtype is not dtypes.uint64
    signed = x if signed_first else y
    is_negative: Atom = emit.one(LT, signed, Lit.of(0, signed.aval))
    bits = convert(emit, signed, dtypes.uint64)
    (out,) = binary(emit, bits if signed_first else x, y if signed_first else bits, prim)
    true_of_negative = prim is NE or (prim is not EQ and (prim in (LT, LE)) is signed_first)
    if true_of_negative:
        return binary(emit, out, is_negative, OR)
    return binary(emit, out, emit.one(NOT, is_negative), AND)


def ordered(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atoms:
    """Return a comparison, a maximum or a minimum of the operands in their common dtype and shape. Complex numbers are
    ordered by real, then by imaginary parts."""
    if x.aval.dtype not in dtypes.COMPLEX and y.aval.dtype not in dtypes.COMPLEX:
        return binary(emit, x, y, prim)
    x, y = promote_and_broadcast(prim.name, emit, x, y)
    return ((_complex_extremum if prim in (MAX, MIN) else _compare_complex)(emit, x, y, prim),)


def _compare_complex(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atom:
    """Return a comparison of complex numbers of one type; as in NumPy, False where one has a nan."""
    x_real, y_real = emit.one(REAL, x), emit.one(REAL, y)
    x_imag, y_imag = emit.one(IMAG, x), emit.one(IMAG, y)
    real_decides = emit.one(LT if prim in (LT, LE) else GT, x_real, y_real)
    no_nan = emit.one(AND, emit.one(EQ, x_imag, x_imag), emit.one(EQ, y_imag, y_imag))
    imag_decides = emit.one(AND, emit.one(EQ, x_real, y_real), emit.one(prim, x_imag, y_imag))
    return emit.one(OR, emit.one(AND, real_decides, no_nan), imag_decides)


def _complex_extremum(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atom:
    """Return the maximum or minimum of complex numbers of one type; as in NumPy, the first one that has a nan.

    Rule:   that of real numbers: the tangent of the result; at a tie, half of each.
    """
    takes_x = emit.one(OR, _compare_complex(emit, x, y, GE if prim is MAX else LE), emit.one(NE, x, x))
    tied = emit.one(COMPLEX, *[emit.one(prim, emit.one(part, x), emit.one(part, y)) for part in (REAL, IMAG)])
    return emit_where(emit, emit.one(EQ, x, y), tied, emit_where(emit, takes_x, x, y))


def add(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x + y; for bools logical or, as in NumPy."""
    x, y = promote_and_broadcast("add", emit, x, y)
    return emit(OR if x.aval.dtype is dtypes.bool_ else ADD, x, y)


def multiply(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x * y; for bools logical and, as in NumPy."""
    x, y = promote_and_broadcast("multiply", emit, x, y)
    return emit(AND if x.aval.dtype is dtypes.bool_ else MUL, x, y)


def true_divide(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x / y; integers and bools are divided in float32."""
    x, y = promote_and_broadcast("divide", emit, x, y)
    dtype = to_inexact_dtype(x.aval.dtype)
    return emit(DIV, convert(emit, x, dtype), convert(emit, y, dtype))


def floor_divide(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return floor(x / y), with Python's sign rule. An integer divided by zero is 0, as in NumPy."""
    x, y = promote_and_broadcast("floor_divide", emit, x, y)
    dtype = x.aval.dtype
    if dtype in dtypes.COMPLEX or dtype is dtypes.bool_:
        raise DTypeError(f"floor_divide: takes integer or real floating operands, got {x.aval}")
    if dtype in dtypes.UNSIGNED:
        return (_zero_by_zero(emit, y, emit.one(DIV, x, y)),)
    if dtype in dtypes.FLOATING:
        return _floor_quotient(emit, x, y)
    quotient, rem = emit.one(DIV, x, y), emit.one(REM, x, y)
    zero = Lit.of(0, x.aval)
    off_by_one = emit.one(AND, emit.one(NE, rem, zero), _signs_differ(emit, rem, y))
    floor = emit_where(emit, off_by_one, emit.one(SUB, quotient, Lit.of(1, x.aval)), quotient)
    return (_zero_by_zero(emit, y, floor),)


def _zero_by_zero(emit: Emit, divisor: Atom, out: Atom) -> Atom:
    """Return a quotient or remainder of integers, and 0 where the divisor is 0."""
    value = literal_number(divisor)
    if value is not None and value != 0:
        return out
    return emit_where(emit, emit.one(EQ, divisor, Lit.of(0, divisor.aval)), Lit.of(0, out.aval), out)


def _floor_quotient(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """NumPy's method: (x - remainder) / y is an integer up to rounding."""
    zero, rem, quotient = Lit.of(0, x.aval), emit.one(REM, x, y), emit.one(DIV, x, y)
    rounded = emit.one(Round(TO_NEAREST_EVEN), emit.one(DIV, emit.one(SUB, x, rem), y))
    off_by_one = emit.one(AND, emit.one(NE, rem, zero), _signs_differ(emit, rem, y))
    rounded = emit_where(emit, off_by_one, emit.one(SUB, rounded, Lit.of(1, x.aval)), rounded)
    # a zero has the sign of x / y; x / 0 is an infinity, or nan. Nothing here has a slope
    quotient = emit.one(STOP_GRADIENT, quotient)
    rounded = emit_where(emit, emit.one(EQ, rounded, zero), emit.one(MUL, quotient, zero), rounded)
    return (emit_where(emit, emit.one(EQ, y, zero), quotient, rounded),)


def remainder(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x % y with the sign of y (Python's rule), also for a zero result. An integer modulo 0 is 0, as in
    NumPy."""
    x, y = promote_and_broadcast("remainder", emit, x, y)
    dtype = x.aval.dtype
    if dtype in dtypes.COMPLEX or dtype is dtypes.bool_:
        raise DTypeError(f"remainder: takes integer or real floating operands, got {x.aval}")
    result = emit.one(REM, x, y)
    if dtype in dtypes.UNSIGNED:
        return (_zero_by_zero(emit, y, result),)
    if dtype in dtypes.FLOATING:
        # 0.0 + 0.0 and -0.0 + 0.0 are 0.0; `result - result` is a 0.0 that XLA does not drop. Unlike a select of
        # constants it keeps the derivative where the remainder is 0. Its own would be nan where the quotient overflows.
        zero = emit.one(STOP_GRADIENT, emit.one(SUB, result, result))
        below = emit.one(NEG, emit.one(SUB, zero, result))
        result = emit_where(emit, emit.one(LT, y, Lit.of(0, x.aval)), below, emit.one(ADD, result, zero))
    off_by_one = emit.one(AND, emit.one(NE, result, Lit.of(0, x.aval)), _signs_differ(emit, result, y))
    out = emit_where(emit, off_by_one, emit.one(ADD, result, y), result)
    return (out if dtype in dtypes.FLOATING else _zero_by_zero(emit, y, out),)


def fmod(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x % y with the sign of x. An integer modulo 0 is 0, as in NumPy."""
    x, y = promote_and_broadcast("rem", emit, x, y)
    result = emit.one(REM, x, y)
    return (_zero_by_zero(emit, y, result) if x.aval.dtype in dtypes.INTEGER else result,)


def _signs_differ(emit: Emit, x: Atom, y: Atom) -> Atom:
    zero = Lit.of(0, x.aval)
    return emit.one(NE, emit.one(LT, x, zero), emit.one(LT, y, zero))


def power(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x ** y, both arrays; of bools, as int32. A Python int as exponent is `integer_power`."""
    x, y = promote_and_broadcast("pow", emit, x, y)
    if x.aval.dtype is dtypes.bool_:
        x, y = convert(emit, x, dtypes.int32), convert(emit, y, dtypes.int32)
    return emit(POW, x, y)


def integer_power(emit: Emit, x: Atom, n: int) -> Atoms:
    """Return x ** n for a Python int: repeated multiplication. Raises: DTypeError for a negative power of an
    integer."""
    if n < 0 and x.aval.dtype not in dtypes.INEXACT:
        raise DTypeError(f"pow: {x.aval} to the negative power {n}", remedy="convert to a floating dtype first")
    return emit(IntegerPow(n), convert(emit, x, dtypes.int32) if x.aval.dtype is dtypes.bool_ else x)


def bitwise_operator(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atoms:
    """Return a bitwise operator: bools and integers only."""
    x, y = promote_and_broadcast(prim.name, emit, x, y)
    if x.aval.dtype in dtypes.INEXACT:
        raise DTypeError(f"{prim.name}: takes bool or integer operands, got {x.aval}")
    return emit(prim, x, y)


def negative(emit: Emit, x: Atom) -> Atoms:
    """Return -x; an error for bools, as in NumPy."""
    if x.aval.dtype is dtypes.bool_:
        raise DTypeError("negative: takes numbers, got bool", remedy="use ~x or logical_not")
    return emit(NEG, x)


def absolute(emit: Emit, x: Atom) -> Atoms:
    """Return abs(x); bools and unsigned integers are returned unchanged."""
    return (x,) if x.aval.dtype in dtypes.UNSIGNED or x.aval.dtype is dtypes.bool_ else emit(ABS, x)


def invert(emit: Emit, x: Atom) -> Atoms:
    """Return ~x: bitwise not, or logical not for bools."""
    if x.aval.dtype in dtypes.INEXACT:
        raise DTypeError(f"invert: takes bool or integer operands, got {x.aval}")
    return emit(NOT, x)


def shift_right(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x >> y: filled with copies of the sign bit, with zeros for unsigned integers."""
    x, y = promote_and_broadcast("right_shift", emit, x, y)
    return bitwise_operator(
        emit, x, y, SHIFT_RIGHT_LOGICAL if x.aval.dtype in dtypes.UNSIGNED else SHIFT_RIGHT_ARITHMETIC
    )
