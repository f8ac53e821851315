"""Timing beside a peer, and the table.

The machine is shared and its speed drifts, so contestants take turns within each round and each keeps its best round;
what is compared is a ratio of two times taken within milliseconds of each other.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    `budget` is the ratio of ours to jax's that may not be exceeded, `at_most` what ours itself may not; None: measured
    for information.
    """

    name: str
    ours: float
    jax: float
    budget: float | None = None
    at_most: float | None = None
    unit: str = "us"

    @property
    def ratio(self) -> float:
        """Ours to jax's; of nothing to nothing, 1."""
        return self.ours / self.jax if self.jax else float(self.ours > 0) + 1.0

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None without one."""
        if self.budget is None and self.at_most is None:
            return None
        return (self.budget is None or self.ratio <= self.budget) and (
            self.at_most is None or self.ours <= self.at_most
        )

    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Name, ours, jax's, ratio, budget, verdict."""
        budget = "" if self.budget is None else f"{self.budget:.3g}"
        if self.at_most is not None:
            budget = f"{self.at_most:g} {self.unit}"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return self.name, self._quantity(self.ours), self._quantity(self.jax), f"{self.ratio:.3f}", budget, verdict

    def _quantity(self, x: float) -> str:
        return f"{x:,.0f} {self.unit}" if self.unit == "bytes" or x >= 100 else f"{x:.3g} {self.unit}"


class Contest(Protocol):
    """What is timed: called with nothing, measured by the clock."""

    def __call__(self) -> object: ...


def race(*contests: Contest, per: int = 1, rounds: int = 120, seconds: float = 0.002) -> list[float]:
    """Microseconds of each contest, divided by `per` (equations in a program, say): the best of interleaved rounds.

    Each turn repeats its contest for about `seconds`: shorter than a time slice of the scheduler, so that on a loaded
    machine some turns of each contest pass undisturbed. The garbage collector is off, as in `timeit`.
    """
    repeats = [_repeats(c, seconds) for c in contests]
    best = [float("inf")] * len(contests)
    was_on = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for k, (contest, n) in enumerate(zip(contests, repeats, strict=True)):
                start = time.perf_counter()
                for _ in range(n):
                    contest()
                best[k] = min(best[k], (time.perf_counter() - start) / n)
            gc.collect(0)
    finally:
        if was_on:
            gc.enable()
    return [1e6 * b / per for b in best]


def _repeats(contest: Contest, seconds: float) -> int:
    contest()  # what the first call compiles is not measured
    start = time.perf_counter()
    contest()
    once = time.perf_counter() - start
    return max(1, int(seconds / max(once, 1e-7)))


def compare(
    name: str, ours: Contest, peer: Contest, *, budget: float | None = None, per: int = 1, rounds: int = 120
) -> Row:
    """A row: our time, the peer's, and whether the ratio keeps the budget."""
    ours_us, jax_us = race(ours, peer, per=per, rounds=rounds)
    return Row(name, ours_us, jax_us, budget)


def compare_once(
    name: str,
    ours: Callable[[], Contest],
    peer: Callable[[], Contest],
    *,
    budget: float | None = None,
    per: int = 1,
    per_peer: int | None = None,
    rounds: int = 9,
) -> Row:
    """A row for work that is remembered: each round prepares a new contest, unmeasured, and times its only call.

    `per_peer` where the peer's work counts other than ours.
    """
    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, prepare in enumerate((ours, peer)):
            contest = prepare()
            gc.collect()
            gc.disable()
            start = time.perf_counter()
            made = contest()
            best[k] = min(best[k], time.perf_counter() - start)
            gc.enable()
            del contest, made  # what is dropped is forgotten: the next round does the work again
    return Row(name, 1e6 * best[0] / per, 1e6 * best[1] / (per_peer or per), budget)


def table(title: str, rows: Iterable[Row]) -> Table:
    """The rows as a table; a budget that is missed is red."""
    out = Table(title=title, title_justify="left")
    out.add_column("what")
    for heading in ("fxad", "jax", "ratio", "budget", ""):
        out.add_column(heading, justify="right")
    for r in rows:
        style = {None: "default", True: "green", False: "bold red"}[r.met]
        *cells, ratio, budget, verdict = r.cells()
        out.add_row(*map(escape, cells), f"[{style}]{ratio}[/]", budget, f"[{style}]{verdict}[/]")
    return out


def show(title: str, rows: Sequence[Row]) -> None:
    """Print the table."""
    Console(width=120).print(table(title, rows))
