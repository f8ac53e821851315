"""The array object of the standard: attributes, conversions, operators, DLPack, devices; for tracers too."""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.tracing.array import Array
from tests.conformance.standard import ALL, COMPLEX, INTEGER, KINDS, OPERATORS, UNARY_OPERATORS, Function, group
from tests.interfaces.oracle import close

X = fnp.asarray([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
BINARY = {f.name: f for f in group("binary", "linear algebra")}


# ---------------------------------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3), (2, 0, 4)])
def test_attributes(shape: tuple[int, ...]) -> None:
    x = fnp.zeros(shape, dtype=fnp.int16)
    assert (x.shape, x.ndim, x.size) == (shape, len(shape), math.prod(shape))
    assert x.dtype == fnp.int16
    assert type(x.shape) is tuple
    assert type(x.size) is int
    assert x.device is fnp.__array_namespace_info__().default_device()


def test_transposes() -> None:
    close(X.T, np.asarray(X).T)
    stack = fnp.reshape(fnp.arange(24), (2, 3, 4))
    close(stack.mT, np.asarray(stack).swapaxes(-1, -2))
    with pytest.raises(ValueError, match="matrix_transpose: takes an array with at least two axes"):
        _ = fnp.ones(3).mT


def test_attributes_of_tracers() -> None:
    def f(x: Array) -> Array:
        assert (x.shape, x.ndim, x.size) == ((2, 3), 2, 6)
        assert x.dtype == fnp.float32
        assert x.device is fnp.zeros(1).device
        assert x.to_device(x.device) is x
        return x.T @ x.mT.T

    assert fx.trace(f, X).jaxpr.outs[0].aval.shape == (3, 3)


# ---------------------------------------------------------------------------------------------------------- conversions


def test_bool() -> None:
    assert [bool(fnp.asarray(v)) for v in (True, 0, 2, 0.0, -0.0, math.nan, math.inf, -math.inf, 0j, 1j)] == [
        True, False, True, False, False, True, True, True, False, True,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="bool: the truth value of an array with 3 elements is ambiguous"):
        bool(fnp.zeros(3))


def test_int_and_index() -> None:
    for dtype in INTEGER:
        x = fnp.asarray(7, dtype=dtype)
        assert (int(x), x.__index__(), [*range(9)][x]) == (7, 7, 7)
    assert [int(fnp.asarray(v)) for v in (True, -2.9, 2.9)] == [1, -2, 2]
    with pytest.raises(OverflowError):
        int(fnp.asarray(math.inf))
    with pytest.raises(ValueError, match="NaN"):
        int(fnp.asarray(math.nan))
    for value in (1.0, True, [1, 2]):
        with pytest.raises(TypeError, match="index: an index must be an integer without axes"):
            operator.index(fnp.asarray(value))
    for to in (int, float, complex):
        with pytest.raises(TypeError, match=f"{to.__name__}: only an array without axes is a number"):
            to(fnp.zeros(2))


def test_float_and_complex() -> None:
    for v in (1.5, math.inf, -math.inf, -0.0):
        assert math.copysign(1, float(fnp.asarray(v))) == math.copysign(1, v)
        assert float(fnp.asarray(v)) == v
        assert complex(fnp.asarray(v)) == complex(v)
    assert math.isnan(float(fnp.asarray(math.nan)))
    assert cmath.isnan(complex(fnp.asarray(math.nan)))
    assert (float(fnp.asarray(3)), float(fnp.asarray(True)), complex(fnp.asarray(True))) == (3.0, 1.0, 1 + 0j)
    assert complex(fnp.asarray(1 - 2j)) == 1 - 2j
    for to in (int, float):
        with pytest.raises(TypeError, match=f"{to.__name__}: the array is complex"):
            to(fnp.asarray(1j))


@pytest.mark.parametrize("to", [bool, int, float, complex, operator.index, np.asarray, fnp.unique_values, list])
def test_a_tracer_has_no_value(to: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"while the function is traced|without axes|does not have"):
        fx.trace(lambda x: to(x), fx.Spec((), "int32"))


def test_an_array_is_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(X)


# ------------------------------------------------------------------------------------------------------------ operators


def operands(f: Function) -> tuple[Array, Array]:
    dtype = "float32" if "float32" in KINDS[f.kind] else KINDS[f.kind][0]
    if f.name == "matmul":
        return X, X.T
    x = fnp.astype(fnp.asarray([3, 5, 1]), dtype)
    return x, fnp.astype(fnp.asarray([1, 2, 3]), dtype)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    """An operator equals its function, on arrays and scalars, eagerly and traced. In place it binds a new array."""
    f = BINARY[OPERATORS[name]]
    fn, method = getattr(fnp, f.name), getattr(operator, name)
    x, y = operands(f)
    close(method(x, y), fn(x, y))
    close(fx.jit(method)(x, y), fn(x, y))
    reflected = f"__r{name[2:]}"
    if hasattr(Array, reflected):
        close(getattr(y, reflected)(x), fn(x, y))
        if f.name != "matmul":
            close(getattr(y, reflected)(3), fn(3, y))
            close(method(3, y), fn(3, y))
    if f.name != "matmul":
        close(method(x, 2), fn(x, 2))
    in_place = getattr(operator, f"__i{name[2:]}", None)
    if in_place is not None:
        before = np.array(x)
        close(in_place(x, y), fn(x, y))
        np.testing.assert_array_equal(np.asarray(x), before)


@pytest.mark.parametrize("name", UNARY_OPERATORS)
def test_unary_operators(name: str) -> None:
    x = fnp.asarray([-3, 0, 5])
    fn, method = getattr(fnp, UNARY_OPERATORS[name]), getattr(operator, name)
    close(method(x), fn(x))
    close(fx.jit(method)(x), fn(x))


@pytest.mark.parametrize("other", ["text", None, [1.0, 2.0, 3.0], object(), {}], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.matmul, operator.pow, operator.lt])
def test_operators_refuse_what_is_no_array(op: Callable[..., Any], other: object) -> None:
    for x, y in ((X, other), (other, X)):
        refused = r"not supported between|unsupported operand|concatenate|a list is not an array"
        with pytest.raises(TypeError, match=refused):
            op(x, y)


def test_equality_with_what_is_no_array() -> None:
    assert (X == "text") is False
    assert (X != None) is True  # noqa: E711


def test_arrays_do_not_change() -> None:
    for key in (0, (0, 1), slice(None), ..., X > 0):
        with pytest.raises(TypeError, match="setitem: an array is immutable"):
            X[key] = 1.0
    values = np.array(X)
    for f in group("unary", "statistics"):
        if "float32" in KINDS[f.kind] and "cumulative" not in f.name:
            getattr(fnp, f.name)(X)
    np.testing.assert_array_equal(np.asarray(X), values)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(X)[0, 0] = 7.0


# ------------------------------------------------------------------------------------------------------------- indexing


@pytest.mark.parametrize(
    "key",
    [
        0, -1, (1, 2), (0, -1), slice(None), slice(1, None), slice(None, None, -1), slice(2, 0, -1), slice(5, 9), ...,
        (..., 0), (slice(None), 1), None, (None, 0), (slice(None), None, slice(1, 3)), (..., None), (0, ..., slice(2)),
        (slice(None, None, 2), slice(None, None, -2)), (0, 1, ...),
    ],
    ids=str,
)  # fmt: skip
def test_basic_indices(key: Any) -> None:
    close(X[key], np.asarray(X)[key])
    close(fx.jit(lambda x: x[key])(X), np.asarray(X)[key])


def test_integer_array_indices() -> None:
    """The standard's case: integer arrays for all axes, beside integers, which broadcast."""
    i, j = fnp.asarray([[0, 1], [1, -1]]), fnp.asarray([2, 0])
    for key, ref in (
        ((i, j), (np.asarray(i), np.asarray(j))),
        ((i, 1), (np.asarray(i), 1)),
        ((0, j), (0, np.asarray(j))),
    ):
        close(X[key], np.asarray(X)[ref])
        close(fx.jit(lambda x, k=key: x[k])(X), np.asarray(X)[ref])


def test_boolean_masks() -> None:
    """The size of the result depends on the values, so the index needs a value."""
    mask = np.asarray(X > 0)
    close(X[X > 0], np.asarray(X)[mask])
    close(X[fnp.asarray([True, False])], np.asarray(X)[[True, False]])
    close(fnp.asarray(5)[fnp.asarray(True)], np.asarray(5, np.int32)[np.asarray(True)])
    with pytest.raises((TypeError, ValueError), match=r"mask|bool"):
        fx.trace(lambda x: x[x > 0], X)


def test_out_of_range() -> None:
    for key in (2, -3, (0, 3)):
        with pytest.raises(IndexError):
            X[key]
    with pytest.raises(IndexError):
        X[0, 0, 0]


# -------------------------------------------------------------------------------------------------- DLPack and devices


@pytest.mark.parametrize("dtype", ALL)
def test_dlpack(dtype: str) -> None:
    x = fnp.astype(fnp.asarray([[0, 1, 2], [3, 4, 5]]), dtype)
    assert x.__dlpack_device__() == (1, 0)
    back = fnp.from_dlpack(x)
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(back), np.asarray(x))
    np.testing.assert_array_equal(np.from_dlpack(x), np.asarray(x))
    np.testing.assert_array_equal(np.asarray(fnp.from_dlpack(np.asarray(x).copy())), np.asarray(x))
    np.testing.assert_array_equal(np.from_dlpack(x, copy=True), np.asarray(x))


