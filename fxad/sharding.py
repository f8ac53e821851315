"""Shardings: how arrays are divided among devices. The names are those of `jax.sharding`.

    mesh = make_mesh((4, 2), ("i", "j"))                    8 devices: axis "i" has 4 indices, "j" has 2
    NamedSharding(mesh, PartitionSpec("i"))                 rows in 4 parts; the devices along "j" have equal parts
    NamedSharding(mesh, PartitionSpec(("i", "j"), None))    rows in 8 parts

A sharding has other forms where it is not for users: programs have no devices, but their ids, and jaxlib and XLA have
classes of their own.

| class                                    | the sharding of                          | made by                        |
|------------------------------------------|------------------------------------------|--------------------------------|
| `NamedSharding`                          | an array, for the user                   | the user, `x.sharding`         |
| `SingleDeviceSharding`                   | an array on one device, for the user     | the user, `x.sharding`         |
| `ShardingConstraint` (`primitives`)      | a value, as an equation of a program     | `sharding_in_program`          |
| `MeshSharding` (`xla.sharded`)           | a buffer on several devices              | `buffer_sharding`, results     |
| `OneDeviceSharding` (`xla.jaxlib_types`) | a buffer on one device                   | `xla.client`, for each device  |
| `OperandSharding` (`tracing.placement`)  | the operands of a call                   | `target_of_committed`          |
| `ModuleSharding` (`lower`)               | the operands and results of a module     | `lower_jaxpr`, the disk tier   |
| `ProgramSharding` (`xla.sharded`)        | those of a loaded program, with devices  | `xla.sharded.program_sharding` |

In all of them `spec` is a `PartitionSpec` or its plain form, `DimensionAxes`; `primitives/meshes.py` lists the values
that it may have. None in place of a sharding says that none is given: XLA decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from enum import Enum
from math import prod
from typing import ClassVar, Final, Generic, Self, TypeAlias, TypeVar, final

import numpy as np

from fxad import runtime
from fxad.core.dataclasses import dataclass
from fxad.core.lazy_exports import explained_errors
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, AxisNameError, ParameterError, ShapeError, described, shown
from fxad.ir import Aval, Shape
from fxad.operations.arguments import plain_ints, to_ints, to_tuple
from fxad.primitives.meshes import OPEN, DimensionAxes, Ids, MeshAxes, check_axis_names
from fxad.primitives.sharding_constraint import ShardingConstraint

SpecEntry: TypeAlias = "str | tuple[str, ...] | None"


@final
class PartitionSpec(tuple[SpecEntry, ...]):
    """For each axis of an array, the axes of a mesh that divide it: a name, a tuple of names (the slowest first), or
    None. Axes at the end may be left out. `PartitionSpec()` is the whole array on each device. In
    `with_sharding_constraint`, XLA decides for axes of `UNCONSTRAINED`."""

    __slots__ = ()

    UNCONSTRAINED: ClassVar[str] = OPEN

    def __new__(cls, *entries: SpecEntry) -> PartitionSpec:
        for entry in entries:
            names = entry if isinstance(entry, tuple) else (entry,)
            if not all([isinstance(n, str) for n in names]) and entry is not None:
                raise ArgumentError(
                    f"PartitionSpec: an entry is {described(entry)}: {shown(entry)}",
                    remedy="give a name, a tuple of names, or None for each axis",
                )
        return tuple.__new__(cls, entries)

    def __repr__(self) -> str:
        entries = ["UNCONSTRAINED" if e == OPEN else repr(e) for e in self]
        return f"PartitionSpec({', '.join(entries)})"

    def __getnewargs__(self) -> tuple[SpecEntry, ...]:
        return tuple(self)

    @property
    def names(self) -> DimensionAxes:
        """The names for each axis, without unnamed axes at the end."""
        groups = [() if e is None else e if isinstance(e, tuple) else (e,) for e in self]
        while groups and not groups[-1]:
            groups.pop()
        return tuple(groups)


class AxisType(Enum):
    """JAX's kinds of axes of a mesh. In fxad all are `Auto`: XLA chooses what the program does not state."""

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"


