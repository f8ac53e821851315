"""`python -m fxad.explain FILE`: the page of a saved program.

    python -m fxad.explain program.fxad                     the page as text
    python -m fxad.explain program.fxad -o page.html        as an HTML file
    python -m fxad.explain before.fxad after.fxad           what grew, and what shrank

A file is one of `fx.save`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fxad.diagnosis.explain.explain import explain
from fxad.errors import FxadError
from fxad.storage.programs import load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status: 0, or 1 for a file that cannot be explained."""
    parser = argparse.ArgumentParser("python -m fxad.explain", description="Explain a saved program.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file of fx.save; two of them are compared")
    parser.add_argument("-o", "--output", metavar="PAGE", help="write an HTML file instead of text")
    parser.add_argument("--profile", metavar="FOLDER", help="a folder of fx.profile, for measured times")
    parser.add_argument("--trusted", action="store_true", help="import the modules that the files name")
    parsed = parser.parse_args(arguments)
    if len(parsed.files) > 2:
        parser.error("explain one file, or compare two")
    try:
        programs = [load(file, trusted=parsed.trusted) for file in parsed.files]
        page = explain(*programs, profile=parsed.profile)
        if parsed.output:
            page.save(parsed.output)
        else:
            sys.stdout.write(page.text() + "\n")
    except (FxadError, OSError) as e:
        sys.stderr.write(f"{e}\n")
        return 1
    return 0
