"""The logit, the first layer of flows on images, and its inverse, the logistic function."""

from __future__ import annotations

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

P = np.array([1e-300, 1e-30, 0.02, 0.5, 0.97, 1 - 1e-12])


@pytest.mark.parametrize("compiled", [False, True])
def test_the_inverse_and_its_log_determinant(compiled: bool) -> None:
    # Regression: written as log x - log1p(-x) it is refused, because both operands of the difference are unknown
    program = fx.inverse(fx.trace(lax.logit, P), log_det=True)
    y = np.log(P) - np.log1p(-P)
    x, log_det = fx.jit(program)(y) if compiled else fx.interpret(program, y)
    np.testing.assert_allclose(x, P, rtol=1e-12)
    np.testing.assert_allclose(log_det, -np.sum(np.log(P) + np.log1p(-P)), rtol=1e-12)


def test_the_ends_of_its_range() -> None:
    back = fx.inverse(fx.trace(lax.logit, P[:4]))
    np.testing.assert_array_equal(fx.interpret(back, np.array([-np.inf, np.inf, np.nan, 0.0])), [0.0, 1.0, np.nan, 0.5])


def test_small_floats_keep_their_digits_where_the_logarithms_cancel() -> None:
    x = fnp.asarray([0.1, 0.41, 0.49, 0.502, 0.51, 0.9], dtype="bfloat16")
    want = np.asarray(fx.interpret(fx.trace(lax.logit, x), x)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(lax.logit(x)).astype(np.float32), want)
    exact = np.asarray(x).astype(np.float64)
    np.testing.assert_allclose(want, np.log(exact / (1 - exact)), rtol=2**-8)


def test_complex_numbers_come_back() -> None:
    z = np.array([0.3 + 0.2j, 0.7 - 0.4j, -0.5 + 1j])
    program = fx.trace(lax.logit, z)
    found, log_det = fx.interpret(fx.inverse(program, log_det=True), fx.interpret(program, z))
    np.testing.assert_allclose(found, z, rtol=1e-12)
    np.testing.assert_allclose(log_det, 2 * np.sum(-np.log(np.abs(z * (1 - z)))), rtol=1e-12)


def test_gradients_reconstruct_its_operand() -> None:
    x = np.array([0.02, 0.5, 0.97])
    f = lambda x: fnp.sum(fnp.sin(lax.logit(x) / 3))  # noqa: E731
    lean = lambda x: fnp.sum(fnp.sin(fx.invertible(lambda x: lax.logit(x) / 3)(x)))  # noqa: E731
    for derivative in (fx.grad, fx.hessian):
        np.testing.assert_allclose(derivative(lean)(x), derivative(f)(x), rtol=1e-9)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(lax.logit(x)))(x), 1 / (x * (1 - x)), rtol=1e-14)
