"""`vmap`: makes a function of one example a function of a stack of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any, Final, ParamSpec, SupportsIndex, TypeAlias, TypeVar, cast, overload

import numpy as np

from fxad.api.lift import bind_static_arguments, check_function, check_no_statics, hold_settings, is_setting
from fxad.core import tree
from fxad.core.tree import Structure
from fxad.errors import ArgumentError, AxisError, AxisNameError, ParameterError, ShapeError, described
from fxad.ir import Aval
from fxad.tracing.context import MappedAxis, mapped_over, new_axis
from fxad.tracing.program import (
    Program,
    argument_path,
    count_text,
    function_name,
    parameter_names,
    trace_tree,
    types_of,
)
from fxad.tracing.static_args import Argnames, Argnums, attach_declaration, static_arguments
from fxad.transforms.vmap import vmap_named

P = ParamSpec("P")
R = TypeVar("R")

Axes = Any  # an int, None, or a tree prefix of them
SpmdNames: TypeAlias = "str | tuple[str, ...] | None"


@overload
def vmap(
    f: Program[P, R],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    *,
    axis_size: int,
    axis_name: str | None = None,
    spmd_axis_name: SpmdNames = None,
) -> Program[P, R]: ...
@overload
def vmap(
    f: Callable[P, R],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    spmd_axis_name: SpmdNames = None,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[P, R]: ...
def vmap(
    f: Any,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    spmd_axis_name: SpmdNames = None,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Any:
    """Map over a new axis of the arguments.

    `in_axes` is a tree prefix of the tuple of positional arguments: an int is the mapped axis of a leaf (negative:
    counted from the end), None means that the leaf is not mapped. Keyword arguments are mapped over axis 0. `out_axes`
    is a prefix of the results; None requires a result that does not vary. `axis_size` is the number of examples; without
    it, it is read from the arguments. A program with `axis_size` becomes a program, without it a function.

    `axis_name` names the axis for collectives in `f`, such as `lax.psum(x, "i")`. They become operations on the stack.

    `spmd_axis_name` names axes of the mesh that divide the new axis where `f` has sharding constraints. A function
    without them has no value to divide.

    Static arguments, by number or by name, are hashable values, given to `f` as they are, besides those that `f` declares
    itself. They have entries in `in_axes`, None or an int, which mean nothing.

    Law:    equals the stack of results for each index; identity, composition; commutes with jvp and grad.
    Cost:   no loop: each equation once, over the stack.
    Raises: AxisError, ShapeError, TreeError, ArgumentError naming the argument's path; AxisNameError for a name in use,
            and for collectives that some examples only reach.
    """
    spmd = _spmd_names(spmd_axis_name)
    if isinstance(f, Program):
        check_no_statics("vmap", f, static_argnums, static_argnames)
    if isinstance(f, Program) and axis_size is not None:
        return _vmap(f, in_axes, out_axes, axis_size, axis_name, spmd)
    check_function("vmap", f)
    name, names = function_name(f), parameter_names(f)
    statics = static_arguments(f"vmap of {name}", f, static_argnums, static_argnames)

    @wraps(f, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        g, args, kwargs = bind_static_arguments("vmap", f, statics, args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))
        if any(map(is_setting, leaves)):
            unmapped = [d is None for d in flatten_axes(in_axes, in_tree, f"vmap of {name}: in_axes")]
            held = [u and is_setting(x) for u, x in zip(unmapped, leaves, strict=True)]
            g, args, kwargs = hold_settings(g, leaves, in_tree, held)
            leaves, in_tree = tree.flatten((args, kwargs))
        avals = types_of(f"vmap of {name}", f, leaves, in_tree)
        paths = [argument_path(a, names) for a in in_tree.accessors()]
        axes = flatten_axes(in_axes, in_tree, f"vmap of {name}: in_axes")
        dims = [
            normalize_dim(d, a.ndim, f"vmap of {name}: argument {p}", _IN)
            for d, a, p in zip(axes, avals, paths, strict=True)
        ]
        size = infer_size(f"vmap of {name}", axis_size, avals, dims, paths)
        single = [a if d is None else without_axis(a, d) for a, d in zip(avals, dims, strict=True)]
        axis = new_axis(f"vmap of {name}", axis_name, size)
        with mapped_over(axis):
            program = trace_tree(g, in_tree, single, name, names)
        return _vmap_program(program, dims, out_axes, axis, spmd)(*args, **kwargs)

    mapped.__name__ = f"vmap_{name}"

    def declare(numbers: Sequence[int], names: Sequence[str]) -> Callable[..., Any]:
        whole: Any = vmap
        made: Callable[..., Any] = whole(
            f,
            in_axes,
            out_axes,
            axis_size=axis_size,
            axis_name=axis_name,
            spmd_axis_name=spmd,
            static_argnums=numbers,
            static_argnames=names,
        )
        return made

    attach_declaration(mapped, statics, declare)
    return mapped


def _spmd_names(given: SpmdNames) -> tuple[str, ...]:
    """The axes of a mesh that divide the mapped axis. Raises: ArgumentError."""
    names = () if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(names, tuple) or not all([isinstance(n, str) and n for n in names]):
        raise ArgumentError(
            f"vmap: spmd_axis_name is {described(given)}: {given!r:.60}", remedy="give a name or a tuple of names"
        )
    return names


_IN: Final = "in_axes says where an argument carries the axis; None there is for what is the same for all"
OUT_AXES: Final = "out_axes says where a result shall carry the axis, which it has besides its own"


def is_axis(x: object) -> bool:
    """Returns True for an int, or what converts to one, or None."""
    if x is None or type(x) is int:
        return True
    if isinstance(x, bool | np.bool_):
        return False
    try:
        index(cast("SupportsIndex", x))
    except TypeError:
        return False
    return True


def check_kinds(what: str, axes: Axes) -> None:
    """Check that entries are axes. Raises: ArgumentError."""
    for entry in tree.leaves(axes):
        if not is_axis(entry):
            is_whole = entry is axes
            raise ArgumentError(
                f"{what}{'' if is_whole else ' has an entry that'} is {described(entry)}: {entry!r:.60}",
                remedy="an entry is an int, or None for what is not mapped: give one for all, or a tree of them",
            )


def flatten_axes(in_axes: Axes, in_tree: Structure, what: str) -> list[int | None]:
    """The mapped axis of each argument leaf. Raises: ArgumentError, TreeError."""
    check_kinds(what, in_axes)
    args, kwargs = in_tree.children()
    prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(prefix, tuple) and len(prefix) != args.num_children:
        raise ArgumentError(
            f"{what} has {count_text(len(prefix), 'entry', 'entries')} for {count_text(args.num_children, 'positional argument')}",
            remedy="give one entry per positional argument, or one int for all; keyword arguments are mapped over axis 0",
        )
    return [*tree.broadcast_prefix(prefix, args, what, is_axis), *[0] * kwargs.num_leaves]


def normalize_dim(dim: int | None, ndim: int, what: str, remedy: str = _IN) -> int | None:
    """An axis counted from the front. Raises: AxisError."""
    if dim is None:
        return None
    dim = index(dim)
    if not -ndim <= dim < ndim:
        axes = count_text(ndim, "axis", "axes")
        raise AxisError(f"{what}: axis {dim} does not exist in an array with {axes}", remedy=remedy)
    return dim % ndim


def _number(what: str, size: int) -> int:
    if size is None or not is_axis(size) or index(size) < 0:
        raise ParameterError(f"{what}: axis_size is {size!r}, not a number of examples", remedy="give an int >= 0")
    return index(size)


def without_axis(aval: Aval, dim: int) -> Aval:
    """The type of a slice."""
    return aval.with_shape((*aval.shape[:dim], *aval.shape[dim + 1 :]))


def infer_size(
    what: str, given: int | None, avals: Sequence[Aval], dims: Sequence[int | None], paths: Sequence[str]
) -> int:
    """The number of examples. Raises: ShapeError, ArgumentError, ParameterError."""
    found = {} if given is None else {_number(what, given): ["axis_size"]}
    for a, d, p in zip(avals, dims, paths, strict=True):
        if d is not None:
            found.setdefault(a.shape[d], []).append(f"axis {d} of {p}, {a}")
    if not found:
        raise ArgumentError(f"{what}: no argument is mapped", remedy="give in_axes an int, or pass axis_size")
    if len(found) > 1:
        sizes = "; ".join([f"{size}: {', '.join(whose)}" for size, whose in found.items()])
        raise ShapeError(f"{what}: sizes of the mapped axis differ: {sizes}", remedy=_IN)
    (size,) = found
    return size


def _vmap(
    program: Program[Any, Any], in_axes: Axes, out_axes: Axes, size: int, name: str | None, spmd: tuple[str, ...]
) -> Program[Any, Any]:
    what = f"vmap of {program.name}: in_axes"
    axes = flatten_axes(in_axes, program.in_tree, what)
    size = _number(f"vmap of {program.name}", size)
    # in_axes are axes of the stacked argument, which has the mapped axis too
    dims = [
        normalize_dim(d, a.ndim + 1, f"vmap of {program.name}: argument {p}", _IN)
        for d, a, p in zip(axes, program.in_avals, program.paths, strict=True)
    ]
    axis = MappedAxis(size, name) if name is None else new_axis(f"vmap of {program.name}", name, size)
    known = dict(program.jaxpr.free_axes).get(name or "", size)
    if known != size:
        raise AxisNameError(
            f"vmap of {program.name}: axis_size is {size}, the program was traced with axis {name!r} of size {known}",
            remedy=f"trace it with axis_env={{{name!r}: {size}}}, or map over {known} examples",
        )
    return _vmap_program(program, dims, out_axes, axis, spmd)


def _vmap_program(
    program: Program[Any, Any],
    dims: Sequence[int | None],
    out_axes: Axes,
    axis: MappedAxis,
    spmd: tuple[str, ...] = (),
) -> Program[Any, Any]:
    what = f"vmap of {program.name}"
    check_kinds(f"{what}: out_axes", out_axes)
    axes = tree.broadcast_prefix(out_axes, program.out_tree, f"{what}: out_axes", is_axis)
    paths = tree.paths(program.out_tree, "result")
    out_dims = tuple(
        [
            normalize_dim(d, a.ndim + 1, f"{what}: {p}", OUT_AXES)
            for d, a, p in zip(axes, program.out_avals, paths, strict=True)
        ]
    )
    in_dims = (*[None] * len(program.bound), *dims)
    if None in out_dims:
        _, result_dims = vmap_named(program.jaxpr, axis.size, axis.name, in_dims, None, spmd)
        for p, wanted, d in zip(paths, out_dims, result_dims, strict=True):
            if wanted is None and d is not None:
                raise ShapeError(
                    f"{what}: {p} varies with the mapped arguments, but its out_axes is None",
                    remedy="give the axis at which its values are to be stacked",
                )
    jaxpr, _ = vmap_named(program.jaxpr, axis.size, axis.name, in_dims, out_dims, spmd)
    out: Program[Any, Any] = program.replace(jaxpr, name=f"vmap_{program.name}")
    return out
