"""`remat(f, budget=bytes)`: the compiled gradient keeps to the bytes, and computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, policies
from fxad.errors import ArgumentError, ParameterError

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


def temporaries(program: fx.Program[..., Any]) -> int:
    return fx.lower(fx.grad(program)).compile().memory().temp_bytes


@pytest.mark.parametrize("f", [unrolled, looped, backwards])
def test_a_budget_holds_in_the_executable_and_less_never_needs_more(f: Any) -> None:
    program = fx.trace(f, X)
    plain = temporaries(program)
    assert fx.remat(program, budget=plain, within=fx.grad) == program  # not even the program changes
    gradient, before = np.asarray(fx.grad(program)(X)), plain
    for share in (0.75, 0.35):
        lean = fx.remat(program, budget=int(share * plain), within=fx.grad)
        held = temporaries(lean)
        assert held <= share * plain
        assert held <= before
        before = held
        assert np.allclose(fx.grad(lean)(X), gradient, rtol=1e-5)
        assert (fx.interpret(lean, X) == fx.interpret(program, X)).all()


def test_no_plan_fits() -> None:
    program = fx.trace(looped, X)
    with pytest.raises(ParameterError) as caught:
        fx.remat(program, budget=100)
    message = str(caught.value)
    assert "remat: no plan of looped fits into 100 bytes: the least budget that fits is " in message
    assert "give a larger budget, or make these values smaller: " in message
    least = int(message.partition("that fits is ")[2].partition(" bytes")[0].replace(",", ""))
    assert fx.remat(program, budget=least) != program


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
    assert fx.remat(program, plan=plan).jaxpr is fx.remat(program, budget=temporaries(program) // 2).jaxpr
    edited = plan
    for k in range(len(plan.segments)):
        edited = edited.with_segment(k, None)
    assert fx.remat(program, plan=edited) == program
    loop = fx.plan_memory(fx.trace(looped, X), budget=2**18)
    assert loop.with_loop(0, (16,), policies.nothing).loops[0].sizes == (16,)
    assert "scan of 256 steps" in str(loop)
    with pytest.raises(ArgumentError, match=r"plan: segment 99 does not exist: there are \d+"):
        plan.with_segment(99, None)


@pytest.mark.parametrize("budget", ["64 parsecs", "much", -1, True, 1.5])
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
