"""`cg`, `bicgstab`, `gmres`: solutions, reports, reasons to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.lax import Breakdown
from fxad.lax.implicit.maps import complex_linear
from fxad.lax.implicit.vectors import norm
from tests.implicit.test_systems import close, dense, interpreted

RNG = np.random.default_rng(2)
N = 30
ANY = RNG.normal(size=(N, N)) / N**0.5 + 2 * np.eye(N)
DEFINITE = ANY @ ANY.T
B = RNG.normal(size=N)
SOLVERS: list[Any] = [lax.cg, lax.bicgstab, lax.gmres]


def matrix_for(solver: Any) -> Any:
    return DEFINITE if solver is lax.cg else ANY


def ran(solver: Any, a: Any, b: Any, *guess: Any, **options: Any) -> Any:
    """Returns (x, report), interpreted."""
    return interpreted(lambda b, *guess: solver(a, b, *guess, **options), b, *guess)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_solution_and_its_report(solver: Any, dtype: str) -> None:
    a: Any = matrix_for(solver)
    b: Any = B
    if dtype.startswith("c"):
        u = RNG.normal(size=(N, N)) * 0.1
        a, b = a + 1j * (u - u.T), b * (1 - 2j)
    a, b = a.astype(dtype), b.astype(dtype)
    tol = 1e-5 if dtype in ("float32", "complex64") else 1e-12
    x, report = solver(a, b, tol=tol) if dtype == "float64" else ran(solver, a, b, tol=tol)
    left = float(np.linalg.norm(b - a @ np.asarray(x)))
    assert x.dtype.name == dtype
    assert report.residual_norm.dtype.name == {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    assert left <= 1.1 * tol * np.linalg.norm(b)
    np.testing.assert_allclose(float(report.residual_norm), left, rtol=0.2, atol=1e-6 * float(np.linalg.norm(b)))
    assert bool(report.converged)
    assert 0 < int(report.iterations) <= 2 * N
    assert int(report.breakdown) == Breakdown.NONE


@pytest.mark.parametrize("solver", SOLVERS)
def test_functions_trees_half_precision_and_guesses(solver: Any) -> None:
    m = matrix_for(solver)
    b = {"u": B[:20].reshape(4, 5), "v": (B[20:29], B[29])}
    flat, unravel = fx.tree.ravel(b)

    def apply(x: Any) -> Any:
        return unravel(m @ fx.tree.ravel(x)[0])

    want = unravel(np.linalg.solve(m, np.asarray(flat)))
    x, report = ran(solver, apply, b, tol=1e-12)
    close(x, want)
    _, again = ran(solver, apply, b, x, tol=1e-11)
    assert int(again.iterations) == 0, "a guess that is the solution"
    assert int(report.iterations) > 0
    half, _ = ran(solver, m.astype(np.float16), B.astype(np.float16), tol=1e-2)
    assert half.dtype.name == "float16"
    np.testing.assert_allclose(np.asarray(half, np.float32), np.linalg.solve(m, B), atol=0.05)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_preconditioner_saves_steps(solver: Any) -> None:
    m = matrix_for(solver) * np.logspace(0, 3, N)[:, None]
    m = m * np.logspace(0, 3, N)[None, :] if solver is lax.cg else m
    inverse = np.diag(1 / np.diag(m))
    plain, good = ran(solver, m, B, tol=1e-8)[1], ran(solver, m, B, tol=1e-8, M=inverse)[1]
    assert bool(good.converged)
    assert int(good.iterations) < int(plain.iterations)
    exact, report = ran(solver, m, B, tol=1e-8, M=lambda x: fnp.linalg.solve(m, x))
    assert int(report.iterations) <= 2
    close(exact, np.linalg.solve(m, B), 1e-6)

    def f(m: Any) -> Any:
        return fnp.sum(solver(m, B, tol=1e-12, M=inverse)[0])

    def plain_sum(m: Any) -> Any:
        return fnp.sum(fnp.linalg.solve(m, B))

    close(interpreted(fx.grad(f), m), interpreted(fx.grad(plain_sum), m), 1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_under_vmap_each_example_has_its_own_report(solver: Any) -> None:
    m = matrix_for(solver)
    bs = np.stack([B, 0 * B, np.full(N, np.nan), m @ np.ones(N)])

    def found(b: Any) -> Any:
        return solver(m, b, tol=1e-10)

    xs, reports = interpreted(fx.vmap(found), bs)
    for k in (0, 1, 3):
        x, report = ran(solver, m, bs[k], tol=1e-10)
        close(xs[k], x, 1e-8)
        assert int(reports.iterations[k]) == int(report.iterations)
    assert np.asarray(reports.converged).tolist() == [True, True, False, True]
    assert np.asarray(reports.breakdown).tolist() == [0, 0, Breakdown.NOT_FINITE, 0]
    assert int(reports.iterations[1]) == 0
    assert np.isnan(np.asarray(xs[2])).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_zero_right_hand_side_gives_zero_for_any_guess(solver: Any) -> None:
    x, report = ran(solver, matrix_for(solver), 0 * B, B)
    assert not np.asarray(x).any()
    assert bool(report.converged)
    assert float(report.residual_norm) == 0


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_tiny_and_huge_right_hand_sides(solver: Any, scale: float) -> None:
    """In float32 the squares of these numbers overflow or underflow; cotangents may be as large or small."""
    m, b = matrix_for(solver).astype(np.float32), (B * scale).astype(np.float32)
    x, report = ran(solver, m, b)
    assert bool(report.converged)
    np.testing.assert_allclose(np.asarray(x) / scale, np.linalg.solve(m, B), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_singular_systems_end_and_are_reported(solver: Any) -> None:
    m = np.diag([1.0, 2.0, 0.0])
    x, report = ran(solver, m, np.array([1.0, 1.0, 1.0]))
    assert not bool(report.converged)
    assert int(report.iterations) <= 60
    assert np.isfinite(np.asarray(x)).all() or int(report.breakdown) == Breakdown.NOT_FINITE
    x, report = ran(solver, m, np.array([1.0, 4.0, 0.0]))
    assert bool(report.converged), "in the range of the matrix"
    close(x, np.array([1.0, 2.0, 0.0]))
    x, report = ran(solver, np.zeros((3, 3)), np.ones(3))
    assert int(report.breakdown) == Breakdown.SINGULAR
    assert np.isfinite(np.asarray(x)).all()


def test_breakdowns() -> None:
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    _, report = ran(lax.bicgstab, turn, np.array([1.0, 0.0]))
    assert (bool(report.converged), int(report.breakdown)) == (False, Breakdown.SINGULAR), "its inner product is zero"
    x, report = ran(lax.gmres, turn, np.array([1.0, 0.0]))
    assert bool(report.converged)
    close(x, np.array([0.0, 1.0]))
    _, report = ran(lax.gmres, turn, np.array([1.0, 0.0]), restart=1)
    assert int(report.breakdown) == Breakdown.STAGNATED
    _, report = ran(lax.cg, np.eye(2), np.ones(2), M=np.zeros((2, 2)))
    assert int(report.breakdown) == Breakdown.ORTHOGONAL
    for solver in SOLVERS:
        _, report = ran(solver, np.eye(2) * np.nan, np.ones(2))
        assert int(report.breakdown) == Breakdown.NOT_FINITE


@pytest.mark.parametrize("solver", SOLVERS)
def test_limits(solver: Any) -> None:
    options: Any = {"restart": 2} if solver is lax.gmres else {}
    _, report = ran(solver, matrix_for(solver), B, tol=1e-12, maxiter=1, **options)
    assert (bool(report.converged), int(report.breakdown)) == (False, Breakdown.NONE)
    assert int(report.iterations) == (2 if options else 1)
    x, report = ran(solver, matrix_for(solver), B, maxiter=0)
    assert int(report.iterations) == 0
    assert not np.asarray(x).any()
    _, report = ran(solver, matrix_for(solver), B, tol=0.0, atol=1e-3)
    assert float(report.residual_norm) <= 1e-3
    _, report = ran(solver, matrix_for(solver).astype(np.float32), B.astype(np.float32), tol=1e-12)
    assert not bool(report.converged), "less than float32 can hold"
    assert int(report.breakdown) == Breakdown.STAGNATED


def test_gmres_restarts_from_the_residual() -> None:
    want = np.linalg.solve(ANY, B)
    for restart in (3, 7, 100):
        x, report = ran(lax.gmres, ANY, B, tol=1e-11, restart=restart)
        close(x, want)
        assert bool(report.converged)
        assert int(report.iterations) >= 15


def test_empty_and_single() -> None:
    for solver in SOLVERS:
        x, report = ran(solver, lambda x: 2 * x, np.zeros((0,)))
        assert x.shape == (0,)
        assert bool(report.converged)
        assert float(ran(solver, lambda x: 4 * x, 2.0)[0]) == 0.5


@pytest.mark.parametrize("solver", SOLVERS)
def test_derivatives_of_every_order_with_and_without_a_guess(solver: Any) -> None:
    m, b = matrix_for(solver)[:3, :3] + 2 * np.eye(3), B[:3]

    def scalar(solve: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def f(s: Any, b: Any) -> Any:
            return fnp.sum(fnp.sin(solve(m + s * fnp.eye(3, dtype="float64"), b * s)))

        return f

    plain: Any = scalar(dense)
    cold, warm = scalar(lambda a, b: solver(a, b, tol=1e-13)[0]), scalar(lambda a, b: solver(a, b, b, tol=1e-13)[0])
    ways: list[Any] = [cold, warm]
    s = np.float64(0.3)
    for f in ways:
        close(interpreted(fx.grad(f, argnums=(0, 1)), s, b), interpreted(fx.grad(plain, argnums=(0, 1)), s, b))
    close(interpreted(fx.jacfwd(fx.grad(ways[1])), s, b), interpreted(fx.grad(fx.grad(plain)), s, b))


def test_a_small_cotangent_is_solved_with_a_large_guess() -> None:
    def f(b: Any) -> Any:
        return fnp.sum(lax.gmres(ANY, b, 1e6 * B, tol=1e-12)[0]) * 1e-20

    want = np.linalg.solve(ANY.T, np.full(N, 1e-20))
    np.testing.assert_allclose(np.asarray(interpreted(fx.grad(f), B)), want, rtol=1e-8)


# ----------------------------------------------------------------------------- maps that are linear over the reals only


def used(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the solution, a tangent and a cotangent of it."""
    return lambda b: (f(b), fx.jvp(f, (b,), (1j * b,))[1], fx.vjp(f, b)[1](b))


