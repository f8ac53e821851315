"""`bisect` finds planted faults: of lowerings, of passes, of links between units, of options, crashes and hangs."""

from __future__ import annotations

import math
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, passes, testing
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.interpreter import run
from fxad.diagnosis.bisect import sides
from fxad.diagnosis.bisect.child import TIME_LIMIT
from fxad.diagnosis.bisect.closeness import Closeness
from fxad.diagnosis.bisect.divergence import Divergence
from fxad.diagnosis.bisect.equations import EquationSearch, first_true
from fxad.diagnosis.bisect.sides import CompiledSide, InProcess, Interpreted, run_bodies
from fxad.ir import HigherOrder, Jaxpr, Lit, NDArray, Primitive, distinct_jaxprs
from fxad.passes import BEFORE_COMPILATION, Pass
from fxad.primitives import ALL
from fxad.primitives.elementwise.trigonometric import Cos
from fxad.testing import Application, calls
from fxad.text import parse, to_text
from fxad.transforms.precision.retype import TO_FLOAT64, retyped
from tests.laws.budget import share
from tests.record.faults import clipped


def f32(x: Any) -> NDArray:
    return np.asarray(x, np.float32)


X = f32([0.2, 0.5])
FAST_MATH = fx.CompileOptions(flags=(("xla_cpu_enable_fast_math", True),))


def found(divergence: Divergence | None) -> Divergence:
    assert divergence is not None
    return divergence


# ---------------------------------------------------------------------------------------------- equations of programs


def test_an_equation_of_a_program_is_found_in_a_logarithmic_number_of_runs() -> None:
    def chain(x: Any) -> Any:
        for _ in range(30):
            x = fnp.sin(x) + 0.6
        x = clipped(x)
        for _ in range(30):
            x = fnp.sinh(x) * 0.6
        return x

    program = fx.trace(chain, X)
    divergence = found(fx.bisect(program, X))
    assert divergence.equation == "%60:f32[2] = clipped %59:f32[2]"
    assert divergence.stage == "equation"
    assert divergence.where is not None
    assert divergence.where.short.startswith("faults.py:")
    assert divergence.runs <= math.log2(len(program.jaxpr.eqns)) + 6
    (operand,) = divergence.operands
    assert divergence.alone
    assert len(divergence.program.eqns) == 1
    assert operand.max() > 1
    assert np.array_equal(found(fx.bisect(program, X)).operands[0], operand)  # deterministic
    assert (
        str(divergence)
        == repr(divergence)
        == (
            "compiled differs from interpreted\n"
            "  equation      %60:f32[2] = clipped %59:f32[2]\n"
            f"  traced at     {divergence.where}\n"
            f"  expected      {operand[0]!s} at [0] of float32[2]\n"
            f"  actual        1.0 at [0] of float32[2]\n"
            f"  operand 0     {operand[0]!s} at [0] of float32[2]"
        )
    )
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"as_test: no program shows this difference alone, in another process; it is in the equation"
        r" %60:f32\[2\] = clipped %59:f32\[2\]"
        r"(?s:.*)define the pass by `def` in a module; with primitives from outside fxad, write"
        r" fx.reduce_program\(program, testing.compiled_differs, args\).as_test\(path\); or write fx.bisect of both"
        r" programs into a test",
    ):
        divergence.as_test("unused.py")  # another process does not have the primitive


def test_the_step_of_a_loop_and_the_branch_are_found() -> None:
    def loop(x: Any) -> Any:
        def step(c: Any, xi: Any) -> Any:
            c = clipped(c + 0.3)
            return c, c * xi

        return lax.scan(step, x * 0, fnp.arange(8.0)[:, None] * x)

    divergence = found(fx.bisect(fx.trace(loop, X), X))
    assert divergence.inside == ("step 3 of scan",)
    assert divergence.equation == "%1:f32[2] = clipped %0:f32[2]"
    assert [line.function for line in divergence.lines] == [
        "test_the_step_of_a_loop_and_the_branch_are_found.<locals>.loop",
        "clipped",
    ]

    def until(x: Any) -> Any:
        def body(c: Any) -> Any:
            return lax.cond(fnp.sum(c) < 2, lambda c: c + 0.4, lambda c: clipped(c) + 0.3, c)

        return lax.while_loop(lambda c: fnp.sum(c) < 2.55, body, x)

    divergence = found(fx.bisect(fx.trace(until, X), X))
    assert divergence.inside == ("step 2 of while", "branch 0 of cond")


