"""`remat(f, budget=bytes)`: the compiled gradient keeps to the budget and has the same values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, policies
from fxad.errors import ArgumentError, AxisNameError, ParameterError, SizeError
from fxad.transforms.memory_plans.frontier import frontier
from fxad.transforms.memory_plans.plans import MemoryPlan

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


def plans_of(program: fx.Program[..., Any], reconstruct: bool = False) -> tuple[MemoryPlan, ...]:
    n = len(program.bound)
    return frontier(program.jaxpr, tuple([k >= n for k in range(len(program.jaxpr.ins))]), reconstruct)


def temporaries(program: fx.Program[..., Any]) -> int:
    return fx.lower(fx.grad(program)).compile().memory().temp_bytes


@pytest.mark.parametrize("f", [unrolled, looped, backwards])
def test_a_budget_holds_in_the_executable_and_less_never_needs_more(f: Any) -> None:
    program = fx.trace(f, X)
    plain = temporaries(program)
    assert fx.remat(program, budget=plain, within=fx.grad) is program  # the program does not change either
    gradient, before = np.asarray(fx.grad(program)(X)), plain
    for share in (0.75, 0.35):
        lean = fx.remat(program, budget=int(share * plain), within=fx.grad)
        held = temporaries(lean)
        assert held <= share * plain
        assert held <= before
        before = held
        assert np.allclose(fx.grad(lean)(X), gradient, rtol=1e-5)
        assert (fx.interpret(lean, X) == fx.interpret(program, X)).all()


def test_the_error_of_a_budget_names_the_largest_values() -> None:
    """Regression: it gave the type of the first result of the loop, which is a counter."""
    program = fx.trace(lambda x: lax.fori_loop(0, 5, lambda _, c: fnp.sin(c), x).sum(), np.ones(64, np.float32))
    with pytest.raises(ParameterError) as caught:
        fx.plan_memory(program, budget=0)
    assert re.search(r"or make these values smaller: scan f32\[\d+,64\]", caught.value.remedy)


def test_no_plan_fits() -> None:
    program = fx.trace(looped, X)
    with pytest.raises(ParameterError) as caught:
        fx.plan_memory(program, budget=100)
    message = str(caught.value)
    assert "remat: no plan of looped fits into 100 bytes: the least budget that fits is " in message
    assert "give a larger budget, or make these values smaller: " in message
    least = int(message.partition("that fits is ")[2].partition(" bytes")[0].replace(",", ""))
    assert fx.plan_memory(program, budget=least).loops


def test_functions_and_texts() -> None:
    x = fnp.asarray(X)
    run = fx.jit(fx.grad(fx.remat(looped, budget="256 KiB")))
    assert np.allclose(run(x), fx.grad(looped)(x), rtol=1e-5)
    assert run.lower(x).compile().memory().temp_bytes <= 256 * 1024
    assert np.allclose(fx.remat(budget="1.5 GB")(looped)(x), looped(x))


def test_a_plan_is_printed_edited_and_used() -> None:
    program = fx.trace(unrolled, X)
    plan = fx.plan_memory(program, budget=temporaries(program) // 2)
    text = str(plan)
    assert "recomputed" in text
    assert "estimate: " in text
    half = temporaries(program) // 2
    assert fx.remat(program, plan=plan).jaxpr is fx.remat(program, budget=half, within=fx.grad).jaxpr
    edited = plan
    for k in range(len(plan.segments)):
        edited = edited.with_segment(k, None)
    assert fx.remat(program, plan=edited) == program
    loop = fx.plan_memory(fx.trace(looped, X), budget=2**18)
    assert loop.with_loop(0, (16,), policies.nothing).loops[0].sizes == (16,)
    assert "scan of 256 steps" in str(loop)
    with pytest.raises(ArgumentError, match=r"plan: segment 99 does not exist: there are \d+"):
        plan.with_segment(99, None)


def branches(x: fx.Array) -> fx.Array:
    def one(x: fx.Array) -> fx.Array:
        for _ in range(6):
            x = fnp.sin(x @ W)
        return x

    return fnp.sum(lax.cond(fnp.sum(x) > 0, one, fnp.cos, x))


def test_an_edit_that_does_not_fit_is_refused() -> None:
    """Regression: segments that leave out equations gave a gradient of zero."""

    program = fx.trace(branches, X)
    plan: Any = next(plan for plan in plans_of(program) if plan.inner)
    loop: Any = fx.plan_memory(fx.trace(looped, X), budget=2**18)
    segments, n = plan.inner[0].segments, len(fx.inline(program).jaxpr.eqns)
    first, second = segments[:2]
    nested = replace(second, parts=(first,))
    numbers, follow = "print(plan) shows the numbers, from 0", "a segment starts where the one before it stops"
    sizes = "give ints, the outermost first: with_loop(0, (100, 10), policies.nothing)"
    calls: list[tuple[str, str, Callable[[], object]]] = [
        ("plan: 'a' is not the number of a loop", numbers, lambda: loop.with_loop("a", (16,), None)),
        ("plan: None is not the number of a segment", numbers, lambda: loop.with_segment(None, None)),
        ("plan: the sizes of segments are (0,), not ints from 1 on", sizes, lambda: loop.with_loop(0, (0,), None)),
        ("plan: the sizes of segments are 16, not ints from 1 on", sizes, lambda: loop.with_loop(0, 16, None)),
        (
            "plan: a str is not a policy: 'dots'",
            "policies.names(...) chooses by name",
            lambda: loop.with_loop(0, (16,), "dots"),
        ),
        (
            "plan: the segments of body 0 are the equations 3 to 5, 6 to 8, 9 to 11, the body has 0 to 11",
            follow,
            lambda: plan.with_inner(0, segments[1:]),
        ),
        (
            "plan: the segments of body 0 are the equations 0 to 2, the body has 0 to 11",
            follow,
            lambda: plan.with_inner(0, segments[:1]),
        ),
        (
            "plan: the segments of body 0 are the equations 0 to 2, 0 to 2, the body has 0 to 11",
            follow,
            lambda: plan.with_inner(0, (first, first)),
        ),
        (
            "plan: the parts of segment 1 of body 0 are the equations 0 to 2, the segment has 3 to 5",
            follow,
            lambda: plan.with_inner(0, (first, nested, *segments[2:])),
        ),
        (
            "plan: a str is not a policy: 'dots'",
            "policies.names(...) chooses by name",
            lambda: plan.with_inner(0, (replace(first, keep="dots"), *segments[1:])),
        ),
        ("plan: an int is not a tuple of segments", "take those of a plan", lambda: plan.with_inner(0, 5)),
        ("plan: a str is not a segment: 'a'", "take those of a plan", lambda: plan.with_inner(0, ("a",))),
        (
            "plan: a segment is from 6 to before 3",
            "a segment has two ints, and stops where it starts or later",
            lambda: plan.with_inner(0, (replace(first, stop=6), replace(first, start=6), *segments[1:])),
        ),
        (
            "plan: a segment is from 0.0 to before 3",
            "a segment has two ints, and stops where it starts or later",
            lambda: plan.with_inner(0, (replace(first, start=0.0), *segments[1:])),
        ),
        (
            f"plan: the segments of the program are the equations 0 to 2, the program has 0 to {n - 1}",
            follow,
            lambda: fx.remat(program, plan=replace(plan, segments=(first,))),
        ),
    ]
    for message, remedy, call in calls:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value).startswith(message)
        assert caught.value.remedy == remedy
    assert loop.with_loop(np.int64(0), [16, 4], None).loops[0].sizes == (16, 4)
    assert plan.with_inner(0, list(segments)) == plan


def test_a_plan_of_a_program_of_symbolic_shape_is_refused() -> None:
    program = fx.trace(lambda x: fnp.sin(x).sum(), fx.Spec("n", "float32"))
    with pytest.raises(SizeError) as e:
        fx.plan_memory(program, budget="1 MB")
    assert e.value.message == "plan_memory: <lambda> is of symbolic shape: its bytes are not known"
    assert e.value.remedy == "give its sizes: specialize(program, n=...)"


def test_recomputation_within_recomputation() -> None:
    def deep(x: Any) -> Any:
        for _ in range(27):
            x = fnp.sin(x @ W)
        return fnp.sum(x)

    plans = plans_of(fx.trace(deep, X))
    assert "recomputed up to 4 times" in str(plans[-1])
    small = plans[-1]
    assert small.bytes < 0.45 * plans[0].bytes
    gradient = fx.grad(fx.trace(deep, X))(X)
    assert (np.asarray(fx.grad(fx.remat(fx.trace(deep, X), plan=small))(X)) == np.asarray(gradient)).all()


@pytest.mark.parametrize(("depth", "share"), [(24, 0.12), (48, 0.06)])
def test_deep_networks_keep_to_small_budgets(depth: int, share: float) -> None:
    def blocks(ws: Any, x: Any) -> Any:
        for w in ws:
            x = fnp.tanh(x @ w) @ W.T
        return fnp.sum(x**2)

    program = fx.trace(blocks, [W * (k + 1) for k in range(depth)], np.full((512, 64), 0.1, np.float32))
    plain, least = temporaries(program), plans_of(program)[-1]
    held = temporaries(fx.remat(program, plan=least))
    assert held <= share * plain
    assert least.bytes < 1.5 * held  # nested branches count once


def test_a_plan_reconstructs_on_request() -> None:
    w, state = W[:16, :16], np.full((2, 256, 16), 0.1, np.float32)

    def couplings(x: Any) -> Any:
        a, b = x[0], x[1]
        for _ in range(24):
            a = a + fnp.tanh(b @ w) @ w
            b = b + fnp.sin(a @ w) @ w
        return fnp.sum(a * b)

    program = fx.trace(couplings, state)
    plain = temporaries(program)
    plan = next(p for p in plans_of(program, reconstruct=True) if any([s.reconstruct for s in p.segments]))
    assert "reconstructed" in str(plan)
    lean = fx.remat(program, plan=plan)
    assert temporaries(lean) < 0.5 * plain
    assert np.allclose(fx.grad(lean)(state), fx.grad(program)(state), rtol=1e-3, atol=1e-4)
    assert fx.remat(program, budget=plain, within=fx.grad, reconstruct=True) is program


def test_bodies_of_branches_and_of_rules_have_segments() -> None:
    @fx.custom_vmap
    def ruled(x: fx.Array) -> fx.Array:
        return lax.scan(lambda h, _: (fnp.sin(h * h), None), x, None, length=64)[0]

    @ruled.def_vmap
    def _rule(size: int, in_batched: Any, x: fx.Array) -> Any:
        return ruled(x), True

    program = fx.trace(branches, X)
    plans = plans_of(program)
    assert any([len(inner.segments) > 1 for plan in plans for inner in plan.inner])
    inner = next(plan for plan in plans if plan.inner)
    assert "body 0: " in str(inner)
    assert fx.remat(program, plan=inner.with_inner(0, ())) == program
    looped = fx.trace(lambda x: fnp.sum(ruled(x)), X)
    least = plans_of(looped)[-1]
    assert least.loops
    assert temporaries(fx.remat(looped, plan=least)) < 0.5 * temporaries(looped)


def test_a_plan_is_saved_with_the_program(tmp_path: Path) -> None:
    program = fx.trace(unrolled, X)
    lean = fx.remat(program, budget=temporaries(program) // 2, within=fx.grad)
    assert lean != program
    fx.save(lean, tmp_path / "lean")
    assert fx.load(tmp_path / "lean").jaxpr is lean.jaxpr


@pytest.mark.parametrize("budget", ["64 parsecs", "much", -1, True, 1.5, "9" * 400 + " TB"])
def test_a_budget_is_a_number_of_bytes(budget: Any) -> None:
    with pytest.raises(ArgumentError, match=r"remat: the budget is .*, not a number of bytes: ") as caught:
        fx.remat(unrolled, budget=budget)
    assert 'give an int >= 0, or a text such as "64 MiB" or "1.5 GB"' in str(caught.value)


def test_refusals() -> None:
    program, other = fx.trace(unrolled, X), fx.trace(looped, X)
    plan: Any = fx.plan_memory(program, budget="1 GB")
    calls: list[tuple[str, str, Callable[[], object]]] = [
        (
            "remat: both a plan and a budget are given",
            "give one; a budget chooses a plan",
            lambda: fx.remat(program, plan=plan, budget=1),
        ),
        (
            "remat: both a budget and the policy dots are given",
            "give one; a budget chooses the policies",
            lambda: fx.remat(program, budget=1, policy=policies.dots),
        ),
        (
            f"remat: the memory plan is for another program: {program.jaxpr!r}, this is {other.jaxpr!r}",
            "make it with plan_memory(program, budget=...) of this very program",
            lambda: fx.remat(other, plan=plan),
        ),
        (
            "plan_memory: takes a Program, got 3",
            "trace the function first: plan_memory(trace(f, *examples), budget=...)",
            lambda: fx.plan_memory(3, budget=1),  # type: ignore[arg-type]
        ),
        (
            "costly: the ratio is 'x', not a number >= 0",
            "costly(2) stores matrix products and convolutions, and recomputes elementwise operations",
            lambda: policies.costly("x"),  # type: ignore[arg-type]
        ),
        (
            "plan: segment 99 does not exist: there are 0",
            "print(plan) shows the numbers, from 0",
            lambda: plan.with_segment(99, None),
        ),
    ]
    for message, remedy, call in calls:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value).startswith(message)
        assert caught.value.remedy == remedy


def test_no_plan_has_collectives_of_a_map_around_it() -> None:
    program = fx.trace(lambda x: fnp.sum(lax.psum(x, "i")), fx.Spec((3,)), axis_env={"i": 2})
    with pytest.raises(AxisNameError) as e:
        fx.plan_memory(program, budget=1)
    assert e.value.message == (
        "remat: <lambda> has collectives over the axes 'i' of a map around it: it has no memory of its own to fit into"
        " a budget"
    )
    assert e.value.remedy == "give the budget around the map, as in remat(pmap(f), budget=...), or a policy inside it"
