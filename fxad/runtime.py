"""Running programs: devices, buffers, executables, and the cache that compiles each program once.

The interface of `fxad.xla`. All functions take and return buffers (jaxlib's arrays); `fxad.tracing.array` wraps them.
"""

from fxad.lowering.jaxlib import jaxlib_version as jaxlib_version
from fxad.lowering.nesting import check_nesting as check_nesting
from fxad.xla.buffers import (
    SupportsDLPack as SupportsDLPack,
    block as block,
    copy_buffer as copy_buffer,
    delete as delete,
    delete_for_user as delete_for_user,
    device_of as device_of,
    dlpack_aval as dlpack_aval,
    dlpack_device as dlpack_device,
    is_deleted as is_deleted,
    is_immutable as is_immutable,
    is_ready as is_ready,
    lend as lend,
    owner_of_memory as owner_of_memory,
    resharded as resharded,
    to_buffer as to_buffer,
    to_dlpack as to_dlpack,
    to_numpy as to_numpy,
    transfer as transfer,
)
from fxad.xla.cache import (
    Cache as Cache,
    CacheStats as CacheStats,
    ReleaseReason as ReleaseReason,
    active_cache as active_cache,
    cache as cache,
    compile_jaxpr as compile_jaxpr,
)
from fxad.xla.client import (
    PLATFORM_ALIASES as PLATFORM_ALIASES,
    Device as Device,
    default_device as default_device,
    default_platform as default_platform,
    device_count as device_count,
    devices as devices,
    local_devices as local_devices,
    process_count as process_count,
    process_index as process_index,
    require_device as require_device,
    set_cpu_devices as set_cpu_devices,
)
from fxad.xla.custom_calls import (
    custom_call_targets as custom_call_targets,
    implements as implements,
    register_targets as register_targets,
)
from fxad.xla.donated_buffers import (
    OPERAND_DELETED as OPERAND_DELETED,
    DonatingCall as DonatingCall,
    DonationRecord as DonationRecord,
    claim_of as claim_of,
    donated_placeholder as donated_placeholder,
    take_for_donation as take_for_donation,
)
from fxad.xla.executable import (
    XlaExecutable as XlaExecutable,
    compile_module as compile_module,
    launch as launch,
)
from fxad.xla.explanation import Explanation as Explanation
from fxad.xla.failures import (
    BufferProducer as BufferProducer,
    execution_error as execution_error,
)
from fxad.xla.garbage import collect_garbage as collect_garbage, collection_due as collection_due
from fxad.xla.host_calls import hold_host_function as hold_host_function, hold_same_function as hold_same_function
from fxad.xla.interpreter_exit import process_state as process_state
from fxad.xla.jaxlib_types import (
    Buffer as Buffer,
    CostStats as CostStats,
    MemoryStats as MemoryStats,
    ResultHandler as ResultHandler,
    Start as Start,
    XlaResults as XlaResults,
    XlaRuntimeError as XlaRuntimeError,
)
from fxad.xla.linked import (
    AnyExecutable as AnyExecutable,
    LinkedExecutable as LinkedExecutable,
    link as link,
    parts_of as parts_of,
)
from fxad.xla.options import (
    DEFAULT_OPTIONS as DEFAULT_OPTIONS,
    CompileOptions as CompileOptions,
    check_options as check_options,
)
from fxad.xla.sharded import (
    MeshSharding as MeshSharding,
    assembled as assembled,
    from_local as from_local,
    is_elsewhere as is_elsewhere,
    is_sharded as is_sharded,
    shards as shards,
    unreadable_reason as unreadable_reason,
)
