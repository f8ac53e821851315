"""Unusual arguments: static values that are equal but not the same, sizes of other types, wrong types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.lax as lax
import fxad.nn as nn
import fxad.numpy as fnp
from fxad.errors import ArgumentError, FxadError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# ------------------------------------------------------------------- the eager cache and values that are equal


def test_a_static_zero_keeps_its_sign() -> None:
    x = np.array([np.nan, 1], np.float32)
    found = [np.asarray(fnp.nan_to_num(x, nan=zero)) for zero in (0.0, -0.0, np.float64(0.0), np.float64(-0.0))]
    assert [bool(np.signbit(f[0])) for f in found] == [False, True, False, True]


@pytest.mark.parametrize("axis", [1.0, (1.0,), np.float32(1), "1", {}, [1.0]])
def test_a_wrong_axis_is_refused_also_after_an_equal_right_one(axis: object) -> None:
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"^sum: axis must be an integer, got "):
            fnp.sum(X, axis=axis)  # type: ignore[arg-type]
        fnp.sum(X, axis=1)
        fnp.sum(X, axis=(1,))


@pytest.mark.parametrize("axis", [np.int64(1), np.uint8(1), np.array(1), fnp.asarray(1)], ids=str)
def test_an_axis_may_have_any_integer_type(axis: int) -> None:
    def f(x: fx.Array) -> tuple[fx.Array, ...]:
        return fnp.sum(x, axis=axis), fnp.argsort(x, axis=axis), fnp.roll(x, 1, axis)

    for eager, traced in zip(f(fnp.asarray(X)), fx.jit(f)(fnp.asarray(X)), strict=True):
        np.testing.assert_array_equal(eager, traced)


def test_a_static_nan_is_compiled_once() -> None:
    fnp.nan_to_num(X, nan=float("nan"))
    before = fx.cache.stats().misses
    fnp.nan_to_num(X, nan=float("nan"))
    assert fx.cache.stats().misses == before


# --------------------------------------------------------------------------------------------- errors name the function


@pytest.mark.parametrize(
    ("call", "function"),
    [
        (lambda: fnp.fliplr(cast("fx.Array", "a")), "fxad.numpy.fliplr"),
        (lambda: lax.broadcast(X, cast("tuple[int]", "abc")), "fxad.lax.broadcast"),
        (lambda: lax.iota("abc", 3), "fxad.lax.iota"),
        (lambda: fnp.linalg.multi_dot([X, X]), "fxad.numpy.linalg.multi_dot"),
        (lambda: fx.trace(lambda x: fnp.zeros(cast("int", "a")), X), "fxad.numpy.zeros"),
    ],
)
def test_an_error_names_the_function_that_was_called(call: Callable[[], object], function: str) -> None:
    with pytest.raises(FxadError) as e:
        call()
    assert e.value.function == function
    assert f"\n  function      {function}\n" in str(e.value)


def test_the_function_is_named_once_in_a_message() -> None:
    with pytest.raises(FxadError) as e:
        fnp.flip(cast("fx.Array", "a"))
    assert e.value.function == "fxad.numpy.flip"
    assert "\n  function" not in str(e.value)


# --------------------------------------------------------------------------------- static arguments of the wrong kind

IMAGE = np.ones((1, 1, 4, 4), np.float32)
WRONG = [
    "abc",
    None,
    [1.5],
    {"a": 1},
    object(),
    np.float32,
    [[1], [1, 2]],
    np.datetime64("2020-01-01"),
    b"ab",
    len,
    {7},
]
STATIC: dict[str, Callable[[Any], object]] = {
    "argmax": lambda w: lax.argmax(X, w, "int32"),
    "concatenate": lambda w: lax.concatenate(w, 0),
    "concatenate dimension": lambda w: lax.concatenate([X, X], w),
    "conv strides": lambda w: lax.conv(IMAGE, IMAGE, w, "SAME"),
    "conv groups": lambda w: lax.conv_general_dilated(IMAGE, IMAGE, (1, 1), "SAME", feature_group_count=w),
    "conv_dimension_numbers": lambda w: lax.conv_dimension_numbers(w, (1, 1, 4, 4), None),
    "conv_transpose": lambda w: lax.conv_transpose(IMAGE, IMAGE, w, "SAME"),
    "padtype_to_pads": lambda w: lax.padtype_to_pads((4, 4), (2, 2), (1, 1), w),
    "padtype_to_pads shape": lambda w: lax.padtype_to_pads(w, (2, 2), (1, 1), "SAME"),
    "dot_general": lambda w: lax.dot_general(X, X, w),
    "expand_dims": lambda w: lax.expand_dims(X, w),
    "gather": lambda w: lax.gather(X, np.zeros((2, 1), int), w, (1, 1)),
    "scatter": lambda w: lax.scatter(X, np.zeros((2, 1), int), X, w),
    "scatter_apply": lambda w: lax.scatter_apply(fnp.asarray(X), np.zeros((2, 1), int), fnp.sin, w),
    "multigammaln": lambda w: lax.multigammaln(X, w),
    "pad": lambda w: lax.pad(X, 0.0, w),
    "reduce": lambda w: lax.reduce(X, np.float32(0), lax.add, w),
    "reduce_precision": lambda w: lax.reduce_precision(X, w, 3),
    "reduce_window": lambda w: lax.reduce_window(X, np.float32(0), lax.add, w, (1, 1), "SAME"),
    "slice_in_dim": lambda w: lax.slice_in_dim(X, 0, 1, w),
    "squeeze": lambda w: lax.squeeze(X[None], w),
    "sort": lambda w: lax.sort((X, X), num_keys=w),
    "top_k": lambda w: lax.top_k(X, w),
    "stack": lambda w: fnp.vstack(w),
    "choose": lambda w: fnp.choose(np.zeros(3, int), w, mode="clip"),
    "choose mode": lambda w: fnp.choose(np.zeros(3, int), [X], mode=w),
    "linspace": lambda w: fnp.linspace(0.0, 1.0, w),
    "partition": lambda w: fnp.partition(X, w),
    "piecewise": lambda w: fnp.piecewise(X, [X > 1], w),
    "ravel_multi_index": lambda w: fnp.ravel_multi_index(w, (3, 3)),
    "roll": lambda w: fnp.roll(X, w),
    "select": lambda w: fnp.select(w, [X]),
    "tensordot": lambda w: fnp.tensordot(X, X, w),
    "tril_indices": lambda w: fnp.tril_indices(w),
    "cho_solve": lambda w: fnp.linalg.cho_solve(w, X),
    "lu_solve": lambda w: fnp.linalg.lu_solve(w, X),
    "multi_dot": lambda w: fnp.linalg.multi_dot(w),
    "tensorinv": lambda w: fnp.linalg.tensorinv(X, w),
    "fftfreq": lambda w: fnp.fft.fftfreq(w),
    "max_pool": lambda w: nn.max_pool(IMAGE, w, (1, 1), "SAME"),
    "max_pool padding": lambda w: nn.max_pool(IMAGE, (2, 2), (1, 1), w),
}


@pytest.mark.parametrize("name", STATIC)
def test_a_wrong_static_argument_raises_only_errors_of_fxad(name: str) -> None:
    refusals = 0
    for wrong in WRONG:
        try:
            STATIC[name](wrong)
        except FxadError:
            refusals += 1
    assert refusals >= len(WRONG) - 2  # some functions accept None and a list


# ------------------------------------------------------------------------------------------------------------ values


def test_take_takes_integer_indices_only() -> None:
    x = np.arange(6)
    np.testing.assert_array_equal(fnp.take(x, (0, 1)), [0, 1])
    np.testing.assert_array_equal(fnp.take(x, []), [])
    for wrong in (True, np.array([True, False]), [1.0], None, slice(2)):
        with pytest.raises(FxadError, match="take: "):
            fnp.take(x, cast("int", wrong))


def test_integer_pow_takes_numpy_s_ints() -> None:
    np.testing.assert_array_equal(lax.integer_pow(X, cast("int", np.int64(2))), X * X)


def test_nan_to_num_of_complex_numbers() -> None:
    z = np.array([complex(np.nan, np.inf), complex(-np.inf, 1), complex(2, np.nan)])
    np.testing.assert_array_equal(fnp.nan_to_num(z), np.nan_to_num(z))
    np.testing.assert_array_equal(fnp.nan_to_num(z, nan=7.0, posinf=8.0), np.nan_to_num(z, nan=7.0, posinf=8.0))


def test_a_number_beyond_every_float_is_refused() -> None:
    for x in (X, np.arange(3)):
        with pytest.raises(FxadError, match="does not fit in"):
            fnp.asarray(x) * 10**400


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_gcd_of_the_least_integer(dtype: str) -> None:
    least = np.iinfo(dtype).min
    x, y = np.array([1, 3, least, 6], dtype), np.array([least, least, 12, least], dtype)
    np.testing.assert_array_equal(fnp.gcd(x, y), np.gcd(x, y))
