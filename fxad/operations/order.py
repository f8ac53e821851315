"""The order of numbers: comparisons and extrema. Complex numbers are ordered by real, then by imaginary parts.

As in NumPy, a comparison with a nan in either part is False, and a nan is the result of an extremum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fxad import dtypes
from fxad.errors import DTypeError
from fxad.ir import Atom, Atoms, Aval, Emit, Primitive
from fxad.operations.arithmetic import binary
from fxad.operations.promotion import promote_and_broadcast
from fxad.primitives.axes import other_axes
from fxad.primitives.elementwise.arithmetic import MAX, MIN
from fxad.primitives.elementwise.complex_parts import COMPLEX, IMAG, REAL
from fxad.primitives.elementwise.logic import AND, EQ, GE, GT, LE, LT, NE, OR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.reduce import ReduceMax, ReduceOr, extreme_value
from fxad.primitives.shape import emit_broadcast

_Reducer = Callable[[tuple[int, ...]], Primitive]

_EXTREMA: Final = (MAX, MIN)


def check_real(name: str, *avals: Aval) -> None:
    """Raise DTypeError for complex operands of a function that takes real numbers only."""
    if any([aval.dtype in dtypes.COMPLEX for aval in avals]):
        shown = " and ".join([str(aval) for aval in avals])
        raise DTypeError(f"{name}: takes real numbers, got {shown}", remedy="pass the real part")


def ordered(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atoms:
    """Return a comparison, a maximum or a minimum of the operands in their common dtype and shape."""
    if x.aval.dtype not in dtypes.COMPLEX and y.aval.dtype not in dtypes.COMPLEX:
        return binary(emit, x, y, prim)
    x, y = promote_and_broadcast(prim.name, emit, x, y)
    return ((_extremum if prim in _EXTREMA else _compare)(emit, x, y, prim),)


def _compare(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atom:
    x_real, y_real = emit.one(REAL, x), emit.one(REAL, y)
    x_imag, y_imag = emit.one(IMAG, x), emit.one(IMAG, y)
    real_decides = emit.one(LT if prim in (LT, LE) else GT, x_real, y_real)
    no_nan = emit.one(AND, emit.one(EQ, x_imag, x_imag), emit.one(EQ, y_imag, y_imag))
    imag_decides = emit.one(AND, emit.one(EQ, x_real, y_real), emit.one(prim, x_imag, y_imag))
    return emit.one(OR, emit.one(AND, real_decides, no_nan), imag_decides)


def _extremum(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atom:
    """Return the maximum or minimum of complex numbers of one type.

    Rule:   that of real numbers: the tangent of the result; at a tie, half of each.
    """
    takes_x = emit.one(OR, _compare(emit, x, y, GE if prim is MAX else LE), emit.one(NE, x, x))
    tied = emit.one(COMPLEX, *[emit.one(prim, emit.one(part, x), emit.one(part, y)) for part in (REAL, IMAG)])
    return emit_where(emit, emit.one(EQ, x, y), tied, emit_where(emit, takes_x, x, y))


def reduce_complex_extremum(emit: Emit, x: Atom, reducer: _Reducer, axes: tuple[int, ...]) -> Atom:
    """Return the greatest or least of complex numbers over axes; one with a nan if any number has one.

    Rule:   that of real numbers: the mean of the tangents of the elements that are the result.
    """
    stay = other_axes(axes, x.aval.ndim)
    real, imag = emit.one(REAL, x), emit.one(IMAG, x)
    worst = extreme_value(real.aval.dtype, -1 if reducer is ReduceMax else 1).with_shape(x.aval.shape)

    def reduce_where(mask: Atom, part: Atom) -> Atom:
        return emit.one(reducer(axes), emit_where(emit, mask, part, worst))

    def along(reduced: Atom) -> Atom:
        return emit_broadcast(emit, reduced, x.aval.shape, stay)

    has_nan = emit.one(NE, x, x)
    # a bool, so no derivative passes through the search of the result
    best = along(emit.one(reducer(axes), real))
    is_best = emit.one(EQ, real, best)
    is_best = emit.one(AND, is_best, emit.one(EQ, imag, along(reduce_where(is_best, imag))))
    any_nan = along(emit.one(ReduceOr(axes), has_nan))
    is_result = emit_where(emit, any_nan, has_nan, is_best)
    return emit.one(COMPLEX, reduce_where(is_result, real), reduce_where(is_result, imag))
