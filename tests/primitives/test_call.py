"""The laws of call: each of its rules applies the transformation to its body."""

from __future__ import annotations

import numpy as np
import pytest

from fxad.core.builder import Builder
from fxad.errors import ArgumentError, ShapeError
from fxad.ir import Aval, Jaxpr, Lit, Zero
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, MUL, NEG, SIN
from fxad.primitives.linearity import is_linear
from fxad.primitives.shape import ReduceSum
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from tests.primitives.harness import check, eqns, floats, program

V = Aval((3,), "float64")


def body() -> Jaxpr:
    """x, y -> sin(x) * y, sum(y), 0."""
    b = Builder()
    x, y = b.inputs((V, V))
    s = b.one(SIN, x)
    return b.build((b.one(MUL, s, y), b.one(ReduceSum((0,)), y), Zero(V).instantiate()), "f")


def test_laws() -> None:
    check(Call(body()), floats(3), floats(3))


def test_laws_of_nested_calls() -> None:
    b = Builder()
    x, y = b.inputs((V, V))
    z, s, zero = b(Call(body()), x, y)
    outer = b.build((b(Call(body()), z, zero)[0], s, x), "g")
    check(Call(outer), floats(3), floats(3))


def test_operands_of_the_caller_are_no_results_of_the_primal_call() -> None:
    """The linear half needs x and y, which are operands of the caller."""
    b = Builder()
    x, y = b.inputs((V, V))
    inner = b.build((b.one(MUL, x, y),), "mul")
    split = linearize(program(Call(inner), V, V), (True, True))
    assert split.primal.eqns[0].prim == Call(inner)
    assert split.primal.outs[1:] == (split.primal.ins[1], split.primal.ins[0])


def test_the_adjoint_has_no_equations_for_results_without_a_cotangent() -> None:
    b = Builder()
    (x,) = b.inputs((V,))
    inner = b.build((b.one(NEG, x), b.one(ReduceSum((0,)), x)), "both")
    b = Builder()
    (x,) = b.inputs((V,))
    first, _ = b(Call(inner), x)
    adjoint = transpose(b.build((first,), "first"), (True,))
    (call,) = [e.prim for e in adjoint.eqns]
    assert isinstance(call, Call)
    assert eqns(call.body) == ["neg"]


def test_a_call_is_linear_where_its_body_is() -> None:
    b = Builder()
    x, y = b.inputs((V, V))
    product = b.build((b.one(MUL, x, y), Zero(V).instantiate()), "product")
    assert Call(product).linear_in((True, False))
    assert not Call(product).linear_in((True, True))


@pytest.mark.parametrize(("added", "linear"), [(0.0, True), (-0.0, False), (1.0, False)])
def test_only_the_zero_literal_is_linear(added: float, linear: bool) -> None:
    b = Builder()
    x, lit = b.input(V), Lit.of(added, V)
    assert is_linear(b.build((b.one(ADD, x, lit),), "sum"), (True,)) is linear
    assert is_linear(Builder.like(b.build((), "ins")).build((x, lit), "pair"), (True,)) is linear


def test_messages() -> None:
    with pytest.raises(ArgumentError) as count:
        Call(body()).abstract_eval(V)
    assert count.value.message == "call: f takes 2 operands, got 1"
    with pytest.raises(ShapeError) as shape:
        Call(body()).abstract_eval(V, Aval((4,), np.float64))
    assert shape.value.message == "call: operand 1 of f is f64[4], its body takes f64[3]"
    for e in (count.value, shape.value):
        assert e.remedy == "give what the bodies take, or trace the function again; nothing is converted silently"
