"""`parse(to_text(j)) is j`, and the errors for texts that are no program."""

from __future__ import annotations

import gc
import re
import struct
from random import Random
from typing import ClassVar, final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from fxad import dtypes
from fxad.core import scalar_text as scalars
from fxad.core.builder import Builder
from fxad.core.typecheck import typecheck
from fxad.dtypes import DType
from fxad.errors import ParseError, TypecheckError
from fxad.ir import Aval, Jaxpr, Lit, SourceLocation, primitive
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, MUL, SIN
from fxad.text import parse, to_text
from fxad.text.parameters import fields_of
from tests.ir.strategies import VOCABULARY, Inert, forged, literals, programs

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

F9 = Aval((9,), "float32")  # a program has the name of the first that is equal: no other test has these


def twice(body: Jaxpr, name: str = "twice") -> Jaxpr:
    b = Builder()
    x = b.input(body.in_avals[0])
    return b.build(b(Call(body), b.one(Call(body), x)), name)


def sine(name: str = "sine") -> Jaxpr:
    b = Builder()
    return b.build([b.one(SIN, b.input(F9))], name)


def of_literal(lit: Lit) -> Jaxpr:
    return Builder().build([lit])


GOLDEN = """\
fn @sine(%arg0: f32[9]) -> (f32[9]) {
  %0: f32[9] = sin %arg0
  return %0
}

fn @"<lambda>"(%arg0: f32[9]) -> (f32[9]) {
  %0: f32[9] = mul %arg0, 2.0:f32[9]
  %1: f32[9] = call[body=@sine] %0
  return %1
}

main @loss(%arg0: f32[9], %arg1: f32[9]) -> (f32[9], f32[9], i8[0,2]) {
  %0: f32[9] = call[body=@sine] %arg1
  %1: f32[9] = call[body=@"<lambda>"] %0
  %2: f32[9] = add %1, -0.0:f32[9]
  return %2, %arg0, -1:i8[0,2]
}
"""


def golden() -> Jaxpr:
    inner = Builder()
    x = inner.input(F9)
    middle = inner.build(inner(Call(sine()), inner.one(MUL, x, Lit.of(2, F9))), "<lambda>")
    b = Builder()
    x, y = b.inputs([F9, F9])
    z = b.one(Call(middle), b.one(Call(sine()), y))
    return b.build([b.one(ADD, z, Lit.of(-0.0, F9)), x, Lit.of(-1, Aval((0, 2), "int8"))], "loss")


class TestPrinting:
    def test_golden(self) -> None:
        j = golden()
        assert str(j) == to_text(j) == GOLDEN
        assert parse(GOLDEN) is j

    def test_bodies_of_one_name_are_numbered(self) -> None:
        j = twice(twice(sine("f"), "f"), "f")
        text = to_text(j)
        assert re.findall(r"^\w+ \S+(?=\()", text, re.MULTILINE) == ["fn @f", "fn @f#1", "main @f#2"]
        assert parse(text) is j

    @pytest.mark.parametrize("name", ["b", "<lambda>", "f#1", "", 'say "x"', "λ", "\ud800", "two\nlines"])
    def test_names_are_kept(self, name: str) -> None:
        text = to_text(Builder().build([Lit.of(len(name), Aval((123,), "int64"))], name))
        gc.collect()  # the program is freed before it is parsed, so the name comes from the text
        assert parse(text).name == name

    def test_source_lines_are_comments(self) -> None:
        b = Builder()
        x = b.input(F9)
        b.source = SourceLocation("model.py", 42, "attend")
        j = b.build([b.one(SIN, x)])
        assert "  %0: f32[9] = sin %arg0  # model.py:42 in attend\n" in to_text(j, source=True)
        assert "#" not in to_text(j)
        assert parse(to_text(j, source=True)) is j

    def test_an_equation_prints_alone(self) -> None:
        assert str(golden().eqns[1]) == '%1: f32[9] = call[body=@"<lambda>"] %0'

    def test_objects_that_are_no_parameters_are_not_printed(self) -> None:
        j = Builder()
        j(forged(count=3.0))
        with pytest.raises(TypecheckError, match=r"^tagged: parameter count: 3.0 is not a value that"):
            str(j.build([]))


