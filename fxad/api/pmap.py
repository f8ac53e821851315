"""`pmap`: map over an axis of the arguments, each index on a device of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, overload

from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.jit import jit
from fxad.api.lift import check_function, check_no_statics
from fxad.api.mapped_axes import (
    AxesPrefix,
    mapped_arguments,
    mapped_axes_of_program,
    mapped_axes_of_results,
    size_of_map,
)
from fxad.api.shard_map import FOR_OUT_AXES, ManualAxes, map_over_devices
from fxad.core.builder import Builder
from fxad.core.sizes.size import Size
from fxad.errors import ArgumentError, ParameterError, ShapeError, shown
from fxad.ir import Jaxpr
from fxad.operations.arguments import argument_keys, is_word, to_tuple
from fxad.primitives.control.shard_map import mesh_of_maps
from fxad.primitives.meshes import DimensionAxes
from fxad.primitives.shape import ExpandDims, Squeeze
from fxad.runtime import Device, default_device
from fxad.sharding import ids_of
from fxad.tracing.context import n_axes_in_scope, new_axis
from fxad.tracing.placement import check_device
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import Argnames, Argnums, attach_declaration, static_arguments

P = ParamSpec("P")
R = TypeVar("R")


@overload
def pmap(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def pmap(
    f: Program[P, R],
    axis_name: str | None = None,
    *,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_size: int,
    devices: Sequence[Device] | None = None,
) -> Program[P, R]: ...
@overload
def pmap(
    f: Callable[P, R],
    axis_name: str | None = None,
    *,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_size: int | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    devices: Sequence[Device] | None = None,
    static_broadcasted_argnums: Argnums = (),
    donate_argnums: int | Sequence[int] = (),
    backend: str | None = None,
    global_arg_shapes: None = None,
) -> Callable[P, R]: ...
@overload
def pmap(
    *,
    axis_name: str | None = None,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_size: int | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    devices: Sequence[Device] | None = None,
    static_broadcasted_argnums: Argnums = (),
    donate_argnums: int | Sequence[int] = (),
    backend: str | None = None,
    global_arg_shapes: None = None,
) -> Rewrite: ...
@decorator_form
def pmap(
    f: Callable[..., object],
    axis_name: str | None = None,
    *,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
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
    if argument_keys(static_argnums) == ():
        static_argnums = static_broadcasted_argnums
    elif argument_keys(static_broadcasted_argnums) != ():
        raise ArgumentError(
            "pmap: static_argnums and static_broadcasted_argnums are both given",
            remedy="give all static arguments in static_argnums",
        )
    donates = argument_keys(donate_argnums) != ()
    if devices is not None:
        devices = checked_devices("pmap", devices)
    if donates and isinstance(f, Program):
        raise ArgumentError(
            f"pmap of {f.name}: donate_argnums is for functions",
            remedy="donate when it is compiled: jit(pmap(p), donate=...)",
        )

    def on_devices(
        what: str, program: Program[..., object], name: str, size: int, dims: Sequence[int | None]
    ) -> Callable[..., object]:
        return _pmapped(what, program, _axis_of_pmap(what, name, size, devices), dims, out_axes)

    mapped = map_each_index("pmap", f, axis_name, in_axes, axis_size, static_argnums, static_argnames, on_devices)
    return jit(mapped, donate_argnums=donate_argnums) if donates else mapped


def checked_devices(op: str, devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return devices as a tuple. Raises: ArgumentError for what is not a sequence of devices."""
    devices = to_tuple(op, "devices", devices)
    for device in devices:
        check_device(f"{op}: devices", device)
    return devices


