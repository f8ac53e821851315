"""The cost and the results of outlining. `python -m benchmarks.bench_outline`, a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.bench_units import first, ours_of, waited
from benchmarks.harness import Row, show
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import transformer
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.testing.transform_laws import eqns_to_compile
from fxad.transforms import outline, outline_before_ad

TURNS = 3


def mlp(params: Any, x: Any) -> Any:
    """Layers of a product and a tanh."""
    for p in params:
        x = fnp.tanh(x @ p["w"] + p["b"])
    return fnp.mean(x**2)


def rnn(params: Any, xs: Any) -> Any:
    """A recurrent network, unrolled."""
    h = fnp.zeros((2, 8), "float32")
    for t in range(xs.shape[0]):
        h = fnp.tanh(xs[t] @ params["w"] + h @ params["u"])
    return fnp.mean(h**2)


def network(layers: int) -> Jaxpr:
    """The gradient of an MLP."""
    layer = {"w": fx.Spec((8, 8), np.float32), "b": fx.Spec((8,), np.float32)}
    program: Any = fx.value_and_grad(fx.trace(mlp, [layer] * layers, fx.Spec((4, 8), np.float32)))
    jaxpr: Jaxpr = program.jaxpr
    return jaxpr


def recurrent(steps: int) -> Jaxpr:
    """The gradient of a recurrent network."""
    w = fx.Spec((8, 8), np.float32)
    flat = fx.trace(rnn, {"w": w, "u": w}, fx.Spec((steps, 2, 8), np.float32))
    program: Any = fx.value_and_grad(flat)
    jaxpr: Jaxpr = program.jaxpr
    return jaxpr


def deep(layers: int) -> Jaxpr:
    """The gradient of an unrolled transformer."""
    jaxpr: Jaxpr = fx.inline(gradient(transformer(layers))).jaxpr
    return jaxpr


def gradient(model: Model) -> fx.Program[..., Any]:
    """The program of a model's gradient."""
    f, given = ours_of(model)
    program: fx.Program[..., Any] = f.trace(*given)
    return program


def seconds(transform: Callable[[Jaxpr], Jaxpr], jaxpr: Jaxpr) -> float:
    """Returns the time to transform a program, best of a few turns. Memos are cleared before each turn."""
    best = np.inf
    for _ in range(TURNS):
        for body in distinct_jaxprs(jaxpr):
            body._memo.clear()
        start = time.perf_counter()
        transform(jaxpr)
        best = min(best, time.perf_counter() - start)
    return best


def each(jaxpr: Jaxpr) -> float:
    """Returns the microseconds for each equation that is outlined."""
    return 1e6 * seconds(outline, jaxpr) / len(jaxpr.eqns)


def found(name: str, make: Callable[[], Jaxpr], budget: float) -> Row:
    """Distinct equations beside all equations. Both columns are fxad's."""
    jaxpr = make()
    return Row(f"distinct equations: {name}", eqns_to_compile(outline(jaxpr)), eqns_to_compile(jaxpr), budget, unit="")


def part(model: Model) -> Row:
    """Outlining beside the whole first gradient. Both columns are fxad's."""
    fx.cache.clear()
    f, given = ours_of(model)
    whole = first(lambda: waited(f(*given)))
    given = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]
    forward = fx.trace(lambda p, x, y: model.loss(OURS, p, x, y), *given).jaxpr
    # the function before differentiation, and the gradient, whose layers are calls
    took = seconds(outline_before_ad, forward) + seconds(outline, gradient(model).jaxpr)
    return Row(f"outline in a first gradient: {model.name}", 1e3 * took, whole, 0.2, unit="ms")


def rows() -> list[Row]:
    """All measurements."""
    few, many = each(network(90)), each(network(9_000))
    return [
        Row("outline: 100,000 equations beside 1,000, an equation", many, few, 2.0),
        part(transformer()),
        found("gradient of a transformer, 12 layers", lambda: deep(12), 0.1),
        found("gradient of an RNN, 200 steps", lambda: recurrent(200), 0.02),
        found("gradient of an MLP, 50 layers", lambda: network(50), 0.05),
    ]


if __name__ == "__main__":
    show("Finding repetitions", rows())
