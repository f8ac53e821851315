"""`device_put`: places the arrays of a tree on a device."""

from __future__ import annotations

from typing import TypeVar

from fxad import tree
from fxad.errors import ArgumentError
from fxad.lax.placement import committed_to
from fxad.runtime import Device
from fxad.tracing import placement
from fxad.tracing.array import Array, asarray

T = TypeVar("T")


def device_put(x: T, device: Device | None = None) -> T:
    """Return a tree with its arrays on a device, committed to it: computations on them run there.

    Without a device, NumPy arrays and numbers go to the default device, uncommitted; arrays that are on a device are
    returned unchanged.

    Rule:   a read-only NumPy array is not copied on the CPU; nor is an array that is already on the device.
    Raises: ArgumentError for a leaf that is not an array, with its path, and for an invalid device.
    """
    if device is not None:
        placement.check_device("device_put", device)
    leaves, structure = tree.flatten(x)
    arrays = []
    for k, leaf in enumerate(leaves):
        try:
            if isinstance(leaf, Array):
                leaf.present(f"device_put: {tree.paths(structure, 'x')[k]}")
            array = asarray(leaf)
        except ArgumentError as e:
            raise ArgumentError(f"device_put: {tree.paths(structure, 'x')[k]}: {e.message}", remedy=e.remedy) from e
        arrays.append(array if device is None else committed_to(array, device))
    out: T = tree.unflatten(structure, arrays)
    return out
