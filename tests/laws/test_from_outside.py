"""Names that a user's package needs beside the public ones: texts and files with its primitives, rules of inverse and
mask, generated programs with its primitives, and the errors where one of these is missing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, extend as ex, testing
from fxad.dtypes import DType
from fxad.errors import ArgumentError, FileFormatError, NotInvertibleError, ParameterError, ParseError
from fxad.extend import elementwise as ew
from fxad.transforms.cleanup.simplify import simplify
from fxad.transforms.inversion.rules.contract import Args, Outs


@final
@ex.primitive
class Shifted(ex.Unary, ex.HasInverse, ex.HasMask):
    """exp(x) + 1; with a log-determinant."""

    name: ClassVar[str] = "shifted"
    takes: ClassVar[frozenset[DType]] = frozenset({dtypes.float32, dtypes.float64})

    def compute(self, x: ex.NDArray) -> object:
        return np.add(np.exp(x), 1)

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        return hlo.call(fx.trace(lambda x: fnp.exp(x) + 1, fx.Spec(ins[0].shape, ins[0].dtype)).jaxpr, args)

    def tangent(self, ctx: ex.JvpCtx, x: ex.Atom, y: ex.Atom, t: ex.Tangent) -> ex.Tangent:
        return ctx.lin_one(ew.MUL, t, ex.emit(ctx, fnp.exp, x))

    def solve(self, ctx: ex.InverseCtx, args: Args, outs: Outs) -> tuple[ex.Atom, ...]:
        return (ex.emit(ctx, lambda y: fnp.log(y - 1), outs[0]),)

    def log_det(self, ctx: ex.InverseCtx, args: tuple[ex.Atom, ...], unknown: tuple[bool, ...], outs: Outs) -> ex.Atom:
        return args[0]

    def mask(
        self, ctx: ex.MaskCtx, args: ex.Atoms, ins: Sequence[ex.Aval], outs: Sequence[ex.Aval]
    ) -> Sequence[ex.Atom]:
        return ctx(self, *args)


@final
@ex.primitive
class WithSlope(ex.HigherOrder):
    """The sine, with a program of its derivative. No body runs."""

    name: ClassVar[str] = "with_slope"
    slope: ex.Jaxpr

    @property
    def bodies(self) -> tuple[ex.Jaxpr, ...]:
        return (self.slope,)

    @property
    def layout(self) -> ex.Layout:
        operands, results = ex.Group(ex.Constant(), 1, fixed=True), ex.Group(ex.WholeResult(), 1, fixed=True)
        return ex.Layout((operands,), (results,), (ex.Body(self.slope, (0,), (0,), ex.Never()),))

    def with_bodies(self, bodies: tuple[ex.Jaxpr, ...]) -> WithSlope:
        return WithSlope(*bodies)

    def abstract_eval(self, *avals: ex.Aval) -> tuple[ex.Aval, ...]:
        return avals

    def impl(self, *args: ex.NDArray) -> tuple[ex.NDArray, ...]:
        return (np.sin(args[0]),)

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        return hlo.op("stablehlo.sine", args, outs)

    def batch(self, ctx: ex.BatchCtx, args: ex.Atoms, dims: ex.Dims) -> tuple[ex.Atoms, ex.Dims]:
        slope, _ = ctx.recur(self.slope, dims, dims)
        return ctx(WithSlope(slope), *args), dims

    def jvp(self, ctx: ex.JvpCtx, primals: ex.Atoms, tangents: ex.Tangents) -> tuple[ex.Atoms, ex.Tangents]:
        (slope,) = ctx(ex.Call(self.slope), *primals)
        return ctx(self, *primals), ctx.lin(ew.MUL, *tangents, slope)


def test_a_primitive_whose_bodies_never_run() -> None:
    """Regression: dead code elimination took its first running body."""
    slope = fx.trace(fnp.cos, fx.Spec((), "float32")).jaxpr

    def f(x: fx.Array) -> fx.Array:
        return ex.bind(WithSlope(slope), x)[0] * 2

    x = fnp.linspace(0, 1, 3, dtype="float32")
    value, derivative = 2 * np.sin(np.asarray(x)), 2 * np.cos(np.asarray(x))
    for program, expected in ((f, value), (fx.grad(f), derivative), (fx.grad(fx.remat(f)), derivative)):
        np.testing.assert_allclose(np.asarray(fx.jit(fx.vmap(program))(x)), expected, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(fx.dce(fx.trace(fx.vmap(program), x))(x)), expected, rtol=1e-6)


@final
@ex.primitive
class Unmeasured(ex.Unary, ex.HasInverse):
    """-x, with an inverse and without a log-determinant."""

    name: ClassVar[str] = "unmeasured"
    takes: ClassVar[frozenset[DType]] = Shifted.takes
    hlo_name: ClassVar[str] = "stablehlo.negate"

    def compute(self, x: ex.NDArray) -> object:
        return np.negative(x)

    def tangent(self, ctx: ex.JvpCtx, x: ex.Atom, y: ex.Atom, t: ex.Tangent) -> ex.Tangent:
        return ctx.lin_one(ew.NEG, t)

    def solve(self, ctx: ex.InverseCtx, args: Args, outs: Outs) -> tuple[ex.Atom, ...]:
        return ctx(ew.NEG, *outs)


@final
@ex.primitive
class Sinus(ex.Unary):
    """A primitive with the name of a primitive of fxad."""

    name: ClassVar[str] = "sin"
    takes: ClassVar[frozenset[DType]] = Shifted.takes

    def compute(self, x: ex.NDArray) -> object:
        return x

    def tangent(self, ctx: ex.JvpCtx, x: ex.Atom, y: ex.Atom, t: ex.Tangent) -> ex.Tangent:
        return t


@final
@ex.primitive
class DoubledTangent(ex.Primitive):
    """Returns its operand itself, with twice its tangent."""

    name: ClassVar[str] = "doubled_tangent"

    def abstract_eval(self, *avals: ex.Aval) -> tuple[ex.Aval, ...]:
        return avals

    def impl(self, *args: ex.NDArray) -> tuple[ex.NDArray, ...]:
        return args

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        return args

    def batch(self, ctx: ex.BatchCtx, args: ex.Atoms, dims: ex.Dims) -> tuple[ex.Atoms, ex.Dims]:
        return ctx(self, *args), dims

    def jvp(self, ctx: ex.JvpCtx, primals: ex.Atoms, tangents: ex.Tangents) -> tuple[ex.Atoms, ex.Tangents]:
        return primals, (ctx.add(tangents[0], tangents[0]),)


def test_a_rule_may_return_an_operand_with_another_tangent() -> None:
    """The derivative of x * g(x) at 3 is g + x g' = 3 + 3 * 2, where g returns x with twice its tangent."""

    def g(x: fx.Array) -> fx.Array:
        return ex.bind(DoubledTangent(), x)[0]

    x = fnp.asarray(3.0)
    for f in (lambda x: x * g(x), lambda x: g(x) * x, lambda x: fx.remat(lambda a, b: a * b)(x, g(x))):
        assert float(fx.jvp(f, (x,), (fnp.ones_like(x),))[1]) == 9
        assert float(fx.grad(f)(x)) == 9


