"""Every function of `fxad.numpy` against NumPy's, eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.errors import ParameterError
from fxad.tracing.array import Array
from tests.interfaces.oracle import Value, check, close, names, traced

RNG = np.random.default_rng(7)
F32 = RNG.standard_normal((3, 4)).astype(np.float32)
F64 = RNG.standard_normal((4,))
UNIT = RNG.uniform(-0.9, 0.9, (3, 4)).astype(np.float32)
POSITIVE = RNG.uniform(1.1, 3, (3, 4)).astype(np.float32)
I32 = RNG.integers(-5, 6, (3, 4)).astype(np.int32)
I8 = RNG.integers(-5, 6, (3, 4)).astype(np.int8)
U8 = RNG.integers(0, 200, (3, 4)).astype(np.uint8)
B = RNG.integers(0, 2, (3, 4)).astype(bool)
C = (RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4))).astype(np.complex64)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5], np.float32)


def both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return getattr(fnp, name), getattr(np, name)


@pytest.mark.parametrize(
    "name", ["sin", "cos", "tan", "arctan", "atan", "sinh", "cosh", "tanh", "asinh", "exp", "exp2", "expm1", "cbrt"]
)
@pytest.mark.parametrize("x", [F32, I8, I32, B], ids=["f32", "i8", "i32", "bool"])
def test_floating(name: str, x: Value) -> None:
    if x.dtype == np.bool_ and name == "cbrt":
        pytest.skip("NumPy's loop is float16")
    check(*both(name), x)


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arctanh", "asin", "acos", "atanh"])
def test_in_the_unit_interval(name: str) -> None:
    check(*both(name), UNIT)


@pytest.mark.parametrize("name", ["log", "log1p", "log2", "log10", "sqrt", "acosh", "reciprocal"])
def test_of_positive_numbers(name: str) -> None:
    check(*both(name), POSITIVE)


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg", "radians", "degrees"])
def test_angles(name: str) -> None:
    check(*both(name), F32)
    check(fnp.angle, np.angle, C)


@pytest.mark.parametrize("name", ["abs", "negative", "positive", "sign", "square", "conj", "real", "imag"])
@pytest.mark.parametrize("x", [F32, I32, C], ids=["f32", "i32", "c64"])
def test_functions_that_keep_the_dtype(name: str, x: Value) -> None:
    check(*both(name), x)


def test_functions_of_bools() -> None:
    """There is a value wherever NumPy has one. Its int8 and float16 are int32 and float32."""
    x, kept = np.array([True, False]), {"conj": "bool", "conjugate": "bool", "rint": "bool", "reciprocal": "float32"}
    wide = {"int8": "int32", "float16": "float32"}
    tried = 0
    for name, theirs in [
        (n, u) for n in dir(fnp) if isinstance(u := getattr(np, n, None), np.ufunc) and u.nin == u.nout == 1
    ]:
        try:
            with np.errstate(all="ignore"):
                want = theirs(x)
        except TypeError:
            continue
        tried += 1
        have = np.asarray(getattr(fnp, name)(x))
        assert have.dtype == kept.get(name, wide.get(want.dtype.name, want.dtype.name)), name
        if name not in ("spacing", "reciprocal"):
            np.testing.assert_allclose(have.astype(float), want.astype(float), rtol=2e-3, err_msg=name)
    assert tried > 40
    check(fnp.power, lambda x, y: np.power(x, y, dtype=np.int32), B, B)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "rint", "round", "isnan", "isinf", "isfinite", "signbit"])
def test_rounding_and_predicates(name: str) -> None:
    check(*both(name), ODD)
    if name != "rint":  # NumPy returns a float for integers
        check(*both(name), I32)


def test_round_decimals() -> None:
    check(lambda x: fnp.round(x, 2), lambda x: np.round(x, 2), F32)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_tens_of_integers(dtype: str) -> None:
    """Ties to even; a multiple that does not fit wraps around."""
    bits = np.iinfo(dtype)
    low, high = int(bits.min), int(bits.max)
    near = [*range(-160, 161, 5), low, low + 1, high, high - 1, high // 2 + 1, 5 * 10 ** (len(str(high)) - 1)]
    values = [v for v in near if low <= v <= high]
    x = np.array(values, dtype)
    for decimals in (1, 2, 4, 5, 9, 10, 18, 19, 20, 400):
        unit = 10**decimals
        program = fx.trace(lambda x, d=decimals: fnp.round(x, -d), x)
        want = [round(Fraction(v, unit)) * unit for v in values]
        wrapped = np.array([(w - low) % (high - low + 1) + low for w in want], dtype)
        np.testing.assert_array_equal(np.asarray(fx.interpret(program, x)), wrapped, strict=True)
    np.testing.assert_array_equal(np.asarray(fnp.round(np.array([15, 25, -17, 123]), -1)), [20, 20, -20, 120])


def test_tens_of_bools_are_refused() -> None:
    with pytest.raises(fx.errors.DTypeError, match=r"^round: -1 decimals of bool\[1\]") as e:
        fnp.round(np.array([True]), -1)
    assert e.value.remedy == "convert to an integer dtype first"


def test_bits() -> None:
    check(fnp.invert, np.invert, I32)
    check(fnp.bitwise_not, np.bitwise_not, B)
    check(fnp.bitwise_count, np.bitwise_count, I32)
    check(fnp.logical_not, np.logical_not, F32)


BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "hypot", "copysign", "logaddexp", "heaviside"]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("x", "y"), [(F32, F64), (I8, F32), (F32, F32)], ids=["f32f64", "i8f32", "f32f32"])
def test_binary(name: str, x: Value, y: Value) -> None:
    check(*both(name), x, y)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "divide", "floor_divide", "remainder", "fmod", "mod"])
@pytest.mark.parametrize(("x", "y"), [(I32, I8), (I8, U8), (U8, U8)], ids=["i32i8", "i8u8", "u8u8"])
def test_integers(name: str, x: Value, y: Value) -> None:
    y = np.where(y == 0, 3, y).astype(y.dtype)
    check(*both(name), x, y)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "power", "arctan2", "nextafter"])
def test_float_pairs(name: str) -> None:
    check(*both(name), POSITIVE, F32)
    check(*both(name), POSITIVE, -POSITIVE if name != "power" else F32)


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparisons(name: str) -> None:
    check(*both(name), ODD, ODD[::-1].copy())
    check(*both(name), I32, I8)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name: str) -> None:
    check(*both(name), I32, B)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_bitwise(name: str) -> None:
    small = (U8 % 5).astype(np.uint8)
    check(*both(name), U8, small)
    check(*both(name), I32, small)


def test_power_of_a_python_int() -> None:
    check(lambda x: fnp.power(x, 3), lambda x: np.power(x, 3), F32)
    assert names(lambda x: fnp.power(x, 3), F32) == ["integer_pow"]


def test_where() -> None:
    check(fnp.where, np.where, B, F32, I8)
    check(lambda c, x: fnp.where(c, x, 0), lambda c, x: np.where(c, x, np.float32(0)), B, F32)
    check(lambda c, x: fnp.where(c, 0, x), lambda c, x: np.where(c, np.float32(0), x), B, F32)
    check(lambda c: fnp.where(c, 1, 2.5), lambda c: np.where(c, np.float32(1), np.float32(2.5)), B)
    assert names(lambda c, x: fnp.where(c, x, 0), B, F32) == ["select_n"]


def test_clip() -> None:
    check(lambda x: fnp.clip(x, -1, 1), lambda x: np.clip(x, -1, 1), F32)
    check(lambda x: fnp.clip(x, None, 1), lambda x: np.clip(x, None, 1), I32)
    check(lambda x: fnp.clip(x, 0), lambda x: np.clip(x, 0, None), I32)
    check(lambda x: x.clip(-1, 1) if isinstance(x, Array) else fnp.clip(x, -1, 1), lambda x: np.clip(x, -1, 1), F32)


def test_close() -> None:
    near = ODD + np.float32(1e-7)
    check(fnp.isclose, np.isclose, ODD, near)
    check(lambda x, y: fnp.isclose(x, y, equal_nan=True), lambda x, y: np.isclose(x, y, equal_nan=True), ODD, near)
    check(fnp.nan_to_num, np.nan_to_num, ODD)
    assert bool(fnp.allclose(F32, F32))
    assert not bool(fnp.array_equal(F32, F64))


# ------------------------------------------------------------------------------------------------------- reductions

REDUCTIONS = ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "count_nonzero"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name: str, axis: int | tuple[int, ...] | None, keepdims: bool) -> None:
    ours, theirs = both(name)
    check(
        lambda x: ours(x, axis=axis, keepdims=keepdims),
        lambda x: theirs(x, axis=axis, keepdims=keepdims),
        F32,
        dtype=name != "count_nonzero",
        eager=keepdims,
    )


@pytest.mark.parametrize(
    ("x", "want"),
    [(I8, "int32"), (U8, "uint32"), (I32, "int32"), (B, "int32"), (I32.astype(np.int64), "int64"), (F32, "float32")],
    ids=str,
)
def test_dtypes_of_sums(x: Value, want: str) -> None:
    check(fnp.sum, lambda x: np.sum(x, dtype=want), x)
    check(fnp.prod, lambda x: np.prod(x, dtype=want), x)


@pytest.mark.parametrize("x", [I8, U8, I32, B], ids=["i8", "u8", "i32", "bool"])
def test_moments_of_integers(x: Value) -> None:
    for name in ("mean", "var", "std"):  # in the default dtype, as the array API standard requires
        ours, theirs = both(name)
        check(ours, lambda x, f=theirs: np.float32(f(x, dtype=np.float64)), x)


def test_moments() -> None:
    check(lambda x: fnp.var(x, 0, correction=1), lambda x: np.var(x, 0, ddof=1), F32)
    check(lambda x: fnp.std(x, 0, ddof=1), lambda x: np.std(x, 0, ddof=1), F32)
    check(fnp.var, np.var, C)
    check(lambda x: fnp.sum(x, dtype="float64"), lambda x: np.sum(x, dtype="float64"), F32, promoted=False)
    check(fnp.ptp, np.ptp, F32)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places(name: str) -> None:
    ours, theirs = both(name)
    for axis in (None, 0, -1):
        check(lambda x, a=axis: ours(x, a), lambda x, a=axis: theirs(x, a).astype(np.int32), I32)
    check(lambda x: ours(x, 1, keepdims=True), lambda x: theirs(x, 1, keepdims=True).astype(np.int32), F32)


# ----------------------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    "fn",
    [
        lambda m, x: m.reshape(x, (2, -1)),
        lambda m, x: m.ravel(x),
        lambda m, x: m.transpose(x),
        lambda m, x: m.permute_dims(x, (2, 0, 1)),
        lambda m, x: m.matrix_transpose(x),
        lambda m, x: m.swapaxes(x, 0, -1),
        lambda m, x: m.moveaxis(x, 0, -1),
        lambda m, x: m.moveaxis(x, (0, 1), (-1, 0)),
        lambda m, x: m.squeeze(x[:, :1]),
        lambda m, x: m.squeeze(x[:, :1], 1),
        lambda m, x: m.expand_dims(x, (0, -1)),
        lambda m, x: m.broadcast_to(x, (5, 2, 3, 4)),
        lambda m, x: m.flip(x),
        lambda m, x: m.flip(x, (0, -1)),
        lambda m, x: m.fliplr(x),
        lambda m, x: m.flipud(x),
        lambda m, x: m.roll(x, 3),
        lambda m, x: m.roll(x, -1, 1),
        lambda m, x: m.roll(x, (1, 2), (0, 2)),
        lambda m, x: m.concat([x, x], 1),
        lambda m, x: m.concatenate([x, x[..., :1]], None),
        lambda m, x: m.stack([x, x], -1),
        lambda m, x: m.vstack([x[0], x[1]]),
        lambda m, x: m.hstack([x[0], x[1]]),
        lambda m, x: m.column_stack([x[0, 0], x[0, 1]]),
        lambda m, x: m.unstack(x, axis=1),
        lambda m, x: m.split(x, 2, -1),
        lambda m, x: m.split(x, [1, 3], -1),
        lambda m, x: m.array_split(x, 3, -1),
        lambda m, x: m.repeat(x, 2, 1),
        lambda m, x: m.repeat(x, 2),
        lambda m, x: m.tile(x, (2, 1)),
        lambda m, x: m.tile(x, (2, 1, 1, 3)),
        lambda m, x: m.pad(x, 1),
        lambda m, x: m.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=7),
        lambda m, x: m.tril(x, 1),
        lambda m, x: m.triu(x, -1),
        lambda m, x: m.diagonal(x),
        lambda m, x: m.diagonal(x, 1, 1, 2),
        lambda m, x: m.trace(x, -1, 1, 2),
        lambda m, x: m.diag(x[0, 0], 1),
        lambda m, x: m.diag(x[0], -1),
        lambda m, x: m.take(x, m.asarray([3, 0, -1]), 2),
        lambda m, x: m.take(x, m.asarray([[5, 0]])),
        lambda m, x: m.take_along_axis(x, m.argmax(x, -1, keepdims=True), -1),
        lambda m, x: m.diff(x, 2),
        lambda m, x: m.atleast_2d(x[0, 0]),
        lambda m, x: m.broadcast_arrays(x, x[:1, :, :1]),
    ],
)
def test_shapes(fn: Callable[..., object]) -> None:
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    check(lambda a: fn(fnp, fnp.asarray(a)), lambda a: fn(np, a), x)


# --------------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((0, 2, 3), (3, 4)),
    ],
    ids=str,
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = RNG.standard_normal(a), RNG.standard_normal(b)
    check(fnp.matmul, np.matmul, x, y)
    if len(a) < 3 and len(b) < 3:
        assert names(fnp.matmul, x, y) == ["dot_general"]


def test_matmul_of_other_dtypes() -> None:
    check(fnp.matmul, np.matmul, I32, I32.T.copy())
    check(fnp.matmul, np.matmul, B, B.T.copy())
    check(fnp.matmul, np.matmul, I8, F32.T.copy())


def test_products() -> None:
    x, y = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((4, 3, 2))
    check(fnp.dot, np.dot, x, y[:, :, 0].copy())
    check(fnp.dot, np.dot, x, np.moveaxis(y, 0, 1).copy())
    check(fnp.tensordot, np.tensordot, x, np.moveaxis(y, 0, 1).copy())
    check(lambda x, y: fnp.tensordot(x, y, (0, 2)), lambda x, y: np.tensordot(x, y, (0, 2)), x, y)
    check(lambda x, y: fnp.tensordot(x, y, 0), lambda x, y: np.tensordot(x, y, 0), x[0], y[0])
    check(fnp.inner, np.inner, x, x[0])
    check(fnp.outer, np.outer, x, y)
    check(fnp.vdot, np.vdot, C, C[::-1].copy())
    check(fnp.vecdot, np.vecdot, C, C[0])


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba,cb", [(2, 3), (4, 2)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iij->j", [(3, 3, 2)]),
        ("i,i->i", [(3,), (3,)]),
        ("i,i->", [(3,), (3,)]),
        ("i,j->ij", [(3,), (4,)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
        ("...ij,...jk", [(5, 1, 2, 3), (6, 3, 4)]),
        ("i...->...", [(2, 3, 4)]),
        ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 4, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,jk,kl,lm->", [(2, 3), (3, 4), (4, 5), (5, 2)]),
        ("i,ij,j->", [(2,), (2, 3), (3,)]),
        ("ij,ik->i", [(2, 3), (2, 4)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("aab,bc->ac", [(2, 2, 3), (3, 4)]),
    ],
)
def test_einsum(spec: str, shapes: list[tuple[int, ...]]) -> None:
    args = [RNG.standard_normal(s) for s in shapes]
    check(lambda *xs: fnp.einsum(spec, *xs), lambda *xs: np.einsum(spec, *xs), *args)


def test_einsum_is_one_contraction() -> None:
    x, y = RNG.standard_normal((2, 3, 4, 5)), RNG.standard_normal((2, 6, 4, 5))
    assert names(lambda x, y: fnp.einsum("bqhd,bkhd->bhqk", x, y), x, y) == ["dot_general"]
    # the operand with the last axis of the result comes second: no transpose, or one that keeps the last axis
    assert names(lambda x, y: fnp.einsum("bkhd,bqhd->bhqk", x, y), x, y) == ["dot_general"]
    a, b = RNG.standard_normal((2, 3, 4, 5)), RNG.standard_normal((6, 2, 3, 5))
    text = str(fx.trace(lambda a, b: fnp.einsum("bhij,nbhj->nbhi", a, b), a, b).jaxpr)
    assert "transpose[perm=(2, 0, 1, 3)]" in text
    assert names(lambda x, y: x @ y.swapaxes(-1, -2), x, x) == ["transpose", "dot_general"]


def test_preferred_element_types() -> None:
    half = F32.astype(np.float16)
    out = traced(lambda x: fnp.einsum("ij,kj,lj->ikl", x, x, x, preferred_element_type="float32"), half)[1][0]
    close(out, np.einsum("ij,kj,lj->ikl", *[half.astype(np.float32)] * 3))
    ones = np.ones((2, 200), np.int8)  # labels of one operand alone are summed in the dtype too
    for labels, arrays in (("ij->i", (ones,)), ("ij,k->k", (ones, ones[0])), ("ii->", (np.eye(200, dtype=np.int8),))):
        sums = fnp.einsum(labels, *arrays, preferred_element_type="int32")
        assert sums.dtype.name == "int32"
        np.testing.assert_array_equal(np.asarray(sums), np.einsum(labels, *[x.astype(np.int32) for x in arrays]))
    product = fnp.dot(np.int8(100), np.array([2, 3], np.int8), preferred_element_type="int32")
    assert product.dtype.name == "int32"
    np.testing.assert_array_equal(np.asarray(product), [200, 300])


def test_norms() -> None:
    check(fnp.linalg.norm, np.linalg.norm, F32)
    for order in (1, 2, np.inf, -np.inf, 3, 0):
        check(
            lambda x, o=order: fnp.linalg.vector_norm(x, axis=1, ord=o),
            lambda x, o=order: np.linalg.vector_norm(x, axis=1, ord=o),
            F32,
        )
    for kind in ("fro", 1, -1, np.inf, -np.inf):
        check(lambda x, o=kind: fnp.linalg.norm(x, o), lambda x, o=kind: np.linalg.norm(x, o), F32)


# --------------------------------------------------------------------------------------------------------- creation


@pytest.mark.parametrize("make", [fnp.zeros, fnp.ones, fnp.empty])
def test_splats_are_literals(make: Callable[..., Array]) -> None:
    assert make((2, 3)).dtype == np.float32
    assert make(3, "int8").shape == (3,)
    assert names(lambda: make((10**6, 10**6))) == []


def test_full() -> None:
    close(fnp.full((2,), 3), np.full((2,), 3, np.int32))
    close(fnp.full((2,), 3, "float64"), np.full((2,), 3.0))
    close(fnp.full((2, 2), fnp.asarray([1.0, 2.0])), np.full((2, 2), [1, 2], np.float32))
    close(fnp.full_like(I8, 7), np.full_like(I8, 7))
    close(fnp.zeros_like(C), np.zeros_like(C))
    close(fnp.ones_like(B), np.ones_like(B))
    close(fnp.zeros_like(C, shape=(2, 0)), np.zeros_like(C, shape=(2, 0)))
    close(fnp.ones_like(B, shape=3), np.ones_like(B, shape=3))
    close(fnp.empty_like(I8, shape=()), np.zeros_like(I8, shape=()))
    close(fnp.full_like(I8, 7, "float64", shape=[2, 2]), np.full_like(I8, 7, "float64", shape=[2, 2]))
    check(lambda x: fnp.full((3,), x), lambda x: np.full((3,), x), np.array(2.5, np.float32))


@pytest.mark.parametrize(
    "args",
    [(5,), (2, 7), (7, 2, -2), (0, 1, 0.25), (1.5, 4), (3, 3), (5, 0), (-3, 10, 3), (0.0, -1.0, -0.3)],
    ids=str,
)
def test_arange(args: tuple[float, ...]) -> None:
    want = np.arange(*args)
    check(lambda: fnp.arange(*args), lambda: want.astype(np.int32 if want.dtype.kind == "i" else np.float32))


def test_arange_of_other_dtypes() -> None:
    for dtype in ("int8", "int64", "float16", "float64", "uint32"):
        want = np.arange(2, 9, 3, dtype=dtype)
        check(lambda d=dtype: fnp.arange(2, 9, 3, dtype=d), lambda w=want: w, promoted=False)


def test_linspace() -> None:
    check(lambda: fnp.linspace(0, 1, 7), lambda: np.linspace(0, 1, 7, dtype=np.float32))
    check(lambda: fnp.linspace(0, 1, 5, endpoint=False), lambda: np.linspace(0, 1, 5, endpoint=False, dtype=np.float32))
    check(lambda x: fnp.linspace(x, 1.0, 4, axis=-1), lambda x: np.linspace(x, 1.0, 4, axis=-1), F64)
    close(fnp.linspace(2.0, 3.0, 1), np.array([2.0], np.float32))
    assert fnp.linspace(2.0, 3.0, 0).shape == (0,)


def test_matrices() -> None:
    check(lambda: fnp.eye(3, 4, 1), lambda: np.eye(3, 4, 1, dtype=np.float32))
    check(lambda: fnp.identity(2, "int32"), lambda: np.identity(2, "int32"))
    check(lambda: fnp.tri(3, 4), lambda: np.tri(3, 4, dtype=np.float32))
    for indexing in ("xy", "ij"):
        check(
            lambda x, y, i=indexing: fnp.meshgrid(x, y, indexing=i),
            lambda x, y, i=indexing: np.meshgrid(x, y, indexing=i),
            F64,
            F64[:3].copy(),
        )


def test_asarray() -> None:
    close(fnp.asarray([1, 2]), np.array([1, 2], np.int32))
    close(fnp.asarray([1, 2.5]), np.array([1, 2.5], np.float32))
    close(fnp.asarray([[True], [False]]), np.array([[True], [False]]))
    close(fnp.asarray([1j, 2]), np.array([1j, 2], np.complex64))
    close(fnp.asarray([]), np.array([], np.float32))
    close(fnp.asarray([np.float64(1), 2]), np.array([1.0, 2.0]))
    close(fnp.asarray([1, 2], "uint8"), np.array([1, 2], np.uint8))
    close(fnp.asarray(F32), F32)
    close(fnp.asarray(F32, "float64"), F32.astype(np.float64))
    close(fnp.asarray(3), np.array(3, np.int32))
    check(lambda x: fnp.array([[x[0], 1.0], [2, x[1]]]), lambda x: np.array([[x[0], 1], [2, x[1]]]), F64)


def test_attributes_of_dtypes() -> None:
    names = "bits dtype eps epsneg max maxexp min minexp nexp nmant precision smallest_normal smallest_subnormal tiny"
    for dtype in (np.float16, np.float32, np.float64):
        found, wanted = fnp.finfo(dtype), np.finfo(dtype)
        assert [getattr(found, n) for n in names.split()] == [getattr(wanted, n) for n in names.split()]
        assert float(str(wanted.resolution)) == found.resolution
    assert fnp.finfo(fnp.bfloat16).max > 3e38
    assert fnp.iinfo(np.int8).min == -128
    assert fnp.iinfo("uint64").max == 2**64 - 1
    assert fnp.result_type(F32, 3) == np.float32
    assert fnp.result_type(I8, 3.0) == np.promote_types(np.int8, np.float32)
    assert fnp.result_type("int32", F64) == np.float64
    assert fnp.promote_types("int8", "uint8") == np.int16
    assert fnp.can_cast("int32", "float64")
    assert not fnp.can_cast("int32", "int8")
    assert fnp.isdtype("bf16", "real floating")
    assert fnp.isdtype(dtypes.int8, ("bool", "integral"))
    assert (fnp.shape(F32), fnp.ndim(F32), fnp.size(F32)) == ((3, 4), 2, 12)


@pytest.mark.parametrize("way", ["loop", "call", "function"])
def test_a_reduction_by_a_loop_is_refused(way: str) -> None:
    """XLA would crash."""

    def looped(a: Any, b: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: c + b, a)

    by: Any = {"loop": looped, "call": fx.jit(looped), "function": lambda a, b: lax.igamma(a + 1, b)}[way]
    with pytest.raises(ParameterError) as caught:
        lax.reduce(np.ones((4, 3), np.float32), np.float32(0), by, (0,))
    assert caught.value.message == "reduce: its body has a loop, of which XLA cannot make a reduction"
    assert caught.value.remedy == "use lax.associative_scan or lax.scan, or write the body without a loop"
