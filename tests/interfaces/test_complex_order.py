"""Complex numbers are compared by real, then by imaginary parts: derivatives, batches, sizes and refusals.

`tests/conformance/edges.py` draws the values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import DTypeError
from tests.interfaces.oracle import close

X = np.array([[1 + 2j, 1 - 1j, 1 + 2j], [-1j, 2j, -3 + 9j]])
Y = np.array([[1 + 3j, 1 - 1j, 0], [-1j, 1j, 5]])
OPERATORS = [operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("other", [Y, Y.astype(np.complex64), Y.real, Y.real.astype(np.int64), 1 + 2j, 1.0, 1, True])
def test_operators_of_arrays_and_tracers(op: Callable[..., Any], other: Any) -> None:
    x = fnp.asarray(X)
    close(op(x, other), op(X, other))
    close(op(other, x), op(other, X))
    close(fx.jit(lambda x: op(x, other))(X), op(X, other))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_the_tangent_of_an_extremum_of_two(name: str) -> None:
    f = getattr(fnp, name)
    t, s = np.array([1 + 1j, 2, 3j, 4, 5, 6]).reshape(2, 3), np.full((2, 3), 100 - 1j)
    value, tangent = fx.jvp(f, (X, Y), (t, s))
    first = getattr(np, name)(X, Y) == X
    want = np.where(X == Y, (t + s) / 2, np.where(first, t, s))
    close(value, getattr(np, name)(X, Y))
    close(tangent, want)
    zero, one = fx.vjp(f, X, Y)[1](np.ones((2, 3), complex))
    close(zero, np.where(X == Y, 0.5, first).astype(complex))
    close(one, np.where(X == Y, 0.5, ~first).astype(complex))


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_the_derivative_of_a_reduction_is_shared_by_ties(name: str, axis: Any) -> None:
    def f(x: Any) -> Any:
        return getattr(fnp, name)(x, axis)

    hit = getattr(np, name)(X, axis=axis, keepdims=True) == X
    share = hit / hit.sum(axis, keepdims=True)
    t = np.arange(1, 7).reshape(2, 3) * (1 - 2j)
    value, tangent = fx.jvp(f, (X,), (t,))
    close(value, getattr(np, name)(X, axis))
    close(tangent, (share * t).sum(axis))
    gradient = fx.grad(lambda x: fnp.imag(f(x)).sum())(X)
    assert np.array_equal(np.asarray(gradient) != 0, hit)


def test_a_masked_reduction() -> None:
    mask = np.array([[False, True, True], [True, False, True]])
    for initial in (0.5, 1 + 5j, -4.0):
        for f, g in ((fnp.max, np.max), (fnp.min, np.min)):
            close(f(X, axis=1, where=mask, initial=initial), g(X, axis=1, where=mask, initial=initial))
    close(fnp.max(X[:0], axis=0, initial=2 - 1j), np.full(3, 2 - 1j))


def test_a_nan_is_the_result() -> None:
    x = X.copy()
    x[0, 1] = complex(0, np.nan)
    for f in (fnp.max, fnp.min, fnp.ptp):
        assert np.array_equal(np.isnan(np.asarray(f(x, 1))), [True, False])
    found = np.asarray(fnp.max(x, 1))[0]  # the only nan, with its other part
    assert found.real == 0
    assert np.isnan(found.imag)
    close(fnp.nanmax(x, 1), np.nanmax(x, 1))
    close(fnp.nanmin(x, 0), np.nanmin(x, 0))
    assert np.isnan(np.asarray(fnp.nanmax(np.full(2, complex(np.nan, 1)))))


def test_batches_and_symbolic_sizes() -> None:
    def f(x: Any, y: Any) -> Any:
        return fnp.max(fnp.maximum(x, y)), fnp.min(x), x < y, fnp.searchsorted(fnp.sort(x), y)

    def want(x: Any, y: Any) -> Any:
        return np.max(np.maximum(x, y)), np.min(x), x < y, np.searchsorted(np.sort(x), y)

    found = fx.vmap(f)(X, Y)
    for k in range(2):
        for one, other in zip(found, want(X[k], Y[k]), strict=True):
            close(one[k], other, dtype=False)
    row = fx.Spec("n", "complex128")
    program = fx.trace(f, row, row)
    for n in (1, 3):
        for one, other in zip(program(X[1, :n], Y[0, :n]), want(X[1, :n], Y[0, :n]), strict=True):
            close(one, other, dtype=False)


@pytest.mark.as_users_compile
@pytest.mark.parametrize("seed", range(4))
def test_elements_that_xla_computes_twice(seed: int) -> None:
    """XLA may round elements differently where it finds the extremum and where it compares them with it."""
    x = np.random.default_rng(seed).normal(size=(64, 7)) + 1j

    def f(x: Any) -> Any:
        return fnp.max(fnp.exp(x * (0.3 + 0.7j)) * (1.1 - 0.3j) + 0.1, 1)

    want = np.max(np.exp(x * (0.3 + 0.7j)) * (1.1 - 0.3j) + 0.1, 1)
    close(fx.jit(f)(x), want)
    assert np.all(np.count_nonzero(np.asarray(fx.jit(fx.grad(lambda x: fnp.real(f(x)).sum()))(x)), axis=1) == 1)


REAL_ONLY: list[tuple[str, Callable[[Any], object]]] = [
    ("argmax", fnp.argmax),
    ("argmin", fnp.argmin),
    ("argmax", fnp.nanargmax),
    ("clip", lambda x: fnp.clip(x, 0, 1)),
    ("clip", lambda x: x.clip(min=0)),
    ("clip", lambda x: fnp.clip(x, max=0)),
    ("median", fnp.median),
    ("quantile", lambda x: fnp.quantile(x, 0.5)),
    ("histogram", lambda x: fnp.histogram(x, np.array([0.0, 1.0]))),
    ("histogram_bin_edges", fnp.histogram_bin_edges),
    ("histogramdd", lambda x: fnp.histogram2d(x[0], x[1])),
    *[(f.__name__, f) for f in (fx.nn.relu, fx.nn.relu6, fx.nn.leaky_relu, fx.nn.elu, fx.nn.selu, fx.nn.celu)],
    *[(f.__name__, f) for f in (fx.nn.softplus, fx.nn.log_sigmoid, fx.nn.sparse_plus, fx.nn.sparse_sigmoid)],
    *[(f.__name__, f) for f in (fx.nn.hard_tanh, fx.nn.hard_sigmoid, fx.nn.hard_silu, fx.nn.mish, fx.nn.log1mexp)],
    ("boxcox", lambda x: fx.scipy.special.boxcox(x, 2)),
    ("boxcox1p", lambda x: fx.scipy.special.boxcox1p(x, 2)),
]


@pytest.mark.parametrize(("name", "f"), REAL_ONLY)
def test_functions_of_real_numbers_refuse_complex_ones(name: str, f: Callable[[Any], object]) -> None:
    """Those that NumPy or JAX refuses, and functions that compare but mean nothing for complex numbers."""
    with pytest.raises(DTypeError, match=f"^{name}: takes real numbers, got c") as error:
        f(fnp.asarray(X))
    assert "pass the real part" in str(error.value)
