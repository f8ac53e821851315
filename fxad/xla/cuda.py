"""XLA for CUDA: the plugin, its client, and the functions that programs call by name on GPUs.

The plugin is a library of the package `jax-cuda13-pjrt`. fxad loads it under another name than jax, so that jax can
load the same library, before or after. cuSOLVER's routines and the calls of the host are in `jax-cuda13-plugin`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Final, Protocol, cast, final

from typing_extensions import CapsuleType

from fxad.errors import CompileError, ExecutionError
from fxad.lowering.jaxlib import _jax, jaxlib_version, without_log_output, xla_client

# Packages that contain XLA for CUDA as a PJRT plugin, newest first, and NVIDIA's libraries.
_PACKAGES: Final = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_ROUTINES_PACKAGES: Final = ("jax_cuda13_plugin", "jax_cuda12_plugin")
_LIBRARY: Final = "xla_cuda_plugin.so"
_NAME: Final = "gpu"  # jax's is "cuda"; XLA looks for these two when it reads a stored executable
_XLA_PLATFORM: Final = "CUDA"
TYPED: Final = 1  # XLA's typed FFI

# The files of NVIDIA's packages that the plugin loads by name, after those that they need.
_NVIDIA: Final = MappingProxyType(
    {
        "nvidia.cu13": (
            "libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcupti.so.13",
            "libnvJitLink.so.13", "libcusparse.so.12", "libcusolver.so.12", "libcufft.so.12",
        ),
        "nvidia.nccl": ("libnccl.so.2",),
        "nvidia.nvshmem": ("libnvshmem_host.so.3",),
        "nvidia.cudnn": ("libcudnn.so.9",),
        "nvidia.cuda_runtime": ("libcudart.so.12",),
        "nvidia.cublas": ("libcublasLt.so.12", "libcublas.so.12"),
        "nvidia.cuda_cupti": ("libcupti.so.12",),
        "nvidia.cusparse": ("libcusparse.so.12",),
        "nvidia.cusolver": ("libcusolver.so.11",),
        "nvidia.cufft": ("libcufft.so.11",),
    }
)  # fmt: skip

# Routine -> the module of the plugin that has it, and its name there. They take all dtypes.
ROUTINES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        **{
            name: ("_solver", f"cusolver_{name}_ffi")
            for name in ("potrf", "getrf", "geqrf", "orgqr", "ormqr", "syevd", "gesvd", "gesvdj", "geev")
        },
        "gtsv": ("_sparse", "cusparse_gtsv2_ffi"),
    }
)


class _Extension(Protocol):
    """The module `cuda_plugin_extension` of the plugin."""

    def ffi_types(self) -> Mapping[str, object]: ...
    def ffi_handlers(self) -> Mapping[str, object]: ...
    def register_custom_type(self, plugin: CapsuleType, name: str, type_id: object, /) -> None: ...
    def register_custom_call_target(
        self, plugin: CapsuleType, name: str, handler: object, platform: str, version: int, /
    ) -> None: ...


class _Routines(Protocol):
    """A module of the plugin with routines."""

    def registrations(self) -> Mapping[str, object]: ...


@final
class _Plugin:
    """The plugin of this process, once it is loaded."""

    __slots__ = ("_extension", "_loaded")

    def __init__(self) -> None:
        self._loaded: CapsuleType | None = None
        self._extension: _Extension | None = None

    def load(self) -> None:
        """Load the plugin, and register the calls of the host. Raises: ExecutionError when none is installed."""
        if self._loaded is not None:
            return
        library = cuda_library()
        _load_nvidia_libraries()
        with without_log_output():
            plugin = xla_client.load_pjrt_plugin_dynamically(_NAME, library)
            if not xla_client.pjrt_plugin_initialized(_NAME):
                xla_client.initialize_pjrt_plugin(_NAME)
        extension = cast("_Extension | None", _of_plugin("cuda_plugin_extension"))
        if extension is not None:
            for name, type_id in extension.ffi_types().items():
                extension.register_custom_type(plugin, name, type_id)
            for name, handler in extension.ffi_handlers().items():
                if name.endswith("_python_gpu_callback"):
                    extension.register_custom_call_target(plugin, name, handler, _XLA_PLATFORM, TYPED)
        self._extension, self._loaded = extension, plugin

    @property
    def calls_host(self) -> bool:
        """True if programs can call the host."""
        return self._extension is not None

    def register(self, target: str) -> None:
        """Register a function of `ROUTINES`. Raises: CompileError if the plugin does not have it."""
        self.load()
        module, name = ROUTINES[target.split("_")[1]]
        routines = cast("_Routines | None", _of_plugin(module))
        handler = None if routines is None else routines.registrations().get(name)
        if handler is None or self._extension is None or self._loaded is None:
            raise CompileError(
                f"compile: {target} is {name} of jax-cuda13-plugin, which this jaxlib does not have",
                remedy="pip install jax-cuda13-plugin of the version of jaxlib",
            )
        self._extension.register_custom_call_target(self._loaded, target, handler, _XLA_PLATFORM, TYPED)


PLUGIN: Final = _Plugin()


def _of_plugin(module: str) -> ModuleType | None:
    """Return a module of `jax-cuda13-plugin`; None if the package is not installed, or not in the version of jaxlib."""
    for package in _ROUTINES_PACKAGES:
        if _folders(package) and import_module(f"{package}.version").__version__ == jaxlib_version:
            return import_module(f"{package}.{module}")
    return None


def _folders(package: str) -> list[str]:
    """Return the folders of a package; none if it is not installed."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # not even its parent is there
        return []
    return list((spec and spec.submodule_search_locations) or ())


