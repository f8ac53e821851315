"""Every exception fxad raises.

Each leaf is an `FxadError` and also the builtin a Python programmer would expect, so `except ValueError` keeps working.
Every message has one form: operation, difference, values. Then follow, on separate lines, the called function if the
operation has another name, the equation, the user's line and the remedy. The pass that knows the equation adds its
source line (`located`), once. An error without an equation has the line that called fxad instead.

    matmul: contracting sizes differ: lhs dim 1 has 4, rhs dim 0 has 5: f32[3,4] and f32[5,6]
      equation      matmul %arg0:f32[3,4] %arg1:f32[5,6]
      traced at     model.py:42 in attend
      remedy        the last axis of the left operand meets the last but one of the right; transpose with .mT or .T
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from types import FrameType
from typing import Final, Protocol, Self

import numpy as np
import optree


def _folder_in_code() -> str:
    """Return the folder of this file in tracebacks: not that of `__file__`, if the file was compiled elsewhere."""
    return os.path.dirname(_folder_in_code.__code__.co_filename) + os.sep


PACKAGE: Final = _folder_in_code()  # where fxad's own code stands, in tracebacks
# Frames that are not the user's: fxad's, those between a `with` statement and a generator of fxad's, or below a
# thread of fxad's, NumPy's, which calls functions on rows, and optree's, which calls those of registered classes.
INTERNAL_FILES: Final = (
    PACKAGE,
    contextlib.contextmanager.__code__.co_filename,
    threading.Thread.run.__code__.co_filename,
    *[os.path.dirname(str(m.__file__)) + os.sep for m in (np, optree)],
)


def _caller() -> tuple[str, str]:
    """Return the user's line that called fxad, and the public function of fxad that it called; empty strings without a
    line.

    It is the line of the innermost frame of the user. A rule of the user's primitive counts as part of fxad, with the
    functions that it calls, so in this stack it is the line in `main`:

        main -> fxad: vmap -> MyPrimitive.batch -> a function of the user -> fxad: fnp.reshape, which raises
    """
    frame: FrameType | None = sys._getframe(2)
    inner: FrameType | None = None
    while frame is not None:
        if _is_internal(frame):
            inner = frame if _is_of_fxad(frame) else inner
            frame = frame.f_back
            continue
        last = frame  # the outermost frame of this run of user frames
        while last.f_back is not None and not _is_internal(last.f_back):
            last = last.f_back
        if last.f_back is None or not is_rule(last):
            code = frame.f_code
            called = _public_name(inner) if inner else ""
            if called in _BIND:
                called = f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}"
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}", called
        frame, inner = last.f_back, None
    return "", ""


def _is_internal(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(INTERNAL_FILES) or _is_of_fxad(frame)


def _is_of_fxad(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(PACKAGE) or code.co_qualname.startswith(_GENERATED)


# They apply any primitive: the function that calls them says which.
_BIND: Final = frozenset({"fxad.tracing.tracer.bind", "fxad.extend.bind"})
_GENERATED: Final = "__create_fn__."  # the __init__ of a dataclass


def is_rule(frame: FrameType) -> bool:
    """Return True if a frame runs a rule of a primitive. Rules of users count as part of fxad."""
    code = frame.f_code
    own = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return hasattr(type(own), "abstract_eval")


def _public_name(frame: FrameType) -> str:
    """Return the public name of the function of a frame: its name in the outermost package that exports it."""
    name, module = frame.f_code.co_name, frame.f_globals.get("__name__", "")
    parts = module.split(".")
    for k in range(1, len(parts) + 1):
        exported = getattr(sys.modules.get(".".join(parts[:k])), name, None)
        if getattr(exported, "__code__", None) is frame.f_code:
            return ".".join([*parts[:k], name])
    return ""


def name_equation(e: Exception, equation: str, where: str) -> None:
    """Name the equation whose rule raised an exception, and the user's line: in the message of an `FxadError`, in a
    note of any other exception, such as one of the user's own primitive."""
    if isinstance(e, FxadError):
        outermost = (*e.around, e.where)[0].rpartition(" in ")[0]
        if e.equation and where and where.rpartition(" in ")[0] != outermost:  # of an equation in a body of this one
            e.around = (where, *e.around)
        e.located(equation=equation, where=where)
    elif not any([note.startswith(_NOTE) for note in getattr(e, "__notes__", ())]):
        e.add_note(f"{_NOTE}{equation}" + (f"\n  traced at     {where}" if where else ""))


_NOTE: Final = "  equation      "


def exception_text(e: BaseException) -> str:
    """Return the class and the message of an exception, also if its `__str__` raises."""
    try:
        return f"{type(e).__name__}: {e}"
    except Exception as own:  # noqa: BLE001  any error of the user's __str__
        return f"{type(e).__name__}, whose __str__ raised {type(own).__name__}"


def first_line(e: BaseException) -> str:
    """Return the first line of the message of an exception: of an `FxadError`, without the equation and the remedy."""
    return str(e).partition("\n")[0]


_VOWELS: Final = (*"aeiouAEIO", "nd")  # an ndarray


NEEDS_STATIC: Final = (
    "sizes, axes and range() need Python ints: make the argument static, with static_argnums or static_argnames of jit,"
    " grad, vmap, ...; x[i] takes tracers"
)


def remedy_of(e: BaseException) -> str:
    """Return the remedy of an error of fxad; of any other, nothing."""
    return e.remedy if isinstance(e, FxadError) else ""


def described(value: object) -> str:
    """Return the type of a value with its article: `an int`, `a Tracer`."""
    name = type(value).__qualname__
    return f"{'an' if name.startswith(_VOWELS) else 'a'} {name}"


