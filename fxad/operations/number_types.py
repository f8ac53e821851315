"""The types of Python numbers whose values are not known while a function is traced.

A Python number has no dtype of its own: it takes the dtype of the array that it meets. So a traced number starts with
the widest dtype of its kind, and its dtype is decided when the trace ends, from the dtypes that it was converted to.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.size import Size
from fxad.dtypes import DType
from fxad.ir import Aval
from fxad.operations.promotion import ALONE, NumberKind, dtype_kind, scalar_kind


@final
class NumberType:
    """The type of a Python number. There is one object for each type.

    It stands in place of an `Aval` among the types of the arguments of a function. `base` is the type of the operand
    while the function is traced: it holds each value. `aval` is the type of the number as an array by itself.
    """

    __slots__ = ("aval", "base", "fixed", "kind", "name")
    symbolic: Final = False
    shape: Final = ()
    ndim: Final = 0

    def __init__(self, name: str, kind: NumberKind, base: DType, *, fixed: bool = False) -> None:
        self.name, self.kind, self.fixed = name, kind, fixed
        self.base, self.aval = Aval((), base), Aval((), ALONE[kind])

    @property
    def dtype(self) -> DType:
        """The dtype of the number as an array by itself."""
        return self.aval.dtype

    def with_operand(self, dtype: DType) -> NumberType:
        """Return the type of the number in another program, whose operand has the dtype that was decided in the first
        one."""
        return NumberType(self.name, self.kind, dtype, fixed=True)

    def takes(self, other: NumberType) -> bool:
        """Return True for the type of numbers that a program takes, whose number is of this type."""
        return self.kind is other.kind and (not other.fixed or self.base is other.base)

    def dtype_beside(self, dtype: DType | None) -> DType:
        """Return the dtype that the number takes beside an array of `dtype` (None: by itself)."""
        return dtype if dtype is not None and self.kind <= dtype_kind(dtype) else ALONE[self.kind]

    def operand_dtype(self, met: Collection[DType]) -> DType:
        """Return the dtype of the operand of a number that a program converts to the dtypes `met`.

        An integer stays an integer, and a real number real, as these have no tangent, or a real one. If a program needs
        several dtypes, it converts the base itself. The values of an integer must fit in each integer dtype that it
        meets. So the narrowest of these holds them all, and whoever calls the program checks the value against it.
        """
        if self.fixed:
            return self.base.dtype
        if self.kind is NumberKind.INTEGER:
            integers = {d for d in met if d in dtypes.INTEGER}
            for d in integers:
                least, most = dtypes.RANGES[d]
                if all([dtypes.RANGES[e][0] <= least and most <= dtypes.RANGES[e][1] for e in integers]):
                    return d
        if self.kind is NumberKind.FLOATING:
            met = [_PARTS.get(d, d) for d in met]
        if self.kind >= NumberKind.FLOATING and len(set(met)) == 1:
            (dtype,) = set(met)
            if dtype_kind(dtype) is self.kind:
                return dtype
        return self.base.dtype if met or self.kind is NumberKind.INTEGER else self.dtype

    def __repr__(self) -> str:
        return f"NumberType({self.name})"

    def __str__(self) -> str:  # in messages, where an `Aval` is f32[3]
        return f"a Python {_PYTHON_NAMES[self.kind]}"


# The type of an argument of a call: of an array, or of a Python number.
CallType: TypeAlias = Aval | NumberType

_PYTHON_NAMES: Final = ("bool", "int", "float", "complex")  # by kind
_PARTS: Final = MappingProxyType({dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64})

BOOL: Final = NumberType("bool", NumberKind.BOOL, dtypes.bool_)
INT: Final = NumberType("int", NumberKind.INTEGER, dtypes.int32)  # of 32 bits
LONG: Final = NumberType("long", NumberKind.INTEGER, dtypes.int64)
FLOAT: Final = NumberType("float", NumberKind.FLOATING, dtypes.float64)
COMPLEX: Final = NumberType("complex", NumberKind.COMPLEX, dtypes.complex128)
# The results of computing with numbers of each kind.
RESULTS: Final = (BOOL, LONG, FLOAT, COMPLEX)
_BY_TYPE: Final = MappingProxyType[type, NumberType]({bool: BOOL, float: FLOAT, complex: COMPLEX})


def number_type(value: object) -> NumberType | None:
    """Return the type of a Python number; None for what is none, and for a size, which a trace knows as an
    expression."""
    kind = type(value)
    known_type = _BY_TYPE.get(kind)
    if known_type is not None or kind is Size:
        return known_type
    if not isinstance(value, bool | int | float | complex) or isinstance(value, np.generic):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return INT if -(1 << 31) <= value < 1 << 31 else LONG
    return RESULTS[scalar_kind(value)]
