"""`newton` and `levenberg_marquardt` with dense and with sparse Jacobians give the same steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, DTypeError, ShapeError
from tests.sparse.test_sparse_solve import Matrix, pattern_of


def sparse(f: Any, mask: Any) -> Any:
    """A stand-in of `sparse_jacobian`: the entries of the dense one."""
    pattern = pattern_of(mask)
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    return lambda x: Matrix(fx.jacfwd(f)(x)[rows, pattern.indices], pattern)


def bratu(x: Any) -> Any:
    """u'' + 2 exp(u) = 0 on nine points between zeros."""
    padded = fnp.pad(x, 1)
    return 100 * (padded[2:] - 2 * x + padded[:-2]) + 2 * fnp.exp(x)


BAND = abs(np.subtract.outer(np.arange(9), np.arange(9))) <= 1


def test_newton_finds_a_root() -> None:
    x0 = np.zeros(9)
    dense, report = fx.jit(lambda x: lax.newton(bratu, x, fx.jacfwd(bratu), tol=1e-11))(x0)
    found, other = fx.jit(lambda x: lax.newton(bratu, x, sparse(bratu, BAND), tol=1e-11))(x0)
    assert np.abs(bratu(found)).max() < 1e-11
    assert np.allclose(found, dense, atol=1e-14)
    assert bool(other.converged)
    assert int(other.iterations) == int(report.iterations) <= 5


def test_newton_halves_steps_that_go_too_far() -> None:
    f = lambda x: fnp.arctan(x)  # noqa: E731 -- plain Newton diverges from 3
    x, report = lax.newton(f, np.array([3.0, -10.0]), lambda x: fnp.diag(1 / (1 + x**2)), tol=1e-12)
    assert bool(report.converged)
    assert np.abs(x).max() < 1e-12
    _, report = lax.newton(lambda x: x**2 + 1, np.array([1.0]), lambda x: fnp.diag(2 * x), maxiter=20)
    assert not bool(report.converged)


def test_the_root_has_derivatives_of_both_modes_and_higher_order() -> None:
    """By solves with the sparse or the dense Jacobian of the derivative at the root."""

    def root(jacobian: Any) -> Any:
        return lambda c: lax.newton(lambda x: bratu(x) + c * x**2, np.zeros(9), jacobian=jacobian, tol=1e-11)[0]

    c, h = fnp.asarray(0.5, np.float64), 1e-4
    dense, sparse = root(fx.jacfwd), root(fx.sparse_jacobian)
    solve = fx.trace(dense, c)
    below, here, above = [np.asarray(fx.interpret(solve, c + k * h)) for k in (-1, 0, 1)]
    reverse = fx.jacrev(sparse)
    both = lambda c: (reverse(c), fx.jacfwd(reverse)(c), fx.vmap(reverse)(fnp.stack([c, c / 5])))  # noqa: E731
    first, second, batch = fx.jit(both)(c)
    assert np.allclose(first, (above - below) / (2 * h), rtol=1e-5)
    assert np.allclose(first, fx.interpret(fx.jacfwd(solve), c), rtol=1e-12)
    assert np.allclose(second, (above - 2 * here + below) / h**2, rtol=1e-3)
    assert np.allclose(batch[0], first, rtol=1e-12)


T = np.linspace(0, 1, 12)


def curve(p: Any) -> Any:
    """Two exponentials on halves of the data that share a constant."""
    a = p[0] * fnp.exp(p[1] * T[:6]) + p[4]
    b = p[2] * fnp.exp(p[3] * T[6:]) + p[4]
    return fnp.concatenate([a, b]) - np.concatenate([2 * np.exp(-T[:6]) + 0.5, np.exp(0.7 * T[6:]) + 0.5])


def test_levenberg_marquardt_fits() -> None:
    mask = np.zeros((12, 5), np.bool_)
    mask[:6, :2] = mask[6:, 2:4] = mask[:, 4] = True
    x0 = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    dense, _ = fx.jit(lambda x: lax.levenberg_marquardt(curve, x, fx.jacfwd(curve), tol=1e-10))(x0)
    found, report = fx.jit(lambda x: lax.levenberg_marquardt(curve, x, sparse(curve, mask), tol=1e-10))(x0)
    assert bool(report.converged)
    assert np.allclose(found, [2, -1, 1, 0.7, 0.5], atol=1e-6)
    assert np.allclose(found, dense, atol=1e-6)


def test_the_fit_has_derivatives_with_respect_to_its_data() -> None:
    def fit(jacobian: Any) -> Any:
        x0 = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
        return lambda data: lax.levenberg_marquardt(lambda p: curve(p) - data, x0, jacobian=jacobian, tol=1e-12)[0]

    noise, step = 0.01 * np.sin(7 * T), 1e-5 * np.eye(12)[3]
    found = fx.jit(fx.jacrev(fit(fx.sparse_jacobian)))(noise)
    solve = fx.trace(fit(fx.jacfwd), noise)
    above, below = [np.asarray(fx.interpret(solve, noise + s)) for s in (step, -step)]
    assert np.allclose(found[:, 3], (above - below) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize("method", [lax.newton, lax.levenberg_marquardt])
def test_refusals(method: Any) -> None:
    name = method.__name__
    with pytest.raises(ShapeError) as e:
        method(bratu, np.zeros((3, 3)), fx.jacfwd(bratu))
    assert str(e.value).startswith(f"{name}: x0 is f64[3,3], not a vector")
    with pytest.raises(DTypeError) as d:
        method(bratu, np.zeros(3, np.int32), fx.jacfwd(bratu))
    assert str(d.value).startswith(f"{name}: x0 is i32[3]")
    with pytest.raises(ShapeError) as e:
        method(lambda x: x[None], np.zeros(3), fx.jacfwd(bratu))
    assert str(e.value).startswith(f"{name}: f returned f64[1,3], not a vector")
    with pytest.raises(ShapeError) as e:
        method(bratu, np.ones(9), lambda x: fnp.asarray(np.ones((4, 4))))
    assert str(e.value).startswith(f"{name}: jac returned f64[4,4], f has 9 elements")
    for both in ({}, {"jac": fx.jacfwd(bratu), "jacobian": fx.jacfwd}):
        with pytest.raises(ArgumentError) as a:
            method(bratu, np.ones(9), **both)
        given = "jac and jacobian are both" if both else "neither jac nor jacobian is"
        assert f"{name}: {given} given" in str(a.value)
        assert "jac=, a function of x, or jacobian=, a transformation of f: fx.jacfwd, fx.sparse_jacobian" in str(
            a.value
        )
