"""Parts of all public transformations: the program of a function, checks of what users pass, the trees of tangents.

A transformation works on programs. These functions get it there from a function and the arguments of a call; each uses
those below it:

| function | takes | gives | used by |
|---|---|---|---|
| `lift` | a function or a program, a transformation | the transformed function, which traces at each call | `grad`, `hessian`, `dce`, `cast`: all whose result the user calls |
| `trace_at_values` | a function, the arguments of a call | its program, with operands for leaves that have tangents | `jvp`, `vjp`, `linearize`, `jet`: all that take a point |
| `trace_for_transform` | a function, the arguments of a call | its program, with operands for all leaves | the two above, `sparse_jacobian`, `equal` |
| `before_differentiation` | a program | the program, after the passes that run before | the one above, and all that take a program |
| `bind_passed_arguments` | a function, arguments | a function of those that are not passed through | `lift`, `trace_at_values` |
| `bind_static_arguments` | a function, arguments | a function of those that are not static | `lift`, `trace_at_values`, `vmap`, `inverse` |

`tracing.program.trace_for_call` is below them: a plain trace, without passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from fxad.api.decorator_form import check_options
from fxad.core.trees import parts as tree_parts, tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.ir import Aval, Jaxpr
from fxad.operations.arguments import argument_keys
from fxad.passes import BEFORE_DIFFERENTIATION, run_passes
from fxad.tracing import context
from fxad.tracing.pass_through import has_tangent, may_pass_through, passes_through, with_passed_leaves
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import (
    Argnames,
    Argnums,
    FunctionCall,
    StaticArguments,
    attach_declaration,
    static_arguments,
)
from fxad.tracing.trace import flatten_call, trace_for_call

P = ParamSpec("P")
R = TypeVar("R")


def lift(
    what: str,
    f: Callable[..., object],
    transform: Callable[[Program[..., object]], Program[..., object]],
    orders: int = 0,
    argnums: Argnums | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[..., object]:
    """Return `transform(f)` for a program; for a callable, a function that traces it, transforms and calls the result.

    `orders`: how often the transformation differentiates; `argnums`: by which arguments, none of them static. A
    transformation without `argnums` does not differentiate by any.
    """
    check_options(what, (argnums,))
    if isinstance(f, Program):
        check_no_statics(what, f, static_argnums, static_argnames)
        return transform(before_differentiation(f) if orders else f)
    check_function(what, f)
    statics = static_arguments(f"{what} of {function_name(f)}", f, static_argnums, static_argnames)

    @wraps(f, updated=())
    def transformed(*args: object, **kwargs: object) -> object:
        g, args, kwargs = bind_static_arguments(what, f, statics, args, kwargs, argnums)
        if argnums is None:  # nothing is differentiated: arrays and scalars of NumPy are arguments of the program
            g, args, kwargs = bind_passed_arguments(g, args, kwargs, (), passes_through)
        else:
            g, args, kwargs = bind_passed_arguments(g, args, kwargs, argnums)
        program = trace_for_transform(g, args, kwargs, orders) if orders else trace_for_call(g, args, kwargs)
        return transform(program)(*args, **kwargs)

    transformed.__name__ = f"{what}_{function_name(f)}"
    attach_declaration(
        transformed,
        statics,
        lambda numbers, names: lift(what, f, transform, orders, argnums, tuple(numbers), tuple(names)),
    )
    return transformed


def bind_static_arguments(
    what: str,
    f: Callable[..., object],
    statics: StaticArguments | None,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    argnums: Argnums | None = None,
) -> FunctionCall:
    """Return a function with the static values of a call, and the arguments, with None for those.

    Raises: ArgumentError for a static value that is not hashable, also in a tree, and for argnums that choose one.
    """
    if statics is not None:
        if argnums is not None:
            statics.check_not_static(what, argnums, len(args))
        f, args, kwargs = statics.with_placeholders(args, kwargs)
    flatten_call(f"{what} of {function_name(f)}", f, args, kwargs)  # for its error, which names the user's argument
    return f, args, kwargs


# ------------------------------------------------------------------------------------------ passed-through arguments


def bind_passed_arguments(
    f: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    argnums: Argnums,
    is_passed: Callable[[object], bool] = may_pass_through,
) -> FunctionCall:
    """Return `with_passed_leaves` for the arguments that `argnums` does not choose, and of these for the leaves with
    `is_passed`."""
    n = len(args)
    differentiated = {k + n if k < 0 else k for k in argument_keys(argnums, int) or ()}
    others = [None if k in differentiated else a for k, a in enumerate(args)]
    if not any([is_passed(x) for x in tree.leaves((others, kwargs))]):
        return f, args, kwargs
    leaves, structure = tree.flatten((args, kwargs))
    argument_of_leaf = [k for k, a in enumerate(args) for _ in tree.leaves(a)]
    argument_of_leaf += [n] * (len(leaves) - len(argument_of_leaf))  # of keyword arguments
    passed = [k not in differentiated and is_passed(x) for k, x in zip(argument_of_leaf, leaves, strict=True)]
    return with_passed_leaves(f, leaves, structure, passed)


def trace_at_values(
    what: str,
    f: Callable[..., object],
    statics: StaticArguments | None,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    argnums: Argnums | None = None,
    orders: int = 1,
) -> tuple[Program[..., object], tuple[object, ...], dict[str, object]]:
    """Return `trace_for_transform` of a function at the arguments that have tangents, and these arguments; None stands
    for the others. The function is differentiated by the arguments `argnums`, or by all positional ones.

    Passed through are keyword arguments, positional ones that are not in `argnums`, and leaves without a tangent:
    integers, bools and everything that is not an array.
    """
    g, args, kwargs = bind_static_arguments(what, f, statics, args, kwargs, argnums)
    if argnums is not None:
        g, args, kwargs = bind_passed_arguments(g, args, kwargs, argnums)
    leaves, structure = tree.flatten((args, kwargs))
    n = len(leaves) - len(tree.leaves(kwargs))
    passed = [may_pass_through(x) and (k >= n or not has_tangent(x)) for k, x in enumerate(leaves)]
    g, args, kwargs = with_passed_leaves(g, leaves, structure, passed)
    return trace_for_transform(g, args, kwargs, orders), args, kwargs


def check_no_statics(what: str, program: Program[..., object], argnums: Argnums, argnames: Argnames) -> None:
    """Raise ArgumentError for static arguments of a program."""
    if argument_keys(argnums) != () or argument_keys(argnames) != ():
        raise ArgumentError(
            f"{what}: {program.name} is a Program, which has no static arguments",
            remedy=f"{what} the function, or give them to trace as static_argnames",
        )


def trace_for_transform(
    f: Callable[..., R], args: tuple[object, ...], kwargs: dict[str, object], orders: int = 1
) -> Program[..., R]:
    """Return the program of a function that is differentiated `orders` times, after the passes before
    differentiation."""
    with context.differentiated(orders):
        return before_differentiation(trace_for_call(f, args, kwargs, differentiated=True))


def before_differentiation(program: Program[P, R]) -> Program[P, R]:
    """Return a program that is differentiated as a whole, after the passes before differentiation. A function is traced
    first, so both give one program.

    Law: idempotent.
    """
    return program.replace(run_passes(program.jaxpr, BEFORE_DIFFERENTIATION))


def check_function(what: str, f: object) -> None:
    """Raise ArgumentError for what is not callable."""
    if not callable(f):
        raise ArgumentError(
            f"{what}: {described(f)} is neither a Program nor a function: {shown(f)}",
            remedy="pass the function itself, or trace(f, *examples)",
        )


def check_program(what: str, program: object, other_arguments: str = "") -> None:
    """Raise ArgumentError for a value that is not a Program. `other_arguments` are those of the remedy."""
    if not isinstance(program, Program):
        raise ArgumentError(
            f"{what}: takes a Program, got {shown(program)}",
            remedy=f"trace the function first: {what}(trace(f, *examples){other_arguments})",
        )


def tangent_tree(structure: Structure, avals: Sequence[Aval]) -> Structure:
    """Return the structure of tangents, with None for a leaf without a tangent (integers, bools)."""
    return tree_parts.with_subtrees(structure, [tree.LEAF if a.inexact else _NONE for a in avals])


_NONE: Final = tree.structure(None)


def select_outs(jaxpr: Jaxpr, order: Sequence[int]) -> Jaxpr:
    """Return the program with the results at the indices `order`."""
    outs = tuple([jaxpr.outs[k] for k in order])
    return jaxpr if outs == jaxpr.outs else jaxpr.with_outs(outs)


def check_no_reduce_axes(what: str, reduce_axes: Sequence[str]) -> None:
    """Raise ParameterError for axes over which JAX once summed cotangents."""
    if not isinstance(reduce_axes, tuple | list) or reduce_axes:
        raise ParameterError(
            f"{what}: reduce_axes is {shown(reduce_axes)}", remedy="sum over the named axis in the function: lax.psum"
        )
