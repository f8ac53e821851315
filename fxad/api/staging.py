"""JAX's functions that stage, inspect or wrap a function: `eval_shape`, `make_jaxpr`, `checkpoint`, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, overload

from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.directional import transpose
from fxad.api.lift import check_function, check_no_reduce_axes
from fxad.api.rewrite import remat
from fxad.core.trees import tree
from fxad.core.trees.classes import StaticDataError
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.ir import Aval
from fxad.lax.control.host import debug_callback
from fxad.tracing.array import Array, aval_of, evaluating, running_each_operation
from fxad.tracing.program import Program, count_text, function_name
from fxad.tracing.spec import Spec, spec_like
from fxad.tracing.static_args import Argnames, Argnums, static_arguments
from fxad.tracing.trace import trace, trace_for_call
from fxad.tracing.tracer import active_trace
from fxad.transforms.memory.policies import Policy

K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


# -------------------------------------------------------------------------------------------------- types of results


# A `Spec` stands for an Array, also in the usual containers. Any other tree has the type of the results.
# fmt: off
@overload
def eval_shape(fun: Callable[..., Array], /, *args: object, **kwargs: object) -> Spec: ...
@overload
def eval_shape(fun: Callable[..., tuple[Array, Array]], /, *args: object, **kwargs: object) -> tuple[Spec, Spec]: ...
@overload
def eval_shape(fun: Callable[..., tuple[Array, ...]], /, *args: object, **kwargs: object) -> tuple[Spec, ...]: ...
@overload
def eval_shape(fun: Callable[..., list[Array]], /, *args: object, **kwargs: object) -> list[Spec]: ...
@overload
def eval_shape(fun: Callable[..., dict[K, Array]], /, *args: object, **kwargs: object) -> dict[K, Spec]: ...
@overload
def eval_shape(fun: Callable[..., R], /, *args: object, **kwargs: object) -> R: ...
# fmt: on
def eval_shape(fun: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
    """Return the types of the results of a function, as a tree of `Spec`s, without computing them.

    Arguments are values, `Spec`s, or other objects with a shape and a dtype. A `Program` needs none.

    Raises: what a call of `fun` raises for arguments that do not fit.
    Cost:   one trace.
    """
    check_function("eval_shape", fun)
    args, kwargs = _typed((args, kwargs))
    program = fun if isinstance(fun, Program) and not (args or kwargs) else trace_for_call(fun, args, kwargs)
    return program.out_info


def _typed(args: T) -> T:
    """Return arguments with a `Spec` in place of each object that is not an array and has a shape and a dtype."""
    try:
        return tree.map(lambda x: x if (spec := spec_like(x)) is None else spec, args)
    except StaticDataError:  # the trace names the argument
        return args


@overload
def make_jaxpr(fun: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def make_jaxpr(
    fun: Callable[P, R], static_argnums: Argnums = (), axis_env: None = None, return_shape: Literal[False] = False
) -> Callable[P, Program[..., R]]: ...
@overload
def make_jaxpr(
    fun: Callable[P, R], static_argnums: Argnums = (), axis_env: None = None, *, return_shape: Literal[True]
) -> Callable[P, tuple[Program[..., R], Any]]: ...
@overload
def make_jaxpr(
    *, static_argnums: Argnums = (), axis_env: None = None
) -> Callable[[Callable[P, R]], Callable[P, Program[..., R]]]: ...
@overload
def make_jaxpr(
    *, static_argnums: Argnums = (), axis_env: None = None, return_shape: Literal[True]
) -> Callable[[Callable[P, R]], Callable[P, tuple[Program[..., R], Any]]]: ...
@decorator_form
def make_jaxpr(
    fun: Callable[..., object],
    static_argnums: Argnums = (),
    axis_env: None = None,
    return_shape: bool = False,
) -> Callable[..., object]:
    """Return a function that traces `fun` on its arguments and returns the `Program`: `make_jaxpr(f)(x).jaxpr`.

    With `return_shape`, also the types of the results, as a tree of `Spec`s. Raises: ParameterError for `axis_env`.
    """
    check_function("make_jaxpr", fun)
    if axis_env is not None:
        raise ParameterError(
            f"make_jaxpr: axis_env is {shown(axis_env)}",
            remedy="map over the named axis: make_jaxpr(vmap(f, axis_name=...))",
        )
    statics = static_arguments(f"make_jaxpr of {function_name(fun)}", fun, static_argnums, ())

    @wraps(fun, updated=())
    def traced(*args: object, **kwargs: object) -> object:
        g, args, kwargs = (fun, *_typed((args, kwargs))) if statics is None else statics.with_placeholders(args, kwargs)
        program = trace_for_call(g, args, kwargs)
        return (program, program.out_info) if return_shape else program

    return traced


def typeof(x: object) -> Aval:
    """Return the type of an array or a number: its shape and dtype."""
    return aval_of(x, "typeof")


# ------------------------------------------------------------------------------------------------ other ways to run


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Return a context. Inside it, operations on values are computed at once, also while a function is traced.

    Raises: LeakedTracerError for an operation on a tracer, whose value is not known.
    """
    with evaluating():
        yield


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Return a context. Inside it, functions of `jit` run operation by operation, so that a debugger sees values.

    Control flow (`scan`, `cond`, ...) and transformations still trace their functions.
    """
    if not isinstance(disable, bool):
        raise ArgumentError(
            f"disable_jit: disable is {described(disable)}, not a bool: {shown(disable)}", remedy="disable_jit(True)"
        )
    with running_each_operation(disable):
        yield


@overload
def checkpoint(fun: NoFunction, **options: Any) -> Callable[..., Any]: ...
@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: bool | Sequence[object] = True,
    policy: Policy | Callable[..., bool] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[P, R]: ...
@overload
def checkpoint(
    *,
    prevent_cse: bool | Sequence[object] = True,
    policy: Policy | Callable[..., bool] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Rewrite: ...
@decorator_form
def checkpoint(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool | Sequence[object] = True,
    policy: Policy | Callable[..., bool] | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Any:
    """Return `remat` by JAX's name. A recompute is real for every `prevent_cse`."""
    return remat(
        fun,
        policy=policy,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        prevent_cse=prevent_cse,
    )


