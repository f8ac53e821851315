"""The cost rule at its edges, and what it makes of networks as users write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, runtime
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr
from fxad.passes import plan_of
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, IntegerPow
from fxad.primitives.index import Index
from fxad.support.constants import (
    BORDER_TIMES,
    CERTAIN_MS,
    COMPILED_PART,
    GROUP_MICROSECONDS,
    PROGRAM_EQUATIONS,
    SAVED_EQUATIONS,
    SAVED_MS,
    UNIT_MICROSECONDS,
)
from fxad.testing.unit_laws import check_linkage
from fxad.transforms.costs import Weight, weight, weight_of_nested
from fxad.units.cost_rule import large_enough, pays, saves_compile_time, units_by_cost
from fxad.units.plan import UnitPlan

WIDE = Aval((256, 1024), "float32")  # 262 us for an equation that writes it


def body(equations: int, aval: Aval = WIDE) -> Jaxpr:
    b = Builder()
    (x,) = b.inputs([aval])
    for k in range(equations):
        x = b.one(IntegerPow(k + 2), x)  # no two are equal: what repeats inside would be a body of its own
    return b.build([x], "body")


def calls(n: int, inner: Jaxpr) -> Jaxpr:
    b = Builder()
    (x,) = b.inputs(inner.in_avals)
    for _ in range(n):
        (x,) = b(Call(inner), x)
    return b.build([x], "calls")


def estimated(monkeypatch: pytest.MonkeyPatch, times: Mapping[Jaxpr, float]) -> None:
    """Set the estimated compile times of programs."""
    monkeypatch.setattr("fxad.units.cost_rule.milliseconds", times.__getitem__)
    monkeypatch.setattr("fxad.units.cost_rule.takes_at_least", lambda program, least: times[program] >= least)


def test_thresholds_of_a_unit() -> None:
    assert pays(Weight(SAVED_EQUATIONS, UNIT_MICROSECONDS, 0.0), 2)
    assert not pays(Weight(SAVED_EQUATIONS, UNIT_MICROSECONDS - 0.1, 0.0), 2)
    assert not pays(Weight(SAVED_EQUATIONS - 1, UNIT_MICROSECONDS, 0.0), 2)
    assert pays(Weight(SAVED_EQUATIONS // 2, UNIT_MICROSECONDS, 0.0), 3)
    assert not pays(Weight(1000, 1e6, 0.0), 1)
    assert pays(Weight(SAVED_EQUATIONS, 2 * UNIT_MICROSECONDS, 2 * UNIT_MICROSECONDS / BORDER_TIMES), 2)
    assert not pays(Weight(SAVED_EQUATIONS, 2 * UNIT_MICROSECONDS, 2 * UNIT_MICROSECONDS / BORDER_TIMES + 0.1), 2)


@pytest.mark.parametrize(
    ("equations", "microseconds", "milliseconds", "searched"),
    [
        (SAVED_EQUATIONS + 1, 2 * UNIT_MICROSECONDS, SAVED_MS, True),
        (SAVED_EQUATIONS, 2 * UNIT_MICROSECONDS, SAVED_MS, False),
        (SAVED_EQUATIONS + 1, 2 * UNIT_MICROSECONDS - 0.1, SAVED_MS, False),
        (SAVED_EQUATIONS + 1, 2 * UNIT_MICROSECONDS, SAVED_MS - 0.1, False),
    ],
)
def test_thresholds_of_a_program(
    equations: int, microseconds: float, milliseconds: float, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = body(1)
    monkeypatch.setattr(
        "fxad.units.cost_rule.weight_of_nested", {program: Weight(equations, microseconds, 0.0)}.__getitem__
    )
    estimated(monkeypatch, {program: milliseconds})
    assert large_enough(program) == searched
    # if units shall save memory, the program is searched however fast it compiles
    assert large_enough(program, -inf) == (searched or milliseconds < SAVED_MS)


@pytest.mark.parametrize(
    ("saved", "proportion"), [(SAVED_MS, COMPILED_PART), (CERTAIN_MS - 0.1, COMPILED_PART), (CERTAIN_MS, inf)]
)
def test_least_equations_that_units_save(saved: float, proportion: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most a part of the equations is compiled, unless the saving is certain."""
    whole = body(1000)
    most = int(COMPILED_PART * (1000 + PROGRAM_EQUATIONS)) - PROGRAM_EQUATIONS
    estimated(monkeypatch, {whole: saved + 100.0, body(most): 100.0, body(most + 1): 100.0})
    assert saves_compile_time([body(most)], whole)
    assert saves_compile_time([body(most + 1)], whole) == (proportion > COMPILED_PART)
    assert not saves_compile_time([body(most + 1)], whole, -inf) or proportion > COMPILED_PART


