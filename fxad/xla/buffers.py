"""Transfers of values between the host and a device.

Guarantee: a user who modifies a NumPy array after passing it to fxad never changes a result. So arrays are copied on
transfer to a device, unless their memory is that of a buffer or of a `bytes` object, which are immutable. A transfer to
NumPy gives a read-only view of the buffer if NumPy can view it.

Threads: one may delete a buffer while others read it (see `delete`). Each of them gets the value or an ExecutionError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast, runtime_checkable

import numpy as np
from typing_extensions import CapsuleType

from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError, ExecutionError, ShapeError
from fxad.ir import Aval, NDArray
from fxad.lowering.jaxlib import _jax
from fxad.xla.client import Device, default_device, device_of_raw, devices, in_forked_child
from fxad.xla.compat import reason, to_host
from fxad.xla.dlpack import copy_out, header
from fxad.xla.donated_buffers import pinned, take_for_deletion
from fxad.xla.failures import value_error
from fxad.xla.garbage import CollectsGarbage, collect_garbage, collection_due
from fxad.xla.host_calls import hold_same_function, is_called_by_several_devices
from fxad.xla.interpreter_exit import process_state
from fxad.xla.interruptible import waits
from fxad.xla.jaxlib_types import ArrayType, Buffer, OneDeviceSharding
from fxad.xla.sharded import MeshSharding, assembled, divided, gathered, is_sharded, shards

_COPY: Final = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_SHARE: Final = _jax.HostBufferSemantics.ZERO_COPY
# XLA's kernels need this alignment in bytes. XLA copies other memory instead of sharing it, after the call, in a thread
# of its pool. Executions wait for that thread, and one inside a host function might wait forever.
_ALIGNED: Final = 64
_put: Final = _jax.batched_device_put


# Python's buffer protocol, and so NumPy's DLPack, does not support these dtypes.
_NO_PROTOCOL: Final = dtypes.FLOAT8 | {dtypes.bfloat16}
# Device types of DLPack whose memory this machine's processor reads: kDLCPU, kDLCUDAHost, kDLROCMHost.
_HOST: Final = frozenset({1, 3, 11})
_CUDA: Final = 2


@runtime_checkable
class SupportsDLPack(Protocol):
    """Anything that offers its memory through DLPack."""

    def __dlpack__(self) -> CapsuleType:
        """Return the capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Device type and number."""


def to_buffer(value: object, aval: Aval, device: Device | None = None) -> Buffer:
    """Return a NumPy array, a Python scalar or anything with `__dlpack__`, as a buffer of type `aval` on a device.

    The buffer is committed to `device` if that is given. Otherwise it is on the default device and uncommitted, or, if
    the value is on a GPU, committed to that.

    Raises: ShapeError, DTypeError if an array does not have that type; ArgumentError for anything else.
    Cost: 4 us and the copy; no copy for a view of a buffer, or of `bytes` (see the module).
    """
    process_state.block_at_exit()
    committed, device = device is not None, device or default_device()
    if not isinstance(value, np.ndarray):
        if isinstance(value, bool | int | float | complex | np.generic):
            value = _scalar(value, aval)
        elif isinstance(value, SupportsDLPack):
            if value.__dlpack_device__()[0] not in _HOST:
                return _import(value, aval, device, committed)
            if isinstance(value, Buffer) and aval.dtype not in _NO_PROTOCOL:  # an array of jax, which is immutable
                value = np.asarray(_view(value))
            else:
                value = copy_out(value.__dlpack__())
        else:
            raise ArgumentError(
                f"to_buffer: a {type(value).__name__} is no array",
                remedy="give a NumPy array, a scalar, or an object with __dlpack__",
            )
    array = cast(NDArray, value)
    _check_type(array.shape, array.dtype, aval)
    if not is_immutable(array) or array.ctypes.data % _ALIGNED:
        return _host_put(array, aval, device.sharding, _COPY, committed)
    buffer = _host_put(array, aval, device.sharding, _SHARE, committed)
    buffer.__dict__[_SHARED] = CollectsGarbage()
    return buffer


def _host_put(
    array: NDArray, aval: Aval, sharding: OneDeviceSharding, semantics: _jax.HostBufferSemantics, committed: bool = True
) -> Buffer:
    if committed:
        process_state.note_committed()
    try:
        # the last argument keeps 64-bit dtypes, whatever jax has set for the process
        buffer = _put(ArrayType(aval), sharding, [array], [sharding._device], committed, False, semantics, True)
    except _jax.JaxRuntimeError as e:
        raise ExecutionError(f"to_buffer: {aval} to {sharding._device}: {reason(e)}", remedy=_IF_FULL) from e
    collect_garbage()  # the array, where it was copied
    return buffer


_SHARED: Final = "fxad_shared"  # in the dictionary of a buffer
_IF_FULL: Final = "free memory of the device, or choose another device"


def constant_buffer(array: NDArray, aval: Aval, device: Device) -> Buffer:
    """Return a constant of a program as an uncommitted buffer on its device."""
    return _host_put(array, aval, device.sharding, _COPY, committed=False)


def _scalar(value: bool | complex | np.generic, aval: Aval) -> NDArray:
    try:
        return np.asarray(value, aval.dtype) if not isinstance(value, np.generic) else np.asarray(value)
    except (OverflowError, TypeError) as e:
        raise DTypeError(
            f"to_buffer: {value!r} is no {aval.dtype.name}", remedy="give a number that the dtype has, or convert it"
        ) from e


def _check_type(shape: tuple[int, ...], dtype: np.dtype[np.generic], aval: Aval) -> None:
    if shape != aval.shape:
        raise ShapeError(
            f"to_buffer: shapes differ: the array has {shape}, the program takes {aval.shape}",
            remedy="trace for the other shape",
        )
    if dtype != aval.dtype:
        raise DTypeError(
            f"to_buffer: dtypes differ: the array has {dtype!r}, the program takes {aval.dtype!r}",
            remedy="convert the array: nothing is converted silently",
        )


def owner_of_memory(array: NDArray) -> object:
    """Return the object whose memory an array of NumPy shows: the end of the chain of its bases, None for its own."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def is_immutable(array: NDArray) -> bool:
    """Return True if no code can write to the memory of an array. The read-only flag does not suffice: an array that
    owns its memory can be made writable again, and other views may be writable."""
    base = owner_of_memory(array)
    return isinstance(base, bytes) or (isinstance(base, memoryview) and isinstance(base.obj, Buffer))