class TestLiterals:
    @pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.itemsize <= 2], ids=str)
    def test_all_values_of_a_small_dtype(self, dtype: DType) -> None:
        values = range(2) if dtype == dtypes.bool_ else range(1 << (8 * dtype.itemsize))
        for n in values:
            bits = n.to_bytes(dtype.itemsize, "little")
            assert scalars.read(scalars.show(bits, dtype), dtype) == bits

    @pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.float32], ids=str)
    def test_digits_of_other_scripts_are_refused(self, dtype: DType) -> None:
        assert scalars.read("3", dtype) is not None
        assert scalars.read("\N{ARABIC-INDIC DIGIT THREE}", dtype) is None

    @given(literals())
    def test_round_trip(self, lit: Lit) -> None:
        j = of_literal(lit)
        assert parse(to_text(j)) is j

    @pytest.mark.parametrize(
        ("value", "dtype", "text"),
        [
            (0.1, "float32", "0.1"),
            (0.1, "float64", "0.1"),
            (0.1, "bfloat16", "0.1"),
            (1 / 3, "float32", "0.33333334"),
            (-0.0, "float16", "-0.0"),
            (65504, "float16", "65504.0"),
            (2**24, "float32", "16777216.0"),
            (1e-45, "float32", "1e-45"),
            (5e-324, "float64", "5e-324"),
            (3.4028235e38, "float32", "3.4028235e+38"),
            (np.inf, "float32", "inf"),
            (-np.inf, "bfloat16", "-inf"),
            (np.nan, "float32", "nan"),
            (np.nan, "float8_e4m3fnuz", "nan"),
            (448, "float8_e4m3fn", "448.0"),
            (complex(1, np.nan), "complex64", "complex(1.0, nan)"),
            (complex(-0.0, -np.inf), "complex128", "complex(-0.0, -inf)"),
            (True, "bool", "true"),
            (-128, "int8", "-128"),
            (2**64 - 1, "uint64", "18446744073709551615"),
        ],
    )
    def test_spelling(self, value: complex, dtype: str, text: str) -> None:
        lit = Lit.of(value, Aval((2,), dtype))
        assert str(lit) == f"{text}:{lit.aval}"
        assert parse(to_text(of_literal(lit))).outs == (lit,)

    def test_payloads_are_in_hex(self) -> None:
        assert str(Lit(struct.pack("<I", 0x7FC00001), F9)) == "0x7fc00001:f32[9]"
        assert str(Lit(struct.pack("<I", 0xFFC00000), F9)) == "0xffc00000:f32[9]"
        parts = struct.pack("<II", 0x7FA00000, 0x80000000)
        assert str(Lit(parts, Aval((), "complex64"))) == "complex(0x7fa00000, -0.0):c64[]"

    @pytest.mark.parametrize("dtype", list(scalars.FORMATS), ids=str)
    def test_formats_agree_with_numpy(self, dtype: DType) -> None:
        form, random, size = scalars.FORMATS[dtype], Random(0), dtype.itemsize
        for n in [random.getrandbits(8 * size) for _ in range(500)] + [0, 1, 1 << (8 * size - 1), form.nan, form.top]:
            theirs = float(np.frombuffer(n.to_bytes(size, "little"), dtype)[0])
            ours = form.decode(n)
            assert repr(theirs) == ("nan" if ours is None else repr(ours))
            near = theirs * random.uniform(0.9, 1.1)
            with np.errstate(all="ignore"):
                rounded = np.float64(near).astype(dtype)
            encoded = form.encode(near)
            if encoded is not None:
                assert encoded.to_bytes(size, "little") == rounded.tobytes()
            else:
                assert not np.isfinite(rounded) or rounded == 0
        assert np.frombuffer(form.top.to_bytes(size, "little"), dtype)[0] == ml_dtypes.finfo(dtype).max  # type: ignore[no-untyped-call]


class TestRoundTrip:
    @given(programs())
    @example(Builder().build([]))
    def test_law(self, j: Jaxpr) -> None:
        text = to_text(j)
        assert parse(text, VOCABULARY) is j
        assert to_text(parse(text, VOCABULARY)) == text
        typecheck(j)

    def test_bodies_nested_deeply_and_shared(self) -> None:
        """2**2000 calls in all: only distinct bodies may be walked, without recursion."""
        j = sine()
        for _ in range(2000):
            j = twice(j)
        assert parse(to_text(j)) is j
        assert len(j.digest) == 64
        typecheck(j)

    def test_formatting_is_free(self) -> None:
        loose = re.sub(r"\n", "   # why not\r\n\n", GOLDEN.replace("%0", "%zero").replace("%arg1", "%y"))
        assert parse(loose) is golden()


