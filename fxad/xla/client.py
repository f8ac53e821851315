"""Devices, created at their first use. They work without jax, and alongside it.

fxad creates its own clients: it registers nothing in jaxlib that jax could find, and changes no setting of the process.
The platform is the argument, else the environment variable FXAD_PLATFORM, else the CPU. FXAD_CPU_DEVICES (or
`set_cpu_devices`, before first use) sets the number of CPU devices.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from dataclasses import field
from functools import partial
from operator import index, methodcaller
from types import MappingProxyType
from typing import Final, TypeAlias, final
from weakref import proxy

from fxad.core.dataclasses import dataclass
from fxad.core.single_flight import FLIGHTS
from fxad.errors import ArgumentError, ExecutionError, ParameterError, described, shown
from fxad.lowering.jaxlib import _jax, xla_client
from fxad.xla.compat import find_types_of_jax, reason
from fxad.xla.cuda import cuda_client  # by name: see `_Clients.after_fork`
from fxad.xla.jaxlib_types import OneDeviceSharding

_MAX_DEVICES: Final = 2**31 - 1  # XLA counts devices with 32 bits
PLATFORM_ALIASES: Final = MappingProxyType({"gpu": "cuda"})  # jax's name for the platform


@final
@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device: one object each, compared by identity. `str(device)` is `cpu:0`."""

    platform: str
    id: int
    kind: str
    client: _jax.Client = field(repr=False)
    raw: _jax.Device = field(repr=False)
    sharding: OneDeviceSharding = field(repr=False)
    raw_list: list[_jax.Device] = field(repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return _device_named, (self.platform, self.id)

    @property
    def device_kind(self) -> str:
        """JAX's name for `kind`."""
        return self.kind

    @property
    def process_index(self) -> int:
        """The process that has the device."""
        return self.raw.process_index

    @property
    def is_local(self) -> bool:
        """True if this process has the device."""
        return self.raw.process_index == process_index()

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


def require_device(what: str, value: object) -> Device:
    """Return the value, which must be a device. Raises: ArgumentError."""
    if not isinstance(value, Device):
        raise ArgumentError(f"{what}: {described(value)} is not a device: {shown(value)}", remedy="use fxad.devices()")
    return value


# The connection to the service, the number of this process, the number of processes, and the address of this one for
# the others.
Connection: TypeAlias = tuple[_jax.DistributedRuntimeClient, int, int, str]


@final
class _Clients:
    """The clients of this process, one per platform. Thread-safe."""

    __slots__ = ("__weakref__", "_cpu_devices", "_devices", "_forked", "default", "local_device_ids", "processes")

    def __init__(self) -> None:
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._cpu_devices: int | None = None
        self._forked = False
        self.default: Device | None = None
        self.processes: Connection | None = None
        self.local_device_ids: tuple[int, ...] | None = None  # the GPUs of this process; None: all

    def after_fork(self) -> None:
        """Mark the clients as unusable: the threads of a client do not exist in a forked child.

        Clients that are never destroyed keep the globals of this module alive until the child ends. With a package
        among the globals, the child ended with a segfault: so this module imports from modules by name.
        """
        self._forked = bool(self._devices)
        self.default = None
        if self._forked:  # the destructor of a client waits for its threads, which would hang in a child
            never_destroy(self)

    def check_process(self, what: str) -> None:
        if self._forked:
            raise ExecutionError(
                f"{what}: this process was forked from one that had begun to compute, and has none of XLA's threads",
                remedy="start processes with 'spawn' or 'forkserver' of multiprocessing, or fork before computing",
            )

    def choose_default(self) -> Device:
        self.default = local_devices()[0]
        return self.default

    def set_cpu_devices(self, count: int) -> None:
        try:
            number = 0 if isinstance(count, bool) else index(count)
        except TypeError:
            number = 0
        if not 1 <= number <= _MAX_DEVICES:
            raise ParameterError(
                f"set_cpu_devices: the number of devices is {shown(count)}",
                remedy="give an int of 1 or more" if number < 1 else "give an int of 32 bits",
            )
        in_use = len(self._devices.get("cpu", ()))
        if in_use not in (0, number):
            raise ParameterError(
                f"set_cpu_devices: {number} asked for, the CPU is in use with {in_use}",
                remedy="call it before the first program runs, or set FXAD_CPU_DEVICES",
            )
        self._cpu_devices = number

    def devices(self, platform: str) -> tuple[Device, ...]:
        self.check_process("devices")
        platform = PLATFORM_ALIASES.get(platform, platform)
        existing = self._devices.get(platform)
        if existing is not None:
            return existing
        return FLIGHTS.do(("client", platform), partial(self._devices.get, platform), partial(self._begin, platform))

    def _begin(self, platform: str) -> tuple[Device, ...]:
        client = self._make(platform)
        find_types_of_jax(client.local_devices()[0])
        return self._devices.setdefault(platform, tuple([_device(platform, client, d) for d in _all_devices(client)]))

    def wait_for_live_arrays(self) -> None:
        """Wait for every live array. A failed computation is reported when its value is used. Signals interrupt it."""
        for client_devices in [] if self._forked else self._devices.copy().values():
            for array in client_devices[0].client.live_arrays():
                with suppress(_jax.JaxRuntimeError):
                    array.block_until_ready()

    def is_computing(self) -> bool:
        """Return True if some live array is not computed yet."""
        devices_of_clients = [] if self._forked else self._devices.copy().values()
        arrays = [a for client_devices in devices_of_clients for a in client_devices[0].client.live_arrays()]
        with suppress(_jax.JaxRuntimeError):  # one was deleted meanwhile
            return not all([a.is_ready() for a in arrays if not a.is_deleted()])
        return True

    def device_of_raw(self, raw: _jax.Device) -> Device:
        return next(d for of_platform in self._devices.copy().values() for d in of_platform if d.raw == raw)

    def _make(self, platform: str) -> _jax.Client:
        try:
            if platform == "cpu" and self.processes is not None:
                client, k, n, hostname = self.processes
                collectives = _jax.make_gloo_tcp_collectives(distributed_client=client, hostname=hostname)
                return xla_client.make_cpu_client(
                    num_devices=self._cpu_devices or _cpu_devices_from_environment(),
                    distributed_client=client, node_id=k, num_nodes=n, collectives=collectives,
                )  # fmt: skip
            if platform == "cpu":
                return xla_client.make_cpu_client(num_devices=self._cpu_devices or _cpu_devices_from_environment())
            if platform == "cuda":
                return cuda_client(self.processes, self.local_device_ids)
        except _jax.JaxRuntimeError as e:
            raise ExecutionError(
                f"devices: no {platform} client: {reason(e)}",
                remedy="see that the device is there and free, or set FXAD_PLATFORM=cpu",
            ) from e
        raise ParameterError(f"devices: {shown(platform)} is no platform", remedy="use cpu or cuda")


def _device(platform: str, client: _jax.Client, raw: _jax.Device) -> Device:
    return Device(platform, raw.id, raw.device_kind, client, raw, OneDeviceSharding(raw), [raw])


def _cpu_devices_from_environment() -> int:
    text = os.environ.get("FXAD_CPU_DEVICES", "1")
    number = int(text) if text.isdecimal() and len(text) <= len(str(_MAX_DEVICES)) else 0
    if not 1 <= number <= _MAX_DEVICES:
        raise ParameterError(
            f"devices: FXAD_CPU_DEVICES must be a number of devices, got {shown(text)}", remedy="set it to an int >= 1"
        )
    return number


def register_after_fork(one: object) -> None:
    """Call the method `after_fork` of an object in every forked child.

    Python never frees a registered function, nor anything that it refers to, such as the globals of its module. So only
    a weak reference and C code are registered. Then the clients are destroyed at interpreter exit, and each destructor
    waits for running computations. A client that is not destroyed would compute while the process exits.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(methodcaller("after_fork"), proxy(one)))


_clients: Final = _Clients()
register_after_fork(_clients)
register_after_fork(FLIGHTS)


def devices(platform: str | None = None) -> tuple[Device, ...]:
    """Return the devices of a platform, in the order of their ids.

    Raises: ParameterError for an unknown platform; ExecutionError when its client cannot be made.
    """
    if platform is not None and not isinstance(platform, str):
        raise ArgumentError(
            f"devices: platform is {described(platform)}: {shown(platform)}", remedy='give a name: "cpu", "cuda"'
        )
    return _clients.devices(platform or default_platform())


def _device_named(platform: str, number: int) -> Device:
    """Return the device of this process with the name of a pickled one."""
    device = next((d for d in devices(platform) if d.id == number), None)
    if device is None:
        raise ExecutionError(
            f"unpickle: this process has no device {platform}:{number}, only {', '.join(map(str, devices(platform)))}",
            remedy="give it as many devices: set_cpu_devices, or FXAD_CPU_DEVICES",
        )
    return device


def local_devices(platform: str | None = None) -> tuple[Device, ...]:
    """Return the devices of this process."""
    return tuple([d for d in devices(platform) if d.is_local])


def device_count(platform: str | None = None) -> int:
    """Return the number of devices of all processes."""
    return len(devices(platform))


def process_index() -> int:
    """Return the number of this process; 0 if there is one."""
    return 0 if _clients.processes is None else _clients.processes[1]


def process_count() -> int:
    """Return the number of processes."""
    return 1 if _clients.processes is None else _clients.processes[2]


def check_no_devices() -> None:
    """Check that this process uses no devices yet. Raises: ParameterError."""
    if _clients._devices:
        raise ParameterError(
            "distributed.initialize: devices are in use", remedy="call it before the first program runs"
        )


def join_processes(connection: Connection, local_device_ids: tuple[int, ...] | None) -> None:
    """Share the devices of several processes from now on."""
    _clients.processes, _clients.local_device_ids = connection, local_device_ids


def default_platform() -> str:
    """Return the platform that is used without a choice."""
    platform = os.environ.get("FXAD_PLATFORM") or "cpu"
    return PLATFORM_ALIASES.get(platform, platform)


def _all_devices(client: _jax.Client) -> list[_jax.Device]:
    return client.local_devices() if process_count() == 1 else sorted(client.devices(), key=lambda d: d.id)


def check_not_forked(what: str) -> None:
    """Check that this process was not forked from one with clients, where `what` would hang. Raises: ExecutionError."""
    _clients.check_process(what)


def in_forked_child() -> bool:
    """Return True if this process was forked from one with clients, so that it cannot compute."""
    return _clients._forked


def device_of_raw(raw: _jax.Device) -> Device:
    """Return the device of a jaxlib device."""
    return _clients.device_of_raw(raw)


def default_device() -> Device:
    """Return the default device: the first one of the default platform at the time of the first call."""
    return _clients.default or _clients.choose_default()


def set_cpu_devices(count: int) -> None:
    """Set the number of CPU devices. Raises: ParameterError if the CPU is in use with another number."""
    _clients.set_cpu_devices(count)


def is_computing() -> bool:
    """Return True if some live array is not computed yet."""
    return _clients.is_computing()


def keep_clients() -> None:
    """Keep the clients until the process ends: the destructor of a client waits for its computations."""
    for client_devices in _clients._devices.copy().values():
        never_destroy(client_devices[0].client)


def never_destroy(one: object) -> None:
    """Keep an object until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def wait_for_live_arrays() -> None:
    """Wait for the computations whose results are live."""
    _clients.wait_for_live_arrays()
