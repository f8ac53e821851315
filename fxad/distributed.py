"""Several processes that run one program, each on its own devices.

Every process calls `initialize` before it uses a device, then runs the same programs in the same order. At its first
run, a program with collectives is compared with that of the other processes: a different one is an ExecutionError.
`fx.devices()` are the devices of all processes, and `fx.local_devices()` those of this one.
`fx.make_array_from_process_local_data` makes a sharded array of the data that each process has.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.operations.arguments import number, to_int, to_ints
from fxad.xla.processes import PROCESSES


def initialize(
    coordinator_address: str,
    num_processes: int,
    process_id: int,
    local_device_ids: int | Sequence[int] | None = None,
    *,
    initialization_timeout: int = 300,
    heartbeat_timeout: int = 10,
    shutdown_timeout: int = 300,
) -> None:
    """Connect this process with the others. Process 0 runs the service at `coordinator_address`, a host and a port.

    `local_device_ids` are the GPUs of this process; without it, it has all that it sees. The CPU devices of a process
    are those of `set_cpu_devices`.

    If a process dies on CPUs, its collectives raise an ExecutionError in the other processes as soon as its connections
    close, or after 30 seconds if they were not made yet. A barrier raises one after its timeout. A process that calls
    neither a collective nor a barrier continues. On GPUs, NCCL would wait for ever, so jaxlib ends the other processes
    about `heartbeat_timeout` seconds after the death. If process 0 dies, jaxlib ends the others within that time.

    A process that ends without an exception calls `shutdown`. After an exception it ends at once, and is a dead process
    for the others. Ctrl-C interrupts the wait for other processes, in a collective too.

    Raises: ParameterError for an invalid address or number, and if devices are in use; ArgumentError for a number that
            is no int; ExecutionError if not all processes connect within `initialization_timeout` seconds.
    """
    what = "distributed.initialize"
    visible = (local_device_ids,) if isinstance(local_device_ids, int) else local_device_ids
    PROCESSES.connect(
        coordinator_address,
        to_int(what, "num_processes", num_processes),
        to_int(what, "process_id", process_id),
        timeout=to_int(what, "initialization_timeout", initialization_timeout),
        heartbeat=to_int(what, "heartbeat_timeout", heartbeat_timeout),
        shutdown=to_int(what, "shutdown_timeout", shutdown_timeout),
        visible=None if visible is None else to_ints(what, "local_device_ids", visible),
    )


def is_initialized() -> bool:
    """Return True if this process is connected with others."""
    return PROCESSES.client is not None


def barrier(timeout: float = 60.0) -> None:
    """Wait until all processes are here. Raises: ExecutionError after `timeout` seconds, or if a process has died."""
    PROCESSES.barrier(number("distributed.barrier", "timeout", timeout))


def shutdown() -> None:
    """Wait until the other living processes call this too, at most `shutdown_timeout` seconds; end the connection.

    The end of process 0 ends the processes that are left.
    """
    PROCESSES.disconnect()


__all__ = ["barrier", "initialize", "is_initialized", "shutdown"]


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