MALFORMED = [
    ("", "line 1, column 1: expected 'main', got the end of the text"),
    ("main", "line 1, column 5: expected a function as in '@f', got the end of the text"),
    ("main @f() -> () {}", "line 1, column 18: expected the end of the line, got '}'"),
    ("main @f() -> () {\n  return\n} x", "line 3, column 3: expected the end of the text, got 'x'"),
    ("main @f() -> () {\n  return", "line 2, column 9: expected a value as in '%0' or '1.0:f32[]', got the end of the"),
    ("main @f(%x: f99[3]) -> () {", "line 1, column 13: f99[3] is not a type"),
    ("main @f(%x: f32[3,]) -> () {", "line 1, column 13: f32[3,] is not a type"),
    ("main @f(%x: f32[99999999999999999999]) -> () {", "has a size that is too large"),
    ("main @f(%x: f32[9999999999999999999]) -> () {", "line 1, column 13: shape: a size is 2**63 or more"),
    ("main @f(%x: f32[9], %x: f32[9]) -> () {", "line 1, column 21: %x is bound twice"),
    ("main @f(%x: f32[9]) -> () {\n  return %y\n}", "line 2, column 10: %y is not bound"),
    ("main @f(%x: f32[9]) -> (f32[]) {\n  return %x\n}", "2, column 10: returns (f32[9]), the signature says (f32[])"),
    ("main @f(%x: f32[9]) -> () {\n  %0: f32[9] = sun %x\n}", "line 2, column 16: there is no operation 'sun'"),
    ("main @f(%x: f32[9]) -> () {\n  %0: f32[9] = sin %x, %x\n}", "column 16: sin: takes 1 operand, got 2"),
    ("main @f(%x: f32[9]) -> () {\n  %0: f32[4] = sin %x\n}", "column 3: sin gives f32[9], the equation says f32[4]"),
    ("main @f(%x: f32[9]) -> () {\n  () = sin %x\n}", "line 2, column 3: sin gives f32[9], the equation says nothing"),
    ("main @f(%x: f32[9]) -> () {\n  %0: f32[9] = sin %x %x\n}", "column 23: expected ',' or the end of the line, got"),
    ("main @f() -> () {\n  return 1.0:f32\n}", "line 2, column 14: expected a type as in 'f32[3,4]', got 'f32'"),
    ("main @f() -> () {\n  return 300:u8[]\n}", "line 2, column 10: 300 is not a value of u8[]"),
    ("main @f() -> () {\n  return 1e39:f32[]\n}", "line 2, column 10: 1e39 is not a value of f32[]"),
    ("main @f() -> () {\n  return 0x7fc0:f32[]\n}", "line 2, column 10: 0x7fc0 is not a value of f32[]"),
    ("main @f() -> () {\n  return 1.0:c64[]\n}", "line 2, column 10: 1.0 is not a value of c64[]"),
    ("main @f() -> () {\n  return complex(1.0, x):c64[]\n}", "column 10: complex(1.0, x) is not a value of c64[]"),
    ("main @f() -> () {\n  return complex({n}, 1.0):f32[]\n}", "complex({n}, 1.0) is not a value of f32[]"),
    ("main @f() -> () {\n  () = call[body=@g]\n}", "line 2, column 18: there is no function @g before this line"),
    ("main @f() -> () {\n  () = call[body=3]\n}", "line 2, column 18: call: parameter body is Jaxpr, got 3"),
    ("main @f() -> () {\n  () = call\n}", "line 2, column 8: call: parameter body is missing"),
    ("main @f() -> () {\n  () = tagged[count=true]\n}", "column 21: tagged: parameter count is int, got true"),
    ("main @f() -> () {\n  () = tagged[flag=1]\n}", "column 20: tagged: parameter flag is bool, got 1"),
    (
        "main @f() -> () {\n  () = tagged[pairs=((1, 2), (3,))]\n}",
        "pairs is tuple[tuple[int, int], ...], got ( ( 1 , 2",
    ),
    ("main @f() -> () {\n  () = tagged[count=1.5]\n}", "line 2, column 21: expected a parameter's value, got '1.5'"),
    ("main @f() -> () {\n  () = tagged[count=(1)]\n}", "line 2, column 23: expected ',', got ')'"),
    ('main @f() -> () {\n  () = tagged[note="\\q"]\n}', 'line 2, column 20: "\\q" is not a string of JSON'),
    (
        "main @f() -> () {\n  () = tagged[count=1, count=2]\n}",
        "line 2, column 8: tagged: parameter count is given twice",
    ),
    ("main @f() -> () {\n  () = tagged[size=1]\n}", "line 2, column 15: tagged has no parameter size"),
    ("fn @f() -> () {\n  return\n}\nfn @f() -> () {", "line 4, column 4: @f is defined twice"),
    ("main @f() -> () {\n  () = tagged[maybe=" + "(" * 200, "line 2, column 121: more than 100 tuples in each other"),
    ("main @f() -> () {\n  ü", "line 2, column 3: expected a value as in '%0', got 'ü'"),
    ("\0", "line 1, column 1: expected 'main', got '\\x00'"),
    ("main @" + "f" * 1000 + " x", "line 1, column 1008: expected '(', got 'x'"),
]


