"""Parts of all public transformations: the program of a function, the trees of tangents and of calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final, TypeAlias, TypeVar

import numpy as np

from fxad.core import tree
from fxad.core.tree import StaticDataError, Structure
from fxad.errors import ArgumentError, ParameterError, TracerError, described, shown
from fxad.ir import Aval, Jaxpr
from fxad.operations.arguments import argument_keys
from fxad.passes import BEFORE_DIFFERENTIATION, run_passes
from fxad.tracing import context
from fxad.tracing.array import Array
from fxad.tracing.program import Program, flatten_call, function_name, trace_for_call
from fxad.tracing.static_args import (
    Argnames,
    Argnums,
    FunctionCall,
    StaticArguments,
    attach_declaration,
    static_arguments,
)

R = TypeVar("R")

# Says which leaves of the arguments are static: a function gets these as they are, and is traced for each value.
IsStatic: TypeAlias = Callable[[object], bool]


def lift(
    what: str,
    f: Callable[..., object],
    transform: Callable[[Program[..., object]], Program[..., object]],
    orders: int = 0,
    argnums: Argnums | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[..., object]:
    """`transform(f)` for a program; for a callable, a function that traces it, transforms and calls the result.

    `orders`: how often the transformation differentiates; `argnums`: by which arguments, none of them static.
    """
    if isinstance(f, Program):
        check_no_statics(what, f, static_argnums, static_argnames)
        return transform(f)
    check_function(what, f)
    statics = static_arguments(f"{what} of {function_name(f)}", f, static_argnums, static_argnames)

    @wraps(f, updated=())
    def transformed(*args: object, **kwargs: object) -> object:
        program, args, kwargs = trace_with_static(what, f, statics, args, kwargs, argnums, orders)
        return transform(program)(*args, **kwargs)

    transformed.__name__ = f"{what}_{function_name(f)}"
    attach_declaration(
        transformed,
        statics,
        lambda numbers, names: lift(what, f, transform, orders, argnums, tuple(numbers), tuple(names)),
    )
    return transformed


def trace_with_static(
    what: str,
    f: Callable[..., object],
    statics: StaticArguments | None,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    argnums: Argnums | None,
    orders: int = 0,
) -> tuple[Program[..., object], tuple[object, ...], dict[str, object]]:
    """The program of a function for a call, and the arguments, with None for static ones.

    Static are those that `statics` declares, and, unless `argnums` is None, leaves of the arguments that it does not
    choose: strings, bools and functions, and numbers if `f` needs the value of one. `orders` is that of `lift`.
    """
    g, args, kwargs = bind_static_arguments(what, f, statics, args, kwargs, argnums)

    def trace_with(is_static: IsStatic) -> tuple[Program[..., object], tuple[object, ...], dict[str, object]]:
        call = (g, args, kwargs) if argnums is None else with_static_others(g, args, kwargs, argnums, is_static)
        program = trace_for_transform(*call, orders) if orders else trace_for_call(*call)
        return program, call[1], call[2]

    return trace_again_if_static(trace_with, () if argnums is None else (args, kwargs))


def importable_name(f: object) -> str | None:
    """The name by which pickle finds a decorated function in its module, as for a function after `@jit`; None if the
    module has another object under that name, or is a script whose functions are pickled by value."""
    name: object = getattr(f, "__qualname__", None)
    module = str(getattr(f, "__module__", None))
    value: object = sys.modules.get(module)
    if not isinstance(name, str) or (module == "__main__" and pickles_by_value()):
        return None
    for part in name.split("."):
        value = getattr(value, part, None)
    return name if value is f else None


def pickles_by_value() -> bool:
    """Returns True if this process has imported a library that pickles functions by value. joblib and ray have a copy."""
    return any([name.rpartition(".")[2] in ("cloudpickle", "dill") for name in list(sys.modules)])


def bind_static_arguments(
    what: str,
    f: Callable[..., object],
    statics: StaticArguments | None,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    argnums: Argnums | None = None,
) -> FunctionCall:
    """A function with the static values of a call, and the arguments, with None for those.

    Raises: ArgumentError for a static value that is not hashable, also in a tree, and for argnums that choose one.
    """
    if statics is not None:
        if argnums is not None:
            statics.check_not_static(what, argnums, len(args))
        f, args, kwargs = statics.with_placeholders(args, kwargs)
    flatten_call(f"{what} of {function_name(f)}", f, args, kwargs)
    return f, args, kwargs


def is_always_static(x: object) -> bool:
    """Returns True for a leaf that is never traced: a bool of Python, a string, a function."""
    return type(x) is bool or isinstance(x, str) or (callable(x) and not isinstance(x, Array | np.ndarray | np.generic))


def may_be_static(x: object) -> bool:
    """Returns True for a leaf that is always static, and for a value that may be a shape, an axis or an index: a
    number, or an array of NumPy with integers or bools."""
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "iub"
    return is_always_static(x) or isinstance(x, int | float | complex | np.generic)


def trace_again_if_static(trace_with: Callable[[IsStatic], R], args: object) -> R:
    """Trace with numbers as operands. If the function needs the value of one, trace again with all numbers static.

    First `trace_with(is_always_static)`: a number is an operand, so that one program serves all numbers. A function that
    needs the value of one, as a shape, an axis or a condition, fails. Then `trace_with(may_be_static)`: all numbers are
    static. A TypeError or an AttributeError may have this reason too, so the function is run again after it. Every other
    failure is the user's own, and the function is not run again.

    Raises: if both fail, the first error, or the second if it is of the same class or the first is that a tracer has no
            value.
    """
    try:
        candidates = any(map(may_be_static, tree.leaves(args)))
    except StaticDataError:  # the trace names the argument
        candidates = False
    if not candidates:
        return trace_with(is_always_static)
    traced_candidate = False

    def is_static(x: object) -> bool:
        nonlocal traced_candidate
        static = is_always_static(x)
        traced_candidate = traced_candidate or (not static and may_be_static(x))
        return static

    try:
        return trace_with(is_static)
    except Exception as e:
        needs_value = _needs_value(e)
        if not traced_candidate or not (needs_value or isinstance(e, TypeError | AttributeError)):
            raise
        first = e
    try:
        try:
            return trace_with(may_be_static)
        except Exception as second:
            if needs_value or type(first) is type(second):
                raise
        raise first
    finally:
        del first  # its traceback refers to this frame


def _needs_value(e: BaseException | None) -> bool:
    """Returns True if an error is that a tracer has no value, or follows from one."""
    return e is not None and (isinstance(e, TracerError) or _needs_value(e.__cause__ or e.__context__))


def with_static_leaves(
    f: Callable[..., object], leaves: Sequence[object], structure: Structure, static: Sequence[bool]
) -> FunctionCall:
    """A function with the static leaves that `static` marks, and its arguments, with None in place of these."""

    @wraps(f, updated=())
    def with_values(*args: object, **kwargs: object) -> object:
        others = tree.flatten_up_to(structure, (args, kwargs)) or ()
        args, kwargs = tree.unflatten(
            structure, [x if fixed else y for fixed, x, y in zip(static, leaves, others, strict=True)]
        )
        return f(*args, **kwargs)

    args, kwargs = tree.unflatten(structure, [None if fixed else x for fixed, x in zip(static, leaves, strict=True)])
    return with_values, args, kwargs


def with_static_others(
    f: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], argnums: Argnums, is_static: IsStatic
) -> FunctionCall:
    """`with_static_leaves` for the arguments by which a function is not differentiated."""
    n = len(args)
    differentiated = {k + n if k < 0 else k for k in argument_keys(argnums, int) or ()}
    others = [None if k in differentiated else a for k, a in enumerate(args)]
    if not any([is_static(x) for x in tree.leaves((others, kwargs))]):
        return f, args, kwargs
    leaves, structure = tree.flatten((args, kwargs))
    argument_of_leaf = [k for k, a in enumerate(args) for _ in tree.leaves(a)]
    argument_of_leaf += [n] * (len(leaves) - len(argument_of_leaf))  # of keyword arguments
    static = [k not in differentiated and is_static(x) for k, x in zip(argument_of_leaf, leaves, strict=True)]
    return with_static_leaves(f, leaves, structure, static)


def check_no_statics(what: str, program: Program[..., object], argnums: Argnums, argnames: Argnames) -> None:
    """Raises: ArgumentError for static arguments of a program."""
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
        program = trace_for_call(f, args, kwargs)
    return program.replace(run_passes(program.jaxpr, BEFORE_DIFFERENTIATION))


def check_function(what: str, f: object) -> None:
    """Raises: ArgumentError for what is not callable."""
    if not callable(f):
        raise ArgumentError(
            f"{what}: {described(f)} is neither a Program nor a function: {shown(f)}",
            remedy="pass the function itself, or trace(f, *examples)",
        )


def check_program(what: str, program: object, further: str = "") -> None:
    """Raises: ArgumentError for a value that is not a Program. `further` are other arguments, for the remedy."""
    if not isinstance(program, Program):
        raise ArgumentError(
            f"{what}: takes a Program, got {shown(program)}",
            remedy=f"trace the function first: {what}(trace(f, *examples){further})",
        )


def tangent_tree(structure: Structure, avals: Sequence[Aval]) -> Structure:
    """Return the structure of tangents, with None for a leaf without a tangent (integers, bools)."""
    return tree.with_subtrees(structure, [_LEAF if a.inexact else _NONE for a in avals])


_LEAF: Final = tree.structure(0)
_NONE: Final = tree.structure(None)


def select_outs(jaxpr: Jaxpr, order: Sequence[int]) -> Jaxpr:
    """Return the program with the results at the indices `order`."""
    outs = tuple([jaxpr.outs[k] for k in order])
    return jaxpr if outs == jaxpr.outs else Jaxpr(jaxpr.ins, jaxpr.eqns, outs, jaxpr.name)


def check_no_reduce_axes(what: str, reduce_axes: Sequence[str]) -> None:
    """Raises: ParameterError for axes over which JAX once summed cotangents."""
    if not isinstance(reduce_axes, tuple | list) or reduce_axes:
        raise ParameterError(
            f"{what}: reduce_axes is {shown(reduce_axes)}", remedy="sum over the named axis in the function: lax.psum"
        )
