"""`outline` and `reroll` find the layers and steps of Python loops, before and after differentiation."""

from __future__ import annotations

import math
from typing import Any

import pytest

import fxad as fx
import fxad.nn
import fxad.numpy as fnp
from fxad.ir import Jaxpr, Lit, distinct_jaxprs
from fxad.passes import plan_of
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan import Scan
from fxad.testing.transform_laws import eqns_to_compile
from fxad.transforms.costs import microseconds
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
    """Returns the bodies that are called, each with its number of calls."""
    calls = [e.prim.body for e in program.jaxpr.eqns if isinstance(e.prim, Call)]
    return {body: calls.count(body) for body in calls}


def written(program: fx.Program[..., Any]) -> int:
    """Returns the number of equations; those of a shared body count once."""
    return sum([len(body.eqns) for body in distinct_jaxprs(program.jaxpr)])


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
    assert list(bodies(program).values()) == [layers, layers]
    assert written(program) == 2 * layers + 17
    assert crossing(program) == {"in": [3, 4], "out": [2, 3]}


def crossing(program: fx.Program[..., Any]) -> dict[str, list[int]]:
    return {"in": [len(b.ins) for b in bodies(program)], "out": [len(b.outs) for b in bodies(program)]}


def norm(x: Any, scale: Any) -> Any:
    mean = fnp.mean(x, axis=-1, keepdims=True)
    return (x - mean) / fnp.sqrt(fnp.mean((x - mean) ** 2, axis=-1, keepdims=True) + 1e-5) * scale


def block(p: Any, x: Any) -> Any:
    y = norm(x, p["scale1"])
    q, k, v = (y @ p[name] for name in "qkv")
    x = x + fxad.nn.softmax(q @ k.T / 4.0, axis=-1) @ v
    return x + fxad.nn.gelu(norm(x, p["scale2"]) @ p["up"]) @ p["down"]


def transformer(params: Any, x: Any) -> Any:
    for p in params:
        x = block(p, x)
    return fnp.mean(x**2)


def blocks(layers: int, d: int = 256) -> tuple[Any, Any]:
    square = {name: fx.Spec((d, d), "float32") for name in ("q", "k", "v")}
    wide = {"up": fx.Spec((d, 4 * d), "float32"), "down": fx.Spec((4 * d, d), "float32")}
    scales = {name: fx.Spec((d,), "float32") for name in ("scale1", "scale2")}
    return [square | wide | scales] * layers, fx.Spec((128, d), "float32")


@pytest.mark.parametrize("layers", [6, 12, 48])
def test_a_transformer_is_two_bodies(layers: int) -> None:
    """The first layer, which computes less because its input has no derivative, has the same body. One array forward
    and one backward passes from layer to layer."""
    program = fx.outline(fx.value_and_grad(fx.trace(transformer, *blocks(layers))))
    assert list(bodies(program).values()) == [layers, layers]
    assert written(program) == 2 * layers + 166
    assert crossing(program) == {"in": [8, 28], "out": [23, 8]}


def test_waste_zero_allows_no_unneeded_equations() -> None:
    program = fx.value_and_grad(fx.trace(transformer, *blocks(6)))
    assert sorted(bodies(fx.outline(program, waste=0.0)).values()) == [1, 1, 5, 5]
    undone = fx.dce(fx.inline(fx.outline(program)))
    assert len(undone.jaxpr.eqns) == len(fx.inline(program).jaxpr.eqns)


@pytest.mark.parametrize("layers", [8, 16])
def test_under_vmap_and_in_a_second_derivative(layers: int) -> None:
    loss = fx.trace(mlp, *specs(layers))
    mapped = fx.outline(fx.vmap(fx.value_and_grad(loss), (None, 0), axis_size=3))
    assert list(bodies(mapped).values()) == [layers, layers]
    twice = fx.outline(fx.hessian(fx.trace(lambda x, ps: mlp(ps, x), *reversed(specs(layers)))))
    assert list(bodies(twice).values()) == [layers, layers]


def rnn(params: Any, xs: Any) -> Any:
    h = fnp.zeros((2, WIDTH), "float32")
    for t in range(xs.shape[0]):
        h = fnp.tanh(xs[t] @ params["w"] + h @ params["u"])
    return fnp.mean(h**2)


def steps(count: int) -> tuple[Any, Any]:
    w = fx.Spec((WIDTH, WIDTH), "float32")
    return {"w": w, "u": w}, fx.Spec((count, 2, WIDTH), "float32")


