"""Memoisation by the value of a program.

A result is stored on the program it was computed from, and lives as long as that program. No global table keeps it
alive. Python's garbage collector has to free a program that refers to itself; every other program is freed with its
last reference. So if the result is the program itself, a sentinel is stored. A tuple or a record that contains the
program, such as the result of `prune` where nothing is removed, is stored as it is and leaves the program to the
collector.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from inspect import signature
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from fxad.core.exact_key import exact_key
from fxad.core.stack import nearly_full, run_on_new_stack
from fxad.errors import ArgumentError, described
from fxad.ir import Jaxpr

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_ITSELF: Final = object()  # the result is the argument


def by_value(fn: Callable[Concatenate[Jaxpr, P], R]) -> Callable[Concatenate[Jaxpr, P], R]:
    """Compute `fn(jaxpr, *args)` once per distinct program and arguments; the arguments must be hashable.

    Law:    equal inputs give the same object, also when threads race (the first to finish wins). A default that is left
            out, given by position, or given by keyword is the same input. Arguments are compared by `exact_key`: 1, 1.0
            and True are three inputs, as are 0.0 and -0.0.
    Raises: ArgumentError, from the function that is returned, for what is not a Jaxpr.
    Cost:   a call with all arguments by position is the fastest. A pass may recur into bodies nested at any depth: see
            `fxad.core.stack`.
    """
    parameters = signature(fn)
    n_args = len(parameters.parameters) - 1  # beside the program

    @wraps(fn)
    def memoised(jaxpr: Jaxpr, /, *args: P.args, **kwargs: P.kwargs) -> R:
        all_args: tuple[object, ...] = args
        if kwargs or len(args) != n_args:
            bound = parameters.bind(jaxpr, *args, **kwargs)
            bound.apply_defaults()
            all_args = (*bound.args[1:], *bound.kwargs.items())
        key: Hashable = (fn, exact_key(all_args)) if all_args else fn
        try:
            memo = jaxpr._memo
        except AttributeError:
            raise ArgumentError(
                f"{fn.__name__}: takes a Jaxpr, got {described(jaxpr)}",
                remedy="give the jaxpr of a program: program.jaxpr",
            ) from None
        try:
            cached: R = memo[key]
        except KeyError:
            pass  # `fn` runs outside this handler: its exceptions must not be chained to a KeyError with the whole key
        else:
            return cast(R, jaxpr) if cached is _ITSELF else cached  # the result was the argument
        if nearly_full():
            deeper: R = run_on_new_stack(lambda: memoised(jaxpr, *args, **kwargs))
            return deeper
        result = fn(jaxpr, *args, **kwargs)
        if result is jaxpr:
            memo[key] = _ITSELF
            return result
        first: R = memo.setdefault(key, result)
        return first

    return memoised


def record_of(jaxpr: Jaxpr, make: Callable[[], T], *key: object) -> T:
    """Return the record of a program for a hashable key: the result of `make`, a class, when it is first asked for.

    A record changes, so that it is no result in the sense of `by_value`. It lives as long as the program.
    """
    record: T = jaxpr._memo.setdefault((make, exact_key(key)), make())
    return record
