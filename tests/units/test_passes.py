"""Passes: the pipeline as a value, the program after each pass, and pipelines of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import passes, transforms
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, AxisError, ParameterError
from fxad.ir import Jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.custom import CallWithRules
from fxad.testing import Case, cases, check_transform, repeated_cases
from fxad.testing.compare import differ, program_tolerance
from tests.laws.budget import share

ROWS = fx.Spec((256, 256), "float32")
CSE = passes.Pass("cse", transforms.cse)


def layer(x: Any, w: Any) -> Any:
    centred = x - fnp.mean(x, axis=-1, keepdims=True)
    return x + fnp.tanh(centred / fnp.sqrt(1e-5 + fnp.mean(centred * centred, axis=-1, keepdims=True)) @ w)


def loss(ws: list[Any], x: Any) -> Any:
    for w in ws:
        x = layer(x, w)
    return fnp.mean(x * x)


def twice(x: Any) -> Any:
    return fnp.sin(x) + fnp.sin(x) * 2.0


def gradient(layers: int = 12) -> Any:
    """Returns a gradient without calls, as of a program that was not outlined before it was differentiated."""
    return fx.inline(fx.value_and_grad(fx.trace(loss, [ROWS] * layers, ROWS), argnums=(0,)))


# --------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("p", [p for stage in passes.PIPELINE for p in stage], ids=lambda p: p.name)
@share(4)
@given(st.data())
def test_a_pass_is_a_pure_function_that_keeps_values(p: passes.Pass, data: st.DataObject) -> None:
    case: Case = data.draw(st.one_of(cases(size=10), repeated_cases(size=4)))
    out = check_transform(p, case.program)
    problem = differ(
        run(out, case.args), run(case.program, case.args), slack=program_tolerance(case.program, case.args)
    )
    assert not problem, problem


def test_the_pipeline_is_a_printable_value() -> None:
    assert str(passes.PIPELINE) == (
        "((Pass(name='outline_before_ad'), Pass(name='merge_invertible')), (Pass(name='drop_derivative_rules'),"
        " Pass(name='merge_bodies'), Pass(name='outline')))"
    )
    assert hash(passes.PIPELINE) == hash((passes.BEFORE_DIFFERENTIATION, passes.BEFORE_COMPILATION))
    assert passes.Pass("cse", transforms.cse) == CSE != passes.Pass("cse", transforms.dce)


# ------------------------------------------------------------------------------------------------------------- stages


def test_the_stages_of_a_program_that_runs_as_units() -> None:
    program = gradient()
    lowered: fx.Lowered[..., Any] = fx.lower(program)
    stages = lowered.stages
    assert [s.name for s in stages] == ["program", *[p.name for p in passes.BEFORE_COMPILATION]]
    assert stages[0].program is program.jaxpr
    assert stages["outline"].program is passes.run_passes(program.jaxpr, passes.BEFORE_COMPILATION)
    assert stages["outline"].equations < stages["program"].equations / 2
    assert stages["outline"].bytes >= stages["program"].bytes > 12 * 256 * 256 * 4
    units = {u.body for u in lowered.units.units if not u.remainder}
    assert units  # what is compiled apart are bodies that the last pass made
    assert {s.program for s in lowered.stages} == {s.program for s in stages}
    assert lowered.stages == stages


def test_a_program_of_one_unit_goes_through_no_pass() -> None:
    program = fx.trace(twice, ROWS)
    for lowered in (fx.lower(program), fx.lower(gradient(2)), fx.lower(gradient(), units="none")):
        assert [s.name for s in lowered.stages] == ["program"]
        assert [u.body for u in lowered.units.units] == [lowered.program.jaxpr]


def test_a_program_is_outlined_at_one_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def outlined(jaxpr: Jaxpr, *args: float) -> Jaxpr:
        seen.append(jaxpr.name)
        return transforms.outline(jaxpr, *args)

    monkeypatch.setattr("fxad.passes.outline", outlined)
    x = fx.asarray(np.ones((256, 256), np.float32))
    of_function = fx.jit(fx.value_and_grad(loss), units="auto").lower([x] * 18, x)
    assert len(of_function.units.steps) > 18
    assert len(fx.lower(fx.value_and_grad(fx.trace(loss, [ROWS] * 18, ROWS))).units.steps) > 18
    assert not seen  # they were outlined before they were differentiated
    assert len(fx.lower(gradient(18)).units.steps) > 18
    assert seen


def test_the_table_of_stages() -> None:
    table = fx.lower(fx.trace(twice, ROWS), passes=(CSE,)).stages
    assert table.table(times=False) == (
        "stage    equations      bytes\nprogram          4  1,048,576\ncse              3    786,432"
    )
    lines = str(table).splitlines()
    assert [line.split()[0] for line in lines] == ["stage", "program", "cse"]
    assert lines[0].endswith("ms")
    assert float(lines[2].split()[-1]) >= 0
    assert len(table) == 2


def test_an_unknown_stage_is_refused() -> None:
    stages = fx.lower(fx.trace(twice, ROWS), passes=(CSE,)).stages
    with pytest.raises(ParameterError) as e:
        stages["outline"]
    assert e.value.message == "stages: the program goes through no pass 'outline'"
    assert e.value.remedy == "its stages are program, cse"


def test_stages_have_numbers() -> None:
    stages = fx.lower(fx.trace(twice, ROWS), passes=(CSE,)).stages
    assert stages[np.int64(1)] is stages[1] is stages[-1] is stages["cse"]
    assert stages[np.int8(-2)] is stages[0] is stages["program"]
    for k in (2, -3, np.int64(7)):
        with pytest.raises(AxisError) as e:
            stages[k]
        assert e.value.message == f"stages: stage {k} does not exist: there are 2"
        assert e.value.remedy == "they are numbered from 0: program, cse"
    wrong: Any
    for wrong, text in ((slice(0, 1), "slice(0, 1, None)"), (True, "True"), (1.0, "1.0"), (None, "None")):
        with pytest.raises(ArgumentError) as refused:
            stages[wrong]
        assert refused.value.message == f"stages: {text} is neither the number of a stage nor its name"
        assert refused.value.remedy == "pass one integer or one name; list(stages) has all of them: program, cse"


# ---------------------------------------------------------------------------------------------- pipelines of the user's


def test_other_passes_are_part_of_the_key() -> None:
    program, x = fx.trace(twice, ROWS), np.ones((256, 256), np.float32)
    with fx.cache.private() as mine:
        plain, fewer = fx.lower(program, passes=()), fx.lower(program, passes=(CSE,))
        assert plain.text().count("stablehlo.sine") == 2
        assert fewer.text().count("stablehlo.sine") == fewer.module.pretty().count("stablehlo.sine") == 1
        np.testing.assert_array_equal(plain.compile()(x), fewer.compile()(x))
        assert mine.stats().compilations == 2
        fx.lower(program).compile()  # no pass, as it is compiled whole
        fx.lower(program, passes=(passes.Pass("again", transforms.cse),)).compile()  # the same program comes out
        assert mine.stats().compilations == 2


def test_jit_takes_passes() -> None:
    seen: list[str] = []

    def look(jaxpr: Jaxpr) -> Jaxpr:
        seen.append(jaxpr.name)
        return transforms.cse(jaxpr)

    x = fx.asarray(np.ones((3, 3), np.float32))
    tuple_of_one = (passes.Pass("look", look),)
    run_once = fx.jit(twice, passes=tuple_of_one)
    run_once(x)
    run_once(x)
    assert seen == ["twice"]
    assert run_once.lower(x).stages[-1].name == "look"
    decorated: Any = fx.jit(passes=tuple_of_one)(lambda x: x * 3.0)
    static: Any = fx.jit(lambda x, n: x * n, static_argnums=1, passes=tuple_of_one)
    decorated(x)
    static(x, 2)
    assert seen == ["twice", "<lambda>", "<lambda>"]
    fx.jit(fx.trace(twice, x), passes=tuple_of_one)
    assert len(seen) == 3  # known: the program is that of the first


def test_units_are_chosen_after_the_passes() -> None:
    step = fx.jit(lambda x: fnp.sin(x) * 2.0)
    program = fx.trace(lambda x: step(step(step(x))), ROWS)
    lowered = fx.lower(program, units=lambda body: True, passes=(passes.Pass("inline", transforms.inline),))
    assert len(lowered.units.steps) == 1
    assert len(fx.lower(program, units=lambda body: True).units.steps) == 3
    outlined: fx.Lowered[..., Any] = fx.lower(gradient(), passes=passes.BEFORE_COMPILATION)
    assert outlined.units == fx.lower(gradient()).units


def test_an_exported_program_went_through_the_passes_that_were_given() -> None:
    lowered = fx.lower(fx.trace(twice, ROWS), passes=(CSE,))
    x = np.ones((256, 256), np.float32)
    np.testing.assert_array_equal(fx.load_exported(lowered.export())(x), lowered.compile()(x))
    assert fx.load_exported(lowered.export()).digest == lowered.stages["cse"].program.digest


def test_apply_passes_has_no_default() -> None:
    """Regression: None ran no pass, without a word; `lower` and `jit` take it as the default pipeline."""
    no_passes: Any = None
    with pytest.raises(ParameterError, match=r"^apply_passes: passes must be a tuple of Pass, got None\n"):
        fx.apply_passes(fx.trace(twice, ROWS), no_passes)


@pytest.mark.parametrize("given_passes", [[CSE], (transforms.cse,), "default"])
def test_passes_must_be_a_tuple_of_passes(given_passes: Any) -> None:
    program = fx.trace(twice, ROWS)
    calls: dict[str, Callable[[], object]] = {
        "lower": lambda: fx.lower(program, passes=given_passes),
        "jit": lambda: fx.jit(twice, passes=given_passes),
        "apply_passes": lambda: fx.apply_passes(program, given_passes),
    }
    for what, call in calls.items():
        with pytest.raises(ParameterError) as e:
            call()
        assert e.value.message == f"{what}: passes must be a tuple of Pass, got {given_passes!r:.60}"
        assert e.value.remedy == (
            "passes=(fx.passes.Pass('cse', function),), with a function from Jaxpr to Jaxpr; () is no pass"
        )


def test_a_pass_must_return_a_jaxpr() -> None:
    broken = passes.Pass("broken", lambda jaxpr: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ArgumentError) as e:
        fx.apply_passes(fx.trace(twice, ROWS), (broken,))
    assert e.value.message == "pass broken: its function gives a NoneType, not a Jaxpr: None"
    assert e.value.remedy == "return a Jaxpr, the given one where there is nothing to do; an analysis is no pass"


def test_a_pass_must_keep_the_type() -> None:
    doubled = passes.Pass("doubled", lambda f: f.with_outs(f.outs * 2))
    with pytest.raises(ArgumentError) as e:
        fx.lower(fx.trace(twice, fx.Spec((3,), "float32")), passes=(CSE, doubled)).units  # noqa: B018
    assert e.value.message == (
        "pass doubled: it gives a program of the type (f32[3]) -> (f32[3], f32[3]), twice has the type"
        " (f32[3]) -> (f32[3])"
    )
    assert e.value.remedy == "a pass keeps all operands and results, in their order"


# ---------------------------------------------------------------------------------------------- before differentiation


def blocks(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = fx.invertible(lambda x, w: fnp.sinh(x * 0.5) + fnp.sin(w), keep="w")(x, w)
    return fnp.sum(x)


def custom_calls(jaxpr: Jaxpr) -> int:
    return sum([isinstance(e.prim, CallWithRules) for e in transforms.inline(jaxpr).eqns])


def test_a_program_goes_through_the_passes_before_differentiation() -> None:
    x, w = np.linspace(0.25, 1.0, 4), np.linspace(-1.0, 0.5, 4)
    program = fx.trace(blocks, x, w)
    prepared: Any = fx.apply_passes(program, passes.BEFORE_DIFFERENTIATION)
    assert (custom_calls(program.jaxpr), custom_calls(prepared.jaxpr)) == (3, 1)
    gradient_of: Any = fx.grad
    assert gradient_of(program).jaxpr is gradient_of(prepared).jaxpr
    assert fx.residuals(program).bytes == fx.residuals(prepared).bytes


def layers(x: Any, w: Any) -> Any:
    for _ in range(60):
        x = fnp.tanh(x @ w) + x
    return fnp.sum(x)


SQUARE = fx.Spec((300, 300))
CASES = ((blocks, (fx.Spec((4,)), fx.Spec((4,)))), (layers, (SQUARE, SQUARE)))
TRANSFORMS: tuple[Any, ...] = (
    fx.grad,
    fx.value_and_grad,
    fx.jacrev,
    fx.jacfwd,
    fx.hessian,
    lambda f: fx.grad(fx.remat(f)),
    lambda f: fx.vmap(fx.grad(f)),
)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(("f", "specs"), CASES, ids=["invertible", "layers"])
def test_a_function_and_its_program_have_one_derivative(f: Any, specs: Any, transform: Any) -> None:
    """T(trace(f)) is the trace of T(f), with calls of the transformed program inlined."""
    mapped = transform is TRANSFORMS[-1]
    args = [fx.Spec((2, *s.shape)) for s in specs] if mapped else specs
    of_program = transform(fx.trace(f, *specs)) if not mapped else fx.vmap(fx.grad(fx.trace(f, *specs)), axis_size=2)
    assert flat(fx.trace(transform(f), *args)) is flat(of_program)


def flat(program: Any) -> Any:
    return transforms.inline(program.jaxpr)


@pytest.mark.parametrize(("f", "specs"), CASES, ids=["invertible", "layers"])
def test_the_halves_of_a_function_and_of_its_program(f: Any, specs: Any) -> None:
    program = fx.trace(f, *specs)
    x, w = [fnp.full(s.shape, 0.01, s.dtype) for s in specs]
    _, pullback = fx.vjp(f, x, w)
    _, linear = fx.linearize(f, x, w)
    one = fx.asarray(1.0, np.float32)
    both = fx.vjp(program)((x, w), one)
    np.testing.assert_array_equal(both[1][0], pullback(one)[0])
    split = fx.linearize(program, argnums=(0, 1))
    pushforward: Any = linear
    assert len(split.linear.jaxpr.eqns) == len(pushforward.jaxpr.eqns)
    out, residuals = split.primal(x, w)
    np.testing.assert_array_equal(split.linear((x, w), residuals), linear(x, w))
    assert out.shape == ()
    pushed = fx.trace(lambda x, w: fx.jvp(f, (x, w), (x, w)), *specs)
    assert flat(pushed) is flat(fx.trace(lambda x, w: fx.jvp(program)((x, w), (x, w)), *specs))


def test_what_is_stored_for_a_chain_of_invertible_blocks_does_not_grow() -> None:
    def chain(n: int) -> Any:
        @fx.invertible
        def block(p: Any) -> Any:
            a, b = p
            a = a + fnp.sin(b)
            return a, b + fnp.tanh(a)

        def loss(a: Any, b: Any) -> Any:
            p = (a, b)
            for _ in range(n):
                p = block(p)
            return fnp.sum(p[0] * p[1])

        return fx.trace(loss, fx.Spec((50_000,)), fx.Spec((50_000,)))

    stored, temporaries = [], []
    for n in (4, 16):
        program = chain(n)
        stored.append(len(fx.residuals(program)))
        temporaries.append(fx.lower(fx.grad(program, argnums=(0, 1))).compile().memory().temp_bytes)
    assert stored[0] == stored[1]
    assert temporaries[1] <= temporaries[0] + 2 * 200_000


def test_passes_before_differentiation_apply_to_functions() -> None:
    x = np.linspace(0.0, 1.0, 3)
    np.testing.assert_array_equal(fx.apply_passes(twice, (CSE,))(x), twice(fx.asarray(x)))
    once = fx.trace(fx.apply_passes(twice, (CSE,)), x).jaxpr
    assert [len(e.prim.body.eqns) for e in once.eqns if isinstance(e.prim, Call)] == [3]
