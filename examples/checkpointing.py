"""Memory against time: the same gradient through 1,024 steps, with from 1,024 states stored down to 20.

    python examples/checkpointing.py

A membrane is struck, and rings. How what a few microphones hear changes with the place where it was struck is a
gradient through the simulation, and reverse mode needs its states, the last one first. `lax.scan` keeps them all, and
more; `lax.checkpointed_scan` keeps as many as it is given, and computes the others again: about twice the square root
of them cost one more simulation, twice the logarithm a few.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

STEPS = 1024
SIDE = 48
MICROPHONES = ((8, 9), (40, 12), (21, 37))
Waves = tuple[fx.Array, fx.Array]


def strike(place: fx.Array) -> fx.Array:
    """The membrane, pushed at a place: a bump."""
    at = fnp.arange(SIDE, dtype="float32")
    return fnp.exp(-((at[:, None] - place[0]) ** 2 + (at[None, :] - place[1]) ** 2) / 20)


def step(waves: Waves, _: None) -> tuple[Waves, fx.Array]:
    """One step of the wave equation, which is a little stiffer where it is far out; what the microphones hear."""
    now, before = waves
    around = sum([fnp.roll(now, shift, axis) for shift in (-1, 1) for axis in (0, 1)]) - 4 * now
    after = 2 * now - before + 0.2 * around - 0.01 * fnp.sin(now) ** 3 - 1e-3 * (now - before)
    return (after, now), fnp.stack([now[k] for k in MICROPHONES])


def listen(place: fx.Array, steps: int, budget: int | None) -> fx.Array:
    """What is heard when the membrane is struck at a place."""
    start = strike(place), strike(place)
    scan: Callable[..., Any] = lax.scan if budget is None else partial(lax.checkpointed_scan, budget=budget)
    heard: fx.Array = scan(step, start, None, steps)[1]
    return heard


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Prints what each budget costs; returns kilobytes of temporaries, and how far the gradients are apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    steps = parser.parse_args(argv).steps
    place, guess = np.array([20.0, 27.0], np.float32), np.array([22.0, 25.5], np.float32)
    heard = np.asarray(listen(fnp.asarray(place), steps, None))

    def misfit(place: fx.Array, budget: int | None) -> fx.Array:
        return fnp.mean((listen(place, steps, budget) - heard) ** 2)

    levels = steps.bit_length()
    budgets = {"scan": None, "n": steps, "2 sqrt(n)": 2 * int(np.ceil(np.sqrt(steps))), "2 log2(n)": 2 * levels}
    figures, first = {}, np.zeros(2)
    print("budget        carries   temporaries   time     like scan")
    for name, budget in budgets.items():
        run = fx.jit(fx.grad(fx.trace(partial(misfit, budget=budget), guess)))
        kib = run.memory().temp_bytes / 1024
        gradient = np.asarray(run(guess))
        began = time.perf_counter()
        gradient = np.asarray(run(guess))
        seconds = time.perf_counter() - began
        first = gradient if budget is None else first
        off = float(np.max(np.abs(gradient - first)) / np.max(np.abs(first)))
        print(f"{name:12}  {budget or '':>7}   {kib:7,.0f} KiB   {1000 * seconds:4.0f} ms   {off:.0e} off")
        figures[name] = kib
        figures["off"] = max(figures.get("off", 0.0), off)
    return figures


if __name__ == "__main__":
    main()