def test_the_unit_is_found() -> None:
    inner = fx.jit(lambda x: clipped(fnp.exp(x)) * 2)
    program = fx.trace(lambda x: inner(inner(x) - 1), X)
    divergence = found(fx.bisect(fx.lower(program, units=lambda _: True), X))
    assert divergence.stage == "unit"
    assert divergence.stage_name == "0 of 2, <lambda>, at step 0 of 3"
    assert divergence.equation == "%1:f32[2] = clipped %0:f32[2]"
    assert "  unit          0 of 2, <lambda>, at step 0 of 3\n" in str(divergence)


def test_a_wrong_link_between_units_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = fx.jit(lambda x: fnp.exp(x) * 2)
    program = fx.trace(lambda x, y: inner(inner(x) - inner(y)), X, X)
    real = passes.plan_of

    def wrong(*args: Any) -> Any:
        plan = real(*args)
        k = next(k for k, s in enumerate(plan.steps) if len(s.ins) == 2)
        step = replace(plan.steps[k], ins=plan.steps[k].ins[::-1])
        return replace(plan, steps=(*plan.steps[:k], step, *plan.steps[k + 1 :]))

    monkeypatch.setattr("fxad.diagnosis.bisect.bisect.plan_of", wrong)
    monkeypatch.setattr("fxad.execution.executable.plan_of", wrong)
    divergence = found(fx.bisect(fx.lower(program, units=lambda body: len(body.eqns) == 2), X, 2 * X))
    assert (divergence.stage, divergence.stage_name) == ("link", "the plan of <lambda>")


@final
@dataclass(frozen=True, slots=True)
class Planted(InProcess):
    """The interpreter, with one more than the result of equations of a primitive; or it raises."""

    target: Any
    raises: bool = False

    @property
    def name(self) -> str:
        return "planted"

    def results(self, jaxpr: Jaxpr, operands: Sequence[NDArray]) -> list[NDArray]:
        b = Builder()
        env: dict[Any, Any] = dict(zip(jaxpr.ins, b.inputs(jaxpr.in_avals), strict=True))
        for eqn in jaxpr.eqns:
            outs = b(eqn.prim, *[env.get(a, a) for a in eqn.ins])
            if eqn.prim == self.target:
                if self.raises:
                    raise ZeroDivisionError("planted")
                (one,) = list(outs)
                outs = b(add_primitive(), one, one)
            env.update(zip(eqn.outs, outs, strict=True))
        return Interpreted().results(b.build([env.get(a, a) for a in jaxpr.outs], "planted"), operands)


def add_primitive() -> Any:
    (eqn,) = fx.trace(lambda x: x + x, X).jaxpr.eqns
    return eqn.prim


def distinct_programs() -> Any:
    """Programs of additions and products in a random order, with one tanh: its value reaches a result."""
    return st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1)))


@given(distinct_programs(), st.booleans())
def test_law_the_planted_equation_is_found(drawn: tuple[int, int], raises: bool) -> None:
    n, at = drawn

    def f(x: Any, y: Any) -> Any:
        values = [x, y]
        for k in range(n):
            values.append(fnp.tanh(values[-1]) if k == at else values[-1] * 0.5 + values[k % 2])
        return values[-1], values[at + 2]

    program = fx.trace(f, X, X)
    (target,) = {e.prim for e in program.jaxpr.eqns if e.prim.name == "tanh"}
    search = EquationSearch(Planted(target, raises), Interpreted(), 0)
    result = search.find(program.jaxpr, [X, f32(X + 1)], "ZeroDivisionError" if raises else None)
    assert result is not None
    assert result.eqns[-1].prim == target
    assert result.alone
    assert result.count == 1
    assert search.runs <= math.log2(len(program.jaxpr.eqns)) + 5
    assert (result.failure is not None) == raises


