"""The differences between the supported versions of jaxlib (0.10.2 to 0.12).

All other parts of jaxlib that fxad uses are the same in these versions; tests/test_runtime.py runs on each.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Final, final

import numpy as np

from fxad.ir import Aval, Shape
from fxad.lowering.jaxlib import _jax, xla_client


@final
class ArrayType:
    """The type of an array in the form that jaxlib reads. jaxlib stores this object on the arrays that it makes."""

    __slots__ = ("dtype", "ndim", "origin", "shape", "weak_type")

    def __init__(self, aval: Aval, origin: object = None) -> None:
        self.origin = origin  # the program that computes it, for messages
        self.shape: Shape = aval.shape
        self.dtype: np.dtype[np.generic] = aval.dtype
        self.ndim = len(aval.shape)
        self.weak_type = False


@final
class OneDevice(_jax.SingleDeviceSharding):
    """The device of an array. It defines the attributes that jaxlib reads while making arrays, and does not define."""

    def __init__(self, device: _jax.Device) -> None:
        super().__init__(device)
        self.on_host = device.platform == "cpu"  # read at each conversion to NumPy

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
    """The handler that makes an array of a result of an execution. `origin` is the program, for messages.

    `disassemble_into_single_device_arrays` gets the type of the array from jax: it imports jax if that is installed,
    and takes 60 us if not.
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
