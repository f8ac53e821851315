"""Meshes and specs as values in programs: named axes with sizes, and how they divide arrays. They have no devices, or
the ids of devices.

`MeshAxes` and `DimensionAxes` are plain tuples, which a program can contain: the forms of `fxad.sharding.Mesh`, which
has devices, and of `fxad.sharding.PartitionSpec`.

A spec says how an array is divided:

    (("i",), ())      axis 0 by the mesh axis "i"; axis 1 is not divided
    ()                not at all: each device has the whole array
    ((OPEN,),)        axis 0 as XLA decides
    None              no spec is given: XLA decides
    STACK             of an operand or result of a map: one slice along axis 0 for each index
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from math import prod
from typing import Final, TypeAlias

from fxad.core.atoms import DimensionAxes as DimensionAxes, MeshAxes as MeshAxes
from fxad.errors import AxisNameError, ShapeError
from fxad.ir import Aval, Primitive, Shape

# The ids of the devices of a mesh, the first axis slowest. (): the program names none, and runs on the devices of its
# operands, or on the first ones.
Ids: TypeAlias = tuple[int, ...]

# A group of a spec with this name: XLA decides how the axis is divided.
OPEN: Final = "?"


class Stack(Enum):
    """The type of `STACK`."""

    STACK = "stack"


STACK: Final = Stack.STACK
MapSpec: TypeAlias = DimensionAxes | Stack  # how an operand or result of a map is divided
Division: TypeAlias = tuple[MeshAxes, DimensionAxes]  # a mesh, and how its axes divide an array


class OnMesh(Primitive):
    """An operation that names a mesh of devices."""

    __slots__ = ()

    mesh: MeshAxes
    devices: Ids

    @property
    def count(self) -> int:
        """The number of devices."""
        return prod([n for _, n in self.mesh])


def mesh_within(around: MeshAxes, mesh: MeshAxes) -> MeshAxes:
    """Return the axes of the devices that run a map over `mesh` inside of the maps over `around`.

    A map over x=2, y=4 inside a map over x=2 runs on the axes x=2, y=4. If no spec of the outer map names x, all
    devices along x have the same values, and the inner map may divide them along x.
    """
    return (*around, *[axis for axis in mesh if axis not in around])


# The name of a replica axis: no spec names it, so all devices along it have the same values and compute the same.
# It is repeated until the mesh has no other axis of that name.
REPLICA_AXIS: Final = "fxad replicas"  # a name that users do not give


def with_replica_axis(mesh: MeshAxes, devices: int) -> MeshAxes:
    """Return the mesh with a further, fastest axis, a replica axis, so that it has as many indices as there are
    devices. The mesh itself if it has that many."""
    rest = devices // prod([size for _, size in mesh])
    if rest == 1:
        return mesh
    name = REPLICA_AXIS
    while name in dict(mesh):
        name += "'"
    return (*mesh, (name, rest))


def without_replica_axis(mesh: MeshAxes) -> MeshAxes:
    """Return the mesh without the axis that `with_replica_axis` adds."""
    return tuple([axis for axis in mesh if not axis[0].startswith(REPLICA_AXIS)])


def names_in(spec: DimensionAxes) -> tuple[str, ...]:
    """Return the named axes that divide an array."""
    return tuple([name for names in spec for name in names])


def parts_of_axes(mesh: MeshAxes, spec: DimensionAxes) -> tuple[int, ...]:
    """Return the number of parts of each axis in a spec."""
    sizes = dict(mesh)
    return tuple([prod([sizes[name] for name in names]) for names in spec])


def local_shape(mesh: MeshAxes, spec: DimensionAxes, shape: Shape) -> Shape:
    """Return the shape of one part."""
    parts = (*parts_of_axes(mesh, spec), *[1] * (len(shape) - len(spec)))
    return tuple([n // k for n, k in zip(shape, parts, strict=True)])


def global_shape(mesh: MeshAxes, spec: DimensionAxes, shape: Shape) -> Shape:
    """Return the shape of the whole array whose parts have shape `shape`."""
    parts = (*parts_of_axes(mesh, spec), *[1] * (len(shape) - len(spec)))
    return tuple([n * k for n, k in zip(shape, parts, strict=True)])


def shard_slices(mesh: MeshAxes, spec: DimensionAxes, shape: Shape, index: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the part of an array for an index of the mesh.

    On the mesh x=2, y=3, the spec (("x", "y"),) divides 12 elements into 6 parts. Index (1, 2) has part 5, [10:12].
    """
    index_of, sizes = dict(zip([name for name, _ in mesh], index, strict=True)), dict(mesh)
    slices = []
    for names, part_size in zip(spec, local_shape(mesh, spec, shape), strict=False):
        part = 0
        for name in names:
            part = part * sizes[name] + index_of[name]
        slices.append(slice(part * part_size, (part + 1) * part_size))
    return tuple(slices)