def map_each_index(
    op: str,
    f: Callable[..., object],
    axis_name: str | None,
    in_axes: AxesPrefix,
    axis_size: int | None,
    static_argnums: Argnums,
    static_argnames: Argnames,
    on_devices: Callable[[str, Program[..., object], str, int, Sequence[int | None]], Callable[..., object]],
) -> Callable[..., object]:
    """Return the map `op`, `pmap` or `soft_pmap`, of a function or of a Program. `on_devices` makes it of the program
    of one index, given the words for messages, that program, the name and the size of the axis, and the mapped axes of
    its arguments."""
    if isinstance(f, Program):
        check_no_statics(op, f, static_argnums, static_argnames)
        size = size_of_map(op, f, axis_size, axis_name)
        if size is not None:
            dims = mapped_axes_of_program(op, f, in_axes)
            return on_devices(f"{op} of {f.name}", f, _name_of_axis(axis_name, f.jaxpr), size, dims)
    check_function(op, f)
    name = function_name(f)
    what = f"{op} of {name}"
    statics = static_arguments(what, f, static_argnums, static_argnames)

    @wraps(f, updated=())
    def mapped(*args: object, **kwargs: object) -> object:
        m = mapped_arguments(op, f, statics, args, kwargs, in_axes, axis_size)
        program = m.trace(new_axis(what, _name_of_axis(axis_name), m.size, stacked=False))
        run_on_devices = on_devices(what, program, _name_of_axis(axis_name, program.jaxpr), m.size, m.dims)
        return run_on_devices(*m.args, **m.kwargs)

    mapped.__name__ = f"{op}_{name}"

    def declare(numbers: Sequence[int], names: Sequence[str]) -> Callable[..., object]:
        return map_each_index(op, f, axis_name, in_axes, axis_size, numbers, names, on_devices)

    attach_declaration(mapped, statics, declare)
    return mapped


def _check_jax_options(backend: str | None, global_arg_shapes: object) -> None:
    """Check options of `jax.pmap`. Raises: ParameterError unless they have their defaults."""
    if not is_word(backend, (None, default_device().platform)):
        raise ParameterError(
            f"pmap: backend={shown(backend, 40)} is not supported", remedy="give devices=fxad.devices(backend)"
        )
    if global_arg_shapes is not None:
        raise ParameterError(
            f"pmap: global_arg_shapes={shown(global_arg_shapes)} is not supported",
            remedy="pass arrays of all processes: make_array_from_process_local_data",
        )


def _axis_of_pmap(what: str, name: str, size: int, devices: Sequence[Device] | None) -> ManualAxes:
    """Return the axis of a pmap. Raises: ShapeError for an axis of size 0 or a named size; ParameterError for another
    number of distinct devices than of indices."""
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
        distinct = len(set(devices))
        raise ParameterError(
            f"{what}: the axis has size {size}, devices has {distinct}{' distinct' if distinct < len(devices) else ''}",
            remedy="give one device for each index",
        )
    return ManualAxes(((name, size),), ((name, size),), ids_of(tuple(devices)) if devices else (), checked=True)


def _name_of_axis(axis_name: str | None, body: Jaxpr | None = None) -> str:
    """Return `axis_name`, or a new name that neither a map around nor the body of the map uses."""
    if axis_name is not None:
        return axis_name
    names_in_body = dict(mesh_of_maps(body)) if body is not None else {}
    k = n_axes_in_scope()
    while f"{_UNNAMED}{k}" in names_in_body:
        k += 1
    return f"{_UNNAMED}{k}"


_UNNAMED: Final = "pmap"


def _pmapped(
    what: str, program: Program[..., object], manual: ManualAxes, dims: Sequence[int | None], out_axes: AxesPrefix
) -> Program[..., object]:
    ((name, _),) = manual.mesh
    out_dims, paths = mapped_axes_of_results(what, program, out_axes)
    body, n = program.jaxpr, len(program.bound)
    b = Builder()
    args = list(b.inputs(body.in_avals[:n]))
    for a, d in zip(body.in_avals[n:], dims, strict=True):
        args.append(b.input(a) if d is None else b.one(Squeeze((d,)), b.input(a.stacked(1, d))))
    results = b.inline(body, args)
    outs = [v if d is None else b.one(ExpandDims((d,)), v) for v, d in zip(results, out_dims, strict=True)]
    part_program = program.replace(b.build(outs, body.name))
    specs = [spec_along(name, d) for d in dims]
    return map_over_devices(
        what, part_program, manual, specs, [spec_along(name, d) for d in out_dims], paths, FOR_OUT_AXES
    )


def spec_along(name: str, d: int | None) -> DimensionAxes:
    """Return the spec of an array whose axis `d` an axis of devices divides; None is the whole array on each device."""
    return () if d is None else (*[()] * d, (name,))
