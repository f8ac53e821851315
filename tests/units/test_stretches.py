"""Long stretches of fusible equations: the size of units, and their compilation without fusion. See docs/adr/0092."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.passes import plan_of
from fxad.support.constants import PIECE_OPERATIONS, STRETCH_OPERATIONS, UNFUSED_OPERATIONS
from fxad.transforms.cleanup.inline import inline
from fxad.transforms.fusion import Inlined
from fxad.units.compile_time import is_compiled_without_fusion
from fxad.units.kernels import longest_stretch
from fxad.units.stretches import cut_stretches

STEPS = (fnp.sin, fnp.cos, lambda x: x * x * 0.5, lambda x: x + 1.0, fnp.tanh, lambda x: x * 0.9)


def irregular(n: int) -> Callable[[Any], Any]:
    choices = np.random.default_rng(0).integers(0, len(STEPS), n).tolist()

    def f(x: Any) -> Any:
        for k in choices:
            x = STEPS[k](x)
        return fnp.sum(x)

    return f


def hessian(n: int, size: int = 5) -> Jaxpr:
    return fx.trace(fx.hessian(irregular(n)), fx.Spec((size,))).jaxpr


def test_units_of_a_long_stretch_are_bounded_and_as_many_as_its_length_asks_for() -> None:
    units, equations = [], []
    for n in (200, 400, 800):
        program = hessian(n)
        plan = plan_of(program, "auto")
        assert all(u.equations <= 1.2 * STRETCH_OPERATIONS for u in plan.units), "views are not counted"
        units.append(len(plan.steps))
        equations.append(len(inline(program).eqns))
        assert plan.equations <= 1.1 * equations[-1], "each is compiled once, but for cheap ones (min_cut_recompute)"
    assert units[0] >= 2
    assert units[2] <= 2 * equations[2] / STRETCH_OPERATIONS + 1


def test_what_explodes_is_compiled_without_fusion() -> None:
    (first, *_) = plan_of(hessian(400), "auto").units
    assert is_compiled_without_fusion(first.body)
    assert longest_stretch(Inlined(hessian(100), 10_000)).operations > UNFUSED_OPERATIONS
    assert is_compiled_without_fusion(hessian(100))
    assert not is_compiled_without_fusion(hessian(20)), "short"
    assert not is_compiled_without_fusion(hessian(100, 10_000)), "large arrays, which would be read and written"
    chain = fx.trace(lambda x: sum([x * k for k in np.arange(900.0, dtype=np.float32)]), fx.Spec((5,))).jaxpr
    assert not is_compiled_without_fusion(chain), "one kernel"

    def in_a_loop(x: Any) -> Any:
        return lax.fori_loop(0, 1000, lambda _, y: fx.grad(irregular(300))(y), x)

    assert not is_compiled_without_fusion(fx.trace(in_a_loop, fx.Spec((5,))).jaxpr), "its steps would take longer"


def test_a_stretch_on_large_arrays_is_cut_into_shorter_pieces() -> None:
    program = hessian(300, 200)
    plan = plan_of(program, "auto")
    assert len(plan.steps) >= len(inline(program).eqns) / (2 * PIECE_OPERATIONS)
    assert max([longest_stretch(Inlined(u.body, 10_000)).operations for u in plan.units]) <= 1.5 * PIECE_OPERATIONS


def test_a_cut_program_has_the_value_of_the_program() -> None:
    program = fx.trace(fx.value_and_grad(irregular(60)), fx.Spec((5,))).jaxpr
    cut, bodies = cut_stretches(program, (), stretch=40, piece=30)
    assert len(bodies) > 3
    assert inline(cut) is inline(program), "the same equations in the same order"
    x = np.linspace(-1.0, 1.0, 5, dtype=np.float32)
    for a, b in zip(run(cut, [x]), run(program, [x]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert cut_stretches(cut, bodies, stretch=40, piece=30)[0] is cut, "idempotent"


def test_a_cut_hessian_runs() -> None:
    f = irregular(230)
    program = fx.trace(fx.hessian(f), fx.Spec((3,)))
    assert len(fx.lower(program).units.steps) > 1
    x = np.asarray([0.1, -0.4, 0.7], np.float32)
    want = fx.interpret(program, x)
    np.testing.assert_allclose(fx.lower(program).compile()(x), want, rtol=1e-3, atol=1e-30)


def test_effects_stay_in_order_across_the_cuts(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        for k in range(4):
            x = fx.grad(irregular(250))(x) * x
            fx.debug.print(f"after {k}", ordered=True)
        return x

    program = fx.trace(f, fx.Spec((2,)))
    lowered = fx.lower(program)
    assert len(lowered.units.steps) > 1
    lowered.compile()(np.ones(2, np.float32)).block_until_ready()
    assert [line for line in capfd.readouterr().out.splitlines() if line] == [f"after {k}" for k in range(4)]


def test_a_long_sum_is_one_kernel_and_is_not_cut() -> None:
    """As two units, its fusion of 500 operands does not compile in 40 s."""

    def total(x: Any, rows: Any) -> Any:
        return sum([x * rows[k] for k in range(STRETCH_OPERATIONS // 2)])

    plan = plan_of(fx.trace(total, fx.Spec((3,)), fx.Spec((STRETCH_OPERATIONS // 2, 3))).jaxpr, "auto")
    assert len(plan.steps) == 1
    assert not is_compiled_without_fusion(plan.units[0].body)


MODELS = (
    ("adbench", "mixture"), ("adbench", "bundle"), ("dynamics", "bodies"), ("networks", "residual"),
    ("networks", "rnn"), ("networks", "transformer"), ("networks", "transformer_block"),
)  # fmt: skip


@pytest.mark.parametrize(("module", "name"), MODELS)
def test_the_models_have_no_long_stretch(module: str, name: str) -> None:
    pytest.importorskip("jax")  # the models of the benchmarks are written for both libraries
    model = getattr(import_module(f"benchmarks.models.{module}"), name)()
    ours = import_module("benchmarks.models.library").OURS
    loss = fx.value_and_grad(lambda p, x, y: model.loss(ours, p, x, y))
    plan = plan_of(fx.trace(loss, model.params, model.x, model.y).jaxpr, "auto")
    names = [body.name for u in plan.units for body in distinct_jaxprs(u.body)]
    assert "stretch" not in names
    assert not any([is_compiled_without_fusion(u.body) for u in plan.units])
