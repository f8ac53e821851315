"""The page of benchmarks: a section for each module, replaced when that module is measured again."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from benchmarks.harness import Row
from fxad.runtime import default_platform, devices

HEAD: Final = """# Benchmarks

Written by `make bench`, as measured; missed budgets are marked in the tables. fxad and jax take turns in one process
and each keeps its best turn, so the ratio is more reliable than the times. A budget limits the ratio, or fxad's own
figure if it has a unit. Each section names the day and the load of its measurement: a run may measure some modules only
(`make bench MODULES="models units"`), and is saved after each.

"""

# Notes on rows, by the beginning of their names.
NOTES: Final = {
    "lower: a step for 512": "Both columns are fxad's: tracing, differentiating and lowering the step for 512 "
    "devices, and for 8. The text has the same operations; each collective has a list of its devices.",
    "first step": "XLA compiles nearly the same module in both: tracing and lowering are 5 to 9 ms here and 35 ms in "
    "jax, the rest is XLA's. A turn varies by a fifth, so the best of 60 is compared. Six runs of one day on a "
    "nearly quiet machine: shard_map 0.84 to 0.97 (median 0.87), pmap 0.87 to 0.91 (0.89), global view 0.87 to 1.06 "
    "(0.90).",
    "step: shard_map": "The same kernels and collectives, counted in XLA's text. Six runs gave 1.01 to 1.07 (median "
    "1.04); pmap 0.96 to 1.03, global view 1.00 to 1.06.",
    "second process: MLP": "The budget cannot be met: of the CPU time of such a process (430 ms under load) NumPy and "
    "jaxlib take 185 to import, and the first product of matrices 40, in jax's too; fxad takes 155 to import, with "
    "optree and pyrsistent, 24 to trace and differentiate, 6 for the key of its sources, 11 to find and load.",
    "second process": "Both load the same machine code: 0.1 s of importing jaxlib and numpy, and XLA's loading of "
    "the executable, are in both columns.",
    "trace and value_and_grad": "Of 16.8 us an equation, 4 are its trace, 6 the rules of derivatives, 4.5 the "
    "transpose, and 2 are those of making each variable for the first time. Earlier runs that gave 0.105 to 0.142 "
    "had the variables already. jax cannot differentiate what is traced already; the row below is what the "
    "transformation costs alone.",
    "trace: 100,000": "Both columns are fxad's: an equation of a program of 100,000, and of 1,000. A turn of 100,000 "
    "takes 0.3 s: 0.88 to 0.99 on a quiet machine, up to 1.97 under a load of 5.",
    "a unit of a linked run beside": "Both columns are one run's: the linked run, and jaxlib's calls of the "
    "executable in a bare loop, which no run of units can go below.",
    "first gradient": "Processor time: both compilers use all cores, and other work shares them.",
    "first gradient: transformer, 12": "Until it runs, without the run: 1,023 and 7,897 ms, 0.13.",
    "first gradient: transformer, 48": "Both columns are fxad's, each in a process of its own. The run is linear in "
    "depth.",
    "first gradient: 64 bodies": "Six of 36 kernels fill the zeros that loops begin with (docs/adr/0116).",
    "step: transformer block": "One program for XLA in both: 0.993 in three runs, 1.055 in one on a noisy machine.",
    "step: 64 bodies": "One program for XLA in both: 0.92 in two runs, 0.66, 1.04, 1.055 once each on a noisy machine.",
    "step: RNN, 200": "15 units in a chain, and one call for jax: 1.04 and 1.17 under loads of 5 to 7, where 24 "
    "units gave 1.03 and 1.12.",
    "call: x + y": "One frame of Python; executing, and making jaxlib's array, are 0.81 of jax's whole call.",
    "call: pytree": "Close to its budget: runs gave 0.94 to 1.09 under a load of 8, and 0.991 counted in machine "
    "instructions. Executing, and making jaxlib's arrays, are 0.84 of jax's whole call.",
    "mask beside masks by hand: value": "Both columns are fxad's: the loss of a ragged batch of 16 sentences of up "
    "to 128 words, by `mask` and with selects that are written by hand. Both have the same products of matrices. "
    "`mask` adds -inf to the padding of scores, which XLA computes with the products; a select by hand is a loop of "
    "its own. Measured on a quiet machine.",
    "mask beside masks by hand: layers": "Both columns are fxad's: two residual layers of a layer norm, products "
    "with biases and gelu, and the mean over the valid rows of a ragged batch. XLA makes the same program of both, "
    "instruction by instruction, so the ratio is 1 but for the order of the turns.",
    "mask beside jax's masks by hand: layers": "jax's layer norm computes the variance as the mean of squares minus "
    "the square of the mean. With the same formula, fxad takes 1.01 to 1.04 of jax's time.",
    "mask: first": "Both columns are fxad's: a program for each padded size, and one for each length.",
    "mask: a call": "Both columns are fxad's: a call is padded in host memory, and so is its result cut.",
    "outline": "Both columns are fxad's: an equation of the gradient of 9,000 layers, and of 90; outlining, and the "
    "first gradient that it is a part of.",
    "distinct equations": "Both columns are fxad's: equations to compile when each body is compiled once, and all.",
    "remat: step": "XLA merges what `jax.checkpoint` recomputes with the first computation, so jax pays in memory "
    "what fxad pays in time. The gradients of both fxad programs are compared bit for bit.",
    "eager: sin": "`jnp.sin` is a function of C++; `fxad.numpy.sin` is two frames of Python. Counted in machine "
    "instructions: 1.028.",
    "eager: x @ y": "XLA computes it in a thread of its own: under a load of 8, runs gave 0.44 to 2.5, most of them "
    "0.88 to 1.04.",
    "trace: x[3]": "A static index is read once for each shape and remembered.",
    "run: value_and_grad of ADBench GMM, 1000 x 2, 5": "33 kernels beside 36. One product of 5 x 1000 x 2 matrices "
    "is an own kernel of XLA here and one of YNNPACK in jax's program. Runs gave 1.08 to 1.14.",
    "run: value_and_grad of RNN": '15 units in a chain beside one program. With `units="none"` it is 1.00 of jax\'s '
    "time, and is compiled in 4.3 s in place of 1.1.",
    "temporaries: value_and_grad of MLP": "The derivative of tanh is computed from the operand, as it has no digit "
    "left in the tails otherwise. So two arrays a layer are stored, and XLA has room for one of them in the buffers "
    "of the results (docs/adr/0097).",
    "run: value_and_grad of ADBench GMM, 2500": "XLA makes the same kernels of both. A second run gave 1.005.",
    "run: value_and_grad of ADBench BA": "Divisions stay divisions in fxad's program; of jax's, XLA makes products "
    "with reciprocals.",
    "run: cholesky": "Both call LAPACK, whose threads make times of any size on a machine with other work.",
    "trace to executable": "Nearly all of it is XLA's.",
    "to NumPy": "fxad hands out a view by DLPack, which is made for each call; jax keeps the NumPy array on its own.",
}


def save(path: Path, text: str) -> None:
    """Writes a file completely or not at all: a run that is stopped leaves the old file or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def taken() -> str:
    """Returns date, machine and load of a measurement. Called before the work begins, it reports the load of other
    processes."""
    versions = ", ".join([f"{name} {metadata.version(name)}" for name in ("jaxlib", "jax")])
    cores = f"{os.cpu_count()} CPU cores ({platform.machine()})"
    where = cores if default_platform() == "cpu" else f"one {devices()[0].kind}, {cores}"
    load = f"a load of {os.getloadavg()[0]:.1f}"
    return f"{datetime.now(UTC).date()}, {where}, {load}; Python {platform.python_version()}, {versions}"


