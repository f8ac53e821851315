"""All benchmarks as tables, or those of some modules.

    python -m benchmarks.run                                              measure everything, and show it
    python -m benchmarks.run models units --write docs/benchmarks.md      two modules; the rest of the page stays

`make bench` does either. The page is saved after each module, so a run that is stopped loses only the current module.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.progress import track

from benchmarks.harness import Row, show
from benchmarks.page import page, save, section, sections, taken

# Each module runs in its own interpreter, so that programs and compiled code of one do not slow down the next.
MODULES: Final = (
    "trace",
    "interfaces",
    "lower",
    "eager",
    "call",
    "threads",
    "import",
    "models",
    "steps",
    "remat",
    "functions",
    "outline",
    "units",
    "disk",
    "mask",
    "devices",
)

# The sections of the page. `benchmarks.sparse` writes its own, beside other libraries; `benchmarks.gpu` on a GPU.
ORDER: Final = (*MODULES, "sparse", "gpu")

RUN: Final = (
    "import json, sys; from dataclasses import asdict; from benchmarks import bench_{0};"
    " json.dump([asdict(r) for r in bench_{0}.rows()], sys.stdout)"
)


# Memory that a step frees stays in the process. Otherwise each step of a large program may fault its pages in again,
# depending on the heap's layout, in fxad and jax alike.
MALLOC: Final = {"MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_MMAP_THRESHOLD_": "33554432"}


def measure(module: str) -> list[Row]:
    """Returns the rows of one benchmark."""
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(module)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **MALLOC},
    )
    return [Row(**row) for row in json.loads(done.stdout)]


def main(argv: Sequence[str] | None = None, measure: Callable[[str], list[Row]] = measure) -> int:
    """Runs, shows and writes. A module that fails keeps its earlier section, and is named at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)}; all by default")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the sections into this page, too")
    args = parser.parse_args(argv)
    chosen = [name.removeprefix("bench_") for name in args.modules] or list(MODULES)
    if unknown := [name for name in chosen if name not in MODULES]:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(MODULES)}")
    failed = []
    for name in track(chosen, "measuring"):
        when = taken()
        try:
            rows = measure(name)
        except subprocess.CalledProcessError as error:
            failed.append(f"{name} (exit status {error.returncode})")
            continue
        show(f"{name}: fxad beside jax", rows)
        if args.write:
            before = sections(args.write.read_text(encoding="utf-8")) if args.write.exists() else {}
            save(args.write, page({**before, name: section(rows, when)}, ORDER))
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
