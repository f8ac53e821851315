"""`device_put`: places the arrays of a tree on a device."""

from __future__ import annotations

from typing import Any, TypeVar

from fxad.core import tree
from fxad.errors import ArgumentError
from fxad.lax.placement import committed_to
from fxad.runtime import Device, resharded
from fxad.sharding import NamedSharding, Sharding, SingleDeviceSharding, local, on_devices
from fxad.tracing import placement
from fxad.tracing.array import Array, asarray, wrap_buffer

T = TypeVar("T")


def device_put(x: T, device: Device | Sharding | Any = None) -> T:
    """Return a tree with its arrays on a device, committed to it: computations on them run there.

    `device` may be a sharding, or a tree prefix of shardings: the arrays are divided among its devices.

    Without a device, NumPy arrays and numbers go to the default device, uncommitted; arrays that are on a device are
    returned unchanged.

    Rule:   a read-only NumPy array is not copied on the CPU; nor is an array that is already on the device.
    Raises: ArgumentError for a leaf that is not an array, with its path, and for an invalid device.
    """
    leaves, structure = tree.flatten(x)
    targets: list[Device | Sharding | None] = [None] * len(leaves)
    if device is not None:
        targets = tree.broadcast_prefix(device, structure, "device_put: device", _is_target)
    arrays = []
    for k, leaf in enumerate(leaves):
        try:
            if isinstance(leaf, Array):
                leaf.present(f"device_put: {tree.paths(structure, 'x')[k]}")
            array = asarray(leaf)
        except ArgumentError as e:
            raise ArgumentError(f"device_put: {tree.paths(structure, 'x')[k]}: {e.message}", remedy=e.remedy) from e
        target = targets[k]
        arrays.append(array if target is None else _placed(array, target, tree.paths(structure, "x")[k]))
    out: T = tree.unflatten(structure, arrays)
    return out


def _is_target(x: object) -> bool:
    if isinstance(x, NamedSharding | SingleDeviceSharding | tuple | list | dict):
        return not isinstance(x, tuple | list | dict)
    placement.check_device("device_put", x)
    return True


def _placed(array: Array, target: Device | Sharding, path: str) -> Array:
    if isinstance(target, SingleDeviceSharding):
        return committed_to(array, target.device)
    if not isinstance(target, NamedSharding):
        return committed_to(array, target)
    local("device_put", tuple(target.mesh.shape.items()), target.spec, array.aval, path)
    return wrap_buffer(array.aval, resharded(array._buffer, on_devices(target)))
