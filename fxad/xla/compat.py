"""The differences between the supported versions of jaxlib (0.10.2 to 0.12).

All other parts of jaxlib that fxad uses are the same in these versions; tests/test_runtime.py runs on each.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock, Thread, get_ident
from types import MappingProxyType, ModuleType
from typing import Final, TypeAlias, final

import numpy as np

from fxad.ir import Aval, NDArray, Shape
from fxad.lowering.jaxlib import _jax, jaxlib_version, xla_client

Flags: TypeAlias = tuple[tuple[str, bool | int], ...]


@final
class ArrayType:
    """The type of an array in the form that jaxlib reads. jaxlib stores this object on the arrays that it makes."""

    __slots__ = ("dtype", "ndim", "origin", "shape", "weak_type")

    def __init__(self, aval: Aval, origin: object = None) -> None:
        self.origin = origin  # the program that computes it, for messages
        self.shape: Shape = aval.shape
        self.dtype: np.dtype[np.generic] = aval.dtype
        self.ndim = len(aval.shape)
        self.weak_type = True  # see `_TypesOfJax`


@final
class OneDevice(_jax.SingleDeviceSharding):
    """The device of an array. It defines the attributes that jaxlib reads while making arrays, and does not define."""

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


# Up to 0.10 the handler of a result checks it with methods that jax adds to the arrays of jaxlib; later ones do not.
_make_handler: Final = (
    partial(_jax.array_result_handler, _skip_checks=True)
    if "_skip_checks" in (inspect.getdoc(_jax.array_result_handler) or "")
    else _jax.array_result_handler
)


def result_handler(aval: Aval, sharding: _jax.Sharding, committed: bool, origin: object) -> _jax.ResultHandler:
    """The handler that makes an array of a result of an execution. `origin` is the program, for messages.

    `disassemble_into_single_device_arrays` takes 60 us more, because it looks for the type of the array in jax.
    """
    return _make_handler(ArrayType(aval, origin), sharding, committed)


def tiled(parts: Sequence[int], copies: int, mesh: Sequence[int], order: Sequence[int]) -> xla_client.HloSharding:
    """The division of an array into parts, each on `copies` devices, in the form of XLA. The devices are those of a
    mesh, with its axes in an order."""
    more = [] if copies == 1 else [xla_client.OpSharding.Type.REPLICATED]
    dims = [*parts, *([copies] if more else [])]
    return xla_client.HloSharding.iota_tile(dims, list(mesh), list(order), more)


@final
class _JaxHider:
    """A finder of modules that finds no module of jax while a thread is in `hidden`, if jax is not imported.

    jaxlib looks for classes of shardings in jax each time it takes an array apart or copies one to the host. It would
    import jax where that is installed, which takes a second. It does without them where jax is not installed.
    """

    def __init__(self) -> None:
        self._threads = set[int]()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Find nothing: Python then asks the other finders. Raises: ModuleNotFoundError for jax in `hidden`."""
        if self._threads and get_ident() in self._threads and name == "jax":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """A block in which this thread does not import jax. If jax is imported already, jaxlib uses it."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        thread = get_ident()
        self._threads.add(thread)
        try:
            yield
        finally:
            self._threads.discard(thread)


_jax_hider: Final = _JaxHider()

# Held while jaxlib makes the list of the parts of an array, at the first use. Two threads would both add to one list.
_making_parts: Final = RLock()


@final
class _TypesOfJax:
    """A stand-in for `jax.core.ShapedArray`, jax's class of types, that jaxlib finds while jax is not imported.

    jaxlib looks for the class once in a process, when it first takes an array apart. If the import fails, arrays that
    it makes for jax later have no type. This object makes types of jax's class once jax is imported, and None before.
    jaxlib remembers them by shape, dtype and `weak_type`. Arrays of fxad are weakly typed for it, so that arrays of jax
    do not get their None.
    """

    def __call__(self, shape: Shape, dtype: object, weak_type: bool = False) -> object:
        jaxs = getattr(sys.modules.get("jax._src.core"), "ShapedArray", None)
        return None if jaxs is None or jaxs is self else jaxs(shape, dtype, weak_type)


def find_types_of_jax(device: _jax.Device) -> None:
    """Let jaxlib find the stand-in, before it takes the first array of a client apart.

    It happens in a thread of its own: signals interrupt the main thread, and the modules must not stay.
    """
    if "jax" not in sys.modules:
        thread = Thread(target=_find_types_of_jax, args=(OneDevice(device),))
        thread.start()
        thread.join()


def _find_types_of_jax(where: OneDevice) -> None:
    modules = {name: ModuleType(name) for name in ("jax", "jax._src", "jax._src.core", "jax.core")}
    for name in ("jax._src.core", "jax.core"):
        vars(modules[name])["ShapedArray"] = _TypesOfJax()
    array = make_array(Aval((), "bool"), where, [put_part(np.zeros((), bool), where)])
    sys.modules.update(modules)
    try:
        _ = array._arrays
    finally:
        for name in modules:
            del sys.modules[name]


def parts_of_array(array: _jax.ArrayImpl) -> list[_jax.ArrayImpl]:
    """The parts of an array on several devices."""
    with _making_parts, _jax_hider.hidden():
        return array._arrays


def to_host(array: _jax.ArrayImpl) -> NDArray:
    """The value of an array on one device, on the host."""
    if _READ is not None:
        return _READ(array)[0]
    with _jax_hider.hidden():
        return array._single_device_array_to_np_array_did_copy()[0]


# from 0.11 on: it does not look for jax
_READ: Final[Callable[[_jax.ArrayImpl], tuple[NDArray, bool]] | None] = getattr(
    _jax.ArrayImpl, "_to_np_array_did_copy", None
)


def make_array(aval: Aval, sharding: _jax.Sharding, parts: Sequence[_jax.ArrayImpl]) -> _jax.ArrayImpl:
    """An array on several devices, of its parts."""
    return _jax.ArrayImpl(ArrayType(aval), sharding, list(parts), True, True)


def on_device(part: _jax.ArrayImpl, aval: Aval, where: OneDevice) -> _jax.ArrayImpl:
    """A part of an array as an array of its own. From 0.11 on, parts have no type."""
    return part._rewrap_with_aval_and_sharding(ArrayType(aval), where)


def put_part(part: NDArray, where: OneDevice) -> _jax.ArrayImpl:
    """A part of an array on its device.

    One call for all parts would read the sharding of the array: it fails if some devices have the same part.
    """
    copy = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    aval = ArrayType(Aval(part.shape, part.dtype))
    # the last argument keeps 64-bit dtypes, whatever jax has set for the process
    return _jax.batched_device_put(aval, where, [part], [where._device], True, False, copy, True)


def partitioned_options(devices: Sequence[int], chosen: Sequence[bool]) -> _jax.CompileOptions:
    """Options for a program on several devices, which Shardy and XLA's partitioner divide. They choose the shardings of
    the results marked in `chosen`."""
    options = _jax.CompileOptions()
    build = options.executable_build_options
    options.num_partitions = build.num_partitions = len(devices)
    options.num_replicas = build.num_replicas = 1
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.allow_spmd_sharding_propagation_to_output = list(chosen) or [False]
    assignment = xla_client.DeviceAssignment.create(np.array([list(devices)]))
    options.device_assignment = build.device_assignment = assignment
    return options


# Flags for the efforts of `fxad.units.kernels`. From 0.11 on, XLA has fusion emitters only, and all have no flags.
_LEVEL: Final[Flags] = (("xla_backend_optimization_level", 1),)
_KERNEL_BY_KERNEL: Final[Flags] = (
    ("xla_cpu_use_fusion_emitters", False),
    *_LEVEL,
    ("xla_cpu_parallel_codegen_split_count", min(32, os.cpu_count() or 1)),
)
_OLD: Final = tuple(map(int, jaxlib_version.split(".")[:2])) < (0, 11)
FLAGS: Final[Mapping[str, Flags]] = MappingProxyType(
    {"less": _KERNEL_BY_KERNEL if _OLD else (), "level 1": _LEVEL if _OLD else (), "full": ()}
)


def compile_options(device: int) -> _jax.CompileOptions:
    """Options for a program on one device, given by its id."""
    options = _jax.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device]]))
    return options


def reason(error: Exception) -> str:
    """The text of a jaxlib error, without the C++ source lines that 0.11 and later put after it."""
    return str(error).split("=== Source Location Trace", 1)[0].strip()
