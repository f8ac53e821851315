"""Memoisation by the value of a program.

A result is stored on the program it was made from, so it lives exactly as long as that program: no table pins anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from fxad.ir import Jaxpr

P = ParamSpec("P")
R = TypeVar("R")


def by_value(fn: Callable[Concatenate[Jaxpr, P], R]) -> Callable[Concatenate[Jaxpr, P], R]:
    """Compute `fn(jaxpr, *args)` once per distinct program and arguments; the arguments must be hashable.

    Law: equal inputs give the same object, also when threads race (the first to finish wins).
    """

    @wraps(fn)
    def memoised(jaxpr: Jaxpr, /, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (fn, args, tuple(kwargs.items()) if kwargs else ())
        memo = jaxpr._memo
        try:
            return memo[key]  # type: ignore[no-any-return]
        except KeyError:
            return memo.setdefault(key, fn(jaxpr, *args, **kwargs))  # type: ignore[no-any-return]

    return memoised
