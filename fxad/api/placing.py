"""`device_put`: values on a device of the user's choice, trees in and out."""

from __future__ import annotations

from typing import TypeVar

from fxad import tree
from fxad.errors import ArgumentError
from fxad.lax.placing import committed_to
from fxad.runtime import Device
from fxad.tracing import placement
from fxad.tracing.array import Array, asarray

T = TypeVar("T")


def device_put(x: T, device: Device | None = None) -> T:
    """The arrays of a tree on a device, committed to it: what is computed from them is computed there.

    Without a device: NumPy arrays and numbers go to the default device, free to move; arrays that are on a device stay
    as they are, the same objects.

    Rule:   NumPy arrays that nobody can write to are not copied on the CPU; an array that is on the device is not either.
    Raises: ArgumentError for a leaf that is not an array, with its path, and for what is not a device.
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