class TestMalformed:
    @pytest.mark.parametrize(("text", "message"), MALFORMED, ids=range(len(MALFORMED)))
    def test_message(self, text: str, message: str) -> None:
        with pytest.raises(ParseError) as e:
            parse(text, VOCABULARY)
        assert e.value.message.startswith("parse: line ")
        assert message in e.value.message

    def test_the_line_is_shown(self) -> None:
        with pytest.raises(ParseError) as e:
            parse(GOLDEN.replace("add %1", "add %9"))
        assert str(e.value).startswith(
            "parse: line 15, column 20: %9 is not bound\n"
            "  equation      %2: f32[9] = add %9, -0.0:f32[9]\n"
            "  called at     "
        )

    def test_any_exception_of_a_rule_becomes_a_parse_error(self) -> None:
        @final
        @primitive
        class Broken(Inert):
            name: ClassVar[str] = "broken"

            def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
                raise ZeroDivisionError("inside")

        with pytest.raises(ParseError, match=r"^parse: line 2, column 16: ZeroDivisionError: inside"):
            parse(GOLDEN.replace(" sin ", " broken "), [Broken])

    @pytest.mark.parametrize(
        "text",
        ["(" * 100_000, '"' * 100_000, "@" + '"\\' * 50_000, "a" * 100_000, "-" * 100_000, "1" * 100_000,
         "main @f(" + "%x: f32[9], " * 20_000, "main @f() -> () {\n  return " + "9" * 100_000 + ":i32[]",
         "main @f() -> () {\n  return " + "9" * 100_000 + ".5:f64[]", "main @f() -> () {\n  () = tagged[count="
         + "9" * 100_000 + "]", "\n" * 100_000, "# " * 100_000, "main @f(%x: f32[" + "1," * 50_000 + "1]"],
        ids=range(13),
    )  # fmt: skip
    def test_large_nonsense_is_refused_in_linear_time(self, text: str) -> None:
        with pytest.raises(ParseError):
            parse(text, VOCABULARY)

    @pytest.mark.parametrize(
        ("size", "problem"),
        [
            ("(a+b+c+d+e+f)^60", "a size has more than 200 factors"),
            ("*".join(["(a+b+c+d+e+f+g)"] * 12), "a size has more than 200 factors"),
            ("*".join([f"n{k}" for k in range(3000)]), "a size has more than 200 factors"),
            ("+".join([f"n{k}" for k in range(30_000)]), "a size has more than 200 factors"),
            ("((((9999999*n)^64)^64)^64)^64", "a size is too large"),
        ],
        ids=range(5),
    )
    def test_a_short_text_of_a_long_size_is_refused(self, size: str, problem: str) -> None:
        """The time to read it would grow exponentially with the text."""
        with pytest.raises(ParseError) as e:
            parse(f"main @f(%x: f32[{size}]) -> () {{\n  return\n}}\n")
        assert e.value.message.endswith(problem)


@given(st.text())
def test_fuzz_any_text(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text, VOCABULARY)


@given(programs(depth=1), st.randoms(use_true_random=False), st.integers(1, 4))
def test_fuzz_mutated_programs(j: Jaxpr, random: Random, edits: int) -> None:
    """A damaged text raises ParseError, or is a well-typed program whose text is exact."""
    tokens = re.findall(r"\w+|\s+|.", to_text(j), re.ASCII | re.DOTALL)
    for _ in range(edits):
        k, other = random.randrange(len(tokens)), random.choice(tokens)
        tokens[k : k + random.randrange(3)] = random.choice(
            [[], [other], [other, other], [random.choice('[](){}=:,@%"\n#-0x')]]
        )
        tokens = tokens or [""]
    try:
        damaged = parse("".join(tokens), VOCABULARY)
    except ParseError:
        return
    typecheck(damaged)
    assert parse(to_text(damaged), VOCABULARY) is damaged


@pytest.mark.parametrize("name", VOCABULARY)
def test_the_parser_understands_every_parameter(name: str) -> None:
    for field in fields_of(VOCABULARY[name]).values():
        for value in (None, 1, (), ((),), ("",), (1, 1), ((1,), (1,))):
            field.takes(value)  # takes raises TypeError if the annotation contains a kind that `Param` does not
