"""Dtypes of operands and results: every function of the standard, every pair of dtypes, scalars on either side.

Types depend on types only, so these tests trace functions and compute nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.tracing.array import Array, aval_of
from fxad.tracing.trace_function import trace_flat
from tests.conformance.standard import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATING,
    INTEGER,
    KINDS,
    NUMERIC,
    OPERATORS,
    REAL,
    REAL_FLOATING,
    SIGNED,
    UNARY_OPERATORS,
    Function,
    group,
    promoted,
)

REAL_PART = {"complex64": "float32", "complex128": "float64"}
QUESTIONS = ("isfinite", "isinf", "isnan", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor") + (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
)


def types(fn: Callable[..., Any], *dtypes: str, shape: tuple[int, ...] = (3,)) -> list[str]:
    """Returns the dtypes of the results of a function for arrays of these dtypes."""

    def flat(xs: list[Array]) -> list[object]:
        out = fn(*xs)
        return list(out) if isinstance(out, tuple) else [out]

    jaxpr, _ = trace_flat(flat, [fx.Spec(shape, d).aval for d in dtypes], "f")
    return [a.aval.dtype.name for a in jaxpr.outs]


def result(f: Function, dtype: str) -> str:
    """Returns the dtype that an elementwise function must give for the common dtype of its operands."""
    if f.name in QUESTIONS:
        return "bool"
    return REAL_PART.get(dtype, dtype) if f.name in {"abs", "real", "imag"} else dtype


@pytest.mark.parametrize("f", group("unary"), ids=lambda f: f.id)
def test_unary(f: Function) -> None:
    for dtype in KINDS[f.kind]:
        assert types(getattr(fnp, f.name), dtype) == [result(f, dtype)]


@pytest.mark.parametrize("f", group("binary"), ids=lambda f: f.id)
def test_binary(f: Function) -> None:
    fn = getattr(fnp, f.name)
    for a in KINDS[f.kind]:
        for b in KINDS[f.kind]:
            common = promoted(a, b)
            if common is not None:
                assert types(fn, a, b) == [result(f, common)], (a, b)


# A scalar takes the dtype of the array, if its kind is not higher than the array's.
def scalars(dtype: str) -> list[bool | int | float | complex]:
    if dtype in BOOL:
        return [True]
    if dtype in INTEGER:
        return [1]
    return [1, 1.5] if dtype in REAL_FLOATING else [1, 1.5, 1j]


@pytest.mark.parametrize("f", group("binary"), ids=lambda f: f.id)
def test_binary_with_a_scalar(f: Function) -> None:
    fn = getattr(fnp, f.name)
    for dtype in KINDS[f.kind]:
        for s in scalars(dtype):
            assert types(lambda x, s=s: fn(x, s), dtype) == [result(f, dtype)], (dtype, s)
            assert types(lambda x, s=s: fn(s, x), dtype) == [result(f, dtype)], (s, dtype)


@pytest.mark.parametrize("dtype", REAL_FLOATING)
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.eq])
def test_a_complex_scalar_makes_complex(op: Callable[..., Any], dtype: str) -> None:
    want = "bool" if op is operator.eq else {"float32": "complex64", "float64": "complex128"}[dtype]
    assert types(lambda x: op(x, 1j), dtype) == [want]
    assert types(lambda x: op(1j, x), dtype) == [want]


BINARY = {f.name: f for f in group("binary")}


@pytest.mark.parametrize("name", [n for n in OPERATORS if n != "__matmul__"])
def test_operator(name: str) -> None:
    f = BINARY[OPERATORS[name]]
    method: Callable[..., Any] = getattr(operator, name)
    reflected = f"__r{name[2:]}"
    for a in KINDS[f.kind]:
        for b in KINDS[f.kind]:
            common = promoted(a, b)
            if common is not None:
                assert types(method, a, b) == [result(f, common)], (a, b)
        for s in scalars(a):
            assert types(lambda x, s=s: method(x, s), a) == [result(f, a)]
            assert types(lambda x, s=s: method(s, x), a) == [result(f, a)]
            if hasattr(Array, reflected):
                assert types(lambda x, s=s: getattr(x, reflected)(s), a) == [result(f, a)]


@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in {"__matmul__", "__eq__", "__ne__"}][:13])
def test_operator_in_place(name: str) -> None:
    """`x += y` binds x to a new array. For operands that keep the dtype it is the standard's in-place operator."""
    if name in {"__lt__", "__le__", "__gt__", "__ge__"}:
        return
    in_place: Callable[..., Any] = getattr(operator, f"__i{name[2:]}")
    for dtype in KINDS[BINARY[OPERATORS[name]].kind]:
        assert types(in_place, dtype, dtype) == [dtype]
        for s in scalars(dtype):
            assert types(lambda x, s=s: in_place(x, s), dtype) == [dtype]


