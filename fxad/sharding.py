"""Shardings: how arrays are divided among devices. The names are those of `jax.sharding`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from fxad import runtime
from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, AxisNameError, ParameterError, ShapeError, described
from fxad.ir import Aval, Shape
from fxad.primitives.meshes import OPEN, Ids

Entry: TypeAlias = "str | tuple[str, ...] | None"
Axes: TypeAlias = tuple[tuple[str, int], ...]
Spec: TypeAlias = tuple[tuple[str, ...], ...]


@final
class PartitionSpec(tuple[Entry, ...]):
    """For each axis of an array, the axes of a mesh that divide it: a name, a tuple of names (the slowest first), or
    None. Axes at the end may be left out. `PartitionSpec()` is the whole array on each device. In
    `with_sharding_constraint`, XLA decides for axes of `UNCONSTRAINED`."""

    __slots__ = ()

    UNCONSTRAINED: ClassVar[str] = OPEN

    def __new__(cls, *entries: Entry) -> PartitionSpec:
        for entry in entries:
            names = entry if isinstance(entry, tuple) else (entry,)
            if not all([isinstance(n, str) for n in names]) and entry is not None:
                raise ArgumentError(
                    f"PartitionSpec: an entry is {described(entry)}: {entry!r:.60}",
                    remedy="give a name, a tuple of names, or None for each axis",
                )
        return tuple.__new__(cls, entries)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def __getnewargs__(self) -> tuple[Entry, ...]:
        return tuple(self)

    @property
    def names(self) -> Spec:
        """The names for each axis, without unnamed axes at the end."""
        groups = [() if e is None else e if isinstance(e, tuple) else (e,) for e in self]
        while groups and not groups[-1]:
            groups.pop()
        return tuple(groups)


@final
class Mesh:
    """Devices in an array whose axes have names."""

    __slots__ = ("axis_names", "devices")

    def __init__(self, devices: object, axis_names: Iterable[str] | str) -> None:
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        array = np.array(devices, dtype=object)
        if array.ndim != len(names):
            raise ShapeError(
                f"Mesh: the devices have {array.ndim} axes, axis_names {names} has {len(names)}",
                remedy="name each axis of the array of devices",
            )
        if len(set(names)) != len(names) or not all([isinstance(n, str) and n for n in names]):
            raise AxisNameError(f"Mesh: axis_names {names} are not distinct strings", remedy="name each axis once")
        wrong = [d for d in array.flat if not isinstance(d, runtime.Device)]
        if wrong:
            raise ArgumentError(
                f"Mesh: {described(wrong[0])} is not a device: {wrong[0]!r:.60}", remedy="use fxad.devices()"
            )
        if len(set(array.flat)) != array.size:
            raise ParameterError("Mesh: a device is there twice", remedy="give each device once")
        array.flags.writeable = False
        self.devices = array
        self.axis_names: tuple[str, ...] = names

    @property
    def shape(self) -> dict[str, int]:
        """The size of each axis."""
        return dict(zip(self.axis_names, self.devices.shape, strict=True))

    @property
    def size(self) -> int:
        """The number of devices."""
        return int(self.devices.size)

    def __reduce__(self) -> tuple[object, ...]:
        return Mesh, (self.devices, self.axis_names)  # read-only again

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.axis_names, self.devices.shape, tuple(self.devices.flat)

    def __repr__(self) -> str:
        return f"Mesh({self.shape})"


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], *, devices: Sequence[runtime.Device] | None = None
) -> Mesh:
    """Return a mesh of the first devices (or of those given). Raises: ParameterError if there are too few."""
    there = list(runtime.devices() if devices is None else devices)
    count = prod(axis_shapes)
    if count > len(there):
        raise ParameterError(
            f"make_mesh: axis_shapes {tuple(axis_shapes)} need {count} devices, there are {len(there)}",
            remedy=f"call fx.set_cpu_devices({count}) before the first program runs, or map over sizes alone:"
            " shard_map(f, {'i': 8}, ...)",
        )
    return Mesh(np.array(there[:count], dtype=object).reshape(tuple(axis_shapes)), axis_names)


@final
@dataclass(frozen=True, slots=True)
class NamedSharding:
    """An array divided among the devices of a mesh as a spec says."""

    mesh: Mesh
    spec: PartitionSpec

    def shard_shape(self, shape: Shape) -> Shape:
        """The shape of one part. Raises: ShapeError, AxisNameError."""
        return local("NamedSharding", tuple(self.mesh.shape.items()), self.spec, Aval(shape, "bool"), "the array").shape

    @property
    def device_set(self) -> frozenset[runtime.Device]:
        """The devices."""
        return frozenset(self.mesh.devices.flat)

    @property
    def is_fully_replicated(self) -> bool:
        """True if each device has the whole array."""
        return not any(self.spec.names)


@final
@dataclass(frozen=True, slots=True)
class SingleDeviceSharding:
    """An array on one device."""

    device: runtime.Device

    @property
    def device_set(self) -> frozenset[runtime.Device]:
        """The device, as a set."""
        return frozenset({self.device})

    @property
    def is_fully_replicated(self) -> bool:
        """True: the device has the whole array."""
        return True


Sharding: TypeAlias = NamedSharding | SingleDeviceSharding


def axes_of(what: str, mesh: Mesh | Mapping[str, int]) -> Axes:
    """The axes of a mesh, or of names and sizes without devices. Raises: ArgumentError."""
    if isinstance(mesh, Mesh):
        return tuple(mesh.shape.items())
    if isinstance(mesh, Mapping) and mesh and all([isinstance(n, int) and n > 0 for n in mesh.values()]):
        return tuple(mesh.items())
    raise ArgumentError(
        f"{what}: mesh is {described(mesh)}: {mesh!r:.60}", remedy='give a Mesh, or names and sizes: {"i": 8}'
    )


def local(what: str, mesh: Axes, spec: PartitionSpec, aval: Aval, path: str) -> Aval:
    """The type of a part of an array. Raises: AxisNameError, ShapeError naming the array, the axis and the sizes."""
    sizes, names = dict(mesh), spec.names
    flat = [name for group in names for name in group]
    for name in flat:
        if name not in sizes:
            raise AxisNameError(
                f"{what}: {path}: {spec} names axis {name!r}, the mesh has {', '.join(map(repr, sizes))}",
                remedy="name axes of the mesh",
            )
        if flat.count(name) > 1:
            raise AxisNameError(f"{what}: {path}: {spec} names axis {name!r} twice", remedy="divide one axis by it")
    if len(names) > aval.ndim:
        raise ShapeError(
            f"{what}: {path}: {spec} has {len(names)} entries, {aval} has {aval.ndim} axes",
            remedy="give at most one entry for each axis",
        )
    shape = list(aval.shape)
    for axis, group in enumerate(names):
        parts = prod([sizes[name] for name in group])
        if shape[axis] % parts:
            raise ShapeError(
                f"{what}: {path}: axis {axis} of {aval} has size {shape[axis]}, which {parts} devices along"
                f" {', '.join(map(repr, group))} do not divide",
                remedy="pad the axis, or choose another one or another mesh",
            )
        shape[axis] //= parts
    return aval.with_shape(tuple(shape))


def located(what: str, sharding: NamedSharding, aval: Aval, path: str) -> tuple[Axes, Spec, Ids]:
    """A sharding of an array as it is in programs: the mesh, the axes that divide the array, and the ids of devices
    that are not the first ones. Raises: AxisNameError, ShapeError naming the array, the axis and the sizes."""
    mesh, spec = sharding.mesh, sharding.spec
    axes = tuple(mesh.shape.items())
    closed = PartitionSpec(*[None if e == OPEN else e for e in spec])
    local(what, axes, closed, aval, path)
    return axes, spec.names, ids_of(tuple(mesh.devices.flat))


def ids_of(on: tuple[runtime.Device, ...]) -> Ids:
    """The ids of devices as they are in programs: () for the first ones of their platform."""
    return () if runtime.devices(on[0].platform)[: len(on)] == on else tuple([d.id for d in on])


def sharding_of(buffer: runtime.Buffer) -> Sharding:
    """The sharding of a buffer."""
    where = buffer._sharding
    if not isinstance(where, runtime.ManyDevices):
        return SingleDeviceSharding(runtime.device_of(buffer))
    sizes = [n for _, n in where.mesh]
    mesh = Mesh(np.array(where.devices, dtype=object).reshape(sizes), [name for name, _ in where.mesh])
    entries = [None if not group else group[0] if len(group) == 1 else group for group in where.spec]
    return NamedSharding(mesh, PartitionSpec(*entries))


def on_devices(sharding: NamedSharding) -> runtime.ManyDevices:
    """A sharding in the form of buffers."""
    mesh = sharding.mesh
    return runtime.ManyDevices(tuple(mesh.devices.flat), tuple(mesh.shape.items()), sharding.spec.names)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A part of an array: its device, its place in the array, and its value."""

    device: runtime.Device
    index: tuple[slice, ...]
    data: object


def picture(sharding: Sharding, shape: Shape) -> str:
    """The layout of an array of one or two axes as text: for each part, the numbers of its devices."""
    if isinstance(sharding, SingleDeviceSharding):
        return f"{shape} on {sharding.device}"
    where = on_devices(sharding)
    cells: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, at in zip(where.devices, where.windows(shape), strict=True):
        key = tuple([(w.start, w.stop) for w in at])
        cells.setdefault(key, []).append(device.id)
    rows = [
        f"  [{', '.join([f'{a}:{b}' for a, b in key]) or ':'}]  {where.devices[0].platform} {', '.join(map(str, ids))}"
        for key, ids in sorted(cells.items())
    ]
    return "\n".join([f"{shape} as {sharding.spec!r}", *rows])


P: Final = PartitionSpec

__all__ = [
    "Mesh", "NamedSharding", "PartitionSpec", "Shard", "SingleDeviceSharding", "make_mesh", "picture",
]  # fmt: skip