@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_maps_that_conjugate_are_linear_over_the_reals(solver: Any, guess: bool) -> None:
    b = np.array([1 + 2j, -0.5j, 0.3])
    p, q = 2.0 + (0.3j if solver is not lax.cg else 0), 0.9 - 0.4j

    def f(b: Any) -> Any:
        return solver(lambda x: p * x + q * fnp.conj(x), b, b if guess else None, tol=1e-13)[0]

    def plain(b: Any) -> Any:
        return (np.conj(p) * b - q * fnp.conj(b)) / (abs(p) ** 2 - abs(q) ** 2)

    close(interpreted(used(f), b), interpreted(used(plain), b), 1e-10)


def test_which_maps_are_linear_over_complex_numbers() -> None:
    a = np.asarray(2 * np.eye(3) + 0.3j)

    def seen(f: Any) -> bool:
        program = fx.trace(f, np.ones(3, np.complex128))
        return complex_linear(program.jaxpr, (*[False] * len(program.bound), True))

    assert seen(lambda x: fnp.conj(a) @ x)
    assert seen(fx.jit(lambda x: a.conj() @ x - fnp.sum(x)))
    assert not seen(lambda x: x + fnp.conj(x) / 2)
    assert not seen(fx.jit(lambda x: 2 * fx.jit(fnp.conj)(x)))
    assert not seen(lambda x: x.real + 2j * x.imag)
    assert not seen(lambda x: lax.fori_loop(0, 2, lambda _, x: fnp.conj(x), x))