@final
@dataclass(frozen=True, slots=True)
class PlantedInBodies(InProcess):
    """The interpreter, with other results of equations of a primitive, also in bodies."""

    target: Any

    @property
    def name(self) -> str:
        return "planted"

    def results(self, jaxpr: Jaxpr, operands: Sequence[NDArray]) -> list[NDArray]:
        env: dict[object, NDArray] = dict(zip(jaxpr.ins, operands, strict=True))
        for eqn in jaxpr.eqns:
            ins = [np.asarray(a.array) if isinstance(a, Lit) else env[a] for a in eqn.ins]
            with np.errstate(all="ignore"):
                outs = run_bodies(eqn, ins, [v.aval for v in eqn.outs], self.results)
                outs = [np.asarray(x) for x in eqn.prim.impl(*ins)] if outs is None else outs
                if eqn.prim == self.target:
                    outs = [(x + np.ones((), x.dtype)).astype(x.dtype) if x.dtype.kind == "f" else x for x in outs]
            env.update(zip(eqn.outs, outs, strict=True))
        return [np.asarray(a.array) if isinstance(a, Lit) else env[a] for a in jaxpr.outs]


@given(testing.cases(size=8), st.integers(0, 1000))
def test_law_a_fault_in_a_drawn_program_is_found_also_in_bodies(case: Any, seed: int) -> None:
    """A fault that reaches a result is found at an equation of its primitive, whose operands show it."""
    eqns = [e for body in distinct_jaxprs(case.program) for e in body.eqns if not isinstance(e.prim, HigherOrder)]
    if not eqns:
        return
    target = eqns[seed % len(eqns)].prim
    search = EquationSearch(PlantedInBodies(target), Interpreted(), 0)
    result = search.find(case.program, list(case.args), None)
    if result is None:
        assert search.compare(case.program, case.args) is None  # the fault does not reach a result
        return
    assert result.eqns[-1].prim == target
    assert result.alone
    assert result.count == 1
    expected = Interpreted().results(result.jaxpr, result.operands)
    assert Closeness(0).first(expected, PlantedInBodies(target).results(result.jaxpr, result.operands)) is not None


@given(st.integers(1, 200), st.data())
def test_law_bisection_finds_neighbours(n: int, data: st.DataObject) -> None:
    truth = [False, *data.draw(st.lists(st.booleans(), min_size=n - 1, max_size=n - 1)), True]
    k = first_true(truth.__getitem__, 0, n)
    assert truth[k]
    assert not truth[k - 1]


@given(testing.cases(size=6))
def test_law_a_program_agrees_with_itself(case: Any) -> None:
    search = EquationSearch(Interpreted(), Interpreted(), 0)
    assert search.find(case.program, list(case.args), None) is None


# ------------------------------------------------------------------------------------------------- passes and versions


def wrong_sine(jaxpr: Jaxpr) -> Jaxpr:
    """A pass that makes the last sine a cosine."""
    text = to_text(jaxpr)
    at = text.rfind("= sin ")
    return jaxpr if at < 0 else parse(f"{text[:at]}= cos {text[at + 6 :]}")


def network(x: Any, w: Any) -> Any:
    def step(c: Any, xi: Any) -> Any:
        return fnp.tanh(c @ w) + xi, fnp.sum(c)

    c, ys = lax.scan(step, x[0], x)
    for _ in range(20):
        c = fnp.sin(c) * 1.5
    return c, ys


ROWS = np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4)
W = np.eye(4, dtype=np.float32) * np.float32(0.7)


def test_a_pass_that_is_wrong_is_found() -> None:
    program = fx.trace(network, ROWS, W)
    pipeline = (*BEFORE_COMPILATION[:2], Pass("wrong_sine", wrong_sine), BEFORE_COMPILATION[2])
    divergence = found(fx.bisect(program, ROWS, W, passes=pipeline))
    assert (divergence.stage, divergence.stage_name) == ("pass", "wrong_sine")
    assert divergence.equation.split(" = ")[1].startswith("cos ")
    assert divergence.program is program.jaxpr
    assert str(divergence).startswith(
        "compiled: the program after the pass differs from the program before it\n  pass          wrong_sine\n"
    )
    divergence = found(fx.bisect(fx.lower(program, passes=()), ROWS, W, reference=pipeline))
    assert str(divergence).startswith("the reference: the program after the pass differs from the program before it\n")


