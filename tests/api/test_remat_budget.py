"""`plan_memory`: the plan of a budget is printed, edited and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, optim, policies
from fxad.errors import ArgumentError, AxisNameError, ParameterError, SizeError

X, W = np.full((32, 64), 0.1, np.float32), np.full((64, 64), 0.01, np.float32)


def unrolled(x: fx.Array) -> fx.Array:
    for _ in range(16):
        x = fnp.exp(fnp.sin(fnp.tanh(x @ W))) + x
    return fnp.sum(x)


def looped(x: fx.Array) -> fx.Array:
    def step(h: fx.Array, _: None) -> tuple[fx.Array, fx.Array]:
        h = fnp.sin(fnp.tanh(h @ W)) + h
        return h, fnp.sum(h)

    return fnp.sum(lax.scan(step, x, None, length=256)[1])


def backwards(x: fx.Array) -> fx.Array:
    def step(h: fx.Array, y: fx.Array) -> tuple[fx.Array, fx.Array]:
        h = fnp.sin(fnp.tanh(h @ W) + y) + h
        return h, fnp.sum(h)

    return fnp.sum(lax.scan(step, x, fnp.arange(61, dtype="float32"), reverse=True)[1])


def bytes_under(program: fx.Program[..., Any], passes: Any = None) -> int:
    return fx.lower(program, passes=passes).compile().memory().temp_bytes


@pytest.mark.parametrize("f", [unrolled, looped, backwards])
def test_a_plan_is_that_of_the_compiled_budget(f: Any) -> None:
    program = fx.trace(fx.value_and_grad(f), X)
    plain = bytes_under(program)
    assert fx.plan_memory(program, budget=plain).passes is None
    before = plain
    for share in (0.75, 0.35):
        limit = int(share * plain)
        plan = fx.plan_memory(program, budget=limit)
        lean = fx.lower(program, passes=plan.passes).compile()
        held = lean.memory().temp_bytes
        assert held <= min(limit, before)
        assert lean.text() == fx.lower(program).compile(budget=limit).text()
        before = held
        for a, b in zip(lean(X), program(X), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5)
        assert plan == fx.plan_memory(program, budget=limit)


def test_a_plan_is_printed_edited_and_used() -> None:
    program = fx.trace(fx.grad(unrolled), X)
    limit = bytes_under(program) // 2
    plan = fx.plan_memory(program, budget=limit)
    text = str(plan)
    assert " test_remat_budget.py:" in text
    assert "recomputed in interval 3" in text
    assert "estimate: " in text
    assert f"{len(plan.rows)} values" in repr(plan)
    k = next(k for k, row in enumerate(plan.rows) if row.intervals)
    kept = plan.keep(k)
    assert kept.rows[k].stored
    assert str(kept).splitlines()[k + 1].endswith("  stored")
    assert kept.without(k).rows[k].intervals == plan.rows[k].intervals
    least, edited = bytes_under(program, plan.passes), bytes_under(program, kept.passes)
    assert least <= edited <= least + plan.rows[k].var.aval.nbytes + 64
    everything = plan.keep(*range(len(plan.rows)))
    assert bytes_under(program, everything.passes) > limit
    for each in (plan, kept, everything):
        assert (
            np.asarray(fx.interpret(program.replace(each.program), X)) == np.asarray(fx.interpret(program, X))
        ).all()


def test_the_plan_of_a_program_that_fits_is_edited() -> None:
    program = fx.trace(fx.grad(unrolled), X)
    plan = fx.plan_memory(program, budget="1 GB")
    assert plan.program is program.jaxpr
    edited = plan.without(*[k for k, row in enumerate(plan.rows) if row.stored and not row.fixed and k % 4 < 3])
    assert bytes_under(program, edited.passes) < 0.7 * bytes_under(program)
    stages = fx.lower(program, passes=edited.passes).stages
    assert [stage.name for stage in stages] == ["program", "plan_memory"]
    assert stages["plan_memory"].program is edited.program


def test_loops_of_a_plan_run_in_segments() -> None:
    program = fx.trace(fx.grad(looped), X)
    plan = fx.plan_memory(program, budget=2**18)
    x = fnp.asarray(X)
    edited = plan.in_segments(np.int64(64), 8)
    assert str(edited).startswith("loops in segments of 64, 8 steps")
    assert bytes_under(program, edited.passes) < 0.4 * bytes_under(program)
    assert np.allclose(fx.lower(program, passes=edited.passes).compile()(x), program(x), rtol=1e-5)
    assert plan.in_segments().program is program.jaxpr
    without_loops = fx.plan_memory(fx.trace(fx.grad(unrolled), X), budget="1 GB")
    for unchanged in (plan.in_segments(10**6), without_loops.in_segments(3)):
        assert unchanged.passes is None
        assert "loops in segments" not in str(unchanged)


def test_stages_show_the_planner_where_there_is_a_budget() -> None:
    limit = bytes_under(fx.trace(fx.grad(unrolled), X)) // 2
    lowered = fx.lower(fx.trace(fx.grad(fx.remat(unrolled, budget=limit)), X))
    assert [stage.name for stage in lowered.stages] == ["program", "plan_memory"]
    assert len(lowered.units.steps) > 16
    assert lowered.compile().memory().temp_bytes <= limit
    assert [stage.name for stage in fx.lower(fx.trace(fx.remat(unrolled, budget="1 GB"), X)).stages] == ["program"]
    assert [f.__name__ for f in fx.passes.WITHIN_BUDGET] == ["_memory_passes"]


def test_a_plan_serves_a_training_step_with_donation() -> None:
    optimiser = optim.adam(1e-3)

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = fnp.sin(fnp.tanh(x @ w)) + x
        return fnp.sum(x)

    def step(ws: Any, state: Any, x: Any) -> Any:
        value, gradient = fx.value_and_grad(loss)(ws, x)
        updates, state = optimiser.update(gradient, state, ws)
        return optim.apply_updates(ws, updates), state, value

    ws = [W * np.float32(k + 1) for k in range(12)]
    program = fx.trace(step, ws, optimiser.init(ws), np.concatenate([X] * 8))
    donate = ("ws", "state")
    limit = int(0.6 * fx.lower(program).compile(donate=donate).memory().temp_bytes)
    plan = fx.plan_memory(program, budget=limit, donate=donate)
    assert fx.lower(program, passes=plan.passes).compile(donate=donate).memory().temp_bytes <= limit


def test_edits_and_programs_that_do_not_fit_are_refused() -> None:
    program, other = fx.trace(fx.grad(unrolled), X), fx.trace(fx.grad(looped), X)
    plan: Any = fx.plan_memory(program, budget=bytes_under(program) // 2)
    n, numbers = len(plan.rows), "print(plan) shows the numbers, from 0"

    def with_result(x: Any) -> Any:
        y = fnp.exp(x @ W)
        return unrolled(y), y

    fixed = fx.plan_memory(fx.trace(fx.grad(with_result, has_aux=True), X), budget="1 GB")
    k = next(k for k, row in enumerate(fixed.rows) if row.fixed)
    calls: list[tuple[str, str, Callable[[], object]]] = [
        (f"plan: row 999 does not exist: there are {n}", numbers, lambda: plan.keep(999)),
        (f"plan: row -1 does not exist: there are {n}", numbers, lambda: plan.keep(-1)),
        ("plan: 'a' is not the number of a row", numbers, lambda: plan.without("a")),
        (
            "plan: the sizes of segments are (0,), not ints from 1 on",
            "give ints, the outermost first: plan.in_segments(100, 10)",
            lambda: plan.in_segments(0),
        ),
        (
            f"plan: row {k} is a result of grad_with_result, or has an effect: it is not computed again",
            "choose another row of print(plan)",
            lambda: fixed.without(k),
        ),
        (
            "lower: the memory plan is for another program: grad_unrolled, this is grad_looped",
            "make it with plan_memory(program, budget=...) of this very program",
            lambda: fx.lower(other, passes=plan.passes),
        ),
        (
            "plan_memory: takes a Program, got 3",
            "trace the function first: plan_memory(trace(f, *examples), budget=...)",
            lambda: fx.plan_memory(3, budget=1),  # type: ignore[arg-type]
        ),
        (
            "remat: both a plan and a budget are given",
            "give one; a budget chooses a plan",
            lambda: fx.remat(fx.trace(unrolled, X), plan=fx.residuals(fx.trace(unrolled, X)), budget=1),
        ),
        (
            "remat: both a budget and the policy dots are given",
            "give one; a budget chooses the policies",
            lambda: fx.remat(program, budget=1, policy=policies.dots),
        ),
        (
            "costly: the ratio is 'x', not a number >= 0",
            "costly(2) stores matrix products and convolutions, and recomputes elementwise operations",
            lambda: policies.costly("x"),  # type: ignore[arg-type]
        ),
    ]
    for message, remedy, call in calls:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value).startswith(message)
        assert caught.value.remedy == remedy


def test_no_plan_fits() -> None:
    program = fx.trace(fx.grad(looped), X)
    with pytest.raises(ParameterError) as caught:
        fx.plan_memory(program, budget=100)
    message = caught.value.message
    assert message.startswith("compile of grad_looped: no plan fits into 100 bytes of temporaries: the least that was")
    least = int(message.rpartition(" is ")[2].partition(" bytes")[0].replace(",", ""))
    assert fx.plan_memory(program, budget=least).recomputation.loops


def test_a_plan_of_a_program_of_symbolic_shape_is_refused() -> None:
    program = fx.trace(lambda x: fnp.sin(x).sum(), fx.Spec("n", "float32"))
    with pytest.raises(SizeError) as e:
        fx.plan_memory(program, budget="1 MB")
    assert e.value.message == "plan_memory: <lambda> is of symbolic shape: its bytes are not known"
    assert e.value.remedy == "give its sizes: specialize(program, n=...)"


@pytest.mark.parametrize("budget", ["64 parsecs", "much", -1, True, 1.5, "9" * 400 + " TB"])
def test_a_budget_is_a_number_of_bytes(budget: Any) -> None:
    with pytest.raises(ArgumentError, match=r"remat: the budget is .*, not a number of bytes: ") as caught:
        fx.remat(unrolled, budget=budget)
    assert 'give an int >= 0, or a text such as "64 MiB" or "1.5 GB"' in str(caught.value)


def test_no_plan_has_collectives_of_a_map_around_it() -> None:
    program = fx.trace(lambda x: fnp.sum(lax.psum(x, "i")), fx.Spec((3,)), axis_env={"i": 2})
    with pytest.raises(AxisNameError) as e:
        fx.plan_memory(program, budget=1)
    assert e.value.message == (
        "plan_memory: <lambda> has collectives over the axes 'i' of a map around it: it has no memory of its own to fit"
        " into a budget"
    )
    assert e.value.remedy == "plan the map around it: plan_memory(trace(pmap(f), ...), budget=...)"
