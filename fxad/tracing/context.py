"""The transformations around a function while it is traced (mapped axes, the order of differentiation), and the objects
that are the same in repeated traces of one function.

Shapes are static, so a function that depends on the batch size (a custom batching rule) is traced for the sizes of the
enclosing mapped axes, and a collective needs the size of its axis. A rule that calls functions with rules is traced to
the depth of the enclosing derivatives. A cache of traces uses `recording_dependencies` to find out if a trace depends
on these transformations.

A rule that calls the function that it belongs to is traced several times, until its programs do not change any more.
An object that a trace makes must not be another one in each trace. If the rule calls `pure_callback(f, ...)`, for
example, each trace would give `f` another number, and no two of its programs would be equal:

    block, rewind = tracing_repeatedly()
    with block:
        rewind(); trace the rule       reuse_in_replay(key, make) makes a number
        rewind(); trace it again       reuse_in_replay(key, make) returns this number
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeAlias, TypeVar, cast, final

from fxad.core.dataclasses import dataclass
from fxad.core.frames import Scoped
from fxad.errors import ArgumentError, AxisNameError, ParameterError, described, shown
from fxad.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding, get_mesh

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class MappedAxis:
    """A mapped axis that encloses a trace. `name` is its name in collectives, or None. `stacked`: `vmap` makes it an
    axis of arrays; otherwise it is an axis of devices."""

    size: int
    name: str | None = None
    stacked: bool = True


# The enclosing mapped axes, outermost first; the order of differentiation; the mesh of `with mesh:`.
EnclosingTransforms: TypeAlias = tuple[tuple[MappedAxis, ...], int, Mesh | None]


@final
class TraceDependencies:
    """`on_transforms`: the trace read the mapped axes, the order of differentiation or the mesh. `on_mesh`: it read the
    mesh. `on_outer_trace`: the trace is valid only inside the enclosing trace of a rule."""

    __slots__ = ("on_mesh", "on_outer_trace", "on_transforms")

    def __init__(self) -> None:
        self.on_transforms = False
        self.on_mesh = False
        self.on_outer_trace = False


_axes: Final[Scoped[tuple[MappedAxis, ...]]] = Scoped("fxad_mapped_axes", ())
_order: Final = Scoped("fxad_derivative_order", 0)
_dependencies: Final[Scoped[TraceDependencies | None]] = Scoped("fxad_trace_dependencies", None)


def mapped_over(*axes: MappedAxis) -> AbstractContextManager[None]:
    """Return a block whose traces are mapped over these axes, inside the enclosing ones."""
    return _axes((*_axes.get(), *axes))


def new_axis(what: str, name: object, size: int, *, stacked: bool = True) -> MappedAxis:
    """Return the axis of a map. Raises: ArgumentError for a name that is not a string, AxisNameError for one in use."""
    if name is None:
        return MappedAxis(size, None, stacked)
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"{what}: axis_name is {described(name)}: {shown(name)}", remedy="name the axis by a string"
        )
    if name in [axis.name for axis in _axes.get()]:
        raise AxisNameError(
            f"{what}: axis name {name!r} is in use by a map around it", remedy="give each of nested maps its own name"
        )
    return MappedAxis(size, str.__str__(name), stacked)


def n_axes_in_scope() -> int:
    """Return the number of enclosing mapped axes."""
    return len(_axes.get())


def axes_of_devices_around() -> tuple[tuple[str, int], ...]:
    """Return the named axes of the maps over devices around, with their sizes. Records that the trace depends on
    them."""
    depend_on_transforms()
    return tuple([(axis.name, axis.size) for axis in _axes.get() if axis.name is not None and not axis.stacked])


def named_axes_around() -> list[tuple[str, int]]:
    """Return the named axes of all maps around, with their sizes. Records that the trace depends on them."""
    depend_on_transforms()
    return [(axis.name, axis.size) for axis in _axes.get() if axis.name is not None]


def size_of_axis(what: str, name: object) -> int:
    """Return the size of a named axis in scope. Records that the trace depends on it.

    Raises: AxisNameError for an axis that no map around binds, ArgumentError for a name that is not a string.
    """
    if not isinstance(name, str):
        raise ArgumentError(
            f"{what}: an axis name is a string, got {described(name)}: {shown(name)}",
            remedy="give a name, or a tuple of names",
        )
    depend_on_transforms()
    in_scope = {axis.name: axis.size for axis in _axes.get() if axis.name is not None}
    if name not in in_scope:
        bound = ", ".join(map(repr, in_scope)) or "none"
        raise AxisNameError(
            f"{what}: no map around binds axis {name!r}; axes in scope: {bound}",
            remedy=f"name the axis of a map: vmap(f, axis_name={name!r}), or give its size to trace: "
            f"trace(f, x, axis_env={{{name!r}: 8}})",
        )
    return in_scope[name]


def differentiated(times: int = 1) -> AbstractContextManager[None]:
    """Return a block whose traces are differentiated `times` times."""
    return _order(_order.get() + times)


def enclosing_transforms() -> EnclosingTransforms:
    """Return the enclosing mapped axes, the order of differentiation, and the mesh."""
    return _axes.get(), _order.get(), get_mesh()


def depend_on_transforms() -> None:
    """Record that the trace depends on the enclosing transformations, for caches of traces."""
    dependencies = _dependencies.get()
    if dependencies is not None:
        dependencies.on_transforms = True


def depend_on_mesh() -> None:
    """Record that the trace depends on the mesh of `with mesh:`, for caches of traces."""
    depend_on_transforms()
    dependencies = _dependencies.get()
    if dependencies is not None:
        dependencies.on_mesh = True


def resolve_sharding(what: str, sharding: NamedSharding | PartitionSpec | SingleDeviceSharding) -> NamedSharding:
    """Return the sharding; for a spec, the sharding with the mesh of `with mesh:`; for one device, that of a mesh of
    it. Records that the trace depends on the mesh.

    Raises: ParameterError for a spec without a mesh.
    """
    if isinstance(sharding, NamedSharding):
        return sharding
    if isinstance(sharding, SingleDeviceSharding):
        return NamedSharding(Mesh([sharding.device], "device"), PartitionSpec())
    depend_on_mesh()
    mesh = get_mesh()
    if mesh is None:
        raise ParameterError(
            f"{what}: {sharding} has no mesh", remedy="give NamedSharding(mesh, spec), or call it in `with mesh:`"
        )
    return NamedSharding(mesh, sharding)


def stacked_axis_sizes() -> tuple[int, ...]:
    """Return the sizes of all enclosing axes of `vmap`. Records that the trace depends on them."""
    depend_on_transforms()
    return tuple([axis.size for axis in _axes.get() if axis.stacked])


def derivative_order() -> int:
    """Return the order of differentiation. Records that the trace depends on it."""
    depend_on_transforms()
    return _order.get()


def depend_on_outer_trace() -> None:
    """Record that the trace is valid only inside the enclosing trace of a rule, so that it must not be cached."""
    dependencies = _dependencies.get()
    if dependencies is not None:
        dependencies.on_outer_trace = True


def recording_dependencies(dependencies: TraceDependencies) -> AbstractContextManager[None]:
    """Return a block whose traces record their dependencies in `dependencies`. `record_in_outer` records them outside,
    too."""
    return _dependencies(dependencies)


def record_in_outer(dependencies: TraceDependencies) -> None:
    """Record these dependencies for the enclosing trace, too."""
    if dependencies.on_transforms:
        depend_on_transforms()
    if dependencies.on_mesh:
        depend_on_mesh()
    if dependencies.on_outer_trace:
        depend_on_outer_trace()


# ------------------------------------------------------------------------------------------------------ repeated traces


# Arrays that others can write to, by id, each with its copy.
Copies: TypeAlias = dict[int, tuple[object, object]]


@final
class Replay:
    """The objects that a trace made, in order. A repeated trace of the same function gets the same objects."""

    __slots__ = ("at", "copies", "values")

    def __init__(self) -> None:
        self.values: list[tuple[object, object]] = []
        self.at = 0
        self.copies: Copies = {}

    def get_or_make(self, key: object, make: Callable[[], T]) -> T:
        """Return the object made at this point of the previous trace, if its key is equal; else a new one."""
        if self.at == len(self.values) or self.values[self.at][0] != key:
            self.values[self.at :] = [(key, make())]
        value = self.values[self.at][1]
        self.at += 1
        return cast("T", value)  # an object of an equal key was made by the same code


_replay: Final[Scoped[Replay | None]] = Scoped("fxad_replay", None)
_copies: Final[Scoped[Copies | None]] = Scoped("fxad_copies", None)


def replay_position() -> int:
    """Return the number of objects that the repeated trace has made so far; 0 outside of a repeated trace."""
    replay = _replay.get()
    return 0 if replay is None else replay.at


def skip_in_replay(start: int, end: int) -> None:
    """Skip the objects from `start` to `end`: the cached trace that made them is used again.

    For example, the first run of a function traced an inner function, which made the objects 2 to 4. The second run
    finds the inner program in a cache, and goes on with object 5.
    """
    replay = _replay.get()
    if replay is not None and replay.at == start:
        replay.at = end


def copies_in_scope() -> Copies:
    """Return the table of copies that a new outermost trace begins with.

    For example, a loop traces `cond` and `body`, which close over one array of NumPy, in a block of `sharing_copies`.
    Both traces get the table of the block, so the array is copied once. A repeated trace gets the table of its first
    run, so it captures the same copy. Any other trace gets a new table.
    """
    copies, replay = _copies.get(), _replay.get()
    if copies is not None:
        return copies
    return {} if replay is None else replay.copies


def sharing_copies() -> AbstractContextManager[None]:
    """Return a block that traces the functions of one equation: an array that several of them close over is copied
    once, so it is one operand of the equation."""
    return _copies(copies_in_scope())


def tracing_repeatedly() -> tuple[AbstractContextManager[None], Callable[[], None]]:
    """Return a block in which the same function is traced several times, and a function to call before each trace."""
    outer = _replay.get()
    replay = Replay() if outer is None else outer
    start = replay.at

    def rewind() -> None:
        replay.at = start

    return _replay(replay), rewind


def reuse_in_replay(key: object, make: Callable[[], T]) -> T:
    """Return the result of `make`, or its result in the previous trace of the same function if that had an equal
    `key`."""
    replay = _replay.get()
    return make() if replay is None else replay.get_or_make(key, make)
