"""`shard_map`: run a function on many devices, each on its parts of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from math import prod
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, final, overload

from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.lift import check_function
from fxad.core.builder import Builder, rebind_operands
from fxad.core.dataclasses import dataclass
from fxad.core.dce import remove_dead_eqns
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, AxisNameError, ParameterError, ShapeError, described, shown
from fxad.ir import Jaxpr, source_text
from fxad.operations.arguments import flag
from fxad.operations.number_types import NumberType
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import DimensionAxes, Ids, MeshAxes, names_in
from fxad.sharding import Mesh, PartitionSpec, axes_of, get_mesh, ids_of, part_type
from fxad.tracing.context import (
    MappedAxis,
    axes_of_devices_around,
    depend_on_mesh,
    mapped_over,
    new_axis,
)
from fxad.tracing.pass_through import passes_through, with_passed_leaves
from fxad.tracing.program import Program, argument_path, function_name
from fxad.tracing.trace import parameter_names, trace_tree, types_of
from fxad.transforms.vmap import vmap_named

P = ParamSpec("P")
R = TypeVar("R")

Specs: TypeAlias = object  # a PartitionSpec, or a tree prefix of them
_MISSING: Final = object()
Wording: TypeAlias = tuple[str, str]
# The wording of the error for a result that is not the same for all indices, and of its remedy.
FOR_OUT_SPECS: Final[Wording] = ("which its spec does not name", "name the axis in the spec")
FOR_OUT_AXES: Final[Wording] = ("but its out_axes is None", "give the place of the axis in out_axes")


@overload
def shard_map(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def shard_map(
    f: Program[P, R],
    mesh: Mesh | Mapping[str, int] | None = None,
    in_specs: Specs = ...,
    out_specs: Specs = ...,
    *,
    axis_names: Collection[str] = ...,
    check_vma: bool = ...,
) -> Program[P, R]: ...
@overload
def shard_map(
    f: Callable[P, R],
    mesh: Mesh | Mapping[str, int] | None = None,
    in_specs: Specs = ...,
    out_specs: Specs = ...,
    *,
    axis_names: Collection[str] = ...,
    check_vma: bool = ...,
) -> Callable[P, R]: ...
@overload
def shard_map(
    *,
    mesh: Mesh | Mapping[str, int] | None = None,
    in_specs: Specs,
    out_specs: Specs,
    axis_names: Collection[str] = ...,
    check_vma: bool = ...,
) -> Rewrite: ...
@decorator_form
def shard_map(
    f: Any,
    mesh: Mesh | Mapping[str, int] | None = None,
    in_specs: Specs = _MISSING,
    out_specs: Specs = _MISSING,
    *,
    axis_names: Collection[str] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Map over the devices of a mesh: each runs `f` on its parts of the arguments. Without `f` it is a decorator.

    `in_specs` is a tree prefix of the tuple of arguments. Each `PartitionSpec` in it names the axes of the mesh that
    divide the axes of an argument. `out_specs` does so for the results, whose parts are joined. Devices along an axis of
    the mesh that a spec does not name have the same part. `f` may use collectives over the axes of the mesh. `mesh` may
    also be names with sizes, as in `{"i": 8}`: the program then runs on the first devices. The default is the mesh of
    `with mesh:`. A `Program` takes and returns parts; trace it with `axis_env`.

    `axis_names` are the axes that specs and collectives may name (default: all). Devices along the other axes compute
    the same values; a `shard_map` of the same mesh inside of `f` may name them. With `check_vma=False`, it is not
    checked that a result is the same along the axes that its spec does not name.

    Law:    equals `vmap` over each axis of the mesh, with the parts stacked.
    Raises: ShapeError for sizes that do not divide, and for a result that differs along an axis that its spec does not
            name; AxisNameError for unknown names, and for collectives that only some devices reach.
    """
    if in_specs is _MISSING or out_specs is _MISSING:
        name_of_missing = "in_specs" if in_specs is _MISSING else "out_specs"
        raise ArgumentError(
            f"shard_map: {name_of_missing} is missing",
            remedy="give a PartitionSpec for each argument and result: P() is whole",
        )
    name = function_name(f)
    what = f"shard_map of {name}"
    if isinstance(f, Program):
        manual = ManualAxes.of(what, mesh, axis_names, check_vma)
        specs = _argument_specs(in_specs, f.in_tree, f"{what}: in_specs")
        return _shard_mapped(what, f, manual, specs, out_specs)
    check_function("shard_map", f)
    names = parameter_names(f)
    if mesh is not None:
        # only checked here, so that the error comes before the first call
        ManualAxes.of(what, mesh, axis_names, check_vma)

    @wraps(f, updated=())
    def mapped(*args: object, **kwargs: object) -> object:
        manual = ManualAxes.of(what, mesh, axis_names, check_vma)
        leaves, in_tree = tree.flatten((args, kwargs))
        specs = _argument_specs(in_specs, in_tree, f"{what}: in_specs")
        is_passed = [not any(s.names) and passes_through(x) for s, x in zip(specs, leaves, strict=True)]
        g: Callable[..., object] = f
        if any(is_passed):
            g, args, kwargs = with_passed_leaves(f, leaves, in_tree, is_passed)
            leaves, in_tree = tree.flatten((args, kwargs))
            specs = [s for s, fixed in zip(specs, is_passed, strict=True) if not fixed]
        # A number that a spec splits is refused as an array without axes. Other numbers pass through.
        avals = [t.aval if isinstance(t, NumberType) else t for t in types_of(what, f, leaves, in_tree)]
        paths = [argument_path(a, names) for a in in_tree.accessors()]
        parts = [
            part_type(what, manual.named, s, a, f"argument {p}") for s, a, p in zip(specs, avals, paths, strict=True)
        ]
        n_unnamed = prod([size for axis, size in manual.mesh if axis not in dict(manual.named)])
        # devices that maps inside do not have
        other_axes = [MappedAxis(n_unnamed, stacked=False)] if n_unnamed > 1 else []
        with mapped_over(*[new_axis(what, n, size, stacked=False) for n, size in manual.named], *other_axes):
            program = trace_tree(g, in_tree, parts, name, names)
        return _shard_mapped(what, program, manual, specs, out_specs)(*args, **kwargs)

    mapped.__name__ = f"shard_map_{name}"
    return mapped


