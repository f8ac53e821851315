"""A model of flax, trained in JAX, saved as a program, and run and differentiated in a process that has no JAX.

    pip install 'fxad[jax]' flax
    python examples/flax_model.py

`from_jax` translates the model into a program of fxad. `fx.save` writes the program with its parameters: text and
arrays, no pickle and no code. A second process, where importing JAX fails, loads it, runs it, and computes its
derivative, which is no part of the file.

The picture. Left: the data, the model as flax computes it, and the same from the file without JAX; the two lines agree.
Right: the derivative of the model in its input.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pictures import BLUE, INK, ORANGE, RED, add_option, drawing

import fxad as fx
import fxad.numpy as fnp

WIDTH = 32
Values = npt.NDArray[np.float32]


def samples() -> tuple[Values, Values]:
    """Return noisy samples of a function."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 200).astype(np.float32)
    return x, (np.sin(2 * x) + 0.3 * x + 0.1 * rng.normal(size=x.shape)).astype(np.float32)


def trained(steps: int) -> Any:
    """Return a model of flax, as a function of one number, trained by gradient descent in JAX."""
    jax, linen = import_module("jax"), import_module("flax.linen")
    layers = [linen.Dense(WIDTH), linen.tanh, linen.Dense(WIDTH), linen.tanh, linen.Dense(1)]
    model = linen.Sequential(layers)
    x, y = samples()
    params = model.init(jax.random.key(0), x[:, None])

    def loss(params: Any) -> Any:
        return jax.numpy.mean((model.apply(params, x[:, None])[:, 0] - y) ** 2)

    def step(state: Any, _: None) -> tuple[Any, None]:
        params, velocity = state
        velocity = jax.tree.map(lambda v, g: 0.9 * v - 0.05 * g, velocity, jax.grad(loss)(params))
        return (jax.tree.map(lambda p, v: p + v, params, velocity), velocity), None

    zeros = jax.tree.map(jax.numpy.zeros_like, params)
    (params, _), _ = jax.jit(partial(jax.lax.scan, step, length=steps))((params, zeros), None)
    return lambda at: model.apply(params, at[None])[0]


def run_without_jax(folder: Path) -> None:
    """The second process: load the program, run it on a grid, and write values and slopes."""
    sys.modules["jax"] = None  # type: ignore[assignment]
    model = fx.load(folder / "model.fxad")

    def value(x: fx.Array) -> fx.Array:
        found: fx.Array = model(x)
        return found

    grid = fnp.asarray(np.load(folder / "grid.npy"))
    values, slopes = fx.jit(fx.vmap(fx.value_and_grad(value)))(grid)
    np.save(folder / "values.npy", np.asarray(values))
    np.save(folder / "slopes.npy", np.asarray(slopes))
    print(f"without JAX: {len(grid)} values and slopes of {model!r}")


def plot(file: str, grid: Values, values: Values, slopes: Values, wanted: Values) -> None:
    """Draws the data, the model in both packages, and its slope."""
    with drawing(file) as (curve, slope):
        curve.plot(*samples(), ".", color=INK, markersize=3, label="data")
        curve.plot(grid, wanted, color=ORANGE, linewidth=7, alpha=0.35, label="flax, in JAX")
        curve.plot(grid, values, color=BLUE, label="fxad, without JAX")
        curve.set(xlabel="x", title="the model")
        curve.legend()
        slope.plot(grid, slopes, color=RED)
        slope.set(xlabel="x", title="its derivative, without JAX")


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Train, save, and run in another process; returns the largest differences."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--run", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    add_option(parser)
    options = parser.parse_args(argv)
    if options.run:
        run_without_jax(options.run)
        return {}

    jax, from_jax = import_module("jax"), import_module("fxad.interop.jax").from_jax
    model = trained(options.steps)
    grid = np.linspace(-3, 3, 121, dtype=np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fx.save(from_jax(model, grid[0]), folder / "model.fxad")
        np.save(folder / "grid.npy", grid)
        print(f"saved: {(folder / 'model.fxad').stat().st_size:,} bytes")
        subprocess.run([sys.executable, __file__, "--run", name], check=True)
        values, slopes = np.load(folder / "values.npy"), np.load(folder / "slopes.npy")
    wanted, wanted_slopes = jax.vmap(jax.value_and_grad(model))(grid)
    off = {
        "values": float(np.abs(values - np.asarray(wanted)).max()),
        "slopes": float(np.abs(slopes - np.asarray(wanted_slopes)).max()),
    }
    print(f"largest difference from JAX: {off['values']:.1e} of the values, {off['slopes']:.1e} of the slopes")
    if options.plot:
        plot(options.plot, grid, values, slopes, np.asarray(wanted))
    x, y = samples()
    return {**off, "misfit": float(np.mean((np.interp(x, grid, values) - y) ** 2))}


if __name__ == "__main__":
    main()
