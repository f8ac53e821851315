"""Arrays of devices for meshes, under the name of `jax.experimental.mesh_utils`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fxad.runtime import Device
from fxad.sharding import make_mesh


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence[Device] | None = None) -> npt.NDArray[np.object_]:
    """Return the first devices (or those given) as an array of this shape, in order. Raises: as `make_mesh`."""
    return make_mesh(mesh_shape, [f"axis{k}" for k in range(len(mesh_shape))], devices=devices).devices


__all__ = ["create_device_mesh"]
