"""Several processes that share their devices: jaxlib's distributed service, with gloo for CPUs."""

from __future__ import annotations

import atexit
import errno
import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final, final

from fxad.errors import ExecutionError, ParameterError, shown
from fxad.lowering.jaxlib import _jax
from fxad.xla.client import (
    check_no_devices,
    default_platform,
    join_processes,
    never_destroy,
    process_count,
    process_index,
    register_after_fork,
)
from fxad.xla.compat import reason
from fxad.xla.interpreter_exit import end_while_xla_runs
from fxad.xla.interruptible import waits
from fxad.xla.jaxlib_types import Buffer, Start, XlaResults

_GRACE: Final = 0.5  # seconds in which the others end their connections: jaxlib ends them if the service ends first


@final
class Processes:
    """The connection of this process to the others."""

    def __init__(self) -> None:
        self.client: _jax.DistributedRuntimeClient | None = None
        self.service: _jax.DistributedRuntimeService | None = None
        self._shutdown_timeout = 0
        self._barriers = count()
        # For the processes that share devices, the digests of the programs that they have run. An entry outlives its
        # executable: the garbage collectors of the processes free executables at different times.
        self._programs: dict[tuple[int, ...], set[bytes]] = {}

    def connect(
        self,
        address: object,
        n: int,
        k: int,
        *,
        timeout: int,
        heartbeat: int,
        shutdown: int,
        visible: tuple[int, ...] | None,
    ) -> None:
        """Connect; process 0 starts the service. Raises: ParameterError, ExecutionError after `timeout` seconds."""
        if self.client is not None:
            raise ParameterError("distributed.initialize: it was called before", remedy="call it once in a process")
        if not 0 <= k < n:
            raise ParameterError(
                f"distributed.initialize: process_id is {k} of {n} processes", remedy="number processes from 0"
            )
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not isinstance(address, str) or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ParameterError(
                f"distributed.initialize: coordinator_address is {shown(address)}, not a host and a port",
                remedy='as in "127.0.0.1:8476": an address of process 0 that all processes reach',
            )
        check_no_devices()
        if k == 0:
            _check_port(int(port))
        # A service that is not recoverable tells all processes to end when one is lost. On CPUs that is not needed:
        # gloo sees that a connection is closed. NCCL would wait for ever.
        recoverable, service = default_platform() == "cpu", None
        try:
            if k == 0:
                service = _jax.get_distributed_runtime_service(
                    f"[::]:{port}", n, heartbeat_timeout=heartbeat, shutdown_timeout=shutdown, recoverable=recoverable
                )
            client = _jax.get_distributed_runtime_client(
                address, k, init_timeout=timeout, heartbeat_timeout=heartbeat, shutdown_timeout=shutdown,
                missed_heartbeat_callback=_lost, shutdown_on_destruction=False, use_compression=True,
            )  # fmt: skip
            waits.call(client.connect)
            own_address = _own_address(host)
        except (_jax.JaxRuntimeError, RuntimeError, OSError) as e:
            if service is not None:
                service.shutdown()
            raise ExecutionError(
                f"distributed.initialize: process {k} of {n} at {address}: {_reason(e, timeout)}",
                remedy="start all processes with one address and distinct process_id, within the timeout",
            ) from e
        join_processes((client, k, n, own_address), visible)
        self.client, self.service, self._shutdown_timeout = client, service, shutdown
        atexit.register(self._at_exit)
        register_after_fork(self)

    def barrier(self, timeout: float) -> None:
        """Wait for all processes. Raises: ExecutionError after `timeout` seconds."""
        if self.client is None:
            return
        try:
            waits.call(partial(self.client.wait_at_barrier, f"fxad{next(self._barriers)}", int(1000 * timeout)))
        except _jax.JaxRuntimeError as e:
            raise ExecutionError(
                f"distributed.barrier: {reason(e)}", remedy="see why another process did not come to the barrier"
            ) from e

    def check_same_program(self, name: str, digest: str, processes: tuple[int, ...]) -> None:
        """Compare a program that some processes run for the first time. Raises: ExecutionError if they run different
        ones; then the next program has the same number, so another attempt is compared with what the others wait for.
        """
        programs, program = self._programs.setdefault(processes, set()), bytes.fromhex(digest)
        if self.client is None or program in programs:
            return
        here, n = process_index(), len(programs)
        programs.add(program)
        place = f"fxad/programs/{'-'.join(map(str, processes))}/{n}/"
        try:
            self.client.key_value_set(f"{place}{here}", f"{digest} {name}", allow_overwrite=True)
            published = self.client.key_value_dir_get(place)
        except _jax.JaxRuntimeError:  # process 0 has ended: the collectives raise an error that says more
            return
        for key, value in published:
            theirs, _, their_name = value.partition(" ")
            if theirs != digest:
                programs.discard(program)
                what = "another program of this name" if their_name == name else their_name
                raise ExecutionError(
                    f"{name}: process {here} runs it as program {n} on devices of processes"
                    f" {', '.join(map(str, processes))}; process {key.rpartition('/')[2]} runs {what}",
                    remedy="run the same programs in the same order in all processes",
                )

    def disconnect(self) -> None:
        """Wait until each process that lives is here, at most `shutdown_timeout` seconds; end the connection."""
        client, self.client = self.client, None
        service, self.service = self.service, None
        try:
            # The service answers when all processes that live have asked. `shutdown` waits for all, too, but sends no
            # heartbeats meanwhile: it would be an error in the others after the heartbeat timeout.
            if client is not None:
                live_processes = partial(client.get_live_nodes, range(process_count()))
                with suppress(_jax.JaxRuntimeError, TimeoutError):  # process 0 has ended, or others do not
                    waits.call(live_processes, self._shutdown_timeout)
        finally:
            if client is not None:
                client.shutdown()
            if service is not None:
                time.sleep(_GRACE)
                service.shutdown()

    def after_fork(self) -> None:
        """Forget the connection in a forked child: it is that of the parent."""
        never_destroy((self.client, self.service))
        self.client = self.service = None

    def _at_exit(self) -> None:
        if self.client is None:
            return
        if not waits.interrupted and getattr(sys, "last_type", None) is None:
            with suppress(KeyboardInterrupt):
                self.disconnect()
            return
        # After an exception the others may wait in a collective that this process will not come to: end at once. The
        # destructors of a connection would end the process with a signal.
        never_destroy((self.client, self.service))
        end_while_xla_runs()