def shifted(x: fx.Array) -> fx.Array:
    return ex.bind(Shifted(), x)[0]


X = np.array([0.3, -1.2, 0.5])
PROGRAM = fx.trace(shifted, X)
TEXT = str(PROGRAM.jaxpr)
REMEDY = "if 'shifted' is a primitive from outside fxad, give the class that has this name in primitives=[...]"


@pytest.mark.parametrize("given", [[Shifted], (Shifted,), {"shifted": Shifted}, {Shifted}], ids=str)
def test_a_text_and_a_file_with_a_primitive_from_outside(given: Sequence[type[ex.Primitive]], tmp_path: Path) -> None:
    assert fx.text.parse(TEXT, given) is PROGRAM.jaxpr
    fx.save(PROGRAM, tmp_path / "p")
    assert fx.load(tmp_path / "p", primitives=given) == PROGRAM
    exported = fx.load_exported(fx.lower(PROGRAM).export(), primitives=given)
    np.testing.assert_allclose(exported(X), np.exp(X) + 1)


def test_a_text_may_name_a_primitive_otherwise() -> None:
    assert fx.text.parse(TEXT.replace("= shifted", "= older"), {"older": Shifted}) is PROGRAM.jaxpr


def test_a_missing_primitive_says_how_to_give_it(tmp_path: Path) -> None:
    with pytest.raises(ParseError) as parsed:
        fx.text.parse(TEXT)
    assert parsed.value.message == "parse: line 2, column 16: there is no operation 'shifted'"
    assert parsed.value.remedy == REMEDY
    fx.save(PROGRAM, tmp_path / "p")
    with pytest.raises(FileFormatError) as loaded:
        fx.load(tmp_path / "p")
    assert loaded.value.message.endswith("line 2, column 16: there is no operation 'shifted'")
    assert loaded.value.remedy == REMEDY


