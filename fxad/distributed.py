"""Several processes that run one program, each on its own devices.

Every process calls `initialize` before it uses a device, then runs the same code. `fx.devices()` are the devices of all
processes, and `fx.local_devices()` those of this one. `fx.make_array_from_process_local_data` makes a sharded array of
the data that each process has.
"""

from __future__ import annotations

from fxad.xla.processes import PROCESSES


def initialize(
    coordinator_address: str,
    num_processes: int,
    process_id: int,
    *,
    initialization_timeout: int = 300,
    heartbeat_timeout: int = 10,
) -> None:
    """Connect this process with the others. Process 0 runs the service at `coordinator_address`, a host and a port.

    If a process dies, a barrier of another one raises an error after its timeout. About `heartbeat_timeout` seconds
    after the death, jaxlib ends the other processes, also if they wait in a collective.

    Raises: ParameterError for an invalid address or number, and if devices are in use; ExecutionError if not all
            processes connect within `initialization_timeout` seconds.
    """
    PROCESSES.connect(coordinator_address, num_processes, process_id, initialization_timeout, heartbeat_timeout)


def barrier(timeout: float = 60.0) -> None:
    """Wait until all processes are here. Raises: ExecutionError after `timeout` seconds, or if a process has died."""
    PROCESSES.barrier(timeout)


def shutdown() -> None:
    """Wait for the other processes, and end the connection."""
    PROCESSES.disconnect()


__all__ = ["barrier", "initialize", "shutdown"]
