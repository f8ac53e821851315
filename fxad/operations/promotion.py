"""Promotion: the common dtype and shape of operands.

Two arrays of one kind follow the array API standard. Of two kinds (bool < integer < floating < complex) the higher one
decides: an integer array with a floating array has the floating dtype. A bare Python scalar takes the dtype of the
array operand if its kind fits (array API standard, "mixing arrays with Python scalars"). A scalar of a higher kind (a
float with an integer array) has its own dtype: int32, float32 or complex64. No result is float64 or complex128 unless
an operand is (decision 64).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, final

import numpy as np

from fxad import dtypes
from fxad.core.numbers import plain_number
from fxad.core.sizes.size import Size, assumption_of_equality
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError, shown
from fxad.ir import Atom, Aval, Emit, Lit, NDArray, Shape
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.shape import BroadcastInDim

Scalar = bool | int | float | complex


@final
class NumberKind(IntEnum):
    """The kinds of dtypes and of Python scalars; a higher one holds all values of a lower one."""

    BOOL = 0
    INTEGER = 1
    FLOATING = 2
    COMPLEX = 3


ALONE: Final = (dtypes.bool_, dtypes.int32, dtypes.float32, dtypes.complex64)  # of a Python scalar, by its kind
_KIND_OF_TYPE: Final = MappingProxyType(dict(zip((bool, int, float, complex), NumberKind, strict=True)))
_KIND_OF_DTYPE: Final = MappingProxyType(
    {
        **dict.fromkeys(dtypes.INTEGER, NumberKind.INTEGER),
        **dict.fromkeys(dtypes.FLOATING, NumberKind.FLOATING),
        **dict.fromkeys(dtypes.COMPLEX, NumberKind.COMPLEX),
    }
)


def dtype_kind(dtype: DType) -> NumberKind:
    """Return the kind of a dtype."""
    return _KIND_OF_DTYPE.get(dtype, NumberKind.BOOL)


def scalar_kind(value: Scalar) -> NumberKind:
    """Return the kind of a Python scalar. Raises: DTypeError."""
    kind = _KIND_OF_TYPE.get(type(value))
    return _KIND_OF_TYPE[python_type(value)] if kind is None else kind


def scalar_dtype(value: Scalar, dtype: DType | None = None, what: str = "scalar") -> DType:
    """Return the dtype of a Python scalar: that of the array operand, or its own. Raises: DTypeError (an int), which
    names the argument (`what`)."""
    kind = scalar_kind(value)
    result = dtype if dtype is not None and kind <= dtype_kind(dtype) else ALONE[kind]
    if type(value) is Size:
        return result  # its value is not known here: it wraps where it does not fit
    integer = int(value.real) if kind is NumberKind.INTEGER else 0  # `real` is for type checkers
    if kind is NumberKind.INTEGER and result in dtypes.INTEGER:
        least, most = dtypes.RANGES[result]
        if not least <= integer <= most:
            raise DTypeError(
                f"{what}: {integer if abs(integer) < 10**30 else f'an int of {integer.bit_length()} bits'} "
                f"does not fit in {result.name}",
                remedy=_wider_integer(integer),
            )
    elif kind is NumberKind.INTEGER:
        try:
            float(integer)
        except OverflowError:
            raise DTypeError(
                f"{what}: an int of {integer.bit_length()} bits does not fit in {result.name}",
                remedy="the greatest float is about 1.8e308, in float64",
            ) from None
    return result


def _wider_integer(value: int) -> str:
    """Return the remedy for an int that does not fit in a dtype."""
    wider = (dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint64)
    name = next((d.name for d in wider if dtypes.RANGES[d][0] <= value <= dtypes.RANGES[d][1]), None)
    if name is None:
        return "no integer dtype holds it; give a float"
    return f"{name} holds it: make it asarray(number, dtype='{name}'), or convert the array beside it"


def argument(e: DTypeError, what: str) -> DTypeError:
    """Return the error of `scalar_dtype` for an argument that is known only now."""
    return DTypeError(e.message.replace("scalar:", f"{what}:", 1), remedy=e.remedy)


def dtype_of_scalars(values: Sequence[object]) -> DType | None:
    """Return the dtype of Python scalars without an array: that of the highest kind among them. None if there are
    none."""
    return ALONE[max([_KIND_OF_TYPE[python_type(v)] for v in values])] if values else None


def scalar_element(value: Scalar, dtype: DType) -> NDArray:
    """Return a Python scalar as an array without axes: the element of `scalar_literal`, rounded once."""
    if dtype in dtypes.INTEGER or (not isinstance(value, complex) and -2048 <= value <= 2048):
        # The common case. NumPy warns of infinities, and rounds a large int twice, first to a double: hence the range.
        return np.asarray(value, dtype)
    return np.asarray(Lit.of(plain_number(value), Aval((), dtype)).value)


def python_type(value: object) -> type[Scalar]:
    """Return the Python scalar type of a value that is a subclass of one. Raises: DTypeError."""
    for t in (bool, int, float, complex):
        if isinstance(value, t):
            return t
    raise DTypeError(f"scalar: {shown(value)} is not a Python number")


def promote_dtypes(op: str, a: DType, b: DType) -> DType:
    """Return the common dtype of two arrays: this function is the promotion rule. Raises: DTypeError if there is none.

    Rule:   of two kinds the higher one decides. A complex dtype with a floating one has parts that hold both. Of two
            floating dtypes the wider one decides. float16 with bfloat16, and a signed integer with uint64, are float32,
            which neither is.
    """
    if a is b:
        return a
    low, high = sorted((a, b), key=lambda d: (dtype_kind(d), d.itemsize))
    low_kind, high_kind = dtype_kind(low), dtype_kind(high)
    if low_kind is high_kind is NumberKind.INTEGER:
        return _common_integer(a, b)
    if low_kind is not high_kind and low_kind < NumberKind.FLOATING:
        return high
    if high_kind is NumberKind.COMPLEX:
        return dtypes.complex128 if dtypes.float64 in (low, high) else high
    if low.itemsize < high.itemsize:
        return high
    if low.itemsize == 2:
        return dtypes.float32
    raise DTypeError(f"{op}: {a.name} and {b.name} have no common dtype", remedy="convert one of them with astype")


def _common_integer(a: DType, b: DType) -> DType:
    """Return the narrowest integer dtype that holds two; float32 where there is none."""
    return (
        dtypes.float32
        if dtypes.uint64 in (a, b) and dtypes.SIGNED & {a, b}
        else dtypes.as_dtype(np.promote_types(a, b))
    )


def to_inexact_dtype(dtype: DType) -> DType:
    """Return the dtype of floating results for this dtype: itself when floating or complex, else float32."""
    return dtype if dtype in dtypes.INEXACT else dtypes.float32


def common_shape(op: str, a: Shape, b: Shape) -> Shape:
    """Return the broadcast of two shapes. Raises: ShapeError that names the axis."""
    if a == b:
        return a
    n = max(len(a), len(b))
    long_a, long_b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    out = []
    for k, (x, y) in enumerate(zip(long_a, long_b, strict=True)):
        if x != y and x != 1 and y != 1:
            raise ShapeError(
                f"{op}: shapes {a} and {b} do not broadcast: axis {k - n} has sizes {x} and {y}",
                remedy=f"sizes must be equal or 1, counted from the last axis{assumption_of_equality(x, y)}",
            )
        out.append(y if x == 1 else x)
    return tuple(out)


def optional_dtype(dtype: object) -> DType | None:
    """Return a `dtype` argument as a dtype, or None if it is None. Raises: DTypeError."""
    return None if dtype is None else dtypes.as_dtype(dtype)


def convert(emit: Emit, x: Atom, dtype: DType) -> Atom:
    """Return `x` in a dtype. No equation is added if it has the dtype, or is a literal, which is converted now.

    `emit_convert`, for the rules of primitives, does not convert literals.
    """
    if x.aval.dtype is dtype:
        return x
    if isinstance(x, Lit):
        if x.size is not None:  # a size of 32 bits or more is exact before the conversion
            if x.aval.dtype.itemsize < 4 or dtype is dtypes.bool_:
                return emit.one(ConvertElementType(dtype), x)
            return Lit.sized(x.size, x.aval.with_dtype(dtype))
        # fold only between formats for which NumPy and XLA round in the same way
        return Lit.of(x.value != 0 if dtype is dtypes.bool_ else x.value, x.aval.with_dtype(dtype))
    return emit.one(ConvertElementType(dtype), x)


def broadcast(emit: Emit, x: Atom, shape: Shape) -> Atom:
    """Return `x` broadcast to a shape by NumPy's rules. No equation is added if it has the shape, or is a literal."""
    x_shape = x.aval.shape
    if x_shape == shape:
        return x
    if isinstance(x, Lit):
        return x.with_shape(shape)
    lead = len(shape) - len(x_shape)
    return emit.one(BroadcastInDim(shape, tuple(range(lead, len(shape)))), x)