@pytest.mark.parametrize("name", UNARY_OPERATORS)
def test_unary_operator(name: str) -> None:
    f = next(f for f in group("unary") if f.name == UNARY_OPERATORS[name])
    for dtype in KINDS[f.kind]:
        assert types(getattr(operator, name), dtype) == [result(f, dtype)]


# --------------------------------------------------------------------------------------------------------- reductions


def total(dtype: str) -> str:
    """Returns the dtype of a sum: integers narrower than int32 are summed in int32 or uint32."""
    if dtype in {"int8", "int16"}:
        return "int32"
    return "uint32" if dtype in {"uint8", "uint16"} else dtype


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod"])
def test_sums(name: str) -> None:
    fn = getattr(fnp, name)
    for dtype in NUMERIC:
        assert types(fn, dtype) == [total(dtype)]
    for dtype in ("float64", "complex128", "int64"):
        assert types(lambda x, d=dtype: fn(x, dtype=getattr(fnp, d)), "int16") == [dtype]


def test_trace() -> None:
    for dtype in NUMERIC:
        assert types(fnp.linalg.trace, dtype, shape=(3, 3)) == [total(dtype)]
    assert types(lambda x: fnp.linalg.trace(x, dtype=fnp.float64), "float32", shape=(3, 3)) == ["float64"]


@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_moments(name: str) -> None:
    fn = getattr(fnp, name)
    for dtype in REAL_FLOATING:
        assert types(fn, dtype) == [dtype]
    for dtype in INTEGER:
        assert types(fn, dtype) == ["float32"], "the default floating dtype"
    if name == "mean":
        for dtype in COMPLEX:
            assert types(fn, dtype) == [dtype]


@pytest.mark.parametrize(
    ("name", "kinds", "want"),
    [
        ("all", ALL, "bool"),
        ("any", ALL, "bool"),
        ("argmax", REAL, "int32"),
        ("argmin", REAL, "int32"),
        ("argsort", REAL, "int32"),
        ("count_nonzero", ALL, "int32"),
        ("max", REAL, None),
        ("min", REAL, None),
        ("sort", REAL, None),
        ("diff", NUMERIC, None),
        ("flip", ALL, None),
        ("clip", REAL, None),
        ("tril", ALL, None),
        ("matrix_transpose", ALL, None),
    ],
)
def test_dtypes_of_searches_sorts_and_rearrangements(name: str, kinds: tuple[str, ...], want: str | None) -> None:
    for dtype in kinds:
        assert types(getattr(fnp, name), dtype, shape=(2, 3)) == [want or dtype]


@pytest.mark.parametrize("name", ["matmul", "tensordot", "vecdot", "linalg.outer", "linalg.cross"])
def test_products(name: str) -> None:
    fn = operator.attrgetter(name)(fnp)
    if name == "tensordot":
        fn = lambda x, y: fnp.tensordot(x, y, axes=1)  # noqa: E731
    for a in NUMERIC:
        for b in NUMERIC:
            common = promoted(a, b)
            if common is not None:
                assert types(fn, a, b) == [common], (a, b)
    if name == "matmul":
        assert types(operator.matmul, "int8", "int16") == ["int16"]


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_concat_and_stack(name: str) -> None:
    fn = getattr(fnp, name)
    for a in ALL:
        for b in ALL:
            common = promoted(a, b)
            if common is not None:
                assert types(lambda x, y: fn([x, y]), a, b) == [common]


def test_where() -> None:
    for a in ALL:
        for b in ALL:
            common = promoted(a, b)
            if common is not None:
                assert types(lambda c, x, y: fnp.where(c, x, y), "bool", a, b) == [common]
        for s in scalars(a):
            assert types(lambda c, x, s=s: fnp.where(c, x, s), "bool", a) == [a]
            assert types(lambda c, x, s=s: fnp.where(c, s, x), "bool", a) == [a]


def test_clip_with_scalars() -> None:
    for dtype in REAL:
        for s in scalars(dtype):
            assert types(lambda x, s=s: fnp.clip(x, s, s), dtype) == [dtype]
            assert types(lambda x, s=s: fnp.clip(x, max=s), dtype) == [dtype]


# -------------------------------------------------------------------------------------------------- dtypes themselves


def test_result_type() -> None:
    for a in ALL:
        for b in ALL:
            common = promoted(a, b)
            if common is not None:
                x = fnp.zeros(2, dtype=a)
                assert fnp.result_type(getattr(fnp, a), getattr(fnp, b)) == getattr(fnp, common)
                assert fnp.result_type(x, getattr(fnp, b)) == getattr(fnp, common)
                assert fnp.result_type(getattr(fnp, b), x, getattr(fnp, b)) == getattr(fnp, common)
        for s in scalars(a):
            assert fnp.result_type(getattr(fnp, a), s) == getattr(fnp, a)
            assert fnp.result_type(s, fnp.ones(2, dtype=a)) == getattr(fnp, a)
    assert fnp.result_type(fnp.float32, 1j) == fnp.complex64
    assert fnp.result_type(fnp.float64, 1j) == fnp.complex128


