"""`sparsity`: the pattern of the Jacobian of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.api.chosen_arguments import ChosenArguments, operand_flags
from fxad.api.lift import before_differentiation, bind_static_arguments, check_function, trace_for_transform
from fxad.core.trees import tree
from fxad.errors import ArgumentError, NotDifferentiableError, SizeError, TracerError, described
from fxad.tracing.array import Array
from fxad.tracing.program import Program, fit_leaves, function_name, leaves_of_call
from fxad.tracing.static_args import Argnums, static_arguments
from fxad.tracing.tracer import Tracer
from fxad.transforms.sparse.pattern import Pattern, pattern_of, pattern_with_values
from fxad.transforms.sparse.records import last_pattern


def sparsity(f: Callable[..., object], argnums: Argnums = 0, *, at: Sequence[object] | None = None) -> Pattern:
    """Return the pattern of the Jacobian of a program: which of its entries may differ from zero.

    The pattern holds for all values of the arguments; closed-over indices and masks are read as values. With `at`, a
    tuple of the arguments, indices, masks and branches are those at these values. In a loop, indices that are known are
    read for each step. A function that is no program needs `at`, for the types of its arguments; `trace(f, *specs)` does
    without. Rows are the elements of all results, columns those of the chosen arguments; `pattern.block(i, j)` is that of
    two leaves.

    Law:    every nonzero of the Jacobian is in the pattern.
    Rule:   the pattern of the linear program of `linearize`; so `sparsity(grad(program))` is that of the Hessian.
    Raises: NotDifferentiableError for integer results and arguments; ArgumentError.
    """
    program, args = program_and_point("sparsity", f, at)
    return pattern_of_jacobian("sparsity", program, argnums, args)


def program_and_point(
    what: str, f: Callable[..., object], at: Sequence[object] | None
) -> tuple[Program[..., object], Any]:
    """Return a function or program as a program, and the values of its arguments, if they are given."""
    if at is not None:
        check_is_tuple(what, at)
    if isinstance(f, Program):
        return before_differentiation(f), at
    check_function(what, f)
    if at is None:
        raise ArgumentError(
            f"{what}: a function has no types of arguments", remedy=f"{what}(trace(f, *specs)), or give at=(x, ...)"
        )
    g, at, _ = bind_static_arguments(what, f, static_arguments(f"{what} of {function_name(f)}", f), tuple(at), {})
    return trace_for_transform(g, at, {}), at


def check_is_tuple(what: str, at: object) -> None:
    """Raise ArgumentError for an `at` that is not a tuple or a list."""
    if not isinstance(at, tuple | list):
        raise ArgumentError(f"{what}: at is {described(at)}, not a tuple", remedy="give all arguments: at=(x, y)")


def values_at(what: str, program: Program[..., object], at: Sequence[object]) -> list[Any]:
    """Return the leaves of `at`, all arguments of a program, its keyword arguments after the positional ones.

    Raises: ArgumentError for another number of leaves, TreeError, ShapeError, DTypeError for other types.
    """
    check_is_tuple(what, at)
    leaves = tree.leaves((tuple(at), {}))
    if len(leaves) != len(program.in_avals):
        raise ArgumentError(
            f"{what}: at has {len(leaves)} leaves, {program.name} takes {len(program.in_avals)}",
            remedy="give all arguments of the program",
        )
    return fit_leaves(program, leaves if program.kwargs_tree.num_leaves else leaves_of_call(program, tuple(at), {}))


def arguments_of_jacobian(what: str, program: Program[..., object], argnums: Argnums) -> ChosenArguments:
    """Return the arguments of a Jacobian. Raises: NotDifferentiableError for integers among them or
    the results, SizeError for symbolic sizes."""
    if program.jaxpr.symbolic:
        raise SizeError(
            f"{what}: {program.name} is of symbolic shape: a pattern has numbers of rows and columns",
            remedy="give its sizes: specialize(program, n=...)",
        )
    chosen = ChosenArguments.by_number(what, program, argnums)
    for k in chosen.leaves:
        if not program.in_avals[k].inexact:
            raise NotDifferentiableError(
                f"{what}: argument {program.paths[k]} of {program.name} has type {program.in_avals[k]}, not floating",
                remedy="choose other argnums, or convert the argument to a floating dtype",
            )
    for k, aval in enumerate(program.out_avals):
        if not aval.inexact:
            raise NotDifferentiableError(
                f"{what}: result {k} of {program.name} has type {aval}, which has no derivative",
                remedy="return floating results only",
            )
    if chosen.leaves != sorted(chosen.leaves):
        raise ArgumentError(f"{what}: argnums {argnums!r} are not in increasing order", remedy="sort them")
    return chosen


def pattern_of_jacobian(
    what: str, program: Program[..., object], argnums: Argnums, at: Sequence[object] | None
) -> Pattern:
    """Return the pattern of the Jacobian in the chosen arguments: for all values of the arguments, or for those in `at`.

    Arrays that the program closes over are read as values in both cases.
    """
    chosen = arguments_of_jacobian(what, program, argnums)
    wrt = operand_flags(program, chosen.leaves)
    values = [*program.bound, *([None] * len(program.in_avals) if at is None else values_at(what, program, at))]
    if all([v is None for v in values]):
        return pattern_of(program.jaxpr, wrt)
    last = last_pattern(program.jaxpr, wrt)
    if (recorded := last.of(values)) is not None:
        return recorded
    known = [(lambda v=v: None if v is None else _concrete(v)) for v in values]
    pattern = pattern_with_values(program.jaxpr, wrt, known)
    if all([v is None or _can_be_recorded(v) for v in values]):
        last.set(values, pattern)
    return pattern


def _can_be_recorded(value: object) -> bool:
    """Return True for what `LastPattern` recognizes later: an array with values, of fxad or NumPy."""
    return isinstance(value, np.ndarray) or (isinstance(value, Array) and not isinstance(value, Tracer))


def _concrete(value: object) -> Any:
    """Return the value of an argument, or None for that of an enclosing trace."""
    try:
        return np.asarray(value)
    except TracerError:
        return None
