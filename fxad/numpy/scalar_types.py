"""The dtypes of `fxad.numpy`, and NumPy's kinds of dtypes.

A dtype can be called: `fnp.float32(x)` is x as an array of this dtype.
"""

from __future__ import annotations

from typing import Final, final

from numpy import (
    complexfloating as complexfloating,
    dtype as dtype,
    floating as floating,
    generic as generic,
    inexact as inexact,
    integer as integer,
    number as number,
    signedinteger as signedinteger,
    unsignedinteger as unsignedinteger,
)

from fxad import dtypes
from fxad.core.sizes.size import Size
from fxad.dtypes import ScalarType
from fxad.numpy.creation import Nested, asarray
from fxad.operations.promotion import scalar_dtype
from fxad.tracing.array import Array, is_scalar


@final
class CallableType(ScalarType):
    """A dtype that converts values to itself when it is called."""

    __slots__ = ()

    def __call__(self, x: Nested = 0, /) -> Array:
        """Return x, an array, a number or nested lists of these, as an array of this dtype.

        Raises: DTypeError for a complex value and a real dtype, and for an int that does not fit; ArgumentError for
        what is not an array.
        """
        if is_scalar(x):
            scalar_dtype(x, self.dtype, self.name)  # an int that does not fit is an error
            if isinstance(x, int) and type(x) is not Size and self.dtype in dtypes.INEXACT:
                x = float(x)
        return asarray(x, self.dtype)

    def __reduce__(self) -> str:
        return "bool_" if self.dtype is dtypes.bool_ else self.name


bool_: Final = CallableType(dtypes.bool_)
int8: Final = CallableType(dtypes.int8)
int16: Final = CallableType(dtypes.int16)
int32: Final = CallableType(dtypes.int32)
int64: Final = CallableType(dtypes.int64)
uint8: Final = CallableType(dtypes.uint8)
uint16: Final = CallableType(dtypes.uint16)
uint32: Final = CallableType(dtypes.uint32)
uint64: Final = CallableType(dtypes.uint64)
float8_e4m3fn: Final = CallableType(dtypes.float8_e4m3fn)
float8_e5m2: Final = CallableType(dtypes.float8_e5m2)
float8_e4m3b11fnuz: Final = CallableType(dtypes.float8_e4m3b11fnuz)
float8_e4m3fnuz: Final = CallableType(dtypes.float8_e4m3fnuz)
float8_e5m2fnuz: Final = CallableType(dtypes.float8_e5m2fnuz)
float16: Final = CallableType(dtypes.float16)
bfloat16: Final = CallableType(dtypes.bfloat16)
float32: Final = CallableType(dtypes.float32)
float64: Final = CallableType(dtypes.float64)
complex64: Final = CallableType(dtypes.complex64)
complex128: Final = CallableType(dtypes.complex128)

bool = bool_  # the standard's name
single, double, csingle, cdouble = float32, float64, complex64, complex128  # NumPy's names from C
ndarray = Array
