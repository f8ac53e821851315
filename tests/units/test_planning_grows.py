"""The work of planning grows with the number of equations, whatever repeats in a program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.ir import Jaxpr
from fxad.passes import BEFORE_DIFFERENTIATION, plan_of, run_passes
from fxad.units.min_cut import min_vertex_cut
from tests.python_calls import python_lines

Loss = Callable[[Any], Any]


def scalars_beside_a_product(n: int) -> tuple[Loss, Any]:
    """Newton's method for a scalar: a step takes a millionth of the time of a unit."""

    def loss(x: Any) -> Any:
        y = fnp.sum(fnp.tanh(x @ x))
        for _ in range(n):
            y = y - (y * y - 2.0) / (2.0 * y + 1e-3)
        return y

    return loss, fx.Spec((600, 600))


def recurrent(n: int) -> tuple[Loss, Any]:
    def loss(x: Any) -> Any:
        y = x
        for k in range(n):
            y = fnp.tanh(y @ x + float(k))
        return fnp.sum(y)

    return loss, fx.Spec((128, 128))


def many_rows(n: int) -> tuple[Loss, Any]:
    """Each unit reads two rows; their sums wait until all units have run."""

    def loss(x: Any) -> Any:
        return sum([fnp.sum(fnp.sin(x[k]) * x[(7 * k) % n]) for k in range(n)])

    return loss, fx.Spec((n, 20_000))


def irregular(n: int) -> tuple[Loss, Any]:
    choices = np.random.default_rng(0).integers(0, 4, n).tolist()
    steps = (fnp.sin, fnp.cos, lambda x: x * x, lambda x: x @ x)

    def loss(x: Any) -> Any:
        for k in choices:
            x = steps[k](x)
        return fnp.sum(x)

    return loss, fx.Spec((150, 150))


def planned(jaxpr: Jaxpr) -> None:
    run_passes(jaxpr, BEFORE_DIFFERENTIATION)
    plan_of(jaxpr, "auto")


@pytest.mark.parametrize(
    ("family", "differentiated", "n"),
    [
        (scalars_beside_a_product, False, 500),
        (recurrent, False, 120),
        (recurrent, True, 120),
        (many_rows, False, 120),
        (many_rows, True, 120),
        (irregular, True, 240),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_twice_as_many_equations_are_planned_in_twice_as_many_steps(
    family: Callable[[int], tuple[Loss, Any]], differentiated: bool, n: int
) -> None:
    lines = []
    for k in (n, 2 * n):  # above the thresholds of the cost rules, where another search begins
        loss, spec = family(k)
        jaxpr = fx.trace(fx.grad(loss) if differentiated else loss, spec).jaxpr
        lines.append(python_lines(partial(planned, jaxpr)))
    assert lines[1] < 2.6 * lines[0] + 10_000


def test_a_minimum_cut_of_separate_paths_takes_as_many_steps_as_there_are_paths() -> None:
    def cut(n: int) -> None:
        edges = [(k, n + k) for k in range(n)]
        assert len(min_vertex_cut([1] * n + [2] * n, edges, range(n), range(n, 2 * n))) == n

    assert python_lines(lambda: cut(400)) < 2.2 * python_lines(lambda: cut(200))
