"""`custom_root` and functions built on it: derivatives of implicitly defined values, against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, random
from fxad.core.typecheck import typecheck
from fxad.primitives.implicit import Root
from tests.implicit.test_systems import close, count, interpreted
from tests.laws.budget import share

RNG = np.random.default_rng(1)
M = RNG.normal(size=(3, 3)) * 0.3
C = RNG.normal(size=3)


def newton(f: Callable[[Any], Any], x: Any) -> Any:
    """Newton's method until convergence: a loop without a bound, which has no reverse mode."""
    flat, unravel = fx.tree.ravel(x)

    def left(v: Any) -> Any:
        return fx.tree.ravel(f(unravel(v)))[0]

    def step(v: Any) -> Any:
        return v - fnp.linalg.solve(fx.jacfwd(left)(v), left(v))

    return unravel(lax.while_loop(lambda v: fnp.max(fnp.abs(left(v))) > 1e-14, step, flat))


def dense_tangents(g: Any, y: Any) -> Any:
    flat, unravel = fx.tree.ravel(y)
    m = fx.jacfwd(lambda v: fx.tree.ravel(g(unravel(v)))[0])(flat)
    return unravel(fnp.linalg.solve(m, flat))


def looped_tangents(g: Any, y: Any) -> Any:
    """A solver for tangents with a loop without a bound. Its transpose is the solver with the transpose of g."""

    def left(x: Any) -> Any:
        return y - g(x)

    return lax.while_loop(lambda x: fnp.max(fnp.abs(left(x))) > 1e-15, lambda x: x + 0.3 * left(x), fnp.zeros_like(y))


def by_gmres(g: Any, y: Any) -> Any:
    return lax.gmres(g, y, tol=1e-14)[0]


def equation(m: Any, c: Any) -> Callable[[Any], Any]:
    """x + m sin(x) = c. The Jacobian is not symmetric."""
    return lambda x: x + m @ fnp.sin(x) - c


def implicit(tangents: Any) -> Callable[[Any, Any], Any]:
    return lambda m, c: lax.custom_root(equation(m, c), fnp.zeros_like(c), newton, tangents)


def unrolled(m: Any, c: Any) -> Any:
    """The root by unrolled steps of Newton's method. Its derivative is exact after convergence."""
    x = fnp.zeros_like(c)
    for _ in range(9):
        x = x - fnp.linalg.solve(fx.jacfwd(equation(m, c))(x), equation(m, c)(x))
    return x


def third_order(f: Any) -> Any:
    def g(m: Any, c: Any) -> Any:
        return fnp.sum(f(m * c[0], c))

    return fx.jacfwd(fx.jacrev(fx.grad(g, argnums=1), argnums=1), argnums=1)


def pushed_pullback(f: Any) -> Any:
    def pullback(m: Any, c: Any) -> Any:
        return fx.vjp(f, m, c)[1](c)

    return lambda m, c: fx.jvp(pullback, (m, c), (m, c))[1]


def gradient_of(f: Any) -> Any:
    return fx.grad(lambda m, c: fnp.sum(f(m, c) ** 2))


def iterated(f: Any, m: Any, c: Any) -> Any:
    def step(x: Any, _: None) -> Any:
        return f(m, x), None

    return lax.scan(step, c, None, 3)[0]