def test_least_compile_time_that_units_save(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, less, a, b = body(1000), body(999), body(50), body(51)
    estimated(monkeypatch, {whole: SAVED_MS + 200.0, less: SAVED_MS + 199.9, a: 100.0, b: 100.0})
    assert saves_compile_time([a, b], whole)
    assert not saves_compile_time([a, b], less)
    assert saves_compile_time([a, b], less, -inf)


def test_weights() -> None:
    w = weight_of_nested(calls(3, body(2)))
    assert w.equations == 6
    assert w.microseconds == pytest.approx(6 * WIDE.nbytes / 4e3)


def test_a_body_that_consists_mostly_of_units_is_no_unit() -> None:
    inner = body(20)
    outer = calls(3, inner)
    assert units_by_cost(calls(2, outer)) == (inner,)
    # it has no repeated call, so it is a unit
    b = Builder()
    (x,) = b.inputs([WIDE])
    (x,) = b(Call(inner), b.one(ADD, x, x))
    mixed = b.build([x])
    assert units_by_cost(calls(4, mixed)) == (mixed,) or set(units_by_cost(calls(4, mixed))) == {inner, mixed}
    assert [u.body for u in plan(calls(40, mixed)).units] == [mixed]


def plan(jaxpr: Jaxpr) -> UnitPlan:
    found = plan_of(jaxpr, "auto")
    if len(found.steps) > 1:
        check_linkage(found, jaxpr)
    return found


def test_small_bodies_are_inlined() -> None:
    assert len(plan(calls(50, body(1, Aval((4,), "float32")))).steps) == 1
    assert len(plan(calls(2, body(SAVED_EQUATIONS - 1))).steps) == 1


# ------------------------------------------------------------------------------------------------------------ networks


def network(layers: int, activation: Callable[[Any], Any] = fnp.tanh) -> tuple[Callable[..., Any], Any, Any]:
    def loss(params: Any, x: Any) -> Any:
        for p in params:
            centred = x - fnp.mean(x, axis=-1, keepdims=True)
            h = centred / fnp.sqrt(1e-5 + fnp.mean(centred * centred, axis=-1, keepdims=True))
            x = x + activation(h @ p["w"] + p["b"])
        return fnp.mean(x * x)

    params = [{"w": fx.Spec((320, 320)), "b": fx.Spec((320,))} for _ in range(layers)]
    return loss, params, fx.Spec((320, 320))


def lowered(layers: int, activation: Callable[[Any], Any] = fnp.tanh) -> Any:
    loss, params, x = network(layers, activation)
    return fx.lower(fx.value_and_grad(fx.trace(loss, params, x)))


@pytest.mark.parametrize("activation", [fnp.tanh, nn.silu, nn.gelu])
def test_a_loop_over_layers_is_found_and_depth_costs_nothing(activation: Callable[[Any], Any]) -> None:
    few, many = lowered(12, activation).units, lowered(48, activation).units
    assert len(few.units) == len(many.units) < 8
    assert many.equations <= few.equations
    assert {u.uses for u in many.units} >= {48} or max(u.uses for u in many.units) >= 46


def test_steps_of_a_recurrent_network_are_grouped() -> None:
    def run(w: Any, u: Any, xs: Any) -> Any:
        h = fnp.zeros((32, 128), "float32")
        for t in range(100):
            h = fnp.tanh(xs[t] @ w + h @ u)
        return fnp.mean(h * h)

    program = fx.trace(run, fx.Spec((128, 128)), fx.Spec((128, 128)), fx.Spec((100, 32, 128)))
    found = fx.lower(fx.value_and_grad(program)).units
    blocks = [u for u in found.units if not u.remainder]
    assert blocks
    assert all(weight_of_nested(u.body).microseconds >= GROUP_MICROSECONDS for u in blocks)
    assert found.equations < weight_of_nested(fx.value_and_grad(program).jaxpr).equations / 4
    assert len(found.steps) < 100
    # a step of the sequence is there anyway: the forward steps do not hand it on to the backward ones
    windows = [{v for e in u.body.eqns if isinstance(e.prim, Index) for v in e.outs} for u in blocks]
    assert max(map(len, windows)) > 8
    assert all(len(w.intersection(u.body.outs)) < 2 for w, u in zip(windows, blocks, strict=True))


def test_a_program_without_repetition_is_one_unit() -> None:
    loss, params, x = network(1)
    program = fx.value_and_grad(fx.trace(loss, params, x))
    auto, none = fx.lower(program).compile()._loaded, fx.lower(program, units="none").compile()._loaded
    assert type(auto) is runtime.XlaExecutable
    assert auto is none


def test_cheap_layers_are_units_only_to_save_memory() -> None:
    """Compiling them in one piece takes little, and their steps are faster so; `remat` and donation ask for memory."""

    def layer(p: Any, x: Any) -> Any:
        return fnp.tanh(x @ p["w"]) @ p["v"]

    def update(wrapped: Callable[..., Any], params: Any, x: Any) -> Any:
        def loss(params: Any, x: Any) -> Any:
            for p in params:
                x = wrapped(p, x)
            return fnp.mean(x * x)

        return fx.tree.map(lambda p, s: p - s, params, fx.grad(loss)(params, x))

    w = fx.Spec((256, 256))
    args = [{"w": w, "v": w} for _ in range(12)], fx.Spec((256, 256))
    plain = fx.trace(lambda params, x: update(layer, params, x), *args)
    again = fx.trace(lambda params, x: update(fx.remat(layer), params, x), *args)
    assert len(fx.lower(plain).units.steps) == 1
    assert len(fx.lower(again).units.steps) > 24
    assert len(plan_of(plain.jaxpr, "auto", (0, 1)).steps) > 24


def test_jit_takes_units() -> None:
    rng = np.random.default_rng(0)
    params = [{"w": rng.standard_normal((320, 320)).astype("f") / 64, "b": np.zeros(320, "f")} for _ in range(12)]
    x = rng.standard_normal((320, 320)).astype("f")
    loss, _, _ = network(12)
    results = []
    kinds = []
    for units in ("auto", "none"):
        f = fx.jit(fx.value_and_grad(loss), units=units)
        results.append(fx.tree.leaves(f(params, x)))
        (held,) = f._by_types.executables.values()
        assert held.executable is not None
        kinds.append(type(held.executable._loaded))
    assert kinds == [runtime.LinkedExecutable, runtime.XlaExecutable]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_donated_arguments_of_a_linked_run() -> None:
    """A training step: what is donated is gone, what is not is untouched, and one copy of the parameters is enough."""
    loss, _, _ = network(12)

    def train(params: Any, x: Any) -> Any:
        value, slopes = fx.value_and_grad(loss)(params, x)
        return value, fx.tree.map(lambda p, s: p - 0.1 * s, params, slopes)

    specs = network(12)[1:]
    program = fx.trace(train, *specs)
    plain, given = fx.lower(program).compile(), fx.lower(program).compile(donate="params")
    assert isinstance(given._loaded, runtime.LinkedExecutable)
    assert isinstance(plain._loaded, runtime.LinkedExecutable)
    given_plan, plain_plan = given._loaded.plan, plain._loaded.plan
    size = sum(a.nbytes for a in program.in_avals[:-1])
    assert given.memory().alias_bytes == size
    assert given.memory().peak_bytes <= plain.memory().peak_bytes
    # layers are updated while slopes of others are still to come
    assert given_plan.steps[-1].live_bytes < plain_plan.steps[-1].live_bytes - size / 4
    params = [{"w": fx.asarray(np.full((320, 320), 1e-3, "f")), "b": fx.asarray(np.zeros(320, "f"))} for _ in range(12)]
    x = fx.asarray(np.ones((320, 320), "f"))
    want = plain(params, x)
    have = given(params, x)
    for a, b in zip(fx.tree.leaves(have), fx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert all(a._buffer.is_deleted() for a in fx.tree.leaves(params))
    assert not x._buffer.is_deleted()


def test_steps_that_xla_fuses_are_one_unit() -> None:
    """`x = a * x + b` over and over reads and writes x once when compiled whole, at every border otherwise; a step of
    many operations on what it reads is worth its border, and a product is stored anyway."""
    x = fx.Spec((1 << 20,), "float32")

    def steps(f: Callable[[Any], Any], n: int) -> Any:
        def chain(x: Any) -> Any:
            for _ in range(n):
                x = f(x)
            return x

        return chain

    assert len(fx.lower(fx.trace(steps(lambda x: 1.01 * x + 0.5, 600), x)).units.steps) == 1
    sines = fx.lower(fx.trace(steps(fnp.sin, 600), x)).units
    assert 1 < len(sines.steps) <= 60
    fused = weight(fx.trace(lambda x: 1.01 * x + 0.5, x).jaxpr)
    assert fused.border == fused.microseconds, "two arrays are handed over, and two are written"
    assert weight(fx.trace(lambda x: fnp.sum(1.01 * x + 0.5), x).jaxpr).border == 0
    assert weight(fx.trace(lambda a: a @ a, fx.Spec((64, 64), "float32")).jaxpr).border == 0
