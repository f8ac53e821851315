"""The dtypes of fxad: a closed list of NumPy dtype objects, with their short names and kinds.

`as_dtype` converts every dtype argument of a user, such as scalar types and Python types. The result depends on no
global flag and on no platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import ml_dtypes
import numpy as np

from fxad.core.numbers import NUMBER_CLASSES
from fxad.errors import DTypeError, shown

DType: TypeAlias = np.dtype[np.generic]
TypePromotionError: TypeAlias = DTypeError  # JAX's name

bool_: Final[DType] = np.dtype(np.bool_)
int8: Final[DType] = np.dtype(np.int8)
int16: Final[DType] = np.dtype(np.int16)
int32: Final[DType] = np.dtype(np.int32)
int64: Final[DType] = np.dtype(np.int64)
uint8: Final[DType] = np.dtype(np.uint8)
uint16: Final[DType] = np.dtype(np.uint16)
uint32: Final[DType] = np.dtype(np.uint32)
uint64: Final[DType] = np.dtype(np.uint64)
float16: Final[DType] = np.dtype(np.float16)
bfloat16: Final[DType] = np.dtype(ml_dtypes.bfloat16)
float32: Final[DType] = np.dtype(np.float32)
float64: Final[DType] = np.dtype(np.float64)
complex64: Final[DType] = np.dtype(np.complex64)
complex128: Final[DType] = np.dtype(np.complex128)
float8_e4m3fn: Final[DType] = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2: Final[DType] = np.dtype(ml_dtypes.float8_e5m2)
float8_e4m3b11fnuz: Final[DType] = np.dtype(ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fnuz: Final[DType] = np.dtype(ml_dtypes.float8_e4m3fnuz)
float8_e5m2fnuz: Final[DType] = np.dtype(ml_dtypes.float8_e5m2fnuz)

# Short name (program text) -> dtype. The order is the order of documentation tables.
BY_SHORT: Final = MappingProxyType(
    {
        "bool": bool_,
        "i8": int8,
        "i16": int16,
        "i32": int32,
        "i64": int64,
        "u8": uint8,
        "u16": uint16,
        "u32": uint32,
        "u64": uint64,
        "f8e4m3fn": float8_e4m3fn,
        "f8e5m2": float8_e5m2,
        "f8e4m3b11fnuz": float8_e4m3b11fnuz,
        "f8e4m3fnuz": float8_e4m3fnuz,
        "f8e5m2fnuz": float8_e5m2fnuz,
        "f16": float16,
        "bf16": bfloat16,
        "f32": float32,
        "f64": float64,
        "c64": complex64,
        "c128": complex128,
    }
)
_SHORT: Final = MappingProxyType({d: s for s, d in BY_SHORT.items()})

ALL: Final = tuple(BY_SHORT.values())
SIGNED: Final = frozenset({int8, int16, int32, int64})
UNSIGNED: Final = frozenset({uint8, uint16, uint32, uint64})
SIGNED_OF_SIZE: Final[Mapping[int, DType]] = MappingProxyType({1: int8, 2: int16, 4: int32, 8: int64})  # in bytes
INTEGER: Final = SIGNED | UNSIGNED
FLOAT8: Final = frozenset({float8_e4m3fn, float8_e5m2, float8_e4m3b11fnuz, float8_e4m3fnuz, float8_e5m2fnuz})
FLOATING: Final = FLOAT8 | {float16, bfloat16, float32, float64}
NARROW_RANGE: Final = FLOAT8 | {float16}  # products of common numbers may overflow, or be zero
COMPLEX: Final = frozenset({complex64, complex128})
INEXACT: Final = FLOATING | COMPLEX
NUMERIC: Final = INTEGER | INEXACT
# least and greatest value of an integer dtype
RANGES: Final = MappingProxyType(
    {
        **{d: (-(1 << 8 * d.itemsize - 1), (1 << 8 * d.itemsize - 1) - 1) for d in SIGNED},
        **{d: (0, (1 << 8 * d.itemsize) - 1) for d in UNSIGNED},
    }
)


class ScalarType:
    """A dtype that users write. It is accepted as a dtype, and equals and hashes as its NumPy dtype.

    `fxad.numpy` makes those that can be called: `fnp.float32(x)`.
    """

    __slots__ = ("dtype",)

    def __init__(self, dtype: DType) -> None:
        self.dtype: Final = dtype

    @property
    def name(self) -> str:
        """The name: `float32`."""
        return self.dtype.name

    @property
    def __name__(self) -> str:
        """The name, as of a class: NumPy's `float32` is one."""
        return self.dtype.name

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def kind(self) -> str:
        """NumPy's letter of the kind."""
        return self.dtype.kind

    @property
    def type(self) -> type[np.generic]:
        """NumPy's scalar type."""
        return self.dtype.type

    def __repr__(self) -> str:
        return f"fxad.numpy.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __eq__(self, other: object) -> bool:
        try:
            return bool(self.dtype == other)
        except TypeError:
            return False


# by type and by name: both spellings mean the same dtype
_ALONE: Final = ((bool, bool_), (int, int32), (float, float32), (complex, complex64))
_PYTHON: Final[Mapping[type | str, DType]] = MappingProxyType(
    {
        **dict(_ALONE),
        **{t.__name__: d for t, d in _ALONE},
        **{cls: dict(_ALONE)[t] for cls, t in NUMBER_CLASSES.items()},  # the type of a number that a function was given
    }
)


