"""What differs between the versions of jaxlib that are supported (0.10.2 to 0.12), in one place.

Everything else that fxad uses is the same in all of them; tests/test_runtime.py runs on each.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Final, final

import numpy as np

from fxad.ir import Aval, Shape
from fxad.lowering.door import _jax, xla_client


@final
class ArrayType:
    """The type of an array in the form jaxlib reads: it keeps this object on the arrays it makes."""

    __slots__ = ("dtype", "ndim", "origin", "shape", "weak_type")

    def __init__(self, aval: Aval, origin: object = None) -> None:
        self.origin = origin  # what computes it, for messages
        self.shape: Shape = aval.shape
        self.dtype: np.dtype[np.generic] = aval.dtype
        self.ndim = len(aval.shape)
        self.weak_type = False


@final
class OneDevice(_jax.SingleDeviceSharding):
    """Where an array lives. jaxlib's class leaves to Python what it asks for while making arrays."""

    def __init__(self, device: _jax.Device) -> None:
        super().__init__(device)
        self.on_host = device.platform == "cpu"  # asked for by each look at a value

    @property
    def _device_assignment(self) -> tuple[_jax.Device, ...]:
        return (self._device,)

    @property
    def device_set(self) -> set[_jax.Device]:
        return {self._device}

    @property
    def memory_kind(self) -> str | None:
        return self._memory_kind

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> xla_client.HloSharding:
        return xla_client.HloSharding.replicate()


# Up to 0.10 the handler of a result checks it with methods that jax adds to the arrays of jaxlib; later ones do not.
_make_handler: Final = (
    partial(_jax.array_result_handler, _skip_checks=True)
    if "_skip_checks" in (inspect.getdoc(_jax.array_result_handler) or "")
    else _jax.array_result_handler
)


def result_handler(aval: Aval, sharding: OneDevice, committed: bool, origin: object) -> _jax.ResultHandler:
    """What makes an array out of a result of an execution; `origin` is what computes it, for messages.

    The ready-made way (`disassemble_into_single_device_arrays`) asks jax for the type of the array: it imports jax
    where that is installed, and takes 60 us where it is not.
    """
    return _make_handler(ArrayType(aval, origin), sharding, committed)


def compile_options(device: int) -> _jax.CompileOptions:
    """Options for a program on one device, given by its id."""
    options = _jax.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device]]))
    return options


def reason(error: Exception) -> str:
    """The text of a jaxlib error, without the C++ source lines that 0.11 and later put after it."""
    return str(error).split("=== Source Location Trace", 1)[0].strip()