def test_a_pass_that_raises_is_found() -> None:
    def fails(jaxpr: Jaxpr) -> Jaxpr:
        raise KeyError(jaxpr.name)

    program = fx.trace(network, ROWS, W)
    divergence = found(fx.bisect(program, ROWS, W, passes=(BEFORE_COMPILATION[0], Pass("fails", fails))))
    assert (divergence.stage, divergence.stage_name, divergence.failure) == ("pass", "fails", "KeyError: 'network'")


def test_the_equation_that_differs_between_two_versions_is_found() -> None:
    program = fx.trace(network, ROWS, W)

    def changed(x: Any, w: Any) -> Any:
        def step(c: Any, xi: Any) -> Any:
            return fnp.tanh(c @ w) + xi * 1.01, fnp.sum(c)

        c, ys = lax.scan(step, x[0], x)
        for _ in range(20):
            c = fnp.sin(c) * 1.5
        return c, ys

    divergence = found(fx.bisect(fx.trace(changed, ROWS, W), ROWS, W, reference=program))
    assert divergence.equation.split(" = ")[1].startswith("mul ")
    assert divergence.inside == ("step 0 of scan",)
    assert str(divergence).startswith("the program differs from the other program\n")
    assert fx.bisect(program, ROWS, W, reference=fx.outline(program)) is None
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"bisect: the reference has the type \(f32\[2\]\) -> \(f32\[2\]\), the program "
        r"\(f32\[10,4\], f32\[4,4\]\) ->"
        r"(?s:.*)give a version of the program that takes and returns the same types",
    ):
        fx.bisect(program, ROWS, W, reference=fx.trace(fnp.sin, X))


def test_a_version_has_the_arrays_that_it_closes_over_itself() -> None:
    """Regression: the arrays of the program were taken for those of the reference, and both agreed."""

    def scaled(*weights: float) -> fx.Program[..., Any]:
        arrays = [fnp.asarray(f32([1, 2, w])) for w in weights]

        def f(x: Any) -> Any:
            for w in arrays:
                x = x * w
            return fnp.sin(x)

        return fx.trace(f, fx.Spec((3,), "float32"))

    program, x = scaled(3), f32([1, 1, 1])
    assert program.jaxpr is scaled(4).jaxpr
    assert fx.bisect(program, x, reference=scaled(3)) is None
    others: list[tuple[Any, int | None]] = [(scaled(4), 4), (fx.lower(scaled(4)), 4), (scaled(3, 4), None)]
    for other, expected in others:
        divergence = found(fx.bisect(program, x, reference=other))
        if expected is not None:
            assert "mul " in divergence.equation
            assert "  expected      4.0 at [2] of float32[3]\n  actual        3.0 at [2]" in str(divergence)
    divergence = found(fx.bisect(program, x, reference=fx.trace(lambda x: fnp.sin(x * 2), x)))
    assert "mul " in divergence.equation
    assert np.array_equal(divergence.values[1], [1, 2, 3])


def test_a_version_may_be_of_symbolic_shape() -> None:
    def mean(x: Any, by: float = 1.0) -> Any:
        return fnp.sum(x * by) / x.shape[0]

    x, sizes = f32([1, 2, 6]), fx.Spec("(n,)", "float32")
    other = fx.trace(lambda x: mean(x, 2.0), sizes)
    for program in (fx.trace(mean, sizes), fx.trace(mean, x)):
        assert fx.bisect(program, x, reference=fx.trace(mean, sizes)) is None
        divergence = found(fx.bisect(program, x, reference=other))
        assert "reduce_sum " in divergence.equation
        assert divergence.expected == 18
        assert divergence.actual == 9
    with pytest.raises(fx.errors.ArgumentError, match=r"the reference has the type \(f32\[n\], f32\[n\]\) ->"):
        fx.bisect(program, x, reference=fx.trace(lambda x, y: mean(x * y), sizes, sizes))


# ------------------------------------------------------------------------------------------------- options and dtypes


def ratio(x: Any) -> Any:
    return fnp.sqrt(fnp.abs(x)).sum() * 0.0 + 1.0