def cuda_library() -> str:
    """Return the path of the CUDA plugin. Raises: ExecutionError when none is installed."""
    for package in _PACKAGES:
        for folder in _folders(package):
            if os.path.exists(library := os.path.join(folder, _LIBRARY)):
                return library
    raise ExecutionError(
        f"devices: no CUDA plugin is installed (looked for {', '.join(_PACKAGES)})",
        remedy="pip install jax-cuda13-pjrt and jax-cuda13-plugin of the version of jaxlib, and NVIDIA's libraries",
    )


def _load_nvidia_libraries() -> None:
    """Load those of NVIDIA's libraries that are Python packages. Others are found by the system, or not at all."""
    for package, files in _NVIDIA.items():
        for folder in _folders(package):
            for file in files:
                with suppress(OSError):
                    ctypes.CDLL(os.path.join(folder, "lib", file))


def compiler_flags() -> tuple[tuple[str, str], ...]:
    """XLA's flag for the folder with NVIDIA's device library and assembler, if that is a Python package."""
    for package in ("nvidia.cu13", "nvidia.cuda_nvcc"):
        for folder in _folders(package):
            if os.path.isdir(os.path.join(folder, "nvvm")) or os.path.isdir(os.path.join(folder, "bin")):
                return (("xla_gpu_cuda_data_dir", folder),)
    return ()


def cuda_client(
    processes: tuple[_jax.DistributedRuntimeClient, int, int, str] | None, visible: tuple[int, ...] | None
) -> _jax.Client:
    """Return a client of the GPUs of this process. With several processes, NCCL connects them: the plugin exchanges its
    ids through the service."""
    PLUGIN.load()
    # No preallocation by default, because another client may use the same device.
    options: dict[str, str | int | list[int] | float | bool] = {
        "preallocate": False,
        **xla_client.generate_pjrt_gpu_plugin_options(),
    }
    if visible is not None:
        options["visible_devices"] = list(visible)
    if processes is None:
        return xla_client.make_c_api_client(_NAME, options)
    client, k, n, _ = processes
    return xla_client.make_c_api_client(_NAME, {**options, "node_id": k, "num_nodes": n}, client)
