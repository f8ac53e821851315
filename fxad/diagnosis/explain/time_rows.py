"""The rows of time of a page: seconds, flops and bytes written by equation, estimated or measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.equations import ExplainedEquation, shortened
from fxad.diagnosis.explain.parts import Callers, ExplainedProgram, callers_of
from fxad.ir import HigherOrder, SourceLocation
from fxad.primitives.fusion import MOVES, VIEWS
from fxad.transforms.costs import elements, flops, microseconds


@final
@dataclass(frozen=True, slots=True)
class TimeRow:
    """The time of an equation in one call of the program, over all its runs. `bytes` are those that it writes. The time
    is `measured`, by a profile, or estimated. `callers` are the lines that called the function of the line, with their
    shares."""

    seconds: float
    flops: float
    bytes: int
    runs: int
    line: SourceLocation | None
    equation: str
    measured: bool
    number: int | None = None
    callers: Callers = ()

    @property
    def reason(self) -> str:
        """How the time is known: "measured" or "estimated"."""
        return "measured" if self.measured else "estimated"


def estimated_times(s: ExplainedProgram) -> list[TimeRow]:
    """Return the estimated times of equations without bodies, by the cost model of fxad, the longest first."""
    rows = []
    for e in s.equations:
        if isinstance(e.eqn.prim, (HigherOrder, *VIEWS)) or not e.runs:
            continue
        bytes_written = e.runs * sum([v.aval.nbytes for v in e.eqn.outs])
        rows.append(
            TimeRow(
                1e-6 * e.runs * microseconds(e.eqn),
                e.runs * work(e),
                bytes_written,
                e.runs,
                e.line,
                shortened(e.text),
                False,
                e.number,
                callers_of(s.equations, [e]),
            )
        )
    return sorted(rows, key=lambda r: (-r.seconds, r.number))


def work(e: ExplainedEquation) -> float:
    """Return the floating point operations of one run: those of products and convolutions, one for each element that
    another equation reads or writes, none where values only move."""
    eqn = e.eqn
    if isinstance(eqn.prim, (*VIEWS, *MOVES)):
        return 0.0
    return flops(eqn) or float(max([elements(a.aval) for a in (*eqn.ins, *eqn.outs)], default=0))


def measured_times(s: ExplainedProgram, profile: Mapping[str, tuple[float, int]], calls: int) -> list[TimeRow]:
    """Return the measured times by equation. `profile` has seconds and runs by the name of an instruction."""
    estimated = {r.number: r for r in estimated_times(s)}
    seconds: dict[tuple[int | None, SourceLocation | None, str], float] = {}
    for part in s.parts:
        if part.module is None or part.origins is None:
            continue
        for i in part.module.by_id.values():
            if i.name in profile and i.opcode not in _CONTAINERS:
                origin = part.origins.of(i.id)
                number = origin.equation.number if origin.equation is not None else None
                text = shortened(origin.equation.text) if origin.equation is not None else f"{i.opcode}, added by XLA"
                key = number, origin.line, text
                seconds[key] = seconds.get(key, 0.0) + profile[i.name][0] / max(1, calls)
    rows = []
    for (number, line, text), t in seconds.items():
        e = estimated.get(number)
        rows.append(
            TimeRow(
                t,
                e.flops if e else 0.0,
                e.bytes if e else 0,
                e.runs if e else 0,
                line,
                text,
                True,
                number,
                e.callers if e else (),
            )
        )
    return sorted(rows, key=lambda r: (-r.seconds, -1 if r.number is None else r.number))


# Instructions whose time is that of the instructions that they contain.
_CONTAINERS: Final = frozenset({"while", "conditional", "call"})
