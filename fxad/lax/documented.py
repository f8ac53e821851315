"""The names, docstrings and signatures of functions that are made from primitives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar, cast

from fxad.ir import Primitive
from fxad.tracing.array import Array, ArrayLike

F = TypeVar("F", bound=Callable[..., object])


def documented(
    function: Callable[..., object], signature: F, prim: Primitive, name: str = "", *, summary: bool = False
) -> F:
    """Return `function` under the name of a primitive, or another one, with the primitive's docstring, or only its
    first paragraph. Type checkers see `signature`, as the functions below.
    """
    phrase = inspect.cleandoc(type(prim).__doc__ or "")
    phrase = phrase.partition("\n\n")[0] if summary else phrase
    doc = "Return " + (f"t{phrase[1:]}" if phrase.startswith("The ") else phrase)
    return named(function, signature, name or prim.name, doc)


def named(function: Callable[..., object], signature: F, name: str, doc: str) -> F:
    """Return `function` under a name, with a docstring. Type checkers see `signature`."""
    function.__name__ = function.__qualname__ = name
    if isinstance(function, FunctionType):  # tracebacks and profilers show the name of the code
        function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__doc__ = doc
    return cast("F", function)  # its parameters are those of `signature`


# Signatures for type checkers. `Callable[[ArrayLike], Array]` has no names of parameters, and mypy finds no common type
# of a protocol and a function, as in `switch(i, [lax.sin, f], x)`.


def unary(x: ArrayLike) -> Array:
    """Be the signature of a function of one array."""
    raise AssertionError("only the signature is used")


def binary(x: ArrayLike, y: ArrayLike) -> Array:
    """Be the signature of a function of two arrays."""
    raise AssertionError("only the signature is used")
