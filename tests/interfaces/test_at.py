"""Updates at an index, against NumPy's assignment and `ufunc.at`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    FxadError,
    NotDifferentiableError,
    ParameterError,
    ShapeError,
    TracerError,
)
from fxad.testing import Case, check_program_jvp, check_second_order, check_vjp
from fxad.tracing.array import aval_of
from fxad.tracing.trace_function import trace_flat
from tests.interfaces.indices import cases
from tests.interfaces.oracle import Value, check, close, names, traced

X = np.arange(12, dtype=np.float32).reshape(3, 4)
UFUNCS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "min": np.minimum,
    "max": np.maximum,
}


def updated(x: Value, index: Any, name: str, value: Any) -> Value:
    """Returns the result of the same update in NumPy."""
    out = x.copy()
    if name == "set":
        out[index] = value
    else:
        UFUNCS[name].at(out, index, value)
    return out


def values(shape: tuple[int, ...], dtype: Any, seed: int) -> Value:
    return np.random.default_rng(seed).integers(1, 4, shape).astype(dtype)


def small_numbers(case: tuple[Value, tuple[Any, ...]]) -> tuple[Value, tuple[Any, ...], tuple[int, ...] | None]:
    """Returns an array of numbers from 1 to 3, an index, and the shape of the indexed elements; None if NumPy refuses
    the index."""
    x, index = case
    x = np.asarray(x % 3 + 1, np.float64)
    try:
        return x, index, x[index].shape
    except IndexError:
        return x, index, None


@given(cases(), st.sampled_from(["set", *UFUNCS]), st.integers(0, 99))
def test_static_indices(case: tuple[Value, tuple[Any, ...]], name: str, seed: int) -> None:
    """Any index and any update, with a value of the indexed shape, or one that broadcasts to it."""
    x, index, shape = small_numbers(case)
    if shape is None:
        return
    value = values(shape[seed % (len(shape) + 1) :], x.dtype, seed)
    got = traced(lambda a, v: getattr(a.at[index], name)(v), x, value)[1][0]
    close(got, updated(x, index, name, value))


@given(cases(), st.sampled_from(["set", *UFUNCS]), st.integers(0, 99))
def test_indices_that_are_operands(case: tuple[Value, tuple[Any, ...]], name: str, seed: int) -> None:
    """The same with integer arrays that are operands, with and without axes."""
    x, index, shape = small_numbers(case)
    if shape is None:
        return
    at = [k for k, e in enumerate(index) if isinstance(e, np.ndarray) and e.dtype != np.bool_]
    value = values(shape, x.dtype, seed)

    def change(a: Any, v: Any, *arrays: Any) -> Any:
        full = list(index)
        for k, e in zip(at, arrays, strict=True):
            full[k] = e
        return getattr(a.at[tuple(full)], name)(v)

    close(traced(change, x, value, *[index[k] for k in at])[1][0], updated(x, index, name, value))


INDICES: list[Any] = [
    1,
    (0, -1),
    (slice(None), 2),
    slice(None, None, -2),
    (..., None),
    [0, 2],
    ([2, 0], slice(1, 3)),
    np.array([[0, 1], [2, 0]]),
    X > 5,
    (),
    slice(0, 0),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("name", ["set", *UFUNCS])
def test_eager_updates(index: Any, name: str) -> None:
    """Eagerly, on a device."""
    x = X + 1
    close(getattr(fnp.asarray(x).at[index], name)(2), updated(x, index, name, 2))


def test_apply_and_get() -> None:
    check(lambda x: x.at[1].apply(lambda v: v * v), lambda x: np.stack([x[0], x[1] ** 2, x[2]]), X)
    check(lambda x: x.at[[0, 0]].apply(lambda v: -v), lambda x: np.concatenate([-x[:1], x[1:]]), X)
    for index in INDICES:
        check(lambda x, index=index: x.at[index].get(), lambda x, index=index: x[index], X)


def test_dtypes() -> None:
    """A scalar takes the dtype of the array. An array is converted if its kind is not lost."""
    for dtype in ("int8", "uint32", "bool", "float16", "bfloat16", "complex64"):
        x = fnp.zeros(3, dtype)
        close(x.at[1].set(True), np.array([0, 1, 0], x.dtype))
        close(x.at[np.array([1, 1])].add(True), np.array([0, 1 + (dtype != "bool"), 0], x.dtype))
    x = fnp.zeros(3, "float32")
    assert x.at[0].set(np.float64(1)).dtype == x.dtype
    assert x.at[0].add(np.int64(1)).dtype == x.dtype
    bools = np.array([True, False, True])
    check(lambda b: b.at[np.array([0, 1])].multiply(b[1:]), lambda b: np.array([False, False, True]), bools)


# ---------------------------------------------------------------------------------------------------- out of range


def test_out_of_range() -> None:
    """For indices that are operands: updates drop them, and reads clamp them."""
    x, i = np.arange(5.0), np.array([9, -9, 1])
    check(lambda x, i: x.at[i].set(7.0), lambda x, i: np.array([0, 7.0, 2, 3, 4]), x, i)
    check(lambda x, i: x.at[i].add(7.0, mode="clip"), lambda x, i: np.array([7.0, 8, 2, 3, 11]), x, i)
    check(lambda x, i: x.at[i].get(), lambda x, i: np.array([4.0, 0, 1]), x, i)
    check(lambda x, i: x.at[i].get(mode="fill", fill_value=-1), lambda x, i: np.array([-1.0, -1, 1]), x, i)
    check(lambda x, i: x.at[i[0]].get(mode="drop"), lambda x, i: np.array(np.nan), x, i)
    check(lambda x, i: x.at[i[0]].set(1.0), lambda x, i: x, x, i)
    check(lambda x, i: x.at[i[0]].set(1.0, mode="clip"), lambda x, i: np.array([0, 1, 2, 3, 1.0]), x, i)
    check(lambda x: x.at[7].set(1.0, mode="drop"), lambda x: x, x)
    check(lambda x: x.at[-7].set(9.0, mode="clip"), lambda x: np.array([9.0, 1, 2, 3, 4]), x)
    check(lambda x: x.at[[0, 9]].get(mode="fill", fill_value=0), lambda x: np.array([0.0, 0]), x)


def test_fill_values() -> None:
    for dtype, want in [("int8", -128), ("uint16", 65535), ("bool", True), ("float16", np.nan)]:
        close(fnp.zeros(3, dtype).at[np.array([5])].get(mode="fill"), np.array([want], dtype))


# ------------------------------------------------------------------------------------------------------ equations


def test_equations() -> None:
    i, rows, v = np.array(1), np.array([0, 2]), np.ones(4, np.float32)
    assert names(lambda a: a.at[1].set(0), X) == ["dynamic_update_slice"]
    assert names(lambda a, v: a.at[1].set(v), X, v) == ["reshape", "dynamic_update_slice"]
    assert names(lambda a: a.at[:, 1:3].set(0), X) == ["dynamic_update_slice"]
    assert names(lambda a: a.at[1].add(1), X) == ["slice", "add", "dynamic_update_slice"]
    assert names(lambda a: a.at[:].add(1), X) == ["add"]
    assert names(lambda a: a.at[::2].set(0), X) == ["pad", "select_n"]
    assert names(lambda a, i: a.at[i].set(0), X, i) == ["index_vectors", "scatter"]
    assert names(lambda a, i: a.at[i].add(1), X, i) == ["index_vectors", "scatter_add"]
    assert names(lambda a, i: a.at[:, i].max(1), X, rows) == ["index_vectors", "scatter_max"]
    assert names(lambda a: a.at[[0, 2]].add(1), X) == ["scatter_add"]
    assert names(lambda a: a.at[a > 2].set(0), X) == ["gt", "select_n"]


def test_static_indices_are_promised_in_bounds() -> None:
    """Static indices were checked while tracing, so the reads of the cotangent are not compared with the bounds
    again."""
    x, v = fnp.asarray(X), fnp.ones((2, 4))
    run_time = fx.trace(lambda x, v, i: (x.at[i].set(v) ** 2).sum(), x, v, fnp.asarray([0, 2]))
    known = fx.trace(lambda x, v: (x.at[np.array([0, 2])].set(v) ** 2).sum(), x, v)
    asked = fx.trace(lambda x, v: (x.at[np.array([0, 2])].set(v, mode="drop") ** 2).sum(), x, v)
    assert [p.text().count('mode="promise_in_bounds"') for p in (run_time, known, asked)] == [0, 1, 0]
    compared = [fx.lower(fx.grad(p, argnums=1)).text().count("stablehlo.compare") for p in (known, asked)]
    assert compared[0] == 0 < compared[1]


def test_masks() -> None:
    """An update sets one value where a mask is True. The mask is static or an operand."""
    check(lambda x: x.at[x > 5].set(0), lambda x: np.where(x > 5, 0, x), X)
    check(lambda x: x.at[x[:, 0] > 0].add(1), lambda x: np.where(x[:, :1] > 0, x + 1, x), X)
    check(lambda x: x.at[X > 5].multiply(3), lambda x: np.where(x > 5, 3 * x, x), X)
    with pytest.raises(TracerError, match="is a mask"):
        traced(lambda x: x.at[x > 5].set(x[0]), X)


# ------------------------------------------------------------------------------------------------------ derivatives


def check_derivatives(fn: Any, args: tuple[Value, ...]) -> None:
    jaxpr, captured = trace_flat(lambda xs: [fn(*xs)], [aval_of(a) for a in args], "f")
    case = Case(jaxpr, (*map(np.asarray, captured), *args))
    check_program_jvp(case)
    check_vjp(case)
    check_second_order(case)


@pytest.mark.parametrize("name", ["set", *UFUNCS])
@pytest.mark.parametrize("index", [1, slice(None, None, -2), ([0, 2], [1, 3]), X > 5], ids=str)
def test_derivatives(name: str, index: Any) -> None:
    """First and second derivatives, for indices that are known to be unique."""
    x = X.astype(np.float64) + 0.5
    v = np.linspace(1.0, 2.0, np.asarray(X[index]).size).reshape(X[index].shape)
    check_derivatives(lambda x, v: getattr(x.at[index], name)(v), (x, v))


def test_derivatives_with_repeated_indices() -> None:
    i = np.array([1, 0, 1, 1])
    x, v = np.array([1.0, 2.0, 3.0]), np.array([2.5, 5.0, 7.0, 1.5])
    for name in ("add", "subtract", "min", "max"):
        check_derivatives(lambda x, v, name=name: getattr(x.at[fnp.asarray(i)], name)(v), (x, v))
    # the program decides which update remains: exactly one of them gets the cotangent
    bar = np.asarray(fx.grad(lambda v: fnp.asarray(x).at[fnp.asarray(i)].set(v).sum())(fnp.asarray(v)))
    assert bar[1] == 1
    assert sorted(bar[[0, 2, 3]]) == [0, 0, 1]
    with pytest.raises(NotDifferentiableError, match="scatter_mul: updates may meet in one place"):
        fx.grad(lambda v: fnp.asarray(x).at[fnp.asarray(i)].multiply(v).sum())(fnp.asarray(v))
    bar = np.asarray(fx.grad(lambda x: x.at[fnp.asarray(i)].multiply(v).sum())(fnp.asarray(x)))
    close(bar, np.array([5.0, 2.5 * 7 * 1.5, 1.0]))
    two = fnp.asarray([1, 0])
    for name in ("multiply", "divide", "power"):
        check_derivatives(lambda x, v, name=name: getattr(x.at[two], name)(v, unique_indices=True), (x, v[:2]))


# ----------------------------------------------------------------------------------------------------------- errors


SHAPE = "sizes must be equal or 1, counted from the last axis"
LOSS = "convert the value with astype({0}), or the array"


@pytest.mark.parametrize(
    ("error", "update", "message", "remedy"),
    [
        (
            DTypeError,
            lambda x: x.astype("int32").at[0].set(0.5),
            "at.set: a value of float32 does not go into i32[3,4] without loss",
            LOSS.format("int32"),
        ),
        (
            DTypeError,
            lambda x: x.at[0].add(1j),
            "at.add: a value of complex64 does not go into f32[3,4] without loss",
            LOSS.format("float32"),
        ),
        (
            DTypeError,
            lambda x: x.astype("uint8").at[0].set(np.int32(3)),
            "at.set: a value of int32 does not go into u8[3,4] without loss",
            LOSS.format("uint8"),
        ),
        (DTypeError, lambda x: x.astype("int8").at[0].set(300), "at: the value: 300 does not fit in int8", ""),
        (
            DTypeError,
            lambda x: x.astype("int32").at[0].divide(2),
            "at.divide: division in int32 gives floats",
            "convert the array with astype first",
        ),
        (
            ShapeError,
            lambda x: x.at[0].set(np.ones(3, np.float32)),
            "at.set: shapes (3,) and (4,) do not broadcast: axis -1 has sizes 3 and 4",
            SHAPE,
        ),
        (
            ShapeError,
            lambda x: x.at[0].set(np.ones((2, 4), np.float32)),
            "at.set: a value of shape (2, 4) does not broadcast to the shape (4,) the index picks",
            "give the value that shape, or one with sizes of 1",
        ),
        (
            ParameterError,
            lambda x: x.at[0].set(0, mode="wrap"),
            "at.set: mode 'wrap' is not one of drop, fill, clip, promise_in_bounds",
            "leave `mode` out",
        ),
        (
            ShapeError,
            lambda x: x.at[np.ones(4, bool)].set(0),
            "at.set: a mask of shape (4,) does not fit an array of shape (3, 4)",
            "a mask has the sizes of the axes it indexes",
        ),
        (
            ArgumentError,
            lambda x: x.at[3].set([1, 2]),
            "at.set: a list is not an array: [1, 2]",
            "make it one: fxad.numpy.asarray(value)",
        ),
        (
            DTypeError,
            lambda x: (x > 1).at[0].subtract(True),
            "at.subtract: bools have no difference, got bool[3,4]",
            "convert the array with astype",
        ),
        (AxisError, lambda x: x.at[3].set(0), "at.set: index 3 is out of range for axis 0 with size 3", ""),
        (AxisError, lambda x: x[:0].at[0].add(0), "at.add: index 0 is out of range for axis 0 with size 0", ""),
    ],
)
def test_refusals(error: type[FxadError], update: Any, message: str, remedy: str) -> None:
    for at in (fnp.asarray(X), None):
        with pytest.raises(error) as e:
            update(at) if at is not None else traced(update, X)
        assert e.value.message == message
        assert not remedy or e.value.remedy == remedy
