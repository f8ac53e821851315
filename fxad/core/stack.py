"""Recursion into deeply nested programs, on the stacks of further threads.

A pass recurs into the bodies of a program, so each level of nesting uses stack, and Python allows a thread a thousand
frames. The limit is process-wide, so a library must not raise it. When fewer than `RESERVE` frames are left, a pass
continues in a new thread with its own stack, while the first thread waits: one thread runs at a time, in the same
order, with the same context variables and exceptions. Most programs are nested less deeply, and start no thread.

The frames themselves say how deep a thread is. A counter would be wrong after an interruption between its two changes.

Source: Clang's `runWithSufficientStackSpace` and rustc's `ensure_sufficient_stack` do the same.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import Final, Generic, ParamSpec, TypeVar, final

from fxad.errors import DepthError, FxadError

P = ParamSpec("P")
R = TypeVar("R")

FRAMES: Final = 1000  # Python's own limit. A higher one may not fit the stack that the system gives a thread.
RESERVE: Final = 400  # a level took at most 11 frames when measured; the rest is for the rules of users


def nearly_full() -> bool:
    """Return True if fewer than `RESERVE` frames are left on the stack of this thread.

    Cost: 0.5 us at depth 20, 1.5 us at depth 600.
    """
    try:
        sys._getframe(max(min(sys.getrecursionlimit(), FRAMES) - RESERVE, 50))
    except ValueError:  # the stack is not that deep
        return False
    return True


@final
class _WaitingThreads:
    """The threads that wait for each other: each continues the pass of the one before. `interrupted` is True if a
    signal ended the wait of one of them: no thread waits for the later ones."""

    __slots__ = ("interrupted",)

    def __init__(self) -> None:
        self.interrupted = False


@final
class _Current(threading.local):
    """The chain of this thread; None for a thread that `run_on_new_stack` has not started."""

    def __init__(self) -> None:
        self.chain: _WaitingThreads | None = None


_current: Final = _Current()


@final
class _Abandoned(BaseException):
    """Ends a thread for which no thread waits."""


@final
class _Outcome(Generic[R]):
    """The result or the exception of a call in another thread."""

    __slots__ = ("error", "results")

    def __init__(self) -> None:
        self.results: list[R] = []
        self.error: BaseException | None = None


def run_on_new_stack(call: Callable[[], R]) -> R:
    """Return `call()` on a stack of its own.

    Raises: what `call` raises; DepthError when the system gives no further thread.
    """
    chain = _current.chain or _WaitingThreads()
    if chain.interrupted:
        raise _Abandoned
    outcome = _Outcome[R]()
    context = copy_context()

    def run() -> None:
        _current.chain = chain
        try:
            outcome.results.append(context.run(call))
        except BaseException as e:  # noqa: BLE001  the waiting thread raises it
            outcome.error = e

    thread = threading.Thread(target=run, name="fxad: a stack for nested programs")
    try:
        thread.start()
        thread.join()
    except BaseException as e:
        if isinstance(e, RuntimeError) and thread.ident is None:
            raise DepthError(
                f"programs are nested too deeply: a pass needs a further thread, and there is none: {e}",
                remedy="open some of the calls with fxad.inline, or loop over one body with fxad.lax.scan",
            ) from None
        chain.interrupted = True  # by a signal: the thread ends at the next level
        raise
    if outcome.error is not None:
        if isinstance(outcome.error, FxadError):
            outcome.error.called_here()
        try:
            raise outcome.error
        finally:
            outcome.error = None  # else the traceback would refer to itself through this frame
    return outcome.results[0]


def with_enough_stack(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that recurs into bodies nested at any depth. `memo.by_value` does the same."""

    @wraps(fn)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if nearly_full():
            deeper: R = run_on_new_stack(lambda: checked(*args, **kwargs))
            return deeper
        return fn(*args, **kwargs)

    return checked
