"""Neural-network functions: values in float64, at the ends of the range, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import fxad as fx
import fxad.numpy as fnp
from fxad import nn
from fxad.errors import AxisError, DTypeError
from fxad.tracing.array import Array
from tests.interfaces.oracle import check, close, traced

X = np.random.default_rng(11).standard_normal((3, 5)) * 2
ENDS = np.array([-1e4, -100.0, -1.0, 1.0, 100.0, 1e4], np.float32)

ELEMENTWISE: list[tuple[Callable[[Array], Array], Callable[..., Any]]] = [
    (nn.relu, lambda x: np.maximum(x, 0)),
    (nn.relu6, lambda x: np.clip(x, 0, 6)),
    (nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    (nn.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    (nn.sigmoid, sp.expit),
    (nn.log_sigmoid, sp.log_expit),
    (nn.tanh, np.tanh),
    (nn.softplus, lambda x: np.logaddexp(x, 0)),
    (nn.silu, lambda x: x * sp.expit(x)),
    (lambda x: nn.gelu(x, approximate=False), lambda x: x * sp.ndtr(x)),
]


@pytest.mark.parametrize(("fn", "reference"), ELEMENTWISE)
def test_elementwise(fn: Callable[[Array], Array], reference: Callable[..., Any]) -> None:
    check(fn, reference, X)
    check(fn, lambda x: np.asarray(reference(x.astype(np.float64))).astype(np.float32), ENDS, eager=False)


def test_gelu_is_close_to_its_approximation() -> None:
    np.testing.assert_allclose(np.asarray(nn.gelu(X), np.float64), X * sp.ndtr(X), atol=1e-3)


@pytest.mark.parametrize(("fn", "reference"), ELEMENTWISE)
def test_derivatives(fn: Callable[[Array], Array], reference: Callable[..., Any]) -> None:
    got = np.asarray(fx.grad(lambda x: fn(x).sum())(fnp.asarray(X)), np.float64)
    step = 1e-6
    want = (np.asarray(reference(X + step)) - np.asarray(reference(X - step))) / (2 * step)
    np.testing.assert_allclose(got, want, atol=1e-7)
    at_the_ends = np.asarray(fx.grad(lambda x: fn(x).sum())(fnp.asarray(ENDS)))
    assert np.isfinite(at_the_ends).all()


@pytest.mark.parametrize("axis", [-1, 0, (0, 1)])
def test_normalisations(axis: int | tuple[int, ...]) -> None:
    check(lambda x: nn.softmax(x, axis), lambda x: sp.softmax(x, axis), X)
    check(lambda x: nn.log_softmax(x, axis), lambda x: sp.log_softmax(x, axis), X)
    check(lambda x: nn.logsumexp(x, axis), lambda x: sp.logsumexp(x, axis), X)
    check(lambda x: nn.logsumexp(x, keepdims=True), lambda x: sp.logsumexp(x, keepdims=True), X)
    got = np.asarray(fx.grad(lambda x: nn.logsumexp(x, axis).sum())(fnp.asarray(X)))
    close(got, sp.softmax(X, axis))


def test_normalisations_at_the_ends() -> None:
    big = np.array([1e4, 1e4 - 1, -1e4], np.float32)
    for fn in (nn.softmax, nn.log_softmax, nn.logsumexp):
        assert np.isfinite(traced(fn, big)[1][0]).all()
    close(traced(nn.logsumexp, np.full(3, -np.inf, np.float32))[1][0], np.float32(-np.inf))
    close(traced(nn.logsumexp, np.array([np.inf, 0], np.float32))[1][0], np.float32(np.inf))


def test_standardize_of_complex_numbers_divides_by_their_deviation() -> None:
    x = np.array([1 + 2j, 3 - 1j, -2 + 0.5j])
    close(nn.standardize(x, epsilon=0.0), (x - x.mean()) / np.std(x))


def test_the_sizes_of_a_window_may_be_an_iterator() -> None:
    assert fnp.all(nn.avg_pool(np.ones((1, 4, 4, 1), np.float32), iter((2, 2))) == 1)  # type: ignore[arg-type]


def test_relu_has_derivative_0_at_0_and_keeps_nan() -> None:
    assert np.asarray(fx.grad(nn.relu)(fnp.asarray(0.0))) == 0
    assert np.isnan(float(nn.relu(fnp.asarray(np.nan))))


def test_one_hot() -> None:
    i = np.array([[0, 2], [3, -1]], np.int32)
    want = (i[..., None] == np.arange(3)).astype(np.float32)
    check(lambda i: nn.one_hot(i, 3), lambda i: want, i)
    assert nn.one_hot([0, 2], 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    check(lambda i: nn.one_hot(i, 3, axis=0, dtype="i8"), lambda i: np.moveaxis(want, -1, 0).astype(np.int8), i)


def test_errors() -> None:
    with pytest.raises(DTypeError, match=r"^one_hot: takes integers, got f32\[3\]"):
        nn.one_hot(fnp.zeros(3), 2)
    with pytest.raises(AxisError, match=r"^softmax: axis 2 is out of range for an array with 2 axes"):
        nn.softmax(X, 2)


def test_masked_logsumexp_of_a_dtype_without_infinities() -> None:
    x = fnp.asarray([1.0, 2.0, 0.5]).astype("float8_e4m3fn")
    mask, factors = np.array([True, True, False]), np.array([1.0, 1.0, 0.0], np.float32)
    assert float(nn.logsumexp(x, where=mask)) == 2.25
    assert abs(float(nn.logsumexp(x, b=factors)) - 2.3132615) < 1 / 16  # the dtype rounds exponentials to 4 bits
    np.testing.assert_array_equal(nn.log_softmax(x, where=mask).astype("float32").tolist(), [-1.375, -0.3125, -448])
