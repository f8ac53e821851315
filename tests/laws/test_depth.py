"""Deeply nested programs and bodies that are shared many times, under every transformation, every pass, printing and
pickling.

The programs are made by tracing one program inside the next. Counts of bytes, functions and equations show that no cost
grows faster than the program.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, transforms
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.errors import CompileError, DepthError, NotDifferentiableError, NotInvertibleError, ParameterError
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.text import parse
from fxad.transforms.ad.linear_rule import split_tangents
from fxad.transforms.mask.mask import mask
from fxad.transforms.memory.segments import in_segments

X: Final = np.float32(0.3)
Program = fx.Program[..., Any]
DEPTHS: Final = [1, 50, 700, pytest.param(3000, marks=pytest.mark.soak)]

remat: Any = fx.remat
_chains: dict[int, Program] = {}


def _minus(inner: Program, number: float) -> Callable[[Any], Any]:
    return lambda x: number - inner(x)


def _twice(inner: Program) -> Callable[[Any], Any]:
    return lambda x: inner(inner(x))


def _twice_both(inner: Program) -> Callable[[Any, Any], Any]:
    return lambda x, y: inner(*inner(x, y))


def _negative(inner: Program) -> Callable[[Any, Any], Any]:
    return lambda x, y: -inner(x, y)


def _sine_and_product(x: Any, y: Any) -> Any:
    return fnp.sin(x), x * y


def _sine_times(x: Any, y: Any) -> Any:
    return fnp.sin(x) * y


def chain(depth: int) -> Program:
    """sin in `depth - 1` functions, each of which negates the result of the one before and adds 0, 1 or 2 to it."""
    if depth not in _chains:
        p: Program = fx.trace(fnp.sin, X)
        for k in range(1, depth):
            p = fx.trace(_minus(p, float(k % 3)), X)
        _chains[depth] = p
    return _chains[depth]


def value(depth: int) -> Any:
    y = np.sin(X)
    for k in range(1, depth):
        y = np.float32(k % 3) - y
    return y


def sign(depth: int) -> int:
    return -1 if depth % 2 == 0 else 1


def doubling(depth: int, first: Callable[[Any], Any] = fnp.sin) -> Program:
    """Each function calls the one before twice: 2**depth calls of the first."""
    p: Program = fx.trace(first, X)
    for _ in range(depth):
        p = fx.trace(_twice(p), X)
    return p


# A transformation of a chain, its expected results at X by depth, and its arguments.
Case = tuple[Callable[[Any], Any], Callable[[int], Any], tuple[Any, ...]]
SAME: Final[dict[str, Callable[[Any], Any]]] = {
    "dce": fx.dce,
    "cse": fx.cse,
    "simplify": fx.simplify,
    "inline": fx.inline,
    "outline": fx.outline,
    "reroll": fx.reroll,
    "remat": fx.remat,
    "remat plan": lambda p: remat(p, plan=fx.residuals(p)),
    "partial_eval": lambda p: fx.partial_eval(p, (True,)).known,
    "parse": lambda p: p.replace(parse(str(p.jaxpr))),
    "pickle": lambda p: pickle.loads(pickle.dumps(p)),
}
CASES: Final[dict[str, Case]] = {
    **{name: (made, value, (X,)) for name, made in SAME.items()},
    "jvp": (fx.jvp, lambda n: (value(n), sign(n) * np.cos(X) * 2), ((X,), (np.float32(2),))),
    "vjp": (fx.vjp, lambda n: (value(n), (sign(n) * np.cos(X) * 2,)), ((X,), np.float32(2))),
    "grad": (fx.grad, lambda n: sign(n) * np.cos(X), (X,)),
    "grad of remat": (lambda p: fx.grad(fx.remat(p)), lambda n: sign(n) * np.cos(X), (X,)),
    "value_and_grad": (fx.value_and_grad, lambda n: (value(n), sign(n) * np.cos(X)), (X,)),
    "jacfwd": (fx.jacfwd, lambda n: sign(n) * np.cos(X), (X,)),
    "jacrev": (fx.jacrev, lambda n: sign(n) * np.cos(X), (X,)),
    "hessian": (fx.hessian, lambda n: -sign(n) * np.sin(X), (X,)),
    "vmap": (lambda p: fx.vmap(p, axis_size=2), lambda n: np.stack([value(n)] * 2), (np.stack([X, X]),)),
    "linearize": (lambda p: fx.linearize(p).primal, lambda n: (value(n), [np.cos(X)]), (X,)),
    "transpose": (
        lambda p: fx.transpose(fx.linearize(p).linear, argnums=0),
        lambda n: sign(n) * np.cos(X) * 2,
        (np.float32(2), (np.cos(X),)),
    ),
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", CASES)
def test_a_transformation_of_nested_functions(name: str, depth: int) -> None:
    made, expected, args = CASES[name]
    out = made(chain(depth))
    typecheck(out.jaxpr)
    found, wanted = fx.tree.leaves(fx.interpret(out, *args)), fx.tree.leaves(expected(depth))
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def _doubled(x: Any) -> Any:
    return 2 * x + 1


def _invertible_chain(depth: int) -> Program:
    """2x + 1, and `depth - 1` functions around it, each of which subtracts its result from 0, 1 or 2."""
    p: Program = fx.trace(_doubled, X)
    for k in range(1, depth):
        p = fx.trace(_minus(p, float(k % 3)), X)
    return p


@pytest.mark.parametrize("depth", DEPTHS)
def test_inverses_of_nested_functions(depth: int) -> None:
    p = _invertible_chain(depth)
    out = fx.interpret(p, X)
    np.testing.assert_allclose(fx.interpret(fx.inverse(p), out), X, rtol=1e-4)
    gradient = fx.grad(fx.invertible(p))
    typecheck(gradient.jaxpr)
    np.testing.assert_allclose(fx.interpret(gradient, X), 2 * sign(depth), rtol=1e-4)


def _rule_with_loop(x: Any, dot: Any) -> Any:
    """The sine, with a rule whose tangent a loop without a bound computes."""
    slope = fnp.cos(x)
    return fnp.sin(x), lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, slope * s[1]), (0, dot))[1]


def _minus_both(inner: Program, number: float) -> Callable[[Any, Any], Any]:
    def f(x: Any, dot: Any) -> Any:
        y, y_dot = inner(x, dot)
        return number - y, -y_dot

    return f


@pytest.mark.parametrize("depth", DEPTHS)
def test_rules_with_an_unbounded_loop_in_nested_functions(depth: int) -> None:
    rule: Program = fx.trace(_rule_with_loop, X, X)
    for k in range(1, depth):
        rule = fx.trace(_minus_both(rule, float(k % 3)), X, X)
    forward, push = split_tangents(rule.jaxpr, 1, 1, "rule")
    typecheck(forward)
    typecheck(push)
    y, *residuals = run(forward, [np.asarray(X)])
    np.testing.assert_allclose(np.asarray(y, float), value(depth), rtol=1e-4, atol=1e-5)
    (dot,) = run(push, [np.asarray(2, "float32"), *residuals])
    np.testing.assert_allclose(np.asarray(dot, float), sign(depth) * np.cos(X) * 2, rtol=1e-4)


@pytest.mark.parametrize("depth", DEPTHS)
def test_masks_of_nested_functions(depth: int) -> None:
    p: Program = fx.trace(fnp.sin, fx.Spec("n"))
    for k in range(1, depth):
        p = fx.trace(_minus(p, float(k % 3)), fx.Spec("n"))

    def summed(x: Any) -> Any:
        return p(x).sum()

    gradient = fx.grad(fx.trace(summed, fx.Spec("n")))
    for program, at_x in ((p, value(depth)), (gradient, sign(depth) * np.cos(X))):
        masked = mask(program.jaxpr, (("n", 3),))
        typecheck(masked)
        (found,) = run(masked, [np.array([X, X, np.nan], "float32"), np.asarray(2, "int32")])
        np.testing.assert_allclose(np.asarray(found)[:2], at_x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", DEPTHS)
def test_digests_files_diffs_and_errors_of_nested_functions(depth: int, tmp_path: Path) -> None:
    p = chain(depth)
    assert p.jaxpr.effects == frozenset()
    assert len(p.jaxpr.digest) == 64
    fx.save(p, tmp_path / "chain")
    assert fx.load(tmp_path / "chain").jaxpr is p.jaxpr
    again = fx.trace(lambda x: p(x), X)
    assert fx.diff(p, p) is None
    assert fx.diff(again, p) is not None
    assert len(fx.residuals(p)) == 1
    lowered = fx.lower(p)
    assert lowered.text().count("func.func") == depth
    assert "not held" in str(fx.cache.explain(again))
    if depth < 150:
        np.testing.assert_allclose(lowered.compile()(X), value(depth), rtol=1e-5)
    else:
        with pytest.raises(CompileError, match=f"^compile: bodies are nested {depth - 1} deep in <lambda>, and XLA"):
            lowered.compile()
        inlined: Any = fx.lower(fx.inline(p)).compile()
        np.testing.assert_allclose(inlined(X), value(depth), rtol=1e-5)


def test_pickled_bytes_are_linear_in_the_depth() -> None:
    """Regression: the size grew quadratically, to 1.3 MB for 700 functions."""
    one, two, four = [len(pickle.dumps(chain(n).jaxpr)) for n in (100, 200, 400)]
    assert four - two < 2.1 * (two - one)
    assert four < 60_000
    # the pickle of several programs contains their shared bodies once
    chains = [chain(n).jaxpr for n in (100, 200, 400)]
    assert len(pickle.dumps(chains)) < 1.1 * four
    assert pickle.loads(pickle.dumps(chains)) == chains


def test_every_kind_of_body_is_pickled() -> None:
    def f(x: Any) -> Any:
        x = lax.cond(x[0] > 0, lambda x: inner(x), lambda x: -x, x)
        x = lax.scan(lambda h, _: (inner(h), None), x, None, 2)[0]
        return remat(inner)(lax.while_loop(lambda h: h[0] > 0.5, inner, x))

    inner = fx.trace(fnp.sin, fnp.ones(2, dtype="float32"))
    for p in (fx.trace(f, fnp.ones(2, dtype="float32")), *[nest(level, 3) for level in LEVELS.values()]):
        assert pickle.loads(pickle.dumps(p.jaxpr)) is p.jaxpr
        for body in distinct_jaxprs(p.jaxpr):
            for eqn, read in zip(body.eqns, pickle.loads(pickle.dumps(body.eqns)), strict=True):
                assert read == eqn
                assert read.source == pickle.loads(pickle.dumps(eqn)).source


# --------------------------------------------------------------------------------------------------------- doubling

SHARED: Final[dict[str, Callable[[Any], Any]]] = {
    **{k: f for k, f in SAME.items() if k not in ("inline", "remat plan")},
    "jvp": fx.jvp,
    "jacfwd": fx.jacfwd,
    "vmap": lambda p: fx.vmap(p, axis_size=2),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_transformation_of_2_40_calls_looks_at_40_functions(name: str) -> None:
    out = SHARED[name](doubling(40))
    typecheck(out.jaxpr)
    assert sum([len(body.eqns) for body in distinct_jaxprs(out.jaxpr)]) < 600


def _rematted(inner: Program) -> Callable[[Any], Any]:
    return lambda x: fnp.cos(remat(inner)(x))


def _rematted_twice(inner: Program) -> Callable[[Any], Any]:
    return lambda x: fnp.cos(remat(inner)(remat(inner)(x)))


@pytest.mark.parametrize(("around", "depth"), [(_rematted, 700), (_rematted_twice, 40)])
def test_segments_of_nested_recomputations(around: Callable[[Program], Callable[[Any], Any]], depth: int) -> None:
    """Regression: the bytes of a body were computed anew wherever it is used, and by recursion on one stack."""
    p: Program = fx.trace(fnp.sin, X)
    for _ in range(depth):
        p = fx.trace(around(p), X)
    found = in_segments(p.jaxpr, (True,))
    typecheck(found)
    assert len(distinct_jaxprs(found)) < 5 * depth


def test_reverse_mode_of_2_40_calls_that_store_nothing() -> None:
    p = doubling(40, lambda x: -x)
    derivatives: list[Any] = [fx.grad, fx.value_and_grad, fx.jacrev, fx.hessian, lambda p: fx.grad(fx.remat(p))]
    for made in derivatives:
        assert sum([len(body.eqns) for body in distinct_jaxprs(made(p).jaxpr)]) < 600
    assert len(fx.vjp(p).jaxpr.outs) == 2


def test_2_40_stored_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fxad.transforms.ad.linearize"], "MAX_RESIDUALS", 1000)
    with pytest.raises(NotDifferentiableError) as caught:
        fx.grad(doubling(40))
    assert caught.value.message == (
        "linearize: <lambda> is called so often that more than 1,000 values would have to be stored"
    )
    assert caught.value.remedy == (
        "put remat around what is called, loop over it with scan, or use forward mode (jvp, jacfwd)"
    )
    assert caught.value.equation.endswith("= call %0:f32[]")
    assert caught.value.where.startswith(__file__)


def test_2_40_calls_have_a_text_and_are_not_compiled(tmp_path: Path) -> None:
    p = doubling(40)
    assert p.jaxpr.effects == frozenset()
    assert str(p.jaxpr).count("= call") == 80
    assert len(pickle.dumps(p.jaxpr)) < 10_000
    fx.save(p, tmp_path / "doubling")
    assert fx.load(tmp_path / "doubling").jaxpr is p.jaxpr
    assert "not held" in str(fx.cache.explain(p))
    assert fx.lower(p).text().count("func.func") == 41
    with pytest.raises(CompileError) as caught:
        fx.lower(p).compile()
    assert caught.value.message == (
        "compile: <lambda> is 3,298,534,883,326 equations with its calls opened, as XLA does, and at most 16,777,216"
        " are compiled"
    )
    assert caught.value.remedy == "loop over a body that is called so often, with fxad.lax.scan or fori_loop"


def test_2_40_calls_are_not_inlined() -> None:
    with pytest.raises(ParameterError) as caught:
        fx.inline(doubling(40))
    assert caught.value.message == (
        "inline: <lambda> has 1,099,511,627,776 equations with its calls opened, more than 4,194,304"
    )
    assert caught.value.remedy == (
        "leave the calls: every transformation looks at a body once, however often it is called"
    )


def test_2_40_calls_with_known_and_unknown_operands_are_not_inlined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fxad.transforms.ad.partial_eval"], "MAX_EQUATIONS", 1000)
    p: Program = fx.trace(_sine_and_product, X, X)
    for _ in range(40):
        p = fx.trace(_twice_both(p), X, X)
    with pytest.raises(ParameterError) as caught:
        fx.partial_eval(p, (True, False))
    assert caught.value.message == (
        "partial_eval: <lambda> has more than 1,000 equations with those calls opened that have known arguments and"
        " others"
    )
    assert caught.value.remedy == "give what is called so often only known arguments, or only others"


def test_units_that_are_called_2_40_times_are_refused() -> None:
    p = doubling(40)
    first = distinct_jaxprs(p.jaxpr)[0]
    with pytest.raises(ParameterError) as caught:
        fx.lower(p, units=lambda body: body is first).compile()
    assert caught.value.message == (
        "lower: these units of <lambda> are called 1,099,511,627,776 times, and a plan has at most 1,048,576 steps"
    )
    assert caught.value.remedy == "choose bodies that are called less often and hold these, or units='auto'"


# ----------------------------------------------------------------------------------------------------- control flow


def _with_jvp(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return inner(x)

    f.defjvp(lambda primals, tangents: (inner(primals[0]), -tangents[0]))
    return lambda x: f(x * 1.5)


def _with_vjp(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return inner(x)

    f.defvjp(lambda x: (inner(x), x), lambda x, ct: (ct * x,))
    return lambda x: f(x * 1.5)


V: Final = np.full(2, 0.25, np.float32)
Level = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
LEVELS: Final[dict[str, Level]] = {
    "remat": lambda inner: lambda x: remat(inner)(x * 1.5),
    "scan": lambda inner: lambda x: lax.scan(lambda h, _: (inner(h * 1.5), None), x, None, 1)[0],
    "cond": lambda inner: lambda x: lax.cond(x[0] > 0, lambda x: inner(x * 1.5), lambda x: x, x),
    "while": lambda inner: lambda x: lax.while_loop(lambda h: h[0] > 0.5, lambda h: inner(h * 1.5), x),
    "custom_jvp": _with_jvp,
    "custom_vjp": _with_vjp,
}


def nest(level: Level, depth: int) -> Program:
    p: Program = fx.trace(fnp.sin, V)
    for _ in range(depth):
        p = fx.trace(level(p), V)
    return p


def total(p: Program) -> Program:
    return fx.trace(lambda x: p(x).sum(), V)


EVERY: Final[dict[str, Callable[[Any], Any]]] = {
    **{k: f for k, f in SAME.items() if k not in ("remat plan", "pickle", "parse")},
    "jvp": fx.jvp,
    "vmap": lambda p: fx.vmap(p, axis_size=2),
    "grad": lambda p: fx.grad(total(p)),
    "grad of remat": lambda p: fx.grad(fx.remat(total(p))),
}


@pytest.mark.parametrize("depth", [50, pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", LEVELS)
def test_nested_control_flow(kind: str, depth: int, tmp_path: Path) -> None:
    p = nest(LEVELS[kind], depth)
    expected = fx.interpret(p, V)
    for name, made in EVERY.items():
        if kind == "while" and "grad" in name:
            with pytest.raises(NotDifferentiableError, match=r"^while: "):
                made(p)
            continue
        out = made(p)
        typecheck(out.jaxpr)
        if name in SAME:
            np.testing.assert_array_equal(fx.tree.leaves(fx.interpret(out, V))[0], expected, err_msg=name)
    assert parse(str(p.jaxpr)) is p.jaxpr
    assert pickle.loads(pickle.dumps(p.jaxpr)) is p.jaxpr
    assert len(p.jaxpr.digest) == 64
    fx.save(p, tmp_path / "nest")
    assert fx.load(tmp_path / "nest").jaxpr is p.jaxpr
    assert fx.lower(p).text()
    assert "not held" in str(fx.cache.explain(p))
    if depth <= 50:
        run: Any = fx.lower(p, units="none").compile()
        np.testing.assert_allclose(run(V), expected, rtol=1e-5)


def test_deeply_nested_calls_with_known_and_unknown_operands() -> None:
    p: Program = fx.trace(_sine_times, X, X)
    for _ in range(1200):
        p = fx.trace(_negative(p), X, X)
    halves = fx.partial_eval(p, (True, False))
    assert [r.name for r in halves.residuals] == ["sin %0"]
    _, residuals = fx.interpret(halves.known, X)
    np.testing.assert_array_equal(fx.interpret(halves.unknown, residuals, X), np.sin(X) * X)


def test_residuals_of_nested_segments() -> None:
    p: Program = fx.trace(fnp.sin, X)
    for _ in range(1200):
        p = fx.trace(remat(p), X)
    (row,) = fx.residuals(p)
    assert row.made_by == "argument args[0]"
    assert row.read_by == "cos"


def test_the_equation_that_is_not_inverted_in_2_40_calls_is_named() -> None:
    with pytest.raises(NotInvertibleError, match="sin is not inverted") as caught:
        fx.inverse(doubling(40, lambda x: fnp.sin(x) * 1.0625))  # no other test has an equal program
    assert caught.value.where.startswith(__file__)


def bodies(p: Program) -> list[Jaxpr]:
    return [*distinct_jaxprs(p.jaxpr)]


def test_transforms_of_jaxprs_too() -> None:
    """Transformations of jaxprs that have no function in the public interface."""
    p = chain(700)
    both = transforms.linearize(p.jaxpr, (True,))
    assert len(bodies(p)) == 700
    assert len(distinct_jaxprs(both.primal)) == len(distinct_jaxprs(both.linear)) == 700


@pytest.mark.parametrize("wrap", [fx.jit, remat, lambda f: lambda x: fx.grad(f)(x) + x])
@pytest.mark.parametrize("run", [fx.grad, lambda f: f, lambda f: lambda x: fx.trace(f, x), fx.vmap])
def test_functions_traced_inside_of_each_other_beyond_the_recursion_limit(wrap: Any, run: Any) -> None:
    f: Any = fnp.sin
    for _ in range(300):
        f = wrap(lambda x, f=f: f(x))
    with pytest.raises(DepthError) as caught:
        run(f)(X if run is not fx.vmap else np.stack([X, X]))
    message = r"trace of .*<lambda>: \d+ functions are traced inside of each other, and Python allows \d+ frames"
    assert re.fullmatch(message, caught.value.message)
    assert caught.value.remedy == (
        "trace the inner functions first: fx.trace(f, x) is a program, and programs call each other at any depth; or"
        " loop over one function with lax.scan"
    )
    assert "test_depth.py" in caught.value.where
    assert len(fx.trace(lambda x: x + 1.0, X).jaxpr.eqns) == 1  # no trace is active


def test_endless_recursion_of_the_user_stays_a_recursion_error() -> None:
    def endless(x: Any) -> Any:
        return endless(x) + 1.0

    with pytest.raises(RecursionError) as caught:
        fx.trace(endless, X)
    assert not isinstance(caught.value, DepthError)
