"""Functions on single numbers: parts, divisors, predicates, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import DTypeError, FxadError, ParameterError
from tests.interfaces.oracle import Value, check, close, same

INTS = hnp.arrays(np.int32, (3, 4), elements=st.integers(-100, 100))
X = np.random.default_rng(0).normal(size=(2, 3))

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def edge(dtype: str) -> Value:
    info = np.finfo(dtype)
    some = [0.0, -0.0, 1, -1, 0.5, 3.75, -1e-3, 1e4, np.inf, -np.inf, np.nan, info.tiny, info.max]
    return np.array(some).astype(dtype)


@given(INTS, INTS)
def test_divisors(x: Value, y: Value) -> None:
    same("gcd", x, y[0])
    same("lcm", x, y[0])
    same("gcd", np.abs(x).astype(np.uint8), np.abs(y).astype(np.uint8))


def test_eager_divisors() -> None:
    same("gcd", np.arange(12, dtype=np.int32), np.int32(8), eager=True)
    assert fnp.gcd(np.int8(12), 18).dtype == np.int8
    close(fx.vmap(lambda k: fnp.lcm(k, 6))(fnp.arange(5)), np.lcm(np.arange(5), 6), dtype=False)


@given(hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=3, max_side=11)), st.sampled_from(["big", "little"]))
def test_bits(x: Value, order: str) -> None:
    for axis in (None, 0, -1):
        same("packbits", x, axis=axis, bitorder=order)
        packed = np.packbits(x, axis, order)  # type: ignore[call-overload]
        for count in (None, 3, 19, -2):
            same("unpackbits", packed, axis=axis, count=count, bitorder=order)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_parts(dtype: str) -> None:
    v = edge(dtype)
    for name in ("frexp", "modf", "fabs", "isposinf", "isneginf", "isreal", "iscomplex"):
        same(name, v)
    same("spacing", v[2:10])
    same("ldexp", v, np.int32(3))
    same("ldexp", v[:9], np.arange(9, dtype=np.int32) * 3 - 12)
    for name in ("fmax", "fmin", "logaddexp2"):
        same(name, v, v[::-1].copy())
    whole = fnp.ldexp(*fnp.frexp(v))
    close(whole, v)


def test_far_exponents() -> None:
    close(fnp.ldexp(np.float32(1e-30), 200), np.ldexp(np.float32(1e-30), 200))
    close(fnp.ldexp(1.0, -300), np.float32(0))
    close(fnp.ldexp(np.float64(1e-300), 1990), np.ldexp(1e-300, 1990))
    close(fnp.ldexp(1.0, 2**31 - 1), np.float32(np.inf))


def test_derivatives() -> None:
    x = fnp.asarray([0.75, -3.5, 40.0])
    _, k = np.frexp(np.asarray(x))
    close(fx.grad(lambda v: fnp.frexp(v)[0].sum())(x), np.ldexp(np.float32(1), -k))
    close(fx.grad(lambda v: fnp.ldexp(v, 3).sum())(x), np.full(3, 8, np.float32))
    close(fx.grad(lambda v: fnp.modf(v)[0].sum())(x), np.ones(3, np.float32))
    close(fx.grad(lambda v: fnp.spacing(v).sum())(x), np.zeros(3, np.float32))
    close(fx.grad(lambda v: fnp.logaddexp2(v, v).sum())(x), np.ones(3, np.float32))


def test_logarithms_of_sums_of_complex_numbers() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50)) * 5 + 1j * rng.normal(size=(2, 50)) * 9
    close(fnp.logaddexp(x, y), np.log(np.exp(x) + np.exp(y)))  # the angle is that of the principal branch
    close(fnp.logaddexp2(x, y), np.log2(np.exp2(x) + np.exp2(y)))
    inf = complex(np.inf)
    for f in (fnp.logaddexp, fnp.logaddexp2):
        found = [complex(f(np.complex128(a), np.complex128(b))) for a, b in ((-inf, 2 + 1j), (-inf, -inf), (inf, 1j))]
        assert found == [2 + 1j, -inf, inf]
    slope = fx.grad(lambda v: fnp.logaddexp(v, y).real.sum())(x)
    close(slope, np.exp(x) / (np.exp(x) + np.exp(y)))


def test_powers_and_orders() -> None:
    check(lambda x: fnp.float_power(x, 2), lambda x: np.float_power(x, 2), np.arange(4, dtype=np.int32))
    check(lambda x: fnp.float_power(x, 1.5 + 0j), lambda x: np.float_power(x, 1.5 + 0j), X)
    close(fnp.sort_complex(X[0]), np.sort_complex(X[0]))
    assert fnp.sort_complex(X[0].astype("f4")).dtype == np.complex64


def test_predicates() -> None:
    z = X + 1j * np.array([0, 1, 0])
    same("isreal", z)
    same("iscomplex", z)
    assert fnp.iscomplexobj(z)
    assert fnp.isrealobj(X)
    assert fnp.isscalar(3)
    assert fnp.isscalar(fnp.asarray(3))
    assert not fnp.isscalar(X)
    assert fnp.iterable(fnp.asarray(X))
    assert not fnp.iterable(fnp.asarray(3))
    check(fnp.array_equiv, np.array_equiv, np.ones((2, 3)), np.ones(3))
    check(fnp.array_equiv, np.array_equiv, X, X[:1])
    assert not fnp.array_equiv(X, X[:, :2])
    assert fnp.array_str(fnp.asarray(X), precision=2) == np.array_str(X, precision=2)
    assert fnp.array_repr(fnp.asarray(X)) == np.array_repr(X)
    close(fnp.copy(X), X)


def test_classes_of_dtypes() -> None:
    for dtype in (fnp.bfloat16, fnp.float8_e5m2, "float32", float):
        assert fnp.issubdtype(dtype, fnp.floating)
        assert fnp.issubdtype(dtype, fnp.inexact)
        assert not fnp.issubdtype(dtype, fnp.integer)
    assert fnp.issubdtype(fnp.int8, fnp.signedinteger)
    assert fnp.issubdtype(fnp.integer, fnp.number)
    assert not fnp.issubdtype(fnp.number, fnp.integer)
    assert not fnp.issubdtype(bool, fnp.number)
    assert fnp.issubdtype("float32", fnp.single)
    assert fnp.issubdtype(fnp.asarray(1j).dtype, fnp.complexfloating)
    assert (fnp.double, fnp.csingle, fnp.cdouble) == (fnp.float64, fnp.complex64, fnp.complex128)
    assert fnp.dtype("float32") == fnp.float32


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fnp.gcd(X, 2), DTypeError, "gcd: takes integers, got float64"),
        (lambda: fnp.packbits(X), DTypeError, "packbits: takes bools or integers, got f64[2,3]"),
        (lambda: fnp.packbits(X > 0, bitorder="up"), ParameterError, "packbits: bitorder 'up'"),
        (lambda: fnp.unpackbits(X > 0), DTypeError, "unpackbits: takes uint8, got bool[2,3]"),
        (lambda: fnp.ldexp(X, X), DTypeError, "ldexp: exponents must be integers, got f64[2,3]"),
        (lambda: fnp.frexp(X + 1j), DTypeError, "frexp: takes real values, got c128[2,3]"),
        (lambda: fnp.isposinf(X + 1j), DTypeError, "isposinf: complex infinities have no sign"),
    ],
)  # fmt: skip
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)


def test_python_numbers_are_not_rounded_on_their_way_to_an_array() -> None:
    """Regression: 0.1 beside float64 is that of float64 in each function."""
    x, third = np.array([0.05, 0.3]), 0.1
    pairs = (
        (fnp.fmax(x, third), np.fmax(x, third)),
        (fnp.float_power(x, third), np.float_power(x, third)),
        (fnp.polyval(x, third), np.polyval(x, third)),
        (fnp.polyint(x, 1, third), np.polyint(x, 1, third)),
        (fnp.interp(third, x, x, left=third), np.interp(third, x, x, left=third)),
        (fnp.interp(0.01, x, x, left=third), np.float64(third)),
        (fnp.gradient(x, third), np.gradient(x, third)),
        (fnp.trapezoid(x, dx=third), np.trapezoid(x, dx=third)),
        (fnp.pad(x, 1, constant_values=(third, 0)), np.pad(x, 1, constant_values=(third, 0))),
        (fnp.kron(third, x), np.kron(third, x)),
        (fnp.logspace(third, 1, 3, dtype="float64"), np.logspace(third, 1, 3)),
        (fnp.geomspace(third, 1, 3, dtype="float64"), np.geomspace(third, 1, 3)),
        (fnp.quantile(x, third), np.quantile(x, third)),
        (fnp.vectorize(lambda a, b: a + b)(x, third), x + third),
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs, np.float64), rtol=1e-15)
        assert np.asarray(ours).dtype == np.float64
    assert fnp.digitize(third, np.array([0.1, 0.2])) == 1
