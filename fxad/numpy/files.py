"""Arrays in files and out of what is not an array: NumPy's functions, with fxad's arrays and without pickle."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias

import numpy as np

from fxad import dtypes
from fxad.errors import DTypeError
from fxad.ir import NDArray
from fxad.numpy.value_dependent import concrete_value
from fxad.tracing.array import Array, ArrayLike, asarray

File: TypeAlias = "str | PathLike[str] | BinaryIO"

_OUTSIDE: Final = "save what the traced function returns"
# What the file format has no name for: kept as bits, which `load` could not tell from other ones.
_NAMELESS: Final = dtypes.FLOAT8 | {dtypes.bfloat16}


def save(file: File, arr: ArrayLike) -> None:
    """Write an array to a .npy file. Raises: DTypeError for bfloat16 and float8, which such files have no name for."""
    np.save(file, _value("save", arr, 1), allow_pickle=False)


def savez(file: File, *args: ArrayLike, **kwds: ArrayLike) -> None:
    """Write arrays to an .npz file, under their keywords or "arr_0", "arr_1", ... Raises: as `save`."""
    values = {name: _value("savez", x, 1) for name, x in kwds.items()}
    np.savez(file, *[_value("savez", x, k + 1) for k, x in enumerate(args)], allow_pickle=False, **values)


def _value(name: str, x: ArrayLike, k: int) -> NDArray:
    value = concrete_value(name, x, _OUTSIDE, k)
    if value.dtype in _NAMELESS:
        raise DTypeError(
            f"{name}: .npy files have no name for {value.dtype.name}", remedy="convert the array to float32 first"
        )
    return value


def load(file: File) -> Array | MappingProxyType[str, Array]:
    """The array in a .npy file, or those in an .npz file by their names."""
    found = np.load(file, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return asarray(found)
    with found:
        return MappingProxyType({name: asarray(found[name]) for name in found.files})


def frombuffer(
    buffer: bytes | bytearray | memoryview, dtype: object = float, count: int = -1, offset: int = 0
) -> Array:
    """A vector of the bytes of a buffer, which are copied."""
    return asarray(np.frombuffer(buffer, dtypes.as_dtype(dtype), count, offset).copy())


def fromfile(file: File, dtype: object = float, count: int = -1, sep: str = "", offset: int = 0) -> Array:
    """A vector of the bytes of a file, or of its text, numbers separated by `sep`."""
    return asarray(np.fromfile(file, dtypes.as_dtype(dtype), count, sep, offset))


def fromiter(iterable: Iterable[object], dtype: object, count: int = -1) -> Array:
    """A vector of the numbers that one gets by going through something."""
    return asarray(np.fromiter(iterable, dtypes.as_dtype(dtype), count))


def fromstring(string: str, dtype: object = float, count: int = -1, *, sep: str) -> Array:
    """A vector of the numbers in a text, separated by `sep`."""
    return asarray(np.fromstring(string, dtypes.as_dtype(dtype), count, sep=sep))


__all__ = ["frombuffer", "fromfile", "fromiter", "fromstring", "load", "save", "savez"]