def shown(value: object, width: int = 60) -> str:
    """Return the beginning of the text of a value, for messages. An object that cannot give its text is named by its
    type."""
    try:
        return f"{value!r}"[:width]
    except Exception:  # noqa: BLE001  # the user's code
        if type(value) is dict:
            text = f"{{{', '.join([f'{shown(k)}: {shown(v)}' for k, v in value.items()])}}}"
        elif type(value) is list or type(value) is tuple:
            text = f"{type(value).__name__}({', '.join(map(shown, value))})"
        else:
            text = f"<{type(value).__qualname__}>"
        return text[:width]


class _HasShape(Protocol):
    @property
    def shape(self) -> object: ...


def mismatch(have: _HasShape, want: _HasShape) -> type[FxadError]:
    """Return the class of the error for one type in the place of another: ShapeError if their shapes differ, else
    DTypeError."""
    return DTypeError if have.shape == want.shape else ShapeError


def warn(message: str, category: type[Warning]) -> None:
    """Warn with a message that points at the user's line, not at fxad's."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(INTERNAL_FILES) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class DonationWarning(UserWarning):
    """No result can reuse donated memory."""


class StorageWarning(UserWarning):
    """A file may not be readable by another program."""


class CacheWarning(UserWarning):
    """The disk cache failed to read or write an entry; programs were compiled instead."""


class RecompilationWarning(UserWarning):
    """The calls at one line of the user have made a jitted function compile many programs."""


class FxadError(Exception):
    """Root of all fxad errors.

    `message` contains operation, difference and values; `remedy` says what to do. The pass that knows them fills in
    `equation` and `where`. `inside` lists the bodies around the equation, outermost first. `around` lists the lines of
    the equations with these bodies, as far as a rule recurred into them; `where` may then be the line of an equal
    function. `path` holds the equations around the equation, outermost first, and the equation. `caller` is the user's
    line that called fxad, and `function` is the called function; both are recorded when the error is made.
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
        self.around: tuple[str, ...] = ()
        self.path: tuple[object, ...] = ()
        self.caller, self.function = _caller()

    def called_here(self) -> None:
        """Fill in the user's line that called fxad, where the error was made in another thread."""
        if not self.caller:
            self.caller, self.function = _caller()

    def located(self, *, equation: str = "", where: str = "") -> Self:
        """Fill in the equation and the user's line where they are not known yet, and return the same error."""
        self.equation = self.equation or equation
        self.where = self.where or where
        return self

    def __str__(self) -> str:
        lines = [self.message]
        if self.function and not self.message.startswith(self.function.rpartition(".")[2]):
            lines.append(f"  function      {self.function}")  # unless the message begins with the name
        if self.equation:
            lines.append(f"  equation      {self.equation}")
        if self.inside:
            lines.append(f"  inside        {', '.join(self.inside)}")
        if self.where:
            labels = ("traced at   ", *["in a body at"] * len(self.around))
            lines += [f"  {k}  {line}" for k, line in zip(labels, (*self.around, self.where), strict=True)]
        elif self.caller:
            lines.append(f"  called at     {self.caller}")
        if self.remedy:
            lines.append(f"  remedy        {self.remedy}")
        return "\n".join(lines)


class ShapeError(FxadError, ValueError):
    """Shapes, ranks or axes do not fit."""


class SizeError(FxadError, TypeError):
    """A named size is used where a number is needed, or its assumptions do not decide a comparison."""


class UnknownSizeError(SizeError):
    """A step needs the value of a named size, or a comparison of sizes that the assumptions do not decide."""


class NotMaskedError(SizeError):
    """An equation has no padded form; the message gives the reason."""


class DTypeError(FxadError, TypeError):
    """A dtype is not one the operation takes."""


class ArgumentError(FxadError, TypeError):
    """A value of the wrong Python type, or the wrong number of arguments."""


class AxisError(FxadError, ValueError, IndexError):
    """An axis or a static index is out of range (like `numpy.exceptions.AxisError`)."""


class AxisNameError(FxadError, NameError):
    """A named axis is not in scope, is bound twice, or has another size."""


class TreeError(FxadError, ValueError):
    """Two pytrees differ, or a tree prefix does not fit."""


class ParameterError(FxadError, ValueError):
    """A static parameter has a value the operation does not take."""


class BudgetError(ParameterError):
    """No plan of a program fits into a budget. `least`: the fewest bytes of temporaries that were reached."""

    least: int

    def __init__(self, message: str, *, remedy: str, least: int) -> None:
        super().__init__(message, remedy=remedy)
        self.least = least


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
    """The operands of one operation are committed to different devices."""


class CompileError(FxadError, RuntimeError):
    """XLA refused a program."""


class ExecutionError(FxadError, RuntimeError):
    """A compiled program failed while running."""


class CheckError(FxadError, RuntimeError):
    """A check of a program (`error_if`, `checked`) failed."""


class CacheError(FxadError, OSError):
    """A directory cannot be used for the cache."""


class FileFormatError(FxadError, ValueError):
    """A file is damaged, or not what it should be; the message says where."""


class DepthError(FxadError, RecursionError):
    """Programs are nested more deeply than the system has stack for."""


class TranslationError(FxadError, NotImplementedError):
    """A program of another library has a part that fxad does not have."""


class NotInvertibleError(FxadError, ValueError):
    """The results do not determine the operands to reconstruct; the message names the equation."""


# JAX's names, for `except`.
ConcretizationTypeError = TracerError
NonConcreteBooleanIndexError = TracerError
TracerArrayConversionError = TracerError
TracerBoolConversionError = TracerError
TracerIntegerConversionError = TracerError
UnexpectedTracerError = LeakedTracerError
JaxRuntimeError = ExecutionError