READERS: list[tuple[str, Callable[..., object]]] = [
    ("parse", lambda given, path: fx.text.parse(TEXT, given)),
    ("load", lambda given, path: fx.load(path, primitives=given)),
    ("load_exported", lambda given, path: fx.load_exported(fx.lower(PROGRAM).export(), primitives=given)),
]


@pytest.mark.parametrize(("what", "read"), READERS, ids=lambda r: str(r)[:5])
def test_what_is_no_primitive_is_refused(what: str, read: Callable[..., object], tmp_path: Path) -> None:
    fx.save(PROGRAM, tmp_path / "p")
    for wrong, shown in ((3, "3"), (Shifted(), "Shifted()"), (int, "<class 'int'>")):
        with pytest.raises(ParameterError) as caught:
            read([wrong], tmp_path / "p")
        assert caught.value.message == f"{what}: primitives has {shown}, not the class of a primitive"
        assert caught.value.remedy == "give classes: primitives=[MyPrimitive]"
    with pytest.raises(ParameterError) as caught:
        read([Sinus], tmp_path / "p")
    assert caught.value.message == (
        f"{what}: two primitives have the name 'sin': fxad.primitives.elementwise.trigonometric.Sin and "
        f"{Sinus.__module__}.Sinus"
    )
    assert caught.value.remedy == "rename one of them: a text names primitives"


def test_the_inverse_and_its_log_determinant() -> None:
    back = fx.inverse(PROGRAM, log_det=True)
    x, log_det = back(shifted(fnp.asarray(X)))
    np.testing.assert_allclose(x, X)
    np.testing.assert_allclose(log_det, X.sum())
    testing.check_inverse(testing.Inversion(PROGRAM.jaxpr, (X,), (False,), measured=True))
    gradient = fx.grad(lambda x: fx.invertible(lambda x: shifted(shifted(x)))(x).sum())(X)
    np.testing.assert_allclose(gradient, fx.grad(lambda x: shifted(shifted(x)).sum())(X))


def test_an_inverse_without_a_log_determinant() -> None:
    program = fx.trace(lambda x: ex.bind(Unmeasured(), x)[0], X)
    np.testing.assert_array_equal(fx.inverse(program)(-X), X)
    with pytest.raises(NotInvertibleError, match=r"unmeasured.*its log-determinant is not known"):
        fx.inverse(program, log_det=True)


def specs(draw: st.DrawFn, smooth: bool) -> testing.DrawnOperands:
    dtype = dtypes.float64 if smooth else draw(st.sampled_from([dtypes.float32, dtypes.float64]))
    return Shifted(), [(fx.Aval(draw(testing.shapes()), dtype), testing.Domain(-1, 1))]


drawn: list[bool] = []


@given(testing.cases(differentiable=True, size=6, primitives=[specs]))
def test_generated_programs_have_the_primitive(case: testing.Case) -> None:
    kinds = {type(e.prim) for body in ex.distinct_jaxprs(case.program) for e in body.eqns}
    drawn.append(Shifted in kinds)
    testing.check_stack(("vmap",), case)


def test_a_third_of_the_generated_programs_have_the_primitive() -> None:
    if drawn:  # the tests of this file run in order
        assert sum(drawn) > len(drawn) / 3


@given(testing.ragged_cases(size=5, depth=1, primitives=[specs]))
def test_mask(case: testing.RaggedCase) -> None:
    testing.check_mask(case)


def test_calls_are_of_primitives_of_fxad() -> None:
    with pytest.raises(ArgumentError) as caught:
        testing.calls(Shifted)
    assert caught.value.message == "calls: Shifted is not a primitive of fxad.primitives.ALL"
    assert caught.value.remedy == (
        "applications(specs) draws calls of a primitive of your own: specs(draw, smooth) gives the primitive, and a "
        "type and a Domain for each operand"
    )