def _check_axis_types(what: str, types: object, count: int) -> None:
    entries = (types,) * count if types is None or isinstance(types, AxisType) else types
    if not isinstance(entries, tuple) or any([t not in (None, AxisType.Auto) for t in entries]):
        raise ParameterError(
            f"{what}: axis_types is {shown(types, 80)}, and all axes of a mesh are AxisType.Auto",
            remedy="leave it out, and divide values with in_shardings or with_sharding_constraint; shard_map makes the"
            " axes of its mesh manual",
        )
    if len(entries) != count:
        raise ParameterError(
            f"{what}: axis_types has {len(entries)} entries for {count} axes", remedy="give one for each axis, or none"
        )


@final
class Mesh:
    """Devices in an array whose axes have names.

    `with mesh:` sets the mesh of `PartitionSpec`s without one, in this thread or task.
    """

    __slots__ = ("__weakref__", "axis_names", "devices")

    def __init__(self, devices: object, axis_names: Iterable[str] | str, axis_types: object = None) -> None:
        names = (axis_names,) if isinstance(axis_names, str) else to_tuple("Mesh", "axis_names", axis_names)
        array = np.array(devices, dtype=object)
        _check_axis_types("Mesh", axis_types, len(names))
        if array.ndim != len(names):
            raise ShapeError(
                f"Mesh: the devices have {array.ndim} axes, axis_names {names} has {len(names)}",
                remedy="name each axis of the array of devices",
            )
        if not all([isinstance(n, str) and n for n in names]) or len(set(names)) != len(names):
            raise AxisNameError(f"Mesh: axis_names {names} are not distinct strings", remedy="name each axis once")
        check_axis_names("Mesh", names)
        for d in array.flat:
            runtime.require_device("Mesh", d)
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

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """The size of each axis, in order."""
        return self.devices.shape

    @property
    def empty(self) -> bool:
        """True if there is no device."""
        return not self.devices.size

    @property
    def is_multi_process(self) -> bool:
        """True if devices of other processes are there."""
        return not all([d.is_local for d in self.devices.flat])

    @property
    def local_devices(self) -> list[runtime.Device]:
        """The devices of this process."""
        return [d for d in self.devices.flat if d.is_local]

    def __enter__(self) -> Self:
        _meshes.set((*_meshes.get(), self))
        return self

    def __exit__(self, *_error: object) -> None:
        meshes = _meshes.get()
        entered = [k for k, mesh in enumerate(meshes) if mesh is self]
        if entered:  # not always the last one: a generator may leave its block inside of another one
            _meshes.set((*meshes[: entered[-1]], *meshes[entered[-1] + 1 :]))

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


def _check_has_devices(what: str, mesh: Mesh) -> None:
    """Raise ParameterError for a mesh without devices, which divides nothing."""
    if mesh.empty:
        raise ParameterError(f"{what}: {mesh} has no devices", remedy="give a mesh with at least one device: make_mesh")


_meshes: Final[ContextVar[tuple[Mesh, ...]]] = ContextVar("fxad_meshes", default=())


def set_mesh(mesh: Mesh) -> AbstractContextManager[Mesh]:
    """Return the context manager that a mesh is. Nothing is set without `with`."""
    if not isinstance(mesh, Mesh):
        raise ArgumentError(f"set_mesh: {described(mesh)} is not a Mesh: {shown(mesh)}", remedy="use make_mesh")
    return mesh


def get_mesh() -> Mesh | None:
    """Return the mesh of the innermost `with mesh:`; None outside of one."""
    meshes = _meshes.get()
    return meshes[-1] if meshes else None


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: object = None,
    *,
    devices: Sequence[runtime.Device] | None = None,
) -> Mesh:
    """Return a mesh of the first devices (or of those given).

    Raises: ParameterError if there are too few, and for sizes below 1; ArgumentError for sizes that are no ints.
    """
    axis_names = (axis_names,) if isinstance(axis_names, str) else to_tuple("make_mesh", "axis_names", axis_names)
    _check_axis_types("make_mesh", axis_types, len(axis_names))
    candidates = runtime.devices() if devices is None else to_tuple("make_mesh", "devices", devices)
    available = [runtime.require_device("make_mesh", d) for d in candidates]
    shape = to_ints("make_mesh", "axis_shapes", axis_shapes)
    needed = prod(shape)
    if min(shape, default=1) < 1:
        raise ParameterError(
            f"make_mesh: axis_shapes {shape} has an axis without devices", remedy="give sizes from 1 on"
        )
    if needed > len(available):
        raise ParameterError(
            f"make_mesh: axis_shapes {shape} need {needed} devices, there are {len(available)}",
            remedy=f"call fx.set_cpu_devices({needed}) before the first program runs, or map over sizes alone:"
            " shard_map(f, {'i': 8}, ...)",
        )
    return Mesh(np.array(available[:needed], dtype=object).reshape(shape), axis_names)