def test_dlpack_arguments() -> None:
    x = fnp.ones((2, 3))
    for kwargs in (
        {},
        {"stream": None},
        {"max_version": (1, 0)},
        {"max_version": (0, 8)},
        {"dl_device": (1, 0)},
        {"copy": True},
        {"copy": None, "max_version": (2, 1), "dl_device": None},
        {"copy": False, "max_version": (1, 0)},
    ):
        assert "dltensor" in repr(x.__dlpack__(**kwargs))
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))


def test_from_dlpack_arguments() -> None:
    x = fnp.ones(3)
    assert fnp.from_dlpack(x, device=x.device, copy=False).device is x.device
    with pytest.raises(
        BufferError, match="from_dlpack: an ndarray is copied, because others could write to its memory"
    ):
        fnp.from_dlpack(np.ones(3), copy=False)
    with pytest.raises(TypeError, match="from_dlpack: a list has no __dlpack__"):
        fnp.from_dlpack([1.0])


def test_arrays_are_independent_of_later_writes() -> None:
    given = np.ones(3, np.float32)
    arrays = [fnp.asarray(given), fnp.asarray(given, copy=True), fnp.from_dlpack(given), fnp.array(given)]
    given[:] = 7
    for x in arrays:
        np.testing.assert_array_equal(np.asarray(x), np.ones(3))


