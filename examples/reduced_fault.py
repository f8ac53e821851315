"""A wrong pass in the gradient of a transformer: a program of 500 equations, reduced to two.

    python examples/reduced_fault.py

`fewer_negations` writes sums with negated terms as differences. It is wrong for one of its two cases, and the gradient
of a transformer differs in some parameters. `fx.reduce_program` finds the smallest program that the pass makes differ,
and writes a test that fails until the pass is repaired.

The picture shows equations as points. Each is drawn at the length of the longest path from the arguments to it, with
lines to the values that it reads. Left: the gradient. Right: the two equations that show the fault; the last of them is
the one that the pass changes.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pictures import BLUE, INK, RED, add_option, drawing

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, random
from fxad.extend import Atom, Builder, Jaxpr, by_value, elementwise as ew

LAYERS, WIDTH, HEADS, LENGTH, LETTERS = 3, 16, 2, 6, 10
Params = dict[str, Any]

# ------------------------------------------------------------------------------------------------------------- the pass


@by_value
def fewer_negations(jaxpr: Jaxpr) -> Jaxpr:
    """x + (-y) becomes x - y, and (-x) + y becomes x - y: the second is wrong."""
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    negated: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        b.source = eqn.source
        if eqn.prim is ew.ADD and eqn.ins[1] in negated:
            outs = b(ew.SUB, ins[0], negated[eqn.ins[1]])
        elif eqn.prim is ew.ADD and eqn.ins[0] in negated:
            outs = b(ew.SUB, negated[eqn.ins[0]], ins[1])
        else:
            outs = b.copy(eqn, ins)
        env.update(zip(eqn.outs, outs, strict=True))
        if eqn.prim is ew.NEG:
            negated[eqn.outs[0]] = ins[0]
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


def fails(program: fx.Program[..., Any], args: tuple[Any, ...]) -> str | None:
    """Compare the program before and after the pass."""
    before = fx.tree.leaves(fx.interpret(program, *args))
    after = fx.tree.leaves(fx.interpret(program.replace(fewer_negations(program.jaxpr)), *args))
    same = all([np.allclose(x, y, rtol=1e-3, atol=1e-5) for x, y in zip(before, after, strict=True)])
    return None if same else "the pass changes a result"


# ------------------------------------------------------------------------------------------------------ the transformer


def initial(key: fx.Array) -> Params:
    """Random parameters."""
    normal = nn.initializers.lecun_normal()
    first, last, *keys = random.split(key, 2 + 4 * LAYERS)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layers = [
        {name: normal(keys[4 * k + i], shape) for i, (name, shape) in enumerate(shapes.items())} for k in range(LAYERS)
    ]
    return {"letters": random.normal(first, (LETTERS, WIDTH)), "layers": layers, "head": normal(last, (WIDTH, LETTERS))}


def norm(x: fx.Array) -> fx.Array:
    """Normalise to zero mean and unit variance."""
    x = x - fnp.mean(x, axis=-1, keepdims=True)
    return x / fnp.sqrt(fnp.mean(x**2, axis=-1, keepdims=True) + 1e-5)


def layer(p: dict[str, fx.Array], x: fx.Array) -> fx.Array:
    """Attention, then a network at each position."""
    heads = (norm(x) @ p["qkv"]).reshape(LENGTH, HEADS, 3 * WIDTH // HEADS)
    q, k, v = fnp.split(fnp.transpose(heads, (1, 0, 2)), 3, axis=-1)
    scores = nn.softmax(q @ k.mT / (WIDTH // HEADS) ** 0.5, axis=-1)
    x = x + fnp.transpose(scores @ v, (1, 0, 2)).reshape(LENGTH, WIDTH) @ p["out"]
    return x + nn.gelu(norm(x) @ p["up"]) @ p["down"]


def loss(params: Params, text: fx.Array) -> fx.Array:
    """Return the mean of -log p of the next letter."""
    x = params["letters"][text]
    for p in params["layers"]:
        x = layer(p, x)
    logs = nn.log_softmax(norm(x[:-1]) @ params["head"], axis=-1)
    return -fnp.mean(fnp.take_along_axis(logs, text[1:, None], axis=-1))


def plot(file: str, before: Jaxpr, after: Jaxpr) -> None:
    """Draws each equation, at its number and its distance from the arguments, with lines to those that it reads."""
    with drawing(file) as axes:
        for ax, jaxpr in zip(axes, (before, after), strict=True):
            depth: dict[Atom, int] = {}
            at: dict[Atom, int] = {}
            for k, eqn in enumerate(jaxpr.eqns):
                level = 1 + max([depth.get(a, 0) for a in eqn.ins], default=0)
                for a in eqn.ins:
                    ax.plot([at.get(a, k), k], [depth.get(a, 0), level], color=INK, linewidth=0.4, zorder=1)
                depth.update(dict.fromkeys(eqn.outs, level))
                at.update(dict.fromkeys(eqn.outs, k))
                small = jaxpr is after
                wrong = eqn.prim is ew.ADD and small
                ax.plot(k, level, "o", color=RED if wrong else BLUE, markersize=8 if small else 2, zorder=2)
                if small:
                    ax.annotate(eqn.prim.name, (k, level), (10, 0), textcoords="offset points", va="center")
            ax.margins(0.4 if jaxpr is after else 0.02)
            ax.set(xlabel="equation", title=f"{len(jaxpr.eqns)} equations")
            ax.locator_params(integer=True)
        axes[0].set(ylabel="distance from the arguments")


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Reduces a fault in the gradient of a transformer."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    add_option(parser)
    options = parser.parse_args(argv)
    params = initial(random.key(0))
    text = random.randint(random.key(1), (LENGTH,), 0, LETTERS)
    gradient = fx.inline(fx.grad(fx.trace(loss, params, text)))
    small = fx.reduce_program(gradient, fails, (params, text))
    print(small)
    if options.plot:
        plot(options.plot, gradient.jaxpr, small.jaxpr)

    path = Path(tempfile.mkdtemp()) / "test_fewer_negations.py"
    small.as_test(path)
    try:
        runpy.run_path(str(path))["test_reduced"]()
        failed = ""
    except AssertionError as error:
        failed = str(error)
        print(f"{path.name}: {error}")
    return {"before": small.before, "after": small.equations, "minimal": small.minimal, "test": failed}


if __name__ == "__main__":
    main()