def _import(value: SupportsDLPack, aval: Aval, device: Device, committed: bool) -> Buffer:
    """Return a copy of an array on a GPU, because its producer may write to it. jaxlib 0.10 imports jax here if it
    can."""
    capsule = value.__dlpack__()
    h = header(capsule)
    _check_type(h.shape, h.dtype, aval)
    number = value.__dlpack_device__()[1]
    source = next((d for d in devices("cuda") if d.raw.local_hardware_id == number), None)
    if source is None:
        raise ExecutionError(
            f"to_buffer: the array is on GPU {number}, which this process does not use",
            remedy="copy the array to the host, or to another GPU",
        )
    process_state.note_committed()
    try:
        view = _jax.dlpack_managed_tensor_to_buffer(capsule, source.raw, None)
    except _jax.JaxRuntimeError as e:
        raise ExecutionError(f"to_buffer: DLPack to {source}: {reason(e)}", remedy=_IF_FULL) from e
    copy = copy_buffer(view._rewrap_with_aval_and_sharding(ArrayType(aval), source.sharding))
    return copy if device is source or not committed else transfer(copy, device)


def to_numpy(buffer: Buffer) -> NDArray:
    """Return the value as a read-only NumPy array. It waits for the value.

    It is a view of the buffer if that is on the CPU and Python's buffer protocol supports the dtype (not bfloat16 and
    float8), else a copy. Raises: ExecutionError if its computation failed, or if it was deleted.
    """
    block(buffer, "to_numpy")
    try:
        if is_sharded(buffer):
            return pinned(buffer, gathered)
        if not cast(OneDeviceSharding, buffer._sharding).on_host:
            return pinned(buffer, to_host)
        if buffer.aval.dtype not in _NO_PROTOCOL:
            return np.asarray(pinned(buffer, _view))  # of what has no view, `asarray` makes an array of objects
        return copy_out(pinned(buffer, _jax.buffer_to_dlpack_managed_tensor))
    except (_jax.JaxRuntimeError, BufferError) as e:
        raise value_error("to_numpy", e, buffer) from e


