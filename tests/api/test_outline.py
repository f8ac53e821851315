"""`outline`: what is found in the programs of loops over layers and steps, before and after they are differentiated."""

from __future__ import annotations

import math
from typing import Any

import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.ir import Jaxpr, distinct
from fxad.primitives.control.call import Call
from tests.api.refusals import refused

WIDTH = 8


def specs(layers: int) -> tuple[Any, Any]:
    w = {"w": fx.Spec((WIDTH, WIDTH), "float32"), "b": fx.Spec((WIDTH,), "float32")}
    return [w] * layers, fx.Spec((4, WIDTH), "float32")


def mlp(params: Any, x: Any) -> Any:
    for p in params:
        x = fnp.tanh(x @ p["w"] + p["b"])
    return fnp.mean(x**2)


def bodies(program: fx.Program[..., Any]) -> dict[Jaxpr, int]:
    """The bodies that are called, and how often."""
    calls = [e.prim.body for e in program.jaxpr.eqns if isinstance(e.prim, Call)]
    return {body: calls.count(body) for body in calls}


def written(program: fx.Program[..., Any]) -> int:
    """Equations, those of each body once."""
    return sum([len(body.eqns) for body in distinct(program.jaxpr)])


def chain(scales: Any, x: Any) -> Any:
    for scale in scales:
        x = fnp.exp(fnp.sin(fnp.tanh(x * scale) + 1.0) * x)
    return x


def test_a_small_program_before_and_after() -> None:
    x = fx.Spec((2,), "float32")
    program = fx.trace(chain, [x, x, x], x)
    assert program.text() == BEFORE
    assert fx.outline(program).text() == AFTER
    assert fx.inline(fx.outline(program)).jaxpr is program.jaxpr


BEFORE = """\
main @chain(%arg0: f32[2], %arg1: f32[2], %arg2: f32[2], %arg3: f32[2]) -> (f32[2]) {
  %0: f32[2] = mul %arg3, %arg0
  %1: f32[2] = tanh %0
  %2: f32[2] = add %1, 1.0:f32[2]
  %3: f32[2] = sin %2
  %4: f32[2] = mul %3, %arg3
  %5: f32[2] = exp %4
  %6: f32[2] = mul %5, %arg1
  %7: f32[2] = tanh %6
  %8: f32[2] = add %7, 1.0:f32[2]
  %9: f32[2] = sin %8
  %10: f32[2] = mul %9, %5
  %11: f32[2] = exp %10
  %12: f32[2] = mul %11, %arg2
  %13: f32[2] = tanh %12
  %14: f32[2] = add %13, 1.0:f32[2]
  %15: f32[2] = sin %14
  %16: f32[2] = mul %15, %11
  %17: f32[2] = exp %16
  return %17
}
"""

AFTER = """\
fn @chain(%arg0: f32[2], %arg1: f32[2]) -> (f32[2]) {
  %0: f32[2] = mul %arg0, %arg1
  %1: f32[2] = tanh %0
  %2: f32[2] = add %1, 1.0:f32[2]
  %3: f32[2] = sin %2
  %4: f32[2] = mul %3, %arg0
  %5: f32[2] = exp %4
  return %5
}

main @chain#1(%arg0: f32[2], %arg1: f32[2], %arg2: f32[2], %arg3: f32[2]) -> (f32[2]) {
  %0: f32[2] = call[body=@chain] %arg3, %arg0
  %1: f32[2] = call[body=@chain] %0, %arg1
  %2: f32[2] = call[body=@chain] %1, %arg2
  return %2
}
"""


def test_layers_are_one_body() -> None:
    program = fx.outline(fx.trace(mlp, *specs(6)))
    assert list(bodies(program).values()) == [6]
    assert [body.name for body in bodies(program)] == ["mlp"]


@pytest.mark.parametrize("layers", [12, 24, 48])
def test_forward_and_backward_are_one_body_each_whatever_the_depth(layers: int) -> None:
    program = fx.outline(fx.value_and_grad(fx.trace(mlp, *specs(layers))))
    assert sorted(bodies(program).values()) == [layers - 1, layers]
    assert written(program) == 2 * layers + 21


@pytest.mark.parametrize("value", [-1, math.nan, True, "3", None])
def test_min_cost_is_a_number(value: Any) -> None:
    message = f"outline: min_cost is {value!r}, not a number >= 0"
    e = refused(lambda: fx.outline(mlp, min_cost=value), fx.errors.ArgumentError, message)
    assert e.remedy == "give the microseconds that a call is to take at least; 0 groups nothing"
