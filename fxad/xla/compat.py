"""Calls of jaxlib that depend on its version (0.10.2 to 0.12), or on whether jax is imported.

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
from fxad.xla.jaxlib_types import ArrayType, Buffer, OneDeviceSharding, ResultHandler

Flags: TypeAlias = tuple[tuple[str, bool | int], ...]

# Up to 0.10 the handler of a result checks it with methods that jax adds to the arrays of jaxlib; later ones do not.
_make_handler: Final = (
    partial(_jax.array_result_handler, _skip_checks=True)
    if "_skip_checks" in (inspect.getdoc(_jax.array_result_handler) or "")
    else _jax.array_result_handler
)


def result_handler(aval: Aval, sharding: _jax.Sharding, committed: bool, producer: object) -> ResultHandler:
    """The handler that makes an array of a result of an execution. `producer` is the program, for messages.

    `disassemble_into_single_device_arrays` takes 60 us more, because it looks for the type of the array in jax.
    """
    return _make_handler(ArrayType(aval, producer), sharding, committed)


def tiled(parts: Sequence[int], copies: int, mesh: Sequence[int], order: Sequence[int]) -> xla_client.HloSharding:
    """The sharding of an array in parts, each on `copies` devices, in the form of XLA. The devices are those of a
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
        try:
            self._threads.add(thread)
            yield
        finally:
            self._threads.discard(thread)


_jax_hider: Final = _JaxHider()

# Held while jaxlib makes the list of the parts of an array, at the first use. Two threads would both add to one list.
_making_parts: Final = RLock()
if hasattr(os, "register_at_fork"):  # a thread that holds it does not exist in a forked child
    os.register_at_fork(after_in_child=_making_parts._at_fork_reinit)  # type: ignore[attr-defined]  # of the lock in C


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
        thread = Thread(target=_find_types_of_jax, args=(OneDeviceSharding(device),))
        thread.start()
        thread.join()


def _find_types_of_jax(sharding: OneDeviceSharding) -> None:
    modules = {name: ModuleType(name) for name in ("jax", "jax._src", "jax._src.core", "jax.core")}
    for name in ("jax._src.core", "jax.core"):
        vars(modules[name])["ShapedArray"] = _TypesOfJax()
    array = make_array(Aval((), "bool"), sharding, [put_part(np.zeros((), bool), sharding)])
    sys.modules.update(modules)
    try:
        _ = array._arrays
    finally:
        for name in modules:
            del sys.modules[name]


def parts_of_array(array: Buffer) -> list[Buffer]:
    """The parts of an array on several devices."""
    with _making_parts, _jax_hider.hidden():
        return array._arrays


def to_host(array: Buffer) -> NDArray:
    """The value of an array on one device, on the host."""
    if _READ is not None:
        return _READ(array)[0]
    with _jax_hider.hidden():
        return array._single_device_array_to_np_array_did_copy()[0]


# from 0.11 on: it does not look for jax
_READ: Final[Callable[[Buffer], tuple[NDArray, bool]] | None] = getattr(_jax.ArrayImpl, "_to_np_array_did_copy", None)


def make_array(aval: Aval, sharding: _jax.Sharding, parts: Sequence[Buffer]) -> Buffer:
    """An array on several devices, of its parts."""
    return _jax.ArrayImpl(ArrayType(aval), sharding, list(parts), True, True)


def on_device(part: Buffer, aval: Aval, sharding: OneDeviceSharding) -> Buffer:
    """A part of an array as an array of its own. From 0.11 on, parts have no type."""
    return part._rewrap_with_aval_and_sharding(ArrayType(aval), sharding)


def put_part(part: NDArray, sharding: OneDeviceSharding, committed: bool = True) -> Buffer:
    """A copy of a part of an array on its device.

    One call for all parts would read the sharding of the array: it fails if some devices have the same part.
    """
    copy = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    aval = ArrayType(Aval(part.shape, part.dtype))
    # the last argument keeps 64-bit dtypes, whatever jax has set for the process
    return _jax.batched_device_put(aval, sharding, [part], [sharding._device], committed, False, copy, True)


# Flags for the efforts of `fxad.units.compile_time`. From 0.11 on, XLA has fusion emitters only, and all have no flags.
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

# XLA's fusions of a product with what reads it, by the library YNNPACK, are wrong from row 16,384 on in 0.10.2, and
# take up to five times as long as its own: `docs/known-faults.md`. Products alone still go to the library.
PRODUCTS_ALONE: Final[Flags] = (
    (("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),) if _OLD else ()
)


def reason(error: Exception) -> str:
    """The text of a jaxlib error, without the C++ source lines that 0.11 and later put after it."""
    return str(error).split("=== Source Location Trace", 1)[0].strip()
