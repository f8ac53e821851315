"""The search for the equation of one program at which two ways to run it differ.

`differs(k)` is True if the first k equations, run as a program, give other values on the two sides. It is False for no
equations and True for all, so a binary search finds two neighbours: without the equation the values agree, with it they
do not. If the equation alone, on the operands of the reference, does not differ, XLA treats it together with others; a
second search finds the last equation from which on they differ. An equation with bodies is searched inside: its bodies
run on the operands that they have in the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np

from fxad.core.builder import live_ins, subprogram
from fxad.core.dataclasses import dataclass
from fxad.core.interpreter import run_by_layout
from fxad.core.layout import PREDICATE
from fxad.diagnosis.bisect.closeness import Closeness, Mismatch, largest
from fxad.diagnosis.bisect.sides import ChildSide, Failure, HostOperands, InProcess, Outcome, Side
from fxad.ir import Aval, Eqn, HigherOrder, Jaxpr, Lit, NDArray, Var
from fxad.support.progress import Progress
from fxad.transforms.locate import body_label

_AT_ONCE: Final = 256  # greatest number of runs of one child


@final
@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Equations at which two sides differ: a program of them, with operands. `alone` is False if the program differs
    only with the equations before it. `eqns` are the equations around it, outermost first, and then the last one of the
    program; `inside` are the bodies around. `failure` is that of the candidate, if it has no results."""

    jaxpr: Jaxpr
    operands: tuple[NDArray, ...]
    eqns: tuple[Eqn, ...]
    inside: tuple[str, ...]
    mismatch: Mismatch | None
    failure: Failure | None
    count: int  # equations of the program
    alone: bool


@final
class EquationSearch:
    """A search with two sides. `tolerance` is that of `Closeness`. `runs` counts the runs of the candidate, and the bar
    shows them."""

    def __init__(
        self, candidate: Side, reference: InProcess, tolerance: float | None, bar: Progress | None = None
    ) -> None:
        self.candidate, self.reference, self.tolerance = candidate, reference, tolerance
        self.bar = bar or Progress("bisecting")
        self.runs = 0

    def take_sides(self, candidate: Side, reference: InProcess) -> None:
        """Compare other sides from now on. The runs are counted on."""
        self.candidate, self.reference = candidate, reference

    def compare(self, jaxpr: Jaxpr, operands: HostOperands) -> Mismatch | Failure | None:
        """Return the difference of the two sides on the scale of the operands; None if there is none.

        Raises: what the reference raises."""
        expected = self.expected(jaxpr, operands)
        self.runs += 1
        self.bar.step()
        return judge(expected, self.candidate.run(jaxpr, operands), closeness_for(self.tolerance, operands))

    def expected(self, jaxpr: Jaxpr, operands: HostOperands) -> list[NDArray]:
        """Return the results of the reference."""
        return self.reference.results(jaxpr, operands)

    # ------------------------------------------------------------------------------------------------- equations

    def find(self, jaxpr: Jaxpr, operands: HostOperands, kind: str | None) -> Found | None:
        """Return the equations of a program at which the sides differ: by a failure of a kind, or by values (None).
        None if the sides do not differ.

        Values are compared on the scale of the operands. If several equations are found, they are searched again, on
        the scale of their own operands.
        """

        def differs(k: int) -> bool:
            return is_of(kind, self.compare(prefix(jaxpr, k), operands))

        if not is_of(kind, self.compare(jaxpr, operands)):
            return None
        n = len(jaxpr.eqns)
        end = first_true(differs, 0, n) if n else 0
        if not end:
            return None
        found = self._with_fewest_equations(jaxpr, operands, end, kind)
        if 1 < found.count < len(jaxpr.eqns) and found.alone:
            shorter = self.find(found.jaxpr, found.operands, kind)
            if shorter is not None and shorter.alone and shorter.count < found.count:
                return shorter
        return found

    def _with_fewest_equations(self, jaxpr: Jaxpr, operands: HostOperands, end: int, kind: str | None) -> Found:
        """Return the shortest run of equations that ends before `end` and differs on the operands of the reference."""

        def agrees(first: int) -> bool:
            return not is_of(kind, self.compare(*self._window(jaxpr, operands, first, end)))

        first = end - 1
        if agrees(first):
            # The run from equation 0 is not the program that differed: it has only the operands that it reads, and so
            # another scale, and it is compiled anew. If it agrees, it is returned all the same, as not `alone`.
            first = first_true(agrees, 0, first) - 1 if end > 1 and not agrees(0) else 0
        window, values = self._window(jaxpr, operands, first, end)
        outcome = self.compare(window, values)
        eqn = jaxpr.eqns[end - 1]
        if first == end - 1 and is_of(kind, outcome):
            self.bar.what = f"bisecting {eqn.prim.name}"
            inner = self._in_bodies(eqn, values_of(eqn, values), kind)
            if inner is not None:
                return inner
        alone = is_of(kind, outcome)
        difference = outcome if alone else self.compare(prefix(jaxpr, end), operands)  # what the whole program shows
        return Found(
            window,
            tuple(values),
            (eqn,),
            (),
            difference if isinstance(difference, Mismatch) else None,
            difference if isinstance(difference, Failure) else None,
            end - first,
            alone,
        )

    def _window(self, jaxpr: Jaxpr, operands: HostOperands, first: int, end: int) -> tuple[Jaxpr, list[NDArray]]:
        """Return equations `first` to `end` as a program, and its operands in the reference."""
        eqns = jaxpr.eqns[first:end]
        free = live_ins(eqns)
        outs = _read_after(jaxpr, end, eqns)
        window = subprogram(eqns, free, outs or jaxpr.eqns[end - 1].outs, jaxpr.name)
        before = subprogram(jaxpr.eqns[:first], jaxpr.ins, free, jaxpr.name)
        values = self.expected(before, operands)
        return window, in_dtypes(values, window.in_avals)

    # ---------------------------------------------------------------------------------------------------- bodies

    def _in_bodies(self, eqn: Eqn, values: list[NDArray], kind: str | None) -> Found | None:
        """Return the equations of the bodies of an equation at which the sides differ; None if no run of a body
        does."""
        prim = eqn.prim
        if not isinstance(prim, HigherOrder) or not prim.layout.states_results:
            return None
        layout = prim.layout
        runs: list[tuple[str, Jaxpr, list[NDArray], list[NDArray]]] = []
        differing: list[tuple[str, Jaxpr, list[NDArray]]] = []

        def check() -> None:
            outcomes = self.candidate.run_all([(body, args) for _, body, args, _ in runs])
            for (label, body, args, expected), outcome in zip(runs, outcomes, strict=False):
                if is_of(kind, judge(expected, outcome, closeness_for(self.tolerance, args))):
                    differing.append((label, body, args))
                    break
            runs.clear()

        def run_body(body_number: int, step: int | None, args: list[NDArray]) -> list[NDArray] | None:
            body = layout.bodies[body_number]
            expected = self.expected(body.jaxpr, args)  # in the dtype of the reference, which may have a wider range
            label = body_label(eqn, body.jaxpr)
            if step is not None:
                label = f"{'predicate' if body.results == (PREDICATE,) else 'step'} {step} of {prim.name}"
            runs.append((label, body.jaxpr, args, expected))
            if len(runs) == (_AT_ONCE if isinstance(self.candidate, ChildSide) else 1):
                check()
            return None if differing else in_dtypes(expected, body.jaxpr.out_avals)

        self.runs += 1
        run_by_layout(layout, values, [v.aval for v in eqn.outs], run_body)
        if not differing and runs:
            check()
        if not differing:
            return None
        label, body, args = differing[0]
        inner = self.find(body, args, kind)
        if inner is None:
            return None
        return replace(inner, eqns=(eqn, *inner.eqns), inside=(label, *inner.inside))


