"""What nobody expects to be handed over: static values that are equal and differ, other types of sizes, wrong types."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

import fxad as fx
import fxad.lax as lax
import fxad.numpy as fnp
from fxad.errors import ArgumentError, FxadError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# ------------------------------------------------------------------- the eager cache and values that are equal


def test_a_static_zero_keeps_its_sign() -> None:
    x = np.array([np.nan, 1], np.float32)
    found = [np.asarray(fnp.nan_to_num(x, nan=zero)) for zero in (0.0, -0.0, np.float64(0.0), np.float64(-0.0))]
    assert [bool(np.signbit(f[0])) for f in found] == [False, True, False, True]


@pytest.mark.parametrize("axis", [1.0, (1.0,), np.float32(1), "1", {}, [1.0]])
def test_an_axis_is_judged_alike_before_and_after_an_equal_one(axis: object) -> None:
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"^sum: axis must be an integer, got "):
            fnp.sum(X, axis=axis)  # type: ignore[arg-type]
        fnp.sum(X, axis=1)
        fnp.sum(X, axis=(1,))


@pytest.mark.parametrize("axis", [np.int64(1), np.uint8(1), np.array(1), fnp.asarray(1)], ids=str)
def test_an_axis_may_be_whatever_has_an_index(axis: int) -> None:
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


def test_a_message_that_names_the_function_does_not_name_it_again() -> None:
    with pytest.raises(FxadError) as e:
        fnp.flip(cast("fx.Array", "a"))
    assert e.value.function == "fxad.numpy.flip"
    assert "\n  function" not in str(e.value)