def test_signatures_can_be_read() -> None:
    """`help` prints defaults, so no default is a large table."""
    functions = [fx.load, fx.load_exported, fx.text.parse, *[getattr(testing, n) for n in testing.__all__]]
    for f in functions:
        if inspect.isfunction(f):
            defaults = [p.default for p in inspect.signature(f).parameters.values() if p.default is not p.empty]
            assert [d for d in defaults if len(repr(d)) > 20] == [], f.__name__


def test_a_function_in_a_rule_must_be_one_of_its_operands() -> None:
    y = fnp.ones(3)
    b = ex.Builder()
    x = b.input(fx.Aval((3,), "float32"))
    with pytest.raises(ArgumentError) as caught:
        ex.emit(b, lambda x: x + y, x)
    assert caught.value.message == "emit: <lambda> closes over arrays"
    assert caught.value.remedy == "pass arrays as operands, and return one array"
    with pytest.raises(ArgumentError) as caught:
        ex.emit(b, lambda x: (x, x), x)
    assert caught.value.message == "emit: <lambda> returns 2 arrays"


def test_a_jaxpr_is_called() -> None:
    jaxpr = fx.trace(lambda x: (x + 1, x.sum()), X).jaxpr
    assert float(ex.call(jaxpr, X)[1]) == pytest.approx(X.sum())
    assert [e.prim.name for e in fx.trace(lambda x: ex.call(jaxpr, x), X).jaxpr.eqns] == ["call"]


@final
@ex.primitive
class Pair(ex.HigherOrder):
    """Applies `body` once to two groups of operands. A parameter counts one of the groups, and `rebuild` is missing."""

    name: ClassVar[str] = "pair"
    body: ex.Jaxpr
    first: int

    @property
    def bodies(self) -> tuple[ex.Jaxpr, ...]:
        return (self.body,)

    @property
    def layout(self) -> ex.Layout:
        groups = (ex.Group(ex.Constant(), self.first), ex.Group(ex.Constant(), len(self.body.ins) - self.first))
        return ex.Layout(
            groups, (ex.Group(ex.WholeResult(), len(self.body.outs)),), (ex.Body(self.body, (0, 1), (0,)),)
        )

    def with_bodies(self, bodies: tuple[ex.Jaxpr, ...]) -> ex.Primitive:
        return Pair(bodies[0], self.first)

    def abstract_eval(self, *avals: ex.Aval) -> tuple[ex.Aval, ...]:
        if avals != self.body.in_avals:
            raise fx.errors.ShapeError(f"pair: takes {self.body.in_avals}, got {avals}")
        return self.body.out_avals

    def impl(self, *args: ex.NDArray) -> tuple[ex.NDArray, ...]:
        return tuple(ex.run(self.body, args))

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        return hlo.call(self.body, args)

    def batch(self, ctx: ex.BatchCtx, args: ex.Atoms, dims: ex.Dims) -> tuple[ex.Atoms, ex.Dims]:
        raise NotImplementedError

    def jvp(self, ctx: ex.JvpCtx, primals: ex.Atoms, tangents: ex.Tangents) -> tuple[ex.Atoms, ex.Tangents]:
        raise NotImplementedError


def pair(a: fx.Array, b: fx.Array) -> tuple[fx.Array, ...]:
    return ex.bind(Pair(fx.trace(lambda a, b: (a * 2, b * 3), a, b).jaxpr, 1), a, b)


def test_rebuild_is_needed_where_with_bodies_cannot_count_a_group() -> None:
    kept = fx.dce(fx.trace(lambda a, b: pair(a, b)[0], 1.0, 1.0))
    assert len(kept.jaxpr.eqns[0].ins) == 1, "the group at the end is counted from the body"
    with pytest.raises(fx.errors.ArgumentError) as e:
        fx.dce(fx.trace(lambda a, b: pair(a, b)[1], 1.0, 1.0))
    assert e.value.message == (
        "pair: `rebuild` is missing: groups of operands must get the sizes (0, 1), and `with_bodies` gives (1, 0)"
    )
    assert e.value.remedy == (
        "define Pair.rebuild(self, bodies, operands, results), and compute the parameters that count members of a group"
        " from these sizes"
    )


def test_an_error_of_ones_own_primitive_names_the_function_that_applies_it() -> None:
    def twice(a: fx.Array) -> tuple[fx.Array, ...]:
        return ex.bind(Pair(fx.trace(lambda a, b: (a, b), 1.0, 1.0).jaxpr, 1), a, a)

    with pytest.raises(fx.errors.ShapeError) as e:
        twice(fx.numpy.ones(2))
    assert e.value.function == f"{__name__}.{twice.__qualname__}"