def judge(expected: Sequence[NDArray], outcome: Outcome, close: Closeness) -> Mismatch | Failure | None:
    """Return the difference of an outcome from the expected results."""
    return outcome if isinstance(outcome, Failure) else close.first(expected, outcome)


def is_of(kind: str | None, difference: Mismatch | Failure | None) -> bool:
    """Return True for a difference of a kind: a failure of this kind, or values (None)."""
    return difference.kind == kind if isinstance(difference, Failure) else kind is None and difference is not None


def in_dtypes(values: Sequence[NDArray], avals: Sequence[Aval]) -> list[NDArray]:
    """Return values of a reference in the dtypes of a program."""
    with np.errstate(all="ignore"):
        return [x.astype(a.dtype) for x, a in zip(values, avals, strict=True)]


def first_true(test: Callable[[int], bool], low: int, high: int) -> int:
    """Return k with `test(k)` and not `test(k - 1)`, by bisection. `test(low)` is False and `test(high)` is True."""
    while high - low > 1:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle
    return high


def prefix(jaxpr: Jaxpr, k: int) -> Jaxpr:
    """Return the first k equations as a program, whose results are the values that the rest of the program reads."""
    if k == len(jaxpr.eqns):
        return jaxpr
    eqns = jaxpr.eqns[:k]
    return subprogram(eqns, jaxpr.ins, _read_after(jaxpr, k, eqns), jaxpr.name)


def _read_after(jaxpr: Jaxpr, k: int, eqns: Sequence[Eqn]) -> list[Var]:
    """Return the results of equations that equation k or a later one reads, or the program returns."""
    results = {v for e in eqns for v in e.outs}
    later_operands = [*[a for e in jaxpr.eqns[k:] for a in e.ins], *jaxpr.outs]
    return [a for a in dict.fromkeys(later_operands) if not isinstance(a, Lit) and a in results]


def values_of(eqn: Eqn, values: Sequence[NDArray]) -> list[NDArray]:
    """Return the values of the operands of an equation, of those of its variables."""
    free = [a for a in dict.fromkeys(eqn.ins) if isinstance(a, Var)]
    env = dict(zip(free, values, strict=True))
    return [np.asarray(a.array) if isinstance(a, Lit) else env[a] for a in eqn.ins]


def closeness_for(tolerance: float | None, operands: HostOperands) -> Closeness:
    """Return the tolerance for a program with operands."""
    return Closeness(tolerance, largest(operands))
