"""`shard_map` and `pmap`: run a function on many devices, each on its parts of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from math import prod
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, final, overload

import numpy as np

from fxad.api.device_put import device_put
from fxad.api.jit import jit
from fxad.api.lift import check_function, check_no_statics
from fxad.api.mapped_axes import (
    Axes,
    mapped_arguments,
    mapped_axes_of_program,
    mapped_axes_of_results,
    size_of_map,
)
from fxad.core import tree
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import rebind_operands, remove_dead_eqns
from fxad.core.interpreter import run
from fxad.core.sizes import Size
from fxad.core.tree import Structure
from fxad.errors import ArgumentError, AxisNameError, ParameterError, ShapeError, described
from fxad.ir import Aval, Jaxpr, source_location
from fxad.operations.arguments import flag, is_word, plain_ints, to_tuple
from fxad.primitives.control.shard_map import ShardMap, mesh_of_maps
from fxad.primitives.meshes import Ids, Mesh as MeshAxes, Spec, names_in
from fxad.primitives.shape import ExpandDims, Squeeze
from fxad.runtime import Device, default_device, devices as default_devices
from fxad.sharding import Mesh, NamedSharding, PartitionSpec, axes_of, get_mesh, ids_of, part_type
from fxad.tracing.array import binder
from fxad.tracing.context import (
    MappedAxis,
    axes_of_devices_around,
    depend_on_mesh,
    mapped_over,
    n_axes_in_scope,
    new_axis,
)
from fxad.tracing.placement import check_device
from fxad.tracing.program import Program, argument_path, function_name, parameter_names, trace_tree, types_of
from fxad.tracing.static_args import Argnames, Argnums, static_arguments
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
    f: None = None,
    mesh: Mesh | Mapping[str, int] | None = None,
    *,
    in_specs: Specs,
    out_specs: Specs,
    axis_names: Collection[str] = ...,
    check_vma: bool = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def shard_map(
    f: Any = None,
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
        missing = "in_specs" if in_specs is _MISSING else "out_specs"
        raise ArgumentError(
            f"shard_map: {missing} is missing", remedy="give a PartitionSpec for each argument and result: P() is whole"
        )
    if f is None:
        return partial(
            shard_map, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=axis_names, check_vma=check_vma
        )
    name = function_name(f) if not isinstance(f, Program) else f.name
    what = f"shard_map of {name}"
    if isinstance(f, Program):
        manual = ManualAxes.of(what, mesh, axis_names, check_vma)
        specs = _argument_specs(in_specs, f.in_tree, f"{what}: in_specs")
        return _shard_mapped(what, f, manual, specs, out_specs)
    check_function("shard_map", f)
    names = parameter_names(f)
    if mesh is not None:
        ManualAxes.of(what, mesh, axis_names, check_vma)

    @wraps(f, updated=())
    def mapped(*args: object, **kwargs: object) -> object:
        manual = ManualAxes.of(what, mesh, axis_names, check_vma)
        leaves, in_tree = tree.flatten((args, kwargs))
        avals = types_of(what, f, leaves, in_tree)
        specs = _argument_specs(in_specs, in_tree, f"{what}: in_specs")
        paths = [argument_path(a, names) for a in in_tree.accessors()]
        parts = [
            part_type(what, manual.named, s, a, f"argument {p}") for s, a, p in zip(specs, avals, paths, strict=True)
        ]
        unnamed = prod([size for axis, size in manual.mesh if axis not in dict(manual.named)])
        others = [MappedAxis(unnamed, stacked=False)] if unnamed > 1 else []  # devices that maps inside do not have
        with mapped_over(*[new_axis(what, n, size, stacked=False) for n, size in manual.named], *others):
            program = trace_tree(f, in_tree, parts, name, names)
        return _shard_mapped(what, program, manual, specs, out_specs)(*args)

    mapped.__name__ = f"shard_map_{name}"
    return mapped


@final
@dataclass(frozen=True, slots=True)
class ManualAxes:
    """The axes of a map over devices: those of the mesh, those that may be named, and the ids of the devices. `checked`:
    results must be equal along the axes that their specs do not name."""

    mesh: MeshAxes
    named: MeshAxes
    ids: Ids
    checked: bool

    @classmethod
    def of(cls, what: str, mesh: Mesh | Mapping[str, int] | None, names: Collection[str], checked: bool) -> ManualAxes:
        """The arguments of `shard_map`, checked. Raises: ParameterError without a mesh, AxisNameError, ArgumentError."""
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
                f"{what}: axis_names is {described(names)}: {names!r:.60}", remedy="give a set of names"
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
        around = axes_of_devices_around()
        free = tuple([axis for axis in axes if axis[0] in names or axis not in around])
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
                f"{what}{'' if entry is prefix else ' has an entry that'} is {described(entry)}: {entry!r:.60}",
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
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    paths: Sequence[str],
    wording: Wording = FOR_OUT_SPECS,
) -> Program[..., object]:
    """The program over whole arrays, with one equation, of a program over parts. `wording` is that of the error for a
    result that is not the same for all indices."""
    body, mesh = remove_dead_eqns(program.jaxpr), manual.mesh
    specs = [*[()] * len(program.bound), *ins]
    check_equal_results(what, body, mesh, specs, outs, paths if manual.checked else None, wording)
    consts = [k for k, s in enumerate(specs) if not s]
    parts = [k for k, s in enumerate(specs) if s]
    reordered = rebind_operands(body, range(len(specs)), (0, 1), (consts, parts))
    prim = ShardMap(reordered, mesh, len(consts), tuple([specs[k] for k in parts]), tuple(outs), manual.ids)
    b = Builder()
    operands = [b.input(prim.whole(s, a)) for s, a in zip(specs, body.in_avals, strict=True)]
    jaxpr = b.build(b(prim, *[operands[k] for k in (*consts, *parts)]), body.name)
    return program.replace(jaxpr, name=what.replace(" of ", "_"))


def check_equal_results(
    what: str,
    body: Jaxpr,
    mesh: MeshAxes,
    ins: Sequence[Spec],
    outs: Sequence[Spec],
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
    """The error for a result that differs between the indices of an axis, and must not."""
    source = next((e.source for e in reversed(body.eqns) if body.outs[result] in e.outs), None)
    return ShapeError(
        f"{what}: {path} differs along axis {name!r}, {wording[0]}",
        where=str(source_location(source) or ""),
        remedy=f"combine it, with psum or all_gather over {name!r}, or {wording[1]}",
    )


# ---------------------------------------------------------------------------------------------------------------- pmap


@overload
def pmap(
    f: Program[P, R],
    axis_name: str | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int,
    devices: Sequence[Device] | None = None,
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
    devices: Sequence[Device] | None = None,
    static_broadcasted_argnums: Argnums = (),
    donate_argnums: int | Sequence[int] = (),
    backend: str | None = None,
    global_arg_shapes: None = None,
) -> Callable[P, R]: ...
def pmap(
    f: Callable[..., object],
    axis_name: str | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    devices: Sequence[Device] | None = None,
    static_broadcasted_argnums: Argnums = (),
    donate_argnums: int | Sequence[int] = (),
    backend: str | None = None,
    global_arg_shapes: None = None,
) -> object:
    """Map over an axis of the arguments, each index on a device of its own.

    The arguments are those of `vmap`. `axis_name` names the axis for collectives in `f`. `devices` are those of the
    indices, in order: the first ones if it is left out. `soft_pmap` maps an axis larger than the number of devices.
    A program with `axis_size`, or one that was traced with the axis `axis_name`, becomes a program; another one becomes a
    function.

    `static_broadcasted_argnums` is JAX's name for `static_argnums`. With `donate_argnums`, the map is compiled, as by
    `jit(pmap(f), donate_argnums=...)`.

    Law:    equals `vmap`.
    Raises: as `vmap`; ParameterError when it runs and there are fewer devices than indices.
    Cost:   a function is traced at each call; `jit(pmap(f))` traces it once.
    """
    _check_jax_options(backend, global_arg_shapes)
    donate_argnums, static_argnums = plain_ints(donate_argnums), plain_ints(static_argnums)
    if devices is not None:
        devices = to_tuple("pmap", "devices", devices)
        for device in devices:
            check_device("pmap: devices", device)
    if isinstance(f, Program):
        check_no_statics("pmap", f, static_argnums or static_broadcasted_argnums, static_argnames)
        what = f"pmap of {f.name}"
        if not (isinstance(donate_argnums, tuple | list) and not donate_argnums):
            raise ArgumentError(
                f"{what}: donate_argnums is for functions",
                remedy="donate when it is compiled: jit(pmap(p), donate=...)",
            )
        size = size_of_map("pmap", f, axis_size, axis_name)
        if size is not None:
            dims = mapped_axes_of_program("pmap", f, in_axes)
            return _pmapped(
                what, f, _axis_of_pmap(what, name_of_axis(axis_name, f.jaxpr), size, devices), dims, out_axes
            )
    check_function("pmap", f)
    name = function_name(f)
    what = f"pmap of {name}"
    fixed = static_broadcasted_argnums if isinstance(static_argnums, tuple) and not static_argnums else static_argnums
    statics = static_arguments(what, f, fixed, static_argnames)

    @wraps(f, updated=())
    def mapped(*args: object, **kwargs: object) -> object:
        m = mapped_arguments("pmap", f, statics, args, kwargs, in_axes, axis_size)
        axis = new_axis(what, name_of_axis(axis_name), m.size, stacked=False)
        program = m.trace(axis)
        manual = _axis_of_pmap(what, name_of_axis(axis_name, program.jaxpr), m.size, devices)
        if not (program.jaxpr.eqns or binder().staging()) and (
            results := _constant_results(what, program, manual, out_axes)
        ):
            return results[0]
        return _pmapped(what, program, manual, m.dims, out_axes)(*m.args, **m.kwargs)

    mapped.__name__ = f"pmap_{name}"
    nothing = isinstance(donate_argnums, tuple) and not donate_argnums
    return mapped if nothing else jit(mapped, static_argnums=fixed, donate_argnums=donate_argnums)


def _check_jax_options(backend: str | None, global_arg_shapes: object) -> None:
    """Check options of `jax.pmap`. Raises: ParameterError unless they have their defaults."""
    if not is_word(backend, (None, default_device().platform)):
        raise ParameterError(
            f"pmap: backend={backend!r:.40} is not supported", remedy="give devices=fxad.devices(backend)"
        )
    if global_arg_shapes is not None:
        raise ParameterError(
            f"pmap: global_arg_shapes={global_arg_shapes!r:.60} is not supported",
            remedy="pass arrays of all processes: make_array_from_process_local_data",
        )


def _constant_results(
    what: str, program: Program[..., object], manual: ManualAxes, out_axes: Axes
) -> tuple[object] | None:
    """The results of a pmap of a program without equations whose results are no arguments: nothing is compiled. None for
    any other program, and if there are more indices than devices."""
    body, bound = program.jaxpr, len(program.bound)
    ((name, size),) = manual.mesh
    by_id = {d.id: d for d in default_devices()}
    ids = manual.ids or tuple(by_id)[:size]
    if any([a in body.ins[bound:] for a in body.outs]) or len(ids) < size or not set(ids) <= set(by_id):
        return None
    values = run(body, [*map(np.asarray, program.bound), *[np.zeros(a.shape, a.dtype) for a in body.in_avals[bound:]]])
    mesh = Mesh(np.array([by_id[k] for k in ids], dtype=object), name)
    results = []
    for x, d in zip(values, mapped_axes_of_results(what, program, out_axes)[0], strict=True):
        spec, whole = PartitionSpec(), x
        if d is not None:
            spec = PartitionSpec(*[None] * d, name)
            whole = np.broadcast_to(np.expand_dims(x, d), (*x.shape[:d], size, *x.shape[d:]))
        results.append(device_put(whole, NamedSharding(mesh, spec)))
    return (tree.unflatten(program.out_tree, results),)


def _axis_of_pmap(what: str, name: str, size: int, devices: Sequence[Device] | None) -> ManualAxes:
    """The axis of a pmap. Raises: ShapeError for an axis of size 0 or a named size; ParameterError if `devices` are not
    as many as the indices, or the same."""
    if type(size) is Size:
        raise ShapeError(
            f"{what}: the mapped axis has size {size}, and the number of devices is a number",
            remedy="use vmap, or map an axis of known size",
        )
    if size == 0:
        raise ShapeError(
            f"{what}: the mapped axis has size 0, and each index needs a device",
            remedy="use vmap or soft_pmap, which map over an axis without indices",
        )
    if devices is not None and len(set(devices)) != size:
        twice = "" if len(set(devices)) == len(devices) else " distinct ones"
        raise ParameterError(
            f"{what}: the axis has size {size}, devices has {len(set(devices))}{twice}",
            remedy="give one device for each index",
        )
    return ManualAxes(((name, size),), ((name, size),), ids_of(tuple(devices)) if devices else (), checked=True)


def name_of_axis(axis_name: str | None, body: Jaxpr | None = None) -> str:
    """The name of an axis; one that no map around uses, and none in the body of the map, if none is given."""
    if axis_name is not None:
        return axis_name
    inside = dict(mesh_of_maps(body)) if body is not None else {}
    k = n_axes_in_scope()
    while f"{_UNNAMED}{k}" in inside:
        k += 1
    return f"{_UNNAMED}{k}"


_UNNAMED: Final = "pmap"


def _pmapped(
    what: str, program: Program[..., object], manual: ManualAxes, dims: Sequence[int | None], out_axes: Axes
) -> Program[..., object]:
    ((name, _),) = manual.mesh
    out_dims, paths = mapped_axes_of_results(what, program, out_axes)
    body, n = program.jaxpr, len(program.bound)
    b = Builder()
    args = list(b.inputs(body.in_avals[:n]))
    for a, d in zip(body.in_avals[n:], dims, strict=True):
        args.append(b.input(a) if d is None else b.one(Squeeze((d,)), b.input(_with_one(a, d))))
    results = b.inline(body, args)
    outs = [v if d is None else b.one(ExpandDims((d,)), v) for v, d in zip(results, out_dims, strict=True)]
    on_parts = program.replace(b.build(outs, body.name))
    specs = [spec_along(name, d) for d in dims]
    return map_over_devices(what, on_parts, manual, specs, [spec_along(name, d) for d in out_dims], paths, FOR_OUT_AXES)


def _with_one(a: Aval, d: int) -> Aval:
    return a.with_shape((*a.shape[:d], 1, *a.shape[d:]))


def spec_along(name: str, d: int | None) -> Spec:
    """The spec of an array whose axis `d` an axis of devices divides; None is the whole array on each device."""
    return () if d is None else (*[()] * d, (name,))