# ------------------------------------------------------------------------------------------- layouts that do not fit

_ROW = ex.Sliced(0)


@final
@ex.primitive
class Turns(ex.HigherOrder):
    """Applies `body` to the carry `count` times. `wrong` names the error in its layout."""

    name: ClassVar[str] = "turns"
    body: ex.Jaxpr
    count: int
    wrong: str

    @property
    def bodies(self) -> tuple[ex.Jaxpr, ...]:
        return (self.body,)

    @property
    def layout(self) -> ex.Layout:
        n, wrong = len(self.body.ins), self.wrong
        carry = ex.Group(ex.Carry(), n)
        body = ex.Body(self.body, (0,), (0,), ex.Times(self.count))
        match wrong:
            case "body":
                return ex.Layout((carry,), (carry,), ())
            case "sizes":
                return ex.Layout((ex.Group(ex.Carry(), n + 1),), (carry,), (body,))
            case "group":
                return ex.Layout((carry,), (carry,), (ex.Body(self.body, (1,), (0,), ex.Times(self.count)),))
            case "values":
                return ex.Layout((carry, ex.Group(_ROW, 0)), (carry,), (ex.Body(self.body, (0,), (), ex.Times(2)),))
            case "predicate":
                return ex.Layout((carry,), (carry,), (ex.Body(self.body, (0,), (0,), ex.UnknownTimes()),))
            case "bool":
                loop = ex.Body(self.body, (0,), (ex.PREDICATE,), ex.UnknownTimes())
                return ex.Layout((ex.Group(ex.Constant(), n),), (ex.Group(ex.WholeResult(), n),), (loop,))
            case "slice":
                return ex.Layout((ex.Group(_ROW, n),), (ex.Group(_ROW, n),), (body,))
            case "results":
                rows = ex.Body(self.body, (0,), (0,), ex.InParallel(self.count))
                return ex.Layout((ex.Group(ex.Constant(), n),), (ex.Group(_ROW, n),), (rows,))
            case "carry":
                return ex.Layout((carry,), (ex.Group(ex.WholeResult(), n),), (body,))
            case "index":
                one = ex.Body(self.body, (0,), (0,), ex.OneOf())
                return ex.Layout((ex.Group(ex.Constant(), n),), (ex.Group(ex.WholeResult(), n),), (one,))
            case "runs":
                return ex.Layout((carry,), (carry,), (ex.Body(self.body, (0,), (0,), ex.Times(self.count + 1)),))
            case _:
                return ex.Layout((carry,), (carry,), (body,))

    def with_bodies(self, bodies: tuple[ex.Jaxpr, ...]) -> ex.Primitive:
        return Turns(bodies[0], self.count, self.wrong)

    def abstract_eval(self, *avals: ex.Aval) -> tuple[ex.Aval, ...]:
        return avals

    def impl(self, *args: ex.NDArray) -> tuple[ex.NDArray, ...]:
        for _ in range(self.count):
            args = ex.run(self.body, args)
        return args

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        for _ in range(self.count):
            args = hlo.call(self.body, args)
        return args

    def batch(self, ctx: ex.BatchCtx, args: ex.Atoms, dims: ex.Dims) -> tuple[ex.Atoms, ex.Dims]:
        raise NotImplementedError

    def jvp(self, ctx: ex.JvpCtx, primals: ex.Atoms, tangents: ex.Tangents) -> tuple[ex.Atoms, ex.Tangents]:
        raise NotImplementedError


def turns(wrong: str) -> Turns:
    return Turns(fx.trace(lambda x: fx.numpy.sin(x) * 0.731, fx.Spec((2,))).jaxpr, 3, wrong)


LAYOUTS = {
    "body": "the bodies of the layout are not `bodies`, in order",
    "sizes": "the groups have 2 operands, the equation has 1",
    "group": "body 0 names groups (1,) and (0,); there are 1 and 1",
    "values": "body 0, <lambda>, takes 1 and returns 1 values; its groups have 1 and 0",
    "predicate": "a loop of an unknown number of runs has no predicate: name PREDICATE among the results of a body",
    "bool": "body 0 returns f32[2] as the predicate: it must be bool[]",
    "slice": "operand 0 is f32[2], Sliced(axis=0); body 0 takes f32[2]",
    "results": "result 0 is f32[2], Sliced(axis=0); body 0 returns f32[2]",
    "carry": "groups of operands that are a Carry have the sizes [1], those of results []",
    "index": "there are 0 operands that are a BranchIndex, for bodies that run OneOf",
}


