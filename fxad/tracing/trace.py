"""`trace`: a function becomes a program.

Each step calls the next: `trace_for_call` takes the arguments of a call, `trace_tree` their types, `trace_leaves` gives
the parts of a program, and `trace_function.trace_flat` makes the jaxpr.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, overload

import numpy as np

from fxad.core.sizes.polynomials import names_of
from fxad.core.sizes.size import size_of, substitute_sizes
from fxad.core.trees import tree
from fxad.core.trees.classes import StaticDataError
from fxad.core.trees.tree import ExactStructure, Structure
from fxad.errors import ArgumentError, FxadError, described, shown
from fxad.ir import Aval, Jaxpr
from fxad.operations import promotion
from fxad.operations.arguments import plain_ints
from fxad.operations.number_types import CallType, NumberType, number_type
from fxad.tracing.array import Array
from fxad.tracing.context import MappedAxis, mapped_over, new_axis
from fxad.tracing.program import Program, argument_path, function_name, positional_name
from fxad.tracing.spec import aval_of_example
from fxad.tracing.static_args import Argnames, static_arguments
from fxad.tracing.trace_function import line_of_traceback, trace_flat
from fxad.tracing.traced_numbers import ArgumentType, DifferentiatedNumber, TracedNumber

P = ParamSpec("P")
R = TypeVar("R")


AxisEnv: TypeAlias = Mapping[str, int]  # names and sizes of axes
_NO_AXES: Final[AxisEnv] = MappingProxyType({})


@overload
def trace(
    f: Callable[..., R], /, *args: object, static_argnames: Argnames, axis_env: AxisEnv = ..., **kwargs: object
) -> Program[..., R]: ...
@overload
def trace(f: Callable[P, R], /, *args: object, axis_env: AxisEnv = ..., **kwargs: object) -> Program[P, R]: ...
def trace(
    f: Callable[..., object],
    /,
    *args: object,
    static_argnames: Any = (),  # one of the keyword arguments of the second overload
    axis_env: AxisEnv = _NO_AXES,
    **kwargs: object,
) -> object:
    """Trace a function into a program, from example values or `Spec`s; pytrees of either.

    Arrays that `f` closes over become bound operands. Of a NumPy array, the program holds a copy, made when `f` uses
    it: a later write to the array changes nothing. Python scalars in `f` are literals. The arguments named in
    `static_argnames` are passed to `f` as they are, and must be hashable. The program is specialized to them, and takes
    the other arguments. Arguments that `f` itself declares static, such as `jit(g, static_argnums=0)`, are static too.
    `axis_env` gives the sizes of named axes, as in `{"i": 8}`: collectives in `f` may name them, and a later map of the
    program binds them.

    Law:    equal functions on equal types give equal jaxprs: `trace(f, x).jaxpr is trace(f, y).jaxpr`.
    Cost:   one run of `f` on tracers, and a copy of each NumPy array that it closes over.
    Raises: ArgumentError for an argument or result that is not an array (with its path); what `f` raises.
    """
    try:
        return trace_for_call(f, args, kwargs, static_argnames, axis_env)
    except (FxadError, TypeError, AttributeError) as e:  # as of a number that is used as an array
        for k, example in enumerate(args):
            if isinstance(example, tuple | list) and example and all([type(n) is int for n in example]):
                name = positional_name(parameter_names(f), k)
                e.add_note(f"{name} is a pytree of {example}; fx.Spec({example}) is an array of this shape")
        raise


def trace_for_call(
    f: Callable[..., R],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    static_argnames: Argnames = (),
    axis_env: AxisEnv = _NO_AXES,
    *,
    differentiated: bool = False,
) -> Program[..., R]:
    """Return `trace`, with the arguments of the call in a tuple and a dict. `differentiated`: by the numbers among
    them."""
    if not callable(f):
        raise ArgumentError(f"trace: {described(f)} is not a function: {shown(f)}", remedy="trace(f, *examples)")
    name = function_name(f)
    statics = static_arguments(f"trace of {name}", f, (), static_argnames)
    if statics is not None:
        names = tuple(kwargs)
        _, static, args, kwargs = statics.split(args, kwargs)
        f = statics.bound(static, names)
    names = parameter_names(f)
    leaves, (in_tree, _) = flatten_call(f"trace of {name}", f, args, kwargs)
    avals: Sequence[ArgumentType] = types_of(f"trace of {name}", f, leaves, in_tree)
    if differentiated:
        avals = [
            DifferentiatedNumber(a, x) if type(a) is NumberType and a.kind >= promotion.NumberKind.FLOATING else a
            for x, a in zip(leaves, avals, strict=True)
        ]
    if isinstance(axis_env, Mapping) and not axis_env:
        return trace_tree(f, in_tree, avals, name, names)
    with mapped_over(*_axes_of(f"trace of {name}", axis_env)):
        return trace_tree(f, in_tree, avals, name, names)


def _axes_of(what: str, axis_env: object) -> list[MappedAxis]:
    """Return the axes of an `axis_env`. Raises: ArgumentError, AxisNameError."""
    if not isinstance(axis_env, Mapping):
        raise ArgumentError(
            f"{what}: axis_env is {described(axis_env)}: {shown(axis_env)}", remedy='give a dict, as in {"i": 8}'
        )
    axes = {name: plain_ints(size) for name, size in axis_env.items()}
    for name, size in axes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ArgumentError(
                f"{what}: axis_env[{name!r}] is {shown(size)}, not a size", remedy="give each axis an int from 1 on"
            )
    return [new_axis(what, name, size) for name, size in axes.items()]


def flatten_call(
    what: str, f: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[list[Any], ExactStructure]:
    """Return the leaves of the arguments of a call, and their exact structure. Raises: ArgumentError naming the path of
    static data that are not hashable."""
    try:
        return tree.flatten_exactly(args, kwargs)
    except StaticDataError as e:
        if e.accessor is not None:
            e.at(f"{what}: argument {argument_path(e.accessor, parameter_names(f))}")
        raise


def argument_type(value: object, what: str) -> CallType:
    """Return the type of an argument: a Python number has no dtype of its own. Raises: ArgumentError."""
    if isinstance(value, Array):
        return value.number_type if type(value) is TracedNumber else value.aval
    return number_type(value) or aval_of_example(value, what)


def types_of(what: str, f: object, leaves: Sequence[object], in_tree: Structure) -> tuple[CallType, ...]:
    """Return the types of the leaves of a call, examples or `Spec`s. Raises: ArgumentError, DTypeError naming the
    path."""
    try:
        return unify_assumptions([argument_type(x, "") for x in leaves])
    except FxadError:  # the paths are for the message only
        names = parameter_names(f)
        for x, a in zip(leaves, in_tree.accessors(), strict=True):
            try:
                argument_type(x, f"{what}: argument {argument_path(a, names)}")
            except ArgumentError as e:
                e.remedy = _leaf_remedy(x) or e.remedy
                raise
        raise


_STATIC_NAMES: Final = "or name its argument in static_argnames of jit, grad, vmap, ..."


def _leaf_remedy(value: object) -> str:
    """Return the remedy for a leaf that is a text, a function, or an object of a class that is not a pytree; empty for
    other values."""
    if isinstance(value, str | bytes | type | np.ufunc) or inspect.isroutine(value):
        return f"it is static: leave it out and close over it, {_STATIC_NAMES}"
    kind = type(value)
    if hasattr(value, "__dict__") and kind.__module__.partition(".")[0] not in ("numpy", "jax", "scipy", "torch"):
        return (
            f"make {kind.__name__} a pytree, by @fxad.tree.dataclass or fxad.tree.register; or close over the object,"
            f" {_STATIC_NAMES}"
        )
    return ""


def unify_assumptions(avals: Sequence[CallType]) -> tuple[CallType, ...]:
    """Return types in which a size that is named several times has the strongest of its assumptions everywhere."""
    names = [name for a in avals if a.symbolic for n in a.shape for name in names_of(n)]
    if len({n.name for n in names}) == len(set(names)):
        return tuple(avals)
    strongest = {n.name: size_of(n) for n in sorted(names, key=lambda n: n.at_least)}
    return tuple([
        Aval([substitute_sizes(n, strongest) for n in a.shape], a.dtype) if a.symbolic else a for a in avals
    ])  # fmt: skip


def trace_tree(
    f: Callable[..., R], in_tree: Structure, avals: Sequence[ArgumentType], name: str, names: tuple[str, ...]
) -> Program[Any, R]:
    """Trace a function of arguments with the tree `in_tree` and leaves of the types `avals`."""
    jaxpr, bound, out_tree, _ = trace_leaves(f, in_tree, avals, name)
    return Program(jaxpr, in_tree, out_tree, bound, names, name)


def trace_leaves(
    f: Callable[..., object], in_tree: Structure, avals: Sequence[ArgumentType], name: str, role: str = "trace of"
) -> tuple[Jaxpr, tuple[object, ...], Structure, Sequence[object]]:
    """Trace `f`. Return the parts of a `Program`: the jaxpr, the values of its leading operands, and the tree of the
    results; and the leaves that `f` returned, which tell a Python number from an array. `role` describes `f` in
    messages."""
    out_tree: Structure | None = None
    leaves: Sequence[object] = ()

    def flat(tracers: list[Array]) -> Sequence[object]:
        nonlocal out_tree, leaves
        args, kwargs = tree.unflatten(in_tree, tracers)
        try:
            results = f(*args, **kwargs)
        except TypeError as e:
            if not (isinstance(e, FxadError) or line_of_traceback(e.__traceback__)):  # not from inside `f`
                check_signature(f, f"{role} {name}", args, kwargs)
            raise
        leaves, out_tree = tree.flatten(results)
        _check_result_leaves(f"{role} {name}", leaves, out_tree)
        return leaves

    jaxpr, bound = trace_flat(flat, avals, name)
    assert out_tree is not None
    return jaxpr, bound, out_tree, leaves


def check_signature(
    f: Callable[..., object], what: str, args: Sequence[object], kwargs: Mapping[str, object], called: str = ""
) -> inspect.BoundArguments | None:
    """Return the arguments of a call by their names; None if the signature of the function is not known. `called` says
    in the remedy how it is called. Raises: ArgumentError when the function does not take the arguments."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return None
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as e:
        raise ArgumentError(f"{what}: {e}", remedy=f"{called}its signature is {function_name(f)}{signature}") from None


def parameter_names(fn: object) -> tuple[str, ...]:
    """Return names of a function's positional parameters; empty when they cannot be known."""
    if isinstance(fn, FunctionType) and not fn.__dict__:  # nothing declares another signature; takes 1 us, not 50
        return fn.__code__.co_varnames[: fn.__code__.co_argcount]
    try:
        parameters = inspect.signature(fn).parameters.values()  # type: ignore[arg-type]  # TypeError is caught
    except (TypeError, ValueError):
        return ()
    return tuple([p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


_RESULTS: Final = (Array, np.ndarray, np.generic, bool, int, float, complex)


def _check_result_leaves(what: str, leaves: Sequence[object], out_tree: Structure) -> None:
    for k, leaf in enumerate(leaves):
        if not isinstance(leaf, _RESULTS):
            path = out_tree.accessors()[k].codify("result")
            raise ArgumentError(
                f"{what}: {path} is {described(leaf)}, not an array: {shown(leaf)}",
                remedy="return arrays, Python numbers, or pytrees of them; register a class with fxad.tree.dataclass",
            )