def test_steps_take_the_index_of_their_slice() -> None:
    """`xs[0]`, `xs[1]`, ... are one operation, whose index is an operand."""
    program = fx.outline(fx.trace(rnn, *steps(20)))
    (body,) = bodies(program)
    assert [e.prim.name for e in body.eqns] == ["index", "dot_general", "dot_general", "add", "tanh"]
    places = [int(a.value) for e in program.jaxpr.eqns for a in e.ins if isinstance(a, Lit) and a.aval.shape == ()]
    assert places[:20] == list(range(20))
    assert fx.inline(program).jaxpr is fx.trace(rnn, *steps(20)).jaxpr


@pytest.mark.parametrize(("count", "grouped"), [(60, [12]), (61, [12]), (200, [40]), (7, [])])
def test_short_steps_are_grouped(count: int, grouped: list[int]) -> None:
    """A body has five steps. The remaining steps are calls of one step."""
    program = fx.trace(rnn, *steps(count))
    once = fx.outline(program)
    (body,) = bodies(once)
    time = sum(map(microseconds, body.eqns))
    found = bodies(fx.outline(program, min_cost=4.5 * time))
    assert [n for b, n in found.items() if len(b.eqns) == 5 * len(body.eqns)] == grouped


@pytest.mark.parametrize("count", [20, 100])
def test_reroll_makes_a_program_of_one_length(count: int) -> None:
    """Before and after differentiation. The backward loop runs in reverse over the values that the forward loop
    stored."""
    program = fx.trace(rnn, *steps(count))
    forward, both = fx.reroll(program), fx.reroll(fx.value_and_grad(program))
    assert [scan.length for scan in scans(forward)] == [count]
    assert [(scan.length, scan.reverse) for scan in scans(both)] == [(count, False), (count - 2, True)]
    assert (written(forward), written(both)) == (10, 47)


def scans(program: fx.Program[..., Any]) -> list[Scan]:
    return [e.prim for e in program.jaxpr.eqns if isinstance(e.prim, Scan)]


@pytest.mark.parametrize("value", [-1, math.nan, True, "3", None])
def test_options_are_numbers(value: Any) -> None:
    message = f"outline: min_cost is {value!r}, not a number >= 0"
    e = refused(lambda: fx.outline(mlp, min_cost=value), fx.errors.ArgumentError, message)
    assert e.remedy == "give the microseconds that a call is to take at least; 0 groups nothing"
    message = f"outline: waste is {value!r}, not a number >= 0"
    e = refused(lambda: fx.outline(mlp, waste=value), fx.errors.ArgumentError, message)
    assert e.remedy == "give the part of the run that may be computed for nothing; 0 allows none"


@pytest.mark.parametrize("layers", [3, 12])
@pytest.mark.parametrize("again", [fx.dce, fx.simplify, fx.cse], ids=lambda f: f.__name__)
def test_outlining_again_restores_shared_bodies_after_other_passes(again: Any, layers: int) -> None:
    """`dce` removes unneeded equations from the first layer, which then has its own body. Outlining again merges the
    bodies."""
    for program in (
        fx.value_and_grad(fx.trace(mlp, *specs(layers))),
        fx.value_and_grad(fx.trace(transformer, *blocks(layers))),
    ):
        once = fx.outline(program)
        assert eqns_to_compile(fx.outline(again(once)).jaxpr) <= eqns_to_compile(once.jaxpr) + 2


def test_a_gradient_of_calls_has_two_bodies() -> None:
    """In the gradient the first layer has a body of its own until the gradient is outlined."""
    gradient = fx.value_and_grad(fx.outline(fx.trace(mlp, *specs(12))))
    assert sorted(bodies(gradient).values()) == [1, 11, 12]
    assert list(bodies(fx.outline(gradient)).values()) == [12, 12]
    assert sorted(bodies(fx.outline(gradient, waste=0.0)).values()) == [1, 11, 12]


def test_a_gradient_of_calls_has_the_units_of_the_flat_gradient() -> None:
    """It has as many units as the gradient of the flat program, and at most 5 % more equations; also with `dce` in
    between."""
    flat = fx.trace(transformer, *blocks(6))
    gradient = fx.value_and_grad(flat)
    want = plan_of(gradient.jaxpr, "auto")
    for other in (fx.value_and_grad(fx.outline(flat)), fx.dce(fx.outline(gradient))):
        have = plan_of(other.jaxpr, "auto")
        assert len(have.units) == len(want.units)
        assert have.equations <= 1.05 * want.equations


def staged(stages: Any, x: Any) -> Any:
    """Layers in stages: three equal ones, and then another one."""
    for p in stages:
        for w in p["w"]:
            x = fnp.sin(fnp.tanh(x @ w) * 2.0 + x) + 1.0
        x = fnp.exp(-fnp.cos(fnp.abs(x @ p["down"]) + 1.0))
    return fnp.sum(x)


