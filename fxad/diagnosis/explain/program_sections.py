"""The sections of a page about the program: what it is, its stages, units, residuals and equations."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import numpy as np

from fxad.core.diff import side_by_side
from fxad.core.trees import tree
from fxad.diagnosis.explain.equations import Equations
from fxad.diagnosis.explain.memory_findings import by_argument
from fxad.diagnosis.explain.memory_rows import Memory
from fxad.diagnosis.explain.page import LISTED, Listing, PageBlock, PageSection, PreformattedLines
from fxad.diagnosis.explain.parts import ExplainedProgram
from fxad.diagnosis.explain.texts import amount
from fxad.execution.executable import Lowered
from fxad.ir import Jaxpr, Var
from fxad.passes import BEFORE_COMPILATION, Stages
from fxad.runtime import CompileOptions, jaxlib_version
from fxad.support.tables import Table
from fxad.transforms.memory.residuals import Residuals

_PYTHON: Final = platform.python_version()
_DIFF_LINES: Final = 80  # greatest number of lines of the diff of one pass
DIFF_EQUATIONS: Final = 3000  # passes over a larger program are not shown as diffs


def _version() -> str:
    """Return the version of fxad; that of a checkout is not known."""
    try:
        return version("fxad")
    except PackageNotFoundError:
        return "of a checkout"


def identity_section(s: ExplainedProgram) -> PageSection:
    """Return what the program is, how it was compiled, and the types of its arguments and results."""
    program, lowered = s.executable.program, s.executable.lowered
    memory, cost = s.stats, s.executable.cost()
    passes = "the default pipeline" if lowered.passes is None else ", ".join([p.name for p in lowered.passes]) or "none"
    units = lowered.choice if isinstance(lowered.choice, str) else f"{len(lowered.choice)} bodies chosen by the user"
    arguments = by_argument(program, [k - len(program.bound) for k in lowered.donate])
    donated = ", ".join([paths[0] if len(paths) == 1 else f"{a.name} ({len(paths)} arrays)" for a, paths in arguments])
    how = _options_text(s.executable.choices.options)
    facts = [
        ("program", program.name),
        ("digest", program.jaxpr.digest),
        ("equations", f"{len(s.equations):,} in {len(s.equations.bodies):,} distinct bodies"),
        (
            "compiled",
            f"in {_count(s.parts, 'unit')}, {_count(s.plan.steps, 'step')}; units={units}; passes: {passes}; {how}",
        ),
        ("donated", donated or "nothing"),
        ("device", _devices(s)),
        (
            "versions",
            f"fxad {_version()}, jaxlib {jaxlib_version}, NumPy {np.__version__}, Python {_PYTHON}",
        ),
        ("arguments", amount(memory.argument_bytes)),
        ("results", f"{amount(memory.output_bytes)}, of which {amount(memory.alias_bytes)} reuse arguments"),
        ("temporaries", f"{amount(memory.temp_bytes)} ({memory.temp_bytes:,} bytes)"),
        ("peak", f"{amount(memory.peak_bytes)}, with arguments and results"),
        (
            "XLA's estimate",
            f"{cost.flops:.3g} flops, {amount(cost.bytes_accessed)} read and written; it counts one step of a loop",
        ),
    ]
    values = [(path, str(a)) for path, a in zip(program.paths, program.in_avals, strict=True)]
    bound = [(f"closed-over array {k}", str(a)) for k, a in enumerate(program.jaxpr.in_avals[: len(program.bound)])]
    returned = tree.paths(program.out_tree, "result")
    results = [(path, str(a)) for path, a in zip(returned, program.out_avals, strict=True)]
    return PageSection(
        "identity",
        "What it is",
        (Table(("", ""), tuple(facts)), Table(("value", "type"), (*values, *bound, *results))),
    )


def _devices(s: ExplainedProgram) -> str:
    """Return the devices; the bytes of the page are those of one."""
    devices = s.parts[0].executable.devices
    first = str(devices[0])
    return first if len(devices) == 1 else f"{len(devices)}, {first} to {devices[-1]}: bytes are those of each of them"


def _count(items: Sequence[object], what: str) -> str:
    return f"1 {what}" if len(items) == 1 else f"{len(items):,} {what}s"


def _options_text(options: CompileOptions) -> str:
    """Return the options of XLA, without donated operands."""
    level = [] if options.optimization_level is None else [f"optimization level {options.optimization_level}"]
    return ", ".join([*level, *[f"{name}={value}" for name, value in options.flags]]) or "default options"


def stages_section(lowered: Lowered[..., object]) -> PageSection:
    """Return what each pass changed."""
    stages: Stages = lowered.stages
    blocks: list[PageBlock] = [
        Table(
            ("stage", "equations", "bytes"),
            tuple([(x.name, f"{x.equations:,}", f"{x.bytes:,}") for x in stages]),
            (1, 2),
        )
    ]
    reasons = {p.name: _first_sentence(p.function.__doc__) for p in lowered.passes or BEFORE_COMPILATION}
    for before, after in zip(stages.stages, stages.stages[1:], strict=False):
        why = reasons.get(after.name, "")
        if before.program is after.program:
            blocks.append(f"{after.name}: no change. {why}")
            continue
        blocks.append(f"{after.name}: {why}")
        if max(before.equations, after.equations) <= DIFF_EQUATIONS:
            blocks.append(diff_block(before.program, after.program))
    return PageSection("stages", "Stages", tuple(blocks), folded=True)


def _first_sentence(doc: str | None) -> str:
    return " ".join((doc or "").split(".")[0].split()) + "." if doc else ""


def diff_block(a: Jaxpr, b: Jaxpr) -> PreformattedLines:
    """Return two programs side by side, up to some number of lines."""
    difference = side_by_side(a, b)
    lines = [] if difference is None else list(difference.lines)
    shown = [str(replace(line, where=line.where.rpartition("/")[2])) for line in lines[:_DIFF_LINES]]
    marks = "".join([line.mark for line in lines[:_DIFF_LINES]])
    more = [f"... {len(lines) - _DIFF_LINES:,} more lines"] if len(lines) > _DIFF_LINES else []
    return PreformattedLines((*shown, *more), marks)


def units_section(s: ExplainedProgram) -> PageSection:
    """Return the units that are compiled apart."""
    blocks: list[PageBlock] = [s.plan.summary]
    rows = [
        (
            str(k),
            u.body.name,
            str(u.uses),
            f"{u.equations:,}",
            amount(p.stats.temp_bytes),
            str(len(u.donate)),
        )
        for k, (u, p) in enumerate(zip(s.plan.units, s.parts, strict=True))
    ]
    head = ("unit", "body", "uses", "equations", "temporaries", "donated operands")
    blocks.append(Table(head, tuple(rows), right=(0, 2, 3, 4, 5)))
    return PageSection("units", "Units", tuple(blocks), folded=True)


def residuals_section(at_peak: Memory, residuals: Residuals | None) -> PageSection:
    """Return the table of residuals if it is given, else the stored values at the peak."""
    stored = [r for r in at_peak.rows if r.stored and r.equation]
    size = amount(sum([r.bytes for r in stored]))
    text = f"{len(stored)} values at the peak are stored for much later equations, as those of derivatives: {size}."
    blocks: list[PageBlock] = [text]
    if residuals is not None:
        rows = [
            (
                f"{r.bytes:,}",
                str(r.aval),
                r.made_by,
                " > ".join([line.short for line in r.lines]),
                r.read_by,
                r.decided_by if r.stored else "plan: computed again",
            )
            for r in residuals
        ]
        head = ("bytes", "type", "made by", "line", "read by", "decided by")
        blocks.append(Table(head, tuple(rows), right=(0,)))
    else:
        blocks.append(
            "For the table of the program before it was differentiated: explain(..., residuals=fx.residuals(f, *args))."
        )
    return PageSection("residuals", "Residuals", tuple(blocks), folded=residuals is None)


def program_section(equations: Equations) -> PageSection:
    """Return the equations, each with those that compute its operands and those that read its results."""
    readers: dict[int, list[int]] = {}
    operands: dict[int, tuple[int, ...]] = {}
    listed = equations[:LISTED]
    for e in equations:
        computed = [equations.producer(e.body, a) for a in e.eqn.ins if isinstance(a, Var)]
        numbers = tuple(dict.fromkeys([p.number for p in computed if p is not None]))
        operands[e.number] = numbers
        for n in numbers:
            readers.setdefault(n, []).append(e.number)
    heads: dict[int, str] = {}
    for e in listed:
        if e.number == 0 or e.body is not equations[e.number - 1].body:
            runs = "once" if e.runs == 1 else f"{e.runs:,} times"
            heads[e.number] = f"{equations.labels[e.body]}, runs {runs}"
    entries = tuple(
        [
            (
                e.number,
                _short(e.text),
                e.line.short if e.line else "",
                operands[e.number],
                tuple(readers.get(e.number, ())),
            )
            for e in listed
        ]
    )
    listing = Listing(entries, tuple(heads.items()), len(equations) - len(entries))
    return PageSection("program", "Program", (listing,), folded=True)


def _short(text: str) -> str:
    return text if len(text) <= 110 else f"{text[:107]}..."