# For each device, the part of an array that it has.
Places: TypeAlias = dict[runtime.Device, tuple[slice, ...]]


class _ShardingBase(ABC):
    """The methods of every sharding."""

    __slots__ = ()

    @abstractmethod
    def devices_indices_map(self, shape: Shape) -> Places:
        """Return for each device, the part of an array of this shape that it has."""

    @abstractmethod
    def shard_shape(self, shape: Shape) -> Shape:
        """Return the shape of one part. Raises: ShapeError, AxisNameError."""

    @property
    @abstractmethod
    def device_set(self) -> frozenset[runtime.Device]:
        """The devices."""

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return len(self.device_set)

    @property
    def addressable_devices(self) -> frozenset[runtime.Device]:
        """The devices of this process."""
        return frozenset([d for d in self.device_set if d.is_local])

    @property
    def is_fully_addressable(self) -> bool:
        """True if this process has all devices."""
        return all([d.is_local for d in self.device_set])

    def addressable_devices_indices_map(self, shape: Shape) -> Places:
        """Return for each device of this process, the part of an array of this shape that it has."""
        return {d: at for d, at in self.devices_indices_map(shape).items() if d.is_local}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Return True if both give each device the same part of every array of `ndim` axes that they divide.

        Raises: ArgumentError for an `other` that is not a sharding.
        """
        if not isinstance(other, _ShardingBase):
            raise ArgumentError(
                f"is_equivalent_to: {described(other)} is not a sharding: {shown(other)}", remedy="give x.sharding"
            )
        # They are compared on one array, whose axes both divide: a spec divides an axis by a product of sizes of
        # distinct axes of its mesh. `indices` makes slice(None) and slice(0, size) equal.
        size = prod([n for s in (self, other) if isinstance(s, NamedSharding) for n in s.mesh.axis_sizes])
        mine, theirs = [
            {
                device: [part.indices(size) for part in at]
                for device, at in s.devices_indices_map((size,) * ndim).items()
            }
            for s in (self, other)
        ]
        return mine == theirs


@final
@dataclass(frozen=True, slots=True, eq=False)
class NamedSharding(_ShardingBase):
    """An array divided among the devices of a mesh as a spec says. Equal ones have equal meshes, and specs that name
    the same axes."""

    mesh: Mesh
    spec: PartitionSpec

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, Mesh):
            raise ArgumentError(
                f"NamedSharding: mesh is {described(self.mesh)}: {shown(self.mesh)}", remedy="use make_mesh"
            )
        _check_has_devices("NamedSharding", self.mesh)
        if not isinstance(self.spec, PartitionSpec):
            raise ArgumentError(
                f"NamedSharding: spec is {described(self.spec)}: {shown(self.spec)}",
                remedy="give a PartitionSpec; PartitionSpec() is the whole array on each device",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.mesh, self.spec.names

    def shard_shape(self, shape: Shape) -> Shape:
        """Return the shape of one part. Raises: ShapeError, AxisNameError."""
        return part_type(
            "NamedSharding", tuple(self.mesh.shape.items()), self.spec, Aval(shape, "bool"), "the array"
        ).shape

    def devices_indices_map(self, shape: Shape) -> Places:
        """Return for each device, the part of an array of this shape that it has."""
        shape = Aval(shape, "bool").shape
        self.shard_shape(shape)
        sharding, spec = buffer_sharding(self), self.spec.names
        rest = (slice(None),) * (len(shape) - len(spec))
        parts = [
            (*[w if names else slice(None) for w, names in zip(at, spec, strict=True)], *rest)
            for at in sharding.windows(shape)
        ]
        return dict(zip(sharding.devices, parts, strict=True))

    @property
    def device_set(self) -> frozenset[runtime.Device]:
        """The devices."""
        return frozenset(self.mesh.devices.flat)

    @property
    def is_fully_replicated(self) -> bool:
        """True if each device has the whole array."""
        sizes = self.mesh.shape
        return prod([sizes.get(name, 1) for group in self.spec.names for name in group]) == 1


@final
@dataclass(frozen=True, slots=True)
class SingleDeviceSharding(_ShardingBase):
    """An array on one device."""

    device: runtime.Device

    def __post_init__(self) -> None:
        runtime.require_device("SingleDeviceSharding", self.device)

    def shard_shape(self, shape: Shape) -> Shape:
        """Return the shape of the array."""
        return Aval(shape, "bool").shape

    def devices_indices_map(self, shape: Shape) -> Places:
        """Return the device, which has the whole array."""
        return {self.device: (slice(None),) * Aval(shape, "bool").ndim}

    @property
    def device_set(self) -> frozenset[runtime.Device]:
        """The device, as a set."""
        return frozenset({self.device})

    @property
    def is_fully_replicated(self) -> bool:
        """True: the device has the whole array."""
        return True


Sharding: TypeAlias = NamedSharding | SingleDeviceSharding


# --------------------------------------------------------------------------------------------------- trees of shardings

AnySharding: TypeAlias = NamedSharding | PartitionSpec | SingleDeviceSharding
# A NamedSharding, a PartitionSpec of the mesh of `with mesh:`, None where XLA decides, or a tree prefix of them.
Shardings: TypeAlias = object


def check_shardings(what: str, shardings: Shardings) -> None:
    """Check that the leaves of a tree are shardings or None. Raises: ArgumentError."""
    for entry in tree.leaves(shardings):
        if not _is_sharding(entry):
            raise ArgumentError(
                f"{what} has an entry that is {described(entry)}: {shown(entry)}",
                remedy="give a NamedSharding, or None for what XLA decides",
            )


def flatten_shardings(prefix: Shardings, structure: Structure, what: str) -> list[AnySharding | None]:
    """Return the sharding of each leaf of a structure, given a tree prefix. Raises: ArgumentError, TreeError."""
    check_shardings(what, prefix)
    return tree.broadcast_prefix(prefix, structure, what, _is_sharding)


def _is_sharding(x: object) -> bool:
    return x is None or isinstance(x, NamedSharding | PartitionSpec | SingleDeviceSharding)


# ------------------------------------------------------------------------------------------------------ axes and parts


def axes_of(what: str, mesh: Mesh | Mapping[str, int]) -> MeshAxes:
    """Return the axes of a mesh, or of names and sizes without devices. Raises: ArgumentError, ParameterError."""
    if isinstance(mesh, Mesh):
        _check_has_devices(what, mesh)
        return tuple(mesh.shape.items())
    sizes = {name: plain_ints(n) for name, n in mesh.items()} if isinstance(mesh, Mapping) else {}
    if sizes and all([type(n) is int and n > 0 for n in sizes.values()]):
        return tuple(sizes.items())
    raise ArgumentError(
        f"{what}: mesh is {described(mesh)}: {shown(mesh)}", remedy='give a Mesh, or names and sizes: {"i": 8}'
    )


def check_spec_axes(what: str, mesh: MeshAxes, spec: PartitionSpec, aval: Aval, path: str) -> None:
    """Check the axes that a spec names for an array. Raises: AxisNameError, ShapeError naming the array; ParameterError
    for an axis that is left to XLA."""
    sizes, names = dict(mesh), spec.names
    flat = [name for group in names for name in group]
    for name in flat:
        if name == OPEN:
            raise ParameterError(
                f"{what}: {path}: {spec} leaves an axis to XLA",
                remedy="name an axis of the mesh or give None; UNCONSTRAINED is for with_sharding_constraint",
            )
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


def part_type(what: str, mesh: MeshAxes, spec: PartitionSpec, aval: Aval, path: str) -> Aval:
    """Return the type of a part of an array. Raises: AxisNameError, ShapeError naming the array, the axis and the
    sizes."""
    check_spec_axes(what, mesh, spec, aval, path)
    sizes, names = dict(mesh), spec.names
    shape = list(aval.shape)
    for axis, group in enumerate(names):
        parts = prod([sizes[name] for name in group])
        if shape[axis] % parts != 0:
            raise ShapeError(
                f"{what}: {path}: axis {axis} of {aval} has size {shape[axis]}, which {parts} devices along"
                f" {', '.join(map(repr, group))} do not divide",
                remedy="pad the axis, or choose another one or another mesh",
            )
        shape[axis] //= parts
    return aval.with_shape(tuple(shape))


def sharding_in_program(what: str, sharding: NamedSharding, aval: Aval, path: str) -> ShardingConstraint:
    """Return the form in programs of a sharding of an array. Raises: AxisNameError, ShapeError naming the array, the
    axis and the sizes."""
    mesh, spec = sharding.mesh, sharding.spec
    axes = tuple(mesh.shape.items())
    closed = PartitionSpec(*[None if e == OPEN else e for e in spec])
    part_type(what, axes, closed, aval, path)
    return ShardingConstraint(axes, spec.names, tuple([d.id for d in mesh.devices.flat]))


def ids_of(devices: tuple[runtime.Device, ...]) -> Ids:
    """Return the form in maps of the ids of devices: () for the first ones of their platform, so that a map may be
    inside of another one, or beside one over more devices."""
    return () if runtime.devices(devices[0].platform)[: len(devices)] == devices else tuple([d.id for d in devices])


def sharding_of(buffer: runtime.Buffer) -> Sharding:
    """Return the sharding of a buffer."""
    sharding = buffer._sharding
    if isinstance(sharding, runtime.MeshSharding):
        return named_sharding_of(sharding)
    return SingleDeviceSharding(runtime.device_of(buffer))


def named_sharding_of(sharding: runtime.MeshSharding) -> NamedSharding:
    """Return the `NamedSharding` of a sharding of buffers."""
    sizes = [n for _, n in sharding.mesh]
    mesh = Mesh(np.array(sharding.devices, dtype=object).reshape(sizes), [name for name, _ in sharding.mesh])
    entries = [None if not group else group[0] if len(group) == 1 else group for group in sharding.spec]
    return NamedSharding(mesh, PartitionSpec(*entries))


def buffer_sharding(sharding: NamedSharding) -> runtime.MeshSharding:
    """Return the form of a sharding in buffers."""
    mesh = sharding.mesh
    return runtime.MeshSharding(tuple(mesh.devices.flat), tuple(mesh.shape.items()), sharding.spec.names)


T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Shard(Generic[T]):
    """A part of an array: its device, its place in the array, its value, and how many devices before it have the same
    part."""

    device: runtime.Device
    index: tuple[slice, ...]
    data: T
    replica_id: int = 0


def picture(sharding: Sharding, shape: Sequence[int]) -> str:
    """Return the layout of an array as text: the ids of the devices of each part. Arrays of one or two axes are
    drawn."""
    if not isinstance(sharding, _ShardingBase):
        raise ArgumentError(
            f"picture: {described(sharding)} is not a sharding: {shown(sharding)}", remedy="give x.sharding"
        )
    shape = to_ints("picture", "shape", shape)
    if isinstance(sharding, SingleDeviceSharding):
        return f"{shape} on {sharding.device}"
    places = sharding.devices_indices_map(shape)
    cells: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, at in places.items():
        key = tuple([w.indices(n)[:2] for w, n in zip(at, shape, strict=False)])
        cells.setdefault(key, []).append(device.id)
    platform = next(iter(places)).platform
    drawn = {key: f"{platform} {', '.join(map(str, ids))}" for key, ids in cells.items()}
    rows = _grid(drawn) if len(shape) in (1, 2) else [
        f"  [{', '.join([f'{a}:{b}' for a, b in key])}]  {text}" for key, text in sorted(drawn.items())
    ]  # fmt: skip
    return "\n".join([f"{shape} as {sharding.spec!r}", *rows])


def _grid(drawn: Mapping[tuple[tuple[int, int], ...], str]) -> list[str]:
    """Return parts of one or two axes as boxes: axis 0 of a matrix goes down, the axis of a vector to the right."""
    at = {key if len(key) == 2 else ((0, 0), *key): text for key, text in drawn.items()}
    tops, lefts = [sorted({key[axis] for key in at}) for axis in (0, 1)]
    width = max([len(text) for text in at.values()])
    rule = "+".join(["", *["-" * (width + 2)] * len(lefts), ""])
    lines = ["|".join(["", *[f" {at[top, left]:^{width}} " for left in lefts], ""]) for top in tops]
    return [rule, *[text for line in lines for text in (line, rule)]]


P: Final = PartitionSpec

__all__ = [
    "AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Shard", "SingleDeviceSharding", "get_mesh", "make_mesh",
    "picture", "set_mesh",
]  # fmt: skip

__getattr__, __dir__ = explained_errors(__name__)
