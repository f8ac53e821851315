"""Running programs: devices, buffers, executables, and the cache that compiles each program once.

The interface of `fxad.xla`. All functions take and return buffers (jaxlib's arrays); `fxad.tracing.array` wraps them.
"""

from fxad.xla.buffers import (
    Buffer,
    SupportsDLPack,
    block,
    commitments,
    copy_buffer,
    delete,
    device_of,
    dlpack_aval,
    dlpack_device,
    donated_placeholder,
    is_deleted,
    is_ready,
    lend,
    resharded,
    to_buffer,
    to_dlpack,
    to_numpy,
    transfer,
)
from fxad.xla.cache import Cache, CacheStats, active_cache, cache, compile_jaxpr
from fxad.xla.client import Device, default_device, devices, set_cpu_devices
from fxad.xla.custom_calls import custom_call_targets
from fxad.xla.executable import (
    CompileOptions,
    CostStats,
    LoadedProgram,
    compile_module,
    launch,
)
from fxad.xla.explanation import Explanation
from fxad.xla.failures import (
    OPERAND_DELETED,
    DonationRecord,
    MemoryStats,
    Origin,
    ResultHandler,
    XlaRuntimeError,
    execution_error,
    missing_value_reason,
    take_for_donation,
    undo_donation,
)
from fxad.xla.garbage import collect_garbage, collection_due
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
    "DonationRecord",
    "Explanation",
    "SupportsDLPack",
    "OPERAND_DELETED",
    "LinkedProgram",
    "LoadedProgram",
    "ManyDevices",
    "MemoryStats",
    "Origin",
    "XlaRuntimeError",
    "Runnable",
    "ResultHandler",
    "Results",
    "Start",
    "block",
    "cache",
    "active_cache",
    "commitments",
    "collect_garbage",
    "compile_jaxpr",
    "custom_call_targets",
    "compile_module",
    "cost",
    "default_device",
    "delete",
    "device_of",
    "devices",
    "dlpack_aval",
    "dlpack_device",
    "collection_due",
    "missing_value_reason",
    "is_deleted",
    "is_ready",
    "is_sharded",
    "launch",
    "lend",
    "link",
    "memory",
    "execution_error",
    "undo_donation",
    "donated_placeholder",
    "resharded",
    "shards",
    "profile",
    "set_cpu_devices",
    "take_for_donation",
    "to_buffer",
    "to_dlpack",
    "to_numpy",
    "transfer",
    "copy_buffer",
]