def promote_and_broadcast(op: str, emit: Emit, x: Atom, y: Atom) -> tuple[Atom, Atom]:
    """Return both operands in their common dtype and shape."""
    if x.aval is y.aval:
        return x, y
    dtype = promote_dtypes(op, x.aval.dtype, y.aval.dtype)
    shape = common_shape(op, x.aval.shape, y.aval.shape)
    return broadcast(emit, convert(emit, x, dtype), shape), broadcast(emit, convert(emit, y, dtype), shape)


def promote_all(op: str, emit: Emit, xs: tuple[Atom, ...]) -> tuple[Atom, ...]:
    """Return one operand or more in their common dtype and shape."""
    dtype, shape = xs[0].aval.dtype, xs[0].aval.shape
    for x in xs[1:]:
        dtype, shape = promote_dtypes(op, dtype, x.aval.dtype), common_shape(op, shape, x.aval.shape)
    return tuple([broadcast(emit, convert(emit, x, dtype), shape) for x in xs])


def scalar_literal(value: Scalar, like: Aval | None = None) -> Lit:
    """Return a Python scalar as a literal: of the shape of the array operand, or 0-d."""
    if like is None:
        return Lit.of(value, Aval((), scalar_dtype(value)))
    return Lit.of(value, Aval(like.shape, scalar_dtype(value, like.dtype)))
