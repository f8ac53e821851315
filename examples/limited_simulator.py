"""A simulator of 10,000 steps, fitted under a stated limit of memory.

    python examples/limited_simulator.py

A reaction front runs along a rod. Its speed at a place depends on the conductivity there, which is unknown. The
conductivity is fitted to the final state of the rod. The gradient goes through all 10,000 steps; storing every step
would take tens of megabytes. `plan_memory(gradient, budget="1 MiB")` finds a plan of nested segments with which the
compiled gradient keeps to the limit. Its line about the loops is printed.

The picture. Left: the conductivity that is to be found and the one that is found. They agree near the front; the final
state of the rod depends little on the other places. Right: the memory of the gradient with the limit and without, on a
logarithmic scale.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from pictures import BLUE, INK, ORANGE, add_option, drawing

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, optim

STEPS, CELLS = 10_000, 256
LIMIT = "1 MiB"
TIME_STEP, THRESHOLD = 0.05, 0.2


def simulate(conductivity: fx.Array) -> fx.Array:
    """Return the rod after all steps, from a front at its left end."""
    place = fnp.arange(CELLS, dtype="float32")

    def step(u: fx.Array, _: None) -> tuple[fx.Array, None]:
        flow = conductivity[1:] * (u[1:] - u[:-1])
        moved = fnp.pad(flow, (0, 1)) - fnp.pad(flow, (1, 0))
        return u + TIME_STEP * (moved + 0.1 * u * (1 - u) * (u - THRESHOLD)), None

    start = 1 / (1 + fnp.exp(place - 20))
    last: fx.Array = lax.scan(step, start, None, length=STEPS)[0]
    return last


def misfit(logarithm: fx.Array, seen: fx.Array) -> fx.Array:
    """Return the mean square difference between the simulation and the data."""
    return fnp.mean((simulate(fnp.exp(logarithm)) - seen) ** 2)


def kib(program: fx.Program[..., object]) -> float:
    """Return the temporaries of the compiled program in KiB."""
    return fx.lower(program).compile().memory().temp_bytes / 1024


def plot(file: str, known: fx.Array, guess: fx.Array, kib: dict[str, float]) -> None:
    """Draws the conductivity that is fitted, and the temporaries of the gradient."""
    with drawing(file) as (rod, bars):
        rod.plot(np.asarray(known), color=INK, linestyle=":", label="conductivity of the rod")
        rod.plot(np.exp(np.asarray(guess)), color=BLUE, label="fitted")
        rod.plot(np.asarray(simulate(known)), color=ORANGE, linewidth=1, label="the rod after all steps")
        rod.set(xlabel="place", title=f"{STEPS:,} steps, fitted by gradient", ylim=(-0.05, 1.6))
        rod.legend(loc="upper left")
        shown = bars.barh([*kib], [*kib.values()], color=[INK, BLUE][: len(kib)], height=0.5)
        bars.bar_label(shown, fmt="{:,.0f} KiB", color=INK, padding=3)
        bars.set(xscale="log", xlabel="temporaries of the gradient", xlim=(10, 20 * max(kib.values())))


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Fits the conductivity of a rod under a limit."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--fits", type=int, default=12, help="steps of the optimiser")
    parser.add_argument("--limit", default=LIMIT, help="of the temporaries of the gradient")
    add_option(parser)
    options = parser.parse_args(argv)
    place = fnp.arange(CELLS, dtype="float32")
    known = 0.6 + 0.3 * fnp.sin(place / 25)
    seen = fx.jit(simulate)(known)

    guess = fnp.full((CELLS,), -0.5, "float32")
    program = fx.trace(misfit, guess, seen)
    start = time.perf_counter()
    gradient_of = fx.value_and_grad(program)
    plan = fx.plan_memory(gradient_of, budget=options.limit)
    took = time.perf_counter() - start
    slope = fx.lower(gradient_of, passes=plan.passes).compile()
    plain, held = kib(gradient_of), slope.memory().temp_bytes / 1024
    print("\n".join([line for line in str(plan).splitlines() if line.startswith("loop")]))
    print(f"temporaries of the gradient: {held:,.0f} KiB of {options.limit}; {plain:,.0f} KiB without a limit")
    print(f"found in {took:.1f} s")

    rule = optim.adam(0.05)
    state, errors = rule.init(guess), []
    for _ in range(options.fits):
        error, gradient = slope(guess, seen)
        updates, state = rule.update(gradient, state, guess)
        guess = optim.apply_updates(guess, updates)
        errors.append(float(error))
    print(f"misfit: {errors[0]:.2e} at first, {errors[-1]:.2e} after {options.fits} steps of Adam")
    if options.plot:
        plot(options.plot, known, guess, {"without a limit": plain, f"limit {options.limit}": held})
    return {"KiB": held, "plain KiB": plain, "first": errors[0], "last": errors[-1]}


if __name__ == "__main__":
    main()