def short(dtype: DType) -> str:
    """Return the dtype's name in program text, as in `f32`."""
    return _SHORT[dtype]


def as_dtype(value: object) -> DType:
    """Convert a user's dtype argument to one of `ALL`.

    Takes a dtype, a scalar type (`np.float32`, `ml_dtypes.bfloat16`), a name (`"float32"` or the short `"f32"`), or the
    Python types `bool int float complex` and their names, which mean bool/int32/float32/complex64 on every platform.

    Raises: DTypeError for anything else, byte orders of other machines included.
    """
    if isinstance(value, ScalarType):
        return value.dtype
    if isinstance(value, type | str) and value in _PYTHON:
        return _PYTHON[value]
    if isinstance(value, str) and value in BY_SHORT:
        return BY_SHORT[value]
    try:
        # np.dtype(None) is float64, which is never intended
        dtype: DType | None = None if value is None else np.dtype(value)  # type: ignore[call-overload]  # errors are caught
    except (TypeError, ValueError, SyntaxError):  # NumPy reads "i4,," as Python
        dtype = None
    if dtype is None or dtype not in _SHORT:
        remedy = "use one of " + " ".join(d.name for d in ALL)
        if isinstance(value, int | float | tuple):  # one argument too many before it, or too few
            remedy = "this argument is a dtype, such as 'float32'; a shape is one tuple, as in zeros((2, 3))"
        raise DTypeError(f"dtype: {shown(value)} is not a dtype of fxad", remedy=remedy)
    return _CANONICAL[dtype]


# `np.dtype("<f4")` equals `np.dtype("f4")`; programs hold the one object of this module.
_CANONICAL: Final = MappingProxyType({d: d for d in ALL})


float0: Final = np.dtype([("float0", np.void, 0)])  # JAX's dtype of tangents of integers; here None stands for them


class prng_key(np.generic):  # noqa: N801  # pragma: no cover
    """The class of the dtypes of typed keys in JAX. No dtype of fxad is one: a key is an array u32[2], and
    `random.key_data` and `wrap_key_data` return it as it is."""


# NumPy's classes of dtypes, and the dtypes of fxad in each: NumPy does not know that bfloat16 is floating.
_CLASSES: Final[Mapping[object, frozenset[DType]]] = MappingProxyType(
    {
        np.generic: frozenset(ALL),
        np.number: NUMERIC,
        np.integer: INTEGER,
        np.signedinteger: SIGNED,
        np.unsignedinteger: UNSIGNED,
        np.inexact: INEXACT,
        np.floating: FLOATING,
        np.complexfloating: COMPLEX,
    }
)


def issubdtype(arg1: object, arg2: object) -> bool:
    """Return True if a dtype is of one of NumPy's classes (`floating`, `integer`, ...), or of a subclass, or equals a
    dtype. `fxad.numpy.isdtype` is the array API's function."""
    if arg2 is prng_key:
        return False
    wanted = _class(arg2) or frozenset({as_dtype(arg2)})
    own = getattr(arg1, "dtype", None)
    return (_class(arg1) or frozenset({as_dtype(own if isinstance(own, np.dtype) else arg1)})) <= wanted


def _class(kind: object) -> frozenset[DType] | None:
    return _CLASSES.get(kind) if isinstance(kind, type) else None


def canonicalize_dtype(dtype: object, allow_extended_dtype: bool = False) -> DType:  # noqa: ARG001  as in JAX
    """Return a dtype argument as a dtype: 64-bit types stay as they are."""
    return as_dtype(dtype)


def is_complex(dtype: DType) -> bool:
    """Return True if the dtype is complex."""
    return dtype in COMPLEX


def is_inexact(dtype: DType) -> bool:
    """Return True if values of this dtype have tangents (floating or complex)."""
    return dtype in INEXACT


def is_integer(dtype: DType) -> bool:
    """Return True if the dtype is a signed or unsigned integer (bool is not)."""
    return dtype in INTEGER


def is_signed(dtype: DType) -> bool:
    """Return True if the dtype is a signed integer."""
    return dtype in SIGNED


def real_part(dtype: DType) -> DType:
    """Return float32 for complex64, float64 for complex128; a real dtype is its own."""
    if dtype == complex64:
        return float32
    return float64 if dtype == complex128 else dtype


# the implicit bit included; of a complex dtype those of each part
SIGNIFICAND_BITS: Final = MappingProxyType(
    {
        float64: 53, complex128: 53, float32: 24, complex64: 24, float16: 11, bfloat16: 8, float8_e4m3fn: 4,
        float8_e4m3fnuz: 4, float8_e4m3b11fnuz: 4, float8_e5m2: 3, float8_e5m2fnuz: 3,
    }
)  # fmt: skip


def accumulated(dtype: DType) -> DType:
    """Return the dtype that sums and products of this dtype are accumulated in: float32 for floats below 32 bits."""
    return float32 if dtype in FLOATING and dtype.itemsize < 4 else dtype


def complex_of(dtype: DType) -> DType:
    """Return complex64 for float32, complex128 for float64."""
    if dtype == float32:
        return complex64
    if dtype == float64:
        return complex128
    raise DTypeError(
        f"complex: parts must be float32 or float64, got {dtype.name}", remedy="convert the parts with astype"
    )
