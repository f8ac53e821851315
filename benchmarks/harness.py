"""Timing beside another library, and the table.

The machine is shared and its speed drifts. So contestants take turns within each round and each keeps its best round:
the ratio compares two times that were taken within milliseconds of each other.
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

    `budget` limits the ratio of fxad's figure to jax's, `at_most` limits fxad's own figure. None: measured for
    information.
    """

    name: str
    ours: float
    jax: float
    budget: float | None = None
    at_most: float | None = None
    unit: str = "us"

    @property
    def ratio(self) -> float:
        """Returns fxad's figure divided by jax's; 1 if both are zero."""
        return self.ours / self.jax if self.jax else float(self.ours > 0) + 1.0

    @property
    def met(self) -> bool | None:
        """Returns True if the budget is kept, or None without a budget."""
        if self.budget is None and self.at_most is None:
            return None
        return (self.budget is None or self.ratio <= self.budget) and (
            self.at_most is None or self.ours <= self.at_most
        )

    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Returns name, fxad's figure, jax's, ratio, budget, verdict."""
        budget = "" if self.budget is None else f"{self.budget:.3g}"
        if self.at_most is not None:
            budget = f"{self.at_most:g} {self.unit}"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return self.name, self._quantity(self.ours), self._quantity(self.jax), f"{self.ratio:.3f}", budget, verdict

    def _quantity(self, x: float) -> str:
        return f"{x:,.0f} {self.unit}" if self.unit == "bytes" or x >= 100 else f"{x:.3g} {self.unit}"


class Contest(Protocol):
    """A function without arguments that is timed."""

    def __call__(self) -> object: ...


def race(*contests: Contest, per: int = 1, rounds: int = 120, seconds: float = 0.002) -> list[float]:
    """Returns microseconds for each contest, divided by `per` (for example equations in a program): the best of
    interleaved rounds.

    Each turn repeats its contest for about `seconds`, shorter than a time slice of the scheduler, so that on a loaded
    machine some turns of each contest are undisturbed. The garbage collector is off, as in `timeit`.
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
    contest()  # the first call compiles, and does not count
    start = time.perf_counter()
    contest()
    once = time.perf_counter() - start
    return max(1, int(seconds / max(once, 1e-7)))


def compare(
    name: str, ours: Contest, peer: Contest, *, budget: float | None = None, per: int = 1, rounds: int = 120
) -> Row:
    """Returns a row: fxad's time, the other library's, and the budget of the ratio."""
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
    """Returns a row for work that is memoised. Each round prepares a new contest, without timing it, and times its only
    call.

    `per_peer` divides the other library's time, if it is not `per`.
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
            del contest, made  # drop the results, so that the next round does the work again
    return Row(name, 1e6 * best[0] / per, 1e6 * best[1] / (per_peer or per), budget)


def table(title: str, rows: Iterable[Row]) -> Table:
    """Returns the rows as a table. A missed budget is red."""
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
    """Prints the table."""
    Console(width=120).print(table(title, rows))
