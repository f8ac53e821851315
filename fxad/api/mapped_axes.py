"""The axes of a map over arguments: `in_axes` and `out_axes` of `vmap`, `pmap` and `soft_pmap`, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Final, SupportsIndex, TypeAlias, final

import numpy as np

from fxad.api.lift import bind_static_arguments
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import Size
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, AxisError, AxisNameError, ParameterError, ShapeError, described, shown
from fxad.operations.number_types import CallType, NumberType
from fxad.tracing.context import MappedAxis, mapped_over
from fxad.tracing.pass_through import may_pass_through, with_passed_leaves
from fxad.tracing.program import Program, argument_path, count_text, function_name
from fxad.tracing.static_args import StaticArguments
from fxad.tracing.trace import parameter_names, trace_tree, types_of

AxesPrefix: TypeAlias = object  # an int, None, or a tree prefix of them

_IN_AXES: Final = "in_axes gives the mapped axis of each argument; None is for an argument that is the same for all"
_OUT_AXES: Final = "out_axes gives the place of the mapped axis in each result, which has it besides its own axes"


# ----------------------------------------------------------------------------------------------------- tree prefixes


def _is_axis(x: object) -> bool:
    """Return True for an int, or what converts to one, or None."""
    if x is None or type(x) is int:
        return True
    if isinstance(x, bool | np.bool_) or not isinstance(x, SupportsIndex):
        return False
    try:
        index(x)  # an array has `__index__`, and it may raise
    except TypeError:
        return False
    return True


def _check_axes(what: str, axes: AxesPrefix) -> None:
    """Check that entries are axes. Raises: ArgumentError."""
    for entry in tree.leaves(axes):
        if not _is_axis(entry):
            is_whole = entry is axes
            raise ArgumentError(
                f"{what}{'' if is_whole else ' has an entry that'} is {described(entry)}: {shown(entry)}",
                remedy="an entry is an int, or None for what is not mapped: give one for all, or a tree of them",
            )


def _flatten_axes(in_axes: AxesPrefix, in_tree: Structure, what: str) -> list[int | None]:
    """Return the mapped axis of each argument leaf. Raises: ArgumentError, TreeError."""
    _check_axes(what, in_axes)
    args, kwargs = in_tree.children()
    prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(prefix, tuple) and len(prefix) != args.num_children:
        raise ArgumentError(
            f"{what} has {count_text(len(prefix), 'entry', 'entries')} for {count_text(args.num_children, 'positional argument')}",
            remedy="give one entry per positional argument, or one int for all; keyword arguments are mapped over axis 0",
        )
    return [*tree.broadcast_prefix(prefix, args, what, _is_axis), *[0] * kwargs.num_leaves]


def _normalize_axis(axis: int | None, ndim: int, what: str, remedy: str = _IN_AXES) -> int | None:
    """Return an axis counted from the front. Raises: AxisError."""
    if axis is None:
        return None
    axis = index(axis)
    if not -ndim <= axis < ndim:
        axes = count_text(ndim, "axis", "axes")
        raise AxisError(f"{what}: axis {axis} does not exist in an array with {axes}", remedy=remedy)
    return axis % ndim


def _number_of_examples(what: str, size: int) -> int:
    if type(size) is Size and at_least(size, 0):
        return size
    if not _is_axis(size) or index(size) < 0:
        raise ParameterError(f"{what}: axis_size is {shown(size)}, not a number of examples", remedy="give an int >= 0")
    return index(size)


def _infer_size(
    what: str, axis_size: int | None, avals: Sequence[CallType], dims: Sequence[int | None], paths: Sequence[str]
) -> int:
    """Return the number of examples. Raises: ShapeError, ArgumentError, ParameterError."""
    sources = {} if axis_size is None else {_number_of_examples(what, axis_size): ["axis_size"]}
    for a, d, p in zip(avals, dims, paths, strict=True):
        if d is not None:
            sources.setdefault(a.shape[d], []).append(f"axis {d} of {p}, {a}")
    if not sources:
        raise ArgumentError(f"{what}: no argument is mapped", remedy="give in_axes an int, or pass axis_size")
    if len(sources) > 1:
        sizes = "; ".join([f"{size}: {', '.join(whose)}" for size, whose in sources.items()])
        raise ShapeError(f"{what}: sizes of the mapped axis differ: {sizes}", remedy=_IN_AXES)
    (size,) = sources
    return size


# ---------------------------------------------------------------------------------------------- arguments and results


@final
@dataclass(frozen=True, slots=True, eq=False)
class MappedArguments:
    """The arguments of a call of a mapped function `f`: their mapped axes, the types of one example, and the number of
    examples. `f` has the values of the static arguments and leaves; `args` and `kwargs` have None in place of them."""

    name: str
    names: tuple[str, ...]
    f: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    in_tree: Structure
    dims: list[int | None]
    example: list[CallType]
    size: int

    def trace(self, axis: MappedAxis) -> Program[..., object]:
        """Return the program of one example, traced inside the map."""
        with mapped_over(axis):
            return trace_tree(self.f, self.in_tree, self.example, self.name, self.names)


def mapped_arguments(
    op: str,
    f: Callable[..., object],
    statics: StaticArguments | None,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    in_axes: AxesPrefix,
    axis_size: int | None,
) -> MappedArguments:
    """Return the arguments of a call, checked. `op` is the name of the map. Raises: as `vmap`."""
    what, names = f"{op} of {function_name(f)}", parameter_names(f)
    g, args, kwargs = bind_static_arguments(op, f, statics, args, kwargs)
    leaves, in_tree = tree.flatten((args, kwargs))
    axes = _flatten_axes(in_axes, in_tree, f"{what}: in_axes")
    passed = [d is None and may_pass_through(x) for d, x in zip(axes, leaves, strict=True)]
    if any(passed):
        g, args, kwargs = with_passed_leaves(g, leaves, in_tree, passed)
        leaves, in_tree = tree.flatten((args, kwargs))
        axes = [d for d, fixed in zip(axes, passed, strict=True) if not fixed]
    avals = types_of(what, f, leaves, in_tree)
    paths = [argument_path(a, names) for a in in_tree.accessors()]
    dims = [_normalize_axis(d, a.ndim, f"{what}: argument {p}") for d, a, p in zip(axes, avals, paths, strict=True)]
    size = _infer_size(what, axis_size, avals, dims, paths)
    example = [
        a if d is None or isinstance(a, NumberType) else a.with_shape((*a.shape[:d], *a.shape[d + 1 :]))
        for a, d in zip(avals, dims, strict=True)
    ]
    return MappedArguments(function_name(f), names, g, args, kwargs, in_tree, dims, example, size)


def size_of_map(op: str, program: Program[..., object], axis_size: int | None, axis_name: str | None) -> int | None:
    """Return the number of examples of a map of a Program: `axis_size`, or the size of the axis that the program was
    traced with. None if neither is given. `op` is the name of the map.

    Raises: AxisNameError if the program was traced with another size; ParameterError.
    """
    what = f"{op} of {program.name}"
    traced = next((size for axis, size in program.jaxpr.free_axes if axis == axis_name), None)
    if axis_size is None:
        return traced
    size = _number_of_examples(what, axis_size)
    if traced not in (None, size):
        raise AxisNameError(
            f"{what}: axis_size is {size}, the program was traced with axis {axis_name!r} of size {traced}",
            remedy=f"trace it with axis_env={{{axis_name!r}: {size}}}, or map over {traced} examples",
        )
    return size


def mapped_axes_of_program(op: str, program: Program[..., object], in_axes: AxesPrefix) -> list[int | None]:
    """Return the mapped axes of the arguments of a Program. `op` is the name of the map. Raises: as `vmap`."""
    what = f"{op} of {program.name}"
    axes = _flatten_axes(in_axes, program.in_tree, f"{what}: in_axes")
    # in_axes are axes of the stacked argument, which has the mapped axis too
    return [
        _normalize_axis(d, a.ndim + 1, f"{what}: argument {p}")
        for d, a, p in zip(axes, program.in_avals, program.paths, strict=True)
    ]


def mapped_axes_of_results(
    what: str, program: Program[..., object], out_axes: AxesPrefix
) -> tuple[list[int | None], list[str]]:
    """Return the mapped axes of the results, and the paths of the results. Raises: ArgumentError, TreeError,
    AxisError."""
    _check_axes(f"{what}: out_axes", out_axes)
    axes = tree.broadcast_prefix(out_axes, program.out_tree, f"{what}: out_axes", _is_axis)
    paths = tree.paths(program.out_tree, "result")
    dims = [
        _normalize_axis(d, a.ndim + 1, f"{what}: {p}", _OUT_AXES)
        for d, a, p in zip(axes, program.out_avals, paths, strict=True)
    ]
    return dims, list(paths)