def test_options_are_compared() -> None:
    program, x = fx.trace(ratio, X), f32([1, np.nan])
    assert fx.bisect(program, x) is None
    divergence = found(fx.bisect(program, x, options=FAST_MATH))
    assert divergence.equation.split(" = ")[1].startswith("mul ")
    assert np.isnan(divergence.expected or 0)
    divergence = found(fx.bisect(program, x, reference=FAST_MATH))
    assert divergence.reference == "compiled with the other options"
    assert divergence.expected == 0
    divergence = found(fx.bisect(fx.lower(program).compile(FAST_MATH), x, reference=fx.lower(program)))
    assert divergence.reference == "compiled as the other"
    assert divergence.actual == 0
    assert fx.bisect(program, x, reference=fx.devices()[0]) is None


def cancel(x: Any) -> Any:
    return (x + 1e8) - 1e8


def test_another_dtype_shows_what_rounding_does(tmp_path: Path) -> None:
    program = fx.trace(cancel, fx.Spec(()))
    divergence = found(fx.bisect(program, 0.25, reference="float64"))
    assert divergence.equation == "%1:f32[] = sub %0:f32[] 100000000.0:f32[]"
    assert divergence.expected == 0.25
    assert divergence.actual == 0
    assert "together      with 1 equation before it; alone it agrees" in str(divergence)
    assert divergence.reference == "interpreted in float64"
    assert fx.bisect(fx.trace(network, ROWS, W), ROWS, W, reference=fx.dtypes.float64) is None
    with pytest.raises(
        fx.errors.DTypeError, match=r"the reference is int32, not a floating dtype(?s:.*)give 'float64' or 'float32'"
    ):
        fx.bisect(program, 0.25, reference="int32")


def test_a_tolerance_of_zero_compares_the_values_of_two_dtypes() -> None:
    x = f32([0.1, -0.0, np.nan])
    for z in (x, x.astype(np.complex64)):
        twice = fx.trace(lambda x: x * 2, z)
        assert fx.bisect(twice, z, reference="float64", tolerance=0) is None
    assert Closeness(0).compare(0, np.array([-0.0]), f32([0.0])) is not None
    assert Closeness(0).compare(0, np.array([0.1]), f32([0.1])) is not None


def test_a_difference_that_only_the_whole_program_has_shows_its_values() -> None:
    """A narrower dtype rounds the operands: no equation differs on what the reference has."""
    x = f32([3.3, 3.3])
    program = fx.trace(twice_of(fnp.negative), x)
    divergence = found(fx.bisect(program, x, reference="bfloat16", tolerance=1e-4))
    assert not divergence.alone
    assert divergence.expected is not None
    assert divergence.actual is not None
    assert float(divergence.expected[0]) == -3.296875
    assert np.array_equal(divergence.actual, f32([-3.3, -3.3]))


def test_what_dtypes_define_keeps_them_in_another_dtype() -> None:
    def f(x: Any) -> Any:
        bits = lax.bitcast_convert_type(x, np.int32) ^ 1
        y = fx.pure_callback(lambda v: v * 2, fx.Spec((2,), "float32"), lax.bitcast_convert_type(bits, np.float32))
        return fnp.where(fnp.signbit(y), lax.reduce_precision(y, 5, 3), fnp.nextafter(y, y + 1)), lax.scan(
            lambda c, a: (c * a, fnp.signbit(c)), fnp.float32(1), x
        )

    x = np.array([-2.3, 0.7], np.float32)
    assert fx.bisect(fx.trace(f, x), x, reference="float64") is None


@pytest.mark.parametrize("preferred", [None, "float32"])
def test_dtypes_among_parameters_do_not_round_in_another_dtype(preferred: str | None) -> None:
    def f(a: Any) -> Any:
        v = a * 1e4
        w = v * np.array([1, 4e-8], np.float32)
        return lax.dot_general(v, w, (((0,), (0,)), ((), ())), preferred_element_type=preferred) - 1e8

    a = np.ones(2, np.float32)
    assert "sub" in found(fx.bisect(fx.trace(f, a), a, reference="float64")).equation

    def g(n: Any, x: Any) -> Any:
        return n.astype("float32") - 16777216, lax.reduce(x, np.float32(0), lambda a, b: a + b * 2, (0,))

    program = fx.trace(g, np.int32(0), a)
    assert found(fx.bisect(program, np.int32(16777217), a, reference="float64")).expected == 1


