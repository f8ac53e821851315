"""Placement of arrays that no program computed: arrays made on the host, and arrays that the user places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from fxad.core.trees import tree
from fxad.runtime import Device, is_sharded, process_state, transfer
from fxad.tracing.array import Array, wrap_buffer
from fxad.tracing.placement import OperandSharding, operand_label, target_of_call
from fxad.tracing.tracer import Tracer

T = TypeVar("T")


def committed_to(x: Array, device: Device) -> Array:
    """Return the array on a device, committed to it; the array itself if it already is."""
    if isinstance(x, Tracer) or (x.committed and x.device is device and not is_sharded(x._buffer)):
        return x.to_device(device)
    return wrap_buffer(x.aval, transfer(x._buffer, device))


def place_like_operands(what: str, given: Iterable[object], made: T) -> T:
    """Place arrays that the host computed where a program would have placed them: committed to the device to which an
    operand is committed, uncommitted if there is none or if operands are divided among devices.

    Raises: PlacementError naming two operands that are committed to different devices.
    """
    if not process_state.any_committed:  # most processes commit no array
        return made
    buffers = [(k, x._buffer) for k, x in enumerate(given) if isinstance(x, Array) and not isinstance(x, Tracer)]
    if True not in [b._committed for _, b in buffers]:
        return made
    device = target_of_call(what, [b for _, b in buffers], lambda j: operand_label(buffers[j][0]))
    if isinstance(device, OperandSharding):
        return made
    leaves, structure = tree.flatten(made)
    out: T = tree.unflatten(structure, [x if isinstance(x, Tracer) else committed_to(x, device) for x in leaves])
    return out