def test_can_cast() -> None:
    for a in ALL:
        for b in ALL:
            common = promoted(a, b)
            if common is not None:
                assert fnp.can_cast(getattr(fnp, a), getattr(fnp, b)) is (common == b)
                assert fnp.can_cast(fnp.zeros(1, dtype=a), getattr(fnp, b)) is (common == b)


@pytest.mark.parametrize("dtype", ALL)
def test_isdtype(dtype: str) -> None:
    d = getattr(fnp, dtype)
    kinds = {
        "bool": BOOL,
        "signed integer": SIGNED,
        "unsigned integer": tuple(x for x in INTEGER if x not in SIGNED),
        "integral": INTEGER,
        "real floating": REAL_FLOATING,
        "complex floating": COMPLEX,
        "numeric": NUMERIC,
    }
    for kind, members in kinds.items():
        assert fnp.isdtype(d, kind) is (dtype in members)
    assert fnp.isdtype(d, d)
    assert fnp.isdtype(d, ("bool", fnp.int8, "numeric"))
    assert not fnp.isdtype(d, ())
    assert [other for other in ALL if fnp.isdtype(d, getattr(fnp, other))] == [dtype]


@pytest.mark.parametrize("dtype", FLOATING)
def test_finfo(dtype: str) -> None:
    real = REAL_PART.get(dtype, dtype)
    for given in (getattr(fnp, dtype), fnp.zeros(2, dtype=dtype)):
        info = fnp.finfo(given)
        assert info.dtype == getattr(fnp, real)
        assert (info.bits, type(info.bits)) == (int(real[5:]), int)
        assert all(type(v) is float for v in (info.eps, info.max, info.min, info.smallest_normal))
        digits = {32: 23, 64: 52}[info.bits]
        assert info.eps == 2.0**-digits
        assert info.max == -info.min == (2 - 2.0**-digits) * 2.0 ** {32: 127, 64: 1023}[info.bits]
        assert info.smallest_normal == 2.0 ** {32: -126, 64: -1022}[info.bits]


@pytest.mark.parametrize("dtype", INTEGER)
def test_iinfo(dtype: str) -> None:
    bits = int(dtype.removeprefix("u")[3:])
    for given in (getattr(fnp, dtype), fnp.zeros(2, dtype=dtype)):
        info = fnp.iinfo(given)
        assert info.dtype == getattr(fnp, dtype)
        assert (info.bits, type(info.bits), type(info.max), type(info.min)) == (bits, int, int, int)
        assert info.min == (-(2 ** (bits - 1)) if dtype in SIGNED else 0)
        assert info.max == 2 ** (bits - (dtype in SIGNED)) - 1


def test_astype() -> None:
    for a in ALL:
        for b in ALL:
            if a in COMPLEX and b not in COMPLEX and b != "bool":
                with pytest.raises(TypeError, match="would drop the imaginary part"):
                    types(lambda x, b=b: fnp.astype(x, getattr(fnp, b)), a)
            else:
                assert types(lambda x, b=b: fnp.astype(x, getattr(fnp, b), copy=False), a) == [b]


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fn", "dtypes", "message"),
    [
        (fnp.floor_divide, ("complex64", "complex64"), "floor_divide: takes integer or real floating operands"),
        (fnp.remainder, ("bool", "bool"), "remainder: takes integer or real floating operands"),
        (fnp.bitwise_and, ("float32", "float32"), "and: takes bool or integer operands"),
        (fnp.bitwise_invert, ("float32",), "invert: takes bool or integer operands"),
        (fnp.negative, ("bool",), "negative: takes numbers"),
        (fnp.argmax, ("complex64",), "argmax: takes real numbers"),
    ],
)
def test_refused(fn: Callable[..., Any], dtypes: tuple[str, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        types(fn, *dtypes)


@pytest.mark.parametrize("value", ["text", None, [1, 2], object()], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("f", group("unary", "statistics", "utility"), ids=lambda f: f.id)
def test_what_is_no_array(f: Function, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{f.name}: argument 0: an? \\w+ is not an array"):
        getattr(fnp, f.name)(value)


@pytest.mark.parametrize("value", ["text", None, [1, 2]], ids=repr)
@pytest.mark.parametrize("f", group("binary", "linear algebra"), ids=lambda f: f.id)
def test_what_is_no_second_array(f: Function, value: object) -> None:
    if f.name != "matrix_transpose":
        with pytest.raises(TypeError, match=f"^{f.name}: argument 1: an? \\w+ is not an array"):
            getattr(fnp, f.name)(fnp.ones(2), value)


def test_scalars_alone() -> None:
    """An addition to the standard: functions take Python numbers, which alone are bool, int32, float32 or complex64."""
    assert aval_of(fnp.add(1, 2)).dtype == fnp.int32
    assert aval_of(fnp.sin(1.0)).dtype == fnp.float32
    assert aval_of(fnp.multiply(1j, 2)).dtype == fnp.complex64
