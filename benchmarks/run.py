"""All benchmarks as one table. `python -m benchmarks.run [--write docs/benchmarks.md]`; `make bench` does both."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from rich.progress import track

from benchmarks.harness import Row, show

# Each in an interpreter of its own: what one leaves behind (programs, compiled code) is no burden on the next.
MODULES = (
    "bench_trace",
    "bench_faces",
    "bench_lower",
    "bench_eager",
    "bench_call",
    "bench_threads",
    "bench_import",
    "bench_models",
    "bench_remat",
    "bench_functions",
    "bench_outline",
    "bench_units",
    "bench_disk",
)

RUN = (
    "import json, sys; from dataclasses import asdict; from benchmarks import {0};"
    " json.dump([asdict(r) for r in {0}.rows()], sys.stdout)"
)

HEAD = """# Benchmarks

Written by `make bench`, as measured; a budget that is missed is in the table like any other. fxad and jax take turns in
one process and each keeps its best turn, so the ratio holds better than the times. Budgets are those of the ratio, or
of fxad's own figure where a unit stands beside it.

Measured on {day}: {cores} CPU cores ({arch}), shared with other work at a load of {load:.1f};
Python {python}, jaxlib {jaxlib}, jax {jax}.

| what | fxad | jax | ratio | budget | |
|---|---:|---:|---:|---:|---|
"""

# What a reader must know of a row, by the beginning of its name.
NOTES = {
    "second process: MLP": "Not to be had: of the CPU time of such a process (430 ms under load) NumPy and jaxlib take "
    "185 to import, and the first product of matrices 40, in jax's too; fxad takes 155 to import, with optree and "
    "pyrsistent, 24 to trace and differentiate, 6 for the key of its sources, 11 to find and load.",
    "second process": "Both load the same machine code: 0.1 s of importing jaxlib and numpy, and XLA's loading of the "
    "executable, are in both columns.",
    "trace and value_and_grad": "Close to its budget: runs gave 0.105 to 0.128. jax cannot differentiate what is "
    "traced already; the row below is what fxad's transformation costs alone.",
    "trace: 100,000": "Both columns are fxad's: an equation of a program of 100,000, and of 1,000. "
    "A turn of 100,000 takes 0.3 s: 0.88 to 0.99 on a quiet machine, up to 1.97 under a load of 5.",
    "a unit of a linked run beside": "Both columns are one run's: the linked run, and jaxlib's calls of the executable "
    "in a bare loop, which no run of units can go below.",
    "first gradient: transformer, 96": "Both columns are fxad's. What is compiled takes as long at any depth; tracing, "
    "planning and the run itself take their time for each layer.",
    "step: RNN, 200": "15 units in a chain, and one call for jax: 1.04 and 1.17 under loads of 5 to 7, where 24 units "
    "gave 1.03 and 1.12.",
    "call: x + y": "One frame of Python; executing, and making jaxlib's array, are 0.81 of jax's whole call.",
    "call: pytree": "Close to its budget: runs gave 0.94 to 1.09 under a load of 8, and 0.991 counted in machine "
    "instructions. Executing, and making jaxlib's arrays, are 0.84 of jax's whole call.",
    "outline": "Both columns are fxad's: an equation of the gradient of 9,000 layers, and of 90; outlining, and the "
    "first gradient that it is a part of.",
    "distinct equations": "Both columns are fxad's: equations to compile when each body is compiled once, and all.",
    "remat: step": "XLA merges what `jax.checkpoint` recomputes with the first computation, so jax pays in memory what "
    "fxad pays in time. The gradients of both fxad programs are compared bit for bit.",
    "temporaries: value_and_grad of RNN": "4,096 bytes, the size of one [16, 64] array. Both are compiled to the same "
    "kernels in the same order; XLA's planner of buffers breaks a tie otherwise (seen in three steps, dumped).",
    "eager: sin": "`jnp.sin` is a function of C++; `fxad.numpy.sin` is two frames of Python. Counted in machine "
    "instructions: 1.028.",
    "eager: x @ y": "XLA computes it in a thread of its own: under a load of 8, runs gave 0.44 to 2.5, most "
    "of them 0.88 to 1.04.",
    "trace: x[3]": "A static index is read once for each shape and remembered.",
    "run: value_and_grad of ADBench BA": "Divisions stay divisions in fxad's program; of jax's, XLA makes products "
    "with reciprocals.",
    "run: cholesky": "Both call LAPACK, whose threads make times of any size on a machine with other work.",
    "trace to executable": "Nearly all of it is XLA's.",
    "to NumPy": "fxad hands out a view by DLPack, which is made for each call; jax keeps the NumPy array on its own.",
}


def measure(module: str) -> list[Row]:
    """The rows of one benchmark."""
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(module)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    return [Row(**row) for row in json.loads(done.stdout)]


def markdown(rows: list[Row]) -> str:
    """The page: the machine, the table, and what must be known of single rows."""
    head = HEAD.format(
        day=datetime.now(UTC).date(),
        cores=os.cpu_count(),
        arch=platform.machine(),
        load=os.getloadavg()[0],
        python=platform.python_version(),
        jaxlib=metadata.version("jaxlib"),
        jax=metadata.version("jax"),
    )
    lines = [
        f"| {' | '.join([*cells, f'**{verdict}**' if verdict == 'MISSED' else verdict])} |"
        for *cells, verdict in map(Row.cells, rows)
    ]
    met = [r.met for r in rows if r.met is not None]
    notes = [f"- `{r.name}`: {note}" for r in rows for name, note in NOTES.items() if r.name.startswith(name)]
    return "\n".join([head + "\n".join(lines), "", f"{sum(met)} of {len(met)} budgets are met.", "", *notes, ""])


def main() -> None:
    """Run, show, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table as Markdown, too")
    args = parser.parse_args()
    rows = [row for module in track(MODULES, "measuring") for row in measure(module)]
    show("fxad beside jax", rows)
    if args.write:
        args.write.write_text(markdown(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
