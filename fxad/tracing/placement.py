"""Placement: a program runs on the device of its committed operands.

An array is committed if it was explicitly put on a device, or computed from a committed array. Other arrays are on the
default device, and move to the device where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, TypeAlias, final

from fxad import runtime
from fxad.core.dataclasses import dataclass
from fxad.errors import ParameterError, PlacementError, shown
from fxad.ir import Jaxpr
from fxad.primitives.control.shard_map import device_ids
from fxad.primitives.meshes import Division
from fxad.primitives.sharding_constraint import ShardingConstraint, with_shardings
from fxad.runtime import require_device
from fxad.sharding import ids_of

# Every call evaluates `True in map(is_committed, buffers)`, which takes 0.05 us an operand.
is_committed: Final = attrgetter("_committed")


@final
@dataclass(frozen=True, slots=True)
class OperandSharding:
    """The sharding of the operands of a call that are divided among several devices: the devices, and how each operand
    is divided. None: the operand is not committed, or has no sharding, and XLA decides."""

    devices: tuple[runtime.Device, ...]
    ins: tuple[Division | None, ...]

    @property
    def device(self) -> runtime.Device:
        """The first device."""
        return self.devices[0]

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        """Return the program of operands that are divided so. If it names other devices, it stays as it is, and the
        operands are refused when it runs."""
        named = device_ids(jaxpr)
        if named and set(named[0]) != {d.id for d in self.devices}:
            return jaxpr
        ids = named[0] if named else ids_of(self.devices)
        ins = tuple([None if division is None else ShardingConstraint(*division, ids) for division in self.ins])
        return with_shardings(jaxpr, ins, (None,) * len(jaxpr.outs))


Target: TypeAlias = runtime.Device | OperandSharding
PathOf: TypeAlias = Callable[[int], str]  # the name of an operand in messages


def target_of_committed(what: str, buffers: Sequence[runtime.Buffer | None], path: PathOf) -> Target | None:
    """Return the device of the committed operands, or the devices among which they are divided; None if there are none.

    `what` is the name of the program and `path(k)` that of operand k, for messages. None among the buffers is an
    operand that may move. Raises: PlacementError naming two operands that are committed to different devices.
    """
    first: tuple[int, tuple[runtime.Device, ...]] | None = None
    ins: list[Division | None] = []
    for k, b in enumerate(buffers):
        ins.append(None)
        if b is None or not b._committed or b.is_deleted():  # XLA refuses one that is deleted
            continue
        sharding, on = b._sharding, _devices_of(b)
        if isinstance(sharding, runtime.MeshSharding):
            ins[k] = sharding.mesh, sharding.spec
        if first is None:
            first = k, on
        elif on != first[1]:
            one = len(on) == len(first[1]) == 1
            raise PlacementError(
                f"{what}: {path(first[0])} is on {_listed(first[1])}, {path(k)} on {_listed(on)}",
                remedy=f"move one of them: fx.device_put(x, device), with the device of the other, {first[1][0]}"
                if one
                else "put one of them on the devices of the other, in their order: fx.device_put(x, sharding)",
            )
    if first is None:
        return None
    return first[1][0] if all([w is None for w in ins]) else OperandSharding(first[1], tuple(ins))


def target_of_call(what: str, buffers: Sequence[runtime.Buffer], path: PathOf) -> Target:
    """Return `target_of_committed`, and the default device if no operand is committed."""
    return target_of_committed(what, buffers, path) or runtime.default_device()


def _devices_of(buffer: runtime.Buffer) -> tuple[runtime.Device, ...]:
    """Return the devices that have a buffer or its parts, in the order of their mesh."""
    sharding = buffer._sharding
    return sharding.devices if isinstance(sharding, runtime.MeshSharding) else (runtime.device_of(buffer),)


def _listed(devices: Sequence[runtime.Device]) -> str:
    return ", ".join(map(str, devices[:8])) + (", ..." if len(devices) > 8 else "")


def operand_label(k: int) -> str:
    """Return the name of an operand in messages, if no better one is known."""
    return f"operand {k}"


def argument_label(k: int) -> str:
    """Return the name of an operand that is an argument of the operation which the user has called."""
    return f"argument {k}"


def moved_to(buffers: Sequence[runtime.Buffer], device: runtime.Device) -> list[runtime.Buffer]:
    """Return the buffers on a device. Buffers on other devices are copied."""
    return [
        b if runtime.device_of(b) is device and not runtime.is_sharded(b) else runtime.transfer(b, device)
        for b in buffers
    ]


def launch_committed(
    loaded: runtime.XlaExecutable,
    buffers: Sequence[runtime.Buffer],
    producer: runtime.BufferProducer,
    path: PathOf | None = None,
) -> list[runtime.Buffer]:
    """Return the results of a program, committed to its device. Raises: ExecutionError when XLA refuses the call."""
    operands = buffers
    if loaded.sharding is None:
        operands = moved_to(buffers, loaded.device)
    else:
        check_operands_on(loaded.devices, producer.name, buffers, path or operand_label)
    return runtime.launch(loaded.start, operands, loaded.committing_handlers, producer, path)


def check_operands_on(
    devices: tuple[runtime.Device, ...], what: str, buffers: Sequence[runtime.Buffer], path: PathOf
) -> None:
    """Check that committed operands are on these devices. Raises: PlacementError naming the first that is not."""
    for k, b in enumerate(buffers):
        if b._committed and not b.is_deleted():
            on = _devices_of(b)
            if on is not devices and set(on) != set(devices):
                raise PlacementError(
                    f"{what}: {path(k)} is on {_listed(on)}, the program runs on {_listed(devices)}",
                    remedy="put it on the devices of the program: fx.device_put(x, sharding)",
                )


def check_device(op: str, device: object, stream: object = None) -> runtime.Device:
    """Return the device. Raises: ArgumentError if it is not one; ParameterError for a stream, which only fxad
    chooses."""
    checked = require_device(op, device)
    if stream is not None:
        raise ParameterError(f"{op}: stream {shown(stream)}: fxad orders its own work", remedy="leave `stream` out")
    return checked


def check_local(op: str, device: runtime.Device) -> None:
    """Check that this process has the device. Raises: PlacementError."""
    if not device.is_local:
        raise PlacementError(
            f"{op}: {device} is a device of process {device.process_index}, this is process {runtime.process_index()}",
            remedy="divide the array among the devices of all processes: device_put(x, NamedSharding(mesh, spec))",
        )
