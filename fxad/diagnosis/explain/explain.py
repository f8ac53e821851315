"""One page that explains a program: where bytes, time and digits go, by the user's own lines."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fxad.diagnosis.explain.build import comparison, page_of
from fxad.diagnosis.explain.findings import ErrorRow
from fxad.diagnosis.explain.page import Page
from fxad.errors import ArgumentError, described, shown
from fxad.execution.executable import Executable, Lowered, lower
from fxad.tracing.program import Program
from fxad.transforms.memory.residuals import Residuals


def explain(
    program: object,
    after: object = None,
    /,
    *,
    profile: str | os.PathLike[str] | None = None,
    digits: Sequence[ErrorRow] | None = None,
    residuals: Residuals | None = None,
) -> Page:
    """Return the page of a program: what it costs, by lines of the user, and what is worth a change.

    `program` is an `Executable`, a `Lowered`, a `Program`, or an object with an attribute `lowered`, such as a recorded
    call; all but the first are compiled, through the cache. With a second program, the page is that of the second one,
    and begins with what grew and what shrank, by line.

    `profile` is a folder that `fx.profile` has written while the program ran: times are measured instead of estimated.
    `digits` is a table of rounding errors: each row has an `error`, a `line`, an `equation` and `causes`. `residuals`
    is the table `fx.residuals` of the function before it was differentiated.

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
    Raises: ArgumentError for a value that is no program, and for a folder without a profile.
    Cost:   linear in the equations, and in the instructions of XLA; less than 2 s for 10,000 equations.
    """
    folder = None if profile is None else os.fspath(profile)
    if after is None:
        return page_of(_executable(program), folder, digits, residuals)
    first, second = _executable(program), _executable(after)
    return comparison(
        page_of(first, None, None, None),
        page_of(second, folder, digits, residuals),
        first.program.jaxpr,
        second.program.jaxpr,
    )


def _executable(value: object) -> Executable[..., object]:
    """Return a compiled program. Raises: ArgumentError."""
    if isinstance(value, Executable):
        return value
    if isinstance(value, Program):
        return lower(value).compile()
    lowered = value if isinstance(value, Lowered) else getattr(value, "lowered", None)
    if isinstance(lowered, Lowered):
        return lowered.compile()
    raise ArgumentError(
        f"explain: {described(value)} is not a program: {shown(value)}",
        remedy="give fx.lower(fx.trace(f, *args)), the executable that it compiles to, or fx.jit(f).lower(*args)",
    )
