"""What a decision costs: equations that both programs have are evaluated once.

The time for a gradient of 9,000 equations beside its `remat`: `python -m pytest -m deep tests/equal/test_cost.py -s`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.diagnosis.equality import evaluate as evaluating


def gradients(layers: int) -> tuple[Any, Any]:
    """The gradient of a network, and that of the network whose layers are computed again."""

    def layer(w: fx.Array, b: fx.Array, x: fx.Array) -> fx.Array:
        h = fnp.tanh(x @ w + b)
        return x + h * fnp.exp(-h * h) / (1 + fnp.sum(h * h))

    def loss(of: Callable[..., Any], ws: fx.Array, bs: fx.Array, x: fx.Array) -> fx.Array:
        for k in range(layers):
            x = of(ws[k], bs[k], x)
        return fnp.sum(x * x)

    specs = fx.Spec((layers, 8, 8)), fx.Spec((layers, 8)), fx.Spec((4, 8))
    plain = fx.trace(fx.grad(lambda *args: loss(layer, *args), (0, 1, 2)), *specs)
    return fx.inline(plain), fx.trace(fx.grad(lambda *args: loss(fx.remat(layer), *args), (0, 1, 2)), *specs)


def test_a_recomputation_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, again = gradients(10)
    evaluated = 0
    results = evaluating._results

    def counted(*args: Any) -> Any:
        nonlocal evaluated
        evaluated += 1
        return results(*args)

    monkeypatch.setattr(evaluating, "_results", counted)
    assert isinstance(fx.equal(plain, again), fx.Proof)
    assert evaluated <= 1.1 * len(plain.jaxpr.eqns)


@pytest.mark.deep
def test_a_gradient_of_many_equations() -> None:
    plain, again = gradients(220)
    start = time.perf_counter()
    found = fx.equal(plain, again)
    seconds = time.perf_counter() - start
    print(f"\n{len(plain.jaxpr.eqns)} equations: {seconds:.1f} s, {found}")  # noqa: T201 -- the figure
    assert isinstance(found, fx.Proof)
