"""`python -m fxad.explain FILE`: the page of a saved program, or of a recorded call.

    python -m fxad.explain program.fxad                     the page as text
    python -m fxad.explain program.fxad -o page.html        as an HTML file
    python -m fxad.explain before.fxad after.fxad           what grew, and what shrank
    python -m fxad.explain folder --digits                  a recorded call, with the digits that it loses

A file is one of `fx.save`, or of `fx.record`. A folder of `fx.record` stands for its calls, equal ones once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from fxad.diagnosis.explain.error_tables import ErrorTable
from fxad.diagnosis.explain.explain import explain
from fxad.errors import ArgumentError, FxadError
from fxad.storage.file_format import has_header
from fxad.storage.programs import load
from fxad.tracing.program import Program

# The header of a file of `fx.record`: `KIND` of `record.call_file`, which this plug-in does not import.
_RECORDED: Final = "fxad call"


class ReplayedCall(Protocol):
    """A call that `fx.replay` returns."""

    @property
    def path(self) -> str:
        """The file."""

    @property
    def program(self) -> Program[..., object]:
        """The program that was called."""

    @property
    def options(self) -> object:
        """How it was compiled; a text, by `str`."""

    @property
    def args(self) -> tuple[object, ...]:
        """The positional arguments."""

    @property
    def kwargs(self) -> Mapping[str, object]:
        """The keyword arguments."""


# `main` takes functions of other plug-ins in tuples: where one is deleted, its tuple is empty.
_Reader: TypeAlias = Callable[[str], Iterable[ReplayedCall]]
_Measure: TypeAlias = Callable[..., ErrorTable]  # takes a program and its arguments


def main(
    arguments: Sequence[str] | None = None, *, recordings: Sequence[_Reader] = (), tables: Sequence[_Measure] = ()
) -> int:
    """Run the command. `recordings` reads recorded calls, `tables` measures rounding errors; each has one function, or
    none where that plug-in is not installed.

    Return the exit status: 0, or 1 for a file that cannot be explained.
    """
    parser = argparse.ArgumentParser("python -m fxad.explain", description="Explain saved programs and recorded calls.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="of fx.save or fx.record; two of them are compared")
    parser.add_argument("-o", "--output", metavar="PAGE", help="write an HTML file instead of text")
    parser.add_argument("--profile", metavar="FOLDER", help="a folder of fx.profile, for measured times")
    parser.add_argument("--digits", action="store_true", help="measure the rounding errors of a recorded call")
    parser.add_argument("--trusted", action="store_true", help="import the modules that the files name")
    parsed = parser.parse_args(arguments)
    try:
        programs = [p for file in parsed.files for p in _programs(file, recordings, parsed.trusted)]
        if len(programs) > 2:
            names = ", ".join([os.path.basename(getattr(p, "path", "a saved program")) for p in programs])
            parser.error(f"explain one program, or compare two, not {len(programs)}: {names}")
        digits = _digits(programs[-1], tables) if parsed.digits else None
        page = explain(*programs, profile=parsed.profile, digits=digits)
        if parsed.output:
            page.save(parsed.output)
        else:
            sys.stdout.write(page.text() + "\n")
    except (FxadError, OSError) as e:
        sys.stderr.write(f"{e}\n")
        return 1
    return 0


def _programs(file: str, recordings: Sequence[_Reader], trusted: bool) -> list[Program[..., object] | ReplayedCall]:
    """Return the program of a file, or the recorded calls of a file or folder; of equal ones the last."""
    if recordings and _is_recorded(file):
        calls = {(call.program.jaxpr, str(call.options)): call for call in recordings[0](file)}
        return [*calls.values()]
    return [load(file, trusted=trusted)]


def _is_recorded(file: str) -> bool:
    if os.path.isdir(file):
        return True
    if not os.path.isfile(file):  # a pipe waits for a writer
        return False
    with open(file, "rb") as f:
        return has_header(f.read(len(_RECORDED) + 1), _RECORDED)


def _digits(value: Program[..., object] | ReplayedCall, tables: Sequence[_Measure]) -> ErrorTable | None:
    """Return the rounding errors of a recorded call."""
    if not tables or isinstance(value, Program):
        raise ArgumentError(
            "explain: --digits measures the rounding errors of a call, and a saved program has no arguments",
            remedy="record a call, `with fx.record(folder)`, and explain the folder;"
            " or fx.explain(program, digits=fx.rounding_errors(program, *args))",
        )
    return tables[0](value.program, *value.args, **value.kwargs)
