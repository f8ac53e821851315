"""Distinguishes code that a function called from asynchronous code that Python runs between two bytecodes.

Finalisers, signal handlers and callbacks of weak references run on top of an arbitrary frame, in its context, as if
that frame had called them. If a finaliser computes while `f` is traced, two calls of `sin` look alike:

    trace_flat -> f -> the user's code -> sin               called by `f`: an equation of the program of `f`
    trace_flat -> f -> the user's code -> __del__ -> sin    called by a collection: no equation, it is computed

This module tells them apart by the frames. It installs only C functions, in `gc.callbacks`, which record the begin and
end of a collection. A Python function there could receive the KeyboardInterrupt of a long collection, which would then
be lost.
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
from types import FrameType
from typing import Final, Generic, TypeVar, final

T = TypeVar("T")

# ------------------------------------------------------------------------------------------------------- collections


@final
class _Collections:
    """The reports of the garbage collector: the last phase in any thread, and the last start in each thread.

    The collector calls each callback with a phase, "start" or "stop", and a new dict `info`. Three functions in C
    record it: `_phases.pop(phase, info)` removes the key of the phase, `_phases.__setitem__(phase, info)` enters it
    again, so it is the last key, and `setattr(_starts, phase, info)` stores the dict for this thread. A collection
    runs in this thread if the last phase is "start", and its dict is the one that this thread has stored.
    """

    __slots__ = ("_starts", "_phases")

    def __init__(self) -> None:
        self._phases: dict[str, dict[str, int]] = {}  # the last phase is the last key
        self._starts = threading.local()
        gc.callbacks.extend((self._phases.pop, self._phases.__setitem__, partial(setattr, self._starts)))

    def __call__(self) -> object | None:
        """The running collection of this thread, during which Python runs finalisers; None if there is none."""
        try:
            if next(reversed(self._phases)) != "start":
                return None
            started = self._phases["start"]
        except (KeyError, RuntimeError, StopIteration):  # no collection so far, or one starts or ends in another thread
            return None
        return started if getattr(self._starts, "start", None) is started else None


running_collection: Final = _Collections()


# ------------------------------------------------------------------------------------------------------------ frames

# These instructions call nothing. A frame on top of a frame at one of them is asynchronous.
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


def is_asynchronous(frame: FrameType) -> bool:
    """Returns True for a frame of a finaliser or of a signal handler, or one on top of a frame that called nothing."""
    code, caller = frame.f_code, frame.f_back
    if code.co_name == "__del__" or code is _FINALIZE:
        return True
    if caller is None:
        return False
    last = caller.f_lasti
    if last >= 0 and caller.f_code.co_code[last] in _CALL_NOTHING:
        return True
    # a signal handler has two arguments or more, the last of which is the interrupted frame
    if code.co_flags & CO_VARARGS:
        varargs = frame.f_locals.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        if isinstance(varargs, tuple) and varargs:
            return varargs[-1] is caller
    n = code.co_argcount
    return n > 1 and frame.f_locals.get(code.co_varnames[n - 1]) is caller


@final
class CalledFrames:
    """The frames that a running function called, directly or indirectly, without asynchronous ones.

    Cost: one comparison for the frame that was looked up last; about 0.5 us for another frame with the same caller.
    """

    __slots__ = ("_caller", "_collection", "_members", "base", "last", "thread")

    def __init__(self, base: FrameType) -> None:
        self.base: FrameType | None = base
        self.thread = threading.get_ident()
        self._collection = running_collection()
        self._members: dict[FrameType, None] = {}  # known members, each called by the one before, perhaps indirectly
        self._caller: FrameType | None = base  # the last of them
        self.last: FrameType | None = None  # the member that was found last; often called by `_caller`

    def end(self) -> None:
        """Drop the references to frames, at the end of the function."""
        self.base = self.last = self._caller = None
        self._members = {}

    def __contains__(self, frame: FrameType) -> bool:
        """Returns True if the function called a frame of this thread, directly or indirectly."""
        if frame is self.last:
            return True
        if self.base is None or self.thread != threading.get_ident() or running_collection() is not self._collection:
            return False
        if frame.f_back is not self._caller:
            return self._find(frame)
        if is_asynchronous(frame):
            return False
        self.last = None if frame.f_code.co_flags & CO_GENERATOR else frame  # another caller may resume a generator
        return True

    def _find(self, frame: FrameType) -> bool:
        """`__contains__` by a walk from a frame to a known member. The frames on the way become known members."""
        base, members, last = self.base, self._members, self.last
        unknown: list[FrameType] = []  # the frames on the way, from `frame` on
        current = frame
        while current is not base and current is not last and current not in members:
            if is_asynchronous(current):
                return False
            unknown.append(current)
            caller = current.f_back
            if caller is None:  # the function has ended, and an asynchronous exception prevented its call of `end`
                self.end()
                return False
            current = caller
        if current is last and current is not base:
            members[current] = None
        while members and next(reversed(members)) is not current:  # members after it have returned
            members.popitem()
        while len(unknown) > 1:  # the callers of `frame`; another caller may resume a generator
            caller = unknown.pop()
            if not caller.f_code.co_flags & CO_GENERATOR:
                members[caller] = None
                current = caller
        self._caller = current
        self.last = None if frame.f_code.co_flags & CO_GENERATOR else frame
        return True


@final
class _Setting(Generic[T]):
    """A value, the frames in which it is in force, and the setting of the enclosing block."""

    __slots__ = ("outer", "frames", "value")

    def __init__(self, value: T, base: FrameType, outer: _Setting[T] | None) -> None:
        self.value, self.outer = value, outer
        self.frames = CalledFrames(base)


@final
class Scoped(Generic[T]):
    """A value that is in force for the calls of a block: `with scoped(value):`. Asynchronous code does not see it.

    A context variable keeps its value if an asynchronous exception is raised between the end of a block and the reset.
    So a value is in force only while the function that contains the block runs.
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
        """A context manager that puts a value in force."""
        return _Block(self, value)

    def _in_force(self, frame: FrameType) -> _Setting[T] | None:
        setting = self._variable.get()
        while setting is not None and frame not in setting.frames:
            if setting.frames.base is None and setting is self._variable.get():
                self._variable.set(setting.outer)
            setting = setting.outer
        return setting

    def enter(self, value: T, base: FrameType) -> Token[_Setting[T] | None]:
        """Put a value in force for the calls of a running function."""
        return self._variable.set(_Setting(value, base, self._in_force(base)))

    def leave(self, token: Token[_Setting[T] | None]) -> None:
        """Restore the previous value."""
        setting = self._variable.get()
        if setting is not None:
            setting.frames.end()
        self._variable.reset(token)


@final
class _Block(Generic[T]):
    """The context manager of `Scoped`."""

    __slots__ = ("_scoped", "_token", "_value")

    def __init__(self, scoped: Scoped[T], value: T) -> None:
        self._scoped, self._value = scoped, value

    def __enter__(self) -> None:
        self._token = self._scoped.enter(self._value, _getframe(1))

    def __exit__(self, *_: object) -> None:
        self._scoped.leave(self._token)


__all__ = ["CalledFrames", "Scoped", "is_asynchronous", "running_collection"]
