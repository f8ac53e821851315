"""The inspection functions of the array API standard."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, final

from fxad import dtypes, runtime
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.errors import ParameterError
from fxad.numpy.types import isdtype
from fxad.runtime import Device
from fxad.tracing.placement import check_device

# The dtypes that the standard names, by its names: float16, bfloat16 and float8 are beyond it.
_STANDARD: Final = MappingProxyType(
    {
        "bool": dtypes.bool_,
        "int8": dtypes.int8,
        "int16": dtypes.int16,
        "int32": dtypes.int32,
        "int64": dtypes.int64,
        "uint8": dtypes.uint8,
        "uint16": dtypes.uint16,
        "uint32": dtypes.uint32,
        "uint64": dtypes.uint64,
        "float32": dtypes.float32,
        "float64": dtypes.float64,
        "complex64": dtypes.complex64,
        "complex128": dtypes.complex128,
    }
)
_KINDS: Final = (
    "bool",
    "signed integer",
    "unsigned integer",
    "integral",
    "real floating",
    "complex floating",
    "numeric",
)


@final
@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """Capabilities, devices and dtypes of `fxad.numpy`; the same for every device."""

    def capabilities(self) -> dict[str, bool | int | None]:
        """Return the capabilities outside traced functions. Inside one, sizes cannot depend on values."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Return the device of new arrays."""
        return runtime.default_device()

    def devices(self) -> tuple[Device, ...]:
        """Return all devices."""
        return runtime.devices()

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, DType]:
        """Return the dtypes of new arrays."""
        _check_device("default_dtypes", device)
        return {
            "real floating": dtypes.float32,
            "complex floating": dtypes.complex64,
            "integral": dtypes.int32,
            "indexing": dtypes.int32,
        }

    def dtypes(self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Return the standard's dtypes by name: all, those of one kind, or those of several kinds."""
        _check_device("dtypes", device)
        if kind is None:
            return dict(_STANDARD)
        for k in kind if isinstance(kind, tuple) else (kind,):
            if k not in _KINDS:
                raise ParameterError(f"dtypes: {k!r} is not a kind of dtypes", remedy=f"use one of {', '.join(_KINDS)}")
        return {name: dtype for name, dtype in _STANDARD.items() if isdtype(dtype, kind)}


def _check_device(op: str, device: Device | None) -> None:
    """Raise ArgumentError for a value that is not a device."""
    if device is not None:
        check_device(op, device)


_INFO: Final = NamespaceInfo()


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807  the standard's name
    """Return the description of the namespace."""
    return _INFO