def check_axis_names(op: str, names: Iterable[str]) -> None:
    """Check that no axis of a mesh is named "?", which has another meaning in specs. Raises: AxisNameError."""
    if OPEN in names:
        raise AxisNameError(
            f"{op}: an axis is named {OPEN!r}, which is PartitionSpec.UNCONSTRAINED", remedy="give it another name"
        )


def check_mesh(op: str, mesh: MeshAxes) -> None:
    """Check the axes of a mesh. Raises: AxisNameError, ShapeError."""
    names = [name for name, _ in mesh]
    check_axis_names(op, names)
    if "" in names:
        raise AxisNameError(f"{op}: mesh {mesh} has an axis without a name", remedy="give each axis a name")
    if len(set(names)) != len(names):
        raise AxisNameError(f"{op}: mesh {mesh} names an axis twice", remedy="name each axis once")
    if any([n < 1 for _, n in mesh]):
        raise ShapeError(f"{op}: mesh {mesh} has an axis without devices", remedy="give sizes from 1 on")


def check_spec(op: str, mesh: MeshAxes, spec: DimensionAxes, aval: Aval) -> None:
    """Check that a spec fits a mesh and an array of its rank. Raises: AxisNameError, ShapeError."""
    names = names_in(spec)
    unknown = [name for name in names if name not in dict(mesh)]
    if unknown or len(set(names)) != len(names):
        problem = f"has no axis {unknown[0]!r}" if unknown else "is used twice for one axis"
        raise AxisNameError(
            f"{op}: spec {spec}: mesh {dict(mesh)} {problem}", remedy="name axes of the mesh, each at most once"
        )
    if len(spec) > aval.ndim:
        raise ShapeError(
            f"{op}: spec {spec} has {len(spec)} entries for the {aval.ndim} axes of {aval}",
            remedy="give at most one entry for each axis",
        )


def check_ids(op: str, mesh: MeshAxes, devices: Ids) -> None:
    """Check the ids of the devices of a mesh. Raises: ShapeError."""
    count = prod([n for _, n in mesh])
    if devices and (len(devices) != count or len(set(devices)) != count):
        raise ShapeError(
            f"{op}: devices {devices} are not the {count} devices of mesh {dict(mesh)}",
            remedy="give one id for each device, or none",
        )


def check_divides(op: str, mesh: MeshAxes, spec: DimensionAxes, aval: Aval) -> None:
    """Check that a spec divides the axes of an array. Raises: ShapeError naming the axis and the sizes."""
    for axis, (names, n, parts) in enumerate(zip(spec, aval.shape, parts_of_axes(mesh, spec), strict=False)):
        if type(n) is int and n % parts:  # a size of another kind is checked when it is known
            raise ShapeError(
                f"{op}: axis {axis} of {aval} has size {n}, which {parts} devices along"
                f" {', '.join(map(repr, names))} do not divide",
                remedy="pad the axis, or choose another one or another mesh",
            )
