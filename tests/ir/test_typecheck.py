"""`typecheck` finds every kind of ill-formed program, and names the equation."""

from __future__ import annotations

import pytest
from hypothesis import given

from fxad.core.builder import Builder
from fxad.core.typecheck import typecheck
from fxad.errors import TypecheckError
from fxad.ir import Aval, Eqn, Jaxpr, Lit, SourceLocation, Var
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, SIN
from tests.ir.strategies import forged, programs

F3, F4, I3 = Aval((3,), "float32"), Aval((4,), "float32"), Aval((3,), "int32")
X = Var(-1, F3)
R0, R1 = Var(0, F3), Var(1, F3)


def program(*eqns: Eqn, outs: tuple[Var, ...] = (), ins: tuple[Var, ...] = (X,)) -> Jaxpr:
    return Jaxpr(ins, eqns, outs, "f")


ILL = {
    "operand numbered wrong": (
        program(ins=(X, Var(-3, F4))),
        "f: operand 1 is numbered -3, not -2",
    ),
    "operand that is a result": (
        program(ins=(R0,)),
        "f: operand 0 is numbered 0, not -1",
    ),
    "used before it is bound": (
        program(Eqn(SIN, (R1,), (R0,)), Eqn(SIN, (X,), (R1,))),
        "f: equation 0 (sin): %1:f32[3] is used and not bound before",
    ),
    "uses its own result": (
        program(Eqn(SIN, (R0,), (R0,))),
        "f: equation 0 (sin): %0:f32[3] is used and not bound before",
    ),
    "the right number with another type": (
        program(Eqn(SIN, (Var(-1, F4),), (Var(0, F4),))),
        "f: equation 0 (sin): %arg0:f32[4] is used and not bound before",
    ),
    "result that is not bound": (
        program(outs=(R0,)),
        "f: result 0, %0:f32[3], is not bound",
    ),
    "result numbered wrong": (
        program(Eqn(SIN, (X,), (R1,))),
        "f: equation 0 (sin): result %1:f32[3] should be %0:f32[3]",
    ),
    "bound twice": (
        program(Eqn(SIN, (X,), (R0,)), Eqn(SIN, (X,), (R0,))),
        "f: equation 1 (sin): result %0:f32[3] should be %1:f32[3]",
    ),
    "result of another type": (
        program(Eqn(SIN, (X,), (Var(0, F4),))),
        "f: equation 0 (sin): result %0:f32[4] should be %0:f32[3]",
    ),
    "too many results": (
        program(Eqn(SIN, (X,), (R0, R1))),
        "f: equation 0 (sin): 2 results are bound, the primitive has 1",
    ),
    "too few results": (
        program(Eqn(SIN, (X,), ())),
        "f: equation 0 (sin): 0 results are bound, the primitive has 1",
    ),
    "operands that do not fit": (
        program(Eqn(ADD, (X, Lit.of(1, F4)), (R0,))),
        "f: equation 0 (add): ShapeError: add: ",
    ),
    "operand of a dtype the primitive does not take": (
        program(Eqn(SIN, (Var(-1, I3),), (Var(0, I3),)), ins=(Var(-1, I3),)),
        "f: equation 0 (sin): DTypeError: sin: ",
    ),
    "too many operands": (
        program(Eqn(SIN, (X, X), (R0,))),
        "f: equation 0 (sin): ArgumentError: sin: takes 1 operand, got 2",
    ),
    "a parameter that a program cannot hold": (
        program(Eqn(forged(pairs=((1, 2.0),)), (), ())),
        "f: equation 0 (tagged): parameter pairs is ((1, 2.0),), which a program cannot hold",
    ),
}


@pytest.mark.parametrize(("jaxpr", "message"), ILL.values(), ids=ILL)
def test_ill_formed(jaxpr: Jaxpr, message: str) -> None:
    for _ in range(2):
        with pytest.raises(TypecheckError) as e:
            typecheck(jaxpr)
        assert e.value.message.startswith(f"typecheck: {message}")


def test_a_fault_in_a_body_names_the_body() -> None:
    bad = Jaxpr((X,), (Eqn(SIN, (X,), (R1,)),), (R1,), "inner")
    for name in ("middle", "outer"):
        bad = Jaxpr((X,), (Eqn(Call(bad), (X,), (R0,)),), (R0,), name)
    with pytest.raises(TypecheckError, match=r"^typecheck: inner: equation 0 \(sin\): result %1"):
        typecheck(bad)


def test_message_in_full() -> None:
    eqn = Eqn(ADD, (X, R1), (R0,), SourceLocation("model.py", 42, "attend"))
    with pytest.raises(TypecheckError) as e:
        typecheck(Jaxpr((X, Var(-2, F4)), (eqn,), (), "g"))
    assert str(e.value) == (
        "typecheck: g: equation 0 (add): %1:f32[3] is used and not bound before\n"
        "  equation      %0:f32[3] = add %arg0:f32[3] %1:f32[3]\n"
        "  traced at     model.py:42 in attend"
    )


@given(programs())
def test_what_a_builder_builds_is_well_typed(j: Jaxpr) -> None:
    typecheck(j)


def test_a_wide_fan_of_shared_bodies_is_checked_once_each() -> None:
    """2**1000 calls. Each of the thousand bodies is checked once."""
    b = Builder()
    j = b.build([b.one(SIN, b.input(F3))])
    for _ in range(1000):
        b = Builder()
        j = b.build(b(Call(j), b.one(Call(j), b.input(F3))))
    typecheck(j)
