"""`custom_gradient`, `sequential_vmap`: functions with rules, written as one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from fxad import lax
from fxad.api.custom.rule_signature import is_absent_direction
from fxad.api.custom_function import CustomFunction, custom_vjp, custom_vmap
from fxad.api.directional import ResidualProgram
from fxad.api.lift import check_function
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, described
from fxad.ir import Aval
from fxad.tracing.array import aval_of
from fxad.tracing.program import function_name
from fxad.tracing.spec import Spec
from fxad.tracing.trace import trace

P = ParamSpec("P")
R = TypeVar("R")


def custom_gradient(fun: Callable[P, tuple[R, Callable[..., object]]]) -> Callable[P, R]:
    """Return a function whose gradient it gives itself: `fun(*args)` returns (results, function of the cotangent).

    That function returns the cotangent of the argument, or a tuple with one for each argument: None, an array of float0
    or zeros for an integer. The cotangent of an integer result is None. What it closes over is stored between the
    forward and the backward pass.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> @fx.custom_gradient
    ... def f(x):
    ...     return x**2, lambda g: (g * x,)
    >>> float(fx.grad(f)(3.0))
    3.0
    """
    check_function("custom_gradient", fun)
    pair: Callable[..., object] = fun

    @wraps(fun, updated=())
    def value(*args: object) -> object:
        return _pair(fun, pair(*args))[0]

    def forward(*args: object) -> tuple[object, object]:
        out, pull = _pair(fun, pair(*args))
        leaves, structure = tree.flatten(out)
        avals = [aval_of(x) for x in leaves]
        cotangents = [Spec(a.shape, a.dtype) if a.inexact else None for a in avals]
        in_avals = [aval_of(x) for x in tree.leaves(args)]

        @wraps(pull, updated=())
        def cotangents_of_arguments(cotangent: object) -> object:
            bars = pull(cotangent)
            bars = bars if isinstance(bars, tuple) else (bars,)
            return _without_integers(tree.structure(args), in_avals, bars)

        program = trace(cotangents_of_arguments, tree.unflatten(structure, cotangents))
        return out, ResidualProgram.of(program)

    def backward(residuals: Callable[[object], object], cotangent: object) -> object:
        return residuals(cotangent)

    function: CustomFunction[..., Any] = custom_vjp(value)
    function.defvjp(forward, backward)
    return function


def _without_integers(structure: Structure, avals: Sequence[Aval], bars: object) -> object:
    """Return the cotangents of arguments, with None for that of an integer which says that it has none. A tree of
    another structure is left to the check of the rule."""
    leaves = tree.flatten_up_to(structure, bars)
    if leaves is None:
        return bars
    pairs = zip(leaves, avals, strict=True)
    return tree.unflatten(structure, [None if not a.inexact and is_absent_direction(x, a) else x for x, a in pairs])


def _pair(fun: Callable[..., object], result: object) -> tuple[object, Callable[..., object]]:
    if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
        raise ArgumentError(
            f"custom_gradient of {function_name(fun)}: it returns {described(result)}, not a pair (results, function)",
            remedy="return the results, and a function from their cotangent to those of the arguments",
        )
    return result


def sequential_vmap(f: Callable[P, R]) -> Callable[P, R]:
    """Return a function that `vmap` runs in a loop, an example after the other. Arguments are positional."""
    check_function("sequential_vmap", f)
    function = custom_vmap(f)

    @function.def_vmap
    def rule(_: int, in_batched: list[object], *args: object) -> tuple[object, object]:
        leaves, structure = tree.flatten(args)
        batched = tree.leaves(tuple(in_batched))

        def one(examples: list[object]) -> object:
            rest = iter(examples)
            arguments = [next(rest) if b else x for x, b in zip(leaves, batched, strict=True)]
            g: Callable[..., object] = f
            return g(*tree.unflatten(structure, arguments))

        out = lax.map(one, [x for x, b in zip(leaves, batched, strict=True) if b])
        return out, tree.map(lambda _: True, out)

    return function
