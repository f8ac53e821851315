"""Stack for what is nested deeply.

A pass transforms the bodies of a program by calling itself, so it takes stack for every level of nesting, and Python
gives a thread a thousand frames. The limit is process-wide and not ours to raise. So after `LEVELS` levels a pass goes
on in a thread of its own, which has a stack of its own, while the one before waits: one at a time, in the same order,
with the same context variables and the same exceptions. Programs are not nested so deeply as a rule, and start none.

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

LEVELS: Final = 32  # on one stack: at most 11 frames each were seen, of a thousand


@final
class _Flag:
    """Whether nobody waits for the outermost of these calls any more: it was interrupted."""

    __slots__ = ("up",)

    def __init__(self) -> None:
        self.up = False


@final
class _Stack(threading.local):
    """The stack of this thread: how many levels are on it, and the flag of the threads that wait for each other."""

    def __init__(self) -> None:
        self.levels = 0
        self.stop: _Flag | None = None


stack: Final = _Stack()


@final
class _Stopped(BaseException):
    """Ends a thread that nobody waits for."""


@final
class _Outcome(Generic[R]):
    """What a call in another thread gave or raised."""

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
        stack.levels, stack.stop = 1, stop  # not the first: who waits has done what the first does
        try:
            outcome.results.append(context.run(call))
        except BaseException as e:  # noqa: BLE001  it is raised where it is waited for
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
            outcome.error = None  # or the traceback would hold itself, by this frame
    return outcome.results[0]


def nested(fn: Callable[P, R]) -> Callable[P, R]:
    """A function that may call itself for bodies, however deep they are nested. `memo.by_value` does the same."""

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