USES: dict[str, Callable[[Any], Callable[[Any, Any], Any]]] = {
    "value": lambda f: f,
    "jacfwd": lambda f: fx.jacfwd(f, argnums=(0, 1)),
    "jacrev": lambda f: fx.jacrev(f, argnums=(0, 1)),
    "hessian": lambda f: fx.hessian(lambda m, c: fnp.sum(fnp.sin(f(m, c))), argnums=(0, 1)),
    "reverse over reverse": lambda f: fx.jacrev(fx.grad(lambda m, c: fnp.sum(f(m, c) ** 3))),
    "third": third_order,
    "jvp of vjp": pushed_pullback,
    "vmap over both": lambda f: lambda m, c: fx.vmap(f)(fnp.stack([m, m.T]), fnp.stack([c, c**2])),
    "vmap of grad": lambda f: lambda m, c: fx.vmap(gradient_of(f), (None, 0))(m, fnp.stack([c, c / 2])),
    "in scan": lambda f: fx.grad(lambda m, c: fnp.sum(iterated(f, m, c))),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("tangents", [dense_tangents, looped_tangents, by_gmres])
def test_derivatives_of_a_root(tangents: Any, use: str) -> None:
    have, want = USES[use](implicit(tangents)), USES[use](unrolled)
    if tangents is dense_tangents and use in ("value", "vmap of grad"):
        close(have(M, C), interpreted(want, M, C), 1e-8)
    else:
        close(interpreted(have, M, C), interpreted(want, M, C), 1e-8)


def test_the_solver_is_not_differentiated() -> None:
    f = implicit(dense_tangents)
    program = fx.trace(lambda m, c: fnp.sum(f(m, c)), M, C)
    for made in (program, fx.grad(program), fx.jvp(program)):
        assert count(fx.dce(made).jaxpr, "while") == 1, "the primal solve alone"
    assert fx.linearize(program).residual_bytes <= 8 * (9 + 9 + 3 + 3), (
        "m, a Jacobian, x, cos(x): no step of the solver"
    )


def test_trees_integers_and_auxiliary_results() -> None:
    def f(s: Any) -> Callable[[Any], Any]:
        return lambda x: {"n": x["n"], "u": x["u"] ** 2 - s, "v": x["v"] * x["u"] - fnp.cos(s)}

    def solve(f: Any, x: Any) -> Any:
        u = fnp.sqrt(-f({"n": 0, "u": fnp.zeros(2), "v": x["v"]})["u"])
        return {"n": 7, "u": u, "v": -f({**x, "u": u, "v": 0 * u})["v"] / u}, (random.key(3), u > 1, 4, u)

    def tangents(g: Any, y: Any) -> Any:
        assert y["n"] is None
        return lax.gmres(g, y, tol=1e-6)[0]

    def root(s: Any) -> Any:
        guess = {"n": 1, "u": np.ones(2, np.float32), "v": np.ones(2, np.float32)}
        return lax.custom_root(f(s), guess, solve, tangents, has_aux=True)

    s = np.array([2.0, 3.0], np.float32)
    x, aux = interpreted(root, s)
    assert int(x["n"]) == 7
    assert [a.dtype.name for a in aux] == ["uint32", "bool", "int32", "float32"]
    close((x["u"], x["v"]), (np.sqrt(s), np.cos(s) / np.sqrt(s)), 1e-5)
    modes: list[Any] = [fx.jacfwd, fx.jacrev]
    for mode in modes:
        jacobian = interpreted(mode(lambda s: (root(s)[0]["u"], root(s)[0]["v"])), s)
        slope = -np.sin(s) / np.sqrt(s) - np.cos(s) / 2 * s**-1.5
        close(jacobian, (np.diag(0.5 / np.sqrt(s)), np.diag(slope)), 1e-5)
    dots = interpreted(lambda s: fx.jvp(root, (s,), (s,))[1], s)
    assert dots[0]["n"] is None
    close(dots[1][3], np.zeros(2))


def test_all_functions_close_over_a_differentiated_value() -> None:
    """The equation, the guess, the solver and the tangent solver close over s, which is differentiated."""

    def f(s: Any) -> Any:
        def solve(f: Any, x: Any) -> Any:
            return lax.fori_loop(0, 40, lambda _, x: x - f(x) / (3 * x * x + 0 * s), x + s)

        return lax.custom_root(lambda x: x**3 - s * fnp.sin(s), s, solve, lambda g, y: s * y / g(s))

    def plain(s: Any) -> Any:
        return fnp.cbrt(s * fnp.sin(s))

    s = np.float64(1.3)
    orders: list[Callable[[Any], Any]] = [
        fx.grad,
        lambda f: fx.grad(fx.grad(f)),
        lambda f: fx.jacfwd(fx.grad(fx.grad(f))),
    ]
    for derive in orders:
        close(interpreted(derive(f), s), interpreted(derive(plain), s), 1e-9)
    close(fx.jit(fx.vmap(fx.grad(f)))(np.array([1.0, 1.5])), fx.vmap(fx.grad(plain))(np.array([1.0, 1.5])), 1e-9)


def test_roots_in_roots() -> None:
    """The equation of one root contains another root."""

    def inner(c: Any) -> Any:
        return lax.custom_root(lambda x: x + fnp.sin(x) / 2 - c, c, newton, lambda g, y: y / g(fnp.ones_like(y)))

    def outer(c: Any) -> Any:
        return lax.custom_root(lambda y: y + inner(y) - c, c, newton, lambda g, y: y / g(fnp.ones_like(y)))

    c = np.float64(1.1)
    h = 1e-4
    less, at, more = [interpreted(outer, v) for v in (c - h, c, c + h)]
    want = [(more - less) / (2 * h), (more - 2 * at + less) / h**2]
    close([interpreted(fx.grad(outer), c), interpreted(fx.grad(fx.grad(outer)), c)], want, 1e-5)


def test_an_equation_without_reverse_mode_has_forward_mode() -> None:
    def f(s: Any) -> Any:
        def power(x: Any) -> Any:  # x**4, by a loop without a bound
            return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] ** 2), (0, x))[1]

        return lax.custom_root(lambda x: power(x) - s, 1.0, newton, lambda g, y: y / g(1.0))

    close(f(16.0), 2.0, 1e-6)
    close(fx.jvp(f, (16.0,), (1.0,))[1], 1 / 32, 1e-6)
    with pytest.raises(fx.errors.NotDifferentiableError, match="has no transpose, which reverse mode needs"):
        fx.grad(f)(16.0)


