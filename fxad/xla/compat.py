"""Calls of jaxlib that depend on its version (0.10.2 to 0.12).

All other parts of jaxlib that fxad uses are the same in these versions; tests/test_runtime.py runs on each.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Final

import numpy as np

from fxad.ir import Aval, NDArray
from fxad.lowering.jaxlib import _jax, xla_client
from fxad.lowering.known_faults import VERSION
from fxad.xla import lookups_of_jax
from fxad.xla.jaxlib_types import ArrayType, Buffer, OneDeviceSharding, ResultHandler

# Up to 0.10 the handler of a result checks it with methods that jax adds to the arrays of jaxlib; later ones do not.
_make_handler: Final = (
    partial(_jax.array_result_handler, _skip_checks=True)
    if "_skip_checks" in (inspect.getdoc(_jax.array_result_handler) or "")
    else _jax.array_result_handler
)


def result_handler(aval: Aval, sharding: _jax.Sharding, committed: bool, producer: object) -> ResultHandler:
    """Return the handler that makes an array of a result of an execution. `producer` is the program, for messages.

    `disassemble_into_single_device_arrays` takes 60 us more, because it looks for the type of the array in jax.
    """
    return _make_handler(ArrayType(aval, producer), sharding, committed)


def tiled(parts: Sequence[int], copies: int, mesh: Sequence[int], order: Sequence[int]) -> xla_client.HloSharding:
    """Return the sharding of an array in parts, each on `copies` devices, in the form of XLA. The devices are those of
    a mesh, with its axes in an order."""
    replicated = [] if copies == 1 else [xla_client.OpSharding.Type.REPLICATED]
    dims = [*parts, *([copies] if replicated else [])]
    return xla_client.HloSharding.iota_tile(dims, list(mesh), list(order), replicated)


# Held while jaxlib makes the list of the parts of an array, at the first use. Two threads would both add to one list.
_making_parts: Final = RLock()
if hasattr(os, "register_at_fork"):  # a thread that holds it does not exist in a forked child
    os.register_at_fork(after_in_child=_making_parts._at_fork_reinit)  # type: ignore[attr-defined]  # of the lock in C


def parts_of_array(array: Buffer) -> list[Buffer]:
    """Return the parts of an array on several devices."""
    with _making_parts:
        return lookups_of_jax.arrays_of(array)


def to_host(array: Buffer) -> NDArray:
    """Return the value of an array on one device, on the host."""
    return _READ(array)[0]


# from 0.11 on: it does not look for jax
_READ: Final[Callable[[Buffer], tuple[NDArray, bool]]] = getattr(
    _jax.ArrayImpl, "_to_np_array_did_copy", lookups_of_jax.read
)


def find_types_of_jax(device: _jax.Device) -> None:
    """Let jaxlib find a stand-in for jax's class of types, before it takes the first array of a client apart."""
    sharding = OneDeviceSharding(device)
    array = make_array(Aval((), "bool"), sharding, [put_part(np.zeros((), bool), sharding)])
    lookups_of_jax.find_types_of_jax(array)


def make_array(aval: Aval, sharding: _jax.Sharding, parts: Sequence[Buffer]) -> Buffer:
    """Return an array on several devices, of its parts."""
    return _jax.ArrayImpl(ArrayType(aval), sharding, list(parts), True, True)


def on_device(part: Buffer, aval: Aval, sharding: OneDeviceSharding) -> Buffer:
    """Return a part of an array as an array of its own. From 0.11 on, parts have no type."""
    return part._rewrap_with_aval_and_sharding(ArrayType(aval), sharding)


def put_part(part: NDArray, sharding: OneDeviceSharding, committed: bool = True) -> Buffer:
    """Return a copy of a part of an array on its device.

    One call for all parts would read the sharding of the array: it fails if some devices have the same part.
    """
    copy = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    aval = ArrayType(Aval(part.shape, part.dtype))
    # the last argument keeps 64-bit dtypes, whatever jax has set for the process
    return _jax.batched_device_put(aval, sharding, [part], [sharding._device], committed, False, copy, True)


# XLA's flag that compiles each operation as a kernel of its own
WITHOUT_FUSION: Final = (("xla_disable_hlo_passes", "fusion"),)

# XLA's fusions of a product with what reads it, by the library YNNPACK, are wrong from row 16,384 on in 0.10.2, and
# take up to five times as long as its own: `docs/known-faults.md`. Products alone still go to the library.
PRODUCTS_ALONE: Final[tuple[tuple[str, str], ...]] = (
    (("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),) if VERSION < (0, 11) else ()
)


def reason(error: Exception) -> str:
    """Return the text of a jaxlib error, without the C++ source lines that 0.11 and later put after it."""
    return str(error).split("=== Source Location Trace", 1)[0].strip()


def module_proto(raw: _jax.LoadedExecutable) -> bytes:
    """Return the optimised module as a serialized `HloModuleProto`; empty if there is none."""
    if not hasattr(raw, "hlo_modules"):
        return b""
    modules = raw.hlo_modules()
    return modules[0].as_serialized_hlo_module_proto() if len(modules) == 1 else b""


def buffer_assignment_proto(raw: _jax.LoadedExecutable) -> bytes:
    """Return the assignment of buffers as a serialized `BufferAssignmentProto`; empty if there is none."""
    return getattr(raw.get_compiled_memory_stats(), "serialized_buffer_assignment_proto", b"")
