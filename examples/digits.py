"""Trains a network of eight layers on handwritten digits, and shows every stage of the program.

    python examples/digits.py

A loss is traced once. Then the program is a value: it is rematerialised within a stated limit of memory,
differentiated, put into a training step, lowered and compiled, and this script prints what each stage needs. The same
loss traced again is the same value, so nothing is compiled for it.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import fxad as fx
import fxad.numpy as fnp
from fxad.ir import HigherOrder, Jaxpr

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
WIDTHS = (64, *[128] * 7, 10)
BATCH = 64
LIMIT = "66 KiB"  # of temporaries, for the step that is compiled
HELD_OUT = 360
MOMENTUM = 0.9
PEAK_RATE = 0.08

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


@fx.tree.dataclass
class Layer:
    """An affine map."""

    w: fx.Array
    b: fx.Array


@fx.tree.dataclass
class Params:
    """The network: layers with tanh between them."""

    layers: tuple[Layer, ...]


def initial(rng: np.random.Generator) -> Params:
    """Return weights that keep the variance of activations."""
    return Params(
        tuple(
            Layer(
                fnp.asarray(rng.normal(0, n**-0.5, (n, m)).astype(np.float32)),
                fnp.zeros(m, dtype=np.float32),
            )
            for n, m in pairwise(WIDTHS)
        )
    )


def logits(params: Params, x: fx.Array) -> fx.Array:
    """Return ten scores for each row of `x`."""
    *hidden, last = params.layers
    for layer in hidden:
        x = fnp.tanh(x @ layer.w + layer.b)
    return x @ last.w + last.b


def loss(params: Params, x: fx.Array, y: fx.Array) -> fx.Array:
    """Mean cross entropy."""
    z = logits(params, x)
    z = z - fnp.max(z, axis=1, keepdims=True)
    log_p = z - fnp.log(fnp.sum(fnp.exp(z), axis=1, keepdims=True))
    return -fnp.mean(log_p[fnp.arange(y.shape[0]), y])


def load(seed: int) -> tuple[Images, Labels, Images, Labels]:
    """Return images and labels for training, and held-out ones."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = np.random.default_rng(seed).permutation(table)
    x: Images = (table[:, :-1] / 8 - 1).astype(np.float32)
    y: Labels = table[:, -1].astype(np.int32)
    return x[HELD_OUT:], y[HELD_OUT:], x[:HELD_OUT], y[:HELD_OUT]


def shifted(x: Images, rng: np.random.Generator) -> Images:
    """Return the images, each shifted by at most a pixel: the label does not depend on the position."""
    padded = np.pad(x.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)), constant_values=-1)
    rows, columns = rng.integers(0, 3, (2, len(x), 1)) + np.arange(8)[None, None, :]
    moved: Images = padded[np.arange(len(x))[:, None, None], rows[:, :, None], columns[:, None, :]].reshape(-1, 64)
    return moved


def batches(x: Images, y: Labels, steps: int, rng: np.random.Generator) -> Iterator[tuple[fx.Array, fx.Array]]:
    """Yield minibatches, drawn without replacement until all images are used, and then again."""
    order = np.empty(0, np.int64)
    for _ in range(steps):
        if len(order) < BATCH:
            order = rng.permutation(len(x))
        chosen, order = order[:BATCH], order[BATCH:]
        yield fnp.asarray(shifted(x[chosen], rng)), fnp.asarray(y[chosen])


def size(jaxpr: Jaxpr) -> int:
    """Return the number of equations; those of a shared body count once."""
    bodies, todo = set[Jaxpr](), [jaxpr]
    while todo:
        for equation in todo.pop().eqns:
            if isinstance(equation.prim, HigherOrder):
                new = set(equation.prim.bodies) - bodies
                bodies |= new
                todo += new
    return sum(len(body.eqns) for body in bodies | {jaxpr})


def report(stages: dict[str, fx.Program[..., object]]) -> Table:
    """Return a table with a line for each stage: the size of the program, and its memory when compiled."""
    title = f"the program at each stage; remat has a limit of {LIMIT}"
    table = Table("stage", "equations", "argument bytes", "temporary bytes", title=title)
    for name, program in stages.items():
        memory = fx.lower(program).compile().memory()
        table.add_row(name, *(f"{n:,}" for n in (size(program.jaxpr), memory.argument_bytes, memory.temp_bytes)))
    return table


def main(argv: Sequence[str] | None = None) -> float:
    """Trains, and returns the accuracy on held-out images."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=3000, help="minibatches to train on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    console = Console()
    start = time.perf_counter()

    x, y, x_test, y_test = load(options.seed)
    rng = np.random.default_rng(options.seed)
    params = initial(rng)
    velocity = fx.tree.map(fnp.zeros_like, params)

    # The pipeline, stage by stage. Every name below is a program: a value that can be printed, compared and counted.
    image, label = fx.Spec((BATCH, WIDTHS[0]), np.float32), fx.Spec((BATCH,), np.int32)
    traced = fx.trace(loss, params, image, label)
    lean = fx.remat(traced, budget=LIMIT)
    graded = fx.value_and_grad(lean)

    def step(
        params: Params, velocity: Params, x: fx.Array, y: fx.Array, rate: fx.Array
    ) -> tuple[Params, Params, fx.Array]:
        value, grads = graded(params, x, y)
        velocity = fx.tree.map(lambda v, g: MOMENTUM * v - rate * g, velocity, grads)
        return fx.tree.map(lambda p, v: p + v, params, velocity), velocity, value

    stepped = fx.trace(step, params, velocity, image, label, fx.Spec((), np.float32))
    train = fx.lower(stepped).compile()
    console.print(
        report(
            {
                "trace": traced,
                "value_and_grad(ir)": fx.value_and_grad(traced),
                "value_and_grad(remat(ir))": graded,
                "training step": stepped,
            }
        )
    )
    again = fx.value_and_grad(fx.remat(fx.trace(loss, params, image, label), budget=LIMIT))
    before = fx.cache.stats().compilations
    fx.lower(again).compile()
    console.print(
        f"traced again: {'the same value' if again.jaxpr is graded.jaxpr else 'another value'},"
        f" {fx.cache.stats().compilations - before} compilations"
    )

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=options.steps, loss="")
        for k, (xs, ys) in enumerate(batches(x, y, options.steps, rng)):
            rate = fnp.asarray(PEAK_RATE * (1 + np.cos(np.pi * k / options.steps)) / 2, dtype=np.float32)
            params, velocity, value = train(params, velocity, xs, ys, rate)
            if k % 50 == 0:
                progress.update(task, completed=k + 1, loss=f"loss {float(value):.3f}")
        progress.update(task, completed=options.steps)

    predict = fx.jit(logits)
    accuracy = float(np.mean(np.asarray(predict(params, fnp.asarray(x_test))).argmax(axis=1) == y_test))
    console.print(f"held out: {accuracy:.2%} of {len(y_test)} images right, {time.perf_counter() - start:.1f} s in all")
    return accuracy


if __name__ == "__main__":
    main()
