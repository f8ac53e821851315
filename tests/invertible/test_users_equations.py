"""The equation that an error names is an equation of the user's program, at the user's line."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import FxadError, NotDifferentiableError, NotInvertibleError, ShapeError
from fxad.ir import Eqn, HigherOrder, Jaxpr, source_location
from fxad.primitives.elementwise.exponential import Exp
from fxad.scipy.linalg import solve_triangular
from fxad.testing.inverse_state import HeldArrays, Move
from fxad.testing.inverse_steps import run_steps
from fxad.testing.inversions import moves
from fxad.tracing.trace import trace
from fxad.transforms.inversion.inverse import inverse
from fxad.transforms.inversion.invertible import invertible
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.rules.contract import Args, InverseCtx, InverseTable, Outs, Solved, row
from fxad.transforms.locate import body_label, describe

X = np.array([0.5, 1.25, 2.0])
W = np.array([1.5, 0.5, 0.75])


def bodies_at(program: Jaxpr, inside: tuple[str, ...]) -> list[Jaxpr]:
    """Returns the bodies at the end of a path."""
    if not inside:
        return [program]
    entered = [(e, b) for e in program.eqns if isinstance(e.prim, HigherOrder) for b in e.prim.bodies]
    return [found for e, b in entered if body_label(e, b) == inside[0] for found in bodies_at(b, inside[1:])]


def the_equation(program: Jaxpr, e: FxadError) -> Eqn:
    """Returns the equation that an error names. It is in the program, and its source line is the one in the error."""
    found = [eqn for body in bodies_at(program, e.inside) for eqn in body.eqns if describe(eqn) == e.equation]
    assert found, f"no {e.equation} inside {e.inside} of\n{program}"
    assert e.where in {str(source_location(eqn.source) or "") for eqn in found}
    assert re.search(rf"(^|: ){found[0].prim.name}( is not inverted|: .* has no derivative)", e.message)
    return found[0]


def repeated(x: Any, w: Any) -> Any:
    """An unused equation and a duplicate one come before the equation that is not inverted."""
    _ = w * 3
    return fnp.sin(fnp.exp(x) * w + fnp.exp(x) * w)


def called(x: Any, w: Any) -> Any:
    return fx.jit(repeated)(fnp.exp(x), w) * 2


def looped(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, r: (called(c - r, w), None), x, fnp.stack([w, w]))[0]


def branched(x: Any, w: Any) -> Any:
    return lax.cond(w[0] > 0, lambda x: x * 2, lambda x: fnp.cos(fnp.exp(x + w) + fnp.exp(x + w)), x)


def recomputed(x: Any, w: Any) -> Any:
    return fx.remat(lambda x: fnp.exp(fnp.abs(x - w) + (x - w)))(x)


def chosen(x: Any, w: Any) -> Any:
    """A call that is inlined, because its result is selected by a mask."""
    _ = w - 1
    return fnp.where(w > 1, w, fx.jit(lambda x: fnp.abs(x * 2))(x))


def twice_in_one(x: Any, w: Any) -> Any:
    return (fnp.tanh(x) - fnp.tanh(x + w)) * w


def unrolled(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = fnp.sinh(x) + w
        x = fnp.square(x)
    return x


def wrapped(x: Any, w: Any) -> Any:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.exp(x) + fnp.cos(x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * primals[0]))
    return f(w * x + 1.0) * 2


EXPECTED: list[tuple[Any, str, tuple[str, ...]]] = [
    (repeated, "%6:f64[3] = sin %5:f64[3]", ()),
    (called, "%6:f64[3] = sin %5:f64[3]", ("call of repeated",)),
    (looped, "%6:f64[3] = sin %5:f64[3]", ("scan of <lambda>", "call of repeated")),
    (branched, "%5:f64[3] = cos %4:f64[3]", ("branch 0 of cond",)),
    (recomputed, "%3:f64[3] = add %1:f64[3] %2:f64[3]", ("remat of <lambda>",)),
    (chosen, "%1:f64[3] = abs %0:f64[3]", ("call of <lambda>",)),
    (twice_in_one, "%3:f64[3] = sub %0:f64[3] %2:f64[3]", ()),
    (unrolled, "%8:f64[3] = square %7:f64[3]", ()),
    (wrapped, "%2:f64[3] = add %0:f64[3] %1:f64[3]", ("call of f",)),
]


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(("f", "equation", "inside"), EXPECTED, ids=lambda f: getattr(f, "__name__", ""))
def test_the_equation_is_one_of_the_program(f: Any, equation: str, inside: tuple[str, ...]) -> None:
    program = fx.trace(f, X, W)
    both: tuple[tuple[Any, Any], ...] = ((fx.inverse, {}), (fx.invertible, {"keep": "w"}))
    for transform, options in both:
        with pytest.raises(NotInvertibleError) as e:
            transform(program, **options)
        the_equation(program.jaxpr, e.value)
        assert (e.value.equation, e.value.inside) == (equation, inside)


@pytest.mark.usefixtures("nothing_remembered")
def test_how_the_path_is_printed() -> None:
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(looped, X, W))
    assert "\n  inside        scan of <lambda>, call of repeated\n  traced at     " in str(e.value)


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize("f", [lambda x, w: fnp.exp(x), lambda x, w: fnp.where(w > 1, w, fnp.exp(x))])
def test_an_error_of_a_rule_names_the_equation(f: Any) -> None:
    """Also if only the elements that a mask selects are inverted."""

    def wrong(ctx: InverseCtx, prim: Exp, args: Args, outs: Outs) -> Solved:
        raise ShapeError("a rule with a fault", remedy="correct it")

    rules = InverseTable(MappingProxyType({**INVERSE_RULES.rows, Exp: row(Exp, wrong)}))
    with pytest.raises(ShapeError) as e:
        inverse(fx.trace(f, X, W).jaxpr, (True, False), rules=rules)
    assert "= exp %arg0" in e.value.equation
    assert e.value.where.endswith("in <lambda>")


@pytest.mark.parametrize(
    ("f", "avals", "name"),
    [
        (lambda a, x: a @ x, ("3, 3", "3, n"), "dot_general"),
        (lambda a, x: solve_triangular(a, x), ("3, 3", "3, n"), "triangular_solve"),
    ],
)
def test_a_log_determinant_that_needs_the_sizes(f: Any, avals: tuple[str, str], name: str) -> None:
    program = fx.trace(f, *[fx.Spec(shape, "float32") for shape in avals])
    assert fx.inverse(program, 1)
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(program, 1, log_det=True)
    start = f"inverse: log_det of <lambda>: {name} is not inverted: its log-determinant needs the sizes: "
    assert e.value.message.startswith(start)
    assert f"= {name} " in e.value.equation
    assert e.value.where


def test_the_equation_without_a_log_determinant() -> None:
    scaled = fx.custom_inverse(lambda a: a * fnp.cosh(a), lambda y: y)

    def f(a: Any, w: Any) -> Any:
        _ = w * 3
        return fx.jit(lambda a: scaled(a * 2.0))(a)

    program = fx.trace(f, np.eye(3), W)
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(program, log_det=True)
    the_equation(program.jaxpr, e.value)
    assert e.value.equation == "%1:f64[3,3] = call %0:f64[3,3]"
    assert e.value.inside == ("call of <lambda>",)


def measured(v: Any) -> Any:
    """A host function has no derivative."""
    return fx.pure_callback(np.cos, fx.Spec(v.shape, v.dtype), v)


def beside(x: Any, w: Any) -> Any:
    _ = w * 3
    return fnp.arcsinh(x + fnp.sin(w) + fnp.sin(w)) + measured(w * 2)


def beside_in_all(x: Any, w: Any) -> Any:
    def again(c: Any) -> Any:
        inner: Any = fx.jit(beside)
        return inner(c, w)

    def step(c: Any, r: Any) -> tuple[Any, None]:
        return lax.cond(r[0] > 0, fx.remat(again), lambda c: c * 2, c), None

    return lax.scan(step, x * w, fnp.stack([w, w]))[0]


def in_a_rule(x: Any, w: Any) -> Any:
    _ = w * 3

    def back(y: Any, ct: Any) -> Any:
        return fnp.sinh(y), (ct * fnp.cosh(y),)

    function: Any = fx.custom_ivjp(fnp.arcsinh, back)
    return function(x) - beside(x * 0.0 + w, w)


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    ("f", "equation", "inside"),
    [
        (beside, "%7:f64[3] = host_call %arg0:u64[] %6:f64[3]", ()),
        (
            beside_in_all,
            "%7:f64[3] = host_call %arg0:u64[] %6:f64[3]",
            ("scan of step", "branch 1 of cond", "remat of again", "call of beside"),
        ),
        (in_a_rule, "%11:f64[3] = host_call %arg0:u64[] %10:f64[3]", ()),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_an_equation_without_a_derivative(f: Any, equation: str, inside: tuple[str, ...]) -> None:
    """The name is that in the program, and not that in the normal form for inversion."""
    program = fx.trace(f, X, W)
    with pytest.raises(NotDifferentiableError) as e:
        fx.invertible(program)
    assert the_equation(program.jaxpr, e.value).prim.name == "host_call"
    assert (e.value.equation, e.value.inside) == (equation, inside)
    assert e.value.where.endswith("in measured")
    assert e.value.remedy.startswith("give it one with custom_jvp")


@given(moves(depth=2, size=3, steady=True), st.integers(0, 1 << 20))
def test_generated(chain: tuple[Move, ...], seed: int) -> None:
    """An equation that is not invertible, somewhere in a generated program, is named."""
    rng = np.random.default_rng(seed)
    args = (*rng.uniform(-1.5, 1.5, (2, 3)), rng.uniform(-1.5, 1.5, (3, 3)), np.asarray(True))

    def f(x: Any, w: Any, a: Any, flag: Any) -> Any:
        held = HeldArrays(w, a, flag)
        (x,) = run_steps(chain[:1], (x,), held)
        return run_steps(chain[1:], (fx.jit(lambda x: fnp.sin(fnp.exp(x) + fnp.exp(x)))(x) * 2,), held)

    program = trace(f, *args).jaxpr
    kept = (*(True,) * (len(program.ins) - 4), False, True, True, True)
    both: tuple[tuple[Any, Any], ...] = ((inverse, tuple([not k for k in kept])), (invertible, kept))
    for transform, marks in both:
        with pytest.raises(NotInvertibleError) as e:
            transform(program, marks)
        assert the_equation(program, e.value).prim.name == "sin"


@given(moves(depth=2, size=3, steady=True), st.booleans())
def test_generated_without_a_derivative(chain: tuple[Move, ...], called: bool) -> None:
    """An equation without a derivative, somewhere in a generated program, is named."""
    args = (X, W, np.outer(X, W), np.asarray(True))

    def f(x: Any, w: Any, a: Any, flag: Any) -> Any:
        def by(x: Any, w: Any) -> Any:
            return x + measured(w * 2.0) + fnp.sin(w) * fnp.sin(w)

        start: Any = fx.jit(by) if called else by
        return run_steps(chain, (start(x, w),), HeldArrays(w, a, flag))

    program = trace(f, *args).jaxpr
    kept = (*(True,) * (len(program.ins) - 4), False, False, True, True)
    with pytest.raises(NotDifferentiableError) as e:
        invertible(program, kept)
    assert the_equation(program, e.value).prim.name == "host_call"
