"""`decorator_form`: a transformation called without a function, with options alone, is a decorator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast, final, overload

import numpy as np

from fxad.errors import ArgumentError, described, shown
from fxad.tracing.array import Array
from fxad.tracing.program import Program

P = ParamSpec("P")
R = TypeVar("R")


@final
class NoFunction:
    """The function in the first overload of a transformation: no value has this type, so no call takes the overload.

    mypy gives `functools.partial(transformation, ...)` the result of the first overload. Without `fxad.mypy_plugin`, it
    is then a function of any arguments, and not one of none.
    """


class Rewrite(Protocol):
    """A decorator of programs and of functions that keeps their types."""

    @overload
    def __call__(self, f: Program[P, R], /) -> Program[P, R]: ...
    @overload
    def __call__(self, f: Callable[P, R], /) -> Callable[P, R]: ...


def decorator_form(transformation: Callable[..., object]) -> Callable[..., Any]:
    """Return the transformation, which without its first argument is a decorator: `vmap(in_axes=1)(f)` is
    `vmap(f, in_axes=1)`. The first argument may be named `fun`, as in JAX.

    Type:   that of the overloads.
    Raises: ArgumentError for an array among the options: it is an argument of the function.
    """
    function = cast("Any", transformation).__code__.co_varnames[0]
    name = transformation.__name__

    @wraps(transformation)
    def with_decorator_form(*args: Any, **options: Any) -> object:
        if "fun" in options and not args and function not in options:
            options[function] = options.pop("fun")
        if args or function in options:
            check_options(name, args[1:])
            return transformation(*args, **options)
        return partial(with_decorator_form, **options)

    return with_decorator_form


def check_options(name: str, options: Iterable[object]) -> None:
    """Raise ArgumentError for an array among the options of a transformation: it is an argument of the function.

    `decorator_form` gives it all options that are given by position; `lift`, which also makes transformations without
    this form, gives it `argnums`.
    """
    for option in options:
        if _is_data(option):
            raise ArgumentError(
                f"{name}: an option is {described(option)}: {shown(option)}",
                remedy=f"{name}(f) is a function, which takes the arguments of f: {name}(f)(x)",
            )


def _is_data(option: object) -> bool:
    """Return True for an array that cannot be numbers of arguments or of axes."""
    return isinstance(option, np.ndarray | Array) and (option.ndim > 1 or option.dtype.kind not in "iub")
