"""The messages of elementwise primitives."""

from __future__ import annotations

import pytest

from fxad import errors
from fxad.dtypes import as_dtype
from fxad.ir import Aval, Primitive
from fxad.primitives import elementwise as ew


def aval(text: str) -> Aval:
    """`f32[2,3]`"""
    dtype, sizes = text.removesuffix("]").split("[")
    return Aval(tuple(int(n) for n in sizes.split(",") if n), dtype)


CASES: list[tuple[Primitive, str, type[errors.FxadError], str]] = [
    (ew.SIN, "i32[3]", errors.DTypeError, "sin: takes float or complex operands, got i32[3]"),
    (ew.SIN, "f32[] f32[]", errors.ArgumentError, "sin: takes 1 operand, got 2"),
    (ew.CBRT, "c64[]", errors.DTypeError, "cbrt: takes float operands, got c64[]"),
    (ew.ADD, "f32[3]", errors.ArgumentError, "add: takes 2 operands, got 1"),
    (ew.ADD, "bool[] bool[]", errors.DTypeError, "add: takes numeric operands, got bool[]"),
    (ew.ADD, "f32[3] i32[3]", errors.DTypeError, "add: dtypes differ: lhs f32[3], rhs i32[3]"),
    (ew.ADD, "f32[3] f32[4]", errors.ShapeError, "add: shapes differ: lhs f32[3], rhs f32[4]"),
    (ew.ADD, "f32[3] i32[4]", errors.ShapeError, "add: shapes differ: lhs f32[3], rhs i32[4]"),
    (ew.LT, "c64[] c64[]", errors.DTypeError, "lt: takes integer, float or bool operands, got c64[]"),
    (ew.AND, "f32[] f32[]", errors.DTypeError, "and: takes integer or bool operands, got f32[]"),
    (ew.ABS, "u8[]", errors.DTypeError, "abs: takes signed integer, float or complex operands, got u8[]"),
    (ew.REM, "c64[] c64[]", errors.DTypeError, "rem: takes integer or float operands, got c64[]"),
    (ew.REAL, "f32[]", errors.DTypeError, "real: takes complex operands, got f32[]"),
    (ew.COMPLEX, "f16[] f16[]", errors.DTypeError, "complex: takes float32 or float64 operands, got f16[]"),
    (ew.ERFC, "f8e5m2[]", errors.DTypeError, "erfc: takes float (not float8) operands, got f8e5m2[]"),
    (ew.IntegerPow(-2), "i32[3]", errors.DTypeError, "integer_pow: an integer has no power -2, got i32[3]"),
    (ew.Round("up"), "f32[]", errors.ParameterError, "round: unknown method 'up'"),
    (
        ew.ReducePrecision(0, 3),
        "f32[]",
        errors.ParameterError,
        "reduce_precision: needs exponent_bits >= 1 and mantissa_bits >= 0, got 0 and 3",
    ),
    (
        ew.BitcastConvertType(as_dtype("i32")),
        "u8[3]",
        errors.ShapeError,
        "bitcast_convert_type: u8[3] to i32 needs a last axis of size 4",
    ),
    (
        ew.BitcastConvertType(as_dtype("bool")),
        "u8[3]",
        errors.DTypeError,
        "bitcast_convert_type: takes integers and floats, got u8[3] to bool",
    ),
    (
        ew.CLAMP,
        "f32[] f32[3] f32[]",
        errors.ShapeError,
        "clamp: shapes differ: operand 0 f32[], operand 1 f32[3], operand 2 f32[]",
    ),
    (ew.SELECT_N, "bool[]", errors.ArgumentError, "select_n: takes a selector and at least one case, got 1 operands"),
    (
        ew.SELECT_N,
        "bool[] f32[3] f32[3]",
        errors.ShapeError,
        "select_n: shapes differ: selector bool[], case 0 f32[3]",
    ),
    (
        ew.SELECT_N,
        "bool[] f32[] i32[]",
        errors.DTypeError,
        "select_n: dtypes differ: case 0 f32[], case 1 i32[]",
    ),
    (
        ew.SELECT_N,
        "bool[] f32[] f32[] f32[]",
        errors.DTypeError,
        "select_n: the selector of 3 cases must be int32, got bool[]",
    ),
    (
        ew.SELECT_N,
        "f32[] f32[] f32[]",
        errors.DTypeError,
        "select_n: the selector of 2 cases must be bool or int32, got f32[]",
    ),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), CASES, ids=[c[3] for c in CASES])
def test_message(prim: Primitive, avals: str, kind: type[errors.FxadError], message: str) -> None:
    with pytest.raises(kind) as caught:
        prim.abstract_eval(*[aval(a) for a in avals.split()])
    assert caught.value.message == message
