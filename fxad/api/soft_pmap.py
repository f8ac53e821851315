"""`soft_pmap`: map over an axis larger than the number of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, ParamSpec, TypeVar, overload

from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.mapped_axes import AxesPrefix, mapped_axes_of_results
from fxad.api.pmap import checked_devices, map_each_index, spec_along
from fxad.api.shard_map import FOR_OUT_AXES, ManualAxes, map_over_devices, varying_result_error
from fxad.errors import ParameterError, ShapeError, shown
from fxad.operations.arguments import plain_ints
from fxad.runtime import Device, device_count
from fxad.sharding import ids_of
from fxad.tracing.context import depend_on_transforms, enclosing_transforms
from fxad.tracing.program import Program
from fxad.tracing.static_args import Argnames, Argnums
from fxad.transforms.spmd.split import split_axis
from fxad.transforms.vmap import vmap_named

P = ParamSpec("P")
R = TypeVar("R")


@overload
def soft_pmap(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def soft_pmap(
    f: Program[P, R],
    axis_name: str | None = None,
    *,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_size: int,
    devices: int | Sequence[Device] | None = None,
) -> Program[P, R]: ...
@overload
def soft_pmap(
    f: Callable[P, R],
    axis_name: str | None = None,
    *,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_size: int | None = None,
    devices: int | Sequence[Device] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[P, R]: ...
@overload
def soft_pmap(
    *,
    axis_name: str | None = None,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_size: int | None = None,
    devices: int | Sequence[Device] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Rewrite: ...
@decorator_form
def soft_pmap(
    f: Callable[..., object],
    axis_name: str | None = None,
    *,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_size: int | None = None,
    devices: int | Sequence[Device] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Map over an axis of the arguments, on fewer devices than it has indices: each device has several, one after the
    other in the order of the axis, and computes them together, as `vmap` does.

    The arguments are those of `pmap`. `devices` are devices, or their number. Without it, the number is the largest that
    divides the axis, of the devices that maps around leave. Collectives in `f` are over all indices: first those of a
    device, then the devices. Collectives of groups and of permutations gather the whole axis on each device.

    Law:    equals `vmap`, and `pmap`.
    Raises: as `vmap`; ShapeError if the number of devices does not divide the axis.
    Cost:   as `pmap`: a function is traced at each call; `jit(soft_pmap(f))` traces it once.
    """

    def on_devices(
        what: str, program: Program[..., object], name: str, size: int, dims: Sequence[int | None]
    ) -> Program[..., object]:
        return _split(what, program, name, size, devices, dims, out_axes)

    return map_each_index("soft_pmap", f, axis_name, in_axes, axis_size, static_argnums, static_argnames, on_devices)


_OF_DEVICE: Final = ".of_device"  # the axis of the indices of a device; vmap removes it at once


def _split(
    what: str,
    program: Program[..., object],
    name: str,
    size: int,
    devices: int | Sequence[Device] | None,
    dims: Sequence[int | None],
    out_axes: AxesPrefix,
) -> Program[..., object]:
    count, listed = _number_of_devices(what, size, devices)
    out_dims, paths = mapped_axes_of_results(what, program, out_axes)
    body = split_axis(program.jaxpr, name, (count, size // count), name + _OF_DEVICE)
    in_dims = (*[None] * len(program.bound), *dims)
    _, result_dims = vmap_named(body, size // count, name + _OF_DEVICE, in_dims)
    for k, (d, wanted) in enumerate(zip(result_dims, out_dims, strict=True)):
        if d is not None and wanted is None:
            raise varying_result_error(what, program.jaxpr, k, paths[k], name, FOR_OUT_AXES)
    stacked, _ = vmap_named(body, size // count, name + _OF_DEVICE, in_dims, tuple(out_dims))
    manual = ManualAxes(((name, count),), ((name, count),), ids_of(listed) if listed else (), checked=True)
    specs, outs = [[spec_along(name, d) for d in ds] for ds in (dims, out_dims)]
    return map_over_devices(what, program.replace(stacked, name=program.name), manual, specs, outs, paths, FOR_OUT_AXES)


def _number_of_devices(what: str, size: int, devices: int | Sequence[Device] | None) -> tuple[int, tuple[Device, ...]]:
    """Return the number of devices, and the devices if they are listed. Raises: ShapeError, ParameterError,
    ArgumentError."""
    if devices is None:
        depend_on_transforms()
        outer_size = prod([axis.size for axis in enclosing_transforms()[0] if not axis.stacked])
        available = max(1, device_count() // outer_size)
        return max([n for n in range(1, available + 1) if size % n == 0]), ()
    devices = plain_ints(devices)
    if isinstance(devices, int) and not isinstance(devices, bool):
        count, listed = devices, tuple[Device, ...]()
    else:
        listed = checked_devices("soft_pmap", devices)  # type: ignore[arg-type]  # it refuses a bool
        count = len(listed)
    if len(set(listed)) != len(listed):
        raise ParameterError(f"{what}: devices has a device twice", remedy="give distinct devices, or their number")
    if count < 1:
        raise ParameterError(f"{what}: devices is {shown(devices)}", remedy="give one device or more, or their number")
    if size % count != 0:
        raise ShapeError(
            f"{what}: the axis has size {size}, which {count} devices do not divide",
            remedy="pad the axis, or give another number of devices",
        )
    return count, listed