def test_copies_of_immutable_arrays() -> None:
    assert fnp.asarray(X, copy=False) is X
    assert fnp.asarray(X) is X
    with pytest.raises(ValueError, match="asarray: a list does not become an array without a copy"):
        fnp.asarray([1], copy=False)
    with pytest.raises(ValueError, match="asarray: an Array does not become an array without a copy"):
        fnp.asarray(X, dtype=fnp.float64, copy=False)


MAKERS: dict[str, Callable[[Any], Array]] = {
    "arange": lambda d: fnp.arange(3, device=d),
    "asarray": lambda d: fnp.asarray([1], device=d),
    "astype": lambda d: fnp.astype(X, fnp.float64, device=d),
    "empty": lambda d: fnp.empty(3, device=d),
    "empty_like": lambda d: fnp.empty_like(X, device=d),
    "eye": lambda d: fnp.eye(3, device=d),
    "from_dlpack": lambda d: fnp.from_dlpack(X, device=d),
    "full": lambda d: fnp.full(3, 1, device=d),
    "full_like": lambda d: fnp.full_like(X, 1, device=d),
    "linspace": lambda d: fnp.linspace(0, 1, 3, device=d),
    "ones": lambda d: fnp.ones(3, device=d),
    "ones_like": lambda d: fnp.ones_like(X, device=d),
    "zeros": lambda d: fnp.zeros(3, device=d),
    "zeros_like": lambda d: fnp.zeros_like(X, device=d),
    "fft.fftfreq": lambda d: fnp.fft.fftfreq(3, device=d),
    "fft.rfftfreq": lambda d: fnp.fft.rfftfreq(3, device=d),
}


@pytest.mark.parametrize("name", MAKERS)
def test_made_on_a_device(name: str) -> None:
    for device in fnp.__array_namespace_info__().devices():
        assert MAKERS[name](device).device is device
        assert fx.trace(lambda x: [MAKERS[name](device), x][1], X) is not None
    assert MAKERS[name](None).device is fnp.zeros(1).device
    with pytest.raises(TypeError, match="a str is not a device: 'cpu'"):
        MAKERS[name]("cpu")


def test_to_device() -> None:
    assert X.to_device(X.device) is X
    assert X.to_device(X.device, stream=None) is X
    with pytest.raises(TypeError, match="to_device: a str is not a device: 'gpu'"):
        X.to_device("gpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="to_device: stream 7: fxad orders its own work"):
        X.to_device(X.device, stream=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_attributes(dtype: str) -> None:
    z = fnp.asarray([1 + 2j], dtype=dtype)
    assert (complex(z[0]), float(fnp.real(z)[0]), float(fnp.imag(z)[0])) == (1 + 2j, 1.0, 2.0)
