"""Running programs: devices, buffers, executables, and the cache that compiles each program once.

The interface of `fxad.xla`. All functions take and return buffers (jaxlib's arrays); `fxad.tracing.array` wraps them.
"""

from fxad.xla.buffers import (
    Buffer,
    Exporter,
    block,
    commitments,
    delete,
    device_of,
    dlpack_aval,
    dlpack_device,
    is_deleted,
    is_ready,
    remains,
    resharded,
    to_buffer,
    to_dlpack,
    to_numpy,
    transfer,
    twin,
)
from fxad.xla.cache import Cache, CacheStats, cache, cache_in_force, compile_jaxpr
from fxad.xla.client import Device, default_device, devices, set_cpu_devices
from fxad.xla.custom_calls import called
from fxad.xla.executable import (
    CompileOptions,
    CostStats,
    LoadedProgram,
    compile_module,
    launch,
)
from fxad.xla.explanation import Explanation
from fxad.xla.failures import (
    GONE,
    Donated,
    MemoryStats,
    Origin,
    Refused,
    ResultHandler,
    fate,
    refused,
    release,
    take,
)
from fxad.xla.garbage import collect, due
from fxad.xla.host_calls import Results, Start
from fxad.xla.linked import LinkedProgram, Runnable, cost, link, memory
from fxad.xla.profiler import profile
from fxad.xla.sharded import ManyDevices, is_sharded, shards

__all__ = [
    "Buffer",
    "Cache",
    "CacheStats",
    "CompileOptions",
    "CostStats",
    "Device",
    "Donated",
    "Explanation",
    "Exporter",
    "GONE",
    "LinkedProgram",
    "LoadedProgram",
    "ManyDevices",
    "MemoryStats",
    "Origin",
    "Refused",
    "Runnable",
    "ResultHandler",
    "Results",
    "Start",
    "block",
    "cache",
    "cache_in_force",
    "commitments",
    "collect",
    "compile_jaxpr",
    "called",
    "compile_module",
    "cost",
    "default_device",
    "delete",
    "device_of",
    "devices",
    "dlpack_aval",
    "dlpack_device",
    "due",
    "fate",
    "is_deleted",
    "is_ready",
    "is_sharded",
    "launch",
    "link",
    "memory",
    "refused",
    "release",
    "remains",
    "resharded",
    "shards",
    "profile",
    "set_cpu_devices",
    "take",
    "to_buffer",
    "to_dlpack",
    "to_numpy",
    "transfer",
    "twin",
]