# ----------------------------------------------------------------------------------------- fixed points and minima


def test_fixed_points() -> None:
    def f(m: Any, c: Any) -> Any:
        return lax.custom_fixed_point(lambda x: c - m @ fnp.sin(x), fnp.zeros_like(c))

    for use in ("value", "jacrev", "vmap of grad"):
        close(interpreted(USES[use](f), M, C), interpreted(USES[use](unrolled), M, C), 1e-8)
    x, report = lax.custom_fixed_point(lambda x: C - M @ fnp.sin(x), np.zeros(3), has_aux=True)
    assert bool(report.converged)
    assert 0 < int(report.iterations) < 100
    close(x, interpreted(unrolled, M, C), 1e-10)


def test_fixed_points_by_a_custom_solver() -> None:
    def f(c: Any) -> Any:
        return lax.custom_fixed_point(
            lambda x: c - M @ fnp.sin(x), c, lambda f, x: newton(lambda x: f(x) - x, x), dense_tangents
        )

    def steps(c: Any) -> Any:
        return unrolled(M, c)

    close(interpreted(fx.jacrev(f), C), interpreted(fx.jacrev(steps), C), 1e-9)


def test_fixed_points_of_complex_numbers_that_are_conjugated() -> None:
    def f(c: Any) -> Any:
        return lax.custom_fixed_point(lambda z: c - 0.5j * fnp.conj(z), fnp.zeros_like(c))

    def plain(c: Any) -> Any:
        return (c - 0.5j * fnp.conj(c)) / 0.75

    def both(f: Any) -> Any:
        return lambda c: (f(c), fx.jvp(f, (c,), (1j * c,))[1], fx.vjp(f, c)[1](c))

    c = np.array([1 + 2j, -0.5j])
    close(interpreted(both(f), c), interpreted(both(plain), c), 1e-9)


def test_a_derivative_that_does_not_exist_is_nan() -> None:
    """For the first number every x is a fixed point, or a minimum without a second derivative."""

    def fixed(c: Any) -> Any:
        return lax.custom_fixed_point(lambda x: fnp.stack([x[0] + 0 * c[0], c[1] - x[1] / 2]), fnp.zeros_like(c))

    def least(c: Any) -> Any:
        found: Any = lax.custom_minimize(lambda x: fnp.sum((x - c) ** 4), fnp.zeros_like(c), lambda f, x: c)
        return fnp.sum(found)

    c = np.ones(2)
    np.testing.assert_allclose(interpreted(fx.jacrev(fixed), c), [[np.nan] * 2, [0, 2 / 3]], atol=1e-9)
    assert np.isnan(interpreted(fx.grad(least), c)).all()


def test_minima() -> None:
    """Weighted least squares: the minimum is known, and the second derivative is a matrix in the data."""
    design, y = RNG.normal(size=(6, 3)), RNG.normal(size=6)

    def objective(w: Any, penalty: Any) -> Any:
        return fnp.sum((design @ w["slope"] - y) ** 2) + fnp.sum(fnp.exp(penalty) * w["slope"] ** 2)

    def by_steps(f: Any, w: Any) -> Any:
        return newton(fx.grad(f), w)

    def implicit(penalty: Any) -> Any:
        return lax.custom_minimize(lambda w: objective(w, penalty), {"slope": np.zeros(3)}, by_steps)["slope"]

    def ridge(penalty: Any) -> Any:
        return fnp.linalg.solve(design.T @ design + fnp.diag(fnp.exp(penalty)), design.T @ y)

    penalty = np.array([0.1, -0.4, 0.3])
    for derive in (fx.jacrev, lambda f: fx.jacfwd(fx.jacrev(f))):
        close(interpreted(derive(implicit), penalty), interpreted(derive(ridge), penalty), 1e-8)
    both = interpreted(fx.vmap(fx.jacrev(implicit)), np.stack([penalty, penalty + 1]))
    close(both[0], interpreted(fx.jacrev(ridge), penalty), 1e-8)


