"""The promotion rule: every pair of dtypes, Python scalars on either side, in all operations (decision 64).

`TABLE` is the rule, written out. Types depend on types only, so most of these tests trace functions and compute
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.dtypes import DType
from fxad.errors import DTypeError
from fxad.tracing.array import Array

INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
# The common dtypes of integers; rows and columns are in the order of `INTEGERS`.
TABLE = """
i8  i16 i32 i64 i16 i32 i64 f32
i16 i16 i32 i64 i16 i32 i64 f32
i32 i32 i32 i64 i32 i32 i64 f32
i64 i64 i64 i64 i64 i64 i64 f32
i16 i16 i32 i64 u8  u16 u32 u64
i32 i32 i32 i64 u16 u16 u32 u64
i64 i64 i64 i64 u32 u32 u32 u64
f32 f32 f32 f32 u64 u64 u64 u64
"""
OF_INTEGERS = {
    (a, b): c
    for a, row in zip(INTEGERS, TABLE.split("\n")[1:-1], strict=True)
    for b, c in zip(INTEGERS, row.split(), strict=True)
}
FLOATS = ["f16", "bf16", "f32", "f64"]
COMPLEXES = ["c64", "c128"]
ORDINARY = ["bool", *INTEGERS, *FLOATS, *COMPLEXES]
EIGHTS = [dtypes.short(d) for d in dtypes.ALL if d in dtypes.FLOAT8]
SCALARS = {bool: "bool", int: "i32", float: "f32", complex: "c64"}
NUMBERS = {bool: True, int: 1, float: 1.5, complex: 1j}


def kind(name: str) -> int:
    return 0 if name == "bool" else 1 if name in INTEGERS else 3 if name in COMPLEXES else 2


def common(a: str, b: str) -> str | None:
    """Returns the common dtype of two arrays by short names, or None."""
    if a == b:
        return a
    if (a, b) in OF_INTEGERS:
        return OF_INTEGERS[a, b]
    if kind(a) != kind(b) and min(kind(a), kind(b)) < 2:
        return max(a, b, key=kind)
    if kind(a) == 3 or kind(b) == 3:
        return "c128" if {"f64", "c128"} & {a, b} else "c64"
    if {a, b} <= set(EIGHTS):
        return None
    if a in EIGHTS or b in EIGHTS:
        return b if a in EIGHTS else a
    return "f32" if {a, b} == {"f16", "bf16"} else max(a, b, key=lambda n: int(n.lstrip("bf")))


def with_scalar(a: str, scalar: type) -> str:
    """Returns the dtype of an array with a Python scalar."""
    if kind(SCALARS[scalar]) <= kind(a):
        return a
    return common(a, SCALARS[scalar]) or ""


PAIRS = list(product(ORDINARY, ORDINARY))
EIGHTH = [p for p in product([*ORDINARY, *EIGHTS], EIGHTS) if common(*p) is not None]


def traced(fn: Callable[..., Any], *names: str, shape: tuple[int, ...] = (2, 2)) -> str:
    program = fx.trace(fn, *[fx.Spec(shape, dtypes.BY_SHORT[n]) for n in names])
    wide = {"f64", "c128"}
    if not wide & set(names):  # no intermediate value is wide either
        assert not wide & {dtypes.short(v.aval.dtype) for e in program.jaxpr.eqns for v in e.outs}, program.text()
    return dtypes.short(program.jaxpr.out_avals[0].dtype)


# Operations that promote two operands.
MEETINGS: dict[str, Callable[[Array, Array], Array]] = {
    "multiply": fnp.multiply,
    "*": lambda a, b: a * b,
    "subtract": lambda a, b: a - b if fnp.bool_ not in (a.dtype, b.dtype) else a * b,
    "where": lambda a, b: fnp.where(True, a, b),
    "concatenate": lambda a, b: fnp.concatenate([a, b]),
    "stack": lambda a, b: fnp.stack([a, b]),
    "@": lambda a, b: a @ b,
    "einsum": lambda a, b: fnp.einsum("ij,kj->ik", a, b),
    "call": lambda a, b: fx.jit(fnp.multiply)(a, b),
}


@pytest.mark.parametrize("meeting", MEETINGS)
def test_two_arrays(meeting: str) -> None:
    fn = MEETINGS[meeting]
    some = PAIRS if meeting != "call" else PAIRS[::7]
    assert {p: traced(fn, *p) for p in some} == {p: common(*p) for p in some}


def test_the_table_is_result_type() -> None:
    for a, b in [*PAIRS, *EIGHTH]:
        want = dtypes.BY_SHORT[common(a, b) or ""]
        assert fnp.result_type(dtypes.BY_SHORT[a], dtypes.BY_SHORT[b]) is want
        assert fnp.promote_types(dtypes.BY_SHORT[b], dtypes.BY_SHORT[a]) is want
    for a, scalar in product([*ORDINARY, *EIGHTS], SCALARS):
        assert fnp.result_type(dtypes.BY_SHORT[a], NUMBERS[scalar]) is dtypes.BY_SHORT[with_scalar(a, scalar)]


def test_float8_with_another_float8() -> None:
    with pytest.raises(DTypeError, match="float8_e4m3fn and float8_e5m2 have no common dtype"):
        fnp.promote_types("f8e4m3fn", "f8e5m2")


@pytest.mark.parametrize("scalar", SCALARS)
def test_an_array_with_a_scalar(scalar: type) -> None:
    number = NUMBERS[scalar]
    for a in ORDINARY:
        want = with_scalar(a, scalar)
        assert traced(lambda x: x * number, a) == want, a
        assert traced(lambda x: number * x, a) == want, a
        assert traced(lambda x: fnp.where(x == x, x, number), a) == want, a


def test_eagerly() -> None:
    few = ["bool", "i32", "u64", "bf16", "f32", "f64", "c64"]
    arrays = {n: fnp.ones(2, dtypes.BY_SHORT[n]) for n in few}
    for a, b in product(few, few):
        assert dtypes.short((arrays[a] * arrays[b]).dtype) == common(a, b), (a, b)
    for a, scalar in product(few, SCALARS):
        assert dtypes.short((NUMBERS[scalar] * arrays[a]).dtype) == with_scalar(a, scalar)


def test_numpy_arrays_take_part_with_their_dtype() -> None:
    assert (np.arange(3) * fnp.ones(3)).dtype == np.float32
    assert (np.arange(3.0) * fnp.ones(3, "int32")).dtype == np.float64
    assert (fnp.ones(3, "int64") * np.float32(2)).dtype == np.float32


# Functions with floating results for integer operands.
FLOATING: dict[str, Callable[[Array], Array]] = {
    "/": lambda x: x / x,
    "/ int": lambda x: x / 2,
    "mean": lambda x: fnp.mean(x.astype(x.dtype)),
    "sqrt": fnp.sqrt,
    "exp": fnp.exp,
    "arctan2": lambda x: fnp.arctan2(x, x),
    "hypot": lambda x: fnp.hypot(x, x),
    "logaddexp": lambda x: fnp.logaddexp(x, x),
    "float_power": lambda x: fnp.float_power(x, 2),
    "linalg.inv": fnp.linalg.inv,
    "std": lambda x: fnp.std(x),
    "average": lambda x: fnp.average(x, returned=False),
    "quantile": lambda x: fnp.quantile(x, 0.5),
}


@pytest.mark.parametrize("name", FLOATING)
def test_floating_results_of_integers_are_float32(name: str) -> None:
    for a in ["bool", *INTEGERS]:
        program = fx.trace(FLOATING[name], fx.Spec((2, 2), dtypes.BY_SHORT[a]))
        assert program.jaxpr.out_avals[0].dtype is dtypes.float32, a
    program = fx.trace(fnp.fft.fft, fx.Spec((2,), "int64"))
    assert program.jaxpr.out_avals[0].dtype is dtypes.complex64


@pytest.mark.parametrize(("a", "b"), [("i32", "f32"), ("i64", "bf16"), ("bool", "f16"), ("u64", "c64"), ("f32", "f64")])
def test_loop_carries(a: str, b: str) -> None:
    """A carry of the common dtype keeps it, for either operand in the step."""
    c = dtypes.BY_SHORT[common(a, b) or ""]
    x = fx.Spec((2,), dtypes.BY_SHORT[a])

    def run(start: Array, x: Array) -> Array:
        return lax.fori_loop(0, 3, lambda i, v: v * x, start)

    assert fx.trace(run, fx.Spec((2,), c), x).jaxpr.out_avals[0].dtype is c
    # a Python number takes the dtype that the step returns
    (out, _), _ = lax.scan(lambda v, _: ((v[0] * fnp.ones((), dtypes.BY_SHORT[b]), v[1]), None), (1, 2), length=2)
    assert out.dtype == dtypes.BY_SHORT[with_scalar(b, int)]


WIDENED: list[tuple[Callable[[Array], Array], DType, str, str]] = [
    (lambda v: v * 0.5, dtypes.int32, "mul %0:f32[2] 0.5:f32[2]", "float32"),
    (lambda v: fnp.sin(v) + 1, dtypes.int64, "sin %0:f32[2]", "float32"),
    (lambda v: (v + np.float64(1)) * 2, dtypes.float32, "add %0:f64[2] 1.0:f64[2]", "float64"),
    (lambda v: (v * 0.8125).astype("float16"), dtypes.float32, "convert_element_type %0:f32[2]", "float16"),
]


@pytest.mark.parametrize("k", range(len(WIDENED)))
def test_a_carry_that_is_widened_says_where(k: int) -> None:
    step, dtype, equation, to = WIDENED[k]
    with pytest.raises(DTypeError) as e:
        lax.scan(lambda v, _: (step(v), None), fnp.zeros(2, dtype), length=2)
    a, b = dtypes.short(dtype), dtypes.short(dtypes.as_dtype(to))
    assert e.value.message == f"scan: the carry changes its type: init is {a}[2], f <lambda> returns {b}[2] for it"
    assert e.value.equation.endswith(f"= {equation}")
    assert "test_promotion.py" in e.value.where
    assert e.value.remedy == f"start from a value of dtype {to}, or return astype('{dtype.name}')"


def test_a_carry_that_is_replaced_names_no_equation() -> None:
    with pytest.raises(DTypeError) as e:
        lax.scan(lambda v, x: (x, None), fnp.zeros((), "int32"), fnp.ones(3))
    assert e.value.equation == ""


GREATEST = int(np.finfo(np.float64).max)
FIRST_ABOVE = 2**1024 - 2**970  # the first int that is rounded to infinity


@pytest.mark.parametrize("number", [10**308, 2**1023, GREATEST, FIRST_ABOVE - 1])
def test_an_int_up_to_the_greatest_float_is_rounded(number: int) -> None:
    x = fnp.ones((), "float64")
    for signed in (number, -number):
        assert float(x * signed) == float(fnp.asarray(signed, dtype="float64")) == float(signed)


def test_an_int_above_the_greatest_float_is_refused() -> None:
    for number in (FIRST_ABOVE, -FIRST_ABOVE, 2**1024):
        with pytest.raises(DTypeError, match=f"an int of {number.bit_length()} bits does not fit in float64"):
            fnp.ones((), "float64") * number
