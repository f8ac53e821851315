"""A process under load: `python -m tests.soak.load SECONDS`. Threads do small random pieces of work and check all
results, while the main thread disturbs them. Counts are printed at the end.

A piece of work is a function of the counts and a random generator, and a row of `WORK`. A disturbance is a function of
the counts, which the main thread calls between its own pieces of work, and a row of `DISTURBANCES`: Python runs signal
handlers in the main thread. A `Disturbed` exception in a piece of work ends that piece, is counted, and has no other
effect.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final, TypeAlias

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ExecutionError

Counts: TypeAlias = "Counter[str]"
Work: TypeAlias = Callable[[Counts, random.Random], None]

N: Final = 64
X: Final = fx.Spec((N,), "float32")
ONES: Final = np.ones(N, np.float32)
THREADS: Final = 3
GROWTH: Final = 32 << 20  # the growth that is allowed, for any duration


class Disturbed(Exception):
    """The exception that a disturbance raises in a piece of work."""


twice = fx.lower(fx.trace(lambda x: x * 2, X)).compile()
gives_up = fx.lower(fx.trace(lambda x: x + 1, X)).compile(donate="x")
block = fx.jit(lambda x: fnp.tanh(x) * 2)
linked = fx.lower(fx.trace(lambda x, y: (block(block(x)), block(y)), X, X), units=lambda body: True).compile(donate="y")
of_tree = fx.jit(lambda tree: fx.tree.map(lambda x: x + 1, tree))
on_host = fx.jit(lambda x: fx.pure_callback(lambda v: v + 1, X, x))

READS: Final[tuple[Callable[[fx.Array], Any], ...]] = (
    np.asarray, np.from_dlpack, twice, of_tree, on_host, repr, fx.Array.copy, fx.Array.block_until_ready,
    lambda x: x.tolist(), lambda x: x[3].item(), lambda x: x + 1, lambda x: x.sum(), lambda x: linked(x, x.copy()),
)  # fmt: skip


def calls(counts: Counts, draw: random.Random) -> None:
    """Calls programs one after the other and checks the last value."""
    x = fx.asarray(ONES)
    n = draw.randrange(1, 50)
    for _ in range(n):
        x = gives_up(x) if draw.random() < 0.5 else x + 1
    assert x.tolist() == [1.0 + n] * N
    counts["calls"] += n


def reads_of_donated_arrays(counts: Counts, draw: random.Random) -> None:
    """Some threads read an array, and two donate it. Exactly one donation succeeds."""
    x, won = fx.asarray(ONES) + 0, []

    def refused(e: ExecutionError, what: str) -> None:
        assert "was donated to" in e.message, e
        counts[what] += 1

    def donate() -> None:
        try:
            won.append(gives_up(x))
        except ExecutionError as e:
            refused(e, "donations refused")

    def read(how: Callable[[fx.Array], Any]) -> None:
        try:
            how(x)
        except ExecutionError as e:
            refused(e, "reads refused")

    together: list[Callable[[], None]] = [donate, donate, *[partial(read, how) for how in draw.choices(READS, k=2)]]
    threads = [threading.Thread(target=f) for f in together[1:]]
    for t in threads:
        t.start()
    together[0]()
    for t in threads:
        t.join()
    assert len(won) == 1
    assert won[0].tolist() == [2.0] * N
    counts["donations"] += 1
    counts["reads"] += 2


def writes_to_transferred_arrays(counts: Counts, draw: random.Random) -> None:
    """A write to an array after its transfer changes nothing."""
    mine = np.arange(1 << draw.randrange(17), dtype=np.float32)
    view = mine[:]
    view.flags.writeable = False
    theirs = fx.asarray(view)
    mine[:] = -1
    again = np.asarray(fx.asarray(np.asarray(theirs)))
    assert again[-1] == len(mine) - 1
    counts["bytes"] += 2 * mine.nbytes


def programs(counts: Counts, draw: random.Random) -> None:
    """A program that no cache has."""
    factor = draw.random()
    got = fx.grad(lambda x: (fnp.sin(x) * factor).sum())(ONES)
    np.testing.assert_allclose(np.asarray(got), np.cos(ONES) * np.float32(factor), rtol=1e-5)
    counts["programs"] += 1


# A piece of work, and its weight.
WORK: Final[dict[Work, int]] = {calls: 20, reads_of_donated_arrays: 20, writes_to_transferred_arrays: 10, programs: 1}


def disturbed_host(e: ExecutionError) -> bool:
    """Returns True for an error of a host function that was disturbed."""
    return "Disturbed" in str(e)


def switch_interval(counts: Counts, draw: random.Random) -> None:
    """Makes threads switch as often as possible, or as usual."""
    sys.setswitchinterval(draw.choice([1e-6, 1e-4, 5e-3]))
    counts["changes of the switch interval"] += 1


def interrupt_soon(counts: Counts, draw: random.Random) -> None:
    """Sends a signal within 5 ms. Its handler raises in the main thread."""
    counts["signals"] += 1
    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 5e-3))


def interrupted(_: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == threading.__file__:
            return  # Python's `Thread.start` does not survive an exception at every instruction
        frame = frame.f_back
    raise Disturbed


class Finalised:
    """An object that computes when the garbage collector frees it, in the middle of any other code."""

    def __init__(self, counts: Counts, draw: random.Random) -> None:
        kinds: list[Callable[[fx.Array], object]] = [*READS, gives_up, lambda x: programs(counts, draw)]
        self.how = draw.choice(kinds)
        self.told, self.itself = counts, self

    def __del__(self) -> None:
        if not hasattr(self, "told"):
            return  # its `__init__` was interrupted
        try:
            self.how(fx.asarray(ONES))
            self.told["finalisers"] += 1
        except Disturbed:
            pass
        except ExecutionError as e:
            if not disturbed_host(e):
                raise


def drop_finalised(counts: Counts, draw: random.Random) -> None:
    """Drops objects that only the garbage collector frees."""
    for _ in range(draw.randint(1, 5)):
        Finalised(counts, draw)


DISTURBANCES: Final[tuple[Work, ...]] = (switch_interval, interrupt_soon, drop_finalised)


def work_until(end: float, counts: Counts, seed: int, between: Callable[[random.Random], None]) -> None:
    """Does pieces of work until the time is over."""
    draw = random.Random(seed)
    pieces, weights = list(WORK), list(WORK.values())
    going_on = True
    while going_on:
        try:
            while time.monotonic() < end:
                (piece,) = draw.choices(pieces, weights)
                piece(counts, draw)
                counts["pieces of work"] += 1
                between(draw)
            going_on = False
        except Disturbed:
            counts["interruptions"] += 1
        except ExecutionError as e:
            if not disturbed_host(e):
                raise
            counts["interruptions"] += 1


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096


def run(seconds: float) -> Counts:
    """Runs all threads until the time is over. Raises: AssertionError if a piece of work found an error, or if memory
    grows."""
    counts, found = [Counter[str]() for _ in range(THREADS)], list[BaseException]()
    fx.cache.configure(max_bytes=8 << 20)
    at: dict[str, int] = {}

    def disturb(draw: random.Random) -> None:
        draw.choice(DISTURBANCES)(counts[0], draw)
        if "warm" not in at and time.monotonic() > end - 0.75 * seconds:
            at["warm"] = resident()

    def lost(told: sys.UnraisableHookArgs) -> None:
        if not isinstance(told.exc_value, Disturbed):
            found.append(told.exc_value or AssertionError(told))
            sys.__unraisablehook__(told)
        counts[0]["interruptions of finalisers"] += 1

    def other(k: int) -> None:
        try:
            work_until(end, counts[k], k, lambda _: None)
        except BaseException as e:
            found.append(e)
            raise

    # import all modules now: the locks of Python's import system do not survive an exception at every instruction
    for read in READS:
        read(fx.asarray(ONES))
    gives_up(fx.asarray(ONES))
    for piece in WORK:
        piece(Counter(), random.Random(0))
    print("warm", flush=True)  # this takes minutes if other processes use the cores
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=other, args=(k,)) for k in range(1, THREADS)]
    for t in threads:
        t.start()
    before = signal.signal(signal.SIGALRM, interrupted)
    sys.unraisablehook = lost
    try:
        work_until(end, counts[0], 0, disturb)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for t in threads:
        t.join()
    print(f"{sum([c['pieces of work'] for c in counts]):,} pieces of work done; the last finalisers run", flush=True)
    gc.collect()  # finalisers at the exit of the interpreter would find half of the modules
    sys.unraisablehook = sys.__unraisablehook__
    assert not found, found
    total = sum(counts, Counter[str]())
    total["bytes grown"] = resident() - at.get("warm", resident())
    assert total["bytes grown"] < GROWTH, total
    assert "jax" not in sys.modules
    return total


if __name__ == "__main__":
    for what, n in run(float(sys.argv[1])).items():
        print(f"{n:15,} {what}")
