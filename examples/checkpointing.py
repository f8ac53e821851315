"""Memory against time: the gradient through 1,024 steps, with 1,024 down to 20 states stored.

    python examples/checkpointing.py

A membrane is struck, and rings. The script differentiates the sound at a few microphones with respect to the place that
was struck. Reverse mode needs the states of the simulation in reverse order. `lax.scan` stores all of them, and more.
`lax.checkpointed_scan` stores a given number and recomputes the others: with about 2 sqrt(n) states it costs one more
simulation, with 2 log(n) a few.

Binomial checkpointing has the fewest recomputations for a number of stored states. It is written here with `remat` in a
few lines, and its steps are counted. It unrolls the steps, which compiles in seconds for some dozens of them, and
slowly for thousands; `checkpointed_scan` compiles one step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import comb
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

STEPS = 1024
UNROLLED = 56
SIDE = 48
MICROPHONES = ((8, 9), (40, 12), (21, 37))
Waves = tuple[fx.Array, fx.Array]
Step = Callable[[Waves, None], tuple[Waves, fx.Array]]
Run = Callable[[Waves], tuple[Waves, list[fx.Array]]]


def strike(place: fx.Array) -> fx.Array:
    """Return the membrane pushed at one place."""
    at = fnp.arange(SIDE, dtype="float32")
    return fnp.exp(-((at[:, None] - place[0]) ** 2 + (at[None, :] - place[1]) ** 2) / 20)


def step(waves: Waves, _: None) -> tuple[Waves, fx.Array]:
    """One step of the wave equation, with a little more stiffness at large displacements. Returns the state, and the
    sound at the microphones."""
    now, before = waves
    around = sum([fnp.roll(now, shift, axis) for shift in (-1, 1) for axis in (0, 1)]) - 4 * now
    after = 2 * now - before + 0.2 * around - 0.01 * fnp.sin(now) ** 3 - 1e-3 * (now - before)
    return (after, now), fnp.stack([after[k] for k in MICROPHONES])


def listen(place: fx.Array, steps: int, budget: int | None) -> fx.Array:
    """Return the sound if the membrane is struck at a place."""
    start = strike(place), strike(place)
    scan: Callable[..., Any] = lax.scan if budget is None else partial(lax.checkpointed_scan, budget=budget)
    heard: fx.Array = scan(step, start, None, steps)[1]
    return heard


def advances(steps: int, snapshots: int) -> int:
    """Return the least number of recomputed steps: Griewank and Walther, Algorithm 799: revolve (2000). With at most r
    repetitions, snapshots suffice for comb(snapshots + r, r) steps."""
    r = 0
    while comb(snapshots + r, r) < steps:
        r += 1
    return r * steps - comb(snapshots + r, snapshots + 1)


def binomial(step: Step, steps: int, snapshots: int) -> Run:
    """Run all steps. Reverse mode stores as many states as there are snapshots, with the fewest recomputations.

    The first part is a segment. Its start is a snapshot, from which it is run again after the later parts are done; for
    its gradient it is split in the same way. The other part starts from a snapshot too, so it has one less.
    """
    if steps == 1:

        def once(waves: Waves) -> tuple[Waves, list[fx.Array]]:
            waves, heard = step(waves, None)
            return waves, [heard]

        return once
    least = 1 if snapshots > 1 else steps - 1
    cost = {m: m + advances(m, snapshots) + advances(steps - m, snapshots - 1) for m in range(least, steps)}
    first = min(cost, key=cost.__getitem__)
    before: Run = fx.remat(binomial(step, first, snapshots))
    after = binomial(step, steps - first, snapshots - 1)

    def both(waves: Waves) -> tuple[Waves, list[fx.Array]]:
        waves, early = before(waves)
        waves, late = after(waves)
        return waves, early + late

    return both


def steps_computed(jaxpr: fx.Jaxpr) -> int:
    """Return how often a program computes a step, by counting sines."""
    count = 0
    for eqn in jaxpr.eqns:
        inside = sum([steps_computed(body) for body in getattr(eqn.prim, "bodies", ())])
        count += (eqn.prim.name == "sin") + getattr(eqn.prim, "length", 1) * inside
    return count


def compare(guess: fx.Array, steps: int) -> dict[str, float]:
    """Print the number of computed steps, with the same number of stored states in both ways."""
    one = fx.jit(step)

    def loudness(run: Callable[[Waves], Any], place: fx.Array) -> fx.Array:
        heard = run((strike(place), strike(place)))[1]
        return fnp.mean((fnp.stack(heard) if isinstance(heard, list) else fnp.asarray(heard)) ** 2)

    def gradient(run: Callable[[Waves], Any]) -> fx.Program[..., fx.Array]:
        program: fx.Program[..., fx.Array] = fx.grad(fx.trace(partial(loudness, run), guess))
        return program

    everything = fx.interpret(gradient(partial(lax.scan, step, xs=None, length=steps)), guess)
    figures = {"uneven": 0.0, "beyond": 0.0}
    print(f"\nsteps computed for the gradient of {steps} steps\nstates   binomial   formula   checkpointed_scan")
    for states in (3, 5, 10, 14, 20):
        program = gradient(binomial(one, steps, states))
        count, formula = steps_computed(program.jaxpr), steps + advances(steps, states)
        try:
            scan = partial(lax.checkpointed_scan, step, xs=None, length=steps, budget=states)
            other = str(steps_computed(gradient(scan).jaxpr))
        except fx.errors.ParameterError:
            other = "too few states"
        print(f"{states:>6}   {count:>8}   {formula:>7}   {other:>17}")
        off = np.max(np.abs(fx.interpret(program, guess) - everything))
        figures = {"uneven": max(figures["uneven"], off), "beyond": max(figures["beyond"], abs(count - formula))}
    print(
        "and each gradient is that of lax.scan, bit for bit" if figures["uneven"] == 0 else f"{figures['uneven']} off"
    )
    return figures


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Print the cost of each budget. Return kilobytes of temporaries, and the difference of the gradients."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--unrolled", type=int, default=UNROLLED, help="steps of binomial checkpointing")
    args = parser.parse_args(argv)
    steps = args.steps
    place, guess = fnp.array([20.0, 27.0], np.float32), fnp.array([22.0, 25.5], np.float32)
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
    return {**figures, **compare(guess, args.unrolled)}


if __name__ == "__main__":
    main()
