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
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `budget` is the ratio that may not be exceeded; None: measured for information."""

    name: str
    ours_us: float
    jax_us: float
    budget: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours_us / self.jax_us

    @property
    def met(self) -> bool | None:
        return None if self.budget is None else self.ratio <= self.budget


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


def compare(name: str, ours: Contest, peer: Contest, *, budget: float | None = None, per: int = 1) -> Row:
    """A row: our time, the peer's, and whether the ratio keeps the budget."""
    ours_us, jax_us = race(ours, peer, per=per)
    return Row(name, ours_us, jax_us, budget)


def compare_once(
    name: str,
    ours: Callable[[], Contest],
    peer: Callable[[], Contest],
    *,
    budget: float | None = None,
    per: int = 1,
    rounds: int = 9,
) -> Row:
    """A row for work that is remembered: each round prepares a new contest, unmeasured, and times its only call."""
    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, prepare in enumerate((ours, peer)):
            contest = prepare()
            gc.collect()
            start = time.perf_counter()
            contest()
            best[k] = min(best[k], time.perf_counter() - start)
    return Row(name, 1e6 * best[0] / per, 1e6 * best[1] / per, budget)


def table(title: str, rows: Iterable[Row]) -> Table:
    """The rows as a table; a budget that is missed is red."""
    out = Table(title=title, title_justify="left")
    out.add_column("what")
    for heading in ("fxad us", "jax us", "ratio", "budget"):
        out.add_column(heading, justify="right")
    for r in rows:
        style = {None: "default", True: "green", False: "bold red"}[r.met]
        budget = "" if r.budget is None else f"{r.budget:.3g}"
        out.add_row(r.name, f"{r.ours_us:.2f}", f"{r.jax_us:.2f}", f"[{style}]{r.ratio:.3f}[/]", budget)
    return out


def show(title: str, rows: Sequence[Row]) -> None:
    """Print the table."""
    Console(width=110).print(table(title, rows))
