"""Memoisation by the value of a program.

A result is stored on the program it was made from, so it lives exactly as long as that program: no table pins anything.
Where the result is that program, a sign for it is: a program that refers to itself waits for Python's collector, with
all that was made from it, where any other is gone with the last that refers to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from fxad.core.stack import LEVELS, elsewhere, stack
from fxad.ir import Jaxpr

P = ParamSpec("P")
R = TypeVar("R")

_ITSELF: Final = object()  # the result is the program that was asked about


def by_value(fn: Callable[Concatenate[Jaxpr, P], R]) -> Callable[Concatenate[Jaxpr, P], R]:
    """Compute `fn(jaxpr, *args)` once per distinct program and arguments; the arguments must be hashable.

    Law:  equal inputs give the same object, also when threads race (the first to finish wins).
    Cost: a pass may call itself for bodies, however deep they are nested: see `fxad.core.stack`.
    """

    @wraps(fn)
    def memoised(jaxpr: Jaxpr, /, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (fn, args, tuple(kwargs.items()) if kwargs else ())
        memo = jaxpr._memo
        try:
            found: R = memo[key]
        except KeyError:
            pass  # what fn raises is not raised while this is handled: a traceback would show the whole key
        else:
            return cast(R, jaxpr) if found is _ITSELF else found
        levels = stack.levels
        if levels == LEVELS:
            deeper: R = elsewhere(lambda: memoised(jaxpr, *args, **kwargs))
            return deeper
        stack.levels = levels + 1
        try:
            made = fn(jaxpr, *args, **kwargs)
        finally:
            stack.levels = levels
        if made is jaxpr:
            memo[key] = _ITSELF
            return made
        first: R = memo.setdefault(key, made)
        return first

    return memoised
