"""`shard_map` and `pmap`: run a function on many devices, each on its parts of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, overload

from fxad.api.lift import bind_static_arguments, check_function, check_no_statics
from fxad.api.vmap import OUT_AXES, Axes, check_kinds, flatten_axes, infer_size, is_axis, normalize_dim, without_axis
from fxad.core import tree
from fxad.core.builder import Builder
from fxad.core.dce import rebind_operands, remove_dead_eqns
from fxad.core.tree import Structure
from fxad.errors import ArgumentError, ShapeError
from fxad.ir import Aval, Jaxpr, source_location
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import Ids, Spec, names_in
from fxad.primitives.meshes import Mesh as MeshAxes
from fxad.primitives.shape import ExpandDims, Squeeze
from fxad.sharding import Mesh, PartitionSpec, axes_of, ids_of, local
from fxad.tracing.context import mapped_over, n_axes_in_scope, new_axis
from fxad.tracing.program import Program, argument_path, function_name, parameter_names, trace_tree, types_of
from fxad.tracing.static_args import Argnames, Argnums, static_arguments
from fxad.transforms.vmap import vmap_named

P = ParamSpec("P")
R = TypeVar("R")

Specs = Any  # a PartitionSpec, or a tree prefix of them


@overload
def shard_map(f: Program[P, R], mesh: Mesh | Mapping[str, int], in_specs: Specs, out_specs: Specs) -> Program[P, R]: ...
@overload
def shard_map(
    f: Callable[P, R], mesh: Mesh | Mapping[str, int], in_specs: Specs, out_specs: Specs
) -> Callable[P, R]: ...
def shard_map(f: Any, mesh: Mesh | Mapping[str, int], in_specs: Specs, out_specs: Specs) -> Any:
    """Map over the devices of a mesh: each runs `f` on its parts of the arguments.

    `in_specs` is a tree prefix of the tuple of arguments, of `PartitionSpec`s: they say which axes of the mesh divide
    which axes of an argument. `out_specs` says so for the results, which are put together. An axis of the mesh that a
    spec does not name: each device along it has the same part. `f` may use collectives over the axes of the mesh. `mesh`
    may be names and sizes alone, as in `{"i": 8}`: the program then runs on the first devices. A `Program` takes and
    returns parts; trace it with `axis_env`.

    Law:    equals `vmap` over each axis of the mesh, with the parts stacked.
    Raises: ShapeError for sizes that do not divide, and for a result that differs along an axis that its spec does not
            name; AxisNameError for unknown names, and for collectives that only some devices reach.
    """
    name = function_name(f) if not isinstance(f, Program) else f.name
    what = f"shard_map of {name}"
    axes = axes_of(what, mesh)
    ids = ids_of(tuple(mesh.devices.flat)) if isinstance(mesh, Mesh) else ()
    if isinstance(f, Program):
        specs = _specs(in_specs, f.in_tree, f"{what}: in_specs")
        return _over_devices(what, f, axes, specs, out_specs, ids)
    check_function("shard_map", f)
    names = parameter_names(f)

    @wraps(f, updated=())
    def mapped(*args: Any) -> Any:
        leaves, in_tree = tree.flatten((args, {}))
        avals = types_of(what, f, leaves, in_tree)
        specs = _specs(in_specs, in_tree, f"{what}: in_specs")
        paths = [argument_path(a, names) for a in in_tree.accessors()]
        parts = [local(what, axes, s, a, f"argument {p}") for s, a, p in zip(specs, avals, paths, strict=True)]
        with mapped_over(*[new_axis(what, n, size, stacked=False) for n, size in axes]):
            program = trace_tree(f, in_tree, parts, name, names)
        return _over_devices(what, program, axes, specs, out_specs, ids)(*args)

    mapped.__name__ = f"shard_map_{name}"
    return mapped


def _is_spec(x: object) -> bool:
    return isinstance(x, PartitionSpec)


def _specs(prefix: Specs, in_tree: Structure, what: str) -> list[PartitionSpec]:
    args, kwargs = in_tree.children()
    if kwargs.num_leaves:
        raise ArgumentError(f"{what}: keyword arguments are not divided", remedy="pass arguments by position")
    given = tuple(prefix) if isinstance(prefix, list) else prefix
    if isinstance(given, tuple) and not _is_spec(given) and len(given) != args.num_children:
        raise ArgumentError(
            f"{what} has {len(given)} entries for {args.num_children} arguments",
            remedy="give one PartitionSpec per argument, or one for all",
        )
    return list(tree.broadcast_prefix(given, args, what, _is_spec))


def _over_devices(
    what: str,
    program: Program[Any, Any],
    mesh: MeshAxes,
    specs: Sequence[PartitionSpec],
    out_specs: Specs,
    ids: Ids,
) -> Program[Any, Any]:
    outs = tree.broadcast_prefix(out_specs, program.out_tree, f"{what}: out_specs", _is_spec)
    paths = tree.paths(program.out_tree, "result")
    for s, a, p in zip(outs, program.out_avals, paths, strict=True):
        names = {name: 1 for name, _ in mesh}
        local(what, tuple(names.items()), s, a, p)  # the names, and the number of axes
    return _bound(what, program, mesh, [s.names for s in specs], [s.names for s in outs], paths, ids)


def _bound(
    what: str,
    program: Program[Any, Any],
    mesh: MeshAxes,
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    paths: Sequence[str],
    ids: Ids = (),
    fault: tuple[str, str] = ("which its spec does not name", "name the axis in the spec"),
) -> Program[Any, Any]:
    """The program over whole arrays, with one equation, of a program over parts. `fault` and its remedy are words for a
    result that is not the same for all indices."""
    body = remove_dead_eqns(program.jaxpr)
    specs = [*[()] * len(program.bound), *ins]
    check_results(what, body, mesh, specs, outs, paths, fault)
    consts = [k for k, s in enumerate(specs) if not s]
    parts = [k for k, s in enumerate(specs) if s]
    made = rebind_operands(body, range(len(specs)), (0, 1), (consts, parts))
    prim = ShardMap(made, mesh, len(consts), tuple([specs[k] for k in parts]), tuple(outs), ids)
    b = Builder()
    operands = [b.input(prim.whole(s, a)) for s, a in zip(specs, body.in_avals, strict=True)]
    jaxpr = b.build(b(prim, *[operands[k] for k in (*consts, *parts)]), body.name)
    bound: Program[Any, Any] = program.replace(jaxpr, name=what.replace(" of ", "_"))
    return bound


def check_results(
    what: str,
    body: Jaxpr,
    mesh: MeshAxes,
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    paths: Sequence[str],
    fault: tuple[str, str],
) -> None:
    """Check that results are the same along the axes of the mesh that their specs do not name.

    Raises: ShapeError naming the result, the axis and the line.
    """
    for name, size in mesh:
        dims = tuple([0 if name in names_in(s) else None for s in ins])
        _, found = vmap_named(body, size, name, dims)
        for k, (d, s) in enumerate(zip(found, outs, strict=True)):
            if d is not None and name not in names_in(s):
                made = next((e.source for e in reversed(body.eqns) if body.outs[k] in e.outs), None)
                raise ShapeError(
                    f"{what}: {paths[k]} differs along axis {name!r}, {fault[0]}",
                    where=str(source_location(made) or ""),
                    remedy=f"combine it, with psum or all_gather over {name!r}, or {fault[1]}",
                )


# ---------------------------------------------------------------------------------------------------------------- pmap


@overload
def pmap(
    f: Program[P, R], axis_name: str | None = None, *, in_axes: Axes = 0, out_axes: Axes = 0, axis_size: int
) -> Program[P, R]: ...
@overload
def pmap(
    f: Callable[P, R],
    axis_name: str | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[P, R]: ...
def pmap(
    f: Any,
    axis_name: str | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Any:
    """Map over an axis of the arguments, each index on a device of its own.

    The arguments are those of `vmap`. `axis_name` names the axis for collectives in `f`.

    Law:    equals `vmap`.
    Raises: as `vmap`; ParameterError when it runs and there are fewer devices than indices.
    """
    if isinstance(f, Program):
        check_no_statics("pmap", f, static_argnums, static_argnames)
        what = f"pmap of {f.name}"
        if axis_size is None:
            raise ArgumentError(
                f"pmap: {f.name} is a Program over one example, so the number of examples must be given",
                remedy="pmap(program, axis_size=n)",
            )
        axes = flatten_axes(in_axes, f.in_tree, f"{what}: in_axes")
        dims = [
            normalize_dim(d, a.ndim + 1, f"{what}: argument {p}")
            for d, a, p in zip(axes, f.in_avals, f.paths, strict=True)
        ]
        return _pmapped(what, f, ((_name(axis_name), axis_size),), dims, out_axes)
    check_function("pmap", f)
    name, names = function_name(f), parameter_names(f)
    what = f"pmap of {name}"
    statics = static_arguments(what, f, static_argnums, static_argnames)

    @wraps(f, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        g, args, kwargs = bind_static_arguments("pmap", f, statics, args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))
        avals = types_of(what, f, leaves, in_tree)
        paths = [argument_path(a, names) for a in in_tree.accessors()]
        axes = flatten_axes(in_axes, in_tree, f"{what}: in_axes")
        dims = [normalize_dim(d, a.ndim, f"{what}: argument {p}") for d, a, p in zip(axes, avals, paths, strict=True)]
        size = infer_size(what, axis_size, avals, dims, paths)
        single = [a if d is None else without_axis(a, d) for a, d in zip(avals, dims, strict=True)]
        axis = new_axis(what, _name(axis_name), size, stacked=False)
        with mapped_over(axis):
            program = trace_tree(g, in_tree, single, name, names)
        return _pmapped(what, program, ((str(axis.name), size),), dims, out_axes)(*args, **kwargs)

    mapped.__name__ = f"pmap_{name}"
    return mapped


def _name(axis_name: str | None) -> str:
    """The name of an axis; one that no map around uses, if none is given."""
    return f"{_UNNAMED}{n_axes_in_scope()}" if axis_name is None else axis_name


_UNNAMED: Final = "pmap"


def _pmapped(
    what: str, program: Program[Any, Any], mesh: MeshAxes, dims: Sequence[int | None], out_axes: Axes
) -> Program[Any, Any]:
    ((name, _),) = mesh
    check_kinds(f"{what}: out_axes", out_axes)
    axes = tree.broadcast_prefix(out_axes, program.out_tree, f"{what}: out_axes", is_axis)
    paths = tree.paths(program.out_tree, "result")
    out_dims = [
        normalize_dim(d, a.ndim + 1, f"{what}: {p}", OUT_AXES)
        for d, a, p in zip(axes, program.out_avals, paths, strict=True)
    ]
    body, n = program.jaxpr, len(program.bound)
    b = Builder()
    args = list(b.inputs(body.in_avals[:n]))
    for a, d in zip(body.in_avals[n:], dims, strict=True):
        args.append(b.input(a) if d is None else b.one(Squeeze((d,)), b.input(_with_one(a, d))))
    found = b.inline(body, args)
    outs = [v if d is None else b.one(ExpandDims((d,)), v) for v, d in zip(found, out_dims, strict=True)]
    one: Program[Any, Any] = program.replace(b.build(outs, body.name))
    specs = [_spec(name, d) for d in dims]
    fault = "but its out_axes is None", "give the place of the axis in out_axes"
    return _bound(what, one, mesh, specs, [_spec(name, d) for d in out_dims], paths, fault=fault)


def _with_one(a: Aval, d: int) -> Aval:
    return a.with_shape((*a.shape[:d], 1, *a.shape[d:]))


def _spec(name: str, d: int | None) -> Spec:
    return () if d is None else (*[()] * d, (name,))
