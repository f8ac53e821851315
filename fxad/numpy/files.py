"""NumPy's functions for files, buffers and text, without pickle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias

import numpy as np

from fxad import dtypes
from fxad.errors import DTypeError, ParameterError
from fxad.ir import NDArray
from fxad.numpy.value_dependent import concrete_value
from fxad.operations.arguments import by_numpy, flag, text, to_int
from fxad.tracing.array import Array, ArrayLike, asarray

File: TypeAlias = "str | PathLike[str] | BinaryIO"

_OUTSIDE: Final = "save what the traced function returns"
# Dtypes without a name in the file format. They would be saved as bits without a dtype.
_NAMELESS: Final = dtypes.FLOAT8 | {dtypes.bfloat16}


def save(file: File, arr: ArrayLike) -> None:
    """Write an array to a .npy file. Raises: DTypeError for bfloat16 and float8, which the file format does not
    have."""
    np.save(file, _value("save", arr, 1), allow_pickle=False)


def savez(file: File, *args: ArrayLike, **kwds: ArrayLike) -> None:
    """Write arrays to an .npz file, named by keyword or "arr_0", "arr_1", ... Raises: as `save`."""
    values = {name: _value("savez", x, 1) for name, x in kwds.items()}
    np.savez(file, *[_value("savez", x, k + 1) for k, x in enumerate(args)], allow_pickle=False, **values)


def _value(name: str, x: ArrayLike, k: int) -> NDArray:
    value = concrete_value(name, x, _OUTSIDE, k)
    if value.dtype in _NAMELESS:
        raise DTypeError(
            f"{name}: .npy files have no name for {value.dtype.name}", remedy="convert the array to float32 first"
        )
    return value


def load(file: File, *, allow_pickle: bool = False) -> Array | MappingProxyType[str, Array]:
    """Return the array in a .npy file, or a dict of the arrays in an .npz file. Objects, which need pickle, are
    refused."""
    if flag("load", "allow_pickle", allow_pickle):
        raise ParameterError(
            "load: allow_pickle is True, and pickles run code of their file",
            remedy="leave it out: arrays of numbers need no pickle; or give np.load(file, allow_pickle=True)",
        )
    contents = np.load(file, allow_pickle=False)
    if isinstance(contents, np.ndarray):
        return asarray(contents)
    with contents:
        return MappingProxyType({name: asarray(contents[name]) for name in contents.files})


def frombuffer(
    buffer: bytes | bytearray | memoryview, dtype: object = float, count: int = -1, offset: int = 0
) -> Array:
    """Return the elements of a buffer as a vector. The bytes are copied."""
    offset = to_int("frombuffer", "offset", offset)
    count = to_int("frombuffer", "count", count)
    return asarray(by_numpy("frombuffer", np.frombuffer, buffer, dtypes.as_dtype(dtype), count, offset).copy())


def fromfile(file: File, dtype: object = float, count: int = -1, sep: str = "", offset: int = 0) -> Array:
    """Return the elements of a binary file, or of a text file with numbers separated by `sep`, as a vector."""
    return asarray(np.fromfile(file, dtypes.as_dtype(dtype), count, sep, offset))


def fromiter(iterable: Iterable[object], dtype: object, count: int = -1) -> Array:
    """Return the numbers of an iterable as a vector."""
    count = to_int("fromiter", "count", count)
    return asarray(by_numpy("fromiter", np.fromiter, iterable, dtypes.as_dtype(dtype), count))


def fromstring(string: str, dtype: object = float, count: int = -1, *, sep: str) -> Array:
    """Return the numbers in a text, separated by `sep`, as a vector."""
    sep = text("fromstring", "sep", sep)
    string = text("fromstring", "string", string)
    count = to_int("fromstring", "count", count)
    return asarray(by_numpy("fromstring", np.fromstring, string, dtypes.as_dtype(dtype), count, sep=sep))


def array_repr(
    arr: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Return the array as text in NumPy's form, with its dtype; `numpy.set_printoptions` applies."""
    return _as_text("array_repr", np.array_repr, arr, max_line_width, precision, suppress_small)


def array_str(
    a: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Return the elements as text in NumPy's form; `numpy.set_printoptions` applies."""
    return _as_text("array_str", np.array_str, a, max_line_width, precision, suppress_small)


def _as_text(
    name: str,
    function: Callable[..., str],
    x: ArrayLike,
    width: int | None,
    precision: int | None,
    suppress_small: bool | None,
) -> str:
    precision = None if precision is None else to_int(name, "precision", precision)
    width = None if width is None else to_int(name, "max_line_width", width)
    suppress_small = None if suppress_small is None else flag(name, "suppress_small", suppress_small)
    value = concrete_value(name, x, "return the array and write it outside")
    return by_numpy(name, function, value, width, precision, suppress_small)


__all__ = [
    "array_repr", "array_str", "frombuffer", "fromfile", "fromiter", "fromstring", "load", "save", "savez",
]  # fmt: skip
