"""`soft_pmap`: map over an axis larger than the number of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any, Final, ParamSpec, TypeVar, overload

from fxad.api.lift import check_function, check_no_statics
from fxad.api.mapped_axes import Axes, mapped_arguments, mapped_axes_of_program, mapped_axes_of_results
from fxad.api.shard_map import (
    BY_AXES,
    Over,
    bound_to_devices,
    name_of_axis,
    spec_along,
    varies,
)
from fxad.errors import ParameterError, ShapeError
from fxad.runtime import Device, device_count
from fxad.sharding import ids_of
from fxad.tracing.context import depend_on_transforms, enclosing_transforms, new_axis
from fxad.tracing.placement import check_device
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import Argnames, Argnums, static_arguments
from fxad.transforms.spmd.split import split_axis
from fxad.transforms.vmap import vmap_named

P = ParamSpec("P")
R = TypeVar("R")


@overload
def soft_pmap(
    f: Program[P, R],
    axis_name: str | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int,
    devices: int | Sequence[Device] | None = None,
) -> Program[P, R]: ...
@overload
def soft_pmap(
    f: Callable[P, R],
    axis_name: str | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int | None = None,
    devices: int | Sequence[Device] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[P, R]: ...
def soft_pmap(
    f: Any,
    axis_name: str | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int | None = None,
    devices: int | Sequence[Device] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Any:
    """Map over an axis of the arguments, on fewer devices than it has indices: each device has several, one after the
    other in the order of the axis, and computes them together, as `vmap` does.

    The arguments are those of `pmap`. `devices` are devices, or their number. Without it, the number is the largest that
    divides the axis, of the devices that maps around leave. Collectives in `f` are over all indices: first those of a
    device, then the devices. Collectives of groups and of permutations gather the whole axis on each device.

    Law:    equals `vmap`, and `pmap`.
    Raises: as `vmap`; ShapeError if the number of devices does not divide the axis.
    Cost:   as `pmap`: a function is traced at each call; `jit(soft_pmap(f))` traces it once.
    """
    if isinstance(f, Program):
        check_no_statics("soft_pmap", f, static_argnums, static_argnames)
        what = f"soft_pmap of {f.name}"
        dims, size = mapped_axes_of_program("soft_pmap", f, in_axes, axis_size)
        return _split(what, f, name_of_axis(axis_name), size, devices, dims, out_axes)
    check_function("soft_pmap", f)
    name = function_name(f)
    what = f"soft_pmap of {name}"
    statics = static_arguments(what, f, static_argnums, static_argnames)

    @wraps(f, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        m = mapped_arguments("soft_pmap", f, statics, args, kwargs, in_axes, axis_size)
        axis = new_axis(what, name_of_axis(axis_name), m.size, stacked=False)
        return _split(what, m.trace(axis), str(axis.name), m.size, devices, m.dims, out_axes)(*m.args, **m.kwargs)

    mapped.__name__ = f"soft_pmap_{name}"
    return mapped


_LANE: Final = ".lane"  # the axis of the indices of a device; vmap removes it at once


def _split(
    what: str,
    program: Program[Any, Any],
    name: str,
    size: int,
    devices: int | Sequence[Device] | None,
    dims: Sequence[int | None],
    out_axes: Axes,
) -> Program[Any, Any]:
    count, on = _devices(what, size, devices)
    out_dims, paths = mapped_axes_of_results(what, program, out_axes)
    body = split_axis(program.jaxpr, name, (count, size // count), name + _LANE)
    rows = (*[None] * len(program.bound), *dims)
    _, found = vmap_named(body, size // count, name + _LANE, rows)
    for k, (d, want) in enumerate(zip(found, out_dims, strict=True)):
        if d is not None and want is None:
            raise varies(what, program.jaxpr, k, paths[k], name, BY_AXES)
    stacked, _ = vmap_named(body, size // count, name + _LANE, rows, tuple(out_dims))
    over = Over(((name, count),), ((name, count),), ids_of(on) if on else (), checked=True)
    specs, outs = [[spec_along(name, d) for d in ds] for ds in (dims, out_dims)]
    return bound_to_devices(what, program.replace(stacked, name=program.name), over, specs, outs, paths, BY_AXES)


def _devices(what: str, size: int, given: int | Sequence[Device] | None) -> tuple[int, tuple[Device, ...]]:
    """The number of devices, and the devices if they are given. Raises: ShapeError, ParameterError, ArgumentError."""
    if given is None:
        depend_on_transforms()
        around = prod([axis.size for axis in enclosing_transforms()[0] if not axis.stacked])
        there = max(1, device_count() // around)
        return max([n for n in range(1, there + 1) if size % n == 0]), ()
    on = () if isinstance(given, int) else tuple(given)
    for device in on:
        check_device("soft_pmap: devices", device)
    count = given if isinstance(given, int) else len(on)
    if count < 1:
        raise ParameterError(f"{what}: devices is {given!r}", remedy="give one device or more, or their number")
    if size % count:
        raise ShapeError(
            f"{what}: the axis has size {size}, which {count} devices do not divide",
            remedy="pad the axis, or give another number of devices",
        )
    return count, on