def test_a_program_with_a_root_reads_back() -> None:
    program = fx.trace(implicit(by_gmres), M, C)
    assert any(isinstance(e.prim, Root) for e in program.jaxpr.eqns)
    for made in (program, fx.jvp(program), fx.vjp(program)):
        typecheck(made.jaxpr)
        assert fx.text.parse(str(made.jaxpr)) is made.jaxpr


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(["jvp", "grad", "vmap", "remat", "jit"]), max_size=3))
@share(6)
def test_any_root_under_any_stack(seed: int, stack: list[str]) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    m, c = rng.normal(size=(n, n)) * 0.3 / n, rng.normal(size=n)
    m *= min(1.0, 0.4 / float(np.linalg.norm(m, 2)))  # so that the unrolled steps converge

    def stacked(root: Any) -> Any:
        def f(s: Any) -> Any:
            return fnp.sum(fnp.cos(root(m * (1 + s / 10), fnp.sin(s) * c)))

        for name in stack:
            f = STACK[name](f)
        return f

    close(interpreted(stacked(implicit(by_gmres)), 0.7), interpreted(stacked(unrolled), 0.7), 1e-7)


STACK: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: lambda s: fx.jvp(f, (s,), (1.0 + s,))[1],
    "grad": fx.grad,
    "vmap": lambda f: lambda s: fnp.sum(fx.vmap(f)(fnp.stack([s, 2 * s]))),
    "remat": fx.remat,
    "jit": fx.jit,
}


def repelled(c: Any) -> Any:
    """The fixed point -c of 2 x + c is repelling. f is linear, so its derivative does not depend on x."""
    return lax.custom_fixed_point(lambda x: c + 2 * x, fnp.zeros_like(c))


def circling(c: Any) -> Any:
    """The fixed point c / 2 of c - x, around which the iteration alternates."""
    return lax.custom_fixed_point(lambda x: c - x, fnp.zeros_like(c))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("f", [repelled, circling])
def test_an_iteration_that_does_not_converge_gives_nan(f: Callable[[Any], Any], dtype: str) -> None:
    c = np.arange(1, 3, dtype=dtype)
    assert np.isnan(np.asarray(f(c))).all()
    assert np.isnan(np.asarray(fx.jvp(f, (c,), (c,))[1])).all(), "the derivative of what was not found"
    _, pull = fx.vjp(f, c)
    assert np.isnan(np.asarray(pull(c)[0])).all()


def test_examples_of_a_batch_that_do_not_converge_are_nan() -> None:
    def f(rate: Any) -> Any:
        return lax.custom_fixed_point(lambda x: {"x": 1 + rate * x["x"], "n": x["n"]}, {"x": np.float64(0), "n": 3})

    found = fx.vmap(f)(np.array([0.5, -1.0, 0.0, 3.0]))
    np.testing.assert_array_equal(np.asarray(found["n"]), 3)
    np.testing.assert_allclose(np.asarray(found["x"]), [2, np.nan, 1, np.nan], rtol=1e-10)
    dots = fx.vmap(fx.grad(lambda rate: f(rate)["x"]))(np.array([0.5, -1.0, 0.0, 3.0]))
    np.testing.assert_allclose(np.asarray(dots), [4, np.nan, 1, np.nan], rtol=1e-10)


def test_with_a_report_the_last_iterate_is_returned() -> None:
    x, report = lax.custom_fixed_point(lambda x: 3.0 - x, np.zeros(2), has_aux=True)
    assert not bool(report.converged)
    assert np.isfinite(np.asarray(x)).all()
    nothing = lax.custom_fixed_point(lambda x: x / 2, np.zeros((0, 2)))
    assert nothing.shape == (0, 2), "nothing has converged"


@pytest.mark.parametrize("rule", ["root", "linear system"])
def test_solvers_call_the_host_in_order(rule: str) -> None:
    """Regression: they were refused when compiled, because calls in bodies with rules were not put in order."""
    seen: list[tuple[str, float]] = []

    def tell(what: str, v: Any) -> None:
        fx.io_callback(lambda v: seen.append((what, float(v))), None, v, ordered=True)

    def solved(v: Any) -> Any:
        tell("solver", v)
        return v / 2.0

    def f(x: Any) -> Any:
        tell("before", x)
        if rule == "root":
            y = lax.custom_root(lambda y: 2.0 * y - x, x, lambda f, y: solved(y), lambda g, y: y / g(1.0))
        else:
            y = lax.custom_linear_solve(lambda v: 2.0 * v, x, lambda mv, b: solved(b), symmetric=True)
        tell("after", y)
        return y

    x = np.float32(3)
    for program in (fx.trace(f, x), fx.grad(fx.trace(f, x))):
        want = np.asarray(fx.interpret(program, x))
        told = [seen.pop(0) for _ in seen[:]]
        assert told[:3] == [("before", 3.0), ("solver", 3.0), ("after", 1.5)]
        np.testing.assert_array_equal(fx.lower(program).compile()(x), want)
        assert [seen.pop(0) for _ in seen[:]] == told
