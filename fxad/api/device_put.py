"""`device_put`: places the arrays of a tree on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fxad import dtypes, numpy as fnp
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, PlacementError, ShapeError, described, shown
from fxad.ir import Aval, NDArray
from fxad.lax.placement import committed_to
from fxad.operations.arguments import flag, function, to_ints, to_tuple
from fxad.runtime import Device, assembled, from_local, process_state, resharded
from fxad.sharding import (
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    buffer_sharding,
    check_spec_axes,
    part_type,
    sharding_in_program,
)
from fxad.tracing import placement
from fxad.tracing.array import Array, asarray, aval_of, binder, wrap_buffer
from fxad.tracing.context import resolve_sharding
from fxad.tracing.tracer import Tracer

T = TypeVar("T")


def device_put(
    x: T, device: Device | Sharding | object = None, *, donate: object = False, may_alias: object = None
) -> T:
    """Return a tree with its arrays on a device, committed to it: computations on them run there.

    `device` may be a sharding, a `PartitionSpec` of the mesh of `with mesh:`, or a tree prefix of them: the arrays are
    divided among its devices. An array that is divided among the same devices in another way does not go through the
    host: the devices exchange its parts.

    Without a device, or where the prefix has None, NumPy arrays and numbers go to the default device, uncommitted; arrays
    that are on a device are returned unchanged.

    `donate` and `may_alias` are bools or tree prefixes of them. An array that is donated is deleted, unless the result
    is that array. A result that may not alias has memory of its own. Neither has an effect inside a trace.

    Rule:   a read-only NumPy array is not copied on the CPU; nor is an array that is already on the device.
    Raises: ArgumentError for a leaf that is not an array, with its path, for an invalid device, and for `donate` and
            `may_alias` that are no bools.
    """
    leaves, structure = tree.flatten(x)
    targets: list[Device | Sharding | None] = [None] * len(leaves)
    if device is not None:
        prefix = tree.broadcast_prefix(device, structure, "device_put: device", _is_target)
        targets = [None if d is None else _checked_target(d) for d in prefix]
    donated, aliases = _flags("donate", donate, structure, False), _flags("may_alias", may_alias, structure, True)
    arrays = []
    for k, leaf in enumerate(leaves):
        try:
            if isinstance(leaf, Array):
                leaf.check_usable(f"device_put: {tree.paths(structure, 'x')[k]}")
            array = asarray(leaf)
        except (ArgumentError, DTypeError):
            aval_of(leaf, f"device_put: {tree.paths(structure, 'x')[k]}")  # the same error, with the path
            raise
        target = targets[k]
        placed = array if target is None else _placed(array, target, tree.paths(structure, "x")[k])
        if not aliases[k]:
            placed = placed.copy()
        if (
            donated[k]
            and isinstance(leaf, Array)
            and not isinstance(leaf, Tracer)
            and placed._buffer is not leaf._buffer
        ):
            leaf.delete()
        arrays.append(placed)
    out: T = tree.unflatten(structure, arrays)
    return out


def _flags(what: str, prefix: object, structure: Structure, default: bool) -> list[bool]:
    """Return a bool for each leaf; None is the default. Raises: ArgumentError for another value."""
    entries = tree.broadcast_prefix(prefix, structure, f"device_put: {what}", _is_no_container)
    return [default if x is None else flag("device_put", what, x) for x in entries]


def _is_target(x: object) -> bool:
    return isinstance(x, Device | NamedSharding | SingleDeviceSharding | PartitionSpec) or _is_no_container(x)


def _is_no_container(x: object) -> bool:
    """Return True for None, and for a value that the caller then checks."""
    leaves = tree.leaves(x)
    return x is None or (len(leaves) == 1 and leaves[0] is x)


def _checked_target(x: object) -> Device | Sharding:
    """Return a device or a sharding. Raises: ArgumentError for another value, ParameterError for a spec without a
    mesh."""
    if isinstance(x, NamedSharding | PartitionSpec):
        return resolve_sharding("device_put", x)
    if isinstance(x, SingleDeviceSharding):
        return x
    return placement.check_device("device_put", x)


def _placed(array: Array, target: Device | Sharding, path: str) -> Array:
    if not isinstance(target, NamedSharding):
        device = target.device if isinstance(target, SingleDeviceSharding) else target
        placement.check_local(f"device_put: {path}", device)
        return committed_to(array, device)
    part_type("device_put", tuple(target.mesh.shape.items()), target.spec, array.aval, path)
    if isinstance(array, Tracer) or _same_devices(array.sharding, target):  # devices exchange parts
        return binder().bind(sharding_in_program("device_put", target, array.aval, path), (array,))[0]
    return wrap_buffer(array.aval, resharded(array._buffer, buffer_sharding(target)))


def _same_devices(sharding: Sharding, target: NamedSharding) -> bool:
    return isinstance(sharding, NamedSharding) and list(sharding.mesh.devices.flat) == list(target.mesh.devices.flat)


def _numpy(data: object, dtype: DType | None = None) -> NDArray:
    """Return the data of the user in NumPy. Python numbers have the dtypes that they have in fxad."""
    if dtype is None and isinstance(data, bool | int | float | complex | list | tuple):
        data = fnp.asarray(data)
    return np.asarray(data, dtype)


def make_array_from_process_local_data(
    sharding: Sharding, local_data: object, global_shape: tuple[int, ...] | None = None
) -> Array:
    """Return a sharded array of the data of all processes. `local_data` are the parts of the devices of this process,
    put together.

    Raises: ShapeError if they do not fit the sharding or `global_shape`; AxisNameError if the mesh lacks an axis;
            DTypeError for data that are no numbers.
    """
    what = "make_array_from_process_local_data"
    _check_sharding(what, sharding)
    value = _numpy(local_data)
    aval = Aval(value.shape, value.dtype)
    shape = None if global_shape is None else to_ints(what, "global_shape", global_shape)
    if isinstance(sharding, SingleDeviceSharding):
        return _assembled(
            what, aval.shape if shape is None else shape, sharding, [committed_to(asarray(value), sharding.device)]
        )
    check_spec_axes(what, tuple(sharding.mesh.shape.items()), sharding.spec, aval, "local_data")
    process_state.note_committed()
    buffer = from_local(value, buffer_sharding(sharding), shape)
    return wrap_buffer(Aval(buffer.aval.shape, value.dtype), buffer)


def make_array_from_callback(
    shape: tuple[int, ...],
    sharding: Sharding,
    data_callback: Callable[[tuple[slice, ...]], npt.ArrayLike],
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """Return a sharded array whose parts a function computes: it takes the slices of a part and returns its values.
    It is called once for each distinct part on the devices of this process.

    Raises: ShapeError, DTypeError naming the device of a part that does not fit.
    """
    what = "make_array_from_callback"
    shape, data_callback = to_ints(what, "shape", shape), function(what, "data_callback", data_callback)
    _check_sharding(what, sharding)
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    parts: list[Array] = []
    values_by_index: dict[str, NDArray] = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        if str(index) not in values_by_index:
            part = values_by_index[str(index)] = _numpy(data_callback(index), dtype)
            aval_of(part, f"{what}: the part on {device}")  # a dtype that fxad does not have
        parts.append(committed_to(asarray(values_by_index[str(index)]), device))
    return _assembled(what, shape, sharding, parts)


def make_array_from_single_device_arrays(
    shape: tuple[int, ...], sharding: Sharding, arrays: Sequence[Array], *, dtype: npt.DTypeLike | None = None
) -> Array:
    """Return a sharded array of its parts, each on its device. Nothing is copied. In several processes, `arrays` are the
    parts of this one.

    Raises: ShapeError, DTypeError naming the device of a part that does not fit; PlacementError for devices without a
            part; ArgumentError for values that are no arrays.
    """
    what = "make_array_from_single_device_arrays"
    shape, arrays = to_ints(what, "shape", shape), to_tuple(what, "arrays", arrays)
    _check_sharding(what, sharding)
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    for k, part in enumerate(arrays):
        if not isinstance(part, Array) or isinstance(part, Tracer):
            raise ArgumentError(
                f"{what}: arrays[{k}] is {described(part)}: {shown(part)}",
                remedy="put each part on its device: device_put",
            )
        if dtype is not None and part.dtype != dtype:
            raise DTypeError(f"{what}: arrays[{k}] is {part.aval}, dtype is {dtype}", remedy="convert it")
    return _assembled(what, shape, sharding, arrays)


def _check_sharding(what: str, sharding: object) -> None:
    if not isinstance(sharding, NamedSharding | SingleDeviceSharding):
        raise ArgumentError(
            f"{what}: sharding is {described(sharding)}: {shown(sharding)}", remedy="give NamedSharding(mesh, spec)"
        )


def _assembled(what: str, shape: tuple[int, ...], sharding: Sharding, parts: Sequence[Array]) -> Array:
    by_device = {part.device: part for part in parts}
    local_devices = [d for d in sharding.devices_indices_map(shape) if d.is_local]
    if set(local_devices) != set(by_device) or len(parts) != len(by_device):
        raise PlacementError(
            f"{what}: {len(parts)} parts are on {', '.join(map(str, by_device)) or 'no device'}, the sharding has"
            f" {', '.join(map(str, local_devices))}",
            remedy="give one part for each device of this process",
        )
    first_aval = by_device[local_devices[0]].aval
    part_aval = Aval(sharding.shard_shape(shape), first_aval.dtype)
    for device, part in by_device.items():
        if part.aval.dtype != part_aval.dtype:
            raise DTypeError(
                f"{what}: the part on {device} is {part.aval}, the part on {local_devices[0]} {first_aval}",
                remedy="give parts of one dtype",
            )
        if part.aval != part_aval:
            raise ShapeError(
                f"{what}: the part on {device} is {part.aval}, an array of shape {shape} has parts {part_aval}",
                remedy="give the parts that sharding.devices_indices_map(shape) lists",
            )
    aval = Aval(shape, first_aval.dtype)
    if isinstance(sharding, SingleDeviceSharding):
        return by_device[sharding.device]
    process_state.note_committed()
    buffers = [by_device[d]._buffer for d in local_devices]
    return wrap_buffer(aval, assembled(aval, buffer_sharding(sharding), buffers))
