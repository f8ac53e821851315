"""`vmap`: makes a function of one example a function of a stack of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.lift import check_function, check_no_statics
from fxad.api.mapped_axes import (
    AxesPrefix,
    mapped_arguments,
    mapped_axes_of_program,
    mapped_axes_of_results,
    size_of_map,
)
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.tracing.context import MappedAxis, new_axis
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import Argnames, Argnums, attach_declaration, static_arguments
from fxad.transforms.vmap import vmap_named

P = ParamSpec("P")
R = TypeVar("R")

SpmdNames: TypeAlias = "str | tuple[str, ...] | None"


@overload
def vmap(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def vmap(
    f: Program[P, R],
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    *,
    axis_size: int,
    axis_name: str | None = None,
    spmd_axis_name: SpmdNames = None,
) -> Program[P, R]: ...
@overload
def vmap(
    f: Callable[P, R],
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    spmd_axis_name: SpmdNames = None,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[P, R]: ...
@overload
def vmap(
    *,
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    spmd_axis_name: SpmdNames = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Rewrite: ...
@decorator_form
def vmap(
    f: Callable[..., object],
    in_axes: AxesPrefix = 0,
    out_axes: AxesPrefix = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    spmd_axis_name: SpmdNames = None,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Map over a new axis of the arguments. Without `f` it is a decorator: `@vmap(in_axes=(0, None))`.

    `in_axes` is a tree prefix of the tuple of positional arguments: an int is the mapped axis of a leaf (negative:
    counted from the end), None means that the leaf is not mapped. Keyword arguments are mapped over axis 0. `out_axes`
    is a prefix of the results; None requires a result that does not vary. `axis_size` is the number of examples; without
    it, it is read from the arguments. A program with `axis_size`, or one that was traced with the axis `axis_name`,
    becomes a program; another one becomes a function.

    `axis_name` names the axis for collectives in `f`, such as `lax.psum(x, "i")`. They become operations on the stack.

    `spmd_axis_name` names axes of the mesh that divide the new axis where `f` has sharding constraints. A function
    without them has no value to divide, and is refused.

    Static arguments, by number or by name, are hashable values that are passed to `f` unchanged; so are those that `f`
    declares static. They have entries in `in_axes`, None or an int, which mean nothing. Python numbers, and values that
    are no arrays, are passed unchanged too if they are not mapped.

    Law:    equals the stack of results for each index; identity, composition; commutes with jvp and grad.
    Cost:   no loop: each equation once, over the stack.
    Raises: AxisError, ShapeError, TreeError, ArgumentError naming the argument's path; AxisNameError for a name in use,
            and for collectives that some examples only reach.
    """
    spmd = _spmd_names(spmd_axis_name)
    if isinstance(f, Program):
        check_no_statics("vmap", f, static_argnums, static_argnames)
        size = size_of_map("vmap", f, axis_size, axis_name)
        if size is not None:
            dims = mapped_axes_of_program("vmap", f, in_axes)
            return _vmap(f, dims, out_axes, new_axis(f"vmap of {f.name}", axis_name, size), spmd)
    check_function("vmap", f)
    name = function_name(f)
    statics = static_arguments(f"vmap of {name}", f, static_argnums, static_argnames)

    @wraps(f, updated=())
    def mapped(*args: object, **kwargs: object) -> object:
        m = mapped_arguments("vmap", f, statics, args, kwargs, in_axes, axis_size)
        axis = new_axis(f"vmap of {name}", axis_name, m.size)
        return _vmap(m.trace(axis), m.dims, out_axes, axis, spmd)(*m.args, **m.kwargs)

    mapped.__name__ = f"vmap_{name}"

    def declare(numbers: Sequence[int], names: Sequence[str]) -> Callable[..., object]:
        transform: Callable[..., Callable[..., object]] = vmap
        return transform(
            f, in_axes, out_axes, axis_name, axis_size, spmd, static_argnums=numbers, static_argnames=names
        )

    attach_declaration(mapped, statics, declare)
    return mapped


def _spmd_names(value: SpmdNames) -> tuple[str, ...]:
    """Return the axes of a mesh that divide the mapped axis. Raises: ArgumentError."""
    names = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(names, tuple) or not all([isinstance(n, str) and n for n in names]):
        raise ArgumentError(
            f"vmap: spmd_axis_name is {described(value)}: {shown(value)}", remedy="give a name or a tuple of names"
        )
    return names


def _vmap(
    program: Program[..., object],
    dims: Sequence[int | None],
    out_axes: AxesPrefix,
    axis: MappedAxis,
    spmd: tuple[str, ...],
) -> Program[..., object]:
    what = f"vmap of {program.name}"
    if spmd and not runs_on_devices(program.jaxpr):
        raise ParameterError(
            f"{what}: spmd_axis_name {', '.join(spmd)} divides nothing: the function has no mesh",
            remedy="leave it out, or use with_sharding_constraint in the function",
        )
    out_dims, paths = mapped_axes_of_results(what, program, out_axes)
    in_dims = (*[None] * len(program.bound), *dims)
    if None in out_dims:
        _, result_dims = vmap_named(program.jaxpr, axis.size, axis.name, in_dims, None, spmd)
        for p, out_dim, d in zip(paths, out_dims, result_dims, strict=True):
            if out_dim is None and d is not None:
                raise ShapeError(
                    f"{what}: {p} varies with the mapped arguments, but its out_axes is None",
                    remedy="give the axis at which its values are to be stacked",
                )
    jaxpr, _ = vmap_named(program.jaxpr, axis.size, axis.name, in_dims, tuple(out_dims), spmd)
    return program.replace(jaxpr, name=f"vmap_{program.name}")