@overload
def named_call(fun: NoFunction, **options: Any) -> Callable[..., Any]: ...
@overload
def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]: ...
@overload
def named_call(*, name: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@decorator_form
def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Any:
    """Return the function under a name. Where it is traced as a program of its own, the program has the name."""
    check_function("named_call", fun)
    if name is not None:
        _check_name("named_call", name)

    @wraps(fun, updated=())
    def named(*args: object, **kwargs: object) -> object:
        return fun(*args, **kwargs)

    named.__name__ = name or function_name(fun)
    return named


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Return a scope, for a block or a decorated function, that names the operations inside: "layer 3". Scopes nest.

    The name stands behind the user's line in errors, tables and explanations, and in the names of operations in XLA's
    profiles. It is not part of the value of a program. Outside of a trace it has no effect.

    Raises: ArgumentError for what is not a str.
    """
    _check_name("named_scope", name)
    trace = active_trace()
    if trace is None:
        yield
        return
    outer = trace.scope
    trace.scope = f"{outer}/{name}" if outer else name
    try:
        yield
    finally:
        trace.scope = outer


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str):
        raise ArgumentError(f"{what}: the name is {described(name)}, not a str: {shown(name)}", remedy="give a str")


# ------------------------------------------------------------------------------------------------------- functions


def closure_convert(fun: Callable[..., R], *example_args: object) -> tuple[Callable[..., R], list[Any]]:
    """Return a function that closes over no arrays, and the arrays that `fun` closes over.

    `converted(*args, *arrays)` is `fun(*args)`. Custom rules and host functions can then take them as arguments.
    """
    check_function("closure_convert", fun)
    program: Program[..., R] = trace(fun, *example_args)
    n = len(example_args)

    @wraps(fun, updated=())
    def converted(*args: object) -> R:
        if len(args) != n + len(program.bound):
            raise ArgumentError(
                f"closure_convert: {program.name} takes {count_text(n, 'argument')} and"
                f" {count_text(len(program.bound), 'array')}, got {len(args)}",
                remedy="call converted(*args, *arrays) with the arrays that closure_convert returned",
            )
        return replace(program, bound=args[n:])(*args[:n])

    return converted, list(program.bound)


def linear_transpose(
    fun: Callable[..., object], *primals: object, reduce_axes: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return the transpose of a linear function: from a cotangent of its results to a tuple of cotangents.

    `primals` are examples of the arguments: values, `Spec`s, or other objects with a shape and a dtype. See
    `transpose`. Raises: ParameterError for `reduce_axes`.
    """
    check_no_reduce_axes("linear_transpose", reduce_axes)
    return transpose(fun, *_typed(primals))


# -------------------------------------------------------------------------------------------------------- debugging


def stop_in_debugger(**values: object) -> None:
    """Stop in Python's debugger when the program gets here, with `values` to look at. Outside a trace: at once."""
    debug_callback(_stop, values)


def _stop(values: dict[str, object]) -> None:  # noqa: ARG001  to look at
    breakpoint()  # noqa: T100  this is what it is for
