"""Shapes with named sizes, as users write them: tree prefixes, and the types of arguments that they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from fxad.core.sizes.polynomials import SizeName, names_of
from fxad.core.sizes.size import named_size, substitute_sizes
from fxad.core.sizes.text import read_shapes
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, ShapeError
from fxad.ir import Aval
from fxad.operations.number_types import CallType
from fxad.tracing.program import Program, argument_path, count_text, function_name
from fxad.tracing.trace import parameter_names, trace_tree, types_of, unify_assumptions

Shapes: TypeAlias = object  # a tree prefix of shapes: texts as "(n, _)", tuples of ints, sizes and None, or None
_Shape: TypeAlias = tuple[int | None, ...] | None  # None: the whole shape, or a dimension, is that of the array
FITTING: Final = "one size for each axis; _ is the size that the array has"


def is_shape(x: object) -> bool:
    """Return True for one shape: a leaf of a tree prefix."""
    return (
        x is None
        or isinstance(x, str)
        or (
            isinstance(x, tuple)
            and all([n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in x])
            and any([n is not None for n in x])
        )
    )


def read_prefix(shapes: Sequence[str | _Shape]) -> list[_Shape]:
    """Return shapes as tuples; the texts share their assumptions."""
    texts = iter(read_shapes([s for s in shapes if isinstance(s, str)]))
    return [next(texts) if isinstance(s, str) else s for s in shapes]


def trace_symbolic(
    what: str, f: Callable[..., object], in_shapes: Shapes, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[Program[..., object], Mapping[str, str]]:
    """Return the program of symbolic shape for arguments, and the user's names of sizes that it has by other names.

    Raises: ShapeError, TreeError, ArgumentError for shapes that do not fit the arguments.
    """
    leaves, in_tree = tree.flatten((args, kwargs))
    exact = types_of(f"{what} of {function_name(f)}", f, leaves, in_tree)
    avals, user_names = symbolic_types(what, f, in_shapes, exact, in_tree)
    return trace_tree(f, in_tree, avals, function_name(f), parameter_names(f)), user_names


def symbolic_types(
    what: str,
    f: Callable[..., object],
    in_shapes: Shapes,
    exact: Sequence[CallType],
    in_tree: Structure,
    role: str = "in_shapes",
) -> tuple[tuple[CallType, ...], Mapping[str, str]]:
    """Return the types of arguments with the sizes that `in_shapes` names, and the user's names of those that were
    taken. `role` is the name of `in_shapes` in messages."""
    name, parameters = function_name(f), parameter_names(f)
    positional, keywords = in_tree.children()
    prefix = tuple(in_shapes) if isinstance(in_shapes, list) else in_shapes
    if isinstance(prefix, str) or (isinstance(prefix, tuple) and is_shape(prefix) and not _entries(prefix, positional)):
        prefix = (prefix,) * positional.num_children
    if isinstance(prefix, tuple) and len(prefix) != positional.num_children:
        raise ArgumentError(
            f"{what} of {name}: {role} has {count_text(len(prefix), 'entry', 'entries')} for "
            f"{count_text(positional.num_children, 'positional argument')}",
            remedy="give one entry per positional argument; None for an array without named sizes",
        )
    entries = tree.broadcast_prefix(prefix, positional, f"{what} of {name}: {role}", is_shape)
    shapes = [*read_prefix(entries), *[None] * keywords.num_leaves]
    taken = {n.name for aval in exact for size in aval.shape for n in names_of(size)}
    renamed = {n: _unused_name(n, taken) for s in shapes for n in _names_in_shape(s) if n.name in taken}
    avals: list[CallType] = []
    for aval, shape, accessor in zip(exact, shapes, in_tree.accessors(), strict=True):
        path = argument_path(accessor, parameters)
        if shape is not None and len(shape) != aval.ndim:
            raise ShapeError(
                f"{what} of {name}: {role} says {shown_shape(shape)} for argument {path}, which is {aval}",
                remedy=FITTING,
            )
        dims: list[int] = []
        for k, (n, m) in enumerate(zip(shape or [None] * aval.ndim, aval.shape, strict=True)):
            if type(n) is int and n != m:
                raise ShapeError(
                    f"{what} of {name}: {role} says {n} for size {k} of argument {path}, which is {m}",
                    remedy=FITTING,
                )
            dims.append(m if n is None else substitute_sizes(n, {a.name: b for a, b in renamed.items()}))
        avals.append(Aval(dims, aval.dtype) if isinstance(aval, Aval) else aval)  # a number keeps its type
    user_names = {names_of(new)[0].name: old.name for old, new in renamed.items()}
    return unify_assumptions(avals), user_names


def _entries(prefix: tuple[object, ...], positional: Structure) -> bool:
    """Return True if a tuple has an entry for each positional argument, rather than the sizes of one shape."""
    return len(prefix) == positional.num_children and all([n is None or isinstance(n, str | tuple) for n in prefix])


def _names_in_shape(shape: _Shape) -> tuple[SizeName, ...]:
    return tuple([name for n in shape or () for name in names_of(n)])


def _unused_name(name: SizeName, taken: set[str]) -> int:
    """Return the size under a name that the enclosing program does not use."""
    k = 1
    while f"{name.name}_{k}" in taken:
        k += 1
    return named_size(f"{name.name}_{k}", name.at_least)


def shown_shape(shape: Sequence[int | None]) -> str:
    """Return a shape in a message: `(n, _)`."""
    return f"({', '.join(['_' if n is None else str(n) for n in shape])}{',' if len(shape) == 1 else ''})"