@final
class AgreedStart:
    """An execution by several processes. At its first run, it compares the program with those of the other processes.

    A collective waits until all processes come to it. If one of them runs another program, the others wait for ever, or
    get values of another computation, where both programs happen to communicate alike. `digest` tells programs apart.
    The first process that runs a program finds no other one to compare with, and waits in its collectives. A later one
    that runs another program raises the error. The first one gets an error when the later one ends. A program without
    collectives waits for nobody: a process may run it alone.
    """

    __slots__ = ("_agreed", "_digest", "_name", "_processes", "_raw", "_start")

    def __init__(
        self, start: Start, raw: _jax.LoadedExecutable, name: str, digest: str, processes: tuple[int, ...]
    ) -> None:
        self._start, self._raw, self._name, self._digest, self._processes = start, raw, name, digest, processes
        self._agreed = False

    def __call__(self, buffers: Sequence[Buffer]) -> XlaResults:
        if not self._agreed:
            if _COLLECTIVE.search(self._raw.get_hlo_text()):  # XLA adds collectives that the program does not have
                PROCESSES.check_same_program(self._name, self._digest, self._processes)
            self._agreed = True
        return self._start(buffers)


_COLLECTIVE: Final = re.compile(
    r" (?:all-reduce|all-gather|(?:ragged-)?all-to-all|reduce-scatter|collective-(?:permute|broadcast))(?:-start)?\("
)


def _check_port(port: int) -> None:
    """Raise ExecutionError for a port in use, for which jaxlib sometimes ends the process by a signal."""
    for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # as the service does
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections do not count
                probe.bind((host, port))
        except OSError as e:
            if e.errno in (errno.EADDRINUSE, errno.EACCES):
                raise ExecutionError(
                    f"distributed.initialize: process 0 cannot serve at port {port}: {os.strerror(e.errno)}",
                    remedy="choose another port in coordinator_address, or end the program that uses this one",
                ) from e


def _reason(e: Exception, timeout: int) -> str:
    """Return the text of an error. jaxlib has none for a refused connection: it fails to call `_lost`."""
    text = reason(e)
    return f"not connected within {timeout} s, or another process has this number" if "bad_cast" in text else text


def _lost(*_status: object) -> None:
    """Do nothing, as the callback of jaxlib for lost processes. It never runs: jaxlib fails to convert the status to
    Python, and ends this process. Without a callback, jaxlib ends the process also if it cannot connect, where it now
    raises an error.
    """


def _own_address(coordinator: str) -> str:
    """Return the address at which the other processes reach this one: that of the interface to the coordinator."""
    host = coordinator.removeprefix("[").removesuffix("]")  # around an address of IPv6
    family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


PROCESSES: Final = Processes()
