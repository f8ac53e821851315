"""A transformation of a user's own, interval arithmetic, and functions that state rules for it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import extend
from fxad.errors import ArgumentError, FxadError, ParameterError, ShapeError, TreeError
from fxad.extend import Atom, Builder, DeclaredProgram, Jaxpr, Lit, TransformRule, by_value
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Function, Rules
from fxad.primitives.elementwise import Add, Exp, Neg
from fxad.text import parse

X = np.array([-2.0, 0.5, 3.0])


@by_value
def bounds(jaxpr: Jaxpr) -> Jaxpr:
    """Lower bounds of the operands, then upper ones -> those of the results. Rounding is left out.

    Elementwise functions that do not decrease are applied to both bounds; a function states its own rule.
    """
    b = Builder()
    lows, highs = b.inputs(jaxpr.in_avals), b.inputs(jaxpr.in_avals)
    low: dict[Atom, Atom] = dict(zip(jaxpr.ins, lows, strict=True))
    high: dict[Atom, Atom] = dict(zip(jaxpr.ins, highs, strict=True))
    for eqn in jaxpr.eqns:
        a, z = [[env.get(x, x) for x in eqn.ins] for env in (low, high)]
        rule = extend.rule_for(eqn.prim, "bounds")
        if rule is not None:
            if rule.error:
                raise ArgumentError(f"bounds: {rule.error}", remedy=rule.remedy)
            (program,) = rule.programs
            # an operand that the rule takes twice: first its lower bound, then its upper one; of results likewise
            ins = [z[k] if k in program.takes[:i] else a[k] for i, k in enumerate(program.takes)]
            for i, (k, out) in enumerate(zip(program.gives, b.inline(program.jaxpr, ins), strict=True)):
                (high if k in program.gives[:i] else low)[eqn.outs[k - len(eqn.ins)]] = out
        elif isinstance(eqn.prim, Add | Exp):
            low.update(zip(eqn.outs, b(eqn.prim, *a), strict=True))
            high.update(zip(eqn.outs, b(eqn.prim, *z), strict=True))
        elif isinstance(eqn.prim, Neg):
            low.update(zip(eqn.outs, b(eqn.prim, *z), strict=True))
            high.update(zip(eqn.outs, b(eqn.prim, *a), strict=True))
        else:
            raise ArgumentError(f"bounds: {eqn.prim.name} has no rule", remedy="give the function a rule")
    outs = [env.get(x, x) for env in (low, high) for x in jaxpr.outs]
    return b.build(outs, f"bounds_{jaxpr.name}")


def square_bounds(low: Any, high: Any) -> Any:
    (a,), (z,) = low, high
    most = fnp.maximum(a * a, z * z)
    return fnp.where((a < 0) & (z > 0), 0.0, fnp.minimum(a * a, z * z)), most


def squared() -> Any:
    return extend.custom_rule(lambda x: x * x, "bounds", square_bounds, copies=2)


def run(jaxpr: Jaxpr, *args: Any) -> list[Any]:
    return [np.asarray(x) for x in extend.call(jaxpr, *[fnp.asarray(a) for a in args])]


def test_a_transformation_uses_the_rule() -> None:
    square = squared()
    assert square.rules == ("bounds",)
    program = fx.trace(lambda x: -square(x + 1.0) + fnp.exp(x), X).jaxpr
    low, high = run(bounds(program), X - 0.5, X + 0.5)
    exact = [-((x + 1) ** 2) + np.exp(x) for x in (X - 0.5, X, X + 0.5)]
    assert all([np.all((low <= y) & (y <= high)) for y in exact])
    a, z = X + 0.5, X + 1.5
    np.testing.assert_allclose(high, -np.where(a * z < 0, 0.0, np.minimum(a * a, z * z)) + np.exp(X + 0.5))
    with pytest.raises(ArgumentError, match="bounds: mul has no rule"):
        bounds(fx.trace(lambda x: x * x, X).jaxpr)


def test_the_rule_is_part_of_the_value_of_the_program(tmp_path: Path) -> None:
    square = squared()
    program = fx.trace(square, X).jaxpr
    plain = fx.trace(extend.custom_rule(lambda x: x * x, "other", square_bounds, copies=2), X).jaxpr
    assert fx.trace(squared(), X).jaxpr is program
    assert len({program, plain}) == 2
    assert program.digest != plain.digest
    assert parse(str(program)) is program
    assert pickle.loads(pickle.dumps(program)) is program
    assert 'transformation="bounds"' in str(program)
    path = tmp_path / "square.fxad"
    fx.save(fx.trace(square, X), path)
    loaded = fx.load(path)
    assert loaded.jaxpr is program
    (eqn,) = program.eqns
    rule = extend.rule_for(eqn.prim, "bounds")
    assert rule is not None
    assert hash(rule) == hash(extend.rule_for(eqn.prim, "bounds"))
    with pytest.raises(AttributeError):
        rule.whole = True  # type: ignore[misc]  # what is tested
    assert extend.rule_for(eqn.prim, "other") is None
    assert extend.rule_for(fx.trace(fnp.exp, X).jaxpr.eqns[0].prim, "bounds") is None


def test_the_rule_composes() -> None:
    square, stack = squared(), np.stack([X, -X, 2 * X])
    np.testing.assert_allclose(fx.vmap(square)(stack), stack**2)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(square(x)))(X), 2 * X)
    np.testing.assert_allclose(fx.jit(fx.vmap(fx.grad(square)))(X), 2 * X)
    # batching the rule and the transformed program are the same
    program = fx.trace(square, X).jaxpr
    over = fx.inline(fx.trace(fx.vmap(square), stack)).jaxpr
    alone = [run(bounds(program), x - 0.5, x + 0.5) for x in stack]
    together = run(bounds(over), stack - 0.5, stack + 0.5)
    np.testing.assert_allclose(together, [np.stack(rows) for rows in zip(*alone, strict=True)])


def test_a_rule_loses_unused_results_and_operands() -> None:
    def both(x: Any, y: Any) -> Any:
        return x * x, y + 1.0

    def rule(low: Any, high: Any) -> Any:
        (a, c), (z, d) = low, high
        x_low, x_high = square_bounds((a,), (z,))
        return (x_low, c + 1.0), (x_high, d + 1.0)

    f = extend.custom_rule(both, "bounds", rule, copies=2)
    program = fx.dce(fx.trace(lambda x, y: f(x, y)[0], X, X)).jaxpr
    (eqn,) = program.eqns
    assert (len(eqn.ins), len(eqn.outs)) == (1, 1)
    found = extend.rule_for(eqn.prim, "bounds")
    assert found is not None
    assert [(p.takes, p.gives) for p in found.programs] == [((0, 0), (1, 1))]
    low, high = run(bounds(program), X - 0.5, X, X + 0.5, X)
    assert np.all((low <= X**2) & (high >= X**2))
    second = fx.dce(fx.trace(lambda x, y: f(x, y)[1], X, X)).jaxpr
    (eqn,) = second.eqns
    found = extend.rule_for(eqn.prim, "bounds")
    assert found is not None
    assert [(p.takes, p.gives) for p in found.programs] == [((0, 0), (1, 1))]
    assert parse(str(second)) is second


def test_rules_of_several_transformations() -> None:
    f = fx.custom_inverse(extend.custom_rule(lambda x: x + x, "bounds", lambda a, z: (2 * a[0], 2 * z[0]), copies=2))
    f.definverse(lambda y: y / 2)
    f.defjvp(lambda primals, tangents: (2 * primals[0], 2 * tangents[0]))
    assert f.rules == ("jvp", "bounds", "inverse")
    np.testing.assert_allclose(fx.inverse(f)(X), X / 2)
    low, high = run(bounds(fx.trace(f, X).jaxpr), X - 1, X + 1)
    np.testing.assert_allclose(low, 2 * X - 2)
    np.testing.assert_allclose(high, 2 * X + 2)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(f(x)))(X), [2, 2, 2])
    # a new rule takes the place of the old one
    extend.custom_rule(f, "bounds", lambda a, z: (a[0], z[0]), copies=2)
    np.testing.assert_allclose(run(bounds(fx.trace(f, X).jaxpr), X, X)[0], X)


def test_a_rule_that_closes_over_a_value_and_calls_its_function() -> None:
    weight = fnp.asarray(X)

    def rule(low: Any, high: Any) -> Any:
        return scaled(*low), scaled(*high) + 0.0 * weight

    scaled = extend.custom_rule(lambda x: x + weight, "bounds", rule, copies=2)
    program = fx.trace(scaled, X)
    # the rule calls its function: the named call in it became a call of the function
    (eqn,) = program.jaxpr.eqns
    found = extend.rule_for(eqn.prim, "bounds")
    assert found is not None
    inner = [e.prim.name for e in found.programs[0].jaxpr.eqns]
    assert inner.count("call_with_rules") == 2
    assert "named_call" not in inner


def test_a_rule_that_raises_is_an_error_of_its_use() -> None:
    def rule(low: Any, high: Any) -> Any:
        raise ValueError("no bounds")

    f = extend.custom_rule(lambda x: x * x, "bounds", rule, copies=2)
    np.testing.assert_allclose(fx.jit(f)(X), X**2)
    with pytest.raises(ArgumentError) as e:
        bounds(fx.trace(f, X).jaxpr)
    assert e.value.message == "bounds: rule for bounds of <lambda>: rule raised ValueError: no bounds"
    assert e.value.remedy == "give a rule that covers this case"


def with_rule(rule: Any, copies: int = 1) -> Any:
    return lambda: fx.trace(extend.custom_rule(fnp.exp, "bounds", rule, copies=copies), X)


REFUSED: list[tuple[Any, type[FxadError], str, str]] = [
    (
        lambda: extend.custom_rule(fnp.exp, "fxad.inverse", fnp.exp),
        ArgumentError,
        "custom_rule of exp: the name of the transformation is a str: 'fxad.inverse'",
        'give identifiers with dots between them, and not in "fxad.": "bounds"',
    ),
    (
        lambda: extend.custom_rule(fnp.exp, 3, fnp.exp),  # type: ignore[arg-type]  # what is tested
        ArgumentError,
        "custom_rule of exp: the name of the transformation is an int: 3",
        'give identifiers with dots between them, and not in "fxad.": "bounds"',
    ),
    (
        lambda: extend.custom_rule(fnp.exp, "bounds", fnp.exp, copies=0),
        ParameterError,
        "custom_rule of exp: copies is 0, less than 1",
        "give an int from 1 on",
    ),
    (
        with_rule(lambda x: x[0]),
        TreeError,
        "rule for bounds of exp: <lambda> returns *, not a tuple of 1 results",
        "return the results once for each tuple of arguments",
    ),
    (
        with_rule(lambda low, high: low, 2),
        TreeError,
        "rule for bounds of exp: <lambda> returns (*,), not a tuple of 2 results",
        "return the results once for each tuple of arguments",
    ),
    (
        with_rule(lambda x: (x[0][:2],)),
        ShapeError,
        "rule for bounds of exp: <lambda> returns f64[2] for result, which is f64[3]",
        "return f64[3] there",
    ),
    (
        with_rule(lambda: 0),
        ArgumentError,
        "rule for bounds of exp: <lambda>: too many positional arguments",
        "it is called with (arguments 0), its signature is <lambda>()",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), REFUSED, ids=range(len(REFUSED)))
def test_a_rule_that_does_not_fit_is_refused(call: Any, kind: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(kind) as e:
        call()
    assert (e.value.message, e.value.remedy) == (message, remedy)


def unary() -> Jaxpr:
    return fx.trace(fnp.exp, X).jaxpr


@pytest.mark.parametrize(
    ("further", "message", "remedy"),
    [
        (
            (TransformRule("a", (DeclaredProgram("p", unary(), (2,), (1,)),)),),
            "call_with_rules: p of the rule for a takes value 2, the call has 1 operands and 1 results",
            "number the operands from 0, then the results",
        ),
        (
            (TransformRule("a", (DeclaredProgram("p", unary(), (0,), (-1,)),)),),
            "call_with_rules: p of the rule for a gives value -1, the call has 1 operands and 1 results",
            "number the operands from 0, then the results",
        ),
        (
            (TransformRule("a", (DeclaredProgram("p", unary(), (0,), (1,), 2),)),),
            "call_with_rules: p of the rule for a gives 2 cotangents among 1 values",
            "count the cotangents, which come last",
        ),
        (
            (TransformRule("a", (DeclaredProgram("p", unary(), (1,), (0,)),)),),
            "call_with_rules: p of the rule for a takes a result or gives an operand, and the rule is not `whole`",
            "mark the rule as whole: it is then dropped with the first unused result",
        ),
        (
            (TransformRule("a"), TransformRule("b"), TransformRule("a")),
            "call_with_rules: exp has several rules for one transformation: a, b, a",
            "give one rule for each transformation, with all its programs",
        ),
    ],
)
def test_records_that_do_not_fit(further: tuple[TransformRule, ...], message: str, remedy: str) -> None:
    call = CallWithRules(Function(unary(), rules=Rules(further=further)))
    with pytest.raises(ParameterError) as e:
        call.abstract_eval(*unary().in_avals)
    assert (e.value.message, e.value.remedy) == (message, remedy)


def test_settings_are_values_of_a_program() -> None:
    settings = (Lit.of(0.5, unary().in_avals[0].with_shape(())), unary().in_avals[0], 3, True, "text", None)
    rule = TransformRule("a.b", settings=settings)
    call = CallWithRules(Function(unary(), rules=Rules(further=(rule,))))
    b = Builder()
    program = b.build(b(call, *b.inputs(unary().in_avals)), "f")
    assert parse(str(program)) is program
    assert rule.settings == settings
    assert extend.rule_for(program.eqns[0].prim, "a.b") == rule
