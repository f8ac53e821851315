"""The smallest program that violates a law, as text, and the law at the program of such a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.diagnosis.reduce.candidate import Candidate
from fxad.diagnosis.reduce.reading import read_candidate
from fxad.diagnosis.reduce.reduce_program import reduce_program
from fxad.errors import FileFormatError, FxadError
from fxad.ir import Jaxpr, NDArray, distinct_jaxprs
from fxad.operations.arguments import function
from fxad.testing.programs import Case
from fxad.testing.values import PRECISE
from fxad.text import OwnPrimitives
from fxad.tracing.program import Program

R = TypeVar("R")

_BUDGET: Final = 10.0  # seconds for the note of a law that fails
_CASE: Final = re.compile(r"# case: seed=(\d+)(, smooth)?")


def reproduce(text: str, law: Callable[[Case], R], primitives: OwnPrimitives = ()) -> R:
    """Return `law(case)` for the case of a text: the one that the note of a failed law shows.

    `primitives` are classes of primitives from outside fxad that the program uses, too. A law with further arguments is
    given as `lambda case: check_rewrite(my_pass, case)`.

    Raises: what the law raises; ParseError, FileFormatError and ArgumentError for another text.
    """
    function("reproduce", "law", law)
    c = read_candidate(text, primitives)
    found = [m for line in text.splitlines() if (m := _CASE.fullmatch(line.strip()))]
    if c.args is None or c.n_bound:
        raise FileFormatError(
            "reproduce: the text has no arguments, or arrays that its program closes over: a case has arguments only",
            remedy="give the text of the note of a law",
        )
    seed, smooth = (int(found[0][1]), bool(found[0][2])) if found else (0, False)
    return law(Case(c.jaxpr, c.args, seed, smooth))


def note_reduced(error: Exception, name: str, law: Callable[[Case], object], case: Case) -> None:
    """Add a note to the error of a law: the smallest program that violates it, for `reproduce`."""
    wanted = reason_of(error)

    def fails(program: Program[..., object], args: tuple[NDArray, ...]) -> str | None:
        if case.smooth and not is_smooth(program.jaxpr, args):
            return None
        try:
            law(Case(program.jaxpr, args, case.seed, case.smooth))
        except Exception as e:  # noqa: BLE001  every failure has a reason
            return reason_of(e)
        return None

    try:
        small = reduce_program(Candidate(case.program, case.args).program(), fails, case.args, _BUDGET)
    except FxadError as e:  # the law fails only now and then, or an operand has no text
        error.add_note(f"It was not reduced: {e.message}")
        return
    marks = f"# case: seed={case.seed}{', smooth' * case.smooth}\n"
    error.add_note(
        f"A smaller program fails so too ({wanted}): {small.equations} of {small.before} equations."
        f" fxad.testing.reproduce(text, {name}) runs it, with this text:\n{small}{marks}"
    )


def reason_of(error: Exception) -> str:
    """Return the class of an error and the beginning of its message, without numbers."""
    beginning = str(error).partition("\n")[0].partition(":")[0]
    return f"{type(error).__name__}: {re.sub(r'[0-9]+', '0', beginning)}"


def is_smooth(jaxpr: Jaxpr, args: tuple[NDArray, ...]) -> bool:
    """Return True if finite differences can give the derivatives of a program at a point: its floats are precise, no
    operand is at 0, where functions may have kinks, and no value is infinite or nan."""
    values = [v.aval for body in distinct_jaxprs(jaxpr) for v in (*body.ins, *[v for e in body.eqns for v in e.outs])]
    if any([a.inexact and a.dtype not in PRECISE for a in values]):
        return False
    if any([x.dtype in dtypes.INEXACT and not np.all(np.abs(x) > 0) for x in args]):
        return False
    finite = [True]

    def look(_: int, __: object, outs: tuple[NDArray, ...]) -> None:
        finite.append(all([bool(np.isfinite(x).all()) for x in outs if x.dtype in dtypes.INEXACT]))

    try:
        run(jaxpr, args, look)
    except Exception:  # noqa: BLE001
        return False
    return all(finite)
