"""Values that are in force for the frames that a running function has called, and for no others.

A context variable alone would not do. If an exception of a signal handler is raised between the end of a block and the
reset of its variable, the variable keeps the value of a block that has ended. And a callback may run in another thread
with a copy of the context. So a value is in force only for code on top of the frame of the function, in its thread.

A finaliser or a signal handler runs on top of the frame that it interrupts. So code of fxad that it calls while a
function is traced becomes part of the trace.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from inspect import CO_GENERATOR
from sys import _getframe
from types import FrameType
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class CalledFrames:
    """The frames that a running function has called, directly or indirectly.

    `_path` has known frames of the stack: `base`, a frame that `base` called, one that this one called, and so on.
    `_caller` is the last frame of the path, and `last` a frame that `_caller` called. `last` is not in the path: most
    frames return without having called another one that is looked up, and cost one assignment so. When a walk from
    another frame meets `last`, it has called that frame, so it joins the path.

        looked up       the stack                   path            _caller     last
        a               base > f > g > a            base f g        g           a       a walk from a to base
        a2              base > f > g > a2           base f g        g           a2      called by _caller
        b               base > f > h > b            base f h        h           b       a walk from b to f: g is gone
        c               base > f > h > b > c        base f h b      b           c       a walk from c to last

    A generator is never in the path and never `last`: another frame may resume it, and then it is called by that one.

    Cost: one comparison for the frame that was looked up last; about 0.5 us for another frame with the same caller.
    """

    __slots__ = ("_caller", "_path", "base", "last", "thread")

    def __init__(self, base: FrameType) -> None:
        self.base: FrameType | None = base
        self.thread = threading.get_ident()
        self._path: dict[FrameType, None] = {base: None}  # a dict, which finds a frame at once and has an order
        self._caller: FrameType | None = base
        self.last: FrameType | None = None  # the frame that was found last

    def end(self) -> None:
        """Drop the references to frames, at the end of the function."""
        self.base = self.last = self._caller = None
        self._path = {}

    def __contains__(self, frame: FrameType) -> bool:
        """Return True if the function called a frame of this thread, directly or indirectly."""
        if frame is self.last:
            return True
        if self.base is None or self.thread != threading.get_ident():
            return False
        if frame.f_back is not self._caller and not self._walk_to_path(frame):
            return False
        self.last = None if frame.f_code.co_flags & CO_GENERATOR else frame
        return True

    def _walk_to_path(self, frame: FrameType) -> bool:
        """Walk from a frame through its callers to the path, which then leads to the frame. Return False if no caller
        is in the path."""
        path, last = self._path, self.last
        unknown: list[FrameType] = []  # the frames on the way, from `frame` on
        current = frame
        while current not in path and current is not last:
            unknown.append(current)
            caller = current.f_back
            if caller is None:  # the function has ended, and an asynchronous exception prevented its call of `end`
                self.end()
                return False
            current = caller
        path[current] = None  # `last` joins the path
        while next(reversed(path)) is not current:  # the frames after it have returned
            path.popitem()
        for caller in reversed(unknown[1:]):
            if not caller.f_code.co_flags & CO_GENERATOR:
                path[caller] = None
        self._caller = next(reversed(path))
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
    """A value that is in force for the calls of a block: `with scoped(value):`.

    It is in force only while the function that contains the block runs.
    """

    __slots__ = ("_default", "_variable")

    def __init__(self, name: str, default: T) -> None:
        self._default = default
        self._variable: ContextVar[_Setting[T] | None] = ContextVar(name, default=None)

    def get(self) -> T:
        """Return the value in force."""
        setting = self._in_force(_getframe(1))
        return self._default if setting is None else setting.value

    def __call__(self, value: T) -> AbstractContextManager[None]:
        """Return a context manager that puts a value in force."""
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
