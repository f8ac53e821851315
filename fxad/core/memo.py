"""Memoisation by the value of a program.

A result is stored on the program it was made from, so it lives exactly as long as that program: no table pins anything.
Where the result is that program, a sign for it is: a program that refers to itself waits for Python's collector, with
all that was made from it, where any other is gone with the last that refers to it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
            if levels:
                made = fn(jaxpr, *args, **kwargs)
            else:
                with collector_paused():
                    made = fn(jaxpr, *args, **kwargs)
        finally:
            stack.levels = levels
        if made is jaxpr:
            memo[key] = _ITSELF
            return made
        first: R = memo.setdefault(key, made)
        return first

    return memoised


class _Pause:
    """How many passes are running, and whether the first of them found the collector on."""

    __slots__ = ("depth", "lock", "was_on")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.was_on = False


_pause: Final = _Pause()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's cyclic collector from running while a program is built.

    A program has no cycles, and every equation of it stays, so each full collection walks all equations made so far in
    vain: 100,000 equations cost 1.6 times as much each as 1,000. Reference counting goes on as ever.
    """
    with _pause.lock:
        if _pause.depth == 0:
            _pause.was_on = gc.isenabled()
            gc.disable()
        _pause.depth += 1
    try:
        yield
    finally:
        with _pause.lock:
            _pause.depth -= 1
            if _pause.depth == 0 and _pause.was_on:
                gc.enable()
