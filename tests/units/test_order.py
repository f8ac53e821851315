"""The order of pieces: the same program, in less memory; and what a training loop takes that gives its state up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import runtime
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr
from fxad.passes import plan_of
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD
from fxad.primitives.slicing import Slice
from fxad.testing import Case, repeated_cases
from fxad.transforms import outline
from fxad.units.blocks import uses
from fxad.units.pieces import inline_single_calls, partition
from fxad.units.schedule import schedule
from tests.laws.budget import share

D = 512
LAYERS = (8, 16, 24)


@share(4)
@given(repeated_cases(size=6))
def test_the_same_pieces_each_after_what_it_reads(case: Case) -> None:
    program = outline(inline_single_calls(case.program))
    bodies = tuple(uses(program))
    donate = tuple(range(0, len(program.ins), 2))
    pieces = partition(program, bodies, donate)
    found = schedule(pieces, donate)
    assert sorted(map(id, found.pieces)) == sorted(map(id, pieces.pieces))
    made = {*found.ins, *found.constants}
    for piece in found.pieces:
        assert {*piece.ins} <= made
        made.update(piece.outs)
    with_effects = [p for p in pieces.pieces if p.body.effects]
    assert [p for p in found.pieces if p.body.effects] == with_effects
    assert schedule(found, donate).pieces == found.pieces


def total(n: int) -> tuple[Jaxpr, tuple[Jaxpr, ...]]:
    """n arrays made, then each summed: as written, all live at once."""
    big = Aval((1 << 10,), "float32")
    b = Builder()
    (x,) = b.inputs([big])
    make = b.build([b.one(ADD, x, x)], "make")
    b = Builder()
    (x,) = b.inputs([big])
    add = b.build([b.one(Slice((0,), (1,), (1,)), x)], "add")
    b = Builder()
    (x,) = b.inputs([big])
    made = [b(Call(make), x)[0] for _ in range(n)]
    return b.build([b(Call(add), m)[0] for m in made]), (make, add)


def test_what_frees_memory_does_not_wait() -> None:
    for n in (4, 16):
        program, bodies = total(n)
        plan = plan_of(program, bodies)
        assert [s.unit for s in plan.steps] == [0, 1] * n
        assert plan.peak_bytes == 2 * 4096 + 4 * n


# ------------------------------------------------------------------------------------------------------------ a loop


def loss(params: Any, x: Any) -> Any:
    for p in params:
        h = fnp.tanh(x @ p["w"] + p["b"])
        x = x + fnp.tanh(h @ p["v"])
    return (x * x).mean()


def step(state: Any, x: Any) -> Any:
    """Momentum, as it is written: all slopes first, then all moments, then all weights."""
    value, slopes = fx.value_and_grad(loss)(state["p"], x)
    moments = fx.tree.map(lambda m, g: 0.9 * m + g, state["m"], slopes)
    return {"p": fx.tree.map(lambda p, m: p - 0.01 * m, state["p"], moments), "m": moments}, value


def start(n: int) -> Any:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((2 * n, D, D)).astype("f") / D
    p = [{"w": w[2 * k], "v": w[2 * k + 1], "b": np.zeros(D, "f")} for k in range(n)]
    return {"p": p, "m": fx.tree.map(np.zeros_like, p)}


@pytest.mark.parametrize("n", LAYERS)
def test_a_training_loop_holds_one_copy_of_the_state(n: int) -> None:
    """At any depth: the state, and what two layers need."""
    state, x = start(n), np.ones((16, D), "f")
    size = sum(a.nbytes for a in fx.tree.leaves(state))
    lowered = fx.lower(fx.trace(step, state, x))
    given = lowered.compile(donate="state")
    assert isinstance(given._loaded, runtime.LinkedProgram)
    assert given.memory().alias_bytes == size
    if n == LAYERS[0]:  # beside it, for once: compiling takes the time of this test
        assert lowered.compile().memory().peak_bytes >= 2 * size
    assert given.memory().peak_bytes <= size + 2 * size // n


def test_its_values_are_those_without_donation_and_without_units() -> None:
    x = np.ones((16, D), "f")
    found = []
    for options in ({}, {"donate": "state"}, {"donate": "state", "units": "none"}):
        run = fx.jit(step, **options)  # type: ignore[call-overload]
        state, value = fx.device_put(start(LAYERS[0])), None
        for _ in range(3):
            before, (state, value) = state, run(state, x)
            gone = all(a._buffer.is_deleted() for a in fx.tree.leaves(before))
            assert gone == ("donate" in options)
        found.append([*map(np.asarray, fx.tree.leaves(state)), np.asarray(value)])
    for a, b, c in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-6)
