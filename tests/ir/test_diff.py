"""`diff` names the first place where two programs differ."""

from __future__ import annotations

import pytest
from hypothesis import given

from fxad.core.alignment import aligned
from fxad.core.diff import Difference, diff, side_by_side
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


# -------------------------------------------------------------------------------------------------------- side by side


def test_equations_side_by_side() -> None:
    """A changed equation is shown, and those that read its result are not; bodies stand below their equation."""
    edits = [
        ("sin", "cos"),
        ("add %arg0, %arg1", "sub %arg0, %arg1"),
        ("%2: f32[2]", "%9: f32[2,3] = exp %1\n  %2: f32[2]"),
    ]
    found = side_by_side(parse(BASE), parse(edited(edits)))
    assert (
        str(found)
        == """\
equation 0 / operation: add vs sub
- %0: f32[2,3] = add %arg0, %arg1
+ %0: f32[2,3] = sub %arg0, %arg1
- %1: f32[2,3] = call[body=@middle] %0
+ %1: f32[2,3] = call[body=@middle] %0
    in @middle:
-     %0: f32[2,3] = call[body=@inner] %arg0
+     %0: f32[2,3] = call[body=@inner] %arg0
        in @inner:
-         %0: f32[2,3] = sin %arg0
+         %0: f32[2,3] = cos %arg0
          %1: f32[2,3] = mul %0, 2.0:f32[2,3]
+ %2: f32[2,3] = exp %1
  %3: f32[2] = reduce_sum[axes=(1,)] %1"""
    )


def chain(n: int, other: int | None = None) -> Jaxpr:
    lines = [f"  %{k}: f32[3] = {'cos' if k == other else 'sin'} %{k - 1}" for k in range(1, n)]
    return parse("\n".join(["main @f(%0: f32[3]) -> (f32[3]) {", *lines, f"  return %{n - 1}", "}"]))


def test_equal_equations_far_from_a_change_are_counted() -> None:
    found = side_by_side(chain(500), chain(500, other=100))
    assert found is not None
    assert [str(line) for line in found.lines] == [
        "  ... 97 equal equations",
        "  %97: f32[3] = sin %96",
        "  %98: f32[3] = sin %97",
        "- %99: f32[3] = sin %98",
        "+ %99: f32[3] = cos %98",
        "  %100: f32[3] = sin %99",
        "  %101: f32[3] = sin %100",
        "  ... 397 equal equations",
    ]


def test_readers_of_a_changed_equation_are_unchanged() -> None:
    a = parse("main @f(%x: f32[3]) -> (f32[3]) {\n  %0: f32[3] = sin %x\n  %1: f32[3] = exp %0\n  return %1\n}")
    b = parse("main @f(%x: f32[3]) -> (f32[3]) {\n  %0: f32[3] = log %x\n  %1: f32[3] = exp %0\n  return %1\n}")
    lines = [str(line) for line in aligned(a, b)]
    assert lines == ["- %0: f32[3] = sin %arg0", "+ %0: f32[3] = log %arg0", "  %1: f32[3] = exp %0"]


def test_a_result_does_not_stand_for_another_with_its_number() -> None:
    lines = ["%0: f32[3] = sin %x", "%1: f32[3] = cos %x", "%2: f32[3] = exp %1", "return %2"]
    two = "\n  ".join(["main @f(%x: f32[3]) -> (f32[3]) {", *lines]) + "\n}"
    a, b = parse(two), parse(two.replace("sin %x", "sin %x\n  %8: f32[4] = iota[shape=(4,), dtype=f32, axis=0] "))
    assert [str(line) for line in aligned(a, b)] == [
        "  %0: f32[3] = sin %arg0",
        "+ %1: f32[4] = iota[shape=(4,), dtype=f32, axis=0]",
        "  %2: f32[3] = cos %arg0",
        "  %3: f32[3] = exp %2",
    ]


def test_the_page_of_a_diff_is_escaped() -> None:
    found = side_by_side(parse(BASE.replace("@inner", '@"<lambda>"')), parse(BASE.replace("sin", "cos")))
    assert found is not None
    assert "<lambda>" not in found._repr_html_()
    assert "&lt;lambda&gt;" in found._repr_html_()


@given(programs(), programs())
def test_each_equation_of_both_programs_is_in_a_line(a: Jaxpr, b: Jaxpr) -> None:
    lines = [line for line in aligned(a, b) if not line.depth]
    counted = sum([int(line.text.split()[1]) for line in lines if line.text.startswith("... ")])
    unchanged = counted + len([line for line in lines if line.mark == " " and not line.text.startswith("... ")])
    only = {mark: [line for line in lines if line.mark == mark and "=" in line.text] for mark in "-+"}
    if a is b:
        assert lines == []
    else:
        assert (unchanged + len(only["-"]), unchanged + len(only["+"])) == (len(a.eqns), len(b.eqns))
