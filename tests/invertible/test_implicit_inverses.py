"""Inverses of solvers: the equation that a solution satisfies determines the operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import NotInvertibleError
from fxad.testing import Inversion, check_inverse
from fxad.testing.derivative_laws import check_same_derivatives
from fxad.transforms.inversion.invertible import invertible

X = np.array([0.5, -1.0, 2.0])
W = np.array([0.25, 1.5, 0.75])
A = np.array([[4.0, 1, 0], [-1, 3, 1], [0.5, 0, 2]])


def solved(b: Any, a: Any) -> Any:
    return lax.custom_linear_solve(
        lambda v: a @ v, b, lambda _, b: fnp.linalg.solve(a, b), lambda _, b: fnp.linalg.solve(a.T, b)
    )


def in_a_chain(b: Any, a: Any) -> Any:
    """A linear solve between couplings, with a right-hand side of several arrays, and a matrix that depends on known
    values."""
    b = fnp.arcsinh(b) * 2.0
    c = b[::-1] - fnp.cos(fnp.diagonal(a))
    both = lax.custom_linear_solve(
        lambda v: (a @ v[0] + v[1], v[1] * 2.0),
        (b, c),
        lambda _, b: (fnp.linalg.solve(a, b[0] - b[1] / 2.0), b[1] / 2.0),
        lambda _, b: (fnp.linalg.solve(a.T, b[0]), (b[1] - fnp.linalg.solve(a.T, b[0])) / 2.0),
    )
    return fnp.sinh(both[0]), both[1]


def rooted(x: Any, w: Any) -> Any:
    """Returns t with t + w t^3 = x. The guess is x too."""
    return lax.custom_root(
        lambda t: t + w * t**3 - x,
        x,
        lambda f, t: lax.fori_loop(0, 60, lambda _, t: t - f(t) / (1 + 3 * w * t**2), t),
        lambda g, y: y / g(fnp.ones_like(y)),
    )


def fixed(x: Any, w: Any) -> Any:
    """Returns a fixed point of a layer that adds its input."""
    return lax.custom_fixed_point(
        lambda t: 0.25 * fnp.tanh(t * w) + x, x, lambda f, t: lax.fori_loop(0, 60, lambda _, t: f(t), t)
    )


FUNCTIONS: list[tuple[Callable[..., Any], Any]] = [(solved, A), (in_a_chain, A), (rooted, W)]


@pytest.mark.parametrize(("f", "w"), FUNCTIONS, ids=lambda f: getattr(f, "__name__", ""))
def test_the_equation_determines_its_operands(f: Callable[..., Any], w: Any) -> None:
    case = Inversion.of(f, X, w, keep=1)
    check_inverse(case)
    check_same_derivatives(case.case, invertible(case.program, case.kept), 1e-6)


def test_a_coefficient_of_an_equation_is_determined() -> None:
    check_inverse(Inversion.of(rooted, X, W, keep="x"))


def fixed_by_iteration(x: Any, w: Any) -> Any:
    return lax.custom_fixed_point(lambda t: 0.25 * fnp.tanh(t * w) + x, x)


@pytest.mark.parametrize("f", [fixed, fixed_by_iteration])
def test_an_equilibrium(f: Callable[..., Any]) -> None:
    check_inverse(Inversion.of(f, X, W, keep="w"))


def test_a_wrong_solution_makes_the_gradient_nan() -> None:
    def f(x: Any) -> Any:
        return fnp.sinh(lax.custom_root(lambda t: t + t**3 - x, x, lambda _, t: t * 0.5, lambda g, y: y / g(y)))

    slope = fx.trace(fx.grad(lambda x: fnp.sum(fx.invertible(lambda x: f(fnp.sinh(x)))(x))), X)
    assert np.isnan(np.asarray(fx.interpret(slope, X)[0])).any()


SINE = "sin is not inverted: operands a period apart have the same result"
MATRIX = "linear_solve is not inverted: what its matvec needs to know is unknown"


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    ("f", "w", "argnums", "reason", "inside"),
    [
        (solved, A, 1, f"argument a of solved is not determined by its results: {MATRIX}", ()),
        (solved, A, (0, 1), f"argument b of solved is not determined by its results: {MATRIX}", ()),
        (
            rooted,
            W,
            (0, 1),
            "argument x of rooted is not determined by its results: sub is not inverted: both operands are unknown",
            ("root of <lambda>",),
        ),
        (
            lambda x, w: lax.custom_root(lambda t: t - fnp.sin(x) * w, w, lambda _, t: t, lambda _, y: y),
            W,
            0,
            f"argument x of <lambda> is not determined by its results: {SINE}",
            ("root of <lambda>",),
        ),
        (
            lambda x, w: lax.custom_root(lambda t: t - w, x, lambda _, t: t, lambda _, y: y),
            W,
            0,
            "argument x of <lambda> is not determined by its results: root is not inverted: no result depends on it",
            (),
        ),
    ],
)
def test_operands_that_an_equation_does_not_determine(
    f: Any, w: Any, argnums: Any, reason: str, inside: tuple[str, ...]
) -> None:
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(f, X, w), argnums)
    assert e.value.message == f"inverse: {reason}"
    assert e.value.inside == inside


@pytest.mark.parametrize(("f", "w"), [(solved, A), (rooted, W)])
def test_no_log_determinant(f: Any, w: Any) -> None:
    name = "root" if f is rooted else "linear_solve"
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(f, X, w), log_det=True)
    assert e.value.message == (
        f"inverse: log_det of {f.__name__}: {name} is not inverted: its log-determinant is not known"
    )


def test_an_equation_whose_derivative_stores_nothing() -> None:
    """Regression, an IndexError: the gradient of a square is linear, so its derivative stores nothing."""

    def nearest(w: Any, x: Any) -> Any:
        return lax.custom_minimize(lambda y: fnp.sum((y - x * w) ** 2), fnp.zeros_like(x), lambda _, y: y + x * w)

    def coupling(w: Any, t: Any) -> Any:
        return t[0], t[1] * 2 + nearest(w, t[0])

    def gradient(f: Any) -> Any:
        def loss(x: Any) -> Any:
            return fnp.sum(f(W, (x, x * x))[1] ** 3)

        program: Any = fx.trace(loss, X)
        return fx.interpret(fx.grad(program), X)

    np.testing.assert_allclose(gradient(fx.invertible(coupling, keep="w")), gradient(coupling), rtol=1e-9)