@pytest.mark.parametrize("wrong", LAYOUTS)
def test_a_layout_that_does_not_fit(wrong: str) -> None:
    """The layout is rejected when the primitive is applied, and by `typecheck`."""
    x = np.ones(2, np.float32)
    for apply in (lambda f: f(x), lambda f: fx.trace(f, x)):
        with pytest.raises(ArgumentError) as e:
            apply(lambda x: ex.bind(turns(wrong), x))
        assert e.value.message == f"turns: its layout does not fit: {LAYOUTS[wrong]}"
        assert e.value.remedy == "correct Turns.layout; testing.check_layout compares it with `impl`"
    with pytest.raises(fx.errors.TypecheckError, match="its layout does not fit"):
        testing.check_layout(testing.Application(turns(wrong), (x,)))


def test_a_layout_that_differs_from_impl() -> None:
    application = testing.Application(turns("runs"), (np.ones(2, np.float32),))
    with pytest.raises(AssertionError, match="impl differs from the bodies, run as the layout says"):
        testing.check_layout(application)
    testing.check_layout(testing.Application(turns(""), application.args))


# --------------------------------------------------------------------------------- branches that take different groups


@final
@ex.primitive
class Pick(ex.HigherOrder):
    """(a, index, b) -> two results. Branch 0 takes a and b and returns the results in order; branch 1 takes b and
    returns the second result first. With `wrong`, it returns one of them twice."""

    name: ClassVar[str] = "pick"
    first: ex.Jaxpr
    second: ex.Jaxpr
    wrong: bool = False

    @property
    def bodies(self) -> tuple[ex.Jaxpr, ...]:
        return self.first, self.second

    @property
    def layout(self) -> ex.Layout:
        results = (0, 0) if self.wrong else (1, 0)
        return ex.Layout(
            (ex.Group(ex.Constant(), 1), ex.Group(ex.BranchIndex(), 1), ex.Group(ex.Constant(), 1)),
            (ex.Group(ex.WholeResult(), 1), ex.Group(ex.WholeResult(), 1)),
            (
                ex.Body(self.first, (0, 2), (0, 1), ex.OneOf()),
                ex.Body(self.second, (2,), results, ex.OneOf()),
            ),
        )

    def with_bodies(self, bodies: tuple[ex.Jaxpr, ...]) -> ex.Primitive:
        return Pick(bodies[0], bodies[1], self.wrong)

    def abstract_eval(self, *avals: ex.Aval) -> tuple[ex.Aval, ...]:
        return self.first.out_avals

    def impl(self, *args: ex.NDArray) -> tuple[ex.NDArray, ...]:
        a, index, b = args
        return ex.run(self.first, (a, b)) if int(index) <= 0 else ex.run(self.second, (b,))[::-1]

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        raise NotImplementedError

    def batch(self, ctx: ex.BatchCtx, args: ex.Atoms, dims: ex.Dims) -> tuple[ex.Atoms, ex.Dims]:
        raise NotImplementedError

    def jvp(self, ctx: ex.JvpCtx, primals: ex.Atoms, tangents: ex.Tangents) -> tuple[ex.Atoms, ex.Tangents]:
        raise NotImplementedError


def pick(wrong: bool = False) -> Pick:
    x = fx.Spec((2,))
    first = fx.trace(lambda a, b: (a - b, fnp.log(a) * b), x, x)
    second = fx.trace(lambda b: (fnp.sin(b), b + 1), x)
    return Pick(first.jaxpr, second.jaxpr, wrong)


A, B = np.array([-1, 2], np.float32), np.array([3, 5], np.float32)


