"""JAX's functions of values on devices, and of the devices and processes: `block_until_ready`, `local_devices`, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from fxad import runtime
from fxad.core.trees import tree
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.operations.arguments import is_word, to_int
from fxad.runtime import Device, default_device
from fxad.sharding import Sharding, picture
from fxad.tracing.array import Array

T = TypeVar("T")


def block_until_ready(x: T) -> T:
    """Wait until all arrays of a tree have been computed; return the tree."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, Array):
            leaf.block_until_ready()
    return x


def effects_barrier() -> None:
    """Do nothing: a call of a program that prints or calls the host returns after its effects."""


def device_get(x: T) -> T:
    """Return the tree with NumPy arrays in place of arrays on devices."""
    return tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, x)


def visualize_sharding(shape: Sequence[int], sharding: Sharding) -> None:
    """Print how an array of a shape is divided, as text."""
    print(picture(sharding, shape))  # noqa: T201  # which does nothing without a standard output


def visualize_array_sharding(x: Array) -> None:
    """Print how an array is divided, as text. Raises: ArgumentError for what is not an `Array`."""
    if not isinstance(x, Array):
        raise ArgumentError(
            f"visualize_array_sharding: x is {described(x)}, not an Array: {shown(x)}",
            remedy="put it on a device: device_put(x)",
        )
    visualize_sharding(x.shape, x.sharding)


def default_backend() -> str:
    """Return the platform of the default device: "cpu", "cuda"."""
    return str(default_device().platform)


def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Device]:
    """Return the devices of this process. Raises: ParameterError for another process or platform."""
    if process_index is not None and to_int("local_devices", "process_index", process_index) != runtime.process_index():
        raise ParameterError(
            f"local_devices: process_index is {shown(process_index)}, this process is {runtime.process_index()}",
            remedy="leave it out",
        )
    _check_backend("local_devices", backend)
    return list(runtime.local_devices())


def _check_backend(name: str, backend: str | None) -> None:
    if not is_word(backend, (None, default_backend())):
        raise ParameterError(
            f"{name}: backend is {shown(backend)}, the platform is {default_backend()!r}", remedy="leave it out"
        )


def local_device_count(backend: str | None = None) -> int:
    """Return the number of devices of this process."""
    return len(local_devices(backend=backend))


def device_count(backend: str | None = None) -> int:
    """Return the number of devices of all processes."""
    _check_backend("device_count", backend)
    return runtime.device_count()


def process_index(backend: str | None = None) -> int:
    """Return the number of this process; 0 if there is one."""
    _check_backend("process_index", backend)
    return runtime.process_index()


def process_count(backend: str | None = None) -> int:
    """Return the number of processes."""
    _check_backend("process_count", backend)
    return runtime.process_count()
