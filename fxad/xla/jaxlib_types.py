"""The objects of jaxlib that fxad passes around, those that fxad makes for jaxlib to read, and XLA's figures for a
compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Final, Protocol, TypeAlias, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.ir import Aval, Shape
from fxad.lowering.jaxlib import _jax, xla_client
from fxad.support.tables import Shown, Table

Buffer: TypeAlias = _jax.ArrayImpl
ResultHandler: TypeAlias = _jax.ResultHandler  # makes an array of a result
XlaRuntimeError: Final = _jax.JaxRuntimeError


class XlaResults(Protocol):
    """Results of an execution, not arrays yet."""

    def consume_with_handlers(self, handlers: Sequence[ResultHandler], /) -> list[Buffer]:
        """Make arrays of them, one with each handler.

        `handlers` are `handlers` or `committing_handlers` of the program. Those of a `LinkedExecutable`, whose steps
        have handlers of their own, are `LinkedHandlers`: they only say if the results are committed.
        """


# A function that starts an execution on buffers: `execute_sharded` of an executable, or a wrapper around another one. A
# call goes through these wrappers, the outermost first. Each is there only under its condition:
#
# - `_ForwardingStart` (`execution.dispatch`): the results are operands. It runs nothing, and is the only one then.
# - `DonatingStart` (`execution.donation`): the call donates operands.
# - `_MovingStart` (`execution.dispatch`): some operand is committed, or a device was given. It moves the others.
# - `LinkedExecutable.start` (`xla.linked`): the program is several units. It starts each, from `_PinnedStart` on.
# - `ReshardingStart` (`xla.executable`): the program divides its operands among devices.
# - `_PinnedStart` (`xla.executable`): it runs on more than one device.
# - `AgreedStart` (`xla.processes`): the devices are of more than one process.
# - `_BlockingStart` and, inside it, `started_in_thread` (`xla.executable`, `xla.interruptible`): it divides its
#   operands, on CPUs, and there are several processes. Else `interruptible`: it has a loop without a bound.
# - `SynchronousStart` (`xla.host_calls`): it calls the host.
Start: TypeAlias = Callable[[Sequence[Buffer]], XlaResults]


@final
class ArrayType:
    """The type of an array in the form that jaxlib reads. jaxlib stores this object on the arrays that it makes."""

    __slots__ = ("dtype", "ndim", "producer", "shape", "weak_type")

    def __init__(self, aval: Aval, producer: object = None) -> None:
        self.producer = producer  # the program that computes it, for messages
        self.shape: Shape = aval.shape
        self.dtype: np.dtype[np.generic] = aval.dtype
        self.ndim = len(aval.shape)
        self.weak_type = True  # see `fxad.xla.lookups_of_jax`


@final
class OneDeviceSharding(_jax.SingleDeviceSharding):
    """The sharding of an array on one device. It defines attributes that jaxlib reads while it makes arrays, and that
    jaxlib's own class does not have."""

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


# ------------------------------------------------------------------------------------------------------------- figures


@final
@dataclass(frozen=True, slots=True)
class CostStats:
    """XLA's own estimate of the work of one call. `flops` do not include `transcendentals`."""

    flops: float
    bytes_accessed: float
    transcendentals: float


@final
@dataclass(frozen=True, slots=True)
class MemoryStats(Shown):
    """Bytes that a compiled program uses. `peak_bytes` is the peak of a call, with operands and results."""

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    peak_bytes: int
    generated_code_bytes: int

    def _shown(self) -> tuple[str, Sequence[Table]]:
        rows = [(f.name.removesuffix("_bytes").replace("_", " "), f"{getattr(self, f.name):,}") for f in fields(self)]
        return "", [Table(("memory", "bytes"), tuple(rows), right=(1,))]


class CountsMemory(Protocol):
    """An executable."""

    def memory(self) -> MemoryStats:
        """Return the memory that XLA planned for it."""
