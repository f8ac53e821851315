"""Plans: what becomes a unit, where the rest goes, when values die; and how linked programs run."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import runtime
from fxad.core.builder import Builder
from fxad.errors import CompileError, ExecutionError, ParameterError
from fxad.ir import Aval, Jaxpr, Lit
from fxad.lowering import mlir
from fxad.passes import plan_of
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, MUL, SIN, TANH
from fxad.primitives.shape import Reshape
from fxad.primitives.slicing import Slice
from fxad.testing import Case, cases, repeated_cases
from fxad.testing.unit_laws import check_linkage, check_units
from fxad.transforms import outline
from fxad.units.cost_rule import left_to_compile, selected_bodies, uses
from fxad.units.pieces import partition
from tests.laws.budget import share

pytestmark = pytest.mark.as_users_compile

Tree = Any
F4 = Aval((4,), "float32")
BIG = Aval((256, 256), "float32")


def every(_: Jaxpr) -> bool:
    return True


def body(n: int = 1, aval: Aval = F4) -> Jaxpr:
    b = Builder()
    x, y = b.inputs([aval, aval])
    for _ in range(n):
        x = b.one(ADD, b.one(SIN, x), y)
    return b.build([x], "layer")


def chain(calls: int, inner: Jaxpr) -> Jaxpr:
    b = Builder()
    x, y = b.inputs(inner.in_avals)
    for _ in range(calls):
        (x,) = b(Call(inner), x, y)
    return b.build([x])


def network(layers: int = 5, d: int = 8) -> tuple[Callable[[Tree, Any], Any], Tree, Any]:
    rng = np.random.default_rng(0)

    @fx.jit
    def layer(p: Tree, x: Any) -> Any:
        return x + fnp.tanh(x @ p["w"] + p["b"])

    def loss(params: Tree, x: Any) -> Any:
        for p in params:
            x = layer(p, x)
        return (x * x).mean()

    w = rng.standard_normal((layers, d, d)).astype("float32") / d
    params = [{"w": w[k], "b": np.zeros(d, "float32")} for k in range(layers)]
    return loss, params, rng.standard_normal((4, d)).astype("float32")


# --------------------------------------------------------------------------------------------------------------- laws


@share(4)
@given(cases(size=14), st.integers(0, 1000))
def test_units(case: Case, seed: int) -> None:
    check_units(case, seed)


@share(8)
@given(cases(differentiable=True, size=10), st.integers(0, 1000))
def test_units_of_gradients(case: Case, seed: int) -> None:
    mask = tuple([a.inexact for a in case.program.in_avals])
    dotted = fx.transforms.jvp(case.program, mask)[0]
    dots = [np.ones_like(a) for a, m in zip(case.args, mask, strict=True) if m]
    check_units(Case(dotted, (*case.args, *dots), case.seed, case.smooth), seed)


@share(4)
@given(repeated_cases(size=5), st.integers(0, 1000))
def test_units_of_outlined_programs(case: Case, seed: int) -> None:
    check_units(Case(outline(case.program), case.args, case.seed, case.smooth), seed, stretches=False)


def test_the_plan_is_a_value() -> None:
    program = chain(3, body())
    plan = plan_of(program, (body(),))
    assert plan_of(program, (body(),)) is plan
    assert (len(plan.units), len(plan.steps), plan.units[0].uses) == (1, 3, 3)
    program._memo.clear()
    assert plan_of(program, (body(),)) == plan
    hash(plan)


# --------------------------------------------------------------------------------------------------- what is compiled


def test_a_block_is_compiled_once_forward_and_once_backward() -> None:
    counts, units = [], []
    for layers in (5, 12):
        loss, params, x = network(layers)
        program = fx.trace(fx.value_and_grad(loss), params, x)
        fx.cache.clear()
        lowered = fx.lower(program, units=every)
        units.append(len(lowered.units.units))
        with_units = lowered.compile()
        counts.append(fx.cache.stats().compilations)
        have, want = with_units(params, x), fx.lower(program, units="none").compile()(params, x)
        for a, b in zip(fx.tree.leaves(have), fx.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert counts == units
    assert counts[0] == counts[1]


def test_units_are_shared_between_programs() -> None:
    fx.cache.clear()
    first = fx.lower(fx.trace(chain_of(3), 1.0), units=every).compile()
    before = fx.cache.stats().compilations
    second = fx.lower(fx.trace(chain_of(7), 1.0), units=every).compile()
    assert fx.cache.stats().compilations == before
    assert float(first(1.0)) == pytest.approx(np.sin(np.sin(np.sin(1.0))))
    assert float(second(1.0)) < float(first(1.0))


@fx.jit
def small(x: Any) -> Any:
    return fnp.sin(x)


def chain_of(n: int) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for _ in range(n):
            x = small(x)
        return x

    return f


def test_changing_one_layer_compiles_that_layer() -> None:
    @fx.jit
    def other(x: Any) -> Any:
        return fnp.cos(x)

    def changed(x: Any) -> Any:
        return small(small(other(small(x))))

    fx.cache.clear()
    fx.lower(fx.trace(chain_of(4), 1.0), units=every).compile()
    before = fx.cache.stats().compilations
    fx.lower(fx.trace(changed, 1.0), units=every).compile()
    assert fx.cache.stats().compilations == before + 1


def test_a_single_unit_is_a_plain_executable() -> None:
    program = fx.trace(lambda x: fnp.sin(x) + 1.0, np.ones(4, "float32"))
    for units in ("none", "auto", every):
        loaded = fx.lower(program, units=units).compile()._loaded
        assert type(loaded) is runtime.XlaExecutable
        assert loaded is fx.lower(program).compile()._loaded


# ------------------------------------------------------------------------------------------------------------ remainder


def test_slices_that_later_calls_read_are_one_piece() -> None:
    inner = body()
    b = Builder()
    (xs, y) = b.inputs([Aval((6, 4), "float32"), F4])
    for k in range(6):
        row = b.one(Reshape((4,)), b.one(Slice((k, 0), (k + 1, 4), (1, 1)), xs))
        (y,) = b(Call(inner), row, y)
    plan = plan_of(b.build([y]), (inner,))
    assert [s.unit for s in plan.steps] == [0, 1, 1, 1, 1, 1, 1]
    assert [(u.remainder, u.uses) for u in plan.units] == [(True, 1), (False, 6)]


def test_moved_values_take_at_most_the_bytes_of_the_operands() -> None:
    """What is grown from an operand is not computed before it is needed, where that would cost memory."""
    inner = body(1, BIG)
    b = Builder()
    x, y = b.inputs([BIG, BIG])
    for k in range(6):
        mask = b.one(MUL, x, Lit.of(float(k), BIG))
        (y,) = b(Call(inner), mask, y)
    plan = plan_of(b.build([y]), (inner,))
    remainder = [plan.units[s.unit].remainder for s in plan.steps]
    assert (
        remainder.count(True) == 4
    )  # two operands' worth is moved ahead, and is in the first piece with the one needed
    assert max(s.live_bytes for s in plan.steps) <= 6 * BIG.nbytes


def test_equations_that_only_results_need_run_last_unless_they_free_memory() -> None:
    def sums(aval: Aval) -> list[bool]:
        inner = body(1, aval)
        b = Builder()
        x, y = b.inputs([aval, aval])
        total = x
        for _ in range(4):
            (y,) = b(Call(inner), x, y)
            total = b.one(ADD, total, y)
        plan = plan_of(b.build([total]), (inner,))
        return [plan.units[s.unit].remainder for s in plan.steps]

    assert sums(F4) == [False] * 4 + [True]
    assert sums(BIG).count(True) == 2  # nothing is freed by the first ones: a call reads each sum's operand too


@pytest.mark.parametrize("aval", [F4, BIG])
def test_a_literal_operand_is_a_constant_or_computed_once(aval: Aval) -> None:
    inner = body(1, aval)
    b = Builder()
    (x,) = b.inputs([aval])
    for _ in range(3):
        (x,) = b(Call(inner), x, Lit.of(2.0, aval))
    plan = plan_of(b.build([x]), (inner,))
    small = aval is F4
    assert [plan.units[s.unit].remainder for s in plan.steps] == [False] * 3 if small else [True, False, False, False]
    assert plan.constants == ((Lit.of(2.0, aval),) if small else ())


def test_results_do_not_share_buffers() -> None:
    """An operand, a literal, or a value twice, as results: each is a copy, so that giving one away takes no other."""
    inner = body()
    b = Builder()
    x, y = b.inputs([F4, F4])
    (z,) = b(Call(inner), x, y)
    program = b.build([z, x, z, Lit.of(3.0, F4), x])
    plan = plan_of(program, (inner,))
    check_linkage(plan, program)
    (device, *_) = runtime.devices("cpu")
    buffers = [runtime.to_buffer(np.full(4, k, "float32"), F4, device) for k in (1, 2)]
    outs = runtime.link(plan, device).execute(buffers)
    runtime.delete(outs[0])
    runtime.delete(outs[1])
    assert [runtime.to_numpy(o)[0] for o in outs[2:]] == [np.sin(np.float32(1)) + 2, 3.0, 1.0]
    assert runtime.to_numpy(buffers[0])[0] == 1.0


# ------------------------------------------------------------------------------------------------------------- memory


def test_an_operand_that_dies_at_every_use_is_donated() -> None:
    plan = plan_of(chain(3, body()), (body(),))
    assert plan.units[0].donate == ()  # the first use reads an operand of the program
    b = Builder()
    x, y = b.inputs([F4, F4])
    x = b.one(TANH, x)
    for _ in range(3):
        (x,) = b(Call(body()), x, y)
    plan = plan_of(b.build([x]), (body(),))
    assert [(u.remainder, u.donate) for u in plan.units] == [(True, ()), (False, (0,))]


def test_memory_of_a_chain_does_not_depend_on_its_length() -> None:
    held = []
    for n in (4, 16):
        program = fx.trace(big_chain(n), np.ones((256, 256), "float32"))
        lowered = fx.lower(program, units=every)
        stats = lowered.compile().memory()
        assert stats.argument_bytes == stats.output_bytes == BIG.nbytes
        held.append(stats.peak_bytes)
        assert lowered.compile().cost().flops > 0
    assert held[0] == held[1] <= 4 * BIG.nbytes


@fx.jit
def squash(x: Any) -> Any:
    return fnp.tanh(x) * 2.0


def big_chain(n: int) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for _ in range(n):
            x = squash(x)
        return x

    return f


def test_a_run_frees_its_intermediate_buffers() -> None:
    executable = fx.lower(fx.trace(big_chain(3), np.ones(4, "float32")), units=every).compile()
    result: Any = executable(np.ones(4, "float32"))
    held = weakref.ref(executable._loaded)
    del executable, result
    gc.collect()
    assert held() is None


# -------------------------------------------------------------------------------------------------------- what is said


def test_the_table(nothing_remembered: None) -> None:
    program = fx.trace(big_chain(3), np.ones((256, 256), "float32"))
    assert (
        fx.lower(program, units=every).units.table(places=False)
        == """\