def test_real_and_complex_leaves_together() -> None:
    def f(b: Any) -> Any:
        def apply(x: Any) -> Any:
            return {"u": 2 * x["u"] + fnp.sum(x["v"]).real, "v": x["v"] * 3j + x["u"][:2]}

        return lax.gmres(apply, b, tol=1e-13)[0]

    b: Any = {"u": np.array([0.3, 0.4, 1.0]), "v": np.array([1 + 2j, -0.5j])}
    x = interpreted(f, b)
    assert [v.dtype.name for v in fx.tree.leaves(x)] == ["float64", "complex128"]
    close((2 * x["u"] + np.sum(x["v"]).real, x["v"] * 3j + x["u"][:2]), (b["u"], b["v"]), 1e-10)
    close(interpreted(lambda b: fx.jvp(f, (b,), (b,))[1], b), x, 1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_norm_of_nearly_the_largest_and_smallest_numbers(dtype: str) -> None:
    info = np.finfo(dtype)
    for scale in (float(info.max) / 8, float(info.smallest_normal) * 8, 1.0, 0.0):
        x = fnp.asarray((np.array([3, 4, 0]) * (scale / 4)).astype(dtype))
        np.testing.assert_allclose(float(fx.jit(norm)(x)), 5 * scale / 4, rtol=8 * float(info.eps))
    for bad in (np.inf, np.nan, -np.inf):
        assert np.isnan(float(fx.jit(norm)(fnp.asarray(np.array([1, bad], dtype)))))
