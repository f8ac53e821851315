"""Arrays whose parts are on several devices, and programs that run on several devices.

`fxad.sharding` lists the classes that say how values are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import lcm, prod
from typing import cast, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.errors import CompileError, ExecutionError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray, Shape
from fxad.lower import ModuleSharding
from fxad.lowering.jaxlib import _jax, xla_client
from fxad.primitives.meshes import DimensionAxes, Ids, MeshAxes, local_shape, parts_of_axes, shard_slices
from fxad.xla.client import Device, devices
from fxad.xla.compat import make_array, on_device, parts_of_array, put_part, tiled, to_host
from fxad.xla.donated_buffers import OPERAND_DELETED, note_parts, pinned
from fxad.xla.failures import missing_value_reason, value_error
from fxad.xla.jaxlib_types import Buffer, XlaRuntimeError


@final
class MeshSharding(_jax.Sharding):
    """The sharding of an array on several devices. `devices[k]` has the part of index k of `mesh`, whose first axis is
    the slowest."""

    def __init__(self, devices: tuple[Device, ...], mesh: MeshAxes, spec: DimensionAxes) -> None:
        super().__init__()
        self.devices, self.mesh, self.spec = devices, mesh, spec
        self.on_host = devices[0].platform == "cpu"
        self._raw = tuple([d.raw for d in devices])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeshSharding) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.devices, self.mesh, self.spec

    def windows(self, shape: Shape) -> list[tuple[slice, ...]]:
        """Return the part of each device."""
        return [shard_slices(self.mesh, self.spec, shape, at) for at in product(*[range(n) for _, n in self.mesh])]

    # what jaxlib reads of a sharding

    @property
    def _device(self) -> _jax.Device:
        return self._raw[0]

    @property
    def _device_assignment(self) -> tuple[_jax.Device, ...]:
        return self._raw

    @property
    def device_set(self) -> set[_jax.Device]:
        return set(self._raw)

    @property
    def _internal_device_list(self) -> _jax.DeviceList:
        return _jax.DeviceList(self._raw)

    @property
    def memory_kind(self) -> str | None:
        return None

    @property
    def is_fully_addressable(self) -> bool:
        return all([d.is_local for d in self.devices])

    @property
    def local(self) -> list[int]:
        """The indices of the devices of this process."""
        return [k for k, d in enumerate(self.devices) if d.is_local]

    @property
    def is_fully_replicated(self) -> bool:
        return not any(self.spec)

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> xla_client.HloSharding:
        names, sizes = [name for name, _ in self.mesh], [n for _, n in self.mesh]
        dividing_axes = [names.index(name) for group in self.spec for name in group]
        if prod([sizes[k] for k in dividing_axes]) == 1:
            return xla_client.HloSharding.replicate()
        other_axes = [k for k in range(len(names)) if k not in dividing_axes]
        part_counts = [prod([sizes[names.index(name)] for name in group]) for group in self.spec]
        part_counts += [1] * (num_dimensions - len(part_counts))
        return tiled(part_counts, prod([sizes[k] for k in other_axes]), sizes, [*dividing_axes, *other_axes])


def is_sharded(buffer: Buffer) -> bool:
    """Return True if the parts of a buffer are on several devices."""
    return type(buffer._sharding) is MeshSharding


def is_elsewhere(buffer: Buffer) -> bool:
    """Return True if other processes have parts of the value that this one does not have."""
    sharding = buffer._sharding
    return isinstance(sharding, MeshSharding) and not (sharding.is_fully_addressable or sharding.is_fully_replicated)


def unreadable_reason(buffer: Buffer) -> str | None:
    """Return the reason, as text, why this process cannot read a buffer; None if it can."""
    return missing_value_reason(buffer) or ("parts on devices of other processes" if is_elsewhere(buffer) else None)


def gathered(buffer: Buffer) -> NDArray:
    """Return the whole value of a sharded buffer, read-only."""
    sharding, shape = cast(MeshSharding, buffer._sharding), buffer.aval.shape
    out = np.empty(shape, buffer.aval.dtype)
    if is_elsewhere(buffer):
        raise ExecutionError(
            "to_numpy: parts of the array are on devices of other processes",
            remedy="read addressable_shards, or gather it in a program: out_shardings with PartitionSpec()",
        )
    if sharding.is_fully_replicated and out.size:  # XLA does not divide an array without elements
        out[...] = to_host(_parts(buffer)[0])
    elif out.size:
        windows, copied = sharding.windows(shape), set[object]()
        for window, part in zip([windows[k] for k in sharding.local], _parts(buffer), strict=True):
            bounds = tuple([(s.start, s.stop) for s in window])  # a slice is not hashable in Python 3.11
            if bounds not in copied:
                copied.add(bounds)
                out[window] = to_host(part)
    out.flags.writeable = False
    return out


def divided(value: NDArray, aval: Aval, sharding: MeshSharding) -> Buffer:
    """Return a NumPy array as a buffer with a part on each device."""
    shape, windows = local_shape(sharding.mesh, sharding.spec, aval.shape), sharding.windows(aval.shape)
    parts = [
        put_part(np.ascontiguousarray(value[windows[k]]).reshape(shape), sharding.devices[k].sharding)
        for k in sharding.local
    ]
    return make_array(aval, sharding, parts)


def shards(buffer: Buffer) -> list[tuple[Device, tuple[slice, ...], Buffer]]:
    """Return the device, the place and the buffer of each part. Raises: ExecutionError for a deleted array."""
    sharding, shape = cast(MeshSharding, buffer._sharding), buffer.aval.shape
    aval, windows = Aval(local_shape(sharding.mesh, sharding.spec, shape), buffer.aval.dtype), sharding.windows(shape)
    try:
        parts = pinned(buffer, _parts)
    except XlaRuntimeError as e:
        raise value_error("addressable_shards", e, buffer) from e
    note_parts(buffer, parts)
    out = []
    for k, part in zip(sharding.local, parts, strict=True):
        try:
            out.append((sharding.devices[k], windows[k], on_device(part, aval, sharding.devices[k].sharding)))
        except XlaRuntimeError as e:  # from jaxlib 0.12 on, for a part that is deleted or donated
            raise value_error("addressable_shards", e, part) from e
    return out


def _parts(buffer: Buffer) -> list[Buffer]:
    parts: list[Buffer] | None = None if buffer.is_deleted() else parts_of_array(buffer)
    if parts is None:
        raise XlaRuntimeError(OPERAND_DELETED)
    return parts


def from_local(value: NDArray, sharding: MeshSharding, shape: Shape | None) -> Buffer:
    """Return a buffer of the data of this process: the parts of its devices, put together. Raises: ShapeError.

    For example, axis 0 is divided among 4 devices, of which this process has the last two, and `value` is of (4, 3):

        part_counts   (4, 1)                            along each axis
        places        [[0, 0], [1, 0], [2, 0], [3, 0]]  the part of each device: its number along each axis
        local_places  [[2, 3], [0]]                     the places that this process has, along each axis
        global_shape  (8, 3)                            4 * 4 // 2 rows, 3 * 1 // 1 columns
    """
    part_counts = (*parts_of_axes(sharding.mesh, sharding.spec), *[1] * value.ndim)[: value.ndim]
    # of an array with one element for each part, the window of a device is one element, and its start is a part number
    windows = [(*at, *[slice(0)] * value.ndim)[: value.ndim] for at in sharding.windows(part_counts)]
    places = [[w.start or 0 for w in window] for window in windows]
    local_places = [sorted({places[k][axis] for k in sharding.local}) for axis in range(value.ndim)]
    global_shape = tuple([n * p // len(m) for n, p, m in zip(value.shape, part_counts, local_places, strict=True)])
    is_divisible = all([n % len(m) == 0 for n, m in zip(value.shape, local_places, strict=True)])
    if (shape is not None and shape != global_shape) or not is_divisible:
        raise ShapeError(
            f"make_array_from_process_local_data: local data of shape {value.shape} are"
            f" {[len(m) for m in local_places]} of {list(part_counts)} parts of an array of shape"
            f" {shape or global_shape}",
            remedy="give the parts of the devices of this process, put together",
        )
    part_shape = local_shape(sharding.mesh, sharding.spec, global_shape)
    on_devices = []
    for k in sharding.local:
        starts = [m.index(p) * n for m, p, n in zip(local_places, places[k], part_shape, strict=True)]
        window = tuple([slice(s, s + n) for s, n in zip(starts, part_shape, strict=True)])
        part = np.ascontiguousarray(value[window]).reshape(part_shape)
        on_devices.append(put_part(part, sharding.devices[k].sharding))
    return make_array(Aval(global_shape, value.dtype), sharding, on_devices)


def assembled(aval: Aval, sharding: MeshSharding, parts: Sequence[Buffer]) -> Buffer:
    """Return the buffer of parts that are on their devices."""
    buffer = make_array(aval, sharding, parts)
    note_parts(buffer, parts)
    return buffer


# ------------------------------------------------------------------------------------- programs on several devices


def devices_for(count: int, platform: str, name: str, ids: Ids = (), maps: Sequence[int] = ()) -> tuple[Device, ...]:
    """Return the devices with these ids, or the first ones of a platform. `maps` are the numbers of devices of the maps
    in the program, whose common multiple is `count`. Raises: ParameterError if there are fewer."""
    available = devices(platform)
    by_id = {d.id: d for d in available}
    if ids and all([k in by_id for k in ids]):
        return tuple([by_id[k] for k in ids])
    if len(available) < count:
        number = f"there {'is' if len(available) == 1 else 'are'} {len(available)} of platform {platform}"
        remedy = f"call fx.set_cpu_devices({count}) or set FXAD_CPU_DEVICES={count} before the first program runs"
        if max(maps, default=count) < count == lcm(*maps):  # nested maps need the product of their sizes
            raise ParameterError(
                f"compile of {name}: it has maps over {' and '.join(map(str, maps))} devices, and runs on {count},"
                f" a multiple of all of them; {number}",
                remedy=f"run the maps in programs of their own, or {remedy}",
            )
        raise ParameterError(f"compile of {name}: it runs on {count} devices, {number}", remedy=remedy)
    return available[:count]


def devices_of_module(sharding: ModuleSharding | None, device: Device, name: str) -> tuple[Device, ...]:
    """Return the devices of a module that is compiled for `device`, or for several devices of its platform."""
    if sharding is None:
        return (device,)
    return devices_for(sharding.devices, device.platform, name, sharding.ids, sharding.devices_of_maps)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ProgramSharding:
    """The devices of a loaded program, and the shardings of its operands and results."""

    devices: tuple[Device, ...]
    mesh: MeshAxes
    ins: list[MeshSharding]
    outs: list[MeshSharding]

    @property
    def replicated(self) -> MeshSharding:
        """The sharding of a value of which each device has the whole."""
        return MeshSharding(self.devices, self.mesh, ())


def program_sharding(
    module_sharding: ModuleSharding, devices: tuple[Device, ...], raw: _jax.LoadedExecutable, name: str
) -> ProgramSharding:
    """Return the sharding of a loaded program on its devices. XLA has chosen the shardings of some results.

    Raises: CompileError for a sharding of a result that no mesh has.
    """
    meshes = module_sharding.meshes
    ins = [MeshSharding(devices, meshes[mesh], spec) for mesh, spec in module_sharding.ins]
    result_shardings = raw.get_output_shardings() if None in module_sharding.outs else None
    outs = []
    for k, sharding in enumerate(module_sharding.outs):
        if sharding is not None:
            outs.append(MeshSharding(devices, meshes[sharding[0]], sharding[1]))
        elif result_shardings is None:
            outs.append(MeshSharding(devices, meshes[0], ()))
        else:
            mesh, spec = mesh_and_spec(meshes, xla_client.HloSharding.from_proto(result_shardings[k]), name, k)
            outs.append(MeshSharding(devices, mesh, spec))
    return ProgramSharding(devices, meshes[0], ins, outs)


def mesh_and_spec(
    meshes: Sequence[MeshAxes], hlo_sharding: xla_client.HloSharding, name: str, result: int
) -> tuple[MeshAxes, DimensionAxes]:
    """Return a sharding that XLA chose, as a mesh and a spec. Axes of the mesh are factored where XLA has divided them.

    Raises: CompileError for a sharding that no mesh has.
    """
    if hlo_sharding.is_replicated():
        return meshes[0], ()
    parts = list(hlo_sharding.tile_assignment_dimensions())
    ids = np.array(hlo_sharding.tile_assignment_devices()).reshape(parts)
    places = np.argwhere(np.ones(parts, bool))[np.argsort(ids.ravel())]  # of each device, along each axis
    ndim = len(parts) - hlo_sharding.replicate_on_last_tile_dim()
    for mesh in (*meshes, *map(_factored, meshes)):
        groups = [_axes_of_places(mesh, places[:, axis], parts[axis]) for axis in range(ndim)]
        if None not in groups:
            while groups and not groups[-1]:
                groups.pop()
            return mesh, tuple([g or () for g in groups])
    raise CompileError(
        f"compile of {name}: XLA divides result {result} as no mesh does: {hlo_sharding}",
        remedy="give the sharding of the result: out_shardings, or with_sharding_constraint",
    )


def _axes_of_places(mesh: MeshAxes, places: NDArray, parts: int) -> tuple[str, ...] | None:
    """Return the axes of a mesh that divide an array in `parts` such that each device has its place; None if no axes
    do.

    For example, on the mesh (("i", 2), ("j", 4)):

        places of the 8 devices     parts     axes
        0 1 2 3 0 1 2 3             4         ("j",)
        0 2 4 6 1 3 5 7             8         ("j", "i"): "j" is the slowest
        0 0 1 1 0 0 1 1             2         None; ("j.0",) if the mesh is factored
    """
    places = places.reshape([n for _, n in mesh])
    # the difference between the places of two devices that are neighbours along an axis
    steps = [int(np.take(places, 1, k).flat[0] - places.flat[0]) if n > 1 else 0 for k, (_, n) in enumerate(mesh)]
    axes = sorted([k for k, step in enumerate(steps) if step > 0], key=lambda k: -steps[k])
    places_by_axes, rest = np.zeros(places.shape, int), parts
    for k in axes:
        n = mesh[k][1]
        rest //= n
        places_by_axes += rest * np.arange(n).reshape([-1 if j == k else 1 for j in range(places.ndim)])
    return tuple([mesh[k][0] for k in axes]) if rest == 1 and np.array_equal(places_by_axes, places) else None


def _factored(mesh: MeshAxes) -> MeshAxes:
    """Return the mesh with an axis for each prime factor of the size of an axis."""
    out = []
    for name, size in mesh:
        factors = []
        while size > 1:
            factors.append(next(p for p in range(2, size + 1) if size % p == 0))
            size //= factors[-1]
        out += [(f"{name}.{k}", p) for k, p in enumerate(factors)] if len(factors) > 1 else [(name, n) for n in factors]
    return tuple(out)
