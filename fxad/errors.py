"""Every exception fxad raises.

Each leaf is an `FxadError` and also the builtin a Python programmer would expect, so `except ValueError` keeps working.
The message has one form: operation, what differs, the values; then, on lines of their own, the function that was called
if its name is another, the equation, the user's line and the remedy. Where the equation was written is added by whoever
knows it (`located`), once; where that does not apply, the line that called fxad stands in its place.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from types import FrameType
from typing import Final, Self

# What is not the user's: fxad, and what stands between a `with` statement and a generator of fxad's.
PACKAGE: Final = os.path.dirname(__file__) + os.sep  # where fxad's own code stands
_HERE: Final = (PACKAGE, contextlib.__file__)


def _caller() -> tuple[str, str]:
    """The innermost line on the stack that is not fxad's own, and what of fxad it called; empty where there is none."""
    frame, inner = sys._getframe(2), None
    while (code := frame.f_code).co_filename.startswith(_HERE) or code.co_qualname.startswith(_GENERATED):
        if frame.f_back is None:
            return "", ""
        frame, inner = frame.f_back, frame
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}", _public_name(inner) if inner else ""


_GENERATED: Final = "__create_fn__."  # the __init__ of a dataclass


def _public_name(frame: FrameType) -> str:
    """What users call the function that a frame runs: its name in the outermost package that has it."""
    name, module = frame.f_code.co_name, frame.f_globals.get("__name__", "")
    parts = module.split(".")
    for k in range(1, len(parts) + 1):
        found = getattr(sys.modules.get(".".join(parts[:k])), name, None)
        if getattr(found, "__code__", None) is frame.f_code:
            return ".".join([*parts[:k], name])
    return ""


_VOWELS: Final = (*"aeiouAEIO", "nd")  # an ndarray


def described(value: object) -> str:
    """What kind of thing a value is, with its article: `an int`, `a Tracer`."""
    name = type(value).__qualname__
    return f"{'an' if name.startswith(_VOWELS) else 'a'} {name}"


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the user's line, not at fxad's."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class DonationWarning(UserWarning):
    """Memory was given up that no result can use."""


class CacheWarning(UserWarning):
    """The cache on disk could not do its work; what it did not give was compiled."""


class FxadError(Exception):
    """Root of all fxad errors.

    `message` says operation, difference and values; `remedy` what to do; `equation` and `where` are filled in by the
    pass that knows them, `inside` says through which bodies one comes to the equation, from the outside in. `caller` is
    the user's line that called fxad and `function` what it called, taken when the error is made.
    """

    def __init__(
        self, message: str, *, remedy: str = "", equation: str = "", where: str = "", inside: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.equation = equation
        self.where = where
        self.inside = inside
        self.caller, self.function = _caller()

    def located(self, *, equation: str = "", where: str = "") -> Self:
        """Fill in the equation and the user's line where they are not known yet; returns the same error."""
        self.equation = self.equation or equation
        self.where = self.where or where
        return self

    def __str__(self) -> str:
        lines = [self.message]
        if self.function and not self.message.startswith(self.function.rpartition(".")[2]):
            lines.append(f"  function      {self.function}")  # the message names what it is made of
        if self.equation:
            lines.append(f"  equation      {self.equation}")
        if self.inside:
            lines.append(f"  inside        {', '.join(self.inside)}")
        if self.where:
            lines.append(f"  traced at     {self.where}")
        elif self.caller:
            lines.append(f"  called at     {self.caller}")
        if self.remedy:
            lines.append(f"  remedy        {self.remedy}")
        return "\n".join(lines)


class ShapeError(FxadError, ValueError):
    """Shapes, ranks or axes do not fit."""


class DTypeError(FxadError, TypeError):
    """A dtype is not one the operation takes."""


class ArgumentError(FxadError, TypeError):
    """A value of the wrong Python type, or the wrong number of arguments."""


class AxisError(FxadError, ValueError, IndexError):
    """An axis or a static index is out of range (like `numpy.exceptions.AxisError`)."""


class TreeError(FxadError, ValueError):
    """Two pytrees differ, or a tree prefix does not fit."""


class ParameterError(FxadError, ValueError):
    """A static parameter has a value the operation does not take."""


class TracerError(FxadError, TypeError):
    """A tracer was used where a value is needed: `if`, `float()`, NumPy."""


class LeakedTracerError(FxadError, ValueError):
    """A tracer outlived its trace, or belongs to another one."""


class NotDifferentiableError(FxadError, TypeError):
    """The derivative does not exist; the message gives the reason."""


class NotLinearError(FxadError, ValueError):
    """A program that had to be linear is not."""


class TypecheckError(FxadError, TypeError):
    """A jaxpr is not well formed or not well typed."""


class ParseError(FxadError, ValueError):
    """A program text is malformed; the message gives line and column."""


class PlacementError(FxadError, ValueError):
    """Arrays that meet in one operation were put on different devices."""


class CompileError(FxadError, RuntimeError):
    """XLA refused a program."""


class ExecutionError(FxadError, RuntimeError):
    """A compiled program failed while running."""


class CheckError(FxadError, RuntimeError):
    """A check of a program (`error_if`, `checked`) found that it has gone wrong."""


class CacheError(FxadError, OSError):
    """A directory cannot be the cache's."""


class FileFormatError(FxadError, ValueError):
    """A file is damaged, or not what it should be; the message says where."""


class NotInvertibleError(FxadError, ValueError):
    """Results do not determine what is to be reconstructed from them; the message names the equation."""