def section(rows: Sequence[Row], when: str) -> str:
    """Returns a section below its heading: when it was measured, the table, and the notes on rows."""
    lines = [
        f"| {' | '.join([*cells, f'**{verdict}**' if verdict == 'MISSED' else verdict])} |"
        for *cells, verdict in map(Row.cells, rows)
    ]
    notes = [f"- `{r.name}`: {note}" for r in rows for name, note in NOTES.items() if r.name.startswith(name)]
    table = ["| what | fxad | jax | ratio | budget | |", "|---|---:|---:|---:|---:|---|", *lines]
    return "\n".join([f"Measured on {when}.", "", *table, *([""] if notes else []), *notes])


def sections(page: str) -> dict[str, str]:
    """Returns the sections of a page, by their headings."""
    found = re.split(r"^## (\w+)\n", page, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(found[::2], found[1::2], strict=True)}


def page(parts: Mapping[str, str], order: Sequence[str]) -> str:
    """Returns the page of some sections, in an order. Sections that are not in the order are left out."""
    there = [f"## {name}\n\n{parts[name]}\n" for name in order if name in parts]
    met, missed = [sum([part.count(mark) for part in there]) for mark in ("| met |", "| **MISSED** |")]
    return "\n".join([f"{HEAD}{met} of {met + missed} budgets are met.\n", *there])
