"""The search for a smaller program: coarse steps first, then every small step until none succeeds.

An attempt costs a call of the predicate, and that costs most for large programs. So the first attempts are the smallest
programs: single equations of each kind, with the values that they read in a run, then equations with those before them.
Next come windows of equations, by halving. What is left is reduced by delta debugging, and at the end by each step that
makes it smaller, until no step does: the result is 1-minimal.

Source: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions on Software
Engineering 28 (2002); the steps on programs are those of the IR.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar, final

from fxad.core.typecheck import typecheck
from fxad.diagnosis.reduce import edits, operand_values, retyped, slices
from fxad.diagnosis.reduce.candidate import (
    Candidate,
    candidate_size,
    equations,
    is_finite,
    with_results,
    without_dead_code,
)
from fxad.diagnosis.reduce.recorded import BodyRuns, ValuesOfRun
from fxad.errors import TypecheckError
from fxad.ir import Eqn, HigherOrder, Jaxpr, distinct_jaxprs
from fxad.support.progress import Progress
from fxad.tracing.program import Program

T = TypeVar("T")

_FEW: Final = 8  # a program of fewer equations is reduced by small steps at once
_MANY: Final = 256  # small windows are tried first in a program of more equations: large ones take longer there
_DEPTHS: Final = 3
_RECORDING: Final = 0.2  # share of the time left that recording may take
_CONES: Final = 128  # greatest number of attempts of each depth

# Returns the reason for which a program fails with arguments, or None.
Fails: TypeAlias = Callable[[Any, Any], Hashable]


class OutOfTimeError(Exception):
    """The budget is spent."""


@final
class ReductionSearch:
    """The attempts of one reduction. `best` is the smallest program so far that fails for the reason."""

    def __init__(self, fails: Fails, reason: Hashable, start: Candidate, deadline: float, bar: Progress) -> None:
        self.fails = fails
        self.bar = bar
        self.reason = reason
        self.best = start
        self.size = candidate_size(start)
        self.deadline = deadline
        self.attempts = 0
        self.scalar = slices.is_scalar(start.jaxpr)
        self.keep_dead = False
        self._tried: set[Hashable] = set()
        self._recorded: tuple[Candidate, BodyRuns] | None = None
        self._known = start.has_args
        self._finite = all(map(is_finite, start.values))

    # ----------------------------------------------------------------------------------------------- attempts

    def attempt(self, c: Candidate | None) -> bool:
        """Return True if a candidate is smaller than the best one and fails for the same reason: it is the best one
        then. Dead code is removed first. Raises: OutOfTimeError."""
        if c is None:
            return False
        forms = [without_dead_code(c), c] if self.keep_dead else [without_dead_code(c)]
        return any([self._attempt(form) for form in dict.fromkeys(forms)])

    def _attempt(self, c: Candidate) -> bool:
        size = candidate_size(c)
        if size >= self.size or (not c.jaxpr.outs and self.best.jaxpr.outs):
            return False
        key = c.key
        if key in self._tried:
            return False
        self._tried.add(key)
        if self._finite and not all(map(is_finite, c.values)):
            return False  # a nan that is computed must not become an operand: nothing would be left to see
        try:
            typecheck(c.jaxpr)
        except TypecheckError:
            return False
        if time.monotonic() > self.deadline:
            raise OutOfTimeError
        self.attempts += 1
        self.bar.step()
        if self._fails(c) and self._fails(c):  # twice, because a time or a process may fail once by chance
            self.best, self.size = c, size
            self.bar.what = f"reduced to {equations(c.jaxpr)} equations"
            return True
        return False

    def _fails(self, c: Candidate) -> bool:
        found = outcome(self.fails, c.program(), c.args)
        return found == self.reason and type(found) is type(self.reason)

    def first(self, candidates: Iterable[Candidate | None]) -> bool:
        """Return True at the first candidate that succeeds; False if none does."""
        return any(self.attempt(c) for c in candidates)

    # ------------------------------------------------------------------------------------------ recorded values

    def recording(self) -> BodyRuns:
        """Return the recorded runs of the best candidate."""
        if self._recorded is None or self._recorded[0] is not self.best:
            now = time.monotonic()
            until = now + _RECORDING * max(0.0, self.deadline - now)
            self._recorded = self.best, BodyRuns(self.best.jaxpr, self.best.values, until)
        return self._recorded[1]

    def runs(self, jaxpr: Jaxpr) -> list[ValuesOfRun | None]:
        """Return the recorded runs of a program; [None] where no values are known."""
        return [*self.recording().of(jaxpr)] if self._known else [None]

    def run(self) -> ValuesOfRun | None:
        """Return the values of the best candidate; None where no values are known."""
        return next(iter(self.runs(self.best.jaxpr)), {}) if self._known else None

    # ----------------------------------------------------------------------------------------------- the phases

    def search(self) -> None:
        """Search until no step makes the program smaller. Raises: OutOfTimeError."""
        if (
            not self._attempt(without_dead_code(self.best))
            and without_dead_code(self.best).jaxpr is not self.best.jaxpr
        ):
            self.keep_dead = True
        if self.best.jaxpr.symbolic and self.best.has_args:
            self.first(retyped.at_sizes_of_values(self.best))
        while True:
            before = self.best
            if equations(self.best.jaxpr) > _FEW:
                self._cones()
            if equations(self.best.jaxpr) > _FEW:
                self._results()
                self._windows()
                self._bodies()
                self._chunks()
                self._chunks_of_bodies()
            self._small_steps()
            if self.best is before:
                return

    def _cones(self) -> None:
        """Try the smallest programs: an equation of each kind, then with the equations before it."""
        programs = distinct_jaxprs(self.best.jaxpr)
        for depth in range(_DEPTHS):
            seen: set[Hashable] = set()
            plain: list[tuple[Jaxpr, list[Eqn]]] = []
            with_bodies: list[tuple[Jaxpr, list[Eqn]]] = []
            for jaxpr in reversed(programs):
                for key, eqns in slices.cones(jaxpr, depth):
                    if key not in seen:
                        seen.add(key)
                        has_bodies = any([isinstance(e.prim, HigherOrder) for e in eqns])
                        (with_bodies if has_bodies else plain).append((jaxpr, eqns))
            for made in (plain, with_bodies):
                if self.first(self._programs_of(_spread(made)[:_CONES])):
                    return

    def _programs_of(self, made: Sequence[tuple[Jaxpr, list[Eqn]]]) -> Iterator[Candidate | None]:
        for jaxpr, eqns in made:
            for run in self.runs(jaxpr):
                yield slices.candidate_of(jaxpr, eqns, eqns[-1].outs, run, scalar=self.scalar)

    def _results(self) -> None:
        """Drop results, by halves."""
        n = len(self.best.jaxpr.outs)
        size = n // 2
        while size >= 1:
            kept = list(range(len(self.best.jaxpr.outs)))
            parts = [kept[k : k + size] for k in range(0, len(kept), size)]
            if len(kept) > 1 and (
                self.first(with_results(self.best, part) for part in parts)
                or self.first(with_results(self.best, [k for k in kept if k not in part]) for part in parts)
            ):
                size = min(size, len(self.best.jaxpr.outs) // 2)
                continue
            size //= 2

    def _windows(self) -> None:
        """Keep consecutive equations only: parts of the program, then without its beginning or its end."""
        while self.first(self._parts()):
            pass
        size = len(self.best.jaxpr.eqns) // 2
        while size >= 1:
            jaxpr, run = self.best.jaxpr, self.run()
            n = len(jaxpr.eqns)
            ends = [(0, n - size), (size, n)] if size < n else []
            if not self.first(slices.window(jaxpr, first, end, run, scalar=self.scalar) for first, end in ends):
                size //= 2

    def _parts(self) -> Iterator[Candidate | None]:
        jaxpr, run = self.best.jaxpr, self.run()
        n = len(jaxpr.eqns)
        for m in ((16, 4, 2) if n > _MANY else (2,)) if n > 1 else ():
            size = -(-n // m)
            for first in range(0, n, size):
                yield slices.window(jaxpr, first, min(n, first + size), run, scalar=self.scalar)

    def _bodies(self) -> None:
        """Make a body the program."""
        while self.first(
            slices.whole(body, run, scalar=self.scalar)
            for body in distinct_jaxprs(self.best.jaxpr)[:-1]
            for run in self.runs(body)
        ):
            self._windows()

    def _chunks(self) -> None:
        """Drop consecutive equations: what is still read of them becomes operands, or values before them."""
        size = max(1, len(self.best.jaxpr.eqns) // 2)
        while size >= 1:
            end = len(self.best.jaxpr.eqns)
            while end > 0:
                first, best = max(0, end - size), self.best
                if not self.attempt(edits.without_equations(best, first, end, self.run())):
                    self.attempt(best.replace(edits.bypassed(best.jaxpr, first, end)))
                end = min(first, len(self.best.jaxpr.eqns))
            size //= 2

    def _chunks_of_bodies(self) -> None:
        """Drop consecutive equations of bodies, for a fault that needs the equation with the body."""
        size = max([len(body.eqns) for body in distinct_jaxprs(self.best.jaxpr)[:-1]], default=0) // 2
        while size > 1:
            while self.first(self.best.replace(j) for j in edits.without_chunks(self.best.jaxpr, size)):
                pass
            size //= 2

    def _small_steps(self) -> None:
        """Try every step, each group until it fails, and all again until none succeeds."""
        while True:
            before = self.best
            for steps in (
                self._fewer_results,
                self._fewer_equations,
                self._opened,
                self._inside,
                lambda: retyped.bypassed_equations(self.best),
                lambda: edits.merged_operands(self.best),
                lambda: retyped.smaller_shapes(self.best),
                lambda: retyped.smaller_parameters(self.best),
                lambda: retyped.plainer_dtypes(self.best),
                lambda: operand_values.plainer_values(self.best),
                lambda: edits.literal_operands(self.best),
                lambda: edits.plainer_literals(self.best),
            ):
                while self.first(steps()):
                    pass
            if self.best is before:
                return

    def _fewer_results(self) -> Iterator[Candidate | None]:
        n = len(self.best.jaxpr.outs)
        if n > 1:
            for k in range(n):
                yield with_results(self.best, [k])
            for k in range(n):
                yield with_results(self.best, [j for j in range(n) if j != k])

    def _fewer_equations(self) -> Iterator[Candidate | None]:
        best, run = self.best, self.run()
        jaxpr = best.jaxpr
        for at in reversed(range(len(jaxpr.eqns))):
            yield edits.without_equations(best, at, at + 1, run)
            for value, by in edits.other_values(jaxpr, at):
                yield best.replace(edits.replaced(jaxpr, value, by))
        for at in reversed(range(len(jaxpr.eqns))):  # an earlier value is the result
            for v in jaxpr.eqns[at].outs:
                if v not in jaxpr.outs:
                    yield best.replace(jaxpr.with_outs((v,)))

    def _opened(self) -> Iterator[Candidate | None]:
        for at in reversed(range(len(self.best.jaxpr.eqns))):
            yield from edits.opened(self.best, at, self.run())

    def _inside(self) -> Iterator[Candidate | None]:
        """One equation less in a body, or a body as the program."""
        best = self.best
        for body in distinct_jaxprs(best.jaxpr)[:-1]:
            for run in self.runs(body):
                yield slices.whole(body, run, scalar=self.scalar)
        for at in reversed(range(len(best.jaxpr.eqns))):
            prim = best.jaxpr.eqns[at].prim
            if isinstance(prim, HigherOrder):
                for smaller in edits.smaller_inside(prim):
                    yield edits.with_prim(best, at, smaller)


def _spread(items: Sequence[T]) -> list[T]:
    """Return the items in an order that goes through the list several times, in smaller and smaller steps."""
    stride = 1
    while stride * 16 < len(items):
        stride *= 4
    order: dict[int, None] = {}
    while stride:
        order |= dict.fromkeys(range(0, len(items), stride))
        stride //= 4
    return [items[k] for k in order]


@final
class Raised:
    """The outcome of a predicate that raised. It equals no reason."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def outcome(fails: Fails, program: Program[..., Any], args: object) -> Hashable:
    """Return the reason for which a candidate fails; None if it does not."""
    try:
        return fails(program, args)
    except Exception as e:  # noqa: BLE001  the predicate is the user's
        return Raised(e)