@pytest.mark.parametrize("kind", [k for k in ALL if any("DType" in str(f.type) for f in fields(k))])
def test_a_run_in_float64_is_that_of_the_program_in_float64(kind: type[Primitive]) -> None:
    @share(3)
    @given(calls(kind))
    def law(application: Application) -> None:
        jaxpr = application.program
        in_float64 = retyped(jaxpr, TO_FLOAT64)
        operands = [x.astype(v.dtype) for x, v in zip(application.args, in_float64.in_avals, strict=True)]
        results = sides.Interpreted(fx.dtypes.float64).results(jaxpr, application.args)
        for x, y in zip(results, run(in_float64, operands), strict=True):
            np.testing.assert_array_equal(x, y)

    law()


def test_the_equations_that_are_found_differ_alone() -> None:
    def variance(x: Any) -> Any:
        return fnp.mean(x * x) - fnp.mean(x) ** 2

    x = np.array([1000.005, 999.98, 1000.03], np.float32)  # the mean is on another scale than its square
    found = fx.bisect(fx.trace(variance, x), x, reference="float64")
    assert found is not None
    assert found.alone
    assert fx.bisect(found.program, *found.operands, reference="float64") is not None


def test_tolerances() -> None:
    program = fx.trace(lambda x: fnp.exp(x).sum(), ROWS)
    exact = f32(fx.interpret(program, ROWS))
    assert fx.bisect(program, ROWS) is None
    assert fx.bisect(program, ROWS, tolerance=1e-5) is None
    close = Closeness(0)
    assert close.compare(0, f32(0.0), f32(-0.0)) is not None
    assert Closeness().compare(0, f32(0.0), f32(-0.0)) is None
    assert close.compare(0, f32(np.nan), f32(np.nan)) is None
    assert Closeness().compare(0, exact, f32(float(exact) * 1.001)) is not None
    assert Closeness().compare(0, f32([np.inf]), f32([np.nan])) is not None
    assert Closeness().compare(0, np.asarray([1, 2]), np.asarray([1, 3])) is not None
    for name, value in (("tolerance", -1), ("tolerance", "x"), ("time_limit", True), ("tolerance", math.nan)):
        with pytest.raises(
            fx.errors.ParameterError,
            match=f"bisect: {name} is .*, not a number >= 0(?s:.*)leave it out for the default",
        ):
            fx.bisect(program, ROWS, **{name: value})  # type: ignore[arg-type]


def test_refusals() -> None:
    program = fx.trace(cancel, fx.Spec(()))
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"bisect: a function is no program: (?s:.*)give a Program and its arguments: "
        r"fx.bisect\(fx.trace\(f, \*args\), \*args\); or a call of fx.replay",
    ):
        fx.bisect(cancel, 0.25)  # type: ignore[arg-type]
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"bisect: the reference is .*(?s:.*)give fx.interpret, fx.CompileOptions, a tuple of passes, a device, "
        "a floating dtype such as 'float64', or another program of the same types",
    ):
        fx.bisect(program, 0.25, reference=3)
    with pytest.raises(fx.errors.ShapeError):
        fx.bisect(program, X)
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"bisect: a child process does not have the primitive clipped, which is from outside fxad(?s:.*)leave "
        "out time_limit: the program runs in this process",
    ):
        fx.bisect(fx.trace(clipped, X), X, time_limit=1)
    host = fx.trace(lambda x: fx.pure_callback(np.sin, fx.Spec((2,)), x), X)
    with pytest.raises(fx.errors.ArgumentError, match=r"bisect: <lambda> calls the Python function sin, which a file"):
        fx.bisect(host, X, time_limit=1)
    assert fx.bisect(host, X) is None


# --------------------------------------------------------------------------------------------- recorded calls, tests


def twice_of(*functions: Callable[..., Any]) -> Callable[[Any], Any]:
    """Returns twice the composition of functions."""

    def f(x: Any) -> Any:
        for g in functions:
            x = g(x)
        return x * 2

    return f


