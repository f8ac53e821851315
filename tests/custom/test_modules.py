"""Modules of functions with rules: values with canonical numbering, whose rules call each other."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, transforms
from fxad.core.builder import Builder
from fxad.core.layout import Layout
from fxad.core.printing import labels
from fxad.core.typecheck import typecheck
from fxad.errors import ArgumentError, ParseError
from fxad.ir import (
    Aval,
    BatchCtx,
    Jaxpr,
    JvpCtx,
    Primitive,
    Record,
    distinct_jaxprs,
    jaxprs_in_params,
    primitive,
    record,
)
from fxad.primitives.control.call import Applied, Call, layout_with_rules
from fxad.primitives.custom import CallWithRules, module_call
from fxad.primitives.custom_rules import Derivative, Function, Rules
from fxad.primitives.elementwise import COS, SIN
from fxad.primitives.named_calls import NamedCall, called_functions
from fxad.text.parser import PRIMITIVES
from fxad.transforms.vmap import over_stack, vmap as vmap_jaxpr
from tests.custom.test_rule_recursion import X, Y, along_ones, circular, exponential, ruled, summed

Fun = Callable[..., Any]


def calls(jaxpr: Jaxpr) -> list[CallWithRules]:
    return [e.prim for j in distinct_jaxprs(jaxpr) for e in j.eqns if isinstance(e.prim, CallWithRules)]


def test_numbers_of_functions_are_canonical() -> None:
    """The derivative of the sine calls the same function as a trace of the cosine. Functions are numbered by first
    reference."""
    sin, cos = circular()
    sine, cosine = [fx.trace(f, X) for f in (sin, cos)]
    (of_sine,), (of_cosine,) = calls(sine.jaxpr), calls(cosine.jaxpr)
    slope = fx.trace(lambda x: fx.jvp(sin, (x,), (x,)), X)
    assert of_cosine in calls(slope.jaxpr)
    assert of_sine in calls(slope.jaxpr)
    for prim in (of_sine, of_cosine):
        (rule,) = prim.module[0].rules.derivatives
        assert called_functions(rule.forward)[0] == 0
    other, _ = circular()
    assert fx.trace(other, X).jaxpr is sine.jaxpr


def a_module(order: tuple[int, int]) -> CallWithRules:
    """Returns a module of sin and cos, whose derivatives are each other. `order` gives their numbers."""
    aval = Aval((3,), "float64")

    def program(*prims: Any) -> Jaxpr:
        b = Builder()
        x = b.input(aval)
        return b.build([b.one(prim, x) for prim in prims])

    b = Builder()
    push = b.build(b.inputs([aval])[:1], "push")
    sin, cos = [program(prim) for prim in (SIN, COS)]
    functions = {
        order[0]: Function(sin, 0, Rules(jvp=(Derivative((True,), program(NamedCall(cos, order[1])), push),))),
        order[1]: Function(cos, 0, Rules(jvp=(Derivative((True,), program(NamedCall(sin, order[0])), push),))),
        99: Function(sin),
    }
    return module_call(functions, order[0], over_stack)


def test_modules_that_differ_in_names_are_equal() -> None:
    first = a_module((0, 1))
    assert len(first.module) == 2, "what nothing refers to is dropped"
    for order in ((1, 0), (7, 3), (4, 12)):
        assert a_module(order) == first
    assert hash(a_module((5, 2))) == hash(first)


@pytest.mark.parametrize("make", [lambda: exponential("vjp"), lambda: circular()[0], lambda: ruled("jvp")])
def test_a_module_is_a_value(make: Callable[[], Fun]) -> None:
    f = make()
    args = (X, Y) if f.__name__ == "plain" else (X,)
    program = fx.trace(f, *args).jaxpr
    batched, _ = vmap_jaxpr(program, 2, (0,) * len(program.ins))
    for jaxpr in (program, batched, transforms.dce(batched)):
        typecheck(jaxpr)
        assert fx.text.parse(str(jaxpr)) is jaxpr
        assert fx.text.parse(str(jaxpr)).digest == jaxpr.digest
        assert pickle.loads(pickle.dumps(jaxpr)) is jaxpr
        assert copy.deepcopy(jaxpr) is jaxpr
        assert called_functions(jaxpr) == (), "names are bound in their module"
        assert fx.diff(fx.trace(fnp.sin, X).jaxpr, jaxpr) is not None
    assert {len(prim.module) for prim in calls(program)} == {len(prim.module) for prim in calls(batched)}


def test_a_function_made_in_a_rule_that_calls_the_outer_function() -> None:
    """It closes over a value of the rule, so it has an operand that the outer function does not have."""

    def of_rule(primals: Any, dots: Any) -> Any:
        (x,), (dx,) = primals, dots
        scale = lax.stop_gradient(fnp.cos(x) + 2.0)
        held: Any = fx.custom_jvp(lambda t: f(t) * scale)
        held.defjvp(lambda p, t: (held(*p), held(*p) * t[0]))
        return f(x), held(x) / scale * dx

    f: Any = fx.custom_jvp(lambda x: fnp.exp(x))
    f.defjvp(of_rule)
    g: Fun = f
    for k in range(4):
        g = summed(g) if k % 2 else along_ones(g)
        np.testing.assert_allclose(fx.interpret(fx.trace(g, X), X), np.exp(X), rtol=1e-12)
    rows = fx.trace(fx.vmap(along_ones(along_ones(f))), np.stack([X, Y]))
    np.testing.assert_allclose(fx.interpret(rows, np.stack([X, Y])), np.exp([X, Y]), rtol=1e-12)


def test_a_batch_rule_that_calls_a_function_with_a_derivative_rule() -> None:
    """The derivative of the batch rule uses the derivative rule, also if the two functions call each other."""
    f: Any = fx.custom_vmap(lambda x: fnp.sin(x))
    g: Any = fx.custom_jvp(lambda x: fnp.sin(x))
    f.def_vmap(lambda size, mapped, x: (lax.map(g, x), True))
    g.defjvp(lambda p, t: (g(*p), 10.0 * fnp.cos(p[0]) * t[0] + 0.0 * f(p[0]) * t[0]))
    np.testing.assert_allclose(fx.vmap(fx.grad(f))(X), 10.0 * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(fx.vmap(f)(x)))(X), 10.0 * np.cos(X), rtol=1e-12)


def test_invertible_in_a_rule() -> None:
    """The rules of the `call_with_rules` that `invertible` makes contain named calls of the outer function."""
    f: Any = fx.custom_jvp(lambda x: fnp.exp(x))

    def of_rule(primals: Any, dots: Any) -> Any:
        through = fx.invertible(lambda x: 2.0 * f(x))
        return f(*primals), 0.5 * through(primals[0]) * dots[0]

    f.defjvp(of_rule)
    g: Fun = f
    for _ in range(3):
        g = along_ones(g)
        np.testing.assert_allclose(fx.interpret(fx.trace(g, X), X), np.exp(X), rtol=1e-9)


# ------------------------------------------------------------------------------------------------------------ records


@final
@record
class Pair(Record):
    """A record that a user defines."""

    name: ClassVar[str] = "pair"
    size: int
    body: Jaxpr | None = None
    inner: tuple[Pair, ...] = ()


@final
@primitive
class Paired(Applied):
    """Calls the body of a record."""

    name: ClassVar[str] = "paired"
    pair: Pair

    @property
    def applied(self) -> Jaxpr:
        assert self.pair.body is not None
        return self.pair.body

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return jaxprs_in_params(self)

    @property
    def layout(self) -> Layout:
        return layout_with_rules(self.bodies, 0)

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Paired:
        return Paired(Pair(self.pair.size, bodies[0], self.pair.inner))

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return self.applied.out_avals

    def batch(self, ctx: BatchCtx, args: Any, dims: Any) -> Any:
        return Call(self.applied).batch(ctx, args, dims)

    def jvp(self, ctx: JvpCtx, primals: Any, tangents: Any) -> Any:
        return Call(self.applied).jvp(ctx, primals, tangents)


def paired(pair: Pair) -> Jaxpr:
    b = Builder()
    return b.build(b(Paired(pair), *b.inputs([Aval((3,), "float64")])))


def test_a_record_of_a_user() -> None:
    b = Builder()
    sin = b.build([b.one(SIN, b.input(Aval((3,), "float64")))], "sin")
    jaxpr = paired(Pair(2, sin, (Pair(3), Pair(4, sin))))
    typecheck(jaxpr)
    text, label = str(jaxpr), labels([sin])[sin]
    written = f"pair(size=2, body={label}, inner=(pair(size=3), pair(size=4, body={label})))"
    assert f"paired[pair={written}]" in text
    own: dict[str, type[Primitive]] = {**PRIMITIVES, "paired": Paired}
    assert fx.text.parse(text, own) is jaxpr
    assert pickle.loads(pickle.dumps(jaxpr)) is jaxpr
    difference = fx.diff(jaxpr, paired(Pair(2, sin, (Pair(3), Pair(5, sin)))))
    assert difference is not None
    assert str(difference.first) == "equation 0 / pair / inner / 1 / size: 4 vs 5"
    assert Pair(np.int64(2)) == Pair(2)  # type: ignore[arg-type]  # NumPy's ints become Python's
    with pytest.raises(ArgumentError, match="pair: size must be int, got a bool: True"):
        Pair(True)
    for wrong, why in {
        f"pair(body={label})": "pair: parameter size is missing",
        "pair(size=2, size=2)": "pair: parameter size is given twice",
        "pair(size=2, other=3)": "pair has no parameter other",
        "pair(size=true)": "pair: parameter size is int, got true",
        "rules()": "expected a parameter's value",
        "pair(size=2": "expected",
    }.items():
        with pytest.raises(ParseError, match=why):
            fx.text.parse(text.replace(written, wrong), own)


def test_unneeded_operands_of_a_named_call_are_zeros() -> None:
    """A named call inside of the module keeps its type, and gets zeros. A call outside of the module loses operands and
    results."""
    f: Any = fx.custom_jvp(lambda x, n, y: (fnp.exp(x), n + 1, fnp.exp(y)))

    def rule(primals: Any, tangents: Any) -> Any:
        a, m, b = f(*primals)
        return (a, m, b), (a * tangents[0], None, b * tangents[2])

    f.defjvp(rule)

    def total(x: Any) -> Any:
        return fnp.sum(f(x, np.int32(2), Y)[0])

    slim = transforms.dce(fx.trace(lambda x: f(x, np.int32(2), Y)[0], X).jaxpr)
    (call,) = calls(slim)
    (whole,) = [e for e in call.module[0].rules.derivatives[0].forward.eqns if isinstance(e.prim, NamedCall)]
    (eqn,) = [e for e in call.rules.derivatives[0].forward.eqns if isinstance(e.prim, NamedCall)]
    assert eqn.prim == whole.prim
    assert [str(a) for a in eqn.ins[1:]] == ["0:i32[]", "0.0:f64[3]"]
    assert transforms.dce(slim) is slim
    typecheck(slim)
    second = fx.trace(lambda x: fx.jvp(fx.grad(total), (x,), (fnp.ones_like(x),))[1], X)
    assert not any(
        [len(e.ins) > 1 for j in distinct_jaxprs(second.jaxpr) for e in j.eqns if e.prim.name == "call_with_rules"]
    )
    np.testing.assert_allclose(fx.interpret(second, X), np.exp(X))
