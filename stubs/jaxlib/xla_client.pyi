from collections.abc import Mapping, Sequence

from jaxlib._jax import (
    Client as Client,
    CpuCollectives as CpuCollectives,
    DeviceAssignment as DeviceAssignment,
    DistributedRuntimeClient as DistributedRuntimeClient,
)
from typing_extensions import CapsuleType

class OpSharding:
    class Type:
        REPLICATED: OpSharding.Type

class HloSharding:
    @staticmethod
    def iota_tile(
        dims: Sequence[int],
        reshape_dims: Sequence[int] = ...,
        transpose_perm: Sequence[int] = ...,
        subgroup_types: Sequence[OpSharding.Type] = ...,
    ) -> HloSharding: ...
    @staticmethod
    def replicate() -> HloSharding: ...
    @staticmethod
    def from_proto(proto: object, /) -> HloSharding: ...
    def is_replicated(self) -> bool: ...
    def tile_assignment_dimensions(self) -> Sequence[int]: ...
    def tile_assignment_devices(self) -> Sequence[int]: ...
    def replicate_on_last_tile_dim(self) -> bool: ...

def register_custom_call_target(name: str, fn: CapsuleType, platform: str = ..., api_version: int = ...) -> None: ...
def make_cpu_client(
    *,
    num_devices: int | None = None,
    distributed_client: DistributedRuntimeClient | None = None,
    node_id: int = 0,
    num_nodes: int = 1,
    collectives: CpuCollectives | None = None,
) -> Client: ...
def pjrt_plugin_loaded(plugin_name: str) -> bool: ...
def load_pjrt_plugin_dynamically(plugin_name: str, library_path: str) -> CapsuleType: ...
def pjrt_plugin_initialized(plugin_name: str) -> bool: ...
def initialize_pjrt_plugin(plugin_name: str) -> None: ...
def make_c_api_client(
    plugin_name: str,
    options: Mapping[str, str | int | list[int] | float | bool] | None = None,
    distributed_client: DistributedRuntimeClient | None = None,
) -> Client: ...
def generate_pjrt_gpu_plugin_options() -> Mapping[str, str | int | list[int] | float | bool]: ...