def test_a_recorded_call_is_bisected(tmp_path: Path) -> None:
    with fx.record(tmp_path):
        fx.lower(fx.trace(ratio, X)).compile(FAST_MATH)(f32([1, np.nan]))
    (call,) = fx.replay(tmp_path)
    divergence = found(fx.bisect(call))
    assert divergence.equation.split(" = ")[1].startswith("mul ")
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"bisect: arguments are given, and the recorded call has its own(?s:.*)leave them "
        "out; or give call.program and other arguments",
    ):
        fx.bisect(call, X)


def wrong_cos(_: Cos, x: NDArray) -> NDArray:
    return np.cos(x) + np.float32(0.5)


def test_a_divergence_is_written_as_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails now, for the same reason, and passes when the fault is gone."""
    with monkeypatch.context() as planted:  # a difference of the defaults: no argument of `bisect` is written
        planted.setattr(Cos, "compute", wrong_cos)
        divergence = found(fx.bisect(fx.trace(twice_of(fnp.cos), X), X))
        assert divergence.call == ""
        divergence.as_test(tmp_path / "test_defaults.py")
        with pytest.raises(AssertionError, match="compiled differs from interpreted\n"):
            run_test(tmp_path / "test_defaults.py")
    run_test(tmp_path / "test_defaults.py")
    program, x = fx.trace(ratio, X), f32([1, np.nan])
    found(fx.bisect(program, x, options=FAST_MATH)).as_test(tmp_path / "test_flags.py")
    found(fx.bisect(fx.trace(cancel, fx.Spec(())), 0.25, reference="float64")).as_test(tmp_path / "test_dtype.py")
    pipeline = (Pass("wrong_sine", wrong_sine),)
    found(fx.bisect(fx.trace(twice_of(fnp.sin), X), X, passes=pipeline)).as_test(tmp_path / "test_pass.py")
    for name, line in (
        ("flags", "compiled differs from interpreted\n"),
        ("dtype", "compiled differs from interpreted in float64\n"),
        ("pass", "  pass          wrong_sine\n"),
    ):
        with pytest.raises(AssertionError, match=line):
            run_test(tmp_path / f"test_{name}.py")
    flags = (tmp_path / "test_flags.py").read_text()
    (tmp_path / "test_flags.py").write_text(flags.replace("enable_fast_math', True", "enable_fast_math', False"))
    run_test(tmp_path / "test_flags.py")


def run_test(path: Path) -> None:
    (test,) = [value for name, value in runpy.run_path(str(path)).items() if name.startswith("test_")]
    test()


# --------------------------------------------------------------------------------------------------- crashes and hangs

# Read by each child when it starts: a compilation of a cosine ends the process, one of a tangent does not end.
SITE = """
import os, signal, sys, time

class Finder:
    def find_spec(self, name, path, target=None):
        if name != "fxad.xla.cache":
            return None
        sys.meta_path.remove(self)
        import fxad.xla.executable as executable
        compile_module = executable.compile_module

        def planted(lowered, *args):
            if "stablehlo.cosine" in lowered.body:
                os.kill(os.getpid(), signal.SIGSEGV)
            if "stablehlo.tan" in lowered.body.replace("stablehlo.tanh", ""):
                time.sleep(3600)
            return compile_module(lowered, *args)

        executable.compile_module = planted
        return None

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture(name="planted")
def _planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_crash_is_found(planted: None) -> None:
    program = fx.trace(fnp.cos, X)
    divergence = found(fx.bisect(program, X, time_limit=60))
    assert divergence.failure == "SIGSEGV: the process was ended by a signal"
    assert divergence.equation == "%0:f32[2] = cos %arg0:f32[2]"
    assert "  failure       SIGSEGV: the process was ended by a signal\n" in str(divergence)
    assert divergence.call is not None
    assert "time_limit=60" in divergence.call