@final
@dataclass(frozen=True, slots=True)
class ManualAxes:
    """The axes of a map over devices. `mesh` has the axes of the mesh that the map runs over, `named` those that may be
    named, `ids` the ids of the devices; () are those of the map around, or the first ones. `checked`: results must be
    equal along the axes that their specs do not name.

    An axis that is not named stays, as the devices along it compute too, unless a map around runs over it already. For
    a mesh of x: 2 and y: 2, and a map with axis_names={"y"} inside of one with axis_names={"x"}:

        the outer map    mesh x, y    named x
        the inner map    mesh y       named y    x is that of the outer map, and so are the devices
    """

    mesh: MeshAxes
    named: MeshAxes
    ids: Ids
    checked: bool

    @classmethod
    def of(cls, what: str, mesh: Mesh | Mapping[str, int] | None, names: Collection[str], checked: bool) -> ManualAxes:
        """Return the arguments of `shard_map`, checked. Raises: ParameterError without a mesh, AxisNameError,
        ArgumentError."""
        checked = flag(what, "check_vma", checked)
        if mesh is None:
            depend_on_mesh()
            mesh = get_mesh()
        if mesh is None:
            raise ParameterError(f"{what}: it has no mesh", remedy="give mesh=, or call it in `with mesh:`")
        axes = axes_of(what, mesh)
        names = (names,) if isinstance(names, str) else names
        iterable = isinstance(names, Collection) and getattr(names, "shape", None) != ()  # not an array without axes
        if not iterable or not all([isinstance(n, str) for n in names]):
            raise ArgumentError(
                f"{what}: axis_names is {described(names)}: {shown(names)}", remedy="give a set of names"
            )
        unknown = [n for n in names if n not in dict(axes)]
        if unknown:
            raise AxisNameError(
                f"{what}: axis_names has {unknown[0]!r}, the mesh has {', '.join([repr(n) for n, _ in axes])}",
                remedy="name axes of the mesh",
            )
        ids = ids_of(tuple(mesh.devices.flat)) if isinstance(mesh, Mesh) else ()
        if not names:
            return cls(axes, axes, ids, checked)
        outer_axes = axes_of_devices_around()
        free = tuple([axis for axis in axes if axis[0] in names or axis not in outer_axes])
        return cls(free, tuple([axis for axis in axes if axis[0] in names]), ids if free == axes else (), checked)


def _is_spec(x: object) -> bool:
    return isinstance(x, PartitionSpec)


