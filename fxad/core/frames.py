"""Which code runs now: code that a function called, or code that Python runs in between.

A finaliser, a signal handler and a callback of a weak reference run on top of whatever frame was running: in its
context, and as if it had called them. What tells them apart is written here, and nothing is installed for it but C
functions among `gc.callbacks`, which note when a collection begins and ends: code in Python there would be where an
interrupt of a long collection is raised, and lost.
"""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dis import opmap
from functools import partial
from inspect import CO_GENERATOR, CO_VARARGS
from sys import _getframe
from types import CodeType, FrameType
from typing import Final, Generic, TypeVar, final

T = TypeVar("T")

# ------------------------------------------------------------------------------------------------------- collections


@final
class _Collections:
    """What the collector told: the last phase of all threads, and the last begin of each thread."""

    __slots__ = ("_begun", "_phases")

    def __init__(self) -> None:
        self._phases: dict[str, dict[str, int]] = {}  # the last phase is the last key
        self._begun = threading.local()
        gc.callbacks.extend((self._phases.pop, self._phases.__setitem__, partial(setattr, self._begun)))

    def __call__(self) -> object | None:
        """The collection that this thread is in, while Python runs finalisers; None when it is in none."""
        try:
            if next(reversed(self._phases)) != "start":
                return None
            started = self._phases["start"]
        except (KeyError, RuntimeError, StopIteration):  # none so far, or another thread begins or ends one
            return None
        return started if getattr(self._begun, "start", None) is started else None


collection: Final = _Collections()


# ------------------------------------------------------------------------------------------------------------ frames

# A frame at one of these has called nothing: what runs on top of it came in between.
_CALL_NOTHING: Final = frozenset(
    opmap[name]
    for name in (
        "BUILD_LIST", "BUILD_TUPLE", "COPY", "DELETE_DEREF", "DELETE_FAST", "JUMP_BACKWARD", "LOAD_CONST", "LOAD_FAST",
        "NOP", "POP_EXCEPT", "POP_TOP", "RESUME", "RETURN_VALUE", "STORE_DEREF", "STORE_FAST", "STORE_FAST_LOAD_FAST",
        "STORE_FAST_STORE_FAST", "STORE_GLOBAL", "SWAP",
    )
    if name in opmap
)  # fmt: skip
_FINALIZE: Final = weakref.finalize.__call__.__code__


def came_between(frame: FrameType) -> bool:
    """Whether a frame is of a finaliser, of a signal handler, or on top of a frame that has called nothing."""
    code, under = frame.f_code, frame.f_back
    if code.co_name == "__del__" or code is _FINALIZE:
        return True
    if under is None:
        return False
    if under.f_lasti >= 0 and under.f_code.co_code[under.f_lasti] in _CALL_NOTHING:
        return True
    return _handles(frame, code, under)


def _handles(frame: FrameType, code: CodeType, under: FrameType) -> bool:
    """Whether a function is a signal handler: its last argument is the frame that was interrupted."""
    n = code.co_argcount
    if code.co_flags & CO_VARARGS:
        rest = frame.f_locals.get(code.co_varnames[n + code.co_kwonlyargcount])
        if isinstance(rest, tuple) and rest:
            return rest[-1] is under
    return n > 1 and frame.f_locals.get(code.co_varnames[n - 1]) is under


@final
class Reach:
    """What a running function has called, and what those have, and so on; without what came in between.

    Cost: a comparison for a frame that was found here and is asked about again.
    """

    __slots__ = ("_collection", "_met", "base", "last", "thread")

    def __init__(self, base: FrameType) -> None:
        self.base: FrameType | None = base
        self.thread = threading.get_ident()
        self._collection = collection()
        self._met: dict[FrameType, None] = {}  # frames within, each called by the one before or by way of others
        self.last: FrameType | None = None  # of those

    def end(self) -> None:
        """Let go of the frames: the function ends."""
        self.base = self.last = None
        self._met = {}

    def __contains__(self, frame: FrameType) -> bool:
        """Whether a frame that runs in this thread is within."""
        if frame is self.last:
            return True
        if self.base is None or self.thread != threading.get_ident() or collection() is not self._collection:
            return False
        passed: list[FrameType] = []
        at: FrameType | None = frame
        while at is not None and at is not self.base and at not in self._met:
            if came_between(at):
                return False
            if not at.f_code.co_flags & CO_GENERATOR:  # anybody may run a generator on
                passed.append(at)
            at = at.f_back
        if at is None:  # an exception came between the end of the function and what it does last
            self.end()
            return False
        if at is self.base:
            self._met.clear()
        while self._met and next(reversed(self._met)) is not at:
            self._met.popitem()
        self._met.update(dict.fromkeys(reversed(passed)))
        self.last = frame if frame in self._met else None
        return True


@final
class _Setting(Generic[T]):
    """A value, where it is in force, and what was in force around."""

    __slots__ = ("outer", "reach", "value")

    def __init__(self, value: T, base: FrameType, outer: _Setting[T] | None) -> None:
        self.value, self.outer = value, outer
        self.reach = Reach(base)


@final
class Scoped(Generic[T]):
    """A value in force for what a block calls: `with scoped(value):`. What comes in between does not see it.

    A context variable keeps its value where an exception comes between the end of a block and the reset. So a value is
    in force only while the function that has the block runs.
    """

    __slots__ = ("_default", "_variable")

    def __init__(self, name: str, default: T) -> None:
        self._default = default
        self._variable: ContextVar[_Setting[T] | None] = ContextVar(name, default=None)

    def get(self) -> T:
        """The value in force."""
        setting = self._in_force(_getframe(1))
        return self._default if setting is None else setting.value

    def __call__(self, value: T) -> AbstractContextManager[None]:
        """Put a value in force, within a block."""
        return _Block(self, value)

    def _in_force(self, frame: FrameType) -> _Setting[T] | None:
        setting = self._variable.get()
        while setting is not None and frame not in setting.reach:
            if setting.reach.base is None and setting is self._variable.get():
                self._variable.set(setting.outer)
            setting = setting.outer
        return setting

    def enter(self, value: T, base: FrameType) -> Token[_Setting[T] | None]:
        """Put a value in force for what a running function calls."""
        return self._variable.set(_Setting(value, base, self._in_force(base)))

    def leave(self, token: Token[_Setting[T] | None]) -> None:
        """Put back what was in force before."""
        setting = self._variable.get()
        if setting is not None:
            setting.reach.end()
        self._variable.reset(token)


@final
class _Block(Generic[T]):
    """A block of a function in which a value is in force."""

    __slots__ = ("_scoped", "_token", "_value")

    def __init__(self, scoped: Scoped[T], value: T) -> None:
        self._scoped, self._value = scoped, value

    def __enter__(self) -> None:
        self._token = self._scoped.enter(self._value, _getframe(1))

    def __exit__(self, *_: object) -> None:
        self._scoped.leave(self._token)


__all__ = ["Reach", "Scoped", "came_between", "collection"]