_view: Final[Callable[[Buffer], memoryview]] = memoryview


class _ExportsVersions(Protocol):
    def __dlpack__(self, *, max_version: tuple[int, int] | None, copy: bool | None) -> CapsuleType: ...


def to_dlpack(
    buffer: Buffer,
    *,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> CapsuleType:
    """Return the value as a DLPack capsule; the arguments are those of `__dlpack__` in the array API standard.

    A consumer of DLPack 1.0 (`max_version`) gets a view that is marked read-only. An older consumer gets a copy,
    because older versions have no such mark. Raises: BufferError if a copy is needed and `copy=False` forbids it.
    """
    block(buffer, "to_dlpack")
    here = dlpack_device(buffer)
    if dl_device is not None and dl_device != here and dl_device[0] not in _HOST:
        raise BufferError(
            f"the array is on DLPack device {here}, and goes there or to the host only: leave out dl_device"
        )
    dtype = buffer.aval.dtype
    old = max_version is None or max_version < (1, 0)
    on_device = here[0] not in _HOST and dl_device in (None, here)
    if copy is False and (old or on_device or dtype in _NO_PROTOCOL or dl_device not in (None, here)):
        raise BufferError(f"an immutable {dtype.name} array is not exported so without a copy: leave out copy=False")
    if on_device:
        return _jax.buffer_to_dlpack_managed_tensor(copy_buffer(buffer), stream)
    array = to_numpy(buffer)
    if dtype in _NO_PROTOCOL:
        # a consumer may write to it; only the capsule refers to this copy
        sharding = cast(OneDeviceSharding, buffer._sharding)
        copied = _host_put(array, Aval(array.shape, dtype), sharding, _COPY, committed=False)
        return _jax.buffer_to_dlpack_managed_tensor(copied)
    if old or copy:
        array = array.copy()
    return cast(_ExportsVersions, array).__dlpack__(max_version=max_version, copy=None)


def lend(buffer: Buffer) -> CapsuleType:
    """Return the value as a DLPack capsule without a copy, for a reader that never writes to it, as jax is."""
    block(buffer, "lend")
    try:
        return pinned(buffer, _jax.buffer_to_dlpack_managed_tensor)
    except _jax.JaxRuntimeError as e:
        raise value_error("lend", e, buffer) from e


def copy_buffer(buffer: Buffer) -> Buffer:
    """Return a copy on the same device, committed if the buffer is. It does not wait. In a forked child, where nothing
    is donated, it returns the buffer itself.

    Raises: ExecutionError if it was deleted.
    """
    if buffer.is_deleted():
        block(buffer, "copy")
    if in_forked_child():
        return buffer
    if is_sharded(buffer):
        return assembled(
            Aval(buffer.aval.shape, buffer.aval.dtype),
            cast(MeshSharding, buffer._sharding),
            [copy_buffer(part) for _, _, part in shards(buffer)],
        )
    try:
        copy = _moved(buffer, cast(OneDeviceSharding, buffer._sharding), _jax.ArrayCopySemantics.ALWAYS_COPY)
    except _jax.JaxRuntimeError as e:
        raise value_error("copy", e, buffer) from e
    return hold_same_function(buffer, copy)


def _moved(buffer: Buffer, sharding: OneDeviceSharding, semantics: _jax.ArrayCopySemantics) -> Buffer:
    devices = [_jax.DeviceList((sharding._device,))]
    return _jax.batched_copy_array_to_devices_with_sharding([buffer], devices, [sharding], [semantics])[0]


def dlpack_device(buffer: Buffer) -> tuple[int, int]:
    """Return the device of the value in DLPack's terms: device type and number."""
    if _platform(buffer) == "cpu":
        return 1, 0
    return _CUDA, _raw_device(buffer).local_hardware_id


def device_of(buffer: Buffer) -> Device:
    """Return the device of the value, also after its deletion."""
    return device_of_raw(_raw_device(buffer))


def _raw_device(buffer: Buffer) -> _jax.Device:
    """Return the jaxlib device, also of a deleted buffer: `buffer.platform()` crashes on one."""
    return cast(OneDeviceSharding, buffer._sharding)._device


def _platform(buffer: Buffer) -> str:
    return _raw_device(buffer).platform


def dlpack_aval(value: SupportsDLPack) -> Aval:
    """Return the type of an object with DLPack support. Raises: DTypeError for a dtype fxad does not have."""
    h = header(value.__dlpack__())
    return Aval(h.shape, h.dtype)


def transfer(buffer: Buffer, device: Device) -> Buffer:
    """Return the value on another device. Does not wait between accelerators of one platform; else it copies via the
    host."""
    if device.platform == "cpu" or is_sharded(buffer) or _platform(buffer) != device.raw.platform:
        array = to_numpy(buffer)
        return hold_same_function(buffer, to_buffer(array, Aval(array.shape, array.dtype), device))
    process_state.note_committed()
    if buffer.is_deleted():
        block(buffer, "transfer")
    try:
        copy = _moved(buffer, device.sharding, _jax.ArrayCopySemantics.REUSE_INPUT)
    except _jax.JaxRuntimeError as e:
        raise value_error("transfer", e, buffer) from e
    # committed, because the user chose the device
    return hold_same_function(buffer, copy._rewrap_with_aval_and_sharding(copy.aval, copy._sharding))


def resharded(buffer: Buffer, sharding: MeshSharding) -> Buffer:
    """Return the value with a part on each of several devices. It is copied through the host unless it has that
    sharding."""
    if buffer._sharding == sharding:
        return buffer
    array = to_numpy(buffer)
    process_state.note_committed()
    return hold_same_function(buffer, divided(array, Aval(array.shape, array.dtype), sharding))


def block(buffer: Buffer, what: str = "block") -> None:
    """Wait for the value. `what` is the caller in messages.

    Raises: ExecutionError if its computation failed, or if it was deleted.
    """
    process_state.block_at_exit()
    if next(collection_due):
        collect_garbage()
    try:
        buffer.block_until_ready()
    except _jax.JaxRuntimeError as e:
        raise value_error(what, e, buffer) from e
    except BaseException:
        waits.note_interruption()
        raise


def is_ready(buffer: Buffer) -> bool:
    """Return True if the value is available without waiting. Raises: ExecutionError if it was deleted."""
    if buffer.is_deleted():
        block(buffer, "is_ready")
    if next(collection_due):
        collect_garbage()
    try:
        return buffer.is_ready()
    except _jax.JaxRuntimeError as e:
        raise value_error("is_ready", e, buffer) from e


def is_deleted(buffer: Buffer) -> bool:
    """Return True if the memory was freed: deleted, or donated to a program."""
    return buffer.is_deleted()


def delete(buffer: Buffer) -> None:
    """Free the memory now. Views in NumPy stay valid.

    jaxlib's `delete` clears the pointer to the memory in its object. If another thread is in a function of jaxlib with
    that object, it follows the pointer, and the process crashes. So `delete` is called on a clone, which no other
    thread has. The original then reports that it is deleted.
    """
    if buffer.is_deleted():
        return
    try:
        clone = buffer.clone()
    except _jax.JaxRuntimeError:
        if buffer.is_deleted():  # by another thread, meanwhile
            return
        raise
    clone.delete()


def delete_for_user(buffer: Buffer) -> None:
    """Delete, after other threads have started the programs on several devices that they were about to start with the
    buffer: XLA ends the process if an operand is deleted then.

    Raises: ExecutionError in a function of the host that such a program calls, which would wait for that program.
    """
    if is_sharded(buffer):
        if is_called_by_several_devices():
            raise ExecutionError(
                "delete: a function of the host that a program on several devices calls cannot delete an array on"
                " several devices",
                remedy="delete it when the program has run",
            )
        take_for_deletion(buffer)
    delete(buffer)
