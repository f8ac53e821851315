"""Recursion into deeply nested programs, on the stacks of further threads.

A pass recurs into the bodies of a program, so each level of nesting uses stack, and Python allows a thread a thousand
frames. The limit is process-wide, so a library must not raise it. After `LEVELS` levels, a pass continues in a new
thread with its own stack, while the first thread waits: one thread runs at a time, in the same order, with the same
context variables and the same exceptions. Most programs are nested less deeply, and start no thread.

Source: Clang's `runWithSufficientStackSpace` and rustc's `ensure_sufficient_stack` do the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import Final, Generic, ParamSpec, TypeVar, final

from fxad.errors import DepthError, FxadError

P = ParamSpec("P")
R = TypeVar("R")

LEVELS: Final = 32  # per stack: a level took at most 11 frames when measured, of a thousand


@final
class _Flag:
    """`up` is True if the outermost of these calls was interrupted, so that no thread waits for the others."""

    __slots__ = ("up",)

    def __init__(self) -> None:
        self.up = False


@final
class _Stack(threading.local):
    """The stack of this thread: the number of its levels, and the flag it shares with the threads that wait for it."""

    def __init__(self) -> None:
        self.levels = 0
        self.stop: _Flag | None = None


stack: Final = _Stack()


@final
class _Stopped(BaseException):
    """Ends a thread for which no thread waits."""


@final
class _Outcome(Generic[R]):
    """The result or the exception of a call in another thread."""

    __slots__ = ("error", "results")

    def __init__(self) -> None:
        self.results: list[R] = []
        self.error: BaseException | None = None


def elsewhere(call: Callable[[], R]) -> R:
    """`call()` on a stack of its own.

    Raises: what `call` raises; DepthError when the system gives no further thread.
    """
    stop = stack.stop or _Flag()
    if stop.up:
        raise _Stopped
    outcome = _Outcome[R]()
    context = copy_context()

    def run() -> None:
        stack.levels, stack.stop = 1, stop  # not 0: level 0 is that of the outermost call
        try:
            outcome.results.append(context.run(call))
        except BaseException as e:  # noqa: BLE001  the waiting thread raises it
            outcome.error = e

    thread = threading.Thread(target=run, name="fxad: a stack for nested programs")
    try:
        thread.start()
    except RuntimeError as e:
        raise DepthError(
            f"programs are nested too deeply: a pass needs a thread for each {LEVELS} levels, and there is none: {e}",
            remedy="open some of the calls with fxad.inline, or loop over one body with fxad.lax.scan",
        ) from None
    try:
        thread.join()
    except BaseException:  # a signal: the thread ends at the next level
        stop.up = True
        raise
    if outcome.error is not None:
        if isinstance(outcome.error, FxadError):
            outcome.error.called_here()
        try:
            raise outcome.error
        finally:
            outcome.error = None  # else the traceback would refer to itself through this frame
    return outcome.results[0]


def nested(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that recurs into bodies nested at any depth. `memo.by_value` does the same."""

    @wraps(fn)
    def counted(*args: P.args, **kwargs: P.kwargs) -> R:
        levels = stack.levels
        if levels == LEVELS:
            deeper: R = elsewhere(lambda: counted(*args, **kwargs))
            return deeper
        stack.levels = levels + 1
        try:
            return fn(*args, **kwargs)
        finally:
            stack.levels = levels

    return counted
