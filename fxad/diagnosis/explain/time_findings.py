"""Findings about time, for the verdict: the slowest lines, calls of the host, repeated runs and compilations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from fxad.core.diff import diff
from fxad.diagnosis.explain.equations import Equations, ExplainedEquation, recomputes
from fxad.diagnosis.explain.observations import NAMED, Observation, Place, limited
from fxad.diagnosis.explain.parts import ExplainedProgram, callers_of
from fxad.diagnosis.explain.problems import PageProblem
from fxad.diagnosis.explain.texts import called_from, duration, line_text
from fxad.diagnosis.explain.time_rows import TimeRow
from fxad.ir import Aval, HigherOrder, Jaxpr, Primitive, source_location
from fxad.primitives.check import CallsHost
from fxad.primitives.control.remat import Remat
from fxad.primitives.fusion import MOVES, VIEWS
from fxad.runtime import active_cache
from fxad.support.constants import HOST_MICROSECONDS
from fxad.transforms.costs import Fusion, compile_cost, microseconds
from fxad.units.compile_time import milliseconds

# Equations that are the same work: the file, the number of the line, the primitive, the types of the operands.
_Operation: TypeAlias = tuple[str, int, Primitive, tuple[Aval, ...]]


def time_findings(s: ExplainedProgram, time: Sequence[TimeRow]) -> list[Observation]:
    """Return what the verdict says of time: calls of the host, the slowest lines, and loops of unknown length."""
    total = sum([r.seconds for r in time])
    parts = []
    if total:
        by_line: dict[Place, float] = {}
        for r in time:
            by_line[r.line] = by_line.get(r.line, 0.0) + r.seconds
        order = sorted(by_line, key=lambda line: -by_line[line])[:NAMED]
        shares = [f"{line_text(line)} {100 * by_line[line] / total:.0f} %" for line in order]
        parts.append(Observation(f"{duration(total)} a call, {time[0].reason}: {', '.join(shares)}"))
    return [*host_calls(s.equations, total), *parts, *map(Observation, unknown_loops(s.equations, time))]


def unknown_loops(equations: Equations, time: Sequence[TimeRow]) -> list[str]:
    """Return the loops whose number of steps is not known, if times are estimated."""
    if time and time[0].measured:
        return []
    loops = dict.fromkeys([e.in_loop for e in equations if e.unbounded and e.runs])
    return [f"the steps of the loop of {line_text(line)} are not known: it counts as one" for line in loops][:NAMED]


def host_calls(equations: Equations, total: float) -> list[Observation]:
    """Return the calls of the host, with their loops. `total` are the seconds of the program."""
    out = []
    for e in equations:
        if isinstance(e.eqn.prim, CallsHost) and e.runs:
            where = f" in the loop of {line_text(e.in_loop)}" if e.in_loop is not None else ""
            times = "in each step" if e.unbounded else "once" if e.runs == 1 else f"{e.runs:,} times"
            called = called_from(callers_of(equations, [e]))
            text = f"calls the host {times}{where} ({e.eqn.prim.name}): the device waits for it"
            seconds = 1e-6 * HOST_MICROSECONDS * e.runs
            remedy = (
                "return the value and use it after the call"
                if e.in_loop is None
                else "return the values of the loop, and use them after it; or call every k-th step, with lax.cond"
            )
            each = "in each step" if e.unbounded else "a call"
            problem = PageProblem(
                f"{line_text(e.line)}{called} {text}",
                f"about {duration(seconds)} {each}",
                remedy,
                seconds / (seconds + total),
                "time",
                e.line,
                e.number,
            )
            out.append(Observation(f"{line_text(e.line)} {text}", problem))
    return limited(out, "calls of the host")


def recomputed(equations: Equations, time: Sequence[TimeRow]) -> list[Observation]:
    """Return the lines whose equations run again in recomputations, the most expensive first. Two runs are what a
    `remat` is for; more are a problem."""
    runs, cost, first = _runs_again(equations)
    by_line: dict[Place, list[_Operation]] = {}
    for key in sorted(cost, key=lambda k: -cost[k]):
        by_line.setdefault(first[key].line, []).append(key)
    remats = remat_lines(equations)
    nested = any([recomputes(e.eqn.prim) and e.again for e in equations])
    by = f", by remat of {' and '.join(remats[:NAMED])}" if remats else ""
    texts: list[str] = []  # of lines that run more than twice, then of those that run twice
    twice: list[str] = []
    wasted, greatest_waste, problem_text = 0.0, 0.0, ""
    place: tuple[Place, int | None] = (None, None)
    for line, keys in by_line.items():
        # Counts of cheap operations are not certain: a product of the derivative has the line, and may have the types,
        # of one of the function, and is counted with it. So the most runs of an operation that is not cheap count, or
        # else the least.
        certain = [k for k in keys if compile_cost(type(first[k].eqn.prim))[0] is not Fusion.CHEAP]
        if certain:
            key = max(certain, key=lambda k: (runs[k], cost[k]))
        else:
            key = min(keys, key=lambda k: (runs[k], -cost[k]))
        # Without nesting, each equation runs twice at most. A ratio is above 2 if a first run is left out, whose value
        # nothing reads: of two equal equations, 1 runs at first and 2 run again, a ratio of (1 + 2) / 1.
        total = runs[key] if nested else min(2.0, runs[key])
        inside = " (a remat inside another)" if total > 2 else ""
        times = f"{total:.3g} times" if total != 2 else "twice"
        text = f"{line_text(line)} runs {times}{inside}: {first[key].eqn.prim.name} is computed again{by}"
        if total <= 2:
            twice.append(text)
            continue
        texts.append(text)
        # `cost` is that of total - 1 runs, all but the first; a single remat would make one of them
        waste = sum([cost[k] for k in keys]) * (total - 2) / (total - 1)
        if waste > greatest_waste:
            greatest_waste, problem_text, place = waste, text, (line, first[key].number)
        wasted += waste
    findings = [Observation(text) for text in (*texts, *twice)]
    if wasted:
        seconds = 1e-6 * wasted
        total_seconds = sum([r.seconds for r in time]) or seconds
        severity = min(1.0, seconds / total_seconds)
        problem = PageProblem(
            problem_text,
            f"{duration(seconds)} a call, {100 * severity:.0f} % of the time",
            "drop one of the two remats, or give the outer one a policy that keeps what the inner one returns",
            severity,
            "time",
            *place,
        )
        findings[0] = Observation(findings[0].text, problem)
    return limited(findings, "lines that are computed again")


def _runs_again(
    equations: Equations,
) -> tuple[dict[_Operation, float], dict[_Operation, float], dict[_Operation, ExplainedEquation]]:
    """Return for each operation that runs again how often it runs for each first run, and the microseconds of the runs
    after the first; and for all operations their first equations."""
    first_runs, later_runs = Counter[_Operation](), Counter[_Operation]()
    first: dict[_Operation, ExplainedEquation] = {}
    for e in equations:
        if isinstance(e.eqn.prim, (HigherOrder, *VIEWS, *MOVES)) or e.line is None:
            continue
        key = e.line.file, e.line.line, e.eqn.prim, tuple([a.aval for a in e.eqn.ins])
        first.setdefault(key, e)
        first_runs[key] += e.runs - e.again
        later_runs[key] += e.again
    runs = {key: (first_runs[key] + n) / first_runs[key] for key, n in later_runs.items() if n and first_runs[key]}
    return runs, {key: later_runs[key] * microseconds(first[key].eqn) for key in runs}, first


def remat_lines(equations: Equations) -> list[str]:
    """Return the lines of the `remat` equations that compute values again."""
    lines = [e.line for e in equations if recomputes(e.eqn.prim) or (isinstance(e.eqn.prim, Remat) and e.again)]
    return list(dict.fromkeys([line_text(line) for line in lines if line is not None]))


def compiled_again(s: ExplainedProgram, time: Sequence[TimeRow], compared: Jaxpr | None = None) -> list[Observation]:
    """Return why the cache holds several programs of this name, from the first difference to each of them, but for
    `compared`."""
    jaxpr = s.executable.program.jaxpr
    named = [p for p in active_cache().programs_named(jaxpr.name) if p is not jaxpr and p is not compared]
    others = [p for p in named if _is_similar(p, jaxpr)]
    if not others:
        return []
    difference = diff(jaxpr, others[0])
    if difference is None:
        return []
    where = f", {line_text(difference.line)}" if difference.line is not None else ""
    remedy = (
        "pass what changes as an array argument"
        if difference.operand is None
        else "pad to a few sizes (fx.bucketed), or keep one dtype"
    )
    count = f"{jaxpr.name} was compiled {len(others) + 1} times"
    text = f"{count}: the last two differ at {difference}{where}"
    compiling = 1e-3 * milliseconds(jaxpr)
    severity = compiling / (compiling + sum([r.seconds for r in time]))
    cost = f"about {duration(compiling)} for each new program"
    problem = PageProblem(text, cost, remedy, severity, "program", difference.line)
    return [Observation(f"{text}. To compile once, {remedy}", problem)]


def _is_similar(a: Jaxpr, b: Jaxpr) -> bool:
    """Return True for programs that are likely traces of one function: most equations are of the same lines."""
    kinds = []
    for p in (a, b):
        lines = [(e.prim.name, source_location(e.source)) for e in p.eqns]
        kinds.append(Counter([(name, line.file, line.line) if line else (name, "", 0) for name, line in lines]))
    shared = sum((kinds[0] & kinds[1]).values())
    return 2 * shared >= max(1, 0.8 * (len(a.eqns) + len(b.eqns)))
