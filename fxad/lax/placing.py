"""Where arrays belong that no program computed: those that the host made, and those that a user names a device for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from fxad import tree
from fxad.runtime import Device, commitments, transfer
from fxad.tracing.array import Array, wrapped
from fxad.tracing.placement import numbered, target
from fxad.tracing.tracer import Tracer

T = TypeVar("T")


def committed_to(x: Array, device: Device) -> Array:
    """The array on a device, committed to it; the array itself when it is."""
    if isinstance(x, Tracer) or (x.committed and x.device is device):
        return x.to_device(device)
    return wrapped(x.aval, transfer(x._buffer, device))


def beside(what: str, given: Iterable[object], made: T) -> T:
    """Arrays that the host made for those that were given: where a program would have computed them. They are committed
    to the device that one of the given is committed to, and free to move where none is.

    Raises: PlacementError naming two that are committed to different devices.
    """
    if not commitments.any:  # most processes name no device
        return made
    held = [(k, x._buffer) for k, x in enumerate(given) if isinstance(x, Array) and not isinstance(x, Tracer)]
    if True not in [b._committed for _, b in held]:
        return made
    device = target(what, [b for _, b in held], lambda j: numbered(held[j][0]))
    leaves, structure = tree.flatten(made)
    out: T = tree.unflatten(structure, [x if isinstance(x, Tracer) else committed_to(x, device) for x in leaves])
    return out
