"""A primitive and a transformation from outside fxad: the checkers accept correct ones and find planted errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, ClassVar, NoReturn, final

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
from fxad import dtypes, testing
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.errors import ShapeError
from fxad.ir import Atom, Aval, BatchCtx, Hlo, HloValue, Jaxpr, JvpCtx, NDArray, Primitive, Tangent, primitive
from fxad.primitives.elementwise import LOGISTIC, MUL, NEG, SIN, Add, Sin
from fxad.primitives.elementwise.family import Unary
from fxad.primitives.shape import ReduceSum, broadcast_to_axis
from fxad.testing import (
    Application,
    Case,
    Domain,
    Spec,
    applications,
    cases,
    check_primitive,
    check_rewrite,
    shapes,
)
from fxad.tracing.tracer import bind
from tests.processes import run_python


@final
@primitive
class Softplus(Unary):
    """log(1 + exp(x))."""

    name: ClassVar[str] = "softplus"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING - dtypes.FLOAT8

    def compute(self, x: NDArray) -> object:
        return np.logaddexp(x, np.zeros_like(x))

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return hlo.op("stablehlo.log_plus_one", hlo.op("stablehlo.exponential", args, ins), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(MUL, t, ctx.one(LOGISTIC, x))


def specs(draw: st.DrawFn, smooth: bool) -> Spec:
    dtype = dtypes.float64 if smooth else draw(st.sampled_from([dtypes.float32, dtypes.bfloat16]))
    return Softplus(), [(Aval(draw(shapes()), dtype), Domain(-3.0, 3.0))]


@given(st.one_of(applications(specs), applications(specs, smooth=True)))
def test_a_primitive_of_ones_own(application: Application) -> None:
    check_primitive(application)


AT = Application(Softplus(), (np.array([[0.3, -1.2], [2.0, 0.5]]),), smooth=True)
PAIR = Application(Add(), (np.linspace(0.1, 0.7, 7), np.linspace(2.0, 3.0, 7)), smooth=True)
SUM = Application(ReduceSum((1,)), AT.args, smooth=True)


def _unknown_zeros(
    self: Primitive, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
    """A batching rule with correct values that hides a literal zero behind an equation."""
    stacks = [broadcast_to_axis(ctx, a, d, ctx.size, 0) for a, d in zip(args, dims, strict=True)]
    return (ctx.one(self, *[ctx.one(NEG, ctx.one(NEG, x)) for x in stacks]),), (0,)


def _batch(
    self: Primitive, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
    return ctx(self, *args), (0,)


# a fault, and the checker that finds it
FAULTS: list[tuple[type, str, object, Callable[[Application], None], Application, str]] = [
    (Softplus, "compute", lambda self, x: np.add(x, 0, out=x), testing.check_types, AT, "read-only"),
    (Softplus, "compute", lambda self, x: x[:1], testing.check_types, AT, "its type rule says"),
    (Softplus, "compute", lambda self, x: np.expm1(x), testing.check_lowering, AT, "lower differs from impl"),
    (Softplus, "tangent", lambda self, ctx, x, y, t: t, testing.check_jvp, AT, "central difference"),
    (Unary, "batch", _batch, testing.check_batch, AT, "batch differs from the loop"),
    (Add, "batch", _unknown_zeros, testing.check_batched_linear, PAIR, "not linear any more in operands"),
    (ReduceSum, "cotangent", lambda self, emit, ct, x, others: emit.one(NEG, ct), testing.check_transpose,
     SUM, "not the adjoint|operands could not be broadcast"),
    (Add, "transpose", lambda self, ctx, cts, args: (cts[0], ctx.one(NEG, cts[0])), testing.check_transpose,
     Application(Add(), AT.args * 2, smooth=True), "transpose is not the adjoint"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rule", "fault", "check", "application", "message"), FAULTS)
def test_a_wrong_rule_is_found(
    kind: type,
    rule: str,
    fault: object,
    check: Callable[[Application], None],
    application: Application,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = application.program
    check(application)
    program._memo.clear()
    monkeypatch.setattr(kind, rule, fault)
    with pytest.raises(Exception, match=message):
        check(application)
    program._memo.clear()


def _case() -> Case:
    b = Builder()
    x = b.input(Aval((2,), "float64"))
    y = b.one(SIN, x)
    b.one(MUL, y, y)
    return Case(b.build([b.one(MUL, y, b.one(SIN, x))]), (np.array([0.3, 1.1]),))


def _without_sines(jaxpr: Jaxpr) -> Jaxpr:
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        env.update(zip(eqn.outs, ins[:1] if isinstance(eqn.prim, Sin) else b.copy(eqn, ins), strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs])


def _longer(jaxpr: Jaxpr) -> Jaxpr:
    b = Builder.resume(jaxpr)
    b.one(SIN, jaxpr.ins[0])
    return b.build(jaxpr.outs)


def test_a_wrong_transformation_is_found() -> None:
    check_rewrite(lambda f: f, _case())
    with pytest.raises(AssertionError, match="the results changed: result 0: got"):
        check_rewrite(_without_sines, _case())
    with pytest.raises(AssertionError, match="not idempotent"):
        check_rewrite(_longer, _case())


def test_a_failure_shows_the_law_the_program_and_the_operands() -> None:
    with pytest.raises(AssertionError) as e:
        check_rewrite(_without_sines, _case())
    text = str(e.value)
    assert "program: main @main(%arg0: f64[2]) -> (f64[2]) {\n  %0: f64[2] = sin %arg0" in text
    assert "at:\n  f64[2]: [0.3, 1.1]" in text
    assert "became: main @main" in text


@given(cases())
def test_cases_run(case: Case) -> None:
    assert repr(case).startswith(f'case("""\\\n{case.program}"""')


def test_testing_asks_for_its_extra_and_the_package_does_not() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None; import fxad\n"
        "try:\n    import fxad.testing\nexcept ImportError as e:\n    print(e)"
    )
    assert run_python(code) == "fxad.testing draws programs with hypothesis: pip install 'fxad[testing]'\n"


@final
@primitive
class Wrong(Primitive):
    """A primitive whose rules all raise, in a function that they call."""

    name: ClassVar[str] = "wrong"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return avals if avals[0].ndim == 1 else refusing()

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return refusing()

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return refusing()

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        return refusing()

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        return refusing()


def refusing() -> NoReturn:
    raise ShapeError("wrong: takes nothing", remedy="do not use it")


def used(x: Any) -> Any:
    return bind(Wrong(), x)[0]


def summed(x: Any) -> Any:
    return used(x).sum()


ROW, GRID = np.ones(3), np.ones((3, 3))


USES: list[Callable[[], object]] = [
    lambda: fx.trace(used, GRID),
    lambda: used(GRID),
    lambda: used(ROW),
    lambda: fx.jit(used)(ROW),
    lambda: fx.interpret(fx.trace(used, ROW), ROW),
    lambda: fx.vmap(used)(GRID),
    lambda: fx.jvp(used, (ROW,), (ROW,)),
    lambda: fx.grad(summed)(ROW),
]


@pytest.mark.parametrize("use", USES)
def test_an_error_of_a_rule_of_ones_own_names_the_line_that_uses_the_primitive(use: Callable[[], object]) -> None:
    with pytest.raises(ShapeError) as e:
        use()
    lines = (use.__code__.co_firstlineno, "<lambda>"), (used.__code__.co_firstlineno + 1, "used")
    assert any(f"{__file__}:{line} in {name}" in str(e.value) for line, name in lines), str(e.value)
    assert "refusing" not in str(e.value)
    assert "Wrong." not in str(e.value)


_numbers = count(2)
jit: Any = fx.jit


@pytest.mark.parametrize(
    "use",
    [
        lambda f: jit(f)(ROW),
        lambda f: fx.interpret(fx.trace(f, ROW), ROW),
        lambda f: fx.vmap(f)(GRID),
        lambda f: fx.jvp(f, (ROW,), (ROW,)),
        lambda f: fx.grad(lambda x: f(x).sum())(ROW),
        lambda f: fx.vmap(fx.trace(f, ROW), axis_size=3)(GRID),
        lambda f: fx.lower(fx.trace(f, ROW)).text(),
    ],
)
def test_any_exception_of_a_rule_of_ones_own_has_a_note_with_the_line(
    use: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> NoReturn:
        raise KeyError("no row")

    number = float(next(_numbers))  # equal programs share the line of the first one, so this one is unique

    def own(x: Any) -> Any:
        return used(x * number)

    monkeypatch.setattr(sys.modules[__name__], "refusing", failing)
    with pytest.raises(KeyError) as e:
        use(own)
    (note,) = e.value.__notes__
    assert note.endswith(f"\n  traced at     {__file__}:{used.__code__.co_firstlineno + 1} in used")
    assert "wrong" in note


def test_the_note_of_an_exception_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> NoReturn:
        raise KeyError("no row")

    monkeypatch.setattr(sys.modules[__name__], "refusing", failing)
    with pytest.raises(KeyError) as e:
        fx.vmap(lambda x: fx.jit(lambda y: used(y * 3.5))(x))(GRID)
    line = used.__code__.co_firstlineno + 1
    assert e.value.__notes__ == [
        f"  equation      %1:f64[3] = wrong %0:f64[3]\n  traced at     {__file__}:{line} in used"
    ]