@pytest.mark.parametrize("index", [-1, 0, 1, 7])
def test_branches_that_take_other_groups(index: int) -> None:
    at = np.array(index, np.int32)
    application = testing.Application(pick(), (A, at, B))
    testing.check_layout(application)
    with np.errstate(invalid="ignore"):
        want = np.stack([A - B, np.log(A) * B] if index <= 0 else [B + 1, np.sin(B)])
    np.testing.assert_allclose(np.array(ex.run(application.program, application.args), float), want, rtol=1e-6)
    # with a literal index, the call of a branch remains
    b = ex.Builder()
    x, y = b.inputs([ex.Aval((2,), dtypes.float32)] * 2)
    called = simplify(b.build(b(pick(), x, ex.Lit.of(index, ex.Aval((), dtypes.int32)), y)))
    assert [eqn.prim.name for eqn in called.eqns] == ["call"]
    np.testing.assert_allclose(np.array(ex.run(called, [A, B]), float), want, rtol=1e-6)
    found = fx.explain_nan(fx.trace(lambda a, i, b: ex.bind(pick(), a, i, b), A, at, B), A, at, B)
    if index > 0:
        assert found is None
    else:
        assert found is not None
        assert found.nan is not None
        assert found.nan.equation == "%1:f32[2] = log %arg0:f32[2]"


def test_a_branch_that_lacks_a_result() -> None:
    with pytest.raises(ArgumentError) as e:
        fx.trace(lambda a, i, b: ex.bind(pick(wrong=True), a, i, b), A, np.int32(0), B)
    assert e.value.message == (
        "pick: its layout does not fit: body 1 is a branch, and must return each of the 2 results once"
    )


# ------------------------------------------------------------------------------------- rules that return too few values


@final
@ex.primitive
class Both(ex.Linear):
    """(a, b) -> (a, b). The rule named `short` returns too few values."""

    name: ClassVar[str] = "both"
    short: str

    def abstract_eval(self, *avals: ex.Aval) -> tuple[ex.Aval, ...]:
        return avals

    def impl(self, *args: ex.NDArray) -> tuple[ex.NDArray, ...]:
        return args[: self.kept("impl")]

    def kept(self, rule: str) -> int:
        return 1 if self.short == rule else 2

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        return args[: self.kept("lower")]

    def batch(self, ctx: ex.BatchCtx, args: ex.Atoms, dims: ex.Dims) -> tuple[tuple[ex.Atom, ...], ex.Dims]:
        return tuple(args[: self.kept("batch")]), dims[: self.kept("dims")]

    def jvp(
        self, ctx: ex.JvpCtx, primals: ex.Atoms, tangents: ex.Tangents
    ) -> tuple[tuple[ex.Atom, ...], tuple[ex.Tangent, ...]]:
        outs = ctx(self, *primals)
        return outs[: self.kept("results")], ctx.lin(self, *tangents)[: self.kept("jvp")]

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return True

    def transpose(self, ctx: ex.TransposeCtx, cts: ex.Cotangents, args: ex.Operands) -> tuple[ex.Atom | None, ...]:
        return tuple([ct.instantiate() if isinstance(ct, ex.Zero) else ct for ct in cts])[: self.kept("transpose")]


CORRECT = "correct the rule; testing.check_primitive checks the rules of a primitive"
SHORT: dict[str, tuple[Callable[[Callable[..., object]], object], str]] = {
    "jvp": (lambda f: fx.jvp(f, (X, X), (X, X)), "both: the rule `jvp` returns 1 tangents, not 2"),
    "results": (lambda f: fx.jvp(f, (X, X), (X, X)), "both: the rule `jvp` returns 1 results, not 2"),
    "transpose": (lambda f: fx.vjp(f, X, X)[1]((X, X)), "both: the rule `transpose` returns 1 cotangents, not 2"),
    "batch": (lambda f: fx.vmap(f)(X, X), "both: the rule `batch` returns 1 results, not 2"),
    "dims": (lambda f: fx.vmap(f)(X, X), "both: the rule `batch` returns 1 dims, not 2"),
}


@pytest.mark.parametrize("short", SHORT)
def test_a_rule_that_returns_too_few_values(short: str) -> None:
    apply, message = SHORT[short]
    with pytest.raises(fx.errors.TypecheckError) as e:
        apply(lambda a, b: ex.bind(Both(short), a, b))
    assert (e.value.message, e.value.remedy) == (message, CORRECT)
    assert "test_from_outside.py" in e.value.where


def test_bind_takes_an_object_of_a_class_of_primitives() -> None:
    wrong: list[object] = [3, Shifted]
    for prim in wrong:
        with pytest.raises(ArgumentError) as caught:
            ex.bind(prim, 1.0)  # type: ignore[arg-type]
        assert caught.value.message.startswith(f"bind: {'an int' if prim == 3 else 'an Abstract'} is not a primitive: ")
        assert caught.value.remedy == "give an object of a class of primitives"