def _argument_specs(prefix: Specs, in_tree: Structure, what: str) -> list[PartitionSpec]:
    args, kwargs = in_tree.children()
    if kwargs.num_leaves:
        raise ArgumentError(f"{what}: keyword arguments are not divided", remedy="pass arguments by position")
    if isinstance(prefix, list):
        prefix = tuple(prefix)
    if isinstance(prefix, tuple) and not _is_spec(prefix) and len(prefix) != args.num_children:
        raise ArgumentError(
            f"{what} has {len(prefix)} entries for {args.num_children} arguments",
            remedy="give one PartitionSpec per argument, or one for all",
        )
    _check_specs(what, prefix)
    return list(tree.broadcast_prefix(prefix, args, what, _is_spec))


def _check_specs(what: str, prefix: Specs) -> None:
    """Check that the entries of a tree prefix are specs. Raises: ArgumentError."""
    for entry in tree.leaves(prefix, is_leaf=_is_spec):
        if not _is_spec(entry):
            raise ArgumentError(
                f"{what}{'' if entry is prefix else ' has an entry that'} is {described(entry)}: {shown(entry)}",
                remedy="an entry is a PartitionSpec: give one for all, or a tree of them; P() is the whole array",
            )


def _shard_mapped(
    what: str, program: Program[..., object], manual: ManualAxes, specs: Sequence[PartitionSpec], out_specs: Specs
) -> Program[..., object]:
    _check_specs(f"{what}: out_specs", out_specs)
    outs = tree.broadcast_prefix(out_specs, program.out_tree, f"{what}: out_specs", _is_spec)
    paths = tree.paths(program.out_tree, "result")
    for s, a, p in zip(outs, program.out_avals, paths, strict=True):
        names = {name: 1 for name, _ in manual.named}
        part_type(what, tuple(names.items()), s, a, p)  # the names, and the number of axes
    return map_over_devices(what, program, manual, [s.names for s in specs], [s.names for s in outs], paths)


def map_over_devices(
    what: str,
    program: Program[..., object],
    manual: ManualAxes,
    ins: Sequence[DimensionAxes],
    outs: Sequence[DimensionAxes],
    paths: Sequence[str],
    wording: Wording = FOR_OUT_SPECS,
) -> Program[..., object]:
    """Return the program over whole arrays, with one equation, of a program over parts. `wording` is that of the error
    for a result that is not the same for all indices."""
    body, mesh = remove_dead_eqns(program.jaxpr), manual.mesh
    specs = [*[()] * len(program.bound), *ins]
    check_equal_results(what, body, mesh, specs, outs, paths if manual.checked else None, wording)
    consts = [k for k, s in enumerate(specs) if not s]
    parts = [k for k, s in enumerate(specs) if s]
    reordered = rebind_operands(body, (*consts, *parts))
    prim = ShardMap(reordered, mesh, len(consts), tuple([specs[k] for k in parts]), tuple(outs), manual.ids)
    b = Builder()
    operands = [b.input(prim.global_aval(s, a)) for s, a in zip(specs, body.in_avals, strict=True)]
    jaxpr = b.build(b(prim, *[operands[k] for k in (*consts, *parts)]), body.name)
    return program.replace(jaxpr, name=what.replace(" of ", "_"))


def check_equal_results(
    what: str,
    body: Jaxpr,
    mesh: MeshAxes,
    ins: Sequence[DimensionAxes],
    outs: Sequence[DimensionAxes],
    paths: Sequence[str] | None,
    wording: Wording,
) -> None:
    """Check that results are the same along the axes of the mesh that their specs do not name, unless `paths` is None;
    and that all devices reach the same collectives.

    Raises: ShapeError naming the result, the axis and the line.
    """
    for name, size in mesh:
        dims = tuple([0 if name in names_in(s) else None for s in ins])
        _, out_dims = vmap_named(body, size, name, dims, devices=True)
        for k, (d, s) in enumerate(zip(out_dims, outs, strict=True)):
            if paths is not None and d is not None and name not in names_in(s):
                raise varying_result_error(what, body, k, paths[k], name, wording)


def varying_result_error(
    what: str, body: Jaxpr, result: int, path: str, name: str, wording: Wording = FOR_OUT_SPECS
) -> ShapeError:
    """Return the error for a result that differs between the indices of an axis, and must not."""
    source = next((e.source for e in reversed(body.eqns) if body.outs[result] in e.outs), None)
    return ShapeError(
        f"{what}: {path} differs along axis {name!r}, {wording[0]}",
        where=source_text(source),
        remedy=f"combine it, with psum or all_gather over {name!r}, or {wording[1]}",
    )
