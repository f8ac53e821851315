"""Reads DLPack capsules that NumPy cannot (bfloat16, float8), and the types of arrays on other devices.

Source: dlpack.h, DLManagedTensor and DLManagedTensorVersioned (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from types import MappingProxyType
from typing import Final, final

import numpy as np
from typing_extensions import CapsuleType

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.errors import DTypeError
from fxad.ir import NDArray, Shape


@final
class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@final
class _VersionedTensor(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# DLDataTypeCode and bits -> dtype.
_DTYPES: Final = MappingProxyType(
    {
        **{(0, 8 * d.itemsize): d for d in dtypes.SIGNED},
        **{(1, 8 * d.itemsize): d for d in dtypes.UNSIGNED},
        **{(2, 8 * d.itemsize): d for d in (dtypes.float16, dtypes.float32, dtypes.float64)},
        **{(5, 8 * d.itemsize): d for d in dtypes.COMPLEX},
        (4, 16): dtypes.bfloat16,
        (6, 8): dtypes.bool_,
        (9, 8): dtypes.float8_e4m3b11fnuz,
        (10, 8): dtypes.float8_e4m3fn,
        (11, 8): dtypes.float8_e4m3fnuz,
        (12, 8): dtypes.float8_e5m2,
        (13, 8): dtypes.float8_e5m2fnuz,
    }
)

_pointer: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_named: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


@final
@dataclass(frozen=True, slots=True)
class Header:
    """The description of an array in a capsule. `address` is valid as long as the capsule."""

    shape: Shape
    dtype: dtypes.DType
    strides: Shape | None  # in elements; None: row-major
    address: int


def header(capsule: CapsuleType) -> Header:
    """Read an unconsumed capsule, without consuming it. Raises: DTypeError for a dtype fxad does not have."""
    if _named(capsule, b"dltensor_versioned"):
        t = _VersionedTensor.from_address(_pointer(capsule, b"dltensor_versioned")).tensor
    else:
        t = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    dtype = _DTYPES.get((t.code, t.bits))
    if dtype is None or t.lanes != 1:
        raise DTypeError(
            f"dlpack: type code {t.code} with {t.bits} bits and {t.lanes} lanes is not a dtype of fxad",
            remedy="convert it where it comes from",
        )
    shape = tuple(t.shape[: t.ndim]) if t.ndim else ()
    strides = tuple(t.strides[: t.ndim]) if t.strides else None
    return Header(shape, dtype, strides, (t.data or 0) + t.byte_offset)


def copy_out(capsule: CapsuleType) -> NDArray:
    """Return a read-only NumPy copy of an array in host memory."""
    h = header(capsule)
    if 0 in h.shape:
        return np.frombuffer(b"", h.dtype).reshape(h.shape)
    steps = h.strides or _row_major(h.shape)
    # the elements lie between the lowest and the highest address that the strides reach
    low = sum([(n - 1) * s for n, s in zip(h.shape, steps, strict=True) if s < 0])
    high = sum([(n - 1) * s for n, s in zip(h.shape, steps, strict=True) if s > 0])
    size = h.dtype.itemsize
    memory = ctypes.string_at(h.address + low * size, (high - low + 1) * size)
    view = np.ndarray(h.shape, h.dtype, memory, -low * size, tuple([s * size for s in steps]))
    out = np.require(view, requirements="C")
    out.flags.writeable = False
    return out


def _row_major(shape: Shape) -> Shape:
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return tuple(reversed(steps))
