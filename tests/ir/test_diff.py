"""`diff` names the first place where two programs differ."""

from __future__ import annotations

import pytest
from hypothesis import given

from fxad.core.diff import Difference, diff
from fxad.ir import Jaxpr
from fxad.text import parse
from tests.ir.strategies import VOCABULARY, programs

BASE = """\
fn @inner(%arg0: f32[2,3]) -> (f32[2,3]) {
  %0: f32[2,3] = sin %arg0
  %1: f32[2,3] = mul %0, 2.0:f32[2,3]
  return %1
}

fn @middle(%arg0: f32[2,3]) -> (f32[2,3]) {
  %0: f32[2,3] = call[body=@inner] %arg0
  return %0
}

main @main(%arg0: f32[2,3], %arg1: f32[2,3]) -> (f32[2]) {
  %0: f32[2,3] = add %arg0, %arg1
  %1: f32[2,3] = call[body=@middle] %0
  %2: f32[2] = reduce_sum[axes=(1,)] %1
  return %2
}
"""

EDITS = [
    ([("add", "sub")], "equation 0 / operation: add vs sub"),
    ([("add %arg0, %arg1", "add %arg1, %arg0")], "equation 0 / operand 0: %arg0:f32[2,3] vs %arg1:f32[2,3]"),
    ([("sin", "cos")], "equation 1 / body / equation 0 / body / equation 0 / operation: sin vs cos"),
    (
        [("2.0:", "-0.0:")],
        "equation 1 / body / equation 0 / body / equation 1 / operand 1: 2.0:f32[2,3] vs -0.0:f32[2,3]",
    ),
    ([("return %1", "return %0")], "equation 1 / body / equation 0 / body / result 0: %1:f32[2,3] vs %0:f32[2,3]"),
    ([("(1,)", "(0,)"), ("f32[2] ", "f32[3] "), ("(f32[2])", "(f32[3])")], "equation 2 / axes: (1,) vs (0,)"),
    ([("return %2", "return %2, %2"), ("(f32[2])", "(f32[2], f32[2])")], "results: 1 vs 2"),
    ([("  return %2", "  %9: f32[2] = sin %2\n  return %2")], "equations: 3 vs 4"),
    ([("%arg1: f32[2,3])", "%arg1: f32[2,3], %n: i32[])")], "operands: 2 vs 3"),
]


def edited(edits: list[tuple[str, str]]) -> str:
    text = BASE
    for old, new in edits:
        head, found, tail = text.rpartition(old)
        assert found or old in text
        text = head + new + tail
    return text


@pytest.mark.parametrize(("edits", "expected"), EDITS, ids=[e for _, e in EDITS])
def test_first_difference(edits: list[tuple[str, str]], expected: str) -> None:
    found = diff(parse(BASE), parse(edited(edits)))
    assert str(found) == expected
    back = diff(parse(edited(edits)), parse(BASE))
    assert found is not None
    assert back == Difference(found.path, found.right, found.left)


def test_types_of_operands() -> None:
    a = parse("main @f(%x: f32[3], %y: f32[4]) -> () {\n  return\n}")
    b = parse("main @f(%x: f32[3], %y: f16[4]) -> () {\n  return\n}")
    assert diff(a, b) == Difference(("operand 1",), "f32[4]", "f16[4]")


def test_bodies_in_tuples() -> None:
    def program(bodies: str) -> Jaxpr:
        text = "fn @a() -> (u8[7]) {\n  return 7:u8[7]\n}\nfn @b() -> (u8[7]) {\n  return 8:u8[7]\n}\n"
        return parse(f"{text}main @f() -> () {{\n  () = tagged[bodies={bodies}]\n  return\n}}", VOCABULARY)

    assert (
        str(diff(program("(@a, @a)"), program("(@a, @b)"))) == "equation 0 / bodies / 1 / result 0: 7:u8[7] vs 8:u8[7]"
    )
    assert str(diff(program("(@a,)"), program("(@a, @b)"))) == "equation 0 / bodies: (@a,) vs (@a, @b)"


@given(programs(), programs())
def test_none_exactly_when_equal(a: Jaxpr, b: Jaxpr) -> None:
    assert (diff(a, b) is None) == (a is b)
    assert diff(a, a) is None