@pytest.mark.deep
def test_crashes_in_loops_hangs_and_recorded_calls(planted: None, tmp_path: Path) -> None:
    """python -m pytest -m deep tests/record/test_bisect.py: a minute of one core."""

    def loop(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda k, c: fnp.cos(c) + k, fnp.exp(x))

    divergence = found(fx.bisect(fx.trace(loop, X), X, time_limit=60))
    assert divergence.inside == ("step 0 of scan",)
    assert divergence.equation.split(" = ")[1].startswith("cos ")
    divergence = found(fx.bisect(fx.trace(twice_of(fnp.exp, fnp.tan), X), X, time_limit=3))
    assert divergence.failure == "time limit: the run took more than 3 s"
    assert divergence.equation.split(" = ")[1].startswith("tan ")
    assert fx.bisect(fx.trace(twice_of(fnp.exp), X), X, time_limit=60) is None
    code = (
        "import sys, fxad as fx, fxad.numpy as fnp, numpy as np\n"
        "f = fx.lower(fx.trace(lambda x: fnp.sin(x), fx.Spec((2,)))).compile()\n"
        "import os; from fxad.execution.dispatch import Dispatcher\n"
        "Dispatcher._launch = lambda *_: os._exit(3)\n"
        "with fx.record(sys.argv[1]): f(np.float32([1, 2]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "calls")], check=False, timeout=120)
    (call,) = fx.replay(tmp_path / "calls")
    assert call.ended_process
    assert fx.bisect(call) is None


def test_an_interrupted_search_returns_what_it_knows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = 0
    run = CompiledSide.run

    def interrupted(self: CompiledSide, *args: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == at:
            raise KeyboardInterrupt
        return run(self, *args)

    monkeypatch.setattr(CompiledSide, "run", interrupted)
    program = fx.trace(lambda x: fnp.sqrt(x).sum() * 0.0 + 1.0, X)
    x = f32([1.0, np.nan])
    at = 3
    known = found(fx.bisect(program, x, options=FAST_MATH))
    assert (known.interrupted, known.stage, known.runs) == (True, "program", 3)
    assert "\n  interrupted   a smaller part was not searched for\n" in str(known)
    assert np.array_equal(known.expected, np.nan, equal_nan=True)  # type: ignore[arg-type]
    assert known.actual == 1
    with pytest.raises(
        fx.errors.ArgumentError, match=r"as_test: the search was interrupted(?s:.*)let fx.bisect run to its end"
    ):
        known.as_test(tmp_path / "test_it.py")
    runs, at = 0, 1
    with pytest.raises(KeyboardInterrupt):  # nothing is known
        fx.bisect(program, x, options=FAST_MATH)


def test_the_step_that_overflows_in_a_narrow_dtype_is_found() -> None:
    """The values of the reference are compared in its own dtype: rounded to that of the program, they are infinite."""
    program = fx.trace(lambda x: lax.fori_loop(0, 40, lambda _, c: c * 1.5, x), fx.Spec((2,), "float16"))
    found = fx.bisect(program, np.array([0.1, 1.0], np.float16), reference="float64")
    assert found is not None
    assert "mul" in found.equation
    assert found.inside == ("step 27 of scan",)


def test_a_program_that_ends_on_no_side_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child is started here: the compiled program takes too long."""
    monkeypatch.setattr(sides, "run_in_child", lambda *_: iter([(TIME_LIMIT, "the run took more than 0.2 s")]))
    program = fx.trace(lambda x: lax.while_loop(lambda c: c == c, fnp.sin, x), 0.5)
    for reference, name in ((fx.interpret, "interpreted"), ("float64", "interpreted in float64")):
        with pytest.raises(fx.errors.ExecutionError) as e:
            fx.bisect(program, 0.5, time_limit=0.2, reference=reference)
        assert f"<lambda> takes more than 0.2 s, compiled and {name}: the sides do not differ in that" in str(e.value)
        assert "give a larger time_limit, or arguments for which its loops end" in str(e.value)
    with pytest.raises(fx.errors.ExecutionError, match="compiled and compiled with the other options: the sides"):
        fx.bisect(program, 0.5, time_limit=0.2, reference=fx.CompileOptions(optimization_level=0))
    divergence = found(fx.bisect(fx.trace(fnp.sin, 0.5), 0.5, time_limit=60))
    assert divergence.failure == "time limit: the run took more than 0.2 s"
