"""The memo of a builder, and the cost of a test for forwarded operands."""

from __future__ import annotations

import pytest

from fxad.core.builder import Builder
from fxad.errors import FxadError, ShapeError
from fxad.ir import Atom, Aval, Jaxpr
from fxad.primitives.elementwise import ADD, SIN
from fxad.primitives.elementwise.family import Unary
from fxad.units import forwarding

F3 = Aval((3,), "float32")
F4 = Aval((4,), "float32")


def test_a_type_rule_runs_once_for_equal_operations_on_equal_types(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Aval] = []
    rule = Unary.abstract_eval

    def counting(self: Unary, x: Aval) -> tuple[Aval, ...]:
        asked.append(x)
        return rule(self, x)

    monkeypatch.setattr(Unary, "abstract_eval", counting)
    b = Builder()
    x, y = b.inputs((F3, F4))
    for _ in range(5):
        (x,) = b(SIN, x)
        (y,) = b(SIN, y)
    assert asked == [F3, F4]
    assert (x.aval, y.aval, len(b.eqns)) == (F3, F4, 10)


def test_an_operation_with_a_type_error_raises_again() -> None:
    b = Builder()
    x, y = b.inputs((F3, F4))
    messages = []
    for _ in range(2):
        with pytest.raises(ShapeError) as e:
            b(ADD, x, y)
        messages.append(str(e.value))
    assert messages[0] == messages[1]
    assert "add" in messages[0]
    assert not b.eqns
    assert issubclass(ShapeError, FxadError)


def test_forwarded_operands_of_a_program_that_computes_takes_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    x = b.input(F3)
    outs = [b.one(SIN, x) for _ in range(50)]
    computes, hands_on = b.build(outs), Jaxpr((x,), (), (x,))
    looked: list[Atom] = []
    operand = forwarding._operand

    def counting(jaxpr: Jaxpr, a: Atom) -> int | None:
        looked.append(a)
        return operand(jaxpr, a)

    monkeypatch.setattr(forwarding, "_operand", counting)
    assert forwarding.forwarded_operands(computes, 0) is None
    assert len(looked) == 1
    assert forwarding.forwarded_operands(hands_on, 0) == (0,)
