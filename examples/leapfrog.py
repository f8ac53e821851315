"""A gradient through an integrator that is inverted: memory does not grow with the number of steps.

    python examples/leapfrog.py

Pendulums, each coupled to the next by a spring, swing for a while. The script differentiates the final amplitude of the
last one with respect to all initial positions and the stiffness of the springs. A step of the leapfrog integrator is
invertible, so reverse mode reconstructs the states from the last one. The script measures the rounding errors of this.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

DEPTHS = (8, 64, 256)
PENDULUMS = 512
State = tuple[fx.Array, fx.Array]


def force(x: fx.Array, stiffness: fx.Array) -> fx.Array:
    """Return the force of gravity and springs on each pendulum."""
    stretch = x[1:] - x[:-1]
    nothing = fnp.zeros((1,), x.dtype)
    pull = fnp.concatenate([stretch, nothing]) - fnp.concatenate([nothing, stretch])
    return stiffness * pull - fnp.sin(x)


def swing(state: State, stiffness: fx.Array, steps: int, dt: float = 0.02) -> State:
    """Positions and velocities after `steps` steps of the leapfrog integrator."""

    def step(_: fx.Array, state: State) -> State:
        x, v = state
        v = v + dt * force(x, stiffness)
        return x + dt * v, v

    out: State = lax.fori_loop(0, steps, step, state)
    return out


def reach(run: Callable[..., State], state: State, stiffness: fx.Array) -> fx.Array:
    """Return the squared amplitude of the last pendulum."""
    return fnp.sum(run(state, stiffness)[0][-1:] ** 2)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Print memory, agreement of gradients and error of the reconstruction. Return the figures of the longest run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pendulums", type=int, default=PENDULUMS)
    n = parser.parse_args(argv).pendulums
    rng = np.random.default_rng(0)
    state: Any = rng.normal(size=n).astype(np.float32), np.zeros(n, np.float32)
    stiffness: Any = np.full(n, 2.0, np.float32)
    figures: dict[str, float] = {}
    print("steps  stored KB  reconstructed KB  gradients differ by  reconstruction error")
    for steps in DEPTHS:
        plain = partial(swing, steps=steps)
        lean = fx.invertible(plain, keep="stiffness")
        programs = [fx.trace(partial(reach, f), state, stiffness) for f in (plain, lean)]
        runs: list[Any] = [fx.lower(fx.grad(program, (0, 1))).compile() for program in programs]
        kilobytes = [run.memory().temp_bytes / 1024 for run in runs]
        want, found = [fx.tree.leaves(run(state, stiffness)) for run in runs]
        apart = max(
            [
                float(np.max(np.abs(np.asarray(a) - np.asarray(b))) / np.max(np.abs(np.asarray(a))))
                for a, b in zip(want, found, strict=True)
            ]
        )
        error = fx.reconstruction_error(plain, state, stiffness, keep="stiffness")
        print(f"{steps:5}  {kilobytes[0]:9.1f}  {kilobytes[1]:16.1f}  {apart:19.1e}  {error:20.1e}")
        figures[f"KB, {steps} steps"] = kilobytes[1]
        figures |= {"stored KB": kilobytes[0], "apart": apart, "error": error}
    return figures


if __name__ == "__main__":
    main()