f: 1 units, 3 steps; 2 equations to compile, 6 to run
unit          uses  equations  donated
   0  squash     3          2  0
step  unit      frees  live bytes
   0  0 squash      0     524,288
   1  0 squash      1     786,432
   2  0 squash      1     786,432"""
    )


def test_text_is_of_the_whole_program_and_needs_no_plan(
    nothing_remembered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fx.trace(big_chain(2), np.ones(4, "float32"))
    lowered = fx.lower(program, units=every)
    monkeypatch.setattr("fxad.execution.executable.plan_of", lambda *_: pytest.fail("a plan is made"))
    text = lowered.text()
    assert text.count("func.func public @main") == 1
    assert "loc(" not in text
    assert mlir.pretty(text) == lowered.module.pretty()
    assert str(lowered) == text


def test_an_unknown_choice_is_refused() -> None:
    program = fx.trace(lambda x: x, 1.0)
    with pytest.raises(ParameterError) as e:
        fx.lower(program, units="sometimes")  # type: ignore[arg-type]
    assert e.value.message == "lower: units must be 'auto', 'none' or a predicate, got 'sometimes'"
    with pytest.raises(ParameterError, match="jit: units must be 'auto', 'none' or a predicate, got 3"):
        fx.jit(lambda x: x, units=3)  # type: ignore[call-overload]
    assert e.value.remedy == "a predicate takes the body of a call, a Jaxpr, and says whether it is a unit"


def test_the_error_of_a_refused_unit_has_the_line_of_its_call(nothing_remembered: None) -> None:
    program = fx.trace(big_chain(2), np.ones(4, "float32"))
    options = runtime.CompileOptions(flags=(("xla_no_such_flag", True),))
    with pytest.raises(CompileError) as e:
        fx.lower(program, units=every).compile(options)
    assert e.value.equation == "unit 0 of f: squash, 2 equations, used 2 times"
    assert "test_plans.py" in e.value.where
    assert e.value.where.endswith(" in big_chain.<locals>.f")


def test_a_deleted_operand() -> None:
    plan = plan_of(chain(3, body()), (body(),))
    (device, *_) = runtime.devices("cpu")
    buffers = [runtime.to_buffer(np.ones(4, "float32"), F4, device) for _ in range(2)]
    runtime.delete(buffers[1])
    with pytest.raises(ExecutionError, match="execute: operand 1 is deleted"):
        runtime.link(plan, device).execute(buffers)


# ------------------------------------------------------------------------------------------------------------- choices


def test_uses_count_calls_of_calls() -> None:
    inner = body()
    outer = chain(3, inner)
    assert uses(chain(2, outer)) == {inner: 6, outer: 2}
    assert left_to_compile(chain(2, outer), {inner}) == 2
    assert left_to_compile(chain(2, outer), set()) == 12


def test_a_program_of_a_single_call_is_that_of_the_body() -> None:
    inner = body()
    wrapped = chain(1, chain(3, inner))
    assert selected_bodies(wrapped, every) == (inner,)
    assert [p.body for p in partition(wrapped, (inner,)).pieces] == [inner] * 3


def test_many_nested_calls_do_not_recurse() -> None:
    nested = body()
    for _ in range(3000):
        nested = chain(1, nested)
    two = chain(2, nested)
    assert [u.uses for u in plan_of(two, (body(),)).units] == [2]
    assert len(plan_of(two, "auto").steps) == 1


@pytest.mark.parametrize("budget", [2**28, 0])
def test_an_equal_program_is_planned_once(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions made anew in a loop, each dropped: the cache holds the program, and what is remembered on it."""
    looked: list[str] = []

    def looking(jaxpr: Jaxpr, cost: float, waste: float) -> Jaxpr:
        looked.append(jaxpr.name)
        return outline(jaxpr, cost, waste)

    monkeypatch.setattr("fxad.passes.outline", looking)
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((160, 160), np.float32) for _ in range(24)]
    x = rng.standard_normal((64, 160), np.float32)

    def made() -> Any:
        def deep(ws: list[Any], v: Any) -> Any:
            rows = v  # other rows in each layer: XLA would compile equal layers once by itself
            for k, w in enumerate(ws):
                v = fnp.tanh(v @ w + rows[k]) / (1 + fnp.exp(-v)) * fnp.cos(v) + v * fnp.sin(v) - fnp.sqrt(1 + v * v)
            return v

        return fx.jit(deep)

    with fx.cache.private(max_bytes=budget) as mine:
        results = []
        for _ in range(3 if budget else 2):
            run = made()
            results.append(np.asarray(run(layers, x)).tobytes())
            del run
            gc.collect()
        assert len(set(results)) == 1
        assert len(looked) == 1 if budget else len(looked) > 1
        assert len(made().lower(layers, x).units.steps) > 1
        mine.clear()