def stages(count: int) -> tuple[Any, Any]:
    w = fx.Spec((WIDTH, WIDTH), "float32")
    return [{"w": [w] * 5, "down": w}] * count, fx.Spec((4, WIDTH), "float32")


@pytest.mark.parametrize("count", [3, 10])
def test_layers_in_stages_are_calls_in_calls(count: int) -> None:
    program = fx.outline(fx.trace(staged, *stages(count)))
    ((stage, uses),) = bodies(program).items()
    assert uses == count
    inner = [e.prim.body for e in stage.eqns if isinstance(e.prim, Call)]
    assert (len(inner), len({*inner})) == (5, 1)
    assert eqns_to_compile(program.jaxpr) == 6 + 6 + 1


def test_reroll_of_calls_before_one_that_is_linked_otherwise() -> None:
    """The last call takes one result of the call before it, and a product of the other: it ends the chain."""
    block = fx.jit(lambda a, b: (fnp.tanh(a * b + b), fnp.sin(a) * fnp.cos(b) + fnp.exp(a) * b))

    def f(a: Any, b: Any) -> Any:
        for _ in range(6):
            a, b = block(a, b)
        a, b = block(a, b * 3.0)
        return a + b

    spec = fx.Spec((4,), "float32")
    program = fx.reroll(fx.trace(f, spec, spec))
    assert [eqn.prim.name for eqn in program.jaxpr.eqns] == ["scan", "mul", "call", "add"]


def test_a_step_of_one_equation() -> None:
    """A call of one product saves nothing, so a body has several of them. Then the program is a loop."""

    def power(w: Any, x: Any) -> Any:
        for _ in range(100):
            x = w @ x
        return x

    program = fx.trace(power, fx.Spec((8, 8), "float32"), fx.Spec((8,), "float32"))
    assert list(bodies(fx.outline(program)).values()) == [10]
    assert [scan.length for scan in scans(fx.reroll(program))] == [10]


def test_layers_between_layers_of_another_kind() -> None:
    """In the gradient, the layers before and after those of another kind share a body forward and one backward."""

    def gated(p: Any, x: Any) -> Any:
        return x + fnp.tanh(norm(x, p["scale1"]) @ p["q"]) * fxad.nn.sigmoid(x @ p["k"])

    def loss(params: Any, x: Any) -> Any:
        for k, p in enumerate(params):
            x = gated(p, x) if 4 <= k < 8 else block(p, x)
        return fnp.mean(x**2)

    program = fx.outline(fx.value_and_grad(fx.trace(loss, *blocks(12))))
    assert sorted(bodies(program).values()) == [4, 4, 8, 8]


def test_reroll_makes_loops_in_loops() -> None:
    program = fx.reroll(fx.trace(staged, *stages(10)))
    (outer,) = scans(program)
    (inner,) = [e.prim for e in outer.body.eqns if isinstance(e.prim, Scan)]
    assert (outer.length, inner.length) == (10, 5)


def in_loop(w: Any, x: Any) -> Any:
    return fx.lax.scan(lambda x, _: (layered(w, x), None), x, None, length=3)[0]


def in_branch(w: Any, x: Any) -> Any:
    return fx.lax.cond(x.sum() > 0, lambda x: layered(w, x), lambda x: x, x)


def in_while(w: Any, x: Any) -> Any:
    return fx.lax.while_loop(lambda x: x.sum() > 0, lambda x: layered(w, x), x)


def in_remat(w: Any, x: Any) -> Any:
    return fx.remat(layered)(w, x)


def in_rule(w: Any, x: Any) -> Any:
    f = fx.custom_jvp(layered)
    f.defjvp(lambda primals, tangents: fx.jvp(layered, primals, tangents))
    return f(w, x)


def layered(ws: Any, x: Any) -> Any:
    for w in ws:
        x = fnp.sin(fnp.tanh(x @ w) * 2.0 + x) + 1.0
    return x


@pytest.mark.parametrize("where", [in_loop, in_branch, in_while, in_remat, in_rule])
def test_bodies_of_all_kinds_are_outlined(where: Any) -> None:
    """The layers in all kinds of bodies share one body."""
    given = [fx.Spec((WIDTH, WIDTH), "float32")] * 6, fx.Spec((4, WIDTH), "float32")
    program = fx.outline(fx.trace(where, *given))
    called = [e.prim.body for body in distinct_jaxprs(program.jaxpr) for e in body.eqns if isinstance(e.prim, Call)]
    (alone,) = bodies(fx.outline(fx.trace(layered, *given)))
    assert called.count(alone) == 6
