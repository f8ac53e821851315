"""Recorded calls at the command line: `python -m fxad.replay FILE`.

For each call it prints the report and the program, runs the program with the options of the call, and says if the
results have the recorded bits, and where they first differ from those of the interpreter. The exit status is 1 if some
call differs from the interpreter. `python -m fxad.replay FILE --save ONE` writes a call to one file, with the arrays
that it shares with other files of its folder, to attach it to a report. `fx.replay` is the function that reads files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import cast

from fxad.diagnosis.bisect.bisect import bisect
from fxad.diagnosis.record.recording import error_text
from fxad.diagnosis.record.replay import RecordedCall, replay
from fxad.errors import ArgumentError, FxadError
from fxad.text import to_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the calls of files and folders. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fxad.replay", description="Run recorded calls of fxad again.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, or a folder, that fx.record wrote")
    parser.add_argument("--tolerance", type=float, help="of the comparison with the interpreter, relative; 0: bits")
    parser.add_argument("--time-limit", type=float, help="seconds for a run, in a child process; for crashes and hangs")
    parser.add_argument("--without-text", action="store_true", help="do not print the programs")
    parser.add_argument("--save", metavar="ONE", help="write the call to one file that needs no other, and run nothing")
    options = parser.parse_args(arguments)
    differs = False
    try:
        if options.save is not None:
            _save([call for file in options.files for call in replay(file)], options.save)
            return 0
        for file in options.files:
            for call in replay(file):
                differs |= _replayed(call, options)
    except (FxadError, OSError) as e:
        if isinstance(e, FxadError):
            e.caller = ""  # a line of Python's own runpy
        sys.stderr.write(f"{e}\n")
        return 2
    return int(differs)


def _save(calls: Sequence[RecordedCall], path: str) -> None:
    if len(calls) != 1:
        raise ArgumentError(f"replay: --save is for one call, not for {len(calls)}", remedy="name its file")
    calls[0].save(path)


def _replayed(call: RecordedCall, options: argparse.Namespace) -> bool:
    """Print the report of a call. Return True if it differs from the interpreter."""
    text = "" if options.without_text else to_text(call.program.jaxpr, source=True)
    sys.stdout.write(f"{call}\n{text}")
    sys.stdout.flush()  # the program may end the process
    try:
        divergence = bisect(call, tolerance=options.tolerance, time_limit=options.time_limit)
    except FxadError as e:
        if not call.error:
            raise
        same = "the recorded error" if error_text(e) == call.error else "another error than recorded"
        sys.stdout.write(f"{e}\nthe program raises {same}\n")
        return False
    sys.stdout.write(f"{divergence or 'compiled and interpreted agree'}\n")
    if call.results is not None and not call.stand_ins and options.time_limit is None:
        bits = "the recorded bits" if call.same_bits() else "other bits than recorded"
        sys.stdout.write(f"the results have {bits}\n")
    return divergence is not None


if __name__ == "__main__":
    sys.exit(main())
# `fx.replay` stays the function after `import fxad.replay`: Python sets as attribute what this table has.
sys.modules[__name__] = cast(ModuleType, replay)
