"""One page that explains a program: where bytes, time and digits go, by the user's own lines."""

from __future__ import annotations

import os
from typing import Protocol, runtime_checkable

from fxad.diagnosis.explain.build import comparison, page_of
from fxad.diagnosis.explain.error_tables import ErrorTable
from fxad.diagnosis.explain.page import Page
from fxad.errors import ArgumentError, described, shown
from fxad.execution.executable import Executable, lower
from fxad.tracing.program import Program
from fxad.transforms.memory.residuals import Residuals


def explain(
    program: object,
    after: object = None,
    /,
    *,
    profile: str | os.PathLike[str] | None = None,
    digits: ErrorTable | None = None,
    residuals: Residuals | None = None,
) -> Page:
    """Return the page of a program: what it costs, by lines of the user, and what is worth a change.

    `program` is an `Executable`, a `Lowered`, a `Program`, or a recorded call of `fx.replay`; all but the first are
    compiled, through the cache. With a second program, the page is that of the second one, and begins with what grew
    and what shrank, by line.

    `profile` is a folder that `fx.profile` has written while the program ran: times are measured instead of estimated.
    `digits` is the table `fx.rounding_errors` of the program, or of one that it was made from. `residuals` is the table
    `fx.residuals` of the function before it was differentiated.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> program = fx.trace(lambda x: fnp.sum(fnp.sin(x)), fx.Spec((300,), "float32"))
    >>> executable = fx.lower(fx.grad(program)).compile()
    >>> page = fx.explain(executable)
    >>> sum([row.bytes for row in page.memory]) == executable.memory().temp_bytes
    True
    >>> page.verdict[2]
    'again: nothing is computed or compiled again'

    Law:    the bytes of `page.memory` sum to `executable.memory().temp_bytes`; equal programs give equal pages.
    Raises: ArgumentError for a value that is no program, for tables of another kind, for a folder without a
            profile.
    Cost:   linear in the equations, and in the instructions of XLA; less than 2 s for 10,000 equations.
    """
    _check_tables(profile, digits, residuals)
    folder = None if profile is None else os.fspath(profile)
    if after is None:
        return page_of(_executable(program), folder, digits, residuals)
    first, second = _executable(program), _executable(after)
    return comparison(
        page_of(first, None, None, None, second.program.jaxpr),
        page_of(second, folder, digits, residuals, first.program.jaxpr),
        first.program.jaxpr,
        second.program.jaxpr,
    )


def _check_tables(profile: object, digits: object, residuals: object) -> None:
    if profile is not None and not isinstance(profile, str | os.PathLike):
        raise ArgumentError(
            f"explain: the profile is {described(profile)}, not a path: {shown(profile)}",
            remedy="name the folder of `with fx.profile(folder)`",
        )
    if digits is not None and not isinstance(digits, ErrorTable):
        raise ArgumentError(
            f"explain: digits are {described(digits)}, not a table of rounding errors: {shown(digits)}",
            remedy="give digits=fx.rounding_errors(program, *args)",
        )
    if residuals is not None and not isinstance(residuals, Residuals):
        raise ArgumentError(
            f"explain: residuals are {described(residuals)}, not a table: {shown(residuals)}",
            remedy="give residuals=fx.residuals(f, *args)",
        )


@runtime_checkable
class _Compilable(Protocol):
    """A `Lowered`, or a recorded call."""

    def compile(self) -> object:
        """Compile the program with the options that it has."""


def _executable(value: object) -> Executable[..., object]:
    """Return a compiled program. Raises: ArgumentError."""
    if isinstance(value, Executable):
        return value
    if isinstance(value, Program):
        return lower(value).compile()
    if isinstance(value, _Compilable):
        executable = value.compile()
        if isinstance(executable, Executable):
            return executable
    raise ArgumentError(
        f"explain: {described(value)} is not a program: {shown(value)}",
        remedy="give fx.lower(fx.trace(f, *args)), the executable that it compiles to, or fx.jit(f).lower(*args)",
    )
